/* SPDX-License-Identifier: Apache-2.0 */
/* test_generator.c - generation is batch-invariant: a request gets the same
 * bits whatever runs beside it. */
#include "allocation_faults.h"
#include "random_requests.h"
#include "tiny_models.h"

#include "backend/backend.h"
#include "runtime/context.h"

#include <math.h>

static temp_folder place;
static char folders[BT_LEN(tinies)][512];
static uint64_t seed;

static int folders_write(void **state)
{
    (void)state;
    seed = test_seed();
    place = temp_folder_create();
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        tiny_write(&place, &tinies[i], folders[i]);
    return 0;
}

static int folders_remove(void **state)
{
    (void)state;
    temp_folder_free(&place);
    return 0;
}

static const char *folder_of(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (!strcmp(tinies[i].name, name))
            return folders[i];
    fail();
    return NULL;
}

/* ---- other requests
 * ----------------------------------------------------------- */

/* The result of each request alone, without a cache. If the options leave no
 * token to choose, *errors has the message. */
static void alone(const generation_fixture *s, const random_request *drawn,
                  size_t count, bauta_result **results)
{
    bauta_error err;
    for (size_t i = 0; i < count; i++)
        MUST(slow_generate(s->context, s->model, s->tokenizer,
                           &drawn[i].request, &results[i], &err),
             &err);
}

static const char *const families[] = { "gpt2",  "llama",  "mistral", "qwen2",
                                        "qwen3", "marian", "bart" };

static void other_requests_change_no_bit(void **state)
{
    (void)state;
    static random_request drawn[MANY];
    bauta_result *want[MANY], *got[MANY];
    for (size_t m = 0; m < BT_LEN(families); m++) {
        test_random r = test_random_from(seed + m);
        int threads = 1 << test_below(&r, 3);
        generation_fixture s =
            generation_fixture_load(folder_of(families[m]), false, threads);
        bool encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
        size_t shared = 0;
        random_requests_draw(&r, drawn, MANY, encoder);
        alone(&s, drawn, MANY, want);
        for (size_t round = 0; round < 4; round++) {
            bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
            o.max_sequences = 5 + test_below(&r, 40);
            o.max_batched_tokens = 1 + test_below(&r, 60);
            o.cached_sequences = test_below(&r, 2) * 3;
            generate_arriving(&r, &s, &o, drawn, MANY, got);
            for (size_t i = 0; i < MANY; i++) {
                shared += got[i]->cached_tokens;
                results_equal(want[i], got[i]);
            }
            results_free(got, MANY);
        }
        printf("%s: %zu tokens were shared\n", families[m], shared);
        assert_true(shared > 0);
        results_free(want, MANY);
        generation_fixture_release(&s);
    }
}

/* ---- steps ahead ------------------------------------------------------- */

/* The CPU as a device whose tokens the host knows late: results are given out
 * by sample_read() only. */
typedef struct late_sampling {
    bt_sampling base;
    size_t count;
    bt_sample_status status[64];
    bt_sampled_token token[64];
    uint32_t ids[64];
    bt_buffer buffer;
    bool pending;
} late_sampling;

static size_t queued_samplings;

static bauta_status late_queue(bt_stream *stream, bt_sampling **out,
                               const bt_sample_args *args, bt_tensor *tokens,
                               bauta_error *err)
{
    late_sampling *s = (late_sampling *)*out;
    if (!s)
        s = calloc(1, sizeof(*s));
    assert_non_null(s);
    assert_false(s->pending);
    assert_in_range(args->count, 1, BT_LEN(s->ids));
    *out = &s->base;
    s->base.backend = stream->backend;
    s->count = args->count;
    bauta_status status = bt_cpu_backend.sample(stream, args, err);
    for (size_t i = 0; i < args->count; i++) {
        bt_sample_item *item = &args->items[i];
        assert_int_equal(item->row, args->items[0].row + i);
        s->status[i] = item->status;
        s->token[i] = item->token;
        s->ids[i] = item->status ? 0 : item->token.token;
        item->status = BT_SAMPLE_OK;
        item->token.token = VOCAB + 1; // not known yet
    }
    s->buffer = bt_buffer_of_host(s->ids, sizeof(s->ids));
    *tokens = bt_tensor_of(&s->buffer, BAUTA_UINT32, s->count, 1);
    s->pending = !status;
    queued_samplings++;
    return status;
}

