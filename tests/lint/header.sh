#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# header.sh - every public header compiles alone, as C and as C++.
#
#   header.sh INCLUDE_DIR c CC
#   header.sh INCLUDE_DIR c++
set -eu
include=$1

try() { # COMPILER OPTION...: the header, and the initialisers it offers
    "$@" -I"$include" -Wall -Wextra -Wpedantic -Werror -fsyntax-only - <<'END'
#include <bauta.h>
#include <bauta.h>
int main(void)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_loss_options loss = BAUTA_LOSS_OPTIONS_INIT;
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    bauta_bleu_options bleu = BAUTA_BLEU_OPTIONS_INIT;
    bauta_bleu_score bleu_score = BAUTA_BLEU_SCORE_INIT;
    bauta_chrf_options chrf = BAUTA_CHRF_OPTIONS_INIT;
    bauta_chrf_score chrf_score = BAUTA_CHRF_SCORE_INIT;
    bauta_picture picture = BAUTA_PICTURE_INIT;
    bauta_picture_options sheet = BAUTA_PICTURE_OPTIONS_INIT;
    bauta_gpu_pages pages = BAUTA_GPU_PAGES_INIT;
    bauta_embed_options embed = BAUTA_EMBED_OPTIONS_INIT;
    bauta_top_tokens_options top = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    bauta_perplexity_options perplexity = BAUTA_PERPLEXITY_OPTIONS_INIT;
    bauta_perplexity_result measured = BAUTA_PERPLEXITY_RESULT_INIT;
    bauta_run_options run = BAUTA_RUN_OPTIONS_INIT;
    bauta_run_evaluation evaluation = BAUTA_RUN_EVALUATION_INIT;
    bauta_run_result result = BAUTA_RUN_RESULT_INIT;
    return options.size && shape.size && tensor.size && batch.size &&
                   outputs.size && loss.size && texts.size && bleu.size &&
                   bleu_score.size && chrf.size && chrf_score.size &&
                   picture.size && sheet.size && pages.size &&
                   embed.size && top.size && perplexity.size &&
                   measured.size && run.size && evaluation.size && result.size
               ? BAUTA_OK
               : BAUTA_ERR_ARGUMENT;
}
END
}

alone() { # COMPILER OPTION...: each header by itself
    for header in "$include"/bauta/*.h; do
        echo "#include <bauta/${header##*/}>" |
            "$@" -I"$include" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -
    done
}

if [ "$2" = c ]; then
    alone "$3" -x c -std=c99
    try "$3" -x c -std=c99
    try "$3" -x c -std=c17
    exit 0
fi
for cxx in "${CXX:-}" c++ g++ clang++; do
    if [ -n "$cxx" ] && command -v "$cxx" >/dev/null; then
        alone "$cxx" -x c++ -std=c++11
        try "$cxx" -x c++ -std=c++11
        try "$cxx" -x c++ -std=c++17
        exit 0
    fi
done
echo "there is no C++ compiler"
exit 77
