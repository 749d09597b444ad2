/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_state.c - the optimizer's moments as tensors of a file. */
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "runtime/context.h"
#include "train/checkpoint.h"

#include <stdio.h>

/* Runs twice: to measure, then to fill in. */
typedef struct state_list {
    bt_optimizer_state *state; /* its tensors are NULL while measuring */
    size_t count, bytes;
} state_list;

static void list_one(state_list *l, const char *kind,
                     const bt_named_tensor *entry, const float *data)
{
    size_t size = strlen(kind) + strlen(entry->name) + 1;
    if (l->state->tensors) {
        char *name = l->state->names + l->bytes;
        snprintf(name, size, "%s%s", kind, entry->name);
        l->state->tensors[l->count] = bt_tensor_to_store(entry, name, data);
    }
    l->count++;
    l->bytes += size;
}

enum { FIRST, SECOND, AVERAGE };

static bool is_shared(const bauta_trainer *t)
{
    return t->context->comm->count > 1;
}

/* Where the first or second moment of a trained tensor is; NULL: elsewhere. */
static const float *moment_at(const bt_optimizer_state *state,
                              const bauta_trainer *t, size_t index, int kind)
{
    size_t at = (size_t)kind * t->model->store->floats +
                t->trained[index]->tensor->offset;
    if (is_shared(t))
        return state->whole ? state->whole + at : NULL;
    return state->moments.data +
           (kind == FIRST ? bt_optimizer_first_moment(t->optimizer, index)
                          : bt_optimizer_second_moment(t->optimizer, index));
}

/* The average has the layout of the weights. */
static const float *average_at(const bt_optimizer_state *state,
                               const bauta_trainer *t, size_t offset)
{
    if (!is_shared(t))
        return state->ema.data + offset;
    return state->whole
               ? state->whole + AVERAGE * t->model->store->floats + offset
               : NULL;
}

static void list_all(state_list *l, const bauta_trainer *t)
{
    for (size_t i = 0; i < t->trained_count; i++) {
        list_one(l, "first.", t->trained[i], moment_at(l->state, t, i, FIRST));
        list_one(l, "second.", t->trained[i],
                 moment_at(l->state, t, i, SECOND));
    }
    for (size_t i = 0; t->ema.memory && i < t->model->tensor_count; i++) {
        const bt_named_tensor *e = &t->model->tensors[i];
        list_one(l, "average.", e, average_at(l->state, t, e->tensor->offset));
    }
}

/* ---- slices of ranks ----------------------------------------------------- */

/* Copy the own slice to its place in the whole. */
static void slice_copy(const bt_optimizer_state *state, const bauta_trainer *t)
{
    const bt_shards *s = &t->shards;
    size_t floats = t->model->store->floats;
    for (size_t i = 0; i < s->count; i++) {
        const bt_shard_part *part = &s->parts[i];
        float *to = state->whole + t->trained[part->trained]->tensor->offset +
                    part->from;
        memcpy(to,
               state->moments.data + bt_optimizer_first_moment(t->optimizer, i),
               part->count * sizeof(float));
        memcpy(to + floats,
               state->moments.data +
                   bt_optimizer_second_moment(t->optimizer, i),
               part->count * sizeof(float));
    }
    if (t->ema.memory && s->floats)
        memcpy(state->whole + AVERAGE * floats + s->first, state->ema.data,
               s->floats * sizeof(float));
}

static bauta_status whole_gather(bt_optimizer_state *state,
                                 const bauta_trainer *t, bauta_error *err)
{
    size_t kinds = t->ema.memory ? 3 : 2, floats = t->model->store->floats;
    state->whole = bt_alloc_zero(bt_size_mul(kinds, floats), sizeof(float));
    if (!state->whole)
        return bt_fail_memory(err, "the optimizer's state of all ranks",
                              bt_size_mul(kinds * sizeof(float), floats));
    slice_copy(state, t);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < kinds; i++)
        status = bt_comm_gather(t->context->comm, state->whole + i * floats,
                                t->shards.bounds, err);
    return status;
}

/* ---- the state ----------------------------------------------------------- */

