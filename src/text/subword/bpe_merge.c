/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_merge.c - merging symbols, the lowest rank first.
 *
 * SentencePiece splits an unused piece again after merging: into the two
 * symbols of the last adjacent pair, anywhere in the split, that would merge to
 * it. */
#include "text/subword/bpe.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- Few symbols --------------------------------------------------------- */

size_t bt_bpe_merge_linear(const bt_bpe *b, bt_token *symbols, size_t count)
{
    uint32_t ranks[BT_BPE_LINEAR_MAX], merged[BT_BPE_LINEAR_MAX];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] =
            bt_bpe_pair_rank(b, symbols[i].id, symbols[i + 1].id, merged + i);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == BT_BPE_NO_RANK)
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
            ranks[best] = bt_bpe_pair_rank(b, symbols[best].id,
                                           symbols[best + 1].id, merged + best);
        if (best > 0)
            ranks[best - 1] = bt_bpe_pair_rank(
                b, symbols[best - 1].id, symbols[best].id, merged + best - 1);
    }
    return count;
}

/* ---- Many symbols -------------------------------------------------------- */

/* A symbol of the linked list; an index of `count` is the end. */
typedef struct link {
    uint32_t prev, next;
    uint32_t rank, merged; /* of the pair with the next symbol */
} link;

/* The symbols of an unused piece; id is BT_NO_ID in an empty slot. */
typedef struct parts {
    uint32_t id, left, right;
} parts;

typedef struct merging {
    const bt_bpe *bpe;
    bt_token *symbols;
    uint32_t count;
    link *links;    /* (count) */
    uint64_t *heap; /* (2 * count) rank << 32 | index */
    size_t heap_count;
    parts *parts; /* a hash table; NULL if no piece is unused */
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

/* Look up the pair of a symbol and the next one. */
static void link_update(merging *m, uint32_t at)
{
    link *l = m->links + at;
    l->rank = BT_BPE_NO_RANK;
    if (l->next == m->count)
        return;
    uint32_t left = m->symbols[at].id, right = m->symbols[l->next].id;
    l->rank = bt_bpe_pair_rank(m->bpe, left, right, &l->merged);
    if (l->rank == BT_BPE_NO_RANK || !(l->merged & BT_BPE_UNUSED))
        return;
    l->merged &= ~(uint32_t)BT_BPE_UNUSED;
    *parts_slot(m, l->merged) = (parts){ l->merged, left, right };
}

static void link_push(merging *m, uint32_t at)
{
    link_update(m, at);
    if (m->links[at].rank != BT_BPE_NO_RANK)
        heap_push(m, (uint64_t)m->links[at].rank << 32 | at);
}

static void links_start(merging *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        m->links[i].prev = i ? i - 1 : m->count;
        m->links[i].next = i + 1;
        link_update(m, i);
        if (m->links[i].rank != BT_BPE_NO_RANK)
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
    m->links[next].rank = BT_BPE_NO_RANK; // its heap entries are void
    if (l->next < m->count)
        m->links[l->next].prev = at;
    if (l->prev < m->count)
        link_push(m, l->prev);
    link_push(m, at);
}

/* Move the remaining symbols together; returns how many there are. */
static size_t links_collect(const merging *m)
{
    size_t left = 0;
    for (uint32_t i = 0; i < m->count; i = m->links[i].next)
        m->symbols[left++] = m->symbols[i];
    return left;
}

/* Split unused pieces. There are at most as many symbols as at first, since
 * each covers at least one of those; so the result fits into the memory of the
 * links, and the stack of symbols into that of the heap. */
static size_t split_unused(const merging *m, size_t left)
{
    bt_token *out = (bt_token *)(void *)m->links;
    bt_token *stack = (bt_token *)(void *)m->heap;
    size_t count = 0;
    for (size_t i = 0; i < left; i++) {
        size_t depth = 0, size = 0;
        stack[depth++] = m->symbols[i];
        while (depth > 0) {
            bt_token t = stack[--depth];
            const parts *p = parts_slot(m, t.id);
            if (p->id == BT_NO_ID) {
                out[count++] = t;
                continue;
            }
            bt_vocab_piece(m->bpe->vocab, p->left, &size);
            uint32_t middle = t.lo + (uint32_t)size;
            stack[depth++] = (bt_token){ p->right, middle, t.hi };
            stack[depth++] = (bt_token){ p->left, t.lo, middle };
        }
    }
    memcpy(m->symbols, out, count * sizeof(*out));
    return count;
}

/* Divide the scratch into the arrays. */
static bauta_status merging_init(merging *m, bt_subword_workspace *work,
                                 bauta_error *err)
{
    bt_arena arena = { 0 };
    size_t slots = m->bpe->has_unused ? 16 : 0;
    while (slots && slots < (size_t)m->count * 6)
        slots *= 2; // at most two lookups per merge and one per symbol
    m->parts_mask = slots ? slots - 1 : 0;
    for (int measured = 0; measured < 2; measured++) {
        m->links = bt_arena_alloc(&arena, m->count, sizeof(link));
        m->heap = bt_arena_alloc(&arena, m->count, 2 * sizeof(uint64_t));
        m->parts = bt_arena_alloc(&arena, slots, sizeof(parts));
        if (measured)
            break;
        bauta_status status = bt_subword_reserve_scratch(work, arena.used, err);
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

bauta_status bt_bpe_merge_heap(const bt_bpe *b, bt_subword_workspace *work,
                               size_t lo, size_t hi, size_t *left,
                               bauta_error *err)
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
        *left = split_unused(&m, *left);
    return BAUTA_OK;
}
