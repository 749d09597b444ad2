/* SPDX-License-Identifier: Apache-2.0 */
/* test_backend_models.c - whole models on the reference backend, through the
 * public interface: forward passes, losses and gradients, training,
 * checkpoints, generation, beam search, translation and audits, for every
 * family.
 *
 * The library runs on it as on the CPU. Any access of the host to a buffer of
 * the device faults, and every operation checks its tensors, so these tests
 * prove that nothing bypasses the table of backend.h.
 *
 * Bounds. Results are compared with those of the CPU in the Euclidean norm,
 * relative to the CPU's. Rounding errors of n operations are independent enough
 * that they add up to lambda sqrt(n) u, u = 2^-24, and not to n u (Higham and
 * Mary, "A new approach to probabilistic rounding error analysis", SISC 2019);
 * with lambda = 4 that fails once in a thousand single numbers, and a norm is
 * made of hundreds. A sum has at most 70 terms (the keys of a sequence), and a
 * forward pass at most 50 operations in a row: 14 in each of 3 layers, or of 5
 * with an encoder, of which residual connections skip most. Norms keep the
 * sizes of terms and of results together. A backward pass is as long again and
 * starts from the errors of the forward pass. The largest differences that were
 * seen are a tenth of the bounds. */
#include "tiny_training.h"

#include "allocation_faults.h"
#include "audit_fixtures.h"
#include "formats/safetensors.h"
#include "generation_fixtures.h"
#include "model/api.h"
#include "packed_pair.h"
#include "reference_backend.h"
#include "runtime/context.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#define LOGITS_BOUND (4 * sqrt(70.0 * 50.0) * 0x1p-24)
#define GRADIENTS_BOUND (2 * LOGITS_BOUND)

static bauta_context *cpu, *reference;

/* ---- Comparison -------------------------------------------------------- */

static double norm_of(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double distance_of(const float *x, const float *y, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(sum);
}

static void agree(const char *family, const char *what, const float *got,
                  const float *want, size_t count, double bound)
{
    double distance = distance_of(got, want, count);
    double size = norm_of(want, count);
    if (!(distance <= bound * size))
        fail_msg("%s: %s differ by %.3g of %.3g, more than %.3g of it", family,
                 what, distance, size, bound);
}

static void agree_number(const char *family, const char *what, double got,
                         double want, double bound)
{
    if (!(fabs(got - want) <= bound * fabs(want)))
        fail_msg("%s: %s is %.12g, on the CPU %.12g", family, what, got, want);
}

static void *must_alloc(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- Models and batches ------------------------------------------------ */

static bauta_context *context_on(const char *device)
{
    bauta_context *context = NULL;
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    options.threads = 2;
    options.device = device;
    MUST(bauta_context_create(&context, &options, &err), &err);
    return context;
}

/* A new model with the same weights on any device. */
static bauta_model *model_on(bauta_context *context, const tiny *family)
{
    bauta_model *model = NULL;
    bauta_error err;
    MUST(bauta_model_create(&model, family->config, 5, &err), &err);
    MUST(bauta_model_to(model, context, &err), &err);
    return model;
}

/* The input of a model of any kind. */
typedef struct model_input {
    packed s, t;
    const bauta_batch *source, *target;
    const uint32_t *labels;
} model_input;

static void input_init(model_input *in, const bauta_model *model)
{
    bauta_model_kind kind = bauta_model_kind_of(model);
    packed_init(&in->s, 11);
    packed_init(&in->t, 12);
    in->source = kind == BAUTA_DECODER_ONLY ? NULL : &in->s.batch;
    in->target = kind == BAUTA_ENCODER_ONLY ? NULL : &in->t.batch;
    in->labels = in->target ? in->t.labels : in->s.labels;
}

static float *logits_of(bauta_context *context, const bauta_model *model)
{
    model_input in;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    input_init(&in, model);
    outputs.logits =
        must_alloc(ROWS * bauta_model_vocab_size(model), sizeof(float));
    MUST(bauta_model_forward(context, model, in.source, in.target, &outputs,
                             &err),
         &err);
    return outputs.logits;
}

/* How far a log-probability of a model may be off: by its logit and by the
 * log-sum-exp, each by the bound of a row of logits. */
static double logprob_bound(const bauta_model *model)
{
    size_t vocab = bauta_model_vocab_size(model);
    float *logits = logits_of(cpu, model);
    double largest = 0;
    for (size_t i = 0; i < ROWS; i++)
        largest = fmax(largest, norm_of(logits + i * vocab, vocab));
    free(logits);
    return 2 * LOGITS_BOUND * largest;
}

/* A weight tensor or its gradient in host memory; NULL: there is none. */
static float *tensor_of(const bauta_model *model, size_t index, bool gradient)
{
    const bt_tensor *t = model->tensors[index].tensor;
    bt_tensor part = gradient ? bt_tensor_grad(t) : *t;
    size_t count = t->rows * t->columns;
    bauta_error err;
    if (!part.buffer)
        return NULL;
    float *data = must_alloc(count, sizeof(float));
    const void *host = bt_tensor_host(&part);
    if (host)
        memcpy(data, host, count * sizeof(float));
    else
        MUST(bt_tensor_download(model->store->stream, data, &part, &err), &err);
    return data;
}

static size_t tensor_size(const bauta_model *model, size_t index)
{
    const bt_tensor *t = model->tensors[index].tensor;
    return t->rows * t->columns;
}

/* All weights or all gradients, packed back to back. */
static float *tensors_of(const bauta_model *model, bool gradients,
                         size_t *count)
{
    size_t all = 0;
    *count = 0;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++)
        all += tensor_size(model, i);
    float *data = must_alloc(all, sizeof(float));
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        float *part = tensor_of(model, i, gradients);
        if (!part)
            continue;
        memcpy(data + *count, part, tensor_size(model, i) * sizeof(float));
        *count += tensor_size(model, i);
        free(part);
    }
    return data;
}

/* ---- Forward and backward ---------------------------------------------- */

