/* SPDX-License-Identifier: Apache-2.0 */
/* unknown_chars.c - warnings about characters outside the vocabulary;
 * see unknown_chars.h. */
#include "unknown_chars.h"

#include "cli.h"
#include "lines.h"

#include <stdio.h>
#include <string.h>

enum { REPORTS_MAX = 10 };

/* "é" (U+00E9); only the code point if it is not printable. */
static const char *character_text(char text[32], const char *at, size_t size)
{
    static const unsigned char lead[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    size_t length = utf8_character((const unsigned char *)at, size);
    unsigned code = 0xFFFD;
    if (length)
        code = (unsigned char)at[0] & lead[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | ((unsigned char)at[i] & 0x3F);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0) || !length)
        snprintf(text, 32, "U+%04X", code);
    else
        snprintf(text, 32, "\"%.*s\" (U+%04X)", (int)length, at, code);
    return text;
}

static void warn(const char *verb, const char *what, uint64_t count,
                 const char *character, const char *where)
{
    fprintf(stderr,
            "bauta %s: warning: %s%llu %s not in the vocabulary, the first is "
            "%s%s\n",
            verb, what, (unsigned long long)count,
            count == 1 ? "character is" : "characters are", character, where);
}

void unknown_chars_warn(const char *verb, const char *place,
                        const bauta_tokenizer *tokenizer,
                        const bauta_tokens *tokens, const char *text,
                        size_t length)
{
    static int reported;
    char what[256], where[64], character[32];
    size_t line = 1, column = 1;
    bauta_unknown found = bauta_tokens_unknown(tokenizer, tokens, text, length);
    if (!found.count || reported > REPORTS_MAX)
        return;
    if (reported++ == REPORTS_MAX) {
        fprintf(stderr,
                "bauta %s: warning: more texts have characters that are not in "
                "the vocabulary; these are not reported\n",
                verb);
        return;
    }
    for (size_t i = 0; i < found.start; i++) {
        column += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (text[i] == '\n')
            line++, column = 1;
    }
    snprintf(what, sizeof(what), "%s: ", place);
    if (line > 1)
        snprintf(where, sizeof(where), " in its line %zu, column %zu", line,
                 column);
    else
        snprintf(where, sizeof(where), " in column %zu", column);
    warn(verb, what, found.count,
         character_text(character, text + found.start, found.end - found.start),
         where);
}

void unknown_chars_warn_corpus(const char *verb, const char *what,
                               const bauta_corpus *corpus)
{
    const char *first, *file;
    size_t line;
    char where[256], character[32];
    uint64_t count = bauta_corpus_unknown(corpus, &first, &file, &line);
    if (!count)
        return;
    snprintf(where, sizeof(where), " in %s, line %zu", file, line);
    warn(verb, what, count, character_text(character, first, strlen(first)),
         where);
}
