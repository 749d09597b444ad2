/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.c - masked attention over a plan, on threads.
 *
 * A task is one tile of one head. It visits the tile's runs of blocks and
 * carries the rows' state from step to step. Tasks write disjoint rows, so
 * threads change no bit. If a tile has few rows (one, in decoding), the heads
 * that share a key head become rows of the same step, so that keys and values
 * are read once.
 *
 * Plain keys and values are packed block by block, by the first task that needs
 * the block. All tiles of the head then share it while it is in the cache. Only
 * a few key heads are packed at a time: heads share slots, and a head waits
 * until the previous head in its slot has finished. That one started earlier,
 * so it always finishes. */
#include "backend/cpu/attention.h"

#include "backend/cpu/kernels/exp2.h"
#include "backend/cpu/kv_pages.h"
#include "base/error.h"
#include "base/thread_pool.h"

#include <math.h>
#include <string.h>

/* Multiply-adds below which more threads do not pay. */
enum { SMALL_ATTENTION = 1 << 17 };

/* From so many tiles of a thread on, heads need no tasks of their own; up to so
 * many blocks of a tile it takes long to start a step for each head. */
enum { THREAD_TILES = 8, SHORT_TILE = 2 };

/* Plain keys and values. Tasks pack a block when they first need it, into one
 * of `slots` key heads' worth of blocks. */
typedef struct kv_source {
    const float *k, *v;
    size_t slots;
    bt_once *blocks;       /* (slots, blocks) */
    bt_progress *finished; /* (kv_heads) finished tasks */
} kv_source;

/* Memory of one thread for the rows of a step. Several heads may share a step;
 * its rows are then called lines: line h * tile.rows + r. */
typedef struct forward_scratch {
    float *q, *m, *l, *o, *p;
    uint64_t *words;
    bt_bias_scratch bias;
} forward_scratch;

typedef struct forward {
    const bauta_plan *plan;
    bt_attention_shape shape;
    const bt_kernels *kernels;
    const float *q;
    kv_source *source; /* NULL: keys and values are in pages */
    bt_packed_kv packed;
    const bt_kv_writer *writer; /* of the task's own sequence; or NULL */
    float *out, *lse;           /* lse may be NULL */
    bool biased;                /* whether there are score terms */
    bt_cpu_bias bias;
    int threads;
    bool prefetches;          /* whether a task prefetches for another */
    size_t heads_per_step;    /* heads of a group that share a step */
    size_t group_steps;       /* steps of a group: its heads / heads_per_step */
    size_t kv_heads_per_step; /* key heads that share a step: 1, or all */
    forward_scratch *scratch; /* (threads) */
} forward;

static size_t tile_rows_max(const bauta_plan *plan)
{
    size_t max = 1;
    for (size_t t = 0; t < plan->tile_count; t++)
        max = bt_size_max(max, plan->tiles[t].rows);
    return max;
}

/* The most heads of a group whose rows together fit into a tile. */
static size_t heads_per_step_of(const bt_attention_shape *shape, size_t rows)
{
    size_t heads = shape->group;
    while (heads > 1 && (shape->group % heads || heads * rows > BT_TILE_ROWS))
        heads--;
    return heads;
}

/* All key heads share a step if there are so few rows and keys that starting
 * steps would take most of the time, and if threads have enough tiles. In pages
 * their keys are one stride apart. */
static size_t kv_heads_per_step_of(const forward *f, size_t lines)
{
    const bauta_plan *plan = f->plan;
    size_t heads = f->shape.kv_heads;
    bool few = !f->source && !f->biased && f->group_steps == 1 &&
               lines * heads <= BT_TILE_ROWS;
    bool brief = plan->tile_count >= THREAD_TILES * (size_t)f->threads &&
                 plan->block_count <= SHORT_TILE * plan->tile_count;
    return few && (!f->prefetches || brief) ? heads : 1;
}

/* Take the scratch memory of all threads from the arena, which may be
 * measuring. */
