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
#include "backend/cpu/kernels/kernels.h"
#include "tiny_models.h"

#define INPUT(of, n, tokens, to)                                        \
    {                                                                   \
        .sequence = (of), .count = (n), .ids = (tokens), .logits = (to) \
    }

enum { SEQUENCES = 6, SOURCES = 3, TOKENS = 300, SOURCE = 90, VOCAB = 40 };

static uint64_t seed;

/* ---- a session, and its expected contents ----------------------------------
 */

typedef struct sequence_model {
    bt_sequence *sequence; /* NULL: none here */
    size_t source, tokens;
    uint32_t ids[TOKENS];
} sequence_model;

typedef struct fixture {
    test_random r;
    temp_folder folder;
    bauta_model *model;
    bauta_context *context, *other; /* runs the parallel pass */
    bt_decode_session *session;
    size_t most; /* tokens of a sequence */
    bt_cross_kv *cross_kvs[SOURCES];
    size_t lengths[SOURCES];
    uint32_t sources[SOURCES][SOURCE];
    sequence_model all[SEQUENCES];
} fixture;

static bool has_sources(const fixture *w)
{
    return bauta_model_kind_of(w->model) == BAUTA_ENCODER_DECODER;
}

static void fixture_encode(fixture *w)
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
        bt_decode_session_encode(w->session, SOURCES, ids, w->lengths,
                                 w->cross_kvs, &err))
        fail_msg("%s", err.message);
}

static void fixture_init(fixture *w, const tiny *t, const char *isa,
                         int threads, uint64_t bytes)
{
    char path[512];
    bauta_error err;
    *w = (fixture){ .r = test_random_from(seed),
                    .folder = temp_folder_create() };
    tiny_write(&w->folder, t, path);
    if (bauta_model_load(&w->model, path, false, &err))
        fail_msg("%s", err.message);
    w->context = test_context(isa, threads);
    w->other = test_context(NULL, 1);
    bool table = strstr(t->config, "n_embd") || strstr(t->config, "d_model");
    w->most = table ? bauta_model_max_positions(w->model) : TOKENS;
    if (bt_decode_session_create(&w->session, w->context, w->model, bytes,
                                 &err))
        fail_msg("%s", err.message);
}

static void sequence_make(fixture *w, sequence_model *s, size_t source)
{
    bauta_error err;
    *s = (sequence_model){ .source = source };
    if (bt_sequence_create(&s->sequence, w->session, w->cross_kvs[source],
                           &err))
        fail_msg("%s", err.message);
}

static void sequence_model_free(sequence_model *s)
{
    bt_sequence_free(s->sequence);
    s->sequence = NULL;
}

static void fixture_release(fixture *w)
{
    for (size_t i = 0; i < SEQUENCES; i++)
        sequence_model_free(&w->all[i]);
    for (size_t i = 0; i < SOURCES; i++)
        bt_cross_kv_release(w->cross_kvs[i]);
    assert_int_equal(bt_decode_session_used(w->session), 0);
    bt_decode_session_free(w->session);
    bauta_context_free(w->context);
    bauta_context_free(w->other);
    bauta_model_free(w->model);
    temp_folder_free(&w->folder);
}

/* Memory in use stays within its bound. */
static void used_is_bounded_by_cost(const fixture *w)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < SOURCES; i++)
        if (w->cross_kvs[i])
            cost += bt_decode_session_cost(w->session, 0, w->lengths[i]);
    for (size_t i = 0; i < SEQUENCES; i++)
        if (w->all[i].sequence)
            cost += bt_decode_session_cost(w->session, w->all[i].tokens, 0);
    assert_true(bt_decode_session_used(w->session) <= cost);
}

/* ---- the parallel pass --------------------------------------------------- */

/* The logits of the last token of a list. */
static void forward(const fixture *w, const sequence_model *s, float *last)
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

static void compare(const fixture *w, const sequence_model *s, const float *got)
{
    float want[VOCAB];
    forward(w, s, want);
    same_bits("logits", want, got, VOCAB);
}

/* ---- operations ---------------------------------------------------------- */

