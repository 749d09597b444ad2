/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_sentencepiece.c - any bytes as a SentencePiece model.
 *
 * Either they are refused with a message that names the file, or texts can be
 * encoded with the model: every token is in the vocabulary and lies in the
 * text, tokens are in order, and they decode to the same well-formed text at
 * once and one by one. */
#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char path[] = "input.model";

static void must(bool fine)
{
    if (!fine)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void decode(const bauta_tokenizer *t, const bauta_tokens *tokens)
{
    bauta_error err;
    char *text;
    const char *part;
    size_t size, at = 0, length;
    bauta_detokenizer *decoder;
    must(!bauta_tokenizer_decode(t, tokens->ids, tokens->count, NULL, &text,
                                 &size, &err));
    must(bt_utf8_valid_prefix(text, size) == size);
    must(!bauta_detokenizer_create(&decoder, t, NULL, &err));
    for (size_t i = 0; i <= tokens->count; i++) {
        must(!(i < tokens->count
                   ? bauta_detokenizer_push(decoder, tokens->ids[i], &part,
                                            &length, &err)
                   : bauta_detokenizer_finish(decoder, &part, &length, &err)));
        must(length <= size - at && !memcmp(part, text + at, length));
        at += length;
    }
    must(at == size);
    bauta_detokenizer_free(decoder);
    bauta_text_free(text);
}

static void encode(const bauta_tokenizer *t, const char *text, size_t size)
{
    bauta_error err;
    bauta_tokens tokens;
    must(!bauta_tokenizer_encode(t, text, size, NULL, &tokens, &err));
    for (size_t i = 0; i < tokens.count; i++) {
        must(tokens.ids[i] < bauta_tokenizer_vocab_size(t));
        must(!bauta_tokenizer_is_special(t, tokens.ids[i]));
        must(tokens.starts[i] <= tokens.ends[i] && tokens.ends[i] <= size);
        must(i == 0 || tokens.starts[i] >= tokens.starts[i - 1]);
    }
    decode(t, &tokens);
    bauta_tokens_release(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char text[] = "the cat  [MASK] \xEF\xAC\x81 lowest\xFF \xE6"
                               "\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E ...... ";
    bauta_tokenizer *t;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status =
        bt_tokenizer_parse_sentencepiece(&t, bytes, size, path, &err);
    if (status) {
        must(!t && status == err.status);
        must(status == BAUTA_ERR_FORMAT || status == BAUTA_ERR_UNSUPPORTED);
        must(strstr(err.message, path) != NULL);
        return 0;
    }
    encode(t, text, sizeof(text) - 1);
    // The model itself is a text too, with its own pieces in it.
    encode(t, (const char *)bytes, size);
    bauta_tokenizer_free(t);
    return 0;
}
