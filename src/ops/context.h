/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - threads, kernels and workspace of one caller. */
#ifndef BT_CONTEXT_H
#define BT_CONTEXT_H

#include "base/memory.h"
#include "bauta.h"
#include "kernels/kernels.h"
#include "mask/shelf.h"

struct bauta_context {
    int threads;
    const bt_kernels *kernels;
    bt_arena workspace;
    struct bt_tape *tape; /* of models; NULL until one is run */
    bt_shelf shelf;       /* plans of the last batch */
};

#endif
