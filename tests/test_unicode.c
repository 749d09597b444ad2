/* SPDX-License-Identifier: Apache-2.0 */
/* test_unicode.c - characters, texts with origins, splits, and the alphabet of
 * bytes. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/utf8.h"
#include "testing.h"
#include "text/pretokenize/split.h"
#include "text/subword/bytelevel.h"
#include "text/unicode.h"

#include <string.h>

static uint64_t seed;

/* ---- UTF-8 --------------------------------------------------------------- */

/* By the definition: the bytes encode a scalar value, and encoding that value
 * in the shortest form gives these bytes. */
static uint32_t slow_get(const unsigned char *at, size_t size, size_t *length)
{
    for (size_t n = 1; n <= 4 && n <= size; n++) {
        uint32_t code = n == 1 ? at[0] : at[0] & (0x7Fu >> n);
        for (size_t i = 1; i < n; i++)
            code = code << 6 | (at[i] & 0x3F);
        unsigned char again[4] = { (unsigned char)code };
        if (n > 1)
            again[0] = (unsigned char)(0xF00u >> n | code >> 6 * (n - 1));
        for (size_t i = 1; i < n; i++)
            again[i] = (unsigned char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3F));
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        if (memcmp(again, at, n) == 0 && code >= least[n] && code < 0x110000 &&
            (code < 0xD800 || code > 0xDFFF) && (n > 1 || code < 0x80)) {
            *length = n;
            return code;
        }
    }
    *length = 1;
    return BT_UTF8_REPLACEMENT;
}

static void every_character_is_written_and_read(void **state)
{
    (void)state;
    char bytes[4];
    for (uint32_t code = 0; code < 0x110000; code++) {
        size_t n = bt_utf8_encode(bytes, code), length;
        bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        uint32_t got = bt_utf8_decode(bytes, n, &length);
        assert_int_equal(got, surrogate ? BT_UTF8_REPLACEMENT : code);
        assert_int_equal(length, surrogate ? 1 : n);
        assert_int_equal(bt_utf8_valid_prefix(bytes, n), surrogate ? 0 : n);
        if (surrogate)
            continue;
        assert_int_equal(bt_utf8_length((unsigned char)bytes[0]), n);
        for (size_t k = 1; k < n; k++) {
            assert_int_equal(bt_utf8_incomplete_suffix(bytes, k), k);
            assert_int_equal(bt_utf8_decode(bytes, k, &length),
                             BT_UTF8_REPLACEMENT);
            assert_int_equal(length, 1);
        }
        assert_int_equal(bt_utf8_incomplete_suffix(bytes, n), 0);
    }
}

static size_t random_bytes(test_random *r, unsigned char *out, size_t most)
{
    static const unsigned char edges[] = { 0,    0x7F, 0x80, 0x8F, 0x90, 0x9F,
                                           0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                           0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5 };
    size_t size = test_below(r, most + 1);
    for (size_t i = 0; i < size; i++)
        out[i] = edges[test_below(r, sizeof(edges))];
    return size;
}

static void any_bytes_decode_as_defined(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    unsigned char bytes[16];
    for (int turn = 0; turn < 300000; turn++) {
        size_t size = random_bytes(&r, bytes, sizeof(bytes)), valid = SIZE_MAX;
        for (size_t i = 0, want_length; i < size; i += want_length) {
            size_t length;
            uint32_t want = slow_get(bytes + i, size - i, &want_length);
            uint32_t got = bt_utf8_decode((char *)bytes + i, size - i, &length);
            assert_int_equal(got, want);
            assert_int_equal(length, want_length);
            if (want == BT_UTF8_REPLACEMENT && length == 1 && valid == SIZE_MAX)
                valid = i;
        }
        assert_int_equal(bt_utf8_valid_prefix((char *)bytes, size),
                         valid == SIZE_MAX ? size : valid);
    }
}

/* Bytes are unfinished if more bytes can complete them to one character. */
static void an_incomplete_final_character_is_detected(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t unfinished;
    } ends[] = {
        { "", 0 },
        { "a", 0 },
        { "\xC3", 1 },
        { "a\xC3", 1 },
        { "\xC3\xA9", 0 },
        { "\xE2\x82", 2 },
        { "\xE0\x80", 0 },
        { "\xED\xA0", 0 },
        { "\xED\x9F", 2 },
        { "\xF0\x9F", 2 },
        { "\xF0\x9F\x98", 3 },
        { "\xF4\x90", 0 },
        { "\xF5", 0 },
        { "\xC0", 0 },
        { "\x80\x80\x80", 0 },
        { "\xE2\x82z", 0 },
        { "\xF0\x9F\x98\x80", 0 },
    };
    for (size_t i = 0; i < BT_LEN(ends); i++)
        assert_int_equal(
            bt_utf8_incomplete_suffix(ends[i].bytes, strlen(ends[i].bytes)),
            ends[i].unfinished);
}

