/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainer.c - training of every family: it learns, and nothing that should
 * not matter changes its bits, or changes them by more than rounding. */
#include "allocation_faults.h"
#include "tiny_training.h"

#include "backend/cpu/kernels/kernels.h"

#include <math.h>

static bool is_pairs(const char *family)
{
    return strcmp(family, "marian") == 0 || strcmp(family, "bart") == 0 ||
           strcmp(family, "t5") == 0;
}

static bool is_encoder(const char *family)
{
    return strcmp(family, "bert") == 0 || strcmp(family, "roberta") == 0;
}

static double evaluate(training_run *l, size_t limit, size_t *counted)
{
    double loss;
    bauta_error err;
    must(bauta_trainer_evaluate(l->trainer, l->corpus, limit, &loss, counted,
                                &err),
         &err);
    return loss;
}

static double gradients(training_run *l, bauta_train_mode mode)
{
    double loss;
    bauta_error err;
    must(bauta_trainer_gradients(l->trainer, mode, &loss, &err), &err);
    return loss;
}

static size_t floats_of(const training_run *l)
{
    return l->model->store->floats;
}

static float *copy_of(const float *from, size_t count)
{
    float *copy = malloc(count * sizeof(*copy));
    assert_non_null(copy);
    memcpy(copy, from, count * sizeof(*copy));
    return copy;
}

/* ---- training ------------------------------------------------------------ */

static void every_family_learns(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i += TEST_STRIDE) {
        training_run l;
        bauta_train_options o = tiny_train_options();
        o.max_steps = 150;
        o.batch_tokens = 200;
        training_run_init(&l, tinies[i].name, NULL, &o, 1, NULL);
        double before = evaluate(&l, 0, NULL);
        training_run_steps(&l, o.max_steps);
        double after = evaluate(&l, 0, NULL);
        printf("%-8s %.3f -> %.3f\n", tinies[i].name, before, after);
        // A uniform guess is log(40) = 3.69 nats.
        assert_true(before > 3.0 && before < 6.0);
        assert_true(after < 0.5 * before);
        training_run_release(&l);
    }
}

static void prefix_objective_learns(void **state)
{
    (void)state;
    training_run l;
    bauta_train_options o = tiny_train_options();
    o.objective = BAUTA_OBJECTIVE_PREFIX;
    o.max_steps = 100;
    o.batch_tokens = 200;
    training_run_init(&l, "llama", NULL, &o, 1, NULL);
    double before = evaluate(&l, 0, NULL);
    training_run_steps(&l, o.max_steps);
    assert_true(evaluate(&l, 0, NULL) < 0.6 * before);
    training_run_release(&l);
}

static void every_mode_takes_steps(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "marian" };
    for (size_t i = 0; i < BT_LEN(families); i++)
        for (int mode = BAUTA_MODE_PARALLEL; mode <= BAUTA_MODE_SCHEDULED;
             mode++) {
            training_run l;
            bauta_train_options o = tiny_train_options();
            o.mode = (bauta_train_mode)mode;
            o.scheduled_sampling = 0.5f;
            training_run_init(&l, families[i], NULL, &o, 1, NULL);
            double before = evaluate(&l, 0, NULL);
            training_run_steps(&l, o.max_steps);
            double after = evaluate(&l, 0, NULL);
            printf("%s, mode %d: %.3f -> %.3f\n", families[i], mode, before,
                   after);
            assert_true(after < 0.97 * before);
            training_run_release(&l);
        }
}

/* ---- the same bits ------------------------------------------------------- */

