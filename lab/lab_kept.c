/* SPDX-License-Identifier: Apache-2.0 */
/* lab_kept.c - bauta lab: finished experiments in the folder of the page, so
 * that an interrupted run can go on. */
#include "../cli/cli.h"
#include "../cli/output_file.h"
#include "lab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "DIR/NAME.json" in malloc'd memory, or NULL. */
static char *path_of(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + sizeof("/.json");
    char *path = malloc(size);
    bool slash = folder[strlen(folder) - 1] == '/';
    if (path)
        snprintf(path, size, "%s%s%s.json", folder, slash ? "" : "/", name);
    return path;
}

/* What the result depends on, as one text. */
static void conditions(const lab *l, char *to, size_t size)
{
    snprintf(to, size, "bauta %s, seed %llu%s", bauta_version(),
             (unsigned long long)l->seed, l->fast ? ", fast" : "");
}

report *lab_kept_load(const lab *l, const char *folder, const char *name)
{
    char want[96];
    char *path = path_of(folder, name);
    json_t *from = path ? json_load_file(path, 0, NULL) : NULL;
    const char *got = json_string_value(json_object_get(from, "conditions"));
    report *r = NULL;
    conditions(l, want, sizeof(want));
    if (got && strcmp(got, want) == 0)
        r = report_from_json(json_object_get(from, "report"));
    json_decref(from);
    free(path);
    return r;
}

int lab_kept_save(const lab *l, const char *folder, const report *r)
{
    char with[96];
    output_file out;
    json_t *report_json = report_to_json(r);
    const char *name = json_string_value(json_object_get(report_json, "lab"));
    char *path = name ? path_of(folder, name) : NULL;
    conditions(l, with, sizeof(with));
    json_t *all =
        json_pack("{s:s, s:o}", "conditions", with, "report", report_json);
    bool good = path && all && output_file_open(&out, path);
    if (good) {
        bool written = json_dumpf(all, out.file, JSON_COMPACT) == 0 &&
                       fputc('\n', out.file) != EOF;
        good = output_file_close(&out, written) && written;
    }
    int failed = good   ? CLI_OK
                 : path ? cli_fail("lab", "%s: cannot write it: %s", path,
                                   strerror(errno))
                        : cli_fail("lab", "out of memory");
    json_decref(all);
    free(path);
    return failed;
}
