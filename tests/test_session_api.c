/* SPDX-License-Identifier: Apache-2.0 */
/* test_session_api.c - the public decode session: whatever is appended, forked
 * and truncated, the logits are those of the parallel pass, bit for bit. And
 * the logits that a generator reports. */
#include "allocation_faults.h"
#include "generation_fixtures.h"
#include "tiny_models.h"

enum { VOCAB = 40, SEQUENCES = 5, TOKENS = 96, SOURCE = 20, START = 39 };

static uint64_t seed;

/* ---- a session, and the tokens that must be in it --------------------------
 */

typedef struct listed {
    bool open;
    size_t number; /* in the session */
    size_t tokens, source_count;
    uint32_t ids[TOKENS], source[SOURCE];
} listed;

typedef struct world {
    test_random r;
    bauta_context *context, *other; /* the other one runs the parallel pass */
    bauta_model *model;
    bauta_decode_session *session;
    listed all[SEQUENCES];
    size_t compared;
} world;

static bool has_sources(const world *w)
{
    return bauta_model_kind_of(w->model) == BAUTA_ENCODER_DECODER;
}

static void world_init(world *w, const char *config, int threads)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    *w = (world){ .r = test_random_from(seed) };
    options.threads = threads;
    MUST(bauta_context_create(&w->context, &options, &err), &err);
    options.threads = 1;
    MUST(bauta_context_create(&w->other, &options, &err), &err);
    MUST(bauta_model_create(&w->model, config, 5, &err), &err);
    MUST(bauta_decode_session_create(&w->session, w->context, w->model, &err),
         &err);
}

static void world_release(world *w)
{
    bauta_decode_session_free(w->session); // with sequences that are open
    bauta_model_free(w->model);
    bauta_context_free(w->context);
    bauta_context_free(w->other);
}

/* The logits of every token of a list in one pass. */
static void parallel(world *w, const listed *l, float *logits)
{
    bauta_batch source = BAUTA_BATCH_INIT, target = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    source.count = target.count = 1;
    source.lengths = &l->source_count;
    source.ids = l->source;
    target.lengths = &l->tokens;
    target.ids = l->ids;
    outputs.logits = logits;
    MUST(bauta_model_forward(w->other, w->model,
                             has_sources(w) ? &source : NULL, &target, &outputs,
                             &err),
         &err);
}

static void compare(world *w, const listed *l, const float *got)
{
    static float want[TOKENS * VOCAB];
    parallel(w, l, want);
    assert_memory_equal(want + (l->tokens - 1) * VOCAB, got,
                        VOCAB * sizeof(float));
    w->compared++;
}

static void open_one(world *w, listed *l)
{
    bauta_error err;
    *l = (listed){ .open = true };
    if (has_sources(w))
        l->source_count = 1 + test_below(&w->r, SOURCE);
    for (size_t i = 0; i < SOURCE; i++)
        l->source[i] = (uint32_t)test_below(&w->r, VOCAB);
    MUST(bauta_decode_session_open(w->session,
                                   has_sources(w) ? l->source : NULL,
                                   l->source_count, &l->number, &err),
         &err);
    assert_int_equal(bauta_decode_session_tokens(w->session, l->number), 0);
}

static void close_one(world *w, listed *l)
{
    bauta_decode_session_close(w->session, l->number);
    assert_int_equal(bauta_decode_session_tokens(w->session, l->number), 0);
    l->open = false;
}

/* Where no layer has a window every truncation is possible. */
static void truncate_one(world *w, listed *l)
{
    bauta_error err;
    size_t tokens = test_below(&w->r, l->tokens + 1);
    size_t last = bauta_model_decoder_layers(w->model) - 1;
    bauta_status status =
        bauta_decode_session_truncate(w->session, l->number, tokens, &err);
    if (!status)
        l->tokens = tokens;
    else
        assert_true(bauta_model_sliding_window(w->model, last) > 0 &&
                    strstr(err.message, "sliding window"));
    assert_int_equal(bauta_decode_session_tokens(w->session, l->number),
                     l->tokens);
}

