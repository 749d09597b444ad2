/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_generation_config.c - any bytes as a generation_config.json, or as the
 * config.json that stands for it.
 *
 * What is accepted names no token beyond the vocabulary among the ends and the
 * banned, and is JSON again that gives the same options. */
#include "decode/settings.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool fine)
{
    if (!fine)
        abort();
}

static void check(const bauta_generate_options *o)
{
    bauta_generate_options again;
    static char text[1 << 14];
    must(o->end_count <= BAUTA_ENDS_MAX);
    must(o->banned_count <= BAUTA_BANNED_MAX);
    for (size_t i = 0; i < o->end_count; i++)
        must(o->ends[i] < VOCAB);
    for (size_t i = 0; i < o->banned_count; i++)
        must(o->banned[i] < VOCAB);
    size_t length = bauta_generate_options_json(o, text, sizeof(text));
    must(length < sizeof(text) && strlen(text) == length);
    must(bt_settings_parse(&again, text, length, "{}", 2, VOCAB, NULL) ==
         BAUTA_OK);
    must(again.beams == o->beams && again.end_count == o->end_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_generate_options o;
    bauta_error err;
    const char *text = (const char *)bytes;
    if (bt_settings_parse(&o, text, size, "{}", 2, VOCAB, &err) == BAUTA_OK)
        check(&o);
    else
        must(err.status != BAUTA_OK && err.message[0] != '\0');
    if (bt_settings_parse(&o, NULL, 0, text, size, VOCAB, &err) == BAUTA_OK)
        check(&o);
    else
        must(err.status != BAUTA_OK && err.message[0] != '\0');
    return 0;
}
