/* SPDX-License-Identifier: Apache-2.0 */
/* batch_lanes.c - adding the gradients of lanes as a binary tree. */
#include "train/batch_lanes.h"

#include "base/error.h"

bauta_status bt_lanes_check(size_t lanes, const bt_comm *comm, bauta_error *err)
{
    if (lanes > BT_LANES_MAX || (lanes & (lanes - 1)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the number of lanes is %zu, not a power of two up to "
                       "%d",
                       lanes, (int)BT_LANES_MAX);
    if (bt_size_max(lanes, 1) < (size_t)comm->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%d ranks cannot share %zu %s; a run has as many ranks "
                       "as lanes, or fewer",
                       comm->count, bt_size_max(lanes, 1),
                       lanes > 1 ? "lanes" : "lane");
    return BAUTA_OK;
}

bauta_status bt_lanes_init(bt_lanes *lanes, size_t all, const bt_comm *comm,
                           bt_stream *stream, const bt_model_store *store,
                           bauta_error *err)
{
    size_t bytes = bt_size_mul(store->floats, sizeof(float));
    lanes->all = all;
    lanes->home = store->grads.memory;
    lanes->own = all / (size_t)comm->count;
    lanes->first = lanes->own * (size_t)comm->rank;
    for (size_t i = 0; (size_t)1 << i < lanes->own; i++)
        if (stream->backend->alloc(stream, &lanes->sums[i], bytes, NULL))
            return bt_fail_memory(err, "the gradients of lanes", bytes);
    return BAUTA_OK;
}

void bt_lanes_release(bt_lanes *lanes)
{
    for (size_t i = 0; i < BT_LANE_BITS_MAX; i++)
        if (lanes->sums[i].memory) {
            lanes->sums[i].backend->free(&lanes->sums[i]);
            lanes->sums[i] = (bt_buffer){ 0 };
        }
}

static bauta_status accumulate(bt_stream *stream, const bt_buffer *from,
                               const bt_buffer *to, size_t floats, bool add,
                               bauta_error *err)
{
    bt_tensor x = bt_tensor_of(from, BAUTA_FLOAT32, 1, floats);
    bt_tensor y = bt_tensor_of(to, BAUTA_FLOAT32, 1, floats);
    bt_accumulate_args args = { &x, &y, add };
    return stream->backend->accumulate(stream, &args, err);
}

static void exchange(bt_buffer *a, bt_buffer *b)
{
    void *memory = a->memory;
    a->memory = b->memory;
    b->memory = memory;
}

/* Keep the gradients as a sum. Host memory changes places; that of a device may
 * be known to it by its address. */
static bauta_status sum_keep(bt_stream *stream, bt_buffer *sum,
                             bt_model_store *store, bauta_error *err)
{
    if (!stream->backend->host_visible)
        return accumulate(stream, &store->grads, sum, store->floats, false,
                          err);
    exchange(sum, &store->grads);
    return BAUTA_OK;
}

/* As a binary counter: level i has a sum of 1 << i lanes where bit i of `done`
 * is set. */
bauta_status bt_lanes_add(bt_lanes *lanes, size_t done, bt_stream *stream,
                          bt_model_store *store, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t level = 0;
    for (; !status && done >> level & 1; level++) {
        if (lanes->sums[level].memory == lanes->home)
            exchange(&lanes->sums[level], &store->grads); // a + b is b + a
        status = accumulate(stream, &lanes->sums[level], &store->grads,
                            store->floats, true, err);
    }
    if (!status && done + 1 < lanes->own)
        status = sum_keep(stream, &lanes->sums[level], store, err);
    return status;
}

bauta_status bt_lanes_loss(bt_lanes *lanes, bt_comm *comm, double *loss,
                           bauta_error *err)
{
    for (size_t i = 0; i < lanes->all; i++)
        if (i - lanes->first >= lanes->own)
            lanes->losses[i] = 0.0;
    bauta_status status = bt_comm_sum(comm, lanes->losses, lanes->all, err);
    for (size_t step = 1; step < lanes->all; step *= 2)
        for (size_t i = 0; i < lanes->all; i += 2 * step)
            lanes->losses[i] += lanes->losses[i + step];
    *loss = lanes->losses[0];
    return status;
}
