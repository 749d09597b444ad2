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

uint64_t bt_random(uint64_t seed, bt_random_purpose purpose, uint64_t a,
                   uint32_t b)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)a, (uint32_t)(a >> 32), b,
                                  0x64610000u + (uint32_t)purpose };
    uint32_t word[4];
    bt_philox(word, counter, key);
    return (uint64_t)word[0] << 32 | word[1];
}

double bt_random_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

size_t bt_random_below(uint64_t bits, size_t limit)
{
    return (size_t)(((unsigned __int128)bits * limit) >> 64);
}
