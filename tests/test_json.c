/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - the JSON reader against jansson: both accept the same texts and
 * read the same values. */
#include "testing.h"

#include "base/error.h"
#include "base/memory.h"
#include "formats/json.h"

#include <locale.h>
#include <string.h>

static const char *const seeds[] = {
    "{}",
    "{\"a\": [1, -2, 0, 3.5, -0.0, 1e5, 2E-3, 12345678901234567], \"b\": "
    "{\"c\": null, \"d\": true, \"e\": false}}",
    "{\"\\u00e9\\n\\\"\\\\\\/\\b\\f\\r\\t\": \"\\ud83d\\ude00 \xc3\xa9 "
    "\xf0\x9f\x98\x80\"}",
    " {\t\"a\"\n:\r[ [ ] , { } , \"\" ] } ",
    "{\"a\": 1, \"b\": 2, \"a\": 3}",
    "{\"big\": 9223372036854775807, \"small\": -9223372036854775808}",
    "{\"too big\": 9223372036854775808}",
    "{\"huge\": 1e999, \"tiny\": 1e-999}",
    "{\"x\": \"\\ud800\", \"y\": \"\\udc00\", \"z\": \"\\u0000\"}",
    "[1, 2]",
    "{\"a\": 01, \"b\": 1., \"c\": .5, \"d\": -}",
};

/* Both on one text; true when both accept it. */
static bool compare(const char *text, size_t size, unsigned flags)
{
    json_t *mine = NULL;
    bauta_error err = { 0 };
    bauta_status status =
        bt_json_parse_object(&mine, text, size, flags, "x", &err);
    json_t *theirs = json_loadb(
        text, size,
        JSON_REJECT_DUPLICATES | (flags & BT_JSON_NUL ? JSON_ALLOW_NUL : 0) |
            (flags & BT_JSON_REALS ? JSON_DECODE_INT_AS_REAL : 0),
        NULL);
    bool accepted = json_is_object(theirs);
    if (accepted != !status || (accepted && !json_equal(mine, theirs)))
        fail_msg("%.*s: %s", (int)size, text,
                 status ? err.message : "accepted");
    if (status)
        assert_true(!mine && status == BAUTA_ERR_FORMAT && *err.message);
    json_decref(mine);
    json_decref(theirs);
    return accepted;
}

static void values_equal_jansson(void **state)
{
    (void)state;
    size_t accepted = 0;
    for (size_t i = 0; i < BT_LEN(seeds); i++)
        for (unsigned flags = 0; flags < 4; flags++)
            accepted += compare(seeds[i], strlen(seeds[i]), flags);
    assert_true(accepted > 15);
}

static void changed_texts_are_accepted_as_by_jansson(void **state)
{
    static const char signs[] = "{}[]\",:\\u0d8e9-+.tfn \x01\xff\xc3\xa9";
    test_random *r = *state;
    size_t accepted = 0;
    for (size_t i = 0; i < 60000; i++) {
        char text[256];
        const char *seed = seeds[test_below(r, BT_LEN(seeds))];
        size_t size = strlen(seed);
        memcpy(text, seed, size);
        for (size_t n = 1 + test_below(r, 3); n > 0 && size > 0; n--) {
            size_t at = test_below(r, size);
            if (test_below(r, 3) == 0)
                memmove(text + at, text + at + 1, --size - at);
            else
                text[at] = signs[test_below(r, sizeof(signs) - 1)];
        }
        accepted += compare(text, size, test_u32(r) % 4);
    }
    printf("%zu of 60000 accepted\n", accepted);
    assert_true(accepted > 1000);
}

static void every_truncated_text_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(seeds); i++)
        for (size_t size = 0; size < strlen(seeds[i]); size++) {
            char *exact = malloc(size + 1); // nothing may be read after it
            memcpy(exact, seeds[i], size);
            char *moved = memmove(malloc(size ? size : 1), exact, size);
            compare(moved, size, 0);
            free(moved);
            free(exact);
        }
}

static bauta_status read_of(const char *first, const char *again, size_t count,
                            const char *last, char *message)
{
    size_t each = strlen(again), size = strlen(first);
    char *text = malloc(size + count * each + strlen(last) + 1);
    memcpy(text, first, size);
    for (size_t i = 0; i < count; i++, size += each)
        memcpy(text + size, again, each);
    strcpy(text + size, last);
    json_t *value;
    bauta_error err = { 0 };
    bauta_status status =
        bt_json_parse_object(&value, text, strlen(text), 0, "x", &err);
    strcpy(message, err.message);
    json_decref(value);
    free(text);
    return status;
}

static void values_are_counted_and_depth_is_bounded(void **state)
{
    (void)state;
    char message[256];
    size_t most = BT_JSON_VALUES_MAX - 3; // the object, its list, the last one
    assert_int_equal(read_of("{\"a\":[", "0,", most, "0]}", message), 0);
    assert_int_equal(read_of("{\"a\":[", "0,", most + 1, "0]}", message),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(message, "too many values"));
    size_t deep = BT_JSON_DEPTH_MAX - 1;
    assert_int_equal(read_of("{\"a\":", "[", deep, "", message),
                     BAUTA_ERR_FORMAT);
    assert_null(strstr(message, "too deep"));
    assert_int_equal(read_of("{\"a\":", "[", deep + 1, "", message),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(message, "too deep"));
}

static void skipped_values_are_validated(void **state)
{
    (void)state;
    static const char text[] = "[{\"a\": [1, \"\\u00e9\", {}]}, 2, tru]";
    bt_json_reader json = bt_json_reader_init("x", text, sizeof(text) - 1);
    bool more;
    json_t *value;
    assert_int_equal(bt_json_enter_array(&json, NULL), 0);
    assert_int_equal(bt_json_next_item(&json, &more, NULL), 0);
    assert_int_equal(bt_json_skip_value(&json, NULL), 0);
    assert_int_equal(bt_json_next_item(&json, &more, NULL), 0);
    assert_true(more);
    assert_int_equal(bt_json_read_value(&json, &value, NULL), 0);
    assert_int_equal(json_integer_value(value), 2);
    json_decref(value);
    assert_int_equal(bt_json_next_item(&json, &more, NULL), 0);
    assert_int_equal(bt_json_skip_value(&json, NULL), BAUTA_ERR_FORMAT);
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8",
                                         "fr_FR.UTF-8" };
    bool set = false;
    for (size_t i = 0; i < BT_LEN(names) && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    json_t *value;
    assert_int_equal(
        bt_json_parse_object(&value, "{\"a\":1.5}", 9, 0, "x", NULL), 0);
    double got = json_real_value(json_object_get(value, "a"));
    json_decref(value);
    setlocale(LC_NUMERIC, "C");
    printf("%s\n", set ? "with a decimal comma" : "no such locale is here");
    assert_true(got == 1.5);
}

static void a_text_is_written_as_jansson_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(seeds); i++) {
        json_t *value = json_loads(seeds[i], 0, NULL);
        char *want = value ? json_dumps(value, JSON_SORT_KEYS) : NULL;
        char *got = bt_json_dump(value, JSON_SORT_KEYS);
        assert_int_equal(want != NULL, got != NULL);
        if (want)
            assert_string_equal(got, want);
        bt_free(got);
        free(want);
        json_decref(value);
    }
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_equal_jansson),
        cmocka_unit_test_prestate(changed_texts_are_accepted_as_by_jansson,
                                  &random),
        cmocka_unit_test(every_truncated_text_is_refused),
        cmocka_unit_test(values_are_counted_and_depth_is_bounded),
        cmocka_unit_test(skipped_values_are_validated),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(a_text_is_written_as_jansson_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
