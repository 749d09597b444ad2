/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c - the loss of rows of logits on a GPU, and the
 * log-probabilities of labels. */
#include "backend/cuda/stream.h"

bauta_status bt_cuda_op_cross_entropy(bt_cuda_stream *stream,
                                      const bt_cross_entropy_args *args,
                                      bauta_error *err)
{
    const bt_tensor *z = args->logits;
    BT_CUDA_NEED_F32(stream, err, cross_entropy, args->weights);
    BT_CUDA_NEED_HERE(stream, err, cross_entropy, z, args->labels,
                      args->losses);
    bt_cuda_cross_entropy_args own = {
        .rows = z->rows,
        .vocab = z->columns,
        .dtype = z->dtype,
        .dlogits_dtype = z->dtype,
        .logits = bt_cuda_read(z),
        .labels = bt_cuda_address(args->labels),
        .weights = bt_cuda_address(args->weights),
        .smoothing = args->smoothing,
        .share = args->share,
        .losses = bt_cuda_address(args->losses),
    };
    if (args->gradient)
        own.dlogits = bt_cuda_write(z);
    return bt_cuda_cross_entropy(&own, stream->queue, err);
}

bauta_status bt_cuda_op_logprobs(bt_cuda_stream *stream,
                                 const bt_logprobs_args *args, bauta_error *err)
{
    const bt_tensor *z = args->logits;
    BT_CUDA_NEED_F32(stream, err, logprobs, args->logprobs);
    BT_CUDA_NEED_HERE(stream, err, logprobs, z, args->labels);
    bt_cuda_cross_entropy_args own = {
        .rows = z->rows,
        .vocab = z->columns,
        .dtype = z->dtype,
        .logits = bt_cuda_read(z),
        .labels = bt_cuda_address(args->labels),
        .logprobs = bt_cuda_address(args->logprobs),
    };
    return bt_cuda_cross_entropy(&own, stream->queue, err);
}
