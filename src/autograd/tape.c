/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c - the memory and the records of a step.
 *
 * Memory is a list of blocks. Allocations are cut from the current block. When
 * it is full, a later one of the list that has room comes next, else a new one
 * is inserted. Rewinding returns to the first block. There are two lists, for
 * tensors and for host memory, unless the backend's memory is the host's.
 *
 * In the backward pass the gradient of an output is no longer needed once the
 * op that made it has run backward. Its memory then serves the gradients that
 * come next, which are often of the same size, and it is still in the cache. So
 * a step needs memory for all outputs but only for a few gradients. */
#include "autograd/tape.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>

enum { BLOCK_BYTES = 16 << 20 };

typedef struct block {
    struct block *next;
    bt_buffer buffer;
    size_t used;
} block;

typedef struct block_list {
    const bt_backend *backend;
    block *first, *current;
} block_list;

/* Host memory that has been uploaded. */
typedef struct input {
    struct input *previous;
    const void *from;
    bt_tensor *tensor;
} input;

typedef struct record {
    struct record *previous;
    bt_backward_fn *backward;
    void *saved;
    bt_tensor *y;
} record;

/* Memory of tensors that can be used again. */
typedef struct free_range {
    struct free_range *next;
    const bt_buffer *buffer;
    size_t offset, bytes;
} free_range;

struct bt_tape {
    bt_stream *stream;
    bool recording;
    bauta_error failure; /* status OK: none */
    bauta_error error;   /* of the operation that runs */
    block_list host, device;
    block_list *tensors; /* one of the two */
    record *last;
    input *inputs;
    free_range *released; /* the latest first */
    free_range *unused;   /* entries to fill */
    bt_tensor *shared[2]; /* tensors that have one gradient, or NULL */
};

bauta_status bt_tape_create(bt_tape **out, bt_stream *stream, bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a tape", sizeof(**out));
    bool visible = stream->backend->host_visible;
    (*out)->stream = stream;
    (*out)->host.backend = &bt_cpu_backend;
    (*out)->device.backend = stream->backend;
    (*out)->tensors = visible ? &(*out)->host : &(*out)->device;
    return BAUTA_OK;
}

static void list_free(block_list *list)
{
    for (block *b = list->first; b;) {
        block *next = b->next;
        list->backend->free(&b->buffer);
        bt_free(b);
        b = next;
    }
}

void bt_tape_free(bt_tape *tape)
{
    if (!tape)
        return;
    list_free(&tape->host);
    list_free(&tape->device);
    bt_free(tape);
}

static void list_rewind(block_list *list)
{
    for (block *b = list->first; b; b = b->next)
        b->used = 0;
    list->current = list->first;
}

void bt_tape_rewind(bt_tape *tape, bool recording)
{
    list_rewind(&tape->host);
    list_rewind(&tape->device);
    tape->last = NULL;
    tape->inputs = NULL;
    tape->released = NULL;
    tape->unused = NULL;
    tape->shared[0] = tape->shared[1] = NULL;
    tape->recording = recording;
    tape->failure.status = BAUTA_OK;
}

bauta_status bt_tape_status(const bt_tape *tape, bauta_error *err)
{
    if (tape->failure.status && err)
        *err = tape->failure;
    return tape->failure.status;
}

bool bt_tape_recording(const bt_tape *tape)
{
    return tape->recording;
}

bt_stream *bt_tape_stream(const bt_tape *tape)
{
    return tape->stream;
}

static size_t list_bytes(const block_list *list)
{
    size_t bytes = 0;
    for (const block *b = list->first; b; b = b->next)
        bytes += b->buffer.bytes;
    return bytes;
}

size_t bt_tape_bytes(const bt_tape *tape)
{
    return list_bytes(&tape->host) + list_bytes(&tape->device);
}

/* ---- Failures ----------------------------------------------------------- */

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

bauta_error *bt_tape_error(bt_tape *tape)
{
    return &tape->error;
}

bool bt_tape_check(bt_tape *tape, bauta_status status)
{
    if (status && !tape->failure.status) {
        tape->failure = tape->error;
        tape->failure.status = status;
    }
    return !status;
}

/* ---- Memory ------------------------------------------------------------- */

static block **next_link(block_list *list)
{
    return list->current ? &list->current->next : &list->first;
}

