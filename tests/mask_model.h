/* SPDX-License-Identifier: Apache-2.0 */
/* mask_model.h - random masks, each with the boolean matrix that it must equal.
 *
 * The model of a mask is one byte a pair, filled from the definitions in
 * bauta.h pair by pair and combined by loops over all pairs: slow, but simple.
 * random_mask() draws an expression of constructors and combinators and builds
 * both the mask and the model. */
#ifndef BT_TEST_MASK_MODEL_H
#define BT_TEST_MASK_MODEL_H

#include "bauta.h"
#include "testing.h"

#include <string.h>

typedef struct model {
    size_t queries, keys;
    unsigned char *visible; /* (queries, keys) */
    size_t *origin;         /* (queries) */
} model;

static inline model model_create(size_t queries, size_t keys)
{
    model m = { queries, keys, NULL, NULL };
    m.visible = calloc(queries * keys + 1, 1);
    m.origin = calloc(queries + 1, sizeof(*m.origin));
    assert_non_null(m.visible);
    assert_non_null(m.origin);
    return m;
}

static inline void model_free(model *m)
{
    free(m->visible);
    free(m->origin);
    *m = (model){ 0, 0, NULL, NULL };
}

static inline unsigned char *model_at(const model *m, size_t i, size_t j)
{
    return &m->visible[i * m->keys + j];
}

/* ---- Constructors -------------------------------------------------------- */

typedef enum model_rule {
    RULE_ALL,
    RULE_CAUSAL,
    RULE_WINDOW,
    RULE_PREFIX,
    RULE_SINKS,
    RULES
} model_rule;

static inline bool rule_sees(model_rule rule, ptrdiff_t position, ptrdiff_t key,
                             ptrdiff_t width)
{
    switch (rule) {
    case RULE_CAUSAL:
        return key <= position;
    case RULE_WINDOW:
        return key <= position && key > position - width;
    case RULE_PREFIX:
        return key <= position || key < width;
    case RULE_SINKS:
        return key <= position && key < width;
    default:
        return true;
    }
}

static inline bauta_status rule_mask(bauta_mask **out, model_rule rule,
                                     size_t n, size_t m, size_t width)
{
    switch (rule) {
    case RULE_CAUSAL:
        return bauta_mask_causal(out, n, m, NULL);
    case RULE_WINDOW:
        return bauta_mask_window(out, n, m, width, NULL);
    case RULE_PREFIX:
        return bauta_mask_prefix(out, n, m, width, NULL);
    case RULE_SINKS:
        return bauta_mask_sinks(out, n, m, width, NULL);
    default:
        return bauta_mask_all(out, n, m, NULL);
    }
}

static inline bauta_mask *random_rule(test_random *r, model *m)
{
    model_rule rule = (model_rule)test_below(r, RULES);
    size_t width = 1 + test_below(r, m->keys + 3);
    ptrdiff_t shift = (ptrdiff_t)m->keys - (ptrdiff_t)m->queries;
    for (size_t i = 0; i < m->queries; i++)
        for (size_t j = 0; j < m->keys; j++)
            *model_at(m, i, j) = rule_sees(rule, (ptrdiff_t)i + shift,
                                           (ptrdiff_t)j, (ptrdiff_t)width);
    bauta_mask *mask;
    assert_int_equal(rule_mask(&mask, rule, m->queries, m->keys, width), 0);
    return mask;
}

/* Rows of spans: sometimes single keys, sometimes long spans, sometimes
 * none. */
static inline void random_bits(test_random *r, const model *m)
{
    for (size_t i = 0; i < m->queries; i++) {
        size_t longest = 1 + test_below(r, m->keys + 2);
        bool seen = test_below(r, 2);
        for (size_t j = 0; j < m->keys; seen = !seen) {
            size_t end = j + 1 + test_below(r, longest);
            for (; j < end && j < m->keys; j++)
                *model_at(m, i, j) = seen;
        }
        if (test_below(r, 8) == 0)
            memset(model_at(m, i, 0), 0, m->keys);
    }
}

/* The callback of bauta_mask_rows() that reads a model. Every fifth key starts
 * a span of its own, so that spans touch. */
static inline size_t model_row(void *user, size_t query, bauta_span *spans,
                               size_t capacity)
{
    const model *m = user;
    size_t count = 0;
    for (size_t j = 0; j < m->keys;) {
        size_t lo = j;
        while (j < m->keys && *model_at(m, query, j) && (j == lo || j % 5))
            j++;
        if (j == lo) {
            j++;
            continue;
        }
        if (count < capacity)
            spans[count] = (bauta_span){ lo, j };
        count++;
    }
    return count;
}

