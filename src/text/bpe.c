/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - byte-pair encoding.
 *
 * A split starts as symbols, one a character (or byte), which stand in the
 * list of tokens from the first. Then the pair of neighbours with the lowest
 * rank becomes one symbol, over and over:
 *
 *   - most words of a text are a piece that encodes to itself; which pieces do
 *     is found out when the model is created, and they are one look-up
 *   - what stands between two symbols that no merge can ever join is merged by
 *     itself, so a long text without splits comes down to words, too
 *   - few symbols: look for the lowest rank each time, on the stack
 *   - many: a heap of ranks, whose entries are checked when they come out
 *
 * Where SentencePiece has merged to an unused piece it takes it apart again:
 * into the two symbols that were last seen side by side with that piece as
 * their merger, anywhere in the split. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "text/bytelevel.h"
#include "text/hash.h"
#include "text/shortmap.h"
#include "text/subword.h"
#include "text/trie.h"
#include "text/unicode.h"

#include <stdio.h>

enum {
    FEW = 32,                /* symbols that are merged on the stack */
    WORD = 64,               /* bytes of a piece that may be a word */
    NO_RANK = UINT32_MAX,    /* of a pair that does not merge */
    UNUSED = (int)(1u << 30) /* set in `merged` of a piece that is unused */
};

typedef struct pair {
    uint32_t left, right; /* BT_NO_ID in an empty slot */
    uint32_t rank, merged;
} pair;

typedef struct bpe {
    bt_subword base;
    const bt_vocab *vocab;
    pair *pairs; /* open addressing */
    size_t mask; /* number of slots - 1 */
    uint64_t key;
    bt_shortmap words;      /* splits that are one token, as they come */
    bt_vocab *long_words;   /* those of more than 16 bytes */
    bool words_merge;       /* and that is what merging makes of them */
    uint64_t *joins;        /* bits by pair_hash() of two first symbols that a
                               merge may join; NULL: it may join any */
    size_t joins_mask;      /* number of bits - 1 */
    uint32_t bytes[256];    /* symbols of one byte: their ids */
    uint32_t fallback[256]; /* <0x..> */
    bt_trie frozen;
    bool has_frozen, has_unused;
    uint32_t unknown;
    bool fuse_unknown, bytelevel, byte_fallback;
    char *prefix, *suffix; /* NULL when there is none */
    size_t prefix_size, suffix_size;
} bpe;

/* ---- Pairs --------------------------------------------------------------- */

static size_t pair_hash(const bpe *b, uint32_t left, uint32_t right)
{
    return (size_t)bt_hash_mix(left ^ b->key, right ^ ~b->key);
}

/* A pair's slot, or the empty one where it would be. */
static pair *pair_slot(const bpe *b, uint32_t left, uint32_t right)
{
    for (size_t i = pair_hash(b, left, right);; i++) {
        pair *p = b->pairs + (i & b->mask);
        if ((p->left == left && p->right == right) || p->left == BT_NO_ID)
            return p;
    }
}

static uint32_t pair_rank(const bpe *b, uint32_t left, uint32_t right,
                          uint32_t *merged)
{
    const pair *p = pair_slot(b, left, right);
    *merged = p->merged;
    return p->rank; // NO_RANK in an empty slot
}

/* ---- Few symbols --------------------------------------------------------- */

/* Merge `count` symbols in place; returns how many are left. */
static size_t merge_few(const bpe *b, bt_token *symbols, size_t count)
{
    uint32_t ranks[FEW], merged[FEW];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = pair_rank(b, symbols[i].id, symbols[i + 1].id, merged + i);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == NO_RANK)
            break;
        symbols[best].id = merged[best];
        symbols[best].hi = symbols[best + 1].hi;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            symbols[i] = symbols[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        if (best + 1 < count)
            ranks[best] = pair_rank(b, symbols[best].id, symbols[best + 1].id,
                                    merged + best);
        if (best > 0)
            ranks[best - 1] = pair_rank(b, symbols[best - 1].id,
                                        symbols[best].id, merged + best - 1);
    }
    return count;
}

/* ---- Many symbols -------------------------------------------------------- */

