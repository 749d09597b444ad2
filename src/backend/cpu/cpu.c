/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the table of the CPU, its streams and its memory. */
#include "backend/cpu/cpu.h"

#include "base/error.h"
#include "base/size.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { FILL_BYTES = 1 << 17, TASK_ELEMENTS = 1 << 14 }; /* of a task */

/* From so many bytes on, most are evicted from the cache before they are used:
 * the gradients of a large model. */
enum { STREAM_BYTES = 1 << 26 };

/* ---- Parallel loops ----------------------------------------------------- */

typedef struct ranges {
    size_t count, each;
    bt_range_fn *run;
    void *job;
} ranges;

static void run_range(void *job, size_t task, int thread)
{
    (void)thread;
    const ranges *r = job;
    size_t first = task * r->each;
    r->run(r->job, first, bt_size_min(r->each, r->count - first));
}

void bt_parallel_ranges(bt_thread_pool *pool, size_t count, size_t each,
                        bt_range_fn *run, void *job)
{
    if (count <= each) {
        if (count)
            run(job, 0, count);
        return;
    }
    ranges r = { count, each, run, job };
    size_t tasks = count / each + (count % each != 0);
    bt_parallel_for(pool, tasks, run_range, &r);
}

size_t bt_rows_per_task(size_t columns)
{
    return bt_size_max(TASK_ELEMENTS / bt_size_max(columns, 1), 1);
}

size_t bt_columns_per_task(int threads, size_t columns)
{
    size_t share = columns / bt_size_max((size_t)threads, 1);
    return bt_size_round(bt_size_max(share, 1), 16);
}

/* ---- Streams ------------------------------------------------------------ */

bauta_status bt_cpu_stream_create(bt_stream **out, const bt_kernels *kernels,
                                  bt_thread_pool *pool, bauta_error *err)
{
    bt_cpu_stream *stream = bt_alloc_zero(1, sizeof(*stream));
    *out = NULL;
    if (!stream)
        return bt_fail_memory(err, "a stream", sizeof(*stream));
    stream->base.backend = &bt_cpu_backend;
    stream->base.dtype = BAUTA_FLOAT32;
    strcpy(stream->base.device, "cpu");
    stream->cpu.kernels = kernels;
    stream->cpu.pool = pool;
    *out = &stream->base;
    return BAUTA_OK;
}

static bauta_status stream_fork(bt_stream **out, bt_stream *stream,
                                bauta_error *err)
{
    return bt_cpu_stream_create(out, bt_cpu_of(stream)->kernels, NULL, err);
}

static void stream_free(bt_stream *stream)
{
    if (!stream)
        return;
    bt_arena_release(&bt_cpu_of(stream)->workspace);
    bt_arena_release(&bt_cpu_of(stream)->pages);
    bt_free(stream);
}

/* Every operation is done when it returns. */
static bauta_status stream_sync(bt_stream *stream, bauta_error *err)
{
    (void)stream;
    (void)err;
    return BAUTA_OK;
}

/* ---- Memory ------------------------------------------------------------- */

static bauta_status buffer_alloc(bt_stream *stream, bt_buffer *out,
                                 size_t bytes, bauta_error *err)
{
    (void)stream;
    *out = (bt_buffer){ &bt_cpu_backend, bt_alloc(bytes), bytes };
    return out->memory ? BAUTA_OK : bt_fail_memory(err, "a buffer", bytes);
}

static void buffer_free(bt_buffer *buffer)
{
    bt_free(buffer->memory);
    *buffer = (bt_buffer){ NULL, NULL, 0 };
}

static void *at(const bt_buffer *buffer, size_t offset)
{
    return (char *)buffer->memory + offset;
}

static bauta_status upload(bt_stream *stream, const bt_buffer *to,
                           size_t offset, const void *from, size_t bytes,
                           bauta_error *err)
{
    (void)stream;
    (void)err;
    if (bytes)
        memcpy(at(to, offset), from, bytes);
    return BAUTA_OK;
}

static bauta_status download(bt_stream *stream, void *to, const bt_buffer *from,
                             size_t offset, size_t bytes, bauta_error *err)
{
    (void)stream;
    (void)err;
    if (bytes)
        memcpy(to, at(from, offset), bytes);
    return BAUTA_OK;
}

typedef struct fill_job {
    unsigned char *to, value;
} fill_job;

static void fill_range(void *job, size_t first, size_t count)
{
    const fill_job *j = job;
    memset(j->to + first, j->value, count);
}

/* The same by stores that do not read the memory first. */
static void fill_streaming(void *job, size_t first, size_t count)
{
#if defined(__SSE2__)
    const fill_job *j = job;
    unsigned char *to = j->to + first;
    size_t head = bt_size_min(-(uintptr_t)to % sizeof(__m128i), count);
    size_t whole = (count - head) / sizeof(__m128i) * sizeof(__m128i);
    __m128i value = _mm_set1_epi8((char)j->value);
    memset(to, j->value, head);
    for (size_t i = head; i < head + whole; i += sizeof(value))
        _mm_stream_si128((__m128i *)(to + i), value);
    memset(to + head + whole, j->value, count - head - whole);
    _mm_sfence(); // before other threads learn that the task is done
#else
    fill_range(job, first, count);
#endif
}

static bauta_status fill(bt_stream *stream, const bt_buffer *to, size_t offset,
                         unsigned char value, size_t bytes, bauta_error *err)
{
    (void)err;
    fill_job job = { at(to, offset), value };
    bt_parallel_ranges(
        stream ? bt_cpu_of(stream)->pool : NULL, bytes, FILL_BYTES,
        bytes < STREAM_BYTES ? fill_range : fill_streaming, &job);
    return BAUTA_OK;
}

/* ---- The table ---------------------------------------------------------- */

bauta_status bt_cpu_refuse(const bt_stream *stream, bt_op op,
                           const bt_tensor *t, bauta_error *err)
{
    if (t->dtype != BAUTA_FLOAT32)
        return bt_unsupported(stream, op, t->dtype, err);
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: a tensor of the device \"%s\" on the CPU",
                   bt_op_name(op), t->buffer->backend->name);
}

static bool supports(const bt_stream *stream, bt_op op, bauta_dtype dtype,
                     const bt_op_shape *shape)
{
    (void)stream;
    (void)op;
    return dtype == BAUTA_FLOAT32 &&
           (!shape || shape->head_dim <= BT_HEAD_DIM_MAX);
}

#define CPU_SLOT(name) .name = bt_cpu_##name,
const bt_backend bt_cpu_backend = {
    .name = "cpu",
    .host_visible = true,
    .logits_rows = 256, /* 128 is 20 % slower, more is hardly faster */
    .fusions = BT_FUSE_LINEAR_ACT | BT_FUSE_ADD_NORM | BT_FUSE_ROTARY_KV_WRITE |
               BT_FUSE_KV_WRITE_ATTENTION,
    .stream_fork = stream_fork,
    .stream_free = stream_free,
    .sync = stream_sync,
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = upload,
    .download = download,
    .fill = fill,
    .plan_build = bt_cpu_plan_build,
    .plan_free = bt_cpu_plan_free,
    .kv_page_bytes = bt_cpu_kv_page_bytes,
    .supports = supports,
    BT_OP_MAP(CPU_SLOT)
};
