/* SPDX-License-Identifier: Apache-2.0 */
/* model_gpu.c - training and generation of whole models on a GPU in bfloat16.
 *
 *   model_gpu [--model gpt2|llama1b|llama8b4] [--sequences N] [--length N]
 *             [--steps N] [--generate N] [--batch N] [--rounds N]
 *             [--profile 1] [--shares 1] [--graphs 0] [--ahead 0]
 *             [--folder DIR]
 *
 * Weights and tokens are random. Training is forward, backward, clipping and
 * AdamW with float32 master weights on a batch of N sequences of a length; the
 * first two steps are not counted. Generation is greedy, after a prompt of 16
 * tokens, for one sequence and for a batch, in so many rounds, with a digest of
 * all tokens and log-probabilities, which no change of speed may change; in the
 * first round kernels are loaded and graphs made. --profile waits for
 * every operation and prints how long each took in all, by its kind, the width
 * of its result and, for products, the number of terms (of dW: its rows).
 * --shares prints by how much a step of generation is shorter without the
 * operations of each kind: what they take in their places. --graphs 0 queues
 * every kernel of a step by itself, and --ahead 0 no step before the tokens of
 * the one before are known. --folder loads a model (bench/make_llama.py makes
 * some of 1 and 8 billion parameters) and generates; only with --steps it is
 * trained, too. */
#include "backend/cuda/stream.h"
#include "base/hash.h"
#include "runtime/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_head\": 12, "
    "\"n_layer\": 12, \"vocab_size\": 50257, \"n_positions\": 1024}";
