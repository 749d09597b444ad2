/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - change one input after another, and look at all hidden states.
 *
 * Copy 0 of every sheet is as it was; each of the others has one input changed.
 */
#ifndef BT_PROBE_H
#define BT_PROBE_H

#include "audit/audit.h"

typedef struct bt_probe bt_probe;

/* Looks at what the change of one input has made of a copy. */
typedef void bt_judge(bt_probe *p, size_t copy, bool key_target, size_t key);

struct bt_probe {
    bt_auditing *a;
    bt_double *d;
    bt_fault *fault;
    const uint32_t *ids[2];   /* (rows of a side) what stands there */
    const uint32_t *other[2]; /* (rows) what comes there; NULL: that side is
                                 left alone */
    bt_judge *judge;
    const void *user; /* of the judge */
    bt_law law;       /* set by bt_probe_run() */
    bt_states states;
    size_t may, did; /* counted by judges: see tokens.c */
};

bauta_status bt_probe_run(bt_probe *p, bauta_error *err);

/* Row `row` of a copy, and whether it is bit for bit that of copy 0. */
const float *bt_probe_state(const bt_probe *p, bool target, size_t level,
                            size_t copy, size_t row);
bool bt_probe_same(const bt_probe *p, bool target, size_t level, size_t copy,
                   size_t row);

/* Note a fault. */
void bt_probe_fault(bt_probe *p, bool target, size_t level, size_t row,
                    bool key_target, size_t key, bool blind);

#endif
