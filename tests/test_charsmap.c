/* SPDX-License-Identifier: Apache-2.0 */
/* test_charsmap.c - SentencePiece's map of characters, and the two
 * normalizers that use it. */
#include "testing.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "sentencepiece_fixtures.h"
#include "text/normalize/charsmap.h"
#include "text/normalize/normalizer_step.h"

/* The rules that the script made the map of unigram.model from. */
static const struct {
    const char *key, *form;
} rules[] = {
    { "\xEF\xAC\x81", "fi" },
    { "\xE3\x80\x80", " " },
    { "\t", " " },
    { "\n", " " },
    { "\r", " " },
    { "a\xCC\x8A", "\xC3\xA5" },
    { "\xCC\x8A", "" },
    { "\xE2\x84\xA6", "\xCE\xA9" },
    { "\xC2\xBD", " 1\xE2\x81\x84"
                  "2" },
    { "\xEF\xBF\xBD", " " },
    { "\xE2\x80\x8B", "" },
    { "x\xCC\xA3", "X" },
    { "x\xCC\xA3\xCC\x81", "XX" },
    { "\xEF\xBD\x81", "a" },
    { "A", "a" },
    { "T", "t" },
};

/* The bytes of the map, for free(). */
static spm_file map_bytes(void)
{
    spm_file file = spm_tree("unigram.model"), map;
    bt_sentencepiece m;
    assert_int_equal(
        bt_sentencepiece_parse(&m, file.bytes, file.size, "x", NULL), BAUTA_OK);
    map.size = m.charsmap.size;
    map.bytes = malloc(map.size);
    assert_non_null(map.bytes);
    memcpy(map.bytes, m.charsmap.bytes, map.size);
    bt_sentencepiece_release(&m);
    bt_free(file.bytes);
    return map;
}

static bt_charsmap *map_create(void)
{
    spm_file bytes = map_bytes();
    bt_charsmap *map;
    assert_int_equal(
        bt_charsmap_create(&map, bytes.bytes, bytes.size, "x", NULL), BAUTA_OK);
    free(bytes.bytes);
    return map;
}

/* ---- The map ------------------------------------------------------------- */

static size_t reference_find(const char *text, size_t size, bool longest,
                             const char **form)
{
    size_t found = 0;
    for (size_t i = 0; i < BT_LEN(rules); i++) {
        size_t length = strlen(rules[i].key);
        if (length > size || memcmp(rules[i].key, text, length) != 0)
            continue;
        if (found == 0 || (longest ? length > found : length < found)) {
            found = length;
            *form = rules[i].form;
        }
    }
    return found;
}

static void prefixes_are_found_as_the_rules_say(void **state)
{
    test_random *r = *state;
    static const char *const parts[] = {
        "\xEF\xAC\x81", "\xE3\x80\x80", "\t",       "a",
        "\xCC\x8A",     "\xC2\xBD",     "x",        "T",
        "Xb",           "\xCC\xA3",     "\xCC\x81", "\xEF\xBD\x81",
        "\n",           "\xE2",         "\x80",
    };
    bt_charsmap *map = map_create();
    for (int round = 0; round < 20000; round++) {
        char text[64] = "";
        for (size_t n = test_below(r, 6); n > 0; n--)
            strcat(text, parts[test_below(r, BT_LEN(parts))]);
        for (int longest = 0; longest < 2; longest++) {
            const char *form, *want = "";
            size_t size, length = strlen(text);
            size_t found =
                bt_charsmap_find(map, text, length, longest, &form, &size);
            size_t expected = reference_find(text, length, longest, &want);
            // Followed by half a character: not a place to end at.
            if (((unsigned char)text[expected] & 0xC0) == 0x80)
                continue;
            assert_int_equal(found, expected);
            assert_int_equal(size, strlen(want));
            assert_memory_equal(form, want, size);
        }
    }
    bt_charsmap_free(map);
}

static void refused(const void *bytes, size_t size, const char *because)
{
    bt_charsmap *map;
    bauta_error err = { BAUTA_OK, "" };
    assert_int_equal(bt_charsmap_create(&map, bytes, size, "f/x.model", &err),
                     BAUTA_ERR_FORMAT);
    assert_null(map);
    assert_non_null(strstr(err.message, because));
    assert_non_null(strstr(err.message, "x.model"));
}