static void accumulated_batches_are_one_larger_batch(void **state)
{
    (void)state;
    static const struct {
        size_t sequences, tokens;
    } batches[] = { { 1, 64 }, { 0, 24 } };
    for (size_t i = 0; i < BT_LEN(batches); i++) {
        training_run a, b;
        bauta_train_options o = tiny_train_options();
        o.dropout = 0.1f;
        o.batch_sequences = batches[i].sequences;
        o.batch_tokens = batches[i].tokens;
        o.gradient_accumulation_steps = 4;
        training_run_init(&a, "gpt2", NULL, &o, 1, NULL);
        o.batch_sequences *= 4;
        o.batch_tokens *= 4;
        o.gradient_accumulation_steps = 1;
        training_run_init(&b, "gpt2", NULL, &o, 1, NULL);
        for (size_t step = 0; step < 20; step++) {
            double x = training_run_steps(&a, 1), y = training_run_steps(&b, 1);
            assert_memory_equal(&x, &y, sizeof(x));
        }
        training_run_same(&a, &b);
        training_run_release(&a);
        training_run_release(&b);
    }
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "qwen3", "bert", "marian" };
    const char *isas[8];
    size_t count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t i = 0; i < BT_LEN(families); i++) {
        training_run want;
        bauta_train_options o = tiny_train_options();
        o.dropout = 0.1f;
        o.label_smoothing = 0.1f;
        o.ema_decay = 0.9;
        training_run_init(&want, families[i], NULL, &o, 1, "c");
        training_run_steps(&want, 8);
        for (size_t isa = 0; isa < count; isa++)
            for (int threads = 1; threads <= 4; threads *= 2) {
                training_run got;
                training_run_init(&got, families[i], NULL, &o, threads,
                                  isas[isa]);
                training_run_steps(&got, 8);
                training_run_same(&want, &got);
                training_run_release(&got);
            }
        training_run_release(&want);
    }
}

static void evaluation_does_not_change_training(void **state)
{
    (void)state;
    static const char *const families[] = { "llama", "roberta", "bart" };
    for (size_t i = 0; i < BT_LEN(families); i++) {
        training_run a, b;
        bauta_train_options o = tiny_train_options();
        o.dropout = 0.2f;
        o.ema_decay = i ? 0.9 : 0.0;
        training_run_init(&a, families[i], NULL, &o, 1, NULL);
        training_run_init(&b, families[i], NULL, &o, 1, NULL);
        for (size_t step = 0; step < 25; step++) {
            training_run_steps(&a, 1);
            training_run_steps(&b, 1);
            double x = evaluate(&b, 0, NULL), y = evaluate(&b, 0, NULL);
            assert_memory_equal(&x, &y, sizeof(x));
            gradients(&b, BAUTA_MODE_PARALLEL);
        }
        training_run_same(&a, &b);
        training_run_release(&a);
        training_run_release(&b);
    }
}

typedef struct progress_log {
    size_t calls, done, all;
} progress_log;

static void on_progress(void *user, size_t done, size_t all)
{
    progress_log *h = user;
    assert_true(done > h->done && done <= all);
    *h = (progress_log){ h->calls + 1, done, all };
}

/* At most this many tokens are read, whatever the micro-batch size; and nearly
 * as many, since sequences are short. */
static void evaluation_respects_its_limit(void **state)
{
    (void)state;
    static const size_t limits[] = { 20, 31, 100, 101, 150 };
    training_run l;
    bauta_train_options o = tiny_train_options();
    size_t all, some, longest = o.context_length;
    o.microbatch_tokens = 32;
    training_run_init(&l, "gpt2", NULL, &o, 1, NULL);
    double whole = evaluate(&l, 0, &all);
    // Of every document all but one token is predicted.
    assert_int_equal(all, bauta_corpus_tokens(l.corpus) - 40);
    for (size_t d = 0; d < bauta_corpus_documents(l.corpus); d++) {
        size_t count;
        bauta_corpus_document(l.corpus, d, &count, NULL, NULL);
        longest = count > longest ? count : longest;
    }
    for (size_t i = 0; i < BT_LEN(limits); i++) {
        progress_log h = { 0, 0, 0 };
        bauta_trainer_on_evaluate(l.trainer, on_progress, &h);
        double loss = evaluate(&l, limits[i], &some);
        bauta_trainer_on_evaluate(l.trainer, NULL, NULL);
        assert_true(some <= limits[i] && some + longest > limits[i]);
        assert_true(h.calls > 0 && h.done == h.all);
        assert_true(loss == evaluate(&l, limits[i], NULL));
    }
    evaluate(&l, 1, &some); // one sequence, at least
    assert_true(some > 0 && some <= longest);
    assert_true(evaluate(&l, all, &some) == whole && some == all);
    training_run_release(&l);
}

/* ---- within rounding ----------------------------------------------------- */

