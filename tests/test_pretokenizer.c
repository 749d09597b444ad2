/* SPDX-License-Identifier: Apache-2.0 */
/* test_pretokenizer.c - pre-tokenizers and patterns split texts where Hugging
 * Face's library splits them. */
#include "allocation_faults.h"
#include "base/error.h"
#include "text/pretokenize/gpt2_split.h"
#include "text/pretokenize/pretokenizer.h"
#include "text/pretokenize/splitter.h"
#include "text/subword/bytelevel.h"
#include "text_step_cases.h"

static uint64_t seed;

#define LLAMA3                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static bt_pretokenizer *parsed(const json_t *json)
{
    bt_pretokenizer *p;
    bauta_error err;
    if (bt_pretokenizer_parse(&p, json, "tokenizer.json", &err))
        fail_msg("%s", err.message);
    return p;
}

static json_t *split_json(const char *regex)
{
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
                     "Regex", regex, "behavior", "Isolated", "invert", 0);
}

static bt_splits splits_of(const char *bytes, size_t size)
{
    bt_splits s = { .list = NULL };
    assert_int_equal(bt_aligned_text_init(&s.text, bytes, size, 0, NULL), 0);
    bt_split all = { 0, (uint32_t)s.text.size, BT_NO_TOKEN, true };
    assert_int_equal(bt_splits_add(&s, all, NULL), 0);
    return s;
}

static bt_splits cut_by(const bt_pretokenizer *p, const char *bytes,
                        size_t size)
{
    bt_splits s = splits_of(bytes, size);
    bauta_error err;
    if (bt_pretokenizer_run(p, &s, &err))
        fail_msg("%s", err.message);
    return s;
}

/* ---- The library's results ----------------------------------------------- */

/* Bytes are written in their alphabet in the file. */
static void check_split(const bt_splits *s, size_t i, bool bytes,
                        const json_t *want)
{
    char shown[1024];
    const char *at = s->text.bytes + s->list[i].lo;
    size_t size = s->list[i].hi - s->list[i].lo;
    assert_true(size < sizeof(shown) / 2);
    if (bytes) {
        size = bt_bytelevel_encode(shown, at, size);
        at = shown;
    }
    if (size != json_string_length(want) ||
        memcmp(at, json_string_value(want), size) != 0)
        fail_msg("split %zu is \"%.*s\", not \"%s\"", i, (int)size, at,
                 json_string_value(want));
}

static void check_case(const json_t *item)
{
    const json_t *text = json_object_get(item, "text");
    const json_t *want = json_object_get(item, "splits");
    const json_t *origins = json_object_get(item, "origins");
    bt_pretokenizer *p = parsed(json_object_get(item, "step"));
    bt_splits s = cut_by(p, json_string_value(text), json_string_length(text));
    bool bytes = bt_pretokenizer_bytelevel(p);
    assert_int_equal(bytes, origins == NULL);
    for (size_t i = 0; i < s.count; i++) {
        check_split(&s, i, bytes, json_array_get(want, i));
        if (!bytes)
            check_range(
                json_array_get(origins, i),
                bt_aligned_text_origin(&s.text, s.list[i].lo, s.list[i].hi));
    }
    assert_int_equal(s.count, json_array_size(want));
    bt_splits_release(&s);
    bt_pretokenizer_free(p);
}

static void texts_are_split_as_in_hugging_face(void **state)
{
    (void)state;
    json_t *list = expected_load("pretokenizers.json"), *item;
    size_t i;
    assert_true(json_array_size(list) > 100);
    json_array_foreach(list, i, item) check_case(item);
    json_decref(list);
}

static void null_splits_nothing(void **state)
{
    (void)state;
    assert_null(parsed(json_null()));
    assert_false(bt_pretokenizer_bytelevel(NULL));
    bt_splits s = cut_by(NULL, "a b", 3);
    assert_int_equal(s.count, 1);
    bt_splits_release(&s);
    bt_pretokenizer_free(NULL);
}

