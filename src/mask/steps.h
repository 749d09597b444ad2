/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the plan of the last rows of many sequences, made at once.
 *
 * A step of decoding asks the mask of a layer for its last rows and nothing
 * else. Each of them is one span (row_spans.h), so the plan is made from the
 * spans at once, without a mask in between and without memory that comes and
 * goes. It is the plan of bt_batch_mask_create(), but has no visits, which only
 * the backward pass asks for. A test compares the two. */
#ifndef BT_STEPS_H
#define BT_STEPS_H

#include "base/memory.h"
#include "mask/plan.h"
#include "mask/row_spans.h"

/* A plan with its memory, which grows to what the largest step needed. */
typedef struct bt_step_plan {
    bauta_plan plan;
    bt_arena memory;
} bt_step_plan;

/* The plan of a mask without `extra`. A zeroed bt_step_plan is an empty one.
 * After a failure it is empty again. */
bauta_status bt_step_plan_make(bt_step_plan *out, const bt_batch_mask *mask,
                               bauta_error *err);
void bt_step_plan_release(bt_step_plan *plan);

#endif
