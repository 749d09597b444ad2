/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/dropout.h"

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

enum { WAYS = 16, DROPOUT_CHUNK = 4 * WAYS };

/* One round of bt_philox(). */
#define PHILOX_ROUND(k0, k1)                     \
    do {                                         \
        uint64_t a = (uint64_t)c0 * 0xD2511F53u; \
        uint64_t b = (uint64_t)c2 * 0xCD9E8D57u; \
        c0 = (uint32_t)(b >> 32) ^ c1 ^ (k0);    \
        c1 = (uint32_t)b;                        \
        c2 = (uint32_t)(a >> 32) ^ c3 ^ (k1);    \
        c3 = (uint32_t)a;                        \
    } while (0)

/* bt_philox() of sixteen consecutive counters: word w of counter i is at
 * w * 16 + i. The rounds are unrolled by hand, which leaves one plain loop. */
static void philox_words(uint32_t *restrict words, const bt_dropout *dropout,
                         uint64_t token, uint32_t counter)
{
    uint32_t k[2][10];
    for (uint32_t r = 0; r < 10; r++) {
        k[0][r] = (uint32_t)dropout->seed + r * 0x9E3779B9u;
        k[1][r] = (uint32_t)(dropout->seed >> 32) + r * 0xBB67AE85u;
    }
    uint32_t site = dropout->site, low = (uint32_t)token;
    uint32_t high = (uint32_t)(token >> 32);
    for (uint32_t i = 0; i < WAYS; i++) {
        uint32_t c0 = counter + i, c1 = site, c2 = low, c3 = high;
        PHILOX_ROUND(k[0][0], k[1][0]);
        PHILOX_ROUND(k[0][1], k[1][1]);
        PHILOX_ROUND(k[0][2], k[1][2]);
        PHILOX_ROUND(k[0][3], k[1][3]);
        PHILOX_ROUND(k[0][4], k[1][4]);
        PHILOX_ROUND(k[0][5], k[1][5]);
        PHILOX_ROUND(k[0][6], k[1][6]);
        PHILOX_ROUND(k[0][7], k[1][7]);
        PHILOX_ROUND(k[0][8], k[1][8]);
        PHILOX_ROUND(k[0][9], k[1][9]);
        words[i] = c0;
        words[WAYS + i] = c1;
        words[2 * WAYS + i] = c2;
        words[3 * WAYS + i] = c3;
    }
}

static void dropout_apply(float *restrict y, const float *restrict x,
                          const uint32_t *restrict words,
                          const bt_dropout *dropout, size_t count)
{
    uint32_t below = dropout->below;
    float scale = dropout->scale;
    bool add = dropout->add;
    for (size_t c = 0; c < count; c++) {
        float scaled = x[c] * scale;
        float v = words[c] >= below ? scaled : 0.0f;
        y[c] = add ? y[c] + v : v;
    }
}

void KERNEL(bt_dropout_f32)(const bt_dropout *dropout, size_t first,
                            size_t count)
{
    uint32_t words[DROPOUT_CHUNK];
    size_t columns = dropout->columns;
    for (size_t i = first; i < first + count; i++)
        for (size_t c = 0, n; c < columns; c += n) {
            n = columns - c < DROPOUT_CHUNK ? columns - c : DROPOUT_CHUNK;
            philox_words(words, dropout, dropout->tokens[i], (uint32_t)(c / 4));
            dropout_apply(dropout->y + i * columns + c,
                          dropout->x + i * columns + c, words, dropout, n);
        }
}
