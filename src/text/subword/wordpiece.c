/* SPDX-License-Identifier: Apache-2.0 */
/* wordpiece.c - greedy longest match from the left; if no piece matches, the
 * whole word is unknown.
 *
 * All pieces are in one trie. Those that continue a word begin with the prefix,
 * so they are the subtree of the prefix's node. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"

#include <string.h>

typedef struct wordpiece {
    bt_subword_model base;
    bt_trie trie;
    uint32_t inside; /* the node of the prefix */
    bool continues;  /* there is such a node */
    uint32_t unknown;
    size_t max_word_chars;
} wordpiece;

/* Whether a character begins, or the text ends, at `at`. */
static bool at_boundary(const char *text, size_t size, size_t at)
{
    return at == size || !bt_utf8_continues(text[at]);
}

static bool too_long(const char *split, size_t size, size_t max_chars)
{
    size_t characters = 0;
    if (size <= max_chars)
        return false;
    for (size_t i = 0; i < size; i++)
        characters += at_boundary(split, size, i);
    return characters > max_chars;
}

/* The end of the longest piece at `at`, starting from a node of the trie, or
 * `at` if there is none. */
static size_t piece_find(const wordpiece *w, uint32_t node, const char *split,
                         size_t size, size_t at, uint32_t *id)
{
    size_t end = at;
    for (size_t i = at; i < size; i++) {
        node = bt_trie_step(&w->trie, node, (unsigned char)split[i]);
        if (node == 0)
            break;
        uint32_t value = bt_trie_value(&w->trie, node);
        if (value != BT_TRIE_NONE && at_boundary(split, size, i + 1)) {
            end = i + 1;
            *id = value;
        }
    }
    return end;
}

/* Append the pieces of a word; *whole is false if a part of it is no piece. */
static bauta_status split_word(const wordpiece *w, const char *split,
                               size_t size, bt_subword_workspace *work,
                               bool *whole, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    *whole = true;
    for (size_t at = 0, end; at < size && !status; at = end) {
        uint32_t id = BT_NO_ID;
        *whole = at == 0 || w->continues;
        end = !*whole ? at
                      : piece_find(w, at ? w->inside : 0, split, size, at, &id);
        *whole = end > at;
        if (!*whole)
            break;
        status = bt_subword_append(
            work, (bt_token){ id, (uint32_t)at, (uint32_t)end }, err);
    }
    return status;
}

static bauta_status wordpiece_encode(const bt_subword_model *model,
                                     const char *split, size_t size,
                                     bt_subword_workspace *work,
                                     bauta_error *err)
{
    const wordpiece *w = (const wordpiece *)model;
    size_t first = work->count;
    bool whole = !too_long(split, size, w->max_word_chars);
    if (whole) {
        bauta_status status = split_word(w, split, size, work, &whole, err);
        if (status || whole)
            return status;
    }
    if (w->unknown == BT_NO_ID)
        return bt_fail_unknown_token(err, split, size);
    work->count = first;
    return bt_subword_append(work, (bt_token){ w->unknown, 0, (uint32_t)size },
                             err);
}

static void wordpiece_free(bt_subword_model *model)
{
    wordpiece *w = (wordpiece *)model;
    bt_trie_release(&w->trie);
    bt_free(w);
}

static void prefix_find(wordpiece *w, const char *prefix)
{
    w->continues = true;
    for (; prefix && *prefix && w->continues; prefix++) {
        w->inside = bt_trie_step(&w->trie, w->inside, (unsigned char)*prefix);
        w->continues = w->inside != 0;
    }
}

bauta_status bt_wordpiece_create(bt_subword_model **out,
                                 const bt_wordpiece_spec *spec,
                                 const char *path, bauta_error *err)
{
    wordpiece *w = bt_alloc_zero(1, sizeof(*w));
    *out = NULL;
    if (!w)
        return bt_fail_memory(err, "a tokenizer", sizeof(*w));
    w->base = (bt_subword_model){ wordpiece_encode, wordpiece_free };
    w->unknown = spec->unknown;
    w->max_word_chars = spec->max_word_chars;
    // A piece that is longer than any encoded word is never found.
    size_t longest = bt_size_add(bt_size_mul(spec->max_word_chars, 4),
                                 spec->prefix ? strlen(spec->prefix) : 0);
    bauta_status status =
        bt_trie_init_vocab(&w->trie, spec->vocab, NULL, longest, path, err);
    if (status) {
        bt_free(w);
        return status;
    }
    prefix_find(w, spec->prefix);
    *out = &w->base;
    return BAUTA_OK;
}
