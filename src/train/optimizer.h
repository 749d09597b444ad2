/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - AdamW over the parameters of a model.
 *
 * A step computes the global gradient norm, clips the gradients by it, and
 * updates every parameter as kernels/adamw.h defines. All sums have a fixed
 * order, so the bits do not depend on threads or instruction sets. */
#ifndef BT_OPTIMIZER_H
#define BT_OPTIMIZER_H

#include "autograd/tape.h"

typedef struct bt_optimizer_options {
    double beta1, beta2;
    double epsilon;
    double weight_decay;
    double max_grad_norm; /* largest global gradient norm; 0: no clipping */
} bt_optimizer_options;
/* The defaults of torch.optim.AdamW, without clipping. */
#define BT_OPTIMIZER_OPTIONS_INIT    \
    {                                \
        0.9, 0.999, 1e-8, 0.01, 0.0, \
    }

/* A parameter has its own gradient and is in the list once and as a whole, even
 * if the model uses it several times or in parts. */
typedef struct bt_parameter {
    bt_tensor *tensor;
    bool decay; /* whether weight decay applies */
} bt_parameter;

typedef struct bt_optimizer bt_optimizer;

/* The list is copied, the tensors are not. Both moments start at 0. */
bauta_status bt_optimizer_create(bt_optimizer **out,
                                 const bt_parameter *parameters, size_t count,
                                 const bt_optimizer_options *options,
                                 bauta_error *err);
void bt_optimizer_free(bt_optimizer *optimizer);

/* Take a step with a learning rate. Gradients are not changed. Returns the
 * global norm before clipping. If it is not finite, the step is skipped:
 * parameters, moments and the step count stay the same. Allocates nothing. */
double bt_optimizer_step(bt_optimizer *optimizer, const bt_kernels *kernels,
                         int threads, double rate);

/* Set all gradients to 0. */
void bt_optimizer_zero(bt_optimizer *optimizer, int threads);

/* The optimizer state of a checkpoint: the number of steps, and the moments,
 * which have the shape of their parameter. To resume, fill the moments and set
 * the steps. */
size_t bt_optimizer_steps(const bt_optimizer *optimizer);
void bt_optimizer_set_steps(bt_optimizer *optimizer, size_t steps);
float *bt_optimizer_first_moment(const bt_optimizer *optimizer,
                                 size_t parameter);
float *bt_optimizer_second_moment(const bt_optimizer *optimizer,
                                  size_t parameter);

#endif
