#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# usage: planted_emulated.sh BUILD [NAME...]
#
# Plants faults of planted_gpu.faults in a copy of cuda/, one at a time, and expects the random
# driver or check_large to catch each on the emulated GPU.  BUILD is a build directory after make check, from
# which all else is taken.  Without names: all of them.  Speaks TAP, with what caught a fault.
#
# CC, CXX, CXXFLAGS and CHECK_LIBS may be set.  Each fault gets PLANTED_SEEDS seeds of PLANTED_CALLS calls.

set -u
unset CDPATH
[ $# -ge 1 ] || { sed -n 's/^# usage: //p' "$0" >&2; exit 2; }
tests=$(cd "$(dirname "$0")" && pwd) || exit 99
top=${tests%/*}
faults=$tests/planted_gpu.faults
build=$(cd "$1" && pwd) || exit 99
shift
# A GPU does not bear addresses that are not aligned.
: "${CXXFLAGS=-O1 -fsanitize=alignment -fsanitize-undefined-trap-on-error}"
: "${CC:=cc}" "${CXX:=c++}" "${PLANTED_CALLS:=60000}" "${PLANTED_SEEDS:=1 2 3}"
: "${CHECK_LIBS=$(pkg-config --libs check)}"
work=$(mktemp -d "${TMPDIR:-/tmp}/planted.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

# compile SOURCE: to the name that the build has for its object.
compile()
{
	name_of=$(basename "$1")
	case $name_of in
	*.c)
		"$CC" -std=c17 -D_DEFAULT_SOURCE -DHAVE_CUDA -O1 -I "$top/tests/emulated" -I "$top/include" \
			-c -o "$work/objects/tests_libemulated_a-${name_of%.c}.o" "$1"
		return
		;;
	esac
	# shellcheck disable=SC2086 # flags
	"$CXX" -std=c++17 -w -fno-strict-aliasing -fno-exceptions -fno-rtti -fno-threadsafe-statics \
		$CXXFLAGS -I "$top/tests/emulated" -I "$top/include" \
		-x c++ -c -o "$work/objects/${name_of%.cu}.emulated" "$1"
}

# link PROGRAM OBJECT...: from the build's objects but for those that the fault changes.
link()
{
	program=$1
	shift
	objects=
	for object in "$build"/cuda/*.emulated "$build"/cuda/tests_libemulated_a-*.o; do
		changed=$work/objects/${object##*/}
		[ -f "$changed" ] && object=$changed
		objects="$objects $object"
	done
	# shellcheck disable=SC2086 # a list
	"$CC" -pthread -o "$work/$program" $objects "$build"/tests/emulated/libemulated_a-*.o \
		"$build/lib/tests_libemulated_a-setup.o" "$build/tests/libemulated_a-device_host.o" \
		"$@" "$build/.libs/libdhisparse_all.a" $CHECK_LIBS -lhwloc
}

# A fault in a header changes all kernels.
build_fault()
{
	rm -rf "$work/tree" "$work/objects"
	mkdir "$work/tree" "$work/objects"
	cp -r "$top/cuda" "$top/lib" "$work/tree/"
	awk -v name="$1" -f "$tests/plant.awk" "$faults" "$top/$2" >"$work/tree/$2" || return
	case $2 in
	*.cu | *.c) set -- "$work/tree/$2" ;;
	*) set -- "$work"/tree/cuda/*.cu ;;
	esac
	for source; do
		compile "$source" || return
	done
	link driver "$build/tests/random_driver.o" "$build/tests/model.o" &&
		link large "$build/tests/emulated_large-check_large.o" "$build/tests/libsupport.a"
}

# Whether it is found; $by tells by what.
caught()
{
	for seed in $PLANTED_SEEDS; do
		by="seed $seed"
		timeout 100 "$work/driver" --backend both --seed "$seed" --calls "$PLANTED_CALLS" \
			>"$work/log" 2>&1 || return 0
	done
	by=check_large
	! CK_TAP_LOG_FILE_NAME=- CK_VERBOSITY=silent "$work/large" >"$work/log" 2>&1
}

reason()
{
	sed -n 's/^# \(FAILED: \|emulated GPU: \)//p; s/^not ok [0-9]* - [^:]*:[^:]*://p' "$work/log" |
		head -n 1
}

# shellcheck disable=SC2046 # names
[ $# -gt 0 ] || set -- $(sed -n 's/^fault \([^ ]*\) .*/\1/p' "$faults")
echo "1..$#"
bad=0
for fault; do
	file=$(sed -n "s/^fault $fault //p" "$faults")
	if ! build_fault "$fault" "$file" 2>"$work/log"; then
		echo "not ok - $fault: not planted or not built: $(head -n 1 "$work/log")"
	elif caught; then
		echo "ok - $fault: $by: $(reason)"
		continue
	else
		echo "not ok - $fault: caught by nothing"
	fi
	bad=$((bad + 1))
done
[ $bad = 0 ]
