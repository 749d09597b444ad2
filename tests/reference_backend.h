/* SPDX-License-Identifier: Apache-2.0 */
/* reference_backend.h - a second backend: plain loops in double, on memory that
 * the host cannot touch.
 *
 * It exists to test what is above the table of backend.h, and to compare other
 * backends with. Every operation checks its tensors: the buffer is alive and of
 * this backend, the tensor lies inside it, shape and type are as expected, and
 * no output overlaps another operand. Otherwise it returns an error that names
 * the operation and the operand. Sums are in double and rounded once. A context
 * of bfloat16 computes with bfloat16 as GPUs do; the KV cache has float32 only.
 *
 * The address of a buffer is in a region that is never readable or writable;
 * the contents are elsewhere. So any access by the host faults at once, on any
 * thread and at any time. New and freed memory is filled with 0xff: as float32
 * that is NaN, as an id out of range. */
#ifndef BT_TEST_REFERENCE_BACKEND_H
#define BT_TEST_REFERENCE_BACKEND_H

#include "backend/backend.h"

extern const bt_backend bt_reference_backend;

/* The device "reference", which has the number 0 only. */
extern const bt_device_driver bt_reference_driver;

/* Whether reading and writing a buffer from the host both fault. */
bool reference_backend_catches_host_access(void);

/* Buffers that have not been freed. */
size_t reference_backend_live_buffers(void);

/* How often an operation has been called in this process, failures included. */
size_t reference_backend_calls(bt_op op);

#endif
