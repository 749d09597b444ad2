/* SPDX-License-Identifier: Apache-2.0 */
/* masks.h - random masks of every kind and random expressions of them. */
#ifndef BT_TEST_MASKS_H
#define BT_TEST_MASKS_H

#include "bauta.h"
#include "testing.h"

/* A list of `count` lengths that sum to `total`; some may be 0. */
static inline void test_lengths(test_random *r, size_t *lengths, size_t count,
                                size_t total)
{
    for (size_t i = 0; i < count; i++) {
        lengths[i] = i + 1 < count ? test_below(r, total + 1) : total;
        total -= lengths[i];
    }
}

static inline bauta_mask *test_mask_dense(test_random *r, size_t queries,
                                          size_t keys)
{
    bauta_mask *mask = NULL;
    unsigned char *dense = malloc(queries * keys + 1);
    assert_non_null(dense);
    size_t density = 1 + test_below(r, 10);
    for (size_t i = 0; i < queries * keys; i++)
        dense[i] = test_below(r, 11) < density;
    assert_int_equal(bauta_mask_dense(&mask, queries, keys, dense, NULL), 0);
    free(dense);
    return mask;
}

/* A mask of one kind. */
static inline bauta_mask *test_mask_kind(test_random *r, size_t n, size_t m)
{
    bauta_mask *mask = NULL;
    size_t a[5], b[5], count = 1 + test_below(r, 5);
    bauta_status status = BAUTA_OK;
    switch (test_below(r, 8)) {
    case 0:
        status = bauta_mask_all(&mask, n, m, NULL);
        break;
    case 1:
        status = bauta_mask_causal(&mask, n, m, NULL);
        break;
    case 2:
        status = bauta_mask_window(&mask, n, m, 1 + test_below(r, m + 2), NULL);
        break;
    case 3:
        status = bauta_mask_prefix(&mask, n, m, test_below(r, m + 2), NULL);
        break;
    case 4:
        status = bauta_mask_sinks(&mask, n, m, test_below(r, m + 2), NULL);
        break;
    case 5:
    case 6:
        test_lengths(r, a, count, n);
        test_lengths(r, b, count, m);
        status = bauta_mask_documents(&mask, count, a, b, NULL);
        break;
    default:
        return test_mask_dense(r, n, m);
    }
    assert_int_equal(status, BAUTA_OK);
    return mask;
}

/* A mask of one kind, or an expression of up to 2^depth of them. */
static inline bauta_mask *test_mask_random(test_random *r, size_t n, size_t m,
                                           int depth)
{
    size_t op = depth ? test_below(r, 5) : 0;
    if (op < 2)
        return test_mask_kind(r, n, m);
    bauta_mask *out = NULL, *a = test_mask_random(r, n, m, depth - 1);
    bauta_mask *b = test_mask_random(r, n, m, depth - 1);
    bauta_status status = op == 2   ? bauta_mask_and(&out, a, b, NULL)
                          : op == 3 ? bauta_mask_or(&out, a, b, NULL)
                                    : bauta_mask_not(&out, a, NULL);
    assert_int_equal(status, BAUTA_OK);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return out;
}

#endif
