/* SPDX-License-Identifier: Apache-2.0 */
/* kv_pages.c - writing and copying pages of keys and values. */
#include "backend/cpu/kv_pages.h"

#include "backend/cpu/attention.h"
#include "base/error.h"
#include "base/size.h"

#include <string.h>

/* Floats to write below which more threads do not pay. */
enum { SMALL_WRITE = 1 << 12 };

size_t bt_cpu_kv_page_bytes(const bt_attention_shape *shape, bauta_dtype dtype)
{
    // At most 2^16 heads of 2^8 columns, so this does not overflow.
    return shape->kv_heads * bt_kv_page_head(shape) * bt_dtype_size(dtype);
}

/* ---- Copying ------------------------------------------------------------ */

/* Copy the first `tokens` tokens of a page; the rest is hidden. */
static void page_copy(const bt_attention_shape *s, float *to, const float *from,
                      size_t tokens)
{
    for (size_t h = 0; h < s->kv_heads; h++) {
        memcpy(to, from, bt_keys_end(s->head_dim, tokens) * sizeof(*to));
        to += s->head_dim * BT_BLOCK;
        from += s->head_dim * BT_BLOCK;
        for (size_t e = 0; e < s->value_pad; e += BT_VALUE_PANEL)
            memcpy(to + bt_value_panel_start(e), from + bt_value_panel_start(e),
                   tokens * bt_value_panel_width(s->value_pad, e) *
                       sizeof(*to));
        to += s->value_pad * BT_BLOCK;
        from += s->value_pad * BT_BLOCK;
    }
}

static void copy_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_kv_copy_args *args = job;
    const bt_kv_copy_item *item = &args->items[task];
    page_copy(&args->pool->shape, bt_kv_page_data(item->to),
              bt_kv_page_data(item->from), item->tokens);
}

bauta_status bt_cpu_kv_copy(bt_stream *stream, const bt_kv_copy_args *args,
                            bauta_error *err)
{
    (void)err;
    bt_kv_copy_args job = *args;
    bt_thread_pool *pool = stream ? bt_cpu_of(stream)->pool : NULL;
    bt_parallel_for(pool, args->count, copy_task, &job);
    return BAUTA_OK;
}

/* ---- Writing ------------------------------------------------------------ */

/* Write tokens j to j + rows - 1 of one block. */
static void block_write(float *kt, const bt_kernels *kernels,
                        const bt_attention_shape *s, size_t j, size_t rows,
                        const float *k, const float *v)
{
    float *to = kt + s->head_dim * BT_BLOCK;
    if (j == 0 && rows > 1)
        kernels->transpose(kt, k, s->k.token, rows, s->head_dim);
    else
        for (size_t r = 0; r < rows; r++)
            for (size_t d = 0; d < s->head_dim; d++)
                kt[bt_key_at(s->head_dim, j + r, d)] = k[r * s->k.token + d];
    for (size_t e = 0; e < s->value_dim; e += BT_VALUE_PANEL) {
        size_t width = bt_value_panel_width(s->value_pad, e);
        bt_rows_copy(to + bt_value_panel_start(e) + j * width, width, v + e,
                     s->v.token, rows,
                     bt_size_min(BT_VALUE_PANEL, s->value_dim - e), 1.0f);
    }
}

void bt_kv_pages_write(const bt_block_table *table, size_t layer,
                       const bt_kernels *kernels,
                       const bt_attention_shape *shape, size_t kv_head,
                       size_t at, size_t rows, const float *k, const float *v)
{
    for (size_t done = 0, count; done < rows; done += count) {
        size_t j = (at + done) % BT_BLOCK;
        const bt_kv_page *page =
            bt_block_table_page(table, layer, (at + done) / BT_BLOCK);
        count = bt_size_min(BT_BLOCK - j, rows - done);
        block_write(bt_kv_page_data(page) + kv_head * bt_kv_page_head(shape),
                    kernels, shape, j, count, k + done * shape->k.token,
                    v + done * shape->v.token);
    }
}

bt_kv_writer bt_kv_writer_of(const bt_cpu *cpu, const bt_kv_write_args *args)
{
    const bt_tensor *k = args->k, *v = args->v;
    bt_kv_writer w = { .batch = args->batch,
                       .layer = args->layer,
                       .kernels = cpu->kernels,
                       .shape = args->batch->sequences[0].table->pool->shape,
                       .k = bt_cpu_f32(k),
                       .v = bt_cpu_f32(v) };
    w.shape.k = (bt_attention_strides){ k->stride, w.shape.head_dim };
    w.shape.v = (bt_attention_strides){ v->stride, w.shape.value_dim };
    return w;
}

