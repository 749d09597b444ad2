/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_files.c - bauta lab: the attention of a report as a file. */
#include "../cli/cli.h"
#include "lab_report.h"

#include <stdlib.h>
#include <string.h>

/* The attentions of a report as pictures; returns how many. */
static size_t pictures_set(bauta_picture *to, const report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->items; i++) {
        const attention_view *a = &r->item[i].of.attention;
        if (r->item[i].kind != ITEM_ATTENTION)
            continue;
        bauta_picture *p = &to[count++];
        *p = (bauta_picture)BAUTA_PICTURE_INIT;
        p->title = r->item[i].title;
        p->rows = a->rows;
        p->columns = a->columns;
        p->weights = a->weights;
        p->row_labels = (const char *const *)a->labels;
        p->column_labels = (const char *const *)a->labels + a->rows;
    }
    return count;
}

int report_files(const report *r, const char *folder)
{
    bauta_error err;
    size_t size = strlen(folder) + strlen(r->name) + sizeof("/.svg");
    bool slash = folder[strlen(folder) - 1] == '/';
    char *path = malloc(size);
    bauta_picture *pictures = calloc(r->items + 1, sizeof(*pictures));
    int failed = path && pictures ? CLI_OK : cli_fail("lab", "out of memory");
    size_t count = failed ? 0 : pictures_set(pictures, r);
    if (count) {
        snprintf(path, size, "%s%s%s.svg", folder, slash ? "" : "/", r->name);
        bauta_status status =
            bauta_picture_save(path, pictures, count, NULL, &err);
        if (status && status != BAUTA_ERR_UNSUPPORTED)
            failed = cli_fail("lab", "%s", err.message);
    }
    free(pictures);
    free(path);
    return failed;
}
