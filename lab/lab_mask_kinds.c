/* SPDX-License-Identifier: Apache-2.0 */
/* lab_mask_kinds.c - bauta lab masks: every kind of mask, in any size. */
#include "lab_mask_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bauta_status make_fn(bauta_mask **out, const sizes *s,
                             bauta_error *err);

static bauta_status all_make(bauta_mask **out, const sizes *s, bauta_error *err)
{
    return bauta_mask_all(out, s->tokens, s->tokens, err);
}

static bauta_status causal_make(bauta_mask **out, const sizes *s,
                                bauta_error *err)
{
    return bauta_mask_causal(out, s->tokens, s->tokens, err);
}

static bauta_status window_make(bauta_mask **out, const sizes *s,
                                bauta_error *err)
{
    return bauta_mask_window(out, s->tokens, s->tokens, s->window, err);
}

static bauta_status prefix_make(bauta_mask **out, const sizes *s,
                                bauta_error *err)
{
    return bauta_mask_prefix(out, s->tokens, s->tokens, s->prefix, err);
}

static bauta_status sinks_make(bauta_mask **out, const sizes *s,
                               bauta_error *err)
{
    return bauta_mask_sinks(out, s->tokens, s->tokens, s->sinks, err);
}

static bauta_status both_make(bauta_mask **out, const sizes *s,
                              bauta_error *err)
{
    bauta_mask *window = NULL, *sinks = NULL;
    bauta_status status = window_make(&window, s, err);
    if (!status)
        status = sinks_make(&sinks, s, err);
    if (!status)
        status = bauta_mask_or(out, window, sinks, err);
    bauta_mask_free(window);
    bauta_mask_free(sinks);
    return status;
}

/* Four packed texts, each of which sees only itself. */
static bauta_status documents_make(bauta_mask **out, const sizes *s,
                                   bauta_error *err)
{
    size_t n = s->tokens, lengths[] = { n / 2, n / 4, n / 8, n - n / 8 * 7 };
    return bauta_mask_documents(out, 4, lengths, NULL, err);
}

/* Four texts of different lengths, padded to the longest. */
static bauta_status lengths_make(bauta_mask **out, const sizes *s,
                                 bauta_error *err)
{
    size_t time = s->tokens / 4;
    size_t lengths[] = { time, time / 2, time * 3 / 4, time / 4 };
    return bauta_mask_lengths(out, 4, time, time, NULL, lengths, err);
}

/* Cross-attention: three translations, half as long as their sources. */
static bauta_status cross_make(bauta_mask **out, const sizes *s,
                               bauta_error *err)
{
    size_t n = s->tokens;
    size_t queries[] = { n / 4, n / 8, n / 8 };
    size_t keys[] = { n / 2, n / 4, n / 4 };
    return bauta_mask_documents(out, 3, queries, keys, err);
}

/* Each pair with probability 1/2; a query always sees itself. */
static bauta_status random_make(bauta_mask **out, const sizes *s,
                                bauta_error *err)
{
    size_t n = s->tokens;
    unsigned char *pairs = malloc(n * n);
    uint64_t state = s->seed * 2 + 1;
    if (!pairs) {
        snprintf(err->message, sizeof(err->message), "out of memory");
        return BAUTA_ERR_NOMEM;
    }
    for (size_t i = 0; i < n * n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        pairs[i] = (unsigned char)(state >> 63);
    }
    for (size_t i = 0; i < n; i++)
        pairs[i * n + i] = 1;
    bauta_status status = bauta_mask_dense(out, n, n, pairs, err);
    free(pairs);
    return status;
}

/* Blocks: a query sees its own, the previous and every fourth block before. */
static size_t blocks_row(void *user, size_t query, bauta_span *spans,
                         size_t capacity)
{
    const sizes *s = user;
    size_t own = query / s->block, count = 0, end = 0;
    for (size_t b = 0; b <= own; b++) {
        if (b % 4 != 0 && b + 1 < own)
            continue;
        bauta_span span = { b * s->block, (b + 1) * s->block };
        if (b == own)
            span.hi = query + 1;
        if (count && span.lo == end) {
            if (count <= capacity)
                spans[count - 1].hi = span.hi;
        } else if (count++ < capacity) {
            spans[count - 1] = span;
        }
        end = span.hi;
    }
    return count;
}

static bauta_status blocks_make(bauta_mask **out, const sizes *s,
                                bauta_error *err)
{
    sizes copy = *s;
    return bauta_mask_rows(out, s->tokens, s->tokens, blocks_row, &copy, err);
}

static const struct {
    const char *name;
    make_fn *make;
    size_t number; /* offset in `sizes` of the number in the name, or 0 */
} kinds[KINDS] = {
    { "all", all_make, 0 },
    { "causal", causal_make, 0 },
    { "window", window_make, offsetof(sizes, window) },
    { "prefix", prefix_make, offsetof(sizes, prefix) },
    { "sinks", sinks_make, offsetof(sizes, sinks) },
    { "window | sinks", both_make, 0 },
    { "documents", documents_make, 0 },
    { "padding", lengths_make, 0 },
    { "cross", cross_make, 0 },
    { "random", random_make, 0 },
    { "blocks", blocks_make, offsetof(sizes, block) },
};

bauta_status kind_make(bauta_mask **out, size_t kind, const sizes *s,
                       bauta_error *err)
{
    return kinds[kind].make(out, s, err);
}

void kind_name(char *to, size_t kind, const sizes *s)
{
    size_t number;
    memcpy(&number, (const char *)s + kinds[kind].number, sizeof(number));
    if (kinds[kind].number)
        snprintf(to, KIND_NAME, "%s(%zu)", kinds[kind].name, number);
    else
        snprintf(to, KIND_NAME, "%s", kinds[kind].name);
}
