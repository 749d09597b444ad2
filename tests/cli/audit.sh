#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# audit.sh - bauta audit, and the audit before a training run: their reports on
# correct models and on injected faults, and their command lines.
#
#   audit.sh BAUTA WITH_FAULT FOLDERS
#
# WITH_FAULT is the program with faults to inject, see inject_fault.c, or 'none' if
# it is not built; FOLDERS holds the model folders written by write_models.c.
set -eu
bauta=$1
with_fault=$2
folders=$3
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
runs() { # STATUS PROGRAM ARGUMENT...
    want=$1
    shift
    got=0
    "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$want" ] || fail "$*: status $got, not $want"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$work/$1" || fail "'$2' is not on $1"
}

runs 0 "$bauta" audit --help
says out "usage: bauta audit DIR"
runs 2 "$bauta" audit
says err "the folder is missing"
runs 2 "$bauta" audit a b
says err "more than one folder"
runs 2 "$bauta" audit a --tokns 3
says err "did you mean '--tokens'?"
runs 2 "$bauta" audit a --tokens 2
says err "--tokens is '2', not a whole number from 3 to 1024"
runs 2 "$bauta" audit a --mask
says err "--mask needs a value"
runs 2 "$bauta" audit "$folders/gpt2" --mask 'causl'
says err "--mask: column 1"
[ ! -s "$work/out" ] || fail "something on stdout"
runs 1 "$bauta" audit "$work/nowhere"
says err "there is no such folder"
runs 1 "$bauta" audit "$folders/gpt2" --text "$work/nowhere"

# Correct models.
for name in gpt2 mistral bert marian; do
    runs 0 "$bauta" audit "$folders/$name" --tokens 24 --threads 1
    says out "all checks passed"
    [ ! -s "$work/err" ] || fail "something on stderr"
done
says out "forked, truncated and reordered sequences decode as fresh ones"
runs 0 "$bauta" audit "$folders/llama" --tokens 18 --threads 1 --seed 3 \
    --mask 'window(5) | sinks(2)' --json
says out '"passed": true'

# Before training: one line, and no training run if there is a leak.
i=0
while [ $i -lt 20 ]; do
    echo "the mask hides the face, and the face is behind the mask $i"
    i=$((i + 1))
done >"$work/text"
set -- train --preset gpt2-tiny --tokenizer chars --set n_layer=2 \
    --set n_embd=16 --set n_head=2 --context 16 --batch-size 2 --threads 1 \
    --steps 2 --dropout 0.1
runs 0 "$bauta" "$@" --out "$work/a" "$work/text"
says err "audit: passed"
runs 0 "$bauta" "$@" --no-audit --out "$work/b" "$work/text"
if grep -q audit "$work/err"; then
    fail "an audit that was not asked for"
fi
[ "$with_fault" != none ] || exit 0
for leak in dropout-drops-mask future-key backward-sees-future; do
    runs 1 env BAUTA_INJECT=$leak "$with_fault" "$@" --out "$work/c-$leak" \
        "$work/text"
    says err "which it must not"
    says err "training was not started"
    [ ! -e "$work/c-$leak/last" ] || fail "it was trained all the same"
done

# A fault is reported with its location, as text and as JSON, and the status is 1.
runs 1 env BAUTA_INJECT=future-key BAUTA_INJECT_LAYER=1 \
    "$with_fault" audit "$folders/gpt2" --tokens 24 --threads 1
says out "tokens      FAILED decoder layer 1, head 0: token 0 of sequence 0 sees token 1, which it must not"
says out "checks failed"
runs 1 env BAUTA_INJECT=window-short-in-steps BAUTA_INJECT_LAYER=2 \
    "$with_fault" audit "$folders/mistral" --tokens 24 --threads 1 --json
says out '"passed": false'
if command -v python3 >/dev/null; then
    python3 - "$work/out" <<'END' || fail "the JSON of a fault"
import json, sys
found = {f["check"]: f for f in json.load(open(sys.argv[1]))["findings"]}
steps = found["incremental"]
assert steps["verdict"] == "failed", steps
assert (steps["attention"], steps["layer"]) == ("decoder", 2), steps
assert steps["key"] < steps["query"], steps
assert found["tokens"]["verdict"] == "passed"
END
fi
