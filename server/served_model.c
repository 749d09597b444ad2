/* SPDX-License-Identifier: Apache-2.0 */
/* served_model.c - one of the models of a server; see served_model.h. */
#include "served_model.h"

#include "../cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It is quoted in JSON and in metrics. */
static void alias_set(served_model *m, const char *name)
{
    char *path = NULL;
    if (!name) {
        path = realpath(m->opened->folder, NULL);
        const char *slash = path ? strrchr(path, '/') : NULL;
        name = slash && slash[1] ? slash + 1 : m->opened->folder;
    }
    snprintf(m->alias, sizeof(m->alias), "%s", name);
    free(path);
    json_t *string = json_string(m->alias);
    bool ascii = string == NULL; // not UTF-8
    json_decref(string);
    for (char *c = m->alias; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte < 0x20 || byte == 0x7f || *c == '"' || *c == '\\' ||
            (ascii && byte >= 0x80))
            *c = '_';
    }
}

int served_model_open(served_model *m, const server_options *options,
                      const opened_model *opened, const char *alias)
{
    bauta_error err;
    *m = (served_model){ .options = options, .opened = opened };
    m->defaults = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    alias_set(m, alias);
    metrics_init(&m->metrics);
    if (bauta_model_kind_of(opened->model) != BAUTA_ENCODER_ONLY &&
        bauta_generate_options_load(&m->defaults, opened->model, &err))
        return cli_fail(opened->verb, "%s", err.message);
    m->defaults.num_return_sequences = 0;
    m->chat = chat_load(opened);
    m->scheduler = scheduler_create(options, opened, &m->metrics);
    return m->scheduler ? CLI_OK : CLI_FAILED;
}

void served_model_close(served_model *m)
{
    scheduler_free(m->scheduler);
    chat_free(m->chat);
    metrics_release(&m->metrics);
}

served_model *served_model_find(served_model *all, size_t count,
                                const char *name, failure *f)
{
    for (size_t i = 0; i < count; i++)
        if (!name || strcmp(name, all[i].alias) == 0 ||
            strcmp(name, all[i].opened->folder) == 0)
            return &all[i];
    fail(f, 404, "model", "model_not_found",
         "there is no model '%.80s'; see /v1/models", name);
    return NULL;
}

bool kind_require(const served_model *m, bauta_model_kind kind, failure *f)
{
    bauta_model_kind is = bauta_model_kind_of(m->opened->model);
    if (is == kind)
        return true;
    return fail(f, 400, "model", "unsupported",
                "'%s' is %s, and this is for %s models", m->alias,
                bauta_model_kind_text(is), bauta_model_kind_text(kind));
}
