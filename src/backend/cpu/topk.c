/* SPDX-License-Identifier: Apache-2.0 */
/* topk.c - a heap behind a threshold; see topk.h. */
#include "backend/cpu/topk.h"

#include "base/size.h"

#include <math.h>
#include <stdbool.h>

/* Numbers that are compared with the threshold together. */
enum { BLOCK = 256 };

static bool better(const bt_topk_item *a, const bt_topk_item *b)
{
    if (a->value != b->value)
        return a->value > b->value;
    return a->row != b->row ? a->row < b->row : a->id < b->id;
}

/* Sift the item at `at` down until no child is worse. The root is the worst. */
static void sift_down(bt_topk_item *all, size_t count, size_t at)
{
    bt_topk_item moving = all[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && better(&all[child], &all[child + 1]))
            child++;
        if (!better(&moving, &all[child]))
            break;
        all[at] = all[child];
    }
    all[at] = moving;
}

bt_topk bt_topk_init(bt_topk_item *memory, size_t want)
{
    return (bt_topk){ want, 0, memory };
}

static void add(bt_topk *p, bt_topk_item pick)
{
    if (p->count == p->want) {
        p->all[0] = pick;
        sift_down(p->all, p->count, 0);
        return;
    }
    p->all[p->count++] = pick;
    if (p->count == p->want)
        for (size_t i = p->want / 2; i-- > 0;)
            sift_down(p->all, p->count, i);
}

/* A new value must be larger than this; of equal values the first stays. */
static float threshold_of(const bt_topk *p)
{
    return p->count == p->want ? p->all[0].value : -INFINITY;
}

void bt_topk_add_row(bt_topk *p, const bt_kernels *kernels, const float *x,
                     size_t count, float max, uint32_t row, float less,
                     float more)
{
    float threshold = threshold_of(p);
    if (p->want == 0 || !((max - less) + more > threshold))
        return;
    for (size_t j = 0; j < count; j += BLOCK) {
        size_t end = j + bt_size_min(count - j, BLOCK);
        if (!((kernels->row_max(x + j, end - j) - less) + more > threshold))
            continue;
        for (size_t i = j; i < end; i++) {
            float value = (x[i] - less) + more;
            if (!(value > threshold))
                continue;
            add(p, (bt_topk_item){ value, row, (uint32_t)i });
            threshold = threshold_of(p);
        }
    }
}

/* Heap sort: the worst item moves to the end, one after another. */
void bt_topk_sort(bt_topk *p)
{
    if (p->count < p->want)
        for (size_t i = p->count / 2; i-- > 0;)
            sift_down(p->all, p->count, i);
    for (size_t left = p->count; left > 1; left--) {
        bt_topk_item worst = p->all[0];
        p->all[0] = p->all[left - 1];
        p->all[left - 1] = worst;
        sift_down(p->all, left - 1, 0);
    }
}