/* Gradients of a batch computed in two ways. Each is a sum over the same terms
 * in another order, so they differ by the roundings of n additions, which are
 * as often up as down: sqrt(n) of them, relative to partial sums that the norm
 * of all gradients bounds. Four times that is left for the roundings within
 * the terms. A term that is missing would be a 64th of the norm. */
static void gradients_near(const training_run *a, const training_run *b,
                           size_t additions)
{
    const float *x = store_gradients(a->model->store),
                *y = store_gradients(b->model->store);
    double squares = 0.0, worst = 0.0;
    for (size_t i = 0; i < floats_of(a); i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        squares += (double)x[i] * (double)x[i];
        worst = d > worst ? d : worst;
    }
    double bound = 4.0 * sqrt((double)additions) * 0x1p-24 * sqrt(squares);
    assert_true(squares > 0.0);
    printf("  largest difference %.3g, bound %.3g\n", worst, bound);
    assert_true(worst <= bound);
}

/* A batch in micro-batches: the mean over all labels, however it is divided. */
static void microbatches_add_up_to_the_batch(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "bert", "marian" };
    for (size_t i = 0; i < BT_LEN(families); i++) {
        training_run whole, parts;
        bauta_train_options o = tiny_train_options();
        o.batch_tokens = 300;
        o.dropout = 0.1f; // keyed by token, so the micro-batches do not matter
        training_run_init(&whole, families[i], NULL, &o, 1, NULL);
        o.microbatch_tokens = 20;
        training_run_init(&parts, families[i], NULL, &o, 1, NULL);
        double a = gradients(&whole, BAUTA_MODE_PARALLEL);
        double b = gradients(&parts, BAUTA_MODE_PARALLEL);
        // Means of float32 losses, added in double: the weights of the
        // micro-batches and their sums are rounded 40 times or so.
        assert_true(fabs(a - b) <= 1e-13 * a);
        gradients_near(&whole, &parts, 300);
        training_run_release(&whole);
        training_run_release(&parts);
    }
}

static void sequential_gradients_equal_parallel_ones(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        bauta_objective objective;
    } cases[] = { { "gpt2", BAUTA_OBJECTIVE_CAUSAL },
                  { "llama", BAUTA_OBJECTIVE_CAUSAL },
                  { "mistral", BAUTA_OBJECTIVE_CAUSAL },
                  { "marian", BAUTA_OBJECTIVE_SEQ2SEQ } };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        training_run a, b;
        bauta_train_options o = tiny_train_options();
        o.objective = cases[i].objective;
        o.label_smoothing = 0.1f;
        training_run_init(&a, cases[i].family, NULL, &o, 1, NULL);
        training_run_init(&b, cases[i].family, NULL, &o, 1, NULL);
        double x = gradients(&a, BAUTA_MODE_PARALLEL);
        double y = gradients(&b, BAUTA_MODE_SEQUENTIAL);
        // The losses of the rows have the same bits; their sum has another
        // order, and the products with the weights are rounded.
        assert_true(fabs(x - y) <= 1e-13 * x);
        gradients_near(&a, &b, 64 * 16);
        training_run_release(&a);
        training_run_release(&b);
    }
}

/* With a prefix the chunks of a sequence see the prefix, too. */
static void a_prefix_runs_sequentially_as_well(void **state)
{
    (void)state;
    training_run a, b;
    bauta_train_options o = tiny_train_options();
    o.objective = BAUTA_OBJECTIVE_PREFIX;
    training_run_init(&a, "gpt2", NULL, &o, 1, NULL);
    training_run_init(&b, "gpt2", NULL, &o, 1, NULL);
    double x = gradients(&a, BAUTA_MODE_PARALLEL);
    double y = gradients(&b, BAUTA_MODE_SEQUENTIAL);
    assert_true(fabs(x - y) <= 1e-13 * x);
    gradients_near(&a, &b, 64 * 16);
    training_run_release(&a);
    training_run_release(&b);
}

/* ---- modes --------------------------------------------------------------- */

