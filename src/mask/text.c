/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - a mask as a picture of characters and as JSON. */
#include "base/size.h"
#include "mask/mask.h"

#include <string.h>

/* snprintf's way: what fits is written, everything is counted. */
typedef struct writer {
    char *text;
    size_t size, length;
} writer;

static void put(writer *w, char c, size_t times)
{
    if (w->length < w->size) // the last byte is the NUL's
        memset(w->text + w->length, c,
               bt_size_min(times, w->size - 1 - w->length));
    w->length += times;
}

static void put_text(writer *w, const char *text)
{
    for (; *text; text++)
        put(w, *text, 1);
}

static void put_number(writer *w, uint64_t number)
{
    char digits[21];
    size_t at = sizeof(digits);
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put_text(w, digits + at);
}

static size_t finish(writer *w)
{
    if (w->size)
        w->text[bt_size_min(w->length, w->size - 1)] = '\0';
    return w->length;
}

size_t bauta_mask_text(const bauta_mask *mask, char *text, size_t size)
{
    writer w = { text, size, 0 };
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        size_t key = 0;
        for (size_t k = 0; k < row.count; k++) {
            put(&w, '.', row.at[k].lo - key);
            put(&w, '#', row.at[k].hi - row.at[k].lo);
            key = row.at[k].hi;
        }
        put(&w, '.', mask->keys - key);
        put(&w, '\n', 1);
    }
    return finish(&w);
}

static void put_row(writer *w, bt_spans row)
{
    put_text(w, "[");
    for (size_t k = 0; k < row.count; k++) {
        put_text(w, k ? ",[" : "[");
        put_number(w, row.at[k].lo);
        put_text(w, ",");
        put_number(w, row.at[k].hi);
        put_text(w, "]");
    }
    put_text(w, "]");
}

static void put_origins(writer *w, const bauta_mask *mask)
{
    size_t first = 0; // the first that is not 0
    while (first < mask->queries && mask->origin[first] == 0)
        first++;
    if (first == mask->queries)
        return;
    put_text(w, ",\"origins\":[");
    for (size_t i = 0; i < mask->queries; i++) {
        put_text(w, i ? "," : "");
        put_number(w, mask->origin[i]);
    }
    put_text(w, "]");
}

size_t bauta_mask_json(const bauta_mask *mask, char *text, size_t size)
{
    writer w = { text, size, 0 };
    put_text(&w, "{\"queries\":");
    put_number(&w, mask->queries);
    put_text(&w, ",\"keys\":");
    put_number(&w, mask->keys);
    put_text(&w, ",\"pairs\":");
    put_number(&w, mask->pairs);
    put_text(&w, ",\"rows\":[");
    for (size_t i = 0; i < mask->queries; i++) {
        put_text(&w, i ? "," : "");
        put_row(&w, bt_mask_spans(mask, i));
    }
    put_text(&w, "]");
    put_origins(&w, mask);
    put_text(&w, "}");
    return finish(&w);
}
