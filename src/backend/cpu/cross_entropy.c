/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c - losses and log-probabilities of rows of logits; the
 * formulas are in autograd/cross_entropy.c. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/exp2.h"
#include "backend/cpu/sampling.h"

/* log(l); NaN if a logit was NaN or the largest one infinite. */
static double logarithm(float l)
{
    return isfinite(l) ? bt_log2((double)l) * BT_LN2 : (double)l;
}

typedef struct loss_job {
    const bt_kernels *kernels;
    const bt_cross_entropy_args *args;
    const uint32_t *labels;
    const float *weights;
    double *losses;
} loss_job;

/* The loss of a row of logits, which its gradient overwrites. */
static void loss_task(void *job, size_t row, int thread)
{
    (void)thread;
    const loss_job *j = job;
    const bt_cross_entropy_args *a = j->args;
    size_t count = a->logits->columns;
    float *z = bt_cpu_f32(a->logits) + row * a->logits->stride;
    uint32_t label = j->labels[row];
    double weight = j->weights ? (double)j->weights[row] : 1.0;
    double s = a->smoothing, share = a->share * weight, mean = 0.0;
    float max = j->kernels->row_max(z, count), picked = z[label];
    if (s > 0.0)
        mean = j->kernels->row_sum(z, count) / (double)count;
    float sum = j->kernels->row_exp_sum(z, z, count, max);
    double lse = (double)max + logarithm(sum);
    if (a->gradient) {
        j->kernels->row_affine(z, count, (float)(share / (double)sum),
                               (float)(-share * s / (double)count));
        z[label] -= (float)(share * (1.0 - s));
    }
    double value = lse - (double)picked;
    j->losses[row] =
        weight * (s > 0.0 ? (1.0 - s) * value + s * (lse - mean) : value);
}

bauta_status bt_cpu_cross_entropy(bt_stream *stream,
                                  const bt_cross_entropy_args *args,
                                  bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, cross_entropy, err, args->logits, args->weights);
    loss_job job = { cpu->kernels, args, bt_cpu_data(args->labels),
                     bt_cpu_f32(args->weights), bt_cpu_data(args->losses) };
    bt_parallel_for(cpu->pool, args->logits->rows, loss_task, &job);
    return BAUTA_OK;
}

typedef struct logprob_job {
    const bt_kernels *kernels;
    const bt_tensor *logits;
    const uint32_t *labels;
    float *logprobs;
} logprob_job;

/* As the sampler computes it; the row of logits is overwritten. */
static void logprob_task(void *job, size_t row, int thread)
{
    (void)thread;
    const logprob_job *j = job;
    float *z = bt_cpu_f32(j->logits) + row * j->logits->stride;
    float picked = z[j->labels[row]];
    j->logprobs[row] =
        picked - bt_row_stats_of(j->kernels, z, j->logits->columns, z).lse;
}

bauta_status bt_cpu_logprobs(bt_stream *stream, const bt_logprobs_args *args,
                             bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    BT_CPU_CHECK(stream, logprobs, err, args->logits, args->logprobs);
    logprob_job job = { cpu->kernels, args->logits, bt_cpu_data(args->labels),
                        bt_cpu_f32(args->logprobs) };
    bt_parallel_for(cpu->pool, args->logits->rows, logprob_task, &job);
    return BAUTA_OK;
}
