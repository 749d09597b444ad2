#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# translate.sh - bauta translate: one line out for each line in, in order;
# refusals. The model is trained here, on a language of reversed words.
#
#   translate.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

i=0
while [ $i -lt 40 ]; do
    echo "a mask"
    echo "the face"
    echo "the mask hides a face"
    i=$((i + 1))
done >source
sed 's/mask/maske/; s/face/gesicht/; s/hides/verbirgt/; s/the/das/; s/^a /eine /' \
    source >target
small="--preset transformer-tiny --set d_model=32 --set encoder_layers=1
    --set decoder_layers=1 --source source --target target --batch-tokens 300"
# shellcheck disable=SC2086
train run $small --tokenizer unigram:60 --steps 80 --learning-rate 5e-3 \
    --warmup 5
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --tokenizer chars --context 16 --batch-size 2 --steps 1 source
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 1 --lines \
    --batch-size 2 source

# ---- refusals --------------------------------------------------------------
runs 0 --help
says stdout "examples"
refused "the model's folder is missing"
refused "both texts and --file" run x --file source
refused "there is no option '--xyzzy'" run --xyzzy
refused "did you mean '--beams'?" run --beam 2
refused "did you mean '--nbest'?" run --n-best 2
refused "did you mean '--prefix'?" run --prefx x
refused "--quiet takes no value" run --quiet=1
for option in --file --out --prefix --beams --nbest --length-penalty \
    --early-stopping --no-repeat-ngram --max-tokens -n --weights --sequences \
    --cache-mb --threads; do
    refused "$option needs a value" run x "$option"
done
for option in --beams --nbest -n --sequences --cache-mb --threads; do
    refused "$option is 'few', not a whole number" run x "$option" few
    refused "$option is '-2', not a whole number" run x "$option=-2"
done
refused "--beams is '0', not a whole number from 1 to" run x --beams 0
refused "--length-penalty is 'x', not a number" run x --length-penalty x
refused "--length-penalty is 1000, not from" run x --length-penalty 1000
refused "did you mean 'never'?" run x --early-stopping neve
refused "--weights is 'int4'" run x --weights int4
refused "there are only 2 beams" run x --beams 2 --nbest 3
fails "the verb for it is 'bauta generate'" gpt x
fails "the verb for it is 'bauta fill'" bert x
fails "nowhere" nowhere x
fails "source" source x
fails "nowhere: cannot open it: " run --file nowhere
fails "cannot read it: " run --file .
fails "nowhere/x: " run x --out nowhere/x

