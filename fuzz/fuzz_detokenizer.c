/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_detokenizer.c - any JSON as a decoder and as a template, any bytes as
 * pieces.
 *
 * The first line is JSON; each further one is a piece. Either the JSON is
 * refused with a message that names the file, or the pieces decode to the same
 * text at once and as a stream, which is UTF-8 if the pieces are. */
#include "base/utf8.h"
#include "text/detokenize/detokenizer.h"
#include "text/post_processor.h"

#include <stdlib.h>
#include <string.h>

static const char path[] = "tokenizer.json";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool fine)
{
    if (!fine)
        abort();
}

static void refused(bauta_status status, const bauta_error *err)
{
    must(status == err->status && strstr(err->message, path));
    must(status == BAUTA_ERR_FORMAT || status == BAUTA_ERR_UNSUPPORTED);
}

typedef struct text {
    char *bytes;
    size_t size;
} text;

static void take(bt_detokenizer_stream *stream, text *t)
{
    size_t size;
    const char *more = bt_detokenizer_stream_take(stream, &size);
    must(more[size] == '\0');
    t->bytes = realloc(t->bytes, t->size + size + 1);
    must(t->bytes != NULL);
    memcpy(t->bytes + t->size, more, size);
    t->size += size;
}

/* False when a pattern took too long. */
static bool decode(bt_detokenizer_stream *stream, const char *pieces,
                   size_t size, bool often, text *t)
{
    bauta_error err;
    bt_detokenizer_stream_reset(stream);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(pieces + at, '\n', size - at);
        size_t length = end ? (size_t)(end - pieces) - at : size - at;
        if (bt_detokenizer_stream_push(stream, pieces + at, length, &err))
            return false;
        if (often)
            take(stream, t);
        at += length + 1;
    }
    if (bt_detokenizer_stream_finish(stream, &err))
        return false;
    take(stream, t);
    return true;
}

static void decoder_try(const json_t *json, const char *pieces, size_t size)
{
    bt_detokenizer_chain *decoding;
    bt_detokenizer_stream *stream;
    bauta_error err;
    bauta_status status =
        bt_detokenizer_chain_parse(&decoding, json, path, &err);
    if (status) {
        refused(status, &err);
        return;
    }
    must(!bt_detokenizer_stream_create(&stream, decoding, &err));
    text once = { NULL, 0 }, streamed = { NULL, 0 };
    bool done = decode(stream, pieces, size, true, &streamed);
    must(done == decode(stream, pieces, size, false, &once));
    if (done) {
        must(once.size == streamed.size);
        must(!memcmp(once.bytes, streamed.bytes, once.size));
        must(bt_utf8_valid_prefix(pieces, size) < size ||
             bt_utf8_valid_prefix(once.bytes, once.size) == once.size);
    }
    free(once.bytes);
    free(streamed.bytes);
    bt_detokenizer_stream_free(stream);
    bt_detokenizer_chain_free(decoding);
}

static void template_try(const json_t *json)
{
    bt_template single, pair;
    bauta_error err;
    bauta_status status =
        bt_template_parse(&single, &pair, json, 1000, path, &err);
    if (status)
        refused(status, &err);
    for (size_t i = 0; i < single.count; i++)
        must(single.items[i].id < 1000 || single.items[i].id == BT_TEMPLATE_A);
    for (size_t i = 0; i < pair.count; i++)
        must(pair.items[i].id < 1000 || pair.items[i].id >= BT_TEMPLATE_B);
    bt_template_release(&single);
    bt_template_release(&pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *line = (const char *)bytes;
    const char *end = size ? memchr(line, '\n', size) : NULL;
    size_t length = end ? (size_t)(end - line) : size;
    json_t *json = json_loadb(
        line, length, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES,
        NULL);
    if (!json)
        return 0;
    template_try(json);
    if (size - length < 1024)
        decoder_try(json, line + length + (end != NULL),
                    size - length - (end != NULL));
    json_decref(json);
    return 0;
}
