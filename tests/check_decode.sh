#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# The main job: examples/decode generates the text that it must, wherever its rows are.
# Speaks TAP.  DECODE, HELLO and DATA say where the programs and the model are.

: "${DECODE:=${top_builddir:-.}/examples/decode/decode}"
: "${HELLO:=${top_builddir:-.}/examples/hello}"
: "${DATA:=${top_srcdir:-${srcdir:-.}}/examples/tiny-dsa}"

for program in "$DECODE" "$HELLO"; do
	[ -x "$program" ] || { echo "Bail out! $program is not built"; exit 99; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/check_decode.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

plan=49
test=0
echo "1..$plan"

# ok STATUS NAME: one result; what the program said follows a failure.
ok() {
	test=$((test + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $test - $2"
	else
		echo "not ok $test - $2"
		sed 's/^/# /' "$work/err"
	fi
}

skip() {
	test=$((test + 1))
	echo "ok $test - $1 # SKIP $2"
}

# decode OUT OPTION...: runs the decoder, on the host backend if no option says otherwise,
# standard output to OUT.
decode() {
	out=$work/$1
	shift
	"$DECODE" --model "$DATA/model.dsat" --prompt "$DATA/prompt.txt" --backend host "$@" \
		>"$out" 2>"$work/err"
}

# number KEY OUT, texts OUT: out of the JSON object.
number() {
	sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$work/$2"
}
texts() {
	sed -n 's/.*"texts":\(\[.*\]\),"policy":.*/\1/p' "$work/$1"
}
# same A B: both made texts, and the same.
same() {
	[ -n "$(texts "$1")" ] && [ "$(texts "$1")" = "$(texts "$2")" ]
}

# passes NAME OPTION...: the run ends with status 0.
passes() {
	name=$1
	shift
	decode out "$@"
	ok $? "$name"
}

# fails STATUS TEXT OPTION...: the run ends with the status, and its message has the text.
fails() {
	status=$1 text=$2
	shift 2
	decode out "$@"
	[ $? -eq "$status" ] && grep -q -e "$text" "$work/err" && [ ! -s "$work/out" ]
	ok $? "status $status: $text"
}

"$HELLO" >"$work/out" 2>"$work/err"
ok $? "hello"

# The decoder is right: its choices are those that were recorded with the model.
passes "choices as in the report, all resident" --policy full --report "$DATA/report.json"
passes "choices as in the report, rows in two tiers" \
	--policy fixed --hot-rows 256 --report "$DATA/report.json" --step-rows 16

sed 's/^  32,$/  33,/' "$DATA/report.json" >"$work/spaces.json"
decode out --report "$work/spaces.json"
[ $? -eq 1 ]
ok $? "a report of other choices is told"

# The point of it all: a hot cache far smaller than the context, and the same text to the byte.
decode full --json --policy full --prompt-rows 8000 --tokens 300
ok $? "8,000 rows, full"
decode fixed --json --policy fixed --prompt-rows 8000 --tokens 300 --hot-rows 256 --tail-rows 64
ok $? "8,000 rows, fixed, 256 hot, 64 in the tail"
same full fixed
ok $? "the same text"
misses=$(number misses fixed)
[ "${misses:-0}" -ge 10000 ]
ok $? "at least 10,000 misses: $misses"
[ "$(number misses full)" = 0 ] && [ "$(number bytes_to_host full)" = 0 ]
ok $? "none with everything resident, and nothing copied"
[ "$(number bytes_to_device fixed)" = $((misses * 4 * 160)) ]
ok $? "each miss brings a row of each layer of its group"

# checked NAME OPTION...: every logit is the one that plain arrays give.
checked() {
	name=$1
	shift
	passes "--check, $name" --check --prompt-rows 1500 --tokens 40 "$@"
}
for policy in full fixed adaptive; do
	checked "$policy" --policy $policy --hot-rows 256
	checked "$policy, late and out of order" --policy $policy --hot-rows 256 --host-seed 7
done
checked "one row a step, odd pages, no tail" --policy fixed --hot-rows 256 --tail-rows 0 \
	--page-rows 7 --step-rows 1
checked "a hot cache smaller than a selection" --policy fixed --hot-rows 100
checked "16 queries a step" --policy fixed --hot-rows 300 --step-rows 16

# What --selections writes: a line for each step, group and session, and in them the rows that the
# library counted.
decode selected --json --sessions 2 --prompt-rows 300 --tokens 7 --selections "$work/selections"
written=$(awk 'NR == 1 { good = $0 == "selections 1 256"; k = $3; next }
	NF != 5 + k * $5 { good = 0 }
	{ for (i = 6; i <= NF; i++) if ($i >= 0) { rows++; if ($i >= $4 + $5) good = 0 } }
	END { print good, NR - 1, rows }' "$work/selections")
counted=0
for kind in page_hits hot_hits misses repeats; do
	counted=$((counted + $(number $kind selected)))
done
[ "$written" = "1 $((82 * 2 * 2)) $counted" ]
ok $? "--selections writes the rows of 82 steps: $written"

# Three sessions that share a pool too small for all their rows.
decode_three() {
	decode "$@" --sessions 3 --hot-rows 256 --prompt-rows 1200 --tokens 40 --json
}
decode_three three_full --policy full
ok $? "three sessions, full"
decode_three three --check --policy adaptive --step-rows 1 --device-rows 2600
ok $? "three sessions, adaptive, --check, room for two thirds of the rows"
same three_full three
ok $? "the same texts"
host_only=$(number host_only three) misses=$(number misses three)
[ "${host_only:-0}" -gt 0 ] && [ "${misses:-0}" -gt 0 ]
ok $? "some rows were only in host memory"
# Sessions that come and go, in a pool that has room for two thirds of the rows of five of them.
decode_eight() {
	run=$1
	shift
	decode "$run" --requests 8 --arrive 8 --device-rows 1600 --hot-rows 64 --tail-rows 32 \
		--page-rows 16 --step-rows 8 --prompt-rows 280 --tokens 60 --json "$@"
}
decode_eight eight --check --sessions 5 --progress-steps 50
ok $? "eight sessions that come and go, adaptive, --check"
cp "$work/err" "$work/lines"
evicted=$(number evicted_pages eight) refilled=$(number refilled_pages eight)
[ "${evicted:-0}" -gt 0 ] && [ "${refilled:-0}" -gt 0 ]
ok $? "history gave way and came back: $evicted pages evicted, $refilled refilled"
# Each of them alone, with all rows on the device, its prompt cut from the one of all.
alone=
for session in 0 1 2 3 4 5 6 7; do
	from=$((session * $(wc -c <"$DATA/prompt.txt") / 8))
	{ tail -c +$((from + 1)) "$DATA/prompt.txt"; head -c $from "$DATA/prompt.txt"; } >"$work/prompt"
	decode one --prompt "$work/prompt" --policy full --prompt-rows 280 --tokens 60 --json
	alone=$alone,$(texts one | sed 's/^.//; s/.$//')
done
[ "$(texts eight)" = "[${alone#,}]" ]
ok $? "each of the eight texts is that of the session alone, all resident"
# A line every 50 steps and one at the end, whose pages are those of the pool.
told=$(awk -v steps="$(number steps eight)" '
	{ line = $0; good = good && /^step [0-9]*: [0-9]* sessions, pages: / }
	NR == 1 { good = 1 }
	{ sum = 0
	  for (i = 1; i < NF; i++)
		if ($(i + 1) ~ /^(required|resident|coming|elastic|staging|free)[,;]$/) { sum += $i; states++ }
	  good = good && sum == 100 && $2 == (NR * 50 < steps ? NR * 50 : steps) ":" 
	  evicted += $(NF - 4); refilled += $(NF - 1) }
	END { print good, NR - int(steps / 50), states / NR, evicted, refilled }' "$work/lines")
[ "$told" = "1 1 6 $evicted $refilled" ]
ok $? "--progress-steps tells pages by state: $told"
decode_eight late --check --sessions 8 --progress 0.001 --host-seed 7 --device-rows 400 &&
	same eight late && [ "$(number at_a_time late)" -lt 8 ] && grep -q '^step ' "$work/err"
ok $? "sessions wait where the pool has no room for one more: $(number at_a_time late) at a time"
decode some --json --sessions 2 --requests 3 --prompt-rows 40 --tokens 7 --selections "$work/selections"
[ "$(awk 'NR > 1 && $4 == 0 { printf "%d ", $3 }' "$work/selections")" = "0 1 0 1 2 2 " ]
ok $? "--selections tells sessions by their number"

decode warm_full --json --policy full --prompt-rows 600 --tokens 60 --temperature 0.9 --seed 5
decode warm --json --policy fixed --hot-rows 64 --prompt-rows 600 --tokens 60 \
	--temperature 0.9 --seed 5 --host-seed 3
same warm_full warm
ok $? "the same text when it is sampled"

# The same on a GPU.
decode cuda --backend cuda --json --prompt-rows 100 --tokens 1
status=$?
gpu=cuda why=
if [ $status -eq 3 ] && grep -q 'backend is cuda; th' "$work/err"; then
	gpu=host why=$(sed 's/.*backend is cuda; //' "$work/err")
	status=0
fi
ok $status "--backend cuda runs, or says that there is no GPU or no such build"
decode auto --backend auto --json --prompt-rows 100 --tokens 1
grep -q "\"backend\":\"$gpu\"" "$work/auto"
ok $? "auto is $gpu here"

# Stops at the first that fails.
checked_cuda() {
	for options in "--policy full" "--policy fixed --hot-rows 256" \
		"--policy adaptive --hot-rows 256 --device-rows 2000" \
		"--policy fixed --hot-rows 256 --tail-rows 0 --page-rows 7 --step-rows 1" \
		"--policy fixed --hot-rows 100" "--policy fixed --hot-rows 300 --step-rows 16" \
		"--policy adaptive --sessions 3 --hot-rows 256 --device-rows 2600 --step-rows 1" \
		"--policy adaptive --sessions 3 --requests 5 --arrive 8 --hot-rows 256 --device-rows 2600"; do
		# shellcheck disable=SC2086 # several options
		decode out --backend cuda --check --prompt-rows 1200 --tokens 40 $options || {
			echo "with $options" >>"$work/err"
			return 1
		}
	done
}
# What the run did, without where and how fast.
counts() {
	sed 's/"backend":"[a-z]*",//; s/"tokens_per_s":.*//' "$work/$1"
}
if [ $gpu = cuda ]; then
	checked_cuda
	ok $? "--check on cuda"
	decode fixed_cuda --backend cuda --json --policy fixed --prompt-rows 8000 --tokens 300 \
		--hot-rows 256 --tail-rows 64 && same full fixed_cuda &&
		[ "$(counts fixed)" = "$(counts fixed_cuda)" ]
	ok $? "8,000 rows on cuda, fixed: the same text, and the counts of the host backend"
else
	skip "--check on cuda" "$why"
	skip "8,000 rows on cuda" "$why"
fi

# What is wrong is said, and nothing is printed.
head -c 100000 "$DATA/model.dsat" >"$work/short.dsat"
: >"$work/empty"
fails 2 "not a number from" --tokens x
fails 2 "no 'half'" --policy half
fails 2 "unrecognized option" --bogus
fails 2 "--requests: 2, but --sessions is 3" --sessions 3 --requests 2
fails 2 "--arrive: '-1' is not a number" --arrive -1
fails 2 "--progress: 'x' is not a number" --progress x
fails 2 "--progress-steps: '0' is not a number" --progress-steps 0
fails 2 "--host-seed is of the host backend" --backend cuda --host-seed 1
fails 2 "No such file" --prompt "$work/none"
fails 2 "selections: .*No such file" --prompt-rows 9 --selections "$work/none/x"
fails 2 "an empty prompt" --prompt "$work/empty"
fails 2 "not a model" --model "$DATA/draft.dsat"
fails 2 "too short" --model "$work/short.dsat"
fails 3 "dhs_" --device-rows 64

[ "$test" -eq "$plan" ] || echo "# planned $plan, ran $test"
