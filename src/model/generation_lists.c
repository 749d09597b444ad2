/* SPDX-License-Identifier: Apache-2.0 */
/* generation_lists.c - reading stop_strings and bad_words_ids into one block of
 * memory. */
#include "model/generation_lists.h"

#include "base/error.h"
#include "base/memory.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* The JSON values of the lists; NULL where absent. */
typedef struct lists {
    const char *file;
    const json_t *stops; /* a string, or a list of strings */
    const json_t *bad;
    size_t vocab;
    bauta_error *wrong; /* the first error */
} lists;

static void reject(const lists *l, const char *key, const json_t *value,
                   const char *why)
{
    if (!l->wrong->status)
        bt_json_fail_member(l->file, key, value, why, l->wrong);
}

/* ---- checks ------------------------------------------------------------ */

static size_t items(const json_t *value)
{
    return json_is_array(value) ? json_array_size(value) : value != NULL;
}

static const json_t *item(const json_t *value, size_t i)
{
    return json_is_array(value) ? json_array_get(value, i) : value;
}

static void stops_check(const lists *l)
{
    for (size_t i = 0; i < items(l->stops); i++)
        if (json_string_length(item(l->stops, i)) == 0)
            reject(l, "stop_strings", l->stops,
                   "neither a string nor a list of strings, or one of them is "
                   "empty");
}

static bool is_token(const json_t *value)
{
    json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number >= 0 && number <= INT32_MAX;
}

static void bad_check(const lists *l)
{
    if (l->bad && !json_is_array(l->bad))
        reject(l, "bad_words_ids", l->bad, "not a list");
    for (size_t i = 0; i < items(l->bad); i++) {
        const json_t *word = item(l->bad, i);
        if (!json_is_array(word) || json_array_size(word) == 0)
            reject(l, "bad_words_ids", l->bad, "not a list of token lists");
        for (size_t j = 0; j < json_array_size(word); j++)
            if (!is_token(json_array_get(word, j)))
                reject(l, "bad_words_ids", l->bad,
                       "which contains something that is not a token");
    }
}

/* ---- the block --------------------------------------------------------- */

static size_t token_at(const json_t *word, size_t j)
{
    return (size_t)json_integer_value(json_array_get(word, j));
}

static bool in_vocabulary(const json_t *word, size_t vocab)
{
    for (size_t j = 0; j < json_array_size(word); j++)
        if (token_at(word, j) >= vocab)
            return false;
    return true;
}

static const char *text_take(bt_arena *arena, const json_t *value)
{
    size_t size = json_string_length(value) + 1;
    char *text = bt_arena_alloc(arena, size, 1);
    if (text)
        memcpy(text, json_string_value(value), size);
    return text;
}

static bauta_token_seq word_take(bt_arena *arena, const json_t *value)
{
    size_t count = json_array_size(value);
    uint32_t *tokens = bt_arena_alloc(arena, count, sizeof(*tokens));
    for (size_t j = 0; tokens && j < count; j++)
        tokens[j] = (uint32_t)token_at(value, j);
    return (bauta_token_seq){ count, tokens };
}

/* Runs twice: to measure, then to fill in. */
static bt_generation_lists *block_take(bt_arena *arena, const lists *l)
{
    size_t stop_count = items(l->stops), bad_count = 0;
    bt_generation_lists *words = bt_arena_alloc(arena, 1, sizeof(*words));
    const char **stops = bt_arena_alloc(arena, stop_count, sizeof(*stops));
    bauta_token_seq *bad = bt_arena_alloc(arena, items(l->bad), sizeof(*bad));
    for (size_t i = 0; i < stop_count; i++) {
        const char *text = text_take(arena, item(l->stops, i));
        if (text)
            stops[i] = text;
    }
    for (size_t i = 0; i < items(l->bad); i++) {
        if (!in_vocabulary(item(l->bad, i), l->vocab))
            continue;
        bauta_token_seq word = word_take(arena, item(l->bad, i));
        if (words)
            bad[bad_count++] = word;
    }
    if (words)
        *words = (bt_generation_lists){ .stop_count = stop_count,
                                        .stop_strings = stops,
                                        .bad_word_count = bad_count,
                                        .bad_words = bad,
                                        .error = *l->wrong };
    return words;
}

/* ---- reading ----------------------------------------------------------- */

bauta_status bt_generation_lists_read(bt_generation_lists **out,
                                      const char *generation,
                                      size_t generation_size,
                                      const char *config, size_t config_size,
                                      size_t vocab, bauta_error *err)
{
    bauta_error wrong = { 0 };
    bt_arena arena = { 0 };
    json_t *root = NULL;
    bauta_status status = bt_json_parse_object(
        &root, generation ? generation : config,
        generation ? generation_size : config_size, 0, "", &wrong);
    if (status == BAUTA_ERR_NOMEM)
        return bt_fail(err, status, "%s", wrong.message);
    wrong = (bauta_error){ 0 }; // reported when the file itself is read
    lists l = { generation ? "generation_config.json" : "config.json",
                bt_json_get(root, "stop_strings"),
                bt_json_get(root, "bad_words_ids"), vocab, &wrong };
    stops_check(&l);
    bad_check(&l);
    if (wrong.status)
        l.stops = l.bad = NULL;
    block_take(&arena, &l);
    size_t bytes = arena.used;
    bool there = bt_arena_reserve(&arena, bytes) == 0;
    // The struct is at the start of the block, so freeing it frees everything.
    *out = there ? block_take(&arena, &l) : NULL;
    json_decref(root);
    return there ? BAUTA_OK : bt_fail_memory(err, "words", bytes);
}