static void logits_agree_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *a = model_on(cpu, &tinies[i]);
        bauta_model *b = model_on(reference, &tinies[i]);
        float *want = logits_of(cpu, a), *got = logits_of(reference, b);
        agree(tinies[i].name, "logits", got, want,
              ROWS * bauta_model_vocab_size(a), LOGITS_BOUND);
        free(want);
        free(got);
        bauta_model_free(a);
        bauta_model_free(b);
    }
}

static void hidden_states_agree_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        float *states[2][2] = { { NULL } };
        size_t counts[2] = { 0 };
        for (int d = 0; d < 2; d++) {
            bauta_context *context = d ? reference : cpu;
            bauta_model *model = model_on(context, &tinies[i]);
            bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
            model_input in;
            bauta_error err;
            size_t row = ROWS * bauta_model_hidden_size(model);
            input_init(&in, model);
            counts[0] =
                in.source ? (bauta_model_encoder_layers(model) + 1) * row : 0;
            counts[1] =
                in.target ? (bauta_model_decoder_layers(model) + 1) * row : 0;
            for (int s = 0; s < 2; s++)
                states[d][s] = must_alloc(counts[s], sizeof(float));
            outputs.encoder_states = counts[0] ? states[d][0] : NULL;
            outputs.decoder_states = counts[1] ? states[d][1] : NULL;
            MUST(bauta_model_forward(context, model, in.source, in.target,
                                     &outputs, &err),
                 &err);
            bauta_model_free(model);
        }
        for (int s = 0; s < 2; s++) {
            agree(tinies[i].name, s ? "decoder states" : "encoder states",
                  states[1][s], states[0][s], counts[s], LOGITS_BOUND);
            free(states[0][s]);
            free(states[1][s]);
        }
    }
}

static double loss_of(bauta_context *context, bauta_model *model)
{
    model_input in;
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    bauta_error err;
    double loss = 0;
    size_t counted = 0;
    input_init(&in, model);
    options.label_smoothing = 0.1f;
    options.dropout = 0.1f;
    options.seed = 7;
    MUST(bauta_model_loss(context, model, in.source, in.target, in.labels,
                          &options, &loss, &counted, &err),
         &err);
    assert_int_equal(counted, ROWS - 2);
    return loss;
}

/* A sum that cancels is off relative to its terms, not to itself: the gradient
 * of the bias of keys is 0 but for rounding. So a tensor also has a hundredth
 * of the norm of all gradients, to which its terms belong. */
static void check_gradients(const char *family, const bauta_model *want,
                            const bauta_model *got, double factor)
{
    size_t count, other;
    float *all = tensors_of(want, true, &count);
    double whole = norm_of(all, count);
    free(all);
    free(tensors_of(got, true, &other));
    assert_int_equal(count, other);
    assert_true(whole > 0);
    for (size_t i = 0; i < bauta_model_tensor_count(want); i++) {
        float *x = tensor_of(want, i, true), *y = tensor_of(got, i, true);
        size_t n = tensor_size(want, i);
        assert_int_equal(x != NULL, y != NULL);
        if (!x)
            continue;
        double distance = distance_of(x, y, n);
        double size = norm_of(x, n) + 0.01 * whole;
        if (!(distance <= factor * GRADIENTS_BOUND * size))
            fail_msg("%s: the gradients of %s differ by %.3g of %.3g", family,
                     want->tensors[i].name, distance, size);
        free(x);
        free(y);
    }
}

/* Twice, so that gradients accumulate; then they are zeroed. */
static void losses_and_gradients_agree_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *a = model_on(cpu, &tinies[i]);
        bauta_model *b = model_on(reference, &tinies[i]);
        bauta_error err;
        for (int round = 0; round < 2; round++) {
            double want = loss_of(cpu, a), got = loss_of(reference, b);
            agree_number(tinies[i].name, "the loss", got, want, LOGITS_BOUND);
            check_gradients(tinies[i].name, a, b, 1);
        }
        MUST(bauta_model_zero_gradients(b, &err), &err);
        size_t count;
        float *zeros = tensors_of(b, true, &count);
        assert_true(norm_of(zeros, count) == 0);
        free(zeros);
        bauta_model_free(a);
        bauta_model_free(b);
    }
}

/* ---- Training ---------------------------------------------------------- */

/* A trainer of a new model on a device. */
typedef struct device_run {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
    bauta_trainer *trainer;
} device_run;

static void run_init(device_run *l, bauta_context *context, const tiny *family,
                     const bauta_train_options *options)
{
    bauta_error err;
    *l = (device_run){ .context = context };
    l->model = model_on(context, family);
    l->tokenizer = tiny_tokenizer();
    bauta_model_kind kind = bauta_model_kind_of(l->model);
    l->corpus = kind == BAUTA_ENCODER_DECODER
                    ? tiny_pairs(5, 40, 12)
                    : tiny_texts(5, 40, 30, kind == BAUTA_ENCODER_ONLY ? 1 : 3);
    MUST(bauta_trainer_create(&l->trainer, l->context, l->model, l->tokenizer,
                              l->corpus, options, &err),
         &err);
}

static void run_release(device_run *l)
{
    bauta_trainer_free(l->trainer);
    bauta_corpus_free(l->corpus);
    bauta_tokenizer_free(l->tokenizer);
    bauta_model_free(l->model);
}

/* With everything that a step can have. */
static bauta_train_options run_options(void)
{
    bauta_train_options o = tiny_train_options();
    o.dropout = 0.1f;
    o.label_smoothing = 0.1f;
    o.gradient_accumulation_steps = 2;
    o.microbatch_tokens = 64;
    o.ema_decay = 0.9;
    o.mlm_probability = 0.4f;
    return o;
}

static bauta_train_report run_step(device_run *l)
{
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    MUST(bauta_trainer_step(l->trainer, &report, &err), &err);
    assert_true(report.updated);
    return report;
}

/* The changes of all weights from `start` on, in place. */
static float *weight_changes(const bauta_model *model, const float *start,
                             size_t *count)
{
    float *weights = tensors_of(model, false, count);
    for (size_t i = 0; i < *count; i++)
        weights[i] -= start[i];
    return weights;
}

