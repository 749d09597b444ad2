/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_cut.h - the patterns of GPT-2 and Llama 3, by hand.
 *
 * Nearly every byte-level tokenizer cuts by one of a few patterns, and there
 * most of the time goes; written out they run several times as fast as a
 * compiled expression. */
#ifndef BT_GPT2_CUT_H
#define BT_GPT2_CUT_H

#include "text/split.h"

/* GPT-2's pattern, as Hugging Face's library has it. */
#define BT_GPT2_PATTERN                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" \
    "|\\s+(?!\\S)|\\s+"

/* Cut a split as GPT-2's pattern does; the pieces cover it. */
bauta_status bt_gpt2_cut(bt_splits *out, const bt_split *split,
                         const char *text, bauta_error *err);

/* How many digits Llama 3's pattern or one of its kin takes at a time; 0 when
 * the pattern is none of them. */
unsigned bt_llama3_digits(const char *pattern);
/* Cut a split as such a pattern does. */
bauta_status bt_llama3_cut(bt_splits *out, const bt_split *split,
                           const char *text, unsigned digits, bauta_error *err);

#endif
