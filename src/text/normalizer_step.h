/* SPDX-License-Identifier: Apache-2.0 */
/* normalizer_step.h - a normalizer, inside: a list of steps.
 *
 * A step rewrites the whole text. It leaves a text that it does not change
 * alone (the common case, which costs no copy); otherwise it appends to an
 * empty text and lets the old one become it:
 *
 *     bt_text out;
 *     bt_text_init_empty(&out);
 *     ... bt_text_put(&out, ...), bt_text_copy(&out, text, ...) ...
 *     if (!status)
 *         bt_text_become(text, &out);
 *     bt_text_release(&out);
 *
 * Origins follow Hugging Face's library: a character that takes another's
 * place has its origin, one that is put in has the origin of the character
 * before it. */
#ifndef BT_NORMALIZER_STEP_H
#define BT_NORMALIZER_STEP_H

#include "base/size.h"
#include "text/normalizer.h"

typedef struct bt_step bt_step;
struct bt_step {
    bauta_status (*run)(const bt_step *step, bt_text *text, bauta_error *err);
    void (*free)(void *data); /* NULL: there is nothing to free */
    void *data;
    unsigned flags; /* for steps that need no more than a few bits */
};

/* How long a text of `size` bytes may become, in one step and in all: far more
 * than any normal form needs, and little enough that steps which double a text
 * again and again come to an end. */
static inline size_t bt_step_most(size_t size)
{
    return bt_size_add(bt_size_mul(size, 16), 64 << 10);
}
bauta_status bt_step_fail_long(size_t size, bauta_error *err);

/* Each reads its own object of the file and fills *step, which comes zeroed;
 * on failure there is nothing in it to free. */
typedef bauta_status bt_step_parse_fn(bt_step *step, const json_t *json,
                                      const char *path, bauta_error *err);
bt_step_parse_fn bt_step_nfc, bt_step_nfd, bt_step_nfkc, bt_step_nfkd;
bt_step_parse_fn bt_step_lowercase, bt_step_strip, bt_step_strip_accents;
bt_step_parse_fn bt_step_nmt, bt_step_bert;
bt_step_parse_fn bt_step_replace, bt_step_prepend;
bt_step_parse_fn bt_step_precompiled;

/* SentencePiece's own normalisation; what it needs of *spec is copied. */
bauta_status bt_step_sentencepiece(bt_step *step,
                                   const bt_sentencepiece_norm *spec,
                                   const char *path, bauta_error *err);

#endif
