/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_create.c - the tables of a BPE model: pairs and their ranks, the initial
 * symbols that a merge may join, and the words that are one token. */
#include "text/subword/bpe.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/subword/bytelevel.h"

#include <stdio.h>
#include <string.h>

/* ---- Creating ------------------------------------------------------------ */

typedef struct bpe_builder {
    bt_bpe *bpe;
    const bt_bpe_spec *spec;
    const char *path;
    bauta_error *err;
    size_t longest; /* bytes of a piece that may be a whole word */
} bpe_builder;

static bauta_status text_copy(bpe_builder *k, char **out, size_t *size,
                              const char *text)
{
    *size = text ? strlen(text) : 0;
    if (*size == 0)
        return BAUTA_OK;
    *out = bt_alloc(*size);
    if (!*out)
        return bt_fail_memory(k->err, "a prefix", *size);
    memcpy(*out, text, *size);
    return BAUTA_OK;
}

static void bytes_fill(bt_bpe *b)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8], one = (char)byte;
        size_t size = b->bytelevel ? bt_bytelevel_encode(text, &one, 1) : 1;
        b->byte_ids[byte] =
            bt_vocab_find(b->vocab, b->bytelevel ? text : &one, size);
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        b->fallback_ids[byte] = bt_vocab_find(b->vocab, text, 6);
    }
}

static bauta_status user_defined_fill(bpe_builder *k)
{
    const bt_bpe_spec *spec = k->spec;
    bt_trie_key *keys = bt_alloc(spec->user_defined_count * sizeof(*keys));
    size_t count = 0;
    if (!keys)
        return bt_fail_memory(k->err, "user-defined pieces",
                              spec->user_defined_count * sizeof(*keys));
    for (size_t i = 0; i < spec->user_defined_count; i++) {
        const char *text = spec->user_defined[i];
        size_t size = strlen(text);
        uint32_t id = bt_vocab_find(spec->vocab, text, size);
        if (size && id != BT_NO_ID)
            keys[count++] = (bt_trie_key){ text, (uint32_t)size, id };
    }
    bauta_status status =
        bt_trie_init(&k->bpe->user_defined, keys, count, k->err);
    k->bpe->has_user_defined = !status && count > 0;
    bt_free(keys);
    return status;
}

enum { IS_UNUSED = 1, IS_USER_DEFINED = 2 };

/* Flags of the pieces, by id; for bt_free(). */
static bauta_status flags_create(bpe_builder *k, unsigned char **out)
{
    const bt_bpe_spec *spec = k->spec;
    size_t size = bt_vocab_size(spec->vocab);
    unsigned char *flags = bt_alloc_zero(size, 1);
    *out = flags;
    if (!flags)
        return bt_fail_memory(k->err, "pieces", size);
    for (size_t i = 0; i < spec->unused_count; i++)
        if (spec->unused[i] < size)
            flags[spec->unused[i]] |= IS_UNUSED;
    for (size_t i = 0; i < spec->user_defined_count; i++) {
        const char *text = spec->user_defined[i];
        uint32_t id = bt_vocab_find(spec->vocab, text, strlen(text));
        if (id != BT_NO_ID)
            flags[id] |= IS_USER_DEFINED;
    }
    return BAUTA_OK;
}

static bauta_status pair_add(bpe_builder *k, size_t index,
                             const unsigned char *flags)
{
    const bt_merge_rule *m = k->spec->merges + index;
    size_t size = bt_vocab_size(k->spec->vocab);
    if (m->left >= size || m->right >= size || m->merged >= size ||
        m->rank == BT_BPE_NO_RANK)
        return bt_fail(k->err, BAUTA_ERR_FORMAT,
                       "%s: merge %zu is of pieces %u and %u to %u; there are "
                       "%zu pieces",
                       bt_path_tail(k->path), index, m->left, m->right,
                       m->merged, size);
    // User-defined pieces are never merged.
    if ((flags[m->left] | flags[m->right]) & IS_USER_DEFINED)
        return BAUTA_OK;
    uint32_t unused = flags[m->merged] & IS_UNUSED ? BT_BPE_UNUSED : 0;
    bt_bpe_pair *p = bt_bpe_pair_slot(k->bpe, m->left, m->right);
    if (p->left != BT_NO_ID)
        return bt_fail(k->err, BAUTA_ERR_FORMAT,
                       "%s: merge %zu, of pieces %u and %u, occurs twice",
                       bt_path_tail(k->path), index, m->left, m->right);
    *p = (bt_bpe_pair){ m->left, m->right, m->rank, m->merged | unused };
    k->bpe->has_unused |= unused != 0;
    return BAUTA_OK;
}

