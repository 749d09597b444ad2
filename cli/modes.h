/* SPDX-License-Identifier: Apache-2.0 */
/* modes.h - the ways of training, on one batch beside each other. */
#ifndef MODES_H
#define MODES_H

#include <bauta.h>

enum { PARALLEL, SEQUENTIAL, FREE_RUNNING, MODES };

typedef struct mode_entry {
    const char *name;
    bauta_mode mode;
} mode_entry;
extern const mode_entry modes_known[MODES];

typedef struct comparison {
    double loss[MODES], seconds[MODES];
    double off[MODES];    /* the largest difference of a gradient */
    double largest, norm; /* of the parallel ones */
} comparison;

/* The loss and the gradients of the trainer's next batch in each mode, and how
 * long they took. */
bauta_status modes_compare(comparison *c, bauta_trainer *trainer,
                           const bauta_model *model, bauta_error *err);

/* How far the gradients of two ways that add the same terms in another order
 * may lie apart: n additions round as often up as down, so by sqrt(n) roundings
 * of partial sums, which the norm of all gradients bounds; four times that is
 * left for the roundings within the terms. A term that is missing would be far
 * more. */
double modes_bound(const comparison *c, double additions);

#endif
