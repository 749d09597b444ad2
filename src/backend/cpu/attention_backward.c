/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.c - gradients of masked attention over the transposed
 * plan, on threads.
 *
 * A task is one block of 64 keys of one key head. It owns the block's dK and dV
 * and visits the tiles that see the block, head by head, in tile order. Each
 * step also adds to the dQ of its tile. A row's dQ is one chain over the keys
 * in order, so a tile must get its blocks in order: every tile counts the
 * blocks that were added, and a task waits for its turn. Tasks start in block
 * order, so the task waited for is always running.
 *
 *     thread 0   block 0:  tile 0  tile 1  tile 2  tile 3 ...
 *     thread 1   block 1:   wait   tile 0  tile 1  tile 2 ...
 *
 * The first turn of a tile packs its rows and the last writes their dQ. Five
 * products, no atomic additions, and the same bits for any number of threads.
 */
#include "backend/cpu/attention.h"
#include "backend/cpu/kernels/exp2.h"
#include "base/error.h"
#include "base/thread_pool.h"

#include <math.h>
#include <string.h>

/* Memory of one thread. */
typedef struct backward_scratch {
    float *kt, *k, *vt; /* the block */
    float *dk, *dv;
    float *p, *ds; /* (tile rows, 64) */
    float *raw;    /* the same, if there is a softcap */
    bt_bias_scratch bias;
} backward_scratch;

typedef struct backward {
    const bauta_plan *plan;
    bt_attention_shape shape;
    const bt_kernels *kernels;
    const float *q, *k, *v, *out, *lse, *dout;
    float *dq, *dk, *dv;
    bool overlap; /* two grids share keys */
    bool biased;  /* whether there are score terms */
    bt_cpu_bias bias;
    size_t heads_per_task; /* key heads whose blocks are all one task; 0: a task
                              is one block */
    size_t head_group;     /* key heads whose blocks are interleaved */
    int threads;

    /* Packed, (heads, rows, ...): */
    float *rows_q, *rows_dout, *rows_dq, *rows_lse, *rows_delta;
    bt_progress *turn; /* (heads, tiles) blocks added to the tile so far */
    backward_scratch *scratch;
} backward;

static void backward_prepare(backward *b, bt_arena *arena, int threads)
{
    const bt_attention_shape *s = &b->shape;
    const bauta_plan *plan = b->plan;
    size_t rows = bt_size_mul(s->heads, plan->rows);
    size_t row_q = s->head_pad * sizeof(float);
    size_t row_v = s->value_pad * sizeof(float);
    size_t tile = BT_BLOCK * BT_TILE_ROWS_MAX;
    b->rows_q = bt_arena_alloc(arena, rows, row_q);
    b->rows_dout = bt_arena_alloc(arena, rows, row_v);
    b->rows_dq = bt_arena_alloc(arena, rows, row_q);
    b->rows_lse = bt_arena_alloc(arena, rows, sizeof(float));
    b->rows_delta = bt_arena_alloc(arena, rows, sizeof(float));
    b->turn = bt_arena_alloc(arena, bt_size_mul(s->heads, plan->tile_count),
                             sizeof(bt_progress));
    if (b->biased)
        bt_cpu_bias_prepare(&b->bias, plan, s, true, arena);
    b->scratch =
        bt_arena_alloc(arena, (size_t)threads, sizeof(backward_scratch));
    for (int i = 0; i < threads; i++) {
        backward_scratch scratch = {
            .kt = bt_arena_alloc(arena, BT_BLOCK, row_q),
            .k = bt_arena_alloc(arena, BT_BLOCK, row_q),
            .vt = bt_arena_alloc(arena, BT_BLOCK, row_v),
            .dk = bt_arena_alloc(arena, BT_BLOCK, row_q),
            .dv = bt_arena_alloc(arena, BT_BLOCK, row_v),
            .p = bt_arena_alloc(arena, tile, sizeof(float)),
            .ds = bt_arena_alloc(arena, tile, sizeof(float)),
        };
        if (s->bias.softcap != 0.0f)
            scratch.raw = bt_arena_alloc(arena, tile, sizeof(float));
        if (b->biased)
            scratch.bias = bt_cpu_bias_scratch(s, BT_TILE_ROWS_MAX, arena);
        if (b->scratch)
            b->scratch[i] = scratch;
    }
}

