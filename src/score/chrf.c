/* SPDX-License-Identifier: Apache-2.0 */
/* chrf.c - chrF: F-score of character n-grams, and for chrF++ of word n-grams.
 *
 * Popovic, "chrF: character n-gram F-score for automatic MT evaluation", WMT
 * 2015, and "chrF++: words helping character n-grams", WMT 2017. Where these
 * leave a choice, sacrebleu's is taken. */
#include "score/score.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

enum { BETA_MAX = 1000 };

/* One computation: its arguments and scratch memory. */
typedef struct chrf_run {
    bauta_translations texts;
    bauta_chrf_options options;
    bt_codepoints line;
    bt_word_ids words;
    bt_ngrams characters, word_ngrams;
    bt_ngram_counts *counts; /* (references) */
    size_t room;
} chrf_run;

static void run_release(chrf_run *r)
{
    bt_codepoints_release(&r->line);
    bt_word_ids_release(&r->words);
    bt_ngrams_release(&r->characters);
    bt_ngrams_release(&r->word_ngrams);
    bt_free(r->counts);
}

/* ---- The options --------------------------------------------------------- */

static bauta_status options_check(const bauta_chrf_options *o, bauta_error *err)
{
    if (o->char_order > BAUTA_NGRAM_MAX || o->word_order > BAUTA_NGRAM_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "n-grams of %zu characters and %zu words, not of up to "
                       "%d",
                       o->char_order, o->word_order, BAUTA_NGRAM_MAX);
    if (!o->char_order && !o->word_order)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "n-grams neither of characters nor of words");
    if (o->beta > BETA_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "beta is %zu, not from 0 to %d",
                       o->beta, BETA_MAX);
    return BAUTA_OK;
}

static void names_write(bauta_chrf_score *score,
                        const bauta_translations *texts,
                        const bauta_chrf_options *o)
{
    static const char pluses[BAUTA_NGRAM_MAX + 1] = "++++++++++++++++";
    char nrefs[24];
    bt_translations_nrefs(nrefs, texts);
    snprintf(score->name, sizeof(score->name), "chrF%zu%.*s", o->beta,
             (int)o->word_order, pluses);
    snprintf(score->signature, sizeof(score->signature),
             "nrefs:%s|case:%s|eff:%s|nc:%zu|nw:%zu|space:%s|version:bauta-%s",
             nrefs, o->lowercase ? "lc" : "mixed", o->epsilon ? "no" : "yes",
             o->char_order, o->word_order, o->whitespace ? "yes" : "no",
             bauta_version());
}

/* ---- Reading ------------------------------------------------------------- */

static bool is_punctuation(uint32_t c)
{
    return c > ' ' && c < 0x7F &&
           strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)c);
}

/* Add a word. Punctuation at its end, or else at its start, becomes a word of
 * its own. */
static bauta_status word_add(bt_word_ids *words, const uint32_t *codes,
                             size_t length, bauta_error *err)
{
    size_t first = length;
    if (length > 1 && is_punctuation(codes[length - 1]))
        first = length - 1;
    else if (length > 1 && is_punctuation(codes[0]))
        first = 1;
    bauta_status status = bt_word_ids_add(words, codes, first, err);
    if (!status && first < length)
        status = bt_word_ids_add(words, codes + first, length - first, err);
    return status;
}

static void spaces_remove(bt_codepoints *line)
{
    size_t count = 0;
    for (size_t i = 0; i < line->count; i++)
        if (!bt_is_python_space(line->at[i]))
            line->at[count++] = line->at[i];
    line->count = count;
}

/* Add r->line as a sequence of words, if words count, and one of characters. */
static bauta_status line_add(void *user, bauta_error *err)
{
    chrf_run *r = user;
    bt_word_range word = { 0, 0 };
    bauta_status status = BAUTA_OK;
    while (!status && r->options.word_order &&
           bt_codepoints_next_word(&r->line, &word))
        status = word_add(&r->words, r->line.at + word.start, word.length, err);
    if (!status)
        status = bt_word_ids_end_sequence(&r->words, err);
    if (status)
        return status;
    if (!r->options.whitespace)
        spaces_remove(&r->line);
    return bt_ngrams_add(&r->characters, r->line.at, r->line.count, err);
}

static bauta_status sentence_read(chrf_run *r, size_t i, bauta_error *err)
{
    bt_word_ids_clear(&r->words);
    bt_ngrams_clear(&r->characters);
    bauta_status status = bt_translation_read(
        &r->line, &r->texts, i, r->options.lowercase, line_add, r, err);
    if (!status)
        status = bt_ngrams_begin(&r->characters, err);
    return status ? status
                  : bt_word_ids_ngrams(&r->words, &r->word_ngrams, err);
}

/* ---- Counting ------------------------------------------------------------ */

/* Count n-grams of orders 1 to `orders` for every reference, from index `at`
 * on. If a reference has none of an order, the hypothesis counts none either.
 */
static void ngrams_count(bt_ngram_counts *c, bt_ngrams *ngrams, size_t at,
                         size_t orders)
{
    for (size_t end = at + orders; at < end; at++) {
        bt_ngrams_next_order(ngrams);
        for (size_t k = 1; k < ngrams->sequences; k++) {
            size_t total = bt_ngrams_total(ngrams, k);
            c[k - 1].matches[at] = ngrams->shared[k];
            c[k - 1].reference[at] = total;
            c[k - 1].hypothesis[at] = total ? bt_ngrams_total(ngrams, 0) : 0;
        }
    }
}

