#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# man.sh - the manual pages equal the output of --help, and are valid roff.
#
#   man.sh BAUTA SOURCE
set -eu
bauta=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$source/tools/make-man.sh" "$bauta" "$work"
diff -r "$source/docs/man" "$work" || {
    echo "docs/man differs from --help; 'make man' writes it anew"
    exit 1
}
if command -v groff >/dev/null; then
    for page in "$work"/*.1; do
        groff -man -Tascii -ww "$page" >/dev/null 2>"$work/said"
        [ ! -s "$work/said" ] || {
            cat "$work/said"
            exit 1
        }
    done
fi
