/* SPDX-License-Identifier: Apache-2.0 */
/* series_corpus.c - columns as documents to train on. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "data/corpus.h"
#include "series/codec.h"
#include "series/synthetic.h"

/* A model that sees a few hundred values again and again learns them by heart.
 * So short columns are repeated only a few times, with differences that are
 * scaled by factors from 0.8 to 1.2 (how a difference continues does not depend
 * on its size), and synthetic series fill up the corpus. */
enum { VALUES_ENOUGH = 20000, COPIES_MAX = 8 };

static double factor_of(size_t copy, size_t copies)
{
    return copy == 0 ? 1.0 : 0.8 + 0.4 * (double)copy / (double)copies;
}

static bauta_status column_add(bauta_corpus *corpus,
                               const bauta_series_codec *codec,
                               const bauta_series *series,
                               const bt_observed *past, size_t copies,
                               bauta_error *err)
{
    size_t start = bt_codec_start(codec);
    size_t bytes = bt_size_mul(2 * sizeof(uint32_t), past->count);
    uint32_t *tokens = bt_alloc(bytes);
    bauta_status status = BAUTA_OK;
    if (!tokens)
        return bt_fail_memory(err, "tokens", bytes);
    for (size_t k = 0; k < copies && !status; k++) {
        size_t count = bt_codec_tokens(codec, series, past, start, past->count,
                                       factor_of(k, copies), tokens);
        status = bauta_corpus_add(corpus, tokens, count, NULL, 0, err);
    }
    bt_free(tokens);
    return status;
}

typedef struct training_tables {
    const bauta_series *const *at;
    size_t count, holdout;
} training_tables;

static size_t rows_of(const training_tables *t, size_t i)
{
    return t->at[i]->rows > t->holdout ? t->at[i]->rows - t->holdout : 0;
}

static size_t values_of(const training_tables *t)
{
    size_t values = 0;
    for (size_t i = 0; i < t->count; i++)
        values =
            bt_size_add(values, bt_size_mul(rows_of(t, i), t->at[i]->columns));
    return values;
}

static bauta_status table_add(bauta_corpus *corpus,
                              const bauta_series_codec *codec,
                              const training_tables *t, size_t i, size_t copies,
                              bauta_error *err)
{
    const bauta_series *series = t->at[i];
    bauta_status status = BAUTA_OK;
    for (size_t c = 0; c < series->columns && !status; c++) {
        bt_observed past = { 0 };
        status = bt_codec_check(codec, series, c, err);
        if (!status)
            status = bt_observed_init(&past, codec, series, c, rows_of(t, i), 0,
                                      err);
        if (!status && past.count < bt_codec_start(codec) + 2)
            status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                             "column \"%s\" has %zu values to train on, and "
                             "with a lag of %zu it needs at least %zu",
                             bt_quote(series->names[c]).text, past.count,
                             codec->lag, bt_codec_start(codec) + 2);
        if (!status)
            status = column_add(corpus, codec, series, &past, copies, err);
        bt_observed_release(&past);
    }
    return status;
}

/* Synthetic series until there are values enough; `values` are there. The
 * calendar is that of the first table. */
static bauta_status synthetic_add(bauta_corpus *corpus,
                                  const bauta_series_codec *codec,
                                  const training_tables *t, size_t values,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; values < VALUES_ENOUGH && !status; i++) {
        bt_observed past;
        status = bt_synthetic_init(&past, codec, i, err);
        if (!status)
            status = column_add(corpus, codec, t->at[0], &past, 1, err);
        bt_observed_release(&past);
        values += BT_SYNTHETIC_VALUES;
    }
    return status;
}

bauta_status bauta_series_corpus(bauta_corpus **out,
                                 const bauta_series_codec *codec,
                                 const bauta_series *const *all, size_t count,
                                 size_t holdout, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(codec, err);
    BT_NEED(all, err);
    for (size_t i = 0; i < count; i++)
        BT_NEED(all[i], err);
    const training_tables t = { all, count, holdout };
    bauta_status status = bauta_corpus_create(out, err);
    if (status)
        return status;
    if (codec->calendar)
        (*out)->label_limit = (uint32_t)codec->bins;
    size_t values = values_of(&t);
    size_t copies = bt_size_min(VALUES_ENOUGH / (values + 1), COPIES_MAX);
    copies = bt_size_max(copies, 1);
    for (size_t i = 0; i < count && !status; i++)
        status = table_add(*out, codec, &t, i, copies, err);
    if (!status && values)
        status = synthetic_add(*out, codec, &t, copies * values, err);
    if (status) {
        bauta_corpus_free(*out);
        *out = NULL;
    }
    return status;
}
