/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_html.c - bauta lab: reports as one HTML page, without scripts or
 * external resources. */
#include "../cli/cli.h"
#include "../cli/output_file.h"
#include "lab_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, "
    "initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
    "'none'; style-src 'unsafe-inline'\">\n"
    "<title>Masked attention, by experiment</title>\n"
    "<style>\n"
    ":root { --back: #fdfcf9; --card: #fff; --front: #1d1c21; --dim: #66646e;"
    " --line: #dcd9d2;\n"
    "  --seen: #1f8a7a; --hidden: #eceae4; --hatch: #cfccc4; --leak: #d11f35;"
    " --accent: #7a1e3a;\n"
    "  --k0: #1f6fb2; --k1: #d1602a; --k2: #1f8a7a; --k3: #8a4fb5;"
    " --k4: #a1800a; --k5: #5c5c66; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --back: #141317; --card: #1c1b20; --front: #eceaf0;"
    " --dim: #a4a1ad; --line: #3b3942;\n"
    "    --seen: #3fb8a3; --hidden: #24232a; --hatch: #3c3a44;"
    " --leak: #ff4d63; --accent: #f0a3b8;\n"
    "    --k0: #6db5f0; --k1: #f29a63; --k2: #3fb8a3; --k3: #c79aec;"
    " --k4: #dcc04a; --k5: #b4b1bd; }\n"
    "}\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem;"
    " background: var(--back); color: var(--front);\n"
    "  font: 1rem/1.55 system-ui, sans-serif; }\n"
    "h1 { font: 700 2.1rem/1.2 Georgia, serif; margin: 0 0 .4rem; }\n"
    "h2 { font: 700 1.5rem/1.2 Georgia, serif; margin: 0 0 .3rem;"
    " color: var(--accent); }\n"
    "h3 { font-size: .95rem; margin: 1.6rem 0 .5rem; }\n"
    ".dim, nav, footer { color: var(--dim); }\n"
    "nav a { color: inherit; margin-right: 1rem; }\n"
    "section { background: var(--card); border: 1px solid var(--line);"
    " border-radius: .7rem;\n"
    "  padding: 1.4rem 1.5rem 1.5rem; margin-top: 2rem; }\n"
    ".question { font: italic 1.1rem/1.5 Georgia, serif; margin: 0;"
    " max-width: 46rem; }\n"
    ".wide { overflow-x: auto; }\n"
    "table { border-collapse: collapse; font-size: .92rem;"
    " font-variant-numeric: tabular-nums; }\n"
    "th { text-align: left; font-weight: 600; color: var(--dim);"
    " border-bottom: 2px solid var(--line); }\n"
    "th, td { padding: .3rem 1.1rem .3rem 0; white-space: nowrap; }\n"
    "td { border-bottom: 1px solid var(--line); }\n"
    "th.n, td.n { text-align: right; }\n"
    ".plot { display: block; width: 100%; min-width: 30rem; max-width: 46rem;"
    " height: auto; }\n"
    ".grid { stroke: var(--line); fill: none; }\n"
    ".axis { stroke: var(--dim); fill: none; }\n"
    ".line { fill: none; stroke-width: 2; stroke-linejoin: round; }\n"
    ".tick, .name { font: 12px system-ui, sans-serif; fill: var(--dim); }\n"
    ".name { fill: var(--front); }\n"
    ".k0 { stroke: var(--k0); fill: var(--k0); }"
    " .k1 { stroke: var(--k1); fill: var(--k1); }\n"
    ".k2 { stroke: var(--k2); fill: var(--k2); }"
    " .k3 { stroke: var(--k3); fill: var(--k3); }\n"
    ".k4 { stroke: var(--k4); fill: var(--k4); }"
    " .k5 { stroke: var(--k5); fill: var(--k5); }\n"
    ".legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem;"
    " list-style: none; margin: .4rem 0 0; padding: 0; font-size: .88rem; }\n"
    ".legend li { display: flex; align-items: center; gap: .4rem; }\n"
    ".masks { display: flex; flex-wrap: wrap; gap: 1.3rem 1.6rem;"
    " margin: 1.3rem 0 0; }\n"
    ".masks figure { margin: 0; }\n"
    "figcaption { font-size: .85rem; margin-bottom: .35rem; }\n"
    ".mask { display: block; max-width: 100%; height: auto; }\n"
    ".hidden { fill: var(--hidden); } .seen { fill: var(--seen); }"
    " .leak { fill: var(--leak); }\n"
    ".crossed { fill: url(#cross); } .cross { stroke: var(--card);"
    " stroke-width: 1.2; fill: none; }\n"
    ".hatched { stroke: var(--hatch); stroke-width: 1.6; }\n"
    ".parted { stroke: var(--card); stroke-width: 1; fill: none; }\n"
    "blockquote { margin: 0; padding: .6rem 1rem; border-left: 4px solid "
    "var(--seen); background: var(--back);\n"
    "  font: .92rem/1.5 ui-monospace, monospace; white-space: pre-wrap;"
    " overflow-wrap: anywhere; }\n"
    ".says { font: 1.08rem/1.55 Georgia, serif; margin: 1.6rem 0 0;"
    " max-width: 46rem; }\n"
    ".fails { color: var(--leak); font-weight: 600; }\n"
    "footer { margin-top: 2rem; font-size: .85rem; }\n"
    "@media print { section { break-inside: avoid; border: 0; } }\n"
    "</style>\n"
    "</head>\n"
    "<body>\n"
    "<svg width=\"0\" height=\"0\" style=\"position:absolute\" "
    "aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"5\" height=\"5\" "
    "patternUnits=\"userSpaceOnUse\"><path class=\"hatched\" "
    "d=\"M0 5L5 0\"/></pattern><pattern id=\"cross\" width=\"10\" "
    "height=\"10\" patternUnits=\"userSpaceOnUse\"><path class=\"cross\" "
    "d=\"M3 3L7 7M7 3L3 7\"/></pattern></defs></svg>\n"
    "<h1>Masked attention, by experiment</h1>\n"
    "<p class=\"dim\">In the drawings rows are queries and columns are keys. "
    "Green is visible, hatched is hidden, and red, crossed out, is a "
    "leak.</p>\n";

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