static void forward_prepare(forward *f, bt_arena *arena, int threads)
{
    const bt_attention_shape *s = &f->shape;
    size_t rows = tile_rows_max(f->plan);
    f->threads = threads;
    f->biased = bt_attention_biased(s);
    f->heads_per_step = heads_per_step_of(s, rows);
    f->group_steps = s->group / f->heads_per_step;
    size_t lines = rows * f->heads_per_step;
    f->kv_heads_per_step = kv_heads_per_step_of(f, lines);
    lines *= f->kv_heads_per_step;
    if (f->biased)
        bt_cpu_bias_prepare(&f->bias, f->plan, s, false, arena);
    f->scratch =
        bt_arena_alloc(arena, (size_t)threads, sizeof(forward_scratch));
    for (int i = 0; i < threads; i++) {
        forward_scratch scratch = {
            .q = bt_arena_alloc(arena, lines * s->head_pad, sizeof(float)),
            .m = bt_arena_alloc(arena, lines, sizeof(float)),
            .l = bt_arena_alloc(arena, lines * BT_LANES, sizeof(float)),
            .o = bt_arena_alloc(arena, lines * s->value_pad, sizeof(float)),
            .p = bt_arena_alloc(arena, lines * BT_BLOCK, sizeof(float)),
            .words = bt_arena_alloc(arena, lines, sizeof(uint64_t)),
        };
        if (f->biased)
            scratch.bias = bt_cpu_bias_scratch(s, lines, arena);
        if (f->scratch)
            f->scratch[i] = scratch;
    }
}

/* Copy and scale the queries; reset the state. */
static void lines_begin(const forward *f, const bt_tile *tile, size_t head,
                        const forward_scratch *x)
{
    const bt_attention_shape *s = &f->shape;
    size_t heads = f->heads_per_step * f->kv_heads_per_step;
    size_t lines = tile->rows * heads;
    float factor = bt_cpu_bias_query_factor(s);
    for (size_t h = 0; h < heads; h++)
        bt_rows_copy(x->q + h * tile->rows * s->head_pad, s->head_pad,
                     f->q + tile->row * s->q.token + (head + h) * s->q.head,
                     s->q.token, tile->rows, s->head_dim, factor);
    for (size_t i = 0; i < lines; i++)
        x->m[i] = -INFINITY;
    memset(x->l, 0, lines * BT_LANES * sizeof(float));
    memset(x->o, 0, lines * s->value_pad * sizeof(float));
}

