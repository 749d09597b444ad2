/* SPDX-License-Identifier: Apache-2.0 */
/* test_bit_digests.c - results recorded once, to the bit: logits, gradients,
 * optimizer steps, generated ids with their log-probabilities, and beams, for a
 * tiny model of each family. A digest must be the same on every instruction
 * set, with 1, 2 and 4 threads, and after any change that is not meant to
 * change results. The best instruction set runs with each number of threads,
 * the others with one each; BAUTA_DIGESTS=whole, which `make soak` sets, runs
 * all of them with all.
 *
 * BAUTA_RECORD=1 prints the table instead, for tests/data/bit_digests.h. The
 * initial weights and the tables of positions come from the C library's log,
 * sin, cos and pow: a library that rounds them in another way changes all
 * digests of a family at once. */
#include "backend/cpu/kernels/kernels.h"
#include "base/digest.h"
#include "data/bit_digests.h"
#include "generation_fixtures.h"
#include "packed_pair.h"
#include "tiny_training.h"

typedef struct digests {
    uint64_t logits, gradients, steps5, steps50, greedy, beams;
} digests;

static uint64_t digest_floats(uint64_t digest, const float *data, size_t count)
{
    return bt_digest_bytes(digest, data, count * sizeof(float));
}

static bauta_context *context_for(const char *isa, int threads)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context = NULL;
    bauta_error err;
    options.isa = isa;
    options.threads = threads;
    MUST(bauta_context_create(&context, &options, &err), &err);
    return context;
}

/* Source and target as the kind of model takes them. */
static void sides(const bauta_model *model, const packed *s, const packed *t,
                  const bauta_batch **source, const bauta_batch **target)
{
    bauta_model_kind kind = bauta_model_kind_of(model);
    *source = kind == BAUTA_DECODER_ONLY ? NULL : &s->batch;
    *target = kind == BAUTA_ENCODER_ONLY ? NULL : &t->batch;
}

static uint64_t gradients_digest(const bauta_model *model)
{
    uint64_t digest = 0;
    bauta_error err;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = BAUTA_TENSOR_INIT;
        MUST(bauta_model_tensor(model, i, &t, &err), &err);
        if (t.gradient)
            digest = digest_floats(digest, t.gradient, t.count);
    }
    return digest;
}

static uint64_t weights_digest(const bauta_model *model)
{
    uint64_t digest = 0;
    bauta_error err;
    for (size_t i = 0; i < bauta_model_tensor_count(model); i++) {
        bauta_tensor t = BAUTA_TENSOR_INIT;
        MUST(bauta_model_tensor(model, i, &t, &err), &err);
        digest = digest_floats(digest, t.data, t.count);
    }
    return digest;
}

static void forward_and_loss(digests *d, bauta_context *context,
                             bauta_model *model)
{
    packed s, t;
    const bauta_batch *source, *target;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    double loss;
    bauta_error err;
    size_t count = ROWS * bauta_model_vocab_size(model);
    packed_init(&s, 11);
    packed_init(&t, 12);
    sides(model, &s, &t, &source, &target);
    outputs.logits = malloc(count * sizeof(float));
    assert_non_null(outputs.logits);
    MUST(bauta_model_forward(context, model, source, target, &outputs, &err),
         &err);
    d->logits = digest_floats(0, outputs.logits, count);
    free(outputs.logits);
    options.label_smoothing = 0.1f;
    options.dropout = 0.1f;
    options.seed = 7;
    MUST(bauta_model_loss(context, model, source, target,
                          target ? t.labels : s.labels, &options, &loss, NULL,
                          &err),
         &err);
    d->gradients =
        bt_digest_bytes(gradients_digest(model), &loss, sizeof(loss));
}

/* 50 steps with dropout, accumulation, clipping and a moving average. */
static void train(digests *d, const char *family, const char *isa, int threads)
{
    bauta_train_options o = tiny_train_options();
    training_run l;
    o.max_steps = 50;
    o.dropout = 0.1f;
    o.label_smoothing = 0.1f;
    o.gradient_accumulation_steps = 2;
    o.microbatch_tokens = 64;
    o.ema_decay = 0.9;
    o.mlm_probability = 0.4f;
    training_run_init(&l, family, NULL, &o, threads, isa);
    double loss = training_run_steps(&l, 5);
    d->steps5 = bt_digest_bytes(weights_digest(l.model), &loss, sizeof(loss));
    loss = training_run_steps(&l, 45);
    d->steps50 = bt_digest_bytes(weights_digest(l.model), &loss, sizeof(loss));
    size_t counted;
    bauta_error err;
    MUST(bauta_trainer_evaluate(l.trainer, l.corpus, 0, &loss, &counted, &err),
         &err);
    d->steps50 = bt_digest_bytes(d->steps50, &loss, sizeof(loss));
    training_run_release(&l);
}

