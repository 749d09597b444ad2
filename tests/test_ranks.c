/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks.c - training on many ranks: weights, optimizer state, metrics and
 * bytes sent, for every number of ranks and lanes.
 *
 * The ranks are threads, each with its own context, model and trainer. Some
 * train on the reference backend, whose memory the host cannot touch, as ranks
 * on GPUs do. BAUTA_RANKS=whole takes 200 steps instead of a few. */
#include "bauta.h"
#include "rank_device.h"
#include "rank_threads.h"
#include "reference_backend.h"
#include "runtime/context.h"
#include "tiny_training.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS_MAX = 200 };

static size_t steps_of_test(void)
{
    const char *how = getenv("BAUTA_RANKS");
    return how && strcmp(how, "whole") == 0 ? STEPS_MAX : 6;
}

/* What a run leaves. */
typedef struct outcome {
    uint64_t weights, optimizer;
    double loss[STEPS_MAX], norm[STEPS_MAX], eval_loss;
    size_t counted, tokens, eval_counted;
} outcome;

/* A part of a run: from a checkpoint on, or from the start, to a step. */
typedef struct part {
    const char *family; /* or the config of a model */
    size_t lanes, until;
    const char *device; /* NULL: the CPU */
    bauta_dtype dtype;
    bool direct;           /* between devices: without a copy in host memory */
    const char *from, *to; /* folders of checkpoints, or NULL */
    bool replaced;         /* the model is another one before it is resumed */
    uint64_t seed;         /* of the model; 0: 3 */
    size_t batch_tokens;   /* twice in a step; 0: 120 */
    outcome result;        /* of rank 0 */
} part;

static bauta_train_options options_of(const part *p)
{
    bauta_train_options o = tiny_train_options();
    o.lanes = p->lanes;
    o.batch_tokens = p->batch_tokens ? p->batch_tokens : 120;
    o.gradient_accumulation_steps = 2;
    o.microbatch_tokens = 48;
    o.max_steps = STEPS_MAX;
    o.dropout = 0.1f;
    o.label_smoothing = 0.1f;
    o.max_grad_norm = 0.5;
    o.ema_decay = 0.9;
    return o;
}

/* Give a trainer the weights of a checkpoint. */
static void weights_replace(bauta_trainer *t, const char *folder)
{
    bauta_model *saved = NULL;
    bauta_error err = { 0 };
    must(bauta_model_load(&saved, folder, true, &err), &err);
    must(bt_trainer_set_weights(t, store_weights(saved->store), &err), &err);
    bauta_model_free(saved);
}

static void rank_run_init(training_run *l, bauta_ranks *ranks, const part *p)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_train_options options = options_of(p);
    bauta_error err = { 0 };
    how.threads = 1;
    how.device = p->device;
    how.dtype = p->dtype;
    *l = (training_run){ 0 };
    must(bauta_context_create(&l->context, &how, &err), &err);
    must(bauta_context_set_ranks(l->context, ranks, &err), &err);
    if (p->from && !p->replaced)
        must(bauta_model_load(&l->model, p->from, true, &err), &err);
    else
        must(bauta_model_create(&l->model,
                                p->family[0] == '{'
                                    ? p->family
                                    : tinies[tiny_family(p->family)].config,
                                p->seed ? p->seed : 3, &err),
             &err);
    must(bauta_model_to(l->model, l->context, &err), &err);
    if (p->direct) {
        l->context->comm->device = &rank_device;
        l->context->comm->device_chosen = true;
    }
    l->tokenizer = tiny_tokenizer();
    bauta_model_kind kind = bauta_model_kind_of(l->model);
    l->corpus = kind == BAUTA_ENCODER_DECODER
                    ? tiny_pairs(5, 60, 12)
                    : tiny_texts(5, 60, 30, kind == BAUTA_ENCODER_ONLY ? 1 : 3);
    must(bauta_trainer_create(&l->trainer, l->context, l->model, l->tokenizer,
                              l->corpus, &options, &err),
         &err);
    if (p->from && p->replaced)
        weights_replace(l->trainer, p->from);
    if (p->from)
        must(bauta_trainer_resume(l->trainer, p->from, &err), &err);
}

/* Gradients and weights, and the small sums of a step: two counts, the losses
 * of lanes and the squares of the norm. */
static uint64_t step_bytes(const bauta_trainer *t)
{
    const bt_comm *comm = t->context->comm;
    const bt_shards *s = &t->shards;
    uint64_t bits = 0, bytes = bt_comm_slices_bytes(comm, s->bounds);
    while (1 << bits < comm->count)
        bits++;
    if (s->pairs) { // copies of two bytes are gathered, not weights of four
        uint64_t reduced = (t->model->store->floats - s->floats) * 4;
        bytes = reduced + (bytes - reduced) / 2;
    }
    return bytes + bits * (2 + t->lanes.all + s->pieces) * sizeof(double);
}

