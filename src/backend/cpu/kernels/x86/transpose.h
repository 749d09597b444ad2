/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.h - a key block transposed so that lanes are keys, in squares of
 * 8 x 8. One body for AVX2 and AVX-512; x86/attention.h includes it. */
#ifndef BT_TRANSPOSE_X86_H
#define BT_TRANSPOSE_X86_H

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/x86/simd.h"

#include <string.h>

enum { BLOCK = 64, SIDE = 8 };

/* to[c][r] = from[r][c] for eight rows and eight columns, half a group. */
INLINE void square(float *to, const float *from, size_t stride)
{
    __m256 r[SIDE], s[SIDE];
    for (size_t i = 0; i < SIDE; i++)
        r[i] = _mm256_loadu_ps(from + i * stride);
    for (size_t i = 0; i < SIDE; i += 2) { // pairs of rows interleaved
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < SIDE; i += 4) { // fours
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (size_t i = 0; i < 4; i++) { // halves
        _mm256_storeu_ps(to + i * BT_KEY_GROUP,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * BT_KEY_GROUP,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

void TWIN(bt_transpose_f32)(float *to, const float *from, size_t stride,
                            size_t keys, size_t columns)
{
    size_t squares = columns - columns % SIDE;
    size_t end = bt_keys_end(columns, keys);
    memset(to + end, 0, (BLOCK * columns - end) * sizeof(*to));
    for (size_t j = 0; j * columns < end; j += SIDE) {
        size_t first = 0; // columns not done in squares
        if (j + SIDE <= keys)
            for (; first < squares; first += SIDE)
                square(to + bt_key_at(columns, j, first),
                       from + j * stride + first, stride);
        for (size_t c = first; c < columns; c++)
            for (size_t i = j; i < j + SIDE; i++)
                to[bt_key_at(columns, i, c)] =
                    i < keys ? from[i * stride + c] : 0.0f;
    }
}

#endif
