/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_checks.h - invariants of any tokenizer and any text, for fuzz
 * targets: offsets are in order and within the text, ids are tokens, and
 * decoding token by token gives the text of decoding at once. */
#ifndef BT_FUZZ_TOKENIZER_CHECKS_H
#define BT_FUZZ_TOKENIZER_CHECKS_H

#include "checks.h"

#include <string.h>

static inline void offsets_hold(const bauta_tokens *tokens, size_t size)
{
    for (size_t i = 0; i < tokens->count; i++)
        must(tokens->starts[i] <= tokens->ends[i] && tokens->ends[i] <= size);
}

/* The text of the tokens, for bauta_text_free(). */
static inline char *decoding_holds(const bauta_tokenizer *tokenizer,
                                   const bauta_tokens *tokens, size_t *size)
{
    char *whole;
    const char *part;
    size_t length, at = 0;
    bauta_detokenizer *decoder;
    must(!bauta_tokenizer_decode(tokenizer, tokens->ids, tokens->count, NULL,
                                 &whole, size, NULL));
    must(!bauta_detokenizer_create(&decoder, tokenizer, NULL, NULL));
    for (size_t i = 0; i <= tokens->count; i++) {
        must(!(i < tokens->count
                   ? bauta_detokenizer_push(decoder, tokens->ids[i], &part,
                                            &length, NULL)
                   : bauta_detokenizer_finish(decoder, &part, &length, NULL)));
        must(length <= *size - at && !memcmp(whole + at, part, length));
        at += length;
    }
    must(at == *size);
    bauta_detokenizer_free(decoder);
    return whole;
}

/* Encode and decode; a text may be refused, but not accepted in part. `target`:
 * the vocabulary of targets, which is the one that is decoded; if sources have
 * another one, pieces are theirs. */
static inline void text_holds(const bauta_tokenizer *tokenizer,
                              const char *text, size_t size, bool target)
{
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    size_t length;
    how.target = target;
    if (bauta_tokenizer_encode(tokenizer, text, size, &how, &tokens, &err)) {
        must(err.message[0] && !tokens.count && !tokens.ids);
        return;
    }
    offsets_hold(&tokens, size);
    for (size_t i = 0; !target && i < tokens.count; i++)
        must(bauta_tokenizer_piece(tokenizer, tokens.ids[i], NULL) != NULL);
    bauta_text_free(decoding_holds(tokenizer, &tokens, &length));
    bauta_tokens_release(&tokens);
}

#endif
