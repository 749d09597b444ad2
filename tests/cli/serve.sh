#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve.sh - bauta serve: every endpoint, malformed requests, slow and vanished
# clients, limits, keys and origins; answers that do not depend on other
# requests; the end. On small models that are trained here. A sanitizer reports
# leaks at the end of each server.
#
#   serve.sh BAUTA
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

yes "the mask hides the face, and the face is behind the mask" |
    head -n 60 >text
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=32 --set n_head=2 \
    --tokenizer bytes --context 128 --batch-size 4 --steps 60 \
    --learning-rate 0.01 text
train llama --preset llama-tiny --set num_hidden_layers=1 \
    --set hidden_size=32 --set intermediate_size=32 \
    --set num_attention_heads=2 --set num_key_value_heads=1 \
    --tokenizer bytes --context 32 --batch-size 2 --steps 2 text
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 2 --lines \
    --batch-size 4 text

# ---- the command line ------------------------------------------------------
runs 0 --help
says stdout "examples"
refused "the model's folder is missing"
refused "--tokenizer is for one model" gpt bert --tokenizer gpt
refused "more names (--alias) than models" gpt --alias a --alias b
refused "--port is '65536', not a whole number from 0 to 65535" gpt --port 65536
refused "--parallel is '0', not" gpt --parallel 0
refused "need each other" gpt --ssl-cert-file x
refused "need each other" gpt --ssl-key-file x
refused "--api-key is empty" gpt --api-key ""
refused "did you mean '--host'?" gpt --hots x
refused "--device is 'tpu', not" gpt --device tpu
fails "nowhere" nowhere
fails "nowhere" gpt nowhere
fails "none: cannot open it" gpt --api-key-file none
: >empty
fails "empty: there is no key in it" gpt --api-key-file empty
! "$bauta" serve gpt --port 0 --host 256.0.0.0 >stdout 2>stderr ||
    fail "a host that does not exist"
if grep -q "this build has no server" stderr; then
    echo "this build has no server"
    exit 77
fi
says stderr "--host 256.0.0.0"