/* AdamW divides by the size of a gradient, so with the usual epsilon a gradient
 * that is only rounding moves a weight as far as any other. An epsilon of 0.1
 * is larger than the square root of any second moment here: a step is then
 * nearly linear in the gradients, and the changes of the weights differ like
 * these. Each step starts from the differences of the one before; the factor 5
 * is the number of steps. */
static void five_steps_agree_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        const char *family = tinies[i].name;
        bauta_train_options o = run_options();
        device_run a, b;
        bauta_error err;
        o.adam_epsilon = 0.1;
        run_init(&a, cpu, &tinies[i], &o);
        run_init(&b, reference, &tinies[i], &o);
        size_t count, counted[2];
        float *start = tensors_of(a.model, false, &count);
        double loss[2];
        for (int step = 1; step <= 5; step++) {
            bauta_train_report want = run_step(&a), got = run_step(&b);
            assert_int_equal(got.counted, want.counted);
            agree_number(family, "the loss of a step", got.loss, want.loss,
                         step * LOGITS_BOUND);
            agree_number(family, "the norm of gradients", got.grad_norm,
                         want.grad_norm, step * GRADIENTS_BOUND);
        }
        float *want = weight_changes(a.model, start, &count);
        float *got = weight_changes(b.model, start, &count);
        agree(family, "changes of weights", got, want, count,
              5 * GRADIENTS_BOUND);
        MUST(bauta_trainer_evaluate(a.trainer, a.corpus, 0, &loss[0],
                                    &counted[0], &err),
             &err);
        MUST(bauta_trainer_evaluate(b.trainer, b.corpus, 0, &loss[1],
                                    &counted[1], &err),
             &err);
        assert_int_equal(counted[0], counted[1]);
        agree_number(family, "the loss of an evaluation", loss[1], loss[0],
                     5 * LOGITS_BOUND);
        free(start);
        free(want);
        free(got);
        run_release(&a);
        run_release(&b);
    }
}

/* Steps with the usual epsilon, in every mode that reads the model's own
 * predictions: the loss decreases. */
static void every_training_mode_runs_on_the_device(void **state)
{
    static const struct {
        const char *family;
        bauta_objective objective;
        bauta_train_mode mode;
    } modes[] = {
        { "gpt2", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_PARALLEL },
        { "llama", BAUTA_OBJECTIVE_PREFIX, BAUTA_MODE_PARALLEL },
        { "qwen3", BAUTA_OBJECTIVE_CAUSAL, BAUTA_MODE_FREE },
        { "marian", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_SCHEDULED },
        { "gpt2", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_SEQUENTIAL },
    };
    (void)state;
    for (size_t i = 0; i < BT_LEN(modes); i++) {
        bauta_train_options o = tiny_train_options();
        device_run l;
        o.objective = modes[i].objective;
        o.mode = modes[i].mode;
        o.warmup_steps = 1;
        run_init(&l, reference, &tinies[tiny_family(modes[i].family)], &o);
        double first = run_step(&l).loss, last = first;
        for (int step = 0; step < 7; step++)
            last = run_step(&l).loss;
        if (!(last < first))
            fail_msg("%s, mode %d: the loss is %g after %g", modes[i].family,
                     (int)modes[i].mode, last, first);
        run_release(&l);
    }
}

/* A checkpoint of a run on the device is resumed there. */
static void a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i += 4) { // gpt2, qwen3, bart
        bauta_train_options o = run_options();
        temp_folder f = temp_folder_create();
        device_run a, b;
        bauta_error err;
        char path[512];
        snprintf(path, sizeof(path), "%s", temp_folder_path(&f, "run"));
        run_init(&a, reference, &tinies[i], &o);
        for (int step = 0; step < 3; step++)
            run_step(&a);
        MUST(bauta_trainer_save(a.trainer, path, NULL, &err), &err);
        run_init(&b, reference, &tinies[i], &o);
        bauta_trainer_free(b.trainer);
        bauta_model_free(b.model);
        MUST(bauta_model_load(&b.model, path, true, &err), &err);
        MUST(bauta_model_to(b.model, reference, &err), &err);
        MUST(bauta_trainer_create(&b.trainer, b.context, b.model, b.tokenizer,
                                  b.corpus, &o, &err),
             &err);
        MUST(bauta_trainer_resume(b.trainer, path, &err), &err);
        for (int step = 0; step < 2; step++) {
            double want = run_step(&a).loss, got = run_step(&b).loss;
            assert_memory_equal(&got, &want, sizeof(want));
        }
        size_t count, other;
        float *want = tensors_of(a.model, false, &count);
        float *got = tensors_of(b.model, false, &other);
        assert_int_equal(count, other);
        assert_memory_equal(got, want, count * sizeof(float));
        free(want);
        free(got);
        run_release(&a);
        run_release(&b);
        temp_folder_free(&f);
    }
}

/* ---- checkpoints of a run ------------------------------------------------ */

/* Makes files of more than `bytes` fail from a step on. */
typedef struct file_limit {
    size_t step;
    rlim_t bytes;
} file_limit;

static bauta_status limit_files(void *user, const bauta_train_report *report,
                                double seconds)
{
    const file_limit *limit = user;
    (void)seconds;
    if (report->step != limit->step)
        return BAUTA_OK;
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &now), 0);
    now.rlim_cur = limit->bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    return BAUTA_OK;
}

/* Run some steps with a checkpoint after each. */
static bauta_status run_with_saves(device_run *l, const char *folder,
                                   size_t steps, file_limit *limit,
                                   bauta_run_result *result, bauta_error *err)
{
    bauta_run *run = NULL;
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    o.max_steps = steps;
    o.save_steps = 1;
    o.save_total_limit = 0;
    o.user = limit;
    o.on_step = limit ? limit_files : NULL;
    MUST(bauta_run_open(&run, folder, true, err), err);
    bauta_status status =
        bauta_run_train(run, l->trainer, NULL, &o, result, err);
    bauta_run_free(run);
    return status;
}

