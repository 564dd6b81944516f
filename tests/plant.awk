# SPDX-License-Identifier: Apache-2.0
# Copyright The libdhisparse authors
#
# usage: awk -v name=NAME -f plant.awk FAULTS FILE
#
# Prints FILE with the fault NAME of FAULTS in it.  The fault's lines must stand there
# exactly once, so that it does not outlive the code that it is about.

FNR == NR && $1 == "fault" { here = $2 == name; next }
FNR == NR && here && /^[- ]/ { old = old substr($0, 2) "\n" }
FNR == NR && here && /^[+ ]/ { new = new substr($0, 2) "\n" }
FNR == NR { next }
{ text = text $0 "\n" }
END {
	text = "\n" text
	at = index(text, "\n" old)
	rest = substr(text, at + 1)
	if (old == "" || !at || index(rest, "\n" old))
		exit 1
	printf "%s%s%s", substr(text, 2, at - 1), new, substr(rest, length(old) + 1)
}
