/* SPDX-License-Identifier: Apache-2.0 */
/* bit_digests.h - what tests/test_bit_digests.c found when it was recorded. */
#ifndef BT_TEST_BIT_DIGESTS_H
#define BT_TEST_BIT_DIGESTS_H

#include <stdint.h>

enum { DIGESTS = 6 };

typedef struct recorded {
    const char *family;
    uint64_t digests[DIGESTS]; /* logits, gradients, weights after 5 and after
                                  50 steps, generated, beams */
} recorded;

static const recorded recorded_digests[] = {
    { "gpt2",
      { 0x4a1c78408a17f744, 0x6b261c885ed08efa, 0xe13eaea16d48d897,
        0xa6ec37c69d17414a, 0x8c8da5f629c83ba3, 0x51bdd9b6a915cea0 } },
    { "llama",
      { 0x8bda32796a62ed49, 0x74c617102a7aed25, 0x4cc2d7686e8d4429,
        0x2c56c59fff9aaaf5, 0xf4f7c2876ddc2600, 0xa7d9f81d8c9fac3f } },
    { "mistral",
      { 0x34c7ff942a8cc88a, 0x1920f9dd544fdc2b, 0x927971f82ae78527,
        0x6d1a806512484cef, 0x68f0d2fe44680763, 0x5bb91c93dafc2965 } },
    { "qwen2",
      { 0x11ff2c8603003b3c, 0x089dd297d1ad11d6, 0x4f6d479dd324f911,
        0x37d9e46520c7a713, 0x0e86fe1685ed1562, 0xa1557596c9d8cda5 } },
    { "qwen3",
      { 0x59846de5da106d96, 0x2858998462e07399, 0x9d3d24c6db4e9d17,
        0x1ea18c753aebefc2, 0x5f36f1bf23f78e5e, 0xb1691bb3212ffe34 } },
    { "bert",
      { 0x463d855d079d2774, 0x18157384e9c38866, 0xc215af754077d888,
        0xa7587264053adebc, 0x0000000000000000, 0x0000000000000000 } },
    { "roberta",
      { 0x1ed1d41fa9c3312a, 0x7a3e5d5bfc5861bb, 0xe774455b64552f2d,
        0x8c69d87b31abd629, 0x0000000000000000, 0x0000000000000000 } },
    { "marian",
      { 0x0290bb471cdb8642, 0x011bdb8c3548d055, 0x38cbadb00869bbb9,
        0x890f2118ef884a79, 0x58a3d763478fd84f, 0x55e2b172c764b146 } },
    { "bart",
      { 0x00c7ac5b29d58c0b, 0xb8c5c6524f909788, 0x17b14acf2133c85b,
        0x6ba91c2bac8f5a82, 0xc59c9ada4f2ef180, 0x0e08fae05bf2bff3 } },
    { "t5",
      { 0xcdd1c81f15e27ce4, 0x937e989f2e9716b4, 0xe71d5c270211f37f,
        0xd735c770a2d9b272, 0xa77e1f63e7457388, 0xbe0138c2c1fcd7d1 } },
    { "gemma2",
      { 0x7797f85fda9c2735, 0x37dbaca353bf5f31, 0xfda2c403d23a3cc3,
        0x46632560e5c9f70d, 0x52498cc78d82d655, 0xa1407f33f7e21925 } },
    { "gemma3_text",
      { 0xd5ec4b094f44770b, 0x994950b31f553047, 0x81fc87cec7084eba,
        0xe46df5a4fcb3a4fa, 0xf953aea6257e7f81, 0xd00e98863882caf2 } },
    { "mpt",
      { 0x9ca42309d1c6fe54, 0xe775a878fed801d8, 0x213f381ab192399f,
        0xd009aabf9935ddbd, 0x3d747181742cb3b3, 0x02ac5ecf028dd987 } },
};

#endif
