#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors

# Compares docs/metrics.md with the structs of the header: each field has its row, each row
# its field, and each metric a name of its own that says what type it is.  Speaks TAP.

set -u

src=${srcdir:-.}
header=$src/include/dhisparse/dhisparse.h
page=$src/docs/metrics.md

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
trap 'exit 99' HUP INT TERM

number=0

# report NAME FILE: a test that passes if FILE, its complaints, is empty.
report() {
	number=$((number + 1))
	if test -s "$2"; then
		echo "not ok $number - $1"
		sed 's/^/# /' "$2"
	else
		echo "ok $number - $1"
	fi
}

# The fields of a struct, in order.
fields() {
	sed -n "/^typedef struct $1 {/,/^} $1;/s/^	uint[0-9]*_t \([a-z_]*\);.*/\1/p" "$header"
}

# "field|metric|type|what" of the rows of a struct's table.
rows() {
	awk -F ' *[|] *' -v name="$1" '
	/^## / { here = $0 == "## " name }
	here && $2 ~ /^`/ { gsub(/`/, ""); print $2 "|" $3 "|" $4 "|" $5 }' "$page"
}

for struct in dhs_stats dhs_session_info; do
	fields "$struct" >"$tmp/fields"
	rows "$struct" >"$tmp/rows"
	cut -d '|' -f 1 "$tmp/rows" | diff "$tmp/fields" - >"$tmp/report"
	test -s "$tmp/fields" || echo "no fields found" >>"$tmp/report"
	report "the fields of $struct, each once and in order" "$tmp/report"
	cat "$tmp/rows" >>"$tmp/all"
done

awk -F '|' '$4 == "" { print $1 " is not explained" }
	$2 == "" && $1 !~ /^(size|flags|reserved)$/ { print $1 " has no metric" }
	$2 == "" { next }
	$2 !~ /^dhs_[a-z_]+({[a-z]+="[a-z.]+"})?$/ { print $2 " is no name of a metric" }
	$3 != "counter" && $3 != "gauge" { print $2 " is a " $3 }
	($3 == "counter") != ($2 ~ /_total$/) { print $2 " is a " $3 }
	$1 ~ /bytes/ && $2 !~ /_bytes/ { print $2 " does not say that it is bytes" }' \
	"$tmp/all" >"$tmp/report"
report "names that say what they are" "$tmp/report"

cut -d '|' -f 2 "$tmp/all" | grep . | sort | uniq -d >"$tmp/report"
report "names used once" "$tmp/report"

# What is drawn is exported.
grep -o 'dhs_[a-z_]*_total\|dhs_pages[a-z_]*\|dhs_host_rows[a-z_]*' "$page" | sort -u >"$tmp/used"
cut -d '|' -f 2 "$tmp/all" | sed 's/{.*//' | sort -u >"$tmp/names"
comm -23 "$tmp/used" "$tmp/names" >"$tmp/report"
report "the expressions use metrics of the tables" "$tmp/report"

echo "1..$number"
