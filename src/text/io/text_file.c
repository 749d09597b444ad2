/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.c - reading text files, plain or compressed, line by line or in
 * parts.
 *
 * The buffer holds text that was read but not returned yet: at most a line and
 * a chunk. */
#include "text/io/text_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/io/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, CHARACTER = 4 /* bytes, at most */ };

struct bauta_text_file {
    char *path;
    int file;
    bool standard, known, ended; /* known: the type was detected */
    bt_gzip *gzip;               /* NULL: plain */
    unsigned char *packed;       /* (CHUNK) compressed bytes */
    const unsigned char *packed_at;
    size_t packed_size;
    char *buffer;
    size_t begin, end, room;
    size_t lines;  /* line breaks returned */
    size_t column; /* bytes of the current line returned, by parts */
    uint64_t bytes;
};

/* ---- Opening and closing ------------------------------------------------- */

const char *bt_text_file_name(const bauta_text_file *f)
{
    return f->standard ? "standard input" : bt_path_tail(f->path);
}

bauta_status bauta_text_file_open(bauta_text_file **out, const char *path,
                                  bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(path, err);
    bauta_text_file *f = bt_alloc_zero(1, sizeof(*f));
    if (!f || !(f->path = bt_alloc(strlen(path) + 1))) {
        bt_free(f);
        return bt_fail_memory(err, "a file to read", sizeof(*f));
    }
    strcpy(f->path, path);
    f->standard = strcmp(path, "-") == 0;
    f->file = f->standard ? STDIN_FILENO
                          : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (f->file >= 0) {
        *out = f;
        return BAUTA_OK;
    }
    bauta_status status = bt_fail(err, BAUTA_ERR_IO, "%s: cannot open it: %s",
                                  bt_path_tail(path), strerror(errno));
    bauta_text_file_free(f);
    return status;
}

void bauta_text_file_free(bauta_text_file *f)
{
    if (!f)
        return;
    if (!f->standard && f->file >= 0)
        close(f->file);
    bt_gzip_free(f->gzip);
    bt_free(f->packed);
    bt_free(f->buffer);
    bt_free(f->path);
    bt_free(f);
}

/* ---- Reading ------------------------------------------------------------- */

static bauta_status read_some(bauta_text_file *f, void *to, size_t room,
                              size_t *got, bauta_error *err)
{
    ssize_t count;
    do
        count = read(f->file, to, room);
    while (count < 0 && errno == EINTR);
    *got = count > 0 ? (size_t)count : 0;
    if (count < 0)
        return bt_fail(err, BAUTA_ERR_IO, "%s: cannot read it: %s",
                       bt_text_file_name(f), strerror(errno));
    return BAUTA_OK;
}

/* Make room for a chunk and a NUL after it. */
static bauta_status room_make(bauta_text_file *f, bauta_error *err)
{
    if (f->begin && f->begin == f->end)
        f->begin = f->end = 0;
    if (f->room - f->end > CHUNK)
        return BAUTA_OK;
    size_t held = f->end - f->begin;
    size_t room = bt_size_max(f->room, held + held / 2 + 2 * CHUNK);
    if (f->begin && f->room - held > held / 2 + CHUNK) {
        memmove(f->buffer, f->buffer + f->begin, held);
    } else {
        char *larger = bt_alloc(room);
        if (!larger)
            return bt_fail_memory(err, "a line", room);
        if (held)
            memcpy(larger, f->buffer + f->begin, held);
        bt_free(f->buffer);
        f->buffer = larger;
        f->room = room;
    }
    f->begin = 0;
    f->end = held;
    return BAUTA_OK;
}

static bauta_status unpack_some(bauta_text_file *f, bauta_error *err)
{
    unsigned char *to = (unsigned char *)f->buffer + f->end;
    size_t room = CHUNK;
    bauta_status status = BAUTA_OK;
    if (f->packed_size == 0) {
        f->packed_at = f->packed;
        status = read_some(f, f->packed, CHUNK, &f->packed_size, err);
        f->ended = !status && f->packed_size == 0;
    }
    if (!status && f->ended)
        return bt_gzip_end(f->gzip, err);
    if (!status)
        status = bt_gzip_inflate(f->gzip, &f->packed_at, &f->packed_size, &to,
                                 &room, err);
    f->end += CHUNK - room;
    return status;
}

