/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_weights.c - the weights that a trainer updates.
 *
 * A rank owns a slice of the float32 weights and of their moving average. Other
 * ranks get the changed slices, or their copies in the model's dtype. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "runtime/context.h"

/* ---- the own slice and its moving average ------------------------------- */

/* The own slice of the float32 weights. */
static bt_tensor slice_of(const bauta_trainer *t)
{
    const bt_shards *s = &t->shards;
    bool shared = s->masters.memory;
    bt_tensor slice =
        bt_tensor_of(shared ? &s->masters : &t->model->store->weights,
                     BAUTA_FLOAT32, 1, s->floats);
    slice.offset = shared ? 0 : s->first;
    return slice;
}

/* The moving average, which has only the own slice. */
static bt_tensor ema_of(const bauta_trainer *t)
{
    return bt_tensor_of(&t->ema, BAUTA_FLOAT32, 1, t->shards.floats);
}

bauta_status bt_trainer_ema_create(bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    size_t bytes = bt_size_mul(t->shards.floats, sizeof(float));
    if (t->options.ema_decay == 0.0)
        return BAUTA_OK;
    if (stream->backend->alloc(stream, &t->ema, bytes, NULL))
        return bt_fail_memory(err, "averaged weights", bytes);
    bt_tensor from = slice_of(t);
    bt_tensor to = ema_of(t);
    bt_accumulate_args args = { &from, &to, false };
    return stream->backend->accumulate(stream, &args, err);
}

bauta_status bt_trainer_ema_step(const bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    bt_tensor average = ema_of(t);
    bt_tensor weights = slice_of(t);
    // The decay is smaller in early steps, so that the random initialization
    // is forgotten.
    double early = (double)(1 + t->steps) / (double)(10 + t->steps);
    double decay = t->options.ema_decay < early ? t->options.ema_decay : early;
    bt_ema_args args = { &average, &weights, (float)decay,
                         (float)(1.0 - decay) };
    return t->ema.memory ? stream->backend->ema(stream, &args, err) : BAUTA_OK;
}

/* ---- the weights of all ranks ------------------------------------------- */

bauta_status bt_trainer_gather_weights(const bauta_trainer *t, bauta_error *err)
{
    const bt_model_store *store = t->model->store;
    bool shared = t->shards.masters.memory;
    // Of the rounded copies, two are exchanged as one float.
    bt_tensor row =
        bt_tensor_of(shared ? &store->copies : &store->weights, BAUTA_FLOAT32,
                     1, shared ? store->floats / 2 : store->floats);
    return bt_comm_all_gather(t->context->comm, t->context->stream, &row,
                              shared ? t->shards.pairs : t->shards.bounds, err);
}

/* Round the weights again: all of them, or the own slice. */
static bauta_status weights_round(const bauta_trainer *t, bauta_error *err)
{
    bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    if (!t->shards.masters.memory)
        return bt_model_store_round(store, err);
    bt_tensor from = slice_of(t);
    bt_tensor to =
        bt_tensor_of(&store->copies, store->dtype, 1, t->shards.floats);
    bt_accumulate_args args = { &from, &to, false };
    to.offset = t->shards.first;
    return stream->backend->accumulate(stream, &args, err);
}

bauta_status bt_trainer_swap_ema(const bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    bt_tensor average = ema_of(t);
    bt_tensor weights = slice_of(t);
    bt_swap_args args = { &average, &weights };
    if (!t->ema.memory)
        return BAUTA_OK;
    bauta_status status = stream->backend->swap(stream, &args, err);
    if (!status)
        status = weights_round(t, err);
    return status ? status : bt_trainer_gather_weights(t, err);
}

bauta_status bt_trainer_weights(bt_host_copy *copy, const bauta_trainer *t,
                                bool all, bauta_error *err)
{
    const bt_shards *s = &t->shards;
    const bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    bt_comm *comm = t->context->comm;
    size_t bytes = bt_size_mul(store->floats, sizeof(float));
    if (!s->masters.memory)
        return bt_host_copy_init(copy, stream, &store->weights, err);
    *copy = (bt_host_copy){ .data = bt_alloc(bytes), .owned = true };
    if (!copy->data)
        return bt_fail_memory(err, "the weights of all ranks", bytes);
    bt_buffer host = bt_buffer_of_host(copy->data, bytes);
    bt_tensor row = bt_tensor_of(&host, BAUTA_FLOAT32, 1, store->floats);
    bauta_status status =
        stream->backend->download(stream, copy->data + s->first, &s->masters, 0,
                                  s->floats * sizeof(float), err);
    if (!status)
        status = all ? bt_comm_all_gather(comm, stream, &row, s->bounds, err)
                     : bt_comm_gather(comm, copy->data, s->bounds, err);
    if (status)
        bt_host_copy_release(copy);
    return status;
}

bauta_status bt_trainer_set_weights(bauta_trainer *t, const float *weights,
                                    bauta_error *err)
{
    bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    if (t->shards.masters.memory) {
        t->weights_digest = bt_model_weights_digest(t->model, weights);
        return bt_shards_store(&t->shards, stream, store, weights, err);
    }
    bauta_status status =
        stream->backend->upload(stream, &store->weights, 0, weights,
                                store->floats * sizeof(float), err);
    return status ? status : bt_model_store_round(store, err);
}
