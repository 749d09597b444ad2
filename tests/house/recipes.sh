#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# recipes.sh - bauta train for a stranger: what the tokenizer does not know is
# reported, lines end, defaults suit what is trained.
#
#   recipes.sh BAUTA
set -eu
bauta=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    echo "stdout:"
    cat stdout
    echo "stderr:"
    cat stderr
    exit 1
}
runs() { # STATUS ARGUMENT...
    want=$1
    shift
    got=0
    "$bauta" "$@" >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
silent() { # STREAM TEXT
    if grep -qF -- "$2" "$1"; then fail "'$2' is on $1"; fi
}
value() { # KEY: of the JSON object on stdout
    sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}\$/\1/p" stdout
}

i=0
while [ $i -lt 40 ]; do
    echo "the mask hides the face"
    echo "a bauta lets its wearer speak"
    i=$((i + 1))
done >text
small="--set n_layer=1 --set n_embd=16 --set n_head=2 --context 48
    --batch-size 4 --threads 1 --no-audit"

# Characters that are not in the vocabulary: how many, the first, and where.
printf 'the mask\nhid\303\251s the z\303\251bra\n' >valid
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --lines --steps 300 \
    --warmup 10 --learning-rate 1e-2 --valid valid --out a text
says stderr 'bauta train: warning: validation: 3 characters are not in the'
says stderr 'the first is "é" (U+00E9) in valid, line 2'
silent stderr "the texts:"
runs 0 score --perplexity a valid --threads 1
says stderr 'bauta score: warning: 3 characters are not in the vocabulary'
runs 0 score --perplexity a text --threads 1
silent stderr warning
runs 0 generate a "the Mask" --threads 1 -n 3
says stderr 'warning: the prompt: 1 character is not in the vocabulary, '
says stderr 'the first is "M" (U+004D) in column 5'
runs 0 generate a "the mask" --threads 1 -n 3
silent stderr warning

# Lines have an end, with characters and with bytes.
ends() { # RUN
    runs 0 generate "$1" "the mask" --greedy --threads 1 --json
    says stdout '"text":" hides the face"'
    says stdout '"finish":"end"'
}
ends a
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer bytes --lines --steps 300 \
    --warmup 10 --learning-rate 1e-2 --out b text
ends b
