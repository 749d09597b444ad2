/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_stream.c - running the steps: pieces enter the first step, text
 * leaves the last. */
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "text/detokenize/detokenizer_step.h"

#include <string.h>

static const struct {
    bt_detokenizer_feed_fn *feed;
    bt_detokenizer_finish_fn *finish; /* NULL: nothing to do */
} kinds[BT_DETOKENIZE_KINDS] = {
    [BT_DETOKENIZE_JOIN] = { bt_detokenize_join, NULL },
    [BT_DETOKENIZE_LITERAL] = { bt_detokenize_literal, NULL },
    [BT_DETOKENIZE_PREFIX] = { bt_detokenize_prefix, NULL },
    [BT_DETOKENIZE_STRIP] = { bt_detokenize_strip, NULL },
    [BT_DETOKENIZE_FUSE] = { bt_detokenize_fuse, bt_detokenize_fuse_finish },
    [BT_DETOKENIZE_SUFFIX] = { bt_detokenize_suffix,
                               bt_detokenize_suffix_finish },
    [BT_DETOKENIZE_REGEX] = { bt_detokenize_regex, NULL },
    [BT_DETOKENIZE_BYTELEVEL] = { bt_detokenize_bytelevel,
                                  bt_detokenize_bytelevel_finish },
    [BT_DETOKENIZE_BYTE_FALLBACK] = { bt_detokenize_byte_fallback,
                                      bt_detokenize_byte_fallback_finish },
    [BT_DETOKENIZE_DUMMY_PREFIX] = { bt_detokenize_dummy_prefix, NULL },
};

/* ---- The chain ----------------------------------------------------------- */

static bauta_status append_text(bt_detokenizer_stream *stream,
                                const char *bytes, size_t size)
{
    if (BT_ARRAY_RESERVE(stream->text, stream->room, stream->size, size + 1))
        return bt_fail_memory(stream->err, "decoded text", size);
    if (size)
        memcpy(stream->text + stream->size, bytes, size);
    stream->size += size;
    stream->text[stream->size] = '\0';
    return BAUTA_OK;
}

static bauta_status feed(bt_detokenizer_stream *stream, size_t at,
                         const char *bytes, size_t size, bool end)
{
    if (at == stream->chain->count)
        return append_text(stream, bytes, size);
    return kinds[stream->chain->steps[at].kind].feed(stream, at, bytes, size,
                                                     end);
}

bauta_status bt_detokenizer_emit(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size, bool end)
{
    return size || end ? feed(stream, at + 1, bytes, size, end) : BAUTA_OK;
}

bauta_status bt_detokenizer_hold(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size)
{
    bt_detokenizer_step_state *state = stream->states + at;
    if (BT_ARRAY_RESERVE(state->held, state->held_room, state->held_size, size))
        return bt_fail_memory(stream->err, "text that is held back", size);
    if (size)
        memcpy(state->held + state->held_size, bytes, size);
    state->held_size += size;
    return BAUTA_OK;
}

/* ---- A stream ------------------------------------------------------------ */

bauta_status bt_detokenizer_stream_create(bt_detokenizer_stream **out,
                                          const bt_detokenizer_chain *decoding,
                                          bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *out = NULL;
    bt_detokenizer_stream *stream = bt_alloc_zero(1, sizeof(*stream));
    if (!stream)
        return bt_fail_memory(err, "a decoder", sizeof(*stream));
    stream->chain = decoding;
    stream->states = bt_alloc_zero(decoding->count, sizeof(*stream->states));
    if (!stream->states)
        status = bt_fail_memory(err, "a decoder",
                                decoding->count * sizeof(*stream->states));
    for (size_t i = 0; i < decoding->count && !status; i++)
        if (decoding->steps[i].regex)
            status = bt_regex_matcher_create(&stream->states[i].matcher,
                                             decoding->steps[i].regex, err);
    if (status) {
        bt_detokenizer_stream_free(stream);
        return status;
    }
    *out = stream;
    return BAUTA_OK;
}

void bt_detokenizer_stream_free(bt_detokenizer_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; stream->states && i < stream->chain->count; i++) {
        bt_free(stream->states[i].held);
        bt_regex_matcher_free(stream->states[i].matcher);
    }
    bt_free(stream->states);
    bt_free(stream->text);
    bt_free(stream);
}

/* Drop the text that was taken. */
static void drop_taken(bt_detokenizer_stream *stream)
{
    if (stream->taken)
        stream->size = 0;
    stream->taken = false;
}

bauta_status bt_detokenizer_stream_push(bt_detokenizer_stream *stream,
                                        const char *piece, size_t size,
                                        bauta_error *err)
{
    drop_taken(stream);
    stream->err = err;
    return feed(stream, 0, piece, size, true);
}

bauta_status bt_detokenizer_stream_finish(bt_detokenizer_stream *stream,
                                          bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    drop_taken(stream);
    stream->err = err;
    for (size_t i = 0; i < stream->chain->count && !status; i++) {
        bt_detokenizer_finish_fn *finish =
            kinds[stream->chain->steps[i].kind].finish;
        if (finish)
            status = finish(stream, i);
    }
    return status;
}

const char *bt_detokenizer_stream_take(bt_detokenizer_stream *stream,
                                       size_t *size)
{
    drop_taken(stream);
    stream->taken = true;
    *size = stream->size;
    return stream->size ? stream->text : "";
}

void bt_detokenizer_stream_reset(bt_detokenizer_stream *stream)
{
    stream->size = 0;
    stream->taken = false;
    for (size_t i = 0; i < stream->chain->count; i++) {
        bt_detokenizer_step_state *state = stream->states + i;
        *state = (bt_detokenizer_step_state){ .held = state->held,
                                              .held_room = state->held_room,
                                              .matcher = state->matcher };
    }
}
