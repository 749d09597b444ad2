#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# labs.sh - bauta lab: the experiments that train, in small, with fixed seeds.
# What they claim is what is tested: without the mask the training loss is under
# 0.1 and the loss as the model is used worse by a nat; at 128 tokens parallel
# is 10 times as fast as sequential; a hidden word is better guessed from both
# sides. A claim that does not hold is exit status 1.
#
#   labs.sh BAUTA
# shellcheck source=tests/cli/verb.sh
. "$(dirname "$0")/verb.sh"
verb=lab

runs 0 all --fast --out page.d
for name in leak parallel masks mlm layers; do
    says stdout "($name: "
done
says page.d/index.html "</html>"
runs 0 leak --fast --seed 7 --threads 1 --json
says stdout '"lab":"leak"'
says stdout '"holds":true}'
echo "$cases cases"
