/* SPDX-License-Identifier: Apache-2.0 */
/* test_invariance.c - conditions that must not change a bit of a model's
 * results.
 *
 * For every family: incremental or parallel decoding; padded, packed or alone;
 * any number of threads and any instruction set; any contents of padding. And a
 * step of a known shape allocates nothing. All comparisons are exact. */
#include "allocation_faults.h"
#include "attention_problem.h"
#include "decode/session.h"
#include "model/api.h"
#include "model_folders.h"
#include "sequences.h"

enum { NAME = 256 };

static uint64_t seed;

/* ---- a model and its input ----------------------------------------------- */

typedef struct fixture {
    bt_model_store *folder;
    const bt_model_config *config;
    text source, target; /* of encoder and decoder */
} fixture;

static void subject_init(fixture *s, const char *path)
{
    bauta_error err;
    test_random r = test_random_from(seed);
    if (bt_model_store_load(&s->folder, path, BT_LOAD_TRAINABLE, &err))
        fail_msg("%s", err.message);
    s->config = &s->folder->model->config;
    s->source = text_random(&r, s->config, 0);
    s->target = text_random(&r, s->config, 1);
}

/* Run a test on every folder that exists. */
static void each_folder(void (*test)(fixture *s))
{
    for (size_t i = 0; i < BT_LEN(test_folders); i++) {
        char path[NAME];
        fixture s;
        if (!test_folder_path(path, sizeof(path), i)) {
            printf("%s is not there and was skipped\n", test_folders[i].path);
            continue;
        }
        subject_init(&s, path);
        printf("%s\n", test_folders[i].path); // for the message of a failure
        test(&s);
        bt_model_store_free(s.folder);
    }
}

/* The rows of both stacks, if the model has them. */
typedef struct pass {
    side encoder, decoder;
} pass;

static pass pass_make(const fixture *s, layout how)
{
    pass p = { .encoder = { .ids = NULL } };
    if (s->config->stacks != BT_DECODER_ONLY)
        p.encoder = side_make(&s->source, how, BOTH_WAYS, s->config);
    if (s->config->stacks != BT_ENCODER_ONLY)
        p.decoder = side_make(&s->target, how, CAUSAL, s->config);
    if (s->config->stacks == BT_ENCODER_DECODER)
        side_cross(&p.decoder, &p.encoder);
    return p;
}

static void pass_release(pass *p)
{
    side_release(&p->encoder);
    side_release(&p->decoder);
}

/* The stack that the head reads. */
static side *pass_top(const fixture *s, pass *p)
{
    return s->config->stacks == BT_ENCODER_ONLY ? &p->encoder : &p->decoder;
}

static void tape_fine(const bt_tape *tape)
{
    bauta_error err;
    if (bt_tape_status(tape, &err))
        fail_msg("%s", err.message);
}

static bt_tensor *pass_run(const fixture *s, bt_tape *tape, pass *p)
{
    bt_model *model = s->folder->model;
    bt_tensor *x = NULL;
    if (s->config->stacks != BT_DECODER_ONLY)
        x = bt_transformer_encode(tape, model, &p->encoder.input);
    if (s->config->stacks != BT_ENCODER_ONLY)
        x = bt_transformer_decode(tape, model, &p->decoder.input, x);
    return x;
}

static double pass_loss(const fixture *s, bt_tape *tape, pass *p, bt_tensor *x)
{
    bt_model *model = s->folder->model;
    bt_loss loss = bt_op_cross_entropy(
        tape, bt_transformer_head_transform(tape, model, x),
        bt_transformer_head_weight(model), false,
        bt_transformer_head_bias(model), model->config.head_softcap,
        pass_top(s, p)->labels, NULL, 0.1f, 1);
    return bt_loss_read(tape, &loss);
}

/* Results for the real tokens, in their order: the same in every layout. */
typedef struct outcome {
    size_t rows, columns;
    float *logits; /* (rows, columns) */
    double loss;
} outcome;

