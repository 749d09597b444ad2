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
    BT_BPE_LINEAR_MAX = 32,      /* symbols that are merged without a heap */
    BT_BPE_WORD_BYTES_MAX = 64,  /* bytes of a piece that may be a whole word */
    BT_BPE_NO_RANK = UINT32_MAX, /* the pair does not merge */
    BT_BPE_UNUSED = (int)(1u << 30) /* flag in `merged`: the piece is unused */
};

typedef struct bt_bpe_pair {
    uint32_t left, right; /* BT_NO_ID in an empty slot */
    uint32_t rank, merged;
} bt_bpe_pair;

typedef struct bt_bpe {
    bt_subword_model base;
    const bt_vocab *vocab;
    bt_bpe_pair *pairs; /* a hash table */
    size_t mask;        /* number of slots - 1 */
    uint64_t key;
    bt_shortmap whole_words; /* splits that are one token */
    bt_vocab *long_words;    /* those of more than 16 bytes */
    bool whole_words_merge;  /* merging gives the same token for them */
    uint64_t *joinable; /* a Bloom filter by bt_bpe_pair_hash(): initial symbols
                        that a merge may join; NULL: any */
    size_t joinable_mask;       /* number of bits - 1 */
    uint32_t byte_ids[256];     /* ids of symbols of one byte */
    uint32_t fallback_ids[256]; /* ids of <0x..> */
    bt_trie user_defined;
    bool has_user_defined, has_unused;
    uint32_t unknown;
    bool fuse_unknown, bytelevel, byte_fallback;
    char *prefix, *suffix; /* or NULL */
    size_t prefix_size, suffix_size;
} bt_bpe;

/* ---- Pairs --------------------------------------------------------------- */

static inline size_t bt_bpe_pair_hash(const bt_bpe *b, uint32_t left,
                                      uint32_t right)
{
    return (size_t)bt_hash_mix(left ^ b->key, right ^ ~b->key);
}

/* The slot of a pair, or the empty one where it belongs. */
static inline bt_bpe_pair *bt_bpe_pair_slot(const bt_bpe *b, uint32_t left,
                                            uint32_t right)
{
    for (size_t i = bt_bpe_pair_hash(b, left, right);; i++) {
        bt_bpe_pair *p = b->pairs + (i & b->mask);
        if ((p->left == left && p->right == right) || p->left == BT_NO_ID)
            return p;
    }
}

static inline uint32_t bt_bpe_pair_rank(const bt_bpe *b, uint32_t left,
                                        uint32_t right, uint32_t *merged)
{
    const bt_bpe_pair *p = bt_bpe_pair_slot(b, left, right);
    *merged = p->merged;
    return p->rank; // BT_BPE_NO_RANK in an empty slot
}

/* Merge at most BT_BPE_LINEAR_MAX symbols in place, with a linear search for
 * the lowest rank; returns how many are left. */
size_t bt_bpe_merge_linear(const bt_bpe *b, bt_token *symbols, size_t count);
/* Merge symbols [lo, hi) of the tokens in place with a heap of ranks; *left is
 * how many are left. */
bauta_status bt_bpe_merge_heap(const bt_bpe *b, bt_subword_workspace *work,
                               size_t lo, size_t hi, size_t *left,
                               bauta_error *err);

/* Encode a split by merging, without the table of whole words. */
bauta_status bt_bpe_encode_by_merging(const bt_bpe *b, const char *split,
                                      size_t size, bt_subword_workspace *work,
                                      bauta_error *err);
/* The functions of its bt_subword_model. */
bauta_status bt_bpe_encode(const bt_subword_model *model, const char *split,
                           size_t size, bt_subword_workspace *work,
                           bauta_error *err);
void bt_bpe_free(bt_subword_model *model);

#endif
