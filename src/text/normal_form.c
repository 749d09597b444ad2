/* SPDX-License-Identifier: Apache-2.0 */
/* normal_form.c - normal forms; see normal_form.h, and Unicode Standard Annex
 * 15 for what they are.
 *
 * A character is inert when it is a starter, does not decompose, and composes
 * with none before it. Text is taken in runs of characters that are not inert,
 * each with the one character before it, with which it may compose; all else
 * stays. utf8proc knows how single characters decompose and which pairs
 * compose. Putting marks in order is done here, since a run may be a million
 * marks long. */
#include "text/normal_form.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "text/normalizer_step.h"
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

enum { CLASSES = 256, EXPANSION_MAX = 64 };

typedef struct item {
    uint32_t code;
    uint32_t class; /* canonical combining class; 0: a starter */
    int change;     /* 1 minus how many characters of the text it stands for */
} item;

typedef struct former {
    bt_form form;
    item *items; /* the run, decomposed */
    size_t count, room;
    bt_origin *sources; /* the characters of the run, as they were */
    size_t source_count, source_room;
    item *sorted; /* a run of marks */
    size_t sorted_room;
    bauta_error *err;
} former;

static bool composing(bt_form form)
{
    return form == BT_NFC || form == BT_NFKC;
}

/* ---- Which characters are inert ------------------------------------------ */

static bool decomposes(uint32_t code, const utf8proc_property_t *property,
                       bt_form form)
{
    if (code >= 0xAC00 && code <= 0xD7A3) // Hangul, by a formula
        return !composing(form);
    return property->decomp_seqindex != UINT16_MAX &&
           (property->decomp_type == 0 || form >= BT_NFKD);
}

static bool inert(uint32_t code, bt_form form)
{
    static const uint32_t below[] = { 0xC0, 0x300, 0xA0, 0xA0 };
    if (code < below[form])
        return true;
    const utf8proc_property_t *p =
        utf8proc_get_property((utf8proc_int32_t)code);
    // What composes with a starter before it is a mark or a Hangul letter.
    return p->combining_class == 0 && !decomposes(code, p, form) &&
           !(p->category >= UTF8PROC_CATEGORY_MN &&
             p->category <= UTF8PROC_CATEGORY_ME) &&
           !(code >= 0x1100 && code <= 0x11FF);
}

/* The first place from `at` on where a character is (or is not) inert. */
static size_t skip(const bt_text *text, size_t at, bt_form form, bool while_)
{
    while (at < text->size) {
        size_t length;
        if (while_)
            at += bt_utf8_ascii(text->bytes + at, text->size - at);
        if (at == text->size)
            break;
        uint32_t code = bt_utf8_get(text->bytes + at, text->size - at, &length);
        if (inert(code, form) != while_)
            break;
        at += length;
    }
    return at;
}

/* ---- One run ------------------------------------------------------------- */

static bauta_status source_add(former *f, bt_origin origin)
{
    if (BT_ROOM(f->sources, f->source_room, f->source_count, 1))
        return bt_fail_memory(f->err, "a text",
                              f->source_count * sizeof(origin));
    f->sources[f->source_count++] = origin;
    return BAUTA_OK;
}

