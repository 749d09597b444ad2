/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_accumulation.c - gradient accumulation. It is limited by memory
 * bandwidth, so the loops are plain. */
#include "backend/cpu/gradient_accumulation.h"

#include "base/size.h"
#include "base/threads.h"

#include <string.h>

enum {
    TASK_ELEMENTS = 1 << 14, /* elements in a task, roughly */
    STRIPE = 128 /* columns in a task; their sums stay in the L1 cache */
};

typedef struct accumulation {
    float *to;
    size_t stride; /* of to */
    const float *from;
    size_t rows, columns;
    size_t height; /* rows in a task */
    bool add;
} accumulation;

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static void add_row(float *restrict to, const float *restrict from,
                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void run_rows(void *job, size_t task, int thread)
{
    (void)thread;
    const accumulation *a = job;
    size_t first = task * a->height;
    size_t last = bt_size_min(first + a->height, a->rows);
    for (size_t row = first; row < last; row++) {
        float *to = a->to + row * a->stride;
        const float *from = a->from + row * a->columns;
        if (a->add)
            add_row(to, from, a->columns);
        else
            memcpy(to, from, a->columns * sizeof(float));
    }
}

static void run_columns(void *job, size_t task, int thread)
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

/* One thread if there is only one task's worth of work. */
static int threads_for(const accumulation *a, int threads)
{
    return bt_size_mul(a->rows, a->columns) <= TASK_ELEMENTS ? 1 : threads;
}

void bt_grad_accumulate(int threads, float *to, size_t stride,
                        const float *from, size_t rows, size_t columns,
                        bool add)
{
    size_t height = bt_size_max(TASK_ELEMENTS / bt_size_max(columns, 1), 1);
    accumulation a = { to, stride, from, rows, columns, height, add };
    bt_parallel_for(threads_for(&a, threads), ceil_div(rows, height), run_rows,
                    &a);
}

void bt_grad_accumulate_rows(int threads, float *to, const float *from,
                             size_t rows, size_t columns, bool add)
{
    accumulation a = { to, columns, from, rows, columns, 0, add };
    bt_parallel_for(threads_for(&a, threads), ceil_div(columns, STRIPE),
                    run_columns, &a);
}
