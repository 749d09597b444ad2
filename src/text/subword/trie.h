/* SPDX-License-Identifier: Apache-2.0 */
/* trie.h - strings as a tree of bytes, to find all that begin at one place.
 *
 * Nodes stand in breadth-first order, so the children of a node are adjacent
 * and the first child of the next node ends them. Node 0 is the root; it is
 * nobody's child, so 0 also says that there is none. */
#ifndef BT_TRIE_H
#define BT_TRIE_H

#include "text/subword/vocab.h"

#include <string.h>

/* Bytes of a piece that is looked for at every place of a text: what a walk
 * along the trie costs there. */
enum { BT_TRIE_NONE = UINT32_MAX, BT_PIECE_FOUND_MAX = 512 };

typedef struct bt_trie_key {
    const char *bytes;
    uint32_t size;
    uint32_t value; /* not BT_TRIE_NONE */
} bt_trie_key;

typedef struct bt_trie_node {
    uint32_t first; /* child; those of node i end where those of i + 1 begin */
    uint32_t value; /* of the key that ends here, or BT_TRIE_NONE */
} bt_trie_node;

typedef struct bt_trie {
    bt_trie_node *nodes;   /* (count + 1) */
    unsigned char *labels; /* (count + 8) the byte that leads to a node */
    size_t count;
    uint32_t top[256]; /* the root's children by byte */
} bt_trie;

/* Build one; the keys come out sorted, and their bytes are not needed after.
 * Of equal keys the first one's value is kept. Time and memory are linear in
 * the bytes of all keys. */
bauta_status bt_trie_init(bt_trie *trie, bt_trie_key *keys, size_t count,
                          bauta_error *err);
/* All pieces of a vocabulary with their ids, but for empty ones, those that
 * `hidden` (by id, or NULL) leaves out, and those of more than `longest` bytes.
 * One of more than BT_PIECE_FOUND_MAX is refused. */
bauta_status bt_trie_vocab(bt_trie *trie, const bt_vocab *vocab,
                           const unsigned char *hidden, size_t longest,
                           const char *path, bauta_error *err);
void bt_trie_release(bt_trie *trie);

/* From a node along one byte; 0 when no key goes there. Eight children are
 * compared at a time, on a machine whose first byte is the lowest. */
static inline uint32_t bt_trie_step(const bt_trie *trie, uint32_t node,
                                    unsigned char byte)
{
    if (node == 0)
        return trie->top[byte];
    uint32_t end = trie->nodes[node + 1].first;
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    for (uint32_t i = trie->nodes[node].first; i < end; i += 8) {
        uint64_t eight;
        memcpy(&eight, trie->labels + i, sizeof(eight));
        eight ^= ones * byte;
        // The lowest bit that is set marks the first byte that became 0.
        uint64_t zeros = (eight - ones) & ~eight & highs;
        if (zeros) {
            uint32_t child = i + (uint32_t)__builtin_ctzll(zeros) / 8;
            return child < end ? child : 0;
        }
    }
    return 0;
}

static inline uint32_t bt_trie_value(const bt_trie *trie, uint32_t node)
{
    return trie->nodes[node].value;
}

/* The longest key that the text begins with: its length, 0 when there is none,
 * and its value. */
size_t bt_trie_longest(const bt_trie *trie, const char *text, size_t size,
                       uint32_t *value);

#endif
