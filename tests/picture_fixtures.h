/* SPDX-License-Identifier: Apache-2.0 */
/* picture_fixtures.h - attention matrices and labels for the tests of
 * pictures. */
#ifndef BT_TEST_PICTURE_FIXTURES_H
#define BT_TEST_PICTURE_FIXTURES_H

#include "bauta.h"
#include "testing.h"

#include <math.h>

/* Labels with characters that need escaping. */
static const char *const tokens[] = { "The",  " cat", "\n",      "",
                                      "\xff", "\"<&", "</script" };

/* Random weights whose visible entries add up to 1 in each row. */
static inline float *weights_draw(test_random *r, const bauta_mask *mask)
{
    size_t rows = bauta_mask_queries(mask), columns = bauta_mask_keys(mask);
    float *w = calloc(rows * columns + 1, sizeof(*w));
    assert_non_null(w);
    for (size_t i = 0; i < rows; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < columns; j++)
            if (bauta_mask_visible(mask, i, j))
                sum += w[i * columns + j] = expf(4.0f * test_float(r));
        for (size_t j = 0; sum > 0.0f && j < columns; j++)
            w[i * columns + j] /= sum;
    }
    return w;
}

static inline bauta_mask *mask_of(const char *text, size_t rows, size_t columns)
{
    bauta_mask *mask;
    assert_int_equal(bauta_mask_parse(&mask, text, rows, columns, NULL), 0);
    return mask;
}

static inline bauta_picture picture_of(const bauta_mask *mask,
                                       const float *weights)
{
    bauta_picture p = BAUTA_PICTURE_INIT;
    p.rows = bauta_mask_queries(mask);
    p.columns = bauta_mask_keys(mask);
    p.mask = mask;
    p.weights = weights;
    return p;
}

static inline void save(const char *path, const bauta_picture *p, size_t count)
{
    bauta_error err;
    if (bauta_picture_save(path, p, count, NULL, &err))
        fail_msg("%s", err.message);
}

#endif
