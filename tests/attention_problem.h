/* SPDX-License-Identifier: Apache-2.0 */
/* attention_problem.h - one attention problem: inputs, outputs and
 * gradients. */
#ifndef BT_TEST_ATTENTION_PROBLEM_H
#define BT_TEST_ATTENTION_PROBLEM_H

#include "base/error.h"
#include "mask/plan.h"
#include "masks.h"

#include <math.h>
#include <string.h>

typedef struct problem {
    const bauta_mask *mask;      /* not owned */
    bauta_attention_shape shape; /* dense layout */
    size_t nq, nk, nv, no, nl;   /* floats in each */
    float *q, *k, *v, *dout, *out, *lse, *dq, *dk, *dv;
} problem;

static inline float *problem_floats(test_random *r, size_t count, float size)
{
    float *x = malloc((count + 1) * sizeof(float));
    assert_non_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = r ? test_float(r) * size : NAN; // outputs start poisoned
    return x;
}

static inline problem problem_make(test_random *r, const bauta_mask *mask,
                                   size_t heads, size_t kv_heads, size_t d,
                                   size_t e)
{
    problem p = { .mask = mask, .shape = BAUTA_ATTENTION_SHAPE_INIT };
    size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
    p.shape.heads = heads;
    p.shape.kv_heads = kv_heads;
    p.shape.head_dim = d;
    p.shape.value_dim = e;
    p.nq = n * heads * d;
    p.nk = m * kv_heads * d;
    p.nv = m * kv_heads * e;
    p.no = n * heads * e;
    p.nl = n * heads;
    float size = (float)(1 + test_below(r, 4)); // flat to peaked softmax
    p.q = problem_floats(r, p.nq, size);
    p.k = problem_floats(r, p.nk, size);
    p.v = problem_floats(r, p.nv, 1);
    p.dout = problem_floats(r, p.no, 1);
    p.out = problem_floats(NULL, p.no, 0);
    p.lse = problem_floats(NULL, p.nl, 0);
    p.dq = problem_floats(NULL, p.nq, 0);
    p.dk = problem_floats(NULL, p.nk, 0);
    p.dv = problem_floats(NULL, p.nv, 0);
    return p;
}

/* A random mask is not part of the problem; the caller frees it. */
static inline problem problem_random(test_random *r, const bauta_mask *mask)
{
    static const size_t dims[] = { 1, 2, 7, 8, 16, 17, 31, 32, 40, 48, 64, 80 };
    size_t kv_heads = 1 + test_below(r, 2), group = 1 + test_below(r, 3);
    size_t d = dims[test_below(r, BT_LEN(dims))];
    size_t e = test_below(r, 2) ? d : dims[test_below(r, BT_LEN(dims))];
    return problem_make(r, mask, kv_heads * group, kv_heads, d, e);
}

static inline void problem_free(problem *p)
{
    float *all[] = { p->q,   p->k,  p->v,  p->dout, p->out,
                     p->lse, p->dq, p->dk, p->dv };
    for (size_t i = 0; i < BT_LEN(all); i++)
        free(all[i]);
}

/* The same inputs, outputs poisoned anew. */
static inline problem problem_copy(const problem *p)
{
    problem c = *p;
    c.q = memcpy(problem_floats(NULL, p->nq, 0), p->q, p->nq * sizeof(float));
    c.k = memcpy(problem_floats(NULL, p->nk, 0), p->k, p->nk * sizeof(float));
    c.v = memcpy(problem_floats(NULL, p->nv, 0), p->v, p->nv * sizeof(float));
    c.dout =
        memcpy(problem_floats(NULL, p->no, 0), p->dout, p->no * sizeof(float));
    c.out = problem_floats(NULL, p->no, 0);
    c.lse = problem_floats(NULL, p->nl, 0);
    c.dq = problem_floats(NULL, p->nq, 0);
    c.dk = problem_floats(NULL, p->nk, 0);
    c.dv = problem_floats(NULL, p->nv, 0);
    return c;
}

static inline bauta_context *test_context(const char *isa, int threads)
{
    bauta_context *context = NULL;
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.isa = isa;
    options.threads = threads;
    assert_int_equal(bauta_context_create(&context, &options, NULL), 0);
    return context;
}

/* Forward and backward over a plan with this tile size. */
static inline void problem_run(problem *p, bauta_context *context,
                               size_t tile_rows)
{
    bauta_plan *plan = NULL;
    bauta_error err = { BAUTA_OK, "" };
    size_t rows = bauta_mask_queries(p->mask);
    assert_int_equal(bt_plan_create(&plan, p->mask, 0, rows, tile_rows, &err),
                     0);
    bauta_status status = bauta_attention_forward(
        context, plan, &p->shape, p->q, p->k, p->v, p->out, p->lse, &err);
    if (!status)
        status = bauta_attention_backward(context, plan, &p->shape, p->q, p->k,
                                          p->v, p->out, p->lse, p->dout, p->dq,
                                          p->dk, p->dv, &err);
    if (status)
        fail_msg("%s", err.message);
    bauta_plan_free(plan);
}

/* Fail unless both hold the same bits; any NaN equals any other. */
static inline void same_bits(const char *what, const float *want,
                             const float *got, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(want[i]) && isnan(got[i]))
            continue;
        if (memcmp(&want[i], &got[i], sizeof(float)))
            fail_msg("%s[%zu]: want %a, got %a", what, i, (double)want[i],
                     (double)got[i]);
    }
}

static inline void same_problem(const problem *want, const problem *got)
{
    same_bits("out", want->out, got->out, want->no);
    same_bits("lse", want->lse, got->lse, want->nl);
    same_bits("dq", want->dq, got->dq, want->nq);
    same_bits("dk", want->dk, got->dk, want->nk);
    same_bits("dv", want->dv, got->dv, want->nv);
}

#endif