/* A symbol among its neighbours: indices, `count` where there is none. */
typedef struct link {
    uint32_t prev, next;
    uint32_t rank, merged; /* of it and the next one */
} link;

/* How an unused piece was made; id is BT_NO_ID in an empty slot. */
typedef struct parts {
    uint32_t id, left, right;
} parts;

typedef struct merging {
    const bpe *bpe;
    bt_token *symbols;
    uint32_t count;
    link *links;    /* (count) */
    uint64_t *heap; /* (2 * count) rank << 32 | index */
    size_t heap_count;
    parts *parts; /* open addressing; NULL when no piece is unused */
    size_t parts_mask;
} merging;

static void heap_sink(uint64_t *heap, size_t count, size_t at, uint64_t key)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static void heap_push(merging *m, uint64_t key)
{
    size_t at = m->heap_count++;
    for (; at > 0 && m->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = key;
}

static uint64_t heap_pop(merging *m)
{
    uint64_t top = m->heap[0];
    m->heap_count--;
    heap_sink(m->heap, m->heap_count, 0, m->heap[m->heap_count]);
    return top;
}

static parts *parts_slot(const merging *m, uint32_t id)
{
    for (size_t i = (size_t)bt_hash_mix(id ^ m->bpe->key, BT_HASH_ODD);; i++) {
        parts *p = m->parts + (i & m->parts_mask);
        if (p->id == id || p->id == BT_NO_ID)
            return p;
    }
}

/* What a symbol and the next one would become. */
static void link_look(merging *m, uint32_t at)
{
    link *l = m->links + at;
    l->rank = NO_RANK;
    if (l->next == m->count)
        return;
    uint32_t left = m->symbols[at].id, right = m->symbols[l->next].id;
    l->rank = pair_rank(m->bpe, left, right, &l->merged);
    if (l->rank == NO_RANK || !(l->merged & UNUSED))
        return;
    l->merged &= ~(uint32_t)UNUSED;
    *parts_slot(m, l->merged) = (parts){ l->merged, left, right };
}

static void link_push(merging *m, uint32_t at)
{
    link_look(m, at);
    if (m->links[at].rank != NO_RANK)
        heap_push(m, (uint64_t)m->links[at].rank << 32 | at);
}

static void links_start(merging *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        m->links[i].prev = i ? i - 1 : m->count;
        m->links[i].next = i + 1;
        link_look(m, i);
        if (m->links[i].rank != NO_RANK)
            m->heap[m->heap_count++] = (uint64_t)m->links[i].rank << 32 | i;
    }
    for (size_t i = m->heap_count / 2; i-- > 0;)
        heap_sink(m->heap, m->heap_count, i, m->heap[i]);
}

static void links_merge(merging *m, uint32_t at)
{
    link *l = m->links + at;
    uint32_t next = l->next;
    m->symbols[at].id = l->merged;
    m->symbols[at].hi = m->symbols[next].hi;
    l->next = m->links[next].next;
    m->links[next].rank = NO_RANK; // what the heap has of it is void
    if (l->next < m->count)
        m->links[l->next].prev = at;
    if (l->prev < m->count)
        link_push(m, l->prev);
    link_push(m, at);
}

/* Close the gaps; returns how many symbols are left. */
static size_t links_collect(const merging *m)
{
    size_t left = 0;
    for (uint32_t i = 0; i < m->count; i = m->links[i].next)
        m->symbols[left++] = m->symbols[i];
    return left;
}

/* Take unused pieces apart. No more symbols come out than there were at first,
 * since each covers one of those or more; so they fit where the links were,
 * and those that wait to be looked at where the heap was. */
static size_t parts_restore(const merging *m, size_t left)
{
    bt_token *out = (bt_token *)(void *)m->links;
    bt_token *wait = (bt_token *)(void *)m->heap;
    size_t count = 0;
    for (size_t i = 0; i < left; i++) {
        size_t waiting = 0, size = 0;
        wait[waiting++] = m->symbols[i];
        while (waiting > 0) {
            bt_token t = wait[--waiting];
            const parts *p = parts_slot(m, t.id);
            if (p->id == BT_NO_ID) {
                out[count++] = t;
                continue;
            }
            bt_vocab_piece(m->bpe->vocab, p->left, &size);
            uint32_t middle = t.lo + (uint32_t)size;
            wait[waiting++] = (bt_token){ p->right, middle, t.hi };
            wait[waiting++] = (bt_token){ p->left, t.lo, middle };
        }
    }
    memcpy(m->symbols, out, count * sizeof(*out));
    return count;
}