static bauta_status pairs_fill(bpe_builder *k)
{
    bt_bpe *b = k->bpe;
    unsigned char *flags = NULL;
    size_t slots = 16;
    while (slots < bt_size_mul(k->spec->merge_count, 2))
        slots *= 2;
    b->pairs = bt_alloc(bt_size_mul(slots, sizeof(bt_bpe_pair)));
    if (!b->pairs)
        return bt_fail_memory(k->err, "merges",
                              bt_size_mul(slots, sizeof(bt_bpe_pair)));
    b->mask = slots - 1;
    b->key = bt_hash_mix((uintptr_t)b->pairs, BT_HASH_ODD);
    memset(b->pairs, 0xFF,
           slots * sizeof(bt_bpe_pair)); // BT_NO_ID and BT_BPE_NO_RANK
    bauta_status status = flags_create(k, &flags);
    for (size_t i = 0; i < k->spec->merge_count && !status; i++)
        status = pair_add(k, i, flags);
    bt_free(flags);
    return status;
}

/* ---- Joins --------------------------------------------------------------- */

/* Whether a merge gives the concatenation of its pieces, and both represent
 * their own text. Only then the strings determine which symbols it can join. */
static bool merge_is_plain(const bpe_builder *k, const bt_merge_rule *m)
{
    const bt_vocab *vocab = k->spec->vocab;
    size_t left = 0, right = 0, merged = 0;
    const char *l = bt_vocab_piece(vocab, m->left, &left);
    const char *r = bt_vocab_piece(vocab, m->right, &right);
    const char *both = bt_vocab_piece(vocab, m->merged, &merged);
    bool special = m->left == k->spec->unknown || m->right == k->spec->unknown;
    if (k->spec->byte_fallback && l && r)
        special |= strncmp(l, "<0x", 3) == 0 || strncmp(r, "<0x", 3) == 0;
    return !special && l && r && both && left && right &&
           merged == left + right && memcmp(both, l, left) == 0 &&
           memcmp(both + left, r, right) == 0;
}

/* Add the last character of the left piece and the first of the right one. */
static void joins_add(bt_bpe *b, const bt_merge_rule *m)
{
    size_t left, right;
    const char *l = bt_vocab_piece(b->vocab, m->left, &left);
    const char *r = bt_vocab_piece(b->vocab, m->right, &right);
    size_t last = bt_utf8_char_start(l, 0, left);
    size_t first = bt_size_min(bt_utf8_length((unsigned char)*r), right);
    uint32_t a = bt_vocab_find(b->vocab, l + last, left - last);
    uint32_t c = bt_vocab_find(b->vocab, r, first);
    if (a == BT_NO_ID || c == BT_NO_ID)
        return; // no text has such initial symbols
    size_t bit = bt_bpe_pair_hash(b, a, c) & b->joinable_mask;
    b->joinable[bit / 64] |= (uint64_t)1 << bit % 64;
}

static bauta_status joins_fill(bpe_builder *k)
{
    bt_bpe *b = k->bpe;
    size_t bits = 1024;
    bool plain = !b->prefix && !b->suffix && !b->has_unused;
    for (size_t i = 0; i < k->spec->merge_count && plain; i++)
        plain = merge_is_plain(k, k->spec->merges + i);
    if (!plain)
        return BAUTA_OK;
    while (bits < bt_size_mul(k->spec->merge_count, 16))
        bits *= 2;
    b->joinable = bt_alloc_zero(bits / 64, sizeof(uint64_t));
    if (!b->joinable)
        return bt_fail_memory(k->err, "merges", bits / 8);
    b->joinable_mask = bits - 1;
    for (size_t i = 0; i < k->spec->merge_count; i++)
        joins_add(b, k->spec->merges + i);
    return BAUTA_OK;
}

/* ---- Words --------------------------------------------------------------- */

/* The split that a piece would encode as a whole word: without the suffix, and
 * as bytes. False if there is none. */