/* ---- File types ---------------------------------------------------------- */

static const struct {
    const char *bytes;
    size_t size;
    const char *is, *advice;
} others[] = {
    { "\x1F\x8B", 2, "gzip", NULL },
    { "\x28\xB5\x2F\xFD", 4, "compressed with zstd", "zstdcat FILE" },
    { "\xFD"
      "7zXZ",
      5, "compressed with xz", "xzcat FILE" },
    { "BZh91AY", 7, "compressed with bzip2", "bzcat FILE" },
    { "PK\x03\x04", 4, "a zip archive", "unzip -p FILE" },
    { "\xFF\xFE", 2, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE" },
    { "\xFE\xFF", 2, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE" },
};

/* The type by the first bytes, or BT_LEN(others); *more if more bytes are
 * needed. */
static size_t kind_find(const bauta_text_file *f, bool *more)
{
    size_t have = f->end - f->begin;
    *more = have == 0;
    for (size_t i = 0; have && i < BT_LEN(others); i++) {
        size_t size = bt_size_min(have, others[i].size);
        if (memcmp(f->buffer + f->begin, others[i].bytes, size) != 0)
            continue;
        if (size == others[i].size)
            return i;
        *more = true;
    }
    return BT_LEN(others);
}

/* The bytes read so far are gzip. */
static bauta_status gzip_begin(bauta_text_file *f, bauta_error *err)
{
    f->packed = bt_alloc(CHUNK);
    if (!f->packed)
        return bt_fail_memory(err, "gzip", CHUNK);
    f->packed_at = f->packed;
    f->packed_size = f->end - f->begin;
    memcpy(f->packed, f->buffer + f->begin, f->packed_size);
    f->begin = f->end = 0;
    return bt_gzip_create(&f->gzip, bt_text_file_name(f), err);
}

/* Detect the type by the first bytes, at most a chunk of them. */
static bauta_status detect_type(bauta_text_file *f, bauta_error *err)
{
    bool more = true;
    size_t kind = BT_LEN(others), got = 1;
    bauta_status status = BAUTA_OK;
    while (!status && more && got) {
        status = read_some(f, f->buffer + f->end, CHUNK - f->end, &got, err);
        f->end += got;
        kind = kind_find(f, &more);
    }
    f->known = !status;
    f->ended = got == 0;
    if (status || kind == BT_LEN(others))
        return status;
    if (kind == 0)
        return gzip_begin(f, err);
    return bt_fail(err, BAUTA_ERR_FORMAT,
                   "%s: is %s; a text is UTF-8, plain or compressed with "
                   "gzip: %s | bauta ... -",
                   bt_text_file_name(f), others[kind].is, others[kind].advice);
}

/* Read more text into the buffer, unless the file has ended. */
static bauta_status fill(bauta_text_file *f, bauta_error *err)
{
    size_t got = 0;
    bauta_status status = f->ended ? BAUTA_OK : room_make(f, err);
    if (status || f->ended)
        return status;
    if (!f->known)
        return detect_type(f, err);
    if (f->gzip)
        return unpack_some(f, err);
    status = read_some(f, f->buffer + f->end, CHUNK, &got, err);
    f->end += got;
    f->ended = !status && got == 0;
    return status;
}

/* ---- Invalid bytes ------------------------------------------------------- */

/* How many bytes from the start are valid text. */
static size_t valid_bytes(const char *text, size_t size, const char **wrong)
{
    size_t good = bt_utf8_valid_prefix(text, size);
    const char *nul = memchr(text, '\0', good);
    *wrong = nul ? "holds NUL" : good < size ? "is not UTF-8" : NULL;
    return nul ? (size_t)(nul - text) : good;
}

bauta_status bt_text_file_fail(const bauta_text_file *f, size_t number,
                               const char *what, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: line %zu %s",
                   bt_text_file_name(f), number, what);
}

bauta_status bt_text_file_fail_invalid(const bauta_text_file *f,
                                       const bt_text_line *line,
                                       bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: line %zu %s (byte %zu of it)",
                   bt_text_file_name(f), line->number, line->error,
                   line->error_at + 1);
}

