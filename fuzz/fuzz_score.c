/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_score.c - any bytes as a sentence and its references.
 *
 * The first two bytes choose the options; after them the first line is the
 * sentence and the others are its references. Scores stay within their range,
 * no count is larger than its total, and a sentence compared with itself has
 * the best score. */
#include "bauta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 8 };

static void must(bool fine)
{
    if (!fine)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void bleu_check(const bauta_translations *texts, const uint8_t *bytes,
                       bool itself)
{
    bauta_bleu_options o = BAUTA_BLEU_OPTIONS_INIT;
    bauta_bleu_score s = BAUTA_BLEU_SCORE_INIT;
    double alone;
    o.tokenizer = (bauta_bleu_tokenizer)(bytes[0] & 3);
    o.smoothing = (bauta_bleu_smoothing)(bytes[0] >> 2 & 3);
    o.lowercase = bytes[0] >> 4 & 1;
    o.effective_order = bytes[0] >> 5 & 1;
    o.max_ngram_order = 1u + (bytes[1] & 15);
    must(bauta_bleu(texts, &o, &s, &alone, NULL) == BAUTA_OK);
    must(s.score >= 0 && s.score <= 100 + 1e-9 && alone == s.score);
    must(s.totals[0] == s.hypothesis_length);
    for (size_t n = 0; n < o.max_ngram_order; n++) {
        must(s.matches[n] <= s.totals[n]);
        must(!itself || s.matches[n] == s.totals[n]);
    }
}

static void chrf_check(const bauta_translations *texts, const uint8_t *bytes,
                       bool itself)
{
    bauta_chrf_options o = BAUTA_CHRF_OPTIONS_INIT;
    bauta_chrf_score s = BAUTA_CHRF_SCORE_INIT;
    double alone;
    o.char_order = bytes[1] & 15;
    o.word_order = o.char_order ? bytes[1] >> 4 & 3 : 2;
    o.lowercase = bytes[0] >> 4 & 1;
    o.whitespace = bytes[0] >> 6 & 1;
    o.epsilon = bytes[0] >> 7 & 1;
    must(bauta_chrf(texts, &o, &s, &alone, NULL) == BAUTA_OK);
    must(s.score >= 0 && s.score <= 100 + 1e-9 && alone == s.score);
    for (size_t n = 0; n < s.orders; n++) {
        must(s.matches[n] <= s.hypothesis_totals[n]);
        must(s.matches[n] <= s.reference_totals[n]);
        must(!itself || s.matches[n] == s.hypothesis_totals[n]);
    }
    if (itself && !o.epsilon && s.matches[0])
        must(fabs(s.score - 100) < 1e-9);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *lines[1 + SETS_MAX], *at = (const char *)bytes + 2;
    size_t lengths[1 + SETS_MAX], count = 0;
    bauta_translations texts = BAUTA_TRANSLATIONS_INIT;
    if (size < 2)
        return 0;
    for (size_t left = size - 2; count < 1 + SETS_MAX; count++) {
        const char *end = memchr(at, '\n', left);
        lines[count] = at;
        lengths[count] = end ? (size_t)(end - at) : left;
        if (!end) {
            count++;
            break;
        }
        left -= lengths[count] + 1;
        at = end + 1;
    }
    texts.count = 1;
    texts.hypotheses = texts.references = lines;
    texts.hypothesis_lengths = texts.reference_lengths = lengths;
    bleu_check(&texts, bytes, true);
    chrf_check(&texts, bytes, true);
    texts.references = lines + 1;
    texts.reference_lengths = lengths + 1;
    texts.sets = count - 1;
    if (texts.sets) {
        bleu_check(&texts, bytes, false);
        chrf_check(&texts, bytes, false);
    }
    return 0;
}
