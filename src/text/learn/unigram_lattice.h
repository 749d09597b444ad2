/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_lattice.h - the lattice of all segmentations of the words into
 * candidate pieces, with their probabilities.
 *
 * An edge is a piece at its start position. Edges are found once, from the
 * suffix array; pruning a piece removes its edges, so each round is faster than
 * the one before. */
#ifndef BT_UNIGRAM_LATTICE_H
#define BT_UNIGRAM_LATTICE_H

#include "text/learn/substrings.h"

typedef struct bt_unigram_lattice {
    const bt_substrings *text;
    uint32_t *first;      /* (codes + 1) the first edge of each position */
    uint32_t *edges;      /* pieces by position, the shortest first */
    unsigned char *sizes; /* (pieces) characters */
    size_t pieces;        /* text->count, including pruned ones */
    double *score;        /* (pieces) log-probabilities */
    double *probability;  /* (pieces) exp(score); 0: pruned */

    // Scratch for one word.
    double *forward, *backward;
    int *scale;
    uint32_t *best; /* the last piece of the best path to a position */
} bt_unigram_lattice;

bauta_status bt_unigram_lattice_init(bt_unigram_lattice *l,
                                     const bt_substrings *text,
                                     bauta_error *err);
void bt_unigram_lattice_release(bt_unigram_lattice *l);

/* Remove the edges of pieces whose probability is 0. */
void bt_unigram_lattice_compact(bt_unigram_lattice *l);

/* Add to expected[] (pieces) the expected count of each piece over all
 * segmentations of all words. */
void bt_unigram_lattice_expected_counts(bt_unigram_lattice *l,
                                        double *expected);
/* Add the counts in the best segmentation of each word. */
void bt_unigram_lattice_best_counts(bt_unigram_lattice *l, double *used);

/* The best segmentation of a piece into others: returns how many, with their
 * indices in others[], and the log-probability. 0 for a single character. */
size_t bt_unigram_lattice_alternative(bt_unigram_lattice *l, uint32_t piece,
                                      uint32_t others[BT_SUBSTRING_MAX],
                                      double *score);

#endif
