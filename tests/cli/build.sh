#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh - build and test in another way, warnings being errors. Checks of
# sources, documents and pages are left out: they would be the same. So are, with
# clang and under the thread sanitizer, tests of the command line, whose code the
# unit tests run, and under both sanitizers the data beside the tree: whole
# models and corpora run the code of the small ones, many times slower. By hand,
# `make test SANITIZE=1` has them all.
#
#   build.sh SOURCE clang|address|thread JOBS
set -eu
# This runs inside a `make test`, whose settings must not affect the inner one.
unset CI CC BUILD EXCLUDE SANITIZE WERROR MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
if [ "$2" != address ] && ! command -v clang >/dev/null; then
    echo "clang is missing"
    exit 77
fi
exclude="lint|once"
[ "$2" = address ] || exclude="$exclude|cli"
[ "$2" = clang ] || export BAUTA_DATA=/nonexistent
case $2 in
clang) how=CC=clang ;;
address) how=SANITIZE=1 ;;
thread) how=SANITIZE=thread ;;
esac
exec make -C "$1" test WERROR=ON EXCLUDE="$exclude" JOBS="$3" "$how"