static const char llama1b[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 2048, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
    "\"num_hidden_layers\": 16, \"intermediate_size\": 8192, "
    "\"vocab_size\": 128256, \"max_position_embeddings\": 4096, "
    "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-5, "
    "\"rope_theta\": 500000.0}";
/* Four layers of a Llama of 8B with a small vocabulary: made in seconds. */
static const char llama8b4[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
    "\"num_hidden_layers\": 4, \"intermediate_size\": 14336, "
    "\"vocab_size\": 32000, \"max_position_embeddings\": 4096, "
    "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-5, "
    "\"rope_theta\": 500000.0}";

typedef struct settings {
    const char *config, *folder;
    size_t sequences, length, steps, generate, batch, profile, graphs, shares,
        ahead, rounds;
} settings;

static bauta_error err;

static void need(bauta_status status)
{
    if (!status)
        return;
    fprintf(stderr, "model_gpu: %s\n", err.message);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes of host memory at most so far, with pages of mapped files in
 * use. */
static size_t peak_memory(void)
{
    size_t kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib << 10;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- Profile ------------------------------------------------------------- */

typedef struct profile_row {
    bt_op op;
    size_t columns, terms, calls;
    double seconds;
} profile_row;

static struct {
    const bt_backend *inner;
    bt_backend timed;
    profile_row rows[256];
    size_t count;
} profile;

static void profile_add(bt_op op, size_t columns, size_t terms, double seconds)
{
    size_t i = 0;
    while (i < profile.count &&
           (profile.rows[i].op != op || profile.rows[i].columns != columns ||
            profile.rows[i].terms != terms))
        i++;
    if (i == profile.count &&
        i + 1 < sizeof(profile.rows) / sizeof(*profile.rows))
        profile.rows[profile.count++] =
            (profile_row){ op, columns, terms, 0, 0 };
    profile.rows[i].calls++;
    profile.rows[i].seconds += seconds;
}

/* The width that tells operations of one kind apart. */
#define WIDTH_linear args->layers[0].y->columns
#define WIDTH_linear_dx args->dx->columns
#define WIDTH_linear_dw args->dw->columns
#define WIDTH_sum_rows args->x->columns
#define WIDTH_embedding args->y->columns
#define WIDTH_embedding_grad args->dy->columns
#define WIDTH_scatter_add args->x->columns
#define WIDTH_norm args->x->columns
#define WIDTH_norm_grad args->x->columns
#define WIDTH_act args->x->columns
#define WIDTH_act_grad args->x->columns
#define WIDTH_rotary args->x->columns
#define WIDTH_add args->a->columns
#define WIDTH_scale args->x->columns
#define WIDTH_softcap args->x->columns
#define WIDTH_softcap_grad args->y->columns
#define WIDTH_accumulate args->x->columns
#define WIDTH_dropout args->x->columns
#define WIDTH_attention args->q->columns
#define WIDTH_attention_grad args->q->columns
#define WIDTH_kv_write args->k->columns
#define WIDTH_kv_copy args->count
#define WIDTH_paged_attention args->q->columns
#define WIDTH_cross_entropy args->logits->columns
#define WIDTH_logprobs args->logits->columns
#define WIDTH_sample args->logits->columns
#define WIDTH_beam args->logits->columns
#define WIDTH_adamw args->count
#define WIDTH_ema args->x->columns
#define WIDTH_swap args->a->columns

/* The other width of a product: the terms of a sum, or the rows of dW. */
static size_t terms_of(bt_op op, const void *args)
{
    switch (op) {
    case BT_OP_linear:
        return ((const bt_linear_args *)args)->x->columns;
    case BT_OP_linear_dx:
        return ((const bt_linear_dx_args *)args)->dy->columns;
    case BT_OP_linear_dw:
        return ((const bt_linear_dw_args *)args)->dw->rows;
    default:
        return 0;
    }
}

#define TIMED(name)                                                           \
    static bauta_status timed_##name(                                         \
        bt_stream *stream, const bt_##name##_args *args, bauta_error *e)      \
    {                                                                         \
        profile.inner->sync(stream, e);                                       \
        double start = now();                                                 \
        bauta_status status = profile.inner->name(stream, args, e);           \
        profile.inner->sync(stream, e);                                       \
        double taken = now() - start;                                         \
        profile_add(BT_OP_##name, WIDTH_##name, terms_of(BT_OP_##name, args), \
                    taken);                                                   \
        return status;                                                        \
    }
BT_OP_MAP(TIMED)

static void profile_begin(bauta_context *context)
{
    profile.inner = context->stream->backend;
    profile.timed = *profile.inner;
    profile.timed.step_begin = NULL; // its operations would not be issued
    profile.timed.sample_queue = NULL;
    profile.count = 0;
#define TAKE(name) profile.timed.name = timed_##name;
    BT_OP_MAP(TAKE)
    context->stream->backend = &profile.timed;
}

static void profile_end(bauta_context *context, size_t steps)
{
    double all = 0;
    context->stream->backend = profile.inner;
    for (size_t i = 0; i < profile.count; i++)
        all += profile.rows[i].seconds;
    for (size_t i = 0; i < profile.count; i++) {
        const profile_row *r = &profile.rows[i];
        printf("  %-16s %6zu %6zu  %5zu calls  %8.3f ms  %5.1f %%\n",
               bt_op_name(r->op), r->columns, r->terms, r->calls / steps,
               r->seconds / (double)steps * 1e3, r->seconds / all * 100);
    }
    printf("  all %.3f ms a step\n", all / (double)steps * 1e3);
}

/* ---- Training ------------------------------------------------------------ */

static void train(bauta_context *context, bauta_model *model, const settings *o)
{
    enum { WARM = 2, MOST = 100 };
    size_t rows = o->sequences * o->length,
           vocab = bauta_model_vocab_size(model);
    uint32_t *ids = malloc((rows + 1) * sizeof(*ids));
    double seconds[MOST], loss = 0;
    bauta_trainer *trainer;
    bauta_train_options options = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_train_batch given = BAUTA_TRAIN_BATCH_INIT;
    const bauta_train_batch *list = &given;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    if (!ids || o->steps + WARM > MOST)
        exit(1);
    for (size_t i = 0; i <= rows; i++)
        ids[i] = (uint32_t)((i * 2654435761u) % vocab);
    options.max_steps = 1000;
    options.warmup_steps = 1;
    options.learning_rate = 1e-4;
    need(bauta_trainer_create(&trainer, context, model, NULL, NULL, &options,
                              &err));
    batch.count = o->sequences;
    batch.stride = o->length;
    batch.ids = ids;
    given.target = &batch;
    given.labels = ids + 1;
    for (size_t i = 0; i < o->steps + WARM; i++) {
        double start = now();
        need(bauta_trainer_step_batch(trainer, list, 1, &report, &err));
        seconds[i] = now() - start;
        if (i < WARM)
            printf("warm-up step %zu: %.1f ms, loss %.4f\n", i,
                   seconds[i] * 1e3, report.loss);
        loss = report.loss;
    }
    qsort(seconds + WARM, o->steps, sizeof(double), by_size);
    double median = seconds[WARM + o->steps / 2];
    printf("training, %zu x %zu tokens: %.1f ms a step, %.0f tokens/s, loss "
           "%.4f\n",
           o->sequences, o->length, median * 1e3, (double)rows / median, loss);
    if (o->profile) {
        enum { PROFILED = 2 };
        profile_begin(context);
        for (size_t i = 0; i < PROFILED; i++)
            need(bauta_trainer_step_batch(trainer, list, 1, &report, &err));
        profile_end(context, PROFILED);
    }
    bauta_trainer_free(trainer);
    free(ids);
}

/* The context's table with other entries. Sampling waits for its tokens, so the
 * time in it is what the host waits for the GPU. */
static struct {
    const bt_backend *inner;
    bt_backend table;
    double waited;
} watch;

static bauta_status watched_sample(bt_stream *stream,
                                   const bt_sample_args *args, bauta_error *e)
{
    double start = now();
    bauta_status status = watch.inner->sample(stream, args, e);
    watch.waited += now() - start;
    return status;
}

static bauta_status watched_read(bt_stream *stream, bt_sampling *sampling,
                                 const bt_sample_args *args, bauta_error *e)
{
    double start = now();
    bauta_status status = watch.inner->sample_read(stream, sampling, args, e);
    watch.waited += now() - start;
    return status;
}

static void watch_begin(bauta_context *context, bool graphs, bool ahead)
{
    watch.inner = context->stream->backend;
    watch.table = *watch.inner;
    watch.table.sample = watched_sample;
    watch.table.sample_read = watched_read;
    if (!ahead)
        watch.table.sample_queue = NULL;
    if (!graphs)
        watch.table.step_begin = NULL;
    context->stream->backend = &watch.table;
}

/* How the steps since `before` were queued. */
static void print_counts(bauta_context *context,
                         const bt_cuda_step_counts *before)
{
    bt_cuda_step_counts now =
        bt_cuda_steps_counts(bt_cuda_stream_of(context->stream)->steps);
    if (now.steps == before->steps)
        return;
    printf("  steps %zu, replayed %zu, left %zu; graphs made %zu, kernels "
           "patched %zu\n",
           now.steps - before->steps, now.replayed - before->replayed,
           now.left - before->left, now.graphs - before->graphs,
           now.patched - before->patched);
}

/* A generator of `count` sequences of so many tokens after a prompt of 16. */
static void generator_make(bauta_generator **out, bauta_context *context,
                           const bauta_model *model, size_t count,
                           size_t tokens)
{
    enum { PROMPT = 16 };
    uint32_t prompt[PROMPT];
    bauta_generator *generator;
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    how.max_sequences = count;
    options.max_new_tokens = tokens;
    need(bauta_generator_create(&generator, context, model, NULL, &how, &err));
    for (size_t i = 0; i < count; i++) {
        bauta_request request = BAUTA_REQUEST_INIT;
        for (size_t t = 0; t < PROMPT; t++)
            prompt[t] =
                (uint32_t)((i * 31 + t * 7) % bauta_model_vocab_size(model));
        request.tokens = prompt;
        request.count = PROMPT;
        request.options = &options;
        need(bauta_generator_add(generator, &request, &err));
    }
    *out = generator;
}

static void generate(bauta_context *context, const bauta_model *model,
                     size_t count, size_t tokens, bool profiled)
{
    bt_cuda_step_counts counts =
        bt_cuda_steps_counts(bt_cuda_stream_of(context->stream)->steps);
    bauta_generator *generator;
    size_t left = 1, steps = 0;
    generator_make(&generator, context, model, count, tokens);
    double start = 0;
    for (; left; steps++) {
        if (steps == 4 && profiled)
            profile_begin(context);
        if (steps == 4)
            start = now();
        if (steps == 4)
            watch.waited = 0;
        need(bauta_generator_step(generator, &left, &err));
    }
    double seconds = now() - start;
    if (profiled)
        profile_end(context, steps - 4);
    printf("generation, %zu sequences: %.0f tokens/s, %.0f us a step, %.0f of "
           "them waiting\n",
           count, (double)(count * (steps - 4)) / seconds,
           seconds / (double)(steps - 4) * 1e6,
           watch.waited / (double)(steps - 4) * 1e6);
    print_counts(context, &counts);
    uint64_t digest = 0;
    for (bauta_result *r; (r = bauta_generator_take(generator));) {
        for (size_t i = 0; i < r->count; i++) {
            const bauta_hypothesis *h = r->hypotheses[i];
            digest = bt_hash((const char *)h->tokens,
                             h->count * sizeof(*h->tokens), digest);
            if (h->logprobs)
                digest = bt_hash((const char *)h->logprobs,
                                 h->count * sizeof(*h->logprobs), digest);
        }
        bauta_result_free(r);
    }
    printf("  digest %016" PRIx64 "\n", digest);
    bauta_generator_free(generator);
}

/* ---- Shares -------------------------------------------------------------- */

/* What an operation takes in its place in a step: by how much steps are shorter
 * without it. The kernels of a step overlap and are replayed by graphs, so it
 * is less than the operation takes alone. Its output keeps what an earlier step
 * left there; tokens are of no meaning then, and the time does not depend on
 * them. */
static struct {
    const bt_backend *inner;
    bt_backend table;
    bool counts; /* operations of a step are added to the profile */
    const profile_row *left_out; /* NULL: none */
} shares;

static bool shares_skip(bt_op op, size_t columns, size_t terms)
{
    const profile_row *r = shares.left_out;
    if (shares.counts)
        profile_add(op, columns, terms, 0);
    return r && r->op == op && r->columns == columns && r->terms == terms;
}

#define SHARED(name)                                                     \
    static bauta_status shared_##name(                                   \
        bt_stream *stream, const bt_##name##_args *args, bauta_error *e) \
    {                                                                    \
        if (shares_skip(BT_OP_##name, WIDTH_##name,                      \
                        terms_of(BT_OP_##name, args)))                   \
            return BAUTA_OK;                                             \
        return shares.inner->name(stream, args, e);                      \
    }
BT_OP_MAP(SHARED)

static void shares_begin(bauta_context *context)
{
    shares.inner = context->stream->backend;
    shares.table = *shares.inner;
#define SHARE(name) shares.table.name = shared_##name;
    BT_OP_MAP(SHARE)
    // Tokens are needed, and these are not in the step.
    shares.table.sample = shares.inner->sample;
    shares.table.beam = shares.inner->beam;
    shares.table.kv_copy = shares.inner->kv_copy;
    context->stream->backend = &shares.table;
}

/* The median time of a step, in microseconds. The operation is left out after
 * some steps that have it, so that its output is not anything. */
static double shares_run(bauta_context *context, const bauta_model *model,
                         size_t count, const profile_row *left_out)
{
    enum { WITH = 8, AGAIN = 8, STEPS = 96 };
    double taken[STEPS];
    bauta_generator *generator;
    generator_make(&generator, context, model, count, WITH + AGAIN + STEPS + 1);
    for (size_t i = 0; i < WITH + AGAIN + STEPS; i++) {
        size_t left;
        shares.left_out = i < WITH ? NULL : left_out;
        shares.counts = !left_out && i == WITH;
        double start = now();
        need(bauta_generator_step(generator, &left, &err));
        if (i >= WITH + AGAIN)
            taken[i - WITH - AGAIN] = now() - start;
    }
    shares.left_out = NULL;
    bauta_generator_free(generator);
    qsort(taken, STEPS, sizeof(*taken), by_size);
    return taken[STEPS / 2] * 1e6;
}

static void print_shares(bauta_context *context, const bauta_model *model,
                         size_t count)
{
    double sum = 0;
    profile.count = 0;
    shares_begin(context);
    double all = shares_run(context, model, count, NULL);
    size_t rows = profile.count;
    printf("shares of a step of %zu sequences, %.1f us:\n", count, all);
    for (size_t i = 0; i < rows; i++) {
        const profile_row *r = &profile.rows[i];
        double gain = all - shares_run(context, model, count, r);
        sum += gain;
        printf("  %-16s %6zu %6zu  %3zu calls  %7.1f us  %6.2f each\n",
               bt_op_name(r->op), r->columns, r->terms, r->calls, gain,
               gain / (double)r->calls);
    }
    printf("  everything else: %.1f us\n", all - sum);
    context->stream->backend = shares.inner;
}

static const char *config_of(const char *name)
{
    return !strcmp(name, "llama1b")    ? llama1b
           : !strcmp(name, "llama8b4") ? llama8b4
                                       : gpt2;
}

int main(int argc, char **argv)
{
    settings o = { gpt2, NULL, 64, 1024, 10, 256, 32, 0, 1, 0, 1, 1 };
    bool steps_given = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t value = (size_t)strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--model"))
            o.config = config_of(argv[i + 1]);
        else if (!strcmp(argv[i], "--sequences"))
            o.sequences = value;
        else if (!strcmp(argv[i], "--length"))
            o.length = value;
        else if (!strcmp(argv[i], "--steps"))
            o.steps = value, steps_given = true;
        else if (!strcmp(argv[i], "--generate"))
            o.generate = value;
        else if (!strcmp(argv[i], "--batch"))
            o.batch = value;
        else if (!strcmp(argv[i], "--profile"))
            o.profile = value;
        else if (!strcmp(argv[i], "--folder"))
            o.folder = argv[i + 1];
        else if (!strcmp(argv[i], "--graphs"))
            o.graphs = value;
        else if (!strcmp(argv[i], "--shares"))
            o.shares = value;
        else if (!strcmp(argv[i], "--ahead"))
            o.ahead = value;
        else if (!strcmp(argv[i], "--rounds"))
            o.rounds = value;
    }
    bauta_context *context;
    bauta_model *model;
    bauta_options options = BAUTA_OPTIONS_INIT;
    double start = now();
    options.device = "cuda";
    options.dtype = BAUTA_BFLOAT16;
    need(bauta_context_create(&context, &options, &err));
    if (o.folder && !steps_given)
        o.steps = 0;
    if (o.folder && !o.steps) {
        need(bauta_model_load_to(&model, o.folder, context, &err));
    } else {
        need(o.folder ? bauta_model_load(&model, o.folder, true, &err)
                      : bauta_model_create(&model, o.config, 1, &err));
        need(bauta_model_to(model, context, &err));
    }
    printf("%.1f million parameters, %s in %.2f s, peak of host memory %zu "
           "MB\n",
           (double)bauta_model_parameter_count(model) * 1e-6,
           o.folder ? "loaded" : "created and moved", now() - start,
           peak_memory() >> 20);
    watch_begin(context, o.graphs != 0, o.ahead != 0);
    if (o.steps)
        train(context, model, &o);
    if (o.generate) {
        for (size_t i = 0; i < o.rounds; i++) {
            generate(context, model, 1, o.generate, false);
            generate(context, model, o.batch, o.generate, false);
        }
        if (o.profile)
            generate(context, model, 1, o.generate, true);
        if (o.profile)
            generate(context, model, o.batch, o.generate, true);
        if (o.shares)
            print_shares(context, model, 1);
        if (o.shares)
            print_shares(context, model, o.batch);
    }
    bauta_model_free(model);
    bauta_context_free(context);
    return 0;
}