/* Make a later block for `bytes` the next one: the smallest that has room, and
 * not one of twice the size, which is left to larger tensors. False if there is
 * none. Batches differ in size, so a large tensor does not always follow the
 * same number of blocks: if only the next block were considered, each number
 * would get a large block of its own in the course of a training run. */
static bool block_find(block_list *list, size_t bytes)
{
    block **next = next_link(list), **best = NULL;
    for (block **link = next; *link; link = &(*link)->next) {
        size_t room = (*link)->buffer.bytes;
        if (room >= bytes && room / 2 < bytes &&
            (!best || room < (*best)->buffer.bytes))
            best = link;
    }
    if (!best)
        return false;
    block *found = *best;
    *best = found->next;
    found->next = *next;
    *next = found;
    return true;
}

/* Insert a new block after the current one. */
static bool block_add(bt_tape *tape, block_list *list, size_t bytes)
{
    block *b = bt_alloc_zero(1, sizeof(*b));
    if (!b)
        return false;
    bt_stream *stream = list == tape->tensors ? tape->stream : NULL;
    if (list->backend->alloc(stream, &b->buffer, bytes, &tape->error)) {
        bt_free(b);
        return false;
    }
    b->next = *next_link(list);
    *next_link(list) = b;
    return true;
}

/* A block with room for `count` elements at *offset, in bytes; NULL if the tape
 * has failed. */
static block *take(bt_tape *tape, block_list *list, size_t count, size_t size,
                   size_t *offset)
{
    size_t bytes = bt_size_round(bt_size_mul(count, size), BT_ALIGN);
    if (tape->failure.status)
        return NULL;
    if (!list->current ||
        bytes > list->current->buffer.bytes - list->current->used) {
        size_t wanted = bt_size_round(bt_size_max(bytes, 1), BLOCK_BYTES);
        if (!block_find(list, wanted) && !block_add(tape, list, wanted))
            return bt_tape_fail(tape, BAUTA_ERR_NOMEM,
                                "out of memory: %zu bytes for the tape", bytes);
        list->current = *next_link(list);
    }
    *offset = list->current->used;
    list->current->used += bytes;
    return list->current;
}

void *bt_tape_alloc(bt_tape *tape, size_t count, size_t size)
{
    size_t offset = 0;
    const block *b = take(tape, &tape->host, count, size, &offset);
    return b ? (char *)b->buffer.memory + offset : NULL;
}

/* ---- Tensors ------------------------------------------------------------ */

bt_tensor *bt_tape_scratch(bt_tape *tape, bauta_dtype dtype, size_t rows,
                           size_t columns)
{
    size_t size = bt_dtype_size(dtype), offset = 0;
    bt_tensor *tensor = bt_tape_alloc(tape, 1, sizeof(*tensor));
    const block *b =
        take(tape, tape->tensors, bt_size_mul(rows, columns), size, &offset);
    if (!tensor || !b)
        return NULL;
    bt_tensor_init(tensor, &b->buffer, dtype, rows, columns);
    tensor->offset = offset / size;
    return tensor;
}

bt_tensor *bt_tape_output(bt_tape *tape, size_t rows, size_t columns,
                          bool wants)
{
    bt_tensor *tensor =
        bt_tape_scratch(tape, tape->stream->dtype, rows, columns);
    if (tensor)
        tensor->requires_grad = wants && tape->recording;
    return tensor;
}

bt_tensor *bt_tape_columns(bt_tape *tape, bt_tensor *whole, size_t first,
                           size_t count)
{
    bt_tensor *part = bt_tape_alloc(tape, 1, sizeof(*part));
    if (!part)
        return NULL;
    *part = *whole;
    part->columns = count;
    part->offset += first;
    part->grad = NULL;
    part->whole = whole;
    return part;
}

/* A buffer and a tensor over the caller's memory. */
static bt_tensor *wrap(bt_tape *tape, bauta_dtype dtype, size_t rows,
                       size_t columns, const void *from)
{
    bt_buffer *buffer = bt_tape_alloc(tape, 1, sizeof(*buffer));
    bt_tensor *tensor = bt_tape_alloc(tape, 1, sizeof(*tensor));
    if (!tensor)
        return NULL;
    // Inputs are only read.
    *buffer = bt_buffer_of_host((void *)(uintptr_t)from,
                                rows * columns * bt_dtype_size(dtype));
    bt_tensor_init(tensor, buffer, dtype, rows, columns);
    return tensor;
}

