#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# header.sh - every public header compiles alone, as C and as C++.
#
#   header.sh INCLUDE_DIR c CC
#   header.sh INCLUDE_DIR c++ CC abi_fields.h
#
# As C++ also: every INIT value, listed in abi_fields.h (tests/abi/fields.sh),
# is the same as in C.
set -eu
include=$1

twice() { # COMPILER OPTION...: all headers, which may be included twice
    printf '#include <bauta.h>\n#include <bauta.h>\n' |
        "$@" -I"$include" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -
}

inits() { # OUT COMPILER OPTION...: print every INIT value
    out=$1
    shift
    "$@" -I"$include" -I"$(dirname "$fields")" -Wall -Wextra -Wpedantic -Werror \
        "$abi/inits.c" -o "$dir/inits"
    "$dir/inits" >"$out"
}

alone() { # COMPILER OPTION...: each header by itself
    for header in "$include"/bauta/*.h; do
        echo "#include <bauta/${header##*/}>" |
            "$@" -I"$include" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -
    done
}

if [ "$2" = c ]; then
    alone "$3" -x c -std=c99
    twice "$3" -x c -std=c99
    twice "$3" -x c -std=c17
    exit 0
fi
abi=$(dirname "$0")/../abi
fields=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for cxx in "${CXX:-}" c++ g++ clang++; do
    if [ -n "$cxx" ] && command -v "$cxx" >/dev/null; then
        alone "$cxx" -x c++ -std=c++11
        twice "$cxx" -x c++ -std=c++11
        twice "$cxx" -x c++ -std=c++17
        inits "$dir/c" "$3" -x c -std=c99
        inits "$dir/c++" "$cxx" -x c++ -std=c++11
        if ! diff "$dir/c" "$dir/c++" >&2; then
            echo "the INIT values of C (<) and C++ (>) differ" >&2
            exit 1
        fi
        [ "$(grep -c '^BAUTA_.*_INIT ' "$dir/c")" -eq \
            "$(grep -c '^SIZED' "$fields")" ]
        exit 0
    fi
done
echo "there is no C++ compiler"
exit 77
