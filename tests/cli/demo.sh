#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh - bauta demo from end to end, in small; the grammar and its splits;
# the drawings and the refusals.
#
#   demo.sh BAUTA
set -eu
bauta=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR="$work"

fail() {
    echo "$1"
    echo "stdout:"
    cat stdout
    echo "stderr:"
    cat stderr
    exit 1
}
runs() { # STATUS ARGUMENT...
    want=$1
    shift
    got=0
    "$bauta" "$@" >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
    [ "$want" = 0 ] || [ ! -s stdout ] || fail "bauta $*: something on stdout"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}

runs 0 demo --help
says stdout "--grammar"
runs 2 demo --fats
says stderr "did you mean '--fast'?"
runs 2 demo --seed many
says stderr "--seed is 'many', not a whole number"
runs 2 demo --seed 9223372036854775808
says stderr "--seed is not below 2^63"
runs 2 demo --fast=yes
says stderr "--fast takes no value"
runs 2 demo --out
says stderr "--out needs a value"
runs 2 demo somewhere
says stderr "'somewhere' is not an option"
mkdir there
runs 1 demo --out there
says stderr "there exists"

# The grammar: thousands of pairs, none of them twice in either language.
runs 0 demo --grammar
count=$(wc -l <stdout)
[ "$count" -ge 10000 ] || fail "only $count pairs"
[ "$(sort -u stdout | wc -l)" = "$count" ] || fail "a pair comes twice"
for side in 1 2; do
    cut -f $side stdout | sed 's/\.$//' >texts
    [ "$(sort -u texts | wc -l)" = "$count" ] || fail "side $side has doubles"
done
grep -q "^I love you	Ich liebe dich$" stdout || fail "I do not love you"
cp stdout first
runs 0 demo --grammar --seed 1
cmp first stdout || fail "seed 1 is not the default seed"
runs 0 demo --grammar --seed 2
cmp -s first stdout && fail "another seed gave the same pairs"

# The whole demo.
runs 0 demo --fast --out d
says stderr "validation loss"
says stderr "I love you => "
says stdout "held-out sentences"
says stdout "Masked self-attention"
says stdout "It says:"
says stdout "bauta translate d/translator"
[ -e d/translator/best/model.safetensors ] || fail "there is no translator"
[ -e d/speaker/last/model.safetensors ] || fail "there is no speaker"
# The wrong translations: the English, the model's output, and the reference,
# which is the grammar's translation.
says stdout "Layer 0 (the last), mean of"
grep '(should be: ' stdout >slips || fail "nothing went wrong"
sed -n 's/^  \(.*[^ ]\)  *(should be: \(.*\))$/\2/p' slips >references
[ "$(wc -l <references)" = "$(wc -l <slips)" ] || fail "no reference"
while read -r reference; do
    cut -f 2 d/valid.tsv d/held-out.tsv | grep -qxF -- "$reference" ||
        fail "'$reference' is no reference"
done <references
grep -q "^  I love you  .*(should be: Ich liebe dich)$" slips ||
    fail "I love you"
runs 0 inspect d/translator

# The trained models pass the audit, quickly.
for model in translator speaker; do
    began=$(date +%s)
    runs 0 audit "d/$model"
    seconds=$(($(date +%s) - began))
    [ $seconds -lt 30 ] || fail "the audit of the $model took $seconds s"
done

# The held-out pairs were not trained on, in either language.
for split in valid held-out; do
    for side in 1 2; do
        cut -f $side d/train.tsv | sed 's/\.$//' | sort >learned
        cut -f $side d/$split.tsv | sed 's/\.$//' | sort >asked
        [ -z "$(comm -12 learned asked)" ] || fail "$split.tsv was learned"
    done
done
head -n 1 d/valid.tsv | grep -q "^I love you	" || fail "I love you was learned"

# The drawing: the first token sees itself, and three dots hide the future; in a
# pipe without colours.
runs 0 demo --fast --seed 3
folder=$(sed -n 's/.*All of it is in \(.*\); try$/\1/p' stdout)
[ -d "$folder/translator" ] || fail "nothing is in '$folder'"
grep -q '^ *(start)  *100  *·  *·  *·$' stdout || fail "nothing is hidden"
grep -q '^ *dich  *[0-9]*  *[0-9]*  *[0-9]*  *[0-9]*$' stdout ||
    fail "the last token does not see all"
grep -q "$(printf '\033')" stdout && fail "colours in a pipe"

# The figures are written to the folder.
runs 0 demo --fast --json --out j
says stderr "It says:"
[ "$(wc -l <stdout)" -eq 1 ] || fail "--json is not one line"
says stdout '"pairs":{"train":600,"valid":20,"held_out":40}'
says stdout '"translator":"j/translator"'
if command -v python3 >/dev/null; then
    python3 - stdout <<'END' || fail "bauta demo --json"
import json, sys
got = json.load(open(sys.argv[1]))
exact, seconds = got["exact"], got["seconds"]
assert exact["of"] == 40 and 0 <= exact["right"] <= 40
assert exact["share"] == exact["right"] / exact["of"]
assert 0 < seconds["translator"] + seconds["speaker"] <= seconds["all"]
assert got["paths"]["folder"] == "j" and got["seed"] == 1 and got["fast"]
END
fi
if [ -c /dev/full ]; then
    status=0
    "$bauta" demo --fast --json --out full >/dev/full 2>stderr || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
fi
