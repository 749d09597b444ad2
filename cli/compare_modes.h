/* SPDX-License-Identifier: Apache-2.0 */
/* compare_modes.h - the training modes, compared on one batch. */
#ifndef COMPARE_MODES_H
#define COMPARE_MODES_H

#include <bauta.h>

enum { PARALLEL, SEQUENTIAL, FREE_RUNNING, MODES };

typedef struct mode_entry {
    const char *name;
    bauta_train_mode mode;
} mode_entry;
extern const mode_entry mode_entries[MODES];

typedef struct comparison {
    double loss[MODES], seconds[MODES];
    double difference[MODES]; /* largest absolute difference of a gradient */
    double largest, norm;     /* of the parallel gradients */
} comparison;

/* Compute the loss and gradients of the trainer's next batch in each mode, and
 * time them. */
bauta_status compare_modes(comparison *c, bauta_trainer *trainer,
                           const bauta_model *model, bauta_error *err);

/* A bound for the difference of gradients whose terms are added in another
 * order: n additions round up as often as down, which gives sqrt(n) roundings
 * of partial sums, bounded by the norm of all gradients; a factor of four
 * covers the roundings within the terms. A missing term would exceed it by far.
 */
double compare_modes_bound(const comparison *c, double additions);

#endif
