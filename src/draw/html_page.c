/* SPDX-License-Identifier: Apache-2.0 */
/* html_page.c - pictures as one self-contained HTML page.
 *
 * The page is html_page.html, which the build turns into bt_html_page_text.
 * BT_HTML_PAGE_DATA in it is replaced by one JSON object:
 *
 *     bauta     version
 *     title     of the page
 *     levels    weight w is stored as 1 + round(sqrt(w) * levels),
 *     bytes     in this many bytes, little-endian
 *     colours   the palettes: bytes of red, green, blue as base64
 *     axes      lists of labels; y and x of a picture are indices of them, and
 *               absent if its rows or columns have no labels
 *     masks     lists of rows, each the list of its spans [lo, hi, lo, hi...]
 *     pictures  at, layer, head, title, rows, columns, y, x, mask, weights
 *
 * The weights of a picture are those of its visible pairs, row by row, as
 * base64. Hidden pairs are not in the page. */
#include "draw/html_page.h"

#include "base/error.h"
#include "base/memory.h"
#include "draw/colour.h"
#include "draw/label.h"
#include "draw/page_writer.h"
#include "draw/picture.h"
#include "mask/mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_SIDE_MAX = 4096 };
static const uint64_t exact_pairs = 3000000, page_pairs = 32000000;

/* ---- Masks and labels that pictures share
 * ------------------------------------------------ */

/* Equal masks and equal lists of labels are written once. For each picture: the
 * first picture with the same mask, and that mask's index in the page. The same
 * for labels: axis 2 i has the row labels of picture i, 2 i + 1 the column
 * labels. */
typedef struct shared {
    size_t *mask, *mask_index; /* (count) */
    size_t *axis, *axis_index; /* (2 count) */
} shared;

static bauta_status shared_init(shared *s, size_t count, bauta_error *err)
{
    *s = (shared){ bt_alloc_zero(6 * count, sizeof(size_t)), NULL, NULL, NULL };
    if (!s->mask)
        return bt_fail_memory(err, "a page", 6 * count * sizeof(size_t));
    s->mask_index = s->mask + count;
    s->axis = s->mask + 2 * count;
    s->axis_index = s->mask + 4 * count;
    return BAUTA_OK;
}

static const char *const *axis_labels(const bt_figure *figure, size_t axis,
                                      size_t *count)
{
    const bauta_picture *p = &figure->pictures[axis / 2].input;
    *count = axis % 2 ? p->columns : p->rows;
    return axis % 2 ? p->column_labels : p->row_labels;
}

static bool same_axis(const bt_figure *figure, size_t a, size_t b)
{
    size_t n, m;
    const char *const *x = axis_labels(figure, a, &n);
    const char *const *y = axis_labels(figure, b, &m);
    return x == y && n == m;
}

static void shared_find(shared *s, const bt_figure *figure)
{
    for (size_t i = 0; i < figure->count; i++) {
        size_t j = 0;
        while (!bt_mask_same_pairs(figure->pictures[j].mask,
                                   figure->pictures[i].mask))
            j++;
        s->mask[i] = j;
    }
    for (size_t i = 0; i < 2 * figure->count; i++) {
        size_t j = 0;
        while (!same_axis(figure, j, i))
            j++;
        s->axis[i] = j;
    }
}

/* ---- Parts --------------------------------------------------------------- */

static void colour_write(bt_page_writer *w, const char *name, bt_colour c)
{
    char text[48];
    snprintf(text, sizeof(text), ",\"%s\":\"#%02x%02x%02x\"", name, c.r, c.g,
             c.b);
    bt_write_text(w, text);
}