static void fork_one(world *w, const listed *from, listed *to)
{
    bauta_error err;
    if (from == to)
        return;
    if (to->open)
        close_one(w, to);
    *to = *from;
    MUST(bauta_decode_session_fork(w->session, from->number, &to->number, &err),
         &err);
    assert_true(to->number != from->number);
}

/* Some sequences in one call, with pieces of one token or of many. */
static void append_some(world *w)
{
    static float logits[SEQUENCES][VOCAB];
    bauta_decode_input inputs[SEQUENCES];
    listed *lists[SEQUENCES];
    bauta_error err;
    size_t count = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        listed *l = &w->all[i];
        size_t room = TOKENS - l->tokens;
        size_t n = test_below(&w->r, 2) ? 1 : 1 + test_below(&w->r, 40);
        n = n < room ? n : room;
        if (!l->open || n == 0 || test_below(&w->r, 4) == 0)
            continue;
        for (size_t k = 0; k < n; k++)
            l->ids[l->tokens + k] = (uint32_t)test_below(&w->r, VOCAB);
        inputs[count] = (bauta_decode_input)BAUTA_DECODE_INPUT_INIT;
        inputs[count].sequence = l->number;
        inputs[count].tokens = l->ids + l->tokens;
        inputs[count].count = n;
        inputs[count].logits = test_below(&w->r, 4) ? logits[i] : NULL;
        lists[count++] = l;
    }
    MUST(bauta_decode_session_append(w->session, inputs, count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        lists[i]->tokens += inputs[i].count;
        assert_int_equal(
            bauta_decode_session_tokens(w->session, lists[i]->number),
            lists[i]->tokens);
        if (inputs[i].logits)
            compare(w, lists[i], inputs[i].logits);
    }
}

static void something_happens(world *w)
{
    listed *l = &w->all[test_below(&w->r, SEQUENCES)];
    size_t what = test_below(&w->r, 10);
    if (!l->open)
        open_one(w, l);
    else if (what == 0)
        close_one(w, l);
    else if (what < 3)
        truncate_one(w, l);
    else if (what < 5)
        fork_one(w, l, &w->all[test_below(&w->r, SEQUENCES)]);
    else
        append_some(w);
}

static void cached_steps_are_the_parallel_pass(void **state)
{
    (void)state;
    size_t families = 0;
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            world w;
            if (strstr(tinies[i].name, "bert"))
                continue;
            world_init(&w, tinies[i].config, threads);
            w.r = test_random_from(seed + 10 * i + (size_t)threads);
            for (size_t step = 0; step < 150; step++)
                something_happens(&w);
            assert_true(w.compared > 40);
            world_release(&w);
            families++;
        }
    assert_int_equal(families, 22);
}

/* ---- the logits of a generator ---------------------------------------------
 */

typedef struct heard {
    float logits[TOKENS][VOCAB];
    size_t count, tokens;
} heard;

static void on_logits(void *user, size_t position, const float *logits,
                      size_t vocab)
{
    heard *h = user;
    assert_int_equal(vocab, VOCAB);
    assert_int_equal(position, h->count);
    memcpy(h->logits[h->count++], logits, sizeof(h->logits[0]));
}

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    heard *h = user;
    (void)logprob;
    (void)text;
    (void)length;
    if (token != BAUTA_NO_TOKEN)
        assert_int_equal(++h->tokens, h->count); // logits come first
    return true;
}

