/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - random numbers that are the same on every machine. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64. */
static inline uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number below `count`, which is below 2^32. */
static inline size_t random_below(uint64_t *state, size_t count)
{
    return (size_t)((splitmix64(state) >> 32) * count >> 32);
}

#endif
