/* SPDX-License-Identifier: Apache-2.0 */
/* normal_form.c - Unicode normalization forms (Unicode Standard Annex 15).
 *
 * A character is inert if it is a starter, does not decompose, and does not
 * compose with the one before it. Only runs of characters that are not inert
 * are processed, each with the character before it, with which it may compose.
 * utf8proc knows how single characters decompose and which pairs compose.
 * Reordering is done here by counting, since a run may be a million marks
 * long. */
#include "text/normalize/normal_form.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/normalize/normalizer_step.h"

#include <string.h>
#include <utf8proc.h>

enum { CLASSES = 256, EXPANSION_MAX = 64 };

typedef struct item {
    uint32_t code;
    uint32_t class; /* canonical combining class; 0: a starter */
    int change;     /* 1 minus the number of source characters */
} item;

typedef struct normalization {
    bt_unicode_form form;
    item *items; /* the run, decomposed */
    size_t count, room;
    bt_origin *sources; /* origins of the characters of the run */
    size_t source_count, source_room;
    item *sorted; /* scratch to reorder marks */
    size_t sorted_room;
    bauta_error *err;
} normalization;

static bool composing(bt_unicode_form form)
{
    return form == BT_NFC || form == BT_NFKC;
}

/* ---- Which characters are inert ------------------------------------------ */

static bool decomposes(uint32_t code, const utf8proc_property_t *property,
                       bt_unicode_form form)
{
    if (code >= 0xAC00 && code <= 0xD7A3) // Hangul syllables, by a formula
        return !composing(form);
    return property->decomp_seqindex != UINT16_MAX &&
           (property->decomp_type == 0 || form >= BT_NFKD);
}

static bool inert(uint32_t code, bt_unicode_form form)
{
    static const uint32_t below[] = { 0xC0, 0x300, 0xA0, 0xA0 };
    if (code < below[form])
        return true;
    const utf8proc_property_t *p =
        utf8proc_get_property((utf8proc_int32_t)code);
    // Only marks and Hangul letters compose with a starter before them.
    return p->combining_class == 0 && !decomposes(code, p, form) &&
           !(p->category >= UTF8PROC_CATEGORY_MN &&
             p->category <= UTF8PROC_CATEGORY_ME) &&
           !(code >= 0x1100 && code <= 0x11FF);
}

/* Skip the characters from `at` on that are inert, or that are not. */
static size_t skip(const bt_aligned_text *text, size_t at, bt_unicode_form form,
                   bool inert_ones)
{
    while (at < text->size) {
        size_t length;
        if (inert_ones)
            at += bt_utf8_ascii_prefix(text->bytes + at, text->size - at);
        if (at == text->size)
            break;
        uint32_t code =
            bt_utf8_decode(text->bytes + at, text->size - at, &length);
        if (inert(code, form) != inert_ones)
            break;
        at += length;
    }
    return at;
}

/* ---- One run ------------------------------------------------------------- */

static bauta_status source_add(normalization *f, bt_origin origin)
{
    if (BT_ARRAY_RESERVE(f->sources, f->source_room, f->source_count, 1))
        return bt_fail_memory(f->err, "a text",
                              f->source_count * sizeof(origin));
    f->sources[f->source_count++] = origin;
    return BAUTA_OK;
}

