/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer_step.h - the steps of a normalizer.
 *
 * A step rewrites the whole text. If nothing changes, the common case, it does
 * not copy the text; otherwise it appends to an empty text, which then replaces
 * the old one:
 *
 *     bt_aligned_text out;
 *     bt_aligned_text_init_empty(&out);
 *     ... bt_aligned_text_append(&out, ...), bt_aligned_text_append_range(&out,
 * text, ...) ... if (!status) bt_aligned_text_replace(text, &out);
 *     bt_aligned_text_release(&out);
 *
 * Origins are those of Hugging Face's library: a replacement has the origin of
 * the character it replaces, an inserted character that of the one before
 * it. */
#ifndef BT_NORMALIZER_STEP_H
#define BT_NORMALIZER_STEP_H

#include "base/size.h"
#include "text/normalize/normalizer.h"

typedef struct bt_normalizer_step bt_normalizer_step;
struct bt_normalizer_step {
    bauta_status (*run)(const bt_normalizer_step *step, bt_aligned_text *text,
                        bauta_error *err);
    void (*free)(void *data); /* NULL: no data */
    void *data;
    unsigned flags; /* for steps without data */
};

/* The longest result for a text of `size` bytes, of one step and of all: far
 * more than any normal form needs, but it stops steps that double a text again
 * and again. */
static inline size_t bt_normalizer_size_limit(size_t size)
{
    return bt_size_add(bt_size_mul(size, 16), 64 << 10);
}
bauta_status bt_normalizer_fail_size(size_t size, bauta_error *err);

/* Parse the JSON object of a step into *step, which is zeroed; after a failure
 * there is nothing to free. */
typedef bauta_status bt_normalizer_step_parse_fn(bt_normalizer_step *step,
                                                 const json_t *json,
                                                 const char *path,
                                                 bauta_error *err);
bt_normalizer_step_parse_fn bt_normalizer_step_nfc, bt_normalizer_step_nfd,
    bt_normalizer_step_nfkc, bt_normalizer_step_nfkd;
bt_normalizer_step_parse_fn bt_normalizer_step_lowercase,
    bt_normalizer_step_strip, bt_normalizer_step_strip_accents;
bt_normalizer_step_parse_fn bt_normalizer_step_nmt, bt_normalizer_step_bert;
bt_normalizer_step_parse_fn bt_normalizer_step_replace,
    bt_normalizer_step_prepend;
bt_normalizer_step_parse_fn bt_normalizer_step_precompiled;

/* SentencePiece's normalization; *spec is copied. */
bauta_status
bt_normalizer_step_sentencepiece(bt_normalizer_step *step,
                                 const bt_sentencepiece_normalizer_spec *spec,
                                 const char *path, bauta_error *err);

#endif
