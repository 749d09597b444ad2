/* SPDX-License-Identifier: Apache-2.0 */
/* stop_matcher.c - see stop_matcher.h. */
#include "decode/stop_matcher.h"

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

size_t bt_stop_strings_find(const bt_stop_strings *stops, const char *text,
                            size_t length, size_t from)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < stops->count; i++)
        first = bt_size_min(first, find(text, length, stops->texts[i], from));
    return first;
}

size_t bt_stop_strings_partial(const bt_stop_strings *stops, const char *text,
                               size_t length)
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

bauta_status bt_stop_matcher_init(bt_stop_matcher *matcher,
                                  const bauta_tokenizer *tokenizer,
                                  const bt_stop_strings *stops,
                                  bauta_error *err)
{
    *matcher = (bt_stop_matcher){ .tokenizer = tokenizer, .stops = *stops };
    return bauta_detokenizer_create(&matcher->detokenizer, tokenizer, NULL,
                                    err);
}

void bt_stop_matcher_release(bt_stop_matcher *matcher)
{
    bauta_detokenizer_free(matcher->detokenizer);
    bt_free(matcher->text);
    *matcher = (bt_stop_matcher){ 0 };
}

bauta_status bt_stop_matcher_prime(bt_stop_matcher *s,
                                   const bauta_tokenizer *tokenizer,
                                   const uint32_t *before, size_t count,
                                   bauta_error *err)
{
    enum { NEAR = 16 }; // more than the tokens of any character
    bauta_status status = BAUTA_OK;
    const char *text;
    size_t length;
    for (size_t i = count > NEAR ? count - NEAR : 0; i < count && !status; i++)
        if (bauta_tokenizer_piece(tokenizer, before[i], NULL))
            status = bauta_detokenizer_push(s->detokenizer, before[i], &text,
                                            &length, err);
    return status;
}

/* Append the pending piece and update the stable length. A new stop string ends
 * in the piece, so it does not begin before the text that was held back. */
static bauta_status append_pending(bt_stop_matcher *s, bauta_error *err)
{
    size_t more = s->pending_length;
    if (BT_ARRAY_RESERVE(s->text, s->capacity, s->length, bt_size_add(more, 1)))
        return bt_fail_memory(err, "text", more);
    memcpy(s->text + s->length, s->pending, more);
    s->length += more;
    s->text[s->length] = '\0';
    s->pending = NULL;
    size_t stop =
        bt_stop_strings_find(&s->stops, s->text, s->length, s->stable);
    if (stop == SIZE_MAX) {
        s->stable =
            s->length - bt_stop_strings_partial(&s->stops, s->text, s->length);
        return BAUTA_OK;
    }
    s->stopped = true;
    s->length = s->stable = stop;
    s->text[stop] = '\0';
    return BAUTA_OK;
}

bauta_status bt_stop_matcher_push(bt_stop_matcher *s, uint32_t token,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!s->pending && !bauta_tokenizer_piece(s->tokenizer, token, NULL))
        return BAUTA_OK;
    if (!s->pending)
        status = bauta_detokenizer_push(s->detokenizer, token, &s->pending,
                                        &s->pending_length, err);
    if (status)
        s->pending = NULL;
    return status ? status : append_pending(s, err);
}

bauta_status bt_stop_matcher_finish(bt_stop_matcher *s, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!s->stopped) {
        if (!s->pending)
            status = bauta_detokenizer_finish(s->detokenizer, &s->pending,
                                              &s->pending_length, err);
        if (status)
            s->pending = NULL;
        else
            status = append_pending(s, err);
    }
    if (!status)
        s->stable = s->length;
    return status;
}
