/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_load.c - bauta lab: a report from JSON.
 *
 * A member that is missing or of another kind makes the whole report invalid:
 * the experiment then runs again. */
#include "lab_report.h"

#include <math.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* ---- tables ------------------------------------------------------------ */

/* Cells separated by tabs; false if one is no text or they are too long. */
static bool line_join(char *to, size_t room, const json_t *cells)
{
    size_t used = 0;
    to[0] = '\0';
    for (size_t j = 0; j < json_array_size(cells); j++) {
        const char *cell = json_string_value(json_array_get(cells, j));
        int size =
            cell ? snprintf(to + used, room - used, "%s%s", j ? "\t" : "", cell)
                 : -1;
        if (size < 0 || (size_t)size >= room - used)
            return false;
        used += (size_t)size;
    }
    return json_array_size(cells) > 0;
}

static bool table_load(report *r, const json_t *from)
{
    char line[4096];
    json_t *rows = json_object_get(from, "rows");
    const char *title = text_of(from, "title");
    if (!title || !json_is_array(rows) ||
        !line_join(line, sizeof(line), json_object_get(from, "headings")))
        return false;
    report_table(r, title, line);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (!line_join(line, sizeof(line), json_array_get(rows, i)))
            return false;
        report_row(r, "%s", line);
    }
    return true;
}

/* ---- plots ------------------------------------------------------------- */

/* null stands for what is not finite. */
static double number_of(const json_t *from)
{
    return json_is_number(from) ? json_number_value(from) : (double)NAN;
}

static bool curve_load(report *r, const json_t *from)
{
    json_t *points = json_object_get(from, "points");
    if (!text_of(from, "name") || !json_is_array(points))
        return false;
    report_curve(r, text_of(from, "name"));
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *at = json_array_get(points, i);
        if (json_array_size(at) != 2)
            return false;
        report_point(r, number_of(json_array_get(at, 0)),
                     number_of(json_array_get(at, 1)));
    }
    return true;
}

static bool plot_load(report *r, const json_t *from)
{
    plot_options o = { text_of(from, "title"), text_of(from, "across"),
                       text_of(from, "upward"),
                       json_is_true(json_object_get(from, "log_across")),
                       json_is_true(json_object_get(from, "log_upward")) };
    json_t *curves = json_object_get(from, "curves");
    bool good = o.title && o.across && o.upward && json_is_array(curves);
    if (good)
        report_plot(r, &o);
    for (size_t i = 0; good && i < json_array_size(curves); i++)
        good = curve_load(r, json_array_get(curves, i));
    return good;
}

/* ---- masks ------------------------------------------------------------- */

static size_t row_load(void *user, size_t query, bauta_span *spans,
                       size_t capacity)
{
    const json_t *row = json_array_get(user, query);
    size_t count = json_array_size(row);
    for (size_t k = 0; k < count && k < capacity; k++) {
        const json_t *span = json_array_get(row, k);
        json_int_t lo = json_integer_value(json_array_get(span, 0));
        json_int_t hi = json_integer_value(json_array_get(span, 1));
        spans[k] = (bauta_span){ (size_t)lo, (size_t)hi };
    }
    return count;
}

/* What bauta_mask_json() wrote; NULL if it is something else. The library
 * checks the spans. */
static bauta_mask *pairs_load(const json_t *from)
{
    bauta_mask *mask = NULL;
    json_int_t queries = json_integer_value(json_object_get(from, "queries"));
    json_int_t keys = json_integer_value(json_object_get(from, "keys"));
    json_t *rows = json_object_get(from, "rows");
    if (queries <= 0 || keys <= 0 || json_array_size(rows) != (size_t)queries ||
        bauta_mask_rows(&mask, (size_t)queries, (size_t)keys, row_load, rows,
                        NULL))
        return NULL;
    return mask;
}

