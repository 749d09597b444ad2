/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - pictures of attention and masks: what may be drawn, and by whom;
 * see picture.h. */
#include "draw/picture.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SIDE_MAX = 16384, COUNT_MAX = 4096 };

const char *bt_look_text(bauta_look_at at)
{
    switch (at) {
    case BAUTA_LOOK_ENCODER:
        return "encoder";
    case BAUTA_LOOK_DECODER:
        return "decoder";
    case BAUTA_LOOK_CROSS:
        return "cross";
    }
    return NULL;
}

/* ---- Checks -------------------------------------------------------------- */

static bauta_status check_sizes(const bauta_picture *p, size_t index,
                                bauta_error *err)
{
    if (p->rows == 0 || p->columns == 0 || p->rows > SIDE_MAX ||
        p->columns > SIDE_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "picture %zu has %zu rows and %zu columns: neither may "
                       "be 0 or more than %d",
                       index, p->rows, p->columns, SIDE_MAX);
    if (!p->weights && !p->mask)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "picture %zu has neither weights nor a mask", index);
    if (p->mask && (p->mask->queries != p->rows || p->mask->keys != p->columns))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "picture %zu has %zu rows and %zu columns, its mask "
                       "%zu queries and %zu keys",
                       index, p->rows, p->columns, p->mask->queries,
                       p->mask->keys);
    if (!bt_look_text(p->at))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "picture %zu is of %d, which is no attention", index,
                       (int)p->at);
    return BAUTA_OK;
}

static bauta_status check_labels(const char *const *labels, size_t count,
                                 size_t index, const char *what,
                                 bauta_error *err)
{
    for (size_t i = 0; labels && i < count; i++)
        if (!labels[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "picture %zu: the label of %s %zu is NULL", index,
                           what, i);
    return BAUTA_OK;
}

/* Sums of rounded exponentials may come out a little above 1. NaN is in no
 * range. */
static bool is_weight(float w)
{
    return w >= 0.0f && w <= 1.001f;
}

static bauta_status check_row(const bt_picture *p, size_t row, size_t index,
                              bauta_error *err)
{
    bt_spans seen = bt_mask_spans(p->mask, row);
    const float *w = p->of->weights + row * p->of->columns;
    for (size_t j = 0, k = 0; j < p->of->columns; j++) {
        while (k < seen.count && seen.at[k].hi <= j)
            k++;
        bool visible = k < seen.count && seen.at[k].lo <= j;
        if (!is_weight(w[j]))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "picture %zu: the weight of row %zu, column %zu is "
                           "%g, not from 0 to 1",
                           index, row, j, (double)w[j]);
        if (!visible && w[j] != 0.0f)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "picture %zu: the mask hides column %zu from row "
                           "%zu, but the weight is %g",
                           index, j, row, (double)w[j]);
    }
    return BAUTA_OK;
}

/* ---- One picture --------------------------------------------------------- */

/* The spans of what is not 0; for bauta_mask_rows(). */
static size_t weights_row(void *user, size_t query, bauta_span *spans,
                          size_t capacity)
{
    const bauta_picture *p = user;
    const float *w = p->weights + query * p->columns;
    size_t count = 0;
    for (size_t j = 0; j < p->columns;) {
        size_t lo = j;
        while (j < p->columns && w[j] != 0.0f)
            j++;
        if (j > lo && count++ < capacity)
            spans[count - 1] = (bauta_span){ lo, j };
        j += j == lo;
    }
    return count;
}

static void title_set(bt_picture *p)
{
    p->title = p->of->title;
    if (p->title)
        return;
    if (p->of->weights)
        snprintf(p->words, sizeof(p->words), "%s, layer %zu, head %zu",
                 bt_look_text(p->of->at), p->of->layer, p->of->head);
    p->title = p->words;
}

