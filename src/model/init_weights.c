/* SPDX-License-Identifier: Apache-2.0 */
/* init_weights.c - Philox random numbers and the Box-Muller transform. */
#include "model/init_weights.h"

#include "base/philox.h"
#include "base/thread_pool.h"

#include <math.h>
#include <string.h>

enum {
    TASK_VALUES = 1 << 16,        /* of a tensor that one task computes; even */
    PARALLEL_PARAMETERS = 1 << 22 /* of a model, from which threads pay */
};

typedef struct initializer {
    const bt_model *model;
    bt_thread_pool *pool; /* or NULL */
    uint64_t seed;
    uint32_t index; /* of the tensor */
    double range;   /* standard deviation from the config */
} initializer;

/* A tensor being filled. */
typedef struct init_job {
    const initializer *in;
    float *to;
    size_t count;
    double spread; /* the standard deviation, or the bound */
} init_job;

/* Two numbers in (0, 1), for elements 2 * pair and 2 * pair + 1. */
static void uniform_two(double u[2], const initializer *in, size_t pair)
{
    const uint32_t key[2] = { (uint32_t)in->seed, (uint32_t)(in->seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)pair, (uint32_t)(pair >> 32),
                                  in->index, 0x696E6974 };
    uint32_t word[4];
    bt_philox(word, counter, key);
    for (int i = 0; i < 2; i++) {
        uint64_t bits = (uint64_t)word[2 * i] << 20 | word[2 * i + 1] >> 12;
        u[i] = ((double)bits + 0.5) * 0x1p-52;
    }
}

static size_t task_end(const init_job *job, size_t task)
{
    size_t end = (task + 1) * TASK_VALUES;
    return end < job->count ? end : job->count;
}

static void task_normal(void *user, size_t task, int thread)
{
    const init_job *job = user;
    (void)thread;
    for (size_t i = task * TASK_VALUES; i < task_end(job, task); i += 2) {
        double u[2];
        uniform_two(u, job->in, i / 2);
        double radius = job->spread * sqrt(-2.0 * log(u[0]));
        double angle = 2.0 * 3.14159265358979323846 * u[1];
        job->to[i] = (float)(radius * cos(angle));
        if (i + 1 < job->count)
            job->to[i + 1] = (float)(radius * sin(angle));
    }
}

static void task_uniform(void *user, size_t task, int thread)
{
    const init_job *job = user;
    (void)thread;
    for (size_t i = task * TASK_VALUES; i < task_end(job, task); i += 2) {
        double u[2];
        uniform_two(u, job->in, i / 2);
        for (size_t j = 0; j < 2 && i + j < job->count; j++)
            job->to[i + j] = (float)(job->spread * (2.0 * u[j] - 1.0));
    }
}

static void fill(const initializer *in, bt_tensor *t, bt_task_fn *run,
                 double spread)
{
    init_job job = { in, bt_tensor_host(t), t->rows * t->columns, spread };
    bt_parallel_for(in->pool, (job.count + TASK_VALUES - 1) / TASK_VALUES, run,
                    &job);
}

static void fill_normal(const initializer *in, bt_tensor *t, double deviation)
{
    fill(in, t, task_normal, deviation);
}

static void fill_uniform(const initializer *in, bt_tensor *t, double bound)
{
    fill(in, t, task_uniform, bound);
}

/* ---- roles ------------------------------------------------------------- */

static bool is_embedding(const bt_model *model, const bt_tensor *t)
{
    return t == &model->tokens || t == &model->encoder.positions ||
           t == &model->decoder.positions || t == &model->encoder.types ||
           t == &model->decoder.types;
}

/* Whether a vector is the gain of a norm. */
static bool is_gain(const char *name)
{
    size_t length = strlen(name);
    return length > 7 && strcmp(name + length - 7, ".weight") == 0;
}

/* Whether a matrix's output is added to the residual stream of a decoder. */
static bool is_residual(const bt_model *model, const bt_tensor *t)
{
    for (size_t l = 0; l < model->config.decoder.layers; l++) {
        const bt_layer *layer = &model->decoder.layers[l];
        if (t == &layer->self.out.w || t == &layer->down.w)
            return true;
    }
    return false;
}

static void matrix_init(const initializer *in, bt_tensor *t)
{
    const bt_model_config *config = &in->model->config;
    double deviation = in->range;
    if (config->stacks == BT_ENCODER_DECODER) {
        if (is_embedding(in->model, t))
            fill_normal(in, t, 1.0 / sqrt((double)config->width));
        else
            fill_uniform(in, t, sqrt(6.0 / (double)(t->rows + t->columns)));
        return;
    }
    if (config->stacks == BT_DECODER_ONLY && is_residual(in->model, t))
        deviation /= sqrt(2.0 * (double)config->decoder.layers);
    fill_normal(in, t, deviation);
}

static void init_name(void *user, const char *name, bt_tensor *t, int rank)
{
    initializer *in = user;
    uint32_t frozen = in->model->config.padding_token;
    float *data = bt_tensor_host(t);
    float gain = in->model->config.norm_plus_one ? 0.0f : 1.0f;
    if (rank == 2 && t != &in->model->head.bias)
        matrix_init(in, t);
    else
        for (size_t i = 0; i < t->columns; i++)
            data[i] = rank == 1 && is_gain(name) ? gain : 0.0f;
    if (t == &in->model->tokens && frozen < t->rows)
        memset(data + frozen * t->columns, 0, t->columns * sizeof(float));
    in->index++;
}

void bt_init_weights(bt_model_store *store, uint64_t seed)
{
    initializer in = { .model = store->model, .seed = seed };
    double range = bt_config_reader_number_or(store->reader, "init_std", 0.02);
    in.range =
        bt_config_reader_number_or(store->reader, "initializer_range", range);
    // Without a pool it takes longer, and that is all.
    if (store->parameters >= PARALLEL_PARAMETERS)
        (void)bt_thread_pool_create(&in.pool, bt_threads_available(), NULL);
    bt_model_store_visit(store, &(bt_tensor_visitor){ init_name, &in });
    bt_thread_pool_free(in.pool);
}
