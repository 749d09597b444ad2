/* SPDX-License-Identifier: Apache-2.0 */
/* generation_lists.h - the lists of any length in a generation_config.json:
 * stop_strings and bad_words_ids.
 *
 * Generation options point into them, so they live as long as the model. */
#ifndef BT_GENERATION_LISTS_H
#define BT_GENERATION_LISTS_H

#include "bauta.h"

typedef struct bt_generation_lists {
    size_t stop_count;
    const char *const *stop_strings; /* none is empty */
    size_t bad_word_count;
    const bauta_token_seq *bad_words; /* all tokens are in the vocabulary */
    bauta_error error; /* an invalid list; reported when options are loaded,
                          since the model is usable without them */
} bt_generation_lists;

/* Read the lists of a generation_config.json, or of a config.json where the
 * first is NULL; for bt_free(). A text that is not JSON has no lists; its
 * reader reports the error. Bad words with a token outside of the vocabulary
 * cannot occur and are left out. */
bauta_status bt_generation_lists_read(bt_generation_lists **out,
                                      const char *generation,
                                      size_t generation_size,
                                      const char *config, size_t config_size,
                                      size_t vocab, bauta_error *err);

#endif
