/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.c - the most likely segmentation of a text, by the Viterbi algorithm.
 *
 * Each byte of the text has a node: the best path that ends there. From left to
 * right, every path is extended by all pieces that the trie finds at its end. A
 * character that is not a piece is unknown and scores 10 below the worst piece.
 *
 * Hugging Face's library computes scores in double, SentencePiece in float. Of
 * equal paths the first one is kept, so rounding may decide between paths. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

typedef struct unigram {
    bt_subword_model base;
    const bt_vocab *vocab;
    bt_trie trie;
    double *scores; /* (size of vocab) */
    double unknown_score;
    uint32_t unknown;
    uint32_t fallback[256]; /* <0x..> */
    bool byte_fallback, single;
    bool fuse_first; /* unknown runs are fused, then looked up (Hugging Face) */
} unigram;

/* The best path that ends at a byte. */
typedef struct viterbi_node {
    double score;  /* relative to the base of its epoch */
    uint32_t from; /* where its last piece begins, or NOWHERE */
    uint32_t id;
    uint32_t epoch; /* an index of search.bases */
} viterbi_node;

enum { NOWHERE = UINT32_MAX };

/* SentencePiece rebases the scores to 0 beyond this value, so that floats keep
 * their precision in a long text. */
#define REBASE_BEYOND 1e5

typedef struct viterbi_search {
    const unigram *unigram;
    const char *text;
    size_t size;
    viterbi_node *nodes; /* (size + 1) */
    double *bases;       /* (size + 1) by epoch: the score that 0 represents */
    uint32_t epoch;
} viterbi_search;

/* ---- Forward ------------------------------------------------------------- */

/* The score of a node relative to the current base. Bases are sums of floats
 * beyond REBASE_BEYOND, so their differences are exact. */
static double node_score(const viterbi_search *s, const viterbi_node *n)
{
    if (n->epoch == s->epoch)
        return n->score;
    return (double)(float)(n->score -
                           (s->bases[s->epoch] - s->bases[n->epoch]));
}

static void node_update(const viterbi_search *s, viterbi_node *to, double score,
                        uint32_t from, uint32_t id)
{
    if (s->unigram->single)
        score = (double)(float)score;
    if (to->from == NOWHERE || score > node_score(s, to))
        *to = (viterbi_node){ score, from, id, s->epoch };
}

/* The score from which the path of a node continues. */
static double node_base(viterbi_search *s, size_t at)
{
    double here = node_score(s, s->nodes + at);
    if (!s->unigram->single || !(fabs(here) > REBASE_BEYOND))
        return here;
    s->bases[s->epoch + 1] = s->bases[s->epoch] + here;
    s->epoch++;
    return 0;
}

/* Extend the path of a node by all pieces; returns whether one of them has
 * `length` bytes. */
static bool node_extend(const viterbi_search *s, size_t at, size_t length,
                        double here)
{
    const unigram *u = s->unigram;
    bool single = false;
    uint32_t trie_node = 0;
    for (size_t i = at; i < s->size;) {
        trie_node =
            bt_trie_step(&u->trie, trie_node, (unsigned char)s->text[i++]);
        if (trie_node == 0)
            break;
        uint32_t id = bt_trie_value(&u->trie, trie_node);
        if (id == BT_TRIE_NONE)
            continue;
        node_update(s, s->nodes + i, u->scores[id] + here, (uint32_t)at, id);
        single |= i - at == length;
    }
    return single;
}

static bauta_status nodes_fill(viterbi_search *s, bauta_error *err)
{
    const unigram *u = s->unigram;
    for (size_t i = 0; i <= s->size; i++)
        s->nodes[i] = (viterbi_node){ 0, NOWHERE, BT_NO_ID, 0 };
    s->bases[0] = 0;
    for (size_t at = 0, length; at < s->size; at += length) {
        const char *text = s->text + at;
        length =
            bt_size_min(bt_utf8_length((unsigned char)*text), s->size - at);
        double here = node_base(s, at);
        if (node_extend(s, at, length, here))
            continue;
        viterbi_node *to = s->nodes + at + length;
        node_update(s, to, u->unknown_score + here, (uint32_t)at, u->unknown);
        if (to->id == BT_NO_ID)
            return bt_fail_unknown_token(err, text, length);
    }
    return BAUTA_OK;
}

