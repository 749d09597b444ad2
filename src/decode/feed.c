/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - one forward for the new tokens of all sequences.
 *
 * Pages are reserved first, and sequences advance last; whatever fails between
 * leaves nothing but room behind the tokens, which is given back. */
#include "decode/parts.h"

#include "base/error.h"
#include "base/plant.h"
#include "base/size.h"
#include "mask/mask.h"
#include "ops/linear.h"

#include <string.h>

/* One call, its arrays in the memory of the tape. */
typedef struct feeding {
    bt_stage *stage;
    bt_tape *tape;
    const bt_feed *feeds;
    size_t count;
    bt_input input;
    bt_past past, sources;
} feeding;

/* ---- checks ------------------------------------------------------------ */

static bauta_status feed_check(bt_stage *stage, const bt_feed *feed,
                               size_t number, bauta_error *err)
{
    bt_sequence *sequence = feed->sequence;
    if (!sequence || sequence->stage != stage)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       sequence ? "the sequence of feed %zu belongs to another "
                                  "stage"
                                : "feed %zu has no sequence",
                       number);
    if (sequence->call == stage->calls)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the sequence of feed %zu is fed twice", number);
    sequence->call = stage->calls;
    if (feed->count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "feed %zu has no tokens",
                       number);
    bauta_status status =
        bt_stage_ids(stage, "feed", number, feed->ids, feed->count, err);
    if (status)
        return status;
    return bt_stage_positions(stage, "the sequence of feed", number,
                              bt_size_add(sequence->book.tokens, feed->count),
                              err);
}

static bauta_status feeds_check(feeding *f, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    f->stage->calls++;
    for (size_t i = 0; i < f->count && !status; i++) {
        status = feed_check(f->stage, &f->feeds[i], i, err);
        if (!status)
            f->input.tokens = bt_size_add(f->input.tokens, f->feeds[i].count);
    }
    if (!status && f->input.tokens > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu feeds have %zu tokens, and %zu are the most",
                       f->count, f->input.tokens, BT_AXIS_MAX);
    return status;
}

/* ---- pages ------------------------------------------------------------- */

static bauta_status pages_reserve(const feeding *f, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < f->count && !status; i++)
        status = bt_book_reserve(&f->feeds[i].sequence->book, f->feeds[i].count,
                                 err);
    return status;
}

static void pages_give_back(const feeding *f)
{
    for (size_t i = 0; i < f->count; i++) {
        bt_book *book = &f->feeds[i].sequence->book;
        bt_book_truncate(book, book->tokens);
    }
}

/* The tokens are read. What no later one sees can go. */
static void sequences_advance(const feeding *f)
{
    for (size_t i = 0; i < f->count; i++) {
        bt_book *book = &f->feeds[i].sequence->book;
        bt_book_advance(book, f->feeds[i].count);
        size_t seen = bt_stage_window_begin(f->stage, book->tokens);
        for (size_t l = 0; l < book->layers; l++)
            if (bt_stage_windowed(f->stage, l))
                bt_book_forget(book, l, bt_size_min(seen, book->tokens));
    }
}

/* ---- inputs ------------------------------------------------------------ */

/* The rows of all feeds, one behind the other. */
static bool rows_take(feeding *f)
{
    size_t rows = f->input.tokens, row = 0;
    uint32_t *ids = bt_tape_take(f->tape, rows, sizeof(*ids));
    uint32_t *positions = bt_tape_take(f->tape, rows, sizeof(*positions));
    bt_part *parts = bt_tape_take(f->tape, f->count, sizeof(*parts));
    if (!parts)
        return false;
    for (size_t i = 0; i < f->count; i++) {
        const bt_feed *feed = &f->feeds[i];
        bt_book *book = &feed->sequence->book;
        size_t first = book->tokens;
        if (BT_PLANTED("positions-restart") && feed->count > 1)
            first = 0;
        if (BT_PLANTED("position-off-in-steps") && first)
            first--;
        memcpy(ids + row, feed->ids, feed->count * sizeof(*ids));
        for (size_t t = 0; t < feed->count; t++)
            positions[row + t] = (uint32_t)(first + t);
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

static bauta_status self_plans(feeding *f, bauta_error *err)
{
    bt_stage *stage = f->stage;
    const bt_blueprint *print = &stage->model->print;
    size_t *rows = bt_tape_take(f->tape, f->count, sizeof(*rows));
    size_t *keys = bt_tape_take(f->tape, f->count, sizeof(*keys));
    bauta_status status = bt_tape_status(f->tape, err);
    for (size_t i = 0; i < f->count && !status; i++) {
        rows[i] = f->feeds[i].count;
        keys[i] = f->feeds[i].sequence->book.tokens + rows[i];
    }
    bt_steps steps = { f->count, rows, keys, true, 0 };
    if (!status && (!print->window || print->window_from > 0))
        status = bt_step_plan_make(&stage->plan, &steps, err);
    steps.window = print->window;
    if (!status && print->window)
        status = bt_step_plan_make(&stage->window, &steps, err);
    f->input.plan = &stage->plan.plan;
    f->input.window = &stage->window.plan;
    return status;
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
    bt_steps steps = { documents, rows, keys, false, 0 };
    if (!status)
        status = bt_step_plan_make(&f->stage->cross, &steps, err);
    f->input.cross = &f->stage->cross.plan;
    return status;
}

static bauta_status prepare(feeding *f, bauta_error *err)
{
    bool sources = f->stage->model->print.stacks == BT_ENCODER_DECODER;
    bauta_status status = bt_stage_tape(f->stage, &f->tape, err);
    if (status)
        return status;
    if (!rows_take(f) || (sources && !sources_take(f)))
        return bt_tape_status(f->tape, err);
    status = self_plans(f, err);
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

bauta_status bt_stage_feed(bt_stage *stage, const bt_feed *feeds, size_t count,
                           bauta_error *err)
{
    feeding f = { .stage = stage, .feeds = feeds, .count = count };
    if (count == 0)
        return BAUTA_OK;
    bauta_status status = feeds_check(&f, err);
    if (status)
        return status;
    status = pages_reserve(&f, err);
    if (!status)
        status = run(&f, err);
    if (status)
        pages_give_back(&f);
    else
        sequences_advance(&f);
    return status;
}
