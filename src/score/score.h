/* SPDX-License-Identifier: Apache-2.0 */
/* score.h - the parts of BLEU and chrF.
 *
 *     text -> code points -> words -> word ids -> n-grams -> counts -> score
 *
 * Both scores count the n-grams that a hypothesis shares with its references.
 * N-grams are sorted, so that equal ones are adjacent: n log n for any input,
 * while a hash table could be made to collide. */
#ifndef BT_SCORE_H
#define BT_SCORE_H

#include "bauta.h"

/* ---- Code points --------------------------------------------------------- */

typedef struct bt_codepoints {
    uint32_t *at;
    size_t count, room;
} bt_codepoints;

/* Decode UTF-8, optionally to lower case: Unicode's full mapping, including the
 * final sigma. */
bauta_status bt_codepoints_decode(bt_codepoints *codes, const char *text,
                                  size_t length, bool lowercase,
                                  bauta_error *err);
/* Grow the array to at least `count` code points. */
bauta_status bt_codepoints_reserve(bt_codepoints *codes, size_t count,
                                   bauta_error *err);
void bt_codepoints_release(bt_codepoints *codes);

/* White space as Python's str.split() has it: Unicode's, and the four
 * separators of ASCII. */
bool bt_is_python_space(uint32_t code);

typedef struct bt_word_range {
    size_t start, length; /* in code points */
} bt_word_range;

/* Find the next word between white space; start from a zeroed range. False if
 * there is none. */
bool bt_codepoints_next_word(const bt_codepoints *codes, bt_word_range *word);

/* Insert spaces into a line as a tokenizer of BLEU does. `spare` is scratch. */
bauta_status bt_bleu_tokenize(bauta_bleu_tokenizer tokenizer,
                              bt_codepoints *line, bt_codepoints *spare,
                              bauta_error *err);

/* ---- Sorting ------------------------------------------------------------- */

/* N-grams or words by their keys. */
typedef struct bt_sorter {
    uint64_t *keys;          /* (room) of each n-gram or word, by its index */
    uint32_t *order, *spare; /* (room) the indices that are sorted */
    size_t count, room;
} bt_sorter;

bauta_status bt_sorter_reserve(bt_sorter *sorter, size_t count,
                               bauta_error *err);
/* Stable sort by key. */
void bt_sorter_sort(bt_sorter *sorter);
/* The end of the run with the same key as order[lo]. */
size_t bt_sorter_equal_end(const bt_sorter *sorter, size_t lo);
void bt_sorter_release(bt_sorter *sorter);

/* ---- Words --------------------------------------------------------------- */

typedef struct bt_ngrams bt_ngrams;

/* The words of a hypothesis and its references, one sequence after another.
 * Equal words get equal ids. */
typedef struct bt_word_ids {
    bt_codepoints codes;
    bt_word_range *list;
    size_t count, room;
    size_t *ends; /* (sequences) */
    size_t sequences, ends_room;
    uint32_t *ids; /* (count) */
    size_t ids_room;
    bt_sorter sorter;
} bt_word_ids;

void bt_word_ids_clear(bt_word_ids *words);
/* Add a word, which must not be empty. */
bauta_status bt_word_ids_add(bt_word_ids *words, const uint32_t *codes,
                             size_t length, bauta_error *err);
/* End the hypothesis, or the current reference. */
bauta_status bt_word_ids_end_sequence(bt_word_ids *words, bauta_error *err);
/* Make the sequences of ids the sequences of `ngrams`. */
bauta_status bt_word_ids_ngrams(bt_word_ids *words, bt_ngrams *ngrams,
                                bauta_error *err);
void bt_word_ids_release(bt_word_ids *words);

/* ---- N-grams ------------------------------------------------------------- */

/* The first sequence is the hypothesis, the others are its references. */
struct bt_ngrams {
    uint32_t *symbols; /* (count) all sequences concatenated */
    size_t count, symbols_room;
    size_t *ends; /* (sequences) */
    size_t sequences, ends_room;
    uint32_t *ranks; /* (count) equal for equal n-grams that begin here */
    size_t ranks_room;
    bt_sorter sorter;
    size_t order;     /* n; 0 after bt_ngrams_begin() */
    uint64_t *shared; /* (sequences) clipped matches with each reference; [0]:
                         with the reference that has most of each n-gram */
    size_t shared_room;
};

void bt_ngrams_clear(bt_ngrams *ngrams);
/* Add a sequence. */
bauta_status bt_ngrams_add(bt_ngrams *ngrams, const uint32_t *symbols,
                           size_t count, bauta_error *err);
/* All sequences have been added. */
bauta_status bt_ngrams_begin(bt_ngrams *ngrams, bauta_error *err);
/* Count n-grams of the next order; the first call is for order 1. */
void bt_ngrams_next_order(bt_ngrams *ngrams);
size_t bt_ngrams_length(const bt_ngrams *ngrams, size_t sequence);
/* The number of n-grams of this order in a sequence. */
size_t bt_ngrams_total(const bt_ngrams *ngrams, size_t sequence);
void bt_ngrams_release(bt_ngrams *ngrams);

/* ---- Translations -------------------------------------------------------- */

/* Decode hypothesis i into `line` and call add(); then each of its references.
 */
typedef bauta_status bt_line_fn(void *user, bauta_error *err);
bauta_status bt_translation_read(bt_codepoints *line,
                                 const bauta_translations *texts, size_t i,
                                 bool lowercase, bt_line_fn *add, void *user,
                                 bauta_error *err);

/* N-grams by order, and for BLEU the lengths in words. */
typedef struct bt_ngram_counts {
    uint64_t matches[2 * BAUTA_NGRAM_MAX];
    uint64_t hypothesis[2 * BAUTA_NGRAM_MAX];
    uint64_t reference[2 * BAUTA_NGRAM_MAX];
    uint64_t length, reference_length;
} bt_ngram_counts;

/* Check the texts, count each sentence and add its counts to *sum. The score of
 * sentence i alone goes to scores[i]; scores, and so `score`, may be NULL. */
typedef bauta_status bt_sentence_fn(void *user, size_t i,
                                    bt_ngram_counts *counts, double *score,
                                    bauta_error *err);
bauta_status bt_translations_count(bt_ngram_counts *sum, double *scores,
                                   const bauta_translations *texts,
                                   bt_sentence_fn *count, void *user,
                                   bauta_error *err);
/* The number of references per sentence for a signature: "2", or "var" if it
 * varies. */
void bt_translations_nrefs(char text[24], const bauta_translations *texts);

#endif
