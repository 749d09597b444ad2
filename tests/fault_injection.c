/* SPDX-License-Identifier: Apache-2.0 */
/* fault_injection.c - wrappers of the library's functions that misbehave.
 *
 * WRAP(f) is what other object files call as f; REAL(f) is the library's f.
 * Calls within an object file are not redirected, so a fault sits where one
 * part of the library calls another. */
#include "fault_injection.h"
#include "device_faults.h"

#include "backend/cpu/attention.h"
#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "decode/session.h"
#include "mask/mask.h"
#include "mask/plan.h"
#include "model/batch.h"
#include "model/transformer.h"
#include "runtime/plan_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WRAP(name) __wrap_##name
#define REAL(name) __real_##name
#define DECLARE(name) __typeof__(name) WRAP(name), REAL(name)

static struct {
    const char *name; /* NULL: none */
    size_t layer;
} fault;

void fault_inject(const char *name, size_t layer)
{
    fault.name = name;
    fault.layer = layer;
}

bool fault_is(const char *name)
{
    return fault.name && strcmp(fault.name, name) == 0;
}

size_t fault_layer(void)
{
    return fault.layer;
}

/* Requirements of a fault. */
static void need(bool there)
{
    if (!there)
        abort();
}

/* ---- which keys a plan shows ------------------------------------------- */

static bool next_key(const row_view *v, size_t key)
{
    return v->was[key] || (v->hi && key == v->hi);
}
static bool to_itself(const row_view *v, size_t key)
{
    return key <= v->row;
}
static bool everything(const row_view *v, size_t key)
{
    (void)v;
    (void)key;
    return true;
}
static bool inverted(const row_view *v, size_t key)
{
    return !v->was[key];
}
static bool but_the_first(const row_view *v, size_t key)
{
    return v->was[key] && (key != v->lo || v->hi == v->lo + 1);
}
static bool one_more(const row_view *v, size_t key)
{
    // Not of the previous page, which may have been freed.
    return v->was[key] || (v->lo % BT_BLOCK && key == v->lo - 1);
}
static bool top_left(const row_view *v, size_t key)
{
    return key <= v->in_chunk;
}
static bool but_the_last(const row_view *v, size_t key)
{
    return v->was[key] && key + 1 < v->keys;
}

typedef enum attention_site {
    SELF,    /* self-attention of a whole batch */
    STEP,    /* self-attention over a cache */
    CROSS,   /* cross-attention of a whole batch */
    BACKWARD /* the backward pass of SELF and CROSS */
} attention_site;

static const struct {
    const char *name;
    attention_site attention_site;
    rule_fn *rule;
    bool every_layer;
    bool dropout_only;
} plan_faults[] = {
    { "future-key", SELF, next_key, false, false },
    { "dropout-drops-mask", SELF, everything, true, true },
    { "batch-mask-ignored", SELF, to_itself, false, false },
    { "mask-inverted", SELF, inverted, false, false },
    { "window-dropped", SELF, to_itself, false, false },
    { "window-short-in-steps", STEP, but_the_first, false, false },
    { "window-long-in-steps", STEP, one_more, false, false },
    { "top-left-in-steps", STEP, top_left, true, false },
    { "pieces-see-ahead", STEP, everything, true, false },
    { "cross-mask-ignored", CROSS, everything, false, false },
    { "cross-misses-last", CROSS, but_the_last, false, false },
    { "backward-sees-future", BACKWARD, next_key, true, false },
};

/* The rule for the plan of an attention, or NULL: the plan stays as it is. */
static rule_fn *rule_for(attention_site where, size_t layer, bool dropout)
{
    for (size_t i = 0; i < BT_LEN(plan_faults); i++)
        if (fault_is(plan_faults[i].name) &&
            plan_faults[i].attention_site == where &&
            (plan_faults[i].every_layer || layer == fault.layer) &&
            (dropout || !plan_faults[i].dropout_only))
            return plan_faults[i].rule;
    return NULL;
}

