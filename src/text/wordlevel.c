/* SPDX-License-Identifier: Apache-2.0 */
/* wordlevel.c - a split is a piece, or it is unknown. */
#include "base/error.h"
#include "base/memory.h"
#include "text/subword.h"

typedef struct wordlevel {
    bt_subword base;
    const bt_vocab *vocab;
    uint32_t unknown;
} wordlevel;

static bauta_status wordlevel_encode(const bt_subword *model, const char *split,
                                     size_t size, bt_subword_work *work,
                                     bauta_error *err)
{
    const wordlevel *w = (const wordlevel *)model;
    uint32_t id = bt_vocab_find(w->vocab, split, size);
    if (size == 0)
        return BAUTA_OK;
    if (id == BT_NO_ID)
        id = w->unknown;
    if (id == BT_NO_ID)
        return bt_fail_unknown(err, split, size);
    return bt_subword_put(work, (bt_token){ id, 0, (uint32_t)size }, err);
}

static void wordlevel_free(bt_subword *model)
{
    bt_free(model);
}

bauta_status bt_wordlevel_create(bt_subword **out, const bt_vocab *vocab,
                                 uint32_t unknown, bauta_error *err)
{
    wordlevel *w = bt_alloc(sizeof(*w));
    *out = NULL;
    if (!w)
        return bt_fail_memory(err, "a tokenizer", sizeof(*w));
    *w = (wordlevel){ { wordlevel_encode, wordlevel_free }, vocab, unknown };
    *out = &w->base;
    return BAUTA_OK;
}