static uint64_t result_digest(uint64_t digest, const bauta_result *r)
{
    for (size_t h = 0; h < r->count; h++) {
        const bauta_hypothesis *x = r->hypotheses[h];
        digest =
            bt_digest_bytes(digest, x->tokens, x->count * sizeof(x->tokens[0]));
        digest = digest_floats(digest, x->logprobs, x->count);
        digest = bt_digest_bytes(digest, &x->score, sizeof(x->score));
    }
    return digest;
}

/* Three prompts of different lengths at once. */
static uint64_t generate(bauta_context *context, const bauta_model *model,
                         const bauta_generate_options *options)
{
    packed p;
    bauta_request requests[3];
    bauta_result *results[3];
    generation_fixture s = { context, (bauta_model *)model, NULL };
    uint64_t digest = 0;
    packed_init(&p, 13);
    for (size_t i = 0; i < BT_LEN(requests); i++) {
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].options = options;
        if (bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER) {
            requests[i].source = p.ids + 5 * i;
            requests[i].source_count = 4 + 9 * i;
        } else {
            requests[i].tokens = p.ids + 5 * i;
            requests[i].count = 4 + 9 * i;
        }
    }
    generate_all(&s, NULL, requests, BT_LEN(requests), results);
    for (size_t i = 0; i < BT_LEN(requests); i++)
        digest = result_digest(digest, results[i]);
    results_free(results, BT_LEN(requests));
    return digest;
}

static void decode(digests *d, bauta_context *context, const bauta_model *model)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY)
        return;
    o.max_new_tokens = 30;
    o.decoder_start_token_id = 39;
    o.eos_token_count = 1;
    o.eos_token_ids[0] = 2;
    d->greedy = generate(context, model, &o);
    o.do_sample = true;
    o.top_k = 20;
    o.seed = 3;
    d->greedy = bt_digest_mix(d->greedy, generate(context, model, &o));
    o.do_sample = false;
    o.num_beams = 4;
    o.num_return_sequences = 3;
    d->beams = generate(context, model, &o);
}

static digests measure(const tiny *family, const char *isa, int threads)
{
    digests d = { 0 };
    bauta_context *context = context_for(isa, threads);
    bauta_model *model = NULL;
    bauta_error err;
    MUST(bauta_model_create(&model, family->config, 5, &err), &err);
    forward_and_loss(&d, context, model);
    decode(&d, context, model);
    bauta_model_free(model);
    bauta_context_free(context);
    train(&d, family->name, isa, threads);
    return d;
}

static void record(void)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        digests d = measure(&tinies[i], "c", 1);
        printf("    { \"%s\",\n", tinies[i].name);
        const uint64_t *v = (const uint64_t *)&d;
        for (size_t k = 0; k < DIGESTS; k++)
            printf("      %s0x%016llx%s\n", k ? "  " : "{ ",
                   (unsigned long long)v[k], k + 1 < DIGESTS ? "," : " } },");
    }
}

static void compare(const recorded *want, const digests *d, const char *isa,
                    int threads)
{
    static const char *const names[] = { "logits",   "gradients", "5 steps",
                                         "50 steps", "generated", "beams" };
    const uint64_t *got = (const uint64_t *)d;
    for (size_t k = 0; k < DIGESTS; k++)
        if (got[k] != want->digests[k])
            fail_msg("%s, %s, %s, %d threads: recorded %016llx, got %016llx",
                     want->family, names[k], isa, threads,
                     (unsigned long long)want->digests[k],
                     (unsigned long long)got[k]);
}

/* Whether instruction set `isa` of `count`, the last of them the best, runs
 * with so many threads. */
static bool is_run(size_t isa, size_t count, int threads)
{
    const char *whole = getenv("BAUTA_DIGESTS");
    return isa + 1 == count || threads == 1 << isa % 3 ||
           (whole && strcmp(whole, "whole") == 0);
}

static void results_equal_the_recorded_digests(void **state)
{
    (void)state;
    const char *isas[8];
    size_t count = bt_kernels_names(isas, BT_LEN(isas));
    _Static_assert(sizeof(digests) == DIGESTS * sizeof(uint64_t), "table");
    if (getenv("BAUTA_RECORD")) {
        record();
        return;
    }
    assert_int_equal(BT_LEN(recorded_digests), BT_LEN(tinies));
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        for (size_t isa = 0; isa < count; isa++)
            for (int threads = 1; threads <= 4; threads *= 2) {
                if (!is_run(isa, count, threads))
                    continue;
                digests d = measure(&tinies[i], isas[isa], threads);
                compare(&recorded_digests[i], &d, isas[isa], threads);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_the_recorded_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
