/* SPDX-License-Identifier: Apache-2.0 */
/* unknown_chars.h - warnings about characters that are not in the
 * vocabulary.
 */
#ifndef UNKNOWN_CHARS_H
#define UNKNOWN_CHARS_H

#include <bauta.h>

/* For a text and its tokens; `place` is where the text is. Only the first few
 * texts are reported. */
void unknown_chars_warn(const char *verb, const char *place,
                        const bauta_tokenizer *tokenizer,
                        const bauta_tokens *tokens, const char *text,
                        size_t length);
/* For the files of a corpus; `what` is "" or names the corpus. */
void unknown_chars_warn_corpus(const char *verb, const char *what,
                               const bauta_corpus *corpus);

#endif
