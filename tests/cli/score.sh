#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# score.sh - bauta score: results on stdout, errors on stderr, exit statuses.
# The numbers are sacrebleu's.
#
#   score.sh BAUTA
set -eu
bauta=$1
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
# runs STATUS ARGUMENT...: bauta score exits with STATUS and writes to exactly
# one of the two streams. Its stdin is $work/in.
runs() {
    want=$1
    shift
    got=0
    "$bauta" score "$@" <"$work/in" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$want" ] || fail "bauta score $*: status $got, not $want"
    if [ "$want" = 0 ]; then
        speaks=out silent=err
    else
        speaks=err silent=out
    fi
    [ -s "$work/$speaks" ] || fail "bauta score $*: nothing on std$speaks"
    [ ! -s "$work/$silent" ] || fail "bauta score $*: something on std$silent"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$work/$1" || fail "'$2' is not on $1"
}
lines() { # NUMBER
    [ "$(wc -l <"$work/out")" -eq "$1" ] || fail "not $1 lines"
}

hyp=$work/hyp ref=$work/ref other=$work/other
printf 'The cat sat on the mat.\nEin HUND.\n' >"$hyp"
printf 'The cat is on the mat.\nEin Hund.' >"$ref" # the last line is open
printf 'A cat sat on a mat .\nein Hund !\n' >"$other"
printf 'one line\nb\377\n' >"$work/bad"
: >"$work/empty"
cp "$hyp" "$work/in"

# The command line.
runs 0 --help
says out "examples"
runs 2 "$hyp"
says err "the references are missing"
runs 2 --ref "$ref" a b
says err "more than one file to score: 'a' and 'b'"
runs 2 --reff "$ref" "$hyp"
says err "did you mean '--ref'?"
runs 2 --ref "$ref" --xyzzy
says err "there is no option '--xyzzy'"
for option in --ref --metric --tokenize --smooth; do
    runs 2 "$option"
    says err "$option needs a value"
done
runs 2 --ref "$ref" --metric blue
says err "--metric is 'blue', not bleu, chrf, chrf++ or all; did you mean 'bleu'?"
runs 2 --ref "$ref" --tokenize japanese
says err "--tokenize is 'japanese', not 13a, intl, char or none"
runs 2 --ref "$ref" --smooth addk
says err "did you mean 'add-k'?"

# The files.
runs 1 --ref "$work/nowhere" "$hyp"
says err "nowhere: cannot open it: "
runs 1 --ref "$work" "$hyp"
says err "cannot read it: "
runs 1 --ref "$ref" "$work/empty"
says err "empty: the file is empty"
printf 'one\n' >"$work/in"
runs 1 --ref "$ref"
says err "standard input has 1 lines, $ref has 2"
runs 1 --ref "$ref" "$work/bad"
says err "bad: line 2 is not UTF-8 (byte 2 of it)"
runs 1 --ref "$work/bad" "$hyp"
says err "bad: line 2 is not UTF-8 (byte 2 of it)"

# The scores.
cp "$hyp" "$work/in"
for input in "$hyp" -; do
    runs 0 --ref "$ref" "$input"
    lines 3
    says out "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:bauta-"
    says out " = 42.73"
    says out "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:bauta-"
    says out " = 56.55"
    says out "chrF2++|"
    says out " = 58.67"
done
# More lines than are held at a time: the same ones repeated.
for file in hyp ref; do
    i=0
    while [ $((i += 1)) -le 300 ]; do
        awk 1 "$work/$file" # the last line may lack its end
    done >"$work/$file-600"
done
runs 0 --ref "$work/ref-600" "$work/hyp-600"
lines 3
says out " = 42.73"
says out " = 56.55"
says out " = 58.67"
runs 0 --ref "$work/ref-600" "$work/hyp-600" --sentence
lines 600
head -n 599 "$work/hyp-600" >"$work/hyp-599"
runs 1 --ref "$work/ref-600" "$work/hyp-599"
says err "hyp-599 has 599 lines, $work/ref-600 has 600"
runs 0 --ref "$ref" --metric bleu --lowercase --tokenize intl --smooth floor
lines 1
says out "case:lc|eff:no|tok:intl|smooth:floor[0.10]|"
says out " = 53.90"
runs 0 --ref "$ref" --ref "$other" --metric bleu
says out "nrefs:2|"
says out " = 53.90"
runs 0 --ref "$ref" --metric chrf
lines 1
runs 0 --ref "$ref" --metric chrf++
says out "chrF2++|"
runs 0 --ref "$ref" --sentence
lines 2
says out "$(printf '48.89\t67.17\t69.44')"
says out "$(printf '34.67\t26.45\t28.17')"
runs 0 --ref "$ref" --sentence --metric chrf++
lines 2

if command -v python3 >/dev/null; then
    runs 0 --ref "$ref" --json --sentence
    python3 - "$work/out" <<'END' || fail "bauta score --json"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["lines"] == 2
assert got["bleu"]["matches"][0] <= got["bleu"]["totals"][0] == 10
assert got["chrf++"]["name"] == "chrF2++"
assert len(got["chrf++"]["matches"]) == 8
assert all(len(got[m]["sentences"]) == 2 for m in ("bleu", "chrf", "chrf++"))
END
    runs 0 --ref "$ref" --json --metric chrf
    ! grep -q bleu "$work/out" || fail "BLEU was not asked for"
fi

# A result that cannot be written is a failure.
if [ -c /dev/full ]; then
    status=0
    "$bauta" score --ref "$ref" "$hyp" >/dev/full 2>"$work/err" || status=$?
    [ "$status" = 1 ] || fail "a full disk: status $status"
    says err "cannot write the result"
fi

# A file that starts with empty lines.
printf '\n\n' >"$work/blank"
printf 'a b\nc d\n' >"$work/two"
runs 0 --ref "$work/two" "$work/blank" --metric bleu
says out "= 0.00 "
