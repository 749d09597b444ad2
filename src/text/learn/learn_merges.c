/* SPDX-License-Identifier: Apache-2.0 */
/* learn_merges.c - training BPE and WordPiece: the alphabet, then merges of the
 * most frequent pairs (pair_merge.h).
 *
 * BPE starts with the 256 bytes, in the order of the characters that represent
 * them. WordPiece starts with the characters of the words, then those that
 * occur inside a word with ## before them. Hugging Face's library numbers the
 * latter in the order of a hash table, which differs from run to run; here both
 * are in the order of their code points. */
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/learn/pair_merge.h"
#include "text/subword/bytelevel.h"

/* ---- BPE ----------------------------------------------------------------- */

enum { BYTES = 256, BYTELEVEL_CODES = 324 /* 1 + the last of the alphabet */ };

/* Add the byte-level alphabet in the order of its characters; ids[] receives
 * the id of each byte. */
static bauta_status bytes_add(bt_vocab *vocab, uint32_t ids[BYTES],
                              bauta_error *err)
{
    int byte_of[BYTELEVEL_CODES];
    bauta_status status = BAUTA_OK;
    for (int i = 0; i < BYTELEVEL_CODES; i++)
        byte_of[i] = -1;
    for (int i = 0; i < BYTES; i++)
        byte_of[bt_bytelevel_char((unsigned char)i)] = i;
    for (uint32_t code = 0; !status && code < BYTELEVEL_CODES; code++)
        if (byte_of[code] >= 0)
            status = bt_trained_vocab_add_character(vocab, "", code,
                                                    ids + byte_of[code], err);
    return status;
}

static bauta_status bytes_read(bt_word_symbols *symbols,
                               const bt_word_counts *words,
                               const uint32_t ids[BYTES], bauta_error *err)
{
    size_t count;
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    bauta_status status = BAUTA_OK;
    for (size_t w = 0; !status && w < count; w++) {
        for (size_t i = 0; !status && i < list[w].size; i++)
            status = bt_word_symbols_add(
                symbols, ids[(unsigned char)list[w].bytes[i]], err);
        if (!status)
            status = bt_word_symbols_end_word(symbols, err);
    }
    return status;
}

bauta_status bt_learn_bpe(bt_trained_vocab *out, const bt_word_counts *words,
                          const bauta_tokenizer_trainer_options *options,
                          bauta_error *err)
{
    bt_word_symbols symbols = { .ids = NULL };
    uint32_t ids[BYTES];
    bauta_status status = bt_trained_vocab_init(out, options, err);
    if (!status)
        status = bytes_add(out->vocab, ids, err);
    if (!status)
        status = bt_trained_vocab_check_size(out, options, err);
    if (!status)
        status = bytes_read(&symbols, words, ids, err);
    if (!status)
        status = bt_pair_merge_learn(out,
                                     &(bt_pair_merge_spec){ .words = words,
                                                            .symbols = &symbols,
                                                            .options = options,
                                                            .prefix = "",
                                                            .bytelevel = true },
                                     err);
    bt_word_symbols_release(&symbols);
    if (status)
        bt_trained_vocab_release(out);
    return status;
}

/* ---- WordPiece ----------------------------------------------------------- */

enum { CODES = 0x110000 };

#define PREFIX "##"

/* For each character: where it occurs, and its ids. */
typedef struct alphabet {
    unsigned char *seen;     /* (CODES) */
    uint32_t *first, *inner; /* (CODES) ids at the start of and inside a word */
} alphabet;

enum { SEEN = 1, SEEN_INNER = 2 };

static void alphabet_release(alphabet *a)
{
    bt_free(a->seen);
    bt_free(a->first);
    bt_free(a->inner);
}

static void alphabet_scan(alphabet *a, const bt_counted_word *word)
{
    for (size_t i = 0, length; i < word->size; i += length) {
        uint32_t code =
            bt_utf8_decode(word->bytes + i, word->size - i, &length);
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
            status = bt_trained_vocab_add_character(vocab, prefix, code,
                                                    ids + code, err);
    return status;
}

static bauta_status alphabet_init(alphabet *a, bt_vocab *vocab,
                                  const bt_word_counts *words, bauta_error *err)
{
    size_t count;
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    *a = (alphabet){ .seen = bt_alloc_zero(CODES, 1),
                     .first = bt_alloc(CODES * sizeof(uint32_t)),
                     .inner = bt_alloc(CODES * sizeof(uint32_t)) };
    if (!a->seen || !a->first || !a->inner)
        return bt_fail_memory(err, "the alphabet", CODES * sizeof(uint32_t));
    for (size_t w = 0; w < count; w++)
        alphabet_scan(a, list + w);
    bauta_status status = alphabet_add(vocab, a, SEEN, "", a->first, err);
    if (!status)
        status = alphabet_add(vocab, a, SEEN_INNER, PREFIX, a->inner, err);
    return status;
}

static bauta_status characters_read(bt_word_symbols *symbols,
                                    const bt_word_counts *words,
                                    const alphabet *a, bauta_error *err)
{
    size_t count;
    const bt_counted_word *list = bt_word_counts_list(words, &count);
    bauta_status status = BAUTA_OK;
    for (size_t w = 0; !status && w < count; w++) {
        const bt_counted_word *word = list + w;
        for (size_t i = 0, length; !status && i < word->size; i += length) {
            uint32_t code =
                bt_utf8_decode(word->bytes + i, word->size - i, &length);
            status = bt_word_symbols_add(symbols,
                                         (i ? a->inner : a->first)[code], err);
        }
        if (!status)
            status = bt_word_symbols_end_word(symbols, err);
    }
    return status;
}

bauta_status bt_learn_wordpiece(bt_trained_vocab *out,
                                const bt_word_counts *words,
                                const bauta_tokenizer_trainer_options *options,
                                bauta_error *err)
{
    bt_word_symbols symbols = { .ids = NULL };
    alphabet a = { .seen = NULL };
    bauta_status status = bt_trained_vocab_init(out, options, err);
    if (!status)
        status = alphabet_init(&a, out->vocab, words, err);
    if (!status)
        status = bt_trained_vocab_check_size(out, options, err);
    if (!status)
        status = characters_read(&symbols, words, &a, err);
    if (!status)
        status = bt_pair_merge_learn(out,
                                     &(bt_pair_merge_spec){ .words = words,
                                                            .symbols = &symbols,
                                                            .options = options,
                                                            .prefix = PREFIX },
                                     err);
    bt_word_symbols_release(&symbols);
    alphabet_release(&a);
    if (status)
        bt_trained_vocab_release(out);
    return status;
}
