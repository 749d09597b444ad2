#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nan_weights.sh - a model that holds NaN: every verb that runs it fails, names
# the first layer that gives NaN, and prints no result.
#
#   nan_weights.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

i=0
while [ $i -lt 20 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    i=$((i + 1))
done >text
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=2 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 1 --lines \
    --batch-size 4 text
train gpt --preset gpt2-tiny --set n_layer=2 --set n_embd=16 --set n_head=2 \
    --tokenizer chars --context 16 --batch-size 2 --steps 1 text
train seq --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --tokenizer unigram:40 --source text --target text \
    --steps 1 --batch-tokens 200

# The model of a run, with NaN as the first number of its file.
nan_copy() { # RUN
    for step in "$1"/step-*; do :; done
    mkdir "$1-nan"
    for file in config.json model.safetensors tokenizer.json \
        tokenizer_config.json; do
        [ ! -e "$step/$file" ] || cp "$step/$file" "$1-nan"
    done
    file=$1-nan/model.safetensors
    chmod u+w "$file"
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    printf '\000\000\300\177' |
        dd of="$file" bs=1 seek=$((8 + header)) conv=notrunc 2>/dev/null
}
nan_copy bert
nan_copy gpt
nan_copy seq

as() { # VERB ARGUMENT...: must fail with the message in $says
    verb=$1
    shift
    runs 1 "$@"
    says stderr "$says"
}
says="decoder layer 0 gives NaN at token 0 of sequence 0; tensor transformer.h\
.0.attn.c_attn.bias holds NaN"
as score --perplexity gpt-nan text
[ ! -s stdout ] || fail "a perplexity of NaN"
as score --perplexity gpt-nan text --json
[ ! -s stdout ] || fail "a perplexity of NaN"
as embed gpt-nan "the mask"
[ ! -s stdout ] || fail "a vector of NaN"
as embed gpt-nan "the mask" --similarity
[ ! -s stdout ] || fail "a vector of NaN"
as embed gpt-nan "the mask" --npy x.npy
[ ! -e x.npy ] || fail "a vector of NaN"
as generate gpt-nan "the mask" --quiet
as look gpt-nan "the mask" --at decoder --layer 1
[ ! -s stdout ] || fail "attention weights of NaN"
as look gpt-nan "the mask" --json
[ ! -s stdout ] || fail "attention weights of NaN"

says="the embeddings of the encoder give NaN at token 0 of sequence 0; tensor \
bert.embeddings.LayerNorm.bias holds NaN"
as fill bert-nan "the [MASK] hides"
[ ! -s stdout ] || fail "probabilities of NaN"
as fill bert-nan "the [MASK] hides" --json
[ ! -s stdout ] || fail "probabilities of NaN"
as embed bert-nan "the mask"
as look bert-nan "the mask"

says="NaN"
as translate seq-nan "the mask"

# A loss whose perplexity overflows is null in JSON.
verb=score
runs 0 --perplexity gpt text --json
python3 -c 'import json; json.load(open("stdout"))["perplexity"] > 1' ||
    fail "no JSON"
echo "$cases runs"
