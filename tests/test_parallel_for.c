/* SPDX-License-Identifier: Apache-2.0 */
/* test_parallel_for.c - an embedder's loop as an option of a context. */
#include "testing.h"

#include "bauta.h"

#include <pthread.h>
#include <string.h>

enum { TOKENS = 300, HEADS = 3, DIM = 32, SHARES_MAX = 8 };

typedef struct share {
    void (*task)(void *job, size_t index);
    void *job;
    size_t index;
} share;

static void *share_main(void *argument)
{
    share *s = argument;
    s->task(s->job, s->index);
    return NULL;
}

/* A loop as a program might have it: a thread for each index. */
static void run_threads(void *user, size_t count,
                        void (*task)(void *job, size_t index), void *job)
{
    share shares[SHARES_MAX];
    pthread_t threads[SHARES_MAX];
    size_t started = 0;
    ++*(size_t *)user;
    for (; started < count; started++) {
        shares[started] = (share){ task, job, started };
        if (pthread_create(&threads[started], NULL, share_main,
                           &shares[started]))
            break;
    }
    for (size_t i = started; i < count; i++)
        task(job, i); // those that did not start
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* On the calling thread, backward. */
static void run_backward(void *user, size_t count,
                         void (*task)(void *job, size_t index), void *job)
{
    ++*(size_t *)user;
    while (count-- > 0)
        task(job, count);
}

static void attend(const bauta_options *options, const float *qkv, float *out)
{
    bauta_context *context;
    bauta_mask *mask;
    bauta_plan *plan;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_error err;
    size_t width = HEADS * DIM, size = TOKENS * width;
    shape.heads = HEADS;
    shape.head_dim = DIM;
    assert_int_equal(bauta_context_create(&context, options, &err), BAUTA_OK);
    assert_int_equal(bauta_mask_causal(&mask, TOKENS, TOKENS, &err), BAUTA_OK);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, TOKENS, &err), BAUTA_OK);
    if (bauta_attention_forward(context, plan, &shape, qkv, qkv + size,
                                qkv + 2 * size, out, NULL, &err))
        fail_msg("%s", err.message);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_context_free(context);
}

static void an_embedder_s_loop_gives_the_same_bits(void **state)
{
    (void)state;
    static float qkv[3 * TOKENS * HEADS * DIM];
    static float want[TOKENS * HEADS * DIM], got[TOKENS * HEADS * DIM];
    bauta_parallel_for_fn *const loops[] = { run_threads, run_backward };
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < sizeof(qkv) / sizeof(*qkv); i++)
        qkv[i] = test_float(&r);
    attend(NULL, qkv, want);
    for (size_t i = 0; i < 2; i++)
        for (int threads = 1; threads <= SHARES_MAX; threads++) {
            bauta_options options = BAUTA_OPTIONS_INIT;
            size_t calls = 0;
            options.threads = threads;
            options.parallel_for = loops[i];
            options.parallel_for_user = &calls;
            memset(got, 0, sizeof(got));
            attend(&options, qkv, got);
            assert_memory_equal(got, want, sizeof(want));
            assert_int_equal(calls > 0, threads > 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_embedder_s_loop_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
