/* SPDX-License-Identifier: Apache-2.0 */
/* test_streamed_text.c - the streamed text of new tokens continues the prompt's
 * text. */
#include "decode/stop_matcher.h"
#include "testing.h"

#include <string.h>

static const char text[] = "the mask hides a face, and a face is behind the "
                           "mask: gr\xC3\xBC\xC3\x9F"
                           "e, m\xC3\xA4sks";

typedef bauta_status tokenizer_fn(bauta_tokenizer **out, bauta_error *err);

static bauta_status learned(bauta_tokenizer **out, bauta_tokenizer_kind kind,
                            bauta_error *err)
{
    bauta_tokenizer_trainer_options how = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    const char *texts[] = { text, text, text };
    const size_t lengths[] = { strlen(text), strlen(text), strlen(text) };
    how.kind = kind;
    how.vocab_size = 300;
    return bauta_tokenizer_train(out, &how, texts, lengths, 3, err);
}

static bauta_status bpe(bauta_tokenizer **out, bauta_error *err)
{
    return learned(out, BAUTA_TOKENIZER_BPE, err);
}

static bauta_status wordpiece(bauta_tokenizer **out, bauta_error *err)
{
    return learned(out, BAUTA_TOKENIZER_WORDPIECE, err);
}

static bauta_status unigram(bauta_tokenizer **out, bauta_error *err)
{
    return learned(out, BAUTA_TOKENIZER_UNIGRAM, err);
}

static const struct {
    const char *name;
    tokenizer_fn *make;
} kinds[] = {
    { "bytes", bauta_tokenizer_bytes },
    { "bpe", bpe },
    { "wordpiece", wordpiece },
    { "unigram", unigram },
};

/* The text of the tokens from `cut` on, given those before. */
static bauta_status follow(const bauta_tokenizer *t, const bauta_tokens *tokens,
                           size_t cut, bt_stop_matcher *matcher,
                           bauta_error *err)
{
    bt_stop_strings none = { NULL, 0 };
    bauta_status status = bt_stop_matcher_init(matcher, t, &none, err);
    if (!status)
        status = bt_stop_matcher_prime(matcher, t, tokens->ids, cut, err);
    for (size_t i = cut; i < tokens->count && !status; i++)
        status = bt_stop_matcher_push(matcher, tokens->ids[i], err);
    return status ? status : bt_stop_matcher_finish(matcher, err);
}

/* If a character is split, its halves are not one text. */
static bool whole_character(const char *at)
{
    return (*at & 0xC0) != 0x80;
}

static void kind_check(const bauta_tokenizer *t, const char *name)
{
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_error err;
    bauta_tokens tokens;
    char *all, *before, joined[512];
    size_t length;
    how.no_special_tokens = true;
    assert_int_equal(
        bauta_tokenizer_encode(t, text, strlen(text), &how, &tokens, &err),
        BAUTA_OK);
    bauta_tokenizer_decode(t, tokens.ids, tokens.count, NULL, &all, &length,
                           &err);
    for (size_t cut = 0; cut <= tokens.count; cut++) {
        bt_stop_matcher matcher;
        if (cut < tokens.count && !whole_character(text + tokens.starts[cut]))
            continue;
        assert_int_equal(follow(t, &tokens, cut, &matcher, &err), BAUTA_OK);
        bauta_tokenizer_decode(t, tokens.ids, cut, NULL, &before, &length,
                               &err);
        snprintf(joined, sizeof(joined), "%s%s", before,
                 matcher.text ? matcher.text : "");
        if (strcmp(joined, all) != 0)
            fail_msg("%s, cut at %zu: want '%s', got '%s'", name, cut, all,
                     joined);
        bauta_text_free(before);
        bt_stop_matcher_release(&matcher);
    }
    bauta_text_free(all);
    bauta_tokens_release(&tokens);
}

static void streamed_text_continues_the_prompt(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        bauta_tokenizer *t;
        bauta_error err;
        assert_int_equal(kinds[i].make(&t, &err), BAUTA_OK);
        kind_check(t, kinds[i].name);
        bauta_tokenizer_free(t);
    }
}

static void tokens_without_a_piece_are_skipped(void **state)
{
    (void)state;
    const uint32_t before[] = { 'a', 9999, 'b' };
    bt_stop_strings none = { NULL, 0 };
    bt_stop_matcher matcher;
    bauta_tokenizer *t;
    bauta_error err;
    assert_int_equal(bauta_tokenizer_bytes(&t, &err), BAUTA_OK);
    assert_int_equal(bt_stop_matcher_init(&matcher, t, &none, &err), BAUTA_OK);
    assert_int_equal(bt_stop_matcher_prime(&matcher, t, before, 3, &err),
                     BAUTA_OK);
    assert_int_equal(bt_stop_matcher_push(&matcher, 'c', &err), BAUTA_OK);
    assert_int_equal(bt_stop_matcher_push(&matcher, 256, &err), BAUTA_OK);
    assert_int_equal(bt_stop_matcher_push(&matcher, 'd', &err), BAUTA_OK);
    assert_string_equal(matcher.text, "cd");
    bt_stop_matcher_release(&matcher);
    bauta_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_text_continues_the_prompt),
        cmocka_unit_test(tokens_without_a_piece_are_skipped),
    };
    return cmocka_run_group_tests_name("streamed_text", tests, NULL, NULL);
}
