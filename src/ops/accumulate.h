/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.h - gradients that are copied, added or summed over rows. */
#ifndef BT_ACCUMULATE_H
#define BT_ACCUMULATE_H

#include <stdbool.h>
#include <stddef.h>

/* to = from, or to += from, element by element; the rows of `to` are `stride`
 * apart, those of `from` lie together. */
void bt_accumulate(int threads, float *to, size_t stride,
                   const float *from /* (rows, columns) */, size_t rows,
                   size_t columns, bool add);

/* to[c] = the sum over rows of from[row][c], or to[c] += that: one chain of
 * additions in the order of the rows, which starts from to[c] or from 0.
 * Threads share the columns, so they change no bit. */
void bt_accumulate_rows(int threads, float *to /* (columns) */,
                        const float *from /* (rows, columns) */, size_t rows,
                        size_t columns, bool add);

#endif