static void same_file(const char *folder, const char *other, const char *name)
{
    char path[2][600];
    bt_file_map map[2];
    bauta_error err;
    snprintf(path[0], sizeof(path[0]), "%s/%s", folder, name);
    snprintf(path[1], sizeof(path[1]), "%s/%s", other, name);
    for (int i = 0; i < 2; i++)
        MUST(bt_file_map_init(&map[i], path[i], &err), &err);
    assert_int_equal(map[0].size, map[1].size);
    assert_memory_equal(map[0].bytes, map[1].bytes, map[0].size);
    for (int i = 0; i < 2; i++)
        bt_file_map_release(&map[i]);
}

/* They are written while the next steps run, and hold the state of their own
 * step. */
static void checkpoints_of_a_run_hold_their_own_step(void **state)
{
    (void)state;
    enum { STEPS = 4 };
    bauta_train_options o = run_options();
    bauta_run_result result = BAUTA_RUN_RESULT_INIT;
    temp_folder f = temp_folder_create();
    device_run a, b;
    bauta_error err;
    char run[512], step[600], own[512];
    snprintf(run, sizeof(run), "%s", temp_folder_path(&f, "run"));
    run_init(&a, reference, &tinies[0], &o);
    run_init(&b, reference, &tinies[0], &o);
    MUST(run_with_saves(&a, run, STEPS, NULL, &result, &err), &err);
    assert_int_equal(result.saved_step, STEPS);
    for (int i = 1; i <= STEPS; i++) {
        run_step(&b);
        snprintf(own, sizeof(own), "%s", temp_folder_path(&f, "own"));
        snprintf(step, sizeof(step), "%s/step-%08d", run, i);
        MUST(bauta_trainer_save(b.trainer, own, NULL, &err), &err);
        same_file(step, own, "model.safetensors");
        same_file(step, own, "optimizer.safetensors");
        temp_folder_remove(own);
    }
    run_release(&a);
    run_release(&b);
    temp_folder_free(&f);
}

/* Either by the next checkpoint or at the end of the run. */
static void a_checkpoint_that_cannot_be_written_ends_a_run(void **state)
{
    (void)state;
    struct rlimit before;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t steps = 3; steps <= 6; steps += 3) {
        bauta_train_options o = run_options();
        bauta_run_result result = BAUTA_RUN_RESULT_INIT;
        file_limit limit = { 3, 8000 };
        temp_folder f = temp_folder_create();
        device_run a;
        bauta_error err;
        char complete[64];
        run_init(&a, reference, &tinies[0], &o);
        bauta_status status = run_with_saves(&a, temp_folder_path(&f, "run"),
                                             steps, &limit, &result, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, BAUTA_ERR_IO);
        // That of step 2 may still be under way when files begin to fail.
        assert_in_range(result.saved_step, 1, 2);
        snprintf(complete, sizeof(complete), "step %zu is complete",
                 result.saved_step);
        assert_non_null(strstr(err.message, complete));
        run_release(&a);
        temp_folder_free(&f);
    }
    signal(SIGXFSZ, handler);
}

/* The optimizer for training loops of one's own. */
static void the_public_optimizer_runs_on_the_device(void **state)
{
    (void)state;
    bauta_model *models[2];
    for (int d = 0; d < 2; d++) {
        bauta_context *context = d ? reference : cpu;
        bauta_optimizer_options options = BAUTA_OPTIMIZER_OPTIONS_INIT;
        bauta_optimizer *optimizer = NULL;
        bauta_error err;
        double norm = 0;
        options.adam_epsilon = 0.1;
        models[d] = model_on(context, &tinies[1]);
        MUST(bauta_optimizer_create(&optimizer, context, models[d], &options,
                                    &err),
             &err);
        for (int step = 0; step < 3; step++) {
            loss_of(context, models[d]);
            MUST(bauta_optimizer_step(optimizer, &norm, &err), &err);
            MUST(bauta_model_zero_gradients(models[d], &err), &err);
        }
        assert_true(norm > 0);
        bauta_optimizer_free(optimizer);
    }
    float *want = logits_of(cpu, models[0]);
    float *got = logits_of(reference, models[1]);
    agree("llama", "logits after three steps", got, want,
          ROWS * bauta_model_vocab_size(models[0]), 4 * LOGITS_BOUND);
    free(want);
    free(got);
    bauta_model_free(models[0]);
    bauta_model_free(models[1]);
}

/* ---- Generation -------------------------------------------------------- */

enum { REQUESTS = 3, NEW_TOKENS = 24 };

/* The logits of a request, as they come. */
typedef struct trace {
    size_t count, vocab;
    float *logits; /* (NEW_TOKENS, vocab) */
} trace;

static void trace_logits(void *user, size_t position, const float *logits,
                         size_t vocab_size)
{
    trace *t = user;
    if (position >= NEW_TOKENS)
        return;
    memcpy(t->logits + position * vocab_size, logits,
           vocab_size * sizeof(float));
    t->vocab = vocab_size;
    if (position + 1 > t->count)
        t->count = position + 1;
}

/* Results of one device for all requests. */
typedef struct generated {
    bauta_result *results[REQUESTS];
    trace traces[REQUESTS];
} generated;

static bauta_generate_options generate_options(void)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    o.max_new_tokens = NEW_TOKENS;
    o.decoder_start_token_id = 39;
    o.eos_token_count = 1;
    o.eos_token_ids[0] = 2;
    return o;
}

/* Three prompts, or sources to translate, of different lengths at once. */
static void generate_on(generated *g, bauta_context *context,
                        const bauta_model *model,
                        const bauta_generate_options *options)
{
    packed p;
    bauta_request requests[REQUESTS];
    generation_fixture s = { context, (bauta_model *)model, NULL };
    packed_init(&p, 13);
    for (size_t i = 0; i < REQUESTS; i++) {
        g->traces[i] = (trace){ 0 };
        g->traces[i].logits = must_alloc(
            NEW_TOKENS * bauta_model_vocab_size(model), sizeof(float));
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].options = options;
        requests[i].user = &g->traces[i];
        requests[i].on_logits = options->num_beams > 1 ? NULL : trace_logits;
        if (bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER) {
            requests[i].source = p.ids + 5 * i;
            requests[i].source_count = 4 + 9 * i;
        } else {
            requests[i].tokens = p.ids + 5 * i;
            requests[i].count = 4 + 9 * i;
        }
    }
    generate_all(&s, NULL, requests, REQUESTS, g->results);
}

