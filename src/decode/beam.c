/* SPDX-License-Identifier: Apache-2.0 */
/* beam.c - beam search; see beam.h. */
#include "decode/beam.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"
#include "kernels/exp2.h"

#include <string.h>

/* ---- the tree of tokens ------------------------------------------------ */

int bt_trail_reserve(bt_trail *tree, size_t more)
{
    if (tree->count + more >= BT_NO_NODE)
        return -1;
    return BT_ROOM(tree->nodes, tree->room, tree->count, more);
}

uint32_t bt_trail_add(bt_trail *tree, uint32_t parent, uint32_t token,
                      float logprob)
{
    tree->nodes[tree->count] = (bt_node){ parent, token, logprob };
    return (uint32_t)tree->count++;
}

void bt_trail_read(const bt_trail *tree, uint32_t node, size_t count,
                   uint32_t *tokens, float *logprobs)
{
    while (count-- > 0) {
        const bt_node *n = &tree->nodes[node];
        if (tokens)
            tokens[count] = n->token;
        if (logprobs)
            logprobs[count] = n->logprob;
        node = n->parent;
    }
}

size_t bt_trail_length(const bt_trail *tree, uint32_t node)
{
    size_t length = 0;
    for (; node != BT_NO_NODE; node = tree->nodes[node].parent)
        length++;
    return length;
}

void bt_trail_release(bt_trail *tree)
{
    bt_free(tree->nodes);
    *tree = (bt_trail){ NULL, 0, 0 };
}

/* ---- the search -------------------------------------------------------- */

bool bt_search_init(bt_search *s, const bauta_generate_options *o)
{
    size_t times = bt_size_max(2, 1 + o->end_count);
    *s = (bt_search){ .beams = o->beams,
                      .wide = bt_size_mul(times, o->beams),
                      .length_penalty = o->length_penalty,
                      .early = o->early,
                      .open_count = 1 };
    s->open = bt_alloc_zero(s->beams, sizeof(*s->open));
    s->next = bt_alloc_zero(s->beams, sizeof(*s->next));
    s->ended = bt_alloc_zero(s->beams, sizeof(*s->ended));
    s->candidates = bt_alloc_zero(s->wide, sizeof(*s->candidates));
    if (!s->open || !s->next || !s->ended || !s->candidates) {
        bt_search_release(s);
        return false;
    }
    s->open[0] = (bt_open){ 0, BT_NO_NODE, 0 };
    return true;
}

void bt_search_release(bt_search *s)
{
    bt_free(s->open);
    bt_free(s->next);
    bt_free(s->ended);
    bt_free(s->candidates);
    *s = (bt_search){ 0 };
}

/* ---- powers ------------------------------------------------------------ */

/* 2^x for moderate |x|, by the Taylor series of e^x. */
static double exp2_double(double x)
{
    double whole = x < 0 ? (double)(int)(x - 0.5) : (double)(int)(x + 0.5);
    double r = (x - whole) * BT_LN2, sum = 1;
    for (int n = 18; n > 0; n--)
        sum = 1 + r * sum / n;
    for (; whole > 0; whole--)
        sum *= 2;
    for (; whole < 0; whole++)
        sum /= 2;
    return sum;
}

double bt_length_power(size_t count, float p)
{
    double power = 1;
    if (p >= 0 && p <= 4 && p == (float)(int)p) {
        for (int i = 0; i < (int)p; i++)
            power *= (double)count;
        return power;
    }
    double x = bt_log2((double)count) * (double)p;
    return exp2_double(x > 1000 ? 1000 : x < -1000 ? -1000 : x);
}

/* ---- selecting --------------------------------------------------------- */