void bt_kv_writer_head(const bt_kv_writer *w, size_t sequence, size_t kv_head)
{
    const bt_attention_shape *s = &w->shape;
    const bt_kv_sequence *part = &w->batch->sequences[sequence];
    bt_kv_pages_write(part->table, w->layer, w->kernels, s, kv_head,
                      part->table->tokens, part->rows,
                      w->k + part->row * s->k.token + kv_head * s->k.head,
                      w->v + part->row * s->v.token + kv_head * s->v.head);
}

/* Prefetch the cache lines that the next token's key will be written to: as
 * many as the head has dimensions. */
static void key_prefetch(const bt_block_table *table, size_t layer,
                         const bt_attention_shape *s, size_t kv_head)
{
    size_t j = table->tokens % BT_BLOCK;
    const bt_kv_page *page =
        bt_block_table_page(table, layer, table->tokens / BT_BLOCK);
    const float *kt = bt_kv_page_data(page) + kv_head * bt_kv_page_head(s);
    for (size_t d = 0; d < s->head_dim; d++)
        __builtin_prefetch(kt + bt_key_at(s->head_dim, j, d), 1);
}

/* Prefetch for the task after the next, if it writes a single token. */
static void write_prefetch(const bt_kv_writer *w, size_t task)
{
    size_t part = (task + 2) / w->shape.kv_heads;
    if (part < w->batch->count && w->batch->sequences[part].rows == 1)
        key_prefetch(w->batch->sequences[part].table, w->layer, &w->shape,
                     (task + 2) % w->shape.kv_heads);
}

/* One key head of one sequence. */
static void write_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_kv_writer *w = job;
    write_prefetch(w, task);
    bt_kv_writer_head(w, task / w->shape.kv_heads, task % w->shape.kv_heads);
}

void bt_kv_writer_all(const bt_kv_writer *writer, bt_cpu *cpu)
{
    const bt_attention_shape *s = &writer->shape;
    bt_kv_writer job = *writer;
    size_t rows = 0;
    for (size_t i = 0; i < writer->batch->count; i++)
        rows += writer->batch->sequences[i].rows;
    bool small =
        rows * s->kv_heads * (s->head_dim + s->value_dim) < SMALL_WRITE;
    bt_parallel_for(small ? NULL : cpu->pool,
                    writer->batch->count * s->kv_heads, write_task, &job);
}

/* ---- Rotating before writing --------------------------------------------- */

typedef struct rotary_write {
    const bt_kernels *kernels;
    bt_rotary rotary;
} rotary_write;

static void rotate(void *job, size_t first, size_t count)
{
    const rotary_write *j = job;
    j->kernels->rotary(&j->rotary, first, count);
}

/* Rotate the queries to q_out, and the keys to the workspace: *keys. */
static bauta_status rotate_before(bt_cpu *cpu, const bt_kv_write_args *args,
                                  const float **keys, bauta_error *err)
{
    const bt_tensor *q = args->q, *k = args->k;
    size_t bytes = bt_size_mul(k->rows * k->columns, sizeof(float));
    size_t dim = q->columns / args->heads;
    if (bt_arena_reserve(&cpu->workspace, bytes))
        return bt_fail_memory(err, "rotated keys", bytes);
    rotary_write job = { cpu->kernels,
                         { .heads = args->heads,
                           .dim = dim,
                           .positions = bt_cpu_data(args->positions),
                           .frequencies = bt_cpu_f32(args->frequencies),
                           .x = bt_cpu_f32(q),
                           .y = bt_cpu_f32(args->q_out),
                           .other_heads = k->columns / dim,
                           .other_x = bt_cpu_f32(k),
                           .other_y = (float *)cpu->workspace.base } };
    bt_parallel_ranges(cpu->pool, q->rows,
                       bt_rows_per_task(q->columns + k->columns), rotate, &job);
    *keys = job.rotary.other_y;
    return BAUTA_OK;
}

bauta_status bt_cpu_kv_write(bt_stream *stream, const bt_kv_write_args *args,
                             bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    bauta_status status = BAUTA_OK;
    BT_CPU_CHECK(stream, kv_write, err, args->k, args->v, args->q, args->q_out,
                 args->frequencies);
    bt_kv_writer writer = bt_kv_writer_of(cpu, args);
    if (args->q)
        status = rotate_before(cpu, args, &writer.k, err);
    if (!status)
        bt_kv_writer_all(&writer, cpu);
    return status;
}
