#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors

# Compares the manual pages with what the library exports and declares.
# Speaks TAP.

set -u

src=${srcdir:-.}
man=$src/man
map=$src/lib/libdhisparse.map
core=$src/include/dhisparse/dhisparse.h
host=$src/include/dhisparse/host.h

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

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# differ A TEXT_A B TEXT_B: complains about lines that only one of two sorted
# files has.
differ() {
	comm -23 "$1" "$3" | sed "s|^|$2: |"
	comm -13 "$1" "$3" | sed "s|^|$4: |"
}

# Headers without comments and preprocessor lines, one declaration a line,
# white space only where two words would touch.
declarations() {
	awk '
	function squeeze(s) {
		gsub(/[ \t\n]+/, " ", s)
		gsub(/ *\* */, "*", s)
		gsub(/ *\( */, "(", s)
		gsub(/ *\) */, ")", s)
		gsub(/ *, */, ",", s)
		gsub(/ *\{ */, "{", s)
		gsub(/ *\} */, "}", s)
		gsub(/ *; */, ";", s)
		gsub(/^ +| +$/, "", s)
		return s
	}
	/^#ifdef __cplusplus/ { cplusplus = 1 }
	/^#endif/ { cplusplus = 0 }
	/^#/ { while (/\\$/ && (getline more) > 0) $0 = more; next }
	!cplusplus { text = text $0 "\n" }
	END {
		while ((from = index(text, "/*")) > 0) {
			rest = substr(text, from)
			to = index(rest, "*/")
			if (to == 0)
				break
			text = substr(text, 1, from - 1) " " substr(rest, to + 2)
		}
		depth = 0
		one = ""
		n = length(text)
		for (i = 1; i <= n; i++) {
			c = substr(text, i, 1)
			if (c == "{") depth++
			if (c == "}") depth--
			one = one c
			if (c == ";" && depth <= 0) {
				print squeeze(one)
				one = ""
			}
		}
	}' "$core" "$host"
}

# "result name(arguments)" of every function that the headers declare.
header_prototypes() {
	sed -n 's/^DHS_API \(.*\);$/\1/p' "$tmp/declarations"
}

# "struct: field" of every struct that the headers define, in order.
header_fields() {
	awk '
	/^typedef struct [a-z_]+\{/ {
		body = $0
		sub(/^[^{]*\{/, "", body)
		name = body
		sub(/^.*\}/, "", name)
		sub(/;$/, "", name)
		sub(/\}[^}]*$/, "", body)
		n = split(body, field, ";")
		for (i = 1; i < n; i++)
			print name ": " i " " field[i]
	}' "$tmp/declarations"
}

# The same two lists as the pages tell them.
page_lists() {
	awk -v want="$1" '
	function squeeze(s) {
		gsub(/"/, "", s)
		gsub(/[ \t]+/, " ", s)
		gsub(/ *\* */, "*", s)
		gsub(/ *\( */, "(", s)
		gsub(/ *\) */, ")", s)
		gsub(/ *, */, ",", s)
		gsub(/^ +| +$/, "", s)
		return s
	}
	FNR == 1 { synopsis = 0; structure = "" }
	/^\.Sh / { synopsis = ($2 == "SYNOPSIS"); structure = "" }
	/^\.Ss / {
		structure = ($2 == "The" && $4 == "structure") ? $3 : ""
		fields = 0
	}
	want == "prototypes" && synopsis && /^\.Ft / { result = substr($0, 5) }
	want == "prototypes" && synopsis && /^\.Fo / {
		call = result " " $2 "("
		comma = ""
	}
	want == "prototypes" && synopsis && /^\.Fa / {
		call = call comma substr($0, 5)
		comma = ","
	}
	want == "prototypes" && synopsis && /^\.Fc/ {
		print squeeze(call ")")
	}
	want == "fields" && structure != "" && /^\.It Fa / {
		print structure ": " ++fields " " squeeze(substr($0, 8))
	}' "$man"/*.[37]
}

echo 1..12

declarations >"$tmp/declarations"
sed -n 's/^[[:space:]]*\(dhs_[a-z0-9_]*\);.*$/\1/p' "$map" | sort >"$tmp/map"
header_prototypes | sort >"$tmp/prototypes"
sed 's/^[^(]*[ *]\(dhs_[a-z0-9_]*\)(.*$/\1/' "$tmp/prototypes" | sort >"$tmp/declared"
for page in "$man"/dhs_*.3; do
	basename "$page" .3
done | sort >"$tmp/pages"

# An empty list would agree with another empty one.
: >"$tmp/out"
for list in map prototypes pages; do
	test "$(wc -l <"$tmp/$list")" -ge 30 || echo "only $(wc -l <"$tmp/$list") $list found" >>"$tmp/out"
done
report "lists of exported, declared and documented functions are found" "$tmp/out"

differ "$tmp/map" "exported, but has no page" "$tmp/pages" "has a page, but is not exported" >"$tmp/out"
report "every exported function has a page" "$tmp/out"

differ "$tmp/map" "exported, but in no public header" "$tmp/declared" "declared, but not exported" >"$tmp/out"
report "every exported function is declared in a public header" "$tmp/out"

page_lists prototypes | sort >"$tmp/synopses"
differ "$tmp/prototypes" "only in the header" "$tmp/synopses" "only in a page" >"$tmp/out"
for page in "$man"/dhs_*.3; do
	name=$(basename "$page" .3)
	grep -q "^\.Fo $name\$" "$page" || echo "$name.3: its synopsis is of another function"
	header=$(grep -l "[ *]$name(" "$core" "$host" | sed 's|.*/||')
	grep -q "^\.In dhisparse/$header\$" "$page" || echo "$name.3: does not include dhisparse/$header"
done >>"$tmp/out"
report "each synopsis agrees with the header" "$tmp/out"

header_fields | sort >"$tmp/fields"
page_lists fields | sort >"$tmp/documented"
: >"$tmp/out"
test -s "$tmp/fields" || echo "no structures found" >>"$tmp/out"
differ "$tmp/fields" "only in the header" "$tmp/documented" "only in a page" >>"$tmp/out"
report "each field of each structure is documented, in order" "$tmp/out"

sed -n 's/^.*enum{\(.*\)};$/\1/p' "$tmp/declarations" | tr ',' '\n' | sed 's/[ =].*//' |
	grep '^DHS_' | sort -u >"$tmp/constants"
sed -n 's/^#define \(DHS_[A-Z0-9_]*\).*/\1/p' "$core" "$host" | cat - "$tmp/constants" >"$tmp/known"
# Names that end in an underscore stand for a family.
for page in "$man"/*.[37]; do
	grep -o 'DHS_[A-Z0-9_]*' "$page" | sort -u | while read -r constant; do
		case $constant in
		*_) grep -q "^$constant" "$tmp/known" ;;
		"$(sed -n 's/^\.Dt \([A-Z0-9_]*\) .*/\1/p' "$page")") ;;
		*) grep -qx "$constant" "$tmp/known" ;;
		esac || echo "$(basename "$page"): $constant is in no header"
	done
