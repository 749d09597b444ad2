/* SPDX-License-Identifier: Apache-2.0 */
/* test_added.c - added tokens are found where Hugging Face's library finds
 * them, leftmost and longest, in linear time. */
#include "allocation_faults.h"
#include "base/error.h"
#include "text/added_tokens.h"
#include "text_step_cases.h"

static uint64_t seed;

/* ---- The library's results ----------------------------------------------- */

enum { TOKENS_MAX = 16 };

static bool flag(const json_t *token, const char *name)
{
    return json_is_true(json_object_get(token, name));
}

static size_t tokens_of(bt_added_token *out, const json_t *list)
{
    size_t count = json_array_size(list);
    assert_true(count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *t = json_array_get(list, i);
        const json_t *content = json_object_get(t, "content");
        out[i] = (bt_added_token){
            .content = json_string_value(content),
            .size = json_string_length(content),
            .id = (uint32_t)i,
            .special = flag(t, "special"),
            .single_word = flag(t, "single_word"),
            .lstrip = flag(t, "lstrip"),
            .rstrip = flag(t, "rstrip"),
            .normalized = flag(t, "normalized"),
        };
    }
    return count;
}

/* State of a test case, and how far its results have been checked. */
typedef struct checker {
    bt_added_tokens *added;
    bt_normalizer *normalizer;
    const json_t *item;
    bool literal;
    size_t count;
} checker;

/* The library's model knows the contents of all added tokens, so it may give
 * plain text the id of a token that looks the same. That is not a match. */
static void check_split(checker *c, const bt_aligned_text *text,
                        const bt_split *split)
{
    const json_t *ids = json_object_get(c->item, "ids");
    const json_t *origins = json_object_get(c->item, "origins");
    size_t id = (size_t)json_integer_value(json_array_get(ids, c->count));
    if (split->token != BT_NO_TOKEN)
        assert_int_equal(split->token, id);
    check_range(json_array_get(origins, c->count++),
                bt_aligned_text_origin(text, split->lo, split->hi));
}

/* The second pass, in the normalised text. */
static void check_second(checker *c, const bt_aligned_text *raw,
                         const bt_split *split)
{
    bt_splits s = { .list = NULL };
    assert_int_equal(bt_aligned_text_init(&s.text, raw->bytes + split->lo,
                                          split->hi - split->lo, split->lo,
                                          NULL),
                     0);
    assert_int_equal(bt_normalizer_run(c->normalizer, &s.text, NULL), 0);
    assert_int_equal(bt_added_tokens_split(c->added, true, c->literal,
                                           s.text.bytes, 0, s.text.size, &s,
                                           NULL),
                     0);
    for (size_t i = 0; i < s.count; i++)
        check_split(c, &s.text, &s.list[i]);
    bt_splits_release(&s);
}

static void check_case(const json_t *item)
{
    checker c = { .item = item, .literal = flag(item, "literal") };
    bt_added_token tokens[TOKENS_MAX];
    size_t count = tokens_of(tokens, json_object_get(item, "tokens"));
    const json_t *text = json_object_get(item, "text");
    bt_splits s = { .list = NULL };
    assert_int_equal(bt_normalizer_parse(&c.normalizer,
                                         json_object_get(item, "normalizer"),
                                         "t.json", NULL),
                     0);
    assert_int_equal(bt_added_tokens_create(&c.added, tokens, count,
                                            c.normalizer, "t.json", NULL),
                     0);
    assert_int_equal(bt_aligned_text_init(&s.text, json_string_value(text),
                                          json_string_length(text), 0, NULL),
                     0);
    assert_int_equal(bt_added_tokens_split(c.added, false, c.literal,
                                           s.text.bytes, 0, s.text.size, &s,
                                           NULL),
                     0);
    for (size_t i = 0; i < s.count; i++)
        if (s.list[i].token == BT_NO_TOKEN)
            check_second(&c, &s.text, &s.list[i]);
        else
            check_split(&c, &s.text, &s.list[i]);
    assert_int_equal(c.count, json_array_size(json_object_get(item, "ids")));
    bt_splits_release(&s);
    bt_added_tokens_free(c.added);
    bt_normalizer_free(c.normalizer);
}

static void tokens_are_found_where_the_library_finds_them(void **state)
{
    (void)state;
    json_t *list = expected_load("added.json"), *item;
    size_t i;
    assert_true(json_array_size(list) > 30);
    json_array_foreach(list, i, item) check_case(item);
    json_decref(list);
}

/* ---- Leftmost, then longest ---------------------------------------------- */

static size_t slow_longest(const bt_added_token *tokens, size_t count,
                           const char *at, size_t size, uint32_t *id)
{
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        if (tokens[i].size > longest && tokens[i].size <= size &&
            memcmp(tokens[i].content, at, tokens[i].size) == 0) {
            longest = tokens[i].size;
            *id = tokens[i].id;
        }
    return longest;
}

