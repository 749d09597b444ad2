/* SPDX-License-Identifier: Apache-2.0 */
/* merge_sort.c - a bottom-up merge sort; see merge_sort.h. */
#include "base/merge_sort.h"

#include <string.h>

enum { RUN = 8 }; /* elements that are sorted by insertion */

static void run_sort(uint32_t *list, size_t count, bt_sort_after_fn *after,
                     const void *user)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t moving = list[i];
        size_t j = i;
        for (; j > 0 && after(user, list[j - 1], moving); j--)
            list[j] = list[j - 1];
        list[j] = moving;
    }
}

/* Merge the sorted runs [0, middle) and [middle, count). */
static void run_merge(uint32_t *out, const uint32_t *list, size_t middle,
                      size_t count, bt_sort_after_fn *after, const void *user)
{
    size_t a = 0, b = middle;
    for (size_t i = 0; i < count; i++) {
        bool second =
            a == middle || (b < count && after(user, list[a], list[b]));
        out[i] = second ? list[b++] : list[a++];
    }
}

void bt_merge_sort(uint32_t *list, uint32_t *spare, size_t count,
                   bt_sort_after_fn *after, const void *user)
{
    uint32_t *from = list, *to = spare;
    for (size_t i = 0; i < count; i += RUN)
        run_sort(list + i, count - i < RUN ? count - i : RUN, after, user);
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width) {
            size_t left = count - i;
            run_merge(to + i, from + i, left < width ? left : width,
                      left < 2 * width ? left : 2 * width, after, user);
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != list)
        memcpy(list, from, count * sizeof(*list));
}
