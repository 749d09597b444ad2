/* SPDX-License-Identifier: Apache-2.0 */
/* add.h - the sum of two tensors, for ops that contain one. */
#ifndef BT_ADD_H
#define BT_ADD_H

#include "autograd/tape.h"

/* An output for a + b; NULL if the tape has failed or the shapes differ. */
bt_tensor *bt_add_output(bt_tape *tape, const bt_tensor *a, const bt_tensor *b);
/* Record that y = a + b was computed. */
void bt_add_record(bt_tape *tape, bt_tensor *a, bt_tensor *b, bt_tensor *y);

#endif
