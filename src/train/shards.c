/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - slices of the parameters, one for each rank. */
#include "train/shards.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

static size_t elements_of(const bt_tensor *t)
{
    return t->rows * t->columns;
}

/* The last place up to `target` where a piece of a trained tensor begins. */
static size_t cut_before(const bauta_model *model, size_t target)
{
    size_t best = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const bt_tensor *t = model->tensors[i].tensor;
        size_t at = t->grad_offset;
        if (!t->grad || at > target)
            continue;
        size_t last = (elements_of(t) - 1) / BT_ADAMW_PIECE;
        size_t piece = bt_size_min((target - at) / BT_ADAMW_PIECE, last);
        best = bt_size_max(best, at + piece * BT_ADAMW_PIECE);
    }
    return best;
}

bauta_status bt_shards_init(bt_shards *shards, const bt_comm *comm,
                            const bauta_model *model, bauta_error *err)
{
    size_t ranks = (size_t)comm->count, all = model->store->floats;
    size_t room = model->tensor_count;
    int own = bt_comm_slice(comm, comm->rank);
    *shards = (bt_shards){ .count = 0 };
    shards->bounds = bt_alloc_zero(ranks + 1, sizeof(*shards->bounds));
    shards->parts = bt_alloc_zero(room, sizeof(*shards->parts));
    shards->tensors = bt_alloc_zero(room, sizeof(*shards->tensors));
    if (!shards->bounds || !shards->parts || !shards->tensors) {
        bt_shards_release(shards);
        return bt_fail_memory(err, "the slices of ranks",
                              room * sizeof(*shards->tensors));
    }
    for (size_t i = 1; i < ranks; i++)
        shards->bounds[i] =
            cut_before(model, (size_t)((unsigned __int128)all * i / ranks));
    shards->bounds[ranks] = all;
    shards->first = shards->bounds[own];
    shards->floats = shards->bounds[own + 1] - shards->first;
    return BAUTA_OK;
}

void bt_shards_release(bt_shards *shards)
{
    if (shards->masters.memory)
        shards->masters.backend->free(&shards->masters);
    bt_free(shards->pairs);
    bt_free(shards->bounds);
    bt_free(shards->parts);
    bt_free(shards->tensors);
    *shards = (bt_shards){ .count = 0 };
}

/* ---- float32 weights ----------------------------------------------------- */

/* Tensors begin at multiples of 16, so bounds are even. */
static bauta_status pairs_set(bt_shards *shards, size_t ranks, bauta_error *err)
{
    shards->pairs = bt_alloc_zero(ranks + 1, sizeof(*shards->pairs));
    if (!shards->pairs)
        return bt_fail_memory(err, "the slices of ranks",
                              ranks * sizeof(*shards->pairs));
    for (size_t i = 0; i <= ranks; i++)
        shards->pairs[i] = shards->bounds[i] / 2;
    return BAUTA_OK;
}

bauta_status bt_shards_take(bt_shards *shards, const bt_comm *comm,
                            bt_stream *stream, const bt_model_store *store,
                            bauta_error *err)
{
    size_t bytes = shards->floats * sizeof(float);
    if (comm->count == 1 || !store->copies.memory)
        return BAUTA_OK;
    bauta_status status = pairs_set(shards, (size_t)comm->count, err);
    if (status)
        return status;
    if (stream->backend->alloc(stream, &shards->masters, bytes, NULL))
        return bt_fail_memory(err, "the float32 weights of a rank", bytes);
    bt_tensor from =
        bt_tensor_of(&store->weights, BAUTA_FLOAT32, 1, shards->floats);
    bt_tensor to =
        bt_tensor_of(&shards->masters, BAUTA_FLOAT32, 1, shards->floats);
    bt_accumulate_args args = { &from, &to, false };
    from.offset = shards->first;
    return stream->backend->accumulate(stream, &args, err);
}

void bt_shards_drop(const bt_shards *shards, bt_model_store *store)
{
    if (shards->masters.memory && store->weights.memory)
        store->weights.backend->free(&store->weights);
}

bauta_status bt_shards_store(bt_shards *shards, bt_stream *stream,
                             const bt_model_store *store, const float *weights,
                             bauta_error *err)
{
    enum { SOME = 1 << 20 };
    const bt_backend *backend = stream->backend;
    size_t size = bt_dtype_size(store->dtype);
    void *rounded = bt_alloc(SOME * size);
    if (!rounded)
        return bt_fail_memory(err, "some weights", SOME * size);
    bauta_status status =
        backend->upload(stream, &shards->masters, 0, weights + shards->first,
                        shards->floats * sizeof(float), err);
    for (size_t at = 0; !status && at < store->floats; at += SOME) {
        size_t count = bt_size_min(SOME, store->floats - at);
        bt_convert_from_f32(rounded, store->dtype, weights + at, count);
        status = backend->upload(stream, &store->copies, at * size, rounded,
                                 count * size, err);
    }
    bt_free(rounded);
    return status;
}

/* ---- the parts of tensors ------------------------------------------------ */

/* The own part of a tensor; false if it has none. */
static bool part_cut(const bt_shards *shards, const bt_tensor *t,
                     bt_shard_part *part)
{
    size_t begin = bt_size_max(t->grad_offset, shards->first);
    size_t end = bt_size_min(t->grad_offset + elements_of(t),
                             shards->first + shards->floats);
    if (begin >= end)
        return false;
    part->from = begin - t->grad_offset;
    part->count = end - begin;
    return true;
}

static bt_tensor part_tensor(const bt_tensor *t, const bt_shard_part *part)
{
    bt_tensor own = *t;
    own.rows = 1;
    own.columns = own.stride = part->count;
    own.offset += part->from;
    own.grad_offset += part->from;
    return own;
}

void bt_shards_cut(bt_shards *shards, bt_parameter *list, size_t *count)
{
    size_t pieces = 0, own = 0;
    for (size_t i = 0; i < *count; i++) {
        bt_parameter p = list[i];
        const bt_tensor *t = p.tensor;
        bt_shard_part part = { .trained = i };
        if (part_cut(shards, t, &part)) {
            shards->parts[own] = part;
            if (part.count < elements_of(t)) {
                shards->tensors[own] = part_tensor(t, &part);
                p.tensor = &shards->tensors[own];
                if (p.master.buffer)
                    p.master = part_tensor(&p.master, &part);
            }
            if (p.master.buffer && shards->masters.memory) {
                p.master.buffer = &shards->masters;
                p.master.offset -= shards->first;
            }
            p.piece = pieces + part.from / BT_ADAMW_PIECE;
            list[own++] = p;
        }
        pieces += elements_of(t) / BT_ADAMW_PIECE +
                  (elements_of(t) % BT_ADAMW_PIECE != 0);
    }
    shards->count = *count = own;
    shards->pieces = pieces;
}
