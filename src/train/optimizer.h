/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - AdamW over the parameters of a model, and its learning rate.
 *
 * A step computes the global gradient norm, clips the gradients by it, and
 * updates every parameter (adamw in backend.h). All sums have a fixed order, so
 * the bits do not depend on threads or instruction sets. */
#ifndef BT_OPTIMIZER_H
#define BT_OPTIMIZER_H

#include "runtime/comm.h"

/* A parameter has its own gradient and is in the list once and as a whole, even
 * if the model uses it several times or in parts. */
typedef struct bt_parameter {
    bt_tensor *tensor;
    bool decay;       /* whether weight decay applies */
    bt_tensor master; /* as in bt_adamw_slot */
    size_t piece;     /* of bt_optimizer_share() */
} bt_parameter;

typedef struct bt_optimizer bt_optimizer;

/* The list is copied, the tensors are not; the stream outlives the optimizer.
 * Both moments start at 0. */
bauta_status bt_optimizer_create(bt_optimizer **out, bt_stream *stream,
                                 const bt_parameter *parameters, size_t count,
                                 const bt_optimizer_options *options,
                                 bauta_error *err);
void bt_optimizer_free(bt_optimizer *optimizer);

/* Other ranks have the other parameters. The gradients of all have `pieces`
 * pieces of BT_ADAMW_PIECE elements; the first one of a parameter here is
 * number `piece` of its bt_parameter. Every step is then a collective call, and
 * its norm is that of a single rank. */
bauta_status bt_optimizer_share(bt_optimizer *optimizer, bt_comm *comm,
                                size_t pieces, bauta_error *err);

/* Take a step with a learning rate. Gradients are not changed. *norm becomes
 * the global norm before clipping. If it is not finite, the step is skipped:
 * parameters, moments and the step count stay the same. From the second step on
 * nothing is allocated. */
bauta_status bt_optimizer_step(bt_optimizer *optimizer, double learning_rate,
                               double *norm, bauta_error *err);

/* The learning rate of a step, counted from 1. It grows linearly over the
 * warmup steps, then follows the schedule. It is computed with basic arithmetic
 * and square roots only, whose bits are the same on every machine. */
double bt_learning_rate(const bauta_train_options *options, size_t step);

/* Set all gradients to 0. */
bauta_status bt_optimizer_zero(bt_optimizer *optimizer, bauta_error *err);

/* The optimizer state of a checkpoint: the number of steps, and one buffer with
 * the moments of all parameters, each of the shape of its parameter. */
size_t bt_optimizer_steps(const bt_optimizer *optimizer);
void bt_optimizer_set_steps(bt_optimizer *optimizer, size_t steps);
const bt_buffer *bt_optimizer_moments(const bt_optimizer *optimizer);
/* Where the first and the second moment of a parameter are, in floats. */
size_t bt_optimizer_first_moment(const bt_optimizer *optimizer,
                                 size_t parameter);
size_t bt_optimizer_second_moment(const bt_optimizer *optimizer,
                                  size_t parameter);

#endif