static void generated_release(generated *g)
{
    results_free(g->results, REQUESTS);
    for (size_t i = 0; i < REQUESTS; i++)
        free(g->traces[i].logits);
}

/* How far the largest logit is above the next. */
static double margin_of(const float *logits, size_t count)
{
    double first = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double z = (double)logits[i];
        if (z > first) {
            second = first;
            first = z;
        } else if (z > second) {
            second = z;
        }
    }
    return first - second;
}

/* Token by token the same, with logits that agree; a step at which the two best
 * tokens are closer than the bound ends the comparison. */
static void check_greedy(const char *family, const bauta_result *want,
                         const bauta_result *got, const trace *x,
                         const trace *y)
{
    assert_int_equal(want->count, 1);
    assert_int_equal(got->count, 1);
    const bauta_hypothesis *a = want->hypotheses[0], *b = got->hypotheses[0];
    for (size_t i = 0; i < a->count; i++) {
        const float *z = x->logits + i * x->vocab;
        double bound = LOGITS_BOUND * norm_of(z, x->vocab);
        assert_true(i < x->count && i < y->count);
        agree(family, "logits of a new token", y->logits + i * y->vocab, z,
              x->vocab, LOGITS_BOUND);
        if (i >= b->count || a->tokens[i] != b->tokens[i]) {
            if (margin_of(z, x->vocab) > 2 * bound)
                fail_msg("%s: token %zu is not %u", family, i,
                         (unsigned)a->tokens[i]);
            return;
        }
        // A log-probability is off by its logit and the log-sum-exp.
        if (!(fabs((double)a->logprobs[i] - (double)b->logprobs[i]) <=
              2 * bound))
            fail_msg("%s: the log-probability of token %zu is %g, not %g",
                     family, i, (double)b->logprobs[i], (double)a->logprobs[i]);
    }
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->finish, b->finish);
}

static void greedy_generation_agrees_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *a = model_on(cpu, &tinies[i]);
        bauta_model *b = model_on(reference, &tinies[i]);
        bauta_generate_options o = generate_options();
        generated want, got;
        if (bauta_model_kind_of(a) != BAUTA_ENCODER_ONLY) {
            generate_on(&want, cpu, a, &o);
            generate_on(&got, reference, b, &o);
            for (size_t k = 0; k < REQUESTS; k++)
                check_greedy(tinies[i].name, want.results[k], got.results[k],
                             &want.traces[k], &got.traces[k]);
            generated_release(&want);
            generated_release(&got);
        }
        bauta_model_free(a);
        bauta_model_free(b);
    }
}

/* A score is a mean of log-probabilities. Hypotheses of the same rank are the
 * same unless the CPU has two that are closer than their bounds. Returns
 * whether it has not. */
static bool check_beams(const char *family, const bauta_result *want,
                        const bauta_result *got, double bound)
{
    bool distinct = true;
    assert_int_equal(want->count, got->count);
    for (size_t h = 0; h + 1 < want->count; h++)
        distinct &=
            want->hypotheses[h]->score - want->hypotheses[h + 1]->score >
            2 * bound;
    for (size_t h = 0; h < want->count; h++) {
        const bauta_hypothesis *a = want->hypotheses[h];
        const bauta_hypothesis *b = got->hypotheses[h];
        if (!(fabs(a->score - b->score) <= bound))
            fail_msg("%s: beam %zu has the score %g, not %g", family, h,
                     b->score, a->score);
        if (distinct &&
            (a->count != b->count ||
             memcmp(a->tokens, b->tokens, a->count * sizeof(a->tokens[0]))))
            fail_msg("%s: beam %zu is another one", family, h);
    }
    return distinct;
}

static void beam_search_agrees_with_the_cpu(void **state)
{
    size_t distinct = 0;
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *a = model_on(cpu, &tinies[i]);
        bauta_model *b = model_on(reference, &tinies[i]);
        bauta_generate_options o = generate_options();
        generated want, got;
        o.num_beams = 4;
        o.num_return_sequences = 3;
        if (bauta_model_kind_of(a) != BAUTA_ENCODER_ONLY) {
            generate_on(&want, cpu, a, &o);
            generate_on(&got, reference, b, &o);
            for (size_t k = 0; k < REQUESTS; k++)
                distinct += check_beams(tinies[i].name, want.results[k],
                                        got.results[k], logprob_bound(a));
            generated_release(&want);
            generated_release(&got);
        }
        bauta_model_free(a);
        bauta_model_free(b);
    }
    printf("%zu results without near ties\n", distinct);
    assert_true(distinct > 0);
}

/* A model that was trained on the device translates there as it does after it
 * was moved to the CPU. */
static void a_trained_model_translates_as_on_the_cpu(void **state)
{
    (void)state;
    const tiny *family = &tinies[tiny_family("marian")];
    bauta_train_options o = tiny_train_options();
    bauta_generate_options how = generate_options();
    device_run run;
    bauta_error err;
    generated want, got;
    how.max_new_tokens = 16;
    run_init(&run, reference, family, &o);
    for (size_t step = 0; step < 12; step++)
        run_step(&run);
    generate_on(&got, reference, run.model, &how);
    bauta_trainer_free(run.trainer); // its moments are on the device
    run.trainer = NULL;
    MUST(bauta_model_to(run.model, cpu, &err), &err);
    generate_on(&want, cpu, run.model, &how);
    for (size_t k = 0; k < REQUESTS; k++)
        check_greedy("marian", want.results[k], got.results[k], &want.traces[k],
                     &got.traces[k]);
    generated_release(&want);
    generated_release(&got);
    run_release(&run);
}

/* Sequences that are appended to in parts, forked and truncated give the bits
 * of the forward pass on the same device. */