/* Offer a row of log-probabilities, after the logits processors. */
static bt_chosen add_row(bt_search *s, bt_picks *picks, const bt_desk *scratch,
                         const float *x, size_t beam,
                         const bauta_generate_options *o, const bt_history *h,
                         float *lse)
{
    bt_row row;
    bt_chosen status = bt_row_look(&row, scratch, x);
    float subtract = row.lse;
    *lse = row.lse;
    if (!status && (o->renormalize || bt_rules_act(o, h))) {
        for (size_t j = 0; j < scratch->vocab; j++)
            scratch->work[j] = x[j] - row.lse;
        bt_rules_apply(scratch->work, scratch, o, h);
        x = scratch->work;
        subtract = 0;
        status = bt_row_look(&row, scratch, x);
        if (status == BT_NOTHING_LEFT)
            return BT_CHOSEN; // another beam may continue
        if (o->renormalize)
            subtract = row.lse;
    }
    if (!status)
        bt_picks_row(picks, scratch->kernels, x, scratch->vocab, row.max,
                     (uint32_t)beam, subtract, s->open[beam].score);
    return status;
}

bt_chosen bt_search_select(bt_search *s, const bt_desk *scratch,
                           const float *const *rows,
                           const bauta_generate_options *o,
                           const bt_history *histories)
{
    bt_picks picks = bt_picks_start(scratch->picks,
                                    bt_size_min(s->wide, scratch->picks_room));
    s->count = 0;
    for (size_t b = 0; b < s->open_count; b++) {
        // s->next is free until the preview, and holds log-sum-exps here.
        bt_chosen status = add_row(s, &picks, scratch, rows[b], b, o,
                                   &histories[b], &s->next[b].score);
        if (status)
            return status;
    }
    bt_picks_sort(&picks);
    for (size_t i = 0; i < picks.count; i++) {
        const bt_pick *p = &picks.all[i];
        s->candidates[i] = (bt_candidate){
            .score = p->value,
            .beam = p->row,
            .token = p->id,
            .logprob = rows[p->row][p->id] - s->next[p->row].score,
        };
    }
    s->count = picks.count;
    return s->count ? BT_CHOSEN : BT_NOTHING_LEFT;
}

/* ---- advancing --------------------------------------------------------- */

void bt_search_plan(bt_search *s)
{
    s->next_count = 0;
    for (size_t i = 0; i < s->count && s->next_count < s->beams; i++) {
        const bt_candidate *c = &s->candidates[i];
        if (!c->hit)
            s->next[s->next_count++] =
                (bt_open){ c->score, BT_NO_NODE, c->beam };
    }
}

/* Insert after equal scores. */
static void finished_add(bt_search *s, bt_ended ended)
{
    size_t at = s->ended_count;
    while (at > 0 && s->ended[at - 1].score < ended.score)
        at--;
    if (at == s->beams)
        return;
    if (s->ended_count < s->beams)
        s->ended_count++;
    memmove(s->ended + at + 1, s->ended + at,
            (s->ended_count - 1 - at) * sizeof(ended));
    s->ended[at] = ended;
}

static uint32_t node_of(const bt_search *s, bt_trail *tree,
                        const bt_candidate *c)
{
    return bt_trail_add(tree, s->open[c->beam].node, c->token, c->logprob);
}

/* Whether the best open beam can still beat the worst finished one. */
static bool can_improve(const bt_search *s, size_t generated, size_t most)
{
    if (s->ended_count < s->beams)
        return true;
    bool never = s->early == BAUTA_EARLY_NEVER && s->length_penalty > 0;
    float power =
        (float)bt_length_power(never ? most : generated, s->length_penalty);
    return s->open[0].score / power > s->ended[s->beams - 1].score;
}

bool bt_search_advance(bt_search *s, bt_trail *tree, size_t generated,
                       size_t most)
{
    float power = (float)bt_length_power(generated, s->length_penalty);
    size_t open = 0;
    for (size_t i = 0; i < s->count; i++) {
        const bt_candidate *c = &s->candidates[i];
        if (c->hit && i < s->beams)
            finished_add(s, (bt_ended){ c->score / power, node_of(s, tree, c),
                                        c->finish });
        else if (!c->hit && open < s->next_count)
            s->next[open++].node = node_of(s, tree, c);
    }
    bt_open *before = s->open;
    s->open = s->next;
    s->next = before;
    s->open_count = s->next_count;
    s->count = 0;
    if (s->open_count == 0)
        return true;
    if (s->early == BAUTA_EARLY_YES && s->ended_count == s->beams)
        return true;
    return !can_improve(s, generated, most);
}
