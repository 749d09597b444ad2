/* SPDX-License-Identifier: Apache-2.0 */
/* test_decode_session.c - sequences of a decode session against plain lists of
 * tokens.
 *
 * Sequences are created, extended in chunks and groups, forked, truncated and
 * freed at random, for every family that has a decoder. After any of this, the
 * logits of a sequence's last token are those of bauta_model_forward() for its
 * list, bit for bit. */
#include "decode/session.h"

#include "allocation_faults.h"
#include "attention_problem.h"
#include "tiny_models.h"

enum { SEQUENCES = 6, SOURCES = 3, TOKENS = 300, SOURCE = 90, VOCAB = 40 };

static uint64_t seed;

/* ---- a stage, and what must be on it ------------------------------------- */

typedef struct subject {
    bt_sequence *sequence; /* NULL: none here */
    size_t source, tokens;
    uint32_t ids[TOKENS];
} subject;

typedef struct world {
    test_random r;
    scratch folder;
    bauta_model *model;
    bauta_context *context, *other; /* runs the parallel pass */
    bt_decode_session *stage;
    size_t most; /* tokens of a sequence */
    bt_cross_kv *memories[SOURCES];
    size_t lengths[SOURCES];
    uint32_t sources[SOURCES][SOURCE];
    subject all[SEQUENCES];
} world;

static bool has_sources(const world *w)
{
    return bauta_model_kind_of(w->model) == BAUTA_ENCODER_DECODER;
}

static void world_encode(world *w)
{
    bauta_error err;
    const uint32_t *ids[SOURCES];
    for (size_t i = 0; i < SOURCES; i++) {
        ids[i] = w->sources[i];
        w->lengths[i] = 1 + test_below(&w->r, SOURCE);
        for (size_t t = 0; t < SOURCE; t++)
            w->sources[i][t] = (uint32_t)test_below(&w->r, VOCAB);
    }
    if (has_sources(w) &&
        bt_decode_session_encode(w->stage, SOURCES, ids, w->lengths,
                                 w->memories, &err))
        fail_msg("%s", err.message);
}

static void world_init(world *w, const tiny *t, const char *isa, int threads,
                       uint64_t bytes)
{
    char path[512];
    bauta_error err;
    *w = (world){ .r = test_random_from(seed), .folder = scratch_create() };
    tiny_write(&w->folder, t, path);
    if (bauta_model_load(&w->model, path, false, &err))
        fail_msg("%s", err.message);
    w->context = test_context(isa, threads);
    w->other = test_context(NULL, 1);
    bool table = strstr(t->config, "n_embd") || strstr(t->config, "d_model");
    w->most = table ? bauta_model_max_positions(w->model) : TOKENS;
    if (bt_decode_session_create(&w->stage, w->context, w->model, bytes, &err))
        fail_msg("%s", err.message);
}

static void sequence_make(world *w, subject *s, size_t source)
{
    bauta_error err;
    *s = (subject){ .source = source };
    if (bt_sequence_create(&s->sequence, w->stage, w->memories[source], &err))
        fail_msg("%s", err.message);
}

static void subject_free(subject *s)
{
    bt_sequence_free(s->sequence);
    s->sequence = NULL;
}

static void world_release(world *w)
{
    for (size_t i = 0; i < SEQUENCES; i++)
        subject_free(&w->all[i]);
    for (size_t i = 0; i < SOURCES; i++)
        bt_cross_kv_release(w->memories[i]);
    assert_int_equal(bt_decode_session_used(w->stage), 0);
    bt_decode_session_free(w->stage);
    bauta_context_free(w->context);
    bauta_context_free(w->other);
    bauta_model_free(w->model);
    scratch_free(&w->folder);
}

/* Memory in use stays within its bound. */
static void used_is_bounded_by_cost(const world *w)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < SOURCES; i++)
        if (w->memories[i])
            cost += bt_decode_session_cost(w->stage, 0, w->lengths[i]);
    for (size_t i = 0; i < SEQUENCES; i++)
        if (w->all[i].sequence)
            cost += bt_decode_session_cost(w->stage, w->all[i].tokens, 0);
    assert_true(bt_decode_session_used(w->stage) <= cost);
}

/* ---- the parallel pass --------------------------------------------------- */

