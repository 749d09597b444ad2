/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer_step.h - a pre-tokenizer, inside: a list of steps. */
#ifndef BT_PRETOKENIZER_STEP_H
#define BT_PRETOKENIZER_STEP_H

#include "text/cut.h"
#include "text/pretokenizer.h"

typedef enum bt_cut_kind {
    BT_CUT_CHARS,     /* at characters of a kind */
    BT_CUT_CHAR,      /* at one character */
    BT_CUT_PATTERN,   /* at matches of a pattern */
    BT_CUT_WORDS,     /* between words and other characters */
    BT_CUT_GPT2,      /* as GPT-2's pattern does */
    BT_CUT_LLAMA3,    /* as Llama 3's does */
    BT_CUT_METASPACE, /* spaces become a character that begins a split */
    BT_CUT_PREFIX,    /* a space is put in front; does not cut */
    BT_CUT_BYTES      /* from here on splits are bytes; does not cut */
} bt_cut_kind;

/* Where the metaspace, or ByteLevel's space, is put in front of a split. */
typedef enum bt_prepend {
    BT_PREPEND_NEVER,
    BT_PREPEND_FIRST, /* only at the beginning of the text */
    BT_PREPEND_ALWAYS
} bt_prepend;

typedef struct bt_cut_step {
    bt_cut_kind kind;
    bt_behavior behavior;
    bool invert;
    bt_char_fn *matches; /* CHARS */
    uint32_t code;       /* CHAR, METASPACE, PREFIX */
    bt_pattern *pattern; /* PATTERN */
    unsigned digits;     /* LLAMA3 */
    bt_prepend prepend;  /* METASPACE and PREFIX */
    bool keep;           /* METASPACE: do not cut */
} bt_cut_step;

struct bt_pretokenizer {
    bt_cut_step *steps;
    size_t count, room;
    bool bytes; /* one of the steps is BYTES */
};

/* Rewrite the splits' text, so that spaces are step->code and one stands in
 * front where the step wants it. */
bauta_status bt_metaspace(const bt_cut_step *step, bt_splits *splits,
                          bauta_error *err);

#endif