/* ---- Back ---------------------------------------------------------------- */

/* Append the tokens of the bytes [lo, hi) backwards; *done is false if there
 * are none. */
static bauta_status bytes_put(const unigram *u, const char *text, uint32_t lo,
                              uint32_t hi, bt_subword_workspace *work,
                              bool *done, bauta_error *err)
{
    *done = u->byte_fallback;
    for (uint32_t i = lo; i < hi && *done; i++)
        *done = u->fallback[(unsigned char)text[i]] != BT_NO_ID;
    bauta_status status = BAUTA_OK;
    for (uint32_t i = hi; i > lo && *done && !status; i--) {
        bt_token t = { u->fallback[(unsigned char)text[i - 1]], lo, hi };
        status = bt_subword_append(work, t, err);
    }
    return status;
}

/* Append the unknown characters [lo, hi). Hugging Face's library looks the
 * fused run up as a piece here. */
static bauta_status unknown_put(const unigram *u, const char *text, uint32_t lo,
                                uint32_t hi, bt_subword_workspace *work,
                                bauta_error *err)
{
    uint32_t id =
        u->fuse_first ? bt_vocab_find(u->vocab, text + lo, hi - lo) : BT_NO_ID;
    bool done = false;
    if (id == BT_NO_ID) {
        bauta_status status = bytes_put(u, text, lo, hi, work, &done, err);
        if (status || done)
            return status;
        id = u->unknown;
    }
    return bt_subword_append(work, (bt_token){ id, lo, hi }, err);
}

/* Append the best path, from its end to its start. */
static bauta_status path_put(const unigram *u, const viterbi_node *nodes,
                             const char *text, size_t size,
                             bt_subword_workspace *work, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bool separate = u->byte_fallback && !u->fuse_first;
    for (uint32_t hi = (uint32_t)size, lo; hi > 0 && !status; hi = lo) {
        uint32_t id = nodes[hi].id;
        lo = nodes[hi].from;
        if (id != u->unknown) {
            status = bt_subword_append(work, (bt_token){ id, lo, hi }, err);
            continue;
        }
        while (!separate && lo > 0 && nodes[lo].id == id)
            lo = nodes[lo].from;
        status = unknown_put(u, text, lo, hi, work, err);
    }
    return status;
}

static bauta_status unigram_encode(const bt_subword_model *model,
                                   const char *split, size_t size,
                                   bt_subword_workspace *work, bauta_error *err)
{
    const unigram *u = (const unigram *)model;
    viterbi_search s = { .unigram = u, .text = split, .size = size };
    size_t lo = work->count, hi;
    bauta_status status = bt_subword_reserve_scratch(
        work, bt_size_mul(size + 1, sizeof(viterbi_node) + sizeof(double)),
        err);
    if (status)
        return status;
    s.nodes = work->scratch;
    s.bases = (double *)(void *)(s.nodes + size + 1);
    status = nodes_fill(&s, err);
    if (!status)
        status = path_put(u, s.nodes, split, size, work, err);
    for (hi = work->count; lo + 1 < hi; lo++) {
        bt_token token = work->tokens[lo];
        work->tokens[lo] = work->tokens[--hi];
        work->tokens[hi] = token;
    }
    return status;
}

static void unigram_free(bt_subword_model *model)
{
    unigram *u = (unigram *)model;
    bt_trie_release(&u->trie);
    bt_free(u->scores);
    bt_free(u);
}

/* ---- Creating ------------------------------------------------------------ */

