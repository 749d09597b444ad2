/* SPDX-License-Identifier: Apache-2.0 */
/* score.h - what BLEU and chrF are made of.
 *
 *     text -> characters -> words -> symbols -> n-grams -> counts -> score
 *
 * Both scores ask how many n-grams a sentence shares with its references. The
 * n-grams are sorted, and equal ones then lie together: n log n on any input,
 * where a hash table could be made to collide. */
#ifndef BT_SCORE_H
#define BT_SCORE_H

#include "bauta.h"

/* ---- Characters ---------------------------------------------------------- */

typedef struct bt_codes {
    uint32_t *at; /* code points */
    size_t count, room;
} bt_codes;

/* The characters of a text, in lower case when asked: Unicode's full mapping,
 * with the sigma that ends a word. */
bauta_status bt_codes_read(bt_codes *codes, const char *text, size_t length,
                           bool lowercase, bauta_error *err);
/* Make the array large enough for `count` characters, and keep what is in it.
 */
bauta_status bt_codes_reserve(bt_codes *codes, size_t count, bauta_error *err);
void bt_codes_release(bt_codes *codes);

/* What Python's str.split() splits at: Unicode's white space, and the four
 * separators of ASCII. */
bool bt_is_separator(uint32_t code);

typedef struct bt_word {
    size_t start, length; /* in the characters */
} bt_word;

/* The next of the words that separators part; the first one for a zeroed word.
 * False when there is none. */
bool bt_codes_word(const bt_codes *codes, bt_word *word);

/* Put the spaces into a line where BLEU's tokenizer has them. `spare` is room
 * to work in. */
bauta_status bt_bleu_tokenize(bauta_bleu_tokenizer tokenizer, bt_codes *line,
                              bt_codes *spare, bauta_error *err);

/* ---- Sorting ------------------------------------------------------------- */

typedef struct bt_keyed {
    uint64_t key;
    uint32_t at;    /* what has the key: a place, a word */
    uint32_t owner; /* the sequence that it is in */
} bt_keyed;

typedef struct bt_sorter {
    bt_keyed *items, *spare; /* (room) */
    size_t count, room;
} bt_sorter;

bauta_status bt_sorter_reserve(bt_sorter *sorter, size_t count,
                               bauta_error *err);
/* By key; items with the same key stay in their order. */
void bt_sorter_run(bt_sorter *sorter);
/* Where the items end that have the same key as item `lo`. */
size_t bt_sorter_run_end(const bt_sorter *sorter, size_t lo);
void bt_sorter_release(bt_sorter *sorter);

/* ---- Words --------------------------------------------------------------- */

typedef struct bt_grams bt_grams;

/* The words of a sentence and of its references, one behind the other. */
typedef struct bt_score_words {
    bt_codes codes;
    bt_word *list;
    size_t count, room;
    size_t *ends; /* (sequences) */
    size_t sequences, ends_room;
    uint32_t *numbers; /* (count) equal ones for equal words */
    size_t numbers_room;
    bt_sorter sorter;
} bt_score_words;

void bt_score_words_clear(bt_score_words *words);
/* A word, which is not empty, joins. */
bauta_status bt_score_words_add(bt_score_words *words, const uint32_t *codes,
                                size_t length, bauta_error *err);
/* The sentence, or the reference, ends here. */
bauta_status bt_score_words_end(bt_score_words *words, bauta_error *err);
/* Their sequences, with numbers for words, become those of `grams`. */
bauta_status bt_score_words_grams(bt_score_words *words, bt_grams *grams,
                                  bauta_error *err);
void bt_score_words_release(bt_score_words *words);

/* ---- N-grams ------------------------------------------------------------- */

/* The first sequence is the sentence, the others are its references. */
struct bt_grams {
    uint32_t *symbols; /* (count) of all sequences, one behind the other */
    size_t count, symbols_room;
    size_t *ends; /* (sequences) */
    size_t sequences, ends_room;
    uint32_t *ranks; /* (count) of the n-gram that begins here */
    size_t ranks_room;
    bt_sorter sorter;
    size_t order;     /* n, after as many bt_grams_next() */
    uint64_t *shared; /* (sequences) n-grams that the sentence shares with each
                         reference; [0]: with the references together, each
                         n-gram with the one that has most of it */
    size_t shared_room;
};

void bt_grams_clear(bt_grams *grams);
/* A sequence of symbols joins. */
bauta_status bt_grams_add(bt_grams *grams, const uint32_t *symbols,
                          size_t count, bauta_error *err);
/* All have joined. */
bauta_status bt_grams_begin(bt_grams *grams, bauta_error *err);
/* On to n-grams of the next order, beginning with 1. */
void bt_grams_next(bt_grams *grams);
size_t bt_grams_length(const bt_grams *grams, size_t sequence);
/* How many n-grams of this order a sequence has. */
size_t bt_grams_total(const bt_grams *grams, size_t sequence);
void bt_grams_release(bt_grams *grams);

/* ---- Translations -------------------------------------------------------- */

bauta_status bt_translations_check(const bauta_translations *texts,
                                   bauta_error *err);
/* The characters of hypothesis i. */
bauta_status bt_hypothesis_read(bt_codes *codes,
                                const bauta_translations *texts, size_t i,
                                bool lowercase, bauta_error *err);
/* And of its reference in a set; *there tells whether that has one. */
bauta_status bt_reference_read(bt_codes *codes, bool *there,
                               const bauta_translations *texts, size_t set,
                               size_t i, bool lowercase, bauta_error *err);
/* How many references a sentence has, for a signature: "2"; "var" where that
 * differs. */
void bt_translations_nrefs(char text[24], const bauta_translations *texts);

#endif