static bauta_status late_read(bt_stream *stream, bt_sampling *base,
                              const bt_sample_args *args, bauta_error *err)
{
    late_sampling *s = (late_sampling *)base;
    (void)stream;
    (void)err;
    assert_true(s->pending);
    assert_int_equal(args->count, s->count);
    for (size_t i = 0; i < s->count; i++) {
        args->items[i].status = s->status[i];
        args->items[i].token = s->token[i];
    }
    s->pending = false;
    return BAUTA_OK;
}

static void late_free(bt_sampling *base)
{
    free(base);
}

/* Without what reads the tokens before, but for a few. */
static void forget_history(test_random *r, random_request *w)
{
    bauta_generate_options *o = &w->options;
    if (test_below(r, 12) == 0)
        return;
    o->num_beams = o->num_return_sequences = 1;
    o->repetition_penalty = 1.0f;
    o->presence_penalty = o->frequency_penalty = 0.0f;
    o->no_repeat_ngram_size = 0;
    o->bad_word_count = 0;
    o->max_new_tokens = 1 + test_below(r, 40);
}

static void steps_queued_ahead_change_no_bit(void **state)
{
    (void)state;
    static random_request drawn[MANY];
    static bt_backend late;
    bauta_result *want[MANY], *got[MANY];
    late = bt_cpu_backend;
    late.sample_queue = late_queue;
    late.sample_read = late_read;
    late.sampling_free = late_free;
    for (size_t m = 0; m < BT_LEN(families); m++) {
        test_random r = test_random_from(seed + 50 + m);
        generation_fixture s =
            generation_fixture_load(folder_of(families[m]), false, 1);
        bool encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
        random_requests_draw(&r, drawn, MANY, encoder);
        for (size_t i = 0; i < MANY; i++)
            forget_history(&r, &drawn[i]);
        alone(&s, drawn, MANY, want);
        queued_samplings = 0;
        for (size_t round = 0; round < 4; round++) {
            bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
            o.max_sequences = 6 + test_below(&r, 8);
            o.max_batched_tokens = 1 + test_below(&r, 60);
            o.cached_sequences = test_below(&r, 2) * 3;
            s.context->stream->backend = &late;
            generate_arriving(&r, &s, &o, drawn, MANY, got);
            s.context->stream->backend = &bt_cpu_backend;
            for (size_t i = 0; i < MANY; i++)
                results_equal(want[i], got[i]);
            results_free(got, MANY);
        }
        printf("%s: %zu samplings were queued\n", families[m],
               queued_samplings);
        assert_true(queued_samplings > 0);
        results_free(want, MANY);
        generation_fixture_release(&s);
    }
}

/* ---- the bound --------------------------------------------------------- */

static bauta_request plain(const uint32_t *ids, size_t count,
                           const bauta_generate_options *o)
{
    bauta_request r = BAUTA_REQUEST_INIT;
    r.tokens = ids;
    r.count = count;
    r.options = o;
    return r;
}

