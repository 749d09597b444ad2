/* SPDX-License-Identifier: Apache-2.0 */
/* test_mask_parse.c - mask expressions: a text gives the mask of the
 * constructors, and errors name the column. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/size.h"
#include "mask_model.h"

static bauta_mask *parse(const char *text, size_t queries, size_t keys)
{
    bauta_mask *mask = NULL;
    bauta_error err = { 0, "" };
    if (bauta_mask_parse(&mask, text, queries, keys, &err))
        fail_msg("%s: %s", text, err.message);
    return mask;
}

static char *json_of(const bauta_mask *mask)
{
    size_t length = bauta_mask_json(mask, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    bauta_mask_json(mask, text, length + 1);
    return text;
}

/* The text gives this mask, rows and origins; the mask is freed. */
static void assert_says(const char *text, bauta_mask *want)
{
    bauta_mask *got =
        parse(text, bauta_mask_queries(want), bauta_mask_keys(want));
    char *a = json_of(got), *b = json_of(want);
    if (strcmp(a, b) != 0)
        fail_msg("%s\n got %s\nwant %s", text, a, b);
    free(a);
    free(b);
    bauta_mask_free(got);
    bauta_mask_free(want);
}

#define MADE(kind, ...) \
    (made = NULL, (void)bauta_mask_##kind(&made, __VA_ARGS__, NULL), made)

static void every_kind_equals_its_constructor(void **state)
{
    (void)state;
    bauta_mask *made;
    size_t three_two[] = { 3, 2 }, q[] = { 2, 1 }, k[] = { 1, 3 };
    assert_says("all", MADE(all, 4, 6));
    assert_says("none", MADE(sinks, 4, 6, 0));
    assert_says(" causal ", MADE(causal, 4, 6));
    assert_says("window(2)", MADE(window, 6, 4, 2));
    assert_says("window ( 2147483647 )", MADE(window, 6, 4, 2147483647));
    assert_says("prefix(3)", MADE(prefix, 5, 5, 3));
    assert_says("sinks(007)", MADE(sinks, 5, 5, 7));
    assert_says("documents(3,2)", MADE(documents, 2, three_two, NULL));
    assert_says("documents(2:1,1:3)", MADE(documents, 2, q, k));
    assert_says("lengths(3, 2)", MADE(lengths, 2, 4, 4, NULL, three_two));
    assert_says("lengths(2:1,1:3)", MADE(lengths, 2, 2, 5, q, k));
    assert_says("all", MADE(all, 0, 0));
}

static void operators_bind_as_usual(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *full;
    } same[] = {
        { "causal & window(3) | sinks(1)", "(causal & window(3)) | sinks(1)" },
        { "sinks(1) | causal & window(3)", "sinks(1) | (causal & window(3))" },
        { "!causal & prefix(2)", "(!causal) & prefix(2)" },
        { "!causal | all & none", "(!(causal)) | ((all) & (none))" },
        { "!!window(2)", "window(2)" },
        { "none|none|sinks(2)", "sinks(2)" },
        { "all\t&\nall\r& causal", "causal" },
        { "reach(window(2), 2)", "window(3)" },
        { "reach(window(2) | none, 0)", "window(1)" },
        { "compose(window(2), window(2))", "window(3)" },
        { "((((causal))))", "causal" },
    };
    for (size_t i = 0; i < BT_LEN(same); i++) {
        bauta_mask *full = parse(same[i].full, 6, 6);
        char picture[2][64];
        bauta_mask *plain = parse(same[i].plain, 6, 6);
        bauta_mask_text(plain, picture[0], sizeof(picture[0]));
        bauta_mask_text(full, picture[1], sizeof(picture[1]));
        assert_string_equal(picture[0], picture[1]);
        bauta_mask_free(full);
        bauta_mask_free(plain);
    }
}

/* ---- Random expressions -------------------------------------------------- */

typedef struct draft {
    char text[4096];
    size_t length;
} draft;

static void put(draft *d, test_random *r, const char *text)
{
    static const char *const gaps[] = { "", "", " ", "\t", "  " };
    d->length +=
        (size_t)snprintf(d->text + d->length, sizeof(d->text) - d->length,
                         "%s%s", gaps[test_below(r, BT_LEN(gaps))], text);
    assert_true(d->length < sizeof(d->text));
}

static void put_number(draft *d, test_random *r, size_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%zu", number);
    put(d, r, text);
}

static void random_kind(test_random *r, draft *d, model *m)
{
    static const char *const names[] = { "all", "causal", "window", "prefix",
                                         "sinks" };
    model_rule rule = (model_rule)test_below(r, RULES);
    size_t width = 1 + test_below(r, m->keys + 3);
    ptrdiff_t shift = (ptrdiff_t)m->keys - (ptrdiff_t)m->queries;
    for (size_t i = 0; i < m->queries; i++)
        for (size_t j = 0; j < m->keys; j++)
            *model_at(m, i, j) = rule_sees(rule, (ptrdiff_t)i + shift,
                                           (ptrdiff_t)j, (ptrdiff_t)width);
    put(d, r, names[rule]);
    if (rule == RULE_ALL || rule == RULE_CAUSAL)
        return;
    put(d, r, "(");
    put_number(d, r, width);
    put(d, r, ")");
}