rule_fn *fault_backward_rule(void)
{
    return rule_for(BACKWARD, 0, false);
}

/* ---- a plan under a rule -----------------------------------------------
 *
 * The plan is made again with a word for every block and row. Blocks and tiles
 * stay, so that nothing differs but the pairs. */

enum { BLOCKS_MAX = 16 }; /* of a grid: as many as an audit's tokens need */

static size_t grid_blocks(const bauta_plan *p, size_t grid)
{
    size_t count = 1;
    while (grid + count < p->block_count &&
           p->blocks[grid + count].key ==
               p->blocks[grid + count - 1].key + BT_BLOCK)
        count++;
    return count;
}

static size_t grid_keys(const bauta_plan *p, size_t grid, size_t blocks)
{
    const bt_key_block *last = &p->blocks[grid + blocks - 1];
    return last->key + last->keys - p->blocks[grid].key;
}

/* The keys that row r of a tile sees without the fault. */
static void row_read(const bauta_plan *p, const bt_tile *t, size_t r, bool *was)
{
    for (size_t i = t->run; i < t->run + t->runs; i++)
        for (size_t k = 0; k < p->runs[i].count; k++) {
            uint64_t word = UINT64_MAX;
            if (p->runs[i].words != BT_FULL)
                word = p->words[p->runs[i].words + k * t->rows + r];
            for (size_t j = 0; j < BT_BLOCK; j++)
                if (word >> j & 1)
                    was[(p->runs[i].first + k) * BT_BLOCK + j] = true;
        }
}

/* The first row of the plan that has the tile's grid. */
static size_t first_row(const bauta_plan *p, const bt_tile *t)
{
    for (size_t i = 0; i < p->tile_count; i++)
        if (p->tiles[i].runs && p->tiles[i].grid == t->grid)
            return p->tiles[i].row;
    return t->row;
}

static void row_write(const bauta_plan *from, const bt_tile *t, size_t r,
                      size_t blocks, rule_fn *rule, uint64_t *words)
{
    bool was[BLOCKS_MAX * BT_BLOCK] = { false };
    need(blocks <= BLOCKS_MAX);
    row_read(from, t, r, was);
    row_view v = { .row = t->row + r - from->blocks[t->grid].key,
                   .in_chunk = t->row + r - first_row(from, t),
                   .keys = grid_keys(from, t->grid, blocks),
                   .was = was };
    for (size_t j = 0; j < v.keys; j++)
        if (was[j]) {
            v.lo = v.hi ? v.lo : j;
            v.hi = j + 1;
        }
    for (size_t j = 0; j < v.keys; j++)
        if (rule(&v, j))
            words[j / BT_BLOCK * t->rows + r] |= UINT64_C(1) << j % BT_BLOCK;
}

/* Blocks before the first one that a tile visits may belong to freed pages;
 * they stay unvisited. */
static void tile_write(const bauta_plan *from, bauta_plan *to, size_t index,
                       rule_fn *rule)
{
    bt_tile *t = &to->tiles[index];
    const bt_tile old = *t;
    t->run = to->run_count;
    if (!old.runs)
        return;
    size_t blocks = grid_blocks(from, old.grid);
    size_t first = from->visits ? 0 : from->runs[old.run].first;
    to->runs[to->run_count++] =
        (bt_block_run){ first, blocks - first,
                        to->word_count + first * t->rows };
    t->runs = 1;
    t->visits = blocks - first;
    for (size_t r = 0; r < t->rows; r++)
        row_write(from, &old, r, blocks, rule, to->words + to->word_count);
    to->word_count += blocks * t->rows;
}

/* The same, indexed by key block. */
static void visits_write(bauta_plan *p)
{
    p->visit_count = 0;
    for (size_t b = 0; b < p->block_count; b++) {
        p->blocks[b].visit = p->visit_count;
        for (size_t i = 0; i < p->tile_count; i++) {
            const bt_tile *t = &p->tiles[i];
            if (!t->runs || b < t->grid || b - t->grid >= t->visits)
                continue;
            p->visits[p->visit_count++] = (bt_tile_run){
                i, 1, p->runs[t->run].words + (b - t->grid) * t->rows
            };
        }
        p->blocks[b].visits = p->visit_count - p->blocks[b].visit;
    }
}

