/* SPDX-License-Identifier: Apache-2.0 */
/* metaspace.c - pre-tokenizers that rewrite the text: Metaspace, and ByteLevel
 * with add_prefix_space.
 *
 * A prepended character has the origin of the character after it. */
#include "text/pretokenize/pretokenizer_step.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

typedef struct rewriter {
    const bt_pretokenizer_step *step;
    char mark[4]; /* is prepended and replaces spaces */
    size_t mark_size;
} rewriter;

static bool starts_with_mark(const rewriter *r, const char *at, size_t size)
{
    // A space becomes the mark, so it counts as one.
    return *at == ' ' ||
           (size >= r->mark_size && memcmp(at, r->mark, r->mark_size) == 0);
}

static bool prepends(const rewriter *r, const bt_splits *splits,
                     const bt_split *split)
{
    const bt_aligned_text *text = &splits->text;
    if (split->token != BT_NO_TOKEN || r->step->prepend == BT_PREPEND_NEVER ||
        starts_with_mark(r, text->bytes + split->lo, split->hi - split->lo))
        return false;
    return r->step->prepend == BT_PREPEND_ALWAYS ||
           bt_aligned_text_origin(text, split->lo, split->hi).from == 0;
}

static bool replaces(const rewriter *r, const bt_splits *splits,
                     const bt_split *split)
{
    return split->token == BT_NO_TOKEN &&
           r->step->kind == BT_PRETOKENIZE_METASPACE &&
           memchr(splits->text.bytes + split->lo, ' ', split->hi - split->lo);
}

static bool changes(const rewriter *r, const bt_splits *splits)
{
    for (size_t i = 0; i < splits->count; i++)
        if (prepends(r, splits, &splits->list[i]) ||
            replaces(r, splits, &splits->list[i]))
            return true;
    return false;
}

/* Append [lo, hi) with spaces replaced by the mark. */
static bauta_status put_marked(const rewriter *r, bt_aligned_text *out,
                               const bt_aligned_text *text, size_t lo,
                               size_t hi, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    while (!status && lo < hi) {
        const char *space = memchr(text->bytes + lo, ' ', hi - lo);
        size_t at = space ? (size_t)(space - text->bytes) : hi;
        status = bt_aligned_text_append_range(out, text, lo, at, err);
        if (!status && space)
            status = bt_aligned_text_append(
                out, r->mark, r->mark_size,
                bt_aligned_text_origin(text, at, at + 1), err);
        lo = at + (space != NULL);
    }
    return status;
}

static bauta_status put_split(const rewriter *r, bt_aligned_text *out,
                              const bt_splits *splits, bt_split *split,
                              bauta_error *err)
{
    const bt_aligned_text *text = &splits->text;
    bauta_status status = BAUTA_OK;
    size_t lo = out->size;
    if (prepends(r, splits, split)) {
        size_t first = bt_utf8_length((unsigned char)text->bytes[split->lo]);
        status = bt_aligned_text_append(
            out, r->mark, r->mark_size,
            bt_aligned_text_origin(text, split->lo, split->lo + first), err);
    }
    if (!status && replaces(r, splits, split))
        status = put_marked(r, out, text, split->lo, split->hi, err);
    else if (!status)
        status =
            bt_aligned_text_append_range(out, text, split->lo, split->hi, err);
    split->lo = (uint32_t)lo;
    split->hi = (uint32_t)out->size;
    return status;
}

bauta_status bt_metaspace_rewrite(const bt_pretokenizer_step *step,
                                  bt_splits *splits, bauta_error *err)
{
    rewriter r = { .step = step };
    r.mark_size = bt_utf8_encode(r.mark, step->code);
    if (!changes(&r, splits))
        return BAUTA_OK;
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    bauta_status status = bt_aligned_text_reserve(
        &out, splits->text.size + splits->count * 4, err);
    for (size_t i = 0; !status && i < splits->count; i++)
        status = put_split(&r, &out, splits, &splits->list[i], err);
    if (!status)
        bt_aligned_text_replace(&splits->text, &out);
    bt_aligned_text_release(&out);
    return status;
}
