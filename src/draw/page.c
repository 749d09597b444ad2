/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - pictures as one page of HTML that needs nothing else.
 *
 * The page is page.html, which the build turns into bt_page_text; where it says
 * BT_PAGE_MARK the data go, one JSON object:
 *
 *     bauta     version
 *     title     of the whole
 *     levels    weight w is stored as 1 + round(sqrt(w) * levels),
 *     bytes     in so many bytes, the low one first
 *     colours   the palettes: bytes of red, green, blue as base64
 *     axes      lists of labels; y and x of a picture are numbers of them, or
 *               null where rows or columns have no labels
 *     masks     lists of rows, each the list of its spans [lo, hi, lo, hi...]
 *     pictures  at, layer, head, title, rows, columns, y, x, mask, weights
 *
 * The weights of a picture are those of the pairs that its mask shows, row by
 * row, as base64. What is hidden is not in the page. */
#include "draw/page.h"

#include "base/error.h"
#include "base/memory.h"
#include "draw/colour.h"
#include "draw/label.h"
#include "draw/picture.h"
#include "draw/writer.h"
#include "mask/mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_SIDE_MAX = 4096 };
static const uint64_t exact_pairs = 3000000, page_pairs = 32000000;

/* ---- What is written once ------------------------------------------------ */

/* Of each picture, the first picture with the same mask, the same labels of
 * rows, the same of columns (even numbers 2 i of the rows, odd ones of the
 * columns of picture i); and which number that got. */
typedef struct shared {
    size_t *mask, *mask_number; /* (count) */
    size_t *axis, *axis_number; /* (2 count) */
} shared;

static bauta_status shared_init(shared *s, size_t count, bauta_error *err)
{
    *s = (shared){ bt_alloc_zero(6 * count, sizeof(size_t)), NULL, NULL, NULL };
    if (!s->mask)
        return bt_fail_memory(err, "a page", 6 * count * sizeof(size_t));
    s->mask_number = s->mask + count;
    s->axis = s->mask + 2 * count;
    s->axis_number = s->mask + 4 * count;
    return BAUTA_OK;
}

/* Lists of spans are canonical, so equal masks have equal bytes. */
static bool same_mask(const bauta_mask *a, const bauta_mask *b)
{
    if (a == b)
        return true;
    size_t rows = a->queries;
    return rows == b->queries && a->keys == b->keys && a->pairs == b->pairs &&
           memcmp(a->start, b->start, (rows + 1) * sizeof(*a->start)) == 0 &&
           memcmp(a->spans, b->spans, a->start[rows] * sizeof(*a->spans)) == 0;
}

static const char *const *axis_labels(const bt_sheet *sheet, size_t axis,
                                      size_t *count)
{
    const bauta_picture *p = sheet->pictures[axis / 2].of;
    *count = axis % 2 ? p->columns : p->rows;
    return axis % 2 ? p->column_labels : p->row_labels;
}

static bool same_axis(const bt_sheet *sheet, size_t a, size_t b)
{
    size_t n, m;
    const char *const *x = axis_labels(sheet, a, &n);
    const char *const *y = axis_labels(sheet, b, &m);
    return x == y && n == m;
}

static void shared_find(shared *s, const bt_sheet *sheet)
{
    for (size_t i = 0; i < sheet->count; i++) {
        size_t j = 0;
        while (!same_mask(sheet->pictures[j].mask, sheet->pictures[i].mask))
            j++;
        s->mask[i] = j;
    }
    for (size_t i = 0; i < 2 * sheet->count; i++) {
        size_t j = 0;
        while (!same_axis(sheet, j, i))
            j++;
        s->axis[i] = j;
    }
}

/* ---- Parts --------------------------------------------------------------- */

static void colour_write(bt_writer *w, const char *name, bt_colour c)
{
    char text[48];
    snprintf(text, sizeof(text), ",\"%s\":\"#%02x%02x%02x\"", name, c.r, c.g,
             c.b);
    bt_write_text(w, text);
}

static void palette_write(bt_writer *w, const char *name, bool dark)
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

static void axes_write(bt_writer *w, const bt_sheet *sheet, shared *s)
{
    size_t written = 0, count;
    char label[BT_LABEL_MAX];
    bt_write_text(w, ",\n\"axes\":[");
    for (size_t i = 0; i < 2 * sheet->count; i++) {
        const char *const *labels = axis_labels(sheet, i, &count);
        if (!labels || s->axis[i] != i)
            continue;
        bt_write_text(w, written ? ",\n[" : "\n[");
        for (size_t k = 0; k < count; k++) {
            bt_label(label, labels[k], k, BT_LABEL_MAX);
            bt_write_text(w, k ? "," : "");
            bt_write_string(w, label);
        }
        bt_write_text(w, "]");
        s->axis_number[i] = written++;
    }
    bt_write_text(w, "]");
}

static void mask_write(bt_writer *w, const bauta_mask *mask)
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

static void masks_write(bt_writer *w, const bt_sheet *sheet, shared *s)
{
    size_t written = 0;
    bt_write_text(w, ",\n\"masks\":[");
    for (size_t i = 0; i < sheet->count; i++) {
        if (s->mask[i] != i)
            continue;
        bt_write_text(w, written ? ",\n[" : "\n[");
        mask_write(w, sheet->pictures[i].mask);
        bt_write_text(w, "]");
        s->mask_number[i] = written++;
    }
    bt_write_text(w, "]");
}