# ---- helpers ---------------------------------------------------------------
plain() { # the body without what is new in every answer
    sed -E 's/"id":"[^"]*",//; s/"created":[0-9]+,//'
}
metric() { # NAME
    curl -s "$url/metrics" | sed -n "s/^bauta:$1{.*} //p"
}
until_metric() { # NAME VALUE
    tries=0
    while [ "$(metric "$1")" != "$2" ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "$1 is $(metric "$1"), not $2"
    done
}

# ---- endpoints -------------------------------------------------------------
start gpt --threads 1 --alias tiny
asks 200 /health
says stdout '{"status":"ok"}'
asks 200 /v1/models
says stdout '"id":"tiny","object":"model"'
asks 200 /v1/models/tiny
says stdout '"owned_by":"bauta"'
asks 404 /v1/models/other
asks 200 /props
says stdout '"kind":"decoder-only"'
asks 200 / -D headers
says stdout "<title>bauta</title>"
says headers "Content-Security-Policy: default-src 'none'"
! grep -qE '(src|href)="?(http|//)' stdout || fail "the page loads something"
asks 200 /metrics
for name in num_requests_running num_requests_waiting kv_cache_usage_perc \
    prompt_tokens_total generation_tokens_total prefix_cache_queries \
    prefix_cache_hits time_to_first_token_seconds_count \
    inter_token_latency_seconds_sum e2e_request_latency_seconds_bucket; do
    says stdout "bauta:$name{"
done
# The dashboard shows nothing else.
grep -o 'bauta:[a-z0-9_]*' "${docs%/docs/*}/server/grafana.json" >shown
while read -r name; do
    says stdout "$name{"
done <shown
posts 200 /tokenize '{"content": "the mask"}'
says stdout '"tokens":[116,104,101,32,109,97,115,107],"count":8'
posts 200 /tokenize '{"prompt": "th", "with_pieces": true}'
says stdout '{"id":116,"piece":"t"}'
posts 200 /detokenize '{"tokens": [116, 104, 101]}'
says stdout '"content":"the"'
posts 200 /v1/embeddings '{"input": ["the mask", "the face"]}'
says stdout '"index":1,"embedding":['
says stdout '"usage":{"prompt_tokens":16,"total_tokens":16}'
[ "$(sed 's/.*"index":0,"embedding":\(\[[^]]*\]\).*/\1/' stdout)" = \
    "$("$bauta" embed gpt "the mask" |
        sed 's/.*"embedding":\(\[[^]]*\]\).*/\1/')" ] ||
    fail "an embedding is not that of bauta embed"
posts 200 /v1/embeddings '{"input": [116, 104], "encoding_format": "base64"}'
grep -qE '"embedding":"[A-Za-z0-9+/]{171}="' stdout || fail "base64" # 128 bytes
posts 200 /v1/embeddings '{"input": [[116], [104]], "pooling": "last"}'

# Text, logprobs and usage of a completion, all ways to ask.
posts 200 /v1/completions \
    '{"model": "tiny", "prompt": "the mask", "max_tokens": 5, "user": "x"}'
says stdout '"object":"text_completion"'
says stdout '"finish_reason":"length"'
says stdout '"usage":{"prompt_tokens":8,"completion_tokens":5,"total_tokens":13}'
posts 200 /v1/completions '{"prompt": [116, 104, 101], "max_tokens": 1}'
says stdout '"prompt_tokens":3'
posts 200 /v1/completions '{"prompt": [[116], [104, 101]], "max_tokens": 1}'
says stdout '"index":1'
posts 200 /v1/completions '{"prompt": ["a", "b"], "n": 2, "max_tokens": 2}'
says stdout '"index":3'
posts 200 /v1/completions '{"prompt": "", "max_tokens": 1}'
posts 200 /v1/completions \
    '{"prompt": "the", "max_tokens": 0, "echo": true, "logprobs": 1}'
says stdout '"text":"the"'
says stdout '"token_logprobs":[null,-'
posts 200 /v1/completions \
    '{"prompt": "the", "max_tokens": 2, "echo": true, "logprobs": 2,
      "unknown": {"field": 1}, "logit_bias": {}, "presence_penalty": 0}'
says stdout '"text_offset":[0,1,2,3,4]'
posts 200 /v1/completions '{"prompt": "the", "max_tokens": 1000000}'
says stdout '"finish_reason":"length"'
# A stop string ends the text before it.
posts 200 /v1/completions \
    '{"prompt": "the", "max_tokens": 50, "temperature": 0}'
word=$(sed 's/.*"text":"\([^"\\]*\).*/\1/' stdout | cut -c 4-5)
posts 200 /v1/completions '{"prompt": "the", "max_tokens": 50,
    "temperature": 0, "stop": ["'"$word"'"]}'
says stdout '"finish_reason":"stop"'
! sed 's/.*"text":"\([^"]*\)".*/\1/' stdout | grep -qF -- "$word" ||
    fail "the stop string is in the text"

# ---- as bauta generate, and streamed ---------------------------------------
"$bauta" generate gpt "the mask" --quiet --json --seed 7 --temp 0.8 \
    --top-p 0.9 --min-p 0.01 -n 24 --threads 2 >generated
posts 200 /v1/completions '{"prompt": "the mask", "seed": 7,
    "temperature": 0.8, "top_p": 0.9, "min_p": 0.01, "max_tokens": 24,
    "logprobs": 0}'
[ "$(sed 's/.*"text":"\(.*\)","tokens".*/\1/' generated)" = \
    "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' stdout)" ] ||
    fail "not the text of bauta generate: $(cat generated)"
[ "$(sed 's/.*"logprobs":\(\[[^]]*\]\).*/\1/' generated)" = \
    "$(sed 's/.*"token_logprobs":\(\[[^]]*\]\).*/\1/' stdout)" ] ||
    fail "not the logprobs of bauta generate: $(cat generated)"
whole=$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' stdout)
# Biases and penalties, as bauta generate has them.
"$bauta" generate gpt "the mask" --quiet --json --greedy -n 20 \
    --presence-penalty 1.5 --frequency-penalty 0.75 --logit-bias 97+3 \
    --logit-bias 101-100 >generated
