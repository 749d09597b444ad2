/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_trainer.h - training a tokenizer on texts.
 *
 * Training first counts words: each text is normalized and split as the
 * finished tokenizer will do it. BPE, WordPiece or Unigram then learn their
 * pieces from the counts; nothing else of the texts is kept. The result is
 * written as a tokenizer.json and loaded from it, so that a trained tokenizer
 * and a loaded one are the same. */
#ifndef BT_TOKENIZER_TRAINER_H
#define BT_TOKENIZER_TRAINER_H

#include "text/tokenizer.h"

typedef struct bt_counted_word {
    const char *bytes; /* of the bt_words */
    size_t size;
    uint64_t count; /* how often it occurs */
} bt_counted_word;

/* Distinct words, in the order of first occurrence. */
typedef struct bt_words bt_words;
bauta_status bt_words_create(bt_words **out, bauta_error *err);
void bt_words_free(bt_words *words);
bauta_status bt_words_add(bt_words *words, const char *bytes, size_t size,
                          uint64_t count, bauta_error *err);
const bt_counted_word *bt_words_list(const bt_words *words, size_t *count);
/* Normalize and split a text, also at special tokens, and count its words. If
 * it `continues` it is the next part, well formed, of a text that was divided
 * at a position where bt_words_cuts() is true. */
bauta_status bt_words_read(bt_words *words, const char *text, size_t size,
                           bool continues, const bt_added *specials,
                           const bt_normalizer *normalizer,
                           const bt_pretokenizer *pretokenizer,
                           bauta_error *err);

/* Whether a text can be divided at `at` > lo: no word of the trained tokenizers
 * crosses it, and the text before it does not change the words after it. */
bool bt_words_cuts(const char *text, size_t lo, size_t at);

/* bauta_vocabulary_add(), or if it `continues` the next part of the last text,
 * divided where bt_words_cuts() is true. */
bauta_status bt_vocabulary_put(bauta_vocabulary *vocabulary, const char *text,
                               size_t size, bool continues, bauta_error *err);
/* Whether texts may be divided there: not if a special token contains white
 * space. */
bool bt_vocabulary_local(const bauta_vocabulary *vocabulary);

/* The result of training: pieces by id, with scores (Unigram) or merges
 * (BPE). */
typedef struct bt_learned {
    bt_vocab *vocab;
    size_t special_count; /* the first pieces */
    bt_merge *merges;     /* of ids, in order */
    size_t merge_count;
    double *scores; /* (size of vocab) */
} bt_learned;
void bt_learned_release(bt_learned *learned);

/* The special tokens of the options, or the defaults. */
const char *const *bt_learned_specials(const bauta_vocabulary_options *options,
                                       size_t *count);
/* A vocabulary of the special tokens. */
bauta_status bt_learned_init(bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err);
/* Add `prefix` (at most 3 bytes) and a character as a piece, unless it
 * exists. */
bauta_status bt_learned_character(bt_vocab *vocab, const char *prefix,
                                  uint32_t code, uint32_t *id,
                                  bauta_error *err);
/* Fail if the vocabulary is already larger than the options ask for. */
bauta_status bt_learned_fits(const bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err);

bauta_status bt_learn_bpe(bt_learned *out, const bt_words *words,
                          const bauta_vocabulary_options *options,
                          bauta_error *err);
bauta_status bt_learn_wordpiece(bt_learned *out, const bt_words *words,
                                const bauta_vocabulary_options *options,
                                bauta_error *err);
bauta_status bt_learn_unigram(bt_learned *out, const bt_words *words,
                              const bauta_vocabulary_options *options,
                              bauta_error *err);

/* Normalizer and pre-tokenizer as JSON. */
const char *bt_learned_normalizer(const bauta_vocabulary_options *options);
const char *bt_learned_pretokenizer(const bauta_vocabulary_options *options);

/* The text of a tokenizer.json, for bt_free(). */
bauta_status bt_learned_json(char **out, size_t *size,
                             const bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err);

#endif
