#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# page.sh - the page of bauta serve in headless Chromium: every function, at
# desktop and phone width, in light and dark colours, by mouse and by keyboard.
# The browser must log no error. On small models that are trained here; see
# page.py.
#
#   page.sh BAUTA
for tool in python3 chromedriver chromium; do
    command -v "$tool" >/dev/null || {
        echo "there is no $tool to open the page in"
        exit 77
    }
done
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/common.sh
. "$here/common.sh"
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
    --tokenizer bytes --context 128 --batch-size 4 --steps 60 \
    --learning-rate 0.01 text
# Large enough that a browser on a busy machine reads what it writes.
train llama --preset llama-tiny --set num_hidden_layers=6 \
    --set hidden_size=384 --set intermediate_size=1536 \
    --set num_attention_heads=6 --set num_key_value_heads=6 \
    --tokenizer bytes --context 32 --batch-size 2 --steps 2 text
train mt --preset transformer-tiny --set encoder_layers=1 \
    --set decoder_layers=1 --set d_model=32 --set encoder_attention_heads=2 \
    --set decoder_attention_heads=2 --source text --target text \
    --tokenizer unigram:40 --steps 30 --learning-rate 0.01 --batch-size 4
train bert --preset bert-tiny --set hidden_size=32 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 30 --lines \
    --batch-size 4 text
cp -rL gpt/last writer
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}' \
    '{% if add_generation_prompt %}<answer>{% endif %}' \
    >writer/chat_template.jinja
cp -rL llama/last endless
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 1000000/' \
    endless/config.json
rm endless/trainer.json # it has a digest of the other config.json
cp -rL mt/last translator
cp -rL bert/last filler
python3 "$here/page.py" "$bauta" || fail "the page"