posts 200 /v1/completions '{"prompt": "the mask", "temperature": 0,
    "max_tokens": 20, "logprobs": 0, "presence_penalty": 1.5,
    "frequency_penalty": 0.75, "logit_bias": {"101": -100, "97": 3}}'
text=$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' stdout)
[ "$(sed 's/.*"text":"\(.*\)","tokens".*/\1/' generated)" = "$text" ] ||
    fail "not the text of bauta generate: $(cat generated)"
case $text in
*e*) fail "token 101 was forbidden: $text" ;;
esac
posts 200 /v1/completions '{"prompt": "the mask", "temperature": 0,
    "max_tokens": 5, "logit_bias": {"97": 100}}'
says stdout '"text":"aaaaa"'
asks 200 /v1/completions -N -D headers -d '{"prompt": "the mask", "seed": 7,
    "temperature": 0.8, "top_p": 0.9, "min_p": 0.01, "max_tokens": 24,
    "stream": true, "stream_options": {"include_usage": true}}'
says headers "Content-Type: text/event-stream"
parts=$(sed -n 's/^data: .*"text":"\(.*\)","logprobs".*/\1/p' stdout |
    tr -d '\n')
[ "$whole" = "$parts" ] || fail "the stream is another text than $whole"
[ "$(grep -c '^data: {' stdout)" -gt 5 ] || fail "not a stream"
[ "$(tail -n 2 stdout | head -n 1)" = "data: [DONE]" ] || fail "no [DONE]"
says stdout '"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":24'
posts 200 /v1/completions '{"prompt": "the", "max_tokens": 3, "stream": true,
    "echo": true, "logprobs": 1, "n": 2, "seed": 3}'
says stdout '"index":1'

# ---- the examples of docs/server.md ----------------------------------------
# A command and the lines that it continues on. Without a chat template, chat is
# an error.
awk '/^    \$ curl/ {
    on = 1
    sub(/\$ curl/, "curl -sS --fail --max-time 60")
    other = /chat|translate|fill|attention/ # see serve_models.sh
}
on && !other { print }
!/\\$/ { on = 0 }' "$docs" | sed "s|http://127.0.0.1:8080|$url|" >commands
[ "$(grep -c 'curl' commands)" -ge 6 ] || fail "$docs has no examples"
sh -eu commands >stdout 2>stderr || fail "an example of $docs"
[ "$(grep -o '"object":"text_completion"' stdout | wc -l)" -gt 3 ] ||
    fail "the examples of $docs have no answers"