/* A sampling rate of 0 is teacher forcing; a rate of 1 differs. */
static void a_sampling_rate_of_0_is_parallel(void **state)
{
    (void)state;
    training_run a, b;
    bauta_train_options o = tiny_train_options();
    o.scheduled_sampling = 0.0f;
    training_run_init(&a, "gpt2", NULL, &o, 1, NULL);
    training_run_init(&b, "gpt2", NULL, &o, 1, NULL);
    double x = gradients(&a, BAUTA_MODE_PARALLEL);
    double y = gradients(&b, BAUTA_MODE_SCHEDULED);
    assert_memory_equal(&x, &y, sizeof(x));
    assert_memory_equal(store_gradients(a.model->store),
                        store_gradients(b.model->store),
                        floats_of(&a) * sizeof(float));
    double z = gradients(&b, BAUTA_MODE_FREE);
    assert_true(z != x);
    training_run_release(&a);
    training_run_release(&b);
}

/* The most likely token after a text, by a separate forward pass. */
static uint32_t predicted(const training_run *l, const uint32_t *ids,
                          size_t count, size_t prefix)
{
    float logits[64 * TINY_VOCAB_SIZE];
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    size_t best = 0;
    assert_true(count <= 64);
    prefix = prefix < count ? prefix : count;
    batch.count = 1;
    batch.lengths = &count;
    batch.ids = ids;
    batch.prefix_lengths = &prefix;
    outputs.logits = logits;
    must(
        bauta_model_forward(l->context, l->model, NULL, &batch, &outputs, &err),
        &err);
    const float *last = logits + (count - 1) * TINY_VOCAB_SIZE;
    for (size_t i = 1; i < TINY_VOCAB_SIZE; i++)
        if (last[i] > last[best])
            best = i;
    return (uint32_t)best;
}

/* The inputs of a mode, against those of teacher forcing. */
typedef struct reading {
    training_run l;
    uint32_t *truth;
    const bt_train_batch *f; /* of the mode */
} reading;

static void reading_init(reading *r, bauta_objective objective,
                         bauta_train_mode mode)
{
    bauta_train_options o = tiny_train_options();
    o.objective = objective;
    o.scheduled_sampling = 0.5f;
    o.batch_tokens = 400;
    training_run_init(&r->l, "llama", NULL, &o, 1, NULL);
    training_run_steps(&r->l, 2);
    gradients(&r->l, BAUTA_MODE_PARALLEL);
    r->f = &r->l.trainer->train_batch;
    r->truth = malloc(r->f->rows * sizeof(*r->truth));
    assert_non_null(r->truth);
    memcpy(r->truth, r->f->ids, r->f->rows * sizeof(*r->truth));
    gradients(&r->l, mode);
}

static void reading_release(reading *r)
{
    free(r->truth);
    training_run_release(&r->l);
}

/* A prefix is given; after it each input is the model's own prediction. */
static void free_running_reads_its_own_predictions(void **state)
{
    (void)state;
    static const bauta_objective objectives[] = { BAUTA_OBJECTIVE_CAUSAL,
                                                  BAUTA_OBJECTIVE_PREFIX };
    for (size_t k = 0; k < BT_LEN(objectives); k++) {
        reading r;
        size_t row = 0, others = 0;
        reading_init(&r, objectives[k], BAUTA_MODE_FREE);
        for (size_t s = 0; s < r.f->count; row += r.f->lengths[s], s++)
            for (size_t i = 0; i < r.f->lengths[s]; i++) {
                const uint32_t *ids = r.f->ids + row;
                size_t prefix = r.f->prefix_lengths[s];
                uint32_t want = i == 0 || i < prefix
                                    ? r.truth[row + i]
                                    : predicted(&r.l, ids, i, prefix);
                assert_int_equal(ids[i], want);
                others += ids[i] != r.truth[row + i];
            }
        assert_true(others > r.f->rows / 20);
        reading_release(&r);
    }
}

