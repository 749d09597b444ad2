/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.c - gradients that are copied, added or summed over rows. Memory
 * bounds all of it, so the loops are the plain ones. */
#include "ops/accumulate.h"

#include "base/size.h"
#include "base/threads.h"

#include <string.h>

enum {
    STRETCH = 1 << 14, /* elements in a task */
    STRIPE = 128       /* columns in a task, whose sums stay in the L1 cache */
};

typedef struct accumulation {
    float *to;
    const float *from;
    size_t rows, columns;
    bool add;
} accumulation;

static void add_row(float *restrict to, const float *restrict from,
                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void run_stretch(void *job, size_t task, int thread)
{
    (void)thread;
    const accumulation *a = job;
    size_t first = task * STRETCH;
    size_t count = bt_size_min(STRETCH, a->columns - first);
    if (a->add)
        add_row(a->to + first, a->from + first, count);
    else
        memcpy(a->to + first, a->from + first, count * sizeof(float));
}

static void run_stripe(void *job, size_t task, int thread)
{
    (void)thread;
    const accumulation *a = job;
    size_t first = task * STRIPE;
    size_t count = bt_size_min(STRIPE, a->columns - first);
    if (!a->add)
        memset(a->to + first, 0, count * sizeof(float));
    for (size_t row = 0; row < a->rows; row++)
        add_row(a->to + first, a->from + row * a->columns + first, count);
}

static void run(int threads, accumulation *a, size_t unit, bt_task_fn *task)
{
    // What one task does is not worth waking another thread.
    if (bt_size_mul(a->rows, a->columns) <= STRETCH)
        threads = 1;
    bt_parallel(threads, a->columns / unit + (a->columns % unit != 0), task, a);
}

void bt_accumulate(int threads, float *to, const float *from, size_t count,
                   bool add)
{
    accumulation a = { to, from, 1, count, add };
    run(threads, &a, STRETCH, run_stretch);
}

void bt_accumulate_rows(int threads, float *to, const float *from, size_t rows,
                        size_t columns, bool add)
{
    accumulation a = { to, from, rows, columns, add };
    run(threads, &a, STRIPE, run_stripe);
}
