/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - the learning rate of a step.
 *
 * Over the first `warmup` steps it grows in equal parts up to `rate`, then it
 * follows the schedule. Computed by additions, multiplications and roots
 * alone, whose bits are the same everywhere. */
#ifndef BT_SCHEDULE_H
#define BT_SCHEDULE_H

#include "bauta.h"

/* Step 1 is the first. */
double bt_schedule_rate(const bauta_train_options *options, size_t step);

#endif
