/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_split.h - the regular expressions of GPT-2 and Llama 3 as C code.
 *
 * Nearly every byte-level tokenizer splits by one of a few patterns and spends
 * most of its time there. As C code they are several times as fast as the
 * compiled regular expression. */
#ifndef BT_GPT2_SPLIT_H
#define BT_GPT2_SPLIT_H

#include "text/pretokenize/split.h"

/* GPT-2's pattern, as Hugging Face's library has it. */
#define BT_GPT2_PATTERN                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" \
    "|\\s+(?!\\S)|\\s+"

/* Divide a split as GPT-2's pattern does; the new splits cover it. */
bauta_status bt_gpt2_split(bt_splits *out, const bt_split *split,
                           const char *text, bauta_error *err);

/* How many digits the pattern matches at a time if it is Llama 3's or one of
 * its variants; 0 if it is neither. */
unsigned bt_llama3_max_digits(const char *pattern);
/* Divide a split as such a pattern does. */
bauta_status bt_llama3_split(bt_splits *out, const bt_split *split,
                             const char *text, unsigned digits,
                             bauta_error *err);

#endif
