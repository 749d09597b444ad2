/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - reading a text file; see lines.h. */
#include "lines.h"

#include "cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ------------------------------------------------------------- */

size_t utf8_character(const unsigned char *at, size_t left)
{
    // The ranges of the first and of the second byte.
    static const struct {
        unsigned char first, last, low, high;
        size_t length;
    } forms[] = {
        { 0x00, 0x7F, 0x00, 0x00, 1 }, { 0xC2, 0xDF, 0x80, 0xBF, 2 },
        { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
        { 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 },
        { 0xF0, 0xF0, 0x90, 0xBF, 4 }, { 0xF1, 0xF3, 0x80, 0xBF, 4 },
        { 0xF4, 0xF4, 0x80, 0x8F, 4 },
    };
    size_t f = 0, count = sizeof(forms) / sizeof(forms[0]);
    while (f < count && !(at[0] >= forms[f].first && at[0] <= forms[f].last))
        f++;
    if (f == count || left < forms[f].length)
        return 0;
    if (forms[f].length > 1 && (at[1] < forms[f].low || at[1] > forms[f].high))
        return 0;
    for (size_t i = 2; i < forms[f].length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return forms[f].length;
}

size_t utf8_prefix(const char *text, size_t size)
{
    size_t at = 0, length;
    for (; at < size; at += length) {
        length = utf8_character((const unsigned char *)text + at, size - at);
        if (length == 0)
            break;
    }
    return at;
}

int text_check(const char *verb, const char *what, const char *text)
{
    size_t good = utf8_prefix(text, strlen(text));
    if (!text[good])
        return CLI_OK;
    return cli_fail(verb, "%s is not UTF-8 (byte %zu of it)", what, good + 1);
}

/* ---- Files ------------------------------------------------------------- */

int lines_open(lines *l, const char *verb, const char *path)
{
    bauta_error err;
    *l = (lines){ .verb = verb,
                  .name = strcmp(path, "-") == 0 ? "standard input" : path };
    if (bauta_text_file_open(&l->file, path, &err))
        return cli_fail(verb, "%s", err.message);
    return CLI_OK;
}

void lines_close(lines *l)
{
    bauta_text_file_free(l->file);
    free(l->text);
    *l = (lines){ 0 };
}

/* Append a line; growing the buffer moves the others. */
static int line_add(lines *l, const char *line, size_t length)
{
    size_t used = l->count ? (size_t)(l->at[l->count - 1] - l->text) +
                                 l->lengths[l->count - 1]
                           : 0;
    if (used + length >= l->room) {
        size_t room = 2 * (used + length) + 1;
        char *text = malloc(room);
        if (!text)
            return cli_fail(l->verb, "%s: out of memory", l->name);
        if (used)
            memcpy(text, l->text, used);
        for (size_t i = 0; i < l->count; i++)
            l->at[i] = text + (l->at[i] - l->text);
        free(l->text);
        l->text = text;
        l->room = room;
    }
    if (length)
        memcpy(l->text + used, line, length);
    l->at[l->count] = l->text + used;
    l->lengths[l->count++] = length;
    return CLI_OK;
}

int lines_next(lines *l)
{
    bauta_error err;
    const char *line = "";
    size_t length;
    int failed = CLI_OK;
    for (l->count = 0; !failed && line && l->count < LINES_MAX;) {
        if (bauta_text_file_line(l->file, &line, &length, &err))
            failed = cli_fail(l->verb, "%s", err.message);
        else if (line)
            failed = line_add(l, line, length);
    }
    return failed;
}
