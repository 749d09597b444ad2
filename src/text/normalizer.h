/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.h - what is done to a text before it is cut: Unicode normal forms,
 * lower case, accents removed, strings replaced; the "normalizer" of a
 * tokenizer.json, and SentencePiece's normalisation. */
#ifndef BT_NORMALIZER_H
#define BT_NORMALIZER_H

#include "text/text.h"

#include <jansson.h>

typedef struct bt_normalizer bt_normalizer;

/* From the value of "normalizer"; *out is NULL for null. `path` names the file
 * in sentences. */
bauta_status bt_normalizer_parse(bt_normalizer **out, const json_t *json,
                                 const char *path, bauta_error *err);

/* SentencePiece's own normalisation: characters mapped by the longest match of
 * `charsmap` (may be NULL: none), then white space made into U+2581. */
typedef struct bt_sentencepiece_norm {
    const void *charsmap; /* as stored in the model; copied */
    size_t charsmap_size;
    bool dummy_prefix;       /* a space before the text */
    bool remove_extra;       /* leading, trailing and repeated spaces go */
    bool escape;             /* spaces become U+2581 */
    bool suffix;             /* the dummy space goes behind the text instead */
    bool codes;              /* ">>de<<" at the beginning passes as it is */
    const char *const *kept; /* strings that pass as they are; copied */
    size_t kept_count;
} bt_sentencepiece_norm;
bauta_status bt_normalizer_sentencepiece(bt_normalizer **out,
                                         const bt_sentencepiece_norm *spec,
                                         const char *path, bauta_error *err);
void bt_normalizer_free(bt_normalizer *normalizer);

/* What is known of a text that is cut in two before white space that follows
 * ASCII: whether both parts become what the whole would. */
typedef enum bt_locality {
    BT_LOCAL_NOT, /* nothing */
    BT_LOCAL,     /* they do: every step maps characters, or is a normal form */
    BT_LOCAL_STRIP /* they do, but for white space at their ends, which goes */
} bt_locality;
bt_locality bt_normalizer_locality(const bt_normalizer *normalizer);

/* Rewrite the text; NULL leaves it as it is. */
bauta_status bt_normalizer_run(const bt_normalizer *normalizer, bt_text *text,
                               bauta_error *err);

#endif
