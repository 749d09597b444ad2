/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - 64 bits that tell data apart, to find damage and mistakes.
 *
 * Each step is a bijection of the state for a given value, and of the value
 * for a given state: a change of one value always changes the digest. It is no
 * defence against somebody who means to deceive. */
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

/* Of bytes and how many they are. */
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
