/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - a 64-bit digest that detects damaged or mixed-up data.
 *
 * Each step is a bijection of the state for a given value, and of the value
 * for a given state, so changing one value always changes the digest. It is
 * not cryptographic. */
#ifndef BT_DIGEST_H
#define BT_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t bt_digest_mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return digest ^ digest >> 29;
}

/* Mix in `size` bytes, and the size itself. */
static inline uint64_t bt_digest_bytes(uint64_t digest, const void *bytes,
                                       size_t size)
{
    const unsigned char *at = bytes;
    digest = bt_digest_mix(digest, size);
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        digest = bt_digest_mix(digest, word);
    }
    for (; size; size--)
        digest = bt_digest_mix(digest, *at++);
    return digest;
}

#endif