static void random_parts(test_random *r, draft *d, model *m)
{
    size_t parts = 1 + test_below(r, PARTS), q[PARTS], k[PARTS];
    random_lengths(r, m->queries, parts, q);
    random_lengths(r, m->keys, parts, k);
    put(d, r, "documents");
    size_t query = 0, key = 0;
    for (size_t p = 0; p < parts; p++) {
        put(d, r, p ? "," : "(");
        put_number(d, r, q[p]);
        if (q[p] != k[p] || test_below(r, 2)) {
            put(d, r, ":");
            put_number(d, r, k[p]);
        }
        model_block(m, query, key, q[p], k[p]);
        query += q[p];
        key += k[p];
    }
    put(d, r, ")");
}

static void random_text(test_random *r, draft *d, model *m, int depth);

static void random_pair(test_random *r, draft *d, model *m, int depth)
{
    bool both = test_below(r, 2);
    model y = model_create(m->queries, m->keys);
    // Parenthesised, so that the precedence is that of the random tree.
    put(d, r, "(");
    random_text(r, d, m, depth);
    put(d, r, both ? "&" : "|");
    random_text(r, d, &y, depth);
    put(d, r, ")");
    for (size_t p = 0; p < m->queries * m->keys; p++)
        m->visible[p] =
            both ? m->visible[p] & y.visible[p] : m->visible[p] | y.visible[p];
    model_free(&y);
}

static void random_text(test_random *r, draft *d, model *m, int depth)
{
    switch (depth ? test_below(r, 5) : 4) {
    case 0:
    case 1:
        random_pair(r, d, m, depth - 1);
        break;
    case 2:
        put(d, r, "!");
        random_text(r, d, m, depth - 1);
        for (size_t p = 0; p < m->queries * m->keys; p++)
            m->visible[p] = !m->visible[p];
        break;
    default:
        (test_below(r, 4) ? random_kind : random_parts)(r, d, m);
    }
}

static void a_text_equals_its_matrix(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (int round = 0; round < 3000; round++) {
        static draft d;
        d.length = 0;
        size_t queries = test_below(&r, 20);
        size_t keys = test_below(&r, 3) ? queries : test_below(&r, 20);
        model m = model_create(queries, keys);
        random_text(&r, &d, &m, 4);
        bauta_mask *mask = parse(d.text, queries, keys);
        for (size_t i = 0; i < queries; i++)
            for (size_t j = 0; j < keys; j++)
                if (bauta_mask_visible(mask, i, j) != *model_at(&m, i, j))
                    fail_msg("round %d, %zu over %zu: %s: pair %zu, %zu", round,
                             queries, keys, d.text, i, j);
        bauta_mask_free(mask);
        model_free(&m);
    }
}

/* ---- Unreadable files ---------------------------------------------------- */

static bauta_error refuse(const char *text, size_t queries, size_t keys)
{
    bauta_error err = { 0, "" };
    bauta_mask *out = (bauta_mask *)&err;
    if (bauta_mask_parse(&out, text, queries, keys, &err) !=
            BAUTA_ERR_ARGUMENT ||
        out || err.status != BAUTA_ERR_ARGUMENT ||
        strncmp(err.message, "column ", 7) != 0)
        fail_msg("'%s': %p, '%s'", text, (void *)out, err.message);
    return err;
}

static void errors_name_the_column_and_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "casual", "column 1: there is no mask 'casual'; did you mean "
                    "'causal'?" },
        { "causal & windw(3)", "column 10: there is no mask 'windw'; did you "
                               "mean 'window'?" },
        { "xyzzyx", "column 1: there is no mask 'xyzzyx'" },
        { "window", "column 7: expected (n), found the end" },
        { "window 3", "column 8: expected (n), found '3'" },
        { "window(x)", "column 8: expected a number, found 'x'" },
        { "window(-1)", "column 8: expected a number, found '-'" },
        { "window(3", "column 9: expected ')', found the end" },
        { "window(3,4)", "column 9: expected ')', found ','" },
        { "window(0)", "column 1: a window of 0 keys: it counts the query "
                       "itself, so the smallest is 1" },
        { "sinks(99999999999999999999)",
          "column 7: the number is larger than 2147483647" },
        { "(causal", "column 8: expected '|', '&' or ')', found the end" },
        { "causal)", "column 7: expected '|', '&' or the end, found ')'" },
        { "causal and all",
          "column 8: expected '|', '&' or the end, found 'and'" },
        { "documents(3,)", "column 13: expected a number, found ')'" },
        { "documents(3 2)", "column 13: expected ',' or ')', found '2'" },
        { "documents(3, 4)", "column 1: the documents have 7 queries and 7 "
                             "keys, the mask has 8 and 8" },
        { "all | lengths(1,1,1)", "column 7: 3 sequences of one time do not "
                                  "make 8 queries over 8 keys" },
        { "lengths(9)", "column 1: sequence 0 has 9 keys in a time of 8" },
        { "reach(causal)",
          "column 13: expected ',' and how many layers, found ')'" },
        { "compose(causal)",
          "column 15: expected ',' and the lower mask, found ')'" },
        { "\u00e4", "column 1: expected a mask (all, none, causal, window(n), "
                    "prefix(n), sinks(n), documents(n, ...), '!' or '('), "
                    "found '\u00e4'" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++)
        assert_string_equal(refuse(cases[i].text, 8, 8).message,
                            cases[i].message);
    assert_non_null(
        strstr(refuse("all & \u00e4\u00e4 |", 8, 8).message, "column 7:"));
    assert_non_null(strstr(refuse("reach(all, 2)", 2, 3).message, "column 1:"));
}