static void malformed_maps_are_refused(void **state)
{
    (void)state;
    static unsigned char bytes[2048];
    refused("", 0, "only 0 bytes");
    refused("\x04\0\0", 3, "only 3 bytes");
    refused("\x00\0\0\0", 4, "a trie of 0");
    refused("\x04\0\0\0ab", 6, "6 bytes and a trie of 4");
    refused("\x05\0\0\0abcdefgh", 12, "a trie of 5");
    refused("\xFF\xFF\xFF\xFF\0\0\0\0", 8, "a trie of 4294967295");
    refused("\x04\0\0\0\0\0\0\0ab\xFF", 11, "not UTF-8 at byte 2");
    memset(bytes, 'a', sizeof(bytes));
    memcpy(bytes, "\x04\0\0\0\0\0\0\0", 8);
    refused(bytes, sizeof(bytes), "a form of 2040 bytes");
}

/* A trie in which every unit leads back to itself ends after a bounded number
 * of steps. */
static void cyclic_maps_terminate(void **state)
{
    (void)state;
    static const unsigned char bytes[] = { 8, 0,   0, 0, 'a', 1,   0,
                                           0, 'a', 1, 0, 0,   'b', 0 };
    bt_charsmap *map;
    static char text[1 << 16];
    const char *form;
    size_t size;
    memset(text, 'a', sizeof(text));
    assert_int_equal(bt_charsmap_create(&map, bytes, sizeof(bytes), "x", NULL),
                     BAUTA_OK);
    assert_true(bt_charsmap_find(map, text, sizeof(text), true, &form, &size) <=
                256);
    bt_charsmap_free(map);
}

/* Whatever the units are, nothing outside of the map is read. */
static void corrupted_maps_do_not_crash(void **state)
{
    test_random *r = *state;
    static const char text[] = "a\xCC\x8A x\xCC\xA3\xCC\x81 T\xC2\xBD";
    spm_file bytes = map_bytes();
    for (int round = 0; round < 3000; round++) {
        size_t at = test_below(r, bytes.size);
        char was = bytes.bytes[at];
        bt_charsmap *map;
        bytes.bytes[at] = (char)test_below(r, 256);
        size_t size = test_below(r, 4) ? bytes.size : test_below(r, bytes.size);
        void *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        memcpy(copy, bytes.bytes, size);
        bauta_status status = bt_charsmap_create(&map, copy, size, "x", NULL);
        free(copy);
        for (size_t i = 0; !status && i < sizeof(text); i++) {
            const char *form;
            size_t length;
            bt_charsmap_find(map, text + i, sizeof(text) - i, true, &form,
                             &length);
            for (size_t j = 0; j < length; j++)
                assert_int_not_equal(form[j], 0);
        }
        bt_charsmap_free(map);
        bytes.bytes[at] = was;
    }
    free(bytes.bytes);
}

/* ---- SentencePiece's normalisation --------------------------------------- */

typedef struct norm_row {
    const char *name;
    bt_sentencepiece_normalizer_spec spec; /* the map is inserted here */
    const char *text, *want;
} norm_row;

static const char *const kept[] = { "[M", "[MASK]", "  " };
#define B "\xE2\x96\x81"

static const norm_row norm_rows[] = {
    { "spaces",
      { .remove_extra_whitespaces = true, .escape_whitespaces = true },
      "  a  b ",
      "a" B "b" },
    { "prefix",
      { .add_dummy_prefix = true, .escape_whitespaces = true },
      " a ",
      B B "a" B },
    { "both",
      { .add_dummy_prefix = true,
        .remove_extra_whitespaces = true,
        .escape_whitespaces = true },
      "\t\xE3\x80\x80"
      "A\n\n",
      B "a" },
    { "all_spaces",
      { .add_dummy_prefix = true,
        .remove_extra_whitespaces = true,
        .escape_whitespaces = true },
      " \t ",
      "" },
    { "not_escaped", { .add_dummy_prefix = true }, "a b", " a b" },
    { "suffix",
      { .add_dummy_prefix = true,
        .remove_extra_whitespaces = true,
        .escape_whitespaces = true,
        .whitespace_as_suffix = true },
      " a ",
      "a" B },
    { "kept",
      { .remove_extra_whitespaces = true,
        .escape_whitespaces = true,
        .user_defined = kept,
        .user_defined_count = BT_LEN(kept) },
      "[MASK]A[MA",
      "[MASK]a[Ma" },
    // A kept string is not looked up, but its spaces are spaces.
    { "kept_spaces",
      { .escape_whitespaces = true,
        .user_defined = kept,
        .user_defined_count = BT_LEN(kept) },
      "a  b",
      "a" B B "b" },
    { "a_wrong_byte_is_not_mapped",
      { .escape_whitespaces = true },
      "a\xFF\xEF\xBF\xBD",
      "a\xEF\xBF\xBD" B },
    { "code",
      { .add_dummy_prefix = true,
        .remove_extra_whitespaces = true,
        .escape_whitespaces = true,
        .language_codes = true },
      ">>T<< T",
      ">>T<<" B "t" },
    { "no_code",
      { .add_dummy_prefix = true,
        .escape_whitespaces = true,
        .language_codes = true },
      ">>T",
      B ">>t" },
};

