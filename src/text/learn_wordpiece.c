/* SPDX-License-Identifier: Apache-2.0 */
/* learn_wordpiece.c - a vocabulary of pieces of words: special tokens, the
 * characters of the words, those that stand inside of a word with ## before
 * them, and what merging gives.
 *
 * Hugging Face's library numbers the second kind of characters in the order of
 * a hash table, which is another one in each run. Here it is that of the code
 * points, as it is for the first kind. */
#include "base/error.h"
#include "base/memory.h"
#include "text/pairs.h"
#include "text/unicode.h"

enum { CODES = 0x110000 };

#define PREFIX "##"

/* What is known of each character: where it occurs, then its ids. */
typedef struct alphabet {
    unsigned char *seen; /* (CODES) */
    uint32_t *first, *inner;
} alphabet;

enum { SEEN = 1, SEEN_INNER = 2 };

static void alphabet_release(alphabet *a)
{
    bt_free(a->seen);
    bt_free(a->first);
    bt_free(a->inner);
}

static void alphabet_look(alphabet *a, const bt_word *word)
{
    for (size_t i = 0, length; i < word->size; i += length) {
        uint32_t code = bt_utf8_get(word->bytes + i, word->size - i, &length);
        a->seen[code] |= i ? SEEN | SEEN_INNER : SEEN;
    }
}

static bauta_status alphabet_add(bt_vocab *vocab, const alphabet *a, int kind,
                                 const char *prefix, uint32_t *ids,
                                 bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (uint32_t code = 0; !status && code < CODES; code++)
        if (a->seen[code] & kind)
            status = bt_learned_character(vocab, prefix, code, ids + code, err);
    return status;
}

static bauta_status alphabet_init(alphabet *a, bt_vocab *vocab,
                                  const bt_words *words, bauta_error *err)
{
    size_t count;
    const bt_word *list = bt_words_list(words, &count);
    *a = (alphabet){ .seen = bt_alloc_zero(CODES, 1),
                     .first = bt_alloc(CODES * sizeof(uint32_t)),
                     .inner = bt_alloc(CODES * sizeof(uint32_t)) };
    if (!a->seen || !a->first || !a->inner)
        return bt_fail_memory(err, "the alphabet", CODES * sizeof(uint32_t));
    for (size_t w = 0; w < count; w++)
        alphabet_look(a, list + w);
    bauta_status status = alphabet_add(vocab, a, SEEN, "", a->first, err);
    if (!status)
        status = alphabet_add(vocab, a, SEEN_INNER, PREFIX, a->inner, err);
    return status;
}

static bauta_status symbols_read(bt_symbols *symbols, const bt_words *words,
                                 const alphabet *a, bauta_error *err)
{
    size_t count;
    const bt_word *list = bt_words_list(words, &count);
    bauta_status status = BAUTA_OK;
    for (size_t w = 0; !status && w < count; w++) {
        const bt_word *word = list + w;
        for (size_t i = 0, length; !status && i < word->size; i += length) {
            uint32_t code =
                bt_utf8_get(word->bytes + i, word->size - i, &length);
            status =
                bt_symbols_add(symbols, (i ? a->inner : a->first)[code], err);
        }
        if (!status)
            status = bt_symbols_end(symbols, err);
    }
    return status;
}

bauta_status bt_learn_wordpiece(bt_learned *out, const bt_words *words,
                                const bauta_vocabulary_options *options,
                                bauta_error *err)
{
    bt_symbols symbols = { .ids = NULL };
    alphabet a = { .seen = NULL };
    bauta_status status = bt_learned_init(out, options, err);
    if (!status)
        status = alphabet_init(&a, out->vocab, words, err);
    if (!status)
        status = bt_learned_fits(out, options, err);
    if (!status)
        status = symbols_read(&symbols, words, &a, err);
    if (!status)
        status = bt_pairs_learn(out,
                                &(bt_pairs_spec){ .words = words,
                                                  .symbols = &symbols,
                                                  .options = options,
                                                  .prefix = PREFIX },
                                err);
    bt_symbols_release(&symbols);
    alphabet_release(&a);
    if (status)
        bt_learned_release(out);
    return status;
}
