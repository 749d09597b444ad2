#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh - the installation is usable: the program of the README is built
# against it through pkg-config and through CMake, and prints the output shown
# there; its second program runs a model, the installed program starts, and its
# manual is installed.
#
#   install.sh SOURCE BUILD PREFIX CC MODEL
set -eu
source=$1
build=$2
prefix=$3
cc=$4
model=$5
stage=$build/install-test/stage
work=$build/install-test/work
rm -rf "$build/install-test"
mkdir -p "$work"

DESTDIR=$stage cmake --install "$build" >/dev/null

# The first C program of the README, and the text block that follows it.
awk '/^```$/ { on = 0 } on { print } /^```c$/ && !seen++ { on = 1 }' \
    "$source/README.md" >"$work/readme.c"
awk '/^```$/ { on = 0 } on { print }
     /^```c$/ { program = 1 } /^```text$/ && program && !seen++ { on = 1 }' \
    "$source/README.md" >"$work/want"
says() { # HOW PROGRAM...
    how=$1
    shift
    "$@" >"$work/got"
    diff "$work/want" "$work/got" || {
        echo "the README's program, built $how, prints something else (>)"
        exit 1
    }
}

PKG_CONFIG_PATH=$(dirname "$(find "$stage" -name bauta.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$stage" -name libbauta.so)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
pc() {
    pkg-config --define-variable=prefix="$stage$prefix" "$@" bauta
}
# shellcheck disable=SC2046 # the flags are meant to be split
"$cc" -std=c17 -Wall -Wextra -Werror $(pc --cflags) "$work/readme.c" \
    -o "$work/readme" $(pc --libs) -lm
says "with pkg-config" "$work/readme"

# The second C program of the README.
awk '/^```$/ { on = 0 } on { print } /^```c$/ && ++seen == 2 { on = 1 }' \
    "$source/README.md" >"$work/model.c"
# shellcheck disable=SC2046 # the flags are meant to be split
"$cc" -std=c17 -Wall -Wextra -Werror $(pc --cflags) "$work/model.c" \
    -o "$work/model" $(pc --libs)
"$work/model" "$model" | grep -q 'sequence 1: token [0-9]* is most likely next'

# The program finds its library without LD_LIBRARY_PATH.
(
    unset LD_LIBRARY_PATH
    "$stage$prefix/bin/bauta" inspect "$model" --json >/dev/null
)

# The manual, one page a verb, and the shell completions.
find "$stage" -path '*/man1/bauta-generate.1' | grep -q .
find "$stage" -path '*/bash-completion/completions/bauta' | grep -q .
find "$stage" -path '*/zsh/site-functions/_bauta' | grep -q .
find "$stage" -path '*/fish/vendor_completions.d/bauta.fish' | grep -q .

# The static library and its dependencies; the shared one is moved away.
# shellcheck disable=SC2046 # the flags are meant to be split
"$cc" -std=c17 $(pc --cflags) "$work/readme.c" -o "$work/readme_static" \
    "$LD_LIBRARY_PATH/libbauta.a" \
    $(pc --static --libs | sed 's/-lbauta\b//')
says "with pkg-config, static" "$work/readme_static"

cmake -S "$source/tests/cli/consumer" -B "$work/cmake" \
    -DREADME="$work/readme.c" -DVERSION="$(pc --modversion)" \
    -DCMAKE_PREFIX_PATH="$stage$prefix" -DCMAKE_C_COMPILER="$cc" >/dev/null
cmake --build "$work/cmake" >/dev/null
says "with CMake, shared" "$work/cmake/readme_shared"
says "with CMake, static" "$work/cmake/readme_static"
