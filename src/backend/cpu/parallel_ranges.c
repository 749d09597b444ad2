/* SPDX-License-Identifier: Apache-2.0 */
/* parallel_ranges.c - parallel loops over ranges. */
#include "backend/cpu/parallel_ranges.h"

#include "base/size.h"

enum { TASK_ELEMENTS = 1 << 14 };

typedef struct ranges {
    size_t count, each;
    bt_range_fn *run;
    void *job;
} ranges;

static void run_range(void *job, size_t task, int thread)
{
    (void)thread;
    const ranges *r = job;
    size_t first = task * r->each;
    r->run(r->job, first, bt_size_min(r->each, r->count - first));
}

void bt_parallel_ranges(bt_thread_pool *pool, size_t count, size_t each,
                        bt_range_fn *run, void *job)
{
    if (count <= each) {
        if (count)
            run(job, 0, count);
        return;
    }
    ranges r = { count, each, run, job };
    size_t tasks = count / each + (count % each != 0);
    bt_parallel_for(pool, tasks, run_range, &r);
}

size_t bt_rows_per_task(size_t columns)
{
    return bt_size_max(TASK_ELEMENTS / bt_size_max(columns, 1), 1);
}

size_t bt_columns_per_task(int threads, size_t columns)
{
    size_t share = columns / bt_size_max((size_t)threads, 1);
    return bt_size_round(bt_size_max(share, 1), 16);
}
