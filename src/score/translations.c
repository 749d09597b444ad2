/* SPDX-License-Identifier: Apache-2.0 */
/* translations.c - the sentences to be scored, and their references. */
#include "score/score.h"

#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

static size_t references_of(const bauta_translations *texts, size_t i)
{
    size_t count = 0;
    for (size_t set = 0; set < texts->sets; set++)
        count += texts->references[set * texts->count + i] != NULL;
    return count;
}

bauta_status bt_translations_check(const bauta_translations *texts,
                                   bauta_error *err)
{
    BT_NEED(texts, err);
    if (texts->size != sizeof(*texts))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "texts.size is %zu, not %zu: start from "
                       "BAUTA_TRANSLATIONS_INIT",
                       texts->size, sizeof(*texts));
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
        if (!references_of(texts, i))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sentence %zu has no reference in any set", i);
    }
    return BAUTA_OK;
}

bauta_status bt_hypothesis_read(bt_codes *codes,
                                const bauta_translations *texts, size_t i,
                                bool lowercase, bauta_error *err)
{
    const char *text = texts->hypotheses[i];
    size_t length =
        texts->hypothesis_lengths ? texts->hypothesis_lengths[i] : strlen(text);
    return bt_codes_read(codes, text, length, lowercase, err);
}

bauta_status bt_reference_read(bt_codes *codes, bool *there,
                               const bauta_translations *texts, size_t set,
                               size_t i, bool lowercase, bauta_error *err)
{
    size_t at = set * texts->count + i;
    const char *text = texts->references[at];
    *there = text != NULL;
    if (!text)
        return BAUTA_OK;
    size_t length =
        texts->reference_lengths ? texts->reference_lengths[at] : strlen(text);
    return bt_codes_read(codes, text, length, lowercase, err);
}

void bt_translations_nrefs(char text[24], const bauta_translations *texts)
{
    size_t first = references_of(texts, 0);
    snprintf(text, 24, "%zu", first);
    for (size_t i = 1; i < texts->count; i++)
        if (references_of(texts, i) != first)
            strcpy(text, "var");
}