static bool mask_load(report *r, const json_t *from)
{
    const json_t *leaks_from = json_object_get(from, "leak_mask");
    const char *title = text_of(from, "title");
    bauta_mask *seen = pairs_load(json_object_get(from, "mask"));
    bauta_mask *leaks = leaks_from ? pairs_load(leaks_from) : NULL;
    bauta_mask *allowed = NULL;
    bool good = title && seen && (!leaks_from || leaks) &&
                (!leaks || bauta_mask_not(&allowed, leaks, NULL) == BAUTA_OK);
    if (good)
        report_mask(r, title, seen, allowed);
    bauta_mask_free(seen);
    bauta_mask_free(leaks);
    bauta_mask_free(allowed);
    return good;
}

/* ---- attention --------------------------------------------------------- */

enum { LABELS_MAX = 128 }; /* of rows, and of columns */

static bool labels_load(const char *labels[LABELS_MAX], const json_t *from)
{
    size_t count = json_array_size(from);
    bool good = count > 0 && count <= LABELS_MAX;
    for (size_t i = 0; good && i < count; i++) {
        labels[i] = json_string_value(json_array_get(from, i));
        good = labels[i] != NULL;
    }
    return good;
}

static bool attention_load(report *r, const json_t *from)
{
    const char *rows[LABELS_MAX], *columns[LABELS_MAX];
    float weights[LABELS_MAX * LABELS_MAX];
    const json_t *row_labels = json_object_get(from, "row_labels");
    const json_t *column_labels = json_object_get(from, "column_labels");
    const json_t *all = json_object_get(from, "weights");
    bool good = labels_load(rows, row_labels) &&
                labels_load(columns, column_labels) &&
                json_array_size(all) == json_array_size(row_labels) *
                                            json_array_size(column_labels);
    for (size_t i = 0; good && i < json_array_size(all); i++) {
        double weight = number_of(json_array_get(all, i));
        good = weight >= 0.0 && weight <= 1.0;
        weights[i] = (float)weight;
    }
    if (good)
        report_attention(r, text_of(from, "title"), json_array_size(row_labels),
                         json_array_size(column_labels), rows, columns,
                         weights);
    return good;
}

/* ---- a report ---------------------------------------------------------- */

static bool item_load(report *r, const json_t *from)
{
    const char *kind = text_of(from, "kind"), *title = text_of(from, "title");
    if (!kind || !title)
        return false;
    if (strcmp(kind, "table") == 0)
        return table_load(r, from);
    if (strcmp(kind, "plot") == 0)
        return plot_load(r, from);
    if (strcmp(kind, "mask") == 0)
        return mask_load(r, from);
    if (strcmp(kind, "attention") == 0)
        return attention_load(r, from);
    if (strcmp(kind, "quote") == 0 && text_of(from, "text"))
        report_quote(r, title, text_of(from, "text"));
    else if (strcmp(kind, "heading") == 0)
        report_heading(r, title);
    else
        return false;
    return true;
}

static bool words_load(report *r, const json_t *from)
{
    json_t *sentences = json_object_get(from, "conclusion");
    json_t *claims = json_object_get(from, "claims");
    bool good = json_is_array(sentences) && json_is_array(claims);
    for (size_t i = 0; good && i < json_array_size(sentences); i++) {
        const char *text = json_string_value(json_array_get(sentences, i));
        good = text != NULL;
        if (good)
            report_conclude(r, "%s", text);
    }
    for (size_t i = 0; good && i < json_array_size(claims); i++) {
        const json_t *one = json_array_get(claims, i);
        const json_t *holds = json_object_get(one, "holds");
        good = text_of(one, "claim") && json_is_boolean(holds);
        if (good)
            report_claim(r, json_is_true(holds), "%s", text_of(one, "claim"));
    }
    return good;
}

report *report_from_json(const json_t *from)
{
    const char *name = text_of(from, "lab"),
               *question = text_of(from, "question");
    json_t *found = json_object_get(from, "found");
    report *r = name && question ? report_create(name, question) : NULL;
    bool good = r && json_is_array(found);
    for (size_t i = 0; good && i < json_array_size(found); i++)
        good = item_load(r, json_array_get(found, i));
    good = good && words_load(r, from);
    if (good)
        report_toy(r, json_incref(json_object_get(from, "toy")));
    if (good && report_valid(r))
        return r;
    report_free(r);
    return NULL;
}