bauta_status bt_optimizer_state_init(bt_optimizer_state *state,
                                     const bauta_trainer *t, bool gather,
                                     bauta_error *err)
{
    state_list l = { .state = state };
    bt_stream *stream = t->context->stream;
    *state = (bt_optimizer_state){ .count = 0 };
    bauta_status status = bt_host_copy_init(
        &state->moments, stream, bt_optimizer_moments(t->optimizer), err);
    if (!status)
        status = bt_host_copy_init(&state->ema, stream, &t->ema, err);
    if (!status && gather && is_shared(t))
        status = whole_gather(state, t, err);
    if (status) {
        bt_optimizer_state_release(state);
        return status;
    }
    list_all(&l, t);
    state->names = bt_alloc(l.bytes);
    state->tensors =
        state->names ? bt_alloc_zero(l.count, sizeof(*state->tensors)) : NULL;
    if (!state->tensors) {
        bt_optimizer_state_release(state);
        return bt_fail_memory(err, "the names of moments", l.bytes);
    }
    l = (state_list){ .state = state };
    list_all(&l, t);
    state->count = l.count;
    return BAUTA_OK;
}

void bt_optimizer_state_release(bt_optimizer_state *state)
{
    bt_host_copy_release(&state->moments);
    bt_host_copy_release(&state->ema);
    bt_free(state->whole);
    bt_free(state->tensors);
    bt_free(state->names);
    *state = (bt_optimizer_state){ .count = 0 };
}

static uint64_t digest_one(uint64_t digest, const bt_stored_tensor *like,
                           const void *data)
{
    digest = bt_digest_bytes(digest, like->name, strlen(like->name));
    return bt_digest_bytes(digest, data, like->bytes);
}

uint64_t bt_optimizer_state_digest(const bt_optimizer_state *state)
{
    uint64_t digest = 1;
    for (size_t i = 0; i < state->count; i++)
        digest = digest_one(digest, &state->tensors[i], state->tensors[i].data);
    return digest;
}

static bool same_shape(const bt_stored_tensor *a, const bt_stored_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (unsigned i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

bauta_status bt_optimizer_state_check(const bt_optimizer_state *state,
                                      const bt_safetensors *file,
                                      const char *path, uint64_t *digest,
                                      bauta_error *err)
{
    *digest = 1;
    for (size_t i = 0; i < state->count; i++) {
        const bt_stored_tensor *want = &state->tensors[i];
        const bt_stored_tensor *got = bt_safetensors_find(file, want->name);
        if (!got || !same_shape(want, got))
            return bt_fail(err, BAUTA_ERR_FORMAT, "%s: tensor %s is %s",
                           bt_path_tail(path), bt_quote(want->name).text,
                           got ? "of another shape or type" : "missing");
        *digest = digest_one(*digest, want, got->data);
    }
    if (bt_safetensors_count(file) != state->count)
        return bt_fail(
            err, BAUTA_ERR_FORMAT, "%s: has %zu tensors, but this run has %zu",
            bt_path_tail(path), bt_safetensors_count(file), state->count);
    return BAUTA_OK;
}

/* A tensor of the list, by its place in it, as the file has it. */
static const char *stored_at(const bt_optimizer_state *state,
                             const bt_safetensors *file, size_t index)
{
    return bt_safetensors_find(file, state->tensors[index].name)->data;
}

static void moments_load(const bt_optimizer_state *state,
                         const bauta_trainer *t, const bt_safetensors *file)
{
    for (size_t i = 0; i < t->shards.count; i++) {
        const bt_shard_part *part = &t->shards.parts[i];
        size_t from = part->from * sizeof(float);
        size_t bytes = part->count * sizeof(float);
        memcpy(state->moments.data + bt_optimizer_first_moment(t->optimizer, i),
               stored_at(state, file, 2 * part->trained) + from, bytes);
        memcpy(state->moments.data +
                   bt_optimizer_second_moment(t->optimizer, i),
               stored_at(state, file, 2 * part->trained + 1) + from, bytes);
    }
}

/* Of each tensor, what is in the own slice. */
static void average_load(const bt_optimizer_state *state,
                         const bauta_trainer *t, const bt_safetensors *file)
{
    const bt_shards *s = &t->shards;
    for (size_t i = 0; t->ema.memory && i < t->model->tensor_count; i++) {
        size_t at = 2 * t->trained_count + i;
        size_t first = t->model->tensors[i].tensor->offset;
        size_t count = state->tensors[at].bytes / sizeof(float);
        size_t begin = bt_size_max(first, s->first);
        size_t end = bt_size_min(first + count, s->first + s->floats);
        if (begin < end)
            memcpy(state->ema.data + (begin - s->first),
                   stored_at(state, file, at) + (begin - first) * sizeof(float),
                   (end - begin) * sizeof(float));
    }
}

bauta_status bt_optimizer_state_load(const bt_optimizer_state *state,
                                     const bauta_trainer *t,
                                     const bt_safetensors *file,
                                     bauta_error *err)
{
    moments_load(state, t, file);
    average_load(state, t, file);
    bauta_status status = bt_host_copy_store(&state->moments, err);
    return status ? status : bt_host_copy_store(&state->ema, err);
}
