/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_accumulation.h - gradient accumulation: copies, sums and sums over
 * rows. */
#ifndef BT_GRADIENT_ACCUMULATION_H
#define BT_GRADIENT_ACCUMULATION_H

#include "base/thread_pool.h"

/* to = from, or to += from with `add`, element by element. Both are (rows,
 * columns), with rows a stride apart. */
void bt_grad_accumulate(bt_thread_pool *pool, float *to, size_t to_stride,
                        const float *from, size_t from_stride, size_t rows,
                        size_t columns, bool add);

/* to[c] = the sum over rows of from[row][c], or to[c] += that with `add`: one
 * chain of additions in row order that starts from 0 or to[c]. Threads split
 * the columns, so they change no bit. */
void bt_grad_accumulate_rows(bt_thread_pool *pool, float *to /* (columns) */,
                             const float *from /* (rows, columns) */,
                             size_t stride, size_t rows, size_t columns,
                             bool add);

#endif
