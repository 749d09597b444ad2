/* SPDX-License-Identifier: Apache-2.0 */
/* unknown.c - which characters of a text the vocabulary lacks. */
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <string.h>

/* Bytes [from, to) are unknown. */
static void unknown_add(bauta_unknown *u, const char *text, size_t from,
                        size_t to)
{
    for (size_t at = from, size; at < to; at += size, u->count++) {
        bt_utf8_get(text + at, to - at, &size);
        if (u->count == 0) {
            u->start = at;
            u->end = at + size;
        }
    }
}

/* GPT-2 calls <|endoftext|> its unknown token, and a text may hold it. */
static bool is_itself(const bauta_tokenizer *t, uint32_t id, const char *text,
                      size_t size)
{
    size_t length = 0;
    const char *piece = bt_vocab_piece(t->vocab, id, &length);
    return piece && length == size && memcmp(piece, text, size) == 0;
}

bauta_unknown bauta_tokens_unknown(const bauta_tokenizer *t,
                                   const bauta_tokens *tokens, const char *text,
                                   size_t length)
{
    bauta_unknown found = { 0, 0, 0 };
    uint32_t unknown = t->names[BAUTA_TOKEN_UNK];
    bool gaps = unknown == BT_NO_ID && !t->normalizer &&
                (!t->pretokenizer || t->bytelevel);
    size_t done = 0; // bytes of the text, when gaps are looked for
    for (size_t i = 0; i < tokens->count; i++) {
        size_t from = tokens->starts[i], to = tokens->ends[i];
        if (gaps && from > done)
            unknown_add(&found, text, done, from);
        if (tokens->ids[i] == unknown &&
            !is_itself(t, unknown, text + from, to - from))
            unknown_add(&found, text, from, to);
        done = to > done ? to : done;
    }
    if (gaps && length > done)
        unknown_add(&found, text, done, length);
    return found;
}
