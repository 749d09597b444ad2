/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_lattice.c - forward-backward and Viterbi; see unigram_lattice.h.
 *
 * Sums of probabilities are not computed as logarithms: a product per edge
 * instead of exp and log. Numbers that become too small are multiplied by
 * 2^400, and `scale` counts how often. Factors of one step are far above 2^-40
 * (a character has at least half an occurrence), so that all numbers within the
 * reach of a piece have one scale. */
#include "text/learn/unigram_lattice.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

enum { SHIFT = 400, REACH = BT_SUBSTRING_MAX };

static const double small = 0x1p-200, raised = 0x1p400;

void bt_unigram_lattice_release(bt_unigram_lattice *l)
{
    bt_free(l->first);
    bt_free(l->edges);
    bt_free(l->sizes);
    bt_free(l->score);
    bt_free(l->probability);
    bt_free(l->forward);
    bt_free(l->backward);
    bt_free(l->scale);
    bt_free(l->best);
    *l = (bt_unigram_lattice){ .text = NULL };
}

static size_t longest_segment(const bt_substrings *text)
{
    size_t longest = 0;
    for (size_t i = 0; i < text->segment_count; i++)
        longest = bt_size_max(longest,
                              text->segments[i].end - text->segments[i].begin);
    return longest;
}

/* Set the first edge of each position; returns the number of edges. */
static size_t edges_count(bt_unigram_lattice *l)
{
    const bt_substrings *t = l->text;
    size_t sum = 0;
    memset(l->first, 0, (t->code_count + 1) * sizeof(*l->first));
    for (size_t p = 0; p < t->count; p++)
        for (uint32_t i = t->list[p].lo; i < t->list[p].hi; i++)
            l->first[t->suffixes[i]]++;
    for (size_t i = 0; i <= t->code_count; i++) {
        size_t here = l->first[i];
        l->first[i] = (uint32_t)sum;
        sum += here;
    }
    return sum;
}

/* By size, so that the shortest piece of each position comes first. Meanwhile
 * first[] is the end of the edges that are filled. */
static void edges_fill(bt_unigram_lattice *l)
{
    const bt_substrings *t = l->text;
    for (uint32_t size = 1; size <= BT_SUBSTRING_MAX; size++)
        for (uint32_t p = 0; p < t->count; p++)
            for (uint32_t i = t->list[p].lo;
                 l->sizes[p] == size && i < t->list[p].hi; i++)
                l->edges[l->first[t->suffixes[i]]++] = p;
    memmove(l->first + 1, l->first, t->code_count * sizeof(*l->first));
    l->first[0] = 0;
}