/* Each input after a prefix is replaced with probability one half. */
static void scheduled_inputs_are_true_or_predicted(void **state)
{
    (void)state;
    static const bauta_objective objectives[] = { BAUTA_OBJECTIVE_CAUSAL,
                                                  BAUTA_OBJECTIVE_PREFIX };
    for (size_t k = 0; k < BT_LEN(objectives); k++) {
        reading r;
        size_t row = 0, wrong = 0, others = 0;
        reading_init(&r, objectives[k], BAUTA_MODE_SCHEDULED);
        for (size_t s = 0; s < r.f->count; row += r.f->lengths[s], s++)
            for (size_t i = 0; i < r.f->lengths[s]; i++) {
                uint32_t truth = r.truth[row + i], got = r.f->ids[row + i];
                size_t prefix = r.f->prefix_lengths[s];
                uint32_t own = i == 0 || i < prefix
                                   ? truth
                                   : predicted(&r.l, r.truth + row, i, prefix);
                assert_true(got == truth || got == own);
                wrong += own != truth;
                others += got != truth;
            }
        // Half of those that could be seen, within five deviations.
        assert_true(wrong > 40);
        assert_true(fabs((double)others - (double)wrong / 2) <
                    2.5 * sqrt((double)wrong));
        reading_release(&r);
    }
}

/* A model that predicts every next token correctly is fed the true tokens, so
 * all modes give the same result. */
static void a_perfect_model_makes_all_modes_equal(void **state)
{
    (void)state;
    training_run l;
    bauta_train_options o = tiny_train_options();
    o.max_steps = 600;
    o.batch_tokens = 400;
    o.weight_decay = 0.0;
    o.context_length = 64;
    training_run_init(&l, "llama", NULL, &o, 1, NULL);
    // One document, so that its end is known, too.
    uint32_t tokens[12];
    size_t at = 1;
    for (size_t i = 0; i < 12; i++, at = (at * 3 + 1) % 35)
        tokens[i] = (uint32_t)(TINY_A + at);
    bauta_corpus *one = NULL;
    bauta_trainer *trainer = NULL;
    bauta_error err;
    must(bauta_corpus_create(&one, &err), &err);
    must(bauta_corpus_add(one, tokens, 12, NULL, 0, &err), &err);
    must(bauta_trainer_create(&trainer, l.context, l.model, l.tokenizer, one,
                              &o, &err),
         &err);
    for (size_t i = 0; i < 60; i++)
        must(bauta_trainer_step(trainer, NULL, &err), &err);
    double parallel, loss;
    must(bauta_trainer_gradients(trainer, BAUTA_MODE_PARALLEL, &parallel, &err),
         &err);
    assert_true(parallel < 0.5);
    must(bauta_trainer_gradients(trainer, BAUTA_MODE_FREE, &loss, &err), &err);
    assert_memory_equal(&loss, &parallel, sizeof(loss));
    must(bauta_trainer_gradients(trainer, BAUTA_MODE_SCHEDULED, &loss, &err),
         &err);
    assert_memory_equal(&loss, &parallel, sizeof(loss));
    bauta_trainer_free(trainer);
    bauta_corpus_free(one);
    training_run_release(&l);
}

/* ---- dropout and average ------------------------------------------------- */

/* Dropout is keyed by token: the loss of a batch and the bits of its rows do
 * not depend on the micro-batches. */
static void dropout_follows_the_token(void **state)
{
    (void)state;
    training_run l;
    double losses[3];
    static const size_t passes[] = { 10000, 60, 1 };
    bauta_train_options o = tiny_train_options();
    o.batch_tokens = 300;
    o.dropout = 0.3f;
    for (size_t i = 0; i < 3; i++) {
        o.microbatch_tokens = passes[i];
        training_run_init(&l, "bart", NULL, &o, 1, NULL);
        losses[i] = gradients(&l, BAUTA_MODE_PARALLEL);
        assert_true(fabs(losses[i] - losses[0]) <= 1e-13 * losses[0]);
        training_run_release(&l);
    }
    o.dropout = 0.0f;
    training_run_init(&l, "bart", NULL, &o, 1, NULL);
    assert_true(fabs(gradients(&l, BAUTA_MODE_PARALLEL) - losses[0]) >
                1e-6 * losses[0]);
    training_run_release(&l);
}

