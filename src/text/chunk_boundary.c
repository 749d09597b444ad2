/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_boundary.c - see chunk_boundary.h. */
#include "text/chunk_boundary.h"

#include "base/utf8.h"
#include "text/pretokenize/pretokenizer_step.h"
#include "text/subword/bpe.h"
#include "text/unicode.h"

/* A BPE without merges: its tokens are single characters or bytes. */
static bool has_no_merges(const bt_subword_model *model)
{
    if (model->encode != bt_bpe_encode)
        return false;
    const bt_bpe *b = (const bt_bpe *)model;
    if (b->has_user_defined || b->prefix || b->suffix || b->fuse_unknown ||
        !b->whole_words_merge)
        return false;
    for (size_t i = 0; i <= b->mask; i++)
        if (b->pairs[i].left != BT_NO_ID)
            return false;
    return true;
}

/* Whether the template contains the text exactly once. */
static bool has_text_once(const bt_template *t)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += t->items[i].id == BT_TEMPLATE_A;
    return count == 1;
}

/* Restrict the boundary by one step; false if the step allows none. *splits is
 * set if the step splits before white space. */
static bool apply_step(bt_chunk_boundary *b, const bt_pretokenizer_step *step,
                       bool replaced, bool *splits)
{
    if (b->single_space && step->kind != BT_PRETOKENIZE_METASPACE)
        return false;
    switch (step->kind) {
    case BT_PRETOKENIZE_CHARS:
        *splits |= !replaced && step->in_class == bt_is_space &&
                   !step->invert && step->behavior == BT_SPLIT_REMOVED;
        return true;
    case BT_PRETOKENIZE_CHAR:
        return true;
    case BT_PRETOKENIZE_WORDS:
    case BT_PRETOKENIZE_GPT2:
        *splits = true;
        return !replaced;
    case BT_PRETOKENIZE_LLAMA3:
        b->after_word = *splits = true;
        return !replaced;
    case BT_PRETOKENIZE_METASPACE:
        *splits |= !step->no_split;
        b->line_breaks = false;
        return !replaced &&
               (!b->single_space || step->prepend == BT_PREPEND_ALWAYS);
    case BT_PRETOKENIZE_PREPEND:
        b->line_breaks = false;
        return true;
    case BT_PRETOKENIZE_BYTELEVEL:
        return true;
    default:
        return false;
    }
}

/* After Metaspace and ByteLevel a space is another character (`replaced`). */
static bool apply_pretokenizer(bt_chunk_boundary *b, const bt_pretokenizer *p)
{
    bool splits = false, known = true, replaced = false;
    for (size_t i = 0; known && p && i < p->count; i++) {
        known = apply_step(b, &p->steps[i], replaced, &splits);
        replaced |= p->steps[i].kind == BT_PRETOKENIZE_METASPACE ||
                    p->steps[i].kind == BT_PRETOKENIZE_BYTELEVEL;
    }
    return known && splits;
}

bt_chunk_boundary bt_chunk_boundary_of(const bauta_tokenizer *t)
{
    bt_chunk_boundary b = { .spaces = true, .line_breaks = true };
    bool single_symbols = has_no_merges(t->model);
    bt_normalizer_scope locality = bt_normalizer_scope_of(t->normalizer);
    if (!has_text_once(&t->single) || !bt_added_tokens_local(t->added_tokens) ||
        locality == BT_NORMALIZER_GLOBAL)
        return (bt_chunk_boundary){ 0 };
    b.single_space = locality == BT_NORMALIZER_LOCAL_STRIP;
    b.after_ascii = t->normalizer != NULL;
    if (apply_pretokenizer(&b, t->pretokenizer))
        return b;
    // Even if nothing is split, a prefix or a pattern may see the whole text.
    const bt_pretokenizer *p = t->pretokenizer;
    for (size_t i = 0; p && i < p->count; i++)
        single_symbols &= p->steps[i].kind == BT_PRETOKENIZE_BYTELEVEL;
    if (!single_symbols || t->normalizer)
        return (bt_chunk_boundary){ 0 };
    b = (bt_chunk_boundary){ .anywhere = bt_added_tokens_empty(t->added_tokens),
                             .spaces = true,
                             .line_breaks = true };
    return b;
}

/* The character that ends at `at`. */
static uint32_t char_before(const char *text, size_t at)
{
    size_t begin = bt_utf8_char_start(text, 0, at), length;
    return bt_utf8_decode(text + begin, at - begin, &length);
}

static bool is_graphic(char c)
{
    return c > ' ' && c < 0x7F;
}

/* Whether a chunk may end before text[at]. If the boundary is a single space,
 * text[at + 1] must exist. */
static bool may_split(bt_chunk_boundary b, const char *text, size_t at)
{
    bool space = text[at] == ' ' && b.spaces;
    bool line_break = text[at] == '\n' && b.line_breaks;
    if (b.anywhere)
        return !bt_utf8_continues(text[at]);
    if ((!space && !line_break) ||
        (b.single_space && !is_graphic(text[at + 1])))
        return false;
    uint32_t code = char_before(text, at);
    if (code <= ' ' || code == 0x7F || bt_is_space(code) ||
        (b.after_ascii && code > 0x7F))
        return false;
    return space || !b.after_word || bt_is_letter(code) || bt_is_number(code);
}

size_t bt_chunk_boundary_last(bt_chunk_boundary b, const char *text,
                              size_t from, size_t size)
{
    if (!b.anywhere && !b.spaces)
        return 0;
    size -= b.single_space && size;
    for (size_t at = size; at-- > from + 1;)
        if (may_split(b, text, at))
            return at;
    return 0;
}
