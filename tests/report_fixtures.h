/* SPDX-License-Identifier: Apache-2.0 */
/* report_fixtures.h - reports of bauta lab for tests: one with every kind of
 * element, and its rendered text. */
#ifndef BT_TEST_REPORT_FIXTURES_H
#define BT_TEST_REPORT_FIXTURES_H

#include "../cli/cli.h"
#include "../lab/lab_report.h"
#include "temp_folder.h"
#include "testing.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Stands in for the program's error output. */
static char message[512]; /* the last message */

int cli_fail(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = snprintf(message, sizeof(message), "%s: ", verb);
    vsnprintf(message + used, sizeof(message) - (size_t)used, format, args);
    va_end(args);
    return CLI_FAILED;
}

/* The text of a report as printed to a pipe, for free(). */
static inline char *printed(const report *r, bool colours)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    report_print(r, to, colours);
    fclose(to);
    assert_non_null(text);
    return text;
}

static inline void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

static inline void assert_not_in(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("'%s' is in:\n%s", part, text);
}

/* The output of report_json(), parsed. */
static inline json_t *json_of(const report *r, int *status)
{
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "out");
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO);
    *status = report_json(r);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(file);
    json_t *parsed = json_load_file(path, 0, NULL);
    temp_folder_free(&s);
    return parsed;
}

/* A report with one of everything. */
static inline void fill(report *r)
{
    bauta_mask *all = NULL, *causal = NULL;
    bauta_mask_all(&all, 3, 3, NULL);
    bauta_mask_causal(&causal, 3, 3, NULL);
    report_heading(r, "a heading");
    report_table(r, "a table", "name\tcount");
    report_row(r, "%s\t%d", "one", 1);
    report_row(r, "two\t2");
    report_plot(r, &(plot_options){ "a plot", "x", "y", false, true });
    report_curve(r, "first");
    for (int i = 1; i <= 5; i++)
        report_point(r, i, i * i);
    report_curve(r, "second");
    report_point(r, 1, NAN);
    if (all && causal) {
        report_mask(r, "a mask", causal, NULL);
        report_mask(r, "a leak", all, causal);
    }
    report_attention(r, "attention", 2, 3, (const char *[]){ "I", "love" },
                     (const char *[]){ "ich", "liebe", "<s>" },
                     (const float[]){ 1.0f, 0.0f, 0.0f, 0.05f, 0.7f, 0.25f });
    report_quote(r, "a quote", "it says");
    report_conclude(r, "So it is.");
    report_conclude(r, "And %s.", "so");
    report_claim(r, true, "that holds");
    bauta_mask_free(all);
    bauta_mask_free(causal);
}

#endif
