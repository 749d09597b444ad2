/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - the texts that a verb works on; see texts.h. */
#include "texts.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

int texts_open(texts *t, const char *verb, const char *const *given,
               size_t given_count, const char *file)
{
    bool standard = !file || strcmp(file, "-") == 0;
    *t = (texts){ .verb = verb,
                  .given = given,
                  .given_count = given_count,
                  .file = STDIN_FILENO };
    if (given_count)
        return CLI_OK;
    t->name = standard ? "standard input" : file;
    if (!standard)
        t->file = open(file, O_RDONLY | O_CLOEXEC);
    if (t->file >= 0)
        return CLI_OK;
    return cli_fail(verb, "%s: cannot open it: %s", file, strerror(errno));
}

int texts_close(texts *t)
{
    free(t->buffer);
    if (t->file > STDIN_FILENO)
        close(t->file);
    return t->failed ? CLI_FAILED : CLI_OK;
}

static void failed(texts *t, const char *why)
{
    cli_fail(t->verb, "%s: cannot read it: %s", t->name, why);
    t->failed = t->ended = true;
}

/* Room for a chunk and a NUL behind what is there. */
static bool room_make(texts *t)
{
    if (t->begin) {
        memmove(t->buffer, t->buffer + t->begin, t->end - t->begin);
        t->end -= t->begin;
        t->begin = 0;
    }
    if (t->room - t->end > CHUNK)
        return true;
    size_t room = 2 * t->room + 2 * CHUNK;
    char *larger = realloc(t->buffer, room);
    if (!larger) {
        failed(t, "out of memory");
        return false;
    }
    t->buffer = larger;
    t->room = room;
    return true;
}

static void more_read(texts *t)
{
    if (!room_make(t))
        return;
    ssize_t got;
    do
        got = read(t->file, t->buffer + t->end, CHUNK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        failed(t, strerror(errno));
    else if (got == 0)
        t->ended = true;
    else
        t->end += (size_t)got;
}

/* Where the line ends that begins the buffer, or NULL. */
static char *newline(const texts *t, size_t from)
{
    return t->end > from ? memchr(t->buffer + from, '\n', t->end - from) : NULL;
}

bool texts_ready(texts *t)
{
    struct pollfd input = { .fd = t->file, .events = POLLIN };
    if (!t->name || t->ended || newline(t, t->begin))
        return true;
    // What is there may be less than a line; then it is waited for, which is
    // rare and no loss.
    return poll(&input, 1, 0) != 0;
}

bool texts_next(texts *t, const char **text, size_t *length)
{
    size_t seen = 0; // bytes of the buffer without a newline
    char *stop;
    if (!t->name) {
        if (t->number == t->given_count)
            return false;
        *text = t->given[t->number++];
        *length = strlen(*text);
        return true;
    }
    while (!(stop = newline(t, t->begin + seen)) && !t->ended) {
        seen = t->end - t->begin;
        more_read(t);
    }
    if (t->failed || t->begin == t->end)
        return false;
    if (!stop)
        stop = t->buffer + t->end; // the last line lacks its newline
    *stop = '\0';
    *text = t->buffer + t->begin;
    *length = (size_t)(stop - *text);
    t->begin += *length + (t->begin + *length < t->end);
    t->number++;
    return true;
}

bool texts_all(texts *t, const char **text, size_t *length)
{
    if (!t->name)
        return texts_next(t, text, length);
    while (!t->ended)
        more_read(t);
    if (t->failed || !t->buffer)
        return false;
    *text = t->buffer + t->begin;
    *length = t->end - t->begin;
    t->buffer[t->end] = '\0';
    t->begin = t->end;
    t->number++;
    return true;
}

const char *texts_place(const texts *t, size_t number, char *place, size_t size)
{
    if (t->name)
        snprintf(place, size, "%s: line %zu", t->name, number);
    else
        snprintf(place, size, "text %zu", number);
    return place;
}
