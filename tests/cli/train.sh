#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.sh - bauta train: a run, its folder, interruption and resumption, output
# and refusals; and bauta score --perplexity.
#
#   train.sh BAUTA
set -eu
bauta=$1
work=$(mktemp -d)
child=
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || :; rm -rf "$work"' EXIT
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
    [ "$want" = 0 ] || [ ! -s stdout ] || fail "bauta $*: something on stdout"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
value() { # KEY: of the JSON object on stdout
    sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}\$/\1/p" stdout
}

i=0
while [ $i -lt 12 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    echo "a bauta lets its wearer speak: verse $i"
    i=$((i + 1))
done >text
sed 's/the/der/g' text >target
small="--set n_layer=1 --set n_embd=16 --set n_head=2 --context 16
    --batch-size 2 --threads 1"

# Refusals, each with a message.
runs 0 train --help
says stdout "examples"
says stdout "transformer-tiny"
refused() { # MESSAGE ARGUMENT...
    message=$1
    shift
    runs 2 train "$@"
    says stderr "$message"
}
refused "--preset NAME or --from DIR is missing" text
refused "--tokenizer is missing" --preset gpt2-tiny text
refused "--out is missing" --preset gpt2-tiny --tokenizer chars text
refused "the texts to train on are missing" --preset gpt2-tiny \
    --tokenizer chars --out r
refused "did you mean '--steps'?" --stepps 3 text
refused "--steps is 'many', not a whole number" --steps many text
refused "--learning-rate is 'x', not a number" --learning-rate x text
refused "did you mean 'cosine'?" --schedule cosin text
refused "--steps needs a value" --steps
refused "--lines takes no value" --lines=yes
refused "belong together" --preset transformer-tiny --tokenizer bytes \
    --source text --out r
refused "--patience needs" --preset gpt2-tiny --tokenizer chars --out r \
    --patience 2 text
refused "exclude each other" --preset gpt2-tiny --out r \
    --tokenizer chars --valid text --valid-share 0.1 text
refused "as in 'bpe:8000'" --preset gpt2-tiny --tokenizer bpe --out r text
refused "did you mean 'gpt2-tiny'? There are gpt2-tiny, " --preset gpt2-tinny \
    --tokenizer chars --out r text
refused "there is no preset 'xyzzy'; there are gpt2-tiny, " --preset xyzzy text
refused "--preset needs a value: gpt2-tiny, " text --preset
runs 1 train --preset gpt2-tiny --set n_layers=2 --tokenizer chars --out r text
says stderr 'did you mean "n_layer"?'
runs 1 train --preset gpt2-tiny --tokenizer chars --out r nowhere
says stderr "nowhere: cannot open it: No such file"
runs 1 train --preset bert-tiny --tokenizer chars --out r text
says stderr "needs a tokenizer with a mask token"
printf 'good\nb\377d\n' >bad
runs 1 train --preset gpt2-tiny --tokenizer bytes --out r bad
says stderr "bad: line 2 is not UTF-8"
runs 1 train --resume nowhere
rm -rf r

# A whole run.
train() { # RUN OPTION...
    run=$1
    shift
    # shellcheck disable=SC2086
    runs 0 train --preset gpt2-tiny $small --tokenizer chars --steps 20 \
        --valid-share 0.2 --eval-every 8 --dropout 0.1 --out "$run" "$@"
}
train a --json text
[ "$(value steps)" = 20 ] || fail "the steps are not 20"
[ "$(value ended)" = '"done"' ] || fail "it did not end well"
says stderr "validation loss"
says stderr "sample: "
[ "$(readlink a/last)" = step-00000020 ] || fail "a/last is not the last one"
[ -e a/best/model.safetensors ] || fail "there is no best model"
[ "$(grep -c '"loss"' a/metrics.jsonl)" = 20 ] || fail "not a line a step"
[ "$(grep -c '"valid_loss"' a/metrics.jsonl)" = 3 ] || fail "validations"
set -- a/events.out.tfevents.*
[ -s "$1" ] || fail "there are no events"
runs 1 train --preset gpt2-tiny --tokenizer chars --out a text
says stderr "'--resume a' continues"
# Partial files of a killed process are removed, whatever its process number; a
# folder with other contents stays.
draft=.bauta-$$-0.folder
mkdir "a/$draft" a/.bauta-1-1.folder
touch "a/$draft/model.safetensors" a/.bauta-1-1.folder/mine
runs 0 train --resume a
says stderr "all 20 steps are done"
[ ! -e "a/$draft" ] || fail "what a killed program left is still there"
[ -e a/.bauta-1-1.folder/mine ] || fail "a file that is not bauta's is gone"
rm -r a/.bauta-1-1.folder
runs 0 inspect a/last

# Threads change no bit.
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --steps 20 \
    --valid-share 0.2 --eval-every 0 --dropout 0.1 --out t text --threads 2
cmp a/last/model.safetensors t/last/model.safetensors ||
    fail "two threads made another model"

# Interrupted after some step, and resumed from another folder.
# shellcheck disable=SC2086
"$bauta" train --preset gpt2-tiny $small --tokenizer chars --steps 100000 \
    --warmup 100 --eval-every 0 --out b text >stdout 2>stderr &
child=$!
i=0
until [ -s b/metrics.jsonl ] || [ $i = 100 ]; do
    sleep 0.1
    i=$((i + 1))
done
kill -INT $child
got=0
wait $child || got=$?
child=
[ $got = 0 ] || fail "SIGINT: status $got, not 0"
says stderr "'bauta train --resume b' continues"
stopped=$(basename "$(readlink b/last)" | sed 's/step-0*//')
steps=$((stopped + 10))
(cd / && "$bauta" train --resume "$work/b" --steps $steps --threads 1) \
    >stdout 2>stderr || fail "it was not resumed"
says stderr "resuming from"
[ "$(grep -c '"loss"' b/metrics.jsonl)" = "$steps" ] || fail "not a line a step"

# The same steps with and without a stop give the same bits: a copy of `a`
# without its end is resumed from its middle.
cp -R a d
rm -rf d/step-00000020 d/last d/best
runs 0 train --resume d
cmp a/last/model.safetensors d/last/model.safetensors ||
    fail "resumed, it is another model"
cmp a/last/optimizer.safetensors d/last/optimizer.safetensors ||
    fail "resumed, the moments are others"
[ "$(grep -c '"loss"' d/metrics.jsonl)" = 20 ] || fail "the log was not cut"

# A changed text, changed options, and a damaged run.
cp -R a e
rm -rf e/step-00000020
cp text kept
echo "one more line" >>text
runs 1 train --resume e
says stderr "corpus"
mv kept text
runs 1 train --resume e --learning-rate 0.5
says stderr "--learning-rate of a run cannot change: it was "
rm e/step-*/trainer.json
runs 1 train --resume e
says stderr "no complete checkpoint"

# Checkpoints are kept as asked, the best among them; the mean of the last.
train f --save-every 4 --keep 2 --average 3 --json text
[ "$(value average_loss)" != null ] || fail "the average was not validated"
[ -e f/average/model.safetensors ] || fail "there is no average"
[ -e f/average/tokenizer.json ] || fail "the average has no tokenizer"
[ ! -e f/step-00000004 ] || fail "an old checkpoint was kept"
[ -e f/step-00000012 ] || fail "a checkpoint of the average was removed"

# Pairs, and masked words.
tiny="--threads 1 --steps 4 --eval-every 2 --batch-tokens 64"
# shellcheck disable=SC2086
runs 0 train --preset transformer-tiny $tiny --tokenizer unigram:60 \
    --source text --target target --valid-share 0.2 --out p \
    --set encoder_layers=1 --set decoder_layers=1
says stderr " => "
paste text target >both
# shellcheck disable=SC2086
runs 0 train --preset transformer-tiny $tiny --tokenizer bpe:300 \
    --pairs both --valid-pairs both --out p2 \
    --set encoder_layers=1 --set decoder_layers=1
# shellcheck disable=SC2086
runs 0 train --preset bert-tiny $tiny --tokenizer wordpiece:80 --lines text \
    --valid text --out h --batch-size 2 --set num_hidden_layers=1
says stderr " => "
runs 0 train --from h/best --steps 1 --threads 1 --lines text --out h2

# A loss that is not finite stops the run, and saved checkpoints stay.
# shellcheck disable=SC2086
runs 1 train --preset gpt2-tiny $small --tokenizer chars --steps 200 \
    --eval-every 1 --out n text --warmup 0 --learning-rate 1e30 \
    --min-learning-rate 1e30 --schedule constant --clip 0
says stderr "10 steps in a row"
[ -e n/last/model.safetensors ] || fail "the good checkpoint is gone"

# Dry runs write nothing.
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --dry-run text
says stdout "parameters"
says stdout "epochs of"
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --dry-run --json text
[ "$(value steps_per_epoch)" -gt 1 ] || fail "no steps per epoch"
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --compare-modes text
says stdout "sequential"
# shellcheck disable=SC2086
runs 0 train --preset gpt2-tiny $small --tokenizer chars --compare-modes \
    --json text
says stdout '"gradient_difference"'

# Perplexity.
runs 0 score --perplexity a text --threads 1
says stdout "in windows of 16 with a stride of 8"
runs 0 score --perplexity a/best text --stride 16 --json
[ "$(value predicted)" = "$(wc -c <text)" ] || fail "not every token"
for weights in float32 bfloat16 int8; do
    runs 0 score --perplexity a text --weights $weights --json
    [ "$(value predicted)" = "$(wc -c <text)" ] || fail "not every token"
done
runs 2 score --perplexity a text --weights int4
says stderr "not float32, bfloat16 or int8"
runs 0 score --perplexity h/best text
says stdout "pseudo-perplexity"
runs 1 score --perplexity a --source text --target text
says stderr "the model is decoder-only, so its perplexity needs a corpus of texts"
runs 2 score --perplexity a --source text
says stderr "--source and --target belong together"
runs 2 score --perplexity a text --pairs text
says stderr "exclude each other"
runs 1 score --perplexity a text --context 17
says stderr "the model has 16 positions"
runs 2 score --perplexity a
