/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - one forward for the new tokens of some sequences. */
#include "decode/session_internal.h"

#include "ops/linear.h"

#include <string.h>

/* One call, its arrays in the memory of the tape. */
typedef struct feeding {
    const bt_stage *stage;
    bt_lane *lane;
    bt_tape *tape;
    const bt_feed *feeds;
    size_t count;
    bt_input input;
    bt_past past, sources;
} feeding;

void bt_lane_release(bt_lane *lane)
{
    bt_tape_free(lane->tape);
    for (size_t i = 0; i < BT_PLACES; i++)
        bt_step_plan_release(&lane->plans[i]);
}

/* ---- inputs ------------------------------------------------------------ */

/* The rows of all feeds, one behind the other. */
static bool rows_take(feeding *f)
{
    size_t rows = 0, row = 0;
    for (size_t i = 0; i < f->count; i++)
        rows += f->feeds[i].count;
    f->input.tokens = rows;
    uint32_t *ids = bt_tape_take(f->tape, rows, sizeof(*ids));
    uint32_t *positions = bt_tape_take(f->tape, rows, sizeof(*positions));
    bt_part *parts = bt_tape_take(f->tape, f->count, sizeof(*parts));
    if (!parts)
        return false;
    for (size_t i = 0; i < f->count; i++) {
        const bt_feed *feed = &f->feeds[i];
        bt_book *book = &feed->sequence->book;
        memcpy(ids + row, feed->ids, feed->count * sizeof(*ids));
        for (size_t t = 0; t < feed->count; t++)
            positions[row + t] = (uint32_t)(book->tokens + t);
        parts[i] = (bt_part){ book, row, feed->count };
        row += feed->count;
    }
    f->past = (bt_past){ f->count, parts };
    f->input.ids = ids;
    f->input.positions = positions;
    f->input.past = &f->past;
    return true;
}

/* Neighbours that see the same source are one part: all its rows see all its
 * keys, and beams read them once. */
static bool sources_take(feeding *f)
{
    size_t count = 0;
    const bt_memory *last = NULL;
    bt_part *parts = bt_tape_take(f->tape, f->count, sizeof(*parts));
    for (size_t i = 0; parts && i < f->count; i++) {
        bt_memory *memory = f->feeds[i].sequence->memory;
        if (memory != last)
            parts[count++] = (bt_part){ &memory->book, 0, 0 };
        last = memory;
    }
    f->sources = (bt_past){ count, parts };
    f->input.sources = &f->sources;
    return parts;
}

/* ---- plans ------------------------------------------------------------- */

bauta_status bt_lane_plans(bt_lane *lane, bt_input *input,
                           const bt_blueprint *config, bauta_look_at at,
                           const bt_batch_mask *batch, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; l < bt_layer_count(config, at) && !status; l++) {
        bt_place place = bt_layer_place(config, at, l);
        const bauta_plan **plan = bt_input_plan(input, place);
        if (*plan)
            continue;
        bt_batch_mask mask = bt_layer_mask(config, at, l, batch);
        status = bt_step_plan_make(&lane->plans[place], &mask, err);
        *plan = &lane->plans[place].plan;
    }
    return status;
}

static bauta_status self_plans(feeding *f, bauta_error *err)
{
    size_t *rows = bt_tape_take(f->tape, f->count, sizeof(*rows));
    size_t *keys = bt_tape_take(f->tape, f->count, sizeof(*keys));
    size_t *windows = bt_tape_take(f->tape, f->count, sizeof(*windows));
    bauta_status status = bt_tape_status(f->tape, err);
    if (status)
        return status;
    for (size_t i = 0; i < f->count; i++) {
        rows[i] = f->feeds[i].count;
        keys[i] = f->feeds[i].sequence->book.tokens + rows[i];
        windows[i] = f->feeds[i].sequence->window;
    }
    bt_batch_mask batch = { .queries = { f->count, rows, 0 },
                            .keys = { f->count, keys, 0 },
                            .windows = windows };
    return bt_lane_plans(f->lane, &f->input, &f->stage->model->print,
                         BAUTA_LOOK_DECODER, &batch, err);
}

