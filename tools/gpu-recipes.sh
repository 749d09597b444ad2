#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-recipes.sh - whole runs of the program on a GPU:
#
#   tools/gpu-recipes.sh [WHAT...]
#
#   audit      bauta audit of every model folder of $BAUTA_DATA and of
#              tests/data/models, in float32 and in bfloat16, which has kernels
#              for head sizes that are multiples of 8
#   characters nanoGPT's character model: 6 layers, 384 wide, 5,000 steps of
#              64 x 256 characters; validation loss over the last tenth
#   multi30k   examples/multi30k.sh: 8,000 steps, then BLEU
#
# By default all of them. BAUTA is the program (build/bauta), BAUTA_DATA the
# folder of corpora and models (../shared/data), STEPS shortens both trainings,
# and OUT_DIR keeps the runs (a temporary folder). The exit status is 1 if an
# audit fails.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
export BAUTA="${BAUTA:-$here/build/bauta}"
export BAUTA_DATA="${BAUTA_DATA:-$here/../shared/data}"
out=${OUT_DIR:-$(mktemp -d)}
failed=0
passed=0
refused=0

# A pickled folder is refused, and one without weights is no model.
audit() {
    for config in $(find "$BAUTA_DATA" "$here/tests/data/models" \
        -name config.json | sort); do
        folder=$(dirname "$config")
        ls "$folder"/*.safetensors >/dev/null 2>&1 || continue
        for dtype in float32 bfloat16; do
            if "$BAUTA" audit --device cuda --dtype $dtype "$folder" \
                >"$out/audit.log" 2>&1; then
                passed=$((passed + 1))
            elif grep -q 'no GPU kernel for a head_dim' "$out/audit.log"; then
                refused=$((refused + 1))
            else
                failed=$((failed + 1))
                echo "$(basename "$folder") in $dtype:"
                cat "$out/audit.log"
            fi
        done
    done
    echo "audits: $passed passed, $failed failed, $refused without a kernel"
}

characters() {
    begin=$(date +%s)
    "$BAUTA" train --preset gpt2-char --tokenizer chars --context 256 \
        --batch-size 64 --dropout 0.2 --steps "${STEPS:-5000}" \
        --valid-share 0.1 --eval-every 250 --eval-tokens 0 \
        --device cuda --dtype bfloat16 --out "$out/characters" \
        "$BAUTA_DATA/tinyshakespeare/input.txt"
    echo "wall time: $(($(date +%s) - begin)) s"
}

multi30k() {
    "$here/examples/multi30k.sh" "$out/multi30k" --device cuda \
        --dtype bfloat16 ${STEPS:+--steps "$STEPS"}
}

[ $# -gt 0 ] || set -- audit characters multi30k
for what in "$@"; do
    case $what in
    audit | characters | multi30k) $what ;;
    *)
        echo "gpu-recipes.sh: what is $what?" >&2
        exit 2
        ;;
    esac
done
[ $failed = 0 ]
