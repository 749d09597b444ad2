/* SPDX-License-Identifier: Apache-2.0 */
/* model_store.h - a model's parameters and the memory that holds them, loaded
 * from a Hugging Face store or created from a config. */
#ifndef BT_FOLDER_H
#define BT_FOLDER_H

#include "base/size.h"
#include "model/families/family.h"

/* Where the parameters are kept. */
typedef enum bt_load_mode {
    BT_LOAD_MAPPED,    /* float32 stays in the mapped file, read-only */
    BT_LOAD_TRAINABLE, /* all are copied and have gradients, which start at 0 */
    BT_LOAD_DEFERRED   /* they stay in the files, whatever their type, until
                          bauta_model_to() moves them to a device */
} bt_load_mode;

typedef struct bt_model_store {
    const bt_family *family;
    bt_config_reader *reader;
    bt_model *model;
    size_t parameters;               /* tied ones count once */
    struct bt_weight_files *files;   /* the mapped files, or NULL */
    bt_stream *stream;               /* of the device; NULL: the CPU */
    size_t floats;                   /* of the two buffers below */
    bt_buffer weights;               /* parameters that are not mapped */
    bt_buffer copies;                /* the same, rounded to `dtype`: what the
                                        model computes with; or empty */
    bauta_dtype dtype;               /* of the parameters */
    bt_buffer grads;                 /* of the same layout, or empty */
    bt_buffer *mapped;               /* one for each tensor in a mapped file */
    struct bt_packed_weight *packed; /* packed matrices, or NULL */
    void *panels;                    /* the data of the packed matrices */
    char warnings[1024];             /* from loading, one per line */
} bt_model_store;

/* Floats of a parameter in the buffer of weights: each begins at a multiple of
 * 64 bytes. */
static inline size_t bt_tensor_floats(const bt_tensor *t)
{
    return bt_size_round(bt_size_mul(t->rows, t->columns), 16);
}

/* Read config.json and the weights. A tensor that is missing, unexpected or of
 * another shape is an error that names it. */
bauta_status bt_model_store_load(bt_model_store **out, const char *path,
                                 bt_load_mode load, bauta_error *err);
/* Create a trainable model from the text of a config.json, with random weights
 * (see init_weights.h). */
bauta_status bt_model_store_create(bt_model_store **out, const char *config,
                                   size_t size, uint64_t seed,
                                   bauta_error *err);
void bt_model_store_free(bt_model_store *store);

/* Find a stored tensor by its name, or by the shorter name that files without a
 * head use: "h.0.ln_1.weight" for "transformer.h.0.ln_1.weight". NULL if there
 * is none. */
const struct bt_stored_tensor *bt_model_store_find(const bt_model_store *store,
                                                   const char *name);

/* Round the weights again, after they were changed other than by the
 * optimizer. */
bauta_status bt_model_store_round(bt_model_store *store, bauta_error *err);

/* Visit every parameter with the name that it has in files. */
void bt_model_store_visit(bt_model_store *store,
                          const bt_tensor_visitor *names);

#endif