/* Whether a key is in two grids. */
static bool grids_overlap(const bauta_plan *plan)
{
    size_t end = 0;
    for (size_t i = 0; i < plan->block_count; i++) {
        const bt_key_block *block = &plan->blocks[i];
        if (block->key < end)
            return true;
        end = block->key + block->keys;
    }
    return false;
}

/* ---- Rows -------------------------------------------------------------- */

/* dout . out of one row, in sixteen lanes. */
static float row_delta(const float *dout, const float *out, size_t columns)
{
    float lanes[BT_LANES] = { 0 };
    size_t whole = columns - columns % BT_LANES;
    for (size_t e = 0; e < whole; e += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] += dout[e + t] * out[e + t];
    for (size_t e = whole; e < columns; e++)
        lanes[e - whole] += dout[e] * out[e];
    return bt_lanes_sum(lanes);
}

/* Pack the rows of one tile of one head and zero their dQ. */
static void rows_begin(backward *b, size_t head, const bt_tile *tile)
{
    const bt_attention_shape *s = &b->shape;
    size_t at = head * b->plan->rows + tile->row; // first packed row
    float factor = bt_cpu_bias_query_factor(s);
    size_t out_at = tile->row * s->out.token + head * s->out.head;
    bt_rows_copy(b->rows_q + at * s->head_pad, s->head_pad,
                 b->q + tile->row * s->q.token + head * s->q.head, s->q.token,
                 tile->rows, s->head_dim, factor);
    bt_rows_copy(b->rows_dout + at * s->value_pad, s->value_pad,
                 b->dout + out_at, s->out.token, tile->rows, s->value_dim,
                 1.0f);
    memset(b->rows_dq + at * s->head_pad, 0,
           tile->rows * s->head_pad * sizeof(float));
    bt_rows_prefetch(b->out + out_at, s->out.token, tile->rows, s->value_dim);
    for (size_t r = 0; r < tile->rows; r++) {
        float lse = b->lse[(tile->row + r) * s->heads + head];
        size_t o = out_at + r * s->out.token;
        b->rows_lse[at + r] =
            lse == -INFINITY ? INFINITY : (float)((double)lse * BT_LOG2E);
        b->rows_delta[at + r] =
            row_delta(b->dout + o, b->out + o, s->value_dim);
    }
}

/* Write the dQ of one tile of one head. */
static void rows_end(const backward *b, size_t head, const bt_tile *tile)
{
    const bt_attention_shape *s = &b->shape;
    const float *from =
        b->rows_dq + (head * b->plan->rows + tile->row) * s->head_pad;
    float *to = b->dq + tile->row * s->q.token + head * s->q.head;
    for (size_t r = 0; r < tile->rows; r++)
        for (size_t d = 0; d < s->head_dim; d++)
            to[r * s->q.token + d] = from[r * s->head_pad + d] * s->scale;
}

/* Zero dQ for a tile that sees nothing and so has no turn. */
static void rows_zero(const backward *b, const bt_tile *tile)
{
    const bt_attention_shape *s = &b->shape;
    for (size_t r = tile->row; r < tile->row + tile->rows; r++)
        for (size_t h = 0; h < s->heads; h++)
            memset(b->dq + r * s->q.token + h * s->q.head, 0,
                   s->head_dim * sizeof(float));
}

/* ---- Blocks ------------------------------------------------------------ */

/* How many blocks the tile visits before this one. */
static unsigned block_rank(const bauta_plan *plan, const bt_tile *tile,
                           size_t block)
{
    size_t rank = 0, local = block - tile->grid;
    for (size_t i = tile->run; i < tile->run + tile->runs; i++) {
        const bt_block_run *run = &plan->runs[i];
        if (local < run->first + run->count)
            return (unsigned)(rank + (local - run->first));
        rank += run->count;
    }
    return (unsigned)rank;
}

