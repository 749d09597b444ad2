/* SPDX-License-Identifier: Apache-2.0 */
/* phrases.h - the lists in a model's settings for which options have no room:
 * texts that end a text, and words that may not come.
 *
 * Options point into them, so they live as long as the model. */
#ifndef BT_PHRASES_H
#define BT_PHRASES_H

#include "bauta.h"

typedef struct bt_phrases {
    size_t stop_count;
    const char *const *stops; /* none is empty */
    size_t bad_count;
    const bauta_word *bad; /* of the vocabulary */
    bauta_error wrong;     /* what is wrong with them, if anything: a model is
                              of use without its settings */
} bt_phrases;

/* Those of a generation_config.json, or of a config.json where the first is
 * NULL; for bt_free(). A text that is no JSON has none, which whoever reads the
 * rest of it will say. Words with a token that the vocabulary does not have
 * never come, and are left out. */
bauta_status bt_phrases_read(bt_phrases **out, const char *generation,
                             size_t generation_size, const char *config,
                             size_t config_size, size_t vocab,
                             bauta_error *err);

#endif
