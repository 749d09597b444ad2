/* SPDX-License-Identifier: Apache-2.0 */
/* beam.h - beam search, as transformers defines it.
 *
 * Each step selects the best continuations of all open beams: twice as many as
 * there are beams, or more with several end tokens, so that enough remain when
 * some of them end. A candidate that ends and is among the best `beams` becomes
 * a finished hypothesis with its score over a power of its length; the best
 * others stay open. The search is independent of the model: it takes rows of
 * logits and decides which beams continue. */
#ifndef BT_BEAM_H
#define BT_BEAM_H

#include "decode/sampler.h"

/* ---- the tree of tokens ------------------------------------------------ */

/* The new tokens of all beams of a request. A beam is a node, and its tokens
 * are the path to the root, so beams share common prefixes and nothing is
 * copied. */
#define BT_NO_NODE UINT32_MAX

typedef struct bt_node {
    uint32_t parent, token;
    float logprob;
} bt_node;

typedef struct bt_trail {
    bt_node *nodes;
    size_t count, room;
} bt_trail;

/* Reserve memory for `more` nodes; -1 when memory runs out. */
int bt_trail_reserve(bt_trail *tree, size_t more);
/* Add a token after a node and return the new node. Memory must be reserved. */
uint32_t bt_trail_add(bt_trail *tree, uint32_t parent, uint32_t token,
                      float logprob);
/* Read the `count` tokens on the path to a node. Either output may be NULL. */
void bt_trail_read(const bt_trail *tree, uint32_t node, size_t count,
                   uint32_t *tokens, float *logprobs);
/* The number of tokens on the path to a node. */
size_t bt_trail_length(const bt_trail *tree, uint32_t node);
void bt_trail_release(bt_trail *tree);

/* ---- the search -------------------------------------------------------- */

/* One continuation of an open beam. */
typedef struct bt_candidate {
    float score;
    uint32_t beam, token;
    float logprob; /* of the token, from the model's logits */
    bool hit;      /* it ends here, with the reason `finish` */
    bauta_finish finish;
} bt_candidate;

typedef struct bt_open {
    float score;
    uint32_t node;   /* its last token, or BT_NO_NODE */
    uint32_t parent; /* the open beam of the last step that it continues */
} bt_open;

typedef struct bt_ended {
    float score; /* divided by the length penalty */
    uint32_t node;
    bauta_finish finish;
} bt_ended;

typedef struct bt_search {
    size_t beams, wide; /* wide: candidates per step */
    float length_penalty;
    bauta_early early;
    size_t open_count, next_count, ended_count, count;
    bt_open *open, *next;     /* (beams) */
    bt_ended *ended;          /* (beams) sorted, the best one first */
    bt_candidate *candidates; /* (wide) `count` of them in this step */
} bt_search;

/* Start with one open beam without tokens. False when memory runs out. */
bool bt_search_init(bt_search *s, const bauta_generate_options *o);
void bt_search_release(bt_search *s);

/* Select the candidates. Row i and history i belong to open beam i. */
bt_chosen bt_search_select(bt_search *s, const bt_desk *scratch,
                           const float *const *rows,
                           const bauta_generate_options *o,
                           const bt_history *histories);

/* After the caller has marked the candidates that end: fill `next` with those
 * that would stay open, with `parent` and `score` only. Nothing else changes,
 * so the caller can fork sequences first. */
void bt_search_plan(bt_search *s);
/* Commit the step: the candidates become nodes of the tree, which must have
 * memory for `wide` more. `generated` counts the new tokens including this one,
 * and `most` is their limit. Returns whether the search is over. */
bool bt_search_advance(bt_search *s, bt_trail *tree, size_t generated,
                       size_t most);

/* count to the power of p, with the same bits on every machine. */
double bt_length_power(size_t count, float p);

#endif
