/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_steps.c - the steps of a detokenizer that join, strip and replace
 * tokens. */
#include "base/error.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/detokenize/detokenizer_step.h"

#include <string.h>

bauta_status bt_detokenize_join(bt_detokenizer_stream *stream, size_t at,
                                const char *bytes, size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (state->later && !state->inside)
        status = bt_detokenizer_emit(stream, at, " ", 1, false);
    state->inside = !end;
    state->later = true;
    return status ? status : bt_detokenizer_emit(stream, at, bytes, size, end);
}

bauta_status bt_detokenize_fuse(bt_detokenizer_stream *stream, size_t at,
                                const char *bytes, size_t size, bool end)
{
    (void)end;
    return bt_detokenizer_emit(stream, at, bytes, size, false);
}

bauta_status bt_detokenize_fuse_finish(bt_detokenizer_stream *stream, size_t at)
{
    return bt_detokenizer_emit(stream, at, "", 0, true);
}

/* SentencePiece adds a space before the text as U+2581. If it also removes
 * extra spaces, all leading pieces that are only U+2581 are removed too. This
 * is the first step, which gets each piece in one chunk. */
bauta_status bt_detokenize_dummy_prefix(bt_detokenizer_stream *stream,
                                        size_t at, const char *bytes,
                                        size_t size, bool end)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bt_detokenizer_step_state *state = stream->states + at;
    size_t n = step->needle_size;
    if (!state->later && size >= n && memcmp(bytes, step->needle, n) == 0) {
        bytes += n;
        size -= n;
        state->later = !step->all_leading;
    }
    state->later |= size > 0;
    return bt_detokenizer_emit(stream, at, bytes, size, end);
}

/* ---- Strip --------------------------------------------------------------- */

/* How many of the step's characters are at the start (or at the end) of a
 * chunk, up to `most`. */
static size_t run_length(const bt_detokenizer_step *step, const char *bytes,
                         size_t size, bool back, size_t most)
{
    size_t n = step->needle_size, run = 0;
    for (; run < most && size >= n; run++, size -= n) {
        if (memcmp(back ? bytes + size - n : bytes, step->needle, n) != 0)
            break;
        bytes += back ? 0 : n;
    }
    return run;
}

/* Emit `count` characters that are not at the end of the token. */
static bauta_status strip_release(bt_detokenizer_stream *stream, size_t at,
                                  size_t count)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = bt_detokenizer_emit(stream, at, step->needle,
                                     step->needle_size, false);
    stream->states[at].matched -= count;
    return status;
}

/* Hold back the last `stop` characters, which may have to be removed. */
static bauta_status strip_back(bt_detokenizer_stream *stream, size_t at,
                               const char *bytes, size_t size)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bt_detokenizer_step_state *state = stream->states + at;
    size_t run = run_length(step, bytes, size, true, step->stop);
    size_t plain = size - run * step->needle_size;
    size_t free = plain ? state->matched
                  : run > step->stop - state->matched
                      ? run - (step->stop - state->matched)
                      : 0;
    bauta_status status = strip_release(stream, at, free);
    state->matched += run;
    return status ? status
                  : bt_detokenizer_emit(stream, at, bytes, plain, false);
}

bauta_status bt_detokenize_strip(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size, bool end)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (!state->inside) {
        size_t run =
            run_length(step, bytes, size, false, step->start - state->stripped);
        state->stripped += run;
        bytes += run * step->needle_size;
        size -= run * step->needle_size;
        state->inside = size > 0;
    }
    if (size)
        status = strip_back(stream, at, bytes, size);
    if (!end || status)
        return status;
    state->inside = false;
    state->stripped = state->matched = 0;
    return bt_detokenizer_emit(stream, at, "", 0, true);
}

/* ---- Regular expressions ------------------------------------------------- */

/* The next match; SIZE_MAX if there is none. */
static bauta_status whole_find(bt_detokenizer_stream *stream, size_t at,
                               const char *text, size_t size, size_t from,
                               size_t *lo, size_t *hi)
{
    bt_detokenizer_step_state *state = stream->states + at;
    if (state->matcher)
        return bt_regex_matcher_find(state->matcher, text, size, from, lo, hi,
                                     stream->err);
    *lo = *hi = from; // the empty string
    return BAUTA_OK;
}

/* An empty match at the end of the previous one is skipped. */
static bauta_status whole_replace(bt_detokenizer_stream *stream, size_t at,
                                  const char *text, size_t size)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    size_t plain = 0, from = 0, last = SIZE_MAX, lo, hi;
    bauta_status status = BAUTA_OK;
    while (from <= size && !status) {
        status = whole_find(stream, at, text, size, from, &lo, &hi);
        if (status || lo == SIZE_MAX)
            break;
        if (lo == hi && hi == last) {
            from += from < size ? bt_utf8_length((unsigned char)text[from]) : 1;
            continue;
        }
        status =
            bt_detokenizer_emit(stream, at, text + plain, lo - plain, false);
        if (!status)
            status = bt_detokenizer_emit(stream, at, step->content,
                                         step->content_size, false);
        plain = from = last = hi;
    }
    if (status)
        return status;
    return bt_detokenizer_emit(stream, at, text + plain, size - plain, true);
}