static void added_tokens_are_not_split(void **state)
{
    (void)state;
    static const char *const steps[] = {
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
        "{\"type\":\"Metaspace\"}",
        "{\"type\":\"WhitespaceSplit\"}",
    };
    for (size_t i = 0; i < BT_LEN(steps); i++) {
        json_t *json = json_of(steps[i]);
        bt_pretokenizer *p = parsed(json);
        bt_splits s = splits_of("x < > y", 7);
        s.count = 0;
        assert_int_equal(
            bt_splits_add(&s, (bt_split){ 0, 1, BT_NO_TOKEN, true }, NULL), 0);
        assert_int_equal(bt_splits_add(&s, (bt_split){ 2, 5, 9, false }, NULL),
                         0);
        assert_int_equal(
            bt_splits_add(&s, (bt_split){ 6, 7, BT_NO_TOKEN, false }, NULL), 0);
        assert_int_equal(bt_pretokenizer_run(p, &s, NULL), 0);
        assert_int_equal(s.count, 3);
        assert_int_equal(s.list[1].token, 9);
        assert_memory_equal(s.text.bytes + s.list[1].lo, "< >", 3);
        bt_splits_release(&s);
        bt_pretokenizer_free(p);
        json_decref(json);
    }
}

/* ---- By hand and by PCRE2 ------------------------------------------------ */

static void same_splits(const bt_splits *a, const bt_splits *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (a->list[i].hi != b->list[i].hi)
            fail_msg("\"%.*s\" is cut at %u, not at %u", (int)a->text.size,
                     a->text.bytes, a->list[i].hi, b->list[i].hi);
    assert_int_equal(a->count, b->count);
}

static void hand_written_patterns_split_as_pcre2(void **state)
{
    (void)state;
    static const char *const patterns[] = { BT_GPT2_PATTERN, LLAMA3, QWEN2 };
    test_random r = test_random_from(seed);
    char bytes[256], wrapped[512];
    assert_int_equal(bt_llama3_max_digits(LLAMA3), 3);
    assert_int_equal(bt_llama3_max_digits(QWEN2), 1);
    assert_int_equal(bt_llama3_max_digits(BT_GPT2_PATTERN), 0);
    for (size_t i = 0; i < BT_LEN(patterns); i++) {
        // Inside a group it is not recognised and goes to PCRE2.
        snprintf(wrapped, sizeof(wrapped), "(?:%s)", patterns[i]);
        json_t *known = split_json(patterns[i]), *other = split_json(wrapped);
        bt_pretokenizer *a = parsed(known), *b = parsed(other);
        for (int turn = 0; turn < 20000; turn++) {
            size_t size = random_text(&r, bytes, 1 + test_below(&r, 24));
            bt_splits by_hand = cut_by(a, bytes, size);
            bt_splits compiled = cut_by(b, bytes, size);
            same_splits(&by_hand, &compiled);
            bt_splits_release(&by_hand);
            bt_splits_release(&compiled);
        }
        bt_pretokenizer_free(a);
        bt_pretokenizer_free(b);
        json_decref(known);
        json_decref(other);
    }
}

/* ---- Behaviours ---------------------------------------------------------- */

typedef struct piece {
    size_t lo, hi;
    bool match;
} piece;

/* By the definition: from the right for MERGED_NEXT, from the left for the
 * others. */
