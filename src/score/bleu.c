/* SPDX-License-Identifier: Apache-2.0 */
/* bleu.c - BLEU: how many n-grams are right, and whether there are enough.
 *
 * Papineni et al., "BLEU: a method for automatic evaluation of machine
 * translation", ACL 2002; smoothing after Chen and Cherry, "A systematic
 * comparison of smoothing techniques for sentence-level BLEU", WMT 2014. What
 * these leave open is decided as sacrebleu decides it. */
#include "score/score.h"

#include "base/error.h"

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
    double value; /* negative: it has none */
} smoothings[] = {
    [BAUTA_SMOOTH_EXP] = { "exp", -1 },
    [BAUTA_SMOOTH_FLOOR] = { "floor", 0.1 },
    [BAUTA_SMOOTH_ADD_K] = { "add-k", 1 },
    [BAUTA_SMOOTH_NONE] = { "none", -1 },
};

/* What the score is computed from, of one sentence or of many. */
typedef struct counts {
    uint64_t matches[BAUTA_NGRAM_MAX], totals[BAUTA_NGRAM_MAX];
    uint64_t length, reference_length;
} counts;

typedef struct workspace {
    bt_codes line, spare;
    bt_score_words words;
    bt_grams grams;
} workspace;

static void workspace_release(workspace *w)
{
    bt_codes_release(&w->line);
    bt_codes_release(&w->spare);
    bt_score_words_release(&w->words);
    bt_grams_release(&w->grams);
}

/* ---- The options --------------------------------------------------------- */

static bauta_status options_check(const bauta_bleu_options *o, bauta_error *err)
{
    if (o->size != sizeof(*o))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "options.size is %zu, not %zu: start from "
                       "BAUTA_BLEU_OPTIONS_INIT",
                       o->size, sizeof(*o));
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
    if (o->order == 0 || o->order > BAUTA_NGRAM_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "order is %zu, not from 1 to %d", o->order,
                       BAUTA_NGRAM_MAX);
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
        // Not by %.2f, which would write a comma where people do.
        int hundredths = (int)lrint(100 * smoothing_value(o));
        snprintf(value, sizeof(value), "[%d.%02d]", hundredths / 100,
                 hundredths % 100);
    }
    snprintf(text, size,
             "nrefs:%s|case:%s|eff:%s|tok:%s|smooth:%s%s|version:bauta-%s",
             nrefs, o->lowercase ? "lc" : "mixed", o->effective ? "yes" : "no",
             tokenizer_names[o->tokenizer], smoothings[o->smoothing].name,
             value, bauta_version());
}

/* ---- Counting ------------------------------------------------------------ */

/* The words of the sentence that w->line holds join the others. */
static bauta_status words_read(workspace *w, const bauta_bleu_options *o,
                               bauta_error *err)
{
    bt_word word = { 0, 0 };
    bauta_status status =
        bt_bleu_tokenize(o->tokenizer, &w->line, &w->spare, err);
    while (!status && bt_codes_word(&w->line, &word))
        status = bt_score_words_add(&w->words, w->line.at + word.start,
                                    word.length, err);
    return status ? status : bt_score_words_end(&w->words, err);
}

static bauta_status sentence_read(workspace *w, const bauta_translations *texts,
                                  size_t i, const bauta_bleu_options *o,
                                  bauta_error *err)
{
    bt_score_words_clear(&w->words);
    bauta_status status =
        bt_hypothesis_read(&w->line, texts, i, o->lowercase, err);
    if (!status)
        status = words_read(w, o, err);
    for (size_t set = 0; set < texts->sets && !status; set++) {
        bool there;
        status = bt_reference_read(&w->line, &there, texts, set, i,
                                   o->lowercase, err);
        if (!status && there)
            status = words_read(w, o, err);
    }
    return status ? status : bt_score_words_grams(&w->words, &w->grams, err);
}

/* The length of the reference that is nearest to the sentence in length, the
 * shorter of two. */
static size_t nearest_length(const bt_grams *grams)
{
    size_t length = bt_grams_length(grams, 0);
    size_t nearest = bt_grams_length(grams, 1);
    for (size_t k = 2; k < grams->sequences; k++) {
        size_t other = bt_grams_length(grams, k);
        size_t off = other > length ? other - length : length - other;
        size_t least = nearest > length ? nearest - length : length - nearest;
        if (off < least || (off == least && other < nearest))
            nearest = other;
    }
    return nearest;
}

