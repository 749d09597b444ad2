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

#define T5                                                            \
    "\"d_model\": 64, \"d_kv\": 16, \"num_heads\": 4, \"d_ff\": 96, " \
    "\"num_layers\": 2, \"num_decoder_layers\": 3, "                  \
    "\"vocab_size\": 300, \"n_positions\": 128, "                     \
    "\"relative_attention_num_buckets\": 8, "                         \
    "\"relative_attention_max_distance\": 20, "                       \
    "\"pad_token_id\": 0, \"decoder_start_token_id\": 0, "
#define GEMMA                                                 \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, "       \
    "\"num_key_value_heads\": 2, \"head_dim\": 32, "          \
    "\"num_hidden_layers\": 3, \"intermediate_size\": 160, "  \
    "\"vocab_size\": 300, \"max_position_embeddings\": 128, " \
    "\"query_pre_attn_scalar\": 32, \"sliding_window\": 20, " \
    "\"hidden_activation\": \"gelu_pytorch_tanh\", "          \
    "\"initializer_range\": 0.1, "

static const struct {
    const char *family, *config;
} tiny_models[] = {
    { "gpt2", "{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 3, "
              "\"n_layer\": 2, \"vocab_size\": 301, \"n_positions\": 128, "
              "\"initializer_range\": 0.1}" },
    { "llama", "{" LLAMA "\"model_type\": \"llama\"}" },
    // Wide enough for products that end with sums and gates.
    { "llama_wide", "{\"model_type\": \"llama\", \"hidden_size\": 2048, "
                    "\"num_attention_heads\": 32, "
                    "\"num_key_value_heads\": 8, "
                    "\"num_hidden_layers\": 2, "
                    "\"intermediate_size\": 2048, \"vocab_size\": 300, "
                    "\"max_position_embeddings\": 128}" },
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
    { "t5", "{" T5 "\"model_type\": \"t5\"}" },
    { "t5_gated", "{" T5 "\"model_type\": \"t5\", "
                  "\"feed_forward_proj\": \"gated-gelu\", "
                  "\"tie_word_embeddings\": false}" },
    { "gemma2", "{" GEMMA "\"model_type\": \"gemma2\", "
                "\"attn_logit_softcapping\": 5, "
                "\"final_logit_softcapping\": 3}" },
    { "gemma3", "{" GEMMA "\"model_type\": \"gemma3_text\", "
                "\"attn_logit_softcapping\": 5}" },
    { "mpt", "{\"model_type\": \"mpt\", \"d_model\": 64, \"n_heads\": 4, "
             "\"n_layers\": 3, "
             "\"vocab_size\": 300, \"max_seq_len\": 128, "
             "\"no_bias\": true, \"attn_config\": {\"alibi\": true}, "
             "\"initializer_range\": 0.1}" },
};

#define TINY_MODELS (sizeof(tiny_models) / sizeof(tiny_models[0]))

#endif
