/* SPDX-License-Identifier: Apache-2.0 */
/* boundary.c - see boundary.h. */
#include "text/boundary.h"

#include "text/bpe.h"
#include "text/pretokenizer_step.h"
#include "text/unicode.h"

/* A BPE that merges nothing: its tokens are characters, or bytes. */
static bool merges_nothing(const bt_subword *model)
{
    if (model->encode != bt_bpe_encode)
        return false;
    const bt_bpe *b = (const bt_bpe *)model;
    if (b->has_frozen || b->prefix || b->suffix || b->fuse_unknown ||
        !b->words_merge)
        return false;
    for (size_t i = 0; i <= b->mask; i++)
        if (b->pairs[i].left != BT_NO_ID)
            return false;
    return true;
}

/* Whether the template has the text once. */
static bool once(const bt_template *t)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += t->items[i].id == BT_TEMPLATE_A;
    return count == 1;
}

/* Go on with a step; false when nothing is known of it. */
static bool step_pass(bt_boundary *b, const bt_cut_step *step, bool behind,
                      bool *cuts)
{
    if (b->single && step->kind != BT_CUT_METASPACE)
        return false;
    switch (step->kind) {
    case BT_CUT_CHARS:
        *cuts |= !behind && step->matches == bt_is_space && !step->invert &&
                 step->behavior == BT_REMOVED;
        return true;
    case BT_CUT_CHAR:
        return true;
    case BT_CUT_WORDS:
    case BT_CUT_GPT2:
        *cuts = true;
        return !behind;
    case BT_CUT_LLAMA3:
        b->words = *cuts = true;
        return !behind;
    case BT_CUT_METASPACE:
        *cuts |= !step->keep;
        b->line_breaks = false;
        return !behind && (!b->single || step->prepend == BT_PREPEND_ALWAYS);
    case BT_CUT_PREFIX:
        b->line_breaks = false;
        return true;
    case BT_CUT_BYTES:
        return true;
    default:
        return false;
    }
}

/* Behind Metaspace and ByteLevel a space is another character. */
static bool pretokenizer_pass(bt_boundary *b, const bt_pretokenizer *p)
{
    bool cuts = false, known = true, behind = false;
    for (size_t i = 0; known && p && i < p->count; i++) {
        known = step_pass(b, &p->steps[i], behind, &cuts);
        behind |= p->steps[i].kind == BT_CUT_METASPACE ||
                  p->steps[i].kind == BT_CUT_BYTES;
    }
    return known && cuts;
}

bt_boundary bt_boundary_of(const bauta_tokenizer *t)
{
    bt_boundary b = { .spaces = true, .line_breaks = true };
    bool alone = merges_nothing(t->model) && !t->ids;
    bt_locality locality = bt_normalizer_locality(t->normalizer);
    if (!once(&t->single) || !bt_added_local(t->added) ||
        locality == BT_LOCAL_NOT)
        return (bt_boundary){ 0 };
    b.single = locality == BT_LOCAL_STRIP;
    b.ascii = t->normalizer != NULL;
    if (pretokenizer_pass(&b, t->pretokenizer))
        return b;
    // Without a cut a prefix, or a pattern, may still depend on the whole.
    const bt_pretokenizer *p = t->pretokenizer;
    for (size_t i = 0; p && i < p->count; i++)
        alone &= p->steps[i].kind == BT_CUT_BYTES;
    if (!alone || t->normalizer)
        return (bt_boundary){ 0 };
    b = (bt_boundary){ .anywhere = bt_added_empty(t->added),
                       .spaces = true,
                       .line_breaks = true };
    return b;
}

/* The character that ends before `at`. */
static uint32_t char_before(const char *text, size_t at)
{
    size_t begin = at - 1, length;
    while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80)
        begin--;
    return bt_utf8_get(text + begin, at - begin, &length);
}

static bool is_graphic(char c)
{
    return c > ' ' && c < 0x7F;
}

/* text[at + 1] is there where the boundary is single. */
static bool may_cut(bt_boundary b, const char *text, size_t at)
{
    bool space = text[at] == ' ' && b.spaces;
    bool line_break = text[at] == '\n' && b.line_breaks;
    if (b.anywhere)
        return ((unsigned char)text[at] & 0xC0) != 0x80;
    if ((!space && !line_break) || (b.single && !is_graphic(text[at + 1])))
        return false;
    uint32_t code = char_before(text, at);
    if (code <= ' ' || code == 0x7F || bt_is_space(code) ||
        (b.ascii && code > 0x7F))
        return false;
    return space || !b.words || bt_is_letter(code) || bt_is_number(code);
}

size_t bt_boundary_last(bt_boundary b, const char *text, size_t from,
                        size_t size)
{
    if (!b.anywhere && !b.spaces)
        return 0;
    size -= b.single && size;
    for (size_t at = size; at-- > from + 1;)
        if (may_cut(b, text, at))
            return at;
    return 0;
}