static bt_tensor *find_input(const bt_tape *tape, bauta_dtype dtype,
                             size_t rows, size_t columns, const void *from)
{
    for (const input *i = tape->inputs; i; i = i->previous)
        if (i->from == from && i->tensor->dtype == dtype &&
            i->tensor->rows == rows && i->tensor->columns == columns)
            return i->tensor;
    return NULL;
}

bt_tensor *bt_tape_input(bt_tape *tape, bauta_dtype dtype, size_t rows,
                         size_t columns, const void *from)
{
    if (tape->failure.status)
        return NULL;
    if (tape->stream->backend->host_visible)
        return wrap(tape, dtype, rows, columns, from);
    bt_tensor *tensor = find_input(tape, dtype, rows, columns, from);
    if (tensor)
        return tensor;
    tensor = bt_tape_scratch(tape, dtype, rows, columns);
    input *entry = bt_tape_alloc(tape, 1, sizeof(*entry));
    if (!entry || !bt_tape_check(tape, bt_tensor_upload(tape->stream, tensor,
                                                        from, &tape->error)))
        return NULL;
    *entry = (input){ tape->inputs, from, tensor };
    tape->inputs = entry;
    return tensor;
}

const void *bt_tape_read(bt_tape *tape, const bt_tensor *tensor)
{
    if (tape->failure.status)
        return NULL;
    const void *host = bt_tensor_host(tensor);
    if (host)
        return host;
    void *to = bt_tape_alloc(tape, bt_size_mul(tensor->rows, tensor->columns),
                             bt_dtype_size(tensor->dtype));
    if (!to || !bt_tape_check(tape, bt_tensor_download(tape->stream, to, tensor,
                                                       &tape->error)))
        return NULL;
    return to;
}

const float *bt_tape_read_f32(bt_tape *tape, const bt_tensor *tensor)
{
    const void *from = bt_tape_read(tape, tensor);
    size_t count = bt_size_mul(tensor->rows, tensor->columns);
    if (!from || tensor->dtype == BAUTA_FLOAT32)
        return from;
    float *to = bt_tape_alloc(tape, count, sizeof(*to));
    if (to && !bt_convert_f32(to, from, tensor->dtype, count))
        return bt_tape_fail(tape, BAUTA_ERR_UNSUPPORTED,
                            "a tensor of %s cannot be read as float32",
                            bt_dtype_name(tensor->dtype));
    return to;
}

void bt_tape_record(bt_tape *tape, bt_backward_fn *backward, void *saved,
                    bt_tensor *y)
{
    if (!tape->recording)
        return;
    record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return;
    *r = (record){ tape->last, backward, saved, y };
    tape->last = r;
}

/* ---- Gradients ---------------------------------------------------------- */

/* Whether a buffer is a block of the tape, and not the caller's. */
static bool is_block(const bt_tape *tape, const bt_buffer *buffer)
{
    for (const block *b = tape->tensors->first; b; b = b->next)
        if (&b->buffer == buffer)
            return true;
    return false;
}

static void range_release(bt_tape *tape, const bt_buffer *buffer, size_t offset,
                          size_t bytes)
{
    free_range *range = tape->unused;
    if (range)
        tape->unused = range->next;
    else
        range = bt_tape_alloc(tape, 1, sizeof(*range));
    if (!range)
        return;
    *range = (free_range){ tape->released, buffer, offset, bytes };
    tape->released = range;
}

/* Memory that was released: the latest range of just this size, else a part of
 * a larger one. NULL if there is none. */
static const bt_buffer *range_take(bt_tape *tape, size_t bytes, size_t *offset)
{
    free_range **found = NULL;
    for (free_range **at = &tape->released; *at; at = &(*at)->next) {
        if ((*at)->bytes == bytes) {
            found = at;
            break;
        }
        if (!found && (*at)->bytes > bytes)
            found = at;
    }
    if (!found)
        return NULL;
    free_range *range = *found;
    *offset = range->offset;
    range->offset += bytes;
    range->bytes -= bytes;
    if (range->bytes == 0) {
        *found = range->next;
        range->next = tape->unused;
        tape->unused = range;
    }
    return range->buffer;
}