/* The logits of the last token of a list. */
static void forward(const world *w, const subject *s, float *last)
{
    bauta_error err;
    static float logits[TOKENS * VOCAB];
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    source.count = target.count = 1;
    source.lengths = &w->lengths[s->source];
    source.ids = w->sources[s->source];
    target.lengths = &s->tokens;
    target.ids = s->ids;
    outputs.logits = logits;
    if (bauta_model_forward(w->other, w->model, has_sources(w) ? &source : NULL,
                            &target, &outputs, &err))
        fail_msg("%s", err.message);
    memcpy(last, logits + (s->tokens - 1) * VOCAB, VOCAB * sizeof(float));
    for (size_t i = 0; i < VOCAB; i++)
        if (isnan(last[i]))
            fail_msg("logit %zu is NaN", i);
}

static void compare(const world *w, const subject *s, const float *got)
{
    float want[VOCAB];
    forward(w, s, want);
    same_bits("logits", want, got, VOCAB);
}

/* ---- what can happen ----------------------------------------------------- */

/* Tokens to append to a sequence: mostly one, sometimes many. */
static size_t piece_draw(world *w, const subject *s)
{
    size_t room = w->most - s->tokens;
    size_t count = test_below(&w->r, 3) ? 1 : 1 + test_below(&w->r, 120);
    return count < room ? count : room;
}

