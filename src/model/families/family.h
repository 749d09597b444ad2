/* SPDX-License-Identifier: Apache-2.0 */
/* family.h - a model family: how it reads config.json and visitor its tensors.
 */
#ifndef BT_FAMILY_H
#define BT_FAMILY_H

#include "model/config_reader.h"
#include "model/model.h"

/* Called with every stored parameter and its name in the file. `rank` is 1 for
 * a vector (one row) and 2 for a matrix. */
typedef struct bt_tensor_visitor {
    void (*visit)(void *user, const char *name, bt_tensor *tensor, int rank);
    void *user;
} bt_tensor_visitor;

typedef struct bt_family {
    const char *model_type;    /* in config.json */
    const char *architectures; /* supported ones, separated by spaces; the first
                                  is written to saved configs */
    void (*read_config)(bt_model_config *config, bt_config_reader *reader);
    void (*visit_tensors)(bt_model *model, const bt_tensor_visitor *visitor);
} bt_family;

extern const bt_family bt_family_gpt2, bt_family_llama, bt_family_mistral,
    bt_family_qwen2, bt_family_qwen3, bt_family_bert, bt_family_roberta,
    bt_family_marian, bt_family_bart, bt_family_t5, bt_family_gemma2,
    bt_family_gemma3, bt_family_mpt;

/* The family of a config. NULL if it is unknown; the reader's error then lists
 * the known ones. */
const bt_family *bt_family_find(bt_config_reader *reader);

/* ---- shared by the families -------------------------------------------- */

/* The activation with this name in transformers. */
bt_act bt_family_activation(bt_config_reader *reader, const char *key,
                            const char *fallback);

/* The padding token, or BT_IGNORE_INDEX if the config has none. */
uint32_t bt_family_padding_token(bt_config_reader *reader);

/* Newer files also list the kind of each layer, and transformers uses the list.
 * Reject one that differs from the config, which `key` decides. */
void bt_family_check_layer_types(const bt_model_config *config,
                                 bt_config_reader *reader, const char *key);

/* Visit a parameter, whose name is given by a format. A parameter that the
 * model does not have is skipped. */
void bt_visit_matrix(const bt_tensor_visitor *visitor, bt_tensor *tensor,
                     const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bt_visit_vector(const bt_tensor_visitor *visitor, bt_tensor *tensor,
                     const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "<prefix>.weight" and "<prefix>.bias". */
void bt_visit_linear(const bt_tensor_visitor *visitor, bt_linear_params *linear,
                     const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bt_visit_norm(const bt_tensor_visitor *visitor, bt_norm_params *norm,
                   const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
