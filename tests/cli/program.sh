#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# program.sh - the program bauta: help, results on stdout, errors on stderr,
# exit statuses.
#
#   program.sh BAUTA FOLDERS
#
# FOLDERS holds the models of tests/cli/write_models.c.
set -eu
bauta=$1
folders=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$1"
    echo "stdout:"
    cat "$work/out"
    echo "stderr:"
    cat "$work/err"
    exit 1
}
# runs STATUS ARGUMENT...: the program exits with STATUS and writes to exactly
# one of the two streams.
runs() {
    want=$1
    shift
    got=0
    "$bauta" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
    if [ "$want" = 0 ]; then
        speaks=out silent=err
    else
        speaks=err silent=out
    fi
    [ -s "$work/$speaks" ] || fail "bauta $*: nothing on std$speaks"
    [ ! -s "$work/$silent" ] || fail "bauta $*: something on std$silent"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$work/$1" || fail "'$2' is not on $1"
}

runs 0 --help
says out "usage: bauta VERB"
says out "inspect"
runs 0 --version
says out "bauta "
runs 2
says err "a verb is missing"
runs 2 inspct
says err "did you mean 'inspect'?"
runs 2 xyzzyx
says err "there is no verb 'xyzzyx'"
runs 0 inspect --help
says out "examples"
runs 2 inspect
says err "the folder is missing"
runs 2 inspect a b
says err "more than one folder"
runs 2 inspect --jsn a
says err "did you mean '--json'?"
runs 2 inspect --masks
says err "--masks needs a value"
for number in x -1 513 1e3 99999999999999999999; do
    runs 2 inspect a --masks "$number"
    says err "--masks is '$number', not a whole number from 0 to 512"
done
runs 1 inspect "$work/nowhere"
says err "there is no such folder"

for folder in "$folders"/*; do
    runs 0 inspect "$folder"
    says out "vocabulary"
    says out "total"
    says out "mask of self-attention"
    runs 0 inspect "$folder" --masks 0 --json
    if command -v python3 >/dev/null; then
        runs 0 inspect "$folder" --json --masks 3
        python3 - "$work/out" <<'END' || fail "bauta inspect $folder --json"
import json, sys
got = json.load(open(sys.argv[1]))
total = sum(t["count"] for t in got["tensors"])
assert total == got["config"]["parameters"], total
assert all(m["mask"]["queries"] == 3 for m in got["masks"])
END
    fi
done
runs 0 inspect "$folders/mistral" --masks 6
says out "layers 0 to 2: causal, window of 4"
says out "  ..####"
runs 0 inspect "$folders/qwen2"
says out "decoder layer 0: causal"
says out "decoder layers 1 to 2: causal, window of 3"
runs 0 inspect "$folders/marian" --masks 2
says out "mask of cross-attention, decoder layers 0 to 2: all"

# The name of a folder may be any bytes.
odd=$work/$(printf 'a\377b')
if ln -s "$folders/gpt2" "$odd" 2>/dev/null; then
    runs 0 inspect "$odd" --json
    says out '"folder": null'
fi

# A result that cannot be written is a failure.
if [ -c /dev/full ]; then
    status=0
    "$bauta" inspect "$folders/gpt2" >/dev/full 2>"$work/err" || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says err "cannot write the result"
fi

# ---- tokenize ----------------------------------------------------------------
tokenizer=$(dirname "$0")/../data/tokenizers/bytelevel
prints() { # TEXT ARGUMENT...: that is all of stdout
    text=$1
    shift
    runs 0 tokenize "$@"
    printf '%s\n' "$text" | cmp -s - "$work/out" ||
        fail "bauta tokenize $*: not '$text'"
}
runs 0 tokenize --help
says out "examples"
runs 2 tokenize
says err "the tokenizer is missing"
runs 2 tokenize "$tokenizer" a b
says err "more than one text"
runs 2 tokenize "$tokenizer" --wole
says err "did you mean '--whole'?"
runs 2 tokenize "$tokenizer" --file
says err "--file needs a value"
runs 2 tokenize "$tokenizer" a --file b
says err "both a text and files"
runs 2 tokenize "$tokenizer" --pair b
says err "--pair needs a first text"
runs 1 tokenize "$work/nowhere" a
says err "nowhere"
runs 1 tokenize "$tokenizer" --file "$work/nowhere"
says err "nowhere: cannot open it: No such file"
runs 1 tokenize "$tokenizer" --decode "1 x"
says err "'x' is no id"
runs 1 tokenize "$tokenizer" --decode 99999
says err "99999"

prints '272 259 264 273' "$tokenizer" 'hello world'
prints '272 259 264 273' "$tokenizer/tokenizer.json" 'hello world'
prints '259 264' "$tokenizer" --bare 'hello world'
prints 'hello Ġ Ġworld' "$tokenizer" --bare --pieces 'hello  world'
prints '272 273 273' "$tokenizer" '</s>'
prints '272 60 47 115 62 273' "$tokenizer" --literal '</s>'
prints '272 45 120 273' "$tokenizer" -- -x
prints '272 259 273 116 256 273' "$tokenizer" hello --pair the
prints '{"ids":[272,104,271,273],"types":[0,0,0,0],"pieces":["<s>","h","Ã©","</s>"],"offsets":[[0,0],[0,1],[1,3],[0,0]]}' \
    "$tokenizer" --json 'hé'
prints 'hello world' "$tokenizer" --decode '272 259 264 273'
prints '<s>hello world</s>' "$tokenizer" --decode --specials '[272, 259, 264, 273]'
prints '{"text":"hello"}' "$tokenizer" --decode --json 259
runs 0 tokenize "$tokenizer" --offsets 'hello world'
says out "$(printf '264\t5\t11\tĠworld')"

printf 'hello\n\nthe world' >"$work/a.txt"
printf '259\n1 x\n' >"$work/b.txt"
prints "$(printf '259\n\n116 256 264')" "$tokenizer" --bare --file "$work/a.txt"
prints '259 10 10 116 256 264' "$tokenizer" --bare --whole --file "$work/a.txt"
runs 0 tokenize "$tokenizer" --bare --count --file "$work/a.txt" \
    --file "$work/a.txt"
says out "6 tokens            16 bytes  0.3750 tokens per byte  $work/a.txt"
says out "12 tokens            32 bytes  0.3750 tokens per byte  total"
prints '{"name":"","tokens":5,"bytes":8,"tokens_per_byte":0.625}' \
    "$tokenizer" --count --json 'hello he'
"$bauta" tokenize "$tokenizer" <"$work/a.txt" |
    "$bauta" tokenize "$tokenizer" --decode >"$work/out"
printf '\n' | cat "$work/a.txt" - | cmp -s - "$work/out" ||
    fail "lines do not come back"
"$bauta" tokenize "$tokenizer" --decode --file "$work/b.txt" \
    >"$work/out" 2>"$work/err" && fail "a bad line went unnoticed"
says err "b.txt: line 2: 'x' is no id"
