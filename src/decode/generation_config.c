/* SPDX-License-Identifier: Apache-2.0 */
/* generation_config.c - generation options from generation_config.json, from
 * the config.json of older folders, and as JSON.
 *
 * If there is a generation_config.json, it alone sets the options. From
 * config.json come then only the start and end tokens that it does not name. */
#include "decode/generation_config.h"

#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "base/string_writer.h"
#include "formats/json.h"
#include "model/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A JSON file, and the first error in it. */
typedef struct json_source {
    const json_t *root;
    const char *file;
    bauta_error *err;
    bauta_status status;
} json_source;

static void reject(json_source *a, const char *key, const json_t *value,
                   const char *why)
{
    if (!a->status)
        a->status = bt_json_fail_member(a->file, key, value, why, a->err);
}

static void get_size(json_source *a, const char *key, size_t *to)
{
    const json_t *value = bt_json_get(a->root, key);
    json_int_t number = json_integer_value(value);
    if (!value)
        return;
    if (json_is_integer(value) && number >= 0 && number <= INT32_MAX)
        *to = (size_t)number;
    else
        reject(a, key, value, "not a whole number from 0 to 2147483647");
}

static void get_float(json_source *a, const char *key, float *to)
{
    const json_t *value = bt_json_get(a->root, key);
    double number = json_number_value(value);
    if (!value)
        return;
    if (json_is_number(value) && number >= -1e9 && number <= 1e9)
        *to = (float)number;
    else
        reject(a, key, value, "not a number from -1e9 to 1e9");
}

static void get_bool(json_source *a, const char *key, bool *to)
{
    const json_t *value = bt_json_get(a->root, key);
    if (!value)
        return;
    if (json_is_boolean(value))
        *to = json_is_true(value);
    else
        reject(a, key, value, "neither true nor false");
}

/* ---- tokens ------------------------------------------------------------ */

static bool token_of(json_source *a, const char *key, const json_t *value,
                     uint32_t *to)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > INT32_MAX) {
        reject(a, key, value, "not a token");
        return false;
    }
    *to = (uint32_t)number;
    return true;
}

/* One token, or a list of one token. */
static void get_token(json_source *a, const char *key, uint32_t *to)
{
    const json_t *value = bt_json_get(a->root, key);
    if (json_is_array(value) && json_array_size(value) == 1)
        value = json_array_get(value, 0);
    if (json_is_array(value))
        reject(a, key, value, "not one token");
    else if (value)
        token_of(a, key, value, to);
}

/* A list of tokens with a maximum length. */
typedef struct tokens {
    uint32_t *all;
    size_t *count, most;
    size_t vocab;
} tokens;

static void tokens_add(json_source *a, const char *key, const json_t *value,
                       const tokens *to)
{
    uint32_t token;
    if (!token_of(a, key, value, &token) || token >= to->vocab)
        return;
    for (size_t i = 0; i < *to->count; i++)
        if (to->all[i] == token)
            return;
    if (*to->count == to->most)
        reject(a, key, bt_json_get(a->root, key), "which has too many tokens");
    else
        to->all[(*to->count)++] = token;
}

/* One token or a list of tokens. */
static void get_tokens(json_source *a, const char *key, const tokens *to)
{
    const json_t *value = bt_json_get(a->root, key), *each;
    size_t i;
    if (!json_is_array(value)) {
        if (value)
            tokens_add(a, key, value, to);
        return;
    }
    json_array_foreach(value, i, each) tokens_add(a, key, each, to);
}

/* ---- unsupported options ----------------------------------------------- */

/* Options that change the output and are not supported, with their neutral
 * value; null is always neutral. */
static const struct {
    const char *key;
    enum { NUMBER, SWITCH, NOTHING } kind;
    double neutral;
} unsupported[] = {
    { "num_beam_groups", NUMBER, 1 },
    { "diversity_penalty", NUMBER, 0 },
    { "penalty_alpha", NUMBER, 0 },
    { "typical_p", NUMBER, 1 },
    { "epsilon_cutoff", NUMBER, 0 },
    { "eta_cutoff", NUMBER, 0 },
    { "encoder_repetition_penalty", NUMBER, 1 },
    { "encoder_no_repeat_ngram_size", NUMBER, 0 },
    { "guidance_scale", NUMBER, 1 },
    { "token_healing", SWITCH, 0 },
    { "top_h", NOTHING, 0 },
    { "max_time", NOTHING, 0 },
    { "sequence_bias", NOTHING, 0 },
    { "begin_suppress_tokens", NOTHING, 0 },
    { "forced_decoder_ids", NOTHING, 0 },
    { "exponential_decay_length_penalty", NOTHING, 0 },
    { "constraints", NOTHING, 0 },
    { "force_words_ids", NOTHING, 0 },
    { "watermarking_config", NOTHING, 0 },
    { "dola_layers", NOTHING, 0 },
};