# ---- errors ----------------------------------------------------------------
c=/v1/completions
errs 404 /nothing '{}' "there is no /nothing"
asks 405 $c -D headers
says headers "Allow: POST"
asks 405 /health -X POST
asks 405 $c -X DELETE
errs 400 $c '' "not JSON"
errs 400 $c '{' "not JSON"
errs 400 $c '[]' "not a JSON object"
errs 400 $c '"x"' "not JSON"
errs 400 $c '{"prompt": "\ud800"}' "not JSON"
errs 400 $c "{\"prompt\": \"$(printf '\377')\"}" "not JSON"
errs 400 $c '{"prompt": "a"} x' "not JSON"
errs 400 $c '{}' "prompt is missing"
errs 400 $c '{"prompt": null}' "prompt is missing"
errs 400 $c '{"prompt": 5}' '"param":"prompt"'
errs 400 $c '{"prompt": {}}' "prompt must be"
errs 400 $c '{"prompt": []}' "no tokens"
errs 400 $c '{"prompt": [[]]}' "no tokens"
errs 400 $c '{"prompt": [1, "a"]}' "element 1 is not a token id"
errs 400 $c '{"prompt": ["a", 1]}' "prompt must be"
errs 400 $c '{"prompt": [257]}' "not a token id from 0 to 256"
errs 400 $c '{"prompt": [-1]}' "not a token id"
errs 400 $c '{"prompt": [1.5]}' "not a token id"
errs 404 $c '{"prompt": "a", "model": "other"}' '"code":"model_not_found"'
errs 400 $c '{"prompt": "a", "model": 1}' '"param":"model"'
errs 400 $c '{"prompt": "a", "max_tokens": "5"}' '"param":"max_tokens"'
errs 400 $c '{"prompt": "a", "max_tokens": -1}' "max_tokens is -1"
errs 400 $c '{"prompt": "a", "max_tokens": 0}' "needs echo"
errs 400 $c '{"prompt": "a", "max_tokens": 1e99}' "whole number"
errs 400 $c '{"prompt": "a", "max_tokens": 99999999999999999999}' "not JSON"
errs 400 $c '{"prompt": "a", "temperature": "hot"}' '"param":"temperature"'
errs 400 $c '{"prompt": "a", "temperature": -1}' "temperature is -1"
errs 400 $c '{"prompt": "a", "top_p": 2}' "top_p is 2"
errs 400 $c '{"prompt": "a", "top_k": 1.5}' "top_k must be"
errs 400 $c '{"prompt": "a", "min_p": []}' "min_p must be"
errs 400 $c '{"prompt": "a", "seed": "x"}' '"param":"seed"'
errs 400 $c '{"prompt": "a", "n": 0}' "n is 0"
errs 400 $c '{"prompt": "a", "n": 1000}' "n is 1000"
errs 400 $c '{"prompt": ["a", "b"], "n": 100}' "more than 128 choices"
errs 400 $c '{"prompt": "a", "best_of": 5}' "best_of is not supported"
errs 400 $c '{"prompt": "a", "logprobs": 21}' "logprobs is 21"
errs 400 $c '{"prompt": "a", "logprobs": true}' '"param":"logprobs"'
errs 400 $c '{"prompt": "a", "stream": 1}' "stream must be true or false"
errs 400 $c '{"prompt": "a", "stream_options": 1}' '"param":"stream_options"'
errs 400 $c '{"prompt": "a", "echo": "yes"}' '"param":"echo"'
errs 400 $c '{"prompt": "a", "stop": 5}' '"param":"stop"'
errs 400 $c '{"prompt": "a", "stop": ["a", 5]}' '"param":"stop"'
errs 400 $c '{"prompt": "a", "stop": ""}' '"param":"stop"'
errs 400 $c '{"prompt": "a", "stop": "\u0000"}' "without NUL"
errs 400 $c '{"prompt": "a", "logit_bias": []}' '"param":"logit_bias"'
errs 400 $c '{"prompt": "a", "logit_bias": {"a": 1}}' "'a' is not a token id"
errs 400 $c '{"prompt": "a", "logit_bias": {"05": 1}}' "'05' is not a token id"
errs 400 $c '{"prompt": "a", "logit_bias": {"-5": 1}}' "is not a token id"
errs 400 $c '{"prompt": "a", "logit_bias": {"257": 1}}' "from 0 to 256"
errs 400 $c '{"prompt": "a", "logit_bias": {"5": "x"}}' "bias of token 5"
errs 400 $c '{"prompt": "a", "logit_bias": {"5": 101}}' "from -100 to 100"
errs 400 $c '{"prompt": "a", "presence_penalty": 3}' "presence_penalty is 3"
errs 400 $c '{"prompt": "a", "frequency_penalty": -2.5}' "is -2.5"
errs 400 $c '{"prompt": "a", "frequency_penalty": "x"}' "must be a number"
errs 400 $c '{"prompt": "a", "suffix": "b"}' "suffix is not supported"
long=$(yes "the mask" | head -n 40 | tr '\n' ' ')
errs 400 $c '{"prompt": "'"$long"'"}' '"code":"context_length_exceeded"'
errs 400 $c '{"prompt": "'"$long"'", "stream": true}' "the limit is 128"
h=/v1/chat/completions
errs 400 $h '{}' '"param":"messages"'
errs 400 $h '{"messages": "hi"}' '"param":"messages"'
errs 400 $h '{"messages": []}' "not empty"
errs 400 $h '{"messages": [1]}' "messages[0]"
errs 400 $h '{"messages": [{"content": "hi"}]}' "with a role"
errs 400 $h '{"messages": [{"role": "user", "content": 5}]}' "content must be"
errs 400 $h '{"messages": [{"role": "user"}], "tools": 5}' '"param":"tools"'
errs 400 $h '{"messages": [{"role": "user"}], "top_logprobs": 2}' "needs logprobs"
# The model has no chat template, or the library has none.
hi='{"messages": [{"role": "user", "content": "hi"}]}'
case $(curl -s -o stdout -w '%{http_code}' "$url$h" -d "$hi") in
400 | 501) says stdout "chat template" ;;
*) fail "chat without a template" ;;
esac
e=/v1/embeddings
errs 400 $e '{}' "input is missing"
errs 400 $e '{"input": 5}' '"param":"input"'
errs 400 $e '{"input": [5000]}' "not a token id"
errs 400 $e '{"input": []}' "no tokens"
errs 400 $e '{"input": "a", "encoding_format": "hex"}' "float or base64"
errs 400 $e '{"input": "a", "dimensions": 3}' "32 dimensions"
errs 400 $e '{"input": "a", "pooling": "max"}' "mean, cls or last"
errs 400 $e '{"input": "'"$long"'"}' '"code":"context_length_exceeded"'
errs 400 /tokenize '{"content": 5}' "must be a string"
errs 400 /tokenize '{}' "must be a string"
errs 400 /detokenize '{"tokens": "x"}' "must be an array"
errs 400 /detokenize '{"tokens": [99999]}' "not a token id"
# Bodies that are large, deep or wide.
head -c 5000000 /dev/zero | tr '\0' ' ' >large
asks 413 $c --data-binary @large
says stdout '"code":"body_too_large"'
asks 413 $c --data-binary @large -H 'Transfer-Encoding: chunked'
head -c 100000 /dev/zero | tr '\0' '[' >deep
asks 400 $c --data-binary @deep
says stdout "nested more than"
(printf '{"prompt": ['
    yes '{},' | head -n 300000
    printf '{}]}') >wide