static bauta_status picture_init(bt_picture *p, const bauta_picture *of,
                                 size_t index, bauta_error *err)
{
    *p = (bt_picture){ .of = of, .mask = of->mask };
    BT_NEED_SIZE(of, bauta_picture, "BAUTA_PICTURE_INIT", err);
    bauta_status status = check_sizes(of, index, err);
    if (!status)
        status = check_labels(of->row_labels, of->rows, index, "row", err);
    if (!status)
        status =
            check_labels(of->column_labels, of->columns, index, "column", err);
    if (!status && !of->mask) {
        status = bauta_mask_rows(&p->own, of->rows, of->columns, weights_row,
                                 (void *)(uintptr_t)of, err);
        p->mask = p->own;
    }
    for (size_t i = 0; !status && of->weights && i < of->rows; i++)
        status = check_row(p, i, index, err);
    if (!status)
        title_set(p);
    return status;
}

/* ---- All of them --------------------------------------------------------- */

static bauta_status format_of(bt_format *format, const char *path,
                              bauta_error *err)
{
    static const char *const endings[] = { ".png", ".svg", ".pdf", ".html" };
    size_t length = strlen(path);
    for (size_t i = 0; i < BT_LEN(endings); i++) {
        size_t end = strlen(endings[i]);
        if (length > end && strcasecmp(path + length - end, endings[i]) == 0) {
            *format = (bt_format)i;
            return BAUTA_OK;
        }
    }
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: the name does not end in .png, .svg, .pdf or .html, "
                   "which says what to write",
                   bt_path_tail(path));
}

/* As many beside each other as the first layer has, or a square. */
static size_t across_of(const bauta_picture *pictures, size_t count)
{
    size_t heads = 0, side = 1;
    while (heads < count && pictures[heads].at == pictures[0].at &&
           pictures[heads].layer == pictures[0].layer)
        heads++;
    if (heads > 1 && heads < count)
        return heads;
    while (side * side < count)
        side++;
    return side;
}

static bauta_status sheet_init(bt_sheet *sheet, const bauta_picture *pictures,
                               size_t count,
                               const bauta_picture_options *options,
                               bauta_error *err)
{
    *sheet = (bt_sheet){ "", 0, 0, NULL };
    if (options && options->title)
        sheet->title = options->title;
    sheet->pictures = bt_alloc_zero(count, sizeof(*sheet->pictures));
    if (!sheet->pictures)
        return bt_fail_memory(err, "pictures", count * sizeof(bt_picture));
    bauta_status status = BAUTA_OK;
    while (!status && sheet->count < count) {
        size_t i = sheet->count++;
        status = picture_init(&sheet->pictures[i], &pictures[i], i, err);
    }
    if (!status)
        sheet->across = options && options->across
                            ? bt_size_min(options->across, count)
                            : across_of(pictures, count);
    return status;
}

static void sheet_release(bt_sheet *sheet)
{
    for (size_t i = 0; i < sheet->count; i++)
        bauta_mask_free(sheet->pictures[i].own);
    bt_free(sheet->pictures);
}

bauta_status bauta_picture_save(const char *path, const bauta_picture *pictures,
                                size_t count,
                                const bauta_picture_options *options,
                                bauta_error *err)
{
    bt_sheet sheet;
    bt_format format = BT_HTML;
    BT_NEED(path, err);
    BT_NEED(pictures, err);
    if (options)
        BT_NEED_SIZE(options, bauta_picture_options,
                     "BAUTA_PICTURE_OPTIONS_INIT", err);
    if (count == 0 || count > COUNT_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu pictures: at least 1 and at most %d are drawn",
                       count, COUNT_MAX);
    bauta_status status = format_of(&format, path, err);
    if (status)
        return status;
    status = sheet_init(&sheet, pictures, count, options, err);
    if (!status)
        status = format == BT_HTML ? bt_page_save(&sheet, path, err)
                                   : bt_sheet_save(&sheet, path, format, err);
    sheet_release(&sheet);
    return status;
}