static bool is_neutral(size_t i, const json_t *value)
{
    switch (unsupported[i].kind) {
    case NUMBER:
        return json_is_number(value) &&
               !(json_number_value(value) < unsupported[i].neutral) &&
               !(json_number_value(value) > unsupported[i].neutral);
    case SWITCH:
        return json_is_false(value);
    default:
        return json_is_array(value) && json_array_size(value) == 0;
    }
}

static void reject_unsupported(json_source *a)
{
    for (size_t i = 0; i < BT_LEN(unsupported); i++) {
        const json_t *value = bt_json_get(a->root, unsupported[i].key);
        if (value && !is_neutral(i, value))
            reject(a, unsupported[i].key, value, "which is not supported");
    }
}

/* ---- files ------------------------------------------------------------- */

static void get_early(json_source *a, bauta_early_stopping *to)
{
    const json_t *value = bt_json_get(a->root, "early_stopping");
    const char *text = json_string_value(value);
    if (json_is_boolean(value))
        *to = json_is_true(value) ? BAUTA_EARLY_STOPPING_YES
                                  : BAUTA_EARLY_STOPPING_NO;
    else if (text && !strcmp(text, "never"))
        *to = BAUTA_EARLY_STOPPING_NEVER;
    else if (value)
        reject(a, "early_stopping", value, "not true, false or \"never\"");
}

static void get_numbers(json_source *a, bauta_generate_options *o)
{
    get_size(a, "max_new_tokens", &o->max_new_tokens);
    get_size(a, "max_length", &o->max_length);
    get_size(a, "min_new_tokens", &o->min_new_tokens);
    get_size(a, "min_length", &o->min_length);
    get_float(a, "repetition_penalty", &o->repetition_penalty);
    get_size(a, "no_repeat_ngram_size", &o->no_repeat_ngram_size);
    get_bool(a, "do_sample", &o->do_sample);
    get_float(a, "temperature", &o->temperature);
    get_size(a, "top_k", &o->top_k);
    get_float(a, "top_p", &o->top_p);
    get_float(a, "min_p", &o->min_p);
    get_size(a, "num_beams", &o->num_beams);
    get_float(a, "length_penalty", &o->length_penalty);
    get_early(a, &o->early_stopping);
    get_size(a, "num_return_sequences", &o->num_return_sequences);
    get_bool(a, "renormalize_logits", &o->renormalize_logits);
    // With both, transformers goes by the new tokens alone.
    if (o->max_new_tokens)
        o->max_length = 0;
}

static void get_ends(json_source *a, bauta_generate_options *o, size_t vocab)
{
    get_tokens(a, "eos_token_id",
               &(tokens){ o->eos_token_ids, &o->eos_token_count,
                          BAUTA_EOS_TOKENS_MAX, vocab });
}

static void get_start(json_source *a, bauta_generate_options *o)
{
    get_token(a, "decoder_start_token_id", &o->decoder_start_token_id);
    if (o->decoder_start_token_id == BAUTA_NO_TOKEN)
        get_token(a, "bos_token_id", &o->decoder_start_token_id);
}

static void get_all(json_source *a, bauta_generate_options *o, size_t vocab)
{
    tokens banned = { o->suppress_tokens, &o->suppress_token_count,
                      BAUTA_SUPPRESS_TOKENS_MAX, vocab };
    get_numbers(a, o);
    get_ends(a, o, vocab);
    get_start(a, o);
    get_token(a, "forced_bos_token_id", &o->forced_bos_token_id);
    get_token(a, "forced_eos_token_id", &o->forced_eos_token_id);
    get_tokens(a, "suppress_tokens", &banned);
    reject_unsupported(a);
}

/* The defaults of transformers for a family whose config does not set them. */
static const struct {
    const char *type;
    uint32_t end, start, last;
} families[] = {
    { "gpt2", 50256, BAUTA_NO_TOKEN, BAUTA_NO_TOKEN },
    { "llama", 2, BAUTA_NO_TOKEN, BAUTA_NO_TOKEN },
    { "mistral", 2, BAUTA_NO_TOKEN, BAUTA_NO_TOKEN },
    { "marian", 0, 58100, 0 },
    { "bart", 2, 2, 2 },
};

