/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - reading a text file; see lines.h. */
#include "lines.h"

#include "cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 --------------------------------------------------------------- */

size_t utf8_character(const unsigned char *at, size_t left)
{
    // First and last byte that may begin it, and the same of its second byte.
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

/* How many bytes from the start are well formed. */
static size_t well_formed(const char *text, size_t size)
{
    size_t at = 0, length;
    for (; at < size; at += length) {
        length = utf8_character((const unsigned char *)text + at, size - at);
        if (length == 0)
            break;
    }
    return at;
}

/* ---- Files --------------------------------------------------------------- */

/* All that is in a file; NULL with errno set when it cannot be read. */
static char *file_read(FILE *file, size_t *size)
{
    size_t room = 1 << 16, got;
    char *text = malloc(room);
    *size = 0;
    while (text) {
        got = fread(text + *size, 1, room - *size, file);
        *size += got;
        if (*size < room)
            break;
        char *larger = realloc(text, room *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (text && ferror(file)) {
        free(text);
        return NULL;
    }
    if (!text)
        errno = ENOMEM;
    return text;
}

/* Where the lines begin; what is behind the last newline is a line, too. */
static bool lines_split(lines *l, size_t size)
{
    char *end = l->text + size;
    for (char *at = l->text; at < end; l->count++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop ? stop + 1 : end;
    }
    l->at = calloc(l->count + 1, sizeof(*l->at));
    l->lengths = calloc(l->count + 1, sizeof(*l->lengths));
    if (!l->at || !l->lengths)
        return false;
    char *at = l->text;
    for (size_t i = 0; i < l->count; i++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        l->at[i] = at;
        l->lengths[i] = (size_t)((stop ? stop : end) - at);
        at = stop ? stop + 1 : end;
    }
    return true;
}

static int lines_check(const lines *l, const char *verb)
{
    for (size_t i = 0; i < l->count; i++) {
        size_t good = well_formed(l->at[i], l->lengths[i]);
        if (good < l->lengths[i])
            return cli_fail(verb, "%s: line %zu: byte %zu of it is not UTF-8",
                            l->name, i + 1, good + 1);
    }
    return CLI_OK;
}

int lines_read(lines *out, const char *verb, const char *path)
{
    FILE *file = path ? fopen(path, "rb") : stdin;
    size_t size = 0;
    *out = (lines){ .name = path ? path : "stdin" };
    if (!file)
        return cli_fail(verb, "%s: cannot open it: %s", path, strerror(errno));
    out->text = file_read(file, &size);
    int why = errno;
    if (path)
        fclose(file);
    if (!out->text)
        return cli_fail(verb, "%s: cannot read it: %s", out->name,
                        strerror(why));
    if (!lines_split(out, size))
        return cli_fail(verb, "%s: out of memory for %zu lines", out->name,
                        out->count);
    return lines_check(out, verb);
}

void lines_release(lines *l)
{
    free(l->at);
    free(l->lengths);
    free(l->text);
    *l = (lines){ 0 };
}
