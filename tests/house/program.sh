#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# program.sh - the program bauta: help, results on stdout, sentences on stderr,
# exit statuses.
#
#   program.sh BAUTA FOLDERS
#
# FOLDERS is what tests/house/folders.c wrote.
set -eu
bauta=$1
folders=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$1"
    echo "stdout:"
    cat "$work/out"
    echo "stderr:"
    cat "$work/err"
    exit 1
}
# runs STATUS ARGUMENT...: the program ends so, and says something on just one
# of the two streams.
runs() {
    want=$1
    shift
    got=0
    "$bauta" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
    if [ "$want" = 0 ]; then
        speaks=out silent=err
    else
        speaks=err silent=out
    fi
    [ -s "$work/$speaks" ] || fail "bauta $*: nothing on std$speaks"
    [ ! -s "$work/$silent" ] || fail "bauta $*: something on std$silent"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$work/$1" || fail "'$2' is not on $1"
}

runs 0 --help
says out "usage: bauta VERB"
says out "inspect"
runs 0 --version
says out "bauta "
runs 2
says err "a verb is missing"
runs 2 inspct
says err "did you mean 'inspect'?"
runs 2 xyzzyx
says err "there is no verb 'xyzzyx'"
runs 0 inspect --help
says out "examples"
runs 2 inspect
says err "the folder is missing"
runs 2 inspect a b
says err "more than one folder"
runs 2 inspect --jsn a
says err "did you mean '--json'?"
runs 2 inspect --masks
says err "--masks needs a number"
for number in x -1 513 1e3 99999999999999999999; do
    runs 2 inspect a --masks "$number"
    says err "--masks is '$number', not a number from 0 to 512"
done
runs 1 inspect "$work/nowhere"
says err "config.json: cannot open it"

for folder in "$folders"/*; do
    runs 0 inspect "$folder"
    says out "vocabulary"
    says out "total"
    says out "mask of self-attention"
    runs 0 inspect "$folder" --masks 0 --json
    if command -v python3 >/dev/null; then
        runs 0 inspect "$folder" --json --masks 3
        python3 - "$work/out" <<'END' || fail "bauta inspect $folder --json"
import json, sys
got = json.load(open(sys.argv[1]))
total = sum(t["count"] for t in got["tensors"])
assert total == got["blueprint"]["parameters"], total
assert all(m["mask"]["queries"] == 3 for m in got["masks"])
END
    fi
done
runs 0 inspect "$folders/mistral" --masks 6
says out "layers 0 to 2: causal, window of 4"
says out "  ..####"
runs 0 inspect "$folders/qwen2"
says out "decoder layer 0: causal"
says out "decoder layers 1 to 2: causal, window of 3"
runs 0 inspect "$folders/marian" --masks 2
says out "mask of cross-attention, decoder layers 0 to 2: all"

# The name of a folder may be any bytes.
odd=$work/$(printf 'a\377b')
if ln -s "$folders/gpt2" "$odd" 2>/dev/null; then
    runs 0 inspect "$odd" --json
    says out '"folder": null'
fi

# A result that cannot be written is a failure.
if [ -c /dev/full ]; then
    status=0
    "$bauta" inspect "$folders/gpt2" >/dev/full 2>"$work/err" || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says err "cannot write the result"
fi
