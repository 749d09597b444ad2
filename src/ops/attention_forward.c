/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.c - masked attention over a plan.
 *
 * A task is one tile of one head; it walks the tile's runs of blocks and
 * carries the rows' state from step to step. Tasks write disjoint rows, so
 * threads change no bit. Where a tile has few rows (one, in decoding), the
 * heads that share a key head become rows of the same step, so that keys and
 * values are read from memory once.
 *
 * Plain keys and values are packed block by block, by the first task that
 * needs the block; all tiles of the head then share it, while it is still in
 * the cache. Blocks of a few key heads are held at a time: heads take turns
 * in slots, and a head waits until the one before it in its slot has ended.
 * That one was handed out earlier, so it always ends. */
#include "ops/attention.h"

#include "base/error.h"
#include "base/threads.h"
#include "kernels/exp2.h"

#include <math.h>
#include <string.h>

/* Memory of one thread for the rows of a step, called lines because several
 * heads may share it: line h * tile.rows + r. */
typedef struct bt_forward_scratch {
    float *q, *m, *l, *o, *p;
    uint64_t *words;
} forward_scratch;

static size_t tile_rows_max(const bauta_plan *plan)
{
    size_t max = 1;
    for (size_t t = 0; t < plan->tile_count; t++)
        max = bt_size_max(max, plan->tiles[t].rows);
    return max;
}

/* The most heads of a group that together fill no more than a tile. */
static size_t heads_together(const bt_shape *shape, size_t rows)
{
    size_t heads = shape->group;
    while (heads > 1 && (shape->group % heads || heads * rows > BT_TILE_ROWS))
        heads--;
    return heads;
}

void bt_forward_prepare(bt_forward *f, bt_arena *arena, int threads)
{
    const bt_shape *s = &f->shape;
    size_t rows = tile_rows_max(f->plan);
    f->together = heads_together(s, rows);
    size_t lines = rows * f->together;
    f->scratch = bt_arena_take(arena, (size_t)threads, sizeof(forward_scratch));
    for (int i = 0; i < threads; i++) {
        forward_scratch scratch = {
            .q = bt_arena_take(arena, lines * s->head_pad, sizeof(float)),
            .m = bt_arena_take(arena, lines, sizeof(float)),
            .l = bt_arena_take(arena, lines * BT_LANES, sizeof(float)),
            .o = bt_arena_take(arena, lines * s->value_pad, sizeof(float)),
            .p = bt_arena_take(arena, lines * BT_BLOCK, sizeof(float)),
            .words = bt_arena_take(arena, lines, sizeof(uint64_t)),
        };
        if (f->scratch)
            f->scratch[i] = scratch;
    }
}

/* Queries of the lines, scaled; their state empty. */
static void lines_begin(const bt_forward *f, const bt_tile *tile, size_t head,
                        const forward_scratch *x)
{
    const bt_shape *s = &f->shape;
    size_t lines = tile->rows * f->together;
    float factor = (float)((double)s->scale * BT_LOG2E);
    for (size_t h = 0; h < f->together; h++)
        bt_rows_copy(x->q + h * tile->rows * s->head_pad, s->head_pad,
                     f->q + tile->row * s->q.token + (head + h) * s->q.head,
                     s->q.token, tile->rows, s->head_dim, factor);
    for (size_t i = 0; i < lines; i++)
        x->m[i] = -INFINITY;
    memset(x->l, 0, lines * BT_LANES * sizeof(float));
    memset(x->o, 0, lines * s->value_pad * sizeof(float));
}

/* Output and log-sum-exp of one line. */
static void line_end(const bt_forward *f, size_t row, size_t head,
                     const forward_scratch *x, size_t line)
{
    const bt_shape *s = &f->shape;
    float l = bt_lanes_sum(x->l + line * BT_LANES);
    float factor = l == 0.0f ? 0.0f : 1.0f / l;
    const float *o = x->o + line * s->value_pad;
    float *out = f->out + row * s->out.token + head * s->out.head;
    for (size_t e = 0; e < s->value_dim; e++)
        out[e] = o[e] * factor;
    if (!f->lse)
        return;
    float *lse = f->lse + row * s->heads + head;
    if (l == 0.0f)
        *lse = -INFINITY;
    else if (isnan(l))
        *lse = l;
    else
        *lse = (float)(((double)x->m[line] + bt_log2((double)l)) * BT_LN2);
}

