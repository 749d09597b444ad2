/* SPDX-License-Identifier: Apache-2.0 */
/* masks.h - masks of every kind, for the checks of the GPU kernels. */
#ifndef BT_TEST_CUDA_MASKS_H
#define BT_TEST_CUDA_MASKS_H

#include "bauta.h"
#include "checking.h"

typedef bauta_mask *make_fn(size_t n, size_t m);

static inline bauta_mask *got(bauta_status status, bauta_mask *mask,
                              const bauta_error *err)
{
    need(status, err);
    return mask;
}

#define MAKE(call)              \
    bauta_mask *mask = NULL;    \
    bauta_error err = { 0 };    \
    bauta_status status = call; \
    return got(status, mask, &err)

static inline bauta_mask *make_all(size_t n, size_t m)
{
    MAKE(bauta_mask_all(&mask, n, m, &err));
}

static inline bauta_mask *make_causal(size_t n, size_t m)
{
    MAKE(bauta_mask_causal(&mask, n, m, &err));
}

static inline bauta_mask *make_window(size_t n, size_t m)
{
    MAKE(bauta_mask_window(&mask, n, m, 1 + m / 5, &err));
}

static inline bauta_mask *make_window_one(size_t n, size_t m)
{
    MAKE(bauta_mask_window(&mask, n, m, 1, &err));
}

static inline bauta_mask *make_prefix(size_t n, size_t m)
{
    MAKE(bauta_mask_prefix(&mask, n, m, m / 3, &err));
}

static inline bauta_mask *make_dense(size_t n, size_t m)
{
    unsigned char *visible = malloc(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) // some rows see little, some nothing
            visible[i * m + j] = below(100) < (i * 37) % 101;
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static inline bauta_mask *both(bauta_mask *a, bauta_mask *b, bool either)
{
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = either ? bauta_mask_or(&mask, a, b, &err)
                                 : bauta_mask_and(&mask, a, b, &err);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return got(status, mask, &err);
}

static inline bauta_mask *make_sinks(size_t n, size_t m)
{
    bauta_mask *sinks = NULL;
    bauta_error err = { 0 };
    need(bauta_mask_sinks(&sinks, n, m, 4, &err), &err);
    return both(make_window(n, m), sinks, true);
}

static inline bauta_mask *make_strided(size_t n, size_t m)
{
    // Every third key, causal: forty spans in a pair of blocks.
    unsigned char *visible = malloc(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            visible[i * m + j] = (i + j) % 3 == 0 && j + n <= i + m;
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static inline bauta_mask *inverse(bauta_mask *a)
{
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_not(&mask, a, &err);
    bauta_mask_free(a);
    return got(status, mask, &err);
}

static inline bauta_mask *make_not_window(size_t n, size_t m)
{
    return inverse(make_window(n, m));
}

#endif
