/* SPDX-License-Identifier: Apache-2.0 */
/* preset.c - presets: a config and training options by name, adapted to a
 * tokenizer and to the caller's overrides.
 *
 * The architectures are published ones. The options are chosen for two cores
 * and at most ten minutes: a batch has a few thousand tokens, a micro-batch
 * 2,048, which keeps memory small, and the learning rate decays along a cosine.
 * docs/training.md has the times, and the options with which the models were
 * published. Dropout is set by the options; the configs repeat it for programs
 * that read it there.
 *
 * Marian starts a target with the padding token. For a tokenizer without one,
 * the vocabulary of the model is one larger than the tokenizer's, and the last
 * token is used for padding. */
#include "base/memory.h"
#include "base/sized.h"
#include "base/suggestion.h"
#include "formats/json.h"
#include "model/api.h"

#include <string.h>

/* ---- the table --------------------------------------------------------- */

typedef struct preset_entry {
    const char *name, *summary;
    const char *config; /* a config.json with every key that can be overridden;
                           token ids and vocab_size are null */
    bauta_train_options options;
} preset_entry;

#define GPT2(layers, heads, width, positions, dropout)                        \
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], "   \
    "\"vocab_size\": null, \"bos_token_id\": null, \"eos_token_id\": null, "  \
    "\"pad_token_id\": null, "                                                \
    "\"n_layer\": " layers ", \"n_head\": " heads ", \"n_embd\": " width ", " \
    "\"n_inner\": null, \"n_positions\": " positions ", "                     \
    "\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.0, "            \
    "\"embd_pdrop\": " dropout ", \"resid_pdrop\": " dropout ", "             \
    "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, "            \
    "\"tie_word_embeddings\": true, \"use_cache\": true}"

#define LLAMA(layers, heads, kv_heads, width, inner, positions)             \
    "{\"model_type\": \"llama\", "                                          \
    "\"architectures\": [\"LlamaForCausalLM\"], "                           \
    "\"vocab_size\": null, \"bos_token_id\": null, \"eos_token_id\": "      \
    "null, \"pad_token_id\": null, "                                        \
    "\"num_hidden_layers\": " layers ", \"num_attention_heads\": " heads    \
    ", \"num_key_value_heads\": " kv_heads ", \"hidden_size\": " width ", " \
    "\"head_dim\": null, \"intermediate_size\": " inner ", "                \
    "\"max_position_embeddings\": " positions ", "                          \
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "                   \
    "\"rope_theta\": 10000.0, \"attention_bias\": false, "                  \
    "\"mlp_bias\": false, \"attention_dropout\": 0.0, "                     \
    "\"initializer_range\": 0.02, \"tie_word_embeddings\": true, "          \
    "\"use_cache\": true}"

#define MARIAN(layers, heads, width, inner, positions, dropout)               \
    "{\"model_type\": \"marian\", \"architectures\": [\"MarianMTModel\"], "   \
    "\"is_encoder_decoder\": true, \"vocab_size\": null, "                    \
    "\"decoder_vocab_size\": null, \"bos_token_id\": null, "                  \
    "\"eos_token_id\": null, \"forced_eos_token_id\": null, "                 \
    "\"pad_token_id\": null, \"decoder_start_token_id\": null, "              \
    "\"encoder_layers\": " layers ", \"decoder_layers\": " layers ", "        \
    "\"encoder_attention_heads\": " heads ", \"decoder_attention_heads\": "   \
    "" heads ", \"d_model\": " width ", \"encoder_ffn_dim\": " inner ", "     \
    "\"decoder_ffn_dim\": " inner ", \"max_position_embeddings\": " positions \
    ", \"activation_function\": \"relu\", \"dropout\": " dropout ", "         \
    "\"attention_dropout\": 0.0, \"activation_dropout\": 0.0, "               \
    "\"encoder_layerdrop\": 0.0, \"decoder_layerdrop\": 0.0, "                \
    "\"init_std\": 0.02, \"scale_embedding\": true, "                         \
    "\"static_position_embeddings\": true, \"normalize_before\": false, "     \
    "\"share_encoder_decoder_embeddings\": true, "                            \
    "\"tie_word_embeddings\": true, \"use_cache\": true}"

#define BERT(layers, heads, width, inner, positions, dropout)                 \
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], "   \
    "\"vocab_size\": null, \"pad_token_id\": null, "                          \
    "\"num_hidden_layers\": " layers ", \"num_attention_heads\": " heads ", " \
    "\"hidden_size\": " width ", \"intermediate_size\": " inner ", "          \
    "\"max_position_embeddings\": " positions ", \"type_vocab_size\": 2, "    \
    "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": " dropout ", "        \
    "\"attention_probs_dropout_prob\": 0.0, \"layer_norm_eps\": 1e-12, "      \
    "\"initializer_range\": 0.02, \"tie_word_embeddings\": true}"

