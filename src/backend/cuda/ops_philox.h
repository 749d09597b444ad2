/* SPDX-License-Identifier: Apache-2.0 */
/* ops_philox.h - bt_philox() of base/philox.h on the device. */
#ifndef BT_CUDA_OPS_PHILOX_H
#define BT_CUDA_OPS_PHILOX_H

#include "backend/cuda/hopper.h"

typedef struct philox_words {
    uint32_t word[4];
} philox_words;

BT_DEVICE philox_words philox(philox_words c, uint32_t k0, uint32_t k1)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c.word[0] * 0xD2511F53u;
        uint64_t b = (uint64_t)c.word[2] * 0xCD9E8D57u;
        c = { (uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
              (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a };
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

#endif
