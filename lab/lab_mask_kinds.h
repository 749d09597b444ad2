/* SPDX-License-Identifier: Apache-2.0 */
/* lab_mask_kinds.h - bauta lab masks: every kind of mask, in any size. */
#ifndef LAB_MASK_KINDS_H
#define LAB_MASK_KINDS_H

#include <bauta.h>

/* Parameters of the masks. */
typedef struct sizes {
    size_t tokens, window, prefix, sinks, block;
    uint64_t seed;
} sizes;

/* The first kinds are those of the claims. */
enum { ALL, CAUSAL, WINDOW, KINDS = 11, KIND_NAME = 40 };

bauta_status kind_make(bauta_mask **out, size_t kind, const sizes *s,
                       bauta_error *err);
/* "window(256)", in KIND_NAME bytes. */
void kind_name(char *to, size_t kind, const sizes *s);

#endif
