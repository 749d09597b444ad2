/* SPDX-License-Identifier: Apache-2.0 */
/* held.h - operations that wait for those that follow them.
 *
 * In a step of decoding a norm or a gated activation takes longer to start than
 * to run, and the products before and after it can compute it along the way
 * (gemm.h). So such an operation is not queued but held, until the next one of
 * the stream is known:
 *
 *   a norm or a gated activation of few rows, until a product that takes it,
 *   a product, until a gated activation of its result, which it ends with.
 *
 * Before any other operation it is queued as it is. Everything that queues work
 * on a stream, waits for it or frees memory calls bt_cuda_held_queue() first.
 */
#ifndef BT_CUDA_HELD_H
#define BT_CUDA_HELD_H

#include "backend/cuda/gemm.h"

struct bt_cuda_stream;

/* The operation that a stream holds. */
typedef struct bt_cuda_held {
    enum { BT_HELD_NONE, BT_HELD_NORM, BT_HELD_GATE, BT_HELD_PRODUCT } kind;
    bt_cuda_norm_args norm;
    bt_cuda_act_args gate;
    bt_cuda_gemm_args product;
} bt_cuda_held;

/* Hold the operation, let the product that is held end with it, or queue it
 * where no product would take it. */
bauta_status bt_cuda_hold_norm(struct bt_cuda_stream *stream,
                               const bt_cuda_norm_args *norm, bauta_error *err);
bauta_status bt_cuda_hold_gate(struct bt_cuda_stream *stream,
                               const bt_cuda_act_args *gate, bauta_error *err);

/* Hold a product or queue it. It has what bt_cuda_held_take() gave to it, or
 * nothing is held. */
bauta_status bt_cuda_hold_product(struct bt_cuda_stream *stream,
                                  const bt_cuda_gemm_args *product,
                                  bauta_error *err);

/* Let the product carry out what the stream holds. False, and nothing has
 * changed, if it does not take it or nothing is held. */
bool bt_cuda_held_take(struct bt_cuda_stream *stream,
                       bt_cuda_gemm_args *product);

/* Queue what the stream holds, if anything. */
bauta_status bt_cuda_held_queue(struct bt_cuda_stream *stream,
                                bauta_error *err);
/* The same for the stream of this thread's step: memory is about to be freed.
 */
void bt_cuda_held_leave(void);

#endif