bauta_status bt_detokenize_regex(bt_detokenizer_stream *stream, size_t at,
                                 const char *bytes, size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (!end || state->held_size) {
        status = bt_detokenizer_hold(stream, at, bytes, size);
        if (!end || status)
            return status;
        bytes = state->held;
        size = state->held_size;
    }
    // Regular expressions need well-formed text.
    if ((size || stream->chain->steps[at].match_empty) &&
        bt_utf8_valid_prefix(bytes, size) == size)
        status = whole_replace(stream, at, bytes, size);
    else
        status = bt_detokenizer_emit(stream, at, bytes, size, true);
    state->held_size = 0;
    return status;
}

/* ---- Suffixes ------------------------------------------------------------ */

/* Emit the text that was held back; marks become `space` spaces. */
static bauta_status last_release(bt_detokenizer_stream *stream, size_t at,
                                 size_t space)
{
    bt_detokenizer_step_state *state = stream->states + at;
    size_t from = 0, size = state->held_size;
    bauta_status status = BAUTA_OK;
    if (!state->later)
        return BAUTA_OK;
    while (!status && from < size) {
        const char *bytes = state->held + from;
        const char *mark = memchr(bytes, BT_DETOKENIZE_MARK[0], size - from);
        size_t plain = mark ? (size_t)(mark - bytes) : size - from;
        status = bt_detokenizer_emit(stream, at, bytes, plain, false);
        if (!status && mark)
            status = bt_detokenizer_emit(stream, at, " ", space, false);
        from += plain + (mark != NULL);
    }
    state->held_size = 0;
    state->later = false;
    return status ? status : bt_detokenizer_emit(stream, at, "", 0, true);
}

/* Hold a token back from its first mark on, and its end; `later` says that a
 * token is held. */
bauta_status bt_detokenize_suffix(bt_detokenizer_stream *stream, size_t at,
                                  const char *bytes, size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (!state->inside)
        status = last_release(stream, at, 1);
    if (status)
        return status;
    const char *mark = state->held_size ? bytes
                       : size ? memchr(bytes, BT_DETOKENIZE_MARK[0], size)
                              : NULL;
    size_t plain = mark ? (size_t)(mark - bytes) : size;
    state->inside = !end;
    state->later = end;
    status = bt_detokenizer_emit(stream, at, bytes, plain, false);
    if (!status)
        status = bt_detokenizer_hold(stream, at, bytes + plain, size - plain);
    return status;
}

bauta_status bt_detokenize_suffix_finish(bt_detokenizer_stream *stream,
                                         size_t at)
{
    return last_release(stream, at, 0);
}

/* ---- Literals ------------------------------------------------------------ */

/* The search of Knuth, Morris and Pratt in one chunk: of a partial match only
 * the length is kept, since its bytes are those of the needle. The candidate is
 * the last `matched` bytes before `at`; `carried` of them are from earlier
 * chunks. */
typedef struct literal_search {
    const char *bytes;
    size_t size, at, matched, carried;
} literal_search;

/* The start of the candidate in the chunk. */
static size_t candidate(const literal_search *s)
{
    return s->at - (s->matched - s->carried);
}

/* Search until the needle is found, which returns true, or the chunk ends.
 * *freed is how many carried bytes of the needle turned out to be no match. */
static bool search_run(literal_search *s, const bt_detokenizer_step *step,
                       size_t *freed)
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

bauta_status bt_detokenize_literal(bt_detokenizer_stream *stream, size_t at,
                                   const char *bytes, size_t size, bool end)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bt_detokenizer_step_state *state = stream->states + at;
    literal_search s = { bytes, size, 0, state->matched, state->matched };
    size_t content = step->not_first && !state->later ? 0 : step->content_size;
    size_t plain = 0, freed;
    bauta_status status = BAUTA_OK;
    for (bool found = true; found && !status;) {
        found = search_run(&s, step, &freed);
        // Carried and freed bytes are the start of the needle; they come
        // before the chunk.
        if (end && !found)
            freed += s.carried;
        status = bt_detokenizer_emit(stream, at, step->needle, freed, false);
        if (status || !found)
            break;
        status = bt_detokenizer_emit(stream, at, bytes + plain,
                                     candidate(&s) - plain, false);
        if (!status)
            status =
                bt_detokenizer_emit(stream, at, step->content, content, false);
        plain = s.at;
        s.matched = s.carried = 0;
    }
    state->matched = end ? 0 : s.matched;
    state->later |= end;
    if (status)
        return status;
    return bt_detokenizer_emit(stream, at, bytes + plain,
                               (end ? size : candidate(&s)) - plain, end);
}

bauta_status bt_detokenize_prefix(bt_detokenizer_stream *stream, size_t at,
                                  const char *bytes, size_t size, bool end)
{
    const bt_detokenizer_step *step = stream->chain->steps + at;
    bt_detokenizer_step_state *state = stream->states + at;
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
            status = bt_detokenizer_emit(stream, at, " ", 1, false);
            if (!status)
                status = bt_detokenizer_emit(stream, at, step->needle, carried,
                                             false);
        }
    }
    if (end) {
        state->later = true;
        state->inside = false;
        state->matched = 0;
    }
    return status ? status
                  : bt_detokenizer_emit(stream, at, bytes + i, size - i, end);
}