/* Room for the arrays of the plan that `from` becomes. */
static void arrays_take(bauta_plan *to, const bauta_plan *from, bt_arena *arena)
{
    size_t tiles = from->tile_count, blocks = from->block_count;
    *to = *from;
    to->tiles = bt_arena_alloc(arena, tiles, sizeof(*to->tiles));
    to->runs = bt_arena_alloc(arena, tiles, sizeof(*to->runs));
    to->blocks = bt_arena_alloc(arena, blocks, sizeof(*to->blocks));
    to->visits = bt_arena_alloc(arena, tiles * blocks, sizeof(*to->visits));
    to->words = bt_arena_alloc(arena, from->rows * blocks, sizeof(*to->words));
}

static size_t plan_bytes(const bauta_plan *from)
{
    bauta_plan to;
    bt_arena measure = { NULL, 0, 0 };
    bt_arena_alloc(&measure, 1, sizeof(to));
    arrays_take(&to, from, &measure);
    return measure.used;
}

/* Write the plan under a rule into plan_bytes() bytes of memory. */
static bauta_plan *plan_write(void *memory, const bauta_plan *from,
                              rule_fn *rule)
{
    bt_arena arena = { memory, plan_bytes(from), 0 };
    memset(memory, 0, arena.capacity);
    bauta_plan *to = bt_arena_alloc(&arena, 1, sizeof(*to));
    arrays_take(to, from, &arena);
    memcpy(to->tiles, from->tiles, from->tile_count * sizeof(*to->tiles));
    if (from->block_count)
        memcpy(to->blocks, from->blocks,
               from->block_count * sizeof(*to->blocks));
    to->run_count = to->word_count = 0;
    for (size_t i = 0; i < to->tile_count; i++)
        tile_write(from, to, i, rule);
    visits_write(to);
    return to;
}

/* The same in the memory of a tape. Returns the plan unchanged when rule is
 * NULL. */
static const bt_attention_plan *
plan_under(rule_fn *rule, const bt_attention_plan *plan, bt_tape *tape)
{
    if (!rule || !plan)
        return plan;
    if (plan->backend != &bt_cpu_backend)
        return device_faults_plan(bt_tape_stream(tape), plan, rule);
    const bt_cpu_plan *right = (const bt_cpu_plan *)plan;
    const bauta_plan *from = right->batch ? right->batch : &right->decode.plan;
    void *memory = bt_tape_alloc(tape, plan_bytes(from), 1);
    bt_cpu_plan *wrong = bt_tape_alloc(tape, 1, sizeof(*wrong));
    if (!wrong)
        return plan;
    *wrong = *right;
    wrong->batch = plan_write(memory, from, rule);
    return &wrong->base;
}

/* ---- stacks and their attentions --------------------------------------- */

/* The stack that this thread runs. A decoder that reads an encoder's output
 * alternates between self- and cross-attention. */
static _Thread_local struct {
    const bt_forward_input *input; /* NULL: none */
    bool in_turns;
    size_t attentions; /* that were run, of a whole batch */
} stack;

/* Positions of the tokens that a decoder appends to a KV cache. */
static const uint32_t *positions_in_steps(bt_tape *tape,
                                          const bt_forward_input *input)
{
    bool restart = fault_is("positions-restart");
    bool off = fault_is("position-off-in-steps");
    if (!input->self_kv || !(restart || off))
        return input->positions;
    uint32_t *positions = bt_tape_alloc(tape, input->tokens, sizeof(uint32_t));
    for (size_t i = 0; positions && i < input->self_kv->count; i++) {
        const bt_kv_sequence *part = &input->self_kv->sequences[i];
        size_t first = part->table->tokens;
        if (restart && part->rows > 1)
            first = 0;
        if (off && first)
            first--;
        for (size_t t = 0; t < part->rows; t++)
            positions[part->row + t] = (uint32_t)(first + t);
    }
    return positions;
}