static void spaces_are_normalized(void **state)
{
    (void)state;
    spm_file map = map_bytes();
    for (size_t i = 0; i < BT_LEN(norm_rows); i++) {
        const norm_row *row = norm_rows + i;
        bt_sentencepiece_normalizer_spec spec = row->spec;
        bt_normalizer_step step = { 0 };
        bt_aligned_text text;
        spec.charsmap = map.bytes;
        spec.charsmap_size = map.size;
        assert_int_equal(
            bt_normalizer_step_sentencepiece(&step, &spec, "x", NULL),
            BAUTA_OK);
        assert_int_equal(
            bt_aligned_text_init(&text, row->text, strlen(row->text), 0, NULL),
            BAUTA_OK);
        assert_int_equal(step.run(&step, &text, NULL), BAUTA_OK);
        if (text.size != strlen(row->want) ||
            memcmp(text.bytes, row->want, text.size) != 0)
            fail_msg("%s: \"%.*s\", not \"%s\"", row->name, (int)text.size,
                     text.bytes, row->want);
        bt_aligned_text_release(&text);
        step.free(step.data);
    }
    free(map.bytes);
}

/* ---- Precompiled --------------------------------------------------------- */

/* {"precompiled_charsmap": base 64 of the map}. */
static json_t *precompiled_json(const char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrs"
                                 "tuvwxyz0123456789+/";
    char *text = malloc(size / 3 * 4 + 5);
    size_t n = 0;
    assert_non_null(text);
    for (size_t i = 0; i < size; i += 3) {
        unsigned word = 0;
        for (size_t j = i; j < i + 3; j++)
            word = word << 8 | (j < size ? (unsigned char)bytes[j] : 0);
        for (int j = 18; j >= 0; j -= 6)
            text[n++] = digits[word >> j & 63];
        for (size_t j = size; j < i + 3; j++)
            text[n - 1 - (j - size)] = '=';
    }
    text[n] = 0;
    json_t *json = json_pack("{s:s}", "precompiled_charsmap", text);
    assert_non_null(json);
    free(text);
    return json;
}

/* Results of Hugging Face's library. */
static const struct {
    const char *text, *want;
} precompiled_rows[] = {
    { "", "" },
    { "the cat", "the cat" },
    { "\r\nx", " x" }, // one cluster, decided by its beginning
    { "a\xCC\x8A", "\xC3\xA5" },
    { "a\xCC\x8A\xCC\x8A", "\xC3\xA5" },
    { "x\xCC\xA3", "X" },
    { "x\xCC\xA3\xCC\x81", "X" }, // the shortest, not the longest
    { "x\xCC\xA3\xCC\x81\xCC\x81", "x\xCC\xA3\xCC\x81\xCC\x81" },
    { "\xEF\xAC\x81n \xC2\xBD", "fin  1\xE2\x81\x84"
                                "2" },
    { "\xE2\x84\xA6\xCC\x8A", "\xCE\xA9" },
    { "A\xCC\x81"
      "b",
      "ab" },
    { "\xE2\x80\x8B", "" },
    { "b\xCC\x8A", "b" },
    { "\xE3\x80\x80\t", "  " },
    { "\xEF\xBF\xBD", " " },
};

static void precompiled_maps_grapheme_clusters(void **state)
{
    (void)state;
    spm_file map = map_bytes();
    json_t *json = precompiled_json(map.bytes, map.size);
    bt_normalizer_step step = { 0 };
    assert_int_equal(bt_normalizer_step_precompiled(&step, json, "x", NULL),
                     BAUTA_OK);
    json_decref(json);
    for (size_t i = 0; i < BT_LEN(precompiled_rows); i++) {
        const char *from = precompiled_rows[i].text;
        bt_aligned_text text;
        assert_int_equal(
            bt_aligned_text_init(&text, from, strlen(from), 0, NULL), BAUTA_OK);
        assert_int_equal(step.run(&step, &text, NULL), BAUTA_OK);
        assert_int_equal(text.size, strlen(precompiled_rows[i].want));
        assert_memory_equal(text.bytes, precompiled_rows[i].want, text.size);
        bt_aligned_text_release(&text);
    }
    step.free(step.data);
    free(map.bytes);
}

