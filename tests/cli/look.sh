#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# look.sh - bauta look: pictures on stdout or in files, errors on stderr, exit
# statuses. The models are trained for a step or two, so their attention is
# meaningless, but its weights add up.
#
#   look.sh BAUTA
set -eu
bauta=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    echo "stdout:"
    head -c 4000 stdout
    echo "stderr:"
    cat stderr
    exit 1
}
# runs STATUS ARGUMENT...: bauta look exits with STATUS and writes to exactly
# one of the two streams.
runs() {
    want=$1
    shift
    got=0
    "$bauta" look "$@" >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta look $*: status $got, not $want"
    if [ "$want" = 0 ]; then
        speaks=stdout silent=stderr
    else
        speaks=stderr silent=stdout
    fi
    [ -s $speaks ] || fail "bauta look $*: nothing on $speaks"
    [ ! -s $silent ] || fail "bauta look $*: something on $silent"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
refused() { # MESSAGE ARGUMENT...
    message=$1
    shift
    runs 2 "$@"
    says stderr "$message"
}

# Masks alone.
runs 0 --mask 'causal & window(2) | sinks(1)' --size 5
printf '%s\n' '#....' '##...' '###..' '#.##.' '#..##' >want
head -n 5 stdout | cmp -s want - || fail "not that mask"
says stdout "5 queries over 5 keys: 12 of 25 pairs are visible, none in the future"
runs 0 --mask all --size 2x3
says stdout "2 queries over 3 keys: 6 of 6 pairs are visible"
! grep -q ahead stdout || fail "it is causal no more"
runs 0 --mask causal
says stdout "16 queries over 16 keys"
runs 0 --mask causal --size 2 --json
says stdout '{"queries":2,"keys":2,"pairs":3,"rows":[[[0,1]],[[0,2]]]}'
runs 0 --mask causal --size 2000 --out mask.html
says stdout "mask.html: 1 picture"
says mask.html '"title":"causal"'
refused "column 1: there is no mask 'casual'; did you mean 'causal'?" --mask casual
refused "column 7: expected (n), found the end" --mask window
refused "--size is '0', not a number" --mask all --size 0
refused "--size is '4x', not a number" --mask all --size 4x
refused "--size is 'x4', not a number" --mask all --size x4
refused "--size is '99999999', not a number" --mask all --size 99999999
runs 1 --mask all --size 600
says stderr "too large for the terminal"

# The command line.
runs 0 --help
says stdout "examples"
refused "the model's folder is missing"
refused "the text is missing" model
refused "more than one text: 'a' and 'b'" model a b
refused "there is no option '--hed'; did you mean '--head'?" model a --hed 1
refused "there is no option '--xyzzy'" model a --xyzzy
refused "--at is 'decodr', not encoder, decoder or cross; did you mean 'decoder'?" \
    model a --at decodr
refused "--layer is '-1', not a whole number" model a --layer -1
refused "--head is 'one', not a whole number" model a --head one
refused "--all and --layer or --head exclude each other" model a --all --head 1
refused "--json and --out" model a --json --out a.png
refused "--size is for a mask without MODEL" model a --size 4
for option in --at --layer --head --source --generate --mask --size --out \
    --threads; do
    refused "$option needs a value" model a $option
done
runs 1 nowhere a
says stderr "nowhere"

# Three models, one of each kind.
i=0
while [ $i -lt 12 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    echo "a bauta lets its wearer speak: verse $i"
    i=$((i + 1))
done >text
sed 's/the/der/g' text >target
train() {
    "$bauta" train --threads 1 --steps 2 --batch-tokens 64 "$@" >stdout \
        2>stderr || fail "bauta train $*"
}
train --preset gpt2-tiny --set n_layer=2 --set n_embd=16 --set n_head=2 \
    --context 64 --tokenizer chars --out gpt text
train --preset transformer-tiny --tokenizer unigram:60 --source text \
    --target target --out marian --set encoder_layers=1 --set decoder_layers=2
train --preset bert-tiny --tokenizer wordpiece:80 --lines --out bert \
    --set num_hidden_layers=1 text
gpt=gpt/last marian=marian/last bert=bert/last

# The terminal: a pipe gets no colours.
runs 0 $gpt "the mask"
says stdout "decoder, layer 1, mean of 2 heads, in percent"
says stdout "100    ·    ·    ·    ·    ·    ·    ·"
! grep -q "$(printf '\033')" stdout || fail "colours in a pipe"
if command -v script >/dev/null; then
    colours() { # COMMAND: whether it colours what a terminal gets
        TERM=xterm script -qec "$1" /dev/null </dev/null >stdout 2>stderr
        grep -q "$(printf '\033')\\[48;2" stdout
    }
    colours "'$bauta' look $gpt 'the mask'" || fail "no colours in a terminal"
    ! colours "NO_COLOR=1 '$bauta' look $gpt 'the mask'" ||
        fail "colours in spite of NO_COLOR"
fi
runs 0 $gpt "the mask hides the face, and the face is behind" --layer 0 --head 1
says stdout "decoder, layer 0, head 1"
says stdout "   8   8   8" # percent, not tenths
! grep -q "columns 0 to" stdout || fail "47 columns of 4 fit into 200"
# Columns that do not fit follow in further parts; labels are set vertically.
runs 0 $gpt "the mask hides the face, and the face is behind the mask" --layer 0
says stdout "columns 0 to"
says stdout "of 56"
says stdout "Rows that see no column of a part are left out of it."
awk 'length($0) > 600 { exit 1 }' stdout || fail "a line is too long"
first=$(sed -n '/columns 0 to/,/columns [1-9]/p' stdout | grep -c '·\|100')
second=$(sed -n '/columns [1-9]/,$p' stdout | grep -c '[0-9] *[·0-9]')
[ "$first" -gt 40 ] || fail "$first rows in the first part"
[ "$second" -lt 20 ] || fail "$second rows in the second part"
runs 0 $bert "the face is behind the mask, and the mask hides the face" --head 0
says stdout "in percent"
runs 0 $gpt "the mask" --generate 3
says stdout "generated: "
[ "$(grep -c '·' stdout)" = 10 ] || fail "not eleven rows"
runs 0 $gpt "the mask" --all
[ "$(grep -c 'head' stdout)" = 4 ] || fail "not four heads"
runs 0 $gpt "the mask" --mask "window(2)"
says stdout "   ·    ·    ·    ·    ·    ·"
runs 0 $bert "the face" --head 0
says stdout "encoder, layer 0, head 0"
runs 0 $marian "the face" --generate 6
says stdout "cross, layer 1, mean of"
says stdout "rows: target; columns: source"
runs 0 $marian --source "the face" "der face" --at decoder
says stdout "decoder, layer 1"
runs 0 $marian --source "the face" --generate 6 --at encoder
says stdout "encoder, layer 0"
runs 0 -- $gpt a
says stdout "100"
refused "it has no --at cross" $gpt a --at cross
refused "it has no --at decoder" $bert a --at decoder
refused "--layer is 2; the decoder has 2, from 0" $gpt a --layer 2
refused "--head is 2; the decoder has 2, from 0" $gpt a --head 2
refused "--source is for an encoder-decoder" $gpt a --source b
refused "--generate is for models that write" $bert a --generate 2
refused "--mask 'documents(9)', for 8 tokens: column 1: the documents have 9" \
    $gpt "the mask" --mask "documents(9)"
runs 1 $gpt ""
says stderr "the text has no tokens"
runs 1 $gpt "$(cat text)"
says stderr "64"

# Files.
refused "--out: a.gif: the name does not end in .png" $gpt the --out a.gif
runs 1 $gpt the --out no/where.html
says stderr "no/where.html: cannot open the folder it is in"
for file in a.png a.svg a.pdf; do
    got=0
    "$bauta" look $gpt "the mask" --all --out $file >stdout 2>stderr || got=$?
    if [ $got = 0 ]; then
        says stdout "$file: 4 pictures"
    else # without cairo
        says stderr "this library was built without cairo"
        [ ! -e $file ] || fail "half a file"
    fi
done
if [ -e a.png ]; then
    head -c 8 a.png | od -An -tx1 | grep -q '89 50 4e 47' || fail "no PNG"
    head -c 4 a.pdf | grep -q '%PDF' || fail "no PDF"
    grep -q '</svg>' a.svg || fail "no SVG"
fi
runs 0 $marian "the face" --generate 6 --out page.html
says stdout "page.html: 20 pictures"
for word in '"encoder"' '"decoder"' '"cross"'; do
    says page.html "\"at\":$word"
done
runs 0 $marian "the face" --generate 6 --out page.html --at cross --layer 1
says stdout "page.html: 4 pictures"

# JSON: rows add up to 1, and hidden pairs are 0.
if command -v python3 >/dev/null; then
    for model in $gpt $bert $marian; do
        runs 0 "$model" "the face" --all --json
        python3 - stdout <<'END' || fail "bauta look $model --json"
import json, sys
got = json.load(open(sys.argv[1]))
for a in got["attentions"]:
    assert len(a["weights"]) == len(a["rows"]) == a["mask"]["queries"]
    for row, spans in zip(a["weights"], a["mask"]["rows"]):
        assert len(row) == len(a["columns"])
        seen = {j for lo, hi in spans for j in range(lo, hi)}
        assert all(w == 0 for j, w in enumerate(row) if j not in seen)
        assert all(w > 0 for j, w in enumerate(row) if j in seen)
        assert abs(sum(row) - 1) < 1e-5
END
    done
fi

# A result that cannot be written is a failure.
if [ -c /dev/full ]; then
    got=0
    "$bauta" look --mask causal >/dev/full 2>stderr || got=$?
    [ $got = 1 ] || fail "a full disk went unnoticed"
    says stderr "cannot write the result"
fi
