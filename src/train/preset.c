/* SPDX-License-Identifier: Apache-2.0 */
/* preset.c - a preset made fit for a tokenizer: its vocabulary, its special
 * tokens, and what the caller replaces.
 *
 * Marian begins a target with the padding token. Where a tokenizer has none,
 * the model gets one more row than the tokenizer has tokens, and that row is
 * it. */
#include "train/preset.h"

#include "base/error.h"
#include "base/guess.h"
#include "base/memory.h"
#include "formats/json.h"
#include "model/handle.h"

#include <string.h>

const char *bauta_preset_name(size_t index, const char **summary)
{
    const bt_preset *preset = bt_preset_at(index);
    if (preset && summary)
        *summary = preset->summary;
    return preset ? preset->name : NULL;
}

/* ---- parts ------------------------------------------------------------- */

static bauta_status fail_json(bauta_error *err)
{
    return bt_fail_memory(err, "a config", 0);
}

static const bt_preset *preset_find(const char *name, bauta_error *err)
{
    const bt_preset *preset;
    bt_guess g = bt_guess_of(name);
    for (size_t i = 0; (preset = bt_preset_at(i)); i++) {
        if (strcmp(preset->name, name) == 0)
            return preset;
        bt_guess_try(&g, preset->name);
    }
    bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no preset \"%s\"%s%s%s",
            bt_quote(name).text, BT_DID_YOU_MEAN(g, "\""));
    return NULL;
}

/* A key that the config has gets a number. */
static bool number_set(json_t *config, const char *key, size_t value)
{
    if (!json_object_get(config, key))
        return true;
    return json_object_set_new(config, key, json_integer((json_int_t)value)) ==
           0;
}

static bool token_set(json_t *config, const char *key,
                      const bauta_tokenizer *tokenizer, bauta_token_name name)
{
    uint32_t id = bauta_tokenizer_token(tokenizer, name);
    return id == BAUTA_NO_TOKEN || number_set(config, key, id);
}

static bool tokens_set(json_t *config, const bauta_tokenizer *t)
{
    return token_set(config, "bos_token_id", t, BAUTA_TOKEN_BOS) &&
           token_set(config, "eos_token_id", t, BAUTA_TOKEN_EOS) &&
           token_set(config, "forced_eos_token_id", t, BAUTA_TOKEN_EOS) &&
           token_set(config, "pad_token_id", t, BAUTA_TOKEN_PAD);
}

/* Where a translation begins and how it ends. */
static bauta_status start_set(json_t *config, const bauta_tokenizer *tokenizer,
                              size_t *vocabulary, bauta_error *err)
{
    uint32_t pad = bauta_tokenizer_token(tokenizer, BAUTA_TOKEN_PAD);
    if (!json_object_get(config, "decoder_start_token_id"))
        return BAUTA_OK;
    if (bauta_tokenizer_token(tokenizer, BAUTA_TOKEN_EOS) == BAUTA_NO_TOKEN)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the tokenizer has no token that ends a text, so a "
                       "translation would have no end");
    if (pad == BAUTA_NO_TOKEN)
        pad = (uint32_t)(*vocabulary)++;
    return number_set(config, "pad_token_id", pad) &&
                   number_set(config, "decoder_start_token_id", pad)
               ? BAUTA_OK
               : fail_json(err);
}

static bauta_status tokenizer_apply(json_t *config,
                                    const bauta_tokenizer *tokenizer,
                                    size_t *vocabulary, bauta_error *err)
{
    *vocabulary = bauta_tokenizer_size(tokenizer);
    if (!tokens_set(config, tokenizer))
        return fail_json(err);
    bauta_status status = start_set(config, tokenizer, vocabulary, err);
    if (!status && !(number_set(config, "vocab_size", *vocabulary) &&
                     number_set(config, "decoder_vocab_size", *vocabulary)))
        status = fail_json(err);
    return status;
}