# ---- lines -----------------------------------------------------------------
runs 0 run "a mask" "the face" --quiet
[ "$(cat stdout)" = "eine maske
das gesicht" ] || fail "it has not learned to translate"
[ ! -s stderr ] || fail "--quiet says something"
printf 'a mask\n\n   \nthe mask hides a face\nthe face' >in
for how in "" "--beams 1" "--beams 3" "--file -" "--file in" "--sequences 1" \
    "--threads 2" "--cache-mb 16" "--weights bfloat16" "--out out"; do
    # shellcheck disable=SC2086
    runs 0 run $how
    says stderr "3 lines"
    [ "$how" != "--out out" ] || cp out stdout
    printf 'eine maske\n\n\ndas maske verbirgt a gesicht\ndas gesicht\n' >want
    cmp -s want stdout || fail "line in, line out: $how"
done
# Many lines: more than the window; batch-invariant.
cat source source source >in
runs 0 run --beams 2
cat target target target | cmp -s - stdout || fail "three hundred lines"

# Each line is printed as soon as it is available.
mkfifo questions
"$bauta" translate run --quiet <questions >stdout 2>stderr &
{
    echo "a mask"
    i=0
    while [ ! -s stdout ] && [ $i -lt 600 ]; do
        sleep 0.1
        i=$((i + 1))
    done
    [ -s stdout ] || fail "a line waits for others"
    echo "the face"
} >questions
wait
[ "$(wc -l <stdout)" -eq 2 ] || fail "a pipe"
cases=$((cases + 1))
: >in

runs 0 run "a mask" --beams 3 --nbest 3 --quiet
[ "$(wc -l <stdout)" -eq 3 ] || fail "not the three best"
says stdout "$(printf '\teine maske')"
runs 0 run "the face" --prefix "eine" --quiet
grep -q '^eine' stdout || fail "the prefix is not the beginning"
runs 0 run "a mask" -n 1 --quiet
runs 0 run "a mask" --length-penalty 2 --early-stopping yes --beams 2 --quiet
runs 0 run "ÄÖÜ a mask" --no-repeat-ngram 2 --quiet
printf 'a mask\na \377mask\na mask\n' >in
runs 1 run --quiet
says stderr "standard input: line 2 is not UTF-8 (byte 3 of it)"
[ "$(wc -l <stdout)" -eq 3 ] || fail "a bad line takes others along"
runs 1 run --json --quiet
says stdout '"error":"standard input: line 2 is not UTF-8'
: >in
if command -v python3 >/dev/null; then
    runs 0 run "a mask" "" --json --beams 2 --nbest 2
    python3 - stdout <<'END' || fail "bauta translate --json"
import json, sys
one, none = map(json.loads, open(sys.argv[1]))
assert one["source"] == "a mask" and len(one["translations"]) == 2
best, other = one["translations"]
assert best["text"] == "eine maske" and best["score"] >= other["score"]
assert best["finish"] == "end" and len(best["tokens"]) == len(best["logprobs"])
assert none == {"source": "", "translations": [], "source_tokens": 0}
END
fi

# A line that is too long is reported, and the others are translated.
{ echo "a mask" && yes "the mask" | head -n 2000 | tr '\n' ' ' && echo &&
    echo "the face"; } >in
runs 1 run --quiet
says stderr "standard input: line 2: "
[ "$(cat stdout)" = "eine maske

das gesicht" ] || fail "a bad line takes others along"
runs 1 run --quiet --json
says stdout '"error":"'
echo "a mask" >in

# The same where a token is NaN, for the sources that contain it.
if command -v python3 >/dev/null; then
    # shellcheck disable=SC2086
    train untied $small --set tie_word_embeddings=false --tokenizer unigram:60 \
        --steps 20 --learning-rate 5e-3 --warmup 5
    printf 'a mask\nthe mask hides a face\nthe face\n' >in
    runs 0 untied --quiet -n 8
    sed 2s/.*// stdout >want
    token=$("$bauta" tokenize untied --json <in | python3 -c 'import json, sys
one, two, three = (set(json.loads(line)["ids"]) for line in sys.stdin)
print(min(two - one - three))')
    mkdir nan
    cp -r untied/last/. nan
    rm nan/trainer.json # which has digests
    python3 - nan/model.safetensors "$token" <<'END' || fail "no poison"
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack_from("<Q", data)[0]
table = json.loads(data[8:8 + size])
shared = next(table[key] for key in table if key.endswith("shared.weight"))
width = 4 * shared["shape"][1]
at = 8 + size + shared["data_offsets"][0] + int(sys.argv[2]) * width
data[at:at + width] = struct.pack("<f", float("nan")) * (width // 4)
open(sys.argv[1], "wb").write(data)
END
    runs 1 nan --quiet -n 8
    says stderr "standard input: line 2: the logits after token 1 are not fin"
    cmp -s stdout want || fail "a line with NaN changes others"
    runs 1 nan --quiet -n 8 --beams 3 --json
    says stdout '"error":"the logits after token 1 are not finite: '
    echo "a mask" >in
fi

if [ -c /dev/full ]; then
    status=0
    "$bauta" translate run <in >/dev/full 2>stderr || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says stderr "cannot write the result"
fi
echo "$cases cases"