static bt_unigram_kind kind_of(const bt_unigram_spec *spec, size_t id)
{
    return spec->kinds ? (bt_unigram_kind)spec->kinds[id] : BT_UNIGRAM_NORMAL;
}

/* User-defined pieces score above 0, unlike log-probabilities, and a long one
 * more than two shorter ones. */
static double user_score(size_t size)
{
    // Rounded twice, as in float arithmetic.
    const double tenth = (double)0.1f;
    double sum = (double)(float)(tenth * (double)size);
    return (double)(float)(sum - tenth);
}

static void scores_fill(unigram *u, const bt_unigram_spec *spec)
{
    size_t count = bt_vocab_size(spec->vocab), size = 0;
    double worst = spec->float32_scores ? (double)FLT_MAX : INFINITY;
    for (size_t i = 0; i < count; i++) {
        double score = spec->scores[i];
        u->scores[i] = spec->float32_scores ? (double)(float)score : score;
        if (kind_of(spec, i) != BT_UNIGRAM_NORMAL)
            continue;
        worst = u->scores[i] < worst ? u->scores[i] : worst;
    }
    u->unknown_score = worst - 10;
    if (spec->float32_scores)
        u->unknown_score = (double)((float)worst - 10.0f);
    for (size_t i = 0; i < count; i++)
        if (kind_of(spec, i) == BT_UNIGRAM_USER_DEFINED &&
            bt_vocab_piece(spec->vocab, (uint32_t)i, &size))
            u->scores[i] = user_score(size);
}

static void fallback_fill(unigram *u)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        u->fallback[byte] = bt_vocab_find(u->vocab, text, 6);
    }
}

/* Which pieces are never used, by id; for bt_free(). */
static bauta_status hidden_create(unsigned char **out,
                                  const bt_unigram_spec *spec, bauta_error *err)
{
    size_t count = bt_vocab_size(spec->vocab);
    unsigned char *hidden = bt_alloc(count);
    *out = hidden;
    if (!hidden)
        return bt_fail_memory(err, "pieces", count);
    for (size_t i = 0; i < count; i++)
        hidden[i] = kind_of(spec, i) == BT_UNIGRAM_HIDDEN;
    return BAUTA_OK;
}

static bauta_status unigram_fill(unigram *u, const bt_unigram_spec *spec,
                                 const char *path, bauta_error *err)
{
    size_t count = bt_vocab_size(spec->vocab);
    unsigned char *hidden = NULL;
    if (spec->unknown != BT_NO_ID && spec->unknown >= count)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the unknown piece is %u of %zu pieces",
                       bt_path_tail(path), spec->unknown, count);
    u->scores = bt_alloc(bt_size_mul(count, sizeof(double)));
    if (!u->scores)
        return bt_fail_memory(err, "scores", bt_size_mul(count, 8));
    scores_fill(u, spec);
    fallback_fill(u);
    bauta_status status = hidden_create(&hidden, spec, err);
    if (!status)
        status = bt_trie_init_vocab(&u->trie, spec->vocab, hidden, SIZE_MAX,
                                    path, err);
    bt_free(hidden);
    return status;
}

bauta_status bt_unigram_create(bt_subword_model **out,
                               const bt_unigram_spec *spec, const char *path,
                               bauta_error *err)
{
    unigram *u = bt_alloc_zero(1, sizeof(*u));
    *out = NULL;
    if (!u)
        return bt_fail_memory(err, "a tokenizer", sizeof(*u));
    u->base = (bt_subword_model){ unigram_encode, unigram_free };
    u->vocab = spec->vocab;
    u->unknown = spec->unknown;
    u->byte_fallback = spec->byte_fallback;
    u->single = spec->float32_scores;
    u->fuse_first = !spec->kinds;
    bauta_status status = unigram_fill(u, spec, path, err);
    if (status) {
        unigram_free(&u->base);
        return status;
    }
    *out = &u->base;
    return BAUTA_OK;
}