static void fill_family(bauta_generate_options *o, const json_t *config,
                        bool last, size_t vocab)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; type && i < BT_LEN(families); i++) {
        if (strcmp(type, families[i].type) != 0)
            continue;
        if (!json_object_get(config, "eos_token_id") && !o->eos_token_count &&
            families[i].end < vocab)
            o->eos_token_ids[o->eos_token_count++] = families[i].end;
        if (o->decoder_start_token_id == BAUTA_NO_TOKEN &&
            families[i].start < vocab)
            o->decoder_start_token_id = families[i].start;
        if (last && !json_object_get(config, "forced_eos_token_id") &&
            families[i].last < vocab)
            o->forced_eos_token_id = families[i].last;
    }
}

/* Start and end tokens that the first file does not set. */
static void get_missing(json_source *a, const json_source *first,
                        bauta_generate_options *o, size_t vocab)
{
    if (!json_object_get(first->root, "eos_token_id"))
        get_ends(a, o, vocab);
    if (o->decoder_start_token_id == BAUTA_NO_TOKEN)
        get_start(a, o);
}

static bauta_status lists_apply(bauta_generate_options *o,
                                const bt_generation_lists *lists,
                                bauta_error *err)
{
    o->stop_strings = lists->stop_count ? lists->stop_strings : NULL;
    o->stop_string_count = lists->stop_count;
    o->bad_words = lists->bad_word_count ? lists->bad_words : NULL;
    o->bad_word_count = lists->bad_word_count;
    if (err && lists->error.status)
        *err = lists->error;
    return lists->error.status;
}

bauta_status bt_generation_config_parse(bauta_generate_options *options,
                                        const bt_generation_lists *lists,
                                        const char *generation,
                                        size_t generation_size,
                                        const char *config, size_t config_size,
                                        size_t vocab, bauta_error *err)
{
    json_t *own = NULL, *model = NULL;
    *options = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    options->top_k = 50; // the default of transformers
    bauta_status status = bt_json_parse_object(&model, config, config_size, 0,
                                               "config.json", err);
    if (!status && generation)
        status = bt_json_parse_object(&own, generation, generation_size, 0,
                                      "generation_config.json", err);
    json_source second = { model, "config.json", err, status };
    json_source first = { own, "generation_config.json", err, status };
    if (!status && own) {
        get_all(&first, options, vocab);
        get_missing(&second, &first, options, vocab);
    } else if (!status) {
        get_all(&second, options, vocab);
    }
    if (!status)
        fill_family(options, model, !own, vocab);
    status = first.status ? first.status : second.status;
    json_decref(own);
    json_decref(model);
    return status ? status : lists_apply(options, lists, err);
}

bauta_status bt_generation_config_load(bauta_generate_options *options,
                                       const bauta_model *model,
                                       bauta_error *err)
{
    char *config;
    // The reader keeps errors, and a shared model must not be written to; so
    // the text is parsed again.
    bauta_status status =
        bt_config_reader_save(&config, model->store->reader, "", err);
    if (status)
        return status;
    status = bt_generation_config_parse(
        options, model->generation_lists, model->generation_config,
        model->generation_config_size, config, strlen(config),
        bauta_model_vocab_size(model), err);
    bt_free(config);
    return status;
}

bauta_status bauta_generate_options_load(bauta_generate_options *options,
                                         const bauta_model *model,
                                         bauta_error *err)
{
    bauta_generate_options loaded;
    BT_NEED(options, err);
    BT_NEED(model, err);
    bauta_status status =
        BT_SIZED_CHECK(options, BAUTA_GENERATE_OPTIONS_INIT, "options", err);
    if (!status)
        status = bt_generation_config_load(&loaded, model, err);
    if (!status)
        BT_SIZED_WRITE(options, &loaded);
    return status;
}

/* ---- as JSON ----------------------------------------------------------- */

static void put_key(bt_string_writer *w, const char *key)
{
    bt_put(w, "%s\"%s\": ", w->length > 1 ? ", " : "", key);
}

static void put_size(bt_string_writer *w, const char *key, size_t value)
{
    put_key(w, key);
    bt_put_integer(w, value);
}

static void put_float(bt_string_writer *w, const char *key, float value)
{
    put_key(w, key);
    bt_put_real(w, (double)value, 9);
}

static void put_bool(bt_string_writer *w, const char *key, bool value)
{
    put_key(w, key);
    bt_put_text(w, value ? "true" : "false");
}

static void put_token(bt_string_writer *w, const char *key, uint32_t token)
{
    if (token != BAUTA_NO_TOKEN)
        put_size(w, key, token);
}

static void put_ends(bt_string_writer *w, const bauta_generate_options *o)
{
    if (o->eos_token_count == 1)
        put_token(w, "eos_token_id", o->eos_token_ids[0]);
    if (o->eos_token_count < 2)
        return;
    put_key(w, "eos_token_id");
    for (size_t i = 0; i < o->eos_token_count && i < BAUTA_EOS_TOKENS_MAX; i++)
        bt_put(w, "%s%u", i ? ", " : "[", (unsigned)o->eos_token_ids[i]);
    bt_put_text(w, "]");
}