static void decoding_sessions_equal_the_forward_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *model = model_on(reference, &tinies[i]);
        size_t vocab = bauta_model_vocab_size(model), sequence, copy;
        bauta_decode_session *session = NULL;
        model_input in;
        bauta_error err;
        if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY) {
            bauta_model_free(model);
            continue;
        }
        float *want = logits_of(reference, model);
        float *got = must_alloc(vocab, sizeof(float));
        input_init(&in, model);
        MUST(bauta_decode_session_create(&session, reference, model, &err),
             &err);
        MUST(bauta_decode_session_open(session, in.source ? in.s.ids : NULL,
                                       in.source ? FIRST : 0, &sequence, &err),
             &err);
        const struct {
            size_t from, count;
        } parts[] = { { 0, 30 }, { 30, 1 }, { 31, 2 } };
        for (size_t k = 0; k < BT_LEN(parts); k++) {
            bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
            input.sequence = sequence;
            input.tokens = in.t.ids + parts[k].from;
            input.count = parts[k].count;
            input.logits = got;
            MUST(bauta_decode_session_append(session, &input, 1, &err), &err);
            assert_memory_equal(
                got, want + (parts[k].from + parts[k].count - 1) * vocab,
                vocab * sizeof(float));
        }
        MUST(bauta_decode_session_fork(session, sequence, &copy, &err), &err);
        bauta_decode_input both[2] = { BAUTA_DECODE_INPUT_INIT,
                                       BAUTA_DECODE_INPUT_INIT };
        both[0].sequence = sequence;
        both[0].tokens = in.t.ids; // another token
        both[0].count = 1;
        both[1].sequence = copy;
        both[1].tokens = in.t.ids + 33;
        both[1].count = 1;
        both[1].logits = got;
        MUST(bauta_decode_session_append(session, both, 2, &err), &err);
        assert_memory_equal(got, want + 33 * vocab, vocab * sizeof(float));
        bauta_decode_session_free(session);
        free(want);
        free(got);
        bauta_model_free(model);
    }
}

/* ---- Other calls ------------------------------------------------------- */

static void check_logprobs(const char *family, const bauta_model *a,
                           const bauta_model *b)
{
    model_input in;
    float want[ROWS], got[ROWS];
    bauta_error err;
    input_init(&in, a);
    MUST(bauta_model_logprobs(cpu, a, in.source, in.target, in.labels, want,
                              &err),
         &err);
    MUST(bauta_model_logprobs(reference, b, in.source, in.target, in.labels,
                              got, &err),
         &err);
    agree(family, "log-probabilities", got, want, ROWS, 4 * LOGITS_BOUND);
    assert_true(got[FIRST - 1] == 0 && got[ROWS - 1] == 0); // ignored labels
}

static void check_embeddings(const char *family, const bauta_model *a,
                             const bauta_model *b)
{
    model_input in;
    size_t count = 2 * bauta_model_hidden_size(a);
    float *want = must_alloc(count, sizeof(float));
    float *got = must_alloc(count, sizeof(float));
    bauta_error err;
    input_init(&in, a);
    MUST(bauta_model_embed(cpu, a, &in.s.batch, NULL, want, &err), &err);
    MUST(bauta_model_embed(reference, b, &in.s.batch, NULL, got, &err), &err);
    agree(family, "embeddings", got, want, count, LOGITS_BOUND);
    free(want);
    free(got);
}

static void check_top_tokens(const char *family, const bauta_model *a,
                             const bauta_model *b)
{
    const size_t rows[] = { 0, 40, 69 };
    model_input in;
    uint32_t ids[2][3 * 5];
    double probabilities[2][3 * 5];
    bauta_error err;
    input_init(&in, a);
    MUST(bauta_model_top_tokens(cpu, a, in.source, in.target, rows, 3, NULL,
                                ids[0], probabilities[0], &err),
         &err);
    MUST(bauta_model_top_tokens(reference, b, in.source, in.target, rows, 3,
                                NULL, ids[1], probabilities[1], &err),
         &err);
    // An absolute error of a logarithm is a relative one.
    double bound = 1.01 * logprob_bound(a);
    for (size_t i = 0; i < 15; i++)
        agree_number(family, "a probability", probabilities[1][i],
                     probabilities[0][i], bound);
}

static void check_attention_weights(const char *family, const bauta_model *a,
                                    const bauta_model *b)
{
    model_input in;
    float *weights[2];
    bauta_error err;
    input_init(&in, a);
    for (int d = 0; d < 2; d++) {
        bauta_attention_weights request = BAUTA_ATTENTION_WEIGHTS_INIT;
        weights[d] = must_alloc(ROWS * ROWS, sizeof(float));
        request.attention =
            in.target ? BAUTA_ATTENTION_DECODER : BAUTA_ATTENTION_ENCODER;
        request.layer = 1;
        request.head = 1;
        request.rows = ROWS;
        request.weights = weights[d];
        MUST(bauta_model_attention_weights(d ? reference : cpu, d ? b : a,
                                           in.source, in.target, NULL, &request,
                                           1, &err),
             &err);
    }
    agree(family, "attention weights", weights[1], weights[0], ROWS * ROWS,
          LOGITS_BOUND);
    for (size_t i = 0; i < ROWS * ROWS; i++)
        assert_int_equal(weights[1][i] == 0, weights[0][i] == 0);
    free(weights[0]);
    free(weights[1]);
}

static void other_calls_agree_with_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *a = model_on(cpu, &tinies[i]);
        bauta_model *b = model_on(reference, &tinies[i]);
        model_input in;
        bauta_error err;
        check_logprobs(tinies[i].name, a, b);
        check_embeddings(tinies[i].name, a, b);
        check_top_tokens(tinies[i].name, a, b);
        check_attention_weights(tinies[i].name, a, b);
        input_init(&in, b);
        MUST(bauta_model_check_finite(reference, b, in.source, in.target, &err),
             &err);
        bauta_model_free(a);
        bauta_model_free(b);
    }
}

/* ---- Audits ------------------------------------------------------------ */

static void every_family_passes_the_audit(void **state)
{
    static const size_t targets[] = { 21, 1, 8 }, sources[] = { 11, 19, 2 };
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        subject s = { .context = reference };
        test_random r = test_random_from(3);
        s.model = model_on(reference, &tinies[i]);
        side_init(&s.source, &r, 3, sources, 0, 39);
        side_init(&s.target, &r, 3, targets, 0, 39);
        must_pass(&s, 6, 1, tinies[i].name);
        side_release(&s.source);
        side_release(&s.target);
        bauta_model_free(s.model);
    }
}

