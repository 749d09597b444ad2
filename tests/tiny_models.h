/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_models.h - model folders of a few thousand parameters, one of each
 * family, written by the test itself. */
#ifndef BT_TEST_TINY_MODELS_H
#define BT_TEST_TINY_MODELS_H

#include "base/error.h"
#include "base/size.h"
#include "formats/safetensors.h"
#include "model/model_store.h"
#include "temp_folder.h"

#include <sys/stat.h>

typedef struct tiny {
    const char *name;
    const char *config;
} tiny;

#define TINY_LLAMA                                               \
    "\"hidden_size\": 16, \"num_attention_heads\": 4, "          \
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 3, "     \
    "\"intermediate_size\": 24, \"vocab_size\": 40, "            \
    "\"max_position_embeddings\": 96, \"rms_norm_eps\": 1e-05, " \
    "\"dtype\": \"float32\", "
#define TINY_BERT                                           \
    "\"hidden_size\": 16, \"num_attention_heads\": 2, "     \
    "\"num_hidden_layers\": 2, \"intermediate_size\": 24, " \
    "\"vocab_size\": 40, \"max_position_embeddings\": 98, " \
    "\"pad_token_id\": 1, \"dtype\": \"float32\", "
#define TINY_BART                                                      \
    "\"d_model\": 16, \"encoder_layers\": 2, \"decoder_layers\": 3, "  \
    "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, " \
    "\"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 20, "               \
    "\"vocab_size\": 40, \"max_position_embeddings\": 96, "            \
    "\"pad_token_id\": 39, \"decoder_start_token_id\": 39, "           \
    "\"scale_embedding\": true, "                                      \
    "\"dtype\": \"float32\", "

static const tiny tinies[] = {
    { "gpt2", "{\"n_embd\": 16, \"n_head\": 2, \"n_layer\": 2, "
              "\"vocab_size\": 40, \"n_positions\": 96, "
              "\"model_type\": \"gpt2\", "
              "\"architectures\": [\"GPT2LMHeadModel\"]}" },
    { "llama", "{" TINY_LLAMA "\"model_type\": \"llama\", "
               "\"architectures\": [\"LlamaForCausalLM\"]}" },
    { "mistral", "{" TINY_LLAMA "\"model_type\": \"mistral\", "
                 "\"sliding_window\": 4}" },
    { "qwen2", "{" TINY_LLAMA "\"model_type\": \"qwen2\", "
               "\"use_sliding_window\": true, \"sliding_window\": 3, "
               "\"max_window_layers\": 1}" },
    { "qwen3", "{" TINY_LLAMA "\"model_type\": \"qwen3\", \"head_dim\": 8, "
               "\"tie_word_embeddings\": true}" },
    { "bert", "{" TINY_BERT "\"model_type\": \"bert\", "
              "\"architectures\": [\"BertForMaskedLM\"]}" },
    { "roberta", "{" TINY_BERT "\"model_type\": \"roberta\", "
                 "\"type_vocab_size\": 1}" },
    { "marian", "{" TINY_BART "\"model_type\": \"marian\", "
                "\"architectures\": [\"MarianMTModel\"]}" },
    { "bart", "{" TINY_BART "\"model_type\": \"bart\"}" },
    { "t5", "{\"d_model\": 16, \"num_layers\": 2, \"num_decoder_layers\": 3, "
            "\"num_heads\": 2, \"d_kv\": 6, \"d_ff\": 24, "
            "\"vocab_size\": 40, \"n_positions\": 96, "
            "\"relative_attention_num_buckets\": 8, "
            "\"relative_attention_max_distance\": 10, "
            "\"pad_token_id\": 39, \"decoder_start_token_id\": 39, "
            "\"dtype\": \"float32\", \"model_type\": \"t5\"}" },
    { "gemma2", "{" TINY_LLAMA "\"model_type\": \"gemma2\", \"head_dim\": 8, "
                "\"sliding_window\": 4, \"query_pre_attn_scalar\": 6, "
                "\"attn_logit_softcapping\": 5.0, "
                "\"final_logit_softcapping\": 8.0}" },
    { "gemma3_text", "{" TINY_LLAMA "\"model_type\": \"gemma3_text\", "
                     "\"head_dim\": 8, \"sliding_window\": 4, "
                     "\"sliding_window_pattern\": 2}" },
    { "mpt", "{\"d_model\": 16, \"n_heads\": 4, \"n_layers\": 2, "
             "\"vocab_size\": 40, \"max_seq_len\": 96, "
             "\"dtype\": \"float32\", \"model_type\": \"mpt\"}" },
};

enum { TINY_TENSORS = 128 };

/* The tensors of a model with random numbers in them. */
typedef struct tiny_weights {
    test_random r;
    bt_stored_tensor tensors[TINY_TENSORS];
    char names[TINY_TENSORS][96];
    size_t count;
} tiny_weights;

static inline void tiny_name(void *user, const char *name, bt_tensor *t,
                             int rank)
{
    tiny_weights *w = user;
    size_t count = t->rows * t->columns;
    float *data = malloc(count * sizeof(float));
    assert_non_null(data);
    assert_true(w->count < TINY_TENSORS);
    bool gain = strstr(name, "norm") && strstr(name, "weight");
    for (size_t i = 0; i < count; i++)
        data[i] = test_float(&w->r) * 0.5f + (gain ? 1.0f : 0.0f);
    snprintf(w->names[w->count], sizeof(w->names[0]), "%s", name);
    w->tensors[w->count] = (bt_stored_tensor){
        .name = w->names[w->count],
        .dtype = BAUTA_FLOAT32,
        .rank = (unsigned)rank,
        .shape = { rank == 1 ? t->columns : t->rows, t->columns },
        .data = data,
        .bytes = count * sizeof(float),
    };
    w->count++;
}

static inline void tiny_weights_init(tiny_weights *w, const char *folder)
{
    bt_config_reader *config = NULL;
    bt_model *model = NULL;
    bt_model_config model_config = { 0 };
    bauta_error err;
    w->count = 0;
    w->r = test_random_from(7);
    if (bt_config_reader_load(&config, folder, &err))
        fail_msg("%s", err.message);
    const bt_family *family = bt_family_find(config);
    assert_non_null(family);
    family->read_config(&model_config, config);
    if (bt_config_reader_status(config, &err))
        fail_msg("%s", err.message);
    assert_int_equal(bt_model_create(&model, &model_config, NULL), 0);
    family->visit_tensors(model, &(bt_tensor_visitor){ tiny_name, w });
    bt_model_free(model);
    bt_config_reader_free(config);
}

static inline void tiny_weights_release(tiny_weights *w)
{
    for (size_t i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    w->count = 0;
}

static inline void tiny_file(const char *folder, const char *name,
                             const void *bytes, size_t size)
{
    char path[600];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_true(length > 0 && (size_t)length < sizeof(path));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Write a folder into the temporary folder; its path is in `path`. */
static inline void tiny_write(temp_folder *s, const tiny *t, char path[512])
{
    static tiny_weights w;
    char file[600];
    snprintf(path, 512, "%s", temp_folder_path(s, t->name));
    int length = snprintf(file, sizeof(file), "%s/model.safetensors", path);
    assert_true(length > 0 && (size_t)length < sizeof(file));
    assert_int_equal(mkdir(path, 0777), 0);
    tiny_file(path, "config.json", t->config, strlen(t->config));
    tiny_weights_init(&w, path);
    assert_int_equal(
        bt_safetensors_write(file, w.tensors, w.count, NULL, 0, NULL), 0);
    tiny_weights_release(&w);
}

#endif
