/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_accumulation.c - gradient accumulation. It is limited by memory
 * bandwidth, so the loops are plain. */
#include "backend/cpu/gradient_accumulation.h"

#include "base/size.h"

#include <string.h>

enum {
    TASK_ELEMENTS = 1 << 14, /* elements in a task, roughly */
    STRIPE = 128 /* columns in a task; their sums stay in the L1 cache */
};

typedef struct accumulation {
    float *to;
    size_t to_stride;
    const float *from;
    size_t from_stride;
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
        float *to = a->to + row * a->to_stride;
        const float *from = a->from + row * a->from_stride;
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
        add_row(a->to + first, a->from + row * a->from_stride + first, count);
}

/* One thread if there is only one task's worth of work. */
static bt_thread_pool *pool_for(const accumulation *a, bt_thread_pool *pool)
{
    return bt_size_mul(a->rows, a->columns) <= TASK_ELEMENTS ? NULL : pool;
}

void bt_grad_accumulate(bt_thread_pool *pool, float *to, size_t to_stride,
                        const float *from, size_t from_stride, size_t rows,
                        size_t columns, bool add)
{
    size_t height = bt_size_max(TASK_ELEMENTS / bt_size_max(columns, 1), 1);
    accumulation a = { to,   to_stride, from,   from_stride,
                       rows, columns,   height, add };
    bt_parallel_for(pool_for(&a, pool), ceil_div(rows, height), run_rows, &a);
}

void bt_grad_accumulate_rows(bt_thread_pool *pool, float *to, const float *from,
                             size_t stride, size_t rows, size_t columns,
                             bool add)
{
    accumulation a = { to, columns, from, stride, rows, columns, 0, add };
    bt_parallel_for(pool_for(&a, pool), ceil_div(columns, STRIPE), run_columns,
                    &a);
}
