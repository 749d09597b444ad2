/* SPDX-License-Identifier: Apache-2.0 */
/* family.h - a family translates its config and its tensor names; nothing
 * else. */
#ifndef BT_FAMILY_H
#define BT_FAMILY_H

#include "model/config.h"
#include "model/model.h"

/* Called with every parameter that a folder stores, by its name there. `rank`
 * is 1 for a vector (one row), 2 for a matrix. */
typedef struct bt_names {
    void (*name)(void *user, const char *name, bt_tensor *tensor, int rank);
    void *user;
} bt_names;

typedef struct bt_family {
    const char *model_type;    /* in config.json */
    const char *architectures; /* those with a head that is known, a list
                                  separated by blanks; the first is written */
    void (*read)(bt_blueprint *print, bt_config *config);
    void (*names)(bt_model *model, const bt_names *names);
} bt_family;

extern const bt_family bt_family_gpt2, bt_family_llama, bt_family_mistral,
    bt_family_qwen2, bt_family_qwen3, bt_family_bert, bt_family_roberta,
    bt_family_marian, bt_family_bart;

/* The family of a config; NULL, and a complaint that lists those that are
 * known, when there is none. */
const bt_family *bt_family_find(bt_config *config);

/* ---- for families ------------------------------------------------------ */

/* The activation by the name that transformers gives it. */
bt_act bt_family_act(bt_config *config, const char *key, const char *otherwise);

/* The padding token, or BT_IGNORE where the config names none. */
uint32_t bt_family_padding(bt_config *config);

/* Name a parameter by a format and up to one number; those that the blueprint
 * does not have are passed over. */
void bt_name_matrix(const bt_names *names, bt_tensor *tensor,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bt_name_vector(const bt_names *names, bt_tensor *tensor,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "<prefix>.weight" and "<prefix>.bias". */
void bt_name_dense(const bt_names *names, bt_dense *dense, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
void bt_name_scaling(const bt_names *names, bt_scaling *scaling,
                     const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