static inline bauta_mask *random_matrix(test_random *r, model *m)
{
    bauta_mask *mask;
    random_bits(r, m);
    if (test_below(r, 2))
        assert_int_equal(
            bauta_mask_dense(&mask, m->queries, m->keys, m->visible, NULL), 0);
    else
        assert_int_equal(
            bauta_mask_rows(&mask, m->queries, m->keys, model_row, m, NULL), 0);
    return mask;
}

/* Split `total` into `parts` lengths, some of them 0. */
static inline void random_lengths(test_random *r, size_t total, size_t parts,
                                  size_t *lengths)
{
    for (size_t d = 0; d + 1 < parts; d++) {
        lengths[d] = test_below(r, total + 1);
        total -= lengths[d];
    }
    lengths[parts - 1] = total;
}

enum { PARTS = 4 };

static inline void model_block(model *m, size_t query, size_t key,
                               size_t queries, size_t keys)
{
    for (size_t i = query; i < query + queries; i++)
        memset(model_at(m, i, key), 1, keys);
}

static inline bauta_mask *random_documents(test_random *r, model *m)
{
    size_t parts = 1 + test_below(r, PARTS), q[PARTS], k[PARTS];
    random_lengths(r, m->queries, parts, q);
    random_lengths(r, m->keys, parts, k);
    bool self = m->queries == m->keys && test_below(r, 2);
    if (self)
        memcpy(k, q, sizeof(k));
    size_t query = 0, key = 0;
    for (size_t d = 0; d < parts; d++) {
        model_block(m, query, key, q[d], k[d]);
        for (size_t i = 0; i < q[d]; i++)
            m->origin[query + i] = key;
        query += q[d];
        key += k[d];
    }
    bauta_mask *mask;
    assert_int_equal(
        bauta_mask_documents(&mask, parts, q, self ? NULL : k, NULL), 0);
    return mask;
}

static inline bauta_mask *random_padding(test_random *r, model *m)
{
    size_t batch = 1 + test_below(r, PARTS), q[PARTS], k[PARTS];
    while (m->queries % batch || m->keys % batch)
        batch--;
    size_t query_time = m->queries / batch, key_time = m->keys / batch;
    bool self = query_time == key_time && test_below(r, 2);
    for (size_t b = 0; b < batch; b++) {
        k[b] = test_below(r, key_time + 1);
        q[b] = self ? k[b] : test_below(r, query_time + 1);
        model_block(m, b * query_time, b * key_time, q[b], k[b]);
        for (size_t i = 0; i < query_time; i++)
            m->origin[b * query_time + i] = b * key_time;
    }
    bauta_mask *mask;
    assert_int_equal(bauta_mask_lengths(&mask, batch, query_time, key_time,
                                        self ? NULL : q, k, NULL),
                     0);
    return mask;
}

/* ---- Combinators --------------------------------------------------------- */

static inline bauta_mask *random_mask(test_random *r, size_t queries,
                                      size_t keys, int depth, model *m);

static inline bauta_mask *random_and_or(test_random *r, int depth, model *m)
{
    model x, y;
    bauta_mask *a = random_mask(r, m->queries, m->keys, depth, &x), *mask;
    bauta_mask *b = random_mask(r, m->queries, m->keys, depth, &y);
    bool both = test_below(r, 2);
    for (size_t p = 0; p < m->queries * m->keys; p++)
        m->visible[p] =
            both ? x.visible[p] & y.visible[p] : x.visible[p] | y.visible[p];
    for (size_t i = 0; i < m->queries; i++)
        m->origin[i] =
            (x.origin[i] > y.origin[i]) == both ? x.origin[i] : y.origin[i];
    bauta_status status = both ? bauta_mask_and(&mask, a, b, NULL)
                               : bauta_mask_or(&mask, a, b, NULL);
    assert_int_equal(status, 0);
    bauta_mask_free(a);
    bauta_mask_free(b);
    model_free(&x);
    model_free(&y);
    return mask;
}

