/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, a counter-based random number generator.
 *
 * A pure function of a key and a counter (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). Key and counter identify what a
 * number is used for, so a resumed or re-batched run draws the same numbers and
 * there is no generator state to save. */
#ifndef BT_PHILOX_H
#define BT_PHILOX_H

#include <stdint.h>

/* out = the four random words for a counter and a key. */
void bt_philox(uint32_t out[4], const uint32_t counter[4],
               const uint32_t key[2]);

#endif