static void requests_wait_until_they_fit(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 1, 2, 3 };
    enum { COUNT = 6 };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_generator_options narrow = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_request requests[COUNT];
    bauta_result *wide[COUNT], *tight[COUNT];
    bauta_generator *g;
    bauta_error err;
    uint64_t most = 0;
    size_t left = COUNT;
    generation_fixture s =
        generation_fixture_load(folder_of("llama"), false, 1);
    o.max_new_tokens = 20;
    for (size_t i = 0; i < COUNT; i++)
        requests[i] = plain(ids, 3, &o);
    generate_all(&s, NULL, requests, COUNT, wide);
    // The message states how much memory is needed.
    narrow.cache_bytes = 1;
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, &narrow, &err),
         &err);
    assert_int_not_equal(bauta_generator_add(g, &requests[0], &err), BAUTA_OK);
    unsigned long long need = 0;
    assert_int_equal(sscanf(err.message, "the request may need %llu", &need),
                     1);
    assert_non_null(strstr(err.message, "the cache has 1"));
    bauta_generator_free(g);
    narrow.cache_bytes = need * 2;
    narrow.cached_sequences = 2;
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, &narrow, &err),
         &err);
    for (size_t i = 0; i < COUNT; i++) {
        requests[i].tag = i;
        MUST(bauta_generator_add(g, &requests[i], &err), &err);
    }
    while (left) {
        MUST(bauta_generator_step(g, &left, &err), &err);
        uint64_t bytes = bauta_generator_bytes(g);
        most = bytes > most ? bytes : most;
        for (bauta_result *r; (r = bauta_generator_take(g));)
            tight[r->tag] = r;
    }
    assert_true(most > 0 && most <= need * 2);
    for (size_t i = 0; i < COUNT; i++)
        results_equal(wide[i], tight[i]);
    bauta_generator_free(g);
    results_free(wide, COUNT);
    results_free(tight, COUNT);
    generation_fixture_release(&s);
}

/* The bytes of pages after the first step of some translations, of which one
 * runs at a time. The others still wait when the generator is freed. */
static uint64_t bytes_of_a_step(const generation_fixture *s, uint64_t cache)
{
    static const uint32_t sources[][3] = { { 1, 2, 3 }, { 4, 5 }, { 6 } };
    bauta_generator_options narrow = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_generator *g;
    bauta_error err;
    o.max_new_tokens = 8;
    o.decoder_start_token_id = 0;
    narrow.max_sequences = 1;
    narrow.cache_bytes = cache;
    MUST(bauta_generator_create(&g, s->context, s->model, NULL, &narrow, &err),
         &err);
    for (size_t i = 0; i < BT_LEN(sources); i++) {
        bauta_request r = plain(NULL, 0, &o);
        r.source = sources[i];
        r.source_count = BT_LEN(sources) - i;
        MUST(bauta_generator_add(g, &r, &err), &err);
    }
    MUST(bauta_generator_step(g, NULL, &err), &err);
    uint64_t bytes = bauta_generator_bytes(g);
    bauta_generator_free(g);
    return bytes;
}

static void waiting_sources_are_encoded_ahead(void **state)
{
    (void)state;
    generation_fixture s =
        generation_fixture_load(folder_of("marian"), false, 1);
    // A page of tokens and a page of a source; two more sources wait.
    uint64_t ahead = bytes_of_a_step(&s, 0);
    uint64_t bounded = bytes_of_a_step(&s, ahead);
    assert_true(bounded > 0);
    assert_int_equal(ahead, 2 * bounded);
    generation_fixture_release(&s);
}

static void cached_prefixes_are_shared(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_generator_options keep = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *g;
    bauta_error err;
    bauta_result *first, *second;
    size_t left = 1;
    generation_fixture s = generation_fixture_load(folder_of("gpt2"), false, 1);
    o.max_new_tokens = 4;
    keep.cached_sequences = 1;
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, &keep, &err),
         &err);
    bauta_request r = plain(ids, 8, &o);
    for (left = 1, bauta_generator_add(g, &r, NULL); left;)
        MUST(bauta_generator_step(g, &left, &err), &err);
    first = bauta_generator_take(g);
    for (left = 1, bauta_generator_add(g, &r, NULL); left;)
        MUST(bauta_generator_step(g, &left, &err), &err);
    second = bauta_generator_take(g);
    assert_int_equal(first->cached_tokens, 0);
    assert_int_equal(second->cached_tokens, 7);
    assert_int_equal(second->prompt_tokens, 8);
    results_equal(first, second);
    bauta_result_free(first);
    bauta_result_free(second);
    bauta_generator_free(g);
    generation_fixture_release(&s);
}

/* ---- callbacks --------------------------------------------------------- */

