/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.h - the length of a chunk of keys, a constant of the library: it
 * decides the bits of every row that sees more keys than that. See softmax.h.
 *
 * Long chunks cost the forward pass least; short ones give decoding more jobs
 * that run in parallel. docs/performance.md has the figures. */
#ifndef BT_CUDA_CHUNK_H
#define BT_CUDA_CHUNK_H

enum { BT_CHUNK = 4096 }; /* keys, from a row's origin */

#endif
