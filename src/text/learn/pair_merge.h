/* SPDX-License-Identifier: Apache-2.0 */
/* pair_merge.h - the training that BPE and WordPiece share: the most frequent
 * pair of adjacent symbols becomes one symbol, again and again.
 *
 * Pairs are counted once. A merge then visits only the occurrences of its pair
 * and updates the counts of adjacent pairs, so that training takes about as
 * long as sorting the symbols, whatever the words are. */
#ifndef BT_PAIR_MERGE_H
#define BT_PAIR_MERGE_H

#include "text/learn/tokenizer_trainer.h"

/* The symbols of all words, concatenated. */
typedef struct bt_word_symbols {
    uint32_t *ids;
    size_t count, room;
    uint32_t *ends; /* (words) the end of each word */
    size_t word_count, ends_room;
} bt_word_symbols;

/* Append a symbol to the current word, and end the word. */
bauta_status bt_word_symbols_add(bt_word_symbols *symbols, uint32_t id,
                                 bauta_error *err);
bauta_status bt_word_symbols_end_word(bt_word_symbols *symbols,
                                      bauta_error *err);
void bt_word_symbols_release(bt_word_symbols *symbols);

typedef struct bt_pair_merge_spec {
    const bt_word_counts *words;
    const bt_word_symbols *symbols; /* of these words; ids of learned->vocab */
    const bauta_tokenizer_trainer_options *options;
    const char *prefix; /* of pieces that continue a word, or "" */
    bool bytelevel;     /* pieces are in bytelevel.h's alphabet */
} bt_pair_merge_spec;

/* Add pieces and merges to `learned`, whose vocabulary is the alphabet. */
bauta_status bt_pair_merge_learn(bt_trained_vocab *learned,
                                 const bt_pair_merge_spec *spec,
                                 bauta_error *err);

#endif
