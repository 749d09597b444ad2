/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - checks of the fuzz targets: they abort where a guarantee is
 * broken. */
#ifndef BT_FUZZ_CHECKS_H
#define BT_FUZZ_CHECKS_H

#include "bauta.h"

#include <stdlib.h>

static inline void must(bool fine)
{
    if (!fine)
        abort();
}

/* A failure has a status and a message without control characters. */
static inline void must_refuse(bauta_status status, const bauta_error *err)
{
    must(status && status == err->status && err->message[0]);
    for (const char *c = err->message; *c; c++)
        must((unsigned char)*c >= 0x20);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
