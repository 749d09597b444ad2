/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the plan of a decoding step: the last rows of many sequences.
 *
 * Each of these rows is one span (row_spans.h), so the plan is built straight
 * from the spans, without a mask and without allocating in every step. It
 * equals the plan of bt_batch_mask_create() except that it has no visits, which
 * only the backward pass needs. A test compares the two. */
#ifndef BT_STEPS_H
#define BT_STEPS_H

#include "base/memory.h"
#include "mask/plan.h"
#include "mask/row_spans.h"

/* A plan and its memory, which grows to the size of the largest step. */
typedef struct bt_step_plan {
    bauta_plan plan;
    bt_arena memory;
} bt_step_plan;

/* Build the plan of a mask without `extra`. A zeroed bt_step_plan is empty, and
 * so is it after a failure. */
bauta_status bt_step_plan_make(bt_step_plan *out, const bt_batch_mask *mask,
                               bauta_error *err);
void bt_step_plan_release(bt_step_plan *plan);

#endif