/* The kernel, with the biases of the step and their gradients. */
static void step_run(const backward *b, bt_attention_grad *grad,
                     const bt_tile *tile, size_t head, size_t block,
                     const backward_scratch *x)
{
    if (b->biased)
        bt_cpu_bias_lines(&b->bias, &x->bias, tile, head, block, 0);
    b->kernels->attention_backward(grad);
    if (b->bias.sums || b->shape.bias.dtensor)
        bt_cpu_bias_grad(&b->bias, tile, head, block, x->raw ? x->raw : x->ds,
                         grad->words);
}

/* One step: this block and one tile of one head, after waiting for its turn. */
static void tile_step(backward *b, bt_attention_grad *grad, size_t head,
                      size_t index, size_t block, const backward_scratch *x)
{
    const bt_attention_shape *s = &b->shape;
    const bt_tile *tile = &b->plan->tiles[index];
    bt_progress *turn = &b->turn[head * b->plan->tile_count + index];
    size_t at = head * b->plan->rows + tile->row;
    unsigned rank = block_rank(b->plan, tile, block);
    grad->rows = tile->rows;
    grad->q = b->rows_q + at * s->head_pad;
    grad->dout = b->rows_dout + at * s->value_pad;
    grad->lse = b->rows_lse + at;
    grad->delta = b->rows_delta + at;
    grad->dq = b->rows_dq + at * s->head_pad;
    bt_progress_wait(turn, rank);
    if (rank == 0)
        rows_begin(b, head, tile);
    step_run(b, grad, tile, head, block, x);
    if (rank + 1 == tile->visits)
        rows_end(b, head, tile);
    bt_progress_set(turn, rank + 1);
}

/* Pack a block and zero its gradients. */
static void block_begin(const backward *b, size_t kv_head,
                        const bt_key_block *block, const backward_scratch *x)
{
    const bt_attention_shape *s = &b->shape;
    const float *k = b->k + block->key * s->k.token + kv_head * s->k.head;
    const float *v = b->v + block->key * s->v.token + kv_head * s->v.head;
    bt_rows_prefetch(k, s->k.token, block->keys, s->head_dim);
    bt_rows_prefetch(v, s->v.token, block->keys, s->value_dim);
    b->kernels->transpose(x->kt, k, s->k.token, block->keys, s->head_dim);
    b->kernels->transpose(x->vt, v, s->v.token, block->keys, s->value_dim);
    bt_rows_copy(x->k, s->head_pad, k, s->k.token, block->keys, s->head_dim,
                 1.0f);
    memset(x->dk, 0, BT_BLOCK * s->head_pad * sizeof(float));
    memset(x->dv, 0, BT_BLOCK * s->value_pad * sizeof(float));
}

/* to = from * factor, added to `to` if grids overlap. */
static void key_end(float *to, const float *from, size_t columns, float factor,
                    bool add)
{
    for (size_t c = 0; c < columns; c++)
        to[c] = (add ? to[c] : 0.0f) + from[c] * factor;
}

/* Write a block's gradients. */
static void block_end(const backward *b, size_t kv_head,
                      const bt_key_block *block, const backward_scratch *x)
{
    const bt_attention_shape *s = &b->shape;
    for (size_t j = 0; j < block->keys; j++) {
        size_t key = block->key + j;
        key_end(b->dk + key * s->k.token + kv_head * s->k.head,
                x->dk + j * s->head_pad, s->head_dim, bt_cpu_bias_key_factor(s),
                b->overlap);
        key_end(b->dv + key * s->v.token + kv_head * s->v.head,
                x->dv + j * s->value_pad, s->value_dim, 1.0f, b->overlap);
    }
}

/* The steps of a block, head by head, in tile order. */
static void block_steps(backward *b, size_t kv_head, size_t index,
                        bt_attention_grad *grad, const backward_scratch *x)
{
    const bauta_plan *plan = b->plan;
    const bt_key_block *block = &plan->blocks[index];
    size_t group = b->shape.group;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (size_t i = block->visit; i < block->visit + block->visits; i++) {
            const bt_tile_run *visit = &plan->visits[i];
            grad->words = NULL;
            if (visit->words != BT_FULL)
                grad->words = plan->words + visit->words;
            for (size_t t = 0; t < visit->count; t++)
                tile_step(b, grad, h, visit->first + t, index, x);
        }
}

