/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_state.c - the optimizer's moments as tensors of a file. */
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
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

static void list_all(state_list *l, const bauta_trainer *t)
{
    const bt_model_store *folder = t->model->store;
    for (size_t i = 0; i < t->trained_count; i++) {
        list_one(l, "first.", t->trained[i],
                 bt_optimizer_first_moment(t->optimizer, i));
        list_one(l, "second.", t->trained[i],
                 bt_optimizer_second_moment(t->optimizer, i));
    }
    // The average has the layout of the weights.
    for (size_t i = 0; t->ema && i < t->model->tensor_count; i++) {
        const bt_named_tensor *e = &t->model->tensors[i];
        list_one(l, "average.", e, t->ema + (e->tensor->data - folder->memory));
    }
}

bauta_status bt_optimizer_state_init(bt_optimizer_state *state,
                                     const bauta_trainer *t, bauta_error *err)
{
    state_list l = { .state = state };
    *state = (bt_optimizer_state){ 0 };
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
    bt_free(state->tensors);
    bt_free(state->names);
    *state = (bt_optimizer_state){ 0 };
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

void bt_optimizer_state_load(const bt_optimizer_state *state,
                             const bt_safetensors *file)
{
    for (size_t i = 0; i < state->count; i++) {
        const bt_stored_tensor *to = &state->tensors[i];
        // The data is the trainer's own memory; only the list has it const.
        memcpy((void *)(uintptr_t)to->data,
               bt_safetensors_find(file, to->name)->data, to->bytes);
    }
}
