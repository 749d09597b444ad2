/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.h - the loss with a given chunk size, for tests. */
#ifndef BT_CROSS_ENTROPY_H
#define BT_CROSS_ENTROPY_H

#include "autograd/ops.h"

/* bt_op_cross_entropy() with the logits of at most `chunk` rows (1 or more) at
 * a time. It changes no bit of the loss or of a gradient. */
bt_loss bt_op_cross_entropy_chunked(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                                    bool transposed, bt_tensor *bias,
                                    float softcap, const uint32_t *labels,
                                    const float *label_weights,
                                    float label_smoothing, double weight,
                                    size_t chunk);

#endif
