#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi.sh - the layout of the public structs, the values of the enums and the
# exported symbols are those of tests/data/abi.txt.
#
#   abi.sh DUMP libbauta.so tests/data/abi.txt [update]
#
# Programs that were compiled against an older header depend on all of it. The
# interface may grow: new calls, new constants, and new fields at the end of
# structs that start with `size`. A new field begins at or after the old end of
# its struct, not in its padding, and its default is 0. After such a change run
# this script with "update" and commit the file. Anything else breaks compiled
# programs and needs a new minor version before 1.0, and a new major one after.
set -eu
LC_ALL=C
export LC_ALL
dump=$1 library=$2 file=$3
now=$(mktemp)
trap 'rm -f "$now"' EXIT

"$dump" >"$now" || exit $? # 77: not a 64-bit system
nm -D --defined-only "$library" | awk '{ print "symbol", $3 }' | sort >>"$now"
if [ "${4:-}" = update ] && [ ! -e "$file" ]; then
    : >"$file"
fi
if cmp -s "$file" "$now"; then
    exit 0
fi

echo "the binary interface differs from $file:"
diff "$file" "$now" || :
broken=$(awk '
NR == FNR { # as committed
    old[$1 " " $2] = $0
    if ($1 == "sized")
        end[$2] = $3
    next
}
{
    key = $1 " " $2
    seen[key] = 1
    struct = $2
    sub(/[.].*/, "", struct)
    if (!(key in old)) {
        if ($1 == "field" && ("sized " struct) in old && $3 < end[struct])
            print "  " $2 " lies in the padding of the old struct"
        if ($1 == "field" && ("struct " struct) in old)
            print "  " $2 " is new in a struct without size"
    } else if ($1 == "sized" && $3 < end[$2])
        print "  " $2 " is smaller"
    else if ($1 != "sized" && $0 != old[key])
        print "  " $2 " changed: " old[key]
}
END {
    for (key in old)
        if (!(key in seen))
            print "  gone: " old[key]
}' "$file" "$now" | sort)
if [ -n "$broken" ]; then
    echo "this breaks programs that were compiled before:"
    echo "$broken"
fi
if [ "${4:-}" = update ]; then
    cat "$now" >"$file"
    echo "$file is updated"
    exit 0
fi
echo "if it is meant, run: tests/lint/abi.sh $dump $library $file update"
exit 1