done >"$tmp/out"
report "every error code and constant on a page exists" "$tmp/out"

: >"$tmp/out"
test -s "$tmp/constants" || echo "no constants found" >>"$tmp/out"
while read -r constant; do
	grep -qE "(^|[^A-Z0-9_])$constant([^A-Z0-9_]|\$)" "$man"/*.[37] || echo "$constant is on no page"
done <"$tmp/constants" >>"$tmp/out"
report "every constant of the headers is on a page" "$tmp/out"

for page in "$man"/*.[37]; do
	sed -n 's/^\.Xr \([A-Za-z0-9_]*\) \([0-9]\).*/\1.\2/p; s/^\.Pq .*Xr \([A-Za-z0-9_]*\) \([0-9]\).*/\1.\2/p' "$page" |
		while read -r target; do
			case $target in
			dhs* | dhisparse*)
				test -f "$man/$target" || echo "$(basename "$page"): refers to $target, which is missing"
				;;
			esac
		done
done >"$tmp/out"
report "every reference to a page of the library leads to one" "$tmp/out"

for page in "$man"/*.[37]; do
	file=$(basename "$page")
	title=$(echo "${file%.*}" | tr '[:lower:]' '[:upper:]')
	grep -qx ".Dt $title ${file##*.}" "$page" || echo "$file: .Dt is not of this page"
	grep -qx ".Nm ${file%.*}" "$page" || echo "$file: .Nm is not of this page"
	grep -q 'SPDX-License-Identifier: Apache-2.0' "$page" || echo "$file: no SPDX line"
	case $file in
	*.3) sections="NAME LIBRARY SYNOPSIS DESCRIPTION RETURN_VALUES ERRORS SEE_ALSO HISTORY" ;;
	*) sections="NAME SYNOPSIS DESCRIPTION EXAMPLES SEE_ALSO HISTORY" ;;
	esac
	for section in $sections; do
		grep -qx ".Sh $(echo "$section" | tr _ ' ')" "$page" || echo "$file: no section $section"
	done
	case $file in
	*.3) grep -qx '.Ss Threads and streams' "$page" || echo "$file: nothing about threads and streams" ;;
	esac
done >"$tmp/out"
report "every page has its head and sections" "$tmp/out"

if command -v mandoc >/dev/null 2>&1; then
	mandoc -Tlint -Wwarning "$man"/*.[37] >"$tmp/out" 2>&1
	report "mandoc has no warnings" "$tmp/out"
else
	skip "mandoc has no warnings" "no mandoc"
fi

if command -v groff >/dev/null 2>&1 && groff -mdoc -Tutf8 -z /dev/null 2>/dev/null; then
	for page in "$man"/*.[37]; do
		groff -mdoc -Tutf8 -ww -z "$page"
	done >"$tmp/out" 2>&1
	report "groff has no warnings" "$tmp/out"
else
	skip "groff has no warnings" "no groff with mdoc"
fi

# The engine in dhisparse.7: from its first include to the end of the display.
sed -n '/^\.Bd -literal$/,/^\.Ed$/p' "$man/dhisparse.7" | sed '/^\.Bd/d; /^\.Ed/,$d; s/^\\&//; s/\\e/\\/g' >"$tmp/engine.c"
compiler=${CC:-cc}
if command -v "${compiler%% *}" >/dev/null 2>&1; then
	: >"$tmp/out"
	grep -q '^main(void)' "$tmp/engine.c" || echo "no program found" >>"$tmp/out"
	# The compiler may come with options.
	# shellcheck disable=SC2086
	$compiler -std=c17 -Wall -I "$src/include" -fsyntax-only "$tmp/engine.c" >>"$tmp/out" 2>&1
	report "the example in dhisparse.7 compiles" "$tmp/out"
else
	skip "the example in dhisparse.7 compiles" "no compiler"
fi