/* Output and log-sum-exp of one line. */
static void line_end(const forward *f, size_t row, size_t head,
                     const forward_scratch *x, size_t line)
{
    const bt_attention_shape *s = &f->shape;
    float l = bt_lanes_sum(x->l + line * BT_LANES);
    float factor = l == 0.0f ? 0.0f : 1.0f / l;
    bt_row_copy(f->out + row * s->out.token + head * s->out.head, s->value_dim,
                x->o + line * s->value_pad, s->value_dim, factor);
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

/* The words of a block for all lines: those of the tile, repeated per head. */
static const uint64_t *lines_words(const forward *f, const bt_tile *tile,
                                   const uint64_t *words,
                                   const forward_scratch *x)
{
    if (f->heads_per_step == 1)
        return words;
    for (size_t h = 0; h < f->heads_per_step; h++)
        memcpy(x->words + h * tile->rows, words, tile->rows * sizeof(*words));
    return x->words;
}

/* The slot of a key head. */
static size_t slot_of(const forward *f, size_t kv_head)
{
    return f->source ? kv_head % f->source->slots : kv_head;
}

static void block_pack(const forward *f, size_t kv_head, size_t index)
{
    const bt_attention_shape *s = &f->shape;
    const bt_key_block *block = &f->plan->blocks[index];
    size_t slot = slot_of(f, kv_head);
    const float *k =
        f->source->k + block->key * s->k.token + kv_head * s->k.head;
    const float *v =
        f->source->v + block->key * s->v.token + kv_head * s->v.head;
    bt_rows_prefetch(k, s->k.token, block->keys, s->head_dim);
    f->kernels->transpose(bt_packed_kv_keys(&f->packed, s, slot, index), k,
                          s->k.token, block->keys, s->head_dim);
    float *to = bt_packed_kv_values(&f->packed, s, slot, index);
    for (size_t e = 0; e < s->value_dim; e += BT_VALUE_PANEL)
        bt_rows_copy(to + bt_value_panel_start(e),
                     bt_value_panel_width(s->value_pad, e), v + e, s->v.token,
                     block->keys, bt_size_min(BT_VALUE_PANEL, s->value_dim - e),
                     1.0f);
}

static bt_once *block_once(const forward *f, size_t kv_head, size_t index,
                           unsigned *round)
{
    *round = (unsigned)(kv_head / f->source->slots);
    return &f->source
                ->blocks[slot_of(f, kv_head) * f->plan->block_count + index];
}

/* Whether the block of a key head is packed or being packed. */
static bool block_started(const forward *f, size_t kv_head, size_t index)
{
    unsigned round;
    bt_once *once = block_once(f, kv_head, index, &round);
    return bt_once_started(once, round);
}

/* Pack the block of a key head, or wait until another task has. */
static void block_wait(const forward *f, size_t kv_head, size_t index)
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

static size_t task_count(const forward *f)
{
    size_t kv_steps =
        f->kv_heads_per_step == 1 ? f->shape.kv_heads : 1; // per tile
    return f->plan->tile_count * kv_steps * f->group_steps;
}

/* The heads and the tile of a task. As many key heads as there are threads are
 * processed at a time, so that each thread tends to have its own keys in its
 * cache and no two need the same block packed at once. The last tiles come
 * first, since under a causal mask they are the longest. */
static const bt_tile *task_tile(const forward *f, size_t task, size_t *head)
{
    size_t tiles = f->plan->tile_count;
    size_t steps = f->group_steps; // per key head and tile
    if (f->kv_heads_per_step > 1) {
        *head = 0;
        return &f->plan->tiles[task];
    }
    if (tiles * steps == 1) { // without divisions, which take longer than some
        *head = task * f->shape.group; // tasks of decoding
        return f->plan->tiles;
    }
    size_t group = bt_size_min((size_t)f->threads, f->shape.kv_heads);
    size_t first = task / (tiles * steps * group) * group; // key head
    size_t width = bt_size_min(group, f->shape.kv_heads - first);
    size_t within = task - first * tiles * steps;
    size_t kv_head = first + within % width;
    size_t step = within / width; // of the tiles of its heads
    *head = kv_head * f->shape.group + step / tiles * f->heads_per_step;
    return &f->plan->tiles[tiles - 1 - step % tiles];
}

/* Prefetch the first page that a task will read. */
static void pages_prefetch(const forward *f, const bt_tile *tile,
                           size_t kv_head, bt_prefetch *prefetch)
{
    const bt_attention_shape *s = &f->shape;
    if (!tile->runs)
        return;
    size_t index = tile->grid + f->plan->runs[tile->run].first;
    size_t keys = f->plan->blocks[index].keys;
    bt_prefetch_add(prefetch, bt_packed_kv_keys(&f->packed, s, kv_head, index),
                    BT_KEY_GROUP, bt_keys_end(s->head_dim, keys) / BT_KEY_GROUP,
                    BT_KEY_GROUP);
    bt_prefetch_add(prefetch,
                    bt_packed_kv_values(&f->packed, s, kv_head, index),
                    bt_value_panel_width(s->value_pad, 0), keys,
                    bt_value_panel_width(s->value_pad, 0));
}

/* Prefetch for the task that this thread will likely run next: its queries, its
 * outputs, and keys and values that are not packed yet. */
static void task_prefetch(const forward *f, size_t task, bt_prefetch *prefetch)
{
    const bt_attention_shape *s = &f->shape;
    size_t head;
    const bt_tile *tile = task_tile(f, task, &head);
    size_t kv_head = head / s->group;
    for (size_t h = head; h < head + f->heads_per_step; h++) {
        bt_prefetch_add(prefetch, f->q + tile->row * s->q.token + h * s->q.head,
                        s->q.token, tile->rows, s->head_dim);
        bt_prefetch_add(prefetch,
                        f->out + tile->row * s->out.token + h * s->out.head,
                        s->out.token, tile->rows, s->value_dim);
    }
    if (!f->source) {
        pages_prefetch(f, tile, kv_head, prefetch);
        return;
    }
    for (size_t i = tile->run; i < tile->run + tile->runs; i++)
        for (size_t k = 0; k < f->plan->runs[i].count; k++) {
            size_t index = tile->grid + f->plan->runs[i].first + k;
            const bt_key_block *block = &f->plan->blocks[index];
            if (prefetch->parts == BT_PREFETCH_RANGES)
                return;
            if (block_started(f, kv_head, index))
                continue;
            bt_prefetch_add(prefetch,
                            f->source->k + block->key * s->k.token +
                                kv_head * s->k.head,
                            s->k.token, block->keys, s->head_dim);
            bt_prefetch_add(prefetch,
                            f->source->v + block->key * s->v.token +
                                kv_head * s->v.head,
                            s->v.token, block->keys, s->value_dim);
        }
}

/* The keys of the block that a tile visits after block k of run i, or NULL. */
static const float *next_keys(const forward *f, const bt_tile *tile,
                              size_t slot, size_t i, size_t k)
{
    const bt_block_run *run = &f->plan->runs[i];
    size_t block = run->first + k + 1;
    if (k + 1 == run->count) {
        if (i + 1 == tile->run + tile->runs)
            return NULL;
        block = run[1].first;
    }
    return bt_packed_kv_keys(&f->packed, &f->shape, slot, tile->grid + block);
}

/* The biases of all lines for a block. */
static void lines_bias(const forward *f, const bt_tile *tile, size_t head,
                       size_t block, const forward_scratch *x)
{
    for (size_t h = 0; h < f->heads_per_step && f->biased; h++)
        bt_cpu_bias_lines(&f->bias, &x->bias, tile, head + h, block,
                          h * tile->rows);
}

static void tile_run(const forward *f, const bt_tile *tile, size_t head,
                     const forward_scratch *x, bt_prefetch *prefetch)
{
    const bt_attention_shape *s = &f->shape;
    size_t kv_head = head / s->group;
    bt_attention_step step = { .rows = tile->rows * f->heads_per_step,
                               .head_dim = s->head_dim,
                               .head_pad = s->head_pad,
                               .value_pad = s->value_pad,
                               .heads = f->kv_heads_per_step,
                               .head_stride = bt_kv_page_head(s),
                               .q = x->q,
                               .m = x->m,
                               .l = x->l,
                               .o = x->o,
                               .p = x->p,
                               .prefetch = prefetch,
                               .terms = f->biased ? &x->bias.terms : NULL };
    size_t slot = slot_of(f, kv_head);
    for (size_t i = tile->run; i < tile->run + tile->runs; i++) {
        const bt_block_run *run = &f->plan->runs[i];
        const uint64_t *words = NULL;
        if (run->words != BT_FULL)
            words = f->plan->words + run->words;
        for (size_t k = 0; k < run->count; k++) {
            size_t block = tile->grid + run->first + k;
            block_wait(f, kv_head, block);
            step.kt = bt_packed_kv_keys(&f->packed, s, slot, block);
            step.v = bt_packed_kv_values(&f->packed, s, slot, block);
            if (f->kv_heads_per_step == 1)
                step.next = next_keys(f, tile, slot, i, k);
            lines_bias(f, tile, head, block, x);
            if (words)
                step.words = lines_words(f, tile, words + k * tile->rows, x);
            f->kernels->attention_forward(&step);
        }
        step.words = NULL;
    }
}

/* Wait until the slot of a key head is free. */
static void slot_wait(const forward *f, size_t kv_head)
{
    if (!f->source || kv_head < f->source->slots)
        return;
    size_t tasks = f->plan->tile_count * f->group_steps;
    bt_progress_wait(&f->source->finished[kv_head - f->source->slots],
                     (unsigned)tasks);
}

/* Prefetch for the task that follows on this thread while this one runs. */
static void prefetch_begin(const forward *f, size_t task, const bt_tile *tile,
                           bt_prefetch *prefetch)
{
    size_t next = task + (size_t)f->threads;
    bt_prefetch_init(prefetch);
    if (next < task_count(f))
        task_prefetch(f, next, prefetch);
    // Each step prefetches twice for every strip of six rows.
    size_t calls = tile->visits * (tile->rows * f->heads_per_step / 3 + 1) + 1;
    prefetch->pace = prefetch->total / calls + 1;
}

static void forward_task(void *job, size_t task, int thread)
{
    const forward *f = job;
    size_t head;
    const bt_tile *tile = task_tile(f, task, &head);
    const forward_scratch *x = &f->scratch[thread];
    size_t kv_head = head / f->shape.group;
    bt_prefetch prefetch;
    // All heads of a page are one piece, which the hardware prefetches.
    bool prefetches = f->prefetches && f->kv_heads_per_step == 1;
    if (prefetches)
        prefetch_begin(f, task, tile, &prefetch);
    for (size_t h = 0; f->writer && h < f->shape.kv_heads; h++)
        bt_kv_writer_head(f->writer, task, h);
    slot_wait(f, kv_head);
    lines_begin(f, tile, head, x);
    tile_run(f, tile, head, x, prefetches ? &prefetch : NULL);
    for (size_t h = 0; h < f->heads_per_step * f->kv_heads_per_step; h++)
        for (size_t r = 0; r < tile->rows; r++)
            line_end(f, tile->row + r, head + h, x, h * tile->rows + r);
    if (f->source)
        bt_progress_increment(&f->source->finished[kv_head]);
}

/* ---- Plain keys and values --------------------------------------------- */

/* Take the memory of the packed blocks and their states. */
static void source_prepare(forward *f, bt_arena *arena)
{
    const bt_attention_shape *s = &f->shape;
    kv_source *source = f->source;
    size_t blocks = bt_size_mul(f->plan->block_count, source->slots);
    size_t keys = bt_size_mul(blocks, BT_BLOCK);
    f->packed.blocks = f->plan->block_count;
    f->packed.kt =
        bt_arena_alloc(arena, keys, s->head_dim * sizeof(*f->packed.kt));
    f->packed.v =
        bt_arena_alloc(arena, keys, s->value_pad * sizeof(*f->packed.v));
    source->blocks = bt_arena_alloc(arena, blocks, sizeof(bt_once));
    source->finished = bt_arena_alloc(arena, s->kv_heads, sizeof(bt_progress));
    if (!source->blocks)
        return;
    memset(source->blocks, 0, blocks * sizeof(bt_once));
    memset(source->finished, 0, s->kv_heads * sizeof(bt_progress));
}

bauta_status bt_attention_forward_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                      const bt_attention_shape *shape,
                                      const float *q, const float *k,
                                      const float *v, float *out, float *lse,
                                      bauta_error *err)
{
    kv_source source = {
        .k = k,
        .v = v,
        .slots = bt_size_min(shape->kv_heads, 2 * (size_t)bt_cpu_threads(cpu))
    };
    forward f = { .plan = plan,
                  .shape = *shape,
                  .kernels = cpu->kernels,
                  .q = q,
                  .source = &source,
                  .out = out,
                  .lse = lse,
                  .prefetches = true };
    bt_arena measure = { NULL, 0, 0 };
    source_prepare(&f, &measure);
    forward_prepare(&f, &measure, bt_cpu_threads(cpu));
    if (bt_arena_reserve(&cpu->workspace, measure.used))
        return bt_fail_memory(err, "the workspace of attention_forward",
                              measure.used);
    source_prepare(&f, &cpu->workspace);
    forward_prepare(&f, &cpu->workspace, bt_cpu_threads(cpu));
    bt_parallel_for(cpu->pool, task_count(&f), forward_task, &f);
    return BAUTA_OK;
}

