/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - creates and frees contexts. */
#include "runtime/context.h"

#include "autograd/tape.h"
#include "base/sized.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
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
                   "instruction set \"%s\" is not supported on this machine "
                   "(%s)",
                   isa, list);
}

/* The number in "cuda:7", or -1 for "cuda"; false if it is neither. */
static bool cuda_number(const char *device, int *number)
{
    enum { DIGITS = 4 };
    *number = -1;
    if (strcmp(device, "cuda") == 0)
        return true;
    const char *digits = device + strlen("cuda:");
    if (strncmp(device, "cuda:", strlen("cuda:")) != 0 || !*digits ||
        strlen(digits) > DIGITS || digits[strspn(digits, "0123456789")])
        return false;
    *number = (int)strtol(digits, NULL, 10);
    return true;
}

static bauta_status device_take(bauta_context *context, const char *device,
                                bauta_error *err)
{
    int number;
    if (!device || strcmp(device, "cpu") == 0) {
        strcpy(context->device_name, "cpu");
        return BAUTA_OK;
    }
    if (!cuda_number(device, &number))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "device is \"%s\", not \"cpu\", \"cuda\" or \"cuda:\" "
                       "and a number",
                       bt_quote(device).text);
    const bt_gpu *gpu = bt_gpu_table();
    if (!gpu)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "device \"%s\": this library was built without CUDA",
                       device);
    bauta_status status = gpu->find(number, &context->device, err);
    if (!status)
        snprintf(context->device_name, sizeof(context->device_name), "cuda:%d",
                 context->device);
    context->gpu = gpu;
    return status;
}

bauta_status bauta_context_create(bauta_context **out,
                                  const bauta_options *options,
                                  bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bauta_options chosen;
    bauta_status status =
        BT_SIZED_READ(&chosen, BAUTA_OPTIONS_INIT, options, "options", err);
    if (status)
        return status;
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
    status = device_take(context, chosen.device, err);
    if (!status)
        status = bt_tape_create(&context->tape, kernels, context->threads, err);
    if (status)
        bauta_context_free(context);
    else
        *out = context;
    return status;
}

bauta_status bt_context_check_cpu(const bauta_context *context,
                                  bauta_error *err)
{
    BT_NEED(context, err);
    if (context->gpu)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the context has the device \"%s\", which only the "
                       "bauta_gpu_ calls support; this call runs on the CPU",
                       context->device_name);
    return BAUTA_OK;
}

void bauta_context_free(bauta_context *context)
{
    if (!context)
        return;
    bt_tape_free(context->tape);
    bt_plan_cache_release(&context->plan_cache);
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

const char *bauta_context_device(const bauta_context *context)
{
    return context->device_name;
}
