/* SPDX-License-Identifier: Apache-2.0 */
/* trie.c - a trie, built level by level.
 *
 * A node is a range of keys with a common prefix. Sorting the range by the next
 * byte gives its children, which are appended to the nodes: this is
 * breadth-first order. Until a node is expanded, `first` and `value` are its
 * range of keys. */
#include "text/subword/trie.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <string.h>

enum { FEW = 16 }; /* keys that are sorted by insertion */

typedef struct trie_builder {
    bt_trie *trie;
    bt_trie_key *keys, *spare;
    size_t nodes_room, labels_room;
    bauta_error *err;
} trie_builder;

/* 0 for a key that ends here, else 1 + its next byte. */
static unsigned rank_at(const bt_trie_key *key, uint32_t depth)
{
    return key->size == depth ? 0 : 1u + (unsigned char)key->bytes[depth];
}

static void sort_few(bt_trie_key *keys, size_t count, uint32_t depth)
{
    for (size_t i = 1; i < count; i++) {
        bt_trie_key key = keys[i];
        unsigned rank = rank_at(&key, depth);
        size_t j = i;
        for (; j > 0 && rank_at(keys + j - 1, depth) > rank; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

static void sort_many(bt_trie_key *keys, bt_trie_key *spare, size_t count,
                      uint32_t depth)
{
    size_t begin[258] = { 0 };
    for (size_t i = 0; i < count; i++)
        begin[rank_at(keys + i, depth) + 1]++;
    for (size_t r = 1; r < BT_LEN(begin); r++)
        begin[r] += begin[r - 1];
    for (size_t i = 0; i < count; i++)
        spare[begin[rank_at(keys + i, depth)]++] = keys[i];
    memcpy(keys, spare, count * sizeof(*keys));
}

static bauta_status node_add(trie_builder *b, unsigned char label, uint32_t lo,
                             uint32_t hi)
{
    bt_trie *t = b->trie;
    // One more node ends the children of the last one, and labels are read
    // eight at a time.
    if (t->count >= BT_TRIE_NONE - 8 ||
        BT_ARRAY_RESERVE(t->nodes, b->nodes_room, t->count, 2) ||
        BT_ARRAY_RESERVE(t->labels, b->labels_room, t->count, 9))
        return bt_fail_memory(b->err, "a trie",
                              (t->count + 2) * sizeof(*t->nodes));
    t->labels[t->count] = label;
    t->nodes[t->count++] = (bt_trie_node){ lo, hi };
    return BAUTA_OK;
}

/* Set the value of a node and append its children. */
static bauta_status node_expand(trie_builder *b, size_t node, uint32_t depth)
{
    bt_trie *t = b->trie;
    uint32_t lo = t->nodes[node].first, hi = t->nodes[node].value;
    if (hi - lo > FEW)
        sort_many(b->keys + lo, b->spare, hi - lo, depth);
    else
        sort_few(b->keys + lo, hi - lo, depth);
    bool ends = lo < hi && b->keys[lo].size == depth;
    t->nodes[node].first = (uint32_t)t->count;
    t->nodes[node].value = ends ? b->keys[lo].value : BT_TRIE_NONE;
    while (lo < hi && b->keys[lo].size == depth)
        lo++;
    while (lo < hi) {
        unsigned rank = rank_at(b->keys + lo, depth);
        uint32_t end = lo + 1;
        while (end < hi && rank_at(b->keys + end, depth) == rank)
            end++;
        bauta_status status = node_add(b, (unsigned char)(rank - 1), lo, end);
        if (status)
            return status;
        lo = end;
    }
    return BAUTA_OK;
}

static bauta_status levels_build(trie_builder *b, size_t count)
{
    bauta_status status = node_add(b, 0, 0, (uint32_t)count);
    size_t node = 0;
    for (uint32_t depth = 0; !status && node < b->trie->count; depth++)
        for (size_t end = b->trie->count; !status && node < end; node++)
            status = node_expand(b, node, depth);
    return status;
}

bauta_status bt_trie_init(bt_trie *trie, bt_trie_key *keys, size_t count,
                          bauta_error *err)
{
    trie_builder b = { .trie = trie, .keys = keys, .err = err };
    memset(trie, 0, sizeof(*trie));
    if (count < BT_TRIE_NONE)
        b.spare = bt_alloc(count * sizeof(*keys));
    if (!b.spare)
        return bt_fail_memory(err, "a trie", count * sizeof(*keys));
    bauta_status status = levels_build(&b, count);
    bt_free(b.spare);
    if (status) {
        bt_trie_release(trie);
        return status;
    }
    trie->nodes[trie->count] =
        (bt_trie_node){ (uint32_t)trie->count, BT_TRIE_NONE };
    memset(trie->labels + trie->count, 0, 8);
    for (uint32_t i = trie->nodes[0].first; i < trie->nodes[1].first; i++)
        trie->top[trie->labels[i]] = i;
    return BAUTA_OK;
}

bauta_status bt_trie_init_vocab(bt_trie *trie, const bt_vocab *vocab,
                                const unsigned char *hidden, size_t longest,
                                const char *path, bauta_error *err)
{
    size_t all = bt_vocab_size(vocab), count = 0, size = 0;
    bt_trie_key *keys = bt_alloc(all * sizeof(*keys));
    bauta_status status = BAUTA_OK;
    memset(trie, 0, sizeof(*trie));
    if (!keys)
        return bt_fail_memory(err, "a trie", all * sizeof(*keys));
    for (uint32_t id = 0; id < all && !status; id++) {
        const char *piece = bt_vocab_piece(vocab, id, &size);
        if (!piece || size == 0 || size > longest || (hidden && hidden[id]))
            continue;
        if (size > BT_SEARCHED_PIECE_MAX)
            status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                             "%s: piece %u has %zu bytes; at most %d are "
                             "supported",
                             bt_path_tail(path), (unsigned)id, size,
                             BT_SEARCHED_PIECE_MAX);
        keys[count++] = (bt_trie_key){ piece, (uint32_t)size, id };
    }
    if (!status)
        status = bt_trie_init(trie, keys, count, err);
    bt_free(keys);
    return status;
}

void bt_trie_release(bt_trie *trie)
{
    bt_free(trie->nodes);
    bt_free(trie->labels);
    memset(trie, 0, sizeof(*trie));
}

size_t bt_trie_longest_prefix(const bt_trie *trie, const char *text,
                              size_t size, uint32_t *value)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        node = bt_trie_step(trie, node, (unsigned char)text[i]);
        if (node == 0)
            break;
        if (bt_trie_value(trie, node) != BT_TRIE_NONE) {
            longest = i + 1;
            *value = bt_trie_value(trie, node);
        }
    }
    return longest;
}
