/* SPDX-License-Identifier: Apache-2.0 */
/* philox.c - ten rounds of multiply, exchange and xor. */
#include "base/philox.h"

void bt_philox(uint32_t out[4], const uint32_t counter[4],
               const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u;
        uint64_t b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u; // the golden ratio
        k1 += 0xBB67AE85u; // the square root of three, less one
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
