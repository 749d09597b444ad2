/* SPDX-License-Identifier: Apache-2.0 */
/* beam.c - beam search; see beam.h. */
#include "decode/beam.h"

#include "backend/cpu/kernels/exp2.h"
#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- the tree of tokens ------------------------------------------------ */

int bt_beam_tree_reserve(bt_beam_tree *tree, size_t more)
{
    if (tree->count + more >= BT_NO_NODE)
        return -1;
    return BT_ARRAY_RESERVE(tree->nodes, tree->capacity, tree->count, more);
}

uint32_t bt_beam_tree_add(bt_beam_tree *tree, uint32_t parent, uint32_t token,
                          float logprob)
{
    tree->nodes[tree->count] = (bt_beam_node){ parent, token, logprob };
    return (uint32_t)tree->count++;
}

void bt_beam_tree_read(const bt_beam_tree *tree, uint32_t node, size_t count,
                       uint32_t *tokens, float *logprobs)
{
    while (count-- > 0) {
        const bt_beam_node *n = &tree->nodes[node];
        if (tokens)
            tokens[count] = n->token;
        if (logprobs)
            logprobs[count] = n->logprob;
        node = n->parent;
    }
}

size_t bt_beam_tree_length(const bt_beam_tree *tree, uint32_t node)
{
    size_t length = 0;
    for (; node != BT_NO_NODE; node = tree->nodes[node].parent)
        length++;
    return length;
}

void bt_beam_tree_release(bt_beam_tree *tree)
{
    bt_free(tree->nodes);
    *tree = (bt_beam_tree){ NULL, 0, 0 };
}

/* ---- the search -------------------------------------------------------- */

bool bt_beam_search_init(bt_beam_search *s, const bauta_generate_options *o)
{
    size_t times = bt_size_max(2, 1 + o->eos_token_count);
    *s = (bt_beam_search){ .beams = o->num_beams,
                           .candidate_capacity =
                               bt_size_mul(times, o->num_beams),
                           .length_penalty = o->length_penalty,
                           .early_stopping = o->early_stopping,
                           .open_count = 1 };
    s->open = bt_alloc_zero(s->beams, sizeof(*s->open));
    s->next = bt_alloc_zero(s->beams, sizeof(*s->next));
    s->finished = bt_alloc_zero(s->beams, sizeof(*s->finished));
    s->candidates =
        bt_alloc_zero(s->candidate_capacity, sizeof(*s->candidates));
    s->choices = bt_alloc_zero(s->candidate_capacity, sizeof(*s->choices));
    if (!s->open || !s->next || !s->finished || !s->candidates || !s->choices) {
        bt_beam_search_release(s);
        return false;
    }
    s->open[0] = (bt_open_beam){ 0, BT_NO_NODE, 0 };
    return true;
}

void bt_beam_search_release(bt_beam_search *s)
{
    bt_free(s->open);
    bt_free(s->next);
    bt_free(s->finished);
    bt_free(s->candidates);
    bt_free(s->choices);
    *s = (bt_beam_search){ 0 };
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

void bt_beam_search_take(bt_beam_search *s, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bt_beam_choice *c = &s->choices[i];
        s->candidates[i] = (bt_beam_candidate){
            .score = c->score,
            .beam = c->beam,
            .token = c->token,
            .logprob = c->logprob,
        };
    }
    s->candidate_count = count;
}

/* ---- advancing --------------------------------------------------------- */

void bt_beam_search_preview(bt_beam_search *s)
{
    s->next_count = 0;
    for (size_t i = 0; i < s->candidate_count && s->next_count < s->beams;
         i++) {
        const bt_beam_candidate *c = &s->candidates[i];
        if (!c->ends)
            s->next[s->next_count++] =
                (bt_open_beam){ c->score, BT_NO_NODE, c->beam };
    }
}

/* Insert after equal scores. */
static void finished_add(bt_beam_search *s, bt_finished_beam ended)
{
    size_t at = s->finished_count;
    while (at > 0 && s->finished[at - 1].score < ended.score)
        at--;
    if (at == s->beams)
        return;
    if (s->finished_count < s->beams)
        s->finished_count++;
    memmove(s->finished + at + 1, s->finished + at,
            (s->finished_count - 1 - at) * sizeof(ended));
    s->finished[at] = ended;
}

static uint32_t node_of(const bt_beam_search *s, bt_beam_tree *tree,
                        const bt_beam_candidate *c)
{
    return bt_beam_tree_add(tree, s->open[c->beam].node, c->token, c->logprob);
}

/* Whether the best open beam can still beat the worst finished one. */
static bool can_improve(const bt_beam_search *s, size_t generated, size_t most)
{
    if (s->finished_count < s->beams)
        return true;
    bool never = s->early_stopping == BAUTA_EARLY_STOPPING_NEVER &&
                 s->length_penalty > 0;
    float power =
        (float)bt_length_power(never ? most : generated, s->length_penalty);
    return s->open[0].score / power > s->finished[s->beams - 1].score;
}

bool bt_beam_search_advance(bt_beam_search *s, bt_beam_tree *tree,
                            size_t generated, size_t most)
{
    float power = (float)bt_length_power(generated, s->length_penalty);
    size_t open = 0;
    for (size_t i = 0; i < s->candidate_count; i++) {
        const bt_beam_candidate *c = &s->candidates[i];
        if (c->ends && i < s->beams)
            finished_add(s,
                         (bt_finished_beam){ c->score / power,
                                             node_of(s, tree, c), c->finish });
        else if (!c->ends && open < s->next_count)
            s->next[open++].node = node_of(s, tree, c);
    }
    bt_open_beam *before = s->open;
    s->open = s->next;
    s->next = before;
    s->open_count = s->next_count;
    s->candidate_count = 0;
    if (s->open_count == 0)
        return true;
    if (s->early_stopping == BAUTA_EARLY_STOPPING_YES &&
        s->finished_count == s->beams)
        return true;
    return !can_improve(s, generated, most);
}
