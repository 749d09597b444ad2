#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh - install what the build and the tests need and this system lacks.
#
#   tools/deps.sh [clang] [thread] [fuzz] [wheel] [ci]
#
# clang    also what a build with clang needs
# thread   also what the thread sanitizer needs
# fuzz     also what fuzzing needs
# wheel    also what the Python package needs; PYTHON is python3 by default
# ci       everything that the tests can make use of
#
# Nothing is printed, installed or asked of the network when all is there.
# Root, or CI=true, installs what is missing at once. Otherwise you are asked
# first; where there is no terminal to ask on, nothing is installed and the exit
# status is 1.
set -eu

missing=
need() { # PACKAGE COMMAND...: PACKAGE is missing when COMMAND fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
have() {
    command -v "$1"
}
compiles() { # COMPILER HEADER
    echo "#include <$2>" | "$1" -E -
}
find_header() { # PATTERN of a header of the system
    find /usr/include -path "*/$1" | grep -q .
}
clang_has() { # PATTERN of a file, from the folder of clang's own libraries
    find "$(clang -print-resource-dir)/../.." -path "$1" | grep -q .
}

compiler=${CC:-cc}
have "${compiler%% *}" >/dev/null || compiler=cc
need gcc have "$compiler"
need libc6-dev compiles "$compiler" math.h
need cmake have cmake
need pkg-config have pkg-config
need libcmocka-dev pkg-config --exists cmocka
need libjansson-dev pkg-config --exists jansson
need libpcre2-dev pkg-config --exists libpcre2-8
need libutf8proc-dev pkg-config --exists libutf8proc
need libcairo2-dev pkg-config --exists cairo
need zlib1g-dev pkg-config --exists zlib
need libmicrohttpd-dev pkg-config --exists libmicrohttpd
for extra in "$@"; do
    case $extra in
    clang | thread | fuzz | ci)
        need clang have clang
        ;;
    esac
    case $extra in
    fuzz)
        need libclang-rt-dev clang_has '*/libclang_rt.fuzzer*'
        ;;
    thread | ci)
        need libclang-rt-dev clang_has '*/libclang_rt.tsan*'
        ;;
    esac
    case $extra in
    wheel)
        need python3-venv "${PYTHON:-python3}" -c 'import ensurepip'
        ;;
    esac
    case $extra in
    ci)
        need g++ have c++
        need clang-format have clang-format
        need shellcheck have shellcheck
        need libopenmpi-dev have mpicc
        need openmpi-bin have mpirun
        need python3-dev find_header python3*/Python.h
        need python3-numpy /usr/bin/python3 -c 'import numpy'
        ;;
    esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "bauta needs these, by the names that Debian gives them:$missing." >&2
    echo "This system has no apt-get; please install them by its own means." >&2
    exit 0
fi
root=
if [ "$(id -u)" -ne 0 ]; then
    command="sudo apt-get install --no-install-recommends$missing"
    if ! command -v sudo >/dev/null; then
        echo "Please run as root: ${command#sudo }" >&2
        exit 1
    fi
    root=sudo
    if [ "${CI:-}" != true ]; then
        echo "bauta needs packages that are missing here. To install them:" >&2
        echo "    $command" >&2
        [ -t 0 ] || exit 1
        printf 'Run this now? [y/N] ' >&2
        read -r answer || answer=
        case $answer in
        [Yy] | [Yy][Ee][Ss]) ;;
        *) exit 1 ;;
        esac
    fi
fi
echo "Installing$missing"
# shellcheck disable=SC2086 # the list is meant to be split
if ! $root apt-get -q update || ! $root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qy install --no-install-recommends $missing; then
    echo "apt-get could not install$missing" >&2
    exit 1
fi
