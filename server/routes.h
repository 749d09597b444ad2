/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h - which function answers which path. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "state.h"

typedef struct route {
    const char *path; /* one that ends in "/" is followed by a model's name */
    const char *method;
    answer_fn *answer;
    bool open; /* needs no API key */
} route;

/* The route of a path, or NULL after a failure. *model becomes the name in the
 * path, or NULL, and *allow the method that the path is for. */
const route *route_find(const char *path, const char *method,
                        const char **model, const char **allow, failure *f);

#endif
