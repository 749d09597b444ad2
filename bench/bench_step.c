/* SPDX-License-Identifier: Apache-2.0 */
/* bench_step.c - a whole step of training GPT-2 124M: forward, backward,
 * clipping and AdamW, from random weights.
 *
 *   bench_step [--threads N] [--isa NAME] [--steps N]
 *
 * Also printed: the memory of the step, and which kernels its time went to.
 * Work is counted as 6 x parameters + 12 x layers x width x length for a token,
 * as if attention were dense, which is how others count it. */
#include "backend/cpu/cpu.h"
#include "bench.h"
#include "kernel_shares.h"
#include "model/families/family.h"
#include "model/transformer.h"
#include "train/optimizer.h"

#include <math.h>

enum { MOST = 256, SAMPLES = 16 };

typedef struct options {
    int threads;
    const char *isa;
    size_t steps;
} options;

/* The parameters of a model, in one block each of data and gradients. */
typedef struct collection {
    bt_tensor *tensors[MOST];
    bt_parameter list[MOST];
    size_t count, floats;
    bt_buffer data, grads;
} collection;

static void collect(void *user, const char *name, bt_tensor *tensor, int rank)
{
    collection *c = user;
    (void)name;
    c->list[c->count] = (bt_parameter){ .tensor = tensor, .decay = rank == 2 };
    c->tensors[c->count++] = tensor;
    c->floats += tensor->rows * tensor->columns;
}

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static bt_model *gpt2_small(collection *c)
{
    static const bt_model_config config = {
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = 12,
                     .heads = 12,
                     .kv_heads = 12,
                     .ffn_dim = 3072 },
        .vocab_size = 50257,
        .width = 768,
        .head_dim = 64,
        .norm = BT_NORM_LAYER,
        .epsilon = 1e-5f,
        .norm_first = true,
        .final_norm = true,
        .act = BT_ACT_GELU_TANH,
        .position_kind = BT_POSITIONS_LEARNED,
        .max_positions = 1024,
        .embed_scale = 1.0f,
        .padding_token = BT_IGNORE_INDEX,
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .fused_qkv = true,
        .transposed = true,
        .tied = true,
    };
    bauta_error err;
    bt_model *model;
    must(bt_model_create(&model, &config, &err), &err);
    bt_family_gpt2.visit_tensors(model, &(bt_tensor_visitor){ collect, c });
    float *data = bench_floats(c->floats), *grads = bench_floats(c->floats);
    for (size_t i = 0; i < c->floats; i++)
        data[i] *= 0.02f;
    c->data = bt_buffer_of_host(data, c->floats * sizeof(float));
    c->grads = bt_buffer_of_host(grads, c->floats * sizeof(float));
    for (size_t i = 0, at = 0; i < c->count; i++) {
        bt_tensor *t = c->tensors[i];
        size_t floats = t->rows * t->columns;
        t->buffer = &c->data;
        t->grad = &c->grads;
        t->offset = t->grad_offset = at;
        t->requires_grad = true;
        for (size_t j = 0; t->rows == 1 && j < floats; j++)
            data[at + j] = 1.0f; // gains; biases may be anything
        at += floats;
    }
    bt_model_split_qkv(model);
    return model;
}

typedef struct step {
    bt_stream *stream;
    bt_model *model;
    bt_tensor grads; /* all of them, as one row */
    bt_tape *tape;
    bt_optimizer *optimizer;
    bt_forward_input input;
    uint32_t *labels;
} step;

/* Seconds of forward and loss, backward, optimizer. */
static double step_run(step *s, double part[3])
{
    bauta_error err;
    double start = bench_now(), norm;
    must(bt_tensor_zero(s->stream, &s->grads, &err), &err); // as the trainer
    bt_tape_rewind(s->tape, true);
    bt_tensor *x = bt_transformer_decode(s->tape, s->model, &s->input, NULL);
    bt_loss loss =
        bt_op_cross_entropy(s->tape, x, bt_transformer_head_weight(s->model),
                            false, NULL, 0.0f, s->labels, NULL, 0, 1);
    must(bt_tape_status(s->tape, &err), &err);
    double forward = bench_now();
    must(bt_tape_backward(s->tape, &err), &err);
    double backward = bench_now();
    must(bt_optimizer_step(s->optimizer, 1e-4, &norm, &err), &err);
    double end = bench_now();
    part[0] = forward - start;
    part[1] = backward - forward;
    part[2] = end - backward;
    return bt_loss_read(s->tape, &loss);
}

