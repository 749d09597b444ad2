/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_config.h - what a folder says of its tokenizer beside the
 * vocabulary.
 *
 * A tokenizer.json says everything itself. With the older formats the class of
 * the tokenizer decides what is put around a text and which tokens are special;
 * tokenizer_config.json names it, or else the model_type of config.json. */
#ifndef BT_TOKENIZER_CONFIG_H
#define BT_TOKENIZER_CONFIG_H

#include "text/io/tokenizer_json.h"

/* How the classes of tokenizers differ. */
typedef struct bt_class {
    const char *class;      /* as transformers calls it, without "Fast" */
    const char *model_type; /* of config.json */
    const char *names[BAUTA_TOKEN_NAMES]; /* unless the folder says otherwise */
    bool bos, eos;                        /* put around a text */
    bool cls;  /* [CLS] A [SEP] B [SEP] is put around */
    bool pair; /* as RoBERTa: <s> A </s></s> B </s> */
} bt_class;

extern const bt_class bt_no_class;
/* The class of a model_type, which must be known. */
const bt_class *bt_class_of(const char *model_type);

typedef struct bt_settings {
    const char *path;
    json_t *config;        /* tokenizer_config.json; NULL where there is none */
    const bt_class *class; /* or &bt_no_class */
} bt_settings;

/* Release config with json_decref(), after a failure too. */
bauta_status bt_settings_init(bt_settings *settings, const char *path,
                              bauta_error *err);

/* What a folder calls its token of a name; NULL where it has none. */
const char *bt_settings_name(const bt_settings *settings,
                             bauta_token_name name);
/* A switch of tokenizer_config.json. */
bool bt_settings_flag(const bt_settings *settings, const char *key,
                      bool otherwise);
/* The tokenizer's names become those of the folder. */
void bt_settings_names(bauta_tokenizer *tokenizer, const bt_settings *settings);

/* A file of a folder, with a NUL at its end, for bt_free(); NULL, without a
 * failure, where there is none. More than `limit` bytes are refused. And the
 * same, as JSON. */
bauta_status bt_settings_file(char **out, size_t *size, const char *path,
                              const char *name, size_t limit, bauta_error *err);
bauta_status bt_settings_json(json_t **out, const char *path, const char *name,
                              bauta_error *err);

/* ---- completing what the older formats lack ------------------------------ */

/* A tokenizer from a document of bt_document_init_gpt2() or _bert(), with the
 * folder's added tokens and template. */
bauta_status bt_complete_document(bauta_tokenizer **out, bt_document *document,
                                  const bt_settings *settings,
                                  bauta_error *err);
/* The same for a SentencePiece model that was loaded. */
bauta_status bt_complete_sentencepiece(bauta_tokenizer *tokenizer,
                                       const bt_settings *settings,
                                       const char *path, bauta_error *err);

#endif