static inline bauta_mask *random_not(test_random *r, int depth, model *m)
{
    model x;
    bauta_mask *a = random_mask(r, m->queries, m->keys, depth, &x), *mask;
    for (size_t p = 0; p < m->queries * m->keys; p++)
        m->visible[p] = !x.visible[p];
    assert_int_equal(bauta_mask_not(&mask, a, NULL), 0);
    bauta_mask_free(a);
    model_free(&x);
    return mask;
}

static inline bauta_mask *random_pack(test_random *r, int depth, model *m)
{
    size_t parts = 1 + test_below(r, PARTS), q[PARTS], k[PARTS];
    random_lengths(r, m->queries, parts, q);
    random_lengths(r, m->keys, parts, k);
    bauta_mask *part[PARTS], *mask;
    size_t query = 0, key = 0;
    for (size_t d = 0; d < parts; d++) {
        model x;
        part[d] = random_mask(r, q[d], k[d], depth, &x);
        for (size_t i = 0; i < q[d]; i++) {
            memcpy(model_at(m, query + i, key), model_at(&x, i, 0), k[d]);
            m->origin[query + i] = key + x.origin[i];
        }
        query += q[d];
        key += k[d];
        model_free(&x);
    }
    assert_int_equal(
        bauta_mask_pack(&mask, parts, (const bauta_mask *const *)part, NULL),
        0);
    for (size_t d = 0; d < parts; d++)
        bauta_mask_free(part[d]);
    return mask;
}

/* to |= the pairs that are visible through two layers. */
static inline void model_compose(model *to, const model *upper,
                                 const model *lower)
{
    for (size_t i = 0; i < upper->queries; i++)
        for (size_t j = 0; j < upper->keys; j++)
            for (size_t k = 0; *model_at(upper, i, j) && k < lower->keys; k++)
                *model_at(to, i, k) |= *model_at(lower, j, k);
}

static inline bauta_mask *random_compose(test_random *r, int depth, model *m)
{
    model x, y;
    size_t middle = test_below(r, 100);
    bauta_mask *upper = random_mask(r, m->queries, middle, depth, &x), *mask;
    bauta_mask *lower = random_mask(r, middle, m->keys, depth, &y);
    model_compose(m, &x, &y);
    assert_int_equal(bauta_mask_compose(&mask, upper, lower, NULL), 0);
    bauta_mask_free(upper);
    bauta_mask_free(lower);
    model_free(&x);
    model_free(&y);
    return mask;
}

static inline bauta_mask *random_reach(test_random *r, int depth, model *m)
{
    model x;
    size_t layers = test_below(r, 6);
    bauta_mask *a = random_mask(r, m->queries, m->keys, depth, &x), *mask;
    for (size_t i = 0; i < m->queries; i++) {
        *model_at(&x, i, i) = 1;
        *model_at(m, i, i) = 1;
    }
    for (size_t l = 0; l < layers; l++) {
        model next = model_create(m->queries, m->keys);
        model_compose(&next, m, &x);
        model_free(m);
        *m = next;
    }
    assert_int_equal(bauta_mask_reach(&mask, a, layers, NULL), 0);
    bauta_mask_free(a);
    model_free(&x);
    return mask;
}

/* ---- Everything ---------------------------------------------------------- */

/* A random expression of at most `depth` combinators above one another; the
 * caller frees the mask and *m. */
static inline bauta_mask *random_mask(test_random *r, size_t queries,
                                      size_t keys, int depth, model *m)
{
    *m = model_create(queries, keys);
    if (depth > 0)
        switch (test_below(r, 8)) {
        case 0:
        case 1:
            return random_and_or(r, depth - 1, m);
        case 2:
            return random_not(r, depth - 1, m);
        case 3:
            return random_pack(r, depth - 1, m);
        case 4:
            return random_compose(r, depth - 1, m);
        case 5:
            if (queries == keys)
                return random_reach(r, depth - 1, m);
        }
    switch (test_below(r, 4)) {
    case 0:
        return random_rule(r, m);
    case 1:
        return random_matrix(r, m);
    case 2:
        return random_documents(r, m);
    default:
        return random_padding(r, m);
    }
}

/* A size: often small, often beside a multiple of 64, at most 200. */
static inline size_t random_size(test_random *r)
{
    static const size_t edges[] = { 0, 1, 2, 63, 64, 65, 127, 128, 129, 192 };
    switch (test_below(r, 4)) {
    case 0:
        return edges[test_below(r, sizeof(edges) / sizeof(edges[0]))];
    case 1:
        return test_below(r, 201);
    default:
        return test_below(r, 40);
    }
}

#endif