asks 400 $c --data-binary @wide
says stdout "more than 262144 values"
asks 200 /health # it is still there

# Broken HTTP, and clients that send slowly or close their side.
if command -v python3 >/dev/null; then
    cat >raw.py <<'PY'
import socket, sys, time
port = int(sys.argv[1])
def talk(data, half=False, wait=10):
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(wait)
    for part in data if isinstance(data, list) else [data]:
        try:
            s.sendall(part)
        except OSError:
            break
        time.sleep(0.02)
    got = b""
    try:
        if half:
            s.shutdown(socket.SHUT_WR)
        while True:
            more = s.recv(65536)
            if not more:
                break
            got += more
            if b"\r\n\r\n" in got and not half:
                break
    except OSError:
        pass
    s.close()
    return got
body = b'{"prompt": "the", "max_tokens": 2}'
head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
for bad in [b"\r\n\r\n", b"GET\r\n\r\n", b"nonsense\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"a" * 100000,
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n{}",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
            b"\x16\x03\x01\x02\x00" * 50, b"\0" * 1000]:
    got = talk(bad, half=True)
    assert b" 200 " not in got[:20], (bad[:60], got[:200])
# Byte by byte is as good as at once.
whole = head % len(body) + body
got = talk([whole[i:i + 1] for i in range(len(whole))])
assert got.startswith(b"HTTP/1.1 200 "), got
# A client that closes its side after the request gets what needs no model.
got = talk(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", half=True)
assert got.startswith(b"HTTP/1.1 200 "), got
# Two requests on one connection.
got = talk(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2, half=True)
assert got.count(b"HTTP/1.1 403 ") == 2, got
# Half a body, and the end.
talk(head % 100 + body, half=True)
PY
    python3 raw.py "${url##*:}" || fail "raw connections"
fi
asks 200 /health
stop

# ---- independent of other requests ------------------------------------------
request() { # NUMBER
    case $(($1 % 4)) in
    0) echo '{"prompt": "the mask hides", "seed": '"$1"', "max_tokens": 40,
        "temperature": 0.9, "logprobs": 3, "presence_penalty": 0.5,
        "frequency_penalty": 0.3, "logit_bias": {"101": 1.5}}' ;;
    1) echo '{"prompt": "face '"$1"'", "max_tokens": 30, "logprobs": 1,
        "echo": true}' ;;
    2) echo '{"prompt": ["and", "the mask hides"], "n": 2, "seed": '"$1"',
        "top_p": 0.8, "max_tokens": 20, "logprobs": 0}' ;;
    3) echo '{"prompt": "the mask hides the face", "seed": '"$1"',
        "min_p": 0.05, "max_tokens": 25, "logprobs": 2, "stream": true}' ;;
    esac
}
ask_all() { # NAME [&]: the 32 requests, one after another or at once
    i=0
    jobs=
    while [ $i -lt 32 ]; do
        if [ "${2:-}" = "&" ]; then
            curl -s --max-time 100 "$url/v1/completions" -d "$(request $i)" \
                >"$1-$i" &
            jobs="$jobs $!"
        else
            curl -s --max-time 100 "$url/v1/completions" -d "$(request $i)" \
                >"$1-$i"
        fi
        i=$((i + 1))
    done
    for job in $jobs; do
        wait "$job" || fail "a request among others fails"
    done
}
same_all() { # NAME
    i=0
    while [ $i -lt 32 ]; do
        plain <"alone-$i" >want
        plain <"$1-$i" >have
        grep -q '"finish_reason"' have || fail "$1-$i: $(cat "$1-$i")"
        cmp -s want have || fail "request $i of $1 differs from alone:
$(diff want have)"
        cases=$((cases + 1))
        i=$((i + 1))
    done
}
start gpt --threads 1
ask_all alone
ask_all among "&"
same_all among
stop
start gpt --threads 2 --parallel 5
ask_all few "&"
same_all few
stop