DECLARE(bt_transformer_encode);
bt_tensor *WRAP(bt_transformer_encode)(bt_tape *tape, bt_model *model,
                                       const bt_forward_input *input)
{
    stack.input = input;
    stack.in_turns = false;
    stack.attentions = 0;
    bt_tensor *x = REAL(bt_transformer_encode)(tape, model, input);
    stack.input = NULL;
    return x;
}

DECLARE(bt_transformer_decode);
bt_tensor *WRAP(bt_transformer_decode)(bt_tape *tape, bt_model *model,
                                       const bt_forward_input *input,
                                       bt_tensor *memory)
{
    bt_forward_input wrong = *input;
    wrong.positions = positions_in_steps(tape, input);
    if (!wrong.positions)
        return NULL; // the tape has failed
    stack.input = &wrong;
    stack.in_turns = memory != NULL;
    stack.attentions = 0;
    bt_tensor *x = REAL(bt_transformer_decode)(tape, model, &wrong, memory);
    stack.input = NULL;
    return x;
}

DECLARE(bt_op_attention);
bt_tensor *WRAP(bt_op_attention)(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                                 bt_tensor *v, const bt_attention_plan *plan,
                                 size_t heads, size_t kv_heads, float scale,
                                 const bt_bias_op *bias)
{
    size_t index = stack.attentions++;
    size_t layer = stack.in_turns ? index / 2 : index;
    attention_site where = stack.in_turns && index % 2 ? CROSS : SELF;
    need(stack.input);
    plan = plan_under(rule_for(where, layer, stack.input->dropout.rate > 0),
                      plan, tape);
    return REAL(bt_op_attention)(tape, q, k, v, plan, heads, kv_heads, scale,
                                 bias);
}

DECLARE(bt_op_write_and_attend);
bt_tensor *WRAP(bt_op_write_and_attend)(bt_tape *tape, bt_tensor *q,
                                        bt_tensor *k, const bt_tensor *v,
                                        const bt_paged_attention_op *op,
                                        const uint32_t *positions,
                                        const float *frequencies)
{
    bt_paged_attention_op wrong = *op;
    need(stack.input);
    rule_fn *rule = rule_for(STEP, op->layer, false);
    if (rule && op->plan->backend != &bt_cpu_backend)
        wrong.plan = device_faults_step(bt_tape_stream(tape), op->plan);
    else
        wrong.plan = plan_under(rule, op->plan, tape);
    return REAL(bt_op_write_and_attend)(tape, q, k, v, &wrong, positions,
                                        frequencies);
}

/* ---- attention --------------------------------------------------------- */

DECLARE(bt_attention_backward_cpu);
bauta_status WRAP(bt_attention_backward_cpu)(
    bt_cpu *cpu, const bauta_plan *plan, const bt_attention_shape *shape,
    const float *q, const float *k, const float *v, const float *out,
    const float *lse, const float *dout, float *dq, float *dk, float *dv,
    bauta_error *err)
{
    rule_fn *rule = rule_for(BACKWARD, 0, false);
    void *memory = NULL;
    if (rule) {
        memory = malloc(plan_bytes(plan));
        need(memory);
        plan = plan_write(memory, plan, rule);
    }
    bauta_status status = REAL(bt_attention_backward_cpu)(
        cpu, plan, shape, q, k, v, out, lse, dout, dq, dk, dv, err);
    free(memory);
    return status;
}

/* A row that sees nothing has a sum of weights of 0; divide by it. */
static void empty_rows_divide(const bauta_plan *plan,
                              const bt_attention_shape *s, const float *lse,
                              float *out)
{
    for (size_t row = 0; row < plan->rows; row++)
        for (size_t head = 0; head < s->heads; head++) {
            float *to = out + row * s->out.token + head * s->out.head;
            if (lse[row * s->heads + head] != -INFINITY)
                continue;
            for (size_t e = 0; e < s->value_dim; e++)
                to[e] = NAN;
        }
}

