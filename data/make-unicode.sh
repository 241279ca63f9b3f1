#!/bin/sh
# Makes unicode.tsv from Unicode's UnicodeData.txt: sh make-unicode.sh UnicodeData.txt > unicode.tsv
#
# One line per code point: `U+XXXX`, a tab, and the other fields that are not empty as
# `name=value`, joined by `; `. No field contains a tab or a backslash, so nothing is escaped.
set -eu
exec awk -F ';' '
BEGIN {
    # Fields 2 to 15, in the order and by the meaning of Unicode Standard Annex #44.
    split("name category combining bidi decomposition decimal digit numeric mirrored" \
          " old_name comment upper lower title", names, " ")
}
NF != 15 { print FILENAME ":" FNR ": " NF " fields instead of 15" > "/dev/stderr"; exit 1 }
{
    line = "U+" $1 "\t"
    separator = ""
    for (field = 2; field <= NF; field++) {
        if ($field == "") continue
        value = names[field - 1] ~ /^(upper|lower|title)$/ ? "U+" $field : $field
        line = line separator names[field - 1] "=" value
        separator = "; "
    }
    print line
}' "$1"