/* The scratch of a merging, cut into its arrays. */
static bauta_status merging_init(merging *m, bt_subword_work *work,
                                 bauta_error *err)
{
    bt_arena arena = { 0 };
    size_t slots = m->bpe->has_unused ? 16 : 0;
    while (slots && slots < (size_t)m->count * 6)
        slots *= 2; // two looks at most for each merge, and one for each symbol
    m->parts_mask = slots ? slots - 1 : 0;
    for (int measured = 0; measured < 2; measured++) {
        m->links = bt_arena_take(&arena, m->count, sizeof(link));
        m->heap = bt_arena_take(&arena, m->count, 2 * sizeof(uint64_t));
        m->parts = bt_arena_take(&arena, slots, sizeof(parts));
        if (measured)
            break;
        bauta_status status = bt_subword_scratch(work, arena.used, err);
        if (status)
            return status;
        arena = (bt_arena){ work->scratch, work->scratch_size, 0 };
    }
    if (!slots)
        m->parts = NULL;
    for (size_t i = 0; i < slots; i++)
        m->parts[i].id = BT_NO_ID;
    return BAUTA_OK;
}

/* Merge symbols [lo, hi) of the tokens in place; *left says how many are
 * left. */
static bauta_status merge_many(const bpe *b, bt_subword_work *work, size_t lo,
                               size_t hi, size_t *left, bauta_error *err)
{
    merging m = { .bpe = b,
                  .symbols = work->tokens + lo,
                  .count = (uint32_t)(hi - lo) };
    bauta_status status = merging_init(&m, work, err);
    if (status)
        return status;
    links_start(&m);
    while (m.heap_count > 0) {
        uint64_t key = heap_pop(&m);
        if (m.links[(uint32_t)key].rank == key >> 32)
            links_merge(&m, (uint32_t)key);
    }
    *left = links_collect(&m);
    if (m.parts)
        *left = parts_restore(&m, *left);
    return BAUTA_OK;
}

/* ---- The first symbols --------------------------------------------------- */

typedef struct start {
    const bpe *bpe;
    bt_subword_work *work;
    bt_token unknown; /* that may go on; id is BT_NO_ID when there is none */
    bauta_error *err;
} start;

static bauta_status start_flush(start *s)
{
    bt_token token = s->unknown;
    s->unknown.id = BT_NO_ID;
    return token.id == BT_NO_ID ? BAUTA_OK
                                : bt_subword_put(s->work, token, s->err);
}

static bauta_status start_known(start *s, bt_token token)
{
    bauta_status status = start_flush(s);
    return status ? status : bt_subword_put(s->work, token, s->err);
}

/* Whether all bytes of a symbol have tokens of their own. */
static bool has_fallback(const bpe *b, const char *symbol, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (b->fallback[(unsigned char)symbol[i]] == BT_NO_ID)
            return false;
    return b->byte_fallback;
}

/* Hugging Face's library writes an unknown that waits for others to join it
 * behind byte tokens, not before; so do we. */
static bauta_status start_unknown(start *s, const char *symbol, size_t size,
                                  bt_token token)
{
    const bpe *b = s->bpe;
    bauta_status status = BAUTA_OK;
    if (has_fallback(b, symbol, size)) {
        for (size_t i = 0; i < size && !status; i++) {
            token.id = b->fallback[(unsigned char)symbol[i]];
            status = bt_subword_put(s->work, token, s->err);
        }
    } else if (b->unknown != BT_NO_ID) {
        if (b->fuse_unknown && s->unknown.id != BT_NO_ID) {
            s->unknown.hi = token.hi;
            return BAUTA_OK;
        }
        status = start_flush(s);
        s->unknown = token;
        s->unknown.id = b->unknown;
    }
    return status;
}

/* The symbol as the vocabulary has it: with prefix or suffix, and in the
 * alphabet of bytes. It goes to the scratch. */
