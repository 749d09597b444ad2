/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer_step.h - the steps of a pre-tokenizer. */
#ifndef BT_PRETOKENIZER_STEP_H
#define BT_PRETOKENIZER_STEP_H

#include "text/pretokenize/pretokenizer.h"
#include "text/pretokenize/splitter.h"

typedef enum bt_cut_kind {
    BT_CUT_CHARS,     /* at characters of a class */
    BT_CUT_CHAR,      /* at one character */
    BT_CUT_PATTERN,   /* at matches of a regular expression */
    BT_CUT_WORDS,     /* between words and other characters */
    BT_CUT_GPT2,      /* by GPT-2's pattern */
    BT_CUT_LLAMA3,    /* by Llama 3's pattern */
    BT_CUT_METASPACE, /* spaces become a character that begins a split */
    BT_CUT_PREFIX,    /* prepend a space; does not split */
    BT_CUT_BYTES      /* from here on splits are bytes; does not split */
} bt_cut_kind;

/* Which splits get a metaspace, or ByteLevel's space, prepended. */
typedef enum bt_prepend {
    BT_PREPEND_NEVER,
    BT_PREPEND_FIRST, /* only the first one of the text */
    BT_PREPEND_ALWAYS
} bt_prepend;

typedef struct bt_cut_step {
    bt_cut_kind kind;
    bt_behavior behavior;
    bool invert;
    bt_char_fn *matches; /* CHARS */
    uint32_t code;       /* CHAR, METASPACE, PREPEND */
    bt_pattern *pattern; /* REGEX */
    unsigned digits;     /* LLAMA3 */
    bt_prepend prepend;  /* METASPACE and PREPEND */
    bool keep;           /* METASPACE: do not split */
} bt_cut_step;

struct bt_pretokenizer {
    bt_cut_step *steps;
    size_t count, room;
    bool bytes; /* one of the steps is BYTELEVEL */
};

/* Rewrite the text of the splits: spaces become step->code, which is prepended
 * as step->prepend says. */
bauta_status bt_metaspace(const bt_cut_step *step, bt_splits *splits,
                          bauta_error *err);

#endif