/* A checkpoint, and the average beside it. */
static void checkpoint_write(rank_thread *self, const char *folder,
                             const bauta_trainer *t)
{
    bauta_error err = { 0 };
    char average[700];
    snprintf(average, sizeof(average), "%s-average", folder);
    must(bauta_trainer_save(t, self->rank ? NULL : folder, NULL, &err), &err);
    must(bauta_trainer_export(t, self->rank ? NULL : average, &err), &err);
}

static void outcome_set(rank_thread *self, part *p, training_run *l,
                        outcome *got)
{
    bauta_error err = { 0 };
    bt_optimizer_state state;
    bt_host_copy weights;
    must(bauta_trainer_evaluate(l->trainer, l->corpus, 300, &got->eval_loss,
                                &got->eval_counted, &err),
         &err);
    must(bt_optimizer_state_init(&state, l->trainer, true, &err), &err);
    must(bt_trainer_weights(&weights, l->trainer, true, &err), &err);
    got->weights = bt_model_weights_digest(l->model, weights.data);
    bt_host_copy_release(&weights);
    if (self->rank == 0)
        got->optimizer = bt_optimizer_state_digest(&state);
    bt_optimizer_state_release(&state);
    if (p->to)
        checkpoint_write(self, p->to, l->trainer);
}

static void part_rank(rank_thread *self)
{
    part *p = self->user;
    bauta_error err = { 0 };
    bauta_ranks *ranks = NULL;
    training_run l;
    static outcome results[RANK_THREADS_MAX];
    outcome *got = &results[self->rank];
    memset(got, 0, sizeof(*got));
    must(bauta_ranks_connect(&ranks, (size_t)self->rank, (size_t)self->count,
                             self->sockets, &err),
         &err);
    rank_run_init(&l, ranks, p);
    while (bauta_trainer_steps(l.trainer) < p->until) {
        bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
        uint64_t sent = bauta_ranks_sent(ranks);
        must(bauta_trainer_step(l.trainer, &report, &err), &err);
        RANK_CHECK(self, report.updated);
        RANK_CHECK(self,
                   bauta_ranks_sent(ranks) - sent == step_bytes(l.trainer));
        got->loss[report.step - 1] = report.loss;
        got->norm[report.step - 1] = report.grad_norm;
        got->counted += report.counted;
        got->tokens += report.tokens;
    }
    outcome_set(self, p, &l, got);
    if (self->rank == 0)
        p->result = *got;
    // Ranks are done when all are, or one would see another one end.
    must(bt_comm_barrier(l.context->comm, &err), &err);
    training_run_release(&l);
    bauta_ranks_free(ranks);
}

static void part_run(part *p, int ranks)
{
    ranks_run(ranks, part_rank, p);
}

