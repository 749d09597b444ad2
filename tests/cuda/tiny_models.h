/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_models.h - a small model of every family, for checks on a GPU. */
#ifndef BT_TEST_CUDA_TINY_MODELS_H
#define BT_TEST_CUDA_TINY_MODELS_H

#define LLAMA                                                     \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "           \
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 3, "      \
    "\"intermediate_size\": 160, \"vocab_size\": 300, "           \
    "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-05, " \
    "\"initializer_range\": 0.1, "
#define BERT                                                  \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "       \
    "\"num_hidden_layers\": 2, \"intermediate_size\": 160, "  \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, " \
    "\"pad_token_id\": 1, \"initializer_range\": 0.1, "
#define BART                                                           \
    "\"d_model\": 64, \"encoder_layers\": 2, \"decoder_layers\": 3, "  \
    "\"encoder_attention_heads\": 4, \"decoder_attention_heads\": 4, " \
    "\"encoder_ffn_dim\": 160, \"decoder_ffn_dim\": 96, "              \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, "          \
    "\"pad_token_id\": 299, \"decoder_start_token_id\": 299, "         \
    "\"scale_embedding\": true, \"init_std\": 0.1, "

static const struct {
    const char *family, *config;
} tiny_models[] = {
    { "gpt2", "{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 3, "
              "\"n_layer\": 2, \"vocab_size\": 301, \"n_positions\": 128, "
              "\"initializer_range\": 0.1}" },
    { "llama", "{" LLAMA "\"model_type\": \"llama\"}" },
    { "mistral", "{" LLAMA "\"model_type\": \"mistral\", "
                 "\"sliding_window\": 20}" },
    { "qwen2", "{" LLAMA "\"model_type\": \"qwen2\", "
               "\"use_sliding_window\": true, \"sliding_window\": 15, "
               "\"max_window_layers\": 1}" },
    { "qwen3", "{" LLAMA "\"model_type\": \"qwen3\", \"head_dim\": 32, "
               "\"tie_word_embeddings\": true}" },
    { "bert", "{" BERT "\"model_type\": \"bert\"}" },
    { "roberta", "{" BERT "\"model_type\": \"roberta\", "
                 "\"type_vocab_size\": 1}" },
    { "marian", "{" BART "\"model_type\": \"marian\"}" },
    { "bart", "{" BART "\"model_type\": \"bart\"}" },
};

#define TINY_MODELS (sizeof(tiny_models) / sizeof(tiny_models[0]))

#endif