static void the_average_follows_the_weights(void **state)
{
    (void)state;
    training_run l;
    bauta_train_options o = tiny_train_options();
    o.ema_decay = 0.75;
    training_run_init(&l, "gpt2", NULL, &o, 1, NULL);
    size_t floats = floats_of(&l);
    float *want = copy_of(store_weights(l.model->store), floats);
    for (size_t step = 1; step <= 12; step++) {
        training_run_steps(&l, 1);
        double early = (double)(1 + step) / (double)(10 + step);
        double decay = early < 0.75 ? early : 0.75;
        for (size_t i = 0; i < floats; i++)
            want[i] = (float)decay * want[i] +
                      (float)(1.0 - decay) * store_weights(l.model->store)[i];
    }
    assert_memory_equal(want, trainer_ema(l.trainer), floats * sizeof(float));
    // Evaluation measures the averaged weights.
    double averaged = evaluate(&l, 0, NULL);
    memcpy(store_weights(l.model->store), want, floats * sizeof(float));
    double same = evaluate(&l, 0, NULL);
    assert_memory_equal(&averaged, &same, sizeof(same));
    free(want);
    training_run_release(&l);
}

/* ---- refusals ------------------------------------------------------------ */

typedef void (*change)(bauta_train_options *o);
#define CHANGE(name, what)                           \
    static void name##_wrong(bauta_train_options *o) \
    {                                                \
        o->what;                                     \
    }
CHANGE(dropout, dropout = 1.0f)
CHANGE(smoothing, label_smoothing = -0.1f)
CHANGE(hidden, mlm_probability = 1.5f)
CHANGE(kept, mlm_keep = NAN)
CHANGE(sampled, scheduled_sampling = 2.0f)
CHANGE(average, ema_decay = 1.0)
CHANGE(rate, learning_rate = INFINITY)
CHANGE(min_rate, min_learning_rate = 1.0)
CHANGE(tokens, batch_tokens = 0)
CHANGE(accumulate, gradient_accumulation_steps = 0)
CHANGE(pass, microbatch_tokens = 0)
CHANGE(mode, mode = (bauta_train_mode)9)
CHANGE(schedule, lr_scheduler_type = (bauta_schedule)9)
CHANGE(objective, objective = (bauta_objective)9)
CHANGE(seq2seq, objective = BAUTA_OBJECTIVE_SEQ2SEQ)
CHANGE(masked, objective = BAUTA_OBJECTIVE_MASKED)
CHANGE(beta, adam_beta1 = 1.0)
CHANGE(clip, max_grad_norm = -1.0)
CHANGE(size, size = 3)

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        change make;
        const char *message;
    } wrong[] = {
        { dropout_wrong, "dropout is 1" },
        { smoothing_wrong, "smoothing is -0.1" },
        { hidden_wrong, "the fraction of masked tokens is 1.5" },
        { kept_wrong, "random or kept is nan" },
        { sampled_wrong, "sampled tokens is 2" },
        { average_wrong, "moving average is 1" },
        { rate_wrong, "the learning rate is inf" },
        { min_rate_wrong, "its minimum 1" },
        { tokens_wrong, "the batch size" },
        { accumulate_wrong, "the gradient accumulation steps" },
        { pass_wrong, "the micro-batch size must not be 0" },
        { mode_wrong, "mode" },
        { schedule_wrong, "schedule" },
        { objective_wrong, "the objective given does not fit" },
        { seq2seq_wrong, "the objective seq2seq does not fit" },
        { masked_wrong, "the objective masked does not fit" },
        { beta_wrong, "beta1 is 1" },
        { clip_wrong, "max_grad_norm is -1" },
        { size_wrong, "BAUTA_TRAIN_OPTIONS_INIT" },
    };
    training_run l;
    bauta_train_options good = tiny_train_options();
    training_run_init(&l, "gpt2", NULL, &good, 1, NULL);
    for (size_t i = 0; i < BT_LEN(wrong); i++) {
        bauta_trainer *trainer;
        bauta_train_options o = good;
        bauta_error err;
        wrong[i].make(&o);
        assert_int_equal(bauta_trainer_create(&trainer, l.context, l.model,
                                              l.tokenizer, l.corpus, &o, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_null(trainer);
        if (!strstr(err.message, wrong[i].message))
            fail_msg("\"%s\", not \"%s\"", err.message, wrong[i].message);
    }
    training_run_release(&l);
}

static void a_corpus_of_another_kind_is_refused(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "bert", "marian" };
    for (size_t i = 0; i < BT_LEN(families); i++) {
        training_run l;
        bauta_train_options o = tiny_train_options();
        bauta_trainer *trainer;
        bauta_error err;
        double loss;
        training_run_init(&l, families[i], NULL, &o, 1, NULL);
        bauta_corpus *other = is_pairs(families[i]) ? tiny_texts(1, 5, 9, 3)
                                                    : tiny_pairs(1, 5, 9);
        assert_int_equal(bauta_trainer_create(&trainer, l.context, l.model,
                                              l.tokenizer, other, &o, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "needs a corpus of"));
        assert_int_equal(
            bauta_trainer_evaluate(l.trainer, other, 0, &loss, NULL, &err),
            BAUTA_ERR_ARGUMENT);
        bauta_corpus_free(other);
        assert_int_equal(bauta_corpus_create(&other, NULL), 0);
        if (!is_pairs(families[i])) {
            assert_int_equal(bauta_trainer_create(&trainer, l.context, l.model,
                                                  l.tokenizer, other, &o, &err),
                             BAUTA_ERR_ARGUMENT);
            assert_non_null(strstr(err.message, "nothing to learn from"));
        }
        bauta_corpus_free(other);
        if (is_encoder(families[i])) {
            assert_int_equal(bauta_trainer_create(&trainer, l.context, l.model,
                                                  NULL, l.corpus, &o, &err),
                             BAUTA_ERR_ARGUMENT);
            assert_non_null(strstr(err.message, "mask token"));
            assert_int_equal(bauta_trainer_gradients(l.trainer, BAUTA_MODE_FREE,
                                                     &loss, &err),
                             BAUTA_ERR_ARGUMENT);
        }
        training_run_release(&l);
    }
}

