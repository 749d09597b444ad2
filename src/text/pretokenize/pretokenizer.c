/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c - running the steps; see pretokenizer.h.
 *
 * After ByteLevel, Hugging Face's library continues with text in the byte-level
 * alphabet (some models split digits there). Those steps search an encoded copy
 * of a split, and the positions are mapped back. */
#include "text/pretokenize/pretokenizer_step.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/pretokenize/gpt2_split.h"
#include "text/subword/bytelevel.h"

#include <string.h>

/* One step over all splits. */
typedef struct pretokenizer_pass {
    const bt_pretokenizer_step *step;
    const bt_aligned_text *text;
    bt_regex_matcher *matcher; /* of the step's pattern */
    bool bytes;                /* a step before this one was ByteLevel */
    bt_splits out;             /* without a text */
    bauta_error *err;
} pretokenizer_pass;

static bauta_status find(pretokenizer_pass *p, bt_splitter *splitter,
                         const char *text, size_t size)
{
    switch (p->step->kind) {
    case BT_PRETOKENIZE_CHARS:
        return bt_split_at_chars(splitter, text, size, p->step->in_class);
    case BT_PRETOKENIZE_CHAR:
    case BT_PRETOKENIZE_METASPACE:
        return bt_split_at_char(splitter, text, size, p->step->code);
    case BT_PRETOKENIZE_REGEX:
        return bt_split_at_regex(splitter, text, size, p->matcher);
    case BT_PRETOKENIZE_WORDS:
        return bt_split_words(splitter, text, size);
    default:
        return BAUTA_OK;
    }
}

/* Search the split in the byte-level alphabet, with a map from its positions to
 * those of the split. */
static bauta_status find_in_bytelevel(pretokenizer_pass *p,
                                      bt_splitter *splitter, const char *text,
                                      size_t size)
{
    char *encoded = bt_alloc(2 * size + 1);
    uint32_t *map = bt_alloc_zero(2 * size + 1, sizeof(*map));
    bauta_status status;
    if (encoded && map) {
        size_t encoded_size = bt_bytelevel_encode(encoded, text, size);
        uint32_t byte = 0;
        for (size_t i = 0; i < encoded_size; byte++)
            i += bt_utf8_length((unsigned char)encoded[i]), map[i] = byte + 1;
        splitter->map = map;
        status = find(p, splitter, encoded, encoded_size);
    } else {
        status = bt_fail_memory(p->err, "a text", 10 * size);
    }
    bt_free(encoded);
    bt_free(map);
    return status;
}

static bauta_status divide_split(pretokenizer_pass *p, const bt_split *split)
{
    const char *text = p->text->bytes;
    if (split->token != BT_NO_TOKEN)
        return bt_splits_add(&p->out, *split, p->err);
    if (p->step->kind == BT_PRETOKENIZE_GPT2)
        return bt_gpt2_split(&p->out, split, text, p->err);
    if (p->step->kind == BT_PRETOKENIZE_LLAMA3)
        return bt_llama3_split(&p->out, split, text, p->step->max_digits,
                               p->err);
    bt_splitter splitter = { .out = &p->out,
                             .parent = *split,
                             .behavior = p->step->behavior,
                             .invert = p->step->invert,
                             .err = p->err };
    return (p->bytes ? find_in_bytelevel : find)(p, &splitter, text + split->lo,
                                                 split->hi - split->lo);
}

static bauta_status divide_all(pretokenizer_pass *p, bt_splits *splits)
{
    bauta_status status = BAUTA_OK;
    if (p->step->regex)
        status = bt_regex_matcher_create(&p->matcher, p->step->regex, p->err);
    for (size_t i = 0; !status && i < splits->count; i++)
        status = divide_split(p, &splits->list[i]);
    if (!status)
        status = bt_splits_flush(&p->out, p->err);
    bt_regex_matcher_free(p->matcher);
    if (status)
        bt_free(p->out.list);
    if (status)
        return status;
    bt_free(splits->list);
    splits->list = p->out.list;
    splits->count = p->out.count;
    splits->capacity = p->out.capacity;
    return BAUTA_OK;
}

/* Whether a step makes new splits; some only change the text, or nothing. */
static bool step_splits(const bt_pretokenizer_step *step)
{
    return step->kind != BT_PRETOKENIZE_BYTELEVEL &&
           step->kind != BT_PRETOKENIZE_PREPEND &&
           !(step->kind == BT_PRETOKENIZE_METASPACE && step->no_split);
}

static bauta_status step_run(const bt_pretokenizer_step *step,
                             bt_splits *splits, bool bytes,
                             const bt_split_sink *taker, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (step->kind == BT_PRETOKENIZE_METASPACE ||
        step->kind == BT_PRETOKENIZE_PREPEND)
        status = bt_metaspace_rewrite(step, splits, err);
    if (status || !step_splits(step))
        return status;
    pretokenizer_pass p = {
        .step = step, .text = &splits->text, .bytes = bytes, .err = err
    };
    p.out.sink = taker;
    return divide_all(&p, splits);
}

/* The last step that makes new splits, or `count` if another step comes
 * later. */
static size_t last_step(const bt_pretokenizer *pretokenizer, size_t count)
{
    for (size_t i = count; i > 0; i--) {
        const bt_pretokenizer_step *step = &pretokenizer->steps[i - 1];
        if (step->kind != BT_PRETOKENIZE_BYTELEVEL)
            return step_splits(step) ? i - 1 : count;
    }
    return count;
}

bauta_status bt_pretokenizer_stream(const bt_pretokenizer *pretokenizer,
                                    bt_splits *splits,
                                    const bt_split_sink *taker,
                                    bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bool bytes = false;
    size_t count = pretokenizer ? pretokenizer->count : 0;
    size_t last = count ? last_step(pretokenizer, count) : 0;
    for (size_t i = 0; !status && i < count; i++) {
        status = step_run(&pretokenizer->steps[i], splits, bytes,
                          i == last ? taker : NULL, err);
        bytes |= pretokenizer->steps[i].kind == BT_PRETOKENIZE_BYTELEVEL;
    }
    if (!status && taker && last == count)
        status = taker->accept(taker->user, splits->list, splits->count, err);
    return status;
}

bauta_status bt_pretokenizer_run(const bt_pretokenizer *pretokenizer,
                                 bt_splits *splits, bauta_error *err)
{
    return bt_pretokenizer_stream(pretokenizer, splits, NULL, err);
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
        bt_regex_free(pretokenizer->steps[i].regex);
    bt_free(pretokenizer->steps);
    bt_free(pretokenizer);
}