static bauta_status decompose(former *f, uint32_t code)
{
    utf8proc_int32_t out[EXPANSION_MAX];
    int class = 0;
    utf8proc_option_t options =
        UTF8PROC_DECOMPOSE | (f->form >= BT_NFKD ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t found = utf8proc_decompose_char(
        (utf8proc_int32_t)code, out, EXPANSION_MAX, options, &class);
    size_t n = (size_t)found;
    if (found < 0 || n > EXPANSION_MAX) { // none is as long
        out[0] = (utf8proc_int32_t)code;
        n = 1;
    }
    if (BT_ROOM(f->items, f->room, f->count, n))
        return bt_fail_memory(f->err, "a text", (f->count + n) * sizeof(item));
    for (size_t i = 0; i < n; i++) {
        const utf8proc_property_t *p = utf8proc_get_property(out[i]);
        f->items[f->count++] =
            (item){ (uint32_t)out[i], (uint32_t)p->combining_class, i > 0 };
    }
    return BAUTA_OK;
}

/* Put marks in the order of their classes, equal ones as they were: by
 * counting, so that a long run takes no longer for each. */
static bauta_status sort_marks(former *f, item *marks, size_t count)
{
    size_t starts[CLASSES + 1] = { 0 };
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = marks[i - 1].class <= marks[i].class;
    if (sorted)
        return BAUTA_OK;
    if (BT_ROOM(f->sorted, f->sorted_room, 0, count))
        return bt_fail_memory(f->err, "a text", count * sizeof(item));
    for (size_t i = 0; i < count; i++)
        starts[marks[i].class % CLASSES + 1]++;
    for (size_t c = 0; c < CLASSES; c++)
        starts[c + 1] += starts[c];
    for (size_t i = 0; i < count; i++)
        f->sorted[starts[marks[i].class % CLASSES]++] = marks[i];
    memcpy(marks, f->sorted, count * sizeof(item));
    return BAUTA_OK;
}

static bauta_status order(former *f)
{
    bauta_status status = BAUTA_OK;
    for (size_t lo = 0, hi; !status && lo < f->count; lo = hi + 1) {
        for (hi = lo; hi < f->count && f->items[hi].class; hi++)
            ;
        status = sort_marks(f, f->items + lo, hi - lo);
    }
    return status;
}

/* What a pair composes to, or 0. */
static uint32_t composed(uint32_t first, uint32_t second)
{
    utf8proc_int32_t pair[] = { (utf8proc_int32_t)first,
                                (utf8proc_int32_t)second, 0 };
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n == 1 ? (uint32_t)pair[0] : 0;
}

/* Each character composes with the last starter, if none of its own class or
 * another starter stands between. */
static void compose(former *f)
{
    size_t starter = SIZE_MAX, kept = 0;
    for (size_t i = 0; i < f->count; i++) {
        item c = f->items[i];
        bool next = kept > 0 && kept - 1 == starter;
        uint32_t both = 0;
        if (starter != SIZE_MAX &&
            (next || (c.class && f->items[kept - 1].class < c.class)))
            both = composed(f->items[starter].code, c.code);
        if (both) {
            f->items[starter].code = both;
            f->items[starter].change += c.change - 1;
            continue;
        }
        if (c.class == 0)
            starter = kept;
        f->items[kept++] = c;
    }
    f->count = kept;
}

/* The normal form of bytes [lo, hi) in f->items. */
static bauta_status form_run(former *f, const bt_text *text, size_t lo,
                             size_t hi)
{
    bauta_status status = BAUTA_OK;
    f->count = f->source_count = 0;
    for (size_t length; !status && lo < hi; lo += length) {
        uint32_t code = bt_utf8_get(text->bytes + lo, hi - lo, &length);
        status = source_add(f, bt_text_origin(text, lo, lo + length));
        if (!status)
            status = decompose(f, code);
    }
    if (!status)
        status = order(f);
    if (!status && composing(f->form))
        compose(f);
    return status;
}

/* ---- A text -------------------------------------------------------------- */

/* Whether the items are just what the text has in [lo, hi). */
static bool unchanged(const former *f, const bt_text *text, size_t lo,
                      size_t hi)
{
    for (size_t i = 0, length; i < f->count; i++, lo += length)
        if (lo >= hi ||
            bt_utf8_get(text->bytes + lo, hi - lo, &length) != f->items[i].code)
            return false;
    return lo == hi;
}

/* As in Hugging Face's library, origins are handed out in order, also where
 * marks have changed places: each character takes as many of the text's as it
 * stands for and has the first one's origin, or the one's before it where it
 * stands for none. */
static bauta_status put_items(const former *f, bt_text *out, bt_origin before)
{
    bauta_status status = BAUTA_OK;
    size_t at = 0;
    for (size_t i = 0; !status && i < f->count; i++) {
        int change = f->items[i].change;
        bt_origin origin = change <= 0 ? f->sources[at]
                           : at > 0    ? f->sources[at - 1]
                                       : before;
        status = bt_text_put_char(out, f->items[i].code, origin, f->err);
        at += change <= 0 ? (size_t)(1 - change) : 0;
    }
    return status;
}

/* Append the form to `out` as far as it differs; *done is how much of the text
 * that accounts for. */
static bauta_status form_text(former *f, bt_text *out, const bt_text *text,
                              size_t *done)
{
    bauta_status status = BAUTA_OK;
    size_t at = 0;
    *done = 0;
    while (!status) {
        size_t lo = skip(text, at, f->form, true);
        if (lo == text->size)
            break;
        size_t hi = skip(text, lo, f->form, false);
        while (lo > at && (text->bytes[--lo] & 0xC0) == 0x80)
            ; // with the character before it
        status = form_run(f, text, lo, hi);
        at = hi;
        if (status || unchanged(f, text, lo, hi))
            continue;
        status = bt_text_copy(out, text, *done, lo, f->err);
        if (!status)
            status = put_items(f, out, bt_text_origin_before(text, lo));
        *done = hi;
    }
    return status;
}

bauta_status bt_normal_form(bt_text *text, bt_form form, bauta_error *err)
{
    former f = { .form = form, .err = err };
    bt_text out;
    size_t done;
    bt_text_init_empty(&out);
    bauta_status status = form_text(&f, &out, text, &done);
    if (!status && done > 0)
        status = bt_text_copy(&out, text, done, text->size, err);
    if (!status && done > 0)
        bt_text_become(text, &out);
    bt_text_release(&out);
    bt_free(f.items);
    bt_free(f.sources);
    bt_free(f.sorted);
    return status;
}

/* ---- Steps --------------------------------------------------------------- */

static bauta_status form_step_run(const bt_step *step, bt_text *text,
                                  bauta_error *err)
{
    return bt_normal_form(text, (bt_form)step->flags, err);
}

static bauta_status form_step(bt_step *step, bt_form form)
{
    step->run = form_step_run;
    step->flags = form;
    return BAUTA_OK;
}

bauta_status bt_step_nfc(bt_step *step, const json_t *json, const char *path,
                         bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFC);
}

bauta_status bt_step_nfd(bt_step *step, const json_t *json, const char *path,
                         bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFD);
}

bauta_status bt_step_nfkc(bt_step *step, const json_t *json, const char *path,
                          bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFKC);
}

bauta_status bt_step_nfkd(bt_step *step, const json_t *json, const char *path,
                          bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFKD);
}
