/* SPDX-License-Identifier: Apache-2.0 */
/* char_map.c - see char_map.h; and the steps that are no more than such a map:
 * Lowercase, StripAccents, Nmt. */
#include "text/char_map.h"

#include "text/normalizer_step.h"
#include "text/unicode.h"

/* The first character at or behind `at` that does not stay; what it becomes,
 * and how long it was. */
typedef struct change {
    size_t at, length, count;
    uint32_t out[BT_CHAR_MAP_MAX];
} change;

static bool next_change(change *c, const bt_text *text, size_t at,
                        bt_char_map_fn *map, unsigned flags)
{
    while (at < text->size) {
        uint32_t code =
            bt_utf8_get(text->bytes + at, text->size - at, &c->length);
        c->count = map(c->out, code, flags);
        if (c->count != 1 || c->out[0] != code)
            break;
        at += c->length;
    }
    c->at = at;
    return at < text->size;
}

static bauta_status put_change(bt_text *out, const bt_text *text,
                               const change *c, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_origin origin = bt_text_origin(text, c->at, c->at + c->length);
    for (size_t i = 0; !status && i < c->count; i++)
        status = bt_text_put_char(out, c->out[i], origin, err);
    return status;
}

bauta_status bt_char_map(bt_text *text, bt_char_map_fn *map, unsigned flags,
                         bauta_error *err)
{
    change c;
    if (!next_change(&c, text, 0, map, flags))
        return BAUTA_OK;
    bt_text out;
    bt_text_init_empty(&out);
    bauta_status status =
        bt_text_reserve(&out, text->size + text->size / 8, err);
    size_t done = 0;
    for (bool more = true; !status && more;) {
        status = bt_text_copy(&out, text, done, c.at, err);
        if (!status)
            status = put_change(&out, text, &c, err);
        done = c.at + c.length;
        more = next_change(&c, text, done, map, flags);
    }
    if (!status)
        status = bt_text_copy(&out, text, done, text->size, err);
    if (!status)
        bt_text_become(text, &out);
    bt_text_release(&out);
    return status;
}

/* ---- Lowercase ----------------------------------------------------------- */

static size_t lowered(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    return bt_lower(out, code);
}

static bauta_status lowercase_run(const bt_step *step, bt_text *text,
                                  bauta_error *err)
{
    (void)step;
    return bt_char_map(text, lowered, 0, err);
}

bauta_status bt_step_lowercase(bt_step *step, const json_t *json,
                               const char *path, bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = lowercase_run;
    return BAUTA_OK;
}

/* ---- StripAccents -------------------------------------------------------- */

static size_t without_marks(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    out[0] = code;
    return !bt_is_any_mark(code);
}

static bauta_status strip_accents_run(const bt_step *step, bt_text *text,
                                      bauta_error *err)
{
    (void)step;
    if (bt_utf8_ascii(text->bytes, text->size) == text->size)
        return BAUTA_OK;
    return bt_char_map(text, without_marks, 0, err);
}

bauta_status bt_step_strip_accents(bt_step *step, const json_t *json,
                                   const char *path, bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = strip_accents_run;
    return BAUTA_OK;
}

/* ---- Nmt ----------------------------------------------------------------- */

/* What machine translation has always done first: control characters go, and
 * all kinds of space, also those without width, become a space. */
static size_t nmt(uint32_t *out, uint32_t code, unsigned flags)
{
    (void)flags;
    bool gone = (code >= 0x01 && code <= 0x08) || code == 0x0B ||
                (code >= 0x0E && code <= 0x1F) || code == 0x7F ||
                code == 0x8F || code == 0x9F;
    bool space = code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D ||
                 code == 0x1680 || (code >= 0x200B && code <= 0x200F) ||
                 code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                 code == 0xFEFF || code == 0xFFFD;
    out[0] = space ? ' ' : code;
    return !gone;
}

static bauta_status nmt_run(const bt_step *step, bt_text *text,
                            bauta_error *err)
{
    (void)step;
    return bt_char_map(text, nmt, 0, err);
}

bauta_status bt_step_nmt(bt_step *step, const json_t *json, const char *path,
                         bauta_error *err)
{
    (void)json, (void)path, (void)err;
    step->run = nmt_run;
    return BAUTA_OK;
}