typedef struct token_log {
    size_t calls, stop_at, last;
    uint32_t tokens[64];
} token_log;

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    token_log *h = user;
    assert_null(text);
    assert_int_equal(length, 0);
    assert_true(logprob <= 0);
    if (token == BAUTA_NO_TOKEN) {
        h->last++;
        return true;
    }
    h->tokens[h->calls++] = token;
    return h->calls != h->stop_at;
}

static void a_callback_can_cancel_generation(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 3, 1, 4 };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_result *result;
    bauta_error err;
    token_log h = { .stop_at = 5 };
    generation_fixture s =
        generation_fixture_load(folder_of("qwen3"), false, 1);
    bauta_request r = plain(ids, 3, &o);
    o.max_new_tokens = 9;
    r.on_token = on_token;
    r.user = &h;
    MUST(bauta_generate(s.context, s.model, NULL, &r, &result, &err), &err);
    assert_int_equal(result->hypotheses[0]->count, 5);
    assert_int_equal(result->hypotheses[0]->finish, BAUTA_FINISH_CANCELLED);
    assert_memory_equal(h.tokens, result->hypotheses[0]->tokens, 20);
    assert_int_equal(h.last, 1);
    assert_null(result->hypotheses[0]->text);
    assert_string_equal(bauta_finish_text(BAUTA_FINISH_CANCELLED), "cancelled");
    bauta_result_free(result);
    generation_fixture_release(&s);
}

/* ---- a padded vocabulary ------------------------------------------------- */

/* Ids beyond the tokenizer's vocabulary are chosen as transformers chooses
 * them, and add nothing to the text. */
static void ids_without_a_piece_add_no_text(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 1, 2, 3 };
    static const char letters[] = "abcdefghijklmnopqrst";
    bauta_error err;
    generation_fixture s =
        generation_fixture_load(folder_of("llama"), false, 1);
    MUST(bauta_tokenizer_characters(&s.tokenizer, letters, 20, &err), &err);
    for (size_t beams = 1; beams <= 3; beams += 2) {
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        bauta_request r = plain(ids, 3, &o);
        bauta_result *result;
        char want[64] = "";
        size_t length = 0, padded = 0;
        o.max_new_tokens = 60;
        o.num_beams = beams;
        o.do_sample = beams == 1;
        o.temperature = 3.0f;
        MUST(bauta_generate(s.context, s.model, s.tokenizer, &r, &result, &err),
             &err);
        const bauta_hypothesis *h = result->hypotheses[0];
        assert_int_equal(h->count, 60);
        for (size_t i = 0; i < h->count; i++) {
            if (h->tokens[i] < 20)
                want[length++] = letters[h->tokens[i]];
            else
                padded++;
        }
        assert_true(padded > 0);
        assert_string_equal(h->text, want);
        bauta_result_free(result);
    }
    generation_fixture_release(&s);
}

/* ---- sentences --------------------------------------------------------- */

typedef void corrupt_fn(bauta_request *r, bauta_generate_options *o);

#define SPOIL(name, what)                                         \
    static void name(bauta_request *r, bauta_generate_options *o) \
    {                                                             \
        (void)r;                                                  \
        (void)o;                                                  \
        what;                                                     \
    }
static const uint32_t far_id = VOCAB;
static const char *const no_stop[] = { "" };
static const uint32_t near_id = 1;
static const bauta_token_seq no_words[] = { { 1, &far_id },
                                            { 0, &near_id },
                                            { 1, NULL } };
