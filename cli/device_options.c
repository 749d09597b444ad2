/* SPDX-License-Identifier: Apache-2.0 */
/* device_options.c - --device, --dtype and --threads; see device_options.h. */
#include "device_options.h"

#include "cli.h"

#include <stdio.h>
#include <string.h>

const char *const device_names[] = { "cpu", "cuda", NULL };
const char *const device_dtypes[] = { "float32", "bfloat16", NULL };

bool device_is_cpu(const device_options *d)
{
    return !d->name || strcmp(d->name, "cpu") == 0;
}

/* "cuda", or "cuda:" and a number. */
static bool is_gpu(const char *name)
{
    static const char cuda[] = "cuda";
    size_t length = sizeof(cuda) - 1;
    if (strncmp(name, cuda, length) != 0)
        return false;
    const char *number = name + length + 1;
    return !name[length] ||
           (name[length] == ':' && *number && strlen(number) <= 4 &&
            !number[strspn(number, "0123456789")]);
}

int device_check(const char *verb, const device_options *d)
{
    if (!device_is_cpu(d) && !is_gpu(d->name))
        return cli_usage(verb, "--device is '%s', not cpu, cuda or cuda:N",
                         d->name);
    if (device_is_cpu(d) && d->dtype != BAUTA_FLOAT32)
        return cli_usage(verb,
                         "--dtype %s needs a GPU (--device cuda); the CPU "
                         "computes in float32",
                         device_dtypes[d->dtype]);
    return CLI_OK;
}

int device_open(bauta_context **out, const char *verb, const device_options *d)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_error err;
    *out = NULL;
    int usage = device_check(verb, d);
    if (usage)
        return usage;
    how.device = d->name;
    how.dtype = (bauta_dtype)d->dtype;
    how.threads = (int)d->threads;
    how.isa = d->isa;
    if (!bauta_context_create(out, &how, &err))
        return CLI_OK;
    return device_is_cpu(d)
               ? cli_fail(verb, "%s", err.message)
               : cli_fail(verb, "--device %s: %s", d->name, err.message);
}

void device_print(const device_options *d, const bauta_context *context)
{
    int threads = bauta_context_threads(context);
    if (device_is_cpu(d))
        fprintf(stderr, "%d %s, %s", threads,
                threads == 1 ? "thread" : "threads",
                bauta_context_isa(context));
    else
        fprintf(stderr, "%s, %s", bauta_context_device(context),
                device_dtypes[d->dtype]);
}