static bauta_status symbol_write(start *s, const char *at, size_t size,
                                 bool first, bool last, size_t *length)
{
    const bpe *b = s->bpe;
    size_t room = b->prefix_size + b->suffix_size + 2 * size + 1, used = 0;
    bauta_status status = bt_subword_scratch(s->work, room, s->err);
    if (status)
        return status;
    char *out = s->work->scratch;
    if (!first && b->prefix) {
        memcpy(out, b->prefix, b->prefix_size);
        used = b->prefix_size;
    }
    if (b->bytelevel) {
        used += bt_bytelevel_encode(out + used, at, size);
    } else {
        memcpy(out + used, at, size);
        used += size;
    }
    if (last && b->suffix) {
        memcpy(out + used, b->suffix, b->suffix_size);
        used += b->suffix_size;
    }
    *length = used;
    return BAUTA_OK;
}

/* A character that is not in the table of bytes. */
static bauta_status start_written(start *s, const char *split, size_t size,
                                  bt_token token)
{
    size_t length;
    bauta_status status =
        symbol_write(s, split + token.lo, token.hi - token.lo, token.lo == 0,
                     token.hi == size, &length);
    if (status)
        return status;
    const char *symbol = s->work->scratch;
    token.id = bt_vocab_find(s->bpe->vocab, symbol, length);
    return token.id != BT_NO_ID ? start_known(s, token)
                                : start_unknown(s, symbol, length, token);
}

static size_t symbol_length(const bpe *b, const char *at, size_t left)
{
    if (b->bytelevel)
        return 1;
    return bt_size_min(bt_utf8_length((unsigned char)*at), left);
}

/* The usual case: every character is a symbol by itself. False when one is
 * not, and nothing has happened. There must be room for `size` tokens. */
static bool symbols_plain(const bpe *b, const char *split, size_t size,
                          bt_subword_work *work)
{
    bt_token *out = work->tokens + work->count;
    if (b->prefix || b->suffix || b->has_frozen)
        return false;
    for (size_t i = 0, length; i < size; i += length) {
        length = symbol_length(b, split + i, size - i);
        uint32_t id = length == 1 ? b->bytes[(unsigned char)split[i]]
                                  : bt_vocab_find(b->vocab, split + i, length);
        if (id == BT_NO_ID)
            return false;
        *out++ = (bt_token){ id, (uint32_t)i, (uint32_t)(i + length) };
    }
    work->count = (size_t)(out - work->tokens);
    return true;
}

static bauta_status symbols_start(const bpe *b, const char *split, size_t size,
                                  bt_subword_work *work, bauta_error *err)
{
    start s = { b, work, { BT_NO_ID, 0, 0 }, err };
    bool plain = !b->prefix && !b->suffix;
    bauta_status status = bt_subword_reserve(work, size, err);
    if (!status && symbols_plain(b, split, size, work))
        return BAUTA_OK;
    for (size_t i = 0, length; i < size && !status; i += length) {
        uint32_t id = BT_NO_ID;
        length = 0;
        if (b->has_frozen)
            length = bt_trie_longest(&b->frozen, split + i, size - i, &id);
        if (length == 0)
            length = symbol_length(b, split + i, size - i);
        if (length == 1 && plain)
            id = b->bytes[(unsigned char)split[i]];
        bt_token token = { id, (uint32_t)i, (uint32_t)(i + length) };
        status = id != BT_NO_ID ? start_known(&s, token)
                                : start_written(&s, split, size, token);
    }
    return status ? status : start_flush(&s);
}

/* ---- Encoding ------------------------------------------------------------ */

/* Whether a merge may join what ends with one first symbol and what begins
 * with another. */
static bool may_join(const bpe *b, uint32_t left, uint32_t right)
{
    size_t bit = pair_hash(b, left, right) & b->joins_mask;
    return b->joins[bit / 64] >> bit % 64 & 1;
}

/* The token that a split is, or BT_NO_ID. */
static uint32_t word_find(const bpe *b, const char *split, size_t size)
{
    if (size == 0)
        return BT_NO_ID;
    return size <= BT_SHORTMAP_LONGEST
               ? bt_shortmap_find(&b->words, split, size)
               : bt_vocab_find(b->long_words, split, size);
}

