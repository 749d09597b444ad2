/* SPDX-License-Identifier: Apache-2.0 */
/* char_normalizers.c - normalizers that map single characters: Lowercase,
 * StripAccents, Nmt and BertNormalizer. */
#include "base/utf8.h"
#include "text/normalize/normal_form.h"
#include "text/normalize/normalizer_step.h"
#include "text/step_json.h"
#include "text/unicode.h"

/* ---- Mapping ------------------------------------------------------------- */

enum { MAP_MAX = 3 };

/* Map a character to none or up to three characters. */
typedef size_t char_map_fn(uint32_t out[MAP_MAX], uint32_t code,
                           unsigned flags);

/* A character of `length` bytes at `at` that becomes `count` others. */
typedef struct change {
    size_t at, length, count;
    uint32_t out[MAP_MAX];
} change;

/* Find the first character from `at` on that changes. */
static bool next_change(change *c, const bt_aligned_text *text, size_t at,
                        char_map_fn *map, unsigned flags)
{
    while (at < text->size) {
        uint32_t code =
            bt_utf8_decode(text->bytes + at, text->size - at, &c->length);
        c->count = map(c->out, code, flags);
        if (c->count != 1 || c->out[0] != code)
            break;
        at += c->length;
    }
    c->at = at;
    return at < text->size;
}

static bauta_status put_change(bt_aligned_text *out,
                               const bt_aligned_text *text, const change *c,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_origin origin = bt_aligned_text_origin(text, c->at, c->at + c->length);
    for (size_t i = 0; !status && i < c->count; i++)
        status = bt_aligned_text_append_char(out, c->out[i], origin, err);
    return status;
}

/* Rewrite a text. Each new character has the origin of the one it replaces. A
 * text that does not change is not copied. */
static bauta_status map_chars(bt_aligned_text *text, char_map_fn *map,
                              unsigned flags, bauta_error *err)
{
    change c;
    if (!next_change(&c, text, 0, map, flags))
        return BAUTA_OK;
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    bauta_status status =
        bt_aligned_text_reserve(&out, text->size + text->size / 8, err);
    size_t done = 0;
    for (bool more = true; !status && more;) {
        status = bt_aligned_text_append_range(&out, text, done, c.at, err);
        if (!status)
            status = put_change(&out, text, &c, err);
        done = c.at + c.length;
        more = next_change(&c, text, done, map, flags);
    }
    if (!status)
        status =
            bt_aligned_text_append_range(&out, text, done, text->size, err);
    if (!status)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    return status;
}

/* ---- Lowercase ----------------------------------------------------------- */

static size_t map_lowercase(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    return bt_unicode_lower(out, code);
}

static bauta_status lowercase_run(const bt_normalizer_step *step,
                                  bt_aligned_text *text, bauta_error *err)
{
    (void)step;
    return map_chars(text, map_lowercase, 0, err);
}

bauta_status bt_normalizer_step_lowercase(bt_normalizer_step *step,
                                          const json_t *json, const char *path,
                                          bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = lowercase_run;
    return BAUTA_OK;
}

/* ---- StripAccents -------------------------------------------------------- */

static size_t map_strip_accents(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    out[0] = code;
    return !bt_is_combining_mark(code);
}

static bauta_status strip_accents_run(const bt_normalizer_step *step,
                                      bt_aligned_text *text, bauta_error *err)
{
    (void)step;
    if (bt_utf8_ascii_prefix(text->bytes, text->size) == text->size)
        return BAUTA_OK;
    return map_chars(text, map_strip_accents, 0, err);
}

bauta_status bt_normalizer_step_strip_accents(bt_normalizer_step *step,
                                              const json_t *json,
                                              const char *path,
                                              bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = strip_accents_run;
    return BAUTA_OK;
}

/* ---- Nmt ----------------------------------------------------------------- */

