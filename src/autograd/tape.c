/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c - the memory and the records of a step.
 *
 * Memory is a list of blocks. Allocations are cut from the current block. When
 * it is full, the next one in the list is used if the allocation fits, else a
 * new one is inserted. Rewinding returns to the first block. Tensors and
 * records are allocated the same way. */
#include "autograd/tape.h"

#include "base/error.h"
#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>

enum { BLOCK_BYTES = 16 << 20 };

typedef struct block {
    struct block *next;
    size_t bytes, used;
    unsigned char *memory;
} block;

typedef struct record {
    struct record *previous;
    bt_backward_fn *backward;
    void *saved;
} record;

struct bt_tape {
    const bt_kernels *kernels;
    int threads;
    bt_arena workspace;
    bool recording;
    bauta_error failure; /* status OK: none */
    block *blocks, *current;
    record *last;
};

bauta_status bt_tape_create(bt_tape **out, const bt_kernels *kernels,
                            int threads, bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a tape", sizeof(**out));
    (*out)->kernels = kernels;
    (*out)->threads = threads;
    return BAUTA_OK;
}

void bt_tape_free(bt_tape *tape)
{
    if (!tape)
        return;
    for (block *b = tape->blocks; b;) {
        block *next = b->next;
        bt_free(b->memory);
        bt_free(b);
        b = next;
    }
    bt_arena_release(&tape->workspace);
    bt_free(tape);
}

void bt_tape_rewind(bt_tape *tape, bool recording)
{
    for (block *b = tape->blocks; b; b = b->next)
        b->used = 0;
    tape->current = tape->blocks;
    tape->last = NULL;
    tape->recording = recording;
    tape->failure.status = BAUTA_OK;
}

bauta_status bt_tape_status(const bt_tape *tape, bauta_error *err)
{
    if (tape->failure.status && err)
        *err = tape->failure;
    return tape->failure.status;
}

bauta_status bt_tape_backward(bt_tape *tape, bauta_error *err)
{
    for (record *r = tape->last; r && !tape->failure.status; r = r->previous)
        r->backward(tape, r->saved);
    return bt_tape_status(tape, err);
}

bool bt_tape_recording(const bt_tape *tape)
{
    return tape->recording;
}

size_t bt_tape_bytes(const bt_tape *tape)
{
    size_t bytes = tape->workspace.capacity;
    for (const block *b = tape->blocks; b; b = b->next)
        bytes += b->bytes;
    return bytes;
}

const bt_kernels *bt_tape_kernels(const bt_tape *tape)
{
    return tape->kernels;
}

int bt_tape_threads(const bt_tape *tape)
{
    return tape->threads;
}

bt_cpu bt_tape_cpu(bt_tape *tape)
{
    return (bt_cpu){ tape->kernels, tape->threads, &tape->workspace };
}

bt_arena *bt_tape_workspace(bt_tape *tape)
{
    return &tape->workspace;
}

void *bt_tape_fail(bt_tape *tape, bauta_status status, const char *format, ...)
{
    if (!tape->failure.status) {
        va_list args;
        va_start(args, format);
        tape->failure.status = status;
        vsnprintf(tape->failure.message, sizeof(tape->failure.message), format,
                  args);
        va_end(args);
    }
    return NULL;
}

/* Insert a new block after the current one. */
static block *block_add(bt_tape *tape, size_t bytes)
{
    block *b = bt_alloc_zero(1, sizeof(*b));
    if (!b)
        return NULL;
    b->bytes = bt_size_max(bytes, BLOCK_BYTES);
    b->memory = bt_alloc(b->bytes);
    if (!b->memory) {
        bt_free(b);
        return NULL;
    }
    block **link = tape->current ? &tape->current->next : &tape->blocks;
    b->next = *link;
    *link = b;
    return b;
}

void *bt_tape_alloc(bt_tape *tape, size_t count, size_t size)
{
    size_t bytes = bt_size_round(bt_size_mul(count, size), BT_ALIGN);
    if (tape->failure.status)
        return NULL;
    while (!tape->current ||
           bytes > tape->current->bytes - tape->current->used) {
        block *next = tape->current ? tape->current->next : NULL;
        if (!next || bytes > next->bytes)
            next = block_add(tape, bytes);
        if (!next)
            return bt_tape_fail(tape, BAUTA_ERR_NOMEM,
                                "out of memory: %zu bytes for the tape", bytes);
        tape->current = next;
    }
    void *memory = tape->current->memory + tape->current->used;
    tape->current->used += bytes;
    return memory;
}

bt_tensor *bt_tape_output(bt_tape *tape, size_t rows, size_t columns,
                          bool wants)
{
    bt_tensor *tensor = bt_tape_alloc(tape, 1, sizeof(*tensor));
    float *data =
        bt_tape_alloc(tape, bt_size_mul(rows, columns), sizeof(float));
    if (!tensor || !data)
        return NULL;
    *tensor = (bt_tensor){ .rows = rows,
                           .columns = columns,
                           .stride = columns,
                           .data = data,
                           .requires_grad = wants && tape->recording };
    return tensor;
}

void bt_tape_record(bt_tape *tape, bt_backward_fn *backward, void *saved)
{
    if (!tape->recording)
        return;
    record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return;
    *r = (record){ tape->last, backward, saved };
    tape->last = r;
}

float *bt_tape_grad(bt_tape *tape, bt_tensor *tensor, bool *add)
{
    *add = tensor->grad != NULL;
    if (tensor->requires_grad && !tensor->grad)
        tensor->grad = bt_tape_alloc(
            tape, bt_size_mul(tensor->rows, tensor->columns), sizeof(float));
    return tensor->requires_grad ? tensor->grad : NULL;
}
