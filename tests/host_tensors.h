/* SPDX-License-Identifier: Apache-2.0 */
/* host_tensors.h - the memory of tensors on the CPU, and streams, tapes and
 * plans of the CPU for tests. */
#ifndef BT_TEST_HOST_TENSORS_H
#define BT_TEST_HOST_TENSORS_H

#include "autograd/tape.h"
#include "backend/cpu/attention.h"
#include "testing.h"

/* The first element of a tensor and of its gradient; NULL where there is
 * none. */
static inline float *tensor_data(const bt_tensor *t)
{
    return bt_tensor_host(t);
}

static inline float *tensor_gradient(const bt_tensor *t)
{
    bt_tensor grad = bt_tensor_grad(t);
    return bt_tensor_host(&grad);
}

/* bt_tape_grad() with the address of the gradient; NULL where that is false. */
static inline float *tape_gradient(bt_tape *tape, bt_tensor *t, bool *add)
{
    return bt_tape_grad(tape, t, add) ? tensor_gradient(t) : NULL;
}

/* A stream with a pool of its own. */
static inline bt_stream *test_stream(const char *isa, int threads)
{
    bt_thread_pool *pool = NULL;
    bt_stream *stream = NULL;
    const bt_kernels *kernels = bt_kernels_get(isa);
    assert_non_null(kernels);
    assert_int_equal(bt_thread_pool_create(&pool, threads, NULL), 0);
    assert_int_equal(bt_cpu_stream_create(&stream, kernels, pool, NULL), 0);
    return stream;
}

static inline void test_stream_free(bt_stream *stream)
{
    bt_thread_pool *pool = bt_cpu_of(stream)->pool;
    stream->backend->stream_free(stream);
    bt_thread_pool_free(pool);
}

/* A tape with such a stream. */
static inline bt_tape *test_tape(const char *isa, int threads, bool recording)
{
    bt_tape *tape = NULL;
    assert_int_equal(bt_tape_create(&tape, test_stream(isa, threads), NULL), 0);
    bt_tape_rewind(tape, recording);
    return tape;
}

/* NULL is allowed. */
static inline void test_tape_free(bt_tape *tape)
{
    if (!tape)
        return;
    bt_stream *stream = bt_tape_stream(tape);
    bt_tape_free(tape);
    test_stream_free(stream);
}

/* The plan of a mask, which it frees. bt_cpu_plan_free() frees the plan. */
static inline bt_attention_plan *test_plan(bauta_mask *mask)
{
    bt_cpu_plan *plan = bt_alloc_zero(1, sizeof(*plan));
    assert_non_null(plan);
    plan->base = (bt_attention_plan){ .backend = &bt_cpu_backend,
                                      .rows = bauta_mask_queries(mask),
                                      .keys = bauta_mask_keys(mask) };
    assert_int_equal(bauta_plan_create(&plan->batch, mask, 0,
                                       bauta_mask_queries(mask), NULL),
                     0);
    bauta_mask_free(mask);
    return &plan->base;
}

#endif