/* ---- overrides --------------------------------------------------------- */

static bauta_status key_unknown(const json_t *config, const char *key,
                                const char *preset, bauta_error *err)
{
    bt_guess g = bt_guess_of(key);
    for (void *at = json_object_iter((json_t *)config); at;
         at = json_object_iter_next((json_t *)config, at))
        bt_guess_try(&g, json_object_iter_key(at));
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the config of %s has no key \"%s\"%s%s%s", preset,
                   bt_quote(key).text, BT_DID_YOU_MEAN(g, "\""));
}

/* A larger vocabulary than the tokenizer's is a matter of taste. */
static bauta_status vocabulary_check(const json_t *config, size_t least,
                                     bauta_error *err)
{
    const json_t *value = json_object_get(config, "vocab_size");
    json_int_t size = json_integer_value(value);
    if (json_is_integer(value) && size >= (json_int_t)least)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "vocab_size must be at least %zu, which the tokenizer needs",
                   least);
}

static bauta_status overrides_apply(json_t *config, const char *preset,
                                    const char *text, bauta_error *err)
{
    bauta_error why;
    json_t *overrides;
    bauta_status status = bt_json_object(&overrides, text, strlen(text), 0,
                                         "the new values", &why);
    if (status == BAUTA_ERR_NOMEM)
        return fail_json(err);
    if (status)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "what replaces parts of the config is not a JSON "
                         "object: %.150s",
                         why.message);
    for (void *at = status ? NULL : json_object_iter(overrides); at && !status;
         at = json_object_iter_next(overrides, at)) {
        const char *key = json_object_iter_key(at);
        if (!json_object_get(config, key))
            status = key_unknown(config, key, preset, err);
        else if (json_object_set(config, key, json_object_iter_value(at)))
            status = fail_json(err);
    }
    // Both sides of a translation share one vocabulary.
    if (!status && json_object_get(overrides, "vocab_size") &&
        json_object_get(config, "decoder_vocab_size") &&
        json_object_set(config, "decoder_vocab_size",
                        json_object_get(config, "vocab_size")))
        status = fail_json(err);
    json_decref(overrides);
    return status;
}

/* ---- the door ---------------------------------------------------------- */

/* As a text in the library's own memory. */
static bauta_status config_text(char **out, const json_t *config,
                                bauta_error *err)
{
    const size_t flags = JSON_INDENT(2);
    size_t size = json_dumpb(config, NULL, 0, flags);
    char *text = size ? bt_alloc(size + 2) : NULL;
    if (!text || json_dumpb(config, text, size, flags) != size) {
        bt_free(text);
        return fail_json(err);
    }
    memcpy(text + size, "\n", 2);
    *out = text;
    return BAUTA_OK;
}

bauta_status bauta_preset(char **config, bauta_train_options *options,
                          const char *name, const bauta_tokenizer *tokenizer,
                          const char *overrides, bauta_error *err)
{
    BT_NEED(config, err);
    *config = NULL;
    BT_NEED(name, err);
    BT_NEED(tokenizer, err);
    if (options)
        BT_NEED_SIZE(options, bauta_train_options, "BAUTA_TRAIN_OPTIONS_INIT",
                     err);
    const bt_preset *preset = preset_find(name, err);
    if (!preset)
        return BAUTA_ERR_ARGUMENT;
    size_t vocabulary = 0;
    json_t *made;
    bauta_status status = bt_json_object(
        &made, preset->config, strlen(preset->config), 0, preset->name, err);
    if (!status)
        status = tokenizer_apply(made, tokenizer, &vocabulary, err);
    if (!status && overrides)
        status = overrides_apply(made, name, overrides, err);
    if (!status)
        status = vocabulary_check(made, vocabulary, err);
    if (!status)
        status = config_text(config, made, err);
    if (!status && options)
        *options = preset->options;
    json_decref(made);
    return status;
}