static void tokens_that_the_model_does_not_know_are_named(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "marian" };
    for (size_t i = 0; i < BT_LEN(families); i++) {
        training_run l;
        bauta_train_options o = tiny_train_options();
        const uint32_t odd[] = { 7, 40, 8 }, good[] = { 7, 8 };
        bauta_corpus *corpus;
        bauta_trainer *trainer;
        bauta_error err;
        training_run_init(&l, families[i], NULL, &o, 1, NULL);
        must(bauta_corpus_create(&corpus, &err), &err);
        must(bauta_corpus_add(corpus, i ? good : odd, 2, i ? odd : NULL,
                              i ? 3 : 0, &err),
             &err);
        assert_int_equal(bauta_trainer_create(&trainer, l.context, l.model,
                                              l.tokenizer, corpus, &o, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "token 40"));
        bauta_corpus_free(corpus);
        training_run_release(&l);
    }
}

/* ---- unusual corpora ----------------------------------------------------- */

/* Every family accepts its full context, and no more. */
static void texts_longer_than_the_context_are_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        training_run l;
        bauta_train_options o = tiny_train_options();
        bauta_trainer *trainer;
        bauta_error err;
        double loss;
        o.context_length = i % 2 ? 0 : 1000;
        o.batch_tokens = 500;
        training_run_init(&l, tinies[i].name, NULL, &o, 1, NULL);
        bauta_corpus *corpus = is_pairs(tinies[i].name)
                                   ? tiny_pairs(2, 30, 200)
                                   : tiny_texts(2, 30, 200, 3);
        must(bauta_trainer_create(&trainer, l.context, l.model, l.tokenizer,
                                  corpus, &o, &err),
             &err);
        assert_int_equal(trainer->options.context_length,
                         bauta_model_max_positions(l.model));
        for (size_t step = 0; step < bauta_trainer_epoch_steps(trainer); step++)
            must(bauta_trainer_step(trainer, NULL, &err), &err);
        must(bauta_trainer_evaluate(trainer, corpus, 0, &loss, NULL, &err),
             &err);
        bauta_trainer_free(trainer);
        bauta_corpus_free(corpus);
        training_run_release(&l);
    }
}

