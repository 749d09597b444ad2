/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - what a caller chooses once. */
#include "ops/context.h"

#include "base/error.h"
#include "base/threads.h"
#include "ops/tape.h"

#include <stdio.h>
#include <string.h>

enum { THREADS_MAX = 1024 };

static bauta_status unknown_isa(const char *isa, bauta_error *err)
{
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    char list[64] = "";
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                 names[i]);
    }
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "instruction set \"%s\" is not one that this machine runs "
                   "(%s)",
                   isa, list);
}

bauta_status bauta_context_create(bauta_context **out,
                                  const bauta_options *options,
                                  bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bauta_options chosen = BAUTA_OPTIONS_INIT;
    if (options) {
        if (options->size != sizeof(chosen))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "options.size is %zu, not %zu: start from "
                           "BAUTA_OPTIONS_INIT",
                           options->size, sizeof(chosen));
        chosen = *options;
    }
    if (chosen.threads < 0 || chosen.threads > THREADS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "threads is %d, not from 0 to %d", chosen.threads,
                       THREADS_MAX);
    const bt_kernels *kernels = bt_kernels_get(chosen.isa);
    if (!kernels)
        return unknown_isa(chosen.isa, err);
    bauta_context *context = bt_alloc_zero(1, sizeof(*context));
    if (!context)
        return bt_fail_memory(err, "a context", sizeof(*context));
    context->threads = chosen.threads ? chosen.threads : bt_threads_available();
    context->kernels = kernels;
    *out = context;
    return BAUTA_OK;
}

void bauta_context_free(bauta_context *context)
{
    if (!context)
        return;
    bt_tape_free(context->tape);
    bt_shelf_release(&context->shelf);
    bt_arena_release(&context->workspace);
    bt_free(context);
}

const char *bauta_context_isa(const bauta_context *context)
{
    return context->kernels->isa;
}

int bauta_context_threads(const bauta_context *context)
{
    return context->threads;
}
