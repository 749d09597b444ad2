#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokenizer.sh - bauta tokenizer train: its files, output and refusals, and that
# an interrupt leaves no files.
#
#   tokenizer.sh BAUTA
set -eu
bauta=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$1"
    echo "stdout:"
    cat "$work/stdout"
    echo "stderr:"
    cat "$work/stderr"
    exit 1
}
runs() { # STATUS ARGUMENT...
    want=$1
    shift
    got=0
    "$bauta" "$@" >"$work/stdout" 2>"$work/stderr" || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
    [ "$want" = 0 ] || [ ! -s "$work/stdout" ] ||
        fail "bauta $*: something on stdout"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$work/$1" || fail "'$2' is not on $1"
}
ids() { # IDS TOKENIZER TEXT
    got=$("$bauta" tokenize "$work/$2" --bare "$3")
    [ "$got" = "$1" ] || fail "$2 gives $got for '$3', not $1"
}

runs 0 --help
says stdout "tokenizer"
runs 2 tokenizer
says stderr "the subcommand is missing"
runs 2 tokenizer trian
says stderr "did you mean 'train'?"
runs 0 tokenizer --help
runs 0 tokenizer train --help
says stdout "examples"

printf 'the mask hides the face\nthe face hides the mask\n' >"$work/a"
printf 'the mask\n' >"$work/b"
refused() { # MESSAGE ARGUMENT...
    message=$1
    shift
    runs 2 tokenizer train "$@"
    says stderr "$message"
}
refused "--out is missing" "$work/a"
refused "the files are missing" --out "$work/t"
refused "did you mean '--pieces'?" --peices 3 --out "$work/t" "$work/a"
refused "did you mean 'unigram'?" --kind unigramm --out "$work/t" "$work/a"
refused "--pieces needs a value" --out "$work/t" "$work/a" --pieces
refused "--pieces is '1e3', not a whole number" --pieces 1e3 --out "$work/t" "$work/a"
refused "--min-count is '-1', not a whole number" --min-count -1 --out t "$work/a"
refused "--lowercase cannot be used with --kind bpe" --lowercase --out t "$work/a"
refused "--special cannot be used with --kind chars" --kind chars --special x \
    --out t "$work/a"
refused "--kind bytes takes no file" --kind bytes --out t "$work/a"
runs 1 tokenizer train --out "$work/t" "$work/nowhere"
says stderr "nowhere: cannot open it: No such file"
runs 1 tokenizer train --out "$work/a" "$work/a"
says stderr "is not a folder"
runs 1 tokenizer train --out "$work/no/where" "$work/a"
says stderr "No such file"
runs 1 tokenizer train --pieces 100 --out "$work/t" "$work/a"
says stderr "a vocabulary of 100 pieces is too small: the special tokens and the alphabet are 257"
[ ! -e "$work/t" ] || fail "a failure left a folder"

runs 0 tokenizer train --pieces 300 --out "$work/bpe" "$work/a" "$work/b"
says stdout "$work/bpe/tokenizer.json: bpe, "
says stderr "training 100 %"
[ "$("$bauta" tokenize "$work/bpe" --bare --pieces 'the mask')" = \
    "the Ġmask" ] || fail "the words were not learned"
ids 0 bpe '<|endoftext|>'
runs 0 tokenizer train --pieces 300 --out "$work/again" "$work/a" "$work/b"
cmp -s "$work/bpe/tokenizer.json" "$work/again/tokenizer.json" ||
    fail "the same texts gave another file"
printf 'the mask\nthe face\n' |
    "$bauta" tokenizer train --kind wordpiece --out "$work/wp" \
        --special '[UNK]' --special '<x>' --lines --json - >"$work/stdout" \
        2>"$work/stderr" || fail "a pipe is not read"
says stdout '"texts": 2'
says stdout '"kind": "wordpiece"'
ids '1 0' wp '<x>%'
runs 0 tokenizer train --kind unigram --pieces 40 --lowercase --min-count 2 \
    --out "$work/uni" -- "$work/a"
ids '1' uni '<unk>'
runs 0 tokenizer train --kind bytes --out "$work/bytes"
ids '104 105' bytes 'hi'
runs 0 tokenizer train --kind chars --out "$work/chars" "$work/b"
ids '8 4 3' chars 'the'
files() {
    (cd "$work/bpe" && echo ./*)
}
both="./tokenizer.json ./tokenizer_config.json"
[ "$(files)" = "$both" ] || fail "other files"

# An interrupt leaves existing files unchanged.
cp "$work/bpe/tokenizer.json" "$work/before"
mkfifo "$work/pipe"
"$bauta" tokenizer train --out "$work/bpe" - <"$work/pipe" >/dev/null 2>&1 &
child=$!
exec 3>"$work/pipe"
printf 'some text' >&3
kill -TERM "$child"
status=0
wait "$child" || status=$?
exec 3>&-
[ "$status" -gt 128 ] || fail "it was not interrupted: $status"
cmp -s "$work/before" "$work/bpe/tokenizer.json" || fail "the file changed"
[ "$(files)" = "$both" ] || fail "a file was left"
