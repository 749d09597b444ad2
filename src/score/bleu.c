/* SPDX-License-Identifier: Apache-2.0 */
/* bleu.c - BLEU: n-gram precision with a brevity penalty.
 *
 * Papineni et al., "BLEU: a method for automatic evaluation of machine
 * translation", ACL 2002; smoothing after Chen and Cherry, "A systematic
 * comparison of smoothing techniques for sentence-level BLEU", WMT 2014. Where
 * these leave a choice, sacrebleu's is taken. */
#include "score/score.h"

#include "base/sized.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SMOOTHING_MAX = 1000000 };

static const char *const tokenizer_names[] = {
    [BAUTA_TOKENIZE_13A] = "13a",
    [BAUTA_TOKENIZE_INTL] = "intl",
    [BAUTA_TOKENIZE_CHAR] = "char",
    [BAUTA_TOKENIZE_NONE] = "none",
};
static const struct {
    const char *name;
    double value; /* default; negative: the method has no value */
} smoothings[] = {
    [BAUTA_SMOOTH_EXP] = { "exp", -1 },
    [BAUTA_SMOOTH_FLOOR] = { "floor", 0.1 },
    [BAUTA_SMOOTH_ADD_K] = { "add-k", 1 },
    [BAUTA_SMOOTH_NONE] = { "none", -1 },
};

/* One computation: its arguments and scratch memory. */
typedef struct bleu_run {
    bauta_translations texts;
    bauta_bleu_options options;
    bt_codepoints line, spare;
    bt_word_ids words;
    bt_ngrams ngrams;
} bleu_run;

static void run_release(bleu_run *r)
{
    bt_codepoints_release(&r->line);
    bt_codepoints_release(&r->spare);
    bt_word_ids_release(&r->words);
    bt_ngrams_release(&r->ngrams);
}

/* ---- The options --------------------------------------------------------- */

static bauta_status options_check(const bauta_bleu_options *o, bauta_error *err)
{
    if ((size_t)o->tokenizer >= BT_LEN(tokenizer_names))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no tokenizer %d of BLEU", (int)o->tokenizer);
    if ((size_t)o->smoothing >= BT_LEN(smoothings))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no smoothing %d of BLEU", (int)o->smoothing);
    if (!(o->smoothing_value <= SMOOTHING_MAX))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "smoothing_value is %g, not from 0 to %d",
                       o->smoothing_value, SMOOTHING_MAX);
    if (o->max_ngram_order == 0 || o->max_ngram_order > BAUTA_NGRAM_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "max_ngram_order is %zu, not from 1 to %d",
                       o->max_ngram_order, BAUTA_NGRAM_MAX);
    return BAUTA_OK;
}

static double smoothing_value(const bauta_bleu_options *o)
{
    return o->smoothing_value < 0 ? smoothings[o->smoothing].value
                                  : o->smoothing_value;
}

static void signature_write(char *text, size_t size,
                            const bauta_translations *texts,
                            const bauta_bleu_options *o)
{
    char nrefs[24], value[32] = "";
    bt_translations_nrefs(nrefs, texts);
    if (smoothings[o->smoothing].value >= 0) {
        // Not by %.2f, which writes a comma in some locales.
        int hundredths = (int)lrint(100 * smoothing_value(o));
        snprintf(value, sizeof(value), "[%d.%02d]", hundredths / 100,
                 hundredths % 100);
    }
    snprintf(text, size,
             "nrefs:%s|case:%s|eff:%s|tok:%s|smooth:%s%s|version:bauta-%s",
             nrefs, o->lowercase ? "lc" : "mixed",
             o->effective_order ? "yes" : "no", tokenizer_names[o->tokenizer],
             smoothings[o->smoothing].name, value, bauta_version());
}

/* ---- Counting ------------------------------------------------------------ */

/* Add the words of r->line as a sequence. */
static bauta_status line_add(void *user, bauta_error *err)
{
    bleu_run *r = user;
    bt_word_range word = { 0, 0 };
    bauta_status status =
        bt_bleu_tokenize(r->options.tokenizer, &r->line, &r->spare, err);
    while (!status && bt_codepoints_next_word(&r->line, &word))
        status = bt_word_ids_add(&r->words, r->line.at + word.start,
                                 word.length, err);
    return status ? status : bt_word_ids_end_sequence(&r->words, err);
}

/* The length of the reference that is closest in length to the hypothesis; the
 * shorter one of two. */
static size_t closest_length(const bt_ngrams *ngrams)
{
    size_t length = bt_ngrams_length(ngrams, 0);
    size_t closest = bt_ngrams_length(ngrams, 1);
    for (size_t k = 2; k < ngrams->sequences; k++) {
        size_t other = bt_ngrams_length(ngrams, k);
        size_t off = other > length ? other - length : length - other;
        size_t least = closest > length ? closest - length : length - closest;
        if (off < least || (off == least && other < closest))
            closest = other;
    }
    return closest;
}

/* The counts of an earlier call, to be added to. */
static bt_ngram_counts counts_of(const bauta_bleu_score *score)
{
    bt_ngram_counts c = { .length = score->hypothesis_length,
                          .reference_length = score->reference_length };
    memcpy(c.matches, score->matches, sizeof(score->matches));
    memcpy(c.hypothesis, score->totals, sizeof(score->totals));
    return c;
}