SPOIL(corrupt_size, o->size = 0)
SPOIL(corrupt_request_size, r->size = 1)
SPOIL(corrupt_beams, o->num_beams = 0)
SPOIL(corrupt_wide, o->num_beams = 33)
SPOIL(corrupt_nbest, o->num_return_sequences = 2)
SPOIL(corrupt_sample, (o->do_sample = true, o->num_beams = 2))
SPOIL(corrupt_early, o->early_stopping = (bauta_early_stopping)7)
SPOIL(corrupt_penalty, o->repetition_penalty = 0)
SPOIL(corrupt_penalty_nan, o->repetition_penalty = NAN)
SPOIL(corrupt_temperature, o->temperature = -1)
SPOIL(corrupt_temperature_inf, o->temperature = INFINITY)
SPOIL(corrupt_top_p, o->top_p = 1.5f)
SPOIL(corrupt_min_p, o->min_p = -0.1f)
SPOIL(corrupt_length, o->length_penalty = NAN)
SPOIL(corrupt_ends, (o->eos_token_count = 1, o->eos_token_ids[0] = VOCAB))
SPOIL(corrupt_end_count, o->eos_token_count = BAUTA_EOS_TOKENS_MAX + 1)
SPOIL(corrupt_banned,
      (o->suppress_token_count = 1, o->suppress_tokens[0] = VOCAB))
SPOIL(corrupt_banned_count,
      o->suppress_token_count = BAUTA_SUPPRESS_TOKENS_MAX + 1)
SPOIL(corrupt_first, o->forced_bos_token_id = VOCAB)
SPOIL(corrupt_last, o->forced_eos_token_id = VOCAB)
SPOIL(corrupt_start, o->decoder_start_token_id = VOCAB)
SPOIL(corrupt_stops_null, (o->stop_string_count = 1, o->stop_strings = NULL))
SPOIL(corrupt_stops_empty,
      (o->stop_string_count = 1, o->stop_strings = no_stop))
SPOIL(corrupt_words_null, (o->bad_word_count = 1, o->bad_words = NULL))
SPOIL(corrupt_words_empty, (o->bad_word_count = 1, o->bad_words = no_words + 1))
SPOIL(corrupt_words_far, (o->bad_word_count = 1, o->bad_words = no_words))
SPOIL(corrupt_words_tokens,
      (o->bad_word_count = 1, o->bad_words = no_words + 2))
static const bauta_token_bias no_biases[] = {
    { 3, 1 }, { 3, 1 }, { VOCAB, 1 }, { 5, NAN }
};
SPOIL(corrupt_presence, o->presence_penalty = NAN)
SPOIL(corrupt_frequency, o->frequency_penalty = INFINITY)
SPOIL(corrupt_bias_null, o->logit_bias_count = 1)
SPOIL(corrupt_bias_order, (o->logit_bias_count = 2, o->logit_bias = no_biases))
SPOIL(corrupt_bias_far,
      (o->logit_bias_count = 1, o->logit_bias = no_biases + 2))
SPOIL(corrupt_bias_nan,
      (o->logit_bias_count = 1, o->logit_bias = no_biases + 3))
SPOIL(corrupt_prompt, r->count = 0)
SPOIL(corrupt_prompt_null, r->tokens = NULL)
SPOIL(corrupt_token, (r->tokens = &far_id, r->count = 1))
SPOIL(corrupt_source, (r->source = r->tokens, r->source_count = 1))
SPOIL(corrupt_long, o->max_length = 3)