/* Consecutive masks; returns how many. */
static size_t masks_html(FILE *to, const item *items, size_t left)
{
    size_t n = 0;
    fputs("<div class=\"masks\">\n", to);
    for (; n < left && items[n].kind == ITEM_MASK; n++) {
        element(to, "<figure><figcaption>", items[n].title, "</figcaption>\n");
        mask_svg(to, &items[n].of.mask, items[n].title);
        fputs("</figure>\n", to);
    }
    fputs("</div>\n", to);
    return n;
}

static size_t item_html(FILE *to, const item *i, size_t left)
{
    if (i->kind == ITEM_MASK)
        return masks_html(to, i, left);
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

static void claims_html(FILE *to, const report *r)
{
    size_t holding = 0;
    for (size_t i = 0; i < r->claims; i++) {
        holding += r->claim[i].holds;
        if (!r->claim[i].holds)
            element(to,
                    "<p class=\"fails\">This does not hold: ", r->claim[i].text,
                    "</p>\n");
    }
    if (r->claims)
        fprintf(to,
                "<details><summary class=\"dim\">%zu of %zu claims hold"
                "</summary><ul>\n",
                holding, r->claims);
    for (size_t i = 0; i < r->claims; i++)
        element(to, "<li>", r->claim[i].text, "</li>\n");
    if (r->claims)
        fputs("</ul></details>\n", to);
}

static void report_html(FILE *to, const report *r)
{
    element(to, "<section id=\"", r->name, "\">\n");
    element(to, "<h2>", r->name, "</h2>\n");
    element(to, "<p class=\"question\">", r->question, "</p>\n");
    for (size_t i = 0; i < r->items;)
        i += item_html(to, &r->item[i], r->items - i);
    fputs("<p class=\"says\">", to);
    for (size_t i = 0; i < r->sentences; i++)
        element(to, i ? " " : "", r->sentence[i], "");
    fputs("</p>\n", to);
    claims_html(to, r);
    fputs("</section>\n", to);
}

static void page_html(FILE *to, const report *const *reports, size_t count)
{
    fputs(head, to);
    fputs("<nav>", to);
    for (size_t i = 0; i < count; i++) {
        element(to, "<a href=\"#", reports[i]->name, "\">");
        element(to, "", reports[i]->name, "</a>");
    }
    fputs("</nav>\n", to);
    for (size_t i = 0; i < count; i++)
        report_html(to, reports[i]);
    fprintf(to,
            "<footer>Written by bauta %s. All figures and claims were measured "
            "when this page was made.</footer>\n"
            "</body>\n</html>\n",
            bauta_version());
}

/* ---- the file ---------------------------------------------------------- */

int report_page(const report *const *reports, size_t count, const char *path)
{
    output_file out;
    for (size_t i = 0; i < count; i++)
        if (!report_valid(reports[i]))
            return cli_fail("lab", "out of memory");
    bool good = output_file_open(&out, path);
    if (good) {
        page_html(out.file, reports, count);
        good = output_file_close(&out, true);
    }
    if (good)
        return CLI_OK;
    return errno == ENOMEM ? cli_fail("lab", "out of memory")
                           : cli_fail("lab", "%s: cannot write it: %s", path,
                                      strerror(errno));
}
