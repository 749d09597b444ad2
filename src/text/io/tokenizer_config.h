/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_config.h - tokenizer_config.json of a model folder.
 *
 * A tokenizer.json is complete. For the older formats the class of the
 * tokenizer defines the special tokens and the template; tokenizer_config.json
 * names the class, or else the model_type of config.json does. */
#ifndef BT_TOKENIZER_CONFIG_H
#define BT_TOKENIZER_CONFIG_H

#include "text/io/tokenizer_json.h"

/* The members of tokenizer_config.json that name the special tokens. */
extern const char *const bt_special_token_keys[BAUTA_TOKEN_COUNT];

/* The classes of transformers and how they differ. */
typedef struct bt_tokenizer_class {
    const char *name;       /* the name in transformers, without "Fast" */
    const char *model_type; /* of config.json */
    const char *special_tokens[BAUTA_TOKEN_COUNT]; /* defaults */
    bool bos, eos;                                 /* added to a text */
    bool cls_sep;                                  /* [CLS] A [SEP] B [SEP] */
    bool roberta_pair;  /* as RoBERTa: <s> A </s></s> B </s> */
    unsigned sentinels; /* <extra_id_0>, ..., unless "extra_ids" gives the
                           number */
} bt_tokenizer_class;

extern const bt_tokenizer_class bt_tokenizer_class_none;
/* The class of a known model_type. */
const bt_tokenizer_class *bt_tokenizer_class_of(const char *model_type);

typedef struct bt_tokenizer_config {
    const char *path;
    json_t *config;                  /* tokenizer_config.json, or NULL */
    const bt_tokenizer_class *class; /* or &bt_tokenizer_class_none */
} bt_tokenizer_config;

/* Release config with json_decref(), also after a failure. */
bauta_status bt_tokenizer_config_init(bt_tokenizer_config *settings,
                                      const char *path, bauta_error *err);

/* The text of a special token, or NULL. */
const char *
bt_tokenizer_config_special_token(const bt_tokenizer_config *settings,
                                  bauta_special_token name);
/* A boolean of tokenizer_config.json. */
bool bt_tokenizer_config_bool(const bt_tokenizer_config *settings,
                              const char *key, bool fallback);
/* Set the special tokens of a tokenizer. */
void bt_tokenizer_config_apply_special_tokens(
    bauta_tokenizer *tokenizer, const bt_tokenizer_config *settings);

/* Read a file of a folder, NUL-terminated, for bt_free(); *out is NULL if there
 * is none. More than `limit` bytes are an error. And the same as JSON. */
bauta_status bt_tokenizer_folder_read(char **out, size_t *size,
                                      const char *path, const char *name,
                                      size_t limit, bauta_error *err);
bauta_status bt_tokenizer_folder_read_json(json_t **out, const char *path,
                                           const char *name, bauta_error *err);

/* ---- Completing the older formats ---------------------------------------- */

/* Build a tokenizer from bt_tokenizer_json_init_gpt2() or _bert(), with the
 * added tokens and the template of the folder. */
bauta_status bt_tokenizer_config_build(bauta_tokenizer **out,
                                       bt_tokenizer_json *document,
                                       const bt_tokenizer_config *settings,
                                       bauta_error *err);
/* Complete a tokenizer of a SentencePiece model. */
bauta_status
bt_tokenizer_config_complete_sentencepiece(bauta_tokenizer *tokenizer,
                                           const bt_tokenizer_config *settings,
                                           const char *path, bauta_error *err);

#endif