/* Merge the symbols [lo, hi), which nothing outside can join. Where it does not
 * matter if they begin or end a split, they may be a word. */
static bauta_status merge_range(const bpe *b, const char *split, size_t size,
                                bt_subword_work *work, size_t lo, size_t hi,
                                size_t *left, bauta_error *err)
{
    bt_token *t = work->tokens + lo;
    *left = hi - lo;
    if (hi - lo < 2)
        return BAUTA_OK;
    uint32_t from = t->lo, to = t[hi - lo - 1].hi;
    if (b->joins && b->words_merge && to - from < size && to - from <= WORD) {
        uint32_t id = word_find(b, split + from, to - from);
        if (id != BT_NO_ID) {
            *t = (bt_token){ id, from, to };
            *left = 1;
            return BAUTA_OK;
        }
    }
    if (hi - lo > FEW || b->has_unused)
        return merge_many(b, work, lo, hi, left, err);
    *left = merge_few(b, t, hi - lo);
    return BAUTA_OK;
}

static bauta_status encode_merging(const bpe *b, const char *split, size_t size,
                                   bt_subword_work *work, bauta_error *err)
{
    size_t lo = work->count, out = lo;
    bauta_status status = symbols_start(b, split, size, work, err);
    for (size_t hi, left; lo < work->count && !status; lo = hi) {
        const bt_token *t = work->tokens;
        hi = b->joins ? lo + 1 : work->count;
        while (hi < work->count && may_join(b, t[hi - 1].id, t[hi].id))
            hi++;
        status = merge_range(b, split, size, work, lo, hi, &left, err);
        if (out != lo)
            memmove(work->tokens + out, work->tokens + lo,
                    left * sizeof(*work->tokens));
        out += left;
    }
    work->count = out;
    return status;
}

static bauta_status bpe_encode(const bt_subword *model, const char *split,
                               size_t size, bt_subword_work *work,
                               bauta_error *err)
{
    const bpe *b = (const bpe *)model;
    uint32_t id = word_find(b, split, size);
    if (id != BT_NO_ID)
        return bt_subword_put(work, (bt_token){ id, 0, (uint32_t)size }, err);
    return encode_merging(b, split, size, work, err);
}

static void bpe_free(bt_subword *model)
{
    bpe *b = (bpe *)model;
    bt_free(b->pairs);
    bt_free(b->joins);
    bt_shortmap_release(&b->words);
    bt_vocab_free(b->long_words);
    bt_trie_release(&b->frozen);
    bt_free(b->prefix);
    bt_free(b->suffix);
    bt_free(b);
}

/* ---- Creating ------------------------------------------------------------ */

typedef struct maker {
    bpe *bpe;
    const bt_bpe_spec *spec;
    const char *path;
    bauta_error *err;
    size_t longest; /* bytes of a piece that may be a word */
} maker;

static bauta_status text_copy(maker *k, char **out, size_t *size,
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

static void bytes_fill(bpe *b)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8], one = (char)byte;
        size_t size = b->bytelevel ? bt_bytelevel_encode(text, &one, 1) : 1;
        b->bytes[byte] =
            bt_vocab_find(b->vocab, b->bytelevel ? text : &one, size);
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        b->fallback[byte] = bt_vocab_find(b->vocab, text, 6);
    }
}

static bauta_status frozen_fill(maker *k)
{
    const bt_bpe_spec *spec = k->spec;
    bt_trie_key *keys = bt_alloc(spec->frozen_count * sizeof(*keys));
    size_t count = 0;
    if (!keys)
        return bt_fail_memory(k->err, "user-defined pieces",
                              spec->frozen_count * sizeof(*keys));
    for (size_t i = 0; i < spec->frozen_count; i++) {
        const char *text = spec->frozen[i];
        size_t size = strlen(text);
        uint32_t id = bt_vocab_find(spec->vocab, text, size);
        if (size && id != BT_NO_ID)
            keys[count++] = (bt_trie_key){ text, (uint32_t)size, id };
    }
    bauta_status status = bt_trie_init(&k->bpe->frozen, keys, count, k->err);
    k->bpe->has_frozen = !status && count > 0;
    bt_free(keys);
    return status;
}

