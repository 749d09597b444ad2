#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# browser.sh - the page of bauta look in a browser: it tests itself, choosing
# every layer and head and their mean, as a matrix and as lines, hovering, moving
# with keys; in light and dark mode, on desktop and phone sizes; the browser must
# log no error. The page of bauta lab must load without errors, too.
#
#   browser.sh BAUTA
#   browser.sh BAUTA MODEL TEXT FRAGMENT PNG   instead: take a screenshot
set -eu
bauta=$1
for browser in chromium chromium-browser google-chrome ""; do
    if [ -z "$browser" ]; then
        echo "there is no chromium to open the page in"
        exit 77
    elif command -v "$browser" >/dev/null; then
        break
    fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$1"
    cat "$work/stdout" "$work/stderr"
    exit 1
}
opens() { # OPTION... URL
    timeout 250 "$browser" --headless --no-sandbox --disable-gpu \
        --user-data-dir="$work/profile" --hide-scrollbars \
        --enable-logging=stderr --virtual-time-budget=20000 "$@" \
        >"$work/stdout" 2>"$work/stderr" || fail "$browser ended with $?"
    ! grep -q CONSOLE "$work/stderr" || fail "the browser complains"
}

if [ $# -gt 1 ]; then
    "$bauta" look "$2" "$3" --out "$work/page.html"
    opens --window-size=860,1560 --screenshot="$5" "file://$work/page.html#$4"
    exit 0
fi

passes() { # PAGE CHECKS OPTION...
    page=$1 checks=$2
    shift 2
    opens "$@" --dump-dom "file://$work/$page#test"
    grep -q "PASS $checks" "$work/stdout" || {
        grep -o '<pre id="test">[^<]*' "$work/stdout" || true
        fail "$page does not pass its own test ($*)"
    }
}

cd "$work"
printf 'the mask hides the face\nthe face is behind the mask\n' >text
"$bauta" train --threads 1 --steps 2 --preset transformer-tiny --source text \
    --target text --tokenizer unigram:24 --out run --set encoder_layers=1 \
    --set decoder_layers=2 >stdout 2>stderr || fail "bauta train"
"$bauta" look run/last --source "the mask hides" "the face is" \
    --out all.html >stdout 2>stderr || fail "bauta look"
"$bauta" look --mask 'causal & window(3) | sinks(1)' --out mask.html >stdout
passes all.html '[0-9]* checks of 20 pictures' --window-size=1200,900
passes all.html '[0-9]* checks of 20 pictures' --window-size=360,640 \
    --blink-settings=preferredColorScheme=0
passes mask.html '[0-9]* checks of 1 pictures'

# The page of bauta lab with one experiment; lab_training.sh has it with all.
"$bauta" lab layers --fast --out lab >stdout 2>stderr || fail "bauta lab"
for scheme in 0 1; do
    opens --window-size=360,640 --blink-settings=preferredColorScheme=$scheme \
        --dump-dom "file://$work/lab/index.html"
    grep -q '<path class="leak"' "$work/stdout" || fail "nothing leaks"
    grep -q 'No output sees its future' "$work/stdout" || fail "no toy of layers"
    grep -q 'It reads 23 earlier days' "$work/stdout" || fail "no toy of numbers"
    grep -q 'numbers of the experiment <code>bauta lab leak' "$work/stdout" ||
        fail "a toy without numbers does not say so"
done
