/* SPDX-License-Identifier: Apache-2.0 */
/* test_normalizer.c - normalizers give the same text and the same origins as
 * Hugging Face's library. */
#include "allocation_faults.h"
#include "base/error.h"
#include "text/normalize/normal_form.h"
#include "text/normalize/normalizer.h"
#include "text_step_cases.h"

#include <utf8proc.h>

static uint64_t seed;

static bt_normalizer *parsed(const json_t *json)
{
    bt_normalizer *normalizer;
    bauta_error err;
    if (bt_normalizer_parse(&normalizer, json, "tokenizer.json", &err))
        fail_msg("%s", err.message);
    return normalizer;
}

static void check_case(const json_t *item)
{
    bt_normalizer *n = parsed(json_object_get(item, "step"));
    const json_t *text = json_object_get(item, "text");
    const json_t *want = json_object_get(item, "result");
    const json_t *origins = json_object_get(item, "origins");
    bt_aligned_text t;
    assert_int_equal(bt_aligned_text_init(&t, json_string_value(text),
                                          json_string_length(text), 0, NULL),
                     0);
    assert_int_equal(bt_normalizer_run(n, &t, NULL), 0);
    assert_int_equal(t.size, json_string_length(want));
    assert_memory_equal(t.bytes, json_string_value(want), t.size);
    size_t i = 0;
    for (size_t at = 0, length; at < t.size; at += length, i++) {
        bt_utf8_decode(t.bytes + at, t.size - at, &length);
        check_range(json_array_get(origins, i),
                    bt_aligned_text_origin(&t, at, at + length));
    }
    assert_int_equal(i, json_array_size(origins));
    bt_aligned_text_release(&t);
    bt_normalizer_free(n);
}

static void texts_match_the_library(void **state)
{
    (void)state;
    json_t *list = expected_load("normalizers.json"), *item;
    size_t i;
    assert_true(json_array_size(list) > 50);
    json_array_foreach(list, i, item) check_case(item);
    json_decref(list);
}

static void null_is_no_normalizer(void **state)
{
    (void)state;
    json_t *null = json_null();
    assert_null(parsed(null));
    bt_aligned_text t;
    assert_int_equal(bt_aligned_text_init(&t, "A", 1, 0, NULL), 0);
    assert_int_equal(bt_normalizer_run(NULL, &t, NULL), 0);
    assert_memory_equal(t.bytes, "A", 1);
    bt_normalizer_free(NULL);
}

/* ---- Normal forms -------------------------------------------------------- */

/* utf8proc does the same, in time quadratic in runs of marks. */
static void forms_equal_utf8proc(void **state)
{
    (void)state;
    static const int options[] = {
        [BT_NFD] = UTF8PROC_DECOMPOSE,
        [BT_NFC] = UTF8PROC_COMPOSE,
        [BT_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
        [BT_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    };
    test_random r = test_random_from(seed);
    char bytes[256];
    for (int turn = 0; turn < 40000; turn++) {
        bt_unicode_form form = (bt_unicode_form)(turn % 4);
        size_t size = random_text(&r, bytes, test_below(&r, 24));
        utf8proc_uint8_t *want;
        utf8proc_ssize_t length = utf8proc_map(
            (utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)size, &want,
            (utf8proc_option_t)(options[form] | UTF8PROC_STABLE));
        bt_aligned_text t;
        assert_int_equal(bt_aligned_text_init(&t, bytes, size, 0, NULL), 0);
        assert_int_equal(bt_unicode_normalize(&t, form, NULL), 0);
        assert_int_equal(t.size, length);
        assert_memory_equal(t.bytes, want, t.size);
        bt_aligned_text_release(&t);
        free(want);
    }
}

static void every_character_normalizes_as_in_utf8proc(void **state)
{
    (void)state;
    char bytes[6] = "a";
    for (uint32_t code = 1; code < 0x110000; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        size_t size = 1 + bt_utf8_encode(bytes + 1, code);
        bytes[size] = '\0';
        utf8proc_uint8_t *want = utf8proc_NFKC((utf8proc_uint8_t *)bytes);
        bt_aligned_text t;
        assert_int_equal(bt_aligned_text_init(&t, bytes, size, 0, NULL), 0);
        assert_int_equal(bt_unicode_normalize(&t, BT_NFKC, NULL), 0);
        assert_int_equal(t.size, strlen((char *)want));
        assert_memory_equal(t.bytes, want, t.size);
        bt_aligned_text_release(&t);
        free(want);
    }
}

static void text_in_normal_form_is_not_copied(void **state)
{
    (void)state;
    static const char text[] = "Gr\xC3\xBC\xC3\x9F dich, \xE6\xBC\xA2\xE5\xAD"
                               "\x97 \xF0\x9F\x98\x80 \xE1\xBA\xBF";
    bt_aligned_text t;
    assert_int_equal(bt_aligned_text_init(&t, text, sizeof(text) - 1, 0, NULL),
                     0);
    assert_int_equal(bt_unicode_normalize(&t, BT_NFC, NULL), 0);
    assert_ptr_equal(t.bytes, text);
    assert_int_equal(bt_unicode_normalize(&t, BT_NFKC, NULL), 0);
    assert_ptr_equal(t.bytes, text);
    bt_aligned_text_release(&t);
}

/* ---- Refusals ------------------------------------------------------------ */

static void malformed_normalizers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } rows[] = {
        { "{\"type\":\"Sparkle\"}", "\"Sparkle\" is unknown" },
        { "{\"type\":3}", "no \"type\"" },
        { "[]", "no \"type\"" },
        { "{\"type\":\"Sequence\"}", "has no list" },
        { "{\"type\":\"Strip\",\"strip_left\":1}", "\"strip_left\" of Strip" },
        { "{\"type\":\"Prepend\"}", "no \"prepend\"" },
        { "{\"type\":\"Prepend\",\"prepend\":[]}", "not a string" },
        { "{\"type\":\"Replace\",\"content\":\"\"}", "a String or a Regex" },
        { "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":"
          "\"\"}",
          "parenthesis" },
        { "{\"type\":\"BertNormalizer\",\"lowercase\":\"yes\"}",
          "not true or false" },
    };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        json_t *json = json_of(rows[i].json);
        bt_normalizer *n;
        bauta_error err;
        assert_int_equal(bt_normalizer_parse(&n, json, "dir/t.json", &err),
                         BAUTA_ERR_FORMAT);
        assert_null(n);
        assert_non_null(strstr(err.message, "t.json: "));
        if (!strstr(err.message, rows[i].message))
            fail_msg("%s", err.message);
        json_decref(json);
    }
}

