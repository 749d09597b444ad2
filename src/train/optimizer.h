/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - AdamW over the parameters of a model.
 *
 * A step measures the norm of all gradients together, scales them down if it
 * is too large, and moves every parameter as kernels/adamw.h says. All sums
 * have a fixed order, so threads and instruction sets change no bit. */
#ifndef BT_OPTIMIZER_H
#define BT_OPTIMIZER_H

#include "ops/tape.h"

typedef struct bt_optimizer_options {
    double beta1, beta2;
    double epsilon;
    double weight_decay;
    double clip; /* largest norm of all gradients together; 0: any */
} bt_optimizer_options;
/* What torch.optim.AdamW takes, and no clipping. */
#define BT_OPTIMIZER_OPTIONS_INIT    \
    {                                \
        0.9, 0.999, 1e-8, 0.01, 0.0, \
    }

/* A parameter has a gradient of its own, and stands in the list once and as a
 * whole, however often and in whatever parts the model uses it. */
typedef struct bt_parameter {
    bt_tensor *tensor;
    bool decay; /* weight decay applies, as usual to matrices only */
} bt_parameter;

typedef struct bt_optimizer bt_optimizer;

/* The list is copied, the tensors are not. Both moments start at 0. */
bauta_status bt_optimizer_create(bt_optimizer **out,
                                 const bt_parameter *parameters, size_t count,
                                 const bt_optimizer_options *options,
                                 bauta_error *err);
void bt_optimizer_free(bt_optimizer *optimizer);

/* One step at a learning rate; gradients stay as they are. Returns their norm
 * before clipping. When that is not a finite number the step is not taken:
 * parameters, moments and the count of steps stay as they were. Allocates
 * nothing. */
double bt_optimizer_step(bt_optimizer *optimizer, const bt_kernels *kernels,
                         int threads, double rate);

/* All gradients to 0, for the next step. */
void bt_optimizer_zero(bt_optimizer *optimizer, int threads);

/* What a checkpoint holds beside the parameters: the steps taken so far and
 * the moments, which are shaped like their parameter. To resume, fill the
 * moments and set the steps. */
size_t bt_optimizer_steps(const bt_optimizer *optimizer);
void bt_optimizer_set_steps(bt_optimizer *optimizer, size_t steps);
float *bt_optimizer_first(const bt_optimizer *optimizer, size_t parameter);
float *bt_optimizer_second(const bt_optimizer *optimizer, size_t parameter);

#endif