/* The counts of an earlier call, to be added to. */
static bt_ngram_counts counts_of(const bauta_chrf_score *score)
{
    bt_ngram_counts c = { .length = 0 };
    memcpy(c.matches, score->matches, sizeof(c.matches));
    memcpy(c.hypothesis, score->hypothesis_totals, sizeof(c.hypothesis));
    memcpy(c.reference, score->reference_totals, sizeof(c.reference));
    return c;
}

/* ---- The score ----------------------------------------------------------- */

static double f_score(double precision, double recall, double factor)
{
    return (1 + factor) * precision * recall / (factor * precision + recall);
}

/* The mean of the F-scores of all orders, as in chrF++.py. */
static double score_epsilon(const bt_ngram_counts *c,
                            const bauta_chrf_options *o)
{
    const double epsilon = 1e-16;
    double factor = (double)(o->beta * o->beta), sum = 0;
    size_t orders = o->char_order + o->word_order;
    for (size_t n = 0; n < orders; n++) {
        double matches = (double)c->matches[n];
        double precision =
            c->hypothesis[n] ? matches / (double)c->hypothesis[n] : epsilon;
        double recall =
            c->reference[n] ? matches / (double)c->reference[n] : epsilon;
        sum += factor * precision + recall > 0
                   ? f_score(precision, recall, factor)
                   : epsilon;
    }
    return 100 * sum / (double)orders;
}

/* The F-score of the mean precision and the mean recall over the orders that
 * both texts have. */
static double score_compute(const bt_ngram_counts *c,
                            const bauta_chrf_options *o)
{
    double precision = 0, recall = 0;
    size_t effective = 0;
    if (o->epsilon)
        return score_epsilon(c, o);
    for (size_t n = 0; n < o->char_order + o->word_order; n++) {
        if (!c->hypothesis[n] || !c->reference[n])
            continue;
        precision += (double)c->matches[n] / (double)c->hypothesis[n];
        recall += (double)c->matches[n] / (double)c->reference[n];
        effective++;
    }
    if (precision + recall == 0)
        return 0;
    return 100 * f_score(precision / (double)effective,
                         recall / (double)effective,
                         (double)(o->beta * o->beta));
}

/* Count with the reference that gives the highest score. */
static bauta_status sentence_count(void *user, size_t i, bt_ngram_counts *best,
                                   double *score, bauta_error *err)
{
    chrf_run *r = user;
    const bauta_chrf_options *o = &r->options;
    bauta_status status = sentence_read(r, i, err);
    if (status)
        return status;
    size_t references = r->characters.sequences - 1;
    if (BT_ARRAY_RESERVE(r->counts, r->room, 0, references))
        return bt_fail_memory(err, "counts of n-grams",
                              references * sizeof(*r->counts));
    memset(r->counts, 0, references * sizeof(*r->counts));
    ngrams_count(r->counts, &r->characters, 0, o->char_order);
    ngrams_count(r->counts, &r->word_ngrams, o->char_order, o->word_order);
    double highest = -1;
    for (size_t k = 0; k < references; k++) {
        double other = score_compute(&r->counts[k], o);
        if (other > highest) {
            highest = other;
            *best = r->counts[k];
        }
    }
    if (score)
        *score = highest;
    return BAUTA_OK;
}

static bauta_chrf_score score_of(const bt_ngram_counts *c,
                                 const bauta_translations *texts,
                                 const bauta_chrf_options *o)
{
    bauta_chrf_score score = BAUTA_CHRF_SCORE_INIT;
    score.score = score_compute(c, o);
    score.orders = o->char_order + o->word_order;
    memcpy(score.matches, c->matches, sizeof(c->matches));
    memcpy(score.hypothesis_totals, c->hypothesis, sizeof(c->hypothesis));
    memcpy(score.reference_totals, c->reference, sizeof(c->reference));
    names_write(&score, texts, o);
    return score;
}

bauta_status bauta_chrf(const bauta_translations *texts,
                        const bauta_chrf_options *options,
                        bauta_chrf_score *score, double *sentences,
                        bauta_error *err)
{
    chrf_run r = { .texts = BAUTA_TRANSLATIONS_INIT };
    bauta_chrf_score own;
    bt_ngram_counts sum = { .length = 0 };
    BT_NEED(score, err);
    BT_NEED(texts, err);
    bauta_status status =
        BT_SIZED_CHECK(score, BAUTA_CHRF_SCORE_INIT, "score", err);
    if (!status)
        status = BT_SIZED_READ(&r.options, BAUTA_CHRF_OPTIONS_INIT, options,
                               "options", err);
    if (!status)
        status = BT_SIZED_READ(&r.texts, BAUTA_TRANSLATIONS_INIT, texts,
                               "texts", err);
    if (!status)
        status = options_check(&r.options, err);
    if (!status && r.options.accumulate) {
        status =
            BT_SIZED_READ(&own, BAUTA_CHRF_SCORE_INIT, score, "score", err);
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