static json_t *nested(const char *list, unsigned depth)
{
    json_t *json = json_pack("{s:s}", "type", "NFC");
    while (depth-- > 0)
        json = json_pack("{s:s, s:[o]}", "type", "Sequence", list, json);
    return json;
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    bt_normalizer *n;
    bauta_error err;
    json_t *fine = nested("normalizers", 8), *deep = nested("normalizers", 900);
    assert_int_equal(bt_normalizer_parse(&n, fine, "t.json", &err), 0);
    bt_normalizer_free(n);
    assert_int_equal(bt_normalizer_parse(&n, deep, "t.json", &err),
                     BAUTA_ERR_FORMAT);
    json_decref(fine);
    json_decref(deep);
}

static void a_text_that_grows_too_large_is_refused(void **state)
{
    (void)state;
    static const char twice[] = "{\"type\":\"Replace\",\"pattern\":"
                                "{\"String\":\"a\"},\"content\":\"aa\"}";
    json_t *list = json_array(), *json;
    for (int i = 0; i < 32; i++)
        json_array_append_new(list, json_of(twice));
    json = json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
    bt_normalizer *n = parsed(json);
    bt_aligned_text t;
    bauta_error err;
    assert_int_equal(bt_aligned_text_init(&t, "abba", 4, 0, NULL), 0);
    assert_int_equal(bt_normalizer_run(n, &t, &err), BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "of a text of 4"));
    bt_aligned_text_release(&t);
    bt_normalizer_free(n);
    json_decref(json);
}

/* ---- Resources ----------------------------------------------------------- */

static bauta_status parse_and_run(const json_t *json, const char *bytes,
                                  size_t size, bauta_error *err)
{
    bt_normalizer *n;
    bauta_status status = bt_normalizer_parse(&n, json, "t.json", err);
    if (status)
        return status;
    bt_aligned_text t;
    status = bt_aligned_text_init(&t, bytes, size, 0, err);
    if (!status)
        status = bt_normalizer_run(n, &t, err);
    bt_aligned_text_release(&t);
    bt_normalizer_free(n);
    return status;
}

static void allocation_failure_is_an_error(void **state)
{
    (void)state;
    json_t *list = expected_load("normalizers.json"), *item;
    size_t i;
    faults_begin();
    json_array_foreach(list, i, item)
    {
        const json_t *text = json_object_get(item, "text");
        for (size_t k = 0;; k++) {
            bauta_error err;
            faults_arm(k);
            bauta_status status = parse_and_run(json_object_get(item, "step"),
                                                json_string_value(text),
                                                json_string_length(text), &err);
            if (!faults_disarm())
                break;
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_int_equal(faults_live(), 0);
        }
    }
    assert_int_equal(faults_end(), 0);
    json_decref(list);
}

static void a_megabyte_of_anything_takes_linear_time(void **state)
{
    (void)state;
    static const char *const steps[] = {
        "{\"type\":\"NFC\"}",
        "{\"type\":\"NFKD\"}",
        "{\"type\":\"BertNormalizer\"}",
        "{\"type\":\"Strip\"}",
        "{\"type\":\"Nmt\"}",
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":"
        "\" \"}",
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"aab\"},\"content\":"
        "\" \"}",
    };
    for (size_t i = 0; i < BT_LEN(steps); i++)
        for (size_t j = 0; j < BT_LEN(megabytes); j++) {
            size_t size;
            char *bytes = megabyte_of(megabytes[j], &size);
            json_t *json = json_of(steps[i]);
            bauta_error err;
            double start = seconds();
            if (parse_and_run(json, bytes, size, &err))
                fail_msg("%s", err.message);
            if (seconds() - start > SECONDS_MAX)
                fail_msg("%s takes %g s for a megabyte of \"%s\"", steps[i],
                         seconds() - start, bt_quote(megabytes[j]).text);
            json_decref(json);
            free(bytes);
        }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_match_the_library),
        cmocka_unit_test(null_is_no_normalizer),
        cmocka_unit_test(forms_equal_utf8proc),
        cmocka_unit_test(every_character_normalizes_as_in_utf8proc),
        cmocka_unit_test(text_in_normal_form_is_not_copied),
        cmocka_unit_test(malformed_normalizers_are_refused),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(a_text_that_grows_too_large_is_refused),
        cmocka_unit_test(allocation_failure_is_an_error),
        cmocka_unit_test(a_megabyte_of_anything_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
