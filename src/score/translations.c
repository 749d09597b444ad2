/* SPDX-License-Identifier: Apache-2.0 */
/* translations.c - walk over the hypotheses and their references. */
#include "score/score.h"

#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

static size_t reference_count(const bauta_translations *texts, size_t i)
{
    size_t count = 0;
    for (size_t set = 0; set < texts->sets; set++)
        count += texts->references[set * texts->count + i] != NULL;
    return count;
}

static bauta_status texts_check(const bauta_translations *texts,
                                bauta_error *err)
{
    if (texts->count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there are no sentences");
    if (texts->sets == 0 || texts->sets >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are %zu sets of references, not 1 or more",
                       texts->sets);
    if (bt_size_mul(texts->count, texts->sets) >
        PTRDIFF_MAX / sizeof(*texts->references))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu sentences in %zu sets of references are more than "
                       "memory holds",
                       texts->count, texts->sets);
    BT_NEED(texts->hypotheses, err);
    BT_NEED(texts->references, err);
    for (size_t i = 0; i < texts->count; i++) {
        if (!texts->hypotheses[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "hypothesis %zu is NULL",
                           i);
        if (!reference_count(texts, i))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sentence %zu has no reference in any set", i);
    }
    return BAUTA_OK;
}

static size_t text_length(const char *text, const size_t *lengths, size_t i)
{
    return lengths ? lengths[i] : strlen(text);
}

bauta_status bt_translation_read(bt_codepoints *line,
                                 const bauta_translations *texts, size_t i,
                                 bool lowercase, bt_line_fn *add, void *user,
                                 bauta_error *err)
{
    const char *text = texts->hypotheses[i];
    bauta_status status = bt_codepoints_decode(
        line, text, text_length(text, texts->hypothesis_lengths, i), lowercase,
        err);
    if (!status)
        status = add(user, err);
    for (size_t set = 0; set < texts->sets && !status; set++) {
        size_t at = set * texts->count + i;
        text = texts->references[at];
        if (!text)
            continue;
        status = bt_codepoints_decode(
            line, text, text_length(text, texts->reference_lengths, at),
            lowercase, err);
        if (!status)
            status = add(user, err);
    }
    return status;
}

static void counts_add(bt_ngram_counts *sum, const bt_ngram_counts *c)
{
    for (size_t n = 0; n < BT_LEN(c->matches); n++) {
        sum->matches[n] += c->matches[n];
        sum->hypothesis[n] += c->hypothesis[n];
        sum->reference[n] += c->reference[n];
    }
    sum->length += c->length;
    sum->reference_length += c->reference_length;
}

bauta_status bt_translations_count(bt_ngram_counts *sum, double *scores,
                                   const bauta_translations *texts,
                                   bt_sentence_fn *count, void *user,
                                   bauta_error *err)
{
    bauta_status status = texts_check(texts, err);
    for (size_t i = 0; !status && i < texts->count; i++) {
        bt_ngram_counts c = { .length = 0 };
        status = count(user, i, &c, scores ? &scores[i] : NULL, err);
        if (!status)
            counts_add(sum, &c);
    }
    return status;
}

void bt_translations_nrefs(char text[24], const bauta_translations *texts)
{
    size_t first = reference_count(texts, 0);
    snprintf(text, 24, "%zu", first);
    for (size_t i = 1; i < texts->count; i++)
        if (reference_count(texts, i) != first)
            strcpy(text, "var");
}