static void malformed_texts_are_errors(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "",  " ", "(", ")",  "!",    "&",      "|",  ",",  ":",
        "3", "0", "@", "\t", "all(", "window", "0x", "\"", "\xff",
    };
    size_t count = BT_LEN(pieces), refused = 0;
    char text[64];
    bauta_mask *mask;
    bauta_error err;
    for (size_t n = 0; n < count * count * count; n++) {
        snprintf(text, sizeof(text), "%s%s%s", pieces[n % count],
                 pieces[n / count % count], pieces[n / count / count]);
        if (bauta_mask_parse(&mask, text, 4, 4, &err) == BAUTA_OK)
            fail_msg("'%s' is a mask", text);
        refused += err.message[0] != '\0' && !mask;
    }
    assert_int_equal(refused, count * count * count);
}

/* Every text that differs from a valid one in one byte gives a mask or an
 * error. */
static void changed_bytes_do_not_crash(void **state)
{
    (void)state;
    static const char good[] =
        "(causal & !window(3)) | documents(2, 3:3, 3) & reach(sinks(2), 1)";
    static const char bytes[] = "()!&|,:09aw \xc3\x7f";
    char text[sizeof(good) + 1];
    bauta_mask *mask;
    for (size_t at = 0; at < sizeof(good); at++)
        for (size_t b = 0; b < sizeof(bytes); b++)
            for (size_t cut = 0; cut < 2; cut++) {
                memcpy(text, good, at);
                text[at] = bytes[b];
                memcpy(text + at + 1, good + at + cut, sizeof(good) - at - cut);
                bauta_error err = { 0, "" };
                bauta_status status = bauta_mask_parse(&mask, text, 8, 8, &err);
                assert_int_equal(status != BAUTA_OK, !mask);
                assert_int_equal(status, err.status);
                bauta_mask_free(mask);
            }
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    enum { LEVELS = 100000 };
    char *text = malloc(2 * LEVELS + 8);
    assert_non_null(text);
    memset(text, '(', LEVELS);
    strcpy(text + LEVELS, "all");
    assert_string_equal(refuse(text, 2, 2).message,
                        "column 101: nested deeper than 100 levels");
    memset(text, '!', LEVELS);
    refuse(text, 2, 2);
    for (size_t i = 0; i + 6 < LEVELS; i += 6)
        memcpy(text + i, "reach(", 6);
    refuse(text, 2, 2);
    memset(text, '(', 99);
    strcpy(text + 99, "all");
    memset(text + 102, ')', 99);
    text[201] = '\0';
    bauta_mask_free(parse(text, 2, 2));
    // A chain is not nesting.
    for (size_t i = 0; i < 20000; i++)
        memcpy(text + 4 * i, "all&", 4);
    strcpy(text + 80000, "all");
    bauta_mask_free(parse(text, 2, 2));
    free(text);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    bauta_mask *mask;
    bauta_error err;
    assert_int_equal(bauta_mask_parse(NULL, "all", 1, 1, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_mask_parse(&mask, NULL, 1, 1, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, "text is NULL");
    refuse("all", SIZE_MAX, 1);
    refuse("documents(1)", SIZE_MAX, 1);
    refuse("lengths(1)", SIZE_MAX, SIZE_MAX);
}

static void each_failing_allocation_is_an_error_without_a_leak(void **state)
{
    (void)state;
    static const char text[] =
        "!(causal & window(3)) | documents(2, 3:3, 2, 1) & "
        "reach(sinks(2), 1) | compose(lengths(4, 2), prefix(1)) | none";
    faults_begin();
    size_t k = 0;
    for (;; k++) {
        bauta_error err = { 0, "" };
        bauta_mask *mask = NULL;
        faults_arm(k);
        bauta_status status = bauta_mask_parse(&mask, text, 8, 8, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            bauta_mask_free(mask);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(mask);
        assert_non_null(strstr(err.message, "out of memory"));
        assert_int_equal(faults_live(), 0);
    }
    assert_true(k > 50);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_equals_its_constructor),
        cmocka_unit_test(operators_bind_as_usual),
        cmocka_unit_test(a_text_equals_its_matrix),
        cmocka_unit_test(errors_name_the_column_and_what_was_expected),
        cmocka_unit_test(malformed_texts_are_errors),
        cmocka_unit_test(changed_bytes_do_not_crash),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(each_failing_allocation_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests_name("mask_parse", tests, NULL, NULL);
}
