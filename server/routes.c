/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c - which function answers which path; see routes.h. */
#include "routes.h"

#include <string.h>

#define PAGE_ROUTE(name, path, type) \
    { path, "GET", page_##name##_answer, true },

static const route routes[] = {
    PAGE_FILES(PAGE_ROUTE) //
    { "/health", "GET", health_answer, true },
    { "/metrics", "GET", metrics_answer, false },
    { "/props", "GET", props_answer, false },
    { "/tokenize", "POST", tokenize_answer, false },
    { "/detokenize", "POST", detokenize_answer, false },
    { "/translate", "POST", translate_answer, false },
    { "/fill", "POST", fill_answer, false },
    { "/attention", "POST", attention_answer, false },
    { "/v1/models", "GET", models_answer, false },
    { "/v1/models/", "GET", model_answer, false },
    { "/v1/completions", "POST", completions_answer, false },
    { "/v1/chat/completions", "POST", chat_completions_answer, false },
    { "/v1/embeddings", "POST", embeddings_answer, false },
};

/* The model's name, if the path has one, goes to *model. */
static bool route_matches(const route *r, const char *path, const char **model)
{
    size_t length = strlen(r->path);
    *model = NULL;
    if (strcmp(path, r->path) == 0)
        return length == 1 || r->path[length - 1] != '/';
    if (length == 1 || r->path[length - 1] != '/' ||
        strncmp(path, r->path, length) != 0)
        return false;
    *model = path + length;
    return true;
}

const route *route_find(const char *path, const char *method,
                        const char **model, const char **allow, failure *f)
{
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (route_matches(&routes[i], path, model)) {
            *allow = routes[i].method;
            if (strcmp(method, routes[i].method) == 0)
                return &routes[i];
            fail(f, 405, NULL, "method_not_allowed", "%.40s is for %s", path,
                 routes[i].method);
            return NULL;
        }
    fail(f, 404, NULL, "not_found", "there is no %.80s", path);
    return NULL;
}