static void block_run(backward *b, size_t kv_head, size_t index,
                      bt_prefetch *prefetch, int thread)
{
    const bt_attention_shape *s = &b->shape;
    const bt_key_block *block = &b->plan->blocks[index];
    const backward_scratch *x = &b->scratch[thread];
    if (!block->visits)
        return;
    bt_attention_grad grad = { .head_dim = s->head_dim,
                               .head_pad = s->head_pad,
                               .value_dim = s->value_dim,
                               .value_pad = s->value_pad,
                               .kt = x->kt,
                               .k = x->k,
                               .vt = x->vt,
                               .dk = x->dk,
                               .dv = x->dv,
                               .p = x->p,
                               .ds = x->ds,
                               .prefetch = prefetch,
                               .terms = b->biased ? &x->bias.terms : NULL,
                               .raw = x->raw };
    block_begin(b, kv_head, block, x);
    block_steps(b, kv_head, index, &grad, x);
    block_end(b, kv_head, block, x);
}

/* Prefetch the rows of a tile whose first turn is with this block. */
static void tile_prefetch(const backward *b, size_t head, const bt_tile *tile,
                          size_t index, bt_prefetch *prefetch)
{
    const bt_attention_shape *s = &b->shape;
    size_t o = tile->row * s->out.token + head * s->out.head;
    if (block_rank(b->plan, tile, index) != 0)
        return;
    bt_prefetch_add(prefetch, b->q + tile->row * s->q.token + head * s->q.head,
                    s->q.token, tile->rows, s->head_dim);
    bt_prefetch_add(prefetch, b->dout + o, s->out.token, tile->rows,
                    s->value_dim);
    bt_prefetch_add(prefetch, b->out + o, s->out.token, tile->rows,
                    s->value_dim);
}

/* Prefetch for a block: its keys and values, and the rows of its last tile,
 * which is the new one when a window or a document advances. */
static void block_prefetch(const backward *b, size_t kv_head, size_t index,
                           bt_prefetch *prefetch)
{
    const bt_attention_shape *s = &b->shape;
    const bt_key_block *block = &b->plan->blocks[index];
    if (!block->visits)
        return;
    size_t k = block->key * s->k.token + kv_head * s->k.head;
    size_t v = block->key * s->v.token + kv_head * s->v.head;
    const bt_tile_run *last =
        &b->plan->visits[block->visit + block->visits - 1];
    bt_prefetch_add(prefetch, b->k + k, s->k.token, block->keys, s->head_dim);
    bt_prefetch_add(prefetch, b->v + v, s->v.token, block->keys, s->value_dim);
    bt_prefetch_add(prefetch, b->dk + k, s->k.token, block->keys, s->head_dim);
    bt_prefetch_add(prefetch, b->dv + v, s->v.token, block->keys, s->value_dim);
    tile_prefetch(b, kv_head * s->group,
                  &b->plan->tiles[last->first + last->count - 1], index,
                  prefetch);
}

/* The number of strips in a block's steps: how often a kernel prefetches. */
static size_t block_strips(const bauta_plan *plan, size_t index)
{
    const bt_key_block *block = &plan->blocks[index];
    size_t rows = 0;
    for (size_t i = block->visit; i < block->visit + block->visits; i++)
        rows += plan->visits[i].count * plan->tiles[plan->visits[i].first].rows;
    return rows / 6 + 1;
}

/* The key head and the block of a task. Within a group of heads the first
 * blocks of all heads come first, then the second blocks, so that the task to
 * wait for usually started long ago. */
static void task_block(const backward *b, size_t task, size_t *kv_head,
                       size_t *block)
{
    size_t blocks = b->plan->block_count;
    size_t first = task / (blocks * b->head_group) * b->head_group;
    size_t heads = bt_size_min(b->head_group, b->shape.kv_heads - first);
    size_t within = task - first * blocks;
    *kv_head = first + within % heads;
    *block = within / heads;
}

