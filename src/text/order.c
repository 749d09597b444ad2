/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - a merge sort from the bottom up. */
#include "text/order.h"

#include <string.h>

enum { RUN = 8 };

static void run_sort(uint32_t *list, size_t count, bt_order_fn *swapped,
                     const void *user)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t moving = list[i];
        size_t j = i;
        for (; j > 0 && swapped(user, list[j - 1], moving); j--)
            list[j] = list[j - 1];
        list[j] = moving;
    }
}

/* Two sorted neighbours, [0, middle) and [middle, count), into one. */
static void run_merge(uint32_t *out, const uint32_t *list, size_t middle,
                      size_t count, bt_order_fn *swapped, const void *user)
{
    size_t a = 0, b = middle;
    for (size_t i = 0; i < count; i++) {
        bool second =
            a == middle || (b < count && swapped(user, list[a], list[b]));
        out[i] = second ? list[b++] : list[a++];
    }
}

void bt_order(uint32_t *list, uint32_t *spare, size_t count,
              bt_order_fn *swapped, const void *user)
{
    uint32_t *from = list, *to = spare;
    for (size_t i = 0; i < count; i += RUN)
        run_sort(list + i, count - i < RUN ? count - i : RUN, swapped, user);
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width) {
            size_t left = count - i;
            run_merge(to + i, from + i, left < width ? left : width,
                      left < 2 * width ? left : 2 * width, swapped, user);
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != list)
        memcpy(list, from, count * sizeof(*list));
}