static size_t slow_behave(piece *p, size_t count, bt_split_behavior behavior)
{
    size_t n = 0;
    bool previous = false;
    piece out[64];
    for (size_t k = 0; k < count; k++) {
        bool right = behavior == BT_SPLIT_MERGED_WITH_NEXT;
        piece c = p[right ? count - 1 - k : k];
        bool merge = behavior == BT_SPLIT_CONTIGUOUS ? c.match == previous
                                                     : c.match && !previous;
        previous = c.match;
        if (behavior == BT_SPLIT_REMOVED && c.match)
            continue;
        if (n > 0 && merge && behavior > BT_SPLIT_ISOLATED) {
            out[n - 1].lo = right ? c.lo : out[n - 1].lo;
            out[n - 1].hi = right ? out[n - 1].hi : c.hi;
        } else {
            out[n++] = c;
        }
    }
    for (size_t k = 0; k < n; k++)
        p[k] = out[behavior == BT_SPLIT_MERGED_WITH_NEXT ? n - 1 - k : k];
    return n;
}

static void behaviours_follow_their_definition(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    for (int turn = 0; turn < 20000; turn++) {
        piece pieces[32];
        size_t count = test_below(&r, 12), at = 0;
        bt_splits out = { .list = NULL };
        bt_splitter cut = { .out = &out,
                            .behavior = (bt_split_behavior)test_below(&r, 5),
                            .invert = test_below(&r, 2) };
        for (size_t i = 0; i < count; i++) {
            size_t length = 1 + test_below(&r, 3);
            bool match = test_below(&r, 2);
            assert_int_equal(bt_splitter_add(&cut, at, at + length, match), 0);
            pieces[i] = (piece){ at, at + length, match ^ cut.invert };
            at += length;
        }
        assert_int_equal(bt_splitter_end(&cut), 0);
        size_t want = slow_behave(pieces, count, cut.behavior);
        assert_int_equal(out.count, want);
        for (size_t i = 0; i < want; i++) {
            assert_int_equal(out.list[i].lo, pieces[i].lo);
            assert_int_equal(out.list[i].hi, pieces[i].hi);
        }
        bt_splits_release(&out);
    }
}

/* ---- Refusals ------------------------------------------------------------ */

static void check_refused(const json_t *json, const char *message)
{
    bt_pretokenizer *p;
    bauta_error err;
    assert_int_equal(bt_pretokenizer_parse(&p, json, "dir/t.json", &err),
                     BAUTA_ERR_FORMAT);
    assert_null(p);
    assert_non_null(strstr(err.message, "t.json: "));
    if (!strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
}

static void malformed_pretokenizers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } rows[] = {
        { "{\"type\":\"UnicodeScripts\"}", "\"UnicodeScripts\" is unknown" },
        { "{}", "no \"type\"" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":{}}", "has no list" },
        { "{\"type\":\"Split\",\"behavior\":\"Isolated\"}",
          "a String or a Regex" },
        { "{\"type\":\"Punctuation\",\"behavior\":\"Odd\"}", "\"Odd\"" },
        { "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "one character" },
        { "{\"type\":\"Metaspace\",\"replacement\":\"\"}", "one character" },
        { "{\"type\":\"Metaspace\",\"prepend_scheme\":\"odd\"}", "\"odd\"" },
        { "{\"type\":\"CharDelimiterSplit\"}", "no \"delimiter\"" },
        { "{\"type\":\"Digits\",\"individual_digits\":0}",
          "not true or false" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
          "{\"type\":\"Metaspace\"}]}",
          "Metaspace after ByteLevel" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
          "{\"type\":\"ByteLevel\"}]}",
          "another ByteLevel" },
    };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        json_t *json = json_of(rows[i].json);
        check_refused(json, rows[i].message);
        json_decref(json);
    }
}

static void patterns_with_another_meaning_in_pcre2_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *message;
    } rows[] = {
        { "(", "parenthesis" },
        { "[a", "class without an end" },
        { "[a[bc]]", "class within a class" },
        { "[a-z&&[^b]]", "intersection" },
        { "a{1,2}+", "repeats a repetition" },
        { "(?s:.)", "unknown option" },
        { "a(?i)b|c", "option in the middle" },
        { "\\xe9", "single byte" },
        { "\\y", "escape" },
        { "\\", "backslash" },
        { "\\p{Nonsense}", "property" },
        { "(?<=a+)b", "lookbehind" },
        { "a**", "quantifier" },
        { "\\u12", "malformed code" },
    };
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        json_t *json = split_json(rows[i].regex);
        check_refused(json, rows[i].message);
        json_decref(json);
    }
}