static outcome outcome_of(const fixture *s, bt_tape *tape, layout how)
{
    pass p = pass_make(s, how);
    const side *top = pass_top(s, &p);
    outcome o = { .columns = s->config->vocab_size };
    o.logits = malloc(top->rows * o.columns * sizeof(float));
    assert_non_null(o.logits);
    bt_tape_rewind(tape, false);
    bt_tensor *x = pass_run(s, tape, &p);
    const bt_tensor *all = bt_transformer_logits(tape, s->folder->model, x);
    o.loss = pass_loss(s, tape, &p, x);
    tape_fine(tape);
    for (size_t i = 0; i < how.count; i++) {
        memcpy(o.logits + o.rows * o.columns,
               tensor_data(all) + top->first[i] * o.columns,
               top->lengths[i] * o.columns * sizeof(float));
        o.rows += top->lengths[i];
    }
    // Equal NaN everywhere would prove nothing.
    for (size_t row = 0; row < o.rows; row++)
        if (isnan(o.logits[row * o.columns]))
            fail_msg("row %zu has NaN", row);
    pass_release(&p);
    return o;
}

static const layout padded = { 0, SEQUENCES, true };
static const layout packed = { 0, SEQUENCES, false };

static void same_loss(double want, double got)
{
    if (memcmp(&want, &got, sizeof(want)))
        fail_msg("loss: want %a, got %a", want, got);
}

/* ---- incremental decoding ------------------------------------------------ */

/* One sequence that is decoded in its own session. */
typedef struct decoding {
    bauta_context *context;
    bt_decode_session *session;
    bt_cross_kv *cross_kv;
    bt_sequence *sequence;
    float *logits;
} decoding;

static void decoding_init(decoding *d, const fixture *s, size_t sequence)
{
    bauta_error err;
    const bauta_model model = { .store = s->folder };
    *d = (decoding){ .context = test_context(NULL, 1) };
    d->logits = malloc(s->config->vocab_size * sizeof(float));
    assert_non_null(d->logits);
    if (bt_decode_session_create(&d->session, d->context, &model, 0, &err))
        fail_msg("%s", err.message);
    const uint32_t *source = s->source.ids[sequence];
    if (s->config->stacks == BT_ENCODER_DECODER &&
        bt_decode_session_encode(d->session, 1, &source,
                                 &s->source.lengths[sequence], &d->cross_kv,
                                 &err))
        fail_msg("%s", err.message);
    if (bt_sequence_create(&d->sequence, d->session, d->cross_kv, &err))
        fail_msg("%s", err.message);
}

static void decoding_release(decoding *d)
{
    bt_sequence_free(d->sequence);
    bt_cross_kv_release(d->cross_kv);
    bt_decode_session_free(d->session);
    bauta_context_free(d->context);
    free(d->logits);
}

/* Append `prefill` tokens at once and then one at a time; the logits after each
 * chunk are those of the parallel pass. */
static void decoding_run(const fixture *s, size_t sequence, size_t prefill,
                         const outcome *want)
{
    decoding d;
    bauta_error err;
    size_t length = s->target.lengths[sequence];
    decoding_init(&d, s, sequence);
    for (size_t t = 0, rows; t < length; t += rows) {
        rows = t == 0 && prefill <= length ? prefill : 1;
        bt_decode_input input = { .sequence = d.sequence,
                                  .count = rows,
                                  .ids = s->target.ids[sequence] + t,
                                  .logits = d.logits };
        if (bt_decode_session_append(d.session, &input, 1, NULL, NULL, &err))
            fail_msg("%s", err.message);
        same_bits("logits", want->logits + (t + rows - 1) * want->columns,
                  d.logits, want->columns);
    }
    decoding_release(&d);
}

