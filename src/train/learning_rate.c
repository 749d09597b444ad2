/* SPDX-License-Identifier: Apache-2.0 */
/* learning_rate.c - the learning rate of a step. */
#include "train/learning_rate.h"

#include <math.h>

/* cos(pi x) for x from 0 to 1, by its series about 1 / 2, where it is odd. The
 * last term is below 1e-17. The result is clamped to [-1, 1], so that a rate is
 * never negative. */
static double cosine(double x)
{
    double t = 3.14159265358979323846 * (0.5 - x), square = t * t;
    double term = t, sum = t;
    for (int k = 1; k <= 12; k++) {
        term *= -square / (double)((2 * k) * (2 * k + 1));
        sum += term;
    }
    return fmin(fmax(sum, -1.0), 1.0);
}

double bt_learning_rate(const bauta_train_options *o, size_t step)
{
    double low = o->min_learning_rate,
           span = o->learning_rate - o->min_learning_rate;
    if (step <= o->warmup_steps)
        return o->learning_rate * (double)step / (double)o->warmup_steps;
    double after = (double)(step - o->warmup_steps);
    double all = o->max_steps > o->warmup_steps
                     ? (double)(o->max_steps - o->warmup_steps)
                     : 1.0;
    double x = after < all ? after / all : 1.0;
    switch (o->lr_scheduler_type) {
    case BAUTA_SCHEDULE_LINEAR:
        return low + span * (1.0 - x);
    case BAUTA_SCHEDULE_COSINE:
        return low + span * 0.5 * (1.0 + cosine(x));
    case BAUTA_SCHEDULE_INVERSE_SQRT: {
        double first = o->warmup_steps ? (double)o->warmup_steps : 1.0;
        double rate = o->learning_rate * sqrt(first / (double)step);
        return rate > low ? rate : low;
    }
    default:
        return o->learning_rate;
    }
}
