/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c - running the steps; see pretokenizer.h.
 *
 * Behind ByteLevel, Hugging Face's library goes on with text in the alphabet
 * of bytes (some models cut off digits there). To those steps a split is shown
 * in that alphabet, and the places that they find are carried back. */
#include "text/pretokenizer_step.h"

#include "base/error.h"
#include "base/memory.h"
#include "text/bytelevel.h"
#include "text/gpt2_cut.h"
#include "text/unicode.h"

#include <string.h>

/* One step over all splits. */
typedef struct pass {
    const bt_cut_step *step;
    const bt_text *text;
    bt_matcher *matcher; /* of the step's pattern */
    bool bytes;          /* a step before this one was ByteLevel */
    bt_splits out;       /* without a text */
    bauta_error *err;
} pass;

static bauta_status find(pass *p, bt_cut *cut, const char *text, size_t size)
{
    switch (p->step->kind) {
    case BT_CUT_CHARS:
        return bt_cut_chars(cut, text, size, p->step->matches);
    case BT_CUT_CHAR:
    case BT_CUT_METASPACE:
        return bt_cut_char(cut, text, size, p->step->code);
    case BT_CUT_PATTERN:
        return bt_cut_pattern(cut, text, size, p->matcher);
    case BT_CUT_WORDS:
        return bt_cut_words(cut, text, size);
    default:
        return BAUTA_OK;
    }
}

/* The split in the alphabet of bytes, and for each place in that the place in
 * the split. */
static bauta_status find_in_bytes(pass *p, bt_cut *cut, const char *text,
                                  size_t size)
{
    char *shown = bt_alloc(2 * size + 1);
    uint32_t *map = bt_alloc_zero(2 * size + 1, sizeof(*map));
    bauta_status status;
    if (shown && map) {
        size_t shown_size = bt_bytelevel_encode(shown, text, size);
        uint32_t byte = 0;
        for (size_t i = 0; i < shown_size; byte++)
            i += bt_utf8_length((unsigned char)shown[i]), map[i] = byte + 1;
        cut->map = map;
        status = find(p, cut, shown, shown_size);
    } else {
        status = bt_fail_memory(p->err, "a text", 10 * size);
    }
    bt_free(shown);
    bt_free(map);
    return status;
}

static bauta_status cut_split(pass *p, const bt_split *split)
{
    const char *text = p->text->bytes;
    if (split->token != BT_NO_TOKEN)
        return bt_splits_add(&p->out, *split, p->err);
    if (p->step->kind == BT_CUT_GPT2)
        return bt_gpt2_cut(&p->out, split, text, p->err);
    if (p->step->kind == BT_CUT_LLAMA3)
        return bt_llama3_cut(&p->out, split, text, p->step->digits, p->err);
    bt_cut cut = { .out = &p->out,
                   .parent = *split,
                   .behavior = p->step->behavior,
                   .invert = p->step->invert,
                   .err = p->err };
    return (p->bytes ? find_in_bytes : find)(p, &cut, text + split->lo,
                                             split->hi - split->lo);
}

static bauta_status cut_all(pass *p, bt_splits *splits)
{
    bauta_status status = BAUTA_OK;
    if (p->step->pattern)
        status = bt_matcher_create(&p->matcher, p->step->pattern, p->err);
    for (size_t i = 0; !status && i < splits->count; i++)
        status = cut_split(p, &splits->list[i]);
    if (!status)
        status = bt_splits_give(&p->out, p->err);
    bt_matcher_free(p->matcher);
    if (status)
        bt_free(p->out.list);
    if (status)
        return status;
    bt_free(splits->list);
    splits->list = p->out.list;
    splits->count = p->out.count;
    splits->room = p->out.room;
    return BAUTA_OK;
}

/* Whether a step makes new splits: some only change the text, or nothing. */
static bool step_cuts(const bt_cut_step *step)
{
    return step->kind != BT_CUT_BYTES && step->kind != BT_CUT_PREFIX &&
           !(step->kind == BT_CUT_METASPACE && step->keep);
}

static bauta_status step_run(const bt_cut_step *step, bt_splits *splits,
                             bool bytes, const bt_splits_taker *taker,
                             bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (step->kind == BT_CUT_METASPACE || step->kind == BT_CUT_PREFIX)
        status = bt_metaspace(step, splits, err);
    if (status || !step_cuts(step))
        return status;
    pass p = {
        .step = step, .text = &splits->text, .bytes = bytes, .err = err
    };
    p.out.taker = taker;
    return cut_all(&p, splits);
}

/* The step behind which nothing changes any more, or `count`. */
static size_t last_step(const bt_pretokenizer *pretokenizer, size_t count)
{
    for (size_t i = count; i > 0; i--) {
        const bt_cut_step *step = &pretokenizer->steps[i - 1];
        if (step->kind != BT_CUT_BYTES)
            return step_cuts(step) ? i - 1 : count;
    }
    return count;
}

bauta_status bt_pretokenizer_give(const bt_pretokenizer *pretokenizer,
                                  bt_splits *splits,
                                  const bt_splits_taker *taker,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bool bytes = false;
    size_t count = pretokenizer ? pretokenizer->count : 0;
    size_t last = count ? last_step(pretokenizer, count) : 0;
    for (size_t i = 0; !status && i < count; i++) {
        status = step_run(&pretokenizer->steps[i], splits, bytes,
                          i == last ? taker : NULL, err);
        bytes |= pretokenizer->steps[i].kind == BT_CUT_BYTES;
    }
    if (!status && taker && last == count)
        status = taker->take(taker->user, splits->list, splits->count, err);
    return status;
}

bauta_status bt_pretokenizer_run(const bt_pretokenizer *pretokenizer,
                                 bt_splits *splits, bauta_error *err)
{
    return bt_pretokenizer_give(pretokenizer, splits, NULL, err);
}

bool bt_pretokenizer_bytelevel(const bt_pretokenizer *pretokenizer)
{
    return pretokenizer && pretokenizer->bytes;
}

void bt_pretokenizer_free(bt_pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (size_t i = 0; i < pretokenizer->count; i++)
        bt_pattern_free(pretokenizer->steps[i].pattern);
    bt_free(pretokenizer->steps);
    bt_free(pretokenizer);
}
