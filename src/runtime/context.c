/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - creates and frees contexts. */
#include "runtime/context.h"

#include "autograd/tape.h"
#include "backend/cuda/driver.h"
#include "base/sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- Devices ------------------------------------------------------------- */

static const bt_device_driver *registered;

void bt_device_register(const bt_device_driver *driver)
{
    registered = driver;
}

/* Whether `device` is "name" or "name:7". *number becomes -1 or 7. */
static bool device_named(const char *device, const char *name, int *number)
{
    enum { DIGITS = 4 };
    size_t length = strlen(name);
    *number = -1;
    if (strncmp(device, name, length) != 0)
        return false;
    if (!device[length])
        return true;
    const char *digits = device + length + 1;
    if (device[length] != ':' || !*digits || strlen(digits) > DIGITS ||
        digits[strspn(digits, "0123456789")])
        return false;
    *number = (int)strtol(digits, NULL, 10);
    return true;
}

static bauta_status gpu_take(bauta_context *context, const char *device,
                             int number, bauta_error *err)
{
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

static bauta_status dtype_set(bt_stream *stream, bauta_dtype dtype,
                              bauta_error *err)
{
    if ((unsigned)dtype >= BT_DTYPE_COUNT)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "dtype is %u, which is not a known type",
                       (unsigned)dtype);
    if (!stream->backend->supports(stream, BT_OP_linear, dtype, NULL))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the device \"%s\" does not compute in %s",
                       stream->device, bt_dtype_name(dtype));
    stream->dtype = dtype;
    return BAUTA_OK;
}

static bauta_status driver_open(bauta_context *context,
                                const bt_device_driver *driver, int number,
                                const bauta_options *options, bauta_error *err)
{
    bauta_status status = driver->open(&context->stream, number, options, err);
    if (!status)
        snprintf(context->device_name, sizeof(context->device_name), "%s",
                 context->stream->device);
    return status;
}

static bauta_status device_take(bauta_context *context,
                                const bauta_options *options, bauta_error *err)
{
    const char *device = options->device ? options->device : "cpu";
    int number;
    if (strcmp(device, "cpu") == 0) {
        strcpy(context->device_name, "cpu");
        return bt_cpu_stream_create(&context->stream, context->kernels,
                                    context->pool, err);
    }
    if (device_named(device, "cuda", &number)) {
        bauta_status status = gpu_take(context, device, number, err);
        return status ? status
                      : driver_open(context, &bt_cuda_driver, number, options,
                                    err);
    }
    if (registered && device_named(device, registered->name, &number))
        return driver_open(context, registered, number, options, err);
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "device is \"%s\", not \"cpu\", \"cuda\" or \"cuda:\" "
                   "and a number",
                   bt_quote(device).text);
}

/* ---- Contexts ------------------------------------------------------------ */

static bauta_status pool_create(bauta_context *context,
                                const bauta_options *options, bauta_error *err)
{
    if (options->parallel_for)
        return bt_thread_pool_create_custom(&context->pool, context->threads,
                                            options->parallel_for,
                                            options->parallel_for_user, err);
    return context->threads > 1
               ? bt_thread_pool_create(&context->pool, context->threads, err)
               : BAUTA_OK;
}

static bauta_status context_fill(bauta_context *context,
                                 const bauta_options *options, bauta_error *err)
{
    context->threads =
        options->threads ? options->threads : bt_threads_available();
    bauta_status status = pool_create(context, options, err);
    if (!status)
        status = device_take(context, options, err);
    if (!status)
        status = dtype_set(context->stream, options->dtype, err);
    if (!status)
        status = bt_tape_create(&context->tape, context->stream, err);
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
    if (chosen.threads < 0 || chosen.threads > BT_THREADS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "threads is %d, not from 0 to %d", chosen.threads,
                       BT_THREADS_MAX);
    const bt_kernels *kernels = bt_kernels_get(chosen.isa);
    if (!kernels)
        return unknown_isa(chosen.isa, err);
    bauta_context *context = bt_alloc_zero(1, sizeof(*context));
    if (!context)
        return bt_fail_memory(err, "a context", sizeof(*context));
    context->kernels = kernels;
    context->single = bt_comm_single();
    context->comm = &context->single;
    status = context_fill(context, &chosen, err);
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
    if (context->stream->backend != &bt_cpu_backend)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the context has the device \"%s\"; this call runs on "
                       "the CPU",
                       context->device_name);
    return BAUTA_OK;
}

void bauta_context_free(bauta_context *context)
{
    if (!context)
        return;
    bt_tape_free(context->tape);
    bt_plan_cache_release(&context->plan_cache);
    if (context->stream)
        context->stream->backend->stream_free(context->stream);
    bt_thread_pool_free(context->pool);
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
