/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer_bytes.c - the steps for tokens that represent bytes, which need
 * not be whole characters. */
#include "base/array.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/detokenize/detokenizer_step.h"
#include "text/subword/bytelevel.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ---- ByteLevel ----------------------------------------------------------- */

/* The length of the maximal subpart (Unicode) at the start of `size` > 0 bytes:
 * the beginning of a character, or 1 byte. It becomes one U+FFFD. */
static size_t maximal_subpart(const char *bytes, size_t size)
{
    for (size_t n = size < 3 ? size : 3; n > 1; n--)
        if (bt_utf8_incomplete_suffix(bytes, n) == n)
            return n;
    return 1;
}

/* Emit the bytes that are held, except for an incomplete character at the
 * end. */
static bauta_status emit_held(bt_detokenizer_stream *stream, size_t at,
                              bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    size_t from = 0, size = state->held_size;
    bauta_status status = BAUTA_OK;
    while (from < size && !status) {
        const char *bytes = state->held + from;
        size_t left = size - from, valid = bt_utf8_valid_prefix(bytes, left);
        status = bt_detokenizer_emit(stream, at, bytes, valid, false);
        from += valid;
        left -= valid;
        if (status || !left ||
            (!end && bt_utf8_incomplete_suffix(bytes + valid, left) == left))
            break;
        status = bt_detokenizer_emit(stream, at, replacement, 3, false);
        from += maximal_subpart(bytes + valid, left);
    }
    memmove(state->held, state->held + from, size - from);
    state->held_size = size - from;
    return status;
}

/* Decode the token that is held, after `matched` bytes of an incomplete
 * character. A token with a character that is not in the alphabet is not
 * changed. */
static bauta_status decode_token(bt_detokenizer_stream *stream, size_t at)
{
    bt_detokenizer_step_state *state = stream->states + at;
    size_t size = state->held_size - state->matched, decoded;
    if (BT_ARRAY_RESERVE(state->held, state->held_room, state->held_size, size))
        return bt_fail_memory(stream->err, "text that is held back", size);
    char *token = state->held + state->matched;
    if (bt_bytelevel_decode(token + size, &decoded, token, size)) {
        memmove(token, token + size, decoded);
        state->held_size = state->matched + decoded;
    }
    return BAUTA_OK;
}

bauta_status bt_detokenize_bytelevel(bt_detokenizer_stream *stream, size_t at,
                                     const char *bytes, size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = bt_detokenizer_hold(stream, at, bytes, size);
    if (status || !end || state->held_size == state->matched)
        return status;
    status = decode_token(stream, at);
    if (!status)
        status = emit_held(stream, at, false);
    state->matched = state->held_size;
    return status;
}

bauta_status bt_detokenize_bytelevel_finish(bt_detokenizer_stream *stream,
                                            size_t at)
{
    bauta_status status =
        stream->states[at].held_size ? emit_held(stream, at, true) : BAUTA_OK;
    return status ? status : bt_detokenizer_emit(stream, at, "", 0, true);
}

/* ---- Byte fallback ------------------------------------------------------- */

enum { BYTE_SIZE = 6 }; /* of "<0xXX>" */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f'   ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Whether this is a byte piece, or the start of one. As in Rust, the number may
 * have a plus sign. */
static bool byte_read(const char *piece, size_t size, unsigned *byte)
{
    *byte = 0;
    for (size_t i = 0; i < size; i++) {
        bool sign = i == 3 && piece[i] == '+';
        if (i < 3 || i == 5) {
            if (piece[i] != "<0x  >"[i])
                return false;
        } else if (digit(piece[i]) < 0 && !sign) {
            return false;
        } else {
            *byte = *byte * 16 + (sign ? 0 : (unsigned)digit(piece[i]));
        }
    }
    return true;
}

/* Adjacent bytes become characters, and all of them one token; a byte that is
 * not part of a character becomes U+FFFD. The bytes of an incomplete character
 * are held; `later` says that such a token is open. */
static bauta_status add_byte(bt_detokenizer_stream *stream, size_t at,
                             char byte)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = bt_detokenizer_hold(stream, at, &byte, 1);
    state->later = true;
    while (!status && state->held_size) {
        size_t length, size = state->held_size;
        bool whole = bt_utf8_valid_prefix(state->held, size) == size;
        if (!whole && bt_utf8_incomplete_suffix(state->held, size) == size)
            break;
        bt_utf8_decode(state->held, size, &length);
        status =
            whole ? bt_detokenizer_emit(stream, at, state->held, length, false)
                  : bt_detokenizer_emit(stream, at, replacement, 3, false);
        memmove(state->held, state->held + length, size - length);
        state->held_size -= length;
    }
    return status;
}

bauta_status bt_detokenize_byte_fallback_finish(bt_detokenizer_stream *stream,
                                                size_t at)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (!state->later)
        return BAUTA_OK;
    for (size_t i = 0; i < state->held_size && !status; i++)
        status = bt_detokenizer_emit(stream, at, replacement, 3, false);
    state->held_size = 0;
    state->later = false;
    return status ? status : bt_detokenizer_emit(stream, at, "", 0, true);
}

/* Any other token; its first `matched` bytes are in `piece`. */
static bauta_status pass_token(bt_detokenizer_stream *stream, size_t at,
                               const char *bytes, size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    bauta_status status = BAUTA_OK;
    if (!state->inside) {
        status = bt_detokenize_byte_fallback_finish(stream, at);
        if (!status)
            status = bt_detokenizer_emit(stream, at, state->piece,
                                         state->matched, false);
    }
    state->matched = 0;
    state->inside = !end;
    return status ? status : bt_detokenizer_emit(stream, at, bytes, size, end);
}

bauta_status bt_detokenize_byte_fallback(bt_detokenizer_stream *stream,
                                         size_t at, const char *bytes,
                                         size_t size, bool end)
{
    bt_detokenizer_step_state *state = stream->states + at;
    size_t all = state->matched + size;
    unsigned byte;
    if (state->inside || all > BYTE_SIZE || all < size ||
        (end && all < BYTE_SIZE))
        return pass_token(stream, at, bytes, size, end);
    if (size)
        memcpy(state->piece + state->matched, bytes, size);
    if (!byte_read(state->piece, all, &byte))
        return pass_token(stream, at, bytes, size, end);
    state->matched = end ? 0 : all;
    return end ? add_byte(stream, at, (char)byte) : BAUTA_OK;
}