/* The options that all presets share. */
#define DEFAULTS                                                              \
    .size = sizeof(bauta_train_options), .seed = 1, .mlm_probability = 0.15f, \
    .mlm_random = 0.1f, .mlm_keep = 0.1f, .scheduled_sampling = 0.25f,        \
    .adam_beta1 = 0.9

static const preset_entry presets[] = {
    { "gpt2-tiny",
      "nanoGPT's character model for a CPU: 4 layers, 128 wide, context 256",
      GPT2("4", "4", "128", "256", "0.0"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 8192,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 12, .batch_tokens = 4096, .max_steps = 2000,
        .warmup_steps = 100, .learning_rate = 1e-3, .min_learning_rate = 1e-4,
        .adam_beta2 = 0.99, .weight_decay = 0.1, .max_grad_norm = 1.0 } },
    { "gpt2-char",
      "nanoGPT's larger character model: 6 layers, 384 wide, context 256",
      GPT2("6", "6", "384", "256", "0.0"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 2048,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 16, .batch_tokens = 4096, .max_steps = 400,
        .warmup_steps = 40, .learning_rate = 1e-3, .min_learning_rate = 1e-4,
        .adam_beta2 = 0.99, .weight_decay = 0.1, .max_grad_norm = 1.0 } },
    { "gpt2-small",
      "GPT-2 of 124 million parameters: 12 layers, 768 wide, context 1024",
      GPT2("12", "12", "768", "1024", "0.0"),
      { DEFAULTS, .microbatch_tokens = 1024,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 2, .batch_tokens = 2048,
        .gradient_accumulation_steps = 1, .max_steps = 50, .warmup_steps = 10,
        .learning_rate = 6e-4, .min_learning_rate = 6e-5, .adam_beta2 = 0.95,
        .weight_decay = 0.1, .max_grad_norm = 1.0 } },
    { "llama-tiny",
      "Llama of llama2.c's smallest kind: 5 layers, 64 wide, context 512",
      LLAMA("5", "8", "4", "64", "172", "512"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 2048,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 16, .batch_tokens = 8192, .max_steps = 2000,
        .warmup_steps = 100, .learning_rate = 2e-3, .min_learning_rate = 0.0,
        .adam_beta2 = 0.99, .weight_decay = 0.01, .max_grad_norm = 1.0 } },
    { "transformer-tiny",
      "translation of few sentences: 4 + 4 layers, 128 wide (Multi30k)",
      MARIAN("4", "4", "128", "256", "256", "0.1"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .adam_epsilon = 1e-8,
        .batch_tokens = 4096, .microbatch_tokens = 2048, .dropout = 0.1f,
        .label_smoothing = 0.1f, .max_steps = 1200, .warmup_steps = 200,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .learning_rate = 3e-3,
        .min_learning_rate = 0.0, .adam_beta2 = 0.98, .max_grad_norm = 1.0 } },
    { "transformer-base",
      "the original Transformer: 6 + 6 layers, 512 wide",
      MARIAN("6", "8", "512", "2048", "512", "0.1"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 1024,
        .batch_tokens = 2048, .dropout = 0.1f, .label_smoothing = 0.1f,
        .max_steps = 150, .warmup_steps = 30,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .learning_rate = 5e-4,
        .min_learning_rate = 0.0, .adam_beta2 = 0.98, .adam_epsilon = 1e-9,
        .max_grad_norm = 1.0 } },
    { "bert-tiny",
      "a small BERT for hidden words: 4 layers, 192 wide, context 128",
      BERT("4", "6", "192", "768", "128", "0.1"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 2048,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 0, .batch_tokens = 4096, .dropout = 0.1f,
        .max_steps = 1200, .warmup_steps = 120, .learning_rate = 1e-3,
        .min_learning_rate = 0.0, .adam_beta2 = 0.98, .weight_decay = 0.01,
        .max_grad_norm = 1.0 } },
    { "series-tiny",
      "a small GPT-2 for time series: 2 layers, 64 wide, context 128",
      GPT2("2", "4", "64", "128", "0.1"),
      { DEFAULTS, .gradient_accumulation_steps = 1, .microbatch_tokens = 2048,
        .lr_scheduler_type = BAUTA_SCHEDULE_COSINE, .adam_epsilon = 1e-8,
        .batch_sequences = 16, .batch_tokens = 2048, .dropout = 0.1f,
        .max_steps = 400, .warmup_steps = 40, .learning_rate = 2e-3,
        .min_learning_rate = 1e-4, .adam_beta2 = 0.99, .weight_decay = 0.1,
        .max_grad_norm = 1.0 } },
};

