/* SPDX-License-Identifier: Apache-2.0 */
/* page_writer.c - buffered text, JSON strings and base64. */
#include "draw/page_writer.h"

#include "base/size.h"
#include "base/string_writer.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

void bt_page_writer_init(bt_page_writer *w, bt_atomic_file *draft,
                         bauta_error *err)
{
    w->draft = draft;
    w->status = BAUTA_OK;
    w->err = err;
    w->used = w->group_count = 0;
}

static void flush(bt_page_writer *w)
{
    if (!w->status)
        w->status = bt_atomic_file_write(w->draft, w->buffer, w->used, w->err);
    w->used = 0;
}

bauta_status bt_page_writer_finish(bt_page_writer *w)
{
    flush(w);
    return w->status;
}

void bt_write_bytes(bt_page_writer *w, const void *bytes, size_t size)
{
    const char *from = bytes;
    while (size > 0 && !w->status) {
        size_t part = bt_size_min(size, BT_PAGE_WRITER_BUFFER - w->used);
        memcpy(w->buffer + w->used, from, part);
        w->used += part;
        from += part;
        size -= part;
        if (w->used == BT_PAGE_WRITER_BUFFER)
            flush(w);
    }
}

void bt_write_text(bt_page_writer *w, const char *text)
{
    bt_write_bytes(w, text, strlen(text));
}

void bt_write_number(bt_page_writer *w, size_t number)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%zu", number);
    bt_write_text(w, digits);
}

void bt_write_string(bt_page_writer *w, const char *text)
{
    size_t left = strlen(text), length;
    char escaped[8];
    bt_write_text(w, "\"");
    for (; left > 0; text += length, left -= length) {
        bt_json_escape(escaped, bt_utf8_decode(text, left, &length), true);
        bt_write_text(w, escaped);
    }
    bt_write_text(w, "\"");
}

static void base64_group(bt_page_writer *w)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = w->group;
    unsigned all = (unsigned)b[0] << 16 | (unsigned)b[1] << 8 | b[2];
    char out[4];
    for (size_t i = 0; i < 4; i++)
        out[i] = i <= w->group_count ? letters[all >> (18 - 6 * i) & 63] : '=';
    bt_write_bytes(w, out, sizeof(out));
    memset(w->group, 0, sizeof(w->group));
    w->group_count = 0;
}

void bt_write_base64(bt_page_writer *w, unsigned char byte)
{
    if (w->group_count == 0)
        memset(w->group, 0, sizeof(w->group));
    w->group[w->group_count++] = byte;
    if (w->group_count == sizeof(w->group))
        base64_group(w);
}

void bt_write_base64_end(bt_page_writer *w)
{
    if (w->group_count)
        base64_group(w);
}
