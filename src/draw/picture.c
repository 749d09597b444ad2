/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - check pictures of attention and masks, and save them in the
 * format that the file name asks for. */
#include "draw/picture.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "mask/mask.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SIDE_MAX = 16384, COUNT_MAX = 4096 };

const char *bt_attention_name(bauta_attention_kind at)
{
    switch (at) {
    case BAUTA_ATTENTION_ENCODER:
        return "encoder";
    case BAUTA_ATTENTION_DECODER:
        return "decoder";
    case BAUTA_ATTENTION_CROSS:
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
    if (!bt_attention_name(p->attention))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "picture %zu is of %d, which is no attention", index,
                       (int)p->attention);
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

/* Rounding may give a little more than 1. NaN fails both comparisons. */
static bool is_weight(float w)
{
    return w >= 0.0f && w <= 1.001f;
}

static bauta_status check_row(const bt_picture *p, size_t row, size_t index,
                              bauta_error *err)
{
    bt_spans seen = bt_mask_spans(p->mask, row);
    const float *w = p->input.weights + row * p->input.columns;
    for (size_t j = 0, k = 0; j < p->input.columns; j++) {
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

/* The spans of nonzero weights; for bauta_mask_rows(). */
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
    p->title = p->input.title;
    if (p->title)
        return;
    if (p->input.weights)
        snprintf(p->default_title, sizeof(p->default_title),
                 "%s, layer %zu, head %zu",
                 bt_attention_name(p->input.attention), p->input.layer,
                 p->input.head);
    p->title = p->default_title;
}

static bauta_status picture_init(bt_picture *p, const bauta_picture *pictures,
                                 size_t index, bauta_error *err)
{
    const bauta_picture *of = &p->input;
    bauta_status status = BT_SIZED_ELEMENT(&p->input, BAUTA_PICTURE_INIT,
                                           pictures, index, "pictures", err);
    p->mask = of->mask;
    if (!status)
        status = check_sizes(of, index, err);
    if (!status)
        status = check_labels(of->row_labels, of->rows, index, "row", err);
    if (!status)
        status =
            check_labels(of->column_labels, of->columns, index, "column", err);
    if (!status && !of->mask) {
        status = bauta_mask_rows(&p->own_mask, of->rows, of->columns,
                                 weights_row, &p->input, err);
        p->mask = p->own_mask;
    }
    for (size_t i = 0; !status && of->weights && i < of->rows; i++)
        status = check_row(p, i, index, err);
    if (!status)
        title_set(p);
    return status;
}

/* ---- All pictures -------------------------------------------------------- */

static bauta_status format_from_path(bt_picture_format *format,
                                     const char *path, bauta_error *err)
{
    static const char *const extensions[] = { ".png", ".svg", ".pdf", ".html" };
    size_t length = strlen(path);
    for (size_t i = 0; i < BT_LEN(extensions); i++) {
        size_t end = strlen(extensions[i]);
        if (length > end &&
            strcasecmp(path + length - end, extensions[i]) == 0) {
            *format = (bt_picture_format)i;
            return BAUTA_OK;
        }
    }
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: the name does not end in .png, .svg, .pdf or .html, "
                   "which says what to write",
                   bt_path_tail(path));
}

/* One row per layer if all pictures of the first layer fit in one, else a
 * square. */
static size_t default_across(const bt_picture *pictures, size_t count)
{
    size_t heads = 0, side = 1;
    while (heads < count &&
           pictures[heads].input.attention == pictures[0].input.attention &&
           pictures[heads].input.layer == pictures[0].input.layer)
        heads++;
    if (heads > 1 && heads < count)
        return heads;
    while (side * side < count)
        side++;
    return side;
}

static bauta_status figure_init(bt_figure *figure,
                                const bauta_picture *pictures, size_t count,
                                const bauta_picture_options *options,
                                bauta_error *err)
{
    *figure = (bt_figure){ .title = "" };
    if (options->title)
        figure->title = options->title;
    figure->pictures = bt_alloc_zero(count, sizeof(*figure->pictures));
    if (!figure->pictures)
        return bt_fail_memory(err, "pictures", count * sizeof(bt_picture));
    bauta_status status = BAUTA_OK;
    while (!status && figure->count < count) {
        size_t i = figure->count++;
        status = picture_init(&figure->pictures[i], pictures, i, err);
    }
    figure->across_chosen = options->across > 0;
    if (!status)
        figure->across = options->across
                             ? bt_size_min(options->across, count)
                             : default_across(figure->pictures, count);
    return status;
}

static void figure_release(bt_figure *figure)
{
    for (size_t i = 0; i < figure->count; i++)
        bauta_mask_free(figure->pictures[i].own_mask);
    bt_free(figure->pictures);
}

bauta_status bauta_picture_save(const char *path, const bauta_picture *pictures,
                                size_t count,
                                const bauta_picture_options *options,
                                bauta_error *err)
{
    bt_figure figure;
    bauta_picture_options chosen;
    bt_picture_format format = BT_HTML;
    BT_NEED(path, err);
    BT_NEED(pictures, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_PICTURE_OPTIONS_INIT,
                                        options, "options", err);
    if (status)
        return status;
    if (count == 0 || count > COUNT_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu pictures: at least 1 and at most %d are drawn",
                       count, COUNT_MAX);
    status = format_from_path(&format, path, err);
    if (status)
        return status;
    status = figure_init(&figure, pictures, count, &chosen, err);
    if (!status)
        status = format == BT_HTML ? bt_html_page_save(&figure, path, err)
                                   : bt_figure_save(&figure, path, format, err);
    figure_release(&figure);
    return status;
}
