/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h - the BPE model: bpe.c encodes, bpe_merge.c merges symbols,
 * bpe_create.c creates the tables. */
#ifndef BT_BPE_H
#define BT_BPE_H

#include "base/hash.h"
#include "text/subword/shortmap.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"

enum {
    BT_BPE_FEW = 32,            /* symbols that are merged without a heap */
    BT_BPE_WORD = 64,           /* bytes of a piece that may be a whole word */
    BT_NO_RANK = UINT32_MAX,    /* the pair does not merge */
    BT_UNUSED = (int)(1u << 30) /* flag in `merged`: the piece is unused */
};

typedef struct bt_pair {
    uint32_t left, right; /* BT_NO_ID in an empty slot */
    uint32_t rank, merged;
} bt_pair;

typedef struct bt_bpe {
    bt_subword base;
    const bt_vocab *vocab;
    bt_pair *pairs; /* a hash table */
    size_t mask;    /* number of slots - 1 */
    uint64_t key;
    bt_shortmap words;      /* splits that are one token */
    bt_vocab *long_words;   /* those of more than 16 bytes */
    bool words_merge;       /* merging gives the same token for them */
    uint64_t *joins;        /* a Bloom filter by bt_pair_hash(): initial symbols
                               that a merge may join; NULL: any */
    size_t joins_mask;      /* number of bits - 1 */
    uint32_t bytes[256];    /* ids of symbols of one byte */
    uint32_t fallback[256]; /* ids of <0x..> */
    bt_trie frozen;
    bool has_frozen, has_unused;
    uint32_t unknown;
    bool fuse_unknown, bytelevel, byte_fallback;
    char *prefix, *suffix; /* or NULL */
    size_t prefix_size, suffix_size;
} bt_bpe;

/* ---- Pairs --------------------------------------------------------------- */

static inline size_t bt_pair_hash(const bt_bpe *b, uint32_t left,
                                  uint32_t right)
{
    return (size_t)bt_hash_mix(left ^ b->key, right ^ ~b->key);
}

/* The slot of a pair, or the empty one where it belongs. */
static inline bt_pair *bt_pair_slot(const bt_bpe *b, uint32_t left,
                                    uint32_t right)
{
    for (size_t i = bt_pair_hash(b, left, right);; i++) {
        bt_pair *p = b->pairs + (i & b->mask);
        if ((p->left == left && p->right == right) || p->left == BT_NO_ID)
            return p;
    }
}

static inline uint32_t bt_pair_rank(const bt_bpe *b, uint32_t left,
                                    uint32_t right, uint32_t *merged)
{
    const bt_pair *p = bt_pair_slot(b, left, right);
    *merged = p->merged;
    return p->rank; // BT_NO_RANK in an empty slot
}

/* Merge at most BT_BPE_FEW symbols in place, with a linear search for the
 * lowest rank; returns how many are left. */
size_t bt_merge_few(const bt_bpe *b, bt_token *symbols, size_t count);
/* Merge symbols [lo, hi) of the tokens in place with a heap of ranks; *left is
 * how many are left. */
bauta_status bt_merge_many(const bt_bpe *b, bt_subword_work *work, size_t lo,
                           size_t hi, size_t *left, bauta_error *err);

/* Encode a split by merging, without the table of whole words. */
bauta_status bt_bpe_merge(const bt_bpe *b, const char *split, size_t size,
                          bt_subword_work *work, bauta_error *err);
/* The functions of its bt_subword. */
bauta_status bt_bpe_encode(const bt_subword *model, const char *split,
                           size_t size, bt_subword_work *work,
                           bauta_error *err);
void bt_bpe_free(bt_subword *model);

#endif
