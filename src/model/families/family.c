/* SPDX-License-Identifier: Apache-2.0 */
/* family.c - the families that are known, and what they share. */
#include "model/families/family.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const bt_family *const families[] = {
    &bt_family_gpt2,    &bt_family_llama,  &bt_family_mistral,
    &bt_family_qwen2,   &bt_family_qwen3,  &bt_family_bert,
    &bt_family_roberta, &bt_family_marian, &bt_family_bart,
};

/* Whether a word stands in a list separated by blanks. */
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

static void refuse_type(bt_config *config)
{
    char list[128] = "which is not among";
    for (size_t i = 0; i < BT_LEN(families); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, " %s",
                 families[i]->model_type);
    }
    bt_config_refuse(config, "model_type", list);
}

const bt_family *bt_family_find(bt_config *config)
{
    const char *type = bt_config_text_or(config, "model_type", "");
    const bt_family *family = NULL;
    for (size_t i = 0; i < BT_LEN(families); i++)
        if (strcmp(families[i]->model_type, type) == 0)
            family = families[i];
    if (!family) {
        refuse_type(config);
        return NULL;
    }
    if (bt_config_list(config, "architectures") == 0)
        return family;
    if (listed(family->architectures,
               bt_config_list_text(config, "architectures", 0)))
        return family;
    char why[160];
    snprintf(why, sizeof(why), "which is not among %s", family->architectures);
    bt_config_refuse(config, "architectures", why);
    return NULL;
}

bt_act bt_family_act(bt_config *config, const char *key, const char *otherwise)
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
    const char *name = bt_config_text_or(config, key, otherwise);
    for (size_t i = 0; i < BT_LEN(acts); i++)
        if (strcmp(acts[i].name, name) == 0)
            return acts[i].act;
    bt_config_refuse(config, key, "which is not a known activation");
    return BT_ACT_RELU;
}

uint32_t bt_family_padding(bt_config *config)
{
    return (uint32_t)bt_config_size_or(config, "pad_token_id", BT_IGNORE);
}

enum { NAME_BYTES = 160 };

static void name_one(const bt_names *names, bt_tensor *tensor, int rank,
                     const char *prefix, const char *suffix)
{
    char name[NAME_BYTES + 16];
    if (!tensor->rows)
        return;
    snprintf(name, sizeof(name), "%s%s", prefix, suffix);
    names->name(names->user, name, tensor, rank);
}

#define PREFIX_FROM_FORMAT                           \
    char prefix[NAME_BYTES];                         \
    va_list args;                                    \
    va_start(args, format);                          \
    vsnprintf(prefix, sizeof(prefix), format, args); \
    va_end(args)

void bt_name_matrix(const bt_names *names, bt_tensor *tensor,
                    const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    name_one(names, tensor, 2, prefix, "");
}

void bt_name_vector(const bt_names *names, bt_tensor *tensor,
                    const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    name_one(names, tensor, 1, prefix, "");
}

void bt_name_dense(const bt_names *names, bt_dense *dense, const char *format,
                   ...)
{
    PREFIX_FROM_FORMAT;
    name_one(names, &dense->w, 2, prefix, ".weight");
    name_one(names, &dense->bias, 1, prefix, ".bias");
}

void bt_name_scaling(const bt_names *names, bt_scaling *scaling,
                     const char *format, ...)
{
    PREFIX_FROM_FORMAT;
    name_one(names, &scaling->gain, 1, prefix, ".weight");
    name_one(names, &scaling->bias, 1, prefix, ".bias");
}
