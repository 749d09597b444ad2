/* SPDX-License-Identifier: Apache-2.0 */
/* double.h - a model's double: it shares the weights, and parts of it can be
 * exchanged.
 *
 * Tables with NaN in them, stacks cut short, heads taken out: all of it is done
 * to a double, which runs through the same calls as the model does. */
#ifndef BT_DOUBLE_H
#define BT_DOUBLE_H

#include "model/handle.h"

enum { BT_DOUBLE_OWNED = 16 };

typedef struct bt_double {
    bauta_model handle; /* what calls take */
    bt_folder folder;
    bt_model model;
    const bt_model *original;
    bt_layer *layers[2];          /* of encoder and decoder */
    void *owned[BT_DOUBLE_OWNED]; /* what was exchanged */
    size_t owned_count;
    float *zeros; /* (zero_count) one of them */
    size_t zero_count;
} bt_double;

/* It is moved nowhere: it points into itself. */
bauta_status bt_double_init(bt_double *d, const bauta_model *model,
                            bauta_error *err);
void bt_double_release(bt_double *d);

/* Nothing of a compressed model is learned. */
static inline bool bt_double_learns(const bt_double *d)
{
    return !d->folder.compacts;
}

/* The embedding of a token as the table has it. */
void bt_embedding_read(const bt_model *model, uint32_t id, float *to);

/* Only the first so many layers of each stack. */
void bt_double_cut(bt_double *d, size_t encoder, size_t decoder);

/* Another token table, of `rows` rows, which are to be written; the head stays
 * as it was. With `learns` it has gradients, which are 0, and is all that the
 * double learns. */
bauta_status bt_double_table(bt_double *d, size_t rows, bool learns,
                             bauta_error *err);
static inline float *bt_double_row(const bt_double *d, size_t row)
{
    return d->model.tokens.data + row * d->model.tokens.stride;
}
/* Row `row` becomes that of a token of the model. */
void bt_double_copy(bt_double *d, size_t row, uint32_t id);
void bt_double_poison(bt_double *d, size_t row);

/* A head that gives NaN. */
bauta_status bt_double_poison_head(bt_double *d, bauta_error *err);

/* What one layer adds by attention: of one head alone, or, for SIZE_MAX, of
 * none. */
bauta_status bt_double_silence(bt_double *d, bt_heads *heads,
                               const bt_stack_print *stack, size_t but,
                               bauta_error *err);
/* All visible keys get the same weight, and what comes of their values is
 * certain to be seen behind the layer, whatever the model has learned. */
bauta_status bt_double_even(bt_double *d, bt_heads *heads, bauta_error *err);

/* Every parameter gets a gradient of its own, which is 0; *count numbers in
 * all, one behind the other. */
bauta_status bt_double_learn(bt_double *d, float **gradients, size_t *count,
                             bauta_error *err);

#endif