static void a_trainer_passes_the_audit(void **state)
{
    (void)state;
    bauta_train_options o = tiny_train_options();
    bauta_audit *audit = NULL;
    device_run l;
    bauta_error err;
    run_init(&l, reference, &tinies[tiny_family("llama")], &o);
    MUST(bauta_audit_trainer(&audit, l.trainer, NULL, &err), &err);
    assert_true(bauta_audit_passed(audit));
    bauta_audit_free(audit);
    run_release(&l);
}

/* ---- Devices ----------------------------------------------------------- */

static void a_model_moves_and_comes_back_unchanged(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        bauta_model *model = model_on(cpu, &tinies[i]);
        size_t bytes = ROWS * bauta_model_vocab_size(model) * sizeof(float);
        float *before = logits_of(cpu, model);
        bauta_tensor tensor = BAUTA_TENSOR_INIT;
        bauta_error err;
        MUST(bauta_model_to(model, reference, &err), &err);
        MUST(bauta_model_tensor(model, 0, &tensor, &err), &err);
        assert_null(tensor.data);
        assert_null(tensor.writable);
        assert_null(tensor.gradient);
        free(logits_of(reference, model));
        MUST(bauta_model_to(model, cpu, &err), &err);
        MUST(bauta_model_tensor(model, 0, &tensor, &err), &err);
        assert_non_null(tensor.data);
        float *after = logits_of(cpu, model);
        assert_memory_equal(after, before, bytes);
        free(before);
        free(after);
        bauta_model_free(model);
    }
}

static void a_model_of_the_device_is_saved(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        temp_folder f = temp_folder_create();
        bauta_model *model = model_on(reference, &tinies[i]), *loaded = NULL;
        bauta_error err;
        char path[512];
        snprintf(path, sizeof(path), "%s", temp_folder_path(&f, "model"));
        MUST(bauta_model_save(model, path, &err), &err);
        MUST(bauta_model_load(&loaded, path, false, &err), &err);
        // A read-only model moves, too.
        MUST(bauta_model_to(loaded, reference, &err), &err);
        float *want = logits_of(reference, model);
        float *got = logits_of(reference, loaded);
        assert_memory_equal(
            got, want, ROWS * bauta_model_vocab_size(model) * sizeof(float));
        free(want);
        free(got);
        bauta_model_free(model);
        bauta_model_free(loaded);
        temp_folder_free(&f);
    }
}

/* Rewrite the weights of a folder in another type. */
static void weights_convert(const char *folder, bauta_dtype dtype)
{
    enum { MOST = 200 };
    static bt_stored_tensor tensors[MOST];
    bt_safetensors *file = NULL;
    bauta_error err;
    char path[600];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    MUST(bt_safetensors_open(&file, path, &err), &err);
    size_t count = bt_safetensors_count(file);
    assert_in_range(count, 1, MOST);
    for (size_t i = 0; i < count; i++) {
        const bt_stored_tensor *t = bt_safetensors_at(file, i);
        size_t numbers = t->bytes / sizeof(float);
        float *floats = must_alloc(numbers, sizeof(float));
        void *data = must_alloc(numbers, sizeof(float));
        bt_convert_f32(floats, t->data, t->dtype, numbers);
        bt_convert_from_f32(data, dtype, floats, numbers);
        free(floats);
        tensors[i] = *t;
        tensors[i].dtype = dtype;
        tensors[i].data = data;
        tensors[i].bytes = numbers * bt_dtype_size(dtype);
    }
    MUST(bt_safetensors_write(path, tensors, count, NULL, 0, &err), &err);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)tensors[i].data);
    bt_safetensors_free(file);
}

static void a_folder_is_loaded_to_the_device(void **state)
{
    (void)state;
    static const bauta_dtype types[] = { BAUTA_FLOAT32, BAUTA_BFLOAT16,
                                         BAUTA_FLOAT16 };
    for (size_t i = 0; i < BT_LEN(tinies) * BT_LEN(types); i++) {
        temp_folder f = temp_folder_create();
        bauta_model *model = model_on(cpu, &tinies[i / BT_LEN(types)]);
        bauta_model *moved = NULL, *direct = NULL;
        bauta_error err;
        char path[512];
        snprintf(path, sizeof(path), "%s", temp_folder_path(&f, "model"));
        MUST(bauta_model_save(model, path, &err), &err);
        weights_convert(path, types[i % BT_LEN(types)]);
        MUST(bauta_model_load(&moved, path, false, &err), &err);
        MUST(bauta_model_to(moved, reference, &err), &err);
        MUST(bauta_model_load_to(&direct, path, reference, &err), &err);
        assert_int_equal(bauta_model_parameter_count(direct),
                         bauta_model_parameter_count(moved));
        float *want = logits_of(reference, moved);
        float *got = logits_of(reference, direct);
        assert_memory_equal(
            got, want, ROWS * bauta_model_vocab_size(model) * sizeof(float));
        free(want);
        free(got);
        bauta_model_free(moved);
        bauta_model_free(direct);
        bauta_model_free(model);
        temp_folder_free(&f);
    }
}

static void a_folder_that_cannot_be_loaded_leaves_nothing(void **state)
{
    (void)state;
    temp_folder f = temp_folder_create();
    bauta_model *model = model_on(cpu, &tinies[0]), *loaded = NULL;
    bauta_error err;
    char path[512];
    snprintf(path, sizeof(path), "%s", temp_folder_path(&f, "model"));
    MUST(bauta_model_save(model, path, &err), &err);
    faults_begin();
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status =
            bauta_model_load_to(&loaded, path, reference, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(loaded);
    }
    bauta_model_free(loaded);
    assert_int_equal(faults_end(), 0);
    bauta_model_free(model);
    temp_folder_free(&f);
}