/* ---- Keys and values in pages ------------------------------------------ */

/* Whether each task has all heads of one sequence with one new token, which it
 * can then write itself. */
static bool writes_in_tasks(const forward *f, const bt_kv_batch *batch)
{
    bool single =
        f->kv_heads_per_step > 1 && f->plan->tile_count == batch->count;
    for (size_t i = 0; i < batch->count && single; i++)
        single = batch->sequences[i].rows == 1;
    return single;
}

bauta_status bt_attention_paged_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                    const bt_attention_shape *shape,
                                    const float *q, bt_kv_page *const *pages,
                                    const bt_kv_writer *writer, float *out,
                                    float *lse, bauta_error *err)
{
    forward f = { .plan = plan,
                  .shape = *shape,
                  .kernels = cpu->kernels,
                  .q = q,
                  .packed = { .pages = pages },
                  .out = out,
                  .lse = lse };
    uint64_t work = plan->pairs * shape->heads;
    bool small = work * (shape->head_dim + shape->value_dim) < SMALL_ATTENTION;
    bt_thread_pool *pool = small ? NULL : cpu->pool;
    f.prefetches = !small;
    int threads = bt_thread_pool_threads(pool);
    bt_arena measure = { NULL, 0, 0 };
    forward_prepare(&f, &measure, threads);
    if (bt_arena_reserve(&cpu->workspace, measure.used))
        return bt_fail_memory(err, "the workspace of attention", measure.used);
    forward_prepare(&f, &cpu->workspace, threads);
    if (writer && writes_in_tasks(&f, writer->batch))
        f.writer = writer;
    else if (writer)
        bt_kv_writer_all(writer, cpu);
    bt_parallel_for(pool, task_count(&f), forward_task, &f);
    return BAUTA_OK;
}
