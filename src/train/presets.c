/* SPDX-License-Identifier: Apache-2.0 */
/* presets.c - recipes by name: a config, and the options that go with it.
 *
 * The models are somebody's; the options are for two cores and ten minutes at
 * most. A batch is a few thousand tokens, a pass 2,048, which keeps memory
 * small, and the rate falls to its end along a cosine. docs/training.md has the
 * times, and the options with which the models were published. Dropout is what
 * the options say; the configs repeat it for programs that read it there. */
#include "train/preset.h"

#include "base/error.h"

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

/* What all of them share; the other numbers stand in the presets. */
#define USUAL                                                        \
    .size = sizeof(bauta_train_options), .seed = 1, .hidden = 0.15f, \
    .hidden_random = 0.1f, .hidden_kept = 0.1f, .sampled = 0.25f, .beta1 = 0.9

static const bt_preset presets[] = {
    { "gpt2-tiny",
      "nanoGPT's character model for a CPU: 4 layers, 128 wide, context 256",
      GPT2("4", "4", "128", "256", "0.0"),
      { USUAL, .accumulate = 1, .pass = 8192, .schedule = BAUTA_SCHEDULE_COSINE,
        .epsilon = 1e-8, .sequences = 12, .tokens = 4096, .steps = 2000,
        .warmup = 100, .rate = 1e-3, .min_rate = 1e-4, .beta2 = 0.99,
        .weight_decay = 0.1, .clip = 1.0 } },
    { "gpt2-char",
      "nanoGPT's larger character model: 6 layers, 384 wide, context 256",
      GPT2("6", "6", "384", "256", "0.0"),
      { USUAL, .accumulate = 1, .pass = 2048, .schedule = BAUTA_SCHEDULE_COSINE,
        .epsilon = 1e-8, .sequences = 16, .tokens = 4096, .steps = 400,
        .warmup = 40, .rate = 1e-3, .min_rate = 1e-4, .beta2 = 0.99,
        .weight_decay = 0.1, .clip = 1.0 } },
    { "gpt2-small",
      "GPT-2 of 124 million parameters: 12 layers, 768 wide, context 1024",
      GPT2("12", "12", "768", "1024", "0.0"),
      { USUAL, .pass = 1024, .schedule = BAUTA_SCHEDULE_COSINE, .epsilon = 1e-8,
        .sequences = 2, .tokens = 2048, .accumulate = 1, .steps = 50,
        .warmup = 10, .rate = 6e-4, .min_rate = 6e-5, .beta2 = 0.95,
        .weight_decay = 0.1, .clip = 1.0 } },
    { "llama-tiny",
      "Llama of llama2.c's smallest kind: 5 layers, 64 wide, context 512",
      LLAMA("5", "8", "4", "64", "172", "512"),
      { USUAL, .accumulate = 1, .pass = 2048, .schedule = BAUTA_SCHEDULE_COSINE,
        .epsilon = 1e-8, .sequences = 16, .tokens = 8192, .steps = 2000,
        .warmup = 100, .rate = 2e-3, .min_rate = 0.0, .beta2 = 0.99,
        .weight_decay = 0.01, .clip = 1.0 } },
    { "transformer-tiny",
      "translation of few sentences: 4 + 4 layers, 128 wide (Multi30k)",
      MARIAN("4", "4", "128", "256", "256", "0.1"),
      { USUAL, .accumulate = 1, .epsilon = 1e-8, .tokens = 4096, .pass = 2048,
        .dropout = 0.1f, .smoothing = 0.1f, .steps = 1200, .warmup = 200,
        .schedule = BAUTA_SCHEDULE_COSINE, .rate = 3e-3, .min_rate = 0.0,
        .beta2 = 0.98, .clip = 1.0 } },
    { "transformer-base",
      "the original Transformer: 6 + 6 layers, 512 wide",
      MARIAN("6", "8", "512", "2048", "512", "0.1"),
      { USUAL, .accumulate = 1, .pass = 1024, .tokens = 2048, .dropout = 0.1f,
        .smoothing = 0.1f, .steps = 150, .warmup = 30,
        .schedule = BAUTA_SCHEDULE_COSINE, .rate = 5e-4, .min_rate = 0.0,
        .beta2 = 0.98, .epsilon = 1e-9, .clip = 1.0 } },
    { "bert-tiny",
      "a small BERT for hidden words: 4 layers, 192 wide, context 128",
      BERT("4", "6", "192", "768", "128", "0.1"),
      { USUAL, .accumulate = 1, .pass = 2048, .schedule = BAUTA_SCHEDULE_COSINE,
        .epsilon = 1e-8, .sequences = 0, .tokens = 4096, .dropout = 0.1f,
        .steps = 1200, .warmup = 120, .rate = 1e-3, .min_rate = 0.0,
        .beta2 = 0.98, .weight_decay = 0.01, .clip = 1.0 } },
};

const bt_preset *bt_preset_at(size_t index)
{
    return index < BT_LEN(presets) ? &presets[index] : NULL;
}