static const struct {
    const char *name;
    corrupt_fn *corrupt;
    const char *message;
} corrupts[] = {
    { "size", corrupt_size, "BAUTA_GENERATE_OPTIONS_INIT" },
    { "request_size", corrupt_request_size, "BAUTA_REQUEST_INIT" },
    { "beams", corrupt_beams, "beams is 0" },
    { "wide", corrupt_wide, "runs 32 sequences" },
    { "nbest", corrupt_nbest, "2 results of 1 beams" },
    { "sample", corrupt_sample, "not supported together" },
    { "early", corrupt_early, "early stopping 7" },
    { "penalty", corrupt_penalty, "the repetition penalty is 0" },
    { "penalty_nan", corrupt_penalty_nan, "the repetition penalty is nan" },
    { "presence", corrupt_presence, "the presence penalty is nan" },
    { "frequency", corrupt_frequency, "the frequency penalty is inf" },
    { "bias_null", corrupt_bias_null, "options.logit_bias is NULL, of 1" },
    { "bias_order", corrupt_bias_order, "token 3 after token 3" },
    { "bias_far", corrupt_bias_far, "options.logit_bias has token 40" },
    { "bias_nan", corrupt_bias_nan, "a logit bias is nan" },
    { "temperature", corrupt_temperature, "temperature is -1" },
    { "temperature_inf", corrupt_temperature_inf, "temperature is inf" },
    { "top_p", corrupt_top_p, "top-p is 1.5" },
    { "min_p", corrupt_min_p, "min-p is -0.1" },
    { "length", corrupt_length, "the length penalty is nan" },
    { "ends", corrupt_ends, "the list of end tokens has token 40 at 0" },
    { "end_count", corrupt_end_count, "9 end tokens" },
    { "banned", corrupt_banned,
      "the list of suppressed tokens has token 40 at 0" },
    { "banned_count", corrupt_banned_count, "33 suppressed tokens" },
    { "first", corrupt_first, "forced_bos_token_id is 40" },
    { "last", corrupt_last, "forced_eos_token_id is 40" },
    { "start", corrupt_start, "decoder_start_token_id is 40" },
    { "stops_null", corrupt_stops_null, "stop_strings is NULL" },
    { "stops_empty", corrupt_stops_empty, "stop string 1 is empty" },
    { "words_null", corrupt_words_null, "options.bad_words is NULL, of 1" },
    { "words_empty", corrupt_words_empty, "bad word 1 is empty" },
    { "words_far", corrupt_words_far, "bad word 1 has token 40" },
    { "words_tokens", corrupt_words_tokens, "bad word 1 is NULL" },
    { "prompt", corrupt_prompt, "the prompt is empty" },
    { "prompt_null", corrupt_prompt_null, "the prompt is NULL" },
    { "token", corrupt_token, "the prompt has token 40 at 0" },
    { "source", corrupt_source, "has no encoder" },
    { "long", corrupt_long, "prompt has 3 tokens" },
};

static void bad_requests_are_errors(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 1, 2, 3 };
    bauta_generator *g;
    bauta_error err;
    generation_fixture s =
        generation_fixture_load(folder_of("llama"), false, 1);
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, NULL, &err),
         &err);
    for (size_t i = 0; i < BT_LEN(corrupts); i++) {
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        bauta_request r = plain(ids, 3, &o);
        o.max_new_tokens = 4;
        corrupts[i].corrupt(&r, &o);
        assert_int_not_equal(bauta_generator_add(g, &r, &err), BAUTA_OK);
        if (!strstr(err.message, corrupts[i].message))
            fail_msg("%s: \"%s\"", corrupts[i].name, err.message);
    }
    bauta_generator_free(g);
    generation_fixture_release(&s);
}

static void encoder_decoders_need_a_start_token_and_a_source(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 1, 2, 3 };
    bauta_generator *g;
    bauta_error err;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    generation_fixture s =
        generation_fixture_load(folder_of("marian"), false, 1);
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, NULL, &err),
         &err);
    bauta_request r = plain(NULL, 0, &o);
    assert_int_not_equal(bauta_generator_add(g, &r, &err), BAUTA_OK);
    assert_non_null(strstr(err.message, "source is empty"));
    r.source = ids;
    r.source_count = 3;
    assert_int_not_equal(bauta_generator_add(g, &r, &err), BAUTA_OK);
    assert_non_null(strstr(err.message, "no start token"));
    bauta_generator_free(g);
    generation_fixture_release(&s);
    s = generation_fixture_load(folder_of("bert"), false, 1);
    assert_int_not_equal(
        bauta_generator_create(&g, s.context, s.model, NULL, NULL, &err),
        BAUTA_OK);
    assert_non_null(strstr(err.message, "encoder-only"));
    generation_fixture_release(&s);
}

