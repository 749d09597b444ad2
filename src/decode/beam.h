/* SPDX-License-Identifier: Apache-2.0 */
/* beam.h - beam search, as transformers defines it.
 *
 * Each step takes the best continuations of all open beams, twice as many as
 * there are beams (more where several tokens end a text), so that enough are
 * left when some of them end. One that ends and is among the best `beams` is
 * kept with its score over a power of its length; the best of the others stay
 * open. The search knows nothing of a model: rows of logits go in, and what
 * becomes of the beams comes out. */
#ifndef BT_BEAM_H
#define BT_BEAM_H

#include "decode/sampler.h"

/* ---- the tree of tokens ------------------------------------------------ */

/* TREE */
#define BT_NO_NODE UINT32_MAX

typedef struct bt_node {
    uint32_t parent, token;
    float logprob;
} bt_node;

typedef struct bt_trail {
    bt_node *nodes;
    size_t count, room;
} bt_trail;

/* Room for so many nodes more; -1 without memory. */
int bt_trail_reserve(bt_trail *trail, size_t more);
/* A token behind a node; there is room. Returns its node. */
uint32_t bt_trail_add(bt_trail *trail, uint32_t parent, uint32_t token,
                      float logprob);
/* The tokens up to a node, of which there are `count`; either may be NULL. */
void bt_trail_read(const bt_trail *trail, uint32_t node, size_t count,
                   uint32_t *tokens, float *logprobs);
/* How many. */
size_t bt_trail_length(const bt_trail *trail, uint32_t node);
void bt_trail_release(bt_trail *trail);

/* ---- the search -------------------------------------------------------- */

/* One continuation of an open beam. */
typedef struct bt_candidate {
    float score;
    uint32_t beam, token;
    float logprob; /* by the model */
    bool hit;      /* it ends here, for the reason of `finish` */
    bauta_finish finish;
} bt_candidate;

typedef struct bt_open {
    float score;
    uint32_t node;   /* its last token, or BT_NO_NODE */
    uint32_t parent; /* which of the beams before it continues */
} bt_open;

typedef struct bt_ended {
    float score; /* over the power of the length */
    uint32_t node;
    bauta_finish finish;
} bt_ended;

typedef struct bt_search {
    size_t beams, wide; /* wide: candidates of a step */
    float length_penalty;
    bauta_early early;
    size_t open_count, next_count, ended_count, count;
    bt_open *open, *next;     /* (beams) */
    bt_ended *ended;          /* (beams) the best one first */
    bt_candidate *candidates; /* (wide) the first `count` are of this step */
} bt_search;

/* One open beam that has no token. False without memory. */
bool bt_search_init(bt_search *s, const bauta_generate_options *o);
void bt_search_release(bt_search *s);

/* Row i is of open beam i; histories likewise. Fills the candidates. */
bt_chosen bt_search_select(bt_search *s, const bt_desk *desk,
                           const float *const *rows,
                           const bauta_generate_options *o,
                           const bt_history *histories);

/* The caller has said which candidates hit: fill `next` with those that would
 * stay open, of which only `parent` and `score` are set. Changes nothing else,
 * so that the caller can see what it needs. */
void bt_search_plan(bt_search *s);
/* Go there: the chosen candidates become nodes of the trail, which has room for
 * `wide` more. `made` counts the tokens with this one, `most` how many there
 * can be. Returns whether the search is over. */
bool bt_search_advance(bt_search *s, bt_trail *trail, size_t made, size_t most);

/* count to the power of p, the same on every machine. */
double bt_length_power(size_t count, float p);

#endif
