/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - tokenizer_config.json and config.json; see settings.h. */
#include "text/settings.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <string.h>

static const char *const name_keys[BAUTA_TOKEN_NAMES] = {
    [BAUTA_TOKEN_BOS] = "bos_token",   [BAUTA_TOKEN_EOS] = "eos_token",
    [BAUTA_TOKEN_UNK] = "unk_token",   [BAUTA_TOKEN_PAD] = "pad_token",
    [BAUTA_TOKEN_CLS] = "cls_token",   [BAUTA_TOKEN_SEP] = "sep_token",
    [BAUTA_TOKEN_MASK] = "mask_token",
};

static const bt_class classes[] = {
    { "GPT2Tokenizer",
      "gpt2",
      { "<|endoftext|>", "<|endoftext|>", "<|endoftext|>" },
      .bos = false },
    { "RobertaTokenizer",
      "roberta",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .pair = true },
    { "BartTokenizer",
      "bart",
      { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .pair = true },
    { "BertTokenizer",
      "bert",
      { NULL, NULL, "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]" },
      .cls = true },
    { "LlamaTokenizer", "llama", { "<s>", "</s>", "<unk>" }, .bos = true },
    { "T5Tokenizer", "t5", { NULL, "</s>", "<unk>", "<pad>" }, .eos = true },
    { "AlbertTokenizer",
      "albert",
      { "[CLS]", "[SEP]", "<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]" },
      .cls = true },
    { "MarianTokenizer",
      "marian",
      { NULL, "</s>", "<unk>", "<pad>" },
      .eos = true },
};
const bt_class bt_no_class = { 0 };

const bt_class *bt_class_of(const char *model_type)
{
    for (size_t i = 0; i < BT_LEN(classes); i++)
        if (!strcmp(classes[i].model_type, model_type))
            return &classes[i];
    return &bt_no_class;
}

bauta_status bt_settings_file(char **out, size_t *size, const char *path,
                              const char *name, size_t limit, bauta_error *err)
{
    *out = NULL;
    *size = 0;
    char *joined = bt_path_join(path, name);
    if (!joined)
        return bt_fail_memory(err, "a path", strlen(path));
    bauta_status status = BAUTA_OK;
    if (bt_file_exists(joined))
        status = bt_file_read(out, size, joined, limit, err);
    bt_free(joined);
    return status;
}

bauta_status bt_settings_json(json_t **out, const char *path, const char *name,
                              bauta_error *err)
{
    char *text;
    size_t size;
    *out = NULL;
    bauta_status status = bt_settings_file(&text, &size, path, name,
                                           BT_TOKENIZER_CONFIG_MAX, err);
    char *joined = text ? bt_path_join(path, name) : NULL;
    const char *shown = joined ? bt_path_tail(joined) : name;
    // transformers writes a model_max_length of 10^30 for "any".
    unsigned reals = strcmp(name, "tokenizer_config.json") ? 0 : BT_JSON_REALS;
    if (!status && text)
        status =
            bt_json_object(out, text, size, BT_JSON_NUL | reals, shown, err);
    bt_free(joined);
    bt_free(text);
    return status;
}

static bool same_class(const char *class, const char *is)
{
    size_t n = strlen(is);
    return class && !strncmp(class, is, n) &&
           (!class[n] || !strcmp(class + n, "Fast"));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

bauta_status bt_settings_init(bt_settings *f, const char *path,
                              bauta_error *err)
{
    json_t *model = NULL;
    *f = (bt_settings){ .path = path, .class = &bt_no_class };
    bauta_status status =
        bt_settings_json(&f->config, path, "tokenizer_config.json", err);
    if (!status)
        status = bt_settings_json(&model, path, "config.json", err);
    const char *class = text_of(f->config, "tokenizer_class");
    const char *type = text_of(model, "model_type");
    for (size_t i = 0; i < BT_LEN(classes); i++)
        if (class ? same_class(class, classes[i].class)
                  : type && !strcmp(type, classes[i].model_type))
            f->class = &classes[i];
    json_decref(model);
    return status;
}

const char *bt_settings_name(const bt_settings *f, bauta_token_name name)
{
    const json_t *value = json_object_get(f->config, name_keys[name]);
    if (!value)
        return f->class->names[name];
    if (json_is_object(value))
        value = json_object_get(value, "content");
    return json_string_value(value);
}

bool bt_settings_flag(const bt_settings *f, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(f->config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

void bt_settings_names(bauta_tokenizer *t, const bt_settings *f)
{
    for (unsigned i = 0; i < BAUTA_TOKEN_NAMES; i++) {
        const char *piece = bt_settings_name(f, (bauta_token_name)i);
        uint32_t id =
            piece ? bt_vocab_find(t->vocab, piece, strlen(piece)) : BT_NO_ID;
        if (id != BT_NO_ID)
            t->names[i] = id;
    }
}
