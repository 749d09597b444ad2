/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_trainer.h - learning a vocabulary from texts.
 *
 * Training first counts words: each text is normalised and cut as the finished
 * tokenizer will do it. From the counts each kind learns its pieces; nothing
 * else of the texts is kept. What was learned is written as a tokenizer.json
 * and loaded from there, so that a trained tokenizer and a loaded one are the
 * same thing. */
#ifndef BT_TOKENIZER_TRAINER_H
#define BT_TOKENIZER_TRAINER_H

#include "text/tokenizer.h"

typedef struct bt_counted_word {
    const char *bytes; /* lives as long as the bt_words */
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
/* Normalise and cut a text, at special tokens too, and count its words. One
 * that `continues` is the rest of a text, well formed, that was cut where
 * bt_words_cuts(). */
bauta_status bt_words_read(bt_words *words, const char *text, size_t size,
                           bool continues, const bt_added *specials,
                           const bt_normalizer *normalizer,
                           const bt_pretokenizer *pretokenizer,
                           bauta_error *err);

/* Whether no word reaches from before `at` > lo to after it, and what is
 * before has no say in how the rest is cut, by the steps that are learned. */
bool bt_words_cuts(const char *text, size_t lo, size_t at);

/* bauta_vocabulary_add(), or with `continues` more of the text before, which
 * was cut where bt_words_cuts(). */
bauta_status bt_vocabulary_put(bauta_vocabulary *vocabulary, const char *text,
                               size_t size, bool continues, bauta_error *err);
/* Whether texts may be cut there: not where a special token has white space in
 * it. */
bool bt_vocabulary_local(const bauta_vocabulary *vocabulary);

/* What was learned: pieces by id, scores (Unigram) or merges (BPE). */
typedef struct bt_learned {
    bt_vocab *vocab;
    size_t special_count; /* the first pieces */
    bt_merge *merges;     /* of ids, in order */
    size_t merge_count;
    double *scores; /* (size of vocab) */
} bt_learned;
void bt_learned_release(bt_learned *learned);

/* The special tokens that the options ask for, or the usual ones. */
const char *const *bt_learned_specials(const bauta_vocabulary_options *options,
                                       size_t *count);
/* A vocabulary of the special tokens alone. */
bauta_status bt_learned_init(bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err);
/* Add a character, `prefix` (at most 3 bytes) before it, unless it is there. */
bauta_status bt_learned_character(bt_vocab *vocab, const char *prefix,
                                  uint32_t code, uint32_t *id,
                                  bauta_error *err);
/* Fails when the vocabulary is larger than was asked for already. */
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

/* The steps before the model, as tokenizer.json has them. */
const char *bt_learned_normalizer(const bauta_vocabulary_options *options);
const char *bt_learned_pretokenizer(const bauta_vocabulary_options *options);

/* The text of a tokenizer.json, for bt_free(). */
bauta_status bt_learned_json(char **out, size_t *size,
                             const bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err);

#endif