static void put_banned(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->suppress_token_count)
        return;
    put_key(w, "suppress_tokens");
    for (size_t i = 0;
         i < o->suppress_token_count && i < BAUTA_SUPPRESS_TOKENS_MAX; i++)
        bt_put(w, "%s%u", i ? ", " : "[", (unsigned)o->suppress_tokens[i]);
    bt_put_text(w, "]");
}

static void put_words(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->bad_word_count || !o->bad_words)
        return;
    put_key(w, "bad_words_ids");
    for (size_t i = 0; i < o->bad_word_count; i++) {
        bt_put_text(w, i ? ", " : "[");
        for (size_t j = 0; j < o->bad_words[i].count; j++)
            bt_put(w, "%s%u", j ? ", " : "[",
                   (unsigned)o->bad_words[i].tokens[j]);
        bt_put_text(w, "]");
    }
    bt_put_text(w, "]");
}

static void put_bias(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->logit_bias_count || !o->logit_bias)
        return;
    put_key(w, "logit_bias");
    for (size_t i = 0; i < o->logit_bias_count; i++) {
        bt_put(w, "%s\"%u\": ", i ? ", " : "{",
               (unsigned)o->logit_bias[i].token);
        bt_put_real(w, (double)o->logit_bias[i].bias, 9);
    }
    bt_put_text(w, "}");
}

static void put_stops(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->stop_string_count || !o->stop_strings)
        return;
    put_key(w, "stop_strings");
    for (size_t i = 0; i < o->stop_string_count; i++) {
        bt_put_text(w, i ? ", " : "[");
        bt_put_string(w, o->stop_strings[i] ? o->stop_strings[i] : "");
    }
    bt_put_text(w, "]");
}

static void put_search(bt_string_writer *w, const bauta_generate_options *o)
{
    static const char *const early[] = { "false", "true", "\"never\"" };
    put_size(w, "num_beams", o->num_beams);
    put_float(w, "length_penalty", o->length_penalty);
    put_key(w, "early_stopping");
    bt_put_text(
        w, early[(size_t)o->early_stopping < BT_LEN(early) ? o->early_stopping
                                                           : 0]);
    put_size(w, "num_return_sequences",
             bt_size_max(o->num_return_sequences, 1));
    put_bool(w, "renormalize_logits", o->renormalize_logits);
}

static void put_sampling(bt_string_writer *w, const bauta_generate_options *o)
{
    put_bool(w, "do_sample", o->do_sample);
    put_float(w, "temperature", o->temperature);
    put_size(w, "top_k", o->top_k);
    put_float(w, "top_p", o->top_p);
    put_float(w, "min_p", o->min_p);
    put_key(w, "seed");
    bt_put_integer(w, o->seed);
}

size_t bauta_generate_options_json(const bauta_generate_options *options,
                                   char *text, size_t size)
{
    bauta_generate_options own;
    const bauta_generate_options *o = &own;
    bt_string_writer w = { text, text ? size : 0, 0 };
    if (BT_SIZED_READ(&own, BAUTA_GENERATE_OPTIONS_INIT, options, "options",
                      NULL)) {
        bt_put_text(&w, "{}");
        return bt_put_end(&w);
    }
    bt_put_text(&w, "{");
    if (o->max_new_tokens)
        put_size(&w, "max_new_tokens", o->max_new_tokens);
    if (o->max_length)
        put_size(&w, "max_length", o->max_length);
    if (o->sliding_window)
        put_size(&w, "sliding_window", o->sliding_window);
    put_size(&w, "min_new_tokens", o->min_new_tokens);
    put_size(&w, "min_length", o->min_length);
    put_float(&w, "repetition_penalty", o->repetition_penalty);
    if (o->presence_penalty != 0.0f)
        put_float(&w, "presence_penalty", o->presence_penalty);
    if (o->frequency_penalty != 0.0f)
        put_float(&w, "frequency_penalty", o->frequency_penalty);
    put_size(&w, "no_repeat_ngram_size", o->no_repeat_ngram_size);
    put_sampling(&w, o);
    put_search(&w, o);
    put_token(&w, "decoder_start_token_id", o->decoder_start_token_id);
    put_token(&w, "forced_bos_token_id", o->forced_bos_token_id);
    put_token(&w, "forced_eos_token_id", o->forced_eos_token_id);
    put_ends(&w, o);
    put_banned(&w, o);
    put_words(&w, o);
    put_bias(&w, o);
    put_stops(&w, o);
    bt_put_text(&w, "}");
    return bt_put_end(&w);
}
