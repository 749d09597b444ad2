#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train_defaults.sh - bauta train for a new user: unknown characters are
# reported, lines get end tokens, and defaults fit the task.
#
#   train_defaults.sh BAUTA
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

# Lines end with an end token, with characters and with bytes.
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

# The example of --help: fine-tuning a trained model, with suitable defaults.
example=$("$bauta" train --help | sed -n '/--from models/,/notes.txt/p' |
    tr -d '\\\n' | sed 's/^ *bauta //')
mkdir models
cp -RL a/best models/gpt2
cp text notes.txt
# shellcheck disable=SC2086
runs 0 $example --threads 1 --json
[ "$(value steps)" = 200 ] || fail "the example took not 200 steps"
runs 0 train --from models/gpt2 --lines --threads 1 --out c notes.txt
says stderr "50 steps, 50.0 epochs of 1;"
says c/metrics.jsonl '"step":5,"epoch":4,"loss"'
tail -n 1 c/metrics.jsonl >stdout
says stdout '"learning_rate":0.0,'
sed -n 5p c/metrics.jsonl >stdout # after the warm-up
says stdout '"learning_rate":5.0'

# The length of a run: by epochs or by time; the run then equals one by --steps.
fit() { # RUN OPTION...
    run=$1
    shift
    # shellcheck disable=SC2086
    runs 0 train --preset gpt2-tiny $small --tokenizer chars --lines \
        --eval-every 0 --out "$run" "$@" text
}
fit e --epochs 2.5
says stderr "50 steps, 2.5 epochs of 20"
says stderr "'--steps 50 --warmup-steps 5' gives the same run"
fit e2 --steps 50 --warmup 5
cmp e/last/model.safetensors e2/last/model.safetensors ||
    fail "--epochs trained another model than --steps"
fit m --minutes 0.01 --save-every 5
says stderr "0.01 minutes are about"
options=$(sed -n "s/.*'\(--steps .*\)' gives.*/\1/p" stderr)
# shellcheck disable=SC2086
fit m2 $options
cmp m/last/model.safetensors m2/last/model.safetensors ||
    fail "--minutes trained another model than $options"
runs 0 train --resume m --threads 1
says stderr "are done"
cp -R m m3 # and as if it had been stopped before its end
rm -rf "m3/$(readlink m/last)" m3/last m3/best
set -- m3/step-*
if [ -d "$1" ]; then
    runs 0 train --resume m3 --threads 1 --no-audit
    cmp m/last/model.safetensors m3/last/model.safetensors ||
        fail "--minutes, resumed, trained another model"
fi
runs 0 train --resume e --epochs 3 --threads 1 --json --no-audit
[ "$(value steps)" = 60 ] || fail "--resume --epochs 3 is not 60 steps"
runs 0 train --resume e --minutes 0.005 --threads 1 --json --no-audit
[ "$(value steps)" -gt 60 ] || fail "--resume --minutes took no step"
runs 2 train --preset gpt2-tiny --tokenizer chars --out x --steps 5 \
    --epochs 1 text
says stderr "exclude each other"
runs 2 train --preset gpt2-tiny --tokenizer chars --out x --minutes -1 text
says stderr "--minutes is -1"

# A warm-up that never ends gives a warning; a learning rate below the preset's
# minimum gets its own minimum.
fit w --steps 20
says stderr "warning: --warmup-steps is 100 and the run has only 20 steps"
fit w2 --steps 20 --warmup 2 --learning-rate 1e-5
silent stderr warning

# Validation is limited.
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --lines --steps 4 \
    --warmup 1 --valid text --eval-tokens 100 --out v text
tokens=$(sed -n 's/.*"valid_loss".*"predicted":\([0-9]*\).*/\1/p' \
    v/metrics.jsonl)
[ "$tokens" -le 100 ] || fail "--eval-tokens 100 validated on $tokens"
[ "$tokens" -gt 60 ] || fail "--eval-tokens 100 validated on only $tokens"