static void check_tensors(bauta_context *context)
{
    bauta_model *model = model_on(context, &tinies[0]);
    bauta_model *host = model_on(cpu, &tinies[0]);
    bauta_error err = { 0 };
    (void)loss_of(context, model);
    (void)loss_of(cpu, host);
    for (size_t i = 0; i < bauta_model_tensor_count(host); i++) {
        bauta_tensor t = BAUTA_TENSOR_INIT;
        MUST(bauta_model_tensor(host, i, &t, &err), &err);
        float *got = must_alloc(t.count, sizeof(float));
        MUST(bauta_model_read_tensor(model, t.name, got, &err), &err);
        assert_memory_equal(got, t.data, t.count * sizeof(float));
        MUST(bauta_model_read_gradient(model, t.name, got, &err), &err);
        double size = norm_of(t.gradient, t.count), distance = 0;
        for (size_t j = 0; j < t.count; j++)
            distance += fabs((double)got[j] - (double)t.gradient[j]);
        assert_true(distance <= 1e-3 * size * (double)t.count + 1e-9);
        for (size_t j = 0; j < t.count; j++)
            t.writable[j] = 0.5f * t.data[j] + 0.001f;
        MUST(bauta_model_write_tensor(model, t.name, t.data, &err), &err);
        MUST(bauta_model_read_tensor(model, t.name, got, &err), &err);
        assert_memory_equal(got, t.data, t.count * sizeof(float));
        free(got);
    }
    double want = loss_of(cpu, host), is = loss_of(context, model);
    assert_true(fabs(is - want) <= 1e-4 * fabs(want));
    float none;
    assert_int_equal(bauta_model_read_tensor(model, "none", &none, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_read_gradient(model, "none", &none, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_write_tensor(model, "none", &none, &err),
                     BAUTA_ERR_ARGUMENT);
    bauta_model_free(model);
    bauta_model_free(host);
}

static void tensors_are_read_and_written_on_every_device(void **state)
{
    (void)state;
    check_tensors(cpu);
    check_tensors(reference);
}

static void a_model_on_another_device_is_an_error(void **state)
{
    (void)state;
    bauta_model *model = model_on(cpu, &tinies[0]);
    model_input in;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err = { 0 };
    input_init(&in, model);
    outputs.logits =
        must_alloc(ROWS * bauta_model_vocab_size(model), sizeof(float));
    assert_string_equal(bauta_context_device(reference), "reference");
    assert_int_equal(bauta_model_forward(reference, model, in.source, in.target,
                                         &outputs, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "reference"));
    MUST(bauta_model_to(model, reference, &err), &err);
    assert_int_equal(
        bauta_model_forward(cpu, model, in.source, in.target, &outputs, &err),
        BAUTA_ERR_ARGUMENT);
    free(outputs.logits);
    bauta_model_free(model);
}

/* ---- The seam ---------------------------------------------------------- */

static void another_context_reads_a_model_and_cannot_train_it(void **state)
{
    (void)state;
    bauta_model *model = model_on(reference, &tinies[0]);
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_train_options how = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_context *other = NULL;
    bauta_optimizer *optimizer = NULL;
    bauta_trainer *trainer = NULL;
    bauta_error err = { 0 };
    options.device = "reference";
    MUST(bauta_context_create(&other, &options, &err), &err);
    float *want = logits_of(reference, model), *got = logits_of(other, model);
    assert_memory_equal(got, want,
                        ROWS * bauta_model_vocab_size(model) * sizeof(float));
    assert_int_equal(
        bauta_optimizer_create(&optimizer, other, model, NULL, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another context"));
    assert_int_equal(
        bauta_trainer_create(&trainer, other, model, NULL, NULL, &how, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another context"));
    free(want);
    free(got);
    bauta_model_free(model);
    bauta_context_free(other);
}

static void host_access_is_caught(void **state)
{
    (void)state;
    assert_true(reference_backend_catches_host_access());
}

/* The last test: models have used the whole table. */
static void models_have_called_every_operation(void **state)
{
    (void)state;
    for (int op = 0; op < BT_OP_COUNT; op++)
        if (reference_backend_calls((bt_op)op) == 0)
            fail_msg("no model has called %s", bt_op_name((bt_op)op));
}

static int open_contexts(void **state)
{
    (void)state;
    bt_device_register(&bt_reference_driver);
    cpu = context_on("cpu");
    reference = context_on("reference");
    return 0;
}

/* Nothing is left on the device. */
static int close_contexts(void **state)
{
    (void)state;
    bauta_context_free(reference);
    bauta_context_free(cpu);
    bt_device_register(NULL);
    return reference_backend_live_buffers() != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_access_is_caught),
        cmocka_unit_test(logits_agree_with_the_cpu),
        cmocka_unit_test(hidden_states_agree_with_the_cpu),
        cmocka_unit_test(losses_and_gradients_agree_with_the_cpu),
        cmocka_unit_test(five_steps_agree_with_the_cpu),
        cmocka_unit_test(every_training_mode_runs_on_the_device),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(checkpoints_of_a_run_hold_their_own_step),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_ends_a_run),
        cmocka_unit_test(the_public_optimizer_runs_on_the_device),
        cmocka_unit_test(greedy_generation_agrees_with_the_cpu),
        cmocka_unit_test(beam_search_agrees_with_the_cpu),
        cmocka_unit_test(a_trained_model_translates_as_on_the_cpu),
        cmocka_unit_test(decoding_sessions_equal_the_forward_pass),
        cmocka_unit_test(other_calls_agree_with_the_cpu),
        cmocka_unit_test(every_family_passes_the_audit),
        cmocka_unit_test(a_trainer_passes_the_audit),
        cmocka_unit_test(a_model_moves_and_comes_back_unchanged),
        cmocka_unit_test(a_model_of_the_device_is_saved),
        cmocka_unit_test(a_folder_is_loaded_to_the_device),
        cmocka_unit_test(a_folder_that_cannot_be_loaded_leaves_nothing),
        cmocka_unit_test(tensors_are_read_and_written_on_every_device),
        cmocka_unit_test(a_model_on_another_device_is_an_error),
        cmocka_unit_test(another_context_reads_a_model_and_cannot_train_it),
        cmocka_unit_test(models_have_called_every_operation),
    };
    return cmocka_run_group_tests_name("models on the reference backend", tests,
                                       open_contexts, close_contexts);
}