static bauta_status decompose(normalization *f, uint32_t code)
{
    utf8proc_int32_t out[EXPANSION_MAX];
    int class = 0;
    utf8proc_option_t options =
        UTF8PROC_DECOMPOSE | (f->form >= BT_NFKD ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t found = utf8proc_decompose_char(
        (utf8proc_int32_t)code, out, EXPANSION_MAX, options, &class);
    size_t n = (size_t)found;
    if (found < 0 || n > EXPANSION_MAX) { // no character expands so far
        out[0] = (utf8proc_int32_t)code;
        n = 1;
    }
    if (BT_ARRAY_RESERVE(f->items, f->room, f->count, n))
        return bt_fail_memory(f->err, "a text", (f->count + n) * sizeof(item));
    for (size_t i = 0; i < n; i++) {
        const utf8proc_property_t *p = utf8proc_get_property(out[i]);
        f->items[f->count++] =
            (item){ (uint32_t)out[i], (uint32_t)p->combining_class, i > 0 };
    }
    return BAUTA_OK;
}

/* A stable sort of marks by class: by counting, so that time is linear in the
 * length of the run. */
static bauta_status sort_marks(normalization *f, item *marks, size_t count)
{
    size_t starts[CLASSES + 1] = { 0 };
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = marks[i - 1].class <= marks[i].class;
    if (sorted)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(f->sorted, f->sorted_room, 0, count))
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

static bauta_status reorder(normalization *f)
{
    bauta_status status = BAUTA_OK;
    for (size_t lo = 0, hi; !status && lo < f->count; lo = hi + 1) {
        for (hi = lo; hi < f->count && f->items[hi].class; hi++)
            ;
        status = sort_marks(f, f->items + lo, hi - lo);
    }
    return status;
}

/* The composition of two characters, or 0. */
static uint32_t composed(uint32_t first, uint32_t second)
{
    utf8proc_int32_t pair[] = { (utf8proc_int32_t)first,
                                (utf8proc_int32_t)second, 0 };
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n == 1 ? (uint32_t)pair[0] : 0;
}

/* Each character composes with the last starter unless it is blocked: by a
 * character of its own class or by another starter between them. */
static void compose(normalization *f)
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

/* Normalize bytes [lo, hi) to f->items. */
static bauta_status normalize_run(normalization *f, const bt_aligned_text *text,
                                  size_t lo, size_t hi)
{
    bauta_status status = BAUTA_OK;
    f->count = f->source_count = 0;
    for (size_t length; !status && lo < hi; lo += length) {
        uint32_t code = bt_utf8_decode(text->bytes + lo, hi - lo, &length);
        status = source_add(f, bt_aligned_text_origin(text, lo, lo + length));
        if (!status)
            status = decompose(f, code);
    }
    if (!status)
        status = reorder(f);
    if (!status && composing(f->form))
        compose(f);
    return status;
}

/* ---- A text -------------------------------------------------------------- */

/* Whether the items equal the characters [lo, hi) of the text. */
static bool unchanged(const normalization *f, const bt_aligned_text *text,
                      size_t lo, size_t hi)
{
    for (size_t i = 0, length; i < f->count; i++, lo += length)
        if (lo >= hi || bt_utf8_decode(text->bytes + lo, hi - lo, &length) !=
                            f->items[i].code)
            return false;
    return lo == hi;
}

/* As in Hugging Face's library, origins are assigned in order, even if marks
 * were reordered: each character consumes as many source characters as it was
 * made of and gets the origin of the first one, or, if it consumes none, that
 * of the character before it. */
static bauta_status put_items(const normalization *f, bt_aligned_text *out,
                              bt_origin before)
{
    bauta_status status = BAUTA_OK;
    size_t at = 0;
    for (size_t i = 0; !status && i < f->count; i++) {
        int change = f->items[i].change;
        bt_origin origin = change <= 0 ? f->sources[at]
                           : at > 0    ? f->sources[at - 1]
                                       : before;
        status =
            bt_aligned_text_append_char(out, f->items[i].code, origin, f->err);
        at += change <= 0 ? (size_t)(1 - change) : 0;
    }
    return status;
}

/* Append the normalized text to `out` up to the last run that changed; *done is
 * how many bytes of `text` that covers. */
static bauta_status normalize_text(normalization *f, bt_aligned_text *out,
                                   const bt_aligned_text *text, size_t *done)
{
    bauta_status status = BAUTA_OK;
    size_t at = 0;
    *done = 0;
    while (!status) {
        size_t lo = skip(text, at, f->form, true);
        if (lo == text->size)
            break;
        size_t hi = skip(text, lo, f->form, false);
        if (lo > at) // include the character before the run
            lo = bt_utf8_char_start(text->bytes, at, lo);
        status = normalize_run(f, text, lo, hi);
        at = hi;
        if (status || unchanged(f, text, lo, hi))
            continue;
        status = bt_aligned_text_append_range(out, text, *done, lo, f->err);
        if (!status)
            status = put_items(f, out, bt_aligned_text_origin_before(text, lo));
        *done = hi;
    }
    return status;
}

bauta_status bt_unicode_normalize(bt_aligned_text *text, bt_unicode_form form,
                                  bauta_error *err)
{
    normalization f = { .form = form, .err = err };
    bt_aligned_text out;
    size_t done;
    bt_aligned_text_init_empty(&out);
    bauta_status status = normalize_text(&f, &out, text, &done);
    if (!status && done > 0)
        status =
            bt_aligned_text_append_range(&out, text, done, text->size, err);
    if (!status && done > 0)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    bt_free(f.items);
    bt_free(f.sources);
    bt_free(f.sorted);
    return status;
}

/* ---- Steps --------------------------------------------------------------- */

static bauta_status form_run(const bt_normalizer_step *step,
                             bt_aligned_text *text, bauta_error *err)
{
    return bt_unicode_normalize(text, (bt_unicode_form)step->flags, err);
}

static bauta_status form_step(bt_normalizer_step *step, bt_unicode_form form)
{
    step->run = form_run;
    step->flags = form;
    return BAUTA_OK;
}

bauta_status bt_normalizer_step_nfc(bt_normalizer_step *step,
                                    const json_t *json, const char *path,
                                    bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFC);
}

bauta_status bt_normalizer_step_nfd(bt_normalizer_step *step,
                                    const json_t *json, const char *path,
                                    bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFD);
}

bauta_status bt_normalizer_step_nfkc(bt_normalizer_step *step,
                                     const json_t *json, const char *path,
                                     bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFKC);
}

bauta_status bt_normalizer_step_nfkd(bt_normalizer_step *step,
                                     const json_t *json, const char *path,
                                     bauta_error *err)
{
    (void)json, (void)path, (void)err;
    return form_step(step, BT_NFKD);
}