/* Requests that begin and end at different steps, read in pieces of 7. */
static void generator_logits(const char *config)
{
    enum { TEXTS = 4 };
    static heard heards[TEXTS];
    static float want[TOKENS * VOCAB];
    world w;
    listed lists[TEXTS];
    bauta_request requests[TEXTS];
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT, each[TEXTS];
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_result *results[TEXTS];
    world_init(&w, config, 2);
    options.do_sample = true;
    options.temperature = 1.5f;
    options.repetition_penalty = 1.2f;
    options.decoder_start_token_id = START;
    how.max_batched_tokens = 7;
    memset(heards, 0, sizeof(heards));
    for (size_t i = 0; i < TEXTS; i++) {
        listed *l = &lists[i];
        *l = (listed){ .tokens = 1 + 6 * i };
        for (size_t k = 0; k < TOKENS; k++)
            l->ids[k] = (uint32_t)test_below(&w.r, VOCAB);
        for (size_t k = 0; k < SOURCE; k++)
            l->source[k] = (uint32_t)test_below(&w.r, VOCAB);
        l->ids[0] = START;
        l->source_count = has_sources(&w) ? 5 + i : 0;
        each[i] = options;
        each[i].seed = i;
        each[i].max_new_tokens = 10 + 5 * i;
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].tokens = l->ids + has_sources(&w); // the start is added
        requests[i].count = l->tokens - has_sources(&w);
        requests[i].source = l->source;
        requests[i].source_count = l->source_count;
        requests[i].options = &each[i];
        requests[i].on_logits = on_logits;
        requests[i].on_token = on_token;
        requests[i].user = &heards[i];
    }
    generation_fixture s = { w.context, w.model, NULL };
    generate_all(&s, &how, requests, TEXTS, results);
    for (size_t i = 0; i < TEXTS; i++) {
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        size_t prompt = lists[i].tokens;
        assert_int_equal(heards[i].count, h->count);
        assert_int_equal(heards[i].tokens, h->count);
        memcpy(lists[i].ids + prompt, h->tokens,
               (h->count - 1) * sizeof(*h->tokens));
        lists[i].tokens += h->count - 1;
        parallel(&w, &lists[i], want);
        assert_memory_equal(want + (prompt - 1) * VOCAB, heards[i].logits,
                            h->count * VOCAB * sizeof(float));
    }
    results_free(results, TEXTS);
    world_release(&w);
}

static void a_generator_reports_the_logits_of_the_parallel_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (!strstr(tinies[i].name, "bert"))
            generator_logits(tinies[i].config);
}

static void beams_report_no_logits(void **state)
{
    (void)state;
    static heard h;
    world w;
    bauta_error err;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_result *result;
    const uint32_t prompt[] = { 1, 2, 3 };
    world_init(&w, tinies[0].config, 1);
    options.num_beams = 3;
    options.max_new_tokens = 4;
    request.tokens = prompt;
    request.count = 3;
    request.options = &options;
    request.on_logits = on_logits;
    request.user = &h;
    MUST(bauta_generate(w.context, w.model, NULL, &request, &result, &err),
         &err);
    assert_int_equal(h.count, 0);
    bauta_result_free(result);
    world_release(&w);
}

/* ---- misuse ----------------------------------------------------------------
 */

static void refused(bauta_status status, const bauta_error *err,
                    const char *says)
{
    assert_int_equal(status, BAUTA_ERR_ARGUMENT);
    assert_string_equal(err->message, says);
}