/* The words of a block for all lines: those of the tile, for each head. */
static const uint64_t *lines_words(const bt_forward *f, const bt_tile *tile,
                                   const uint64_t *words,
                                   const forward_scratch *x)
{
    if (f->together == 1)
        return words;
    for (size_t h = 0; h < f->together; h++)
        memcpy(x->words + h * tile->rows, words, tile->rows * sizeof(*words));
    return x->words;
}

/* The slot where the blocks of a key head are. */
static size_t slot_of(const bt_forward *f, size_t kv_head)
{
    return f->source ? kv_head % f->source->slots : kv_head;
}

static void block_pack(const bt_forward *f, size_t kv_head, size_t index)
{
    const bt_shape *s = &f->shape;
    const bt_key_block *block = &f->plan->blocks[index];
    size_t slot = slot_of(f, kv_head);
    const float *k =
        f->source->k + block->key * s->k.token + kv_head * s->k.head;
    const float *v =
        f->source->v + block->key * s->v.token + kv_head * s->v.head;
    bt_rows_prefetch(k, s->k.token, block->keys, s->head_dim);
    f->kernels->transpose(bt_packed_keys(&f->packed, s, slot, index), k,
                          s->k.token, block->keys, s->head_dim);
    float *to = bt_packed_values(&f->packed, s, slot, index);
    for (size_t e = 0; e < s->value_dim; e += BT_PANEL)
        bt_rows_copy(to + bt_panel_start(e), bt_panel_width(s->value_pad, e),
                     v + e, s->v.token, block->keys,
                     bt_size_min(BT_PANEL, s->value_dim - e), 1.0f);
}

static bt_once *block_once(const bt_forward *f, size_t kv_head, size_t index,
                           unsigned *round)
{
    *round = (unsigned)(kv_head / f->source->slots);
    return &f->source
                ->blocks[slot_of(f, kv_head) * f->plan->block_count + index];
}

/* Whether the block of a key head is packed or about to be. */
static bool block_ready(const bt_forward *f, size_t kv_head, size_t index)
{
    unsigned round;
    bt_once *once = block_once(f, kv_head, index, &round);
    return bt_once_begun(once, round);
}

/* Return when the block of a key head is packed. */
static void block_need(const bt_forward *f, size_t kv_head, size_t index)
{
    unsigned round;
    if (!f->source)
        return;
    bt_once *once = block_once(f, kv_head, index, &round);
    if (bt_once_begin(once, round)) {
        block_pack(f, kv_head, index);
        bt_once_end(once, round);
    }
}

static size_t task_count(const bt_forward *f)
{
    return f->plan->tile_count * f->shape.heads / f->together;
}

/* Which heads and which tile a task has. As many key heads as there are threads
 * go abreast, so that each thread tends to have keys of its own in its cache
 * and no two want the same block packed at once; of these the last tiles first,
 * since under a causal mask they are the longest. */
static const bt_tile *task_tile(const bt_forward *f, size_t task, size_t *head)
{
    size_t tiles = f->plan->tile_count;
    size_t steps = f->shape.group / f->together; // of heads, for a key head
    size_t abreast = bt_size_min((size_t)f->threads, f->shape.kv_heads);
    size_t band = task / (tiles * steps * abreast) * abreast;
    size_t wide = bt_size_min(abreast, f->shape.kv_heads - band);
    size_t within = task - band * tiles * steps;
    size_t kv_head = band + within % wide;
    size_t step = within / wide; // of the tiles of its heads
    *head = kv_head * f->shape.group + step / tiles * f->together;
    return &f->plan->tiles[tiles - 1 - step % tiles];
}

