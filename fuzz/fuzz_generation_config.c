/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_generation_config.c - any bytes as a generation_config.json, or as the
 * config.json in its place.
 *
 * Accepted settings name only tokens of the vocabulary as end tokens,
 * suppressed tokens and bad words, and they survive writing and reading as
 * JSON. */
#include "base/memory.h"
#include "decode/generation_config.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool fine)
{
    if (!fine)
        abort();
}

static void words_check(const bauta_generate_options *o)
{
    for (size_t i = 0; i < o->bad_word_count; i++) {
        must(o->bad_words[i].count > 0);
        for (size_t j = 0; j < o->bad_words[i].count; j++)
            must(o->bad_words[i].tokens[j] < VOCAB);
    }
    for (size_t i = 0; i < o->stop_string_count; i++)
        must(o->stop_strings[i][0] != '\0');
}

static bool same_words(const bauta_generate_options *a,
                       const bauta_generate_options *b)
{
    bool same = a->stop_string_count == b->stop_string_count &&
                a->bad_word_count == b->bad_word_count;
    for (size_t i = 0; same && i < a->stop_string_count; i++)
        same = strcmp(a->stop_strings[i], b->stop_strings[i]) == 0;
    for (size_t i = 0; same && i < a->bad_word_count; i++)
        same = a->bad_words[i].count == b->bad_words[i].count &&
               memcmp(a->bad_words[i].tokens, b->bad_words[i].tokens,
                      a->bad_words[i].count * sizeof(uint32_t)) == 0;
    return same;
}

/* The written JSON reads back as the same options. */
static void again(const bauta_generate_options *o)
{
    bauta_generate_options back;
    bt_generation_lists *words;
    size_t length = bauta_generate_options_json(o, NULL, 0);
    char *text = malloc(length + 1);
    must(text != NULL);
    must(bauta_generate_options_json(o, text, length + 1) == length);
    must(strlen(text) == length);
    must(!bt_generation_lists_read(&words, text, length, NULL, 0, VOCAB, NULL));
    must(!bt_generation_config_parse(&back, words, text, length, "{}", 2, VOCAB,
                                     NULL));
    must(back.num_beams == o->num_beams &&
         back.eos_token_count == o->eos_token_count);
    must(back.suppress_token_count == o->suppress_token_count);
    must(same_words(o, &back));
    bt_free(words);
    free(text);
}

static void check(const bauta_generate_options *o)
{
    must(o->eos_token_count <= BAUTA_EOS_TOKENS_MAX);
    must(o->suppress_token_count <= BAUTA_SUPPRESS_TOKENS_MAX);
    for (size_t i = 0; i < o->eos_token_count; i++)
        must(o->eos_token_ids[i] < VOCAB);
    for (size_t i = 0; i < o->suppress_token_count; i++)
        must(o->suppress_tokens[i] < VOCAB);
    words_check(o);
    again(o);
}

static void parse(const char *generation, size_t generation_size,
                  const char *config, size_t config_size)
{
    bauta_generate_options o;
    bauta_error err;
    bt_generation_lists *words;
    must(!bt_generation_lists_read(&words, generation, generation_size, config,
                                   config_size, VOCAB, &err));
    if (bt_generation_config_parse(&o, words, generation, generation_size,
                                   config, config_size, VOCAB,
                                   &err) == BAUTA_OK)
        check(&o);
    else
        must(err.status != BAUTA_OK && err.message[0] != '\0');
    bt_free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *text = (const char *)bytes;
    parse(text, size, "{}", 2);
    parse(NULL, 0, text, size);
    return 0;
}
