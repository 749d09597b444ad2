#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# library_paths.sh - the library search paths of programs and libraries: never
# the current folder, nor one that anybody may write to.
#
#   library_paths.sh BUILD LIBRARY PROGRAM...
#
# Reads the dynamic section of every ELF file of the build folder and of the
# installation. LIBRARY and each PROGRAM must be among them; a PROGRAM that is
# linked with LIBRARY must find it there from any folder.
set -eu
LC_ALL=C
export LC_ALL
build=$1
library=$2
shift 2
command -v readelf >/dev/null || {
    echo "there is no readelf"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() {
    echo "$1"
    failed=1
}

# Whether others may write to the nearest existing folder.
anybody_writes() { # FOLDER
    folder=$1
    while [ ! -d "$folder" ]; do
        folder=$(dirname "$folder")
    done
    case $(stat -L -c %A "$folder") in
    ????????w?) return 0 ;;
    esac
    return 1
}

element_check() { # FILE ELEMENT
    case $2 in
    '') wrong "$1: an empty element, which is the current folder" ;;
    "\$ORIGIN" | "\$ORIGIN"/* | /*)
        folder=$(dirname "$1")${2#\$ORIGIN}
        [ "${2#/}" = "$2" ] || folder=$2
        ! anybody_writes "$folder" ||
            wrong "$1: $2: anybody may write to $folder"
        ;;
    *) wrong "$1: $2: relative to the current folder" ;;
    esac
}

# Elements end in a colon each, so that an empty last one is seen.
paths_check() { # FILE
    readelf -dW "$1" 2>/dev/null |
        sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]$/\2:/p' >"$work/paths"
    while IFS= read -r list; do
        while [ -n "$list" ]; do
            element_check "$1" "${list%%:*}"
            list=${list#*:}
        done
    done <"$work/paths"
}

is_elf() {
    [ "$(head -c 4 "$1" | tr -d '\0')" = "$(printf '\177ELF')" ]
}

# The check itself must find bad paths.
refuses() { # ELEMENT
    [ -n "$(element_check "$work/x" "$1")" ] ||
        wrong "an element '$1' is not refused"
}
mkdir "$work/open"
chmod 777 "$work/open"
refuses ''
refuses lib
refuses "$work/open"
refuses "$work/open/nowhere"
refuses "\$ORIGIN/open"

DESTDIR=$work/stage cmake --install "$build" >/dev/null
find "$build" "$work/stage" \( -name CMakeFiles -o -path "$build/install-test" \) \
    -prune -o -type f \( -perm -u+x -o -name '*.so*' \) -print >"$work/files"
count=0
while IFS= read -r file; do
    is_elf "$file" || continue
    count=$((count + 1))
    paths_check "$file"
done <"$work/files"
for file in "$library" "$@"; do
    grep -qxF "$file" "$work/files" || wrong "$file was not looked at"
done
grep -q "^$work/stage/.*/bin/bauta$" "$work/files" ||
    wrong "no program was installed"

# Programs find the library, wherever they are started.
cd /
for program in "$@"; do
    if ldd "$program" 2>/dev/null | grep 'libbauta.*not found'; then
        wrong "$program does not find its library"
    fi
done
[ "$failed" = 0 ] && echo "$count files"
exit $failed
