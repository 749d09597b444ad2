#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve_models.sh - /translate, /fill and /attention of bauta serve: as the
# verbs of the program, malformed requests, limits; the files of the page. On
# small models that are trained here. A sanitizer reports leaks at the end of
# the server.
#
#   serve_models.sh BAUTA
command -v curl >/dev/null || {
    echo "there is no curl"
    exit 77
}
docs=$(cd "$(dirname "$0")/../../docs" && pwd)/server.md
# shellcheck source=tests/cli/server.sh
. "$(dirname "$0")/server.sh"
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
: >stdout
: >stderr
! "$bauta" serve nowhere >stdout 2>stderr || fail "a model that does not exist"
if grep -q "this build has no server" stderr; then
    echo "this build has no server"
    exit 77
fi

yes "the mask hides the face, and the face is behind the mask" |
    head -n 60 >text
train gpt --preset gpt2-tiny --set n_layer=2 --set n_embd=32 --set n_head=2 \
    --tokenizer bytes --context 128 --batch-size 4 --steps 2 text
train mt --preset transformer-tiny --set encoder_layers=1 \
    --set decoder_layers=2 --set d_model=32 --set encoder_attention_heads=2 \
    --set decoder_attention_heads=2 --source text --target text \
    --tokenizer unigram:40 --steps 30 --learning-rate 0.01 --batch-size 4
train bert --preset bert-tiny --set hidden_size=32 --set num_hidden_layers=2 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 2 --lines \
    --batch-size 4 text
train llama --preset llama-tiny --set num_hidden_layers=1 \
    --set hidden_size=32 --set intermediate_size=32 \
    --set num_attention_heads=2 --set num_key_value_heads=1 \
    --tokenizer bytes --context 32 --batch-size 2 --steps 2 text
cp -rL llama/last long # with rotary positions any length will do
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 4096/' \
    long/config.json
rm long/trainer.json # it has a digest of the other config.json
cp -rL gpt/last talks
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}' \
    '{% if add_generation_prompt %}<answer>{% endif %}' >talks/chat_template.jinja

start talks mt bert long --threads 1

# ---- the page ----------------------------------------------------------------
asks 200 / -D headers
says stdout "<title>bauta</title>"
says headers "script-src 'self'; style-src 'self'"
! grep -E ' (on[a-z]+|style)=|<script>|<style>|javascript:' stdout ||
    fail "the page has something inline"
grep -oE '(src|href)="[^"#]+"' stdout | cut -d '"' -f 2 | sort -u >files
[ "$(wc -l <files)" -ge 3 ] || fail "the page has no files"
while read -r file; do
    asks 200 "$file"
    [ -s stdout ] || fail "$file is empty"
done <files
for script in app api tokens settings attention; do
    asks 200 "/page/$script.js" -D headers
    says headers "Content-Type: text/javascript"
    ! grep -E 'https?://|innerHTML|eval\(' stdout || fail "$script.js"
done
asks 404 /page/
asks 404 /page/none.js
asks 405 /page/app.js -X POST

# ---- /translate --------------------------------------------------------------
one='"model": "mt", "text": "the mask hides the face"'
"$bauta" translate mt "the mask hides the face" --json --quiet -n 12 \
    --num-beams 3 --num-return-sequences 2 >translated
posts 200 /translate "{$one, \"max_tokens\": 12, \"num_beams\": 3,
    \"num_return_sequences\": 2}"
for field in text score; do
    value='"[^"]*"\|-\{0,1\}[0-9.e-]*'
    [ "$(grep -o "\"$field\":\($value\)" translated)" = \
        "$(grep -o "\"$field\":\($value\)" stdout)" ] ||
        fail "not the $field of bauta translate: $(cat translated)"
done
posts 200 /translate "{$one, \"max_tokens\": 12, \"num_beams\": 1}"
whole=$(sed 's/.*"translations":\[{"text":"\([^"]*\)".*/\1/' stdout)
says stdout '"usage":{"prompt_tokens":'
posts 200 /translate "{$one, \"max_tokens\": 12, \"num_beams\": 1,
    \"stream\": true, \"top_logprobs\": 3}"
