/* SPDX-License-Identifier: Apache-2.0 */
/* test_mask.c - masks: small ones drawn by hand, ten thousand random ones, and
 * errors. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/size.h"
#include "bauta.h"
#include "mask_model.h"

#include <string.h>
#include <time.h>

/* ---- Pictures ------------------------------------------------------------ */

/* Compare a mask, which is then freed, with a drawing. */
static void draws(bauta_mask *mask, const char *want)
{
    char got[1024];
    size_t length = bauta_mask_text(mask, got, sizeof(got));
    assert_true(length < sizeof(got));
    assert_string_equal(got, want);
    assert_int_equal(length, strlen(want));
    bauta_mask_free(mask);
}

/* MAKE(causal, 3, 3) is the mask that bauta_mask_causal(.., 3, 3, ..) makes. */
static bauta_mask *made_mask;
static bauta_error made_error;
static bauta_mask *made(bauta_status status)
{
    if (status)
        fail_msg("%s", made_error.message);
    return made_mask;
}
#define MAKE(kind, ...) \
    made(bauta_mask_##kind(&made_mask, __VA_ARGS__, &made_error))

static void all_shows_every_key(void **state)
{
    (void)state;
    draws(MAKE(all, 2, 4), "####\n"
                           "####\n");
}

static void causal_hides_the_future(void **state)
{
    (void)state;
    draws(MAKE(causal, 4, 4), "#...\n"
                              "##..\n"
                              "###.\n"
                              "####\n");
}

static void the_last_query_meets_the_last_key(void **state)
{
    (void)state;
    draws(MAKE(causal, 2, 5), "####.\n"
                              "#####\n");
    draws(MAKE(causal, 1, 5), "#####\n");
    draws(MAKE(causal, 5, 2), "..\n"
                              "..\n"
                              "..\n"
                              "#.\n"
                              "##\n");
    draws(MAKE(window, 2, 5, 2), "..##.\n"
                                 "...##\n");
    draws(MAKE(window, 4, 2, 1), "..\n"
                                 "..\n"
                                 "#.\n"
                                 ".#\n");
    draws(MAKE(sinks, 4, 3, 2), "...\n"
                                "#..\n"
                                "##.\n"
                                "##.\n");
    draws(MAKE(prefix, 4, 3, 1), "#..\n"
                                 "#..\n"
                                 "##.\n"
                                 "###\n");
}

static void a_window_counts_the_query_itself(void **state)
{
    (void)state;
    draws(MAKE(window, 4, 4, 1), "#...\n"
                                 ".#..\n"
                                 "..#.\n"
                                 "...#\n");
    draws(MAKE(window, 4, 4, 2), "#...\n"
                                 "##..\n"
                                 ".##.\n"
                                 "..##\n");
    draws(MAKE(window, 3, 3, SIZE_MAX), "#..\n"
                                        "##.\n"
                                        "###\n");
}

static void a_prefix_is_seen_by_all(void **state)
{
    (void)state;
    draws(MAKE(prefix, 5, 5, 3), "###..\n"
                                 "###..\n"
                                 "###..\n"
                                 "####.\n"
                                 "#####\n");
    draws(MAKE(prefix, 2, 3, 0), "##.\n"
                                 "###\n");
    draws(MAKE(prefix, 2, 3, SIZE_MAX), "###\n"
                                        "###\n");
}

static void sinks_are_seen_once_they_are_past(void **state)
{
    (void)state;
    draws(MAKE(sinks, 4, 4, 2), "#...\n"
                                "##..\n"
                                "##..\n"
                                "##..\n");
    draws(MAKE(sinks, 2, 2, 0), "..\n"
                                "..\n");
    draws(MAKE(sinks, 2, 2, SIZE_MAX), "#.\n"
                                       "##\n");
    bauta_mask *sinks = MAKE(sinks, 5, 5, 1);
    bauta_mask *window = MAKE(window, 5, 5, 2);
    draws(MAKE(or, sinks, window), "#....\n"
                                   "##...\n"
                                   "###..\n"
                                   "#.##.\n"
                                   "#..##\n");
    bauta_mask_free(sinks);
    bauta_mask_free(window);
}

static void lengths_hide_the_padding_and_set_the_origin(void **state)
{
    (void)state;
    size_t lengths[] = { 3, 0, 2 };
    bauta_mask *mask = MAKE(lengths, 3, 3, 3, NULL, lengths);
    assert_int_equal(bauta_mask_origin(mask, 2), 0);
    assert_int_equal(bauta_mask_origin(mask, 3), 3);
    assert_int_equal(bauta_mask_origin(mask, 8), 6);
    draws(mask, "###......\n"
                "###......\n"
                "###......\n"
                ".........\n"
                ".........\n"
                ".........\n"
                "......##.\n"
                "......##.\n"
                ".........\n");
    size_t targets[] = { 1, 2 }, sources[] = { 3, 1 };
    draws(MAKE(lengths, 2, 2, 3, targets, sources), "###...\n"
                                                    "......\n"
                                                    "...#..\n"
                                                    "...#..\n");
}

static void documents_do_not_see_each_other(void **state)
{
    (void)state;
    size_t lengths[] = { 3, 0, 2 }, sources[] = { 1, 2, 2 };
    bauta_mask *mask = MAKE(documents, 3, lengths, NULL);
    assert_int_equal(bauta_mask_origin(mask, 2), 0);
    assert_int_equal(bauta_mask_origin(mask, 3), 3);
    draws(mask, "###..\n"
                "###..\n"
                "###..\n"
                "...##\n"
                "...##\n");
    draws(MAKE(documents, 3, lengths, sources), "#....\n"
                                                "#....\n"
                                                "#....\n"
                                                "...##\n"
                                                "...##\n");
}

static void a_pack_keeps_each_alignment_and_adds_the_origins(void **state)
{
    (void)state;
    size_t lengths[] = { 1, 2 };
    bauta_mask *a = MAKE(causal, 1, 3), *b = MAKE(documents, 2, lengths, NULL);
    bauta_mask *c = MAKE(causal, 2, 3);
    const bauta_mask *parts[] = { a, b, c };
    bauta_mask *mask = MAKE(pack, 3, parts);
    assert_int_equal(bauta_mask_origin(mask, 0), 0);
    assert_int_equal(bauta_mask_origin(mask, 1), 3);
    assert_int_equal(bauta_mask_origin(mask, 2), 4);
    assert_int_equal(bauta_mask_origin(mask, 4), 6);
    draws(mask, "###......\n"
                "...#.....\n"
                "....##...\n"
                "....##...\n"
                "......##.\n"
                "......###\n");
    const bauta_mask *twice[] = { c, c };
    draws(MAKE(pack, 2, twice), "##....\n"
                                "###...\n"
                                "...##.\n"
                                "...###\n");
    bauta_mask_free(a);
    bauta_mask_free(b);
    bauta_mask_free(c);
}

static void dense_equals_the_matrix(void **state)
{
    (void)state;
    static const unsigned char visible[] = {
        1, 0, 255, 1, 0, //
        0, 0, 0,   0, 0, //
        0, 1, 0,   0, 2, //
    };
    draws(MAKE(dense, 3, 5, visible), "#.##.\n"
                                      ".....\n"
                                      ".#..#\n");
}

/* Every `*user`-th key from the query's own on: more spans than there is room
 * for. */
static size_t strided_row(void *user, size_t query, bauta_span *spans,
                          size_t capacity)
{
    size_t stride = *(const size_t *)user, count = 0;
    for (size_t j = query % stride; j < 40; j += stride, count++)
        if (count < capacity)
            spans[count] = (bauta_span){ j, j + 1 };
    return count;
}

static void rows_calls_again_for_a_row_with_many_spans(void **state)
{
    (void)state;
    size_t stride = 2;
    bauta_mask *mask = MAKE(rows, 3, 40, strided_row, &stride);
    assert_int_equal(bauta_mask_pairs(mask), 60);
    assert_true(bauta_mask_visible(mask, 1, 39));
    assert_false(bauta_mask_visible(mask, 2, 39));
    bauta_mask_free(mask);
}

static size_t touching_row(void *user, size_t query, bauta_span *spans,
                           size_t capacity)
{
    (void)user;
    (void)capacity;
    for (size_t k = 0; k < query; k++)
        spans[k] = (bauta_span){ k, k + 1 };
    return query;
}

static void spans_that_touch_become_one(void **state)
{
    (void)state;
    bauta_mask *mask = MAKE(rows, 4, 4, touching_row, NULL);
    size_t count;
    const bauta_span *row = bauta_mask_row(mask, 3, &count);
    assert_int_equal(count, 1);
    assert_int_equal(row[0].lo, 0);
    assert_int_equal(row[0].hi, 3);
    draws(mask, "....\n"
                "#...\n"
                "##..\n"
                "###.\n");
}

static void and_or_not_are_exact(void **state)
{
    (void)state;
    size_t lengths[] = { 2, 2 };
    bauta_mask *documents = MAKE(documents, 2, lengths, NULL);
    bauta_mask *causal = MAKE(causal, 4, 4);
    bauta_mask *both = MAKE(and, documents, causal);
    bauta_mask *either = MAKE(or, documents, causal);
    bauta_mask *hidden = MAKE(not, documents);
    assert_int_equal(bauta_mask_origin(both, 3), 2);
    assert_int_equal(bauta_mask_origin(either, 3), 0);
    assert_int_equal(bauta_mask_origin(hidden, 3), 0);
    draws(both, "#...\n"
                "##..\n"
                "..#.\n"
                "..##\n");
    draws(either, "##..\n"
                  "##..\n"
                  "####\n"
                  "####\n");
    draws(hidden, "..##\n"
                  "..##\n"
                  "##..\n"
                  "##..\n");
    bauta_mask_free(documents);
    bauta_mask_free(causal);
}

static void causal_documents_are_documents_and_causal(void **state)
{
    (void)state;
    for (size_t seed = 1; seed < 200; seed++) {
        size_t lengths[9], count = seed % 10, all = 0;
        for (size_t d = 0; d < count; d++)
            all += lengths[d] = seed * seed * (d + 3) / 7 % 20;
        bauta_mask *documents = MAKE(documents, count, lengths, NULL);
        bauta_mask *causal = MAKE(causal, all, all);
        bauta_mask *want = MAKE(and, documents, causal);
        bauta_mask *got = MAKE(causal_documents, count, lengths);
        assert_int_equal(bauta_mask_pairs(got), bauta_mask_pairs(want));
        for (size_t q = 0; q < all; q++) {
            size_t a, b;
            const bauta_span *x = bauta_mask_row(want, q, &a);
            const bauta_span *y = bauta_mask_row(got, q, &b);
            assert_int_equal(a, b);
            assert_memory_equal(x, y, a * sizeof(*x));
            assert_int_equal(bauta_mask_origin(got, q),
                             bauta_mask_origin(want, q));
        }
        bauta_mask_free(documents);
        bauta_mask_free(causal);
        bauta_mask_free(want);
        bauta_mask_free(got);
    }
}

static void two_layers_compose(void **state)
{
    (void)state;
    bauta_mask *upper = MAKE(window, 2, 4, 2), *lower = MAKE(window, 4, 6, 2);
    bauta_mask *mask = MAKE(compose, upper, lower);
    draws(mask, "..###.\n"
                "...###\n");
    bauta_mask_free(upper);
    bauta_mask_free(lower);
}

static void a_window_reaches_further_with_each_layer(void **state)
{
    (void)state;
    bauta_mask *window = MAKE(window, 5, 5, 2);
    draws(MAKE(reach, window, 0), "#....\n"
                                  ".#...\n"
                                  "..#..\n"
                                  "...#.\n"
                                  "....#\n");
    draws(MAKE(reach, window, 2), "#....\n"
                                  "##...\n"
                                  "###..\n"
                                  ".###.\n"
                                  "..###\n");
    draws(MAKE(reach, window, SIZE_MAX), "#....\n"
                                         "##...\n"
                                         "###..\n"
                                         "####.\n"
                                         "#####\n");
    bauta_mask_free(window);
    bauta_mask *nothing = MAKE(sinks, 2, 2, 0);
    draws(MAKE(reach, nothing, 3), "#.\n"
                                   ".#\n"); // the residual connection
    bauta_mask_free(nothing);
}

static void reach_is_quick_on_long_sequences(void **state)
{
    (void)state;
    size_t n = 16384;
    bauta_mask *window = MAKE(window, n, n, 1024);
    clock_t start = clock();
    bauta_mask *mask = MAKE(reach, window, 12);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    size_t count, far = 12 * 1023;
    const bauta_span *row = bauta_mask_row(mask, n - 1, &count);
    assert_int_equal(count, 1);
    assert_int_equal(row[0].lo, n - 1 - far);
    assert_true(seconds < 10); // 0.02 where it was written; n^2 takes minutes
    bauta_mask_free(mask);
    bauta_mask_free(window);
}

static void empty_masks_work(void **state)
{
    (void)state;
    draws(MAKE(causal, 0, 5), "");
    draws(MAKE(causal, 2, 0), "\n\n");
    draws(MAKE(all, 0, 0), "");
    draws(MAKE(window, 1, 0, 3), "\n");
    draws(MAKE(dense, 2, 0, NULL), "\n\n");
    draws(MAKE(dense, 0, 2, NULL), "");
    draws(MAKE(documents, 0, NULL, NULL), "");
    draws(MAKE(lengths, 0, 4, 4, NULL, NULL), "");
    draws(MAKE(pack, 0, NULL), "");
    draws(MAKE(rows, 1, 0, touching_row, NULL), "\n");
    bauta_mask *narrow = MAKE(all, 2, 0), *empty = MAKE(all, 0, 3);
    draws(MAKE(not, narrow), "\n\n");
    draws(MAKE(compose, narrow, empty), "...\n...\n");
    bauta_mask_free(narrow);
    bauta_mask_free(empty);
    bauta_mask *none = MAKE(all, 0, 0);
    draws(MAKE(reach, none, 5), "");
    bauta_mask_free(none);
    bauta_mask_free(NULL);
}

/* ---- Getters ------------------------------------------------------------- */

static void is_causal_names_the_first_pair_that_is_not(void **state)
{
    (void)state;
    size_t query = 77, key = 77;
    bauta_mask *mask = MAKE(causal, 3, 5);
    assert_true(bauta_mask_is_causal(mask, &query, &key));
    assert_int_equal(query, 77); // untouched
    bauta_mask_free(mask);
    mask = MAKE(prefix, 5, 5, 3);
    assert_false(bauta_mask_is_causal(mask, &query, &key));
    assert_int_equal(query, 0);
    assert_int_equal(key, 1);
    assert_false(bauta_mask_is_causal(mask, NULL, NULL));
    bauta_mask_free(mask);
    static const unsigned char visible[] = {
        1, 0, 0, 0, //
        1, 0, 0, 1, //
        0, 1, 1, 1, //
    };              // positions 1, 2 and 3
    mask = MAKE(dense, 3, 4, visible);
    assert_false(bauta_mask_is_causal(mask, &query, &key));
    assert_int_equal(query, 1);
    assert_int_equal(key, 3);
    bauta_mask_free(mask);
}

static void text_works_like_snprintf(void **state)
{
    (void)state;
    bauta_mask *mask = MAKE(causal, 2, 3);
    char text[16];
    assert_int_equal(bauta_mask_text(mask, NULL, 0), 8);
    for (size_t size = 1; size <= 10; size++) {
        memset(text, '!', sizeof(text));
        assert_int_equal(bauta_mask_text(mask, text, size), 8);
        size_t written = size - 1 < 8 ? size - 1 : 8;
        assert_memory_equal(text, "##.\n###\n", written);
        assert_int_equal(text[written], '\0');
        assert_int_equal(text[written + 1], '!'); // nothing after the NUL
    }
    bauta_mask_free(mask);
}

static void json_works_like_snprintf(void **state)
{
    (void)state;
    size_t lengths[] = { 1, 2 };
    bauta_mask *mask = MAKE(documents, 2, lengths, NULL);
    const char *want = "{\"queries\":3,\"keys\":3,\"pairs\":5,"
                       "\"rows\":[[[0,1]],[[1,3]],[[1,3]]],"
                       "\"origins\":[0,1,1]}";
    char text[128];
    assert_int_equal(bauta_mask_json(mask, NULL, 0), strlen(want));
    assert_int_equal(bauta_mask_json(mask, text, sizeof(text)), strlen(want));
    assert_string_equal(text, want);
    assert_int_equal(bauta_mask_json(mask, text, 12), strlen(want));
    assert_string_equal(text, "{\"queries\":");
    bauta_mask_free(mask);
    static const unsigned char visible[] = { 0, 0, 0, 1, 0, 1 };
    mask = MAKE(dense, 2, 3, visible);
    bauta_mask_json(mask, text, sizeof(text));
    assert_string_equal(text, "{\"queries\":2,\"keys\":3,\"pairs\":2,"
                              "\"rows\":[[],[[0,1],[2,3]]]}");
    bauta_mask_free(mask);
    mask = MAKE(all, 0, 1234567890);
    bauta_mask_json(mask, text, sizeof(text));
    assert_string_equal(
        text, "{\"queries\":0,\"keys\":1234567890,\"pairs\":0,\"rows\":[]}");
    bauta_mask_free(mask);
}

/* ---- Random cases -------------------------------------------------------- */

/* Spans are canonical, and start at the origin or later. */
static void check_row(const bauta_mask *mask, const model *m, size_t i)
{
    size_t count, after = 0;
    const bauta_span *row = bauta_mask_row(mask, i, &count);
    assert_int_equal(bauta_mask_origin(mask, i), m->origin[i]);
    for (size_t k = 0; k < count; k++) {
        assert_true(row[k].lo < row[k].hi);
        assert_true(k ? row[k].lo > after : row[k].lo >= m->origin[i]);
        assert_true(row[k].hi <= m->keys);
        after = row[k].hi;
    }
    for (size_t j = 0; j < m->keys; j++)
        if (bauta_mask_visible(mask, i, j) != *model_at(m, i, j))
            fail_msg("query %zu, key %zu: want %d, got %d", i, j,
                     *model_at(m, i, j), !*model_at(m, i, j));
}

static void check_causal(const bauta_mask *mask, const model *m)
{
    size_t query = SIZE_MAX, key = SIZE_MAX;
    bool causal = bauta_mask_is_causal(mask, &query, &key);
    for (size_t i = 0; i < m->queries; i++)
        for (size_t j = 0; j < m->keys; j++)
            if (*model_at(m, i, j) && j + m->queries > i + m->keys) {
                assert_false(causal);
                assert_int_equal(query, i);
                assert_int_equal(key, j);
                return;
            }
    assert_true(causal);
}

static void check_text(const bauta_mask *mask, const model *m)
{
    static char text[200 * 201 + 1];
    size_t length = bauta_mask_text(mask, text, sizeof(text)), at = 0;
    assert_int_equal(length, m->queries * (m->keys + 1));
    for (size_t i = 0; i < m->queries; i++) {
        for (size_t j = 0; j < m->keys; j++)
            assert_true(text[at++] == (*model_at(m, i, j) ? '#' : '.'));
        assert_true(text[at++] == '\n');
    }
    assert_true(text[at] == '\0');
}

static void every_expression_equals_its_matrix(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (int round = 0; round < 10000; round++) {
        size_t queries = random_size(&r);
        size_t keys = test_below(&r, 3) ? random_size(&r) : queries;
        model m;
        bauta_mask *mask = random_mask(&r, queries, keys, 3, &m);
        assert_int_equal(bauta_mask_queries(mask), queries);
        assert_int_equal(bauta_mask_keys(mask), keys);
        uint64_t pairs = 0;
        for (size_t p = 0; p < queries * keys; p++)
            pairs += m.visible[p];
        assert_int_equal(bauta_mask_pairs(mask), pairs);
        for (size_t i = 0; i < queries; i++)
            check_row(mask, &m, i);
        check_causal(mask, &m);
        check_text(mask, &m);
        bauta_mask_free(mask);
        model_free(&m);
    }
}

/* ---- Errors -------------------------------------------------------------- */

typedef struct wrong_row {
    size_t count, again; /* spans claimed at the first and the second call */
    bauta_span spans[3];
    size_t calls;
} wrong_row;

/* Correct for row 0, which is empty; wrong for row 1. */
static size_t lying_row(void *user, size_t query, bauta_span *spans,
                        size_t capacity)
{
    wrong_row *l = user;
    if (query == 0)
        return 0;
    for (size_t k = 0; k < BT_LEN(l->spans) && k < capacity; k++)
        spans[k] = l->spans[k];
    return l->calls++ ? l->again : l->count;
}

static void an_inconsistent_callback_is_detected(void **state)
{
    (void)state;
    bauta_mask *out;
    bauta_error err = { 0, "" };
    static const wrong_row wrong_rows[] = {
        { 1, 1, { { 3, 3 } }, 0 },                     // empty
        { 1, 1, { { 5, 3 } }, 0 },                     // backwards
        { 1, 1, { { 0, 21 } }, 0 },                    // after the last key
        { 1, 1, { { SIZE_MAX, SIZE_MAX } }, 0 },       // empty, far outside
        { 1, 1, { { 0, SIZE_MAX } }, 0 },              // endless
        { 2, 2, { { 5, 7 }, { 1, 2 } }, 0 },           // not sorted
        { 2, 2, { { 1, 5 }, { 4, 7 } }, 0 },           // overlapping
        { 2, 2, { { 1, 5 }, { 1, 5 } }, 0 },           // twice the same
        { 3, 3, { { 1, 2 }, { 3, 4 }, { 4, 4 } }, 0 }, // empty at the end
        { 6, 6, { { 0, 1 }, { 1, 2 }, { 2, 3 } }, 0 }, // claims, not writes
        { 21, 21, { { 0, 1 } }, 0 },                   // more than keys
        { SIZE_MAX, SIZE_MAX, { { 0, 1 } }, 0 },       // absurdly many
        { 9, 10, { { 0, 1 } }, 0 },                    // more when asked again
        { 9, 3, { { 0, 1 }, { 2, 3 }, { 4, 5 } }, 0 }, // fewer
        { 9, 0, { { 0, 1 } }, 0 },                     // none
        { 9, SIZE_MAX, { { 0, 1 } }, 0 },              // absurdly many then
    };
    for (size_t i = 0; i < BT_LEN(wrong_rows); i++) {
        wrong_row l = wrong_rows[i];
        out = (bauta_mask *)&l;
        memset(&err, 0, sizeof(err));
        assert_int_equal(bauta_mask_rows(&out, 2, 20, lying_row, &l, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_null(out);
        assert_non_null(strstr(err.message, "row 1"));
    }
    wrong_row l = { 2, 2, { { 1, 5 }, { 4, 7 } }, 0 };
    bauta_mask_rows(&out, 2, 20, lying_row, &l, &err);
    assert_string_equal(err.message, "row 1: span 1, [4, 7) of 20 keys, begins "
                                     "before the previous span ends");
}

/* A call that must fail, with a message and no result. */
#define REFUSED(call)                                     \
    do {                                                  \
        out = (bauta_mask *)&err;                         \
        memset(&err, 0, sizeof(err));                     \
        assert_int_equal((call), BAUTA_ERR_ARGUMENT);     \
        assert_int_equal(err.status, BAUTA_ERR_ARGUMENT); \
        assert_null(out);                                 \
        if (strlen(err.message) < 10)                     \
            fail_msg("no sentence: '%s'", err.message);   \
        out = (bauta_mask *)&err;                         \
        refused++;                                        \
    } while (0)

/* The same without a place for the result. */
#define REFUSED_NULL(call)                            \
    do {                                              \
        memset(&err, 0, sizeof(err));                 \
        assert_int_equal((call), BAUTA_ERR_ARGUMENT); \
        assert_true(err.message[0]);                  \
        refused++;                                    \
    } while (0)

static void malformed_calls_are_errors(void **state)
{
    (void)state;
    bauta_mask *out;
    bauta_error err = { 0, "" };
    size_t refused = 0, big = (size_t)1 << 31, huge = SIZE_MAX;
    unsigned char one = 1;
    bauta_mask *a = MAKE(causal, 3, 4), *b = MAKE(causal, 4, 3);
    bauta_mask *c = MAKE(causal, 3, 5), *wide = MAKE(all, 1, big - 1);
    size_t three[] = { 3, 3 }, over[] = { 3, 4 }, sum[] = { huge, 2 };
    size_t half[] = { big / 2, big / 2 }, zero[] = { 0, 0 };
    size_t wrap[] = { huge, 1, 1 };

    // Sizes.
    REFUSED(bauta_mask_all(&out, huge, 1, &err));
    REFUSED(bauta_mask_all(&out, 1, huge, &err));
    REFUSED(bauta_mask_all(&out, huge, huge, &err));
    REFUSED(bauta_mask_all(&out, big, 0, &err));
    REFUSED(bauta_mask_all(&out, 0, big, &err));
    REFUSED(bauta_mask_all(&out, huge / 8, 1, &err));
    REFUSED(bauta_mask_causal(&out, huge, 1, &err));
    REFUSED(bauta_mask_causal(&out, 1, huge, &err));
    REFUSED(bauta_mask_causal(&out, huge - 1, huge - 1, &err));
    REFUSED(bauta_mask_window(&out, huge, 1, 1, &err));
    REFUSED(bauta_mask_window(&out, 1, huge, 1, &err));
    REFUSED(bauta_mask_prefix(&out, huge, 1, 1, &err));
    REFUSED(bauta_mask_prefix(&out, 1, huge, huge, &err));
    REFUSED(bauta_mask_sinks(&out, huge, 1, 1, &err));
    REFUSED(bauta_mask_sinks(&out, 1, huge, huge, &err));
    REFUSED(bauta_mask_dense(&out, huge, 1, &one, &err));
    REFUSED(bauta_mask_dense(&out, 1, huge, &one, &err));
    REFUSED(bauta_mask_dense(&out, huge, huge, &one, &err));
    REFUSED(bauta_mask_rows(&out, huge, 1, touching_row, NULL, &err));
    REFUSED(bauta_mask_rows(&out, 1, huge, touching_row, NULL, &err));

    // A window of nothing.
    REFUSED(bauta_mask_window(&out, 3, 3, 0, &err));
    REFUSED(bauta_mask_window(&out, 0, 0, 0, &err));

    // Padded batches.
    REFUSED(bauta_mask_lengths(&out, 2, 3, 3, NULL, NULL, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 3, three, NULL, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 4, NULL, three, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 3, NULL, over, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 4, over, three, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 3, three, over, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, 3, NULL, sum, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 0, 0, NULL, three, &err));
    REFUSED(bauta_mask_lengths(&out, huge, 3, 3, NULL, three, &err));
    REFUSED(bauta_mask_lengths(&out, huge, 0, 0, NULL, zero, &err));
    REFUSED(bauta_mask_lengths(&out, 2, huge, huge, NULL, three, &err));
    REFUSED(bauta_mask_lengths(&out, 2, 3, huge, three, three, &err));
    REFUSED(bauta_mask_lengths(&out, 2, huge, 3, three, three, &err));
    REFUSED(bauta_mask_lengths(&out, 2, big / 2, 1, zero, zero, &err));

    // Documents.
    REFUSED(bauta_mask_documents(&out, 2, NULL, NULL, &err));
    REFUSED(bauta_mask_documents(&out, 2, NULL, three, &err));
    REFUSED(bauta_mask_documents(&out, 2, sum, NULL, &err));
    REFUSED(bauta_mask_documents(&out, 3, wrap, NULL, &err));
    REFUSED(bauta_mask_documents(&out, 2, half, NULL, &err));
    REFUSED(bauta_mask_documents(&out, 2, three, sum, &err));
    REFUSED(bauta_mask_documents(&out, 2, sum, three, &err));

    // Packs.
    REFUSED(bauta_mask_pack(&out, 2, NULL, &err));
    const bauta_mask *hole[] = { a, NULL, b }, *long_ones[] = { wide, a };
    REFUSED(bauta_mask_pack(&out, 3, hole, &err));
    REFUSED(bauta_mask_pack(&out, 2, long_ones, &err));

    // Matrices and callbacks.
    REFUSED(bauta_mask_dense(&out, 2, 2, NULL, &err));
    REFUSED(bauta_mask_rows(&out, 2, 2, NULL, NULL, &err));
    REFUSED(bauta_mask_rows(&out, 0, 2, NULL, NULL, &err));

    // Combinators.
    REFUSED(bauta_mask_and(&out, NULL, a, &err));
    REFUSED(bauta_mask_and(&out, a, NULL, &err));
    REFUSED(bauta_mask_and(&out, NULL, NULL, &err));
    REFUSED(bauta_mask_and(&out, a, b, &err));
    REFUSED(bauta_mask_and(&out, a, c, &err));
    REFUSED(bauta_mask_or(&out, NULL, a, &err));
    REFUSED(bauta_mask_or(&out, a, NULL, &err));
    REFUSED(bauta_mask_or(&out, b, a, &err));
    REFUSED(bauta_mask_or(&out, c, a, &err));
    REFUSED(bauta_mask_not(&out, NULL, &err));
    REFUSED(bauta_mask_compose(&out, NULL, a, &err));
    REFUSED(bauta_mask_compose(&out, a, NULL, &err));
    REFUSED(bauta_mask_compose(&out, a, a, &err));
    REFUSED(bauta_mask_compose(&out, c, b, &err));
    REFUSED(bauta_mask_reach(&out, NULL, 1, &err));
    REFUSED(bauta_mask_reach(&out, a, 1, &err));
    REFUSED(bauta_mask_reach(&out, a, 0, &err));

    // No place for the mask.
    REFUSED_NULL(bauta_mask_all(NULL, 1, 1, &err));
    REFUSED_NULL(bauta_mask_causal(NULL, 1, 1, &err));
    REFUSED_NULL(bauta_mask_window(NULL, 1, 1, 1, &err));
    REFUSED_NULL(bauta_mask_prefix(NULL, 1, 1, 1, &err));
    REFUSED_NULL(bauta_mask_sinks(NULL, 1, 1, 1, &err));
    REFUSED_NULL(bauta_mask_lengths(NULL, 2, 3, 3, NULL, three, &err));
    REFUSED_NULL(bauta_mask_documents(NULL, 2, three, NULL, &err));
    REFUSED_NULL(bauta_mask_pack(NULL, 0, NULL, &err));
    REFUSED_NULL(bauta_mask_dense(NULL, 1, 1, &one, &err));
    REFUSED_NULL(bauta_mask_rows(NULL, 1, 1, touching_row, NULL, &err));
    REFUSED_NULL(bauta_mask_and(NULL, a, a, &err));
    REFUSED_NULL(bauta_mask_or(NULL, a, a, &err));
    REFUSED_NULL(bauta_mask_not(NULL, a, &err));
    REFUSED_NULL(bauta_mask_compose(NULL, b, a, &err));
    REFUSED_NULL(bauta_mask_reach(NULL, a, 1, &err));

    assert_true(refused >= 60);
    assert_int_equal(bauta_mask_not(&out, NULL, NULL), BAUTA_ERR_ARGUMENT);
    bauta_mask_free(a);
    bauta_mask_free(b);
    bauta_mask_free(c);
    bauta_mask_free(wide);
}

static void errors_name_their_values(void **state)
{
    (void)state;
    bauta_mask *out;
    bauta_error err = { 0, "" };
    size_t over[] = { 3, 4 };
    bauta_mask_lengths(&out, 2, 3, 3, NULL, over, &err);
    assert_string_equal(err.message, "sequence 1 has 4 keys in a time of 3");
    bauta_mask *a = MAKE(all, 2, 3), *b = MAKE(all, 2, 4);
    bauta_mask_and(&out, a, b, &err);
    assert_string_equal(err.message, "and: one mask has 2 queries and 3 keys, "
                                     "the other 2 and 4");
    bauta_mask_compose(&out, a, b, &err);
    assert_string_equal(err.message, "compose: the upper mask has 3 keys, the "
                                     "lower one 2 queries");
    bauta_mask_free(a);
    bauta_mask_free(b);
}

/* ---- Failing allocations ------------------------------------------------- */

typedef struct operands {
    const bauta_mask *a, *b; /* many short spans a row */
    const bauta_mask *c;     /* one */
} operands;

#define FAULTY(name, call)                                               \
    static bauta_status make_##name(bauta_mask **out, const operands *m, \
                                    bauta_error *err)                    \
    {                                                                    \
        (void)m;                                                         \
        return call;                                                     \
    }

static const size_t fault_lengths[] = { 20, 20 };
static const unsigned char fault_matrix[2 * 9] = { 1, 0, 1, 0, 1, 0, 1, 0, 1,
                                                   1, 0, 1, 0, 1, 0, 1, 0, 1 };
static size_t fault_stride = 2;

FAULTY(all, bauta_mask_all(out, 9, 9, err))
FAULTY(causal, bauta_mask_causal(out, 9, 9, err))
FAULTY(window, bauta_mask_window(out, 9, 9, 2, err))
FAULTY(prefix, bauta_mask_prefix(out, 9, 9, 2, err))
FAULTY(sinks, bauta_mask_sinks(out, 9, 9, 2, err))
FAULTY(lengths, bauta_mask_lengths(out, 2, 30, 30, NULL, fault_lengths, err))
FAULTY(documents, bauta_mask_documents(out, 2, fault_lengths, NULL, err))
FAULTY(pack, bauta_mask_pack(out, 2, (const bauta_mask *[]){ m->a, m->b }, err))
FAULTY(dense, bauta_mask_dense(out, 2, 9, fault_matrix, err))
FAULTY(rows, bauta_mask_rows(out, 40, 40, strided_row, &fault_stride, err))
FAULTY(and, bauta_mask_and(out, m->a, m->b, err))
FAULTY(or, bauta_mask_or(out, m->a, m->b, err))
FAULTY(not, bauta_mask_not(out, m->a, err))
FAULTY(compose, bauta_mask_compose(out, m->a, m->b, err))
FAULTY(compose_long, bauta_mask_compose(out, m->c, m->c, err))
FAULTY(reach, bauta_mask_reach(out, m->a, 7, err))

static const struct {
    const char *name;
    bauta_status (*make)(bauta_mask **, const operands *, bauta_error *);
} faulty[] = {
#define FAULTY_ROW(name)   \
    {                      \
#name, make_##name \
    }
    FAULTY_ROW(all),       FAULTY_ROW(causal),  FAULTY_ROW(window),
    FAULTY_ROW(prefix),    FAULTY_ROW(sinks),   FAULTY_ROW(lengths),
    FAULTY_ROW(documents), FAULTY_ROW(pack),    FAULTY_ROW(dense),
    FAULTY_ROW(rows),      FAULTY_ROW(and),     FAULTY_ROW(or),
    FAULTY_ROW(not ),      FAULTY_ROW(compose), FAULTY_ROW(compose_long),
    FAULTY_ROW(reach),
};

/* Create a mask again and again, each time with another allocation failing,
 * until there is none left to fail. Returns how many there were. */
static size_t fail_each(size_t call, const operands *m)
{
    for (size_t k = 0, live = faults_live();; k++) {
        bauta_error err = { 0, "" };
        bauta_mask *out = (bauta_mask *)&err;
        faults_arm(k);
        bauta_status status = faulty[call].make(&out, m, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            bauta_mask_free(out);
            assert_int_equal(faults_live(), live);
            return k;
        }
        if (status != BAUTA_ERR_NOMEM || out || !err.message[0] ||
            faults_live() != live)
            fail_msg("%s, allocation %zu: status %d, out %p, '%s', %zu blocks "
                     "more than before",
                     faulty[call].name, k, status, (void *)out, err.message,
                     faults_live() - live);
    }
}

static void each_failing_allocation_is_an_error_without_a_leak(void **state)
{
    (void)state;
    size_t stride = 3;
    faults_begin();
    bauta_mask *a = MAKE(rows, 40, 40, strided_row, &stride);
    stride = 7;
    bauta_mask *b = MAKE(rows, 40, 40, strided_row, &stride);
    bauta_mask *c = MAKE(causal, 40, 40);
    operands m = { a, b, c };
    for (size_t call = 0; call < BT_LEN(faulty); call++)
        assert_true(fail_each(call, &m) >= 4);
    bauta_mask_free(a);
    bauta_mask_free(b);
    bauta_mask_free(c);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shows_every_key),
        cmocka_unit_test(causal_hides_the_future),
        cmocka_unit_test(the_last_query_meets_the_last_key),
        cmocka_unit_test(a_window_counts_the_query_itself),
        cmocka_unit_test(a_prefix_is_seen_by_all),
        cmocka_unit_test(sinks_are_seen_once_they_are_past),
        cmocka_unit_test(lengths_hide_the_padding_and_set_the_origin),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(a_pack_keeps_each_alignment_and_adds_the_origins),
        cmocka_unit_test(dense_equals_the_matrix),
        cmocka_unit_test(rows_calls_again_for_a_row_with_many_spans),
        cmocka_unit_test(spans_that_touch_become_one),
        cmocka_unit_test(and_or_not_are_exact),
        cmocka_unit_test(causal_documents_are_documents_and_causal),
        cmocka_unit_test(two_layers_compose),
        cmocka_unit_test(a_window_reaches_further_with_each_layer),
        cmocka_unit_test(reach_is_quick_on_long_sequences),
        cmocka_unit_test(empty_masks_work),
        cmocka_unit_test(is_causal_names_the_first_pair_that_is_not),
        cmocka_unit_test(text_works_like_snprintf),
        cmocka_unit_test(json_works_like_snprintf),
        cmocka_unit_test(every_expression_equals_its_matrix),
        cmocka_unit_test(an_inconsistent_callback_is_detected),
        cmocka_unit_test(malformed_calls_are_errors),
        cmocka_unit_test(errors_name_their_values),
        cmocka_unit_test(each_failing_allocation_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}