static void sessions_are_checked(void **state)
{
    (void)state;
    world w;
    bauta_error err;
    bauta_decode_session *session = NULL;
    bauta_model *bert;
    size_t n;
    world_init(&w, tinies[0].config, 1);
    MUST(bauta_model_create(&bert, tinies[5].config, 1, &err), &err);
    refused(bauta_decode_session_create(NULL, w.context, w.model, &err), &err,
            "out is NULL");
    refused(bauta_decode_session_create(&session, NULL, w.model, &err), &err,
            "context is NULL");
    refused(bauta_decode_session_create(&session, w.context, NULL, &err), &err,
            "model is NULL");
    refused(bauta_decode_session_create(&session, w.context, bert, &err), &err,
            "an encoder-only model cannot generate text");
    assert_null(session);
    refused(bauta_decode_session_open(NULL, NULL, 0, &n, &err), &err,
            "session is NULL");
    refused(bauta_decode_session_open(w.session, NULL, 0, NULL, &err), &err,
            "sequence is NULL");
    const uint32_t source[] = { 1, 2 };
    refused(bauta_decode_session_open(w.session, source, 2, &n, &err), &err,
            "a decoder-only model does not read a source");
    refused(bauta_decode_session_fork(w.session, 0, &n, &err), &err,
            "there is no sequence 0");
    refused(bauta_decode_session_fork(NULL, 0, &n, &err), &err,
            "session is NULL");
    refused(bauta_decode_session_truncate(w.session, SIZE_MAX, 0, &err), &err,
            "there is no sequence 18446744073709551615");
    refused(bauta_decode_session_truncate(NULL, 0, 0, &err), &err,
            "session is NULL");
    bauta_decode_session_close(w.session, 3);
    bauta_decode_session_close(NULL, 0);
    assert_int_equal(bauta_decode_session_tokens(NULL, 0), 0);
    bauta_decode_session_free(NULL);
    bauta_model_free(bert);
    world_release(&w);
}

static void sources_are_checked(void **state)
{
    (void)state;
    world w;
    bauta_error err;
    size_t n;
    const uint32_t source[] = { 1, 40 };
    world_init(&w, tinies[7].config, 1);
    refused(bauta_decode_session_open(w.session, NULL, 0, &n, &err), &err,
            "a sequence of an encoder-decoder needs a source");
    refused(bauta_decode_session_open(w.session, NULL, 2, &n, &err), &err,
            "source 0 has no ids");
    refused(bauta_decode_session_open(w.session, source, 0, &n, &err), &err,
            "source 0 is empty");
    refused(bauta_decode_session_open(w.session, source, 2, &n, &err), &err,
            "source 0, token 1: id 40 is not in a vocabulary of 40");
    refused(bauta_decode_session_open(w.session, source, SIZE_MAX, &n, &err),
            &err,
            "source 0 has 18446744073709551615 tokens, the model has 96 "
            "positions");
    MUST(bauta_decode_session_open(w.session, source, 1, &n, &err), &err);
    assert_int_equal(n, 0);
    world_release(&w);
}

static void inputs_are_checked(void **state)
{
    (void)state;
    world w;
    bauta_error err;
    uint32_t ids[] = { 1, 2, 40 };
    size_t n;
    bauta_decode_input input = BAUTA_DECODE_INPUT_INIT;
    world_init(&w, tinies[0].config, 1);
    MUST(bauta_decode_session_open(w.session, NULL, 0, &n, &err), &err);
    MUST(bauta_decode_session_open(w.session, NULL, 0, &n, &err), &err);
    input.sequence = n;
    input.tokens = ids;
    input.count = 2;
    MUST(bauta_decode_session_append(w.session, &input, 1, &err), &err);
    MUST(bauta_decode_session_append(w.session, NULL, 0, &err), &err);
    refused(bauta_decode_session_append(NULL, &input, 1, &err), &err,
            "session is NULL");
    refused(bauta_decode_session_append(w.session, NULL, 1, &err), &err,
            "inputs is NULL");
    refused(bauta_decode_session_append(w.session, &input, SIZE_MAX, &err),
            &err, "there are 18446744073709551615 inputs for 2 sequences");
    bauta_decode_input twice[] = { input, input };
    refused(bauta_decode_session_append(w.session, twice, 2, &err), &err,
            "the sequence of input 1 is given twice");
    input.count = 3;
    refused(bauta_decode_session_append(w.session, &input, 1, &err), &err,
            "input 0, token 2: id 40 is not in a vocabulary of 40");
    input.count = 0;
    refused(bauta_decode_session_append(w.session, &input, 1, &err), &err,
            "input 0 has no tokens");
    input.tokens = NULL;
    input.count = 1;
    refused(bauta_decode_session_append(w.session, &input, 1, &err), &err,
            "input 0 has no ids");
    input.sequence = 7;
    refused(bauta_decode_session_append(w.session, &input, 1, &err), &err,
            "there is no sequence 7");
    input.size = 1;
    refused(
        bauta_decode_session_append(w.session, &input, 1, &err), &err,
        "inputs[0].size is 1, which no version of the struct has: start from "
        "BAUTA_DECODE_INPUT_INIT");
    refused(bauta_decode_session_truncate(w.session, n, 3, &err), &err,
            "sequence 1 has 2 tokens, of which 3 are to be kept");
    assert_int_equal(bauta_decode_session_tokens(w.session, n), 2);
    bauta_decode_session_close(w.session, 0);
    MUST(bauta_decode_session_open(w.session, NULL, 0, &n, &err), &err);
    assert_int_equal(n, 0); // the number is used again
    world_release(&w);
}

