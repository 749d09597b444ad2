#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve_clients.sh - bauta serve with clients in Python: malformed requests,
# recorded requests alone and under load, and the official openai client.
#
#   serve_clients.sh BAUTA [whole]
#
# "whole" asks 200 recorded requests under 256 streams, else fewer. The openai
# client is used where $BAUTA_PYTHON, by default python3, has it.
here=$(cd "$(dirname "$0")" && pwd)
python=${BAUTA_PYTHON:-python3}
command -v "$python" >/dev/null || {
    echo "there is no $python"
    exit 77
}
# shellcheck source=tests/cli/common.sh
. "$here/common.sh"
: >stdout
: >stderr
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY # the server is on this machine
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
yes "the mask hides the face, and the face is behind the mask" |
    head -n 60 >text
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=32 --set n_head=2 \
    --tokenizer bytes --context 128 --batch-size 4 --steps 30 \
    --learning-rate 0.01 text
cp -RL gpt/last talks
printf '%s' '{{ tools | tojson if tools }}{% for m in messages %}' \
    '<{{ m.role }}>{{ m.content }}{% endfor %}<answer>' \
    >talks/chat_template.jinja
! "$bauta" serve talks --host 256.0.0.0 >stdout 2>stderr || fail "a bad host"
if grep -q "this build has no server" stderr; then
    echo "this build has no server"
    exit 77
fi
"$python" "$here/serve_malformed.py" "$bauta" talks 1000
if [ "${2:-}" = whole ]; then
    "$python" "$here/serve_invariance.py" "$bauta" talks
else
    "$python" "$here/serve_invariance.py" "$bauta" talks 24 24
fi
if "$python" -c 'import openai' 2>/dev/null; then
    "$python" "$here/serve_openai.py" "$bauta" talks
else
    echo "$python has no openai client, so that was skipped"
fi
