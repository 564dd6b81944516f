#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# usage: planted.sh [NAME...]
#
# Plants faults in a copy of lib/, one at a time, and expects the tests to catch
# each: the broken rules of planted.faults, and every wait of the library left
# out in turn, wherever a call of one stands.  Without names: all of them.
# Speaks TAP, one line a fault, with what caught it.
#
# CC, CFLAGS, HWLOC_CFLAGS, HWLOC_LIBS, CHECK_CFLAGS, CHECK_LIBS as for the library.
# PLANTED_JOBS faults are tried at the same time; each gets PLANTED_SEEDS seeds of
# PLANTED_CALLS calls of the random driver, then the suites, of which check_states looks at
# PLANTED_STATES states of a shape; no run takes more than PLANTED_LIMIT seconds.
# PLANTED_PROGRAMS are these programs, in the order in which they are run until one fails.

set -u
unset CDPATH
tests=$(cd "$(dirname "$0")" && pwd) || exit 99
top=${tests%/*}
faults=$tests/planted.faults
: "${CC:=cc}" "${CFLAGS=-O1}" "${PLANTED_CALLS:=150000}" "${PLANTED_SEEDS:=1 2 3}" "${PLANTED_STATES:=20000}"
: "${PLANTED_JOBS:=$(getconf _NPROCESSORS_ONLN)}" "${PLANTED_LIMIT:=100}"
: "${HWLOC_CFLAGS=$(pkg-config --cflags hwloc)}" "${HWLOC_LIBS=$(pkg-config --libs hwloc)}"
: "${CHECK_CFLAGS=$(pkg-config --cflags check)}" "${CHECK_LIBS=$(pkg-config --libs check)}"
# Run until one fails: the driver, and what sees faults that it does not.
: "${PLANTED_PROGRAMS:=random_driver check_elastic check_admission check_order check_refill check_backup check_suspend
	check_ticker check_tier check_abuse check_staging check_calculators check_states}"

# ---- planting -----------------------------------------------------------------

# What planted.faults says of a fault.
file_of()
{
	sed -n "s/^fault $1 //p" "$faults"
}
rule_of()
{
	sed -n "/^fault $1 /,/^rule /s/^rule //p" "$faults"
}

# Prints the file $2 with fault $1 in it.
plant_rule()
{
	awk -v name="$1" -f "$tests/plant.awk" "$faults" "$2"
}

# The waits of a file: calls, in lines that are indented, of functions that make a
# stream or the host wait.  With $2 prints the file without the $2-th of them; else
# a line for each, the function that it is in and the call.
waits()
{
	awk -v left_out="${2:-0}" '
	function call_end(text, at, depth, c) {
		do {
			c = substr(text, at++, 1)
			depth += (c == "(") - (c == ")")
		} while (depth)
		return at
	}
	function enclosing(text, line, name) {
		name = "?"
		while (match(text, /\n[a-z][^\n;]*[a-z_]+\(/)) {
			line = substr(text, RSTART, RLENGTH - 1)
			text = substr(text, RSTART + RLENGTH)
			sub(/.*[^a-z_]/, "", line)
			name = line
		}
		return name
	}
	{ text = text $0 "\n" }
	END {
		wait = "([a-z_]+->)*([a-z_]+_(wait|sync)|wait|wait_for_[a-z_]+|" \
			"run_until_[a-z_]+|dhs_residency_host_ready|dhs_step_take_over)\\("
		while (match(substr(text, from + 1), wait)) {
			start = from + RSTART
			from = start + RLENGTH - 1
			before = substr(text, 1, start - 1)
			line = before
			sub(/.*\n/, "", line)
			if (line !~ /^\t/ || line ~ /[a-z_>]$/)
				continue
			end = call_end(text, from)
			call = substr(text, start, end - start)
			gsub(/[\n\t ]+/, " ", call)
			if (!left_out)
				print enclosing(before) ": " call
			else if (++n == left_out)
				printf "%s0%s", before, substr(text, end)
		}
		exit n < left_out
	}' "$1"
}

# ---- building and running --------------------------------------------------------

# compile DIRECTORY OBJECT SOURCE: against the lib/ in DIRECTORY.
compile()
{
	# shellcheck disable=SC2086 # lists of words
	$CC -std=c17 -D_DEFAULT_SOURCE -I"$top/include" -iquote "$1/lib" -iquote "$tests" \
		$HWLOC_CFLAGS $CHECK_CFLAGS $CFLAGS -w -pthread -c -o "$2" "$3"
}

# Compiles all of the lib/ in the directory $1.
build_library()
{
	for source in "$1"/lib/*.c "$1"/lib/host/*.c; do
		object=${source#"$1/lib/"}
		compile "$1" "$1/$(echo "${object%.c}" | tr / -).o" "$source" || return
	done
}

# link_program DIRECTORY PROGRAM: the objects in DIRECTORY stand in for the same ones of the
# library as it is, whose archive is only searched for what is missing.
link_program()
{
	# shellcheck disable=SC2086 # lists of words
	$CC $CFLAGS -pthread -o "$1/$2" "$work/programs/$2.o" "$1"/*.o \
		"$work/programs/support.a" "$work/lib.a" $CHECK_LIBS $HWLOC_LIBS -lm
}

build_programs()
{
	ar cr "$work/lib.a" "$work"/clean/*.o && mkdir "$work/programs" || return
	for program in $PLANTED_PROGRAMS model support device_host; do
		compile "$work/clean" "$work/programs/$program.o" "$tests/$program.c" || return
	done
	ar cr "$work/programs/support.a" "$work/programs/model.o" "$work/programs/support.o" \
		"$work/programs/device_host.o"
}

# runs DIRECTORY COMMAND...: 0 if it passes, 1 if it fails or crashes, 124 if it
# did not end; else it could not run.
runs()
{
	log=$1/log
	shift
	timeout "$PLANTED_LIMIT" "$@" >"$log" 2>&1 </dev/null
	status=$?
	[ $status -le 128 ] || status=1
	return $status
}

# What a failed run says, in one line: where, and what.
reason()
{
	{
		sed -n 's/^# run seed.*\(round seed .*\)/\1:/p' "$1/log"
		sed -n 's/^# FAILED: //p; s/^not ok [0-9]* - [^:]*:[^:]*://p' "$1/log" | head -n 1
	} | tr '\n' ' ' | cut -c 1-150
}

# passes DIRECTORY PROGRAM: as runs, in all its runs.
passes()
{
	catcher=$2
	link_program "$1" "$2" 2>"$1/log" || return 2
	case $2 in
	random_driver)
		for seed in $PLANTED_SEEDS; do
			catcher="$2 --seed $seed"
			runs "$1" "$1/$2" --seed "$seed" --calls "$PLANTED_CALLS" || return
		done
		;;
	check_states) runs "$1" "$1/$2" --states "$PLANTED_STATES" ;;
	*) runs "$1" env CK_TAP_LOG_FILE_NAME=- CK_VERBOSITY=silent "$1/$2" ;;
	esac
}

# all_pass DIRECTORY: stops at the first that does not, which is $catcher.
all_pass()
{
	for program in $PLANTED_PROGRAMS; do
		passes "$1" "$program" || return
	done
}

# ---- one fault ---------------------------------------------------------------------

# copy_of NAME: a directory with a copy of lib/, in $copy.
copy_of()
{
	copy=$work/$(echo "$1" | tr / -)
	mkdir "$copy" && cp -R "$top/lib" "$copy/lib" && chmod -R u+w "$copy"
}

# Compiles what the fault in file $1 of $copy changes.
build_fault()
{
	case $1 in
	*.h) build_library "$copy" ;;
	*) compile "$copy" "$copy/fault.o" "$copy/$1" ;;
	esac
}

# plant NAME: the fault in $copy; $file and $text tell which.
plant()
{
	case $1 in
	lib/*:*)
		file=${1%:*}
		text="without $(waits "$top/$file" | sed -n "${1##*:}p")"
		waits "$top/$file" "${1##*:}" >"$copy/$file"
		;;
	*)
		file=$(file_of "$1")
		text=$(rule_of "$1")
		[ -f "$copy/$file" ] && plant_rule "$1" "$top/$file" >"$copy/$file"
		;;
	esac
}

# point OK TEXT: the line of the fault.
point()
{
	echo "$1 - $name: $text | ${2-}"
	[ "$1" = ok ] || : >>"$work/failed"
}

# one NAME: plants a fault and tells what became of it.
one()
{
	name=$1 text=
	if ! copy_of "$name" || ! plant "$name"; then
		point "not ok" "not planted: its lines do not stand in the file once"
		return
	fi
	if ! build_fault "$file" 2>"$copy/log"; then
		point "not ok" "does not compile: $(grep -m 1 error "$copy/log")"
		return
	fi
	all_pass "$copy"
	case $? in
	0) point "not ok" "caught by nothing" ;;
	1) point ok "$catcher: $(reason "$copy")" ;;
	124) point "not ok" "$catcher did not end" ;;
	*) point "not ok" "$catcher did not run: $(tail -n 1 "$copy/log")" ;;
	esac
	rm -rf "$copy"
}

# ---- all ------------------------------------------------------------------------------

all_names()
{
	sed -n 's/^fault \([^ ]*\) .*/\1/p' "$faults"
	cd "$top" || exit
	for source in lib/*.c lib/host/*.c; do
		waits "$source" | awk -v file="$source" '{ print file ":" NR }'
	done
}

if [ "${1-}" = --one ]; then
	one "$2"
	exit 0
fi
# Elsewhere the tests run with less to do, which is not enough to catch faults.
if [ "${TEST_LESS:-1}" -gt 1 ]; then
	echo "1..0 # SKIP faults are planted in the plain build only"
	exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/planted.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
export work CC CFLAGS HWLOC_CFLAGS HWLOC_LIBS CHECK_CFLAGS CHECK_LIBS
export PLANTED_CALLS PLANTED_SEEDS PLANTED_STATES PLANTED_LIMIT PLANTED_PROGRAMS
# A test that a fault lets wait for ever ends by itself, within PLANTED_LIMIT.
export CK_TIMEOUT_MULTIPLIER=1

if [ $# -gt 0 ]; then
	printf '%s\n' "$@"
else
	all_names
fi >"$work/names"
echo "1..$(($(wc -l <"$work/names") + 1))"
if ! copy_of clean || ! build_library "$copy" || ! build_programs; then
	echo "Bail out!  The library as it is does not compile."
	exit 99
fi
if ! all_pass "$work/clean"; then
	echo "Bail out!  The library as it is fails $catcher: $(reason "$work/clean")"
	exit 99
fi
echo "ok - the library as it is passes"
xargs -n 1 -P "$PLANTED_JOBS" sh "$tests/planted.sh" --one <"$work/names"
[ ! -e "$work/failed" ]