/* ---- Kinds --------------------------------------------------------------- */

static void categories_equal_unicode(void **state)
{
    (void)state;
    uint32_t low[3];
    assert_true(bt_is_space(' ') && bt_is_space('\t') && bt_is_space(0x85) &&
                bt_is_space(0x3000) && bt_is_space(0x2028));
    assert_false(bt_is_space(0x180E) || bt_is_space(0x200B) ||
                 bt_is_space(0xFEFF) || bt_is_space(0x1C));
    assert_true(bt_is_punctuation('_') && bt_is_punctuation(0xBF));
    assert_false(bt_is_punctuation('$') || bt_is_punctuation('`'));
    assert_true(bt_is_bert_punctuation('$') && bt_is_bert_punctuation('~') &&
                bt_is_bert_punctuation(0x3001));
    assert_false(bt_is_bert_punctuation('a') || bt_is_bert_punctuation(' ') ||
                 bt_is_bert_punctuation(0x7F) || bt_is_bert_punctuation(0xA3));
    assert_true(bt_is_control(0) && bt_is_control(0xAD) &&
                bt_is_control(0xE000) && bt_is_control(0x7F));
    assert_false(bt_is_control(' ') || bt_is_control('a') ||
                 bt_is_control(0xFFFD));
    assert_true(bt_is_nonspacing_mark(0x301) && bt_is_combining_mark(0x903));
    assert_false(bt_is_nonspacing_mark(0x903) || bt_is_combining_mark('a'));
    assert_true(bt_is_number('7') && bt_is_number(0xBD) &&
                bt_is_number(0x2167));
    assert_false(bt_is_number('x') || bt_is_number(0x4E00));
    assert_true(bt_is_letter('q') && bt_is_letter(0x4E00));
    assert_false(bt_is_letter('@') || bt_is_letter('[') || bt_is_letter(0x301));
    assert_true(bt_is_cjk_ideograph(0x4E00) && bt_is_cjk_ideograph(0x2F800));
    assert_false(bt_is_cjk_ideograph(0x3042) || bt_is_cjk_ideograph(0xAC00) ||
                 bt_is_cjk_ideograph(0x2B820) || bt_is_cjk_ideograph(0x2FA20));
    assert_true(bt_unicode_lower(low, 'Q') == 1 && low[0] == 'q');
    assert_true(bt_unicode_lower(low, 0x394) == 1 && low[0] == 0x3B4);
    assert_true(bt_unicode_lower(low, 0x130) == 2 && low[0] == 'i' &&
                low[1] == 0x307);
}

/* ---- The alphabet of bytes ----------------------------------------------- */

static void each_byte_has_a_printable_character(void **state)
{
    (void)state;
    char bytes[256], text[513], back[513];
    size_t size;
    bool seen[324] = { false };
    uint32_t next = 256;
    for (int b = 0; b < 256; b++) {
        uint32_t code = bt_bytelevel_char((unsigned char)b);
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        assert_int_equal(code, printable ? (uint32_t)b : next++);
        assert_false(seen[code]);
        seen[code] = true;
        bytes[b] = (char)b;
    }
    size_t length = bt_bytelevel_encode(text, bytes, 256);
    assert_int_equal(length, strlen(text));
    assert_true(bt_bytelevel_decode(back, &size, text, length));
    assert_int_equal(size, 256);
    assert_memory_equal(back, bytes, 256);
    assert_true(bt_bytelevel_decode(text, &size, text, length)); // in place
    assert_memory_equal(text, bytes, 256);
    assert_false(bt_bytelevel_decode(back, &size, " ", 1));
    assert_false(bt_bytelevel_decode(back, &size, "\xC5\x84", 2)); // U+0144
    assert_false(bt_bytelevel_decode(back, &size, "a\xFF", 2));
}

/* ---- Texts --------------------------------------------------------------- */

static void check_origin(const bt_aligned_text *t, size_t lo, size_t hi,
                         uint32_t from, uint32_t to)
{
    bt_origin o = bt_aligned_text_origin(t, lo, hi);
    assert_int_equal(o.from, from);
    assert_int_equal(o.to, to);
}

static void a_wellformed_text_is_not_copied(void **state)
{
    (void)state;
    static const char bytes[] = "gr\xC3\xBC\xC3\x9F dich";
    bt_aligned_text t;
    assert_int_equal(
        bt_aligned_text_init(&t, bytes, sizeof(bytes) - 1, 7, NULL), 0);
    assert_ptr_equal(t.bytes, bytes);
    assert_null(t.owned);
    assert_null(t.origins);
    check_origin(&t, 0, 2, 7, 9);
    check_origin(&t, 3, 3, 10, 10);
    bt_aligned_text_release(&t);
    bt_aligned_text_release(&t);
}

