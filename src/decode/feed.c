/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - the new tokens of all sequences, in one forward or in one a thread.
 *
 * Pages are reserved first, and sequences advance last; whatever fails between
 * leaves nothing but room behind the tokens, which is given back.
 *
 * Where there are tokens enough, each thread runs the whole model for a share
 * of the sequences, so that threads wait for each other once in a call instead
 * of at every product. No bit depends on it, since none depends on what else is
 * fed. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "base/threads.h"
#include "mask/mask.h"
#include "ops/context.h"

enum { SHARE_TOKENS = 32 }; /* worth reading all weights for, at least */

typedef struct feeding {
    bt_stage *stage;
    const bt_feed *feeds;
    size_t count, tokens;
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
            f->tokens = bt_size_add(f->tokens, f->feeds[i].count);
    }
    if (!status && f->tokens > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu feeds have %zu tokens, and %zu are the most",
                       f->count, f->tokens, BT_AXIS_MAX);
    return status;
}

/* ---- pages ------------------------------------------------------------- */

static bauta_status pages_reserve(const feeding *f, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < f->count && !status; i++)
        status =
            bt_book_take(&f->feeds[i].sequence->book, f->feeds[i].count, err);
    return status;
}

static void settle_task(void *job, size_t task, int thread)
{
    (void)thread;
    const feeding *f = job;
    bt_book_settle(&f->feeds[task].sequence->book);
}

/* Few sequences, and most of them alone, have nothing to copy. */
static void pages_settle(feeding *f)
{
    int threads = f->count < SHARE_TOKENS ? 1 : f->stage->context->threads;
    bt_parallel(threads, f->count, settle_task, f);
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
        for (size_t l = 0; l < book->layers; l++) {
            size_t seen =
                bt_sequence_first_key(f->feeds[i].sequence, l, book->tokens);
            bt_book_forget(book, l, bt_size_min(seen, book->tokens));
        }
    }
}

/* ---- shares ------------------------------------------------------------ */

/* Feeds of one source stay together, which is then read once. */
static bool belongs(const bt_feed *feed)
{
    const bt_memory *memory = feed->sequence->memory;
    return memory && memory == feed[-1].sequence->memory;
}

/* Give every lane about as many tokens; false where that cannot be, since one
 * feed is as long as many others. */
static bool shares_cut(const feeding *f)
{
    size_t lanes = (size_t)f->stage->context->threads, at = 0, left = f->tokens;
    for (size_t l = 0; l < lanes; l++) {
        size_t fair = left / (lanes - l), tokens = 0, first = at;
        while (at < f->count &&
               (tokens < fair || (at > first && belongs(&f->feeds[at]))))
            tokens += f->feeds[at++].count;
        if (tokens == 0 || tokens > fair + fair / 4)
            return false;
        f->stage->lanes[l].feeds = f->feeds + first;
        f->stage->lanes[l].count = at - first;
        left -= tokens;
    }
    return true;
}

static bauta_status lanes_make(bt_stage *stage, bauta_error *err)
{
    bauta_context *context = stage->context;
    size_t count = (size_t)context->threads;
    bauta_status status = BAUTA_OK;
    if (!stage->lanes)
        stage->lanes = bt_alloc_zero(count, sizeof(*stage->lanes));
    if (!stage->lanes)
        return bt_fail_memory(err, "lanes", count * sizeof(*stage->lanes));
    for (size_t l = 0; l < count && !status; l++)
        if (!stage->lanes[l].tape)
            status =
                bt_tape_create(&stage->lanes[l].tape, context->kernels, 1, err);
    return status;
}

static void share_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_stage *stage = job;
    bt_lane *lane = &stage->lanes[task];
    bt_tape_rewind(lane->tape, false);
    lane->status = bt_lane_feed(lane, lane->tape, stage, lane->feeds,
                                lane->count, &lane->err);
}

static bauta_status run_shares(bt_stage *stage, bauta_error *err)
{
    int lanes = stage->context->threads;
    bt_parallel(lanes, (size_t)lanes, share_task, stage);
    for (int l = 0; l < lanes; l++)
        if (stage->lanes[l].status) {
            if (err)
                *err = stage->lanes[l].err;
            return stage->lanes[l].status;
        }
    return BAUTA_OK;
}

/* ---- the whole --------------------------------------------------------- */

static bauta_status run(const feeding *f, bauta_error *err)
{
    bt_tape *tape;
    bt_stage *stage = f->stage;
    bauta_status status = BAUTA_OK;
    size_t threads = (size_t)stage->context->threads;
    if (threads > 1 && f->tokens / threads >= SHARE_TOKENS) {
        status = lanes_make(stage, err);
        if (!status && shares_cut(f))
            return run_shares(stage, err);
    }
    if (!status)
        status = bt_stage_tape(stage, &tape, err);
    if (status)
        return status;
    return bt_lane_feed(&stage->whole, tape, stage, f->feeds, f->count, err);
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
    pages_settle(&f);
    if (!status)
        status = run(&f, err);
    if (status)
        pages_give_back(&f);
    else
        sequences_advance(&f);
    return status;
}