static void check_steps(fixture *s)
{
    static const size_t prefills[] = { 1, 5, 67 };
    if (s->config->stacks == BT_ENCODER_ONLY)
        return;
    bt_tape *tape = test_tape(NULL, 1, false);
    for (size_t i = 0; i < SEQUENCES; i++) {
        outcome want = outcome_of(s, tape, layout_alone(i));
        for (size_t k = 0; k < BT_LEN(prefills); k++)
            decoding_run(s, i, prefills[k], &want);
        free(want.logits);
    }
    test_tape_free(tape);
}

static void decoding_equals_the_parallel_pass(void **state)
{
    (void)state;
    each_folder(check_steps);
}

/* ---- padded, packed, alone ----------------------------------------------- */

/* Sequence i alone against its rows of the whole batch, and its loss against
 * that of the batch when only its labels count. */
static void check_alone(fixture *s, bt_tape *tape, size_t i, const float *want)
{
    text source = s->source, target = s->target;
    outcome alone = outcome_of(s, tape, layout_alone(i));
    same_bits("alone", want, alone.logits, alone.rows * alone.columns);
    for (size_t other = 0; other < SEQUENCES; other++)
        for (size_t t = 0; other != i && t < TIME_MAX; t++) {
            s->source.labels[other][t] = BT_IGNORE_INDEX;
            s->target.labels[other][t] = BT_IGNORE_INDEX;
        }
    outcome among = outcome_of(s, tape, packed);
    same_loss(alone.loss, among.loss);
    free(alone.logits);
    free(among.logits);
    s->source = source;
    s->target = target;
}

static void check_layouts(fixture *s)
{
    bt_tape *tape = test_tape(NULL, 1, false);
    outcome want = outcome_of(s, tape, packed);
    outcome got = outcome_of(s, tape, padded);
    const text *read =
        s->config->stacks == BT_ENCODER_ONLY ? &s->source : &s->target;
    const float *row = want.logits;
    assert_int_equal(want.rows, got.rows);
    same_bits("padded", want.logits, got.logits, want.rows * want.columns);
    same_loss(want.loss, got.loss);
    for (size_t i = 0; i < SEQUENCES; i++) {
        check_alone(s, tape, i, row);
        row += read->lengths[i] * want.columns;
    }
    free(want.logits);
    free(got.logits);
    test_tape_free(tape);
}

static void padded_packed_and_alone_are_equal(void **state)
{
    (void)state;
    each_folder(check_layouts);
}

/* ---- threads and instruction sets ---------------------------------------- */

/* The gradients of all parameters, the logits and the loss of one step. */
typedef struct training {
    outcome forward;
    float *grads; /* (folder->parameters) */
    double loss;
} training;

static training training_of(const fixture *s, const char *isa, int threads,
                            layout how)
{
    bauta_error err;
    bt_tape *tape = test_tape(isa, threads, false);
    size_t bytes = s->folder->parameters * sizeof(float);
    training t = { .forward = outcome_of(s, tape, how),
                   .grads = malloc(bytes) };
    assert_non_null(t.grads);
    memset(s->folder->grads.memory, 0, bytes);
    pass p = pass_make(s, how);
    bt_tape_rewind(tape, true);
    t.loss = pass_loss(s, tape, &p, pass_run(s, tape, &p));
    if (bt_tape_backward(tape, &err))
        fail_msg("%s", err.message);
    memcpy(t.grads, s->folder->grads.memory, bytes);
    pass_release(&p);
    test_tape_free(tape);
    return t;
}

static void training_release(training *t)
{
    free(t->forward.logits);
    free(t->grads);
}

static void same_training(const fixture *s, const training *want,
                          const training *got)
{
    same_bits("logits", want->forward.logits, got->forward.logits,
              want->forward.rows * want->forward.columns);
    same_bits("gradients", want->grads, got->grads, s->folder->parameters);
    same_loss(want->loss, got->loss);
}

static void check_machine(const fixture *s, const training *want,
                          const char *isa, int threads)
{
    training got = training_of(s, isa, threads, packed);
    same_training(s, want, &got);
    training_release(&got);
}