/* Tokens to append to a sequence: mostly one, sometimes many. */
static size_t chunk_length_draw(fixture *w, const sequence_model *s)
{
    size_t room = w->most - s->tokens;
    size_t count = test_below(&w->r, 3) ? 1 : 1 + test_below(&w->r, 120);
    return count < room ? count : room;
}

/* Some sequences, in any order, some of them with logits. */
static void append_some(fixture *w)
{
    bauta_error err;
    bt_decode_input inputs[SEQUENCES];
    sequence_model *appended[SEQUENCES];
    static float logits[SEQUENCES][VOCAB];
    size_t count = 0, turn = test_below(&w->r, SEQUENCES);
    for (size_t i = 0; i < SEQUENCES; i++) {
        sequence_model *s = &w->all[(i + turn) % SEQUENCES];
        size_t chunk = s->sequence ? chunk_length_draw(w, s) : 0;
        if (!chunk || test_below(&w->r, 4) == 0)
            continue;
        for (size_t t = 0; t < chunk; t++)
            s->ids[s->tokens + t] = (uint32_t)test_below(&w->r, VOCAB);
        bool asked = test_below(&w->r, 4) > 0;
        inputs[count] = (bt_decode_input){ .sequence = s->sequence,
                                           .count = chunk,
                                           .ids = s->ids + s->tokens,
                                           .logits = asked ? logits[i] : NULL };
        appended[count++] = s;
    }
    if (bt_decode_session_append(w->session, inputs, count, NULL, NULL, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < count; i++) {
        appended[i]->tokens += inputs[i].count;
        assert_int_equal(bt_sequence_tokens(appended[i]->sequence),
                         appended[i]->tokens);
        if (inputs[i].logits)
            compare(w, appended[i], inputs[i].logits);
    }
}

static void fork_to(const sequence_model *from, sequence_model *to)
{
    bauta_error err;
    if (from == to)
        return;
    sequence_model_free(to);
    *to = *from;
    if (bt_sequence_fork(&to->sequence, from->sequence, &err))
        fail_msg("%s", err.message);
}

/* Without a window every truncation is possible. */
static void truncate_to(const fixture *w, sequence_model *s, size_t tokens)
{
    size_t last = bauta_model_decoder_layers(w->model) - 1;
    bool window = bauta_model_sliding_window(w->model, last) > 0;
    if (bt_sequence_truncate(s->sequence, tokens))
        s->tokens = tokens;
    else
        assert_true(window && tokens < s->tokens);
    assert_int_equal(bt_sequence_tokens(s->sequence), s->tokens);
}

static void random_operation(fixture *w)
{
    sequence_model *s = &w->all[test_below(&w->r, SEQUENCES)];
    size_t what = test_below(&w->r, 10);
    if (!s->sequence)
        sequence_make(w, s, test_below(&w->r, SOURCES));
    else if (what == 0)
        sequence_model_free(s);
    else if (what == 1)
        truncate_to(w, s, test_below(&w->r, s->tokens + 1));
    else if (what < 4)
        fork_to(s, &w->all[test_below(&w->r, SEQUENCES)]);
    else
        append_some(w);
    used_is_bounded_by_cost(w);
}

static void random_operations_keep_sequences_equal_to_token_lists(void **state)
{
    (void)state;
    const char *isas[8];
    size_t count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        for (size_t k = 0; k < count + 2; k++) {
            fixture w;
            if (strstr(tinies[i].name, "bert"))
                continue;
            faults_begin();
            fixture_init(&w, &tinies[i], k < count ? isas[k] : NULL,
                         k < count ? 1 : 2 << (k - count), 0);
            w.r = test_random_from(seed + 100 * i + k);
            fixture_encode(&w);
            for (size_t step = 0; step < (TEST_STRIDE > 1 ? 40 : 120); step++)
                random_operation(&w);
            fixture_release(&w);
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
    fixture w;
    bauta_error err;
    bt_sequence *sequence = NULL;
    fixture_init(&w, family("mistral"), NULL, 1, 0);
    assert_int_equal(bt_sequence_create(&sequence, w.session, NULL, NULL), 0);
    for (size_t t = 0; t < 3000; t++) {
        uint32_t id = (uint32_t)test_below(&w.r, VOCAB);
        bt_decode_input input = {
            .sequence = sequence, .count = 1, .ids = &id, .logits = NULL
        };
        if (bt_decode_session_append(w.session, &input, 1, NULL, NULL, &err))
            fail_msg("%s", err.message);
        assert_true(bt_decode_session_used(w.session) <=
                    bt_decode_session_cost(w.session, 128, 0));
    }
    // Keys that left the window are freed, the others are not.
    assert_false(bt_sequence_truncate(sequence, 1000));
    assert_int_equal(bt_sequence_tokens(sequence), 3000);
    assert_true(bt_sequence_truncate(sequence, 2998));
    assert_true(bt_sequence_truncate(sequence, 0));
    bt_sequence_free(sequence);
    fixture_release(&w);
}

/* Two pages a layer are the limit: one sequence fills them. */
static void exceeding_the_limit_is_an_error_without_effect(void **state)
{
    (void)state;
    fixture w;
    bauta_error err;
    float logits[VOCAB];
    fixture_init(&w, family("llama"), NULL, 1, 0);
    uint64_t bytes = bt_decode_session_cost(w.session, 128, 0);
    fixture_release(&w);
    fixture_init(&w, family("llama"), NULL, 1, bytes);
    assert_int_equal(bt_decode_session_limit(w.session), bytes);
    sequence_make(&w, &w.all[0], 0);
    sequence_make(&w, &w.all[1], 0);
    sequence_model *a = &w.all[0], *b = &w.all[1];
    for (size_t t = 0; t < TOKENS; t++)
        a->ids[t] = b->ids[t] = (uint32_t)(t * 7 % VOCAB);
    bt_decode_input both[] = { INPUT(a->sequence, 64, a->ids, logits),
                               INPUT(b->sequence, 65, b->ids, NULL) };
    assert_int_equal(
        bt_decode_session_append(w.session, both, 2, NULL, NULL, &err),
        BAUTA_ERR_NOMEM);
    assert_non_null(strstr(err.message, "bytes are taken"));
    assert_int_equal(bt_decode_session_used(w.session), 0);
    bt_decode_input more = {
        .sequence = a->sequence, .count = 127, .ids = a->ids, .logits = NULL
    };
    assert_int_equal(
        bt_decode_session_append(w.session, &more, 1, NULL, NULL, &err), 0);
    assert_int_equal(bt_decode_session_used(w.session), bytes);
    more = (bt_decode_input){
        .sequence = a->sequence, .count = 2, .ids = a->ids + 127, .logits = NULL
    };
    assert_int_equal(
        bt_decode_session_append(w.session, &more, 1, NULL, NULL, &err),
        BAUTA_ERR_NOMEM);
    fork_to(a, b); // allocates nothing, and cannot write
    more = (bt_decode_input){
        .sequence = b->sequence, .count = 1, .ids = a->ids + 127, .logits = NULL
    };
    assert_int_equal(
        bt_decode_session_append(w.session, &more, 1, NULL, NULL, &err),
        BAUTA_ERR_NOMEM);
    sequence_model_free(b);
    more = (bt_decode_input){ .sequence = a->sequence,
                              .count = 1,
                              .ids = a->ids + 127,
                              .logits = logits };
    assert_int_equal(
        bt_decode_session_append(w.session, &more, 1, NULL, NULL, &err), 0);
    a->tokens = 128;
    compare(&w, a, logits);
    fixture_release(&w);
}

/* A small beam search in which every call may fail and is then repeated. */
typedef struct beam_search {
    fixture w;
    size_t step;
} beam_search;

static bauta_status beam_search_step(beam_search *l, float *logits,
                                     bauta_error *err)
{
    fixture *w = &l->w;
    const uint32_t *ids[] = { w->sources[0], w->sources[1] };
    bt_decode_input inputs[2];
    for (size_t i = 0; i < 2; i++)
        inputs[i] = (bt_decode_input){ .sequence = w->all[i].sequence,
                                       .count = 1,
                                       .ids = w->all[i].ids + 70,
                                       .logits = logits + i * VOCAB };
    switch (l->step) {
    case 0:
        return bt_decode_session_encode(w->session, 2, ids, w->lengths,
                                        w->cross_kvs, err);
    case 1:
        return bt_sequence_create(&w->all[0].sequence, w->session,
                                  w->cross_kvs[0], err);
    case 2:
        inputs[0].count = 70;
        inputs[0].ids = w->all[0].ids;
        return bt_decode_session_append(w->session, inputs, 1, NULL, NULL, err);
    case 3:
        return bt_sequence_fork(&w->all[1].sequence, w->all[0].sequence, err);
    default:
        return bt_decode_session_append(w->session, inputs, 2, NULL, NULL, err);
    }
}

static void a_session_survives_each_failing_allocation(void **state)
{
    (void)state;
    beam_search l = { .step = 0 };
    float logits[2 * VOCAB];
    faults_begin();
    fixture_init(&l.w, family("marian"), NULL, 2, 0);
    for (size_t i = 0; i < 2; i++)
        for (size_t t = 0; t < 71; t++)
            l.w.all[i].ids[t] = (uint32_t)(t < 70 ? t % VOCAB : 11 + i);
    l.w.lengths[0] = 70;
    l.w.lengths[1] = 5;
    for (size_t k = 0; l.step < 5; k++) {
        bauta_error err;
        faults_arm(k);
        bauta_status status = beam_search_step(&l, logits, &err);
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
    fixture_release(&l.w);
    assert_int_equal(faults_end(), 0);
}

/* ---- a share for each thread ----------------------------------------------
 */

enum { MANY = 96 };

static void sequences_make(fixture *w, bt_decode_input *inputs,
                           float (*logits)[VOCAB])
{
    static uint32_t ids[MANY];
    bauta_error err;
    for (size_t i = 0; i < MANY; i++) {
        ids[i] = (uint32_t)(i % VOCAB);
        inputs[i] = (bt_decode_input){
            .sequence = NULL, .count = 1, .ids = &ids[i], .logits = logits[i]
        };
        if (bt_sequence_create(&inputs[i].sequence, w->session,
                               w->cross_kvs[i * SOURCES / MANY], &err))
            fail_msg("%s", err.message);
    }
}

/* Three steps of many sequences; each allocation of the first one fails
 * once. */
static void sequences_append(fixture *w, bt_decode_input *inputs)
{
    bauta_error err;
    for (size_t step = 0, k = 0; step < 3; k++) {
        faults_arm(step ? SIZE_MAX / 2 : k);
        bauta_status status = bt_decode_session_append(w->session, inputs, MANY,
                                                       NULL, NULL, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        step += !failed;
        for (size_t i = 0; i < MANY; i++)
            assert_int_equal(bt_sequence_tokens(inputs[i].sequence), step);
    }
}

static void threads_change_no_bit_of_many_sequences(void **state)
{
    (void)state;
    static float logits[3][MANY][VOCAB];
    const char *const names[] = { "marian", "qwen2" };
    for (size_t n = 0; n < BT_LEN(names); n++)
        for (int t = 0; t < 3; t++) {
            fixture w;
            bt_decode_input inputs[MANY];
            faults_begin();
            fixture_init(&w, family(names[n]), NULL, t + 1, 0);
            fixture_encode(&w);
            sequences_make(&w, inputs, logits[t]);
            sequences_append(&w, inputs);
            for (size_t i = 0; i < MANY; i++)
                bt_sequence_free(inputs[i].sequence);
            fixture_release(&w);
            assert_int_equal(faults_end(), 0);
            same_bits("logits", logits[0][0], logits[t][0], MANY * VOCAB);
        }
}

/* ---- many short sequences ------------------------------------------------ */

/* A token for each sequence. */
static void step_all(fixture *w, sequence_model *all)
{
    static float logits[MANY][VOCAB];
    bt_decode_input inputs[MANY];
    bauta_error err;
    for (size_t i = 0; i < MANY; i++) {
        all[i].ids[all[i].tokens] = (uint32_t)test_below(&w->r, VOCAB);
        inputs[i] = (bt_decode_input)INPUT(
            all[i].sequence, 1, all[i].ids + all[i].tokens, logits[i]);
    }
    if (bt_decode_session_append(w->session, inputs, MANY, NULL, NULL, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < MANY; i++) {
        all[i].tokens++;
        compare(w, &all[i], logits[i]);
    }
}

/* Prompts of one to ninety tokens, so of one block or two. */
static void prompts_append(fixture *w, sequence_model *all)
{
    bt_decode_input inputs[MANY];
    bauta_error err;
    for (size_t i = 0; i < MANY; i++) {
        sequence_make(w, &all[i], i * SOURCES / MANY);
        all[i].tokens = 1 + i * 7 % 90;
        for (size_t t = 0; t < all[i].tokens; t++)
            all[i].ids[t] = (uint32_t)test_below(&w->r, VOCAB);
        inputs[i] = (bt_decode_input)INPUT(all[i].sequence, all[i].tokens,
                                           all[i].ids, NULL);
    }
    if (bt_decode_session_append(w->session, inputs, MANY, NULL, NULL, &err))
        fail_msg("%s", err.message);
}

static void steps_of_many_short_sequences_equal_the_parallel_pass(void **state)
{
    (void)state;
    static sequence_model all[MANY];
    const char *const names[] = { "marian", "gpt2", "qwen2" };
    const char *const isas[] = { "c", "avx2", NULL };
    for (size_t n = 0; n < BT_LEN(names) * BT_LEN(isas); n++) {
        fixture w;
        const char *isa = isas[n % BT_LEN(isas)];
        if (isa && !bt_kernels_get(isa))
            continue;
        fixture_init(&w, family(names[n / BT_LEN(isas)]), isa, 1, 0);
        fixture_encode(&w);
        prompts_append(&w, all);
        for (size_t step = 0; step < 3; step++)
            step_all(&w, all);
        for (size_t i = 0; i < MANY; i++)
            sequence_model_free(&all[i]);
        fixture_release(&w);
    }
}

/* ---- memory -------------------------------------------------------------- */

static void a_step_within_a_page_allocates_nothing(void **state)
{
    (void)state;
    fixture w;
    float logits[VOCAB];
    uint32_t ids[10] = { 1, 2, 3 };
    faults_begin();
    fixture_init(&w, family("qwen2"), NULL, 2, 0);
    sequence_make(&w, &w.all[0], 0);
    bt_decode_input input = {
        .sequence = w.all[0].sequence, .count = 10, .ids = ids, .logits = logits
    };
    assert_int_equal(
        bt_decode_session_append(w.session, &input, 1, NULL, NULL, NULL), 0);
    input.count = 1;
    faults_arm(0);
    for (size_t t = 0; t < 50; t++)
        assert_int_equal(
            bt_decode_session_append(w.session, &input, 1, NULL, NULL, NULL),
            0);
    assert_false(faults_disarm());
    fixture_release(&w);
    assert_int_equal(faults_end(), 0);
}

/* ---- refusals ------------------------------------------------------------ */

static void refused(bauta_status status, const bauta_error *err,
                    const char *message)
{
    assert_int_equal(status, BAUTA_ERR_ARGUMENT);
    if (!strstr(err->message, message))
        fail_msg("want \"%s\", got \"%s\"", message, err->message);
}

static void inputs_that_cannot_be_appended_are_named(void **state)
{
    (void)state;
    fixture w, v;
    bauta_error err;
    uint32_t ids[100] = { 1, 2, VOCAB };
    fixture_init(&w, family("gpt2"), NULL, 1, 0);
    fixture_init(&v, family("gpt2"), NULL, 1, 0);
    sequence_make(&w, &w.all[0], 0);
    sequence_make(&v, &v.all[0], 0);
    bt_sequence *s = w.all[0].sequence;
    const struct {
        bt_decode_input inputs[2];
        const char *message;
    } calls[] = {
        { { INPUT(s, 1, ids, NULL), INPUT(NULL, 1, ids, NULL) },
          "input 1 has no sequence" },
        { { INPUT(s, 1, ids, NULL), INPUT(v.all[0].sequence, 1, ids, NULL) },
          "input 1 belongs to another session" },
        { { INPUT(s, 1, ids, NULL), INPUT(s, 1, ids, NULL) },
          "input 1 is given twice" },
        { { INPUT(s, 0, ids, NULL) }, "input 0 has no tokens" },
        { { INPUT(s, 1, NULL, NULL) }, "input 0 has no ids" },
        { { INPUT(s, 3, ids, NULL) }, "token 2: id 40 is not in a vocabulary" },
        { { INPUT(s, 97, ids + 3, NULL) }, "97 tokens, the model has 96" },
    };
    for (size_t i = 0; i < BT_LEN(calls); i++) {
        size_t count = i < 3 ? 2 : 1;
        refused(bt_decode_session_append(w.session, calls[i].inputs, count,
                                         NULL, NULL, &err),
                &err, calls[i].message);
        assert_int_equal(bt_decode_session_used(w.session), 0);
    }
    bt_decode_input input = {
        .sequence = s, .count = 96, .ids = ids + 3, .logits = NULL
    };
    assert_int_equal(
        bt_decode_session_append(w.session, &input, 1, NULL, NULL, &err), 0);
    input.count = 1;
    refused(bt_decode_session_append(w.session, &input, 1, NULL, NULL, &err),
            &err, "97 tokens");
    fixture_release(&w);
    fixture_release(&v);
}

static void sources_belong_to_models_that_have_them(void **state)
{
    (void)state;
    fixture w, v;
    bauta_error err;
    bt_cross_kv *cross_kv = NULL;
    bt_sequence *sequence = NULL;
    uint32_t ids[100] = { VOCAB };
    const uint32_t *const source = ids;
    size_t length = 1;
    fixture_init(&w, family("marian"), NULL, 1, 0);
    fixture_init(&v, family("gpt2"), NULL, 1, 0);
    fixture_encode(&w);
    refused(bt_decode_session_encode(w.session, 1, &source, &length, &cross_kv,
                                     &err),
            &err, "source 0, token 0: id 40");
    ids[0] = 0;
    length = 0;
    refused(bt_decode_session_encode(w.session, 1, &source, &length, &cross_kv,
                                     &err),
            &err, "source 0 is empty");
    length = 97;
    refused(bt_decode_session_encode(w.session, 1, &source, &length, &cross_kv,
                                     &err),
            &err, "97 tokens, the model has 96");
    refused(bt_decode_session_encode(v.session, 1, &source, &length, &cross_kv,
                                     &err),
            &err, "does not read a source");
    assert_null(cross_kv);
    refused(bt_sequence_create(&sequence, w.session, NULL, &err), &err,
            "needs a source");
    refused(bt_sequence_create(&sequence, v.session, w.cross_kvs[0], &err),
            &err, "has no source");
    assert_null(sequence);
    fixture_release(&w);
    fixture_release(&v);
}

static void an_encoder_only_model_has_no_session(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512];
    bauta_error err;
    bauta_model *model = NULL;
    bt_decode_session *session = NULL;
    bauta_context *context = test_context(NULL, 1);
    tiny_write(&s, family("bert"), path);
    assert_int_equal(bauta_model_load(&model, path, false, NULL), 0);
    refused(bt_decode_session_create(&session, context, model, 0, &err), &err,
            "encoder-only");
    assert_null(session);
    bauta_model_free(model);
    bauta_context_free(context);
    temp_folder_free(&s);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_keep_sequences_equal_to_token_lists),
        cmocka_unit_test(a_window_bounds_the_memory_of_a_long_sequence),
        cmocka_unit_test(exceeding_the_limit_is_an_error_without_effect),
        cmocka_unit_test(a_session_survives_each_failing_allocation),
        cmocka_unit_test(threads_change_no_bit_of_many_sequences),
        cmocka_unit_test(steps_of_many_short_sequences_equal_the_parallel_pass),
        cmocka_unit_test(a_step_within_a_page_allocates_nothing),
        cmocka_unit_test(inputs_that_cannot_be_appended_are_named),
        cmocka_unit_test(sources_belong_to_models_that_have_them),
        cmocka_unit_test(an_encoder_only_model_has_no_session),
    };
    return cmocka_run_group_tests_name("decode_session", tests, NULL, NULL);
}
