#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shakespeare-char.sh - a character model of Shakespeare in a few minutes.
#
# nanoGPT's model for a CPU: 4 layers, 4 heads, 128 wide, context 64, 2,000
# steps of 12 sequences. nanoGPT reports a validation loss of 1.88, measured on
# 20 random batches; here the last tenth of the text is validated on as a whole,
# and then once more in windows that overlap by half, so that every character
# but the first ones has 32 others before it.
#
#   examples/shakespeare-char.sh [RUN] [OPTION...]
#
# The text is $BAUTA_DATA/tinyshakespeare/input.txt; options go to bauta train.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
bauta=${BAUTA:-$here/build/bauta}
data=${BAUTA_DATA:-$here/../shared/data}
run=${1:-shakespeare-char}
[ $# = 0 ] || shift

begin=$(date +%s)
"$bauta" train --preset gpt2-tiny --context 64 --tokenizer chars \
    --valid-share 0.1 --eval-every 500 --save-every 50 --keep 6 --average 6 \
    --out "$run" "$@" "$data/tinyshakespeare/input.txt"
end=$(date +%s)
echo "wall time: $((end - begin)) s"
text=$data/tinyshakespeare/input.txt
held=$(mktemp)
trap 'rm -f "$held"' EXIT
tail -c $(($(wc -c <"$text") / 10)) "$text" >"$held"
"$bauta" score --perplexity "$run" "$held"