static void outcome_same(const outcome *a, const outcome *b, size_t first,
                         size_t steps)
{
    for (size_t i = first; i < steps; i++) {
        if (memcmp(&a->loss[i], &b->loss[i], sizeof(double)) ||
            memcmp(&a->norm[i], &b->norm[i], sizeof(double)))
            fail_msg("step %zu: loss %.17g and %.17g, norm %.17g and %.17g",
                     i + 1, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
    }
    assert_int_equal(a->weights, b->weights);
    assert_int_equal(a->optimizer, b->optimizer);
    assert_memory_equal(&a->eval_loss, &b->eval_loss, sizeof(double));
    assert_int_equal(a->eval_counted, b->eval_counted);
}

/* ---- every number of ranks ----------------------------------------------- */

static void family_runs(const char *family)
{
    static part one, many;
    size_t steps = steps_of_test();
    for (size_t lanes = 8; lanes >= 2; lanes /= 2) {
        one = (part){ .family = family, .lanes = lanes, .until = steps };
        part_run(&one, 1);
        assert_true(one.result.norm[0] > 0.5); // so that it is clipped
        for (int ranks = 2; ranks <= (int)lanes; ranks *= 2) {
            many = (part){ .family = family, .lanes = lanes, .until = steps };
            part_run(&many, ranks);
            outcome_same(&one.result, &many.result, 0, steps);
            assert_int_equal(one.result.counted, many.result.counted);
            assert_int_equal(one.result.tokens, many.result.tokens);
        }
    }
}

static void ranks_change_no_bit_of_gpt2(void **state)
{
    (void)state;
    family_runs("gpt2");
}

static void ranks_change_no_bit_of_bert(void **state)
{
    (void)state;
    family_runs("bert");
}

static void ranks_change_no_bit_of_marian(void **state)
{
    (void)state;
    family_runs("marian");
}

/* Lanes only change the order of additions. */
static void lanes_have_the_same_loss_within_rounding(void **state)
{
    (void)state;
    static part without, with;
    without = (part){ .family = "gpt2", .lanes = 0, .until = 6 };
    with = (part){ .family = "gpt2", .lanes = 8, .until = 6 };
    part_run(&without, 1);
    part_run(&with, 4);
    for (size_t i = 0; i < 6; i++) {
        double a = without.result.loss[i], b = with.result.loss[i];
        if (!(fabs(a - b) <= 1e-5 * fabs(a)))
            fail_msg("step %zu: %.9g and %.9g", i + 1, a, b);
    }
}

/* ---- on a device --------------------------------------------------------- */

/* Matrices of several pieces, so that slices end within them. */
static const char wide[] =
    "{\"n_embd\": 96, \"n_head\": 2, \"n_layer\": 1, \"n_inner\": 768, "
    "\"vocab_size\": 40, \"n_positions\": 96, \"model_type\": \"gpt2\", "
    "\"architectures\": [\"GPT2LMHeadModel\"]}";

static void device_runs(const char *family, bauta_dtype dtype, size_t lanes,
                        size_t steps, size_t batch_tokens)
{
    static part one, many;
    one = (part){ .family = family,
                  .lanes = lanes,
                  .until = steps,
                  .batch_tokens = batch_tokens,
                  .device = "reference",
                  .dtype = dtype };
    part_run(&one, 1);
    assert_true(one.result.norm[0] > 0.5); // so that it is clipped
    for (int ranks = 2; ranks <= (int)lanes; ranks *= 2)
        for (int direct = 0; direct < 2; direct++) {
            many = one;
            many.direct = direct;
            memset(&many.result, 0, sizeof(many.result));
            part_run(&many, ranks);
            outcome_same(&one.result, &many.result, 0, steps);
            assert_int_equal(one.result.counted, many.result.counted);
        }
}

static void ranks_on_a_device_have_the_bits_of_one(void **state)
{
    (void)state;
    size_t live = reference_backend_live_buffers();
    for (int i = 0; i < 2; i++) {
        bauta_dtype dtype = i ? BAUTA_BFLOAT16 : BAUTA_FLOAT32;
        device_runs("gpt2", dtype, 4, steps_of_test(), 0);
        device_runs("marian", dtype, 2, steps_of_test(), 0);
        // Its matrices are slow; each lane has a sequence of 16 tokens.
        device_runs(wide, dtype, 4, 3, 64);
    }
    assert_int_equal(reference_backend_live_buffers(), live);
}

/* A rank has a slice of everything that is float32 but gradients. */
static void slices_rank(rank_thread *self)
{
    const part *p = self->user;
    bauta_error err = { 0 };
    bauta_ranks *ranks = NULL;
    bauta_trainer *other = NULL;
    bauta_optimizer *optimizer = NULL;
    bauta_train_options options = options_of(p);
    training_run l;
    must(bauta_ranks_connect(&ranks, (size_t)self->rank, (size_t)self->count,
                             self->sockets, &err),
         &err);
    rank_run_init(&l, ranks, p);
    const bt_shards *s = &l.trainer->shards;
    size_t bytes = s->floats * sizeof(float);
    RANK_CHECK(self, s->floats < l.model->store->floats);
    RANK_CHECK(self, l.model->store->weights.memory == NULL);
    RANK_CHECK(self, s->masters.bytes == bytes);
    RANK_CHECK(self, l.trainer->ema.bytes == bytes);
    RANK_CHECK(self,
               bt_optimizer_moments(l.trainer->optimizer)->bytes <= 2 * bytes);
    // Nobody has the weights as a whole.
    RANK_CHECK(self, bauta_model_save(l.model, "/nowhere", &err) ==
                         BAUTA_ERR_ARGUMENT);
    RANK_CHECK(self, strstr(err.message, "shared out over ranks") != NULL);
    RANK_CHECK(self, bauta_trainer_create(&other, l.context, l.model,
                                          l.tokenizer, l.corpus, &options,
                                          &err) == BAUTA_ERR_ARGUMENT);
    RANK_CHECK(self, bauta_optimizer_create(&optimizer, l.context, l.model,
                                            NULL, &err) == BAUTA_ERR_ARGUMENT);
    training_run_release(&l);
    bauta_ranks_free(ranks);
}

static void ranks_in_bfloat16_have_slices_of_the_weights(void **state)
{
    (void)state;
    part p = { .family = wide,
               .lanes = 4,
               .device = "reference",
               .dtype = BAUTA_BFLOAT16 };
    ranks_run(2, slices_rank, &p);
    ranks_run(4, slices_rank, &p);
}

/* Slices of different models together are no model. */
static void digest_rank(rank_thread *self)
{
    part p = *(part *)self->user;
    bauta_error err = { 0 };
    bauta_ranks *ranks = NULL;
    training_run l;
    uint64_t mine = 0, first;
    bool same = p.seed == 0;
    p.seed = same ? 3 : 3 + (uint64_t)self->rank;
    must(bauta_ranks_connect(&ranks, (size_t)self->rank, (size_t)self->count,
                             self->sockets, &err),
         &err);
    rank_run_init(&l, ranks, &p);
    must(bt_trainer_digest(&mine, l.trainer, &err), &err);
    first = mine;
    must(bt_comm_broadcast(l.context->comm, &first, sizeof(first), &err), &err);
    RANK_CHECK(self, self->rank == 0 || (mine == first) == same);
    training_run_release(&l);
    bauta_ranks_free(ranks);
}

static void ranks_with_other_weights_have_another_digest(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        part p = { .family = "gpt2",
                   .lanes = 2,
                   .device = "reference",
                   .dtype = i / 2 ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                   .seed = (uint64_t)i % 2 };
        ranks_run(2, digest_rank, &p);
    }
}