static void check_cover(const bt_splits *s, const bt_added_token *tokens,
                        size_t count, const char *text, size_t size)
{
    size_t k = 0, plain = 0;
    for (size_t at = 0; at < size;) {
        uint32_t id = 0;
        size_t length = slow_longest(tokens, count, text + at, size - at, &id);
        if (length > 0) {
            if (plain < at)
                assert_int_equal(s->list[k++].token, BT_NO_TOKEN);
            assert_true(k < s->count);
            assert_int_equal(s->list[k].lo, at);
            assert_int_equal(s->list[k].hi, at + length);
            assert_int_equal(s->list[k++].token, id);
            plain = at + length;
        }
        at += length ? length : 1;
    }
    assert_int_equal(s->count, k + (plain < size));
}

static void the_leftmost_longest_token_is_found(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (int turn = 0; turn < 20000; turn++) {
        char contents[8][6], text[40];
        bt_added_token tokens[8];
        size_t count = test_below(&r, 9), size = test_below(&r, sizeof(text));
        for (size_t i = 0; i < count; i++) {
            size_t length = 1 + test_below(&r, 6);
            for (size_t j = 0; j < length; j++)
                contents[i][j] = "abc"[test_below(&r, 3)];
            tokens[i] = (bt_added_token){ .content = contents[i],
                                          .size = length,
                                          .id = (uint32_t)i };
        }
        for (size_t j = 0; j < size; j++)
            text[j] = "abc"[test_below(&r, 3)];
        bt_added_tokens *added;
        bt_splits s = { .list = NULL };
        assert_int_equal(
            bt_added_tokens_create(&added, tokens, count, NULL, "t.json", NULL),
            0);
        assert_int_equal(
            bt_added_tokens_split(added, false, false, text, 0, size, &s, NULL),
            0);
        check_cover(&s, tokens, count, text, size);
        bt_splits_release(&s);
        bt_added_tokens_free(added);
    }
}

static void only_the_given_range_is_searched(void **state)
{
    (void)state;
    bt_added_token token = {
        .content = "on", .size = 2, .id = 5, .single_word = true, .lstrip = true
    };
    bt_added_tokens *added;
    bt_splits s = { .list = NULL };
    assert_int_equal(
        bt_added_tokens_create(&added, &token, 1, NULL, "t.json", NULL), 0);
    assert_int_equal(
        bt_added_tokens_split(added, false, false, "x on x", 1, 4, &s, NULL),
        0);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.list[0].lo, 1);
    assert_int_equal(s.list[0].token, 5);
    s.count = 0;
    assert_int_equal(
        bt_added_tokens_split(added, false, false, "xonx", 1, 3, &s, NULL), 0);
    assert_int_equal(s.list[0].token, 5);
    s.count = 0;
    assert_int_equal(
        bt_added_tokens_split(NULL, false, false, "xonx", 0, 4, &s, NULL), 0);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.list[0].token, BT_NO_TOKEN);
    bt_splits_release(&s);
    bt_added_tokens_free(added);
    bt_added_tokens_free(NULL);
}

/* ---- Resources ----------------------------------------------------------- */

static bauta_status create_and_split(const bt_added_token *tokens, size_t count,
                                     const char *text, size_t size,
                                     bauta_error *err)
{
    bt_added_tokens *added;
    bt_splits s = { .list = NULL };
    bauta_status status =
        bt_added_tokens_create(&added, tokens, count, NULL, "t.json", err);
    if (!status)
        status =
            bt_added_tokens_split(added, false, false, text, 0, size, &s, err);
    bt_splits_release(&s);
    bt_added_tokens_free(added);
    return status;
}

static void allocation_failure_is_an_error(void **state)
{
    (void)state;
    static const bt_added_token tokens[] = {
        { .content = "<|endoftext|>", .size = 13, .id = 1, .special = true },
        { .content = "\xFF", .size = 1, .id = 2 },
        { .content = "a", .size = 1, .id = 3, .normalized = true },
    };
    static const char text[] = "x<|endoftext|><|endoftext|><|endoftext|>";
    faults_begin();
    for (size_t k = 0;; k++) {
        bauta_error err;
        faults_arm(k);
        bauta_status status = create_and_split(tokens, BT_LEN(tokens), text,
                                               sizeof(text) - 1, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), 0);
    }
    assert_int_equal(faults_end(), 0);
}

/* A long token that nearly matches at every place, and a short one. */
static void a_megabyte_of_near_matches_takes_linear_time(void **state)
{
    (void)state;
    char near_match[4096];
    memset(near_match, 'a', sizeof(near_match));
    near_match[sizeof(near_match) - 1] = 'b';
    const bt_added_token tokens[] = {
        { .content = near_match, .size = sizeof(near_match), .id = 1 },
        { .content = "a", .size = 1, .id = 2, .lstrip = true },
        { .content = "  \n", .size = 3, .id = 3, .rstrip = true },
    };
    for (size_t j = 0; j < BT_LEN(megabytes); j++) {
        size_t size;
        char *bytes = megabyte_of(megabytes[j], &size);
        bauta_error err;
        double start = seconds();
        if (create_and_split(tokens, BT_LEN(tokens), bytes, size, &err))
            fail_msg("%s", err.message);
        assert_true(seconds() - start < SECONDS_MAX);
        free(bytes);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_found_where_the_library_finds_them),
        cmocka_unit_test(the_leftmost_longest_token_is_found),
        cmocka_unit_test(only_the_given_range_is_searched),
        cmocka_unit_test(allocation_failure_is_an_error),
        cmocka_unit_test(a_megabyte_of_near_matches_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
