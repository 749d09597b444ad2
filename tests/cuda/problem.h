/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h - problems with random inputs for the checks of attention in
 * bfloat16, forward and backward: masks of every kind, in many sizes. */
#ifndef BT_TEST_CUDA_PROBLEM_H
#define BT_TEST_CUDA_PROBLEM_H

#include "backend/cuda/cuda.h"
#include "biases.h"

/* ---- a problem and its tensors ----------------------------------------- */

typedef struct problem {
    const char *name;
    bauta_mask *mask;
    bauta_attention_shape shape;
    size_t n, m, heads, kv_heads, d;
    size_t q_size, kv_size, out_size, lse_size; /* elements */
    uint16_t *q, *k, *v;                        /* inputs */
    test_bias bias;
} problem;

static int bias_kind; /* of the next problems, see biases.h */

/* extra: elements between tokens that are not part of the problem. */
static inline problem problem_make(const char *name, bauta_mask *mask,
                                   size_t heads, size_t kv_heads, size_t d,
                                   size_t extra)
{
    problem p = { .name = name, .mask = mask };
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    p.n = bauta_mask_queries(mask);
    p.m = bauta_mask_keys(mask);
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.d = d;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = d;
    shape.q_token = heads * d + extra;
    shape.k_token = kv_heads * d + 2 * extra;
    shape.v_token = kv_heads * d + extra;
    shape.out_token = heads * d + extra;
    shape.q_head = shape.k_head = shape.v_head = shape.out_head = d;
    p.shape = shape;
    p.bias = bias_make(bias_kind, mask, heads);
    p.q_size = p.n * shape.q_token;
    p.kv_size = p.m * shape.k_token;
    p.out_size = p.n * shape.out_token;
    p.lse_size = p.n * heads;
    p.q = random_bf16(p.q_size, 3.0f);
    p.k = random_bf16(p.kv_size, 2.0f);
    p.v = random_bf16(p.kv_size, 2.0f);
    return p;
}

static inline void problem_free(problem *p)
{
    bauta_mask_free(p->mask);
    bias_free(&p->bias);
    free(p->q);
    free(p->k);
    free(p->v);
}

/* A plan of rows [first, first + rows) of a mask. It was one of another mask
 * before: an update leaves nothing behind. */
static inline bt_cuda_plan *plan_of(const bauta_attention_shape *shape,
                                    bool backward, size_t dense,
                                    const bauta_mask *mask, size_t first,
                                    size_t rows, size_t tile_rows)
{
    bauta_error err = { 0 };
    bauta_mask *other = NULL;
    bt_cuda_plan *plan = NULL;
    need(bt_cuda_plan_create(&plan, shape, backward, &err), &err);
    bt_cuda_plan_set_dense(plan, dense);
    need(bauta_mask_window(&other, 150, 170, 40, &err), &err);
    need(bt_cuda_plan_update(plan, other, 3, 140, 0, NULL, &err), &err);
    bauta_mask_free(other);
    need(bt_cuda_plan_update(plan, mask, first, rows, tile_rows, NULL, &err),
         &err);
    return plan;
}

/* The kinds of softcaps and biases that are checked. */
static const int bias_kinds[] = { BIAS_CAP,
                                  BIAS_SLOPES,
                                  BIAS_TABLE | BIAS_POSITIONS,
                                  BIAS_CAP | BIAS_SLOPES | BIAS_POSITIONS,
                                  BIAS_CAP | BIAS_TABLE,
                                  BIAS_TABLE | BIAS_HOLES,
                                  BIAS_TENSOR,
                                  BIAS_CAP | BIAS_TENSOR | BIAS_POSITIONS,
                                  BIAS_TENSOR | BIAS_SHARED,
                                  BIAS_TENSOR | BIAS_SHARED | BIAS_HOLES };

/* ---- the cases --------------------------------------------------------- */

/* Documents of odd lengths over n = m tokens. */
static inline bauta_mask *make_documents(size_t n, size_t m)
{
    size_t lengths[64], count = 0, left = n;
    (void)m;
    while (left) {
        size_t length = 1 + below(n / 3 + 1);
        if (length > left || count == 63)
            length = left;
        lengths[count++] = length;
        left -= length;
    }
    MAKE(bauta_mask_documents(&mask, count, lengths, NULL, &err));
}

static inline bauta_mask *make_documents_causal(size_t n, size_t m)
{
    return both(make_documents(n, m), make_causal(n, m), false);
}

static inline bauta_mask *make_lengths(size_t n, size_t m)
{
    size_t time = n / 4, lengths[4] = { time, time / 2, 1, 0 };
    (void)m;
    if (n % 4)
        return make_all(n, m);
    MAKE(bauta_mask_lengths(&mask, 4, time, time, NULL, lengths, &err));
}

/* Sequences of which some are empty, between others. */
static inline bauta_mask *make_holes(size_t sequences, size_t time)
{
    size_t lengths[64];
    for (size_t i = 0; i < sequences; i++)
        lengths[i] = i % 3 == 1 ? 0 : 1 + below(time);
    MAKE(bauta_mask_lengths(&mask, sequences, time, time, NULL, lengths, &err));
}

typedef struct mask_kind {
    const char *name;
    make_fn *make;
    bool square, quick;
} mask_kind;

static const mask_kind kinds[] = {
    { "all", make_all, false, false },
    { "causal", make_causal, false, true },
    { "window", make_window, false, false },
    { "window_of_one", make_window_one, false, false },
    { "prefix", make_prefix, false, false },
    { "sinks_or_window", make_sinks, false, true },
    { "dense_with_empty_rows", make_dense, false, true },
    { "every_third_key", make_strided, false, false },
    { "not_window", make_not_window, false, false },
    { "documents", make_documents, true, false },
    { "documents_and_causal", make_documents_causal, true, true },
    { "lengths", make_lengths, true, false },
};

static const struct {
    size_t n, m, heads, kv_heads, extra;
    bool quick;
} sizes[] = {
    { 1, 1, 1, 1, 0, false },      { 128, 128, 2, 2, 0, false },
    { 192, 192, 2, 1, 8, true },   { 259, 259, 4, 2, 0, true },
    { 516, 516, 3, 1, 16, false }, { 1000, 1000, 2, 2, 0, false },
    { 65, 901, 4, 1, 0, true },    { 300, 77, 2, 2, 0, false },
    { 1, 1030, 8, 2, 0, false },   { 1153, 1153, 2, 1, 0, false },
};

/* Whether a kind is to be checked in a size, if only `few` of them are. */
static inline bool fits(const mask_kind *k, size_t size, bool few)
{
    if (few && !(k->quick && sizes[size].quick))
        return false;
    return !k->square || sizes[size].n == sizes[size].m;
}

#endif