const char *bauta_preset_name(size_t index, const char **summary)
{
    const preset_entry *preset =
        index < BT_LEN(presets) ? &presets[index] : NULL;
    if (preset && summary)
        *summary = preset->summary;
    return preset ? preset->name : NULL;
}

/* ---- the tokenizer ----------------------------------------------------- */

static bauta_status fail_json(bauta_error *err)
{
    return bt_fail_memory(err, "a config", 0);
}

static const preset_entry *preset_find(const char *name, bauta_error *err)
{
    bt_suggestion g = bt_suggestion_for(name);
    for (size_t i = 0; i < BT_LEN(presets); i++) {
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
        bt_suggestion_try(&g, presets[i].name);
    }
    bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no preset \"%s\"%s%s%s",
            bt_quote(name).text, BT_DID_YOU_MEAN(g, "\""));
    return NULL;
}

/* Set a key to a number, if the config has the key. */
static bool number_set(json_t *config, const char *key, size_t value)
{
    if (!json_object_get(config, key))
        return true;
    return json_object_set_new(config, key, json_integer((json_int_t)value)) ==
           0;
}

static bool token_set(json_t *config, const char *key,
                      const bauta_tokenizer *tokenizer,
                      bauta_special_token name)
{
    uint32_t id = bauta_tokenizer_special_token(tokenizer, name);
    return id == BAUTA_NO_TOKEN || number_set(config, key, id);
}

static bool tokens_set(json_t *config, const bauta_tokenizer *t)
{
    return token_set(config, "bos_token_id", t, BAUTA_TOKEN_BOS) &&
           token_set(config, "eos_token_id", t, BAUTA_TOKEN_EOS) &&
           token_set(config, "forced_eos_token_id", t, BAUTA_TOKEN_EOS) &&
           token_set(config, "pad_token_id", t, BAUTA_TOKEN_PAD);
}

/* Set the decoder's start token; a translation also needs an end token. */
static bauta_status start_set(json_t *config, const bauta_tokenizer *tokenizer,
                              size_t *vocabulary, bauta_error *err)
{
    uint32_t pad = bauta_tokenizer_special_token(tokenizer, BAUTA_TOKEN_PAD);
    if (!json_object_get(config, "decoder_start_token_id"))
        return BAUTA_OK;
    if (bauta_tokenizer_special_token(tokenizer, BAUTA_TOKEN_EOS) ==
        BAUTA_NO_TOKEN)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the tokenizer has no end-of-sequence token, which a "
                       "translation needs");
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
    *vocabulary = bauta_tokenizer_vocab_size(tokenizer);
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
    bt_suggestion g = bt_suggestion_for(key);
    for (void *at = json_object_iter((json_t *)config); at;
         at = json_object_iter_next((json_t *)config, at))
        bt_suggestion_try(&g, json_object_iter_key(at));
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the config of %s has no key \"%s\"%s%s%s", preset,
                   bt_quote(key).text, BT_DID_YOU_MEAN(g, "\""));
}

/* The vocabulary may be larger than the tokenizer's, but not smaller. */
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
    bauta_status status = bt_json_parse_object(&overrides, text, strlen(text),
                                               0, "the overrides", &why);
    if (status == BAUTA_ERR_NOMEM)
        return fail_json(err);
    if (status)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the config overrides are not a JSON object: %.150s",
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

/* ---- the call ---------------------------------------------------------- */

/* The config as text, in memory of the library's allocator. */
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
    bauta_status status = BAUTA_OK;
    if (options)
        status =
            BT_SIZED_CHECK(options, BAUTA_TRAIN_OPTIONS_INIT, "options", err);
    if (status)
        return status;
    const preset_entry *preset = preset_find(name, err);
    if (!preset)
        return BAUTA_ERR_ARGUMENT;
    size_t vocabulary = 0;
    json_t *made;
    status = bt_json_parse_object(&made, preset->config, strlen(preset->config),
                                  0, preset->name, err);
    if (!status)
        status = tokenizer_apply(made, tokenizer, &vocabulary, err);
    if (!status && overrides)
        status = overrides_apply(made, name, overrides, err);
    if (!status)
        status = vocabulary_check(made, vocabulary, err);
    if (!status)
        status = config_text(config, made, err);
    if (!status && options)
        BT_SIZED_WRITE(options, &preset->options);
    json_decref(made);
    return status;
}
