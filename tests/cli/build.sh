#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh - build and test in another way, warnings being errors.
#
#   build.sh SOURCE clang|address|thread
set -eu
# This runs inside a `make test`, whose settings must not affect the inner one.
unset CI CC BUILD SANITIZE WERROR MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
if [ "$2" != address ] && ! command -v clang >/dev/null; then
    echo "clang is missing"
    exit 77
fi
case $2 in
clang) set -- "$1" CC=clang ;;
address) set -- "$1" SANITIZE=1 ;;
thread) set -- "$1" SANITIZE=thread ;;
esac
exec make -C "$1" test WERROR=ON "$2"
