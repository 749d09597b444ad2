/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_lattice.h - all ways to cut words into candidate pieces, and what the
 * probabilities of the pieces say of them.
 *
 * An edge is a piece at the place where it begins. Edges are found once, from
 * the sorted suffixes; a piece that is given up takes its edges along, so each
 * round has less to do than the one before. */
#ifndef BT_UNIGRAM_LATTICE_H
#define BT_UNIGRAM_LATTICE_H

#include "text/learn/substrings.h"

typedef struct bt_lattice {
    const bt_substrings *text;
    uint32_t *first;      /* (codes + 1) edges that begin here */
    uint32_t *edges;      /* pieces, by place, the shortest first */
    unsigned char *sizes; /* (pieces) characters */
    size_t pieces;        /* as many as text->count at first */
    double *score;        /* (pieces) log-probabilities */
    double *chance;       /* (pieces) exp(score); 0: the piece is gone */

    // What one word needs.
    double *forward, *backward;
    int *scale;
    uint32_t *best; /* piece that ends here on the best way */
} bt_lattice;

bauta_status bt_lattice_init(bt_lattice *l, const bt_substrings *text,
                             bauta_error *err);
void bt_lattice_release(bt_lattice *l);

/* Set the scores, and forget the edges of pieces whose chance is 0. */
void bt_lattice_compact(bt_lattice *l);

/* Add to expected[] (pieces) how often each piece is used, over all ways to
 * cut all words, each as likely as its pieces make it. */
void bt_lattice_expect(bt_lattice *l, double *expected);
/* The same, over the likeliest way of each word alone. */
void bt_lattice_count(bt_lattice *l, double *used);

/* The likeliest way to make piece number `piece` of others: how many there
 * are, in others[]; and its log-probability. 0 for a single character. */
size_t bt_lattice_without(bt_lattice *l, uint32_t piece,
                          uint32_t others[BT_SUBSTRING_MAX], double *score);

#endif