/* ---- The score ----------------------------------------------------------- */

static double brevity_penalty(const bt_ngram_counts *c)
{
    if (c->length >= c->reference_length)
        return 1;
    return c->length ? exp(1 - (double)c->reference_length / (double)c->length)
                     : 0;
}

/* Precisions in percent; returns the number of orders that the score averages.
 */
static size_t precisions_compute(double *precisions, const bt_ngram_counts *c,
                                 const bauta_bleu_options *o)
{
    double halves = 1, value = smoothing_value(o);
    size_t effective = o->max_ngram_order;
    for (size_t n = 0; n < o->max_ngram_order; n++) {
        double more = o->smoothing == BAUTA_SMOOTH_ADD_K && n > 0 ? value : 0;
        double right = (double)c->matches[n] + more;
        double total = (double)c->hypothesis[n] + more;
        if (total == 0)
            break;
        if (o->effective_order)
            effective = n + 1;
        if (right == 0 && o->smoothing == BAUTA_SMOOTH_EXP)
            precisions[n] = 100 / ((halves *= 2) * total);
        else if (right == 0 && o->smoothing == BAUTA_SMOOTH_FLOOR)
            precisions[n] = 100 * value / total;
        else
            precisions[n] = 100 * right / total;
    }
    return effective;
}

/* The geometric mean of the precisions, times the brevity penalty. */
static double score_compute(double *precisions, const bt_ngram_counts *c,
                            const bauta_bleu_options *o)
{
    uint64_t any = 0;
    double logs = 0;
    for (size_t n = 0; n < o->max_ngram_order; n++) {
        precisions[n] = 0;
        any |= c->matches[n];
    }
    if (!any)
        return 0;
    size_t orders = precisions_compute(precisions, c, o);
    for (size_t n = 0; n < orders; n++) {
        if (precisions[n] == 0)
            return 0;
        logs += log(precisions[n]);
    }
    return brevity_penalty(c) * exp(logs / (double)orders);
}

static bauta_status sentence_count(void *user, size_t i, bt_ngram_counts *c,
                                   double *score, bauta_error *err)
{
    bleu_run *r = user;
    double precisions[BAUTA_NGRAM_MAX];
    bt_word_ids_clear(&r->words);
    bauta_status status = bt_translation_read(
        &r->line, &r->texts, i, r->options.lowercase, line_add, r, err);
    if (!status)
        status = bt_word_ids_ngrams(&r->words, &r->ngrams, err);
    if (status)
        return status;
    c->length = bt_ngrams_length(&r->ngrams, 0);
    c->reference_length = closest_length(&r->ngrams);
    for (size_t n = 0; n < r->options.max_ngram_order; n++) {
        bt_ngrams_next_order(&r->ngrams);
        c->matches[n] = r->ngrams.shared[0];
        c->hypothesis[n] = bt_ngrams_total(&r->ngrams, 0);
    }
    if (score)
        *score = score_compute(precisions, c, &r->options);
    return BAUTA_OK;
}

static bauta_bleu_score score_of(const bt_ngram_counts *c,
                                 const bauta_translations *texts,
                                 const bauta_bleu_options *o)
{
    bauta_bleu_score score = BAUTA_BLEU_SCORE_INIT;
    score.score = score_compute(score.precisions, c, o);
    for (size_t n = 0; n < o->max_ngram_order; n++) {
        score.matches[n] = c->matches[n];
        score.totals[n] = c->hypothesis[n];
    }
    score.brevity_penalty = brevity_penalty(c);
    score.hypothesis_length = c->length;
    score.reference_length = c->reference_length;
    signature_write(score.signature, sizeof(score.signature), texts, o);
    return score;
}

bauta_status bauta_bleu(const bauta_translations *texts,
                        const bauta_bleu_options *options,
                        bauta_bleu_score *score, double *sentences,
                        bauta_error *err)
{
    bleu_run r = { .texts = BAUTA_TRANSLATIONS_INIT };
    bauta_bleu_score own;
    bt_ngram_counts sum = { .length = 0 };
    BT_NEED(score, err);
    BT_NEED(texts, err);
    bauta_status status =
        BT_SIZED_CHECK(score, BAUTA_BLEU_SCORE_INIT, "score", err);
    if (!status)
        status = BT_SIZED_READ(&r.options, BAUTA_BLEU_OPTIONS_INIT, options,
                               "options", err);
    if (!status)
        status = BT_SIZED_READ(&r.texts, BAUTA_TRANSLATIONS_INIT, texts,
                               "texts", err);
    if (!status)
        status = options_check(&r.options, err);
    if (!status && r.options.accumulate) {
        status =
            BT_SIZED_READ(&own, BAUTA_BLEU_SCORE_INIT, score, "score", err);
        sum = counts_of(&own);
    }
    if (!status)
        status = bt_translations_count(&sum, sentences, &r.texts,
                                       sentence_count, &r, err);
    if (!status) {
        own = score_of(&sum, &r.texts, &r.options);
        BT_SIZED_WRITE(score, &own);
    }
    run_release(&r);
    return status;
}