static void check_machines(fixture *s)
{
    static const int threads[] = { 2, 4 };
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    training want = training_of(s, "c", 1, packed);
    same_loss(want.forward.loss, want.loss);
    for (size_t i = 0; i < count; i++)
        check_machine(s, &want, names[i], 1);
    for (size_t i = 0; i < BT_LEN(threads); i++)
        check_machine(s, &want, NULL, threads[i]);
    training_release(&want);
}

static void threads_and_instruction_sets_change_no_bit(void **state)
{
    (void)state;
    each_folder(check_machines);
}

/* ---- contents of padding ------------------------------------------------- */

/* If the head is the token table, the poisoned token has a NaN logit in every
 * row, and so the loss is NaN. Gradients are not compared here: a matrix's
 * gradient is a sum over all rows, padding included. Training packs its
 * batches. */
static void check_poison(fixture *s)
{
    bt_tensor *tokens = &s->folder->model->tokens;
    uint32_t poison = text_padding(s->config);
    bt_tape *tape = test_tape(NULL, 1, false);
    outcome want = outcome_of(s, tape, padded);
    for (size_t c = 0; c < tokens->columns; c++)
        tensor_data(tokens)[poison * tokens->stride + c] = NAN;
    outcome got = outcome_of(s, tape, padded);
    for (size_t row = 0; s->config->tied && row < want.rows; row++)
        got.logits[row * got.columns + poison] =
            want.logits[row * want.columns + poison];
    same_bits("logits", want.logits, got.logits, want.rows * want.columns);
    if (!s->config->tied)
        same_loss(want.loss, got.loss);
    free(want.logits);
    free(got.logits);
    test_tape_free(tape);
}

static void nan_in_padding_changes_nothing(void **state)
{
    (void)state;
    each_folder(check_poison);
}

/* ---- memory -------------------------------------------------------------- */

static bauta_status step_run(const fixture *s, bt_tape *tape, pass *p,
                             bt_optimizer *optimizer)
{
    double norm;
    bt_tape_rewind(tape, true);
    bauta_status status = bt_optimizer_zero(optimizer, NULL);
    if (status)
        return status;
    pass_loss(s, tape, p, pass_run(s, tape, p));
    status = bt_tape_backward(tape, NULL);
    return status ? status : bt_optimizer_step(optimizer, 1e-3, &norm, NULL);
}

static void check_memory(const fixture *s)
{
    trained l = { .count = 0 };
    bt_optimizer *optimizer = NULL;
    bt_optimizer_options options = BT_OPTIMIZER_OPTIONS_INIT;
    bt_tape *tape = test_tape(NULL, 2, false);
    pass p = pass_make(s, packed);
    trained_collect(&l, s->folder);
    assert_int_equal(bt_optimizer_create(&optimizer, bt_tape_stream(tape),
                                         l.all, l.count, &options, NULL),
                     0);
    assert_int_equal(step_run(s, tape, &p, optimizer), BAUTA_OK);
    faults_arm(0); // the first allocation would fail
    bauta_status status = step_run(s, tape, &p, optimizer);
    assert_false(faults_disarm());
    assert_int_equal(status, BAUTA_OK);
    bt_optimizer_free(optimizer);
    pass_release(&p);
    test_tape_free(tape);
}

static void a_second_step_allocates_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(test_folders); i++) {
        char path[NAME];
        fixture s;
        if (!test_folder_path(path, sizeof(path), i))
            continue;
        printf("%s\n", test_folders[i].path);
        faults_begin();
        subject_init(&s, path);
        check_memory(&s);
        bt_model_store_free(s.folder);
        assert_int_equal(faults_end(), 0);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_equals_the_parallel_pass),
        cmocka_unit_test(padded_packed_and_alone_are_equal),
        cmocka_unit_test(threads_and_instruction_sets_change_no_bit),
        cmocka_unit_test(nan_in_padding_changes_nothing),
        cmocka_unit_test(a_second_step_allocates_nothing),
    };
    return cmocka_run_group_tests_name("invariance", tests, NULL, NULL);
}
