/* SPDX-License-Identifier: Apache-2.0 */
/* family.c - the known families and their shared functions. */
#include "model/families/family.h"

#include "base/error.h"
#include "model/layer_mask.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const bt_family *const families[] = {
    &bt_family_gpt2,  &bt_family_llama, &bt_family_mistral, &bt_family_qwen2,
    &bt_family_qwen3, &bt_family_bert,  &bt_family_roberta, &bt_family_marian,
    &bt_family_bart,  &bt_family_t5,    &bt_family_gemma2,  &bt_family_gemma3,
    &bt_family_mpt,
};

/* Whether a word is in a list separated by spaces. */
static bool listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    if (length == 0)
        return false;
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void reject_type(bt_config_reader *reader)
{
    char list[192] = "which is not among";
    for (size_t i = 0; i < BT_LEN(families); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, " %s",
                 families[i]->model_type);
    }
    bt_config_reader_reject(reader, "model_type", list);
}

const bt_family *bt_family_find(bt_config_reader *reader)
{
    const char *type = bt_config_reader_string_or(reader, "model_type", "");
    const bt_family *family = NULL;
    for (size_t i = 0; i < BT_LEN(families); i++)
        if (strcmp(families[i]->model_type, type) == 0)
            family = families[i];
    if (!family) {
        reject_type(reader);
        return NULL;
    }
    if (bt_config_reader_list_size(reader, "architectures") == 0)
        return family;
    if (listed(family->architectures,
               bt_config_reader_list_string(reader, "architectures", 0)))
        return family;
    char why[160];
    snprintf(why, sizeof(why), "which is not among %s", family->architectures);
    bt_config_reader_reject(reader, "architectures", why);
    return NULL;
}

bt_act bt_family_activation(bt_config_reader *reader, const char *key,
                            const char *fallback)
{
    static const struct {
        const char *name;
        bt_act act;
    } acts[] = {
        { "relu", BT_ACT_RELU },
        { "gelu", BT_ACT_GELU_ERF },
        { "gelu_new", BT_ACT_GELU_TANH },
        { "gelu_fast", BT_ACT_GELU_TANH },
        { "gelu_pytorch_tanh", BT_ACT_GELU_TANH },
        { "silu", BT_ACT_SILU },
        { "swish", BT_ACT_SILU },
    };
    const char *name = bt_config_reader_string_or(reader, key, fallback);
    for (size_t i = 0; i < BT_LEN(acts); i++)
        if (strcmp(acts[i].name, name) == 0)
            return acts[i].act;
    bt_config_reader_reject(reader, key, "which is not a known activation");
    return BT_ACT_RELU;
}

uint32_t bt_family_padding_token(bt_config_reader *reader)
{
    return (uint32_t)bt_config_reader_size_or(reader, "pad_token_id",
                                              BT_IGNORE_INDEX);
}

void bt_family_check_layer_types(const bt_model_config *config,
                                 bt_config_reader *reader, const char *key)
{
    for (size_t l = 0; l < bt_config_reader_list_size(reader, "layer_types");
         l++) {
        bool window = bt_layer_window(config, l) > 0;
        if (strcmp(bt_config_reader_list_string(reader, "layer_types", l),
                   window ? "sliding_attention" : "full_attention") == 0)
            continue;
        char why[64];
        snprintf(why, sizeof(why), "which differs from %s", key);
        bt_config_reader_reject(reader, "layer_types", why);
        return;
    }
}

enum { NAME_BYTES = 160 };

static void visit_one(const bt_tensor_visitor *visitor, bt_tensor *tensor,
                      int rank, const char *prefix, const char *suffix)
{
    char name[NAME_BYTES + 16];
    if (!tensor->rows)
        return;
    snprintf(name, sizeof(name), "%s%s", prefix, suffix);
    visitor->visit(visitor->user, name, tensor, rank);
}

#define PREFIX_FROM_FORMAT                           \
    char prefix[NAME_BYTES];                         \
    va_list args;                                    \
    va_start(args, format);                          \
    vsnprintf(prefix, sizeof(prefix), format, args); \
    va_end(args)

void bt_visit_matrix(const bt_tensor_visitor *visitor, bt_tensor *tensor,
                     const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    visit_one(visitor, tensor, 2, prefix, "");
}

void bt_visit_vector(const bt_tensor_visitor *visitor, bt_tensor *tensor,
                     const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    visit_one(visitor, tensor, 1, prefix, "");
}

void bt_visit_linear(const bt_tensor_visitor *visitor, bt_linear_params *linear,
                     const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    visit_one(visitor, &linear->w, 2, prefix, ".weight");
    visit_one(visitor, &linear->bias, 1, prefix, ".bias");
}

void bt_visit_norm(const bt_tensor_visitor *visitor, bt_norm_params *norm,
                   const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    visit_one(visitor, &norm->gain, 1, prefix, ".weight");
    visit_one(visitor, &norm->bias, 1, prefix, ".bias");
}
