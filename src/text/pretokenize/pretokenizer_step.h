/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer_step.h - the steps of a pre-tokenizer. */
#ifndef BT_PRETOKENIZER_STEP_H
#define BT_PRETOKENIZER_STEP_H

#include "text/pretokenize/pretokenizer.h"
#include "text/pretokenize/splitter.h"

typedef enum bt_pretokenizer_step_kind {
    BT_PRETOKENIZE_CHARS,     /* at characters of a class */
    BT_PRETOKENIZE_CHAR,      /* at one character */
    BT_PRETOKENIZE_REGEX,     /* at matches of a regular expression */
    BT_PRETOKENIZE_WORDS,     /* between words and other characters */
    BT_PRETOKENIZE_GPT2,      /* by GPT-2's pattern */
    BT_PRETOKENIZE_LLAMA3,    /* by Llama 3's pattern */
    BT_PRETOKENIZE_METASPACE, /* spaces become a character that begins a split
                               */
    BT_PRETOKENIZE_PREPEND,   /* prepend a space; does not split */
    BT_PRETOKENIZE_BYTELEVEL /* from here on splits are bytes; does not split */
} bt_pretokenizer_step_kind;

/* Which splits get a metaspace, or ByteLevel's space, prepended. */
typedef enum bt_prepend_scheme {
    BT_PREPEND_NEVER,
    BT_PREPEND_FIRST, /* only the first one of the text */
    BT_PREPEND_ALWAYS
} bt_prepend_scheme;

typedef struct bt_pretokenizer_step {
    bt_pretokenizer_step_kind kind;
    bt_split_behavior behavior;
    bool invert;
    bt_char_class_fn *in_class; /* CHARS */
    uint32_t code;              /* CHAR, METASPACE, PREPEND */
    bt_regex *regex;            /* REGEX */
    unsigned max_digits;        /* LLAMA3 */
    bt_prepend_scheme prepend;  /* METASPACE and PREPEND */
    bool no_split;              /* METASPACE: do not split */
} bt_pretokenizer_step;

struct bt_pretokenizer {
    bt_pretokenizer_step *steps;
    size_t count, room;
    bool bytes; /* one of the steps is BYTELEVEL */
};

/* Rewrite the text of the splits: spaces become step->code, which is prepended
 * as step->prepend says. */
bauta_status bt_metaspace_rewrite(const bt_pretokenizer_step *step,
                                  bt_splits *splits, bauta_error *err);

#endif
