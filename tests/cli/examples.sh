#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples.sh - the examples that need a model: train, generate and translate.
#
#   examples.sh BAUTA TRAIN GENERATE TRANSLATE
set -eu
bauta=$1 train=$2 generate=$3 translate=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    cat out
    exit 1
}
i=0
while [ $i -lt 20 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    i=$((i + 1))
done >text
yes "a mask" | head -n 40 >source
yes "eine maske" | head -n 40 >target

"$train" text model 200 >out 2>&1 || fail "train failed"
grep -q 'continuation ".*mask' out || fail "it has not learned its text"
"$generate" model "the mask hides" 20 >out 2>&1 || fail "generate failed"
grep -q '^the mask hides.*[a-z]' out || fail "generate says nothing"
grep -q 'log-probability' out || fail "generate has not ended well"

"$bauta" train --preset transformer-tiny --set d_model=32 \
    --set encoder_layers=1 --set decoder_layers=1 --tokenizer unigram:40 \
    --source source --target target --steps 60 --learning-rate 5e-3 --warmup 5 \
    --threads 1 --out run >out 2>&1 || fail "bauta train failed"
"$translate" run "a mask" "mask a" >out 2>&1 || fail "translate failed"
grep -q 'eine maske' out || fail "it has not learned to translate"
[ "$(wc -l <out)" -eq 4 ] || fail "not two translations"

# Without their arguments they print an error.
for program in "$train" "$generate" "$translate"; do
    status=0
    "$program" >out 2>&1 || status=$?
    [ "$status" = 2 ] || fail "$program: status $status"
    status=0
    "$program" nowhere nowhere >out 2>&1 || status=$?
    [ "$status" = 1 ] || fail "$program: status $status"
done
