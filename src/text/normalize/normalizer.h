/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer.h - the "normalizer" of a tokenizer.json, and SentencePiece's
 * normalization: Unicode normal forms, lower case, removed accents, replaced
 * strings. Normalizers run before the text is split. */
#ifndef BT_NORMALIZER_H
#define BT_NORMALIZER_H

#include "text/aligned_text.h"

#include <jansson.h>

typedef struct bt_normalizer bt_normalizer;

/* Parse the value of "normalizer"; *out is NULL for null. `path` names the file
 * in messages. */
bauta_status bt_normalizer_parse(bt_normalizer **out, const json_t *json,
                                 const char *path, bauta_error *err);

/* SentencePiece's normalization: characters are mapped by the longest match of
 * `charsmap` (may be NULL), then white space becomes U+2581. */
typedef struct bt_sentencepiece_normalizer_spec {
    const void *charsmap; /* as stored in the model; copied */
    size_t charsmap_size;
    bool add_dummy_prefix;         /* a space before the text */
    bool remove_extra_whitespaces; /* remove leading, trailing, repeated spaces
                                    */
    bool escape_whitespaces;       /* spaces become U+2581 */
    bool whitespace_as_suffix; /* the dummy space is after the text instead */
    bool language_codes;       /* ">>de<<" at the start is not changed */
    const char *const *user_defined; /* strings that are not changed; copied */
    size_t user_defined_count;
} bt_sentencepiece_normalizer_spec;
bauta_status
bt_normalizer_sentencepiece(bt_normalizer **out,
                            const bt_sentencepiece_normalizer_spec *spec,
                            const char *path, bauta_error *err);
void bt_normalizer_free(bt_normalizer *normalizer);

/* Whether normalizing both parts of a text that is split before white space
 * after ASCII gives the same result as normalizing the whole. */
typedef enum bt_normalizer_scope {
    BT_NORMALIZER_GLOBAL, /* unknown */
    BT_NORMALIZER_LOCAL,  /* yes: each step maps characters or is a normal form
                           */
    BT_NORMALIZER_LOCAL_STRIP /* yes, except for white space at the ends, which
                               * is removed
                               */
} bt_normalizer_scope;
bt_normalizer_scope bt_normalizer_scope_of(const bt_normalizer *normalizer);

/* Rewrite the text; NULL does not change it. */
bauta_status bt_normalizer_run(const bt_normalizer *normalizer,
                               bt_aligned_text *text, bauta_error *err);

#endif