DECLARE(bt_attention_forward_cpu);
bauta_status WRAP(bt_attention_forward_cpu)(bt_cpu *cpu, const bauta_plan *plan,
                                            const bt_attention_shape *shape,
                                            const float *q, const float *k,
                                            const float *v, float *out,
                                            float *lse, bauta_error *err)
{
    bauta_status status = REAL(bt_attention_forward_cpu)(cpu, plan, shape, q, k,
                                                         v, out, lse, err);
    if (!status && lse && fault_is("empty-row-is-nan"))
        empty_rows_divide(plan, shape, lse, out);
    return status;
}

/* Hidden keys take part in the softmax with a score of -10000: those that
 * another row sees, since a block has fewer than 64 keys at the end of a batch,
 * and what follows them was never written. */
static void hidden_keys_add(const bt_attention_step *s, size_t row,
                            uint64_t seen)
{
    const float score = -1e4f;
    float *o = s->o + row * s->value_pad, *l = s->l + row * BT_LANES;
    float max = s->m[row] > score ? s->m[row] : score;
    float rescale = exp2f(s->m[row] - max), weight = exp2f(score - max);
    s->m[row] = max;
    for (size_t t = 0; t < BT_LANES; t++)
        l[t] *= rescale;
    for (size_t e = 0; e < s->value_pad; e++)
        o[e] *= rescale;
    for (size_t j = 0; j < BT_BLOCK; j++) {
        if (!((seen & ~s->words[row]) >> j & 1))
            continue;
        l[j % BT_LANES] += weight;
        for (size_t e = 0; e < s->value_pad; e++)
            o[e] += weight * s->v[bt_value_panel_start(e) + e % BT_VALUE_PANEL +
                                  j * bt_value_panel_width(s->value_pad, e)];
    }
}

static void attention_large_negative(const bt_attention_step *s)
{
    uint64_t seen = 0;
    bt_attention_forward_f32_c(s);
    for (size_t row = 0; s->words && row < s->rows; row++)
        seen |= s->words[row];
    for (size_t h = 0; s->words && h < s->heads; h++) {
        bt_attention_step one = bt_attention_step_of_head(s, h);
        for (size_t row = 0; row < s->rows; row++)
            if (seen & ~s->words[row])
                hidden_keys_add(&one, row, seen);
    }
}

/* The reference kernels with another attention. */
DECLARE(bt_kernels_get);
const bt_kernels *WRAP(bt_kernels_get)(const char *isa)
{
    static bt_kernels faulty;
    const bt_kernels *kernels = REAL(bt_kernels_get)(isa);
    if (!fault_is("large-negative") || !kernels ||
        kernels->attention_forward != bt_attention_forward_f32_c)
        return kernels;
    faulty = *kernels;
    faulty.attention_forward = attention_large_negative;
    return &faulty;
}

/* ---- masks and batches ------------------------------------------------- */

/* The mask that a fault substitutes for an attention's; NULL: unchanged. */
static bauta_mask *other_mask(const bauta_mask *mask)
{
    bauta_mask *other = NULL;
    size_t queries = mask->queries, keys = mask->keys;
    if (fault_is("documents-open"))
        need(!bauta_mask_causal(&other, queries, keys, NULL));
    else if (fault_is("padding-seen-across"))
        need(!bauta_mask_all(&other, queries, keys, NULL));
    return other;
}

DECLARE(bt_batch_mask_create);
bauta_status WRAP(bt_batch_mask_create)(bauta_mask **out,
                                        const bt_batch_mask *mask,
                                        bauta_error *err)
{
    bauta_status status = REAL(bt_batch_mask_create)(out, mask, err);
    bauta_mask *other = status ? NULL : other_mask(*out);
    if (other) {
        bauta_mask_free(*out);
        *out = other;
    }
    return status;
}

