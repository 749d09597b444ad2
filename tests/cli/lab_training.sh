#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lab_training.sh - bauta lab: the experiments that train, in small, with fixed
# seeds. They test their claims: without the mask the training loss is under 0.1
# and the loss in actual use worse by a nat; at 128 tokens parallel is 10 times
# as fast as sequential; a masked word is predicted better from both sides. A
# failed claim is exit status 1.
#
#   lab_training.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
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