enum { IS_UNUSED = 1, IS_FROZEN = 2 };

/* By id: what is special about a piece; for bt_free(). */
static bauta_status flags_create(maker *k, unsigned char **out)
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
    for (size_t i = 0; i < spec->frozen_count; i++) {
        const char *text = spec->frozen[i];
        uint32_t id = bt_vocab_find(spec->vocab, text, strlen(text));
        if (id != BT_NO_ID)
            flags[id] |= IS_FROZEN;
    }
    return BAUTA_OK;
}

static bauta_status pair_add(maker *k, size_t index, const unsigned char *flags)
{
    const bt_merge *m = k->spec->merges + index;
    size_t size = bt_vocab_size(k->spec->vocab);
    if (m->left >= size || m->right >= size || m->merged >= size ||
        m->rank == NO_RANK)
        return bt_fail(k->err, BAUTA_ERR_IO,
                       "%s: merge %zu is of pieces %u and %u to %u; there are "
                       "%zu pieces",
                       bt_path_tail(k->path), index, m->left, m->right,
                       m->merged, size);
    // Frozen symbols stay as they are.
    if ((flags[m->left] | flags[m->right]) & IS_FROZEN)
        return BAUTA_OK;
    uint32_t unused = flags[m->merged] & IS_UNUSED ? UNUSED : 0;
    pair *p = pair_slot(k->bpe, m->left, m->right);
    if (p->left != BT_NO_ID)
        return bt_fail(k->err, BAUTA_ERR_IO,
                       "%s: merge %zu, of pieces %u and %u, is there twice",
                       bt_path_tail(k->path), index, m->left, m->right);
    *p = (pair){ m->left, m->right, m->rank, m->merged | unused };
    k->bpe->has_unused |= unused != 0;
    return BAUTA_OK;
}

static bauta_status pairs_fill(maker *k)
{
    bpe *b = k->bpe;
    unsigned char *flags = NULL;
    size_t slots = 16;
    while (slots < bt_size_mul(k->spec->merge_count, 2))
        slots *= 2;
    b->pairs = bt_alloc(bt_size_mul(slots, sizeof(pair)));
    if (!b->pairs)
        return bt_fail_memory(k->err, "merges",
                              bt_size_mul(slots, sizeof(pair)));
    b->mask = slots - 1;
    b->key = bt_hash_mix((uintptr_t)b->pairs, BT_HASH_ODD);
    memset(b->pairs, 0xFF, slots * sizeof(pair)); // BT_NO_ID and NO_RANK
    bauta_status status = flags_create(k, &flags);
    for (size_t i = 0; i < k->spec->merge_count && !status; i++)
        status = pair_add(k, i, flags);
    bt_free(flags);
    return status;
}

/* ---- Joins --------------------------------------------------------------- */

/* Whether a merge is of two strings to their concatenation, and of none that
 * stands for other text than itself. Only then is it known from the strings
 * which symbols it can join. */
static bool merge_is_plain(const maker *k, const bt_merge *m)
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

/* The last character of one piece and the first of another, as symbols. */
static void joins_add(bpe *b, const bt_merge *m)
{
    size_t left, right;
    const char *l = bt_vocab_piece(b->vocab, m->left, &left);
    const char *r = bt_vocab_piece(b->vocab, m->right, &right);
    size_t last = left - 1;
    while (last > 0 && ((unsigned char)l[last] & 0xC0) == 0x80)
        last--;
    size_t first = bt_size_min(bt_utf8_length((unsigned char)*r), right);
    uint32_t a = bt_vocab_find(b->vocab, l + last, left - last);
    uint32_t c = bt_vocab_find(b->vocab, r, first);
    if (a == BT_NO_ID || c == BT_NO_ID)
        return; // no text starts with such symbols
    size_t bit = pair_hash(b, a, c) & b->joins_mask;
    b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
}