/* The plans of masks that the caller created. */
DECLARE(bauta_plan_create);
bauta_status WRAP(bauta_plan_create)(bauta_plan **out, const bauta_mask *mask,
                                     size_t first, size_t rows,
                                     bauta_error *err)
{
    bauta_mask *other = other_mask(mask);
    bauta_status status =
        REAL(bauta_plan_create)(out, other ? other : mask, first, rows, err);
    bauta_mask_free(other);
    return status;
}

/* Count one token of padding, where there is some, as part of the sequence. */
static size_t *lengths_with_padding(const bauta_batch *batch)
{
    size_t *lengths = calloc(batch->count + 1, sizeof(*lengths));
    need(lengths);
    for (size_t i = 0; i < batch->count; i++)
        lengths[i] = batch->lengths[i] + (batch->lengths[i] < batch->stride);
    return lengths;
}

DECLARE(bt_packed_batch_init);
void WRAP(bt_packed_batch_init)(bt_packed_batch *rows, bt_tape *tape,
                                const bauta_batch *batch)
{
    bauta_batch wrong = *batch;
    size_t *lengths = NULL;
    if (fault_is("padding-read") && batch->lengths)
        wrong.lengths = lengths = lengths_with_padding(batch);
    REAL(bt_packed_batch_init)(rows, tape, &wrong);
    free(lengths);
    if (!fault_is("positions-run-on") || !rows->positions)
        return;
    for (size_t i = 0; i < rows->tokens; i++)
        rows->positions[i] = (uint32_t)i;
}

DECLARE(bt_decode_session_encode);
bauta_status WRAP(bt_decode_session_encode)(bt_decode_session *session,
                                            size_t count,
                                            const uint32_t *const *ids,
                                            const size_t *lengths,
                                            bt_cross_kv **out, bauta_error *err)
{
    bool first = fault_is("source-of-another");
    const uint32_t **wrong = calloc(count + 1, sizeof(*wrong));
    need(wrong);
    for (size_t i = 0; i < count; i++)
        wrong[i] = ids[first && lengths[0] >= lengths[i] ? 0 : i];
    bauta_status status = REAL(bt_decode_session_encode)(session, count, wrong,
                                                         lengths, out, err);
    free(wrong);
    return status;
}

/* ---- caches ------------------------------------------------------------ */

/* A copy of a matrix with its heads in reverse order, for free(). */
static bt_tensor heads_swapped(const bt_tensor *from, size_t heads,
                               bt_buffer *memory)
{
    size_t dim = from->columns / heads, count = from->rows * from->columns;
    const float *x = bt_cpu_f32(from);
    float *to = malloc(count * sizeof(*to) + 1);
    need(to);
    for (size_t i = 0; i < from->rows; i++)
        for (size_t h = 0; h < heads; h++)
            memcpy(to + i * from->columns + (heads - 1 - h) * dim,
                   x + i * from->stride + h * dim, dim * sizeof(*to));
    *memory = bt_buffer_of_host(to, count * sizeof(*to));
    return bt_tensor_of(memory, BAUTA_FLOAT32, from->rows, from->columns);
}

/* A write of keys and values with their heads in reverse order. */
typedef struct swapped_write {
    bt_kv_write_args args;
    bt_tensor k, v;
    bt_buffer keys, values;
} swapped_write;

static bool swaps_heads(const bt_kv_write_args *args)
{
    return fault_is("heads-swapped-in-steps") && args->layer == fault.layer;
}

static const bt_kv_write_args *write_swapped(swapped_write *s,
                                             const bt_kv_write_args *args)
{
    size_t heads = args->batch->sequences[0].table->pool->shape.kv_heads;
    s->k = heads_swapped(args->k, heads, &s->keys);
    s->v = heads_swapped(args->v, heads, &s->values);
    s->args = *args;
    s->args.k = &s->k;
    s->args.v = &s->v;
    return &s->args;
}

static void swapped_free(swapped_write *s)
{
    free(s->keys.memory);
    free(s->values.memory);
}

