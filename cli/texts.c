/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - the texts that a verb works on; see texts.h. */
#include "texts.h"

#include "cli.h"
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int texts_open(texts *t, const char *verb, const char *const *given,
               size_t given_count, const char *file)
{
    bauta_error err;
    *t = (texts){ .verb = verb, .given = given, .given_count = given_count };
    if (given_count == 1 && strcmp(given[0], "-") == 0)
        t->given_count = 0;
    if (t->given_count)
        return CLI_OK;
    file = file ? file : "-";
    t->name = strcmp(file, "-") == 0 ? "standard input" : file;
    if (bauta_text_file_open(&t->file, file, &err))
        return cli_fail(verb, "%s", err.message);
    return CLI_OK;
}

int texts_close(texts *t)
{
    bauta_text_file_free(t->file);
    free(t->all);
    return t->failed ? CLI_FAILED : CLI_OK;
}

static bool failed(texts *t, const char *why)
{
    cli_fail(t->verb, "%s", why);
    t->failed = true;
    return false;
}

/* A bad text: others may be good. */
static bool spoilt(const char **text, size_t *length)
{
    *text = "";
    *length = 0;
    return true;
}

/* The next word of the command line. */
static bool word_next(texts *t, const char **text, size_t *length)
{
    if (t->number == t->given_count)
        return false;
    *text = t->given[t->number++];
    *length = strlen(*text);
    size_t good = utf8_prefix(*text, *length);
    if (good == *length)
        return true;
    snprintf(t->wrong, sizeof(t->wrong),
             "text %zu is not UTF-8 (byte %zu of it)", t->number, good + 1);
    return spoilt(text, length);
}

bool texts_ready(const texts *t)
{
    return !t->name || t->failed || bauta_text_file_ready(t->file);
}

bool texts_next(texts *t, const char **text, size_t *length)
{
    bauta_error err;
    t->wrong[0] = '\0';
    if (!t->name)
        return word_next(t, text, length);
    if (t->failed)
        return false;
    size_t before = bauta_text_file_lines(t->file);
    bauta_status status = bauta_text_file_line(t->file, text, length, &err);
    bool read = bauta_text_file_lines(t->file) > before;
    if (status && !read)
        return failed(t, err.message);
    t->number += read;
    if (!status)
        return *text != NULL;
    snprintf(t->wrong, sizeof(t->wrong), "%s", err.message);
    return spoilt(text, length);
}

/* One more part of a text that is wanted whole. */
static bool part_add(texts *t, const char *part, size_t length)
{
    if (length >= t->room - t->size) {
        size_t room = 2 * (t->size + length) + 1;
        char *larger = realloc(t->all, room);
        if (!larger)
            return failed(t, "out of memory");
        t->all = larger;
        t->room = room;
    }
    memcpy(t->all + t->size, part, length);
    t->size += length;
    t->all[t->size] = '\0';
    return true;
}

bool texts_all(texts *t, const char **text, size_t *length)
{
    bauta_error err;
    const char *part = "";
    size_t size = 0;
    if (!t->name)
        return word_next(t, text, length) &&
               (!t->wrong[0] || failed(t, t->wrong));
    while (part && !t->failed) {
        if (!part_add(t, part, size))
            return false;
        if (bauta_text_file_part(t->file, &part, &size, &err))
            return failed(t, err.message);
    }
    *text = t->all;
    *length = t->size;
    t->number++;
    return !t->failed;
}

const char *texts_place(const texts *t, size_t number, char *place, size_t size)
{
    if (t->name)
        snprintf(place, size, "%s: line %zu", t->name, number);
    else
        snprintf(place, size, "text %zu", number);
    return place;
}