# ---- another kind of model, keys and origins ---------------------------------
printf 'first\n\nsecond\n' >keys
start bert --threads 1 --api-key third --api-key-file keys
asks 200 /health
asks 200 /
for key in "" "Bearer" "Bearer " "Bearer firs" "Bearer firstx" "Basic first" \
    "first" "Bearer second " "Bearer third2"; do
    asks 401 /v1/models -D headers -H "Authorization: $key"
    says stdout '"code":"invalid_api_key"'
    says headers "WWW-Authenticate: Bearer"
done
for key in first second third; do
    asks 200 /v1/models -H "Authorization: Bearer $key"
done
key="Authorization: Bearer second"
asks 200 /v1/embeddings -H "$key" -d '{"input": "the mask"}'
says stdout '"embedding":['
asks 400 /v1/completions -H "$key" -d '{"prompt": "the mask"}'
says stdout "is encoder-only"
asks 403 /v1/models -H "$key" -H "Origin: http://example.com"
! curl -si -H "$key" "$url/v1/models" | grep -qi access-control ||
    fail "CORS was not asked for"
stop
start bert --threads 1 --cors-origin https://example.com
asks 200 /v1/models -D headers -H "Origin: https://example.com"
says headers "Access-Control-Allow-Origin: https://example.com"
asks 204 /v1/models -X OPTIONS -D headers -H "Origin: https://example.com"
says headers "Access-Control-Allow-Headers: Authorization, Content-Type"
asks 403 /v1/models -H "Origin: https://example.org"
asks 200 /v1/models -H "Origin: $url"
asks 403 /v1/models -H "Host: rebound.example.com"
asks 200 /v1/models -H "Host: localhost:80"
stop