/* Some sequences, in any order, some of them with logits. */
static void feed_some(world *w)
{
    bauta_error err;
    bt_decode_input feeds[SEQUENCES];
    subject *fed[SEQUENCES];
    static float logits[SEQUENCES][VOCAB];
    size_t count = 0, turn = test_below(&w->r, SEQUENCES);
    for (size_t i = 0; i < SEQUENCES; i++) {
        subject *s = &w->all[(i + turn) % SEQUENCES];
        size_t piece = s->sequence ? piece_draw(w, s) : 0;
        if (!piece || test_below(&w->r, 4) == 0)
            continue;
        for (size_t t = 0; t < piece; t++)
            s->ids[s->tokens + t] = (uint32_t)test_below(&w->r, VOCAB);
        bool asked = test_below(&w->r, 4) > 0;
        feeds[count] =
            (bt_decode_input){ s->sequence, piece, s->ids + s->tokens,
                               asked ? logits[i] : NULL };
        fed[count++] = s;
    }
    if (bt_decode_session_append(w->stage, feeds, count, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < count; i++) {
        fed[i]->tokens += feeds[i].count;
        assert_int_equal(bt_sequence_tokens(fed[i]->sequence), fed[i]->tokens);
        if (feeds[i].logits)
            compare(w, fed[i], feeds[i].logits);
    }
}

static void fork_to(const subject *from, subject *to)
{
    bauta_error err;
    if (from == to)
        return;
    subject_free(to);
    *to = *from;
    if (bt_sequence_fork(&to->sequence, from->sequence, &err))
        fail_msg("%s", err.message);
}

/* Without a window every truncation is possible. */
static void truncate_to(const world *w, subject *s, size_t tokens)
{
    size_t last = bauta_model_decoder_layers(w->model) - 1;
    bool window = bauta_model_sliding_window(w->model, last) > 0;
    if (bt_sequence_truncate(s->sequence, tokens))
        s->tokens = tokens;
    else
        assert_true(window && tokens < s->tokens);
    assert_int_equal(bt_sequence_tokens(s->sequence), s->tokens);
}

static void something_happens(world *w)
{
    subject *s = &w->all[test_below(&w->r, SEQUENCES)];
    size_t what = test_below(&w->r, 10);
    if (!s->sequence)
        sequence_make(w, s, test_below(&w->r, SOURCES));
    else if (what == 0)
        subject_free(s);
    else if (what == 1)
        truncate_to(w, s, test_below(&w->r, s->tokens + 1));
    else if (what < 4)
        fork_to(s, &w->all[test_below(&w->r, SEQUENCES)]);
    else
        feed_some(w);
    used_is_bounded_by_cost(w);
}

static void whatever_happens_sequences_are_lists_of_tokens(void **state)
{
    (void)state;
    const char *isas[8];
    size_t count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        for (size_t k = 0; k < count + 2; k++) {
            world w;
            if (strstr(tinies[i].name, "bert"))
                continue;
            faults_begin();
            world_init(&w, &tinies[i], k < count ? isas[k] : NULL,
                       k < count ? 1 : 2 << (k - count), 0);
            w.r = test_random_from(seed + 100 * i + k);
            world_encode(&w);
            for (size_t step = 0; step < 120; step++)
                something_happens(&w);
            world_release(&w);
            assert_int_equal(faults_end(), 0);
        }
}

/* ---- memory -------------------------------------------------------------- */

static const tiny *family(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (strcmp(tinies[i].name, name) == 0)
            return &tinies[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static void a_window_bounds_the_memory_of_a_long_sequence(void **state)
{
    (void)state;
    world w;
    bauta_error err;
    bt_sequence *sequence = NULL;
    world_init(&w, family("mistral"), NULL, 1, 0);
    assert_int_equal(bt_sequence_create(&sequence, w.stage, NULL, NULL), 0);
    for (size_t t = 0; t < 3000; t++) {
        uint32_t id = (uint32_t)test_below(&w.r, VOCAB);
        bt_decode_input feed = { sequence, 1, &id, NULL };
        if (bt_decode_session_append(w.stage, &feed, 1, &err))
            fail_msg("%s", err.message);
        assert_true(bt_decode_session_used(w.stage) <=
                    bt_decode_session_cost(w.stage, 128, 0));
    }
    // Keys that left the window are freed, the others are not.
    assert_false(bt_sequence_truncate(sequence, 1000));
    assert_int_equal(bt_sequence_tokens(sequence), 3000);
    assert_true(bt_sequence_truncate(sequence, 2998));
    assert_true(bt_sequence_truncate(sequence, 0));
    bt_sequence_free(sequence);
    world_release(&w);
}

/* Two pages a layer are the limit: one sequence fills them. */
static void the_bound_is_a_sentence_and_changes_nothing(void **state)
{
    (void)state;
    world w;
    bauta_error err;
    float logits[VOCAB];
    world_init(&w, family("llama"), NULL, 1, 0);
    uint64_t bytes = bt_decode_session_cost(w.stage, 128, 0);
    world_release(&w);
    world_init(&w, family("llama"), NULL, 1, bytes);
    assert_int_equal(bt_decode_session_limit(w.stage), bytes);
    sequence_make(&w, &w.all[0], 0);
    sequence_make(&w, &w.all[1], 0);
    subject *a = &w.all[0], *b = &w.all[1];
    for (size_t t = 0; t < TOKENS; t++)
        a->ids[t] = b->ids[t] = (uint32_t)(t * 7 % VOCAB);
    bt_decode_input both[] = { { a->sequence, 64, a->ids, logits },
                               { b->sequence, 65, b->ids, NULL } };
    assert_int_equal(bt_decode_session_append(w.stage, both, 2, &err),
                     BAUTA_ERR_NOMEM);
    assert_non_null(strstr(err.message, "bytes are taken"));
    assert_int_equal(bt_decode_session_used(w.stage), 0);
    bt_decode_input more = { a->sequence, 127, a->ids, NULL };
    assert_int_equal(bt_decode_session_append(w.stage, &more, 1, &err), 0);
    assert_int_equal(bt_decode_session_used(w.stage), bytes);
    more = (bt_decode_input){ a->sequence, 2, a->ids + 127, NULL };
    assert_int_equal(bt_decode_session_append(w.stage, &more, 1, &err),
                     BAUTA_ERR_NOMEM);
    fork_to(a, b); // allocates nothing, and cannot write
    more = (bt_decode_input){ b->sequence, 1, a->ids + 127, NULL };
    assert_int_equal(bt_decode_session_append(w.stage, &more, 1, &err),
                     BAUTA_ERR_NOMEM);
    subject_free(b);
    more = (bt_decode_input){ a->sequence, 1, a->ids + 127, logits };
    assert_int_equal(bt_decode_session_append(w.stage, &more, 1, &err), 0);
    a->tokens = 128;
    compare(&w, a, logits);
    world_release(&w);
}

/* A small beam search in which every call may fail and is then repeated. */
typedef struct life {
    world w;
    size_t step;
} life;

static bauta_status life_go(life *l, float *logits, bauta_error *err)
{
    world *w = &l->w;
    const uint32_t *ids[] = { w->sources[0], w->sources[1] };
    bt_decode_input feeds[2];
    for (size_t i = 0; i < 2; i++)
        feeds[i] = (bt_decode_input){ w->all[i].sequence, 1, w->all[i].ids + 70,
                                      logits + i * VOCAB };
    switch (l->step) {
    case 0:
        return bt_decode_session_encode(w->stage, 2, ids, w->lengths,
                                        w->memories, err);
    case 1:
        return bt_sequence_create(&w->all[0].sequence, w->stage, w->memories[0],
                                  err);
    case 2:
        feeds[0].count = 70;
        feeds[0].ids = w->all[0].ids;
        return bt_decode_session_append(w->stage, feeds, 1, err);
    case 3:
        return bt_sequence_fork(&w->all[1].sequence, w->all[0].sequence, err);
    default:
        return bt_decode_session_append(w->stage, feeds, 2, err);
    }
}

static void a_stage_survives_each_failing_allocation(void **state)
{
    (void)state;
    life l = { .step = 0 };
    float logits[2 * VOCAB];
    faults_begin();
    world_init(&l.w, family("marian"), NULL, 2, 0);
    for (size_t i = 0; i < 2; i++)
        for (size_t t = 0; t < 71; t++)
            l.w.all[i].ids[t] = (uint32_t)(t < 70 ? t % VOCAB : 11 + i);
    l.w.lengths[0] = 70;
    l.w.lengths[1] = 5;
    for (size_t k = 0; l.step < 5; k++) {
        bauta_error err;
        faults_arm(k);
        bauta_status status = life_go(&l, logits, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            l.step++;
            k = SIZE_MAX;
        } else {
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_non_null(strstr(err.message, "out of memory"));
        }
    }
    for (size_t i = 0; i < 2; i++) {
        l.w.all[i].tokens = 71;
        compare(&l.w, &l.w.all[i], logits + i * VOCAB);
    }
    world_release(&l.w);
    assert_int_equal(faults_end(), 0);
}

/* ---- a share for each thread ----------------------------------------------
 */

enum { CROWD = 96 };

static void crowd_make(world *w, bt_decode_input *feeds, float (*logits)[VOCAB])
{
    static uint32_t ids[CROWD];
    bauta_error err;
    for (size_t i = 0; i < CROWD; i++) {
        ids[i] = (uint32_t)(i % VOCAB);
        feeds[i] = (bt_decode_input){ NULL, 1, &ids[i], logits[i] };
        if (bt_sequence_create(&feeds[i].sequence, w->stage,
                               w->memories[i * SOURCES / CROWD], &err))
            fail_msg("%s", err.message);
    }
}

/* Three steps of many sequences; each allocation of the first one fails
 * once. */
static void crowd_speak(world *w, bt_decode_input *feeds)
{
    bauta_error err;
    for (size_t step = 0, k = 0; step < 3; k++) {
        faults_arm(step ? SIZE_MAX / 2 : k);
        bauta_status status =
            bt_decode_session_append(w->stage, feeds, CROWD, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        step += !failed;
        for (size_t i = 0; i < CROWD; i++)
            assert_int_equal(bt_sequence_tokens(feeds[i].sequence), step);
    }
}

static void threads_share_a_crowd_and_change_no_bit(void **state)
{
    (void)state;
    static float logits[3][CROWD][VOCAB];
    const char *const names[] = { "marian", "qwen2" };
    for (size_t n = 0; n < BT_LEN(names); n++)
        for (int t = 0; t < 3; t++) {
            world w;
            bt_decode_input feeds[CROWD];
            faults_begin();
            world_init(&w, family(names[n]), NULL, t + 1, 0);
            world_encode(&w);
            crowd_make(&w, feeds, logits[t]);
            crowd_speak(&w, feeds);
            for (size_t i = 0; i < CROWD; i++)
                bt_sequence_free(feeds[i].sequence);
            world_release(&w);
            assert_int_equal(faults_end(), 0);
            same_bits("logits", logits[0][0], logits[t][0], CROWD * VOCAB);
        }
}

/* ---- memory -------------------------------------------------------------- */

static void a_step_within_a_page_allocates_nothing(void **state)
{
    (void)state;
    world w;
    float logits[VOCAB];
    uint32_t ids[10] = { 1, 2, 3 };
    faults_begin();
    world_init(&w, family("qwen2"), NULL, 2, 0);
    sequence_make(&w, &w.all[0], 0);
    bt_decode_input feed = { w.all[0].sequence, 10, ids, logits };
    assert_int_equal(bt_decode_session_append(w.stage, &feed, 1, NULL), 0);
    feed.count = 1;
    faults_arm(0);
    for (size_t t = 0; t < 50; t++)
        assert_int_equal(bt_decode_session_append(w.stage, &feed, 1, NULL), 0);
    assert_false(faults_disarm());
    world_release(&w);
    assert_int_equal(faults_end(), 0);
}

/* ---- what is refused ----------------------------------------------------- */

static void refused(bauta_status status, const bauta_error *err,
                    const char *says)
{
    assert_int_equal(status, BAUTA_ERR_ARGUMENT);
    if (!strstr(err->message, says))
        fail_msg("want \"%s\", got \"%s\"", says, err->message);
}

static void what_cannot_be_fed_is_named(void **state)
{
    (void)state;
    world w, v;
    bauta_error err;
    uint32_t ids[100] = { 1, 2, VOCAB };
    world_init(&w, family("gpt2"), NULL, 1, 0);
    world_init(&v, family("gpt2"), NULL, 1, 0);
    sequence_make(&w, &w.all[0], 0);
    sequence_make(&v, &v.all[0], 0);
    bt_sequence *s = w.all[0].sequence;
    const struct {
        bt_decode_input feeds[2];
        const char *says;
    } calls[] = {
        { { { s, 1, ids, NULL }, { NULL, 1, ids, NULL } },
          "input 1 has no sequence" },
        { { { s, 1, ids, NULL }, { v.all[0].sequence, 1, ids, NULL } },
          "input 1 belongs to another session" },
        { { { s, 1, ids, NULL }, { s, 1, ids, NULL } },
          "input 1 is given twice" },
        { { { s, 0, ids, NULL } }, "input 0 has no tokens" },
        { { { s, 1, NULL, NULL } }, "input 0 has no ids" },
        { { { s, 3, ids, NULL } }, "token 2: id 40 is not in a vocabulary" },
        { { { s, 97, ids + 3, NULL } }, "97 tokens, the model has 96" },
    };
    for (size_t i = 0; i < BT_LEN(calls); i++) {
        size_t count = i < 3 ? 2 : 1;
        refused(bt_decode_session_append(w.stage, calls[i].feeds, count, &err),
                &err, calls[i].says);
        assert_int_equal(bt_decode_session_used(w.stage), 0);
    }
    bt_decode_input feed = { s, 96, ids + 3, NULL };
    assert_int_equal(bt_decode_session_append(w.stage, &feed, 1, &err), 0);
    feed.count = 1;
    refused(bt_decode_session_append(w.stage, &feed, 1, &err), &err,
            "97 tokens");
    world_release(&w);
    world_release(&v);
}

static void sources_belong_to_models_that_have_them(void **state)
{
    (void)state;
    world w, v;
    bauta_error err;
    bt_cross_kv *memory = NULL;
    bt_sequence *sequence = NULL;
    uint32_t ids[100] = { VOCAB };
    const uint32_t *const source = ids;
    size_t length = 1;
    world_init(&w, family("marian"), NULL, 1, 0);
    world_init(&v, family("gpt2"), NULL, 1, 0);
    world_encode(&w);
    refused(
        bt_decode_session_encode(w.stage, 1, &source, &length, &memory, &err),
        &err, "source 0, token 0: id 40");
    ids[0] = 0;
    length = 0;
    refused(
        bt_decode_session_encode(w.stage, 1, &source, &length, &memory, &err),
        &err, "source 0 is empty");
    length = 97;
    refused(
        bt_decode_session_encode(w.stage, 1, &source, &length, &memory, &err),
        &err, "97 tokens, the model has 96");
    refused(
        bt_decode_session_encode(v.stage, 1, &source, &length, &memory, &err),
        &err, "does not read a source");
    assert_null(memory);
    refused(bt_sequence_create(&sequence, w.stage, NULL, &err), &err,
            "needs a source");
    refused(bt_sequence_create(&sequence, v.stage, w.memories[0], &err), &err,
            "has no source");
    assert_null(sequence);
    world_release(&w);
    world_release(&v);
}

static void an_encoder_alone_has_no_stage(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char path[512];
    bauta_error err;
    bauta_model *model = NULL;
    bt_decode_session *stage = NULL;
    bauta_context *context = test_context(NULL, 1);
    tiny_write(&s, family("bert"), path);
    assert_int_equal(bauta_model_load(&model, path, false, NULL), 0);
    refused(bt_decode_session_create(&stage, context, model, 0, &err), &err,
            "encoder-only");
    assert_null(stage);
    bauta_model_free(model);
    bauta_context_free(context);
    scratch_free(&s);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_sequences_are_lists_of_tokens),
        cmocka_unit_test(a_window_bounds_the_memory_of_a_long_sequence),
        cmocka_unit_test(the_bound_is_a_sentence_and_changes_nothing),
        cmocka_unit_test(a_stage_survives_each_failing_allocation),
        cmocka_unit_test(threads_share_a_crowd_and_change_no_bit),
        cmocka_unit_test(a_step_within_a_page_allocates_nothing),
        cmocka_unit_test(what_cannot_be_fed_is_named),
        cmocka_unit_test(sources_belong_to_models_that_have_them),
        cmocka_unit_test(an_encoder_alone_has_no_stage),
    };
    return cmocka_run_group_tests_name("stage", tests, NULL, NULL);
}
