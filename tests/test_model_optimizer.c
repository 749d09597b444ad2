/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_optimizer.c - the public optimizer: the steps of the trainer, and
 * which tensors are decayed. */
#include "allocation_faults.h"
#include "tiny_training.h"

#include <math.h>

enum { ROWS = 24, STEPS = 8 };

typedef struct student {
    bauta_context *context;
    bauta_model *model;
    uint32_t ids[ROWS], labels[ROWS];
    size_t lengths[2];
    bauta_batch batch;
    const bauta_batch *source, *target;
} student;

static void student_init(student *s, const char *family, int threads)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    *s = (student){ .lengths = { ROWS / 3, ROWS - ROWS / 3 } };
    options.threads = threads;
    must(bauta_context_create(&s->context, &options, &err), &err);
    must(bauta_model_create(&s->model, tinies[tiny_family(family)].config, 9,
                            &err),
         &err);
    for (uint32_t i = 0; i < ROWS; i++) {
        s->ids[i] = i * 7 % 39;
        s->labels[i] = i % 5 ? i * 3 % 39 : BAUTA_IGNORE;
    }
    s->batch = (bauta_batch)BAUTA_BATCH_INIT;
    s->batch.count = 2;
    s->batch.lengths = s->lengths;
    s->batch.ids = s->ids;
    bauta_model_kind kind = bauta_model_kind_of(s->model);
    s->source = kind == BAUTA_DECODER_ONLY ? NULL : &s->batch;
    s->target = kind == BAUTA_ENCODER_ONLY ? NULL : &s->batch;
}

