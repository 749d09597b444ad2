#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# style.sh - what of the house style a machine can see.
#
#   style.sh SOURCE
set -eu
cd "$1"
if ! command -v git >/dev/null || ! git rev-parse >/dev/null 2>&1; then
    echo "no git checkout: the style was not looked at"
    exit 77
fi
failed=0
files() {
    git ls-files -co --exclude-standard -- "$@"
}

for file in $(files '*.c' '*.h' '*.cu' '*.py' '*.sh' 'CMakeLists.txt' \
    '**/CMakeLists.txt' Makefile .ci/run); do
    head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
        echo "$file: the SPDX line is missing"
        failed=1
    }
done
if files '*.c' '*.h' '*.md' '*.sh' '*.txt' | xargs grep -nE '[[:blank:]]+$'; then
    echo "these lines end in white space"
    failed=1
fi
if files '*.c' '*.h' | xargs grep -nE '^.{81}'; then
    echo "these lines are longer than 80 characters"
    failed=1
fi

skipped=
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    for file in $(files '*.c' '*.h'); do
        clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || {
            echo "$file: 'make format' would change it"
            failed=1
        }
    done
else
    skipped="$skipped clang-format 14"
fi
if command -v shellcheck >/dev/null; then
    files '*.sh' .ci/run | xargs shellcheck || failed=1
else
    skipped="$skipped shellcheck"
fi
[ $failed -eq 0 ] || exit 1
if [ -n "$skipped" ]; then
    echo "not looked at, for these are missing:$skipped"
    exit 77
fi
