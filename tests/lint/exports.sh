#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh - the shared library exports exactly what the headers declare and
# has its version in its SONAME; the static library uses two prefixes only.
#
#   exports.sh INCLUDE_DIR libbauta.so libbauta.a SONAME
set -eu
LC_ALL=C
export LC_ALL
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Every name that a declaration marked BAUTA_API introduces.
cat "$1"/bauta.h "$1"/bauta/*.h | tr '\n' ' ' | sed 's/BAUTA_API/\n&/g' |
    sed -n 's/^BAUTA_API [^(]*\(bauta_[a-z0-9_]*\)(.*/\1/p' |
    sort >"$dir/declared"
nm -D --defined-only "$2" | awk '{ print $3 }' | sort >"$dir/exported"
if ! diff "$dir/declared" "$dir/exported" >"$dir/diff"; then
    echo "declared (<) and exported by the library (>) differ:"
    cat "$dir/diff"
    exit 1
fi

readelf -d "$2" | grep -qF "Library soname: [$4]" || {
    echo "$2 does not have the SONAME $4"
    exit 1
}

if nm -g --defined-only "$3" | awk 'NF == 3 { print $3 }' |
    grep -vE '^(bauta|bt)_'; then
    echo "of the static library: these names are neither bauta_ nor bt_"
    exit 1
fi