static void a_batch_without_labels_is_skipped(void **state)
{
    (void)state;
    training_run l;
    bauta_train_options o = tiny_train_options();
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    double loss;
    o.mlm_probability = 0.0f;
    training_run_init(&l, "bert", NULL, &o, 1, NULL);
    float *before = copy_of(store_weights(l.model->store), floats_of(&l));
    must(bauta_trainer_step(l.trainer, &report, &err), &err);
    assert_false(report.updated);
    assert_true(report.loss == 0.0 && report.counted == 0);
    assert_int_equal(report.step, 1);
    must(bauta_trainer_evaluate(l.trainer, l.corpus, 0, &loss, NULL, &err),
         &err);
    assert_true(loss == 0.0);
    assert_memory_equal(before, store_weights(l.model->store),
                        floats_of(&l) * sizeof(float));
    free(before);
    training_run_release(&l);
}

/* ---- faults -------------------------------------------------------------- */

/* A step that ran out of memory can be repeated, and the run is the same. */
static void a_failed_step_can_be_repeated(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        bauta_train_mode mode;
        size_t lanes;
    } cases[] = { { "gpt2", BAUTA_MODE_PARALLEL, 1 },
                  { "gpt2", BAUTA_MODE_PARALLEL, 4 },
                  { "bert", BAUTA_MODE_PARALLEL, 1 },
                  { "gpt2", BAUTA_MODE_FREE, 1 },
                  { "marian", BAUTA_MODE_SCHEDULED, 1 } };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        training_run want, got;
        bauta_train_options o = tiny_train_options();
        o.mode = cases[i].mode;
        o.lanes = cases[i].lanes;
        o.scheduled_sampling = 0.5f;
        o.batch_tokens = 256;
        o.ema_decay = 0.9;
        faults_begin();
        training_run_init(&want, cases[i].family, NULL, &o, 1, NULL);
        training_run_init(&got, cases[i].family, NULL, &o, 1, NULL);
        for (size_t step = 0; step < 6; step++) {
            bauta_status status;
            bauta_error err;
            size_t k = 0;
            do {
                faults_arm(k);
                k += TEST_STRIDE;
                status = bauta_trainer_step(got.trainer, NULL, &err);
                bool failed = faults_disarm();
                assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            } while (status);
        }
        training_run_steps(&want, 6);
        training_run_same(&want, &got);
        training_run_release(&want);
        training_run_release(&got);
        assert_int_equal(faults_end(), 0);
    }
}

static void allocation_failure_creates_no_trainer(void **state)
{
    (void)state;
    training_run l;
    bauta_train_options o = tiny_train_options();
    o.ema_decay = 0.9;
    o.lanes = 8;
    faults_begin();
    training_run_init(&l, "bert", NULL, &o, 1, NULL);
    for (size_t k = 0;; k++) {
        bauta_trainer *trainer;
        bauta_error err;
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_trainer_create(
            &trainer, l.context, l.model, l.tokenizer, l.corpus, &o, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        bauta_trainer_free(trainer);
        assert_int_equal(faults_live(), live);
        if (!failed)
            break;
    }
    training_run_release(&l);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_learns),
        cmocka_unit_test(prefix_objective_learns),
        cmocka_unit_test(every_mode_takes_steps),
        cmocka_unit_test(accumulated_batches_are_one_larger_batch),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(evaluation_does_not_change_training),
        cmocka_unit_test(evaluation_respects_its_limit),
        cmocka_unit_test(microbatches_add_up_to_the_batch),
        cmocka_unit_test(sequential_gradients_equal_parallel_ones),
        cmocka_unit_test(a_prefix_runs_sequentially_as_well),
        cmocka_unit_test(a_sampling_rate_of_0_is_parallel),
        cmocka_unit_test(free_running_reads_its_own_predictions),
        cmocka_unit_test(scheduled_inputs_are_true_or_predicted),
        cmocka_unit_test(a_perfect_model_makes_all_modes_equal),
        cmocka_unit_test(dropout_follows_the_token),
        cmocka_unit_test(the_average_follows_the_weights),
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(a_corpus_of_another_kind_is_refused),
        cmocka_unit_test(tokens_that_the_model_does_not_know_are_named),
        cmocka_unit_test(texts_longer_than_the_context_are_split),
        cmocka_unit_test(a_batch_without_labels_is_skipped),
        cmocka_unit_test(a_failed_step_can_be_repeated),
        cmocka_unit_test(allocation_failure_creates_no_trainer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
