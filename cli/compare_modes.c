/* SPDX-License-Identifier: Apache-2.0 */
/* compare_modes.c - a batch in parallel, position by position, and
 * free-running. */
#include "compare_modes.h"

#include "format.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const mode_entry mode_entries[MODES] = {
    [PARALLEL] = { "parallel", BAUTA_MODE_PARALLEL },
    [SEQUENTIAL] = { "sequential", BAUTA_MODE_SEQUENTIAL },
    [FREE_RUNNING] = { "free", BAUTA_MODE_FREE },
};

/* Copy all gradients of a model into an array. */
static bauta_status gradients_copy(float *to, const bauta_model *model,
                                   bauta_error *err)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_status status = bauta_model_tensor(model, i, &t, err);
        if (status)
            return status;
        if (!t.gradient)
            continue;
        memcpy(to, t.gradient, t.count * sizeof(*to));
        to += t.count;
    }
    return BAUTA_OK;
}

static double largest_difference(const float *a, const float *b, size_t count)
{
    double most = 0.0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void gradients_measure(comparison *c, const float *g, size_t count)
{
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        c->largest = fmax(c->largest, fabs((double)g[i]));
        squares += (double)g[i] * (double)g[i];
    }
    c->norm = sqrt(squares);
}

static bauta_status modes_run(comparison *c, bauta_trainer *trainer,
                              const bauta_model *model, float *first,
                              float *other, size_t count, bauta_error *err)
{
    double loss;
    // Warm up, so that no mode pays for the first touch of memory.
    bauta_status status =
        bauta_trainer_gradients(trainer, BAUTA_MODE_PARALLEL, &loss, err);
    for (int i = 0; i < MODES && !status; i++) {
        double began = seconds_now();
        status = bauta_trainer_gradients(trainer, mode_entries[i].mode,
                                         &c->loss[i], err);
        c->seconds[i] = seconds_now() - began;
        if (!status)
            status = gradients_copy(i ? other : first, model, err);
        if (!status)
            c->difference[i] =
                i ? largest_difference(first, other, count) : 0.0;
    }
    if (!status)
        gradients_measure(c, first, count);
    return status;
}

bauta_status compare_modes(comparison *c, bauta_trainer *trainer,
                           const bauta_model *model, bauta_error *err)
{
    size_t count = (size_t)bauta_model_parameter_count(model);
    float *first = calloc(count + 1, sizeof(*first));
    float *other = calloc(count + 1, sizeof(*other));
    bauta_status status = BAUTA_ERR_NOMEM;
    *c = (comparison){ .largest = 0.0 };
    if (first && other)
        status = modes_run(c, trainer, model, first, other, count, err);
    else
        *err = (bauta_error){ status, "out of memory" };
    free(first);
    free(other);
    return status;
}

double compare_modes_bound(const comparison *c, double additions)
{
    return 4.0 * sqrt(additions) * 0x1p-24 * c->norm;
}
