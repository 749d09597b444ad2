/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_literal.c - strings that are replaced while the text flows by.
 *
 * The search is Knuth, Morris and Pratt's: of what may yet become a match only
 * its length needs to be kept, since its bytes are the needle's. */
#include "base/size.h"
#include "text/decoder_filter.h"

#include <string.h>

/* One chunk being searched. The candidate is the last `matched` bytes before
 * `at`; `carried` of them came in earlier chunks. */
typedef struct search {
    const char *bytes;
    size_t size, at, matched, carried;
} search;

/* Where in the chunk the candidate begins. */
static size_t candidate(const search *s)
{
    return s->at - (s->matched - s->carried);
}

/* Go on until the needle has been found, which returns true, or the chunk
 * ends. *freed receives how much of the needle's beginning was carried and is
 * no part of a match. */
static bool search_run(search *s, const bt_filter *step, size_t *freed)
{
    *freed = 0;
    while (s->at < s->size) {
        if (s->matched == 0) {
            const char *hit =
                memchr(s->bytes + s->at, step->needle[0], s->size - s->at);
            s->at = hit ? (size_t)(hit - s->bytes) : s->size;
            if (!hit)
                return false;
        }
        if (s->bytes[s->at] == step->needle[s->matched]) {
            s->at++;
            if (++s->matched == step->needle_size)
                return true;
        } else {
            size_t border = step->borders[s->matched];
            size_t free = bt_size_min(s->carried, s->matched - border);
            s->carried -= free;
            *freed += free;
            s->matched = border;
        }
    }
    return false;
}

bauta_status bt_filter_literal(bt_stream *stream, size_t at, const char *bytes,
                               size_t size, bool end)
{
    const bt_filter *step = stream->decoding->steps + at;
    bt_filter_state *state = stream->states + at;
    search s = { bytes, size, 0, state->matched, state->matched };
    size_t content = step->not_first && !state->later ? 0 : step->content_size;
    size_t plain = 0, freed;
    bauta_status status = BAUTA_OK;
    for (bool found = true; found && !status;) {
        found = search_run(&s, step, &freed);
        // What was carried is the needle's beginning, and so is what is freed
        // of it. It lies before all of the chunk.
        if (end && !found)
            freed += s.carried;
        status = bt_filter_next(stream, at, step->needle, freed, false);
        if (status || !found)
            break;
        status = bt_filter_next(stream, at, bytes + plain,
                                candidate(&s) - plain, false);
        if (!status)
            status = bt_filter_next(stream, at, step->content, content, false);
        plain = s.at;
        s.matched = s.carried = 0;
    }
    state->matched = end ? 0 : s.matched;
    state->later |= end;
    if (status)
        return status;
    return bt_filter_next(stream, at, bytes + plain,
                          (end ? size : candidate(&s)) - plain, end);
}

bauta_status bt_filter_prefix(bt_stream *stream, size_t at, const char *bytes,
                              size_t size, bool end)
{
    const bt_filter *step = stream->decoding->steps + at;
    bt_filter_state *state = stream->states + at;
    size_t carried = state->matched, i = 0;
    bauta_status status = BAUTA_OK;
    if (state->later && !state->inside) {
        size_t k = carried;
        while (k < step->needle_size && i < size && bytes[i] == step->needle[k])
            k++, i++;
        state->matched = k;
        state->inside = k == step->needle_size || i < size || end;
        if (!state->inside)
            return BAUTA_OK;
        if (k < step->needle_size) {
            i = 0;
            status = bt_filter_next(stream, at, " ", 1, false);
            if (!status)
                status =
                    bt_filter_next(stream, at, step->needle, carried, false);
        }
    }
    if (end) {
        state->later = true;
        state->inside = false;
        state->matched = 0;
    }
    return status ? status
                  : bt_filter_next(stream, at, bytes + i, size - i, end);
}
