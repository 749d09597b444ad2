/* SPDX-License-Identifier: Apache-2.0 */
/* mask_text.c - a mask as a drawing of characters and as JSON. */
#include "base/string_writer.h"
#include "mask/mask.h"

size_t bauta_mask_text(const bauta_mask *mask, char *text, size_t size)
{
    bt_string_writer w = { text, size, 0 };
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        size_t key = 0;
        for (size_t k = 0; k < row.count; k++) {
            bt_put_fill(&w, '.', row.at[k].lo - key);
            bt_put_fill(&w, '#', row.at[k].hi - row.at[k].lo);
            key = row.at[k].hi;
        }
        bt_put_fill(&w, '.', mask->keys - key);
        bt_put_fill(&w, '\n', 1);
    }
    return bt_put_end(&w);
}

static void put_row(bt_string_writer *w, bt_spans row)
{
    bt_put_text(w, "[");
    for (size_t k = 0; k < row.count; k++) {
        bt_put_text(w, k ? ",[" : "[");
        bt_put_integer(w, row.at[k].lo);
        bt_put_text(w, ",");
        bt_put_integer(w, row.at[k].hi);
        bt_put_text(w, "]");
    }
    bt_put_text(w, "]");
}

static void put_origins(bt_string_writer *w, const bauta_mask *mask)
{
    size_t first = 0; // first nonzero origin
    while (first < mask->queries && bt_mask_rows(mask)->origin[first] == 0)
        first++;
    if (first == mask->queries)
        return;
    bt_put_text(w, ",\"origins\":[");
    for (size_t i = 0; i < mask->queries; i++) {
        bt_put_text(w, i ? "," : "");
        bt_put_integer(w, bt_mask_rows(mask)->origin[i]);
    }
    bt_put_text(w, "]");
}

size_t bauta_mask_json(const bauta_mask *mask, char *text, size_t size)
{
    bt_string_writer w = { text, size, 0 };
    bt_put_text(&w, "{\"queries\":");
    bt_put_integer(&w, mask->queries);
    bt_put_text(&w, ",\"keys\":");
    bt_put_integer(&w, mask->keys);
    bt_put_text(&w, ",\"pairs\":");
    bt_put_integer(&w, mask->pairs);
    bt_put_text(&w, ",\"rows\":[");
    for (size_t i = 0; i < mask->queries; i++) {
        bt_put_text(&w, i ? "," : "");
        put_row(&w, bt_mask_spans(mask, i));
    }
    bt_put_text(&w, "]");
    put_origins(&w, mask);
    bt_put_text(&w, "}");
    return bt_put_end(&w);
}