/* ---- checkpoints --------------------------------------------------------- */

/* The averages beside two checkpoints. */
static void averages_same(const char *a, const char *b)
{
    const char *const folders[] = { a, b };
    bauta_model *models[2] = { NULL };
    bauta_error err = { 0 };
    for (int i = 0; i < 2; i++) {
        char average[700];
        snprintf(average, sizeof(average), "%s-average", folders[i]);
        must(bauta_model_load(&models[i], average, true, &err), &err);
    }
    const bt_model_store *x = models[0]->store, *y = models[1]->store;
    assert_int_equal(x->floats, y->floats);
    assert_memory_equal(store_weights(x), store_weights(y),
                        x->floats * sizeof(float));
    bauta_model_free(models[0]);
    bauta_model_free(models[1]);
}

/* Start on 4, go on with 1, end on 8. */
static void run_moves(const char *device, bauta_dtype dtype)
{
    static part parts[3], whole;
    size_t steps = steps_of_test();
    const int ranks[] = { 4, 1, 8 };
    temp_folder s = temp_folder_create();
    char first[600], second[600], last[600], same[600];
    snprintf(first, sizeof(first), "%s/first", s.folder);
    snprintf(second, sizeof(second), "%s/second", s.folder);
    snprintf(last, sizeof(last), "%s/last", s.folder);
    snprintf(same, sizeof(same), "%s/same", s.folder);
    const char *const folders[] = { NULL, first, second, last };
    for (int i = 0; i < 3; i++) {
        parts[i] = (part){ .family = "gpt2",
                           .lanes = 8,
                           .until = steps * (size_t)(i + 1) / 3,
                           .device = device,
                           .dtype = dtype,
                           .direct = device && i == 2,
                           .replaced = i == 2,
                           .seed = i == 2 ? 9 : 3,
                           .from = folders[i],
                           .to = folders[i + 1] };
        part_run(&parts[i], ranks[i]);
    }
    whole = (part){ .family = "gpt2",
                    .lanes = 8,
                    .until = steps,
                    .device = device,
                    .dtype = dtype,
                    .to = same };
    part_run(&whole, 1);
    outcome_same(&whole.result, &parts[2].result, steps * 2 / 3, steps);
    averages_same(same, last);
    temp_folder_free(&s);
}

static void a_run_moves_between_numbers_of_ranks(void **state)
{
    (void)state;
    run_moves(NULL, BAUTA_FLOAT32);
}

static void a_run_on_a_device_moves_between_numbers_of_ranks(void **state)
{
    (void)state;
    run_moves("reference", BAUTA_FLOAT32);
    run_moves("reference", BAUTA_BFLOAT16);
}