static void palette_write(bt_page_writer *w, const char *name, bool dark)
{
    bt_palette palette;
    bt_palette_init(&palette, dark);
    bt_write_string(w, name);
    bt_write_text(w, ":{\"scale\":\"");
    for (size_t i = 0; i < BT_COLOURS; i++) {
        bt_write_base64(w, palette.weight[i].r);
        bt_write_base64(w, palette.weight[i].g);
        bt_write_base64(w, palette.weight[i].b);
    }
    bt_write_base64_end(w);
    bt_write_text(w, "\"");
    colour_write(w, "hidden", palette.hidden);
    colour_write(w, "hatch", palette.hatch);
    colour_write(w, "seen", palette.seen);
    colour_write(w, "border", palette.border);
    bt_write_text(w, "}");
}

static void axes_write(bt_page_writer *w, const bt_figure *figure, shared *s)
{
    size_t written = 0, count;
    char label[BT_LABEL_MAX];
    bt_write_text(w, ",\n\"axes\":[");
    for (size_t i = 0; i < 2 * figure->count; i++) {
        const char *const *labels = axis_labels(figure, i, &count);
        if (!labels || s->axis[i] != i)
            continue;
        bt_write_text(w, written ? ",\n[" : "\n[");
        for (size_t k = 0; k < count; k++) {
            bt_label(label, labels[k], k, BT_LABEL_MAX);
            bt_write_text(w, k ? "," : "");
            bt_write_string(w, label);
        }
        bt_write_text(w, "]");
        s->axis_index[i] = written++;
    }
    bt_write_text(w, "]");
}

static void mask_write(bt_page_writer *w, const bauta_mask *mask)
{
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        bt_write_text(w, i ? ",[" : "[");
        for (size_t k = 0; k < row.count; k++) {
            bt_write_text(w, k ? "," : "");
            bt_write_number(w, row.at[k].lo);
            bt_write_text(w, ",");
            bt_write_number(w, row.at[k].hi);
        }
        bt_write_text(w, "]");
    }
}

static void masks_write(bt_page_writer *w, const bt_figure *figure, shared *s)
{
    size_t written = 0;
    bt_write_text(w, ",\n\"masks\":[");
    for (size_t i = 0; i < figure->count; i++) {
        if (s->mask[i] != i)
            continue;
        bt_write_text(w, written ? ",\n[" : "\n[");
        mask_write(w, figure->pictures[i].mask);
        bt_write_text(w, "]");
        s->mask_index[i] = written++;
    }
    bt_write_text(w, "]");
}

/* ---- Pictures ------------------------------------------------------------ */

static void weights_write(bt_page_writer *w, const bt_picture *p, size_t bytes)
{
    float levels = bytes == 2 ? 65534.0f : 254.0f;
    for (size_t i = 0; i < p->input.rows; i++) {
        bt_spans row = bt_mask_spans(p->mask, i);
        for (size_t k = 0; k < row.count; k++)
            for (size_t j = row.at[k].lo; j < row.at[k].hi; j++) {
                float weight = p->input.weights[i * p->input.columns + j];
                float root = sqrtf(weight > 1.0f ? 1.0f : weight);
                unsigned stored = 1u + (unsigned)(root * levels + 0.5f);
                bt_write_base64(w, (unsigned char)(stored & 255));
                if (bytes == 2)
                    bt_write_base64(w, (unsigned char)(stored >> 8));
            }
    }
    bt_write_base64_end(w);
}

static void member_write(bt_page_writer *w, const char *name, size_t number)
{
    bt_write_text(w, ",");
    bt_write_string(w, name);
    bt_write_text(w, ":");
    bt_write_number(w, number);
}

static void axis_write(bt_page_writer *w, const char *name,
                       const bt_figure *figure, const shared *s, size_t axis)
{
    size_t count;
    if (axis_labels(figure, axis, &count))
        member_write(w, name, s->axis_index[s->axis[axis]]);
}