bauta_status bt_unigram_lattice_init(bt_unigram_lattice *l,
                                     const bt_substrings *text,
                                     bauta_error *err)
{
    size_t word = longest_segment(text) + REACH + 1;
    *l = (bt_unigram_lattice){ .text = text, .pieces = text->count };
    l->first = bt_alloc(bt_size_mul(text->code_count + 1, sizeof(uint32_t)));
    l->sizes = bt_alloc(text->count);
    l->score = bt_alloc(bt_size_mul(text->count, sizeof(double)));
    l->probability = bt_alloc(bt_size_mul(text->count, sizeof(double)));
    l->forward = bt_alloc(bt_size_mul(word, sizeof(double)));
    l->backward = bt_alloc(bt_size_mul(word, sizeof(double)));
    l->scale = bt_alloc(bt_size_mul(word, sizeof(int)));
    l->best = bt_alloc(bt_size_mul(word, sizeof(uint32_t)));
    if (!l->first || !l->sizes || !l->score || !l->probability || !l->forward ||
        !l->backward || !l->scale || !l->best)
        return bt_fail_memory(err, "pieces", text->code_count * 4);
    for (size_t p = 0; p < text->count; p++)
        l->sizes[p] = (unsigned char)text->list[p].size;
    size_t edges = edges_count(l);
    if (edges >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the texts have too many different words");
    l->edges = bt_alloc(bt_size_mul(edges, sizeof(uint32_t)));
    if (!l->edges)
        return bt_fail_memory(err, "pieces", edges * sizeof(uint32_t));
    edges_fill(l);
    return BAUTA_OK;
}

void bt_unigram_lattice_compact(bt_unigram_lattice *l)
{
    uint32_t from = 0, to = 0;
    for (size_t i = 0; i < l->text->code_count; i++) {
        uint32_t end = l->first[i + 1];
        l->first[i] = to;
        for (; from < end; from++)
            if (l->probability[l->edges[from]] > 0)
                l->edges[to++] = l->edges[from];
    }
    l->first[l->text->code_count] = to;
}

/* ---- Forward-backward ---------------------------------------------------- */

/* forward[i]: the probability of all paths to position i, times 2^(400
 * scale[i]). Later positions have the scale of the current one. */
static void forwards(bt_unigram_lattice *l, uint32_t begin, uint32_t count)
{
    double *f = l->forward;
    const uint32_t *first = l->first + begin;
    int scale = 0;
    memset(f, 0, (count + REACH + 1) * sizeof(*f));
    f[0] = 1;
    for (uint32_t i = 0; i < count; i++) {
        if (f[i] < small) {
            for (uint32_t j = i; j <= i + REACH; j++)
                f[j] *= raised;
            scale++;
        }
        l->scale[i] = scale;
        for (uint32_t e = first[i]; e < first[i + 1]; e++) {
            uint32_t p = l->edges[e];
            f[i + l->sizes[p]] += f[i] * l->probability[p];
        }
    }
    l->scale[count] = scale;
}

/* backward[i]: the same from position i to the end. Adds the share of each edge
 * of the count of the word. */
static void backwards(bt_unigram_lattice *l, uint32_t begin, uint32_t count,
                      double times, double *expected)
{
    double *b = l->backward;
    const double *f = l->forward;
    const uint32_t *first = l->first + begin;
    int scale = 0;
    b[count] = 1;
    for (uint32_t i = count; i-- > 0;) {
        double sum = 0, share = times / f[count] * f[i];
        int off = l->scale[count] - l->scale[i] - scale;
        if (off)
            share = ldexp(share, off * SHIFT);
        for (uint32_t e = first[i]; e < first[i + 1]; e++) {
            uint32_t p = l->edges[e];
            double path = l->probability[p] * b[i + l->sizes[p]];
            expected[p] += share * path;
            sum += path;
        }
        b[i] = sum;
        if (sum < small) {
            for (uint32_t j = i; j <= i + REACH && j <= count; j++)
                b[j] *= raised;
            scale++;
        }
    }
}

void bt_unigram_lattice_expected_counts(bt_unigram_lattice *l, double *expected)
{
    const bt_substrings *t = l->text;
    for (size_t i = 0; i < t->segment_count; i++) {
        const bt_text_segment *s = t->segments + i;
        forwards(l, s->begin, s->end - s->begin);
        backwards(l, s->begin, s->end - s->begin, s->count, expected);
    }
}

/* ---- Viterbi ------------------------------------------------------------- */

/* The best path over `count` positions, `without` one piece: its score, and its
 * pieces, from the end, in l->best. */
static double best_path(bt_unigram_lattice *l, uint32_t begin, uint32_t count,
                        uint32_t without)
{
    double *f = l->forward;
    const uint32_t *first = l->first + begin;
    for (uint32_t i = 1; i <= count; i++)
        f[i] = -INFINITY;
    f[0] = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t e = first[i]; e < first[i + 1]; e++) {
            uint32_t p = l->edges[e], to = i + l->sizes[p];
            if (to > count)
                break;
            double score = f[i] + l->score[p];
            if (p != without && score > f[to]) {
                f[to] = score;
                l->best[to] = p;
            }
        }
    return f[count];
}

void bt_unigram_lattice_best_counts(bt_unigram_lattice *l, double *used)
{
    const bt_substrings *t = l->text;
    for (size_t i = 0; i < t->segment_count; i++) {
        const bt_text_segment *s = t->segments + i;
        uint32_t at = s->end - s->begin;
        for (best_path(l, s->begin, at, BT_NO_ID); at;
             at -= l->sizes[l->best[at]])
            used[l->best[at]] += s->count;
    }
}

size_t bt_unigram_lattice_alternative(bt_unigram_lattice *l, uint32_t piece,
                                      uint32_t others[BT_SUBSTRING_MAX],
                                      double *score)
{
    const bt_substring *s = l->text->list + piece;
    size_t count = 0;
    if (s->size < 2)
        return 0;
    *score = best_path(l, l->text->suffixes[s->lo], s->size, piece);
    for (uint32_t at = s->size; at; at -= l->sizes[l->best[at]])
        others[count++] = l->best[at];
    return count;
}
