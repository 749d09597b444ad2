/* SPDX-License-Identifier: Apache-2.0 */
/* parse_kinds.c - the kinds of masks in a text, and their arguments. */
#include "base/array.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"
#include "mask/parser.h"

#include <string.h>

/* A constructor's sentence, with the place that it is about. */
static bauta_status failed_at(bt_parser *p, size_t at, const bauta_error *why)
{
    return bt_fail(p->err, why->status, "column %zu: %.200s",
                   bt_parser_column(p, at), why->message);
}

/* ---- Arguments ----------------------------------------------------------- */

static bauta_status number_read(bt_parser *p, size_t *out)
{
    size_t number = 0;
    if (!bt_is_digit(bt_parser_next(p)))
        return bt_parser_expected(p, "a number");
    size_t from = p->at;
    for (; bt_is_digit(p->text[p->at]); p->at++) {
        number = number * 10 + (size_t)(p->text[p->at] - '0');
        if (number > BT_AXIS_MAX)
            return bt_fail(p->err, BAUTA_ERR_ARGUMENT,
                           "column %zu: the number is larger than %zu",
                           bt_parser_column(p, from), BT_AXIS_MAX);
    }
    *out = number;
    return BAUTA_OK;
}

static bauta_status open_read(bt_parser *p, const char *form)
{
    return bt_parser_take(p, '(') ? BAUTA_OK : bt_parser_expected(p, form);
}

static bauta_status close_read(bt_parser *p)
{
    return bt_parser_take(p, ')') ? BAUTA_OK : bt_parser_expected(p, "')'");
}

/* Lengths of documents: of queries and of keys alike, or as 3:5 of each. */
typedef struct lengths {
    size_t *queries, *keys;
    size_t count, room, key_room;
    size_t query_sum, key_sum;
} lengths;

static bauta_status length_read(bt_parser *p, lengths *l)
{
    size_t queries = 0, keys = 0;
    if (BT_ROOM(l->queries, l->room, l->count, 1) ||
        BT_ROOM(l->keys, l->key_room, l->count, 1))
        return bt_fail_memory(p->err, "lengths", sizeof(size_t));
    bauta_status status = number_read(p, &queries);
    keys = queries;
    if (!status && bt_parser_take(p, ':'))
        status = number_read(p, &keys);
    l->queries[l->count] = queries;
    l->keys[l->count++] = keys;
    l->query_sum = bt_size_add(l->query_sum, queries);
    l->key_sum = bt_size_add(l->key_sum, keys);
    return status;
}

static bauta_status lengths_read(bt_parser *p, lengths *l)
{
    bauta_status status = length_read(p, l);
    while (!status && bt_parser_take(p, ','))
        status = length_read(p, l);
    if (!status && !bt_parser_take(p, ')'))
        status = bt_parser_expected(p, "',' or ')'");
    return status;
}

static void lengths_release(lengths *l)
{
    bt_free(l->queries);
    bt_free(l->keys);
}

/* ---- Kinds --------------------------------------------------------------- */

static bauta_status none(bauta_mask **out, size_t queries, size_t keys,
                         bauta_error *err)
{
    return bauta_mask_sinks(out, queries, keys, 0, err);
}

static bauta_status documents(bauta_mask **out, const bt_parser *p,
                              const lengths *l, bauta_error *err)
{
    if (l->query_sum != p->queries || l->key_sum != p->keys)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the documents have %zu queries and %zu keys, the mask "
                       "has %zu and %zu",
                       l->query_sum, l->key_sum, p->queries, p->keys);
    return bauta_mask_documents(out, l->count, l->queries, l->keys, err);
}

static bauta_status padded(bauta_mask **out, const bt_parser *p,
                           const lengths *l, bauta_error *err)
{
    if (p->queries % l->count || p->keys % l->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu sequences of one time do not make %zu queries "
                       "over %zu keys",
                       l->count, p->queries, p->keys);
    return bauta_mask_lengths(out, l->count, p->queries / l->count,
                              p->keys / l->count, l->queries, l->keys, err);
}

typedef bauta_status plain_fn(bauta_mask **, size_t, size_t, bauta_error *);
typedef bauta_status sized_fn(bauta_mask **, size_t, size_t, size_t,
                              bauta_error *);
typedef bauta_status listed_fn(bauta_mask **, const bt_parser *,
                               const lengths *, bauta_error *);