/* ---- Lines --------------------------------------------------------------- */

static char *line_break(const bauta_text_file *f, size_t seen)
{
    size_t from = f->begin + seen;
    return from < f->end ? memchr(f->buffer + from, '\n', f->end - from) : NULL;
}

bauta_status bt_text_file_next_line(bauta_text_file *f, bt_text_line *line,
                                    bauta_error *err)
{
    size_t seen = 0; // bytes without a line break
    char *stop;
    *line = (bt_text_line){ .number = f->lines + 1 };
    while (!(stop = line_break(f, seen)) && !f->ended) {
        seen = f->end - f->begin;
        if (seen > BT_TEXT_LINE_MAX)
            return bt_text_file_fail(f, line->number, "is longer than 64 MiB",
                                     err);
        bauta_status status = fill(f, err);
        if (status)
            return status;
    }
    if (f->begin == f->end)
        return BAUTA_OK;
    line->text = f->buffer + f->begin;
    line->size = (size_t)((stop ? stop : f->buffer + f->end) - line->text);
    line->size_with_break = line->size + (stop != NULL);
    if (line->size && line->text[line->size - 1] == '\r')
        line->size--;
    line->error_at = valid_bytes(line->text, line->size, &line->error);
    f->begin += line->size_with_break;
    f->bytes += line->size_with_break;
    f->lines++;
    return BAUTA_OK;
}

bauta_status bauta_text_file_line(bauta_text_file *f, const char **text,
                                  size_t *length, bauta_error *err)
{
    bt_text_line line;
    BT_NEED(text, err);
    *text = NULL;
    BT_NEED(f, err);
    bauta_status status = bt_text_file_next_line(f, &line, err);
    if (!status && line.error)
        status = bt_text_file_fail_invalid(f, &line, err);
    if (status || !line.text)
        return status;
    // Replaces the line break, or uses the byte that is kept free for it.
    f->buffer[f->begin - line.size_with_break + line.size] = '\0';
    *text = line.text;
    if (length)
        *length = line.size;
    return BAUTA_OK;
}

size_t bauta_text_file_lines(const bauta_text_file *f)
{
    return f->lines;
}

bool bauta_text_file_ready(const bauta_text_file *f)
{
    struct pollfd input = { .fd = f->file, .events = POLLIN };
    if (f->ended || f->packed_size || line_break(f, 0))
        return true;
    // There may be less than a line; then reading waits for the rest, which is
    // rare.
    return poll(&input, 1, 0) != 0;
}

uint64_t bt_text_file_bytes(const bauta_text_file *f)
{
    return f->bytes;
}

/* ---- Parts --------------------------------------------------------------- */

/* Count the lines and bytes of a part that is returned. */
static void part_count(bauta_text_file *f, const char *part, size_t size)
{
    const char *at = part, *end = part + size, *stop;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        f->lines++;
        f->column = 0;
        at = stop + 1;
    }
    f->column += (size_t)(end - at);
    f->begin += size;
    f->bytes += size;
}

bauta_status bauta_text_file_part(bauta_text_file *f, const char **part,
                                  size_t *length, bauta_error *err)
{
    const char *wrong = NULL;
    bauta_status status = BAUTA_OK;
    BT_NEED(part, err);
    *part = NULL;
    BT_NEED(f, err);
    BT_NEED(length, err);
    // The bytes read so far may end inside a character.
    while (!status && f->end - f->begin < CHARACTER && !f->ended)
        status = fill(f, err);
    size_t size = f->end - f->begin;
    if (status || size == 0)
        return status;
    *length = valid_bytes(f->buffer + f->begin, size, &wrong);
    if (*length == 0)
        return bt_text_file_fail_invalid(
            f,
            &(bt_text_line){
                .number = f->lines + 1, .error = wrong, .error_at = f->column },
            err);
    *part = f->buffer + f->begin;
    part_count(f, *part, *length);
    return BAUTA_OK;
}
