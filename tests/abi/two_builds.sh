#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# two_builds.sh - a program keeps working with a library that was compiled
# against a newer or an older header.
#
#   two_builds.sh SOURCE_DIR CC "CFLAGS" libbauta.a "LIBRARIES"
#
# The newer headers are today's with one more field at the end of every sized
# struct. The same program, compiled against either, runs with a library
# compiled against either, and must print the same in all four cases. If the
# program sets the new field, the older library rejects it, and the newer one
# does not. Of the newer library, kernels and what the program does not call
# (GPUs, zlib) are those of the older one; the rest is compiled without
# optimization.
set -eu
source=$1 cc=$2 cflags=$3 library=$4 libraries=$5
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

mkdir -p "$dir/include/bauta" "$dir/objects"
cp "$source/include/bauta.h" "$dir/include"
for header in "$source"/include/bauta/*.h; do
    awk '
    /^typedef struct bauta_.* \{$/ { first = 1; sized = 0; print; next }
    first { sized = $0 ~ /^ *size_t size;/; first = 0 }
    sized && /^\} bauta_.*;$/ { print "    uint64_t added;"; sized = 0 }
    { print }
    ' "$header" >"$dir/include/bauta/${header##*/}"
done
[ "$(cat "$source"/include/bauta/*.h | grep -c '^ *size_t size;')" -eq \
    "$(cat "$dir"/include/bauta/*.h | grep -c ' added;')" ] || {
    echo "the structs of the headers are not written as this script expects"
    exit 1
}

drawing=none
if nm "$library" 2>/dev/null | grep -q 'U cairo_create$'; then
    drawing=cairo
    cflags="$cflags $(pkg-config --cflags cairo)"
fi
newer() { # SOURCE...: compile against the newer headers
    # shellcheck disable=SC2086
    $cc -O0 -w $cflags -I"$dir/include" -I"$source/src" -c "$@"
}

cd "$dir/objects"
# One file of a name at a time: objects of the same name would overwrite.
find "$source/src" -name '*.c' ! -path '*/kernels/*' ! -path '*/cuda/*' \
    ! -path '*/none/*' ! -path '*/cairo/*' ! -path '*/zlib/*' \
    ! -path '*/mpi/*' ! -path '*/nccl/*' -o -path "*/draw/$drawing/*.c" |
    while read -r file; do
        echo "$file $(echo "${file#"$source"/src/}" | tr / _).o"
    done >"$dir/files"
while read -r file object; do
    newer "$file" -o "$object"
done <"$dir/files"
cd "$dir"

client() { # NAME INCLUDE OBJECT...
    name=$1 include=$2
    shift 2
    # shellcheck disable=SC2086
    $cc -O0 -w $cflags -I"$include" -I"$source/tests/abi" \
        "$source/tests/abi/client.c" "$source/tests/abi/calls.c" "$@" \
        "$library" $libraries -o "$name"
    "./$name" "$dir" >"$name.txt"
}
client old_old "$source/include"
client new_old "$dir/include"
client old_new "$source/include" objects/*.o
client new_new "$dir/include" objects/*.o

for case in new_old old_new new_new; do
    diff old_old.txt "$case.txt" >&2 || {
        echo "<program>_<library> $case differs from old_old" >&2
        exit 1
    }
done
if grep -v ': 0 ' old_old.txt; then
    echo "these calls fail where nothing is wrong" >&2
    exit 1
fi

# The new field set: refused by the old library where it is an input.
./new_old "$dir" set 8 >set_old.txt
./new_new "$dir" set 8 >set_new.txt
diff old_old.txt set_new.txt >&2
awk '
$2 == "read:" && ($3 != 1 || $0 !~ /is set; bauta .* knows the first/) {
    print "not refused: " $0
    bad = 1
}
$2 == "written:" && $3 != 0 { print "refused: " $0; bad = 1 }
END { exit bad || NR == 0 }' set_old.txt