static void run(const options *o, size_t sequences, size_t length)
{
    bauta_error err;
    collection c = { .count = 0 };
    step s = { .model = gpt2_small(&c) };
    s.grads = bt_tensor_of(&c.grads, BAUTA_FLOAT32, 1, c.floats);
    const bt_kernels *kernels = bt_kernels_get(o->isa);
    bt_stream *stream;
    size_t tokens = sequences * length, lengths[16];
    uint32_t *ids = malloc(3 * tokens * sizeof(*ids));
    uint32_t *positions = ids + tokens;
    bt_attention_plan *plan = NULL;
    s.labels = ids + 2 * tokens;
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = (uint32_t)(i * 7919 % 50257);
        positions[i] = (uint32_t)(i % length);
        s.labels[i] = (uint32_t)((i + 1) * 7919 % 50257);
    }
    for (size_t i = 0; i < sequences; i++)
        lengths[i] = length;
    bt_batch_mask mask = { .queries = { sequences, lengths, 0 },
                           .keys = { sequences, lengths, 0 },
                           .causal = true };
    if (!kernels) {
        fprintf(stderr, "no instruction set %s\n", o->isa);
        exit(2);
    }
    must(bt_cpu_stream_create(&stream, shares_of(kernels),
                              bench_pool(o->threads), &err),
         &err);
    must(stream->backend->plan_build(stream, &plan, &mask, BT_PLAN_BACKWARD,
                                     &err),
         &err);
    s.stream = stream;
    s.input = (bt_forward_input){ .tokens = tokens,
                                  .ids = ids,
                                  .positions = positions,
                                  .plans = { [BT_SLOT_DECODER] = plan } };
    bt_optimizer_options tuning = BT_OPTIMIZER_OPTIONS_INIT;
    tuning.max_grad_norm = 1;
    must(bt_tape_create(&s.tape, stream, &err), &err);
    must(bt_optimizer_create(&s.optimizer, stream, c.list, c.count, &tuning,
                             &err),
         &err);
    double seconds[SAMPLES], peak[SAMPLES], parts[3] = { 0 }, loss = 0;
    for (size_t i = 0; i <= o->steps; i++) {
        double part[3];
        double top = bench_peak(bench_pool(o->threads), o->isa);
        loss = step_run(&s, part);
        printf("step %zu: loss %.6f, forward %.0f ms, backward %.0f ms, "
               "optimizer %.0f ms\n",
               i, loss, part[0] * 1e3, part[1] * 1e3, part[2] * 1e3);
        fflush(stdout);
        if (i == 0) {
            shares_zero(); // touches new pages and does not count
            continue;
        }
        seconds[i - 1] = part[0] + part[1] + part[2];
        peak[i - 1] = top;
        for (size_t k = 0; k < 3; k++)
            parts[k] += part[k];
    }
    double flop = (double)tokens *
                  (6.0 * (double)c.floats + 12.0 * 12 * 768 * (double)length);
    double taken = bench_median(seconds, o->steps);
    double limit = bench_median(peak, o->steps);
    printf("GPT-2 124M, %zu x %zu, %d threads: %.0f ms a step, %.0f tokens/s, "
           "%.1f GFLOP/s, %.1f %% of peak; tape %.0f MiB\n",
           sequences, length, o->threads, taken * 1e3, (double)tokens / taken,
           flop / taken * 1e-9, 100 * flop / taken * 1e-9 / limit,
           (double)bt_tape_bytes(s.tape) / 1048576);
    shares_print(parts[0] + parts[1] + parts[2], o->threads);
    bt_optimizer_free(s.optimizer);
    bt_tape_free(s.tape);
    free(c.data.memory);
    free(c.grads.memory);
    bt_model_free(s.model);
    stream->backend->plan_free(plan);
    stream->backend->stream_free(stream);
    free(ids);
}

int main(int argc, char **argv)
{
    options o = { .threads = bt_threads_available(), .steps = 3 };
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--threads") == 0)
            o.threads = atoi(value);
        else if (strcmp(argv[i], "--isa") == 0)
            o.isa = value;
        else if (strcmp(argv[i], "--steps") == 0)
            o.steps = (size_t)atoi(value);
        else {
            fprintf(stderr, "usage: bench_step [--threads N] [--isa NAME] "
                            "[--steps N]\n");
            return 2;
        }
    }
    if (o.steps < 1 || o.steps > SAMPLES)
        o.steps = 3;
    run(&o, 4, 256);
    run(&o, 4, 64);
    return 0;
}