static void a_checkpoint_with_other_lanes_is_refused(void **state)
{
    (void)state;
    static part p;
    temp_folder s = temp_folder_create();
    char folder[600];
    snprintf(folder, sizeof(folder), "%s/saved", s.folder);
    p = (part){ .family = "gpt2", .lanes = 4, .until = 2, .to = folder };
    part_run(&p, 2);
    for (size_t lanes = 0; lanes <= 8; lanes += 8) {
        training_run l;
        bauta_error err = { 0 };
        part other = { .family = "gpt2", .lanes = lanes };
        rank_run_init(&l, NULL, &other);
        assert_int_equal(bauta_trainer_resume(l.trainer, folder, &err),
                         BAUTA_ERR_ARGUMENT);
        if (!strstr(err.message, lanes ? "the option lanes is 4 in the "
                                         "checkpoint and 8 in this trainer"
                                       : "is 4 in the checkpoint and 1 in"))
            fail_msg("%s", err.message);
        training_run_release(&l);
    }
    temp_folder_free(&s);
}

/* ---- the tree ------------------------------------------------------------ */

static float tree(const float *values, size_t count)
{
    return count == 1
               ? values[0]
               : tree(values, count / 2) + tree(values + count / 2, count / 2);
}

static void lanes_are_added_as_a_tree(void **state)
{
    (void)state;
    enum { FLOATS = 48 };
    test_random r = test_random_from(test_seed());
    bauta_context *context = NULL;
    bauta_error err = { 0 };
    must(bauta_context_create(&context, NULL, &err), &err);
    for (size_t count = 1; count <= 64; count *= 2) {
        static bt_lanes lanes;
        float values[FLOATS][64];
        float *memory = bt_alloc_zero(FLOATS, sizeof(float));
        bt_model_store store = { .floats = FLOATS };
        store.grads = bt_buffer_of_host(memory, FLOATS * sizeof(float));
        memset(&lanes, 0, sizeof(lanes));
        must(bt_lanes_init(&lanes, count, context->comm, context->stream,
                           &store, &err),
             &err);
        for (size_t i = 0; i < count; i++) {
            float *grads = store.grads.memory;
            for (size_t j = 0; j < FLOATS; j++)
                grads[j] = values[j][i] =
                    ldexpf(test_float(&r), (int)test_below(&r, 24));
            must(bt_lanes_add(&lanes, i, context->stream, &store, &err), &err);
        }
        assert_ptr_equal(store.grads.memory, memory); // where it was
        for (size_t j = 0; j < FLOATS; j++)
            assert_true(((float *)store.grads.memory)[j] ==
                        tree(values[j], count));
        bt_lanes_release(&lanes);
        bt_free(memory);
    }
    bauta_context_free(context);
}

/* ---- errors -------------------------------------------------------------- */

static void lanes_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t lanes;
        int ranks;
        const char *message;
    } cases[] = {
        { 3, 1, "the number of lanes is 3, not a power of two" },
        { 2048, 1, "the number of lanes is 2048" },
        { 1, 2, "2 ranks cannot share 1 lane;" },
        { 0, 2, "2 ranks cannot share 1 lane;" },
        { 4, 8, "8 ranks cannot share 4 lanes;" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bauta_error err = { 0 };
        bt_comm comm = bt_comm_single();
        comm.count = cases[i].ranks;
        assert_int_equal(bt_lanes_check(cases[i].lanes, &comm, &err),
                         BAUTA_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s", err.message);
    }
}

static void batches_of_the_caller_have_no_lanes(void **state)
{
    (void)state;
    training_run l;
    bauta_error err = { 0 };
    bauta_train_batch batch = BAUTA_TRAIN_BATCH_INIT;
    part p = { .family = "gpt2", .lanes = 2 };
    rank_run_init(&l, NULL, &p);
    assert_int_equal(bauta_trainer_step_batch(l.trainer, &batch, 1, NULL, &err),
                     BAUTA_ERR_UNSUPPORTED);
    training_run_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_added_as_a_tree),
        cmocka_unit_test(lanes_are_checked),
        cmocka_unit_test(batches_of_the_caller_have_no_lanes),
        cmocka_unit_test(ranks_change_no_bit_of_gpt2),
        cmocka_unit_test(ranks_change_no_bit_of_bert),
        cmocka_unit_test(ranks_change_no_bit_of_marian),
        cmocka_unit_test(lanes_have_the_same_loss_within_rounding),
        cmocka_unit_test(ranks_on_a_device_have_the_bits_of_one),
        cmocka_unit_test(ranks_in_bfloat16_have_slices_of_the_weights),
        cmocka_unit_test(ranks_with_other_weights_have_another_digest),
        cmocka_unit_test(a_run_moves_between_numbers_of_ranks),
        cmocka_unit_test(a_run_on_a_device_moves_between_numbers_of_ranks),
        cmocka_unit_test(a_checkpoint_with_other_lanes_is_refused),
    };
    bt_device_register(&bt_reference_driver);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_device_register(NULL);
    return failed;
}
