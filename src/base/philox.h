/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, a counter-based random number generator.
 *
 * A pure function of a key and a counter (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). Key and counter name what a number
 * is for, so a resumed or re-batched run draws the same ones and no generator
 * state exists to be saved. */
#ifndef BT_PHILOX_H
#define BT_PHILOX_H

#include <stdint.h>

/* out = the four random words of a counter under a key. */
void bt_philox(uint32_t out[4], const uint32_t counter[4],
               const uint32_t key[2]);

#endif