static void wrong_bytes_become_replacement_characters(void **state)
{
    (void)state;
    bt_aligned_text t;
    assert_int_equal(bt_aligned_text_init(&t,
                                          "a\xFF\xC3"
                                          "b\xE2\x82",
                                          6, 10, NULL),
                     0);
    static const char want[] = "a\xEF\xBF\xBD\xEF\xBF\xBD"
                               "b\xEF\xBF\xBD\xEF\xBF\xBD";
    assert_int_equal(t.size, sizeof(want) - 1);
    assert_memory_equal(t.bytes, want, t.size);
    check_origin(&t, 0, 1, 10, 11);
    check_origin(&t, 1, 4, 11, 12);
    check_origin(&t, 4, 7, 12, 13);
    check_origin(&t, 7, 8, 13, 14);
    check_origin(&t, 11, 14, 15, 16);
    check_origin(&t, 14, 14, 16, 16);
    check_origin(&t, 0, 14, 10, 16);
    bt_aligned_text_release(&t);
}

static void texts_are_built_from_texts(void **state)
{
    (void)state;
    bt_aligned_text a, b;
    assert_int_equal(bt_aligned_text_init(&a, "hello", 5, 0, NULL), 0);
    bt_aligned_text_init_empty(&b);
    check_origin(&b, 0, 0, 0, 0);
    assert_int_equal(
        bt_aligned_text_append_char(&b, 0x2581, (bt_origin){ 0, 1 }, NULL), 0);
    assert_int_equal(bt_aligned_text_append_range(&b, &a, 1, 5, NULL), 0);
    assert_int_equal(
        bt_aligned_text_append(&b, "xy", 2, (bt_origin){ 5, 5 }, NULL), 0);
    assert_memory_equal(b.bytes,
                        "\xE2\x96\x81"
                        "elloxy",
                        9);
    check_origin(&b, 2, 5, 0, 3);
    check_origin(&b, 7, 9, 5, 5);
    check_origin(&b, 9, 9, 5, 5);
    bt_aligned_text_replace(&a, &b);
    assert_int_equal(a.size, 9);
    assert_int_equal(b.size, 0);
    bt_aligned_text_release(&a);
    bt_aligned_text_release(&b);
}

static void a_text_of_4_gib_is_refused(void **state)
{
    (void)state;
    bauta_error err;
    bt_aligned_text t;
    assert_int_equal(bt_aligned_text_init(&t, "a", 1, (size_t)UINT32_MAX, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "4 GiB"));
    bt_aligned_text_release(&t);
}

/* ---- Splits -------------------------------------------------------------- */

static void empty_splits_are_left_out(void **state)
{
    (void)state;
    bt_splits s = { .list = NULL };
    assert_int_equal(bt_aligned_text_init(&s.text, "abc", 3, 0, NULL), 0);
    for (uint32_t i = 0; i < 100; i++) {
        bt_split split = { i, i + (i & 1), BT_NO_TOKEN, false };
        assert_int_equal(bt_splits_add(&s, split, NULL), 0);
    }
    assert_int_equal(s.count, 50);
    assert_int_equal(s.list[49].lo, 99);
    bt_splits_release(&s);
    bt_splits_release(&s);
}

static bauta_status build(bauta_error *err)
{
    bt_splits s = { .list = NULL };
    char bytes[300];
    memset(bytes, 0xFF, sizeof(bytes));
    bauta_status status =
        bt_aligned_text_init(&s.text, bytes, sizeof(bytes), 0, err);
    for (uint32_t i = 0; !status && i < 40; i++)
        status =
            bt_splits_add(&s, (bt_split){ i, i + 1, BT_NO_TOKEN, false }, err);
    bt_splits_release(&s);
    return status;
}

static void allocation_failure_is_an_error(void **state)
{
    (void)state;
    bauta_error err;
    faults_begin();
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status = build(&err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), 0);
    }
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_written_and_read),
        cmocka_unit_test(any_bytes_decode_as_defined),
        cmocka_unit_test(an_incomplete_final_character_is_detected),
        cmocka_unit_test(categories_equal_unicode),
        cmocka_unit_test(each_byte_has_a_printable_character),
        cmocka_unit_test(a_wellformed_text_is_not_copied),
        cmocka_unit_test(wrong_bytes_become_replacement_characters),
        cmocka_unit_test(texts_are_built_from_texts),
        cmocka_unit_test(a_text_of_4_gib_is_refused),
        cmocka_unit_test(empty_splits_are_left_out),
        cmocka_unit_test(allocation_failure_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
