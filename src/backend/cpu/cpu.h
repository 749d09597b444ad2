/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - the backend of the CPU.
 *
 * Each operation of the table has a file here: it divides the work into tasks
 * and calls the kernels (kernels/kernels.h) on threads. Tasks are ranges of
 * rows (or of columns, where rows are summed), so threads change no bit. */
#ifndef BT_CPU_H
#define BT_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/memory.h"
#include "base/thread_pool.h"

/* What a computation needs. */
typedef struct bt_cpu {
    const bt_kernels *kernels;
    bt_thread_pool *pool; /* NULL: the calling thread alone */
    bt_arena workspace;   /* emptied by every call; grows to the largest need */
    bt_arena pages;       /* list of pages of an attention */
} bt_cpu;

typedef struct bt_cpu_stream {
    bt_stream base;
    bt_cpu cpu;
} bt_cpu_stream;

/* The pool must outlive the stream. */
bauta_status bt_cpu_stream_create(bt_stream **out, const bt_kernels *kernels,
                                  bt_thread_pool *pool, bauta_error *err);

static inline bt_cpu *bt_cpu_of(bt_stream *stream)
{
    return &((bt_cpu_stream *)stream)->cpu;
}

static inline int bt_cpu_threads(const bt_cpu *cpu)
{
    return bt_thread_pool_threads(cpu->pool);
}

/* ---- For operations ---------------------------------------------------- */

/* The address of a tensor's first element; NULL for NULL. */
static inline void *bt_cpu_data(const bt_tensor *t)
{
    return t ? (char *)t->buffer->memory + t->offset * bt_dtype_size(t->dtype)
             : NULL;
}

static inline float *bt_cpu_f32(const bt_tensor *t)
{
    return t ? (float *)t->buffer->memory + t->offset : NULL;
}

/* Whether an operation may use a tensor: it is NULL, packed, or float32 in host
 * memory. */
static inline bool bt_cpu_accepts(const bt_tensor *t)
{
    return !t || t->packed ||
           (t->dtype == BAUTA_FLOAT32 && t->buffer->backend == &bt_cpu_backend);
}

/* The error of an operation with a tensor that is not accepted. */
bauta_status bt_cpu_refuse(const bt_stream *stream, bt_op op,
                           const bt_tensor *t, bauta_error *err);

/* Return the error if a tensor is not accepted. The loop is unrolled, so the
 * list does not reach memory: operations on small tensors take less time than
 * writing and reading it would. */
#define BT_CPU_CHECK(stream, op, err, ...)                                   \
    do {                                                                     \
        const bt_tensor *const checked[] = { __VA_ARGS__ };                  \
        for (size_t at_ = 0; at_ < sizeof(checked) / sizeof(checked[0]);     \
             at_++)                                                          \
            if (!bt_cpu_accepts(checked[at_]))                               \
                return bt_cpu_refuse(stream, BT_OP_##op, checked[at_], err); \
    } while (0)

/* ---- Parallel loops over ranges of rows, columns or elements ------------ */

/* Items first to first + count - 1. Ranges write disjoint outputs. */
typedef void bt_range_fn(void *job, size_t first, size_t count);

/* Run all of `count` items in ranges of `each`. */
void bt_parallel_ranges(bt_thread_pool *pool, size_t count, size_t each,
                        bt_range_fn *run, void *job);

/* How many rows of `columns` elements make a task worth starting. */
size_t bt_rows_per_task(size_t columns);

/* How many of `columns` columns a task takes if it processes all rows of them:
 * an equal share for each thread, in whole cache lines. */
size_t bt_columns_per_task(int threads, size_t columns);

/* ---- Gradient accumulation ---------------------------------------------- */

/* to = from, or to += from with `add`, element by element. Both are (rows,
 * columns), with rows a stride apart. */
void bt_grad_accumulate(bt_thread_pool *pool, float *to, size_t to_stride,
                        const float *from, size_t from_stride, size_t rows,
                        size_t columns, bool add);

/* ---- The table ---------------------------------------------------------- */

/* The operations, each in the file of its name. */
#define BT_CPU_OP(name)         \
    bauta_status bt_cpu_##name( \
        bt_stream *stream, const bt_##name##_args *args, bauta_error *err);
BT_OP_MAP(BT_CPU_OP)

/* Plans and pages, see attention.c and kv_pages.c. */
bauta_status bt_cpu_plan_build(bt_stream *stream, bt_attention_plan **plan,
                               const bt_batch_mask *mask, bt_plan_use use,
                               bauta_error *err);
void bt_cpu_plan_free(bt_attention_plan *plan);
size_t bt_cpu_kv_page_bytes(const bt_attention_shape *shape, bauta_dtype dtype);

#endif