/* The first block of pages that a task will read. */
static void pages_foresee(const bt_forward *f, const bt_tile *tile,
                          size_t kv_head, bt_ahead *ahead)
{
    const bt_shape *s = &f->shape;
    if (!tile->runs)
        return;
    size_t index = tile->grid + f->plan->runs[tile->run].first;
    size_t keys = f->plan->blocks[index].keys;
    bt_ahead_add(ahead, bt_packed_keys(&f->packed, s, kv_head, index), BT_BLOCK,
                 s->head_dim, keys);
    bt_ahead_add(ahead, bt_packed_values(&f->packed, s, kv_head, index),
                 bt_panel_width(s->value_pad, 0), keys,
                 bt_panel_width(s->value_pad, 0));
}

/* What the task will want whose turn comes when this thread is free again: its
 * queries, its outputs, and keys and values that are not packed yet. */
static void task_foresee(const bt_forward *f, size_t task, bt_ahead *ahead)
{
    const bt_shape *s = &f->shape;
    size_t head;
    const bt_tile *tile = task_tile(f, task, &head);
    size_t kv_head = head / s->group;
    for (size_t h = head; h < head + f->together; h++) {
        bt_ahead_add(ahead, f->q + tile->row * s->q.token + h * s->q.head,
                     s->q.token, tile->rows, s->head_dim);
        bt_ahead_add(ahead, f->out + tile->row * s->out.token + h * s->out.head,
                     s->out.token, tile->rows, s->value_dim);
    }
    if (!f->source) {
        pages_foresee(f, tile, kv_head, ahead);
        return;
    }
    for (size_t i = tile->run; i < tile->run + tile->runs; i++)
        for (size_t k = 0; k < f->plan->runs[i].count; k++) {
            size_t index = tile->grid + f->plan->runs[i].first + k;
            const bt_key_block *block = &f->plan->blocks[index];
            if (ahead->parts == BT_AHEAD_PARTS)
                return;
            if (block_ready(f, kv_head, index))
                continue;
            bt_ahead_add(ahead,
                         f->source->k + block->key * s->k.token +
                             kv_head * s->k.head,
                         s->k.token, block->keys, s->head_dim);
            bt_ahead_add(ahead,
                         f->source->v + block->key * s->v.token +
                             kv_head * s->v.head,
                         s->v.token, block->keys, s->value_dim);
        }
}

/* The keys of the block that a tile visits behind block k of run i, or NULL. */
static const float *keys_behind(const bt_forward *f, const bt_tile *tile,
                                size_t slot, size_t i, size_t k)
{
    const bt_run *run = &f->plan->runs[i];
    size_t block = run->first + k + 1;
    if (k + 1 == run->count) {
        if (i + 1 == tile->run + tile->runs)
            return NULL;
        block = run[1].first;
    }
    return bt_packed_keys(&f->packed, &f->shape, slot, tile->grid + block);
}

static void tile_walk(const bt_forward *f, const bt_tile *tile, size_t kv_head,
                      const forward_scratch *x, bt_ahead *ahead)
{
    const bt_shape *s = &f->shape;
    bt_attention_step step = { .rows = tile->rows * f->together,
                               .head_dim = s->head_dim,
                               .head_pad = s->head_pad,
                               .value_pad = s->value_pad,
                               .q = x->q,
                               .m = x->m,
                               .l = x->l,
                               .o = x->o,
                               .p = x->p,
                               .ahead = ahead };
    size_t slot = slot_of(f, kv_head);
    for (size_t i = tile->run; i < tile->run + tile->runs; i++) {
        const bt_run *run = &f->plan->runs[i];
        const uint64_t *words = NULL;
        if (run->words != BT_FULL)
            words = f->plan->words + run->words;
        for (size_t k = 0; k < run->count; k++) {
            size_t block = tile->grid + run->first + k;
            block_need(f, kv_head, block);
            step.kt = bt_packed_keys(&f->packed, s, slot, block);
            step.v = bt_packed_values(&f->packed, s, slot, block);
            step.next = keys_behind(f, tile, slot, i, k);
            if (words)
                step.words = lines_words(f, tile, words + k * tile->rows, x);
            f->kernels->attention_forward(&step);
        }
        step.words = NULL;
    }
}