static bauta_status cross_plan(feeding *f, bauta_error *err)
{
    size_t documents = 0;
    const bt_memory *last = NULL;
    size_t *rows = bt_tape_take(f->tape, f->count, sizeof(*rows));
    size_t *keys = bt_tape_take(f->tape, f->count, sizeof(*keys));
    bauta_status status = bt_tape_status(f->tape, err);
    for (size_t i = 0; i < f->count && !status; i++) {
        const bt_memory *memory = f->feeds[i].sequence->memory;
        if (memory != last) {
            rows[documents] = 0;
            keys[documents++] = memory->book.tokens;
        }
        rows[documents - 1] += f->feeds[i].count;
        last = memory;
    }
    bt_batch_mask batch = { .queries = { documents, rows, 0 },
                            .keys = { documents, keys, 0 } };
    if (!status)
        status = bt_lane_plans(f->lane, &f->input, &f->stage->model->print,
                               BAUTA_LOOK_CROSS, &batch, err);
    return status;
}

static bauta_status prepare(feeding *f, bauta_error *err)
{
    bool sources = f->stage->model->print.stacks == BT_ENCODER_DECODER;
    if (!rows_take(f) || (sources && !sources_take(f)))
        return bt_tape_status(f->tape, err);
    bauta_status status = self_plans(f, err);
    if (!status && sources)
        status = cross_plan(f, err);
    return status;
}

/* ---- logits ------------------------------------------------------------ */

/* The last rows of the feeds that ask for logits, in their order. */
static bt_tensor *rows_asked(const feeding *f, bt_tensor *x, size_t *asked)
{
    size_t count = 0, row = 0;
    uint32_t *rows = bt_tape_take(f->tape, f->count, sizeof(*rows));
    *asked = 0;
    if (!x || !rows)
        return NULL;
    for (size_t i = 0; i < f->count; i++) {
        row += f->feeds[i].count;
        if (f->feeds[i].logits)
            rows[count++] = (uint32_t)(row - 1);
    }
    *asked = count;
    if (count == 0 || count == x->rows)
        return x;
    return bt_op_embed(f->tape, x, rows, count, 1.0f, BT_IGNORE);
}

/* How many feeds from `from` on want their logits one behind the other;
 * *behind becomes the first feed that does not. */
static size_t logits_together(const feeding *f, size_t from, size_t *behind)
{
    size_t vocab = f->stage->model->print.vocab, count = 0;
    const float *first = f->feeds[from].logits;
    for (; from < f->count; from++) {
        const float *logits = f->feeds[from].logits;
        if (logits && logits != first + count * vocab)
            break;
        count += logits != NULL;
    }
    *behind = from;
    return count;
}

/* Straight to where the callers want them. */
static void logits_write(const feeding *f, const bt_tensor *x)
{
    bt_model *model = f->stage->model;
    const bt_tensor *bias = bt_transformer_head_bias(model);
    bt_linear l = bt_linear_of(bt_transformer_head(model), false);
    size_t row = 0, behind;
    for (size_t i = 0; i < f->count; i = behind) {
        behind = i + 1;
        if (!f->feeds[i].logits)
            continue;
        size_t count = logits_together(f, i, &behind);
        if (!bt_linear_y(f->tape, &l, count, x->data + row * l.inputs,
                         bias ? bias->data : NULL, NULL, f->feeds[i].logits))
            return;
        row += count;
    }
}

/* ---- the whole --------------------------------------------------------- */

static bauta_status run(feeding *f, bauta_error *err)
{
    size_t asked;
    bt_model *model = f->stage->model;
    bauta_status status = prepare(f, err);
    if (status)
        return status;
    bt_tensor *x = bt_transformer_decode(f->tape, model, &f->input, NULL);
    x = rows_asked(f, x, &asked);
    if (x && asked) {
        x = bt_transformer_top(f->tape, model, x);
        if (x)
            logits_write(f, x);
    }
    return bt_tape_status(f->tape, err);
}

bauta_status bt_lane_feed(bt_lane *lane, bt_tape *tape, const bt_stage *stage,
                          const bt_feed *feeds, size_t count, bauta_error *err)
{
    feeding f = { .stage = stage,
                  .lane = lane,
                  .tape = tape,
                  .feeds = feeds,
                  .count = count };
    return run(&f, err);
}