static void options_that_suppress_all_tokens_are_an_error(void **state)
{
    (void)state;
    static uint32_t ids[VOCAB];
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_result *result;
    bauta_error err;
    generation_fixture s =
        generation_fixture_load(folder_of("llama"), false, 1);
    for (uint32_t i = 0; i < VOCAB; i++)
        ids[i] = i;
    bauta_request r = plain(ids, VOCAB, &o);
    o.max_new_tokens = 4;
    o.no_repeat_ngram_size = 1;
    for (o.num_beams = 1; o.num_beams < 4; o.num_beams += 2) {
        assert_int_not_equal(
            bauta_generate(s.context, s.model, NULL, &r, &result, &err),
            BAUTA_OK);
        assert_null(result);
        assert_non_null(strstr(err.message, "forbid every token"));
    }
    generation_fixture_release(&s);
}

/* ---- memory ------------------------------------------------------------ */

/* Step until all have ended; a failed step is repeated once. */
static void run_with_fault(const generation_fixture *s, size_t k,
                           const random_request *drawn, size_t count,
                           bauta_result **results, bool *hit)
{
    bauta_generator *g = NULL;
    bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_error err;
    size_t left = 1;
    bool failed = false;
    o.cached_sequences = 1;
    o.max_batched_tokens = 40;
    faults_arm(k);
    while (bauta_generator_create(&g, s->context, s->model, NULL, &o, &err)) {
        assert_int_equal(err.status, BAUTA_ERR_NOMEM);
        assert_false(failed);
        failed = true;
    }
    for (size_t i = 0; i < count; i++) {
        bauta_request r = drawn[i].request;
        r.tag = i;
        while (bauta_generator_add(g, &r, &err)) {
            assert_int_equal(err.status, BAUTA_ERR_NOMEM);
            assert_false(failed);
            failed = true;
        }
    }
    while (left)
        if (bauta_generator_step(g, &left, &err)) {
            assert_int_equal(err.status, BAUTA_ERR_NOMEM);
            assert_false(failed);
            failed = true;
            left = 1;
        }
    *hit = faults_disarm();
    assert_int_equal(failed, *hit);
    for (bauta_result *r; (r = bauta_generator_take(g));)
        results[r->tag] = r;
    bauta_generator_free(g);
}

static void every_allocation_may_fail_once(void **state)
{
    (void)state;
    enum { FEW = 4 };
    static const char *const names[] = { "gpt2", "marian" };
    static random_request drawn[FEW];
    bauta_result *want[FEW], *got[FEW];
    for (size_t m = 0; m < BT_LEN(names); m++) {
        test_random r = test_random_from(seed + 100 + m);
        faults_begin();
        generation_fixture s =
            generation_fixture_load(folder_of(names[m]), false, 1);
        random_requests_draw(&r, drawn, FEW, m == 1);
        for (size_t i = 0; i < FEW; i++)
            drawn[i].options.max_new_tokens = 3;
        drawn[0].options.num_beams = 3;
        drawn[0].options.do_sample = false;
        drawn[0].options.num_return_sequences = 2;
        alone(&s, drawn, FEW, want);
        bool hit = true;
        size_t k = 0;
        for (; hit; k++) {
            run_with_fault(&s, k, drawn, FEW, got, &hit);
            for (size_t i = 0; i < FEW; i++)
                results_equal(want[i], got[i]);
            results_free(got, FEW);
        }
        printf("%s: failures up to allocation %zu\n", names[m], k);
        results_free(want, FEW);
        generation_fixture_release(&s);
        assert_int_equal(faults_end(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_requests_change_no_bit),
        cmocka_unit_test(steps_queued_ahead_change_no_bit),
        cmocka_unit_test(requests_wait_until_they_fit),
        cmocka_unit_test(waiting_sources_are_encoded_ahead),
        cmocka_unit_test(cached_prefixes_are_shared),
        cmocka_unit_test(a_callback_can_cancel_generation),
        cmocka_unit_test(ids_without_a_piece_add_no_text),
        cmocka_unit_test(bad_requests_are_errors),
        cmocka_unit_test(encoder_decoders_need_a_start_token_and_a_source),
        cmocka_unit_test(options_that_suppress_all_tokens_are_an_error),
        cmocka_unit_test(every_allocation_may_fail_once),
    };
    return cmocka_run_group_tests(tests, folders_write, folders_remove);
}
