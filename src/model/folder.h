/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - a model from a Hugging Face folder, and back. */
#ifndef BT_FOLDER_H
#define BT_FOLDER_H

#include "model/families/family.h"

/* How the parameters lie in memory. */
typedef enum bt_load {
    BT_LOAD_MAPPED,  /* float32 stays in the file's mapping, read only */
    BT_LOAD_TRAINED, /* all are copied, and have gradients, which are 0 */
} bt_load;

typedef struct bt_folder {
    const bt_family *family;
    bt_config *config;
    bt_model *model;
    size_t parameters;           /* numbers, each counted once */
    struct bt_weights *weights;  /* keeps the mapping, or NULL */
    size_t floats;               /* in memory */
    float *memory;               /* (floats) what is not in the mapping */
    float *grads;                /* (floats) or NULL */
    struct bt_compact *compacts; /* of a compressed model, or NULL */
    void *panels;                /* what they point to */
    char warnings[1024];         /* of loading, a line each */
} bt_folder;

/* Read config.json and the weights, each tensor by its name and shape: one
 * that is missing, too many or of another shape is a sentence. */
bauta_status bt_folder_load(bt_folder **out, const char *path, bt_load load,
                            bauta_error *err);
/* A new model of the config's text, trained from random weights: see init.h. */
bauta_status bt_folder_create(bt_folder **out, const char *config, size_t size,
                              uint64_t seed, bauta_error *err);
void bt_folder_free(bt_folder *folder);

/* A stored tensor by its name, or by the shorter one that files without a head
 * have: "h.0.ln_1.weight" for "transformer.h.0.ln_1.weight"; or NULL. */
const struct bt_stored *bt_folder_stored(const bt_folder *folder,
                                         const char *name);

/* Visit every stored parameter: its name there, and where it is. */
void bt_folder_names(bt_folder *folder, const bt_names *names);

#endif
