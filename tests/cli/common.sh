# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# common.sh - shared by the tests of the verbs, which are named after the verb
# and source this file first. $1 is the program. The current folder is then a
# temporary one, and `child` is a process to be killed at exit.
set -eu
verb=$(basename "$0" .sh)
bauta=$1
work=$(mktemp -d)
child=
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
cases=0
: >in

fail() {
    echo "$1"
    echo "stdout:"
    cat stdout
    echo "stderr:"
    cat stderr
    exit 1
}
runs() { # STATUS ARGUMENT...: stdin is the file `in`
    want=$1
    shift
    got=0
    cases=$((cases + 1))
    "$bauta" "$verb" "$@" <in >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta $verb $*: status $got, not $want"
    [ "$want" = 0 ] || [ -s stderr ] || fail "bauta $verb $*: no message"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
refused() { # MESSAGE ARGUMENT...: a command line that is not understood
    message=$1
    shift
    runs 2 "$@"
    says stderr "$message"
    [ ! -s stdout ] || fail "bauta $verb $*: something on stdout"
}
fails() { # MESSAGE ARGUMENT...
    message=$1
    shift
    runs 1 "$@"
    says stderr "$message"
    [ ! -s stdout ] || fail "bauta $verb $*: something on stdout"
}
train() { # RUN OPTION...
    run=$1
    shift
    "$bauta" train --threads 1 --out "$run" "$@" >stdout 2>stderr ||
        fail "bauta train $*"
}
