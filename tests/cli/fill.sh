#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fill.sh - bauta fill: gaps, candidates, refusals; on a small model that is
# trained here. transformers.c compares the words.
#
#   fill.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

i=0
while [ $i -lt 20 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    i=$((i + 1))
done >text
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 5 --lines \
    --batch-size 4 text
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --tokenizer chars --context 16 --batch-size 2 --steps 1 text
train seq --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --tokenizer unigram:40 --source text --target text \
    --steps 1 --batch-tokens 200

# ---- refusals --------------------------------------------------------------
runs 0 --help
says stdout "examples"
refused "the model's folder is missing"
refused "both texts and --file" bert x --file text
refused "there is no option '--xyzzy'" bert --xyzzy
refused "did you mean '--top'?" bert --tpo 3
refused "did you mean '--threads'?" bert --thread 3
refused "--json takes no value" bert --json=1
for option in --file --top --weights --threads; do
    refused "$option needs a value" bert "$option"
done
for value in x -1 "" 1.5 0x4 "3 "; do
    refused "--top is '$value', not a whole number" bert x --top "$value"
done
refused "--top is '0', not a whole number from 1 to" bert x --top 0
refused "--top is '99999999', not a whole number from 1 to" bert x --top 99999999
refused "--threads is '5000', not a whole number from 0 to 4096" bert x --threads 5000
refused "--weights is 'float8'" bert x --weights float8
fails "the verb for it is 'bauta generate'" gpt "[MASK]"
fails "the verb for it is 'bauta translate'" seq "[MASK]"
fails "nowhere" nowhere "[MASK]"
fails "text" text "[MASK]"
fails "nowhere: cannot open it: " bert --file nowhere
fails "cannot read it: " bert --file .
fails "text 1: the text has no mask token, [MASK]" bert "no gap"
fails "text 1: the text has no mask token" bert ""
fails "text 1: the text has no mask token" bert "[mask]"
long=$(yes "the mask" | head -n 2000 | tr '\n' ' ')
fails "text 1: " bert "$long [MASK]"

# ---- gaps ------------------------------------------------------------------
runs 0 bert "the [MASK] hides"
[ "$(wc -l <stdout)" -eq 6 ] || fail "not five candidates"
says stdout "the [MASK] hides"
cp stdout one
runs 0 bert "the <mask> hides"
[ "$(tail -n 5 stdout)" = "$(tail -n 5 one)" ] || fail "<mask> is no gap"
runs 0 bert "the [MASK] hides" --threads 2
cmp -s stdout one || fail "two threads"
runs 0 bert "the [MASK] hides" --top 2
[ "$(wc -l <stdout)" -eq 3 ] || fail "not two candidates"
runs 0 bert "the [MASK] hides the <mask>" --top 2
[ "$(wc -l <stdout)" -eq 7 ] || fail "not two gaps"
says stdout " mask 2"
runs 0 bert "[MASK][MASK]" --top 1000
runs 0 bert "[MASK]" --weights bfloat16
runs 0 bert "[MASK]" --weights int8
runs 0 bert -- "--top [MASK]"
printf 'the [MASK]\nno gap\na [MASK]' >in
runs 1 bert --json
says stderr "standard input: line 2: the text has no mask token"
[ "$(wc -l <stdout)" -eq 2 ] || fail "a bad line takes others along"
: >in
if command -v python3 >/dev/null; then
    runs 0 bert "the [MASK] hides the <mask>" --json --top 100
    python3 - stdout <<'END' || fail "bauta fill --json"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["text"] == "the [MASK] hides the <mask>" and len(got["gaps"]) == 2
for gap in got["gaps"]:
    p = [c["probability"] for c in gap]
    assert p == sorted(p, reverse=True) and abs(sum(p) - 1) < 1e-5
    assert all("[MASK]" in c["sentence"] for c in gap)
END
fi
if [ -c /dev/full ]; then
    status=0
    "$bauta" fill bert "[MASK]" >/dev/full 2>stderr || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says stderr "cannot write the result"
fi
echo "$cases cases"