static void a_match_that_takes_too_long_is_an_error(void **state)
{
    (void)state;
    json_t *json = split_json("(?:a+)+$|(?:(a|aa)+)\\1b");
    bt_pretokenizer *p = parsed(json);
    char bytes[5000];
    memset(bytes, 'a', sizeof(bytes));
    bytes[sizeof(bytes) - 1] = 'c';
    bt_splits s = splits_of(bytes, sizeof(bytes));
    bauta_error err;
    assert_int_not_equal(bt_pretokenizer_run(p, &s, &err), BAUTA_OK);
    assert_non_null(strstr(err.message, "match"));
    bt_splits_release(&s);
    bt_pretokenizer_free(p);
    json_decref(json);
}

/* ---- Resources ----------------------------------------------------------- */

static bauta_status parse_and_run(const json_t *json, const char *bytes,
                                  size_t size, bauta_error *err)
{
    bt_pretokenizer *p;
    bauta_status status = bt_pretokenizer_parse(&p, json, "t.json", err);
    if (status)
        return status;
    bt_splits s = { .list = NULL };
    status = bt_aligned_text_init(&s.text, bytes, size, 0, err);
    bt_split all = { 0, (uint32_t)s.text.size, BT_NO_TOKEN, true };
    if (!status)
        status = bt_splits_add(&s, all, err);
    if (!status)
        status = bt_pretokenizer_run(p, &s, err);
    bt_splits_release(&s);
    bt_pretokenizer_free(p);
    return status;
}

static void allocation_failure_is_an_error(void **state)
{
    (void)state;
    json_t *list = expected_load("pretokenizers.json"), *item;
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
    json_t *steps[] = {
        json_of("{\"type\":\"ByteLevel\"}"),
        split_json(LLAMA3),
        split_json("(?:" LLAMA3 ")"),
        split_json("[\\p{Lu}\\p{M}]*[\\p{Ll}\\p{M}]+|[^\\s\\p{L}]+[\\r\\n]*"
                   "|\\s*[\\r\\n]+|\\s+"),
        json_of("{\"type\":\"Metaspace\"}"),
        json_of("{\"type\":\"BertPreTokenizer\"}"),
        json_of("{\"type\":\"Whitespace\"}"),
    };
    for (size_t i = 0; i < BT_LEN(steps); i++) {
        for (size_t j = 0; j < BT_LEN(megabytes); j++) {
            size_t size;
            char *bytes = megabyte_of(megabytes[j], &size);
            bauta_error err;
            double start = seconds();
            if (parse_and_run(steps[i], bytes, size, &err))
                fail_msg("step %zu, \"%s\": %s", i, bt_quote(megabytes[j]).text,
                         err.message);
            if (seconds() - start > SECONDS_MAX)
                fail_msg("step %zu takes %g s for a megabyte of \"%s\"", i,
                         seconds() - start, bt_quote(megabytes[j]).text);
            free(bytes);
        }
        json_decref(steps[i]);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_split_as_in_hugging_face),
        cmocka_unit_test(null_splits_nothing),
        cmocka_unit_test(added_tokens_are_not_split),
        cmocka_unit_test(hand_written_patterns_split_as_pcre2),
        cmocka_unit_test(behaviours_follow_their_definition),
        cmocka_unit_test(malformed_pretokenizers_are_refused),
        cmocka_unit_test(patterns_with_another_meaning_in_pcre2_are_refused),
        cmocka_unit_test(a_match_that_takes_too_long_is_an_error),
        cmocka_unit_test(allocation_failure_is_an_error),
        cmocka_unit_test(a_megabyte_of_anything_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