static void block_task(void *job, size_t task, int thread)
{
    backward *b = job;
    size_t kv_head, block;
    size_t next = task + (size_t)b->threads;
    bt_prefetch prefetch = { .parts = 0 };
    if (b->heads_per_task) {
        for (kv_head = task * b->heads_per_task;
             kv_head < (task + 1) * b->heads_per_task; kv_head++)
            for (block = 0; block < b->plan->block_count; block++)
                block_run(b, kv_head, block, NULL, thread);
        return;
    }
    if (next < b->plan->block_count * b->shape.kv_heads) {
        task_block(b, next, &kv_head, &block);
        block_prefetch(b, kv_head, block, &prefetch);
    }
    task_block(b, task, &kv_head, &block);
    prefetch.pace = prefetch.total / (3 * block_strips(b->plan, block)) + 1;
    block_run(b, kv_head, block, &prefetch, thread);
}

/* ---- The pass ---------------------------------------------------------- */

/* Zero gradients for keys [from, end). */
static void keys_zero(const backward *b, size_t from, size_t end)
{
    const bt_attention_shape *s = &b->shape;
    for (size_t key = from; key < end; key++)
        for (size_t h = 0; h < s->kv_heads; h++) {
            memset(b->dk + key * s->k.token + h * s->k.head, 0,
                   s->head_dim * sizeof(float));
            memset(b->dv + key * s->v.token + h * s->v.head, 0,
                   s->value_dim * sizeof(float));
        }
}

/* Zero gradients for the keys that no block will write, or for all of them
 * when blocks will add to what they find. */
static void keys_begin(const backward *b)
{
    size_t done = 0; // keys before this one are covered
    for (size_t i = 0; i < b->plan->block_count && !b->overlap; i++) {
        const bt_key_block *block = &b->plan->blocks[i];
        if (!block->visits)
            continue;
        keys_zero(b, done, block->key);
        done = block->key + block->keys;
    }
    keys_zero(b, done, b->plan->keys);
}

/* Key heads that one task takes as a whole, see `backward`: if two grids share
 * keys, and for the gradient of a bias tensor, to which blocks, and without a
 * stride also heads, may add in the same place. */
static size_t heads_per_task_of(const backward *b)
{
    const bauta_attention_bias *bias = &b->shape.bias;
    if (bias->dtensor && bias->tensor_head == 0)
        return b->shape.kv_heads;
    return b->overlap || bias->dtensor ? 1 : 0;
}

bauta_status bt_attention_backward_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                       const bt_attention_shape *shape,
                                       const float *q, const float *k,
                                       const float *v, const float *out,
                                       const float *lse, const float *dout,
                                       float *dq, float *dk, float *dv,
                                       bauta_error *err)
{
    backward b = { .plan = plan,
                   .shape = *shape,
                   .kernels = cpu->kernels,
                   .q = q,
                   .k = k,
                   .v = v,
                   .out = out,
                   .lse = lse,
                   .dout = dout,
                   .dq = dq,
                   .dk = dk,
                   .dv = dv,
                   .overlap = grids_overlap(plan),
                   .head_group = 2 * (size_t)bt_cpu_threads(cpu),
                   .threads = bt_cpu_threads(cpu),
                   .biased = bt_attention_biased(shape) };
    b.heads_per_task = heads_per_task_of(&b);
    bt_arena measure = { NULL, 0, 0 };
    backward_prepare(&b, &measure, bt_cpu_threads(cpu));
    if (bt_arena_reserve(&cpu->workspace, measure.used))
        return bt_fail_memory(err, "the workspace of attention_backward",
                              measure.used);
    backward_prepare(&b, &cpu->workspace, bt_cpu_threads(cpu));
    memset(b.turn, 0, b.shape.heads * plan->tile_count * sizeof(*b.turn));
    keys_begin(&b);
    for (size_t t = 0; t < plan->tile_count; t++)
        if (!plan->tiles[t].visits)
            rows_zero(&b, &plan->tiles[t]);
    size_t tasks = b.heads_per_task ? b.shape.kv_heads / b.heads_per_task
                                    : b.shape.kv_heads * plan->block_count;
    bt_parallel_for(cpu->pool, tasks, block_task, &b);
    if (b.biased)
        bt_cpu_bias_finish(&b.bias);
    return BAUTA_OK;
}