[ "$(sed -n 's/^data: {"text":"\([^"]*\)".*/\1/p' stdout | tr -d '\n')" = \
    "$whole" ] || fail "the stream is another text than $whole"
says stdout '"top_logprobs":[{"token":'
says stdout '"finish_reason":null'
[ "$(tail -n 2 stdout | head -n 1)" = "data: [DONE]" ] || fail "no [DONE]"
posts 200 /translate '{"model": "mt", "text": ["the mask", "", "the face"],
    "max_tokens": 4, "length_penalty": 0.5, "no_repeat_ngram_size": 2}'
[ "$(grep -o '"translations":' stdout | wc -l)" = 3 ] || fail "not 3 results"
# Many at once give what each gives alone.
i=0
jobs=
while [ $i -lt 12 ]; do
    curl -s --max-time 100 "$url/translate" -d "{$one, \"max_tokens\": 12,
        \"num_beams\": $((i % 4 + 1))}" >"many-$i" &
    jobs="$jobs $!"
    i=$((i + 1))
done
for job in $jobs; do
    wait "$job" || fail "a translation among others fails"
done
for i in 0 1 2 3; do
    posts 200 /translate "{$one, \"max_tokens\": 12, \"num_beams\": $((i + 1))}"
    cmp -s stdout "many-$i" || fail "translation $i differs from alone"
    cmp -s stdout "many-$((i + 8))" || fail "translation $i differs from alone"
done
t=/translate
errs 400 $t '{"text": "a"}' "is decoder-only, and this is for encoder-decoder"
errs 400 $t '{"model": "mt"}' "text is missing"
errs 400 $t '{"model": "mt", "text": 5}' '"param":"text"'
errs 400 $t '{"model": "mt", "text": []}' "there are 0 texts"
errs 400 $t '{"model": "mt", "text": ["a", 1]}' "array of strings"
errs 400 $t "{$one, \"num_beams\": 0}" "num_beams is 0"
errs 400 $t "{$one, \"num_beams\": 64}" '"type":"invalid_request_error"'
errs 400 $t "{$one, \"num_beams\": 2, \"num_return_sequences\": 3}" \
    "more than num_beams"
errs 400 $t "{$one, \"max_tokens\": 0}" "max_tokens is 0"
errs 400 $t "{$one, \"length_penalty\": \"x\"}" '"param":"length_penalty"'
errs 400 $t "{$one, \"stream\": 1}" '"param":"stream"'
errs 400 $t "{$one, \"stream\": true, \"num_beams\": 2}" "num_beams 1"
errs 400 $t '{"model": "mt", "text": ["a", "b"], "stream": true}' "one text"
errs 400 $t "{$one, \"top_logprobs\": 2}" "needs stream"
errs 400 $t "{$one, \"top_logprobs\": 21, \"stream\": true}" "top_logprobs is 21"
long=$(yes "the mask" | head -n 400 | tr '\n' ' ')
errs 400 $t "{\"model\": \"mt\", \"text\": \"$long\"}" \
    '"code":"context_length_exceeded"'
errs 404 $t '{"model": "none", "text": "a"}' '"code":"model_not_found"'

# ---- /fill -------------------------------------------------------------------
"$bauta" fill bert "the [MASK] hides the [MASK]" --json --top 3 >filled
posts 200 /fill '{"model": "bert", "text": "the [MASK] hides the <mask>",
    "top_k": 3}'
[ "$(sed 's/.*"gaps":\(.*\]\]\).*/\1/' filled)" = \
    "$(sed 's/.*"gaps":\(.*\]\]\).*/\1/' stdout)" ] ||
    fail "not the words of bauta fill: $(cat filled)"
f=/fill
errs 400 $f '{"text": "[MASK]"}' "this is for encoder-only"
errs 400 $f '{"model": "bert"}' "text must be a string"
errs 400 $f '{"model": "bert", "text": ["[MASK]"]}' '"param":"text"'
errs 400 $f '{"model": "bert", "text": "the mask"}' "has no blank"
errs 400 $f '{"model": "bert", "text": "[MASK]", "top_k": 0}' "top_k is 0"
errs 400 $f '{"model": "bert", "text": "[MASK]", "top_k": 101}' "top_k is 101"
many=$(yes "[MASK]" | head -n 40 | tr '\n' ' ')
errs 400 $f "{\"model\": \"bert\", \"text\": \"$many\", \"top_k\": 60}" \
    "more than 1000"
errs 400 $f "{\"model\": \"bert\", \"text\": \"[MASK] $long\"}" \
    '"code":"context_length_exceeded"'

# ---- /attention --------------------------------------------------------------
a=/attention
posts 200 $a '{"prompt": "the mask"}'
says stdout '"attention":"decoder","layer":1,"heads":[0,1],"first":0'
says stdout '"keys":["t","h","e"," ","m","a","s","k"]'
says stdout '"mask":[[[0,1]],[[0,2]],'
says stdout '"weights":[[[1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],['
says stdout '"available":[{"attention":"decoder","layers":2,"heads":2}]'
# The same rows of text, of tokens, in parts, and of bauta look.
posts 200 $a '{"prompt": "the mask", "layer": 0, "head": 1, "rows": 2}'
says stdout '"heads":[1],"first":6'
cp stdout want
posts 200 $a '{"prompt": [116, 104, 101, 32, 109, 97, 115, 107], "layer": 0,
    "head": 1, "rows": 2}'
