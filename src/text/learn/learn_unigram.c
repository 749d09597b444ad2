/* SPDX-License-Identifier: Apache-2.0 */
/* learn_unigram.c - training Unigram (Kudo, "Subword Regularization", 2018), as
 * SentencePiece does it.
 *
 * It starts with far too many substrings. In each round expectation
 * maximization fits their probabilities to the words, and then a quarter of
 * them is pruned: those whose removal loses the least likelihood. Single
 * characters always stay, so that every text of the corpus can be encoded. */
#include "base/error.h"
#include "base/memory.h"
#include "base/merge_sort.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/learn/unigram_lattice.h"

#include <math.h>
#include <string.h>

enum { CANDIDATES_MAX = 1000000, EM_STEPS = 2 };

/* The share of the pieces that a round keeps. Rounds end at spare_share times
 * the wanted pieces; the best of those are the result. */
static const double kept_share = 0.75, spare_share = 1.1;
static const double least_expected = 0.5;

typedef struct unigram_learner {
    const bauta_tokenizer_trainer_options *options;
    bt_unigram_lattice lattice;
    size_t characters; /* the first pieces */
    size_t alive;      /* pieces that are not pruned */
    size_t wanted;     /* pieces without the special tokens */
    double *counts;    /* (pieces) */
    double *loss;      /* (pieces) of pruning it; see loss_of() */
    uint32_t *order;   /* (2 x pieces) */
} unigram_learner;

/* ---- Expectation maximization -------------------------------------------- */

/* The derivative of log(gamma(x)) for x > 0: the recurrence up to 8, then the
 * asymptotic series, which is exact to 1e-11 there. */
static double digamma(double x)
{
    double sum = 0;
    for (; x < 8; x += 1)
        sum -= 1 / x;
    double y = 1 / (x * x);
    return sum + log(x) - 0.5 / x -
           y * (1. / 12 -
                y * (1. / 120 - y * (1. / 252 - y * (1. / 240 - y / 132))));
}

static void piece_drop(unigram_learner *l, size_t p)
{
    l->lattice.probability[p] = 0;
    l->lattice.score[p] = -INFINITY;
    l->alive--;
}

/* Probabilities from counts, as the mean of the posterior under a sparse
 * Dirichlet prior: exp(digamma(x)) is about x - 1/2, which reduces rare pieces
 * most. */
static void maximise(unigram_learner *l)
{
    double sum = 0;
    for (size_t p = 0; p < l->lattice.pieces; p++) {
        if (l->lattice.probability[p] == 0)
            continue;
        if (p < l->characters)
            l->counts[p] = fmax(l->counts[p], least_expected);
        if (l->counts[p] < least_expected)
            piece_drop(l, p);
        else
            sum += l->counts[p];
    }
    double log_sum = digamma(sum);
    for (size_t p = 0; p < l->lattice.pieces; p++) {
        if (l->lattice.probability[p] == 0)
            continue;
        l->lattice.score[p] = digamma(l->counts[p]) - log_sum;
        l->lattice.probability[p] = exp(l->lattice.score[p]);
    }
    bt_unigram_lattice_compact(&l->lattice);
}

static void em_steps(unigram_learner *l)
{
    for (int i = 0; i < EM_STEPS; i++) {
        memset(l->counts, 0, l->lattice.pieces * sizeof(double));
        bt_unigram_lattice_expected_counts(&l->lattice, l->counts);
        maximise(l);
    }
}

/* The initial probability of a substring is the share of the text it covers. */
static void init_probabilities(unigram_learner *l)
{
    const bt_substrings *t = l->lattice.text;
    double sum = 0;
    for (size_t p = 0; p < t->count; p++)
        sum += t->list[p].count * t->list[p].size;
    for (size_t p = 0; p < t->count; p++) {
        double share = t->list[p].count * t->list[p].size / sum;
        l->lattice.probability[p] = share;
        l->lattice.score[p] = log(share);
    }
}

/* ---- Pruning ------------------------------------------------------------- */

/* The loss of likelihood if a piece is replaced by others: INFINITY if it must
 * stay, -INFINITY if nothing is lost. */
static double loss_of(unigram_learner *l, uint32_t p, double sum)
{
    uint32_t others[BT_SUBSTRING_MAX];
    double score, used = l->counts[p];
    size_t count =
        bt_unigram_lattice_alternative(&l->lattice, p, others, &score);
    if (count == 0)
        return INFINITY;
    if (used == 0 || score >= l->lattice.score[p])
        return -INFINITY;
    double after = log(sum + used * (double)(count - 1)), others_score = 0;
    for (size_t i = 0; i < count; i++)
        others_score += log(l->counts[others[i]] + used) - after;
    return used * (log(used) - log(sum) - others_score);
}

static bool loses_less(const void *user, uint32_t a, uint32_t b)
{
    const double *loss = user;
    return loss[a] < loss[b];
}

/* The remaining pieces in l->order, the greatest loss first; returns how
 * many. */
static size_t by_loss(unigram_learner *l)
{
    size_t count = 0;
    for (uint32_t p = 0; p < l->lattice.pieces; p++)
        if (l->lattice.probability[p] > 0)
            l->order[count++] = p;
    bt_merge_sort(l->order, l->order + l->lattice.pieces, count, loses_less,
                  l->loss);
    return count;
}

