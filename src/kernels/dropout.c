/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - the reference and, included by the files of an instruction set
 * with another KERNEL, its twins. */
#include "kernels/dropout.h"

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

enum { WAYS = 16, PIECE = 4 * WAYS };

/* bt_philox() of sixteen counters that follow each other: word w of counter i
 * is at w * 16 + i. */
static void words_of(uint32_t words[PIECE], const bt_dropout *dropout,
                     uint64_t token, uint32_t counter)
{
    uint32_t c0[WAYS], c1[WAYS], c2[WAYS], c3[WAYS];
    uint32_t k0 = (uint32_t)dropout->seed;
    uint32_t k1 = (uint32_t)(dropout->seed >> 32);
    for (uint32_t i = 0; i < WAYS; i++) {
        c0[i] = counter + i;
        c1[i] = dropout->site;
        c2[i] = (uint32_t)token;
        c3[i] = (uint32_t)(token >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < WAYS; i++) {
            uint64_t a = (uint64_t)c0[i] * 0xD2511F53u;
            uint64_t b = (uint64_t)c2[i] * 0xCD9E8D57u;
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)b;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (size_t i = 0; i < WAYS; i++) {
        words[i] = c0[i];
        words[WAYS + i] = c1[i];
        words[2 * WAYS + i] = c2[i];
        words[3 * WAYS + i] = c3[i];
    }
}

static void keep(float *restrict y, const float *restrict x,
                 const uint32_t *restrict words, const bt_dropout *dropout,
                 size_t count)
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
    uint32_t words[PIECE];
    size_t columns = dropout->columns;
    for (size_t i = first; i < first + count; i++)
        for (size_t c = 0, n; c < columns; c += n) {
            n = columns - c < PIECE ? columns - c : PIECE;
            words_of(words, dropout, dropout->tokens[i], (uint32_t)(c / 4));
            keep(dropout->y + i * columns + c, dropout->x + i * columns + c,
                 words, dropout, n);
        }
}
