/* SPDX-License-Identifier: Apache-2.0 */
/* device_options.h - --device, --dtype and --threads of the verbs that run a
 * model, and the context that they ask for. */
#ifndef DEVICE_OPTIONS_H
#define DEVICE_OPTIONS_H

#include "options.h"

#include <bauta.h>

typedef struct device_options {
    const char *name; /* "cpu", "cuda" or "cuda:1"; NULL: "cpu" */
    int dtype;        /* of bauta_dtype */
    size_t threads;   /* 0: one per core */
    const char *isa;  /* of the CPU; NULL: the best */
} device_options;

/* The values of --device, for completion, and those of --dtype, in the order of
 * bauta_dtype. */
extern const char *const device_names[], *const device_dtypes[];

/* The rows of a table of options; `d` points to a device_options. */
/* clang-format off */
#define DEVICE_OPTIONS(d)                                                     \
    { "--device", OPTION_STRING, &(d)->name, NULL, 0, 0, device_names },      \
    { "--dtype", OPTION_CHOICE, &(d)->dtype, NULL, 0, 0, device_dtypes },     \
    { "--threads", OPTION_SIZE, &(d)->threads, NULL, 0, 4096, NULL }
/* clang-format on */

bool device_is_cpu(const device_options *d);
/* CLI_USAGE after a message if the device has another name, or is the CPU and
 * cannot compute in the type. */
int device_check(const char *verb, const device_options *d);
/* The context, after that check; CLI_FAILED after a message. Move the model to
 * it with bauta_model_to() after loading. */
int device_open(bauta_context **out, const char *verb, const device_options *d);
/* Print where a model runs to stderr: "2 threads, avx512", or the GPU and the
 * type: "cuda:0, bfloat16". */
void device_print(const device_options *d, const bauta_context *context);

#endif
