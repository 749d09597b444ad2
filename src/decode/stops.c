/* SPDX-License-Identifier: Apache-2.0 */
/* stop_matcher.c - see stop_matcher.h. */
#include "decode/stops.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

static size_t find(const char *text, size_t length, const char *what,
                   size_t from)
{
    size_t size = strlen(what);
    for (size_t at = from; at + size <= length; at++)
        if (!memcmp(text + at, what, size))
            return at;
    return SIZE_MAX;
}

size_t bt_stops_find(const bt_stops *stops, const char *text, size_t length,
                     size_t from)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < stops->count; i++)
        first = bt_size_min(first, find(text, length, stops->texts[i], from));
    return first;
}

size_t bt_stops_hold(const bt_stops *stops, const char *text, size_t length)
{
    size_t most = 0;
    for (size_t i = 0; i < stops->count; i++) {
        const char *stop = stops->texts[i];
        size_t n = bt_size_min(strlen(stop) - 1, length);
        while (n > most && memcmp(text + length - n, stop, n) != 0)
            n--;
        most = bt_size_max(most, n);
    }
    return most;
}

bauta_status bt_speech_init(bt_speech *matcher,
                            const bauta_tokenizer *tokenizer,
                            const bt_stops *stops, bauta_error *err)
{
    *matcher = (bt_speech){ .tokenizer = tokenizer, .stops = *stops };
    return bauta_decoder_create(&matcher->decoder, tokenizer, NULL, err);
}

void bt_speech_release(bt_speech *matcher)
{
    bauta_decoder_free(matcher->decoder);
    bt_free(matcher->text);
    *matcher = (bt_speech){ 0 };
}

bauta_status bt_speech_follow(bt_speech *s, const bauta_tokenizer *tokenizer,
                              const uint32_t *before, size_t count,
                              bauta_error *err)
{
    enum { NEAR = 16 }; // more than the tokens of any character
    bauta_status status = BAUTA_OK;
    const char *text;
    size_t length;
    for (size_t i = count > NEAR ? count - NEAR : 0; i < count && !status; i++)
        if (bauta_tokenizer_piece(tokenizer, before[i], NULL))
            status =
                bauta_decoder_push(s->decoder, before[i], &text, &length, err);
    return status;
}

/* Append the pending piece and update the stable length. A new stop string ends
 * in the piece, so it does not begin before the text that was held back. */
static bauta_status append_pending(bt_speech *s, bauta_error *err)
{
    size_t more = s->piece_length;
    if (BT_ROOM(s->text, s->room, s->length, bt_size_add(more, 1)))
        return bt_fail_memory(err, "text", more);
    memcpy(s->text + s->length, s->piece, more);
    s->length += more;
    s->text[s->length] = '\0';
    s->piece = NULL;
    size_t stop = bt_stops_find(&s->stops, s->text, s->length, s->certain);
    if (stop == SIZE_MAX) {
        s->certain = s->length - bt_stops_hold(&s->stops, s->text, s->length);
        return BAUTA_OK;
    }
    s->stopped = true;
    s->length = s->certain = stop;
    s->text[stop] = '\0';
    return BAUTA_OK;
}

bauta_status bt_speech_push(bt_speech *s, uint32_t token, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!s->piece && !bauta_tokenizer_piece(s->tokenizer, token, NULL))
        return BAUTA_OK;
    if (!s->piece)
        status = bauta_decoder_push(s->decoder, token, &s->piece,
                                    &s->piece_length, err);
    if (status)
        s->piece = NULL;
    return status ? status : append_pending(s, err);
}

bauta_status bt_speech_finish(bt_speech *s, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!s->stopped) {
        if (!s->piece)
            status = bauta_decoder_finish(s->decoder, &s->piece,
                                          &s->piece_length, err);
        if (status)
            s->piece = NULL;
        else
            status = append_pending(s, err);
    }
    if (!status)
        s->certain = s->length;
    return status;
}
