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
    const char *bytes; /* of the bt_word_counts */
    size_t size;
    uint64_t count; /* how often it occurs */
} bt_counted_word;

/* Distinct words, in the order of first occurrence. */
typedef struct bt_word_counts bt_word_counts;
bauta_status bt_word_counts_create(bt_word_counts **out, bauta_error *err);
void bt_word_counts_free(bt_word_counts *words);
bauta_status bt_word_counts_add(bt_word_counts *words, const char *bytes,
                                size_t size, uint64_t count, bauta_error *err);
const bt_counted_word *bt_word_counts_list(const bt_word_counts *words,
                                           size_t *count);
/* Normalize and split a text, also at special tokens, and count its words. If
 * it `continues` it is the next part, well formed, of a text that was divided
 * at a position where bt_is_word_start() is true. */
bauta_status bt_word_counts_add_text(bt_word_counts *words, const char *text,
                                     size_t size, bool continues,
                                     const bt_added_tokens *specials,
                                     const bt_normalizer *normalizer,
                                     const bt_pretokenizer *pretokenizer,
                                     bauta_error *err);

/* Whether a text can be divided at `at` > lo: no word of the trained tokenizers
 * crosses it, and the text before it does not change the words after it. */
bool bt_is_word_start(const char *text, size_t lo, size_t at);

/* bauta_tokenizer_trainer_add(), or if it `continues` the next part of the last
 * text, divided where bt_is_word_start() is true. */
bauta_status bt_tokenizer_trainer_add_part(bauta_tokenizer_trainer *vocabulary,
                                           const char *text, size_t size,
                                           bool continues, bauta_error *err);
/* Whether texts may be divided there: not if a special token contains white
 * space. */
bool bt_tokenizer_trainer_takes_parts(
    const bauta_tokenizer_trainer *vocabulary);

/* The result of training: pieces by id, with scores (Unigram) or merges
 * (BPE). */
typedef struct bt_trained_vocab {
    bt_vocab *vocab;
    size_t special_count;  /* the first pieces */
    bt_merge_rule *merges; /* of ids, in order */
    size_t merge_count;
    double *scores; /* (size of vocab) */
} bt_trained_vocab;
void bt_trained_vocab_release(bt_trained_vocab *learned);

/* The special tokens of the options, or the defaults. */
const char *const *
bt_trainer_special_tokens(const bauta_tokenizer_trainer_options *options,
                          size_t *count);
/* A vocabulary of the special tokens. */
bauta_status
bt_trained_vocab_init(bt_trained_vocab *learned,
                      const bauta_tokenizer_trainer_options *options,
                      bauta_error *err);
/* Add `prefix` (at most 3 bytes) and a character as a piece, unless it
 * exists. */
bauta_status bt_trained_vocab_add_character(bt_vocab *vocab, const char *prefix,
                                            uint32_t code, uint32_t *id,
                                            bauta_error *err);
/* Fail if the vocabulary is already larger than the options ask for. */
bauta_status
bt_trained_vocab_check_size(const bt_trained_vocab *learned,
                            const bauta_tokenizer_trainer_options *options,
                            bauta_error *err);

bauta_status bt_learn_bpe(bt_trained_vocab *out, const bt_word_counts *words,
                          const bauta_tokenizer_trainer_options *options,
                          bauta_error *err);
bauta_status bt_learn_wordpiece(bt_trained_vocab *out,
                                const bt_word_counts *words,
                                const bauta_tokenizer_trainer_options *options,
                                bauta_error *err);
bauta_status bt_learn_unigram(bt_trained_vocab *out,
                              const bt_word_counts *words,
                              const bauta_tokenizer_trainer_options *options,
                              bauta_error *err);

/* Normalizer and pre-tokenizer as JSON. */
const char *
bt_trainer_normalizer_json(const bauta_tokenizer_trainer_options *options);
const char *
bt_trainer_pretokenizer_json(const bauta_tokenizer_trainer_options *options);

/* The text of a tokenizer.json, for bt_free(). */
bauta_status
bt_trained_vocab_json(char **out, size_t *size, const bt_trained_vocab *learned,
                      const bauta_tokenizer_trainer_options *options,
                      bauta_error *err);

#endif
