/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - what can influence what, through any number of layers. */
#include "base/error.h"
#include "mask/builder.h"

#include <string.h>

static bool same_pairs(const bauta_mask *a, const bauta_mask *b)
{
    size_t spans = a->start[a->queries];
    return a->pairs == b->pairs && spans == b->start[b->queries] &&
           !memcmp(a->start, b->start, a->queries * sizeof(*a->start)) &&
           !memcmp(a->spans, b->spans, spans * sizeof(*a->spans));
}

/* *mask = *mask composed with lower; *changed, whether that made it another. */
static bauta_status advance(bauta_mask **mask, const bauta_mask *lower,
                            bool *changed, bauta_error *err)
{
    bauta_mask *next;
    bauta_status status = bauta_mask_compose(&next, *mask, lower, err);
    if (status)
        return status;
    *changed = !same_pairs(*mask, next);
    bauta_mask_free(*mask);
    *mask = next;
    return BAUTA_OK;
}

/* The power of (mask OR identity), by squaring. With the identity inside, the
 * powers only grow; once a square is not larger nothing further can be
 * reached, and one factor stands for all that are left. That comes after at
 * most log2(queries) + 1 squares, whatever the number of layers. */
bauta_status bauta_mask_reach(bauta_mask **out, const bauta_mask *mask,
                              size_t layers, bauta_error *err)
{
    bauta_status status = bt_mask_clear(out, err);
    if (status)
        return status;
    if (!mask)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "reach: the mask is NULL");
    if (mask->queries != mask->keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "reach: the mask has %zu queries and %zu keys, and is "
                       "not square",
                       mask->queries, mask->keys);

    bauta_mask *reach = NULL, *power = NULL;
    bool changed = true;
    status = bauta_mask_window(&reach, mask->queries, mask->keys, 1, err);
    if (!status)
        status = bauta_mask_or(&power, mask, reach, err);
    while (layers && !status) {
        bool ignored;
        if (layers % 2)
            status = advance(&reach, power, &ignored, err);
        layers /= 2;
        if (layers && !status)
            status = advance(&power, power, &changed, err);
        if (!changed && layers > 1)
            layers = 1;
    }
    bauta_mask_free(power);
    if (status)
        bauta_mask_free(reach);
    else
        *out = reach;
    return status;
}