static void prune(unigram_learner *l, size_t enough)
{
    double sum = 0;
    memset(l->counts, 0, l->lattice.pieces * sizeof(double));
    bt_unigram_lattice_best_counts(&l->lattice, l->counts);
    for (size_t p = 0; p < l->lattice.pieces; p++)
        sum += l->counts[p];
    for (uint32_t p = 0; p < l->lattice.pieces; p++)
        if (l->lattice.probability[p] > 0)
            l->loss[p] = loss_of(l, p, sum);
    size_t count = by_loss(l);
    size_t keep = bt_size_max(enough, (size_t)(kept_share * (double)count));
    for (size_t i = 0; i < count; i++)
        if (i >= keep ? l->loss[l->order[i]] < INFINITY
                      : l->loss[l->order[i]] == -INFINITY)
            piece_drop(l, l->order[i]);
    bt_unigram_lattice_compact(&l->lattice);
}

static void progress(const unigram_learner *l, size_t done, size_t all)
{
    if (l->options->progress)
        l->options->progress(l->options->user, done, all);
}

static void run_rounds(unigram_learner *l)
{
    size_t enough = (size_t)(spare_share * (double)l->wanted), before = 0;
    size_t all = l->alive;
    init_probabilities(l);
    for (em_steps(l); l->alive > enough && l->alive != before; em_steps(l)) {
        before = l->alive;
        prune(l, enough);
        progress(l, all - l->alive, all);
    }
    progress(l, all, all);
}

/* ---- Result -------------------------------------------------------------- */

static bool scores_less(const void *user, uint32_t a, uint32_t b)
{
    const double *score = user;
    return score[a] < score[b];
}

/* The characters and the best other pieces, the most likely first; of equally
 * likely ones the shorter, then the one that sorts first. */
static size_t choose(unigram_learner *l)
{
    size_t count = 0;
    uint32_t *order = l->order, *spare = order + l->lattice.pieces;
    for (uint32_t p = 0; p < l->lattice.pieces; p++)
        if (l->lattice.probability[p] > 0)
            order[count++] = p;
    size_t others = count - l->characters;
    bt_merge_sort(order + l->characters, spare, others, scores_less,
                  l->lattice.score);
    count = bt_size_min(count, l->wanted);
    bt_merge_sort(order, spare, count, scores_less, l->lattice.score);
    return count;
}

/* A piece as UTF-8. */
static size_t piece_text(char text[4 * BT_SUBSTRING_MAX],
                         const bt_substrings *t, uint32_t p)
{
    size_t size = 0;
    const uint32_t *codes = t->codes + t->suffixes[t->list[p].lo];
    for (uint32_t i = 0; i < t->list[p].size; i++)
        size += bt_utf8_encode(text + size, codes[i]);
    return size;
}

/* Add the pieces after the special tokens, whose scores are 0. */
static bauta_status write(bt_trained_vocab *out, unigram_learner *l,
                          bauta_error *err)
{
    size_t count = choose(l), specials = bt_vocab_size(out->vocab);
    bauta_status status = BAUTA_OK;
    out->scores = bt_alloc_zero(specials + count, sizeof(double));
    if (!out->scores)
        return bt_fail_memory(err, "scores", count * sizeof(double));
    for (size_t i = 0; !status && i < count; i++) {
        char text[4 * BT_SUBSTRING_MAX];
        size_t size = piece_text(text, l->lattice.text, l->order[i]);
        size_t id = bt_vocab_size(out->vocab);
        if (bt_vocab_find(out->vocab, text, size) != BT_NO_ID)
            continue; // a special token has the same text
        status = bt_vocab_add(out->vocab, text, size, (uint32_t)id, err);
        out->scores[id] = l->lattice.score[l->order[i]];
    }
    return status;
}

static bauta_status learner_init(unigram_learner *l,
                                 const bt_substrings *strings, bauta_error *err)
{
    size_t count = strings->count;
    l->characters = strings->characters;
    l->alive = count;
    l->counts = bt_alloc(bt_size_mul(count, sizeof(double)));
    l->loss = bt_alloc(bt_size_mul(count, sizeof(double)));
    l->order = bt_alloc(bt_size_mul(count, 2 * sizeof(uint32_t)));
    if (!l->counts || !l->loss || !l->order)
        return bt_fail_memory(err, "pieces", count * 24);
    return bt_unigram_lattice_init(&l->lattice, strings, err);
}

static void learner_release(unigram_learner *l)
{
    bt_unigram_lattice_release(&l->lattice);
    bt_free(l->counts);
    bt_free(l->loss);
    bt_free(l->order);
}

static bauta_status learn(bt_trained_vocab *out, const bt_substrings *strings,
                          const bauta_tokenizer_trainer_options *options,
                          bauta_error *err)
{
    size_t specials = bt_vocab_size(out->vocab);
    unigram_learner l = { .options = options,
                          .wanted = options->vocab_size - specials };
    if (l.wanted < strings->characters)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a vocabulary of %zu pieces is too small: the special "
                       "tokens and the characters "
                       "of the texts are %zu",
                       options->vocab_size, specials + strings->characters);
    bauta_status status = learner_init(&l, strings, err);
    if (!status) {
        run_rounds(&l);
        status = write(out, &l, err);
    }
    learner_release(&l);
    return status;
}

bauta_status bt_learn_unigram(bt_trained_vocab *out,
                              const bt_word_counts *words,
                              const bauta_tokenizer_trainer_options *options,
                              bauta_error *err)
{
    bt_substrings strings = { .codes = NULL };
    bauta_status status = bt_trained_vocab_init(out, options, err);
    if (!status)
        status = bt_trained_vocab_check_size(out, options, err);
    if (!status)
        status = bt_substrings_init(&strings, words, options->min_frequency,
                                    CANDIDATES_MAX, err);
    if (!status)
        status = learn(out, &strings, options, err);
    bt_substrings_release(&strings);
    if (status)
        bt_trained_vocab_release(out);
    return status;
}
