/* SPDX-License-Identifier: Apache-2.0 */
/* plant.h - bugs that only a test can plant.
 *
 * tests/test_audit_planted.c is built with the library's sources compiled once
 * more, with BT_PLANT, and turns on one bug after another: each is one that
 * people have met in other systems, and the audit must find it. In the library
 * itself nothing is ever planted. */
#ifndef BT_PLANT_H
#define BT_PLANT_H

#include <stdbool.h>

#ifdef BT_PLANT
#include "bauta.h"

/* Whether a bug is on; and of one that is in a layer, whether it is there. */
bool bt_planted(const char *name);
bool bt_planted_at(const char *name, size_t layer);
/* What a bug makes of a plan, and of a mask. */
const bauta_plan *bt_planted_plan(const bauta_plan *plan, const char *where,
                                  size_t layer, bool noisy);
void bt_planted_mask(bauta_mask **mask);

#define BT_PLANTED(name) bt_planted(name)
#define BT_PLANTED_AT(name, layer) bt_planted_at(name, layer)
#define BT_PLANTED_PLAN(plan, where, layer, noisy) \
    bt_planted_plan(plan, where, layer, noisy)
#define BT_PLANTED_MASK(mask) bt_planted_mask(mask)
#else
#define BT_PLANTED(name) false
#define BT_PLANTED_AT(name, layer) false
#define BT_PLANTED_PLAN(plan, where, layer, noisy) (plan)
#define BT_PLANTED_MASK(mask) ((void)0)
#endif

#endif