static size_t bytes_of(const bt_tensor *tensor, bauta_dtype dtype)
{
    size_t count = bt_size_mul(tensor->rows, tensor->columns);
    return bt_size_round(bt_size_mul(count, bt_dtype_size(dtype)), BT_ALIGN);
}

void bt_tape_release(bt_tape *tape, const bt_tensor *tensor)
{
    if (tensor)
        range_release(tape, tensor->buffer,
                      tensor->offset * bt_dtype_size(tensor->dtype),
                      bytes_of(tensor, tensor->dtype));
}

static bool is_shared(const bt_tape *tape, const bt_tensor *tensor)
{
    return tensor == tape->shared[0] || tensor == tape->shared[1];
}

static void share_end(bt_tape *tape)
{
    tape->shared[0] = tape->shared[1] = NULL;
}

static void grad_release(bt_tape *tape, bt_tensor *tensor)
{
    if (!tensor->grad || !is_block(tape, tensor->grad))
        return;
    if (is_shared(tape, tensor)) {
        share_end(tape);
        tensor->grad = NULL;
        return;
    }
    range_release(tape, tensor->grad,
                  tensor->grad_offset * bt_dtype_size(tensor->grad_dtype),
                  bytes_of(tensor, tensor->grad_dtype));
    tensor->grad = NULL;
}

/* Memory for the gradient of a tensor that has none. */
static bool grad_alloc(bt_tape *tape, bt_tensor *tensor)
{
    bt_tensor *whole = tensor->whole;
    if (whole) {
        if (!whole->grad && !grad_alloc(tape, whole))
            return false;
        tensor->grad = whole->grad;
        tensor->grad_offset =
            whole->grad_offset + tensor->offset - whole->offset;
        return true;
    }
    size_t size = bt_dtype_size(tensor->grad_dtype), offset = 0;
    const bt_buffer *buffer =
        range_take(tape, bytes_of(tensor, tensor->grad_dtype), &offset);
    if (!buffer) {
        const block *b =
            take(tape, tape->tensors,
                 bt_size_mul(tensor->rows, tensor->columns), size, &offset);
        if (!b)
            return false;
        buffer = &b->buffer;
    }
    tensor->grad = buffer;
    tensor->grad_offset = offset / size;
    return true;
}

/* Give a tensor that shares its gradient a copy. */
static bool share_split(bt_tape *tape, bt_tensor *tensor)
{
    bt_tensor from = bt_tensor_grad(tensor), to;
    share_end(tape);
    tensor->grad = NULL;
    if (!grad_alloc(tape, tensor))
        return false;
    to = bt_tensor_grad(tensor);
    bt_accumulate_args args = { &from, &to, false };
    return BT_TAPE_RUN(tape, accumulate, &args);
}

bool bt_tape_grad(bt_tape *tape, bt_tensor *tensor, bool *add)
{
    *add = tensor->grad != NULL;
    if (!tensor->requires_grad || tape->failure.status)
        return false;
    if (tensor->grad)
        return !is_shared(tape, tensor) || share_split(tape, tensor);
    return grad_alloc(tape, tensor);
}

/* Whether `to` could have the gradient of `from`. */
static bool grad_fits(const bt_tape *tape, const bt_tensor *from,
                      const bt_tensor *to)
{
    return to->requires_grad && !to->grad && !to->whole && !from->whole &&
           to->grad_dtype == from->grad_dtype && to->stride == from->stride &&
           is_block(tape, from->grad);
}

bool bt_tape_share_grad(bt_tape *tape, bt_tensor *from, bt_tensor *to)
{
    if (tape->shared[0] || !grad_fits(tape, from, to))
        return false;
    to->grad = from->grad;
    to->grad_offset = from->grad_offset;
    tape->shared[0] = from;
    tape->shared[1] = to;
    return true;
}

bool bt_tape_pass_grad(const bt_tape *tape, bt_tensor *from, bt_tensor *to)
{
    if (is_shared(tape, from) || !grad_fits(tape, from, to))
        return false;
    to->grad = from->grad;
    to->grad_offset = from->grad_offset;
    from->grad = NULL;
    return true;
}

bauta_status bt_tape_backward(bt_tape *tape, bauta_error *err)
{
    for (record *r = tape->last; r && !tape->failure.status; r = r->previous) {
        r->backward(tape, r->saved);
        if (r->y)
            grad_release(tape, r->y);
    }
    return bt_tape_status(tape, err);
}