# ---- several models ----------------------------------------------------------
# Each one answers as if it were alone, at the same time as the others.
fails "gpt and ./gpt are both called 'gpt'; see --alias" gpt ./gpt --port 0
start gpt bert llama --threads 1 --alias write --alias embed
asks 200 /v1/models
says stdout '"id":"write","object":"model"'
says stdout '"id":"embed","object":"model"'
says stdout '"id":"llama","object":"model"'
asks 200 /v1/models/embed
says stdout '"kind":"encoder-only"'
asks 200 "/props?model=llama"
says stdout '"model":"llama","kind":"decoder-only"'
asks 200 /props
says stdout '"model":"write"'
asks 404 "/props?model=none"
errs 404 $c '{"prompt": "a", "model": "gpt2"}' '"code":"model_not_found"'
errs 400 $c '{"prompt": "a", "model": "embed"}' "'embed' is encoder-only"
posts 200 /v1/embeddings '{"input": "the mask", "model": "embed"}'
says stdout '"model":"embed"'
cp stdout embedded
posts 200 /tokenize '{"content": "the mask", "model": "embed"}'
! grep -q '"tokens":\[116' stdout || fail "the tokenizer of another model"
i=0
jobs=
while [ $i -lt 8 ]; do
    for name in write llama; do
        curl -s --max-time 100 "$url$c" -d '{"model": "'$name'", "logprobs": 2,
            "prompt": "the mask hides", "seed": '$i', "max_tokens": 15}' \
            >"$name-$i" &
        jobs="$jobs $!"
    done
    i=$((i + 1))
done
for job in $jobs; do
    wait "$job" || fail "a request for one of several models fails"
done
asks 200 /metrics
for name in write embed llama; do
    says stdout "bauta:num_requests_running{model_name=\"$name\"} "
done
[ "$(grep -c '^# TYPE bauta:num_requests_running gauge' stdout)" = 1 ] ||
    fail "a metric has one type"
stop
for name in write llama bert; do
    folder=$name
    [ $name != write ] || folder=gpt
    start $folder --threads 1 --alias $name
    i=0
    while [ $i -lt 8 ] && [ $name != bert ]; do
        posts 200 $c '{"logprobs": 2, "prompt": "the mask hides",
            "seed": '$i', "max_tokens": 15}'
        [ "$(plain <stdout)" = "$(plain <"$name-$i")" ] ||
            fail "$name beside other models differs: $(cat "$name-$i")"
        i=$((i + 1))
    done
    if [ $name = bert ]; then
        posts 200 /v1/embeddings '{"input": "the mask"}'
        [ "$(sed 's/"model":"bert"/"model":"embed"/' stdout)" = \
            "$(cat embedded)" ] || fail "an embedding beside other models"
    fi
    stop
done

# ---- TLS -----------------------------------------------------------------------
fails "none: No such file" gpt --port 0 --ssl-key-file none --ssl-cert-file none
fails "certificate is not valid" gpt --port 0 --ssl-key-file keys \
    --ssl-cert-file keys
if command -v openssl >/dev/null && openssl req -x509 -newkey rsa:2048 \
    -nodes -keyout tls.key -out tls.crt -days 2 -subj /CN=localhost \
    -addext "subjectAltName=IP:127.0.0.1" >stdout 2>stderr; then
    start gpt --threads 1 --ssl-key-file tls.key --ssl-cert-file tls.crt
    case $url in
    https://*) ;;
    *) fail "not https: $url" ;;
    esac
    asks 200 /health --cacert tls.crt
    asks 200 $c --cacert tls.crt -d '{"prompt": "the", "max_tokens": 20,
        "stream": true}'
    says stdout "data: [DONE]"
    asks 000 /health # the certificate is not known
    stop
else
    echo "there is no openssl, so TLS was not tried"
fi

# ---- limits, disconnects ------------------------------------------------------
endless='{"prompt": "the", "max_tokens": 10000000, "temperature": 0}'
start llama --threads 1 --parallel 1 --queue 1 --max-body 2000
asks 413 $c --data-binary @large
# A client that leaves cancels its request, whether it runs or waits.
curl -s "$url$c" -d "$endless" >/dev/null &
first=$!
until_metric num_requests_running 1
curl -s "$url$c" -d "$endless" >/dev/null &
second=$!
until_metric num_requests_waiting 1
asks 429 $c -D headers -d "$endless"
says headers "Retry-After: "
says stdout '"code":"queue_full"'
kill "$second"
until_metric num_requests_waiting 0
until_metric request_cancelled_total 1
kill "$first"
until_metric request_cancelled_total 2
until_metric num_requests_running 0
curl -s -N "$url$c" -d '{"prompt": "the",
    "max_tokens": 10000000, "stream": true}' >streamed &
first=$!
until grep -qF 'data: {"id"' streamed; do
    sleep 0.05
