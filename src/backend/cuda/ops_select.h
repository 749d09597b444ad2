/* SPDX-License-Identifier: Apache-2.0 */
/* ops_select.h - the largest values of a row, by one block of 1,024 threads.
 *
 * A value is a key that sorts as it does. Of 1,024 threads each has the largest
 * key of its part of the row; the n-th largest of those is a bound that at
 * least n keys reach, and hardly more. What reaches it is collected and sorted:
 * by key, and equal keys by their place. Where more than CANDIDATES reach it
 * (many equal values) the exact key is found bit by bit instead. */
#ifndef BT_CUDA_OPS_SELECT_H
#define BT_CUDA_OPS_SELECT_H

#include "backend/cuda/ops_stats.h"

enum { BLOCK = 1024, CANDIDATES = 2048 };

/* Shared memory of a block. Slices are computed when there are no candidates.
 */
typedef struct select_memory {
    union {
        uint64_t candidates[CANDIDATES]; /* key << 32 | ~place, sorted */
        slice_stats slices[SLICES_MOST];
    };
    uint64_t warps[32];
    float warp_max[32];
    uint32_t count;
} select_memory;

/* Above 0, and in the order of values; 0 for -infinity and NaN. */
BT_DEVICE uint32_t key_of(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f); // -0 becomes 0
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return value > -INFINITY ? key : 0;
}

BT_DEVICE float value_of_key(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The sum over all threads of the block, the same in each. */
BT_DEVICE uint64_t block_sum(uint64_t x, select_memory *m)
{
    x = lanes_sum<32>((unsigned long long)x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        m->warps[threadIdx.x / 32] = x;
    __syncthreads();
    return lanes_sum<32>((unsigned long long)m->warps[threadIdx.x % 32]);
}

BT_DEVICE float block_max(float x, select_memory *m)
{
    x = lanes_max<32>(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        m->warp_max[threadIdx.x / 32] = x;
    __syncthreads();
    return lanes_max<32>(m->warp_max[threadIdx.x % 32]);
}

/* Sort `count` candidates, a power of two, the largest one first. */
BT_DEVICE void sort_candidates(select_memory *m, uint32_t count)
{
    for (uint32_t size = 2; size <= count; size *= 2)
        for (uint32_t step = size / 2; step; step /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < count / 2; i += BLOCK) {
                uint32_t a = (i & ~(step - 1)) * 2 | (i & (step - 1));
                uint32_t b = a + step;
                uint64_t x = m->candidates[a], y = m->candidates[b];
                bool falls = (a & size) == 0;
                if ((x < y) == falls) {
                    m->candidates[a] = y;
                    m->candidates[b] = x;
                }
            }
        }
    __syncthreads();
}

/* Collect all places whose key reaches `least` (and, of those that equal it,
 * up to `last`). Returns how many there are; they are sorted if they fit. */
template <class K>
BT_DEVICE uint32_t collect(const K &key_at, uint32_t vocab, uint32_t least,
                           uint32_t last, select_memory *m)
{
    __syncthreads();
    if (threadIdx.x == 0)
        m->count = 0;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < vocab; j += BLOCK) {
        uint32_t key = key_at(j);
        if (key > least || (key == least && j <= last)) {
            uint32_t at = atomicAdd(&m->count, 1);
            if (at < CANDIDATES)
                m->candidates[at] = (uint64_t)key << 32 | (uint32_t)~j;
        }
    }
    __syncthreads();
    uint32_t count = m->count, room = 2;
    if (count > CANDIDATES)
        return count;
    while (room < count)
        room *= 2;
    for (uint32_t i = count + threadIdx.x; i < room; i += BLOCK)
        m->candidates[i] = 0;
    sort_candidates(m, room);
    return count;
}

/* The largest key that `reaches`, a test that all smaller keys above 0 pass,
 * too; 0 if none does. All threads pass the same answers. */
template <class R> BT_DEVICE uint32_t largest_key(const R &reaches)
{
    uint32_t key = 0;
    for (int bit = 31; bit >= 0; bit--)
        if (reaches(key | 1u << bit))
            key |= 1u << bit;
    return key;
}

template <class K>
BT_DEVICE uint64_t count_from(const K &key_at, uint32_t vocab, uint32_t least,
                              uint32_t places, select_memory *m)
{
    uint64_t count = 0;
    for (uint32_t j = threadIdx.x; j < vocab; j += BLOCK) {
        uint32_t key = key_at(j);
        count += key > least || (key == least && j < places);
    }
    return block_sum(count, m);
}

/* Leave the `want` largest in m->candidates, sorted; 1 <= want <= BLOCK.
 * Returns their number, less than `want` if there are no more. More than `want`
 * may be returned: those follow the others in the order of the row. */
template <class K>
BT_DEVICE uint32_t select_largest(const K &key_at, uint32_t vocab,
                                  uint32_t want, select_memory *m)
{
    uint32_t most = 0;
    for (uint32_t j = threadIdx.x; j < vocab; j += BLOCK)
        most = max(most, key_at(j));
    __syncthreads();
    m->candidates[threadIdx.x] = most;
    sort_candidates(m, BLOCK);
    uint32_t least = max((uint32_t)m->candidates[want - 1], 1u);
    uint32_t count = collect(key_at, vocab, least, vocab, m);
    if (count <= CANDIDATES)
        return count;
    // The key of the want-th, and how many places with that key are needed.
    least = largest_key([&](uint32_t key) {
        return count_from(key_at, vocab, key, vocab, m) >= want;
    });
    uint32_t places = largest_key([&](uint32_t end) {
        return count_from(key_at, vocab, least, end, m) < want;
    });
    return collect(key_at, vocab, least, places, m);
}

#endif
