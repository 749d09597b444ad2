/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_html.c - bauta lab: a report as HTML, for the page of
 * lab_lesson.c.
 */
#include "lab_report.h"

#include <stdlib.h>
#include <string.h>

/* ---- items ------------------------------------------------------------- */

static void element(FILE *to, const char *open, const char *text,
                    const char *close)
{
    fputs(open, to);
    html_text(to, text);
    fputs(close, to);
}

static void row_html(FILE *to, const table *t, size_t row)
{
    const char *tag = row ? "td" : "th";
    fputs("<tr>", to);
    for (size_t j = 0; j < t->columns; j++) {
        fprintf(to, "<%s%s>", tag, t->numbers[j] ? " class=\"n\"" : "");
        html_text(to, t->cells[row * t->columns + j]);
        fprintf(to, "</%s>", tag);
    }
    fputs("</tr>\n", to);
}

static void table_html(FILE *to, const table *t)
{
    fputs("<div class=\"wide\"><table>\n", to);
    for (size_t i = 0; i <= t->rows; i++)
        row_html(to, t, i);
    fputs("</table></div>\n", to);
}

/* Consecutive masks, or attentions; returns how many. */
static size_t figures_html(FILE *to, const item *items, size_t left)
{
    size_t n = 0;
    fputs("<div class=\"masks\">\n", to);
    for (; n < left && items[n].kind == items[0].kind; n++) {
        element(to, "<figure><figcaption>", items[n].title, "</figcaption>\n");
        if (items[n].kind == ITEM_MASK)
            mask_svg(to, &items[n].of.mask, items[n].title);
        else
            attention_svg(to, &items[n].of.attention, items[n].title);
        fputs("</figure>\n", to);
    }
    fputs("</div>\n", to);
    return n;
}

static size_t item_html(FILE *to, const item *i, size_t left)
{
    if (i->kind == ITEM_MASK || i->kind == ITEM_ATTENTION)
        return figures_html(to, i, left);
    if (*i->title)
        element(to, "<h3>", i->title, "</h3>\n");
    if (i->kind == ITEM_TABLE)
        table_html(to, &i->of.table);
    else if (i->kind == ITEM_PLOT)
        plot_svg(to, &i->of.plot, i->title);
    else if (i->kind == ITEM_QUOTE)
        element(to, "<blockquote>", i->of.quote, "</blockquote>\n");
    return 1;
}

/* ---- reports ----------------------------------------------------------- */

static void claim_html(FILE *to, const claim *c)
{
    fprintf(to, "<li%s><b>%s</b> ", c->holds ? "" : " class=\"fails\"",
            c->holds ? "holds" : "does not hold");
    element(to, "", c->text, "</li>\n");
}

static void claims_html(FILE *to, const report *r)
{
    fputs("<ul class=\"claims\">\n", to);
    for (size_t i = 0; i < r->claims; i++)
        claim_html(to, &r->claim[i]);
    fputs("</ul>\n", to);
}

void report_claim_html(FILE *to, const report *r, size_t index)
{
    if (index >= r->claims)
        return;
    element(to,
            "<div class=\"experiment\">\n<p class=\"kicker\">From the "
            "experiment <a href=\"#lab-",
            r->name, "\">");
    element(to, "<code>bauta lab ", r->name, "</code></a></p>\n");
    fputs("<ul class=\"claims\">\n", to);
    claim_html(to, &r->claim[index]);
    fputs("</ul>\n</div>\n", to);
}

static void conclusion_html(FILE *to, const report *r)
{
    fputs("<p class=\"says\">", to);
    for (size_t i = 0; i < r->sentences; i++)
        element(to, i ? " " : "", r->sentence[i], "");
    fputs("</p>\n", to);
}

void report_html(FILE *to, const report *r)
{
    element(to, "<div class=\"experiment\" id=\"lab-", r->name, "\">\n");
    element(to, "<p class=\"kicker\">Experiment: <code>bauta lab ", r->name,
            "</code></p>\n");
    element(to, "<p class=\"question\">", r->question, "</p>\n");
    conclusion_html(to, r);
    if (r->claims)
        claims_html(to, r);
    fputs("<details><summary>What was measured</summary>\n", to);
    for (size_t i = 0; i < r->items;)
        i += item_html(to, &r->item[i], r->items - i);
    fputs("</details>\n</div>\n", to);
}
