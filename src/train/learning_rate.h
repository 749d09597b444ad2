/* SPDX-License-Identifier: Apache-2.0 */
/* learning_rate.h - the learning rate of a step.
 *
 * It grows linearly over the warmup steps, then follows the schedule. It is
 * computed with basic arithmetic and square roots only, whose bits are the same
 * on every machine. */
#ifndef BT_LEARNING_RATE_H
#define BT_LEARNING_RATE_H

#include "bauta.h"

/* Steps count from 1. */
double bt_learning_rate(const bauta_train_options *options, size_t step);

#endif
