#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lab.sh - bauta lab: names, options, output, JSON, the page; and the claims of
# the experiments that do not train.
#
#   lab.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

# ---- refusals --------------------------------------------------------------
runs 0 --help
says stdout "examples"
for name in translate leak parallel masks mlm layers rnn all; do
    says stdout "  $name "
done
runs 0 masks -h --json
says stdout "usage: bauta lab"
refused "an experiment is missing: translate, leak, parallel, masks, mlm, layers, rnn or all"
refused "there is no experiment 'mask'; did you mean 'masks'?" mask
refused "there is no experiment 'al'; did you mean 'all'?" al
refused "there is no experiment 'xyzzy'; there are translate, leak" xyzzy
refused "there is no experiment ''" ""
refused "there is no experiment 'Layers'; did you mean 'layers'?" layers Layers
refused "there is no option '--xyzzy'" layers --xyzzy
refused "did you mean '--fast'?" layers --fats
refused "did you mean '--threads'?" layers --thread 1
refused "--json takes no value" layers --json=1
refused "--fast takes no value" layers --fast=yes
refused "--out is empty" layers --out ""
for option in --out --seed --threads; do
    refused "$option needs a value" layers $option
done
for value in x -1 "" 1.5 0x4 "3 "; do
    refused "--seed is '$value', not a whole number" layers --seed "$value"
    refused "--threads is '$value', not a whole" layers --threads "$value"
done
refused "--threads is '5000', not a whole number from 0 to 4096" layers --threads 5000

# ---- folders ---------------------------------------------------------------
echo text >file
fails "file: cannot create this folder or write to it: " layers --out file
fails "file/in/it: cannot create this folder" layers --out file/in/it
mkdir -p taken/index.html
runs 1 layers --fast --out taken
says stderr "taken/index.html: cannot write it: "
[ "$(cd taken && echo -- *)" = "-- index.html layers.json" ] ||
    fail "half a page is left"

# ---- an interrupt ----------------------------------------------------------
# The page contains each finished experiment at once; the next one takes longer.
for signal in INT TERM; do
    rm -rf kept
    "$bauta" lab masks mlm --fast --out kept >stdout 2>stderr &
    child=$!
    until [ -e kept/index.html ]; do
        kill -0 "$child" 2>/dev/null || fail "it ended before an interrupt"
        sleep 0.05
    done
    sleep 0.1
    kill -"$signal" "$child"
    got=0
    wait "$child" || got=$?
    child=
    [ "$got" -gt 128 ] || fail "an interrupted lab: status $got"
    says stderr "interrupted; 1 finished, in the page of kept"
    says kept/index.html "What does each kind of mask show"
    ! grep -q "What does a model learn from hidden words" kept/index.html ||
        fail "what is not finished is in the page"
    [ "$(cd kept && echo -- *)" = "-- index.html masks.json" ] ||
        fail "a draft is left"
    cases=$((cases + 1))
done
# The next run goes on: what is finished is not run again, unless it is asked
# for, and a damaged file is no report.
ran() { # NAME: it was not taken from an earlier run
    says stdout "($1: "
    ! grep -q "($1: from" stdout || fail "$1 did not run again"
}
cp kept/masks.json masks.json
runs 0 masks layers --fast --out kept
says stdout "(masks: from an earlier run; --fresh runs it again)"
ran layers
cmp masks.json kept/masks.json || fail "it ran again"
says kept/index.html "What does each kind of mask show"
runs 0 layers --fast --fresh --out kept
ran layers
says kept/index.html "What does each kind of mask show" # it is still there
runs 0 layers --fast --seed 2 --out kept
ran layers
! grep -q "What does each kind of mask show" kept/index.html ||
    fail "results of two seeds are in one page"
head -c 300 masks.json >kept/layers.json
runs 0 layers --fast --out kept
ran layers

# ---- layers ----------------------------------------------------------------
runs 0 layers --fast --out new/folder/
says stdout "Must every layer have the mask"
says stdout "no layer"
says stdout "layer 0: 0 sees 1"
says stdout "#!!!!!!!!!      #!!!!!!!!!"
says stdout "The page is new/folder/index.html"
! grep -q "does not hold" stdout || fail "a claim does not hold"
! grep -q "$(printf '\033')" stdout stderr || fail "colours in a pipe"
grep '[[:blank:]]$' stdout && fail "blanks at the end of a line"
[ "$(cd new/folder && echo -- *)" = "-- index.html layers.json" ] ||
    fail "not only a page and its results"