/* Wait for the slot of a key head. */
static void head_begin(const bt_forward *f, size_t kv_head)
{
    if (!f->source || kv_head < f->source->slots)
        return;
    size_t tasks = f->plan->tile_count * (f->shape.group / f->together);
    bt_progress_wait(&f->source->finished[kv_head - f->source->slots],
                     (unsigned)tasks);
}

static void forward_task(void *job, size_t task, int thread)
{
    const bt_forward *f = job;
    size_t head, next = task + (size_t)f->threads;
    const bt_tile *tile = task_tile(f, task, &head);
    const forward_scratch *x = &f->scratch[thread];
    size_t kv_head = head / f->shape.group;
    bt_ahead ahead = { .parts = 0 };
    if (next < task_count(f))
        task_foresee(f, next, &ahead);
    // Each step asks twice for every strip of six rows.
    size_t asks = tile->visits * (tile->rows * f->together / 3 + 1) + 1;
    ahead.pace = ahead.total / asks + 1;
    head_begin(f, kv_head);
    lines_begin(f, tile, head, x);
    tile_walk(f, tile, kv_head, x, &ahead);
    for (size_t h = 0; h < f->together; h++)
        for (size_t r = 0; r < tile->rows; r++)
            line_end(f, tile->row + r, head + h, x, h * tile->rows + r);
    if (f->source)
        bt_progress_step(&f->source->finished[kv_head]);
}

void bt_forward_run(bt_forward *f, int threads)
{
    f->threads = threads;
    bt_parallel(threads, task_count(f), forward_task, f);
}

/* ---- plain keys and values --------------------------------------------- */

/* Take the packed blocks and what guards them. */
static void source_prepare(bt_forward *f, bt_arena *arena)
{
    const bt_shape *s = &f->shape;
    bt_source *source = f->source;
    size_t blocks = bt_size_mul(f->plan->block_count, source->slots);
    size_t keys = bt_size_mul(blocks, BT_BLOCK);
    f->packed.blocks = f->plan->block_count;
    f->packed.kt =
        bt_arena_take(arena, keys, s->head_dim * sizeof(*f->packed.kt));
    f->packed.v =
        bt_arena_take(arena, keys, s->value_pad * sizeof(*f->packed.v));
    source->blocks = bt_arena_take(arena, blocks, sizeof(bt_once));
    source->finished = bt_arena_take(arena, s->kv_heads, sizeof(bt_progress));
    if (!source->blocks)
        return;
    memset(source->blocks, 0, blocks * sizeof(bt_once));
    memset(source->finished, 0, s->kv_heads * sizeof(bt_progress));
}

bauta_status bauta_attention_forward(bauta_context *context,
                                     const bauta_plan *plan,
                                     const bauta_attention *shape,
                                     const float *q, const float *k,
                                     const float *v, float *out, float *lse,
                                     bauta_error *err)
{
    BT_NEED_CPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    BT_NEED(out, err);
    bt_source source = { .k = k, .v = v };
    bt_forward f = { .plan = plan,
                     .kernels = context->kernels,
                     .q = q,
                     .source = &source,
                     .out = out,
                     .lse = lse };
    bauta_status status = bt_shape_resolve(&f.shape, shape, err);
    if (!status)
        status = bt_strides_apart(&f.shape.out, "out", plan->rows,
                                  f.shape.heads, f.shape.value_dim, err);
    if (status)
        return status;
    source.slots = bt_size_min(f.shape.kv_heads, 2 * (size_t)context->threads);
    bt_arena measure = { NULL, 0, 0 };
    source_prepare(&f, &measure);
    bt_forward_prepare(&f, &measure, context->threads);
    if (bt_arena_reserve(&context->workspace, measure.used))
        return bt_fail_memory(err, "the workspace of attention_forward",
                              measure.used);
    source_prepare(&f, &context->workspace);
    bt_forward_prepare(&f, &context->workspace, context->threads);
    bt_forward_run(&f, context->threads);
    return BAUTA_OK;
}
