#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# names.sh - one name, one thing: no type and no file name of src/ is used
# twice, and no retired name comes back.
#
#   names.sh SOURCE
set -eu
cd "$1"
failed=0
here=tests/lint

if ! command -v git >/dev/null || ! git rev-parse >/dev/null 2>&1; then
    echo "this is no git checkout"
    exit 77
fi

# Types, including those local to one file.
twice=$(git ls-files 'src/*.c' 'src/*.h' 'src/*.cu' |
    xargs grep -hoE '^(typedef )?(struct|enum|union) [a-z_0-9]+ \{' |
    sed -E 's/^typedef //; s/ \{$//; s/^[a-z]+ //' | sort | uniq -d)
for name in $twice; do
    echo "the type $name is defined twice:"
    git grep -nE "^(typedef )?(struct|enum|union) $name \{" -- src
    failed=1
done

# Files: the same base name only for twins of one thing, which are in folders
# of the same name or in different backends.
for file in $(git ls-files 'src/*.c' 'src/*.h' | sed 's|.*/||' | sort | uniq -d); do
    grep -qx "$file" "$here/twins.txt" || {
        echo "these files have the same name and are not in $here/twins.txt:"
        git ls-files "src/$file" "src/*/$file"
        failed=1
    }
done

# Retired names stay retired.
if git ls-files -- src include cli server lab tests fuzz bench examples docs tools \
    README.md CONTRIBUTING.md CMakeLists.txt |
    grep -vE "^$here/retired.txt$|^docs/migrating.md$" |
    xargs grep -nwF -f "$here/retired.txt"; then
    echo "these names are retired: docs/migrating.md and $here/retired.txt"
    failed=1
fi
exit $failed
