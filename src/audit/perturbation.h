/* SPDX-License-Identifier: Apache-2.0 */
/* perturbation.h - change one input at a time and compare all hidden states.
 *
 * Copy 0 of every probe batch is unchanged; each other copy has one input
 * changed. */
#ifndef BT_PERTURBATION_H
#define BT_PERTURBATION_H

#include "audit/audit.h"

/* The positions to perturb are spread over a side: position n of count. */
size_t bt_probe_count(const bt_audit_state *a, const bt_probe_input *r);
size_t bt_probe_row(const bt_audit_state *a, const bt_probe_input *r, size_t n);

/* A token whose embedding is far from that of `id`, or the farthest of some;
 * `id` if all embeddings are equal. */
uint32_t bt_different_token(const bt_audit_state *a, uint32_t id, size_t salt);

typedef struct bt_perturbation bt_perturbation;

/* Examine the hidden states of a copy in which input `key` was changed. */
typedef void bt_perturbation_fn(bt_perturbation *p, size_t copy,
                                bool key_target, size_t key);

struct bt_perturbation {
    bt_audit_state *a;
    bt_model_clone *clone;
    bt_fault *fault;
    const uint32_t *ids[2];     /* (rows of a side) the unchanged ids */
    const uint32_t *changed[2]; /* (rows) their replacements; NULL: this side
                                   is not perturbed */
    bt_perturbation_fn *examine;
    const void *user; /* for `examine` */
    bt_oracle oracle; /* set by bt_perturbation_run() */
    bt_hidden_states states;
    size_t may_change, did_change; /* counted by `examine` */
};

bauta_status bt_perturbation_run(bt_perturbation *p, bauta_error *err);

/* The hidden state of a row of a copy. */
const float *bt_perturbation_state(const bt_perturbation *p, bool target,
                                   size_t level, size_t copy, size_t row);
/* Whether it has the bits that it has in copy 0. */
bool bt_perturbation_same(const bt_perturbation *p, bool target, size_t level,
                          size_t copy, size_t row);

/* Record a fault. */
void bt_perturbation_fault(bt_perturbation *p, bool target, size_t level,
                           size_t row, bool key_target, size_t key,
                           bool should_see);

#endif
