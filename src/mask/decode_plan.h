/* SPDX-License-Identifier: Apache-2.0 */
/* decode_plan.h - the plan of a decoding step: the last rows of many sequences.
 *
 * Each of these rows is one span (batch_mask.h), so the plan is built straight
 * from the spans, without a mask and without allocating in every step. It
 * equals the plan of bt_batch_mask_create() except that it has no visits, which
 * only the backward pass needs. A test compares the two. */
#ifndef BT_DECODE_PLAN_H
#define BT_DECODE_PLAN_H

#include "base/memory.h"
#include "mask/batch_mask.h"
#include "mask/plan.h"

/* A plan and its memory, which grows to the size of the largest step. */
typedef struct bt_decode_plan {
    bauta_plan plan;
    bt_arena memory;
} bt_decode_plan;

/* Build the plan of a mask without `extra`. A zeroed bt_decode_plan is empty,
 * and so is it after a failure. */
bauta_status bt_decode_plan_build(bt_decode_plan *out,
                                  const bt_batch_mask *mask, bauta_error *err);
void bt_decode_plan_release(bt_decode_plan *plan);

#endif