done
kill "$first"
until_metric request_cancelled_total 3
stop
# Time runs out for a request, and for one that does not arrive.
start llama --threads 1 --timeout 4
asks 504 $c -d "$endless"
says stdout '"code":"timeout"'
if command -v python3 >/dev/null; then
    python3 - "${url##*:}" <<'PY' || fail "slow clients"
import socket, sys, time
def slow(begin, drip):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.sendall(begin)
    begun = time.time()
    s.settimeout(0.2)
    while time.time() - begun < 30:
        try:
            s.sendall(drip)
            if not s.recv(1000):
                return
        except socket.timeout:
            continue
        except OSError:
            return
    raise SystemExit("a slow client is still there")
slow(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"x")
slow(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
     b"Content-Length: 1000\r\n\r\n", b" ")
PY
fi
stop

# ---- fairness ----------------------------------------------------------------
# A client with many requests does not delay one with a single request.
start llama --threads 1 --parallel 1 --api-key many --api-key one
: >order
curl_as() { # KEY
    curl -s "$url$c" -H "Authorization: Bearer $1" -d '{"prompt": "the",
        "max_tokens": 3000, "temperature": 0}' >/dev/null
    echo "$1" >>order
}
metric() {
    curl -s -H "Authorization: Bearer one" "$url/metrics" |
        sed -n "s/^bauta:$1{.*} //p"
}
jobs=
for i in 1 2 3 4 5 6 7 8; do
    curl_as many &
    jobs="$jobs $!"
done
until_metric num_requests_running 1
until [ "$(metric num_requests_waiting)" -ge 4 ] || [ "$(wc -l <order)" -ge 3 ]; do
    sleep 0.02
done
curl_as one &
jobs="$jobs $!"
for job in $jobs; do
    wait "$job"
done
[ "$(wc -l <order)" -eq 9 ] || fail "not all were answered"
[ "$(grep -n one order | cut -d : -f 1)" -le 6 ] ||
    fail "one client had to wait for another: $(cat order)"
stop
metric() {
    curl -s "$url/metrics" | sed -n "s/^bauta:$1{.*} //p"
}

# ---- the end -----------------------------------------------------------------
start llama --threads 1
asks 200 /health
curl -s -N "$url$c" -d '{"prompt": "the", "max_tokens": 30000, "stream": true,
    "temperature": 0, "stop": []}' >streamed &
stream=$!
curl -s "$url$c" -d '{"prompt": "the", "max_tokens": 30000, "temperature": 0}' \
    >answered &
answer=$!
until_metric num_requests_running 2
kill "$child"
sleep 0.1
got=$(curl -s -o stdout -w '%{http_code}' "$url$c" -d "$endless") || :
case $got in
503) says stdout '"code":"shutting_down"' ;;
000) echo "the server ended too soon for a 503" ;;
*) fail "a draining server answers with status $got" ;;
esac
got=0
wait "$child" || got=$?
child=
[ "$got" = 0 ] || fail "a drained server ends with status $got"
wait "$stream" || fail "the stream was cut"
wait "$answer" || fail "the answer was cut"
[ "$(tail -n 2 streamed | head -n 1)" = "data: [DONE]" ] ||
    fail "the stream was not finished"
says answered '"finish_reason":'

# ---- chat ------------------------------------------------------------------
# The template turns messages into a prompt; the answer is its completion.
cp -r gpt/step-00000060 talks
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}' \
    '{% if add_generation_prompt %}<answer>{% endif %}' >talks/chat_template.jinja
start talks
posts 200 $c '{"prompt": "<user>the mask<answer>", "max_tokens": 9}'
text=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' stdout)
talk='"messages": [{"role": "user", "content": "the mask"}], "max_tokens": 9'
posts 200 $h "{$talk}"
says stdout '"object":"chat.completion"'
says stdout '"role":"assistant"'
says stdout "\"content\":\"$text\""
says stdout '"completion_tokens":9'
posts 200 $h "{$talk, \"stream\": true}"
says stdout '"object":"chat.completion.chunk"'
says stdout "data: [DONE]"
stop

echo "$cases cases"
