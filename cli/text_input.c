/* SPDX-License-Identifier: Apache-2.0 */
/* text_input.c - the texts that a verb works on; see text_input.h. */
#include "text_input.h"

#include "cli.h"
#include "lines.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lines of this rank. Invalid ones count. */
static int part_open(text_input *t, const char *file)
{
    const char *line = "";
    size_t length, count = 0;
    bauta_error err = { .message = "" };
    bauta_text_file *all;
    text_part part = ranks_part();
    if (bauta_text_file_open(&all, file, &err))
        return cli_fail(t->verb, "%s", err.message);
    for (size_t before = SIZE_MAX; line && before != count;) {
        before = bauta_text_file_lines(all);
        if (bauta_text_file_line(all, &line, &length, &err))
            line = "";
        count = bauta_text_file_lines(all);
    }
    bauta_text_file_free(all);
    t->first = count * part.rank / part.count;
    t->end = count * (part.rank + 1) / part.count;
    while (t->number < t->first && text_input_next(t, &line, &length))
        ;
    return t->failed ? CLI_FAILED : CLI_OK;
}

int text_input_open(text_input *t, const char *verb, const char *const *args,
                    size_t arg_count, const char *file)
{
    bauta_error err;
    *t = (text_input){
        .verb = verb, .args = args, .arg_count = arg_count, .end = SIZE_MAX
    };
    if (arg_count == 1 && strcmp(args[0], "-") == 0)
        t->arg_count = 0;
    if (t->arg_count)
        return CLI_OK;
    file = file ? file : "-";
    t->name = strcmp(file, "-") == 0 ? "standard input" : file;
    if (bauta_text_file_open(&t->file, file, &err))
        return cli_fail(verb, "%s", err.message);
    return ranks_part().count > 1 ? part_open(t, file) : CLI_OK;
}

int text_input_close(text_input *t)
{
    bauta_text_file_free(t->file);
    free(t->all);
    return t->failed ? CLI_FAILED : CLI_OK;
}

static bool failed(text_input *t, const char *why)
{
    cli_fail(t->verb, "%s", why);
    t->failed = true;
    return false;
}

/* An invalid text is empty; the next one may be valid. */
static bool invalid(const char **text, size_t *length)
{
    *text = "";
    *length = 0;
    return true;
}

/* The next text of the command line. */
static bool arg_next(text_input *t, const char **text, size_t *length)
{
    if (t->number == t->arg_count)
        return false;
    *text = t->args[t->number++];
    *length = strlen(*text);
    size_t good = utf8_prefix(*text, *length);
    if (good == *length)
        return true;
    snprintf(t->error, sizeof(t->error),
             "text %zu is not UTF-8 (byte %zu of it)", t->number, good + 1);
    return invalid(text, length);
}

bool text_input_ready(const text_input *t)
{
    return !t->name || t->failed || bauta_text_file_ready(t->file);
}

bool text_input_next(text_input *t, const char **text, size_t *length)
{
    bauta_error err;
    t->error[0] = '\0';
    if (!t->name)
        return arg_next(t, text, length);
    if (t->failed || t->number >= t->end)
        return false;
    size_t before = bauta_text_file_lines(t->file);
    bauta_status status = bauta_text_file_line(t->file, text, length, &err);
    bool read = bauta_text_file_lines(t->file) > before;
    if (status && !read)
        return failed(t, err.message);
    t->number += read;
    if (!status)
        return *text != NULL;
    snprintf(t->error, sizeof(t->error), "%s", err.message);
    return invalid(text, length);
}

/* Append a part to the whole text. */
static bool part_add(text_input *t, const char *part, size_t length)
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

bool text_input_read_all(text_input *t, const char **text, size_t *length)
{
    bauta_error err;
    const char *part = "";
    size_t size = 0;
    if (!t->name)
        return arg_next(t, text, length) &&
               (!t->error[0] || failed(t, t->error));
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

const char *text_input_place(const text_input *t, size_t number, char *place,
                             size_t size)
{
    if (t->name)
        snprintf(place, size, "%s: line %zu", t->name, number);
    else
        snprintf(place, size, "text %zu", number);
    return place;
}
