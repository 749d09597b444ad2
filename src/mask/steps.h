/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the plan of the last rows of many sequences, made at once.
 *
 * A step of decoding asks the mask for its last rows and nothing else. They are
 * one span each, so the plan follows from the lengths alone, without a mask in
 * between and without memory that comes and goes. It is the plan of
 *
 *     bauta_mask_pack() of, for each sequence,
 *         bauta_mask_causal(rows, keys), or bauta_mask_window(rows, keys, w),
 *         or, not causal, bauta_mask_all(rows, keys)
 *
 * but has no visits, which only the backward pass asks for. A test compares
 * the two. */
#ifndef BT_STEPS_H
#define BT_STEPS_H

#include "base/memory.h"
#include "mask/plan.h"

typedef struct bt_steps {
    size_t count;       /* of sequences */
    const size_t *rows; /* (count) the last so many; at least 1 */
    const size_t *keys; /* (count) causal: at least as many as rows */
    bool causal;
    size_t window;         /* of a causal one; 0: none */
    const size_t *windows; /* (count) of each sequence in place of `window`;
                              NULL: all have that */
} bt_steps;

/* A plan with its memory, which grows to what the largest step needed. */
typedef struct bt_step_plan {
    bauta_plan plan;
    bt_arena memory;
} bt_step_plan;

/* A zeroed bt_step_plan is an empty one. After a failure it is empty again. */
bauta_status bt_step_plan_make(bt_step_plan *out, const bt_steps *steps,
                               bauta_error *err);
void bt_step_plan_release(bt_step_plan *plan);

#endif
