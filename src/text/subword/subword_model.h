/* SPDX-License-Identifier: Apache-2.0 */
/* subword_model.h - models that encode a split as pieces of a vocabulary: BPE,
 * WordPiece, Unigram and WordLevel.
 *
 * A model is immutable; its workspace is a bt_subword_workspace that the caller
 * keeps from call to call. The time to encode n bytes is bounded whatever they
 * are: O(n log n) for BPE, and O(n * longest piece) for WordPiece and Unigram,
 * whose pieces have at most BT_SEARCHED_PIECE_MAX bytes. */
#ifndef BT_SUBWORD_MODEL_H
#define BT_SUBWORD_MODEL_H

#include "text/subword/vocab.h"

/* A token and the bytes [lo, hi) of the split that it covers. Each
 * byte-fallback token of a character covers the whole character. */
typedef struct bt_token {
    uint32_t id, lo, hi;
} bt_token;

/* Zeroed at first. A failed call leaves `count` unchanged. */
typedef struct bt_subword_workspace {
    bt_token *tokens; /* the result; calls append to it */
    size_t count, capacity;
    void *scratch; /* for the model */
    size_t scratch_size;
} bt_subword_workspace;

void bt_subword_workspace_release(bt_subword_workspace *work);

/* For the models: reserve memory for `more` tokens; append one token; reserve
 * `size` bytes of scratch, whose contents are lost; and the error for text that
 * is not in the vocabulary. */
bauta_status bt_subword_reserve_tokens(bt_subword_workspace *work, size_t more,
                                       bauta_error *err);
bauta_status bt_subword_append(bt_subword_workspace *work, bt_token token,
                               bauta_error *err);
bauta_status bt_subword_reserve_scratch(bt_subword_workspace *work, size_t size,
                                        bauta_error *err);
bauta_status bt_fail_unknown_token(bauta_error *err, const char *text,
                                   size_t size);

typedef struct bt_subword_model bt_subword_model;
struct bt_subword_model {
    bauta_status (*encode)(const bt_subword_model *model, const char *split,
                           size_t size, bt_subword_workspace *work,
                           bauta_error *err);
    void (*free)(bt_subword_model *model);
};

/* Append the tokens of one split; lo and hi count from its first byte. */
bauta_status bt_subword_encode(const bt_subword_model *model, const char *split,
                               size_t size, bt_subword_workspace *work,
                               bauta_error *err);
void bt_subword_free(bt_subword_model *model); /* accepts NULL */

/* ---- BPE ----------------------------------------------------------------- */

/* Two adjacent symbols become one. The lowest rank in the split is merged
 * first, and of equal ranks the leftmost. */
typedef struct bt_merge_rule {
    uint32_t left, right, merged; /* ids */
    uint32_t rank;
} bt_merge_rule;

typedef struct bt_bpe_spec {
    const bt_vocab *vocab;       /* must outlive the model */
    const bt_merge_rule *merges; /* copied into a table; no pair twice */
    size_t merge_count;
    uint32_t unknown;       /* id of symbols that are not in the vocabulary;
                               BT_NO_ID: they are dropped */
    bool fuse_unknown;      /* a run of unknowns is one token */
    bool bytelevel;         /* the vocabulary uses bytelevel.h's alphabet,
                               and symbols start as bytes, not characters */
    bool byte_fallback;     /* unknown characters become <0x..> tokens if the
                               vocabulary has all of them */
    bool ignore_merges;     /* a split that is a piece is encoded as that
                             piece ("ignore_merges") */
    const char *prefix;     /* of each symbol except the first, or NULL */
    const char *suffix;     /* of the last symbol, or NULL */
    const uint32_t *unused; /* SentencePiece's unused pieces, sorted: they are
                               merged and then split again */
    size_t unused_count;
    const char *const *user_defined; /* SentencePiece's user-defined pieces:
                                  each is one symbol from the start */
    size_t user_defined_count;
} bt_bpe_spec;

enum { BT_NO_ID = UINT32_MAX };

bauta_status bt_bpe_create(bt_subword_model **out, const bt_bpe_spec *spec,
                           const char *path, bauta_error *err);

/* ---- WordPiece ----------------------------------------------------------- */

typedef struct bt_wordpiece_spec {
    const bt_vocab *vocab; /* must outlive the model */
    uint32_t unknown;      /* for a split that cannot be encoded */
    const char *prefix;    /* of pieces that do not begin a word: "##" */
    size_t max_word_chars; /* characters; longer splits are unknown */
} bt_wordpiece_spec;

bauta_status bt_wordpiece_create(bt_subword_model **out,
                                 const bt_wordpiece_spec *spec,
                                 const char *path, bauta_error *err);

/* ---- Unigram ------------------------------------------------------------- */

typedef enum bt_unigram_kind {
    BT_UNIGRAM_NORMAL,
    BT_UNIGRAM_USER_DEFINED, /* always used where it occurs */
    BT_UNIGRAM_HIDDEN        /* never used: control, unused, byte, unknown */
} bt_unigram_kind;

typedef struct bt_unigram_spec {
    const bt_vocab *vocab;      /* must outlive the model; no gaps */
    const double *scores;       /* (size of vocab) log-probabilities */
    const unsigned char *kinds; /* (size of vocab) bt_unigram_kind; NULL: all
                                   are normal, even the unknown one */
    uint32_t unknown;           /* BT_NO_ID: unknown characters are errors */
    bool byte_fallback;
    bool float32_scores; /* path scores are float32 and are rebased beyond 1e5,
                    as in SentencePiece; else double */
} bt_unigram_spec;

bauta_status bt_unigram_create(bt_subword_model **out,
                               const bt_unigram_spec *spec, const char *path,
                               bauta_error *err);

/* ---- WordLevel ----------------------------------------------------------- */

/* A split is a piece or unknown (BT_NO_ID: an error). */
bauta_status bt_wordlevel_create(bt_subword_model **out, const bt_vocab *vocab,
                                 uint32_t unknown, bauta_error *err);

#endif
