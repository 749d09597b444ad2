/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer.c - from ids to text, at once and token by token. */
#include "base/memory.h"
#include "base/sized.h"
#include "text/tokenizer.h"

#include <string.h>

/* The default text of SentencePiece's unknown piece. */
static const char unknown_surface[] = " \xE2\x81\x87 ";

struct bauta_detokenizer {
    const bauta_tokenizer *tokenizer;
    bt_detokenizer_stream *stream;
    bool specials;
};

bauta_status bauta_detokenizer_create(bauta_detokenizer **out,
                                      const bauta_tokenizer *tokenizer,
                                      const bauta_decode_options *options,
                                      bauta_error *err)
{
    bauta_decode_options chosen;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(tokenizer, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_DECODE_OPTIONS_INIT,
                                        options, "options", err);
    if (status)
        return status;
    bauta_detokenizer *created = bt_alloc_zero(1, sizeof(*created));
    if (!created)
        return bt_fail_memory(err, "a decoder", sizeof(*created));
    bool target = tokenizer->target && !chosen.source;
    created->tokenizer = target ? tokenizer->target : tokenizer;
    created->specials = chosen.keep_special_tokens;
    status = bt_detokenizer_stream_create(&created->stream,
                                          created->tokenizer->detokenizer, err);
    if (status) {
        bauta_detokenizer_free(created);
        return status;
    }
    *out = created;
    return BAUTA_OK;
}

void bauta_detokenizer_free(bauta_detokenizer *decoder)
{
    if (!decoder)
        return;
    bt_detokenizer_stream_free(decoder->stream);
    bt_free(decoder);
}

static bauta_status push(bauta_detokenizer *decoder, uint32_t id,
                         bauta_error *err)
{
    const bauta_tokenizer *t = decoder->tokenizer;
    size_t size;
    const char *piece = bt_vocab_piece(t->vocab, id, &size);
    if (!piece)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "no token has the id %u; the vocabulary has %zu",
                       (unsigned)id, bt_vocab_size(t->vocab));
    if (bauta_tokenizer_is_special(t, id)) {
        if (!decoder->specials)
            return BAUTA_OK;
    } else if (t->sentencepiece && id == t->special_ids[BAUTA_TOKEN_UNK]) {
        piece = t->unknown_surface ? t->unknown_surface : unknown_surface;
        size = strlen(piece);
    }
    return bt_detokenizer_stream_push(decoder->stream, piece, size, err);
}

bauta_status bauta_detokenizer_push(bauta_detokenizer *decoder, uint32_t id,
                                    const char **text, size_t *length,
                                    bauta_error *err)
{
    BT_NEED(decoder, err);
    BT_NEED(text, err);
    BT_NEED(length, err);
    *text = "";
    *length = 0;
    bauta_status status = push(decoder, id, err);
    if (!status)
        *text = bt_detokenizer_stream_take(decoder->stream, length);
    return status;
}

bauta_status bauta_detokenizer_finish(bauta_detokenizer *decoder,
                                      const char **text, size_t *length,
                                      bauta_error *err)
{
    BT_NEED(decoder, err);
    BT_NEED(text, err);
    BT_NEED(length, err);
    *text = "";
    *length = 0;
    bauta_status status = bt_detokenizer_stream_finish(decoder->stream, err);
    if (!status)
        *text = bt_detokenizer_stream_take(decoder->stream, length);
    bt_detokenizer_stream_reset(decoder->stream);
    return status;
}

void bauta_text_free(char *text)
{
    bt_free(text);
}

static bauta_status decode(bauta_detokenizer *decoder, const uint32_t *ids,
                           size_t count, char **text, size_t *length,
                           bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = push(decoder, ids[i], err);
    if (!status)
        status = bt_detokenizer_stream_finish(decoder->stream, err);
    if (status)
        return status;
    const char *whole = bt_detokenizer_stream_take(decoder->stream, length);
    *text = bt_alloc(*length + 1);
    if (!*text)
        return bt_fail_memory(err, "a text", *length + 1);
    memcpy(*text, whole, *length);
    (*text)[*length] = '\0';
    return BAUTA_OK;
}

bauta_status bauta_tokenizer_decode(const bauta_tokenizer *tokenizer,
                                    const uint32_t *ids, size_t count,
                                    const bauta_decode_options *options,
                                    char **text, size_t *length,
                                    bauta_error *err)
{
    bauta_detokenizer *decoder = NULL;
    size_t unused;
    BT_NEED(text, err);
    *text = NULL;
    if (!length)
        length = &unused;
    *length = 0;
    BT_NEED(tokenizer, err);
    if (count)
        BT_NEED(ids, err);
    bauta_status status =
        bauta_detokenizer_create(&decoder, tokenizer, options, err);
    if (!status)
        status = decode(decoder, ids, count, text, length, err);
    bauta_detokenizer_free(decoder);
    return status;
}
