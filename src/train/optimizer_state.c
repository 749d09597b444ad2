/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_state.c - the optimizer's moments as tensors of a file. */
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"

#include <stdio.h>

/* Runs twice: to measure, then to fill in. */
typedef struct listing {
    bt_moments *state; /* its tensors are NULL while measuring */
    size_t count, bytes;
} listing;

static void list_one(listing *l, const char *kind, const bt_entry *entry,
                     const float *data)
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

static void list_all(listing *l, const bauta_trainer *t)
{
    const bt_folder *folder = t->model->folder;
    for (size_t i = 0; i < t->trained_count; i++) {
        list_one(l, "first.", t->trained[i],
                 bt_optimizer_first(t->optimizer, i));
        list_one(l, "second.", t->trained[i],
                 bt_optimizer_second(t->optimizer, i));
    }
    // The average has the layout of the weights.
    for (size_t i = 0; t->average && i < t->model->count; i++) {
        const bt_entry *e = &t->model->entries[i];
        list_one(l, "average.", e,
                 t->average + (e->tensor->data - folder->memory));
    }
}

bauta_status bt_moments_init(bt_moments *state, const bauta_trainer *t,
                             bauta_error *err)
{
    listing l = { .state = state };
    *state = (bt_moments){ 0 };
    list_all(&l, t);
    state->names = bt_alloc(l.bytes);
    state->tensors =
        state->names ? bt_alloc_zero(l.count, sizeof(*state->tensors)) : NULL;
    if (!state->tensors) {
        bt_moments_release(state);
        return bt_fail_memory(err, "the names of moments", l.bytes);
    }
    l = (listing){ .state = state };
    list_all(&l, t);
    state->count = l.count;
    return BAUTA_OK;
}

void bt_moments_release(bt_moments *state)
{
    bt_free(state->tensors);
    bt_free(state->names);
    *state = (bt_moments){ 0 };
}

static uint64_t digest_one(uint64_t digest, const bt_stored *like,
                           const void *data)
{
    digest = bt_digest_bytes(digest, like->name, strlen(like->name));
    return bt_digest_bytes(digest, data, like->bytes);
}

uint64_t bt_moments_digest(const bt_moments *state)
{
    uint64_t digest = 1;
    for (size_t i = 0; i < state->count; i++)
        digest = digest_one(digest, &state->tensors[i], state->tensors[i].data);
    return digest;
}

static bool same_shape(const bt_stored *a, const bt_stored *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (unsigned i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

bauta_status bt_moments_check(const bt_moments *state,
                              const bt_safetensors *file, const char *path,
                              uint64_t *digest, bauta_error *err)
{
    *digest = 1;
    for (size_t i = 0; i < state->count; i++) {
        const bt_stored *want = &state->tensors[i];
        const bt_stored *got = bt_safetensors_find(file, want->name);
        if (!got || !same_shape(want, got))
            return bt_fail(err, BAUTA_ERR_IO, "%s: tensor %s is %s",
                           bt_path_tail(path), bt_quote(want->name).text,
                           got ? "of another shape or type" : "missing");
        *digest = digest_one(*digest, want, got->data);
    }
    if (bt_safetensors_count(file) != state->count)
        return bt_fail(
            err, BAUTA_ERR_IO, "%s: has %zu tensors, but this run has %zu",
            bt_path_tail(path), bt_safetensors_count(file), state->count);
    return BAUTA_OK;
}

void bt_moments_take(const bt_moments *state, const bt_safetensors *file)
{
    for (size_t i = 0; i < state->count; i++) {
        const bt_stored *to = &state->tensors[i];
        // The data is the trainer's own memory; only the list has it const.
        memcpy((void *)(uintptr_t)to->data,
               bt_safetensors_find(file, to->name)->data, to->bytes);
    }
}
