/* SPDX-License-Identifier: Apache-2.0 */
/* test_stops.c - stop strings, and how much text is streamed before one. */
#include "allocation_faults.h"
#include "decode/stop_matcher.h"
#include "generation_fixtures.h"
#include "tiny_models.h"

static temp_folder temp;
static char folder[512];
static generation_fixture fixture;

/* Characters, some of several bytes; with the two special tokens a vocabulary
 * of 40. */
static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz .,?ÄÖÜäöüß€";

static int fixture_make(void **state)
{
    (void)state;
    bauta_error err;
    temp = temp_folder_create();
    tiny_write(&temp, &tinies[1], folder);
    fixture = generation_fixture_load(folder, false, 1);
    MUST(bauta_tokenizer_characters(&fixture.tokenizer, alphabet,
                                    strlen(alphabet), &err),
         &err);
    assert_int_equal(bauta_tokenizer_vocab_size(fixture.tokenizer), 40);
    return 0;
}

static int fixture_free(void **state)
{
    (void)state;
    generation_fixture_release(&fixture);
    temp_folder_free(&temp);
    return 0;
}

typedef struct stream_log {
    char text[4096];
    size_t length, most;
} stream_log;

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    stream_log *t = user;
    (void)token;
    (void)logprob;
    assert_non_null(text);
    memcpy(t->text + t->length, text, length);
    t->length += length;
    t->text[t->length] = '\0';
    return true;
}

static bauta_result *generate(const uint32_t *ids, bauta_generate_options *o,
                              stream_log *t)
{
    bauta_result *result;
    bauta_error err;
    bauta_request r = BAUTA_REQUEST_INIT;
    *t = (stream_log){ 0 };
    r.tokens = ids;
    r.count = 2;
    r.options = o;
    r.on_token = on_token;
    r.user = t;
    // The tokenizer has fewer characters than the model has tokens.
    for (uint32_t id = 0; id < 40; id++)
        if (!bauta_tokenizer_piece(fixture.tokenizer, id, NULL))
            o->suppress_tokens[o->suppress_token_count++] = id;
    MUST(bauta_generate(fixture.context, fixture.model, fixture.tokenizer, &r,
                        &result, &err),
         &err);
    return result;
}

/* Where the first stop string to be completed begins, when the text arrives
 * character by character. */
static size_t first_stop(const char *text, const char *const stops[2])
{
    bt_stop_strings both = { stops, 2 };
    size_t length = 1;
    for (;; length++) {
        bool whole = ((unsigned char)text[length] & 0xc0) != 0x80;
        size_t at = bt_stop_strings_find(&both, text, length, 0);
        if (whole && at != SIZE_MAX)
            return at;
    }
}

static void text_ends_before_the_first_stop(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < 300; i++) {
        uint32_t ids[2] = { (uint32_t)test_below(&r, 30),
                            (uint32_t)test_below(&r, 30) };
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        char one[64] = "", two[64] = "zzzzzz";
        const char *stops[] = { one, two };
        stream_log t;
        o.max_new_tokens = 40;
        o.do_sample = true;
        o.seed = i;
        bauta_result *whole = generate(ids, &o, &t);
        const bauta_hypothesis *h = whole->hypotheses[0];
        assert_int_equal(h->count, 40);
        assert_string_equal(h->text, t.text);
        // Some bytes of the text itself, perhaps half a character of it.
        size_t at = test_below(&r, h->text_length - 8),
               n = 1 + test_below(&r, 7);
        memcpy(one, h->text + at, n);
        if (test_below(&r, 2))
            memcpy(two, h->text + test_below(&r, h->text_length - 4), 3);
        two[3] = '\0';
        o.stop_strings = stops;
        o.stop_string_count = 2;
        o.suppress_token_count = 0;
        bauta_result *cut = generate(ids, &o, &t);
        size_t length = first_stop(h->text, stops);
        assert_int_equal(cut->hypotheses[0]->finish, BAUTA_FINISH_STOP);
        assert_int_equal(cut->hypotheses[0]->text_length, length);
        assert_memory_equal(cut->hypotheses[0]->text, h->text, length);
        assert_int_equal(t.length, length);
        assert_memory_equal(t.text, h->text, length);
        bauta_result_free(cut);
        bauta_result_free(whole);
    }
}

static void beams_stop_as_well(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 3, 4 };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    stream_log t;
    char stop[8] = "";
    const char *stops[] = { stop };
    o.max_new_tokens = 12;
    o.num_beams = 3;
    o.early_stopping = BAUTA_EARLY_STOPPING_YES;
    bauta_result *whole = generate(ids, &o, &t);
    assert_int_equal(t.length, 0); // beams are not streamed
    memcpy(stop, whole->hypotheses[0]->text, 2);
    o.stop_strings = stops;
    o.stop_string_count = 1;
    o.num_return_sequences = 3;
    o.suppress_token_count = 0;
    bauta_result *cut = generate(ids, &o, &t);
    size_t stopped = 0;
    for (size_t i = 0; i < cut->count; i++) {
        const bauta_hypothesis *h = cut->hypotheses[i];
        assert_null(strstr(h->text, stop));
        stopped += h->finish == BAUTA_FINISH_STOP;
    }
    assert_true(stopped > 0);
    bauta_result_free(cut);
    bauta_result_free(whole);
}

static void a_possible_stop_string_is_held_back(void **state)
{
    (void)state;
    static const char *const texts[] = { "abab!", "bx" };
    bt_stop_strings stops = { texts, 2 };
    assert_int_equal(bt_stop_strings_partial(&stops, "xabab", 5), 4);
    assert_int_equal(bt_stop_strings_partial(&stops, "xababa", 6), 3);
    assert_int_equal(bt_stop_strings_partial(&stops, "xb", 2), 1);
    assert_int_equal(bt_stop_strings_partial(&stops, "c", 1), 0);
    assert_int_equal(bt_stop_strings_partial(&stops, "", 0), 0);
    assert_int_equal(bt_stop_strings_find(&stops, "ababab!", 7, 0), 2);
    assert_int_equal(bt_stop_strings_find(&stops, "ababab", 6, 0), SIZE_MAX);
}

static void stops_without_a_tokenizer_are_refused(void **state)
{
    (void)state;
    static const uint32_t id = 1;
    static const char *const texts[] = { "a" };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = BAUTA_REQUEST_INIT;
    bauta_result *result;
    bauta_error err;
    o.stop_strings = texts;
    o.stop_string_count = 1;
    r.tokens = &id;
    r.count = 1;
    r.options = &o;
    assert_int_equal(
        bauta_generate(fixture.context, fixture.model, NULL, &r, &result, &err),
        BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "tokenizer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_before_the_first_stop),
        cmocka_unit_test(beams_stop_as_well),
        cmocka_unit_test(a_possible_stop_string_is_held_back),
        cmocka_unit_test(stops_without_a_tokenizer_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_free);
}