static bauta_status sentence_count(counts *c, workspace *w,
                                   const bauta_translations *texts, size_t i,
                                   const bauta_bleu_options *o,
                                   bauta_error *err)
{
    bauta_status status = sentence_read(w, texts, i, o, err);
    if (status)
        return status;
    *c = (counts){ .length = bt_grams_length(&w->grams, 0),
                   .reference_length = nearest_length(&w->grams) };
    for (size_t n = 0; n < o->order; n++) {
        bt_grams_next(&w->grams);
        c->matches[n] = w->grams.shared[0];
        c->totals[n] = bt_grams_total(&w->grams, 0);
    }
    return BAUTA_OK;
}

static void counts_add(counts *sum, const counts *c)
{
    for (size_t n = 0; n < BAUTA_NGRAM_MAX; n++) {
        sum->matches[n] += c->matches[n];
        sum->totals[n] += c->totals[n];
    }
    sum->length += c->length;
    sum->reference_length += c->reference_length;
}

/* What *score holds of other sentences. */
static counts counts_of(const bauta_bleu_score *score)
{
    counts c = { .length = score->hypothesis_length,
                 .reference_length = score->reference_length };
    memcpy(c.matches, score->matches, sizeof(c.matches));
    memcpy(c.totals, score->totals, sizeof(c.totals));
    return c;
}

/* ---- The score ----------------------------------------------------------- */

static double brevity(const counts *c)
{
    if (c->length >= c->reference_length)
        return 1;
    return c->length ? exp(1 - (double)c->reference_length / (double)c->length)
                     : 0;
}

/* Precisions in percent; returns of how many the score is the mean. */
static size_t precisions_compute(double *precisions, const counts *c,
                                 const bauta_bleu_options *o)
{
    double halves = 1, value = smoothing_value(o);
    size_t effective = o->order;
    for (size_t n = 0; n < o->order; n++) {
        double more = o->smoothing == BAUTA_SMOOTH_ADD_K && n > 0 ? value : 0;
        double right = (double)c->matches[n] + more;
        double total = (double)c->totals[n] + more;
        if (total == 0)
            break;
        if (o->effective)
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

/* The geometric mean of the precisions, for sentences that are long enough. */
static double score_compute(double *precisions, const counts *c,
                            const bauta_bleu_options *o)
{
    uint64_t any = 0;
    double logs = 0;
    for (size_t n = 0; n < o->order; n++) {
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
    return brevity(c) * exp(logs / (double)orders);
}

static void score_write(bauta_bleu_score *score, const counts *c,
                        const bauta_translations *texts,
                        const bauta_bleu_options *o)
{
    *score = (bauta_bleu_score)BAUTA_BLEU_SCORE_INIT;
    score->score = score_compute(score->precisions, c, o);
    for (size_t n = 0; n < o->order; n++) {
        score->matches[n] = c->matches[n];
        score->totals[n] = c->totals[n];
    }
    score->brevity = brevity(c);
    score->hypothesis_length = c->length;
    score->reference_length = c->reference_length;
    signature_write(score->signature, sizeof(score->signature), texts, o);
}

bauta_status bauta_bleu(const bauta_translations *texts,
                        const bauta_bleu_options *options,
                        bauta_bleu_score *score, double *sentences,
                        bauta_error *err)
{
    bauta_bleu_options o = BAUTA_BLEU_OPTIONS_INIT;
    workspace w = { 0 };
    counts sum = { 0 };
    BT_NEED(score, err);
    BT_NEED_SIZE(score, bauta_bleu_score, "BAUTA_BLEU_SCORE_INIT", err);
    if (options)
        o = *options;
    bauta_status status = options_check(&o, err);
    if (!status)
        status = bt_translations_check(texts, err);
    if (!status && o.add)
        sum = counts_of(score);
    for (size_t i = 0; !status && i < texts->count; i++) {
        double precisions[BAUTA_NGRAM_MAX];
        counts c;
        status = sentence_count(&c, &w, texts, i, &o, err);
        if (status)
            break;
        counts_add(&sum, &c);
        if (sentences)
            sentences[i] = score_compute(precisions, &c, &o);
    }
    if (!status)
        score_write(score, &sum, texts, &o);
    workspace_release(&w);
    return status;
}