/* ---- Pictures ------------------------------------------------------------ */

static void weights_write(bt_writer *w, const bt_picture *p, size_t bytes)
{
    float levels = bytes == 2 ? 65534.0f : 254.0f;
    for (size_t i = 0; i < p->of->rows; i++) {
        bt_spans row = bt_mask_spans(p->mask, i);
        for (size_t k = 0; k < row.count; k++)
            for (size_t j = row.at[k].lo; j < row.at[k].hi; j++) {
                float weight = p->of->weights[i * p->of->columns + j];
                float root = sqrtf(weight > 1.0f ? 1.0f : weight);
                unsigned stored = 1u + (unsigned)(root * levels + 0.5f);
                bt_write_base64(w, (unsigned char)(stored & 255));
                if (bytes == 2)
                    bt_write_base64(w, (unsigned char)(stored >> 8));
            }
    }
    bt_write_base64_end(w);
}

static void member_write(bt_writer *w, const char *name, size_t number)
{
    bt_write_text(w, ",");
    bt_write_string(w, name);
    bt_write_text(w, ":");
    bt_write_number(w, number);
}

static void axis_write(bt_writer *w, const char *name, const bt_sheet *sheet,
                       const shared *s, size_t axis)
{
    size_t count;
    if (axis_labels(sheet, axis, &count))
        member_write(w, name, s->axis_number[s->axis[axis]]);
}

static void picture_write(bt_writer *w, const bt_sheet *sheet, const shared *s,
                          size_t i, size_t bytes)
{
    const bt_picture *p = &sheet->pictures[i];
    bt_write_text(w, i ? ",\n{\"at\":" : "\n{\"at\":");
    bt_write_string(w, bt_look_text(p->of->at));
    bt_write_text(w, ",\"title\":");
    bt_write_string(w, p->title);
    member_write(w, "layer", p->of->layer);
    member_write(w, "head", p->of->head);
    member_write(w, "rows", p->of->rows);
    member_write(w, "columns", p->of->columns);
    member_write(w, "mask", s->mask_number[s->mask[i]]);
    axis_write(w, "y", sheet, s, 2 * i);
    axis_write(w, "x", sheet, s, 2 * i + 1);
    if (p->of->weights) {
        bt_write_text(w, ",\"weights\":\"");
        weights_write(w, p, bytes);
        bt_write_text(w, "\"");
    }
    bt_write_text(w, "}");
}

static void data_write(bt_writer *w, const bt_sheet *sheet, shared *s,
                       size_t bytes)
{
    bt_write_text(w, "{\"bauta\":");
    bt_write_string(w, bauta_version());
    bt_write_text(w, ",\"title\":");
    bt_write_string(w, sheet->title);
    member_write(w, "levels", bytes == 2 ? 65534 : 254);
    member_write(w, "bytes", bytes);
    bt_write_text(w, ",\n\"colours\":{");
    palette_write(w, "light", false);
    bt_write_text(w, ",\n");
    palette_write(w, "dark", true);
    bt_write_text(w, "}");
    axes_write(w, sheet, s);
    masks_write(w, sheet, s);
    bt_write_text(w, ",\n\"pictures\":[");
    for (size_t i = 0; i < sheet->count; i++)
        picture_write(w, sheet, s, i, bytes);
    bt_write_text(w, "]}");
}

/* ---- The page ------------------------------------------------------------ */

static bauta_status page_check(const bt_sheet *sheet, const char *path,
                               uint64_t *pairs, bauta_error *err)
{
    *pairs = 0;
    for (size_t i = 0; i < sheet->count; i++) {
        const bauta_picture *p = sheet->pictures[i].of;
        *pairs += p->weights ? sheet->pictures[i].mask->pairs : 0;
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

static bauta_status page_write(bt_draft *draft, const bt_sheet *sheet,
                               shared *s, size_t bytes, bauta_error *err)
{
    bt_writer w;
    const char *mark = strstr(bt_page_text, BT_PAGE_MARK);
    bt_writer_init(&w, draft, err);
    bt_write_bytes(&w, bt_page_text, (size_t)(mark - bt_page_text));
    data_write(&w, sheet, s, bytes);
    bt_write_text(&w, mark + strlen(BT_PAGE_MARK));
    return bt_writer_finish(&w);
}

bauta_status bt_page_save(const bt_sheet *sheet, const char *path,
                          bauta_error *err)
{
    bt_draft *draft = NULL;
    shared s = { NULL, NULL, NULL, NULL };
    uint64_t pairs;
    bauta_status status = page_check(sheet, path, &pairs, err);
    if (!status)
        status = shared_init(&s, sheet->count, err);
    if (!status)
        status = bt_draft_create(&draft, path, err);
    if (!status) {
        shared_find(&s, sheet);
        status = page_write(draft, sheet, &s, pairs > exact_pairs ? 1 : 2, err);
    }
    if (!status)
        status = bt_draft_commit(draft, err);
    bt_draft_free(draft);
    bt_free(s.mask);
    return status;
}