static void student_release(student *s)
{
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

static bauta_tensor tensor_at(const student *s, size_t index)
{
    bauta_tensor t = BAUTA_TENSOR_INIT;
    assert_int_equal(bauta_model_tensor(s->model, index, &t, NULL), 0);
    return t;
}

static void same_weights(const student *a, const student *b)
{
    for (size_t i = 0; i < bauta_model_tensor_count(a->model); i++) {
        bauta_tensor x = tensor_at(a, i), y = tensor_at(b, i);
        assert_memory_equal(x.data, y.data, x.count * sizeof(float));
    }
}

/* ---- the trainer's steps ---------------------------------------------------
 */

static void gradients(student *s)
{
    bauta_error err;
    double loss;
    must(bauta_model_zero_gradients(s->model, &err), &err);
    must(bauta_model_loss(s->context, s->model, s->source, s->target, s->labels,
                          NULL, &loss, NULL, &err),
         &err);
}

/* With other threads, since they change no bit. */
static void steps_are_those_of_the_trainer(void **state)
{
    (void)state;
    static const char *const families[] = { "gpt2", "qwen3", "bert", "marian" };
    for (size_t f = 0; f < BT_LEN(families); f++) {
        student a, b;
        bauta_error err;
        bauta_trainer *trainer;
        bauta_optimizer *optimizer;
        bauta_train_options o = tiny_train_options();
        bauta_optimizer_options how = BAUTA_OPTIMIZER_OPTIONS_INIT;
        bauta_train_batch batch = BAUTA_TRAIN_BATCH_INIT;
        student_init(&a, families[f], 1);
        student_init(&b, families[f], 2);
        how.adam_beta2 = o.adam_beta2 = 0.95;
        how.weight_decay = o.weight_decay = 0.2;
        how.max_grad_norm = o.max_grad_norm = 0.5;
        must(bauta_trainer_create(&trainer, a.context, a.model, NULL, NULL, &o,
                                  &err),
             &err);
        must(bauta_optimizer_create(&optimizer, b.context, b.model, &how, &err),
             &err);
        batch.source = a.source;
        batch.target = a.target;
        batch.labels = a.labels;
        for (size_t i = 0; i < STEPS; i++) {
            bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
            double norm;
            must(bauta_trainer_step_batch(trainer, &batch, 1, &report, &err),
                 &err);
            gradients(&b);
            must(bauta_optimizer_set_learning_rate(optimizer,
                                                   report.learning_rate, &err),
                 &err);
            must(bauta_optimizer_step(optimizer, &norm, &err), &err);
            assert_true(norm == report.grad_norm);
            same_weights(&a, &b);
        }
        bauta_optimizer_free(optimizer);
        bauta_trainer_free(trainer);
        student_release(&a);
        student_release(&b);
    }
}

/* ---- weight decay ----------------------------------------------------------
 */

typedef struct chosen {
    const char *part;
    size_t asked;
} chosen;

static bool name_has(void *user, const bauta_tensor *tensor)
{
    chosen *c = user;
    assert_int_equal(tensor->size, sizeof(*tensor));
    assert_non_null(tensor->gradient);
    c->asked++;
    return strstr(tensor->name, c->part) != NULL;
}

/* One step without gradients: what decays shrinks, all else stays. */
static void decays(const char *family, chosen *c)
{
    student now, then;
    bauta_error err;
    bauta_optimizer *optimizer;
    bauta_optimizer_options o = BAUTA_OPTIMIZER_OPTIONS_INIT;
    size_t trained = 0, decayed = 0;
    double norm = 1.0;
    student_init(&now, family, 1);
    student_init(&then, family, 1);
    o.learning_rate = 0.5;
    o.weight_decay = 0.5;
    o.decay = c ? name_has : NULL;
    o.user = c;
    must(bauta_optimizer_create(&optimizer, now.context, now.model, &o, &err),
         &err);
    must(bauta_optimizer_step(optimizer, &norm, &err), &err);
    assert_true(norm == 0.0);
    for (size_t i = 0; i < bauta_model_tensor_count(now.model); i++) {
        bauta_tensor x = tensor_at(&now, i), y = tensor_at(&then, i);
        bool wanted = c ? strstr(x.name, c->part) != NULL : x.rank == 2;
        trained += x.gradient != NULL;
        decayed += x.gradient && wanted;
        for (size_t k = 0; k < x.count; k++)
            assert_true(x.data[k] ==
                        (x.gradient && wanted ? 0.75f * y.data[k] : y.data[k]));
    }
    assert_true(decayed > 0 && decayed < trained);
    assert_int_equal(c ? c->asked : trained, trained);
    bauta_optimizer_free(optimizer);
    student_release(&now);
    student_release(&then);
}

static void matrices_decay_or_what_is_selected(void **state)
{
    (void)state;
    chosen c = { "bias", 0 };
    decays("gpt2", NULL);
    decays("llama", NULL);
    decays("gpt2", &c);
    c = (chosen){ "attn", 0 };
    decays("gpt2", &c);
}

/* ---- misuse and memory -----------------------------------------------------
 */

static void gradients_that_are_not_finite_are_named(void **state)
{
    (void)state;
    student s, before;
    bauta_error err;
    bauta_optimizer *optimizer;
    student_init(&s, "gpt2", 1);
    student_init(&before, "gpt2", 1);
    must(bauta_optimizer_create(&optimizer, s.context, s.model, NULL, &err),
         &err);
    gradients(&s);
    bauta_tensor t = tensor_at(&s, 5);
    double norm = 0.0;
    t.gradient[t.count - 1] = INFINITY;
    assert_int_equal(bauta_optimizer_step(optimizer, &norm, &err),
                     BAUTA_ERR_NOT_FINITE);
    assert_true(!isfinite(norm));
    assert_non_null(strstr(err.message, t.name));
    assert_int_equal(bauta_optimizer_step(optimizer, NULL, NULL),
                     BAUTA_ERR_NOT_FINITE);
    same_weights(&before, &s);
    bauta_optimizer_free(optimizer);
    student_release(&s);
    student_release(&before);
}

static void refused(const student *s, const bauta_optimizer_options *o,
                    const char *says)
{
    bauta_error err;
    bauta_optimizer *optimizer = (bauta_optimizer *)(uintptr_t)s;
    assert_int_equal(
        bauta_optimizer_create(&optimizer, s->context, s->model, o, &err),
        BAUTA_ERR_ARGUMENT);
    assert_null(optimizer);
    if (!strstr(err.message, says))
        fail_msg("\"%s\", not \"%s\"", err.message, says);
}

static void wrong_options_are_refused(const student *s)
{
    const bauta_optimizer_options good = BAUTA_OPTIMIZER_OPTIONS_INIT;
    bauta_optimizer_options o = good;
    o.size = 3;
    refused(s, &o, "BAUTA_OPTIMIZER_OPTIONS_INIT");
    o = good;
    o.learning_rate = -1.0;
    refused(s, &o, "the learning rate is -1, not 0 or more");
    o.learning_rate = NAN;
    refused(s, &o, "the learning rate is nan");
    o = good;
    o.adam_beta1 = 1.0;
    refused(s, &o, "beta1 is 1");
    o = good;
    o.adam_epsilon = -1.0;
    refused(s, &o, "epsilon is -1");
    o = good;
    o.weight_decay = INFINITY;
    refused(s, &o, "weight_decay is inf");
    o = good;
    o.max_grad_norm = -2.0;
    refused(s, &o, "max_grad_norm is -2");
}

static void misuse_is_a_sentence(void **state)
{
    (void)state;
    student s;
    bauta_error err;
    bauta_optimizer *optimizer;
    student_init(&s, "gpt2", 1);
    wrong_options_are_refused(&s);
    assert_int_equal(
        bauta_optimizer_create(NULL, s.context, s.model, NULL, &err),
        BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bauta_optimizer_create(&optimizer, NULL, s.model, NULL, &err),
        BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bauta_optimizer_create(&optimizer, s.context, NULL, NULL, &err),
        BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_optimizer_step(NULL, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_optimizer_set_learning_rate(NULL, 0.1, &err),
                     BAUTA_ERR_ARGUMENT);
    must(bauta_optimizer_create(&optimizer, s.context, s.model, NULL, &err),
         &err);
    assert_int_equal(
        bauta_optimizer_set_learning_rate(optimizer, INFINITY, &err),
        BAUTA_ERR_ARGUMENT);
    bauta_optimizer_free(optimizer);
    bauta_optimizer_free(NULL);
    student_release(&s);
}

static void a_read_only_model_is_refused(void **state)
{
    (void)state;
    student s;
    char path[512];
    temp_folder folder = temp_folder_create();
    bauta_error err;
    student_init(&s, "gpt2", 1);
    bauta_model_free(s.model);
    tiny_write(&folder, &tinies[0], path);
    must(bauta_model_load(&s.model, path, false, &err), &err);
    refused(&s, NULL, "the model was loaded read-only");
    student_release(&s);
    temp_folder_free(&folder);
}

static void
each_allocation_fails_once_and_a_second_step_makes_none(void **state)
{
    (void)state;
    student s;
    bauta_optimizer *optimizer = NULL;
    size_t k = 0;
    faults_begin();
    student_init(&s, "gpt2", 1);
    for (bool failed = true; failed; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bauta_optimizer_create(&optimizer, s.context, s.model, NULL, NULL);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (failed) {
            assert_null(optimizer);
            assert_int_equal(faults_live(), live);
        }
    }
    assert_true(k > 4);
    // The first step also allocates the workspace of the context.
    faults_arm(0);
    assert_int_equal(bauta_optimizer_step(optimizer, NULL, NULL),
                     BAUTA_ERR_NOMEM);
    assert_true(faults_disarm());
    assert_int_equal(bauta_optimizer_step(optimizer, NULL, NULL), 0);
    faults_arm(0);
    assert_int_equal(bauta_optimizer_step(optimizer, NULL, NULL), 0);
    assert_false(faults_disarm());
    bauta_optimizer_free(optimizer);
    student_release(&s);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_trainer),
        cmocka_unit_test(matrices_decay_or_what_is_selected),
        cmocka_unit_test(gradients_that_are_not_finite_are_named),
        cmocka_unit_test(misuse_is_a_sentence),
        cmocka_unit_test(a_read_only_model_is_refused),
        cmocka_unit_test(
            each_allocation_fails_once_and_a_second_step_makes_none),
    };
    return cmocka_run_group_tests_name("model_optimizer", tests, NULL, NULL);
}
