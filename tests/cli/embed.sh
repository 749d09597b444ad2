#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh - bauta embed: vectors in order, as JSON and as .npy; refusals; on
# small models that are trained here. transformers.c compares the numbers.
#
#   embed.sh BAUTA
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
refused "did you mean '--npy'?" bert --numpy x
refused "did you mean '--pooling'?" bert --poolin x
refused "did you mean '--normalize'?" bert --normalise
refused "--similarity takes no value" bert --similarity=1
refused "exclude each other" bert x --npy a.npy --similarity
for option in --file --pooling --npy --weights --threads; do
    refused "$option needs a value" bert "$option"
done
refused "--pooling is 'max', not mean, cls or last" bert x --pooling max
refused "--threads is 'x', not a whole number" bert x --threads x
fails "nowhere" nowhere x
fails "text" text x
fails "nowhere: cannot open it: " bert --file nowhere
fails "cannot read it: " bert --file .
fails "nowhere/x.npy: No such file" bert x --npy nowhere/x.npy
long=$(yes "the mask" | head -n 2000 | tr '\n' ' ')
fails "text 1: the text has" bert "$long"
mkdir old # characters without an end
cat >old/tokenizer.json <<'END'
{"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [],
 "vocab": {"a": 0, "b": 1}}}
END
fails "text 1: the text has no tokens" gpt "" --tokenizer old
printf 'the mask\n%s\nthe face\n' "$long" >in
runs 1 bert
says stderr "standard input: line 2: the text has"
[ "$(wc -l <stdout)" -eq 1 ] || fail "what came before is not there"
runs 1 bert --npy cut.npy
[ ! -e cut.npy ] || fail "half a file"
set -- cut.npy*
[ ! -e "$1" ] || fail "$1 was not removed"

# ---- vectors ---------------------------------------------------------------
: >in
for model in bert gpt seq; do
    for pooling in mean cls last; do
        runs 0 "$model" "the mask" --pooling "$pooling"
        says stdout '{"text":"the mask","tokens":'
    done
done
i=0
while [ $i -lt 200 ]; do
    echo "the mask hides face $i" | cut -c "1-$((i % 20 + 5))"
    i=$((i + 1))
done >in
runs 0 bert --no-normalize
[ "$(wc -l <stdout)" -eq 200 ] || fail "not a line a text"
sed -n 150p stdout >one
runs 0 bert "$(sed -n 150p in)" --no-normalize --threads 2
cmp -s one stdout || fail "a text is not as if it were alone"
runs 0 bert --file in --npy all.npy
[ ! -s stdout ] || fail "--npy prints, too"
[ "$(wc -c <all.npy)" -eq $((128 + 200 * 16 * 4)) ] || fail "the size of .npy"
runs 0 bert --weights int8
: >in
runs 0 bert "the mask" "the mask" "the face" --similarity
[ "$(head -n 1 stdout | cut -f 1,2)" = "$(printf '1.0000\t1.0000')" ] ||
    fail "a text is not like itself"
[ "$(wc -l <stdout)" -eq 3 ] || fail "not a table"
runs 0 bert "the mask" "the face" --similarity --json
says stdout '{"similarity":[[1'
runs 0 bert --similarity # of nothing
runs 0 bert --npy none.npy

if command -v python3 >/dev/null; then
    printf 'the mask\n\nthe face' >in
    runs 0 bert
    cp stdout vectors
    runs 0 bert --npy few.npy
    python3 - vectors few.npy all.npy none.npy <<'END' || fail "the vectors"
import ast, json, struct, sys
def npy(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    size, = struct.unpack("<H", data[8:10])
    assert (10 + size) % 64 == 0
    head = ast.literal_eval(data[10:10 + size].decode())
    assert head["descr"] == "<f4" and not head["fortran_order"]
    n, width = head["shape"]
    numbers = struct.unpack("<%df" % (n * width), data[10 + size:])
    return [numbers[i * width:(i + 1) * width] for i in range(n)]
lines = [json.loads(line) for line in open(sys.argv[1])]
rows = npy(sys.argv[2])
assert len(lines) == len(rows) == 3
for line, row in zip(lines, rows):
    assert abs(sum(x * x for x in row) - 1) < 1e-5
    assert all(abs(a - b) < 1e-6 for a, b in zip(line["embedding"], row))
assert len(npy(sys.argv[3])) == 200 and npy(sys.argv[4]) == []
END
    : >in
fi
if [ -c /dev/full ]; then
    status=0
    "$bauta" embed bert "the mask" >/dev/full 2>stderr || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says stderr "cannot write the result"
fi
echo "$cases cases"
