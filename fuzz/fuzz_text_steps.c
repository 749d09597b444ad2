/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_text_steps.c - any normalizer and pre-tokenizer on any text.
 *
 * The input is the JSON of a normalizer, of a pre-tokenizer, and a text,
 * separated by NUL. Either something is refused with a message, or the text
 * stays well formed, the splits are in order, and all offsets lie in the
 * text. */
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/normalize/normalizer.h"
#include "text/pretokenize/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool fine)
{
    if (!fine)
        abort();
}

/* The bytes up to a NUL or the end; *at then points after it. */
static json_t *json_next(const uint8_t *bytes, size_t size, size_t *at)
{
    const uint8_t *end = memchr(bytes + *at, 0, size - *at);
    size_t length = end ? (size_t)(end - bytes) - *at : size - *at;
    json_t *json =
        json_loadb((const char *)bytes + *at, length, JSON_DECODE_ANY, NULL);
    *at += length + (end != NULL);
    return json;
}

static void origins_check(const bt_aligned_text *text, size_t size)
{
    for (size_t i = 0; text->origins && i < text->size; i++)
        must(text->origins[i].from <= text->origins[i].to &&
             text->origins[i].to <= size);
}

static void splits_check(const bt_splits *s, size_t size)
{
    size_t last = 0;
    for (size_t i = 0; i < s->count; i++) {
        const bt_split *split = &s->list[i];
        must(split->lo >= last && split->lo < split->hi &&
             split->hi <= s->text.size);
        last = split->hi;
    }
    origins_check(&s->text, size);
}

static void run(const bt_normalizer *normalizer, const bt_pretokenizer *pre,
                const char *text, size_t size)
{
    bt_splits s = { .list = NULL };
    bauta_error err = { .message = "" };
    bauta_status status = bt_aligned_text_init(&s.text, text, size, 0, &err);
    if (!status)
        status = bt_normalizer_run(normalizer, &s.text, &err);
    must(bt_utf8_valid_prefix(s.text.bytes, s.text.size) == s.text.size);
    origins_check(&s.text, size);
    bt_split all = { 0, (uint32_t)s.text.size, BT_NO_TOKEN, true };
    if (!status)
        status = bt_splits_add(&s, all, &err);
    if (!status)
        status = bt_pretokenizer_run(pre, &s, &err);
    must(!status || err.message[0]);
    splits_check(&s, size);
    bt_splits_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    bt_normalizer *normalizer = NULL;
    bt_pretokenizer *pre = NULL;
    bauta_error err = { .message = "" };
    json_t *first = json_next(bytes, size, &at);
    json_t *second = json_next(bytes, size, &at);
    bauta_status status = bt_normalizer_parse(&normalizer, first, "f", &err);
    if (!status)
        status = bt_pretokenizer_parse(&pre, second, "f", &err);
    if (status)
        must(strncmp(err.message, "f: ", 3) == 0);
    else
        run(normalizer, pre, (const char *)bytes + at, size - at);
    bt_pretokenizer_free(pre);
    bt_normalizer_free(normalizer);
    json_decref(second);
    json_decref(first);
    return 0;
}