cp new/folder/index.html page
grep -v '^(' stdout >one
runs 0 layers --fast --fresh --threads 1 --out new/folder/
grep -v '^(' stdout >two
cmp one two || fail "another number of threads"
cmp page new/folder/index.html || fail "another page"
for seed in 0 2 18446744073709551615; do
    runs 0 layers --fast --seed "$seed"
done
if command -v script >/dev/null; then
    TERM=xterm script -qec "'$bauta' lab layers --fast" /dev/null \
        </dev/null >stdout 2>stderr
    grep -q "$(printf '\033')\\[48;2;200;30;45m" stdout ||
        fail "leaks do not stand out in a terminal"
fi

# ---- masks -----------------------------------------------------------------
runs 0 layers masks masks --fast --out page.d
says stdout "window | sinks"
says stdout "512 x 512"
[ "$(grep -c '^masks$' stdout)" = 1 ] || fail "masks did not run once"
for kind in all causal 'window(4)' 'prefix(5)' 'sinks(2)' documents padding \
    cross random 'blocks(2)'; do
    says stdout "$kind"
    says page.d/index.html "<figcaption>$kind</figcaption>"
done

# ---- the page --------------------------------------------------------------
file=page.d/index.html
for word in http: https: 'src=' '@import' '<link' '<img'; do
    ! grep -qF -- "$word" $file || fail "the page has $word"
done
grep -oE 'url\([^)]*\)|href="[^"]*"' $file | grep -v '#' &&
    fail "the page refers to something"
says $file "default-src 'none'"
says $file "<code>bauta lab translate</code> has not run yet"
for word in "teacher forcing" autoregressive inference padding BERT GPT encoder \
    decoder cross-attention "masked attention"; do
    says $file "<dfn>$word</dfn>"
done
says $file '<path class="leak"'
says $file '<svg class="plot"'
tail -n 1 $file | grep -q '^</html>$' || fail "the page has no end"
if command -v python3 >/dev/null; then
    python3 - $file <<'END' || fail "the page is not well formed"
import html.parser, sys
class page(html.parser.HTMLParser):
    open, bare = [], {"meta", "br"}
    CDATA_CONTENT_ELEMENTS = ("script", "style")
    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), attrs
        if tag not in self.bare:
            self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        pass
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())
p = page()
p.feed(open(sys.argv[1], encoding="utf-8").read())
assert not p.open
END
fi

# ---- JSON ------------------------------------------------------------------
runs 0 masks layers --fast --json --out page.d
if command -v python3 >/dev/null; then
    python3 - stdout <<'END' || fail "bauta lab --json"
import json, sys
labs = [json.loads(line) for line in open(sys.argv[1])]
assert [l["lab"] for l in labs] == ["masks", "layers"]
for lab in labs:
    assert lab["holds"] and lab["claims"] and lab["question"].endswith("?")
    assert all(c["holds"] for c in lab["claims"])
    assert len(lab["conclusion"]) == 2
    assert all(s.endswith(".") for s in lab["conclusion"])
    kinds = {f["kind"] for f in lab["found"]}
    assert {"table", "plot", "mask"} <= kinds <= \
        {"table", "plot", "mask", "quote", "heading"}
    for f in lab["found"]:
        if f["kind"] == "table":
            assert f["rows"]
            assert all(len(r) == len(f["headings"]) for r in f["rows"])
        if f["kind"] == "plot":
            assert all(c["points"] for c in f["curves"])
        if f["kind"] == "mask":
            assert len(f["mask"]["rows"]) == f["mask"]["queries"]
leaks = [f["leaks"] for f in labs[1]["found"] if f["kind"] == "mask"]
assert leaks[0] == 0 and leaks[1] == 45 and leaks[2] == 45, leaks
END
fi

# ---- output errors ---------------------------------------------------------
if [ -c /dev/full ]; then
    for json in "" --json; do
        status=0
        # shellcheck disable=SC2086
        "$bauta" lab layers --fast $json >/dev/full 2>stderr || status=$?
        [ "$status" = 1 ] || fail "a full disk: status $status"
        says stderr "cannot write the result"
    done
fi
echo "$cases cases"
