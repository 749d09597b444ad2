/* SPDX-License-Identifier: Apache-2.0 */
/* device_faults.h - faults in the operations of any device.
 *
 * A stream gets a copy of its backend's table in which some operations
 * misbehave while a fault of fault_injection.h is on: they get a plan that
 * shows other keys, or their operands or results are changed. Everything is
 * done through the table, so the device may be any. Only fault_injection.c
 * includes this, and the tests that open a device. */
#ifndef BT_TEST_DEVICE_FAULTS_H
#define BT_TEST_DEVICE_FAULTS_H

#include "backend/backend.h"

/* The keys that one row sees, counted from the first key of its sequence. */
typedef struct row_view {
    size_t row;      /* the row's own key, in self-attention */
    size_t in_chunk; /* counted from the first row that is new */
    size_t keys;     /* of the sequence */
    const bool *was; /* (keys) what the row sees without the fault */
    size_t lo, hi;   /* first key of them, and last + 1; 0, 0: none */
} row_view;

/* Whether the row sees the key with the fault. */
typedef bool rule_fn(const row_view *v, size_t key);

/* Of fault_injection.c: which fault is on, in which layer, and what it does to
 * the plans of backward passes (NULL: nothing). */
bool fault_is(const char *name);
size_t fault_layer(void);
rule_fn *fault_backward_rule(void);

/* Let the operations of a stream misbehave while a fault is on. One stream at a
 * time; not the CPU's, whose faults are in fault_injection.c. */
void device_faults_install(bt_stream *stream);
/* Free all plans that faults have made; before the stream is freed. */
void device_faults_release(void);

/* The plan of a whole batch under a rule, valid until its own is built again.
 */
const bt_attention_plan *device_faults_plan(bt_stream *stream,
                                            const bt_attention_plan *plan,
                                            rule_fn *rule);
/* The plan of a decoding step under the fault that is on. */
const bt_attention_plan *device_faults_step(bt_stream *stream,
                                            const bt_attention_plan *plan);

#endif
