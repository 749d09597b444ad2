/* SPDX-License-Identifier: Apache-2.0 */
/* learned.c - what all kinds of learning begin with: special tokens, and the
 * alphabet behind them. */
#include "base/error.h"
#include "base/memory.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

#include <string.h>

const char *const *bt_learned_specials(const bauta_vocabulary_options *options,
                                       size_t *count)
{
    static const char *const bpe[] = { "<|endoftext|>" };
    static const char *const wordpiece[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                             "[MASK]" };
    static const char *const unigram[] = { "<pad>", "<unk>", "<s>", "</s>" };
    static const struct {
        const char *const *list;
        size_t count;
    } usual[] = {
        [BAUTA_VOCABULARY_BPE] = { bpe, BT_LEN(bpe) },
        [BAUTA_VOCABULARY_WORDPIECE] = { wordpiece, BT_LEN(wordpiece) },
        [BAUTA_VOCABULARY_UNIGRAM] = { unigram, BT_LEN(unigram) },
    };
    if (options->specials) {
        *count = options->special_count;
        return options->specials;
    }
    *count = usual[options->kind].count;
    return usual[options->kind].list;
}

bauta_status bt_learned_init(bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err)
{
    size_t count;
    const char *const *specials = bt_learned_specials(options, &count);
    *learned = (bt_learned){ .vocab = NULL };
    bauta_status status = bt_vocab_create(&learned->vocab, err);
    for (size_t i = 0; !status && i < count; i++) {
        size_t size = strlen(specials[i]);
        // Given twice, a token is still one.
        if (bt_vocab_find(learned->vocab, specials[i], size) == BT_NO_ID)
            status = bt_vocab_add(learned->vocab, specials[i], size,
                                  (uint32_t)bt_vocab_size(learned->vocab), err);
    }
    if (!status)
        learned->special_count = bt_vocab_size(learned->vocab);
    return status;
}

bauta_status bt_learned_character(bt_vocab *vocab, const char *prefix,
                                  uint32_t code, uint32_t *id, bauta_error *err)
{
    char text[8];
    size_t size = strlen(prefix);
    memcpy(text, prefix, size);
    size += bt_utf8_put(text + size, code);
    *id = bt_vocab_find(vocab, text, size);
    if (*id != BT_NO_ID)
        return BAUTA_OK;
    *id = (uint32_t)bt_vocab_size(vocab);
    return bt_vocab_add(vocab, text, size, *id, err);
}

bauta_status bt_learned_fits(const bt_learned *learned,
                             const bauta_vocabulary_options *options,
                             bauta_error *err)
{
    size_t least = bt_vocab_size(learned->vocab);
    if (options->pieces >= least)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "a vocabulary of %zu pieces is too small: the special "
                   "tokens and the alphabet are "
                   "%zu",
                   options->pieces, least);
}

void bt_learned_release(bt_learned *learned)
{
    bt_vocab_free(learned->vocab);
    bt_free(learned->merges);
    bt_free(learned->scores);
    *learned = (bt_learned){ .vocab = NULL };
}
