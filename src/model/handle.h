/* SPDX-License-Identifier: Apache-2.0 */
/* handle.h - what callers of bauta.h hold: a folder's model with its tensors
 * in a list, and what saving it again needs. */
#ifndef BT_HANDLE_H
#define BT_HANDLE_H

#include "base/directory.h"
#include "model/folder.h"
#include "model/phrases.h"

typedef struct bt_entry {
    const char *name;
    bt_tensor *tensor;
    int rank;
} bt_entry;

struct bauta_model {
    bt_folder *folder;
    bool trainable;
    bauta_weights weights;
    size_t count;
    bt_entry *entries; /* (count) in the order of the family */
    char *names;       /* of the entries, one behind the other */
    char *generation;  /* generation_config.json, or NULL */
    size_t generation_size;
    bt_phrases *phrases; /* of it, or of the config */
};

/* "float32", "bfloat16" or "int8". */
const char *bt_weights_text(bauta_weights weights);

/* The files of a saved model, into a folder that is being written. `others`
 * are weights to write in place of a trainable model's own, as they lie in its
 * memory; NULL: its own. */
bauta_status bt_model_write(const bauta_model *model, const float *others,
                            const bt_directory *to, bauta_error *err);

/* ---- verify.c ---------------------------------------------------------- */

/* Of the names, shapes and numbers of all tensors. */
uint64_t bt_weights_digest(const bauta_model *model);
bauta_status bt_config_digest(uint64_t *digest, const bauta_model *model,
                              bauta_error *err);
/* Whether a model is the one that the trainer.json of its folder was written
 * for; a folder without one is fine. */
bauta_status bt_model_verify(const bauta_model *model, const char *folder,
                             bauta_error *err);

#endif
