/* SPDX-License-Identifier: Apache-2.0 */
/* beam.h - beam search, as transformers defines it.
 *
 * Each step selects the best continuations of all open beams: twice as many as
 * there are beams, or more with several end tokens, so that enough remain when
 * some of them end. A candidate that ends and is among the best `beams` becomes
 * a finished hypothesis with its score over a power of its length; the best
 * others stay open. The search is independent of the model: it takes the
 * continuations that a backend selects and decides which beams continue. */
#ifndef BT_BEAM_H
#define BT_BEAM_H

#include "backend/op_types.h"

/* ---- the tree of tokens ------------------------------------------------ */

/* The new tokens of all beams of a request. A beam is a node, and its tokens
 * are the path to the root, so beams share common prefixes and nothing is
 * copied. */
#define BT_NO_NODE UINT32_MAX

typedef struct bt_beam_node {
    uint32_t parent, token;
    float logprob;
} bt_beam_node;

typedef struct bt_beam_tree {
    bt_beam_node *nodes;
    size_t count, capacity;
} bt_beam_tree;

/* Reserve memory for `more` nodes; -1 when memory runs out. */
int bt_beam_tree_reserve(bt_beam_tree *tree, size_t more);
/* Add a token after a node and return the new node. Memory must be reserved. */
uint32_t bt_beam_tree_add(bt_beam_tree *tree, uint32_t parent, uint32_t token,
                          float logprob);
/* Read the `count` tokens on the path to a node. Either output may be NULL. */
void bt_beam_tree_read(const bt_beam_tree *tree, uint32_t node, size_t count,
                       uint32_t *tokens, float *logprobs);
/* The number of tokens on the path to a node. */
size_t bt_beam_tree_length(const bt_beam_tree *tree, uint32_t node);
void bt_beam_tree_release(bt_beam_tree *tree);

/* ---- the search -------------------------------------------------------- */

/* One continuation of an open beam. */
typedef struct bt_beam_candidate {
    float score;
    uint32_t beam, token;
    float logprob; /* of the token, from the model's logits */
    bool ends;     /* it ends here, with the reason `finish` */
    bauta_finish finish;
} bt_beam_candidate;

typedef struct bt_open_beam {
    float score;
    uint32_t node;   /* its last token, or BT_NO_NODE */
    uint32_t parent; /* the open beam of the last step that it continues */
} bt_open_beam;

typedef struct bt_finished_beam {
    float score; /* divided by the length penalty */
    uint32_t node;
    bauta_finish finish;
} bt_finished_beam;

typedef struct bt_beam_search {
    size_t beams, candidate_capacity; /* wide: candidates per step */
    float length_penalty;
    bauta_early_stopping early_stopping;
    size_t open_count, next_count, finished_count, candidate_count;
    bt_open_beam *open, *next;  /* (beams) */
    bt_finished_beam *finished; /* (beams) sorted, the best one first */
    bt_beam_candidate
        *candidates;         /* (wide) `candidate_count` of them in this step */
    bt_beam_choice *choices; /* (wide) for the operation that selects them */
} bt_beam_search;

/* Start with one open beam without tokens. False when memory runs out. */
bool bt_beam_search_init(bt_beam_search *s, const bauta_generate_options *o);
void bt_beam_search_release(bt_beam_search *s);

/* Take the first `count` choices, the result of the backend's operation `beam`
 * for the open beams, as the candidates. */
void bt_beam_search_take(bt_beam_search *s, size_t count);

/* After the caller has marked the candidates that end: fill `next` with those
 * that would stay open, with `parent` and `score` only. Nothing else changes,
 * so the caller can fork sequences first. */
void bt_beam_search_preview(bt_beam_search *s);
/* Commit the step: the candidates become nodes of the tree, which must have
 * memory for `wide` more. `generated` counts the new tokens including this one,
 * and `most` is their limit. Returns whether the search is over. */
bool bt_beam_search_advance(bt_beam_search *s, bt_beam_tree *tree,
                            size_t generated, size_t most);

/* count to the power of p, with the same bits on every machine. */
double bt_length_power(size_t count, float p);

#endif
