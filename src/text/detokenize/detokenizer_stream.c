/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_stream.c - running the steps: pieces enter the first step, text
 * leaves the last. */
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "text/detokenize/detokenizer_step.h"

#include <string.h>

static const struct {
    bt_filter_feed_fn *feed;
    bt_filter_finish_fn *finish; /* NULL: nothing to do */
} kinds[BT_STEP_KINDS] = {
    [BT_STEP_JOIN] = { bt_filter_join, NULL },
    [BT_STEP_LITERAL] = { bt_filter_literal, NULL },
    [BT_STEP_PREFIX] = { bt_filter_prefix, NULL },
    [BT_STEP_STRIP] = { bt_filter_strip, NULL },
    [BT_STEP_FUSE] = { bt_filter_fuse, bt_filter_fuse_finish },
    [BT_STEP_LAST] = { bt_filter_last, bt_filter_last_finish },
    [BT_STEP_WHOLE] = { bt_filter_whole, NULL },
    [BT_STEP_BYTELEVEL] = { bt_filter_bytelevel, bt_filter_bytelevel_finish },
    [BT_STEP_BYTES] = { bt_filter_bytes, bt_filter_bytes_finish },
    [BT_STEP_OPENING] = { bt_filter_opening, NULL },
};

/* ---- The chain ----------------------------------------------------------- */

static bauta_status append_text(bt_stream *stream, const char *bytes,
                                size_t size)
{
    if (BT_ROOM(stream->text, stream->room, stream->size, size + 1))
        return bt_fail_memory(stream->err, "decoded text", size);
    if (size)
        memcpy(stream->text + stream->size, bytes, size);
    stream->size += size;
    stream->text[stream->size] = '\0';
    return BAUTA_OK;
}

static bauta_status feed(bt_stream *stream, size_t at, const char *bytes,
                         size_t size, bool end)
{
    if (at == stream->decoding->count)
        return append_text(stream, bytes, size);
    return kinds[stream->decoding->steps[at].kind].feed(stream, at, bytes, size,
                                                        end);
}

bauta_status bt_filter_next(bt_stream *stream, size_t at, const char *bytes,
                            size_t size, bool end)
{
    return size || end ? feed(stream, at + 1, bytes, size, end) : BAUTA_OK;
}

bauta_status bt_filter_hold(bt_stream *stream, size_t at, const char *bytes,
                            size_t size)
{
    bt_filter_state *state = stream->states + at;
    if (BT_ROOM(state->held, state->held_room, state->held_size, size))
        return bt_fail_memory(stream->err, "text that is held back", size);
    if (size)
        memcpy(state->held + state->held_size, bytes, size);
    state->held_size += size;
    return BAUTA_OK;
}

/* ---- A stream ------------------------------------------------------------ */

bauta_status bt_stream_create(bt_stream **out, const bt_decoding *decoding,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *out = NULL;
    bt_stream *stream = bt_alloc_zero(1, sizeof(*stream));
    if (!stream)
        return bt_fail_memory(err, "a decoder", sizeof(*stream));
    stream->decoding = decoding;
    stream->states = bt_alloc_zero(decoding->count, sizeof(*stream->states));
    if (!stream->states)
        status = bt_fail_memory(err, "a decoder",
                                decoding->count * sizeof(*stream->states));
    for (size_t i = 0; i < decoding->count && !status; i++)
        if (decoding->steps[i].pattern)
            status = bt_matcher_create(&stream->states[i].matcher,
                                       decoding->steps[i].pattern, err);
    if (status) {
        bt_stream_free(stream);
        return status;
    }
    *out = stream;
    return BAUTA_OK;
}

void bt_stream_free(bt_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; stream->states && i < stream->decoding->count; i++) {
        bt_free(stream->states[i].held);
        bt_matcher_free(stream->states[i].matcher);
    }
    bt_free(stream->states);
    bt_free(stream->text);
    bt_free(stream);
}

/* Drop the text that was taken. */
static void drop_taken(bt_stream *stream)
{
    if (stream->taken)
        stream->size = 0;
    stream->taken = false;
}

bauta_status bt_stream_push(bt_stream *stream, const char *piece, size_t size,
                            bauta_error *err)
{
    drop_taken(stream);
    stream->err = err;
    return feed(stream, 0, piece, size, true);
}

bauta_status bt_stream_finish(bt_stream *stream, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    drop_taken(stream);
    stream->err = err;
    for (size_t i = 0; i < stream->decoding->count && !status; i++) {
        bt_filter_finish_fn *finish =
            kinds[stream->decoding->steps[i].kind].finish;
        if (finish)
            status = finish(stream, i);
    }
    return status;
}

const char *bt_stream_take(bt_stream *stream, size_t *size)
{
    drop_taken(stream);
    stream->taken = true;
    *size = stream->size;
    return stream->size ? stream->text : "";
}

void bt_stream_reset(bt_stream *stream)
{
    stream->size = 0;
    stream->taken = false;
    for (size_t i = 0; i < stream->decoding->count; i++) {
        bt_filter_state *state = stream->states + i;
        *state = (bt_filter_state){ .held = state->held,
                                    .held_room = state->held_room,
                                    .matcher = state->matcher };
    }
}
