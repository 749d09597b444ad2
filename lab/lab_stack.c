/* SPDX-License-Identifier: Apache-2.0 */
/* lab_stack.c - bauta lab layers: a stack of attention layers; see
 * lab_stack.h. */
#include "lab_stack.h"

#include "../cli/cli.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, WIDTH = 32 /* of a token */ };

/* ---- the stack --------------------------------------------------------- */

/* Uniform in [-1, 1). */
static float draw(stack *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(s->random >> 32) * 0x1p-31f;
}

int stack_init(stack *s, const lab *l)
{
    size_t count;
    bauta_error err;
    *s = (stack){ .l = l, .random = 2 * l->seed + 1 };
    s->tokens = l->fast ? 10 : TOKENS_MAX;
    s->layers = l->fast ? 3 : LAYERS_MAX;
    count = s->layers * 3 * WIDTH * WIDTH;
    s->weights = malloc(count * sizeof(*s->weights));
    if (!s->weights)
        return cli_fail("lab", "layers: out of memory");
    for (size_t i = 0; i < count; i++)
        s->weights[i] = 0.3f * draw(s);
    if (bauta_mask_causal(&s->causal, s->tokens, s->tokens, &err) ||
        bauta_mask_all(&s->all, s->tokens, s->tokens, &err) ||
        bauta_mask_window(&s->own, s->tokens, s->tokens, 1, &err))
        return lab_failed(&err);
    return CLI_OK;
}

void stack_release(stack *s)
{
    bauta_mask_free(s->causal);
    bauta_mask_free(s->all);
    bauta_mask_free(s->own);
    free(s->weights);
}

/* y = x W, row by row. */
static void project(float *y, const float *x, const float *w, size_t tokens)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t o = 0; o < WIDTH; o++) {
            float sum = 0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += x[t * WIDTH + i] * w[i * WIDTH + o];
            y[t * WIDTH + o] = sum;
        }
}

/* The states of all tokens, before the first and after each layer. */
typedef struct states {
    float at[LAYERS_MAX + 1][TOKENS_MAX * WIDTH];
} states;

static int stack_run(const stack *s, bauta_plan *const *plans, states *x)
{
    float q[TOKENS_MAX * WIDTH], k[TOKENS_MAX * WIDTH], v[TOKENS_MAX * WIDTH];
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_error err;
    shape.heads = HEADS;
    shape.head_dim = WIDTH / HEADS;
    for (size_t i = 0; i < s->layers; i++) {
        const float *w = s->weights + i * 3 * WIDTH * WIDTH;
        project(q, x->at[i], w, s->tokens);
        project(k, x->at[i], w + WIDTH * WIDTH, s->tokens);
        project(v, x->at[i], w + 2 * WIDTH * WIDTH, s->tokens);
        if (bauta_attention_forward(s->l->context, plans[i], &shape, q, k, v,
                                    x->at[i + 1], NULL, &err))
            return lab_failed(&err);
        for (size_t j = 0; j < s->tokens * WIDTH; j++)
            x->at[i + 1][j] += x->at[i][j];
    }
    return CLI_OK;
}

/* ---- reachability by the masks ----------------------------------------- */

/* A row reaches, through the tokens that the layer shows it and through itself,
 * what these reached below. */
static bauta_status reach_step(bauta_mask **out, const stack *s,
                               const bauta_mask *mask, const bauta_mask *below,
                               bauta_error *err)
{
    bauta_mask *with_own = NULL;
    bauta_status status = bauta_mask_or(&with_own, mask, s->own, err);
    if (!status)
        status = bauta_mask_compose(out, with_own, below, err);
    bauta_mask_free(with_own);
    return status;
}

static int trial_prove(trial *t, const stack *s)
{
    bauta_error err;
    const bauta_mask *below = s->own;
    for (size_t i = 0; i < s->layers; i++) {
        if (reach_step(&t->reach[i], s, t->masks[i], below, &err))
            return lab_failed(&err);
        below = t->reach[i];
    }
    if (bauta_audit_masks(t->masks, s->layers, s->causal, &t->leaks, &t->leak,
                          &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* ---- reachability by experiment ---------------------------------------- */

static bool changed(const states *a, const states *b, size_t layer,
                    size_t token)
{
    return memcmp(a->at[layer] + token * WIDTH, b->at[layer] + token * WIDTH,
                  WIDTH * sizeof(float)) != 0;
}

/* Change each token in turn and compare. */
static int changes_find(trial *t, stack *s, bauta_plan *const *plans,
                        states *was, states *now)
{
    unsigned char pairs[TOKENS_MAX * TOKENS_MAX] = { 0 };
    bauta_error err;
    for (size_t i = 0; i < s->tokens * WIDTH; i++)
        was->at[0][i] = draw(s);
    int failed = stack_run(s, plans, was);
    for (size_t key = 0; key < s->tokens && !failed; key++) {
        memcpy(now->at[0], was->at[0], sizeof(now->at[0]));
        for (size_t i = 0; i < WIDTH; i++)
            now->at[0][key * WIDTH + i] = draw(s);
        failed = stack_run(s, plans, now);
        for (size_t i = 0; i < s->tokens && !failed; i++)
            pairs[i * s->tokens + key] = changed(was, now, s->layers, i);
    }
    for (size_t layer = 0; layer <= s->layers && !failed; layer++) {
        t->affected[layer] = 0;
        for (size_t i = 0; i < s->tokens; i++) // `now`: the last token changed
            t->affected[layer] += changed(was, now, layer, i);
    }
    if (!failed &&
        bauta_mask_dense(&t->measured, s->tokens, s->tokens, pairs, &err))
        failed = lab_failed(&err);
    return failed;
}

static int trial_measure(trial *t, stack *s)
{
    bauta_plan *plans[LAYERS_MAX] = { NULL };
    states *both = calloc(2, sizeof(*both));
    bauta_error err;
    int failed = both ? CLI_OK : cli_fail("lab", "layers: out of memory");
    for (size_t i = 0; i < s->layers && !failed; i++)
        if (bauta_plan_create(&plans[i], t->masks[i], 0, s->tokens, &err))
            failed = lab_failed(&err);
    if (!failed)
        failed = changes_find(t, s, plans, &both[0], &both[1]);
    for (size_t i = 0; i < s->layers; i++)
        bauta_plan_free(plans[i]);
    free(both);
    return failed;
}

/* ---- a trial ----------------------------------------------------------- */

int trial_run(trial *t, stack *s, size_t layer, const bauta_mask *other)
{
    *t = (trial){ .agree = true };
    for (size_t i = 0; i < s->layers; i++)
        t->masks[i] = i == layer ? other : s->causal;
    int failed = trial_prove(t, s);
    if (!failed)
        failed = trial_measure(t, s);
    for (size_t i = 0; i < s->tokens && !failed; i++)
        for (size_t j = 0; j < s->tokens; j++) {
            bool reaches = bauta_mask_visible(t->reach[s->layers - 1], i, j);
            bool changes = bauta_mask_visible(t->measured, i, j);
            t->proved += reaches && j > i;
            t->found += changes && j > i;
            t->agree = t->agree && reaches == changes;
        }
    return failed;
}

void trial_release(trial *t)
{
    for (size_t i = 0; i < LAYERS_MAX; i++)
        bauta_mask_free(t->reach[i]);
    bauta_mask_free(t->measured);
}
