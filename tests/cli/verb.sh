# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# verb.sh - what the tests of a verb share; they are named as it is, and begin
# with this. $1 is the program. From here on a folder of their own is current,
# and `child` is a process that must not outlive them.
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
    [ "$want" = 0 ] || [ -s stderr ] || fail "bauta $verb $*: no sentence"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
refused() { # SENTENCE ARGUMENT...: a command line that is not understood
    sentence=$1
    shift
    runs 2 "$@"
    says stderr "$sentence"
    [ ! -s stdout ] || fail "bauta $verb $*: something on stdout"
}
fails() { # SENTENCE ARGUMENT...
    sentence=$1
    shift
    runs 1 "$@"
    says stderr "$sentence"
    [ ! -s stdout ] || fail "bauta $verb $*: something on stdout"
}
train() { # RUN OPTION...
    run=$1
    shift
    "$bauta" train --threads 1 --out "$run" "$@" >stdout 2>stderr ||
        fail "bauta train $*"
}
