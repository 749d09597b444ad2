/* SPDX-License-Identifier: Apache-2.0 */
/* learn_bpe.c - a vocabulary of byte pairs: special tokens, the 256 bytes in
 * the order of the characters that stand for them, and what merging gives. */
#include "base/error.h"
#include "text/bytelevel.h"
#include "text/pairs.h"
#include "text/unicode.h"

enum { BYTES = 256, CODES = 324 /* one beyond the last of the alphabet */ };

/* The alphabet, and the id of each byte. */
static bauta_status alphabet_add(bt_vocab *vocab, uint32_t ids[BYTES],
                                 bauta_error *err)
{
    int byte_of[CODES];
    bauta_status status = BAUTA_OK;
    for (int i = 0; i < CODES; i++)
        byte_of[i] = -1;
    for (int i = 0; i < BYTES; i++)
        byte_of[bt_bytelevel_char((unsigned char)i)] = i;
    for (uint32_t code = 0; !status && code < CODES; code++)
        if (byte_of[code] >= 0)
            status =
                bt_learned_character(vocab, "", code, ids + byte_of[code], err);
    return status;
}

static bauta_status symbols_read(bt_symbols *symbols, const bt_words *words,
                                 const uint32_t ids[BYTES], bauta_error *err)
{
    size_t count;
    const bt_word *list = bt_words_list(words, &count);
    bauta_status status = BAUTA_OK;
    for (size_t w = 0; !status && w < count; w++) {
        for (size_t i = 0; !status && i < list[w].size; i++)
            status = bt_symbols_add(symbols,
                                    ids[(unsigned char)list[w].bytes[i]], err);
        if (!status)
            status = bt_symbols_end(symbols, err);
    }
    return status;
}

bauta_status bt_learn_bpe(bt_learned *out, const bt_words *words,
                          const bauta_vocabulary_options *options,
                          bauta_error *err)
{
    bt_symbols symbols = { .ids = NULL };
    uint32_t ids[BYTES];
    bauta_status status = bt_learned_init(out, options, err);
    if (!status)
        status = alphabet_add(out->vocab, ids, err);
    if (!status)
        status = bt_learned_fits(out, options, err);
    if (!status)
        status = symbols_read(&symbols, words, ids, err);
    if (!status)
        status = bt_pairs_learn(out,
                                &(bt_pairs_spec){ .words = words,
                                                  .symbols = &symbols,
                                                  .options = options,
                                                  .prefix = "",
                                                  .bytelevel = true },
                                err);
    bt_symbols_release(&symbols);
    if (status)
        bt_learned_release(out);
    return status;
}
