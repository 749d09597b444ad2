/* SPDX-License-Identifier: Apache-2.0 */
/* pair_merge.h - the learning that BPE and WordPiece share: again and again the
 * most frequent pair of neighbours becomes one symbol.
 *
 * Pairs are counted once. A merge then visits only the places where its pair
 * stands and corrects the counts of the neighbours, so all of learning takes
 * about as long as sorting the symbols, whatever the words look like. */
#ifndef BT_PAIR_MERGE_H
#define BT_PAIR_MERGE_H

#include "text/learn/tokenizer_trainer.h"

/* The symbols of all words, one word behind the other. */
typedef struct bt_symbols {
    uint32_t *ids;
    size_t count, room;
    uint32_t *ends; /* (words) where the next word begins */
    size_t word_count, ends_room;
} bt_symbols;

/* Append a symbol to the word that is being written, and end the word. */
bauta_status bt_symbols_add(bt_symbols *symbols, uint32_t id, bauta_error *err);
bauta_status bt_symbols_end(bt_symbols *symbols, bauta_error *err);
void bt_symbols_release(bt_symbols *symbols);

typedef struct bt_pairs_spec {
    const bt_words *words;
    const bt_symbols *symbols; /* of these words; ids of learned->vocab */
    const bauta_vocabulary_options *options;
    const char *prefix; /* of pieces that do not begin a word, or "" */
    bool bytelevel;     /* pieces are written in bytelevel.h's alphabet */
} bt_pairs_spec;

/* learned->vocab holds the alphabet; pieces and merges are added to it. */
bauta_status bt_pairs_learn(bt_learned *learned, const bt_pairs_spec *spec,
                            bauta_error *err);

#endif
