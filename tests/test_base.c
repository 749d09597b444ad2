/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c - sizes, arena, messages, Philox. */
#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"
#include "base/string_writer.h"
#include "testing.h"

#include <string.h>

static void sizes_saturate_instead_of_wrapping(void **state)
{
    (void)state;
    assert_int_equal(bt_size_mul(3, 5), 15);
    assert_true(bt_size_mul(SIZE_MAX, 2) == SIZE_MAX);
    assert_true(bt_size_add(SIZE_MAX, 1) == SIZE_MAX);
    assert_true(bt_size_round(SIZE_MAX - 3, 64) == SIZE_MAX);
    assert_int_equal(bt_size_round(65, 64), 128);
    assert_int_equal(bt_size_round(64, 64), 64);
    assert_null(bt_alloc(SIZE_MAX));
    assert_null(bt_alloc_zero(SIZE_MAX / 2, 3));
}

static void a_failure_names_its_value(void **state)
{
    (void)state;
    bauta_error err;
    assert_int_equal(bt_fail(&err, BAUTA_ERR_ARGUMENT, "%d of %s", 7, "nine"),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(err.status, BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "7 of nine");
    assert_int_equal(bt_fail(NULL, BAUTA_ERR_IO, "x"), BAUTA_ERR_IO);
    assert_string_equal(bauta_status_text(BAUTA_ERR_NOMEM), "out of memory");
    assert_string_equal(bauta_status_text((bauta_status)99), "unknown status");
    char version[32];
    snprintf(version, sizeof(version), "%d.%d.%d", BAUTA_VERSION_MAJOR,
             BAUTA_VERSION_MINOR, BAUTA_VERSION_PATCH);
    assert_string_equal(bauta_version(), version);
}

static void an_arena_measures_then_allocates(void **state)
{
    (void)state;
    bt_arena arena = { NULL, 0, 0 };
    assert_null(bt_arena_alloc(&arena, 3, 1));
    assert_null(bt_arena_alloc(&arena, 100, 4));
    assert_int_equal(arena.used, 64 + 448);
    assert_int_equal(bt_arena_reserve(&arena, arena.used), 0);
    unsigned char *a = bt_arena_alloc(&arena, 3, 1);
    unsigned char *b = bt_arena_alloc(&arena, 100, 4);
    assert_int_equal(b - a, 64);
    assert_int_equal((uintptr_t)a % BT_ALIGN, 0);
    memset(a, 1, arena.used);
    unsigned char *base = arena.base;
    assert_int_equal(bt_arena_reserve(&arena, 10), 0);
    assert_ptr_equal(arena.base, base); // large enough: kept
    assert_int_equal(bt_arena_reserve(&arena, SIZE_MAX), -1);
    assert_null(arena.base);
    bt_arena_release(&arena);
}

static void closest_words_are_within_a_few_edits(void **state)
{
    (void)state;
    static const char *const words[] = { "threads",     "top-k", "tokens",
                                         "temperature", NULL,    "top-p" };
    static const struct {
        const char *word, *closest;
    } cases[] = {
        { "thread", "threads" },
        { "tpo-k", "top-k" },
        { "top-x", "top-k" }, // the first of equally close ones
        { "tempature", "temperature" },
        { "temp", NULL },
        { "", NULL },
        { "a-word-that-is-longer-than-any-name-that-a-program-has", NULL },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        const char *got =
            bauta_closest_word(cases[i].word, words, BT_LEN(words));
        if (cases[i].closest)
            assert_string_equal(got, cases[i].closest);
        else
            assert_null(got);
    }
    assert_null(bauta_closest_word("tokens", words, 2));
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    char text[80];
    bt_string_writer w = { text, sizeof(text), 0 };
    bt_put_string(&w, "a\"\\\n\x7f<\xc3\xa9\xe2\x80\xa8\xff");
    bt_put_end(&w);
    assert_string_equal(text, "\"a\\\"\\\\\\u000a\\u007f<\xc3\xa9"
                              "\xe2\x80\xa8\xef\xbf\xbd\"");
    bt_json_escape(text, '<', true);
    assert_string_equal(text, "\\u003c");
    bt_json_escape(text, 0x2029, true);
    assert_string_equal(text, "\\u2029");
}

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    // The known-answer vectors of the Random123 distribution.
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } vectors[] = {
        { { 0, 0, 0, 0 },
          { 0, 0 },
          { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < BT_LEN(vectors); i++) {
        uint32_t got[4];
        bt_philox(got, vectors[i].counter, vectors[i].key);
        assert_memory_equal(got, vectors[i].want, sizeof(got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_saturate_instead_of_wrapping),
        cmocka_unit_test(a_failure_names_its_value),
        cmocka_unit_test(an_arena_measures_then_allocates),
        cmocka_unit_test(closest_words_are_within_a_few_edits),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(philox_gives_the_published_numbers),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
