#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks_split.sh - bauta translate, generate and embed with --ranks: the output
# is that of one process, byte for byte, also of empty and invalid lines.
#
#   ranks_split.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

i=0
while [ $i -lt 23 ]; do
    echo "the mask hides face $i"
    i=$((i + 1))
done >text
train seq --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --tokenizer unigram:40 --source text --target text \
    --steps 5 --batch-tokens 200
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --tokenizer chars --context 32 --batch-size 2 --steps 5 --lines text
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 1 --lines \
    --batch-size 4 text

same() { # STATUS VERB ARGUMENT...: with 2, 4 and more ranks than texts
    want=$1
    verb=$2
    shift 2
    runs "$want" "$@"
    cp stdout one
    sort -u stderr >errors
    for ranks in 2 3 4 40; do
        runs "$want" "$@" --ranks $ranks
        cmp -s one stdout || fail "bauta $verb $*: another output on $ranks"
        sort -u stderr | cmp -s errors - ||
            fail "bauta $verb $*: other messages on $ranks ranks: $(cat errors)"
    done
}
same 0 translate seq --file text --quiet -n 8 --threads 1
same 0 translate seq --file text --quiet -n 8 --num-beams 2 \
    --num-return-sequences 2 --threads 1
same 0 generate gpt --prompts text -n 6 --do-sample --seed 3 --quiet --threads 1
same 0 embed bert --file text --threads 1
printf 'a mask\n\nthe face\n' >few
same 0 translate seq --file few --quiet -n 4 --threads 1
printf 'a mask\nb\377\nthe face\n\nof\n' >bad
same 1 translate seq --file bad --quiet -n 4 --threads 1
: >empty
same 0 translate seq --file empty --quiet --threads 1

verb=translate
runs 0 seq --file text --quiet -n 8 --threads 1
cp stdout one
runs 0 seq --file text --quiet -n 8 --ranks 2 --out out
cmp -s one out || fail "another --out with two ranks"
refused "--ranks needs texts from a file" seq --ranks 2
refused "--ranks needs texts from a file" seq --ranks 2 'the mask'
refused "--ranks is 65" seq --file text --ranks 65
fails "missing" seq --file missing --ranks 4
[ "$(wc -l <stderr)" = 1 ] || fail "many messages"
verb=embed
refused "--npy and --ranks" bert --file text --npy x --ranks 2
refused "--similarity and --ranks" bert --file text --similarity --ranks 2
verb=generate
refused "--ranks needs texts from a file" gpt --ranks 2 'the mask'
echo "$cases cases."
