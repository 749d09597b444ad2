/* SPDX-License-Identifier: Apache-2.0 */
/* unknown.h - warnings about characters that a tokenizer does not know. */
#ifndef UNKNOWN_H
#define UNKNOWN_H

#include <bauta.h>

/* Of a text and its tokens; `place` is where the text is. After a few texts of
 * a process the rest is not reported. */
void unknown_say(const char *verb, const char *place,
                 const bauta_tokenizer *tokenizer, const bauta_tokens *tokens,
                 const char *text, size_t length);
/* Of the files of a corpus; `what` is "" or says which corpus it is. */
void unknown_corpus_say(const char *verb, const char *what,
                        const bauta_corpus *corpus);

#endif