/* As SentencePiece's nmt rules: control characters are removed, and all kinds
 * of space, also those without width, become a space. */
static size_t map_nmt(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    bool removed = (code >= 0x01 && code <= 0x08) || code == 0x0B ||
                   (code >= 0x0E && code <= 0x1F) || code == 0x7F ||
                   code == 0x8F || code == 0x9F;
    bool space = code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D ||
                 code == 0x1680 || (code >= 0x200B && code <= 0x200F) ||
                 code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                 code == 0xFEFF || code == 0xFFFD;
    out[0] = space ? ' ' : code;
    return !removed;
}

static bauta_status nmt_run(const bt_normalizer_step *step,
                            bt_aligned_text *text, bauta_error *err)
{
    (void)step;
    return map_chars(text, map_nmt, 0, err);
}

bauta_status bt_normalizer_step_nmt(bt_normalizer_step *step,
                                    const json_t *json, const char *path,
                                    bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = nmt_run;
    return BAUTA_OK;
}

/* ---- BertNormalizer ------------------------------------------------------ */

enum { CLEAN = 1, IDEOGRAPHS = 2, ACCENTS = 4, LOWERCASE = 8 };

/* Before decomposition: control characters are removed, white space becomes a
 * space, and spaces are put around ideographs. */
static size_t map_clean(uint32_t *out, uint32_t code, unsigned flags)
{
    out[0] = code;
    if (flags & CLEAN) {
        if (bt_is_control(code) || code == BT_UTF8_REPLACEMENT)
            out[0] = code == '\t' || code == '\n' || code == '\r' ? ' ' : 0;
        else if (bt_is_space(code))
            out[0] = ' ';
        if (out[0] == 0)
            return 0;
    }
    if (code < 0x80 || !(flags & IDEOGRAPHS) || !bt_is_cjk_ideograph(code))
        return 1;
    out[0] = out[2] = ' ';
    out[1] = code;
    return 3;
}

/* After decomposition: accents are removed, letters become lower case. */
static size_t map_fold(uint32_t *out, uint32_t code, unsigned flags)
{
    out[0] = code;
    if (flags & ACCENTS && bt_is_nonspacing_mark(code))
        return 0;
    return flags & LOWERCASE ? bt_unicode_lower(out, code) : 1;
}

/* Both in one pass, for ASCII, which has no accents. */
static size_t map_ascii(uint32_t *out, uint32_t code, unsigned flags)
{
    return map_clean(out, code, flags) && map_fold(out, out[0], flags);
}

static bauta_status bert_run(const bt_normalizer_step *step,
                             bt_aligned_text *text, bauta_error *err)
{
    if (bt_utf8_ascii_prefix(text->bytes, text->size) == text->size)
        return map_chars(text, map_ascii, step->flags, err);
    bauta_status status = map_chars(text, map_clean, step->flags, err);
    if (!status && step->flags & ACCENTS)
        status = bt_unicode_normalize(text, BT_NFD, err);
    return status ? status : map_chars(text, map_fold, step->flags, err);
}

bauta_status bt_normalizer_step_bert(bt_normalizer_step *step,
                                     const json_t *json, const char *path,
                                     bauta_error *err)
{
    bool clean_text = true, ideographs = true, lowercase = true;
    bauta_status status =
        bt_step_bool(&clean_text, json, "clean_text", path, err);
    if (!status)
        status =
            bt_step_bool(&ideographs, json, "handle_chinese_chars", path, err);
    if (!status)
        status = bt_step_bool(&lowercase, json, "lowercase", path, err);
    bool accents = lowercase; // the default
    if (!status)
        status = bt_step_bool(&accents, json, "strip_accents", path, err);
    step->run = bert_run;
    step->flags = (clean_text ? CLEAN : 0u) | (ideographs ? IDEOGRAPHS : 0u) |
                  (accents ? ACCENTS : 0u) | (lowercase ? LOWERCASE : 0u);
    return status;
}
