/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h - a byte-pair encoding, inside: bpe.c encodes, bpe_merge.c merges
 * symbols, bpe_create.c makes the tables. */
#ifndef BT_BPE_H
#define BT_BPE_H

#include "base/hash.h"
#include "text/subword/shortmap.h"
#include "text/subword/subword_model.h"
#include "text/subword/trie.h"

enum {
    BT_BPE_FEW = 32,            /* symbols that are merged on the stack */
    BT_BPE_WORD = 64,           /* bytes of a piece that may be a word */
    BT_NO_RANK = UINT32_MAX,    /* of a pair that does not merge */
    BT_UNUSED = (int)(1u << 30) /* set in `merged` of a piece that is unused */
};

typedef struct bt_pair {
    uint32_t left, right; /* BT_NO_ID in an empty slot */
    uint32_t rank, merged;
} bt_pair;

typedef struct bt_bpe {
    bt_subword base;
    const bt_vocab *vocab;
    bt_pair *pairs; /* open addressing */
    size_t mask;    /* number of slots - 1 */
    uint64_t key;
    bt_shortmap words;    /* splits that are one token, as they come */
    bt_vocab *long_words; /* those of more than 16 bytes */
    bool words_merge;     /* and that is what merging makes of them */
    uint64_t *joins;      /* bits by bt_pair_hash() of two first symbols that a
                             merge may join; NULL: it may join any */
    size_t joins_mask;    /* number of bits - 1 */
    uint32_t bytes[256];  /* symbols of one byte: their ids */
    uint32_t fallback[256]; /* <0x..> */
    bt_trie frozen;
    bool has_frozen, has_unused;
    uint32_t unknown;
    bool fuse_unknown, bytelevel, byte_fallback;
    char *prefix, *suffix; /* NULL when there is none */
    size_t prefix_size, suffix_size;
} bt_bpe;

/* ---- Pairs --------------------------------------------------------------- */

static inline size_t bt_pair_hash(const bt_bpe *b, uint32_t left,
                                  uint32_t right)
{
    return (size_t)bt_hash_mix(left ^ b->key, right ^ ~b->key);
}

/* A pair's slot, or the empty one where it would be. */
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

/* Merge few symbols in place, by looking for the lowest rank each time; returns
 * how many are left. */
size_t bt_merge_few(const bt_bpe *b, bt_token *symbols, size_t count);
/* Merge symbols [lo, hi) of the tokens in place, by a heap of ranks; *left says
 * how many are left. */
bauta_status bt_merge_many(const bt_bpe *b, bt_subword_work *work, size_t lo,
                           size_t hi, size_t *left, bauta_error *err);

/* Encode a split by merging, whether it is a word or not. */
bauta_status bt_bpe_merge(const bt_bpe *b, const char *split, size_t size,
                          bt_subword_work *work, bauta_error *err);
/* What the model's bt_subword calls. */
bauta_status bt_bpe_encode(const bt_subword *model, const char *split,
                           size_t size, bt_subword_work *work,
                           bauta_error *err);
void bt_bpe_free(bt_subword *model);

#endif