DECLARE(bt_cpu_kv_write);
bauta_status WRAP(bt_cpu_kv_write)(bt_stream *stream,
                                   const bt_kv_write_args *args,
                                   bauta_error *err)
{
    swapped_write s;
    if (!swaps_heads(args))
        return REAL(bt_cpu_kv_write)(stream, args, err);
    bauta_status status =
        REAL(bt_cpu_kv_write)(stream, write_swapped(&s, args), err);
    swapped_free(&s);
    return status;
}

/* Attention that writes keys itself; those to be rotated go the way above. */
DECLARE(bt_cpu_paged_attention);
bauta_status WRAP(bt_cpu_paged_attention)(bt_stream *stream,
                                          const bt_paged_attention_args *args,
                                          bauta_error *err)
{
    swapped_write s;
    bt_paged_attention_args wrong = *args;
    if (!args->write || args->write->q || !swaps_heads(args->write))
        return REAL(bt_cpu_paged_attention)(stream, args, err);
    wrong.write = write_swapped(&s, args->write);
    bauta_status status = REAL(bt_cpu_paged_attention)(stream, &wrong, err);
    swapped_free(&s);
    return status;
}

/* Pages that are shared look as if this block table were their only owner. */
DECLARE(bt_block_table_alloc);
bauta_status WRAP(bt_block_table_alloc)(bt_block_table *table,
                                        bt_stream *stream, size_t tokens,
                                        bauta_error *err)
{
    size_t references[64] = { 0 };
    size_t first = table->tokens / BT_BLOCK * table->layers;
    size_t count = table->blocks * table->layers - first;
    if (!fault_is("forks-share-writes") || count == 0)
        return REAL(bt_block_table_alloc)(table, stream, tokens, err);
    need(count <= BT_LEN(references));
    bt_kv_page **pages = table->pages + first;
    for (size_t i = 0; i < count; i++)
        if (pages[i]) {
            references[i] = pages[i]->references;
            pages[i]->references = 1;
        }
    bauta_status status =
        REAL(bt_block_table_alloc)(table, stream, tokens, err);
    pages = table->pages + first;
    for (size_t i = 0; i < count; i++)
        if (references[i])
            pages[i]->references = references[i];
    return status;
}

/* Copying a page leaves out its last token. */
DECLARE(bt_cpu_kv_copy);
bauta_status WRAP(bt_cpu_kv_copy)(bt_stream *stream,
                                  const bt_kv_copy_args *args, bauta_error *err)
{
    bt_kv_copy_item items[64];
    bt_kv_copy_args wrong = { args->pool, args->count, items };
    need(args->count <= BT_LEN(items));
    for (size_t i = 0; i < args->count; i++) {
        items[i] = args->items[i];
        items[i].tokens -= fault_is("copy-one-short") && items[i].tokens;
    }
    return REAL(bt_cpu_kv_copy)(stream, &wrong, err);
}

DECLARE(bt_block_table_truncate);
void WRAP(bt_block_table_truncate)(bt_block_table *table, size_t tokens)
{
    if (!fault_is("truncate-forgotten") || tokens >= table->tokens)
        REAL(bt_block_table_truncate)(table, tokens);
}

/* ---- products ---------------------------------------------------------- */

DECLARE(bt_gemm_grouped_f32);
bauta_status WRAP(bt_gemm_grouped_f32)(bt_cpu *cpu, const bt_gemm *gemms,
                                       size_t count, bauta_error *err)
{
    bauta_status status = REAL(bt_gemm_grouped_f32)(cpu, gemms, count, err);
    if (status)
        return status;
    if ((fault_is("sums-by-threads") && bt_cpu_threads(cpu) > 1) ||
        (fault_is("sums-by-batch") && gemms->m > 40) ||
        (fault_is("sums-by-isa") && cpu->kernels->gemm_tiles))
        gemms->c[0] = nextafterf(gemms->c[0], INFINITY);
    return status;
}