/* ---- memory ----------------------------------------------------------------
 */

/* A call is repeated until it succeeds, with each allocation failing once. */
#define EACH_FAILS(call)                                                   \
    do {                                                                   \
        bauta_status status;                                               \
        size_t k = 0;                                                      \
        do {                                                               \
            faults_arm(k++);                                               \
            status = (call);                                               \
            bool failed = faults_disarm();                                 \
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK); \
        } while (status);                                                  \
        fails += k - 1;                                                    \
    } while (0)

static void each_allocation_may_fail(const char *config)
{
    world w;
    size_t fails = 0;
    float logits[2][VOCAB];
    bauta_error err;
    faults_begin();
    world_init(&w, config, 1);
    bauta_decode_session_free(w.session);
    EACH_FAILS(
        bauta_decode_session_create(&w.session, w.context, w.model, &err));
    listed *a = &w.all[0], *b = &w.all[1];
    *a = (listed){ .tokens = 70, .source_count = has_sources(&w) ? 9 : 0 };
    for (size_t i = 0; i < TOKENS; i++)
        a->ids[i] = (uint32_t)(i * 7 % VOCAB);
    EACH_FAILS(bauta_decode_session_open(w.session,
                                         has_sources(&w) ? a->source : NULL,
                                         a->source_count, &a->number, &err));
    bauta_decode_input both[2] = { BAUTA_DECODE_INPUT_INIT,
                                   BAUTA_DECODE_INPUT_INIT };
    both[0].sequence = a->number;
    both[0].tokens = a->ids;
    both[0].count = 70;
    both[0].logits = logits[0];
    EACH_FAILS(bauta_decode_session_append(w.session, both, 1, &err));
    compare(&w, a, logits[0]);
    *b = *a;
    EACH_FAILS(
        bauta_decode_session_fork(w.session, a->number, &b->number, &err));
    b->ids[70] = 3;
    a->tokens = b->tokens = 71;
    both[0].tokens = a->ids + 70;
    both[1].sequence = b->number;
    both[1].tokens = b->ids + 70;
    both[0].count = both[1].count = 1;
    both[1].logits = logits[1];
    EACH_FAILS(bauta_decode_session_append(w.session, both, 2, &err));
    compare(&w, a, logits[0]);
    compare(&w, b, logits[1]);
    assert_true(fails > 10);
    world_release(&w);
    assert_int_equal(faults_end(), 0);
}

static void a_call_without_memory_changes_nothing(void **state)
{
    (void)state;
    each_allocation_may_fail(tinies[1].config);
    each_allocation_may_fail(tinies[7].config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_steps_are_the_parallel_pass),
        cmocka_unit_test(a_generator_reports_the_logits_of_the_parallel_pass),
        cmocka_unit_test(beams_report_no_logits),
        cmocka_unit_test(sessions_are_checked),
        cmocka_unit_test(sources_are_checked),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(a_call_without_memory_changes_nothing),
    };
    seed = test_seed();
    return cmocka_run_group_tests_name("session_api", tests, NULL, NULL);
}
