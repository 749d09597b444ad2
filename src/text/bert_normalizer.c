/* SPDX-License-Identifier: Apache-2.0 */
/* bert_normalizer.c - what BERT does to a text: control characters go, all
 * white space becomes spaces, ideographs stand alone, accents and capitals go.
 */
#include "text/char_map.h"
#include "text/fields.h"
#include "text/normal_form.h"
#include "text/normalizer_step.h"
#include "text/unicode.h"

enum { CLEAN = 1, IDEOGRAPHS = 2, ACCENTS = 4, LOWERCASE = 8 };

/* What has to be done before accents are taken apart. */
static size_t before_accents(uint32_t *out, uint32_t code, unsigned flags)
{
    out[0] = code;
    if (flags & CLEAN) {
        if (bt_is_other(code) || code == BT_REPLACEMENT)
            out[0] = code == '\t' || code == '\n' || code == '\r' ? ' ' : 0;
        else if (bt_is_space(code))
            out[0] = ' ';
        if (out[0] == 0)
            return 0;
    }
    if (code < 0x80 || !(flags & IDEOGRAPHS) || !bt_is_ideograph(code))
        return 1;
    out[0] = out[2] = ' ';
    out[1] = code;
    return 3;
}

static size_t behind_accents(uint32_t *out, uint32_t code, unsigned flags)
{
    out[0] = code;
    if (flags & ACCENTS && bt_is_mark(code))
        return 0;
    return flags & LOWERCASE ? bt_lower(out, code) : 1;
}

/* Both at once, for ASCII, which has no accents. */
static size_t ascii_at_once(uint32_t *out, uint32_t code, unsigned flags)
{
    return before_accents(out, code, flags) &&
           behind_accents(out, out[0], flags);
}

static bauta_status bert_run(const bt_step *step, bt_text *text,
                             bauta_error *err)
{
    if (bt_utf8_ascii(text->bytes, text->size) == text->size)
        return bt_char_map(text, ascii_at_once, step->flags, err);
    bauta_status status = bt_char_map(text, before_accents, step->flags, err);
    if (!status && step->flags & ACCENTS)
        status = bt_normal_form(text, BT_NFD, err);
    return status ? status
                  : bt_char_map(text, behind_accents, step->flags, err);
}

bauta_status bt_step_bert(bt_step *step, const json_t *json, const char *path,
                          bauta_error *err)
{
    bool clean_text = true, ideographs = true, lowercase = true;
    bauta_status status =
        bt_field_bool(&clean_text, json, "clean_text", path, err);
    if (!status)
        status =
            bt_field_bool(&ideographs, json, "handle_chinese_chars", path, err);
    if (!status)
        status = bt_field_bool(&lowercase, json, "lowercase", path, err);
    bool accents = lowercase; // null: as lowercase is
    if (!status)
        status = bt_field_bool(&accents, json, "strip_accents", path, err);
    step->run = bert_run;
    step->flags = (clean_text ? CLEAN : 0u) | (ideographs ? IDEOGRAPHS : 0u) |
                  (accents ? ACCENTS : 0u) | (lowercase ? LOWERCASE : 0u);
    return status;
}
