#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lab_training.sh - bauta lab: the experiments that train, in small, with fixed
# seeds. They test their claims: "I love you" is translated, in equal bits all at
# once and one token at a time; without the mask the training loss is under 0.1
# and the loss in actual use worse by a nat; at 128 tokens parallel is 10 times
# as fast as sequential; a masked word is predicted better from both sides. A
# failed claim is exit status 1.
#
#   lab_training.sh BAUTA
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
verb=lab

runs 0 all --fast --out page.d
for name in translate leak parallel masks mlm layers rnn; do
    says stdout "($name: "
done
says page.d/index.html "</html>"
# The attention of both networks: in the terminal, in the page, as a file.
for name in "recurrent network" Transformer; do
    says stdout "Attention of the $name"
    says page.d/index.html "<figcaption>Attention of the $name</figcaption>"
done
[ "$(grep -c '<svg class="mask attention"' page.d/index.html)" = 2 ] ||
    fail "not two pictures of attention in the page"
if [ -e page.d/rnn.svg ]; then # built with cairo
    says page.d/rnn.svg "</svg>"
fi
# The page in a browser: every toy, in three sizes.
if command -v python3 >/dev/null && command -v chromedriver >/dev/null; then
    python3 "$here/lesson.py" page.d/index.html >stdout 2>stderr ||
        fail "the page in a browser"
    cat stdout
else
    echo "there is no python3 or chromedriver to open the page with"
fi
runs 0 leak --fast --seed 7 --threads 1 --json
says stdout '"lab":"leak"'
says stdout '"holds":true}'
echo "$cases cases"