static bool word_of(const bpe_builder *k, uint32_t id, char *word, size_t *size)
{
    const bt_bpe *b = k->bpe;
    const char *piece = bt_vocab_piece(b->vocab, id, size);
    size_t suffix = k->spec->ignore_merges ? 0 : b->suffix_size;
    if (!piece || *size <= suffix || *size > k->longest ||
        (suffix && memcmp(piece + *size - suffix, b->suffix, suffix) != 0))
        return false;
    *size -= suffix;
    if (b->bytelevel)
        return bt_bytelevel_decode(word, size, piece, *size);
    memcpy(word, piece, *size);
    return true;
}

/* Whether merging a word gives exactly this token. */
static bauta_status word_is_whole(const bpe_builder *k, const char *word,
                                  size_t size, uint32_t id,
                                  bt_subword_workspace *work, bool *whole)
{
    *whole = k->spec->ignore_merges;
    if (*whole)
        return BAUTA_OK;
    work->count = 0;
    bauta_status status =
        bt_bpe_encode_by_merging(k->bpe, word, size, work, k->err);
    // The token must cover the word: unknown characters may be dropped.
    *whole = work->count == 1 && work->tokens[0].id == id &&
             work->tokens[0].lo == 0 && work->tokens[0].hi == size;
    return status;
}

static size_t longest_word(const bpe_builder *k)
{
    size_t longest = BT_BPE_WORD_BYTES_MAX, size;
    if (!k->spec->ignore_merges)
        return longest;
    for (uint32_t id = 0; id < bt_vocab_size(k->spec->vocab); id++)
        if (bt_vocab_piece(k->spec->vocab, id, &size))
            longest = bt_size_max(longest, size);
    return longest;
}

static bauta_status word_add(bpe_builder *k, const char *word, size_t size,
                             uint32_t id)
{
    if (size <= BT_SHORTMAP_KEY_MAX)
        return bt_shortmap_add(&k->bpe->whole_words, word, size, id, k->err);
    return bt_vocab_add(k->bpe->long_words, word, size, id, k->err);
}

static bauta_status words_add(bpe_builder *k, char *word)
{
    bt_bpe *b = k->bpe;
    bt_subword_workspace work = { 0 };
    bauta_status status = bt_shortmap_init(&b->whole_words, k->err);
    if (!status)
        status = bt_vocab_create(&b->long_words, k->err);
    for (uint32_t id = 0; id < bt_vocab_size(b->vocab) && !status; id++) {
        size_t size;
        bool whole = false;
        if (!word_of(k, id, word, &size))
            continue;
        status = word_is_whole(k, word, size, id, &work, &whole);
        if (!status && whole)
            status = word_add(k, word, size, id);
    }
    bt_subword_workspace_release(&work);
    return status;
}

static bauta_status words_fill(bpe_builder *k)
{
    k->longest = longest_word(k);
    char *word = bt_alloc(k->longest);
    if (!word)
        return bt_fail_memory(k->err, "a piece", k->longest);
    bauta_status status = words_add(k, word);
    bt_free(word);
    return status;
}

static bauta_status bpe_fill(bpe_builder *k)
{
    bt_bpe *b = k->bpe;
    const bt_bpe_spec *spec = k->spec;
    b->base = (bt_subword_model){ bt_bpe_encode, bt_bpe_free };
    b->vocab = spec->vocab;
    b->unknown = spec->unknown;
    b->fuse_unknown = spec->fuse_unknown;
    b->bytelevel = spec->bytelevel;
    b->byte_fallback = spec->byte_fallback;
    bytes_fill(b);
    bauta_status status =
        text_copy(k, &b->prefix, &b->prefix_size, spec->prefix);
    if (!status)
        status = text_copy(k, &b->suffix, &b->suffix_size, spec->suffix);
    if (!status)
        status = user_defined_fill(k);
    if (!status)
        status = pairs_fill(k);
    if (!status)
        status = joins_fill(k);
    b->whole_words_merge = !spec->ignore_merges;
    return status ? status : words_fill(k);
}

bauta_status bt_bpe_create(bt_subword_model **out, const bt_bpe_spec *spec,
                           const char *path, bauta_error *err)
{
    bpe_builder k = { bt_alloc_zero(1, sizeof(bt_bpe)), spec, path, err, 0 };
    *out = NULL;
    if (!k.bpe)
        return bt_fail_memory(err, "a tokenizer", sizeof(bt_bpe));
    bauta_status status = bpe_fill(&k);
    if (status) {
        bt_bpe_free(&k.bpe->base);
        return status;
    }
    *out = &k.bpe->base;
    return BAUTA_OK;
}
