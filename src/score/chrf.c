/* SPDX-License-Identifier: Apache-2.0 */
/* chrf.c - chrF: n-grams of characters, and for chrF++ of words, weighed by
 * precision and recall.
 *
 * Popovic, "chrF: character n-gram F-score for automatic MT evaluation", WMT
 * 2015, and "chrF++: words helping character n-grams", WMT 2017. What these
 * leave open is decided as sacrebleu decides it. */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { ORDERS_MAX = 2 * BAUTA_NGRAM_MAX, BETA_MAX = 1000 };

/* N-grams of each order. */
typedef struct counts {
    uint64_t matches[ORDERS_MAX];
    uint64_t hypothesis[ORDERS_MAX], reference[ORDERS_MAX];
} counts;

typedef struct workspace {
    bt_codes line;
    bt_score_words words;
    bt_grams characters, word_grams;
    counts *counts; /* (references) */
    size_t room;
} workspace;

static void workspace_release(workspace *w)
{
    bt_codes_release(&w->line);
    bt_score_words_release(&w->words);
    bt_grams_release(&w->characters);
    bt_grams_release(&w->word_grams);
    bt_free(w->counts);
}

/* ---- The options --------------------------------------------------------- */

static bauta_status options_check(const bauta_chrf_options *o, bauta_error *err)
{
    if (o->size != sizeof(*o))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "options.size is %zu, not %zu: start from "
                       "BAUTA_CHRF_OPTIONS_INIT",
                       o->size, sizeof(*o));
    if (o->characters > BAUTA_NGRAM_MAX || o->words > BAUTA_NGRAM_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "n-grams of %zu characters and %zu words, not of up to "
                       "%d",
                       o->characters, o->words, BAUTA_NGRAM_MAX);
    if (!o->characters && !o->words)
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
             (int)o->words, pluses);
    snprintf(score->signature, sizeof(score->signature),
             "nrefs:%s|case:%s|eff:%s|nc:%zu|nw:%zu|space:%s|version:bauta-%s",
             nrefs, o->lowercase ? "lc" : "mixed", o->epsilon ? "no" : "yes",
             o->characters, o->words, o->whitespace ? "yes" : "no",
             bauta_version());
}

/* ---- Reading ------------------------------------------------------------- */

static bool is_punctuation(uint32_t c)
{
    return c > ' ' && c < 0x7F &&
           strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)c);
}

/* A word, from which a mark at its end is split, or else one at its start. */
static bauta_status word_add(bt_score_words *words, const uint32_t *codes,
                             size_t length, bauta_error *err)
{
    size_t first = length;
    if (length > 1 && is_punctuation(codes[length - 1]))
        first = length - 1;
    else if (length > 1 && is_punctuation(codes[0]))
        first = 1;
    bauta_status status = bt_score_words_add(words, codes, first, err);
    if (!status && first < length)
        status = bt_score_words_add(words, codes + first, length - first, err);
    return status;
}

static void separators_remove(bt_codes *line)
{
    size_t count = 0;
    for (size_t i = 0; i < line->count; i++)
        if (!bt_is_separator(line->at[i]))
            line->at[count++] = line->at[i];
    line->count = count;
}

/* The text that w->line holds joins as a sequence of words, where they count,
 * and one of characters. */
static bauta_status line_add(workspace *w, const bauta_chrf_options *o,
                             bauta_error *err)
{
    bt_word word = { 0, 0 };
    bauta_status status = BAUTA_OK;
    while (!status && o->words && bt_codes_word(&w->line, &word))
        status = word_add(&w->words, w->line.at + word.start, word.length, err);
    if (!status)
        status = bt_score_words_end(&w->words, err);
    if (status)
        return status;
    if (!o->whitespace)
        separators_remove(&w->line);
    return bt_grams_add(&w->characters, w->line.at, w->line.count, err);
}

static bauta_status sentence_read(workspace *w, const bauta_translations *texts,
                                  size_t i, const bauta_chrf_options *o,
                                  bauta_error *err)
{
    bt_score_words_clear(&w->words);
    bt_grams_clear(&w->characters);
    bauta_status status =
        bt_hypothesis_read(&w->line, texts, i, o->lowercase, err);
    if (!status)
        status = line_add(w, o, err);
    for (size_t set = 0; set < texts->sets && !status; set++) {
        bool there;
        status = bt_reference_read(&w->line, &there, texts, set, i,
                                   o->lowercase, err);
        if (!status && there)
            status = line_add(w, o, err);
    }
    if (!status)
        status = bt_grams_begin(&w->characters, err);
    return status ? status
                  : bt_score_words_grams(&w->words, &w->word_grams, err);
}

