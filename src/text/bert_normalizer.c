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

static size_t clean(uint32_t *out, uint32_t code)
{
    bool line = code == '\t' || code == '\n' || code == '\r';
    out[0] = line || bt_is_space(code) ? ' ' : code;
    return line || !(code == 0 || code == BT_REPLACEMENT || bt_is_other(code));
}

static size_t spaced(uint32_t *out, uint32_t code)
{
    bool alone = bt_is_ideograph(code);
    out[0] = alone ? ' ' : code;
    out[1] = code;
    out[2] = ' ';
    return alone ? 3 : 1;
}

static size_t without_accents(uint32_t *out, uint32_t code)
{
    out[0] = code;
    return !bt_is_mark(code);
}

static bauta_status bert_run(const bt_step *step, bt_text *text,
                             bauta_error *err)
{
    bool ascii = bt_utf8_ascii(text->bytes, text->size) == text->size;
    bauta_status status = BAUTA_OK;
    if (step->flags & CLEAN)
        status = bt_char_map(text, clean, err);
    if (!status && step->flags & IDEOGRAPHS && !ascii)
        status = bt_char_map(text, spaced, err);
    if (!status && step->flags & ACCENTS && !ascii)
        status = bt_normal_form(text, BT_NFD, err);
    if (!status && step->flags & ACCENTS && !ascii)
        status = bt_char_map(text, without_accents, err);
    if (!status && step->flags & LOWERCASE)
        status = bt_char_map(text, bt_lower, err);
    return status;
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
