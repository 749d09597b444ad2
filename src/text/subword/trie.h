/* SPDX-License-Identifier: Apache-2.0 */
/* trie.h - a byte trie, to find all keys that begin at one position.
 *
 * Nodes are in breadth-first order, so the children of a node are adjacent and
 * end at the first child of the next node. Node 0 is the root. As it is no
 * child, 0 also means that there is none. */
#ifndef BT_TRIE_H
#define BT_TRIE_H

#include "text/subword/vocab.h"

#include <string.h>

/* Bytes of a piece that is searched at every position of a text: the bound of
 * one search in the trie. */
enum { BT_TRIE_NONE = UINT32_MAX, BT_SEARCHED_PIECE_MAX = 512 };

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
    unsigned char *labels; /* (count + 8) the byte on the edge to a node */
    size_t count;
    uint32_t top[256]; /* the root's children by byte */
} bt_trie;

/* Build a trie. The keys are sorted; their bytes are not needed afterwards. Of
 * equal keys the first one's value is kept. Time and memory are linear in the
 * bytes of all keys. */
bauta_status bt_trie_init(bt_trie *trie, bt_trie_key *keys, size_t count,
                          bauta_error *err);
/* Build a trie of the pieces of a vocabulary with their ids, except for empty
 * ones, hidden ones (by id; may be NULL), and those of more than `longest`
 * bytes. A piece of more than BT_SEARCHED_PIECE_MAX bytes is an error. */
bauta_status bt_trie_init_vocab(bt_trie *trie, const bt_vocab *vocab,
                                const unsigned char *hidden, size_t longest,
                                const char *path, bauta_error *err);
void bt_trie_release(bt_trie *trie);

/* The child of a node for a byte, or 0. Eight children are compared at a time;
 * this assumes a little-endian machine. */
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
        // The lowest set bit marks the first byte that is 0 now.
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

/* The length and value of the longest key that the text begins with, or 0. */
size_t bt_trie_longest_prefix(const bt_trie *trie, const char *text,
                              size_t size, uint32_t *value);

#endif