static void picture_write(bt_page_writer *w, const bt_figure *figure,
                          const shared *s, size_t i, size_t bytes)
{
    const bt_picture *p = &figure->pictures[i];
    bt_write_text(w, i ? ",\n{\"at\":" : "\n{\"at\":");
    bt_write_string(w, bt_attention_name(p->input.attention));
    bt_write_text(w, ",\"title\":");
    bt_write_string(w, p->title);
    member_write(w, "layer", p->input.layer);
    member_write(w, "head", p->input.head);
    member_write(w, "rows", p->input.rows);
    member_write(w, "columns", p->input.columns);
    member_write(w, "mask", s->mask_index[s->mask[i]]);
    axis_write(w, "y", figure, s, 2 * i);
    axis_write(w, "x", figure, s, 2 * i + 1);
    if (p->input.weights) {
        bt_write_text(w, ",\"weights\":\"");
        weights_write(w, p, bytes);
        bt_write_text(w, "\"");
    }
    bt_write_text(w, "}");
}

static void data_write(bt_page_writer *w, const bt_figure *figure, shared *s,
                       size_t bytes)
{
    bt_write_text(w, "{\"bauta\":");
    bt_write_string(w, bauta_version());
    bt_write_text(w, ",\"title\":");
    bt_write_string(w, figure->title);
    member_write(w, "levels", bytes == 2 ? 65534 : 254);
    member_write(w, "bytes", bytes);
    bt_write_text(w, ",\n\"colours\":{");
    palette_write(w, "light", false);
    bt_write_text(w, ",\n");
    palette_write(w, "dark", true);
    bt_write_text(w, "}");
    axes_write(w, figure, s);
    masks_write(w, figure, s);
    bt_write_text(w, ",\n\"pictures\":[");
    for (size_t i = 0; i < figure->count; i++)
        picture_write(w, figure, s, i, bytes);
    bt_write_text(w, "]}");
}

/* ---- The page ------------------------------------------------------------ */

static bauta_status page_check(const bt_figure *figure, const char *path,
                               uint64_t *pairs, bauta_error *err)
{
    *pairs = 0;
    for (size_t i = 0; i < figure->count; i++) {
        const bauta_picture *p = &figure->pictures[i].input;
        *pairs += p->weights ? figure->pictures[i].mask->pairs : 0;
        if (p->rows > PAGE_SIDE_MAX || p->columns > PAGE_SIDE_MAX)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: picture %zu has %zu rows and %zu columns; a "
                           "page shows at most %d",
                           bt_path_tail(path), i, p->rows, p->columns,
                           PAGE_SIDE_MAX);
    }
    if (*pairs > page_pairs)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: %llu weights are too many for a page, which holds "
                       "%llu: choose layers or heads, or a shorter text",
                       bt_path_tail(path), (unsigned long long)*pairs,
                       (unsigned long long)page_pairs);
    return BAUTA_OK;
}

static bauta_status page_write(bt_atomic_file *draft, const bt_figure *figure,
                               shared *s, size_t bytes, bauta_error *err)
{
    bt_page_writer w;
    const char *mark = strstr(bt_html_page_text, BT_HTML_PAGE_DATA);
    bt_page_writer_init(&w, draft, err);
    bt_write_bytes(&w, bt_html_page_text, (size_t)(mark - bt_html_page_text));
    data_write(&w, figure, s, bytes);
    bt_write_text(&w, mark + strlen(BT_HTML_PAGE_DATA));
    return bt_page_writer_finish(&w);
}

bauta_status bt_html_page_save(const bt_figure *figure, const char *path,
                               bauta_error *err)
{
    bt_atomic_file *draft = NULL;
    shared s = { NULL, NULL, NULL, NULL };
    uint64_t pairs;
    bauta_status status = page_check(figure, path, &pairs, err);
    if (!status)
        status = shared_init(&s, figure->count, err);
    if (!status)
        status = bt_atomic_file_create(&draft, path, err);
    if (!status) {
        shared_find(&s, figure);
        status =
            page_write(draft, figure, &s, pairs > exact_pairs ? 1 : 2, err);
    }
    if (!status)
        status = bt_atomic_file_commit(draft, err);
    bt_atomic_file_free(draft);
    bt_free(s.mask);
    return status;
}