cmp -s stdout want || fail "tokens differ from their text"
posts 200 $a '{"prompt": "the", "text": " mask", "layer": 0, "head": 1,
    "rows": 2}'
cmp -s stdout want || fail "a text in two parts differs"
"$bauta" look gpt "the mask" --layer 0 --head 1 --json >looked
if command -v python3 >/dev/null; then
    python3 - want looked <<'PY' || fail "not the weights of bauta look"
import json, sys
have = json.load(open(sys.argv[1]))["weights"][0]
want = json.load(open(sys.argv[2]))["attentions"][0]["weights"]
assert have == want[6:], (have, want)
PY
fi
posts 200 $a '{"messages": [{"role": "user", "content": "hi"}], "text": "ok"}'
says stdout '"<","u","s","e","r",">","h","i","<","a","n","s","w","e","r",">","o","k"]'
posts 200 $a '{"model": "mt", "prompt": "the mask", "text": "the"}'
says stdout '"attention":"cross"'
says stdout '"available":[{"attention":"encoder","layers":1'
posts 200 $a '{"model": "mt", "prompt": "the mask", "attention": "encoder"}'
posts 200 $a '{"model": "mt", "prompt": "the mask", "attention": "decoder"}'
says stdout '"mask":[[[0,1]]]'
posts 200 $a '{"model": "bert", "prompt": "the [MASK]"}'
says stdout '[MASK]'
# Where all rows are too many there are the last ones; asked for, an error.
words=$(yes "mask" | head -n 80 | tr '\n' ' ')
posts 200 $a "{\"model\": \"long\", \"prompt\": \"$words\"}"
says stdout '"heads":[0,1],"first":237' # 131072 / (2 x 400) rows
posts 200 $a "{\"model\": \"long\", \"prompt\": \"$words\", \"head\": 0,
    \"rows\": 327}"
errs 400 $a "{\"model\": \"long\", \"prompt\": \"$words\", \"head\": 0,
    \"rows\": 328}" '"code":"too_many_weights"'
says stdout "328 rows and 400 keys of 1 heads are more than 131072 weights"
errs 400 $a '{}' '"param":"prompt"'
errs 400 $a '{"prompt": 5}' "prompt must be"
errs 400 $a '{"prompt": []}' "no tokens"
errs 400 $a '{"prompt": [5000]}' "not a token id"
errs 400 $a '{"prompt": [1], "text": "a"}' '"param":"text"'
errs 400 $a '{"prompt": "a", "text": 5}' '"param":"text"'
errs 400 $a '{"prompt": "a", "attention": "self"}' "encoder, decoder or cross"
errs 400 $a '{"prompt": "a", "attention": "cross"}' "has no cross attention"
errs 400 $a '{"prompt": "a", "layer": 2}' "layer is 2, not from 0 to 1"
errs 400 $a '{"prompt": "a", "head": -1}' '"param":"head"'
errs 400 $a '{"prompt": "a", "rows": 0}' "rows is 0"
errs 400 $a '{"model": "bert", "prompt": "a", "text": "b"}' "models that write"
errs 400 $a '{"model": "bert", "prompt": ["a"]}' "not a token id"
errs 400 $a '{"model": "mt", "messages": [{"role": "user"}]}' '"param":"prompt"'
errs 400 $a '{"messages": []}' "not empty"
errs 400 $a "{\"prompt\": \"$long\"}" '"code":"context_length_exceeded"'
asks 405 $a
errs 400 $a '{' "not JSON"

# ---- the examples of docs/server.md --------------------------------------------
# Their models have other names.
awk '/^    \$ curl .*\/(translate|fill|attention)/ {
    on = 1
    sub(/\$ curl/, "curl -sS --fail --max-time 60")
}
on { print }
!/\\$/ { on = 0 }' "$docs" |
    sed "s|http://127.0.0.1:8080|$url|; s|\"en-de\"|\"mt\"|" >commands
[ "$(grep -c 'curl' commands)" -ge 4 ] || fail "$docs has no examples"
sed -i 's|"gpt2"|"talks"|' commands
sh -eu commands >stdout 2>stderr || fail "an example of $docs"

# ---- the end -------------------------------------------------------------------
stop
echo "$cases cases"
