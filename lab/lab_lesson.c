/* SPDX-License-Identifier: Apache-2.0 */
/* lab_lesson.c - bauta lab: the page, one self-contained HTML file.
 *
 * lesson.html has the words and the pictures to play with. In it
 *
 *     <!--lab NAME-->     is replaced by the report of that experiment,
 *     <!--lab NAME 2-->   by its claim 2, counted from 0,
 *     <!--lab NAME ?-->   by its report, or by nothing if it has not run,
 *     <!--lab others-->   by the reports that no other mark names,
 *     @DATA@              by one JSON object: the toy of each report by its
 * name,
 *     @VERSION@           by the version of bauta.
 *
 * Another mark whose experiment has not run becomes a line that says so. */
#include "../cli/cli.h"
#include "../cli/output_file.h"
#include "lab_report.h"
#include "lesson.h"

#include <errno.h>
#include <string.h>

typedef struct page {
    FILE *to;
    const report *const *reports;
    size_t count;
    const json_t *toys;
} page;

static const char mark_begin[] = "<!--lab ", mark_end[] = "-->";

/* ---- reports ----------------------------------------------------------- */

/* Whether the page has a mark of its own for this experiment. */
static bool has_mark(const char *name)
{
    char whole[64], optional[64];
    snprintf(whole, sizeof(whole), "%s%s%s", mark_begin, name, mark_end);
    snprintf(optional, sizeof(optional), "%s%s ?%s", mark_begin, name,
             mark_end);
    return strstr(lesson_text, whole) || strstr(lesson_text, optional);
}

static const report *report_find(const page *p, const char *name, size_t length)
{
    for (size_t i = 0; i < p->count; i++)
        if (strlen(p->reports[i]->name) == length &&
            strncmp(p->reports[i]->name, name, length) == 0)
            return p->reports[i];
    return NULL;
}

static void others_write(const page *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (!has_mark(p->reports[i]->name))
            report_html(p->to, p->reports[i]);
}

/* `mark` is the text between the begin and the end of a mark. */
static void mark_write(const page *p, const char *mark)
{
    size_t length = strcspn(mark, " -");
    const char *after = mark[length] == ' ' ? mark + length + 1 : "";
    if (length == strlen("others") && strncmp(mark, "others", length) == 0) {
        others_write(p);
        return;
    }
    const report *r = report_find(p, mark, length);
    if (r && *after >= '0' && *after <= '9')
        report_claim_html(p->to, r, (size_t)(*after - '0'));
    else if (r)
        report_html(p->to, r);
    else if (*after != '?')
        fprintf(p->to,
                "<p class=\"absent\">The experiment <code>bauta lab "
                "%.*s</code> has not run yet.</p>\n",
                (int)length, mark);
}

/* ---- data -------------------------------------------------------------- */

/* Inside a script element, '<' could end it. In JSON it is only in texts. */
static int script_write(const char *text, size_t length, void *user)
{
    FILE *to = user;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '<')
            fputs("\\u003c", to);
        else
            fputc(text[i], to);
    return 0;
}

static json_t *toys_collect(const report *const *reports, size_t count)
{
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++)
        if (reports[i]->toy)
            json_object_set(all, reports[i]->name, reports[i]->toy);
    return all;
}

/* ---- the page ---------------------------------------------------------- */

static void page_write(const page *p)
{
    static const char data[] = "@DATA@", version[] = "@VERSION@";
    const char *at = lesson_text;
    while (*at) {
        size_t plain = strcspn(at, "<@");
        fwrite(at, 1, plain, p->to);
        at += plain;
        if (strncmp(at, mark_begin, strlen(mark_begin)) == 0) {
            const char *name = at + strlen(mark_begin);
            mark_write(p, name);
            at = strstr(name, mark_end) + strlen(mark_end);
        } else if (strncmp(at, data, strlen(data)) == 0) {
            json_dump_callback(p->toys, script_write, p->to,
                               JSON_COMPACT | JSON_REAL_PRECISION(9));
            at += strlen(data);
        } else if (strncmp(at, version, strlen(version)) == 0) {
            fputs(bauta_version(), p->to);
            at += strlen(version);
        } else if (*at)
            fputc(*at++, p->to);
    }
}

int report_page(const report *const *reports, size_t count, const char *path)
{
    output_file out;
    for (size_t i = 0; i < count; i++)
        if (!report_valid(reports[i]))
            return cli_fail("lab", "out of memory");
    bool good = output_file_open(&out, path);
    if (good) {
        json_t *toys = toys_collect(reports, count);
        page_write(&(page){ out.file, reports, count, toys });
        json_decref(toys);
        good = output_file_close(&out, true);
    }
    if (good)
        return CLI_OK;
    return errno == ENOMEM ? cli_fail("lab", "out of memory")
                           : cli_fail("lab", "%s: cannot write it: %s", path,
                                      strerror(errno));
}
