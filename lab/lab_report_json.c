/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_json.c - bauta lab: a report as one line of JSON.
 *
 * NULL means out of memory and propagates. */
#include "../cli/cli.h"
#include "../cli/json_output.h"
#include "lab_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *text_json(const char *text)
{
    return json_text(text, strlen(text));
}

/* Append to a list; NULL, with both released, on failure. */
static json_t *append(json_t *list, json_t *more)
{
    if (list && more && json_array_append_new(list, more) == 0)
        return list;
    if (!list)
        json_decref(more);
    json_decref(list);
    return NULL;
}

static json_t *row_json(const table *t, size_t row)
{
    json_t *list = json_array();
    for (size_t j = 0; list && j < t->columns; j++)
        list = append(list, text_json(t->cells[row * t->columns + j]));
    return list;
}

static json_t *table_json(const item *i)
{
    const table *t = &i->of.table;
    json_t *rows = json_array();
    for (size_t k = 1; rows && k <= t->rows; k++)
        rows = append(rows, row_json(t, k));
    return json_pack("{s:s, s:o, s:o, s:o}", "kind", "table", "title",
                     text_json(i->title), "headings", row_json(t, 0), "rows",
                     rows);
}

static json_t *curve_json(const curve *c)
{
    json_t *points = json_array();
    for (size_t i = 0; points && i < c->count; i++)
        points = append(points, json_pack("[o, o]", json_number(c->points[i].x),
                                          json_number(c->points[i].y)));
    return json_pack("{s:o, s:o}", "name", text_json(c->name), "points",
                     points);
}

static json_t *plot_json(const item *i)
{
    const plot *p = &i->of.plot;
    json_t *curves = json_array();
    for (size_t c = 0; curves && c < p->count; c++)
        curves = append(curves, curve_json(&p->curves[c]));
    return json_pack("{s:s, s:o, s:o, s:o, s:b, s:b, s:o}", "kind", "plot",
                     "title", text_json(i->title), "across",
                     text_json(p->across), "upward", text_json(p->upward),
                     "log_across", (int)p->log_across, "log_upward",
                     (int)p->log_upward, "curves", curves);
}

static json_t *mask_json(const item *i)
{
    json_t *mask =
        json_pack("{s:s, s:o, s:o, s:I}", "kind", "mask", "title",
                  text_json(i->title), "mask", json_mask(i->of.mask.seen),
                  "leaks", (json_int_t)mask_view_leaks(&i->of.mask));
    if (i->of.mask.leaks)
        json_object_set_new(mask, "leak_mask", json_mask(i->of.mask.leaks));
    return mask;
}

static json_t *labels_json(char *const *labels, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++)
        list = append(list, text_json(labels[i]));
    return list;
}

static json_t *attention_json(const item *i)
{
    const attention_view *a = &i->of.attention;
    json_t *weights = json_array();
    for (size_t k = 0; weights && k < a->rows * a->columns; k++)
        weights = append(weights, json_number((double)a->weights[k]));
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "kind", "attention", "title",
                     text_json(i->title), "row_labels",
                     labels_json(a->labels, a->rows), "column_labels",
                     labels_json(a->labels + a->rows, a->columns), "weights",
                     weights);
}

static json_t *item_json(const item *i)
{
    switch (i->kind) {
    case ITEM_TABLE:
        return table_json(i);
    case ITEM_PLOT:
        return plot_json(i);
    case ITEM_MASK:
        return mask_json(i);
    case ITEM_ATTENTION:
        return attention_json(i);
    case ITEM_QUOTE:
        return json_pack("{s:s, s:o, s:o}", "kind", "quote", "title",
                         text_json(i->title), "text", text_json(i->of.quote));
    default:
        return json_pack("{s:s, s:o}", "kind", "heading", "title",
                         text_json(i->title));
    }
}

static json_t *claims_json(const report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < r->claims; i++)
        list = append(list,
                      json_pack("{s:b, s:o}", "holds", (int)r->claim[i].holds,
                                "claim", text_json(r->claim[i].text)));
    return list;
}

static json_t *findings_json(const report *r)
{
    if (!report_valid(r))
        return NULL;
    json_t *found = json_array(), *sentences = json_array();
    for (size_t i = 0; found && i < r->items; i++)
        found = append(found, item_json(&r->item[i]));
    for (size_t i = 0; sentences && i < r->sentences; i++)
        sentences = append(sentences, text_json(r->sentence[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "lab",
                     text_json(r->name), "question", text_json(r->question),
                     "found", found, "conclusion", sentences, "claims",
                     claims_json(r), "holds", (int)report_passed(r));
}

json_t *report_to_json(const report *r)
{
    json_t *all = findings_json(r);
    if (all && r->toy)
        json_object_set(all, "toy", r->toy);
    return all;
}

int report_json(const report *r)
{
    return json_line("lab", findings_json(r));
}
