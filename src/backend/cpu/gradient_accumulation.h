/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_accumulation.h - gradient accumulation: copies, sums and sums over
 * rows. */
#ifndef BT_GRADIENT_ACCUMULATION_H
#define BT_GRADIENT_ACCUMULATION_H

#include <stdbool.h>
#include <stddef.h>

/* to = from, or to += from with `add`, element by element. The rows of `to` are
 * `stride` apart; `from` is dense. */
void bt_grad_accumulate(int threads, float *to, size_t stride,
                        const float *from /* (rows, columns) */, size_t rows,
                        size_t columns, bool add);

/* to[c] = the sum over rows of from[row][c], or to[c] += that with `add`: one
 * chain of additions in row order that starts from 0 or to[c]. Threads split
 * the columns, so they change no bit. */
void bt_grad_accumulate_rows(int threads, float *to /* (columns) */,
                             const float *from /* (rows, columns) */,
                             size_t rows, size_t columns, bool add);

#endif
