#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening.sh - the flags of cmake/harden.cmake are in effect in the built
# files.
#
#   hardening.sh LIBRARY ARCHIVE 'FLAG...' PROGRAM...
#
# FLAGs are those of bauta_hardened.
set -eu
LC_ALL=C
export LC_ALL
library=$1
archive=$2
flags=" $3 "
shift 3
for tool in readelf nm; do
    command -v $tool >/dev/null || {
        echo "there is no $tool"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() {
    echo "$1"
    failed=1
}
has() { # FLAG
    case $flags in *" $1 "*) return 0 ;; esac
    return 1
}

linked_check() { # FILE
    readelf -ldhW "$1" >"$work/elf"
    if has relro && ! grep -q GNU_RELRO "$work/elf"; then
        wrong "$1: tables of addresses stay writable (no GNU_RELRO)"
    fi
    if has now && ! grep -qE 'BIND_NOW|FLAGS_1.*NOW' "$work/elf"; then
        wrong "$1: functions are bound late (no BIND_NOW)"
    fi
    if has noexecstack && ! grep -qE 'GNU_STACK.* RW +0x' "$work/elf"; then
        wrong "$1: its stack can be executed"
    fi
    if grep -qE 'LOAD.* RWE ' "$work/elf"; then
        wrong "$1: memory that is both written and executed"
    fi
    if has pie && ! grep -qE 'Type: +DYN' "$work/elf"; then
        wrong "$1: it has a fixed address"
    fi
}
for file in "$library" "$@"; do
    linked_check "$file"
done

# The shared library: stack protector, and fortified functions where the
# compiler knows the sizes.
nm -D --undefined-only "$library" >"$work/needs"
if has stack-protector && ! grep -q ' __stack_chk_fail' "$work/needs"; then
    wrong "$library: no stack protector"
fi
if has fortify && ! grep -qE ' __[a-z]*(printf|cpy|read)_chk' "$work/needs"; then
    wrong "$library: no checked calls of the C library"
fi

# Each object: marked for control-flow enforcement, and no executable stack.
readelf -nSW "$archive" >"$work/objects"
if has cet; then
    awk '/^File: / { if (name && !marked) print name
                     name = $2; marked = 0 }
         /x86 feature: IBT, SHSTK/ { marked = 1 }
         END { if (name && !marked) print name }' \
        "$work/objects" >"$work/unmarked"
    [ ! -s "$work/unmarked" ] || {
        cat "$work/unmarked"
        wrong "not marked for indirect branch tracking and shadow stack"
    }
fi
if grep -E '^File|note.GNU-stack.* [A-Z]*X' "$work/objects" |
    grep -B 1 'GNU-stack'; then
    wrong "a stack that can be executed is asked for"
fi
count=$(grep -c '^File: ' "$work/objects")
[ "$count" -gt 100 ] || wrong "$archive: only $count objects"

# Flags without other traces: gcc writes its options into the debug sections.
if has stack-clash && readelf -p .debug_str "$library" 2>/dev/null |
    grep -q 'GNU C17.*-g'; then
    readelf -p .debug_str "$library" |
        grep -q 'GNU C17.*-fstack-clash-protection' ||
        wrong "$library: no protection from a stack that grows into the heap"
fi
[ "$failed" = 0 ] && echo "$count objects, $(($# + 1)) linked files:$flags"
exit $failed