static void precompiled_characters_keep_their_offsets(void **state)
{
    (void)state;
    spm_file map = map_bytes();
    json_t *json = precompiled_json(map.bytes, map.size);
    bt_normalizer_step step = { 0 };
    bt_aligned_text text;
    assert_int_equal(bt_normalizer_step_precompiled(&step, json, "x", NULL),
                     BAUTA_OK);
    assert_int_equal(
        bt_aligned_text_init(&text, "b\xEF\xAC\x81x\xCC\xA3", 7, 0, NULL),
        BAUTA_OK);
    assert_int_equal(step.run(&step, &text, NULL), BAUTA_OK);
    static const bt_origin want[] = { { 0, 1 }, { 1, 4 }, { 1, 4 }, { 4, 5 } };
    assert_int_equal(text.size, BT_LEN(want)); // b f i X
    assert_memory_equal(text.origins, want, sizeof(want));
    bt_aligned_text_release(&text);
    step.free(step.data);
    json_decref(json);
    free(map.bytes);
}

static void precompiled_refuses_malformed_maps(void **state)
{
    (void)state;
    static const struct {
        const char *json, *because;
    } rows[] = {
        { "{}", "has no \"precompiled_charsmap\"" },
        { "{\"precompiled_charsmap\": 1}", "has no" },
        { "{\"precompiled_charsmap\": \"\"}", "only 0 bytes" },
        { "{\"precompiled_charsmap\": \"AAA\"}", "not base 64" },
        { "{\"precompiled_charsmap\": \"A=AA\"}", "not base 64" },
        { "{\"precompiled_charsmap\": \"AA!A\"}", "not base 64" },
        { "{\"precompiled_charsmap\": \"====\"}", "not base 64" },
        { "{\"precompiled_charsmap\": \"/////w==\"}", "a trie of" },
    };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        json_t *json = json_loads(rows[i].json, 0, NULL);
        bt_normalizer_step step = { 0 };
        bauta_error err = { BAUTA_OK, "" };
        assert_int_equal(
            bt_normalizer_step_precompiled(&step, json, "f/t.json", &err),
            BAUTA_ERR_FORMAT);
        if (!strstr(err.message, rows[i].because))
            fail_msg("\"%s\" lacks \"%s\"", err.message, rows[i].because);
        assert_null(step.data);
        json_decref(json);
    }
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    spm_file map = map_bytes();
    json_t *json = precompiled_json(map.bytes, map.size);
    bt_sentencepiece_normalizer_spec spec = { .charsmap = map.bytes,
                                              .charsmap_size = map.size,
                                              .add_dummy_prefix = true,
                                              .user_defined = kept,
                                              .user_defined_count =
                                                  BT_LEN(kept) };
    faults_begin();
    for (int kind = 0; kind < 2; kind++)
        for (size_t k = 0;; k++) {
            bt_normalizer_step step = { 0 };
            bt_aligned_text text;
            bt_aligned_text_init(&text, "T a b c", 7, 0, NULL);
            faults_arm(k);
            bauta_status status =
                kind
                    ? bt_normalizer_step_precompiled(&step, json, "x", NULL)
                    : bt_normalizer_step_sentencepiece(&step, &spec, "x", NULL);
            if (!status)
                status = step.run(&step, &text, NULL);
            bool failed = faults_disarm();
            bt_aligned_text_release(&text);
            if (step.free)
                step.free(step.data);
            assert_int_equal(faults_live(), 0);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (!failed)
                break;
        }
    faults_end();
    json_decref(json);
    free(map.bytes);
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(prefixes_are_found_as_the_rules_say, &random),
        cmocka_unit_test(malformed_maps_are_refused),
        cmocka_unit_test(cyclic_maps_terminate),
        cmocka_unit_test_prestate(corrupted_maps_do_not_crash, &random),
        cmocka_unit_test(spaces_are_normalized),
        cmocka_unit_test(precompiled_maps_grapheme_clusters),
        cmocka_unit_test(precompiled_characters_keep_their_offsets),
        cmocka_unit_test(precompiled_refuses_malformed_maps),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