/* Just one of the functions is there: it says what the arguments are. */
typedef struct kind {
    const char *name;
    const char *form; /* what has to follow the name */
    plain_fn *plain;
    sized_fn *sized;
    listed_fn *listed;
    bool reach, compose;
} kind;

static const kind kinds[] = {
    { .name = "all", .plain = bauta_mask_all },
    { .name = "none", .plain = none },
    { .name = "causal", .plain = bauta_mask_causal },
    { .name = "window", .form = "(n)", .sized = bauta_mask_window },
    { .name = "prefix", .form = "(n)", .sized = bauta_mask_prefix },
    { .name = "sinks", .form = "(n)", .sized = bauta_mask_sinks },
    { .name = "documents", .form = "(n, n, ...)", .listed = documents },
    { .name = "lengths", .form = "(n, n, ...)", .listed = padded },
    { .name = "reach", .form = "(mask, layers)", .reach = true },
    { .name = "compose", .form = "(upper, lower)", .compose = true },
};

static bauta_status sized_read(bt_parser *p, const kind *k, bauta_mask **out,
                               size_t from)
{
    size_t number = 0;
    bauta_error why;
    bauta_status status = number_read(p, &number);
    if (!status)
        status = close_read(p);
    if (!status && k->sized(out, p->queries, p->keys, number, &why))
        status = failed_at(p, from, &why);
    return status;
}

static bauta_status listed_read(bt_parser *p, const kind *k, bauta_mask **out,
                                size_t from)
{
    lengths l = { .queries = NULL };
    bauta_error why;
    bauta_status status = lengths_read(p, &l);
    if (!status && k->listed(out, p, &l, &why))
        status = failed_at(p, from, &why);
    lengths_release(&l);
    return status;
}

static bauta_status reach_read(bt_parser *p, bauta_mask **out, size_t from)
{
    bauta_mask *mask = NULL;
    size_t layers = 0;
    bauta_error why;
    bauta_status status = bt_parser_mask(p, &mask);
    if (!status && !bt_parser_take(p, ','))
        status = bt_parser_expected(p, "',' and how many layers");
    if (!status)
        status = number_read(p, &layers);
    if (!status)
        status = close_read(p);
    if (!status && bauta_mask_reach(out, mask, layers, &why))
        status = failed_at(p, from, &why);
    bauta_mask_free(mask);
    return status;
}

static bauta_status compose_read(bt_parser *p, bauta_mask **out, size_t from)
{
    bauta_mask *upper = NULL, *lower = NULL;
    bauta_error why;
    bauta_status status = bt_parser_mask(p, &upper);
    if (!status && !bt_parser_take(p, ','))
        status = bt_parser_expected(p, "',' and the lower mask");
    if (!status)
        status = bt_parser_mask(p, &lower);
    if (!status)
        status = close_read(p);
    if (!status && bauta_mask_compose(out, upper, lower, &why))
        status = failed_at(p, from, &why);
    bauta_mask_free(upper);
    bauta_mask_free(lower);
    return status;
}

static bauta_status name_unknown(bt_parser *p, size_t from, const char *name)
{
    bt_guess guess = bt_guess_of(name);
    for (size_t i = 0; i < BT_LEN(kinds); i++)
        bt_guess_try(&guess, kinds[i].name);
    return bt_fail(
        p->err, BAUTA_ERR_ARGUMENT, "column %zu: there is no mask '%s'%s%s%s",
        bt_parser_column(p, from), name, BT_DID_YOU_MEAN(guess, "'"));
}

bauta_status bt_parser_kind(bt_parser *p, bauta_mask **out)
{
    size_t from = p->at, i = 0;
    bt_quoted name = bt_parser_word(p, from);
    bauta_error why;
    while (i < BT_LEN(kinds) && strcmp(kinds[i].name, name.text) != 0)
        i++;
    if (i == BT_LEN(kinds))
        return name_unknown(p, from, name.text);
    const kind *k = &kinds[i];
    p->at += strlen(k->name);
    if (k->plain)
        return k->plain(out, p->queries, p->keys, &why)
                   ? failed_at(p, from, &why)
                   : BAUTA_OK;
    bauta_status status = open_read(p, k->form);
    if (status)
        return status;
    return k->sized    ? sized_read(p, k, out, from)
           : k->listed ? listed_read(p, k, out, from)
           : k->reach  ? reach_read(p, out, from)
                       : compose_read(p, out, from);
}
