/* SPDX-License-Identifier: Apache-2.0 */
/* subword_model.h - the models that cut a split into pieces of a vocabulary.
 *
 * Four kinds, one way to call them. A model is immutable; what a call needs
 * beside it lives in a bt_subword_work that the caller keeps from call to
 * call. Encoding takes time proportional to the length of the split, whatever
 * it holds: times its logarithm at most for BPE, and times the longest piece
 * for WordPiece and Unigram, whose pieces have at most BT_PIECE_FOUND_MAX
 * bytes. */
#ifndef BT_SUBWORD_MODEL_H
#define BT_SUBWORD_MODEL_H

#include "text/subword/vocab.h"

/* A token and the bytes [lo, hi) of its split that it covers. Byte-fallback
 * tokens of one character all cover the whole character. */
typedef struct bt_token {
    uint32_t id, lo, hi;
} bt_token;

/* All zero at first. After a failure `count` is what it was before. */
typedef struct bt_subword_work {
    bt_token *tokens; /* what was found, `count` of them; the call appends */
    size_t count, room;
    void *scratch; /* the model's; grown as needed */
    size_t scratch_size;
} bt_subword_work;

void bt_subword_work_release(bt_subword_work *work);
/* Make room for `more` tokens. */
bauta_status bt_subword_reserve(bt_subword_work *work, size_t more,
                                bauta_error *err);

/* For the models: room for `more` tokens, one token, at least `size` bytes of
 * scratch, whose contents are lost, and the sentence for a text that is in no
 * vocabulary. */
bauta_status bt_subword_reserve(bt_subword_work *work, size_t more,
                                bauta_error *err);
bauta_status bt_subword_put(bt_subword_work *work, bt_token token,
                            bauta_error *err);
bauta_status bt_subword_scratch(bt_subword_work *work, size_t size,
                                bauta_error *err);
bauta_status bt_fail_unknown(bauta_error *err, const char *text, size_t size);

typedef struct bt_subword bt_subword;
struct bt_subword {
    bauta_status (*encode)(const bt_subword *model, const char *split,
                           size_t size, bt_subword_work *work,
                           bauta_error *err);
    void (*free)(bt_subword *model);
};

/* Append the tokens of one split; lo and hi count from its first byte. */
bauta_status bt_subword_encode(const bt_subword *model, const char *split,
                               size_t size, bt_subword_work *work,
                               bauta_error *err);
void bt_subword_free(bt_subword *model); /* accepts NULL */

/* ---- Byte-pair encoding ---------------------------------------------------
 */

/* Two adjacent symbols become one; the lowest rank in the split goes first,
 * and of equal ranks the leftmost. */
typedef struct bt_merge {
    uint32_t left, right, merged; /* ids */
    uint32_t rank;
} bt_merge;

typedef struct bt_bpe_spec {
    const bt_vocab *vocab;  /* must outlive the model */
    const bt_merge *merges; /* copied into a table; no pair twice */
    size_t merge_count;
    uint32_t unknown;       /* id for a symbol that is in no vocabulary, or
                               BT_NO_ID: such symbols are left out */
    bool fuse_unknown;      /* a run of unknowns is one token */
    bool bytelevel;         /* the vocabulary is written in bytelevel.h's
                               alphabet, the splits are bytes, and symbols
                               start as bytes instead of characters */
    bool byte_fallback;     /* an unknown character becomes <0x..> tokens, if
                               the vocabulary has all of them */
    bool whole_first;       /* a split that is a piece is that piece, whatever
                               the merges say ("ignore_merges") */
    const char *prefix;     /* put before each symbol but the first, or NULL */
    const char *suffix;     /* put behind the last symbol, or NULL */
    const uint32_t *unused; /* pieces that are merged and then taken apart
                               again, sorted; SentencePiece has them */
    size_t unused_count;
    const char *const *frozen; /* strings that are one symbol each from the
                                  start; SentencePiece's user-defined pieces */
    size_t frozen_count;
} bt_bpe_spec;

enum { BT_NO_ID = UINT32_MAX };

bauta_status bt_bpe_create(bt_subword **out, const bt_bpe_spec *spec,
                           const char *path, bauta_error *err);

/* ---- WordPiece ------------------------------------------------------------
 */

typedef struct bt_wordpiece_spec {
    const bt_vocab *vocab; /* must outlive the model */
    uint32_t unknown;      /* for a split that cannot be cut */
    const char *prefix;    /* of pieces that do not begin a word: "##" */
    size_t longest;        /* characters; a longer split is unknown */
} bt_wordpiece_spec;

bauta_status bt_wordpiece_create(bt_subword **out,
                                 const bt_wordpiece_spec *spec,
                                 const char *path, bauta_error *err);

/* ---- Unigram ---------------------------------------------------------------
 */

typedef enum bt_unigram_kind {
    BT_UNIGRAM_NORMAL,
    BT_UNIGRAM_USER,  /* always taken where it occurs */
    BT_UNIGRAM_HIDDEN /* never found in text: control, unused, byte, unknown */
} bt_unigram_kind;

typedef struct bt_unigram_spec {
    const bt_vocab *vocab;      /* must outlive the model; no gaps */
    const double *scores;       /* (size of vocab) log-probabilities */
    const unsigned char *kinds; /* (size of vocab) bt_unigram_kind, or NULL:
                                   all normal, the unknown one too */
    uint32_t unknown;           /* BT_NO_ID: an unknown character fails */
    bool byte_fallback;
    bool single; /* path scores are float32, and start anew beyond 1e5, as
                    SentencePiece has them; else double */
} bt_unigram_spec;

bauta_status bt_unigram_create(bt_subword **out, const bt_unigram_spec *spec,
                               const char *path, bauta_error *err);

/* ---- Whole words ------------------------------------------------------------
 */

/* A split is a piece, or unknown (BT_NO_ID: an error). */
bauta_status bt_wordlevel_create(bt_subword **out, const bt_vocab *vocab,
                                 uint32_t unknown, bauta_error *err);

#endif