/* ---- Counting ------------------------------------------------------------ */

/* The n-grams of orders 1 to `orders`, of every reference, into places `at` and
 * behind it. Where a reference has none, the sentence's do not count. */
static void grams_count(counts *c, bt_grams *grams, size_t at, size_t orders)
{
    for (size_t end = at + orders; at < end; at++) {
        bt_grams_next(grams);
        for (size_t k = 1; k < grams->sequences; k++) {
            size_t total = bt_grams_total(grams, k);
            c[k - 1].matches[at] = grams->shared[k];
            c[k - 1].reference[at] = total;
            c[k - 1].hypothesis[at] = total ? bt_grams_total(grams, 0) : 0;
        }
    }
}

static void counts_add(counts *sum, const counts *c, size_t orders)
{
    for (size_t n = 0; n < orders; n++) {
        sum->matches[n] += c->matches[n];
        sum->hypothesis[n] += c->hypothesis[n];
        sum->reference[n] += c->reference[n];
    }
}

/* What *score holds of other sentences. */
static counts counts_of(const bauta_chrf_score *score)
{
    counts c;
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

/* The mean of the F-scores of all orders, as chrF++.py has it. */
static double score_epsilon(const counts *c, const bauta_chrf_options *o)
{
    const double epsilon = 1e-16;
    double factor = (double)(o->beta * o->beta), sum = 0;
    size_t orders = o->characters + o->words;
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

/* The F-score of the mean precision and recall of those orders that both texts
 * have. */
static double score_compute(const counts *c, const bauta_chrf_options *o)
{
    double precision = 0, recall = 0;
    size_t effective = 0;
    if (o->epsilon)
        return score_epsilon(c, o);
    for (size_t n = 0; n < o->characters + o->words; n++) {
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

/* The counts of a sentence with the reference that scores highest, and the
 * score. */
static bauta_status sentence_count(counts *best, double *score, workspace *w,
                                   const bauta_translations *texts, size_t i,
                                   const bauta_chrf_options *o,
                                   bauta_error *err)
{
    bauta_status status = sentence_read(w, texts, i, o, err);
    if (status)
        return status;
    size_t references = w->characters.sequences - 1;
    if (BT_ROOM(w->counts, w->room, 0, references))
        return bt_fail_memory(err, "counts of n-grams",
                              references * sizeof(counts));
    grams_count(w->counts, &w->characters, 0, o->characters);
    grams_count(w->counts, &w->word_grams, o->characters, o->words);
    *score = -1;
    for (size_t k = 0; k < references; k++) {
        double other = score_compute(&w->counts[k], o);
        if (other > *score) {
            *score = other;
            *best = w->counts[k];
        }
    }
    return BAUTA_OK;
}

static void score_write(bauta_chrf_score *score, const counts *c,
                        const bauta_translations *texts,
                        const bauta_chrf_options *o)
{
    *score = (bauta_chrf_score)BAUTA_CHRF_SCORE_INIT;
    score->score = score_compute(c, o);
    score->orders = o->characters + o->words;
    memcpy(score->matches, c->matches, sizeof(c->matches));
    memcpy(score->hypothesis_totals, c->hypothesis, sizeof(c->hypothesis));
    memcpy(score->reference_totals, c->reference, sizeof(c->reference));
    names_write(score, texts, o);
}

bauta_status bauta_chrf(const bauta_translations *texts,
                        const bauta_chrf_options *options,
                        bauta_chrf_score *score, double *sentences,
                        bauta_error *err)
{
    bauta_chrf_options o = BAUTA_CHRF_OPTIONS_INIT;
    workspace w = { 0 };
    counts sum = { 0 };
    BT_NEED(score, err);
    BT_NEED_SIZE(score, bauta_chrf_score, "BAUTA_CHRF_SCORE_INIT", err);
    if (options)
        o = *options;
    bauta_status status = options_check(&o, err);
    if (!status)
        status = bt_translations_check(texts, err);
    if (!status && o.add)
        sum = counts_of(score);
    for (size_t i = 0; !status && i < texts->count; i++) {
        counts c = { 0 };
        double alone = 0;
        status = sentence_count(&c, &alone, &w, texts, i, &o, err);
        if (status)
            break;
        counts_add(&sum, &c, o.characters + o.words);
        if (sentences)
            sentences[i] = alone;
    }
    if (!status)
        score_write(score, &sum, texts, &o);
    workspace_release(&w);
    return status;
}
