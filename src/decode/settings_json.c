/* SPDX-License-Identifier: Apache-2.0 */
/* settings_json.c - generation options out of a model, and as JSON. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/string_writer.h"
#include "decode/settings.h"
#include "model/handle.h"

#include <string.h>

bauta_status bauta_generate_options_load(bauta_generate_options *options,
                                         const bauta_model *model,
                                         bauta_error *err)
{
    char *config;
    BT_NEED(options, err);
    BT_NEED(model, err);
    *options = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    // The model's own config remembers what was wrong with it, and a shared
    // model is not written to; so its text is read again.
    bauta_status status =
        bt_config_saved(&config, model->folder->config, "", err);
    if (status)
        return status;
    status = bt_settings_parse(options, model->phrases, model->generation,
                               model->generation_size, config, strlen(config),
                               bauta_model_vocabulary(model), err);
    bt_free(config);
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
    if (o->end_count == 1)
        put_token(w, "eos_token_id", o->ends[0]);
    if (o->end_count < 2)
        return;
    put_key(w, "eos_token_id");
    for (size_t i = 0; i < o->end_count && i < BAUTA_ENDS_MAX; i++)
        bt_put(w, "%s%u", i ? ", " : "[", (unsigned)o->ends[i]);
    bt_put_text(w, "]");
}

static void put_banned(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->banned_count)
        return;
    put_key(w, "suppress_tokens");
    for (size_t i = 0; i < o->banned_count && i < BAUTA_BANNED_MAX; i++)
        bt_put(w, "%s%u", i ? ", " : "[", (unsigned)o->banned[i]);
    bt_put_text(w, "]");
}

static void put_words(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->word_count || !o->words)
        return;
    put_key(w, "bad_words_ids");
    for (size_t i = 0; i < o->word_count; i++) {
        bt_put_text(w, i ? ", " : "[");
        for (size_t j = 0; j < o->words[i].count; j++)
            bt_put(w, "%s%u", j ? ", " : "[", (unsigned)o->words[i].tokens[j]);
        bt_put_text(w, "]");
    }
    bt_put_text(w, "]");
}

static void put_stops(bt_string_writer *w, const bauta_generate_options *o)
{
    if (!o->stop_count || !o->stops)
        return;
    put_key(w, "stop_strings");
    for (size_t i = 0; i < o->stop_count; i++) {
        bt_put_text(w, i ? ", " : "[");
        bt_put_string(w, o->stops[i] ? o->stops[i] : "");
    }
    bt_put_text(w, "]");
}

static void put_search(bt_string_writer *w, const bauta_generate_options *o)
{
    static const char *const early[] = { "false", "true", "\"never\"" };
    put_size(w, "num_beams", o->beams);
    put_float(w, "length_penalty", o->length_penalty);
    put_key(w, "early_stopping");
    bt_put_text(w, early[(size_t)o->early < BT_LEN(early) ? o->early : 0]);
    put_size(w, "num_return_sequences", bt_size_max(o->nbest, 1));
    put_bool(w, "renormalize_logits", o->renormalize);
}

static void put_sampling(bt_string_writer *w, const bauta_generate_options *o)
{
    put_bool(w, "do_sample", o->sample);
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
    const bauta_generate_options none = BAUTA_GENERATE_OPTIONS_INIT;
    const bauta_generate_options *o = options ? options : &none;
    bt_string_writer w = { text, text ? size : 0, 0 };
    bt_put_text(&w, "{");
    if (o->max_tokens)
        put_size(&w, "max_new_tokens", o->max_tokens);
    if (o->max_length)
        put_size(&w, "max_length", o->max_length);
    if (o->sliding_window)
        put_size(&w, "sliding_window", o->sliding_window);
    put_size(&w, "min_new_tokens", o->min_tokens);
    put_size(&w, "min_length", o->min_length);
    put_float(&w, "repetition_penalty", o->repetition_penalty);
    put_size(&w, "no_repeat_ngram_size", o->no_repeat);
    put_sampling(&w, o);
    put_search(&w, o);
    put_token(&w, "decoder_start_token_id", o->start);
    put_token(&w, "forced_bos_token_id", o->first);
    put_token(&w, "forced_eos_token_id", o->last);
    put_ends(&w, o);
    put_banned(&w, o);
    put_words(&w, o);
    put_stops(&w, o);
    bt_put_text(&w, "}");
    return bt_put_end(&w);
}