static bauta_status joins_fill(maker *k)
{
    bpe *b = k->bpe;
    size_t bits = 1024;
    bool plain = !b->prefix && !b->suffix && !b->has_unused;
    for (size_t i = 0; i < k->spec->merge_count && plain; i++)
        plain = merge_is_plain(k, k->spec->merges + i);
    if (!plain)
        return BAUTA_OK;
    while (bits < bt_size_mul(k->spec->merge_count, 16))
        bits *= 2;
    b->joins = bt_alloc_zero(bits / 64, sizeof(uint64_t));
    if (!b->joins)
        return bt_fail_memory(k->err, "merges", bits / 8);
    b->joins_mask = bits - 1;
    for (size_t i = 0; i < k->spec->merge_count; i++)
        joins_add(b, k->spec->merges + i);
    return BAUTA_OK;
}

/* ---- Words --------------------------------------------------------------- */

/* The split that a piece would be if it is a word, as it comes: without the
 * suffix, and as bytes. False when there is none. */
static bool word_of(const maker *k, uint32_t id, char *word, size_t *size)
{
    const bpe *b = k->bpe;
    const char *piece = bt_vocab_piece(b->vocab, id, size);
    size_t suffix = k->spec->whole_first ? 0 : b->suffix_size;
    if (!piece || *size <= suffix || *size > k->longest ||
        (suffix && memcmp(piece + *size - suffix, b->suffix, suffix) != 0))
        return false;
    *size -= suffix;
    if (b->bytelevel)
        return bt_bytelevel_decode(word, size, piece, *size);
    memcpy(word, piece, *size);
    return true;
}

/* Whether merging makes one token of a word, and this one. */
static bauta_status word_is_whole(const maker *k, const char *word, size_t size,
                                  uint32_t id, bt_subword_work *work,
                                  bool *whole)
{
    *whole = k->spec->whole_first;
    if (*whole)
        return BAUTA_OK;
    work->count = 0;
    bauta_status status = encode_merging(k->bpe, word, size, work, k->err);
    // It may leave characters out, and then it does not cover them.
    *whole = work->count == 1 && work->tokens[0].id == id &&
             work->tokens[0].lo == 0 && work->tokens[0].hi == size;
    return status;
}

static size_t longest_word(const maker *k)
{
    size_t longest = WORD, size;
    if (!k->spec->whole_first)
        return longest;
    for (uint32_t id = 0; id < bt_vocab_size(k->spec->vocab); id++)
        if (bt_vocab_piece(k->spec->vocab, id, &size))
            longest = bt_size_max(longest, size);
    return longest;
}

static bauta_status word_add(maker *k, const char *word, size_t size,
                             uint32_t id)
{
    if (size <= BT_SHORTMAP_LONGEST)
        return bt_shortmap_add(&k->bpe->words, word, size, id, k->err);
    return bt_vocab_add(k->bpe->long_words, word, size, id, k->err);
}

static bauta_status words_add(maker *k, char *word)
{
    bpe *b = k->bpe;
    bt_subword_work work = { 0 };
    bauta_status status = bt_shortmap_init(&b->words, k->err);
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
    bt_subword_work_release(&work);
    return status;
}

static bauta_status words_fill(maker *k)
{
    k->longest = longest_word(k);
    char *word = bt_alloc(k->longest);
    if (!word)
        return bt_fail_memory(k->err, "a piece", k->longest);
    bauta_status status = words_add(k, word);
    bt_free(word);
    return status;
}

static bauta_status bpe_fill(maker *k)
{
    bpe *b = k->bpe;
    const bt_bpe_spec *spec = k->spec;
    b->base = (bt_subword){ bpe_encode, bpe_free };
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
        status = frozen_fill(k);
    if (!status)
        status = pairs_fill(k);
    if (!status)
        status = joins_fill(k);
    b->words_merge = !spec->whole_first;
    return status ? status : words_fill(k);
}

bauta_status bt_bpe_create(bt_subword **out, const bt_bpe_spec *spec,
                           const char *path, bauta_error *err)
{
    maker k = { bt_alloc_zero(1, sizeof(bpe)), spec, path, err, 0 };
    *out = NULL;
    if (!k.bpe)
        return bt_fail_memory(err, "a tokenizer", sizeof(bpe));
    bauta_status status = bpe_fill(&k);
    if (status) {
        bpe_free(&k.bpe->base);
        return status;
    }
    *out = &k.bpe->base;
    return BAUTA_OK;
}
