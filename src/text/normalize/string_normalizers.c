/* SPDX-License-Identifier: Apache-2.0 */
/* string_normalizers.c - the normalizers Replace, Prepend and Strip. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/normalize/normalizer_step.h"
#include "text/step_json.h"
#include "text/unicode.h"

#include <string.h>

/* ---- Replace ------------------------------------------------------------- */

typedef struct replacer {
    bt_regex *pattern;
    char *content;
    size_t size;
} replacer;

static void replacer_free(void *data)
{
    replacer *r = data;
    bt_regex_free(r->pattern);
    bt_free(r->content);
    bt_free(r);
}

/* Append the text between the matches, with each match replaced. */
static bauta_status replace_all(const replacer *r, bt_regex_matcher *matcher,
                                bt_aligned_text *out,
                                const bt_aligned_text *text, bool *changed,
                                bauta_error *err)
{
    bt_regex_match match = { 0, 0, 0, false };
    bool found = true;
    *changed = false;
    for (size_t done = 0; found;) {
        bauta_status status = bt_regex_matcher_next(
            matcher, text->bytes, text->size, &match, &found, err);
        *changed |= found;
        if (!status && *changed)
            status = bt_aligned_text_append_range(
                out, text, done, found ? match.lo : text->size, err);
        if (!status && found)
            status = bt_aligned_text_append(
                out, r->content, r->size,
                bt_aligned_text_origin_before(text, match.hi), err);
        if (!status && out->size > bt_normalizer_size_limit(text->size))
            status = bt_normalizer_fail_size(text->size, err);
        if (status)
            return status;
        done = match.hi;
    }
    return BAUTA_OK;
}

static bauta_status replace_run(const bt_normalizer_step *step,
                                bt_aligned_text *text, bauta_error *err)
{
    const replacer *r = step->data;
    bt_regex_matcher *matcher;
    bool changed;
    if (text->size == 0)
        return BAUTA_OK;
    bauta_status status = bt_regex_matcher_create(&matcher, r->pattern, err);
    if (status)
        return status;
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    status = replace_all(r, matcher, &out, text, &changed, err);
    if (!status && changed)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    bt_regex_matcher_free(matcher);
    return status;
}

bauta_status bt_normalizer_step_replace(bt_normalizer_step *step,
                                        const json_t *json, const char *path,
                                        bauta_error *err)
{
    const char *content = NULL;
    replacer *r = bt_alloc_zero(1, sizeof(*r));
    if (!r)
        return bt_fail_memory(err, "a normalizer", sizeof(*r));
    bauta_status status = bt_step_string(&content, json, "content", path, err);
    if (!status && !content)
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: Replace has no \"content\"", bt_path_tail(path));
    if (!status)
        status = bt_step_regex(&r->pattern, json, path, err);
    r->size = content ? strlen(content) : 0;
    if (!status && !(r->content = bt_alloc(r->size)))
        status = bt_fail_memory(err, "a normalizer", r->size);
    if (status) {
        replacer_free(r);
        return status;
    }
    memcpy(r->content, content, r->size);
    *step = (bt_normalizer_step){ replace_run, replacer_free, r, 0 };
    return BAUTA_OK;
}

/* ---- Prepend ------------------------------------------------------------- */

static bauta_status prepend_run(const bt_normalizer_step *step,
                                bt_aligned_text *text, bauta_error *err)
{
    const char *string = step->data;
    if (text->size == 0)
        return BAUTA_OK;
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    size_t first = bt_utf8_length((unsigned char)text->bytes[0]);
    bauta_status status =
        bt_aligned_text_reserve(&out, text->size + strlen(string), err);
    if (!status)
        status =
            bt_aligned_text_append(&out, string, strlen(string),
                                   bt_aligned_text_origin(text, 0, first), err);
    if (!status)
        status = bt_aligned_text_append_range(&out, text, 0, text->size, err);
    if (!status)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    return status;
}

bauta_status bt_normalizer_step_prepend(bt_normalizer_step *step,
                                        const json_t *json, const char *path,
                                        bauta_error *err)
{
    const char *string = NULL;
    bauta_status status = bt_step_string(&string, json, "prepend", path, err);
    if (status)
        return status;
    if (!string)
        return bt_fail(err, BAUTA_ERR_FORMAT, "%s: Prepend has no \"prepend\"",
                       bt_path_tail(path));
    char *copy = bt_alloc(strlen(string) + 1);
    if (!copy)
        return bt_fail_memory(err, "a normalizer", strlen(string) + 1);
    strcpy(copy, string);
    *step = (bt_normalizer_step){ prepend_run, bt_free, copy, 0 };
    return BAUTA_OK;
}

/* ---- Strip --------------------------------------------------------------- */

enum { LEFT = 1, RIGHT = 2 };

/* The start of the white space that ends at `end`. */
static size_t skip_space_back(const bt_aligned_text *text, size_t end)
{
    size_t length;
    while (end > 0) {
        size_t lo = bt_utf8_char_start(text->bytes, 0, end);
        if (!bt_is_space(bt_utf8_decode(text->bytes + lo, end - lo, &length)))
            break;
        end = lo;
    }
    return end;
}

/* The end of the white space that begins at `at`. */
static size_t skip_space(const bt_aligned_text *text, size_t at, size_t end)
{
    for (size_t length; at < end; at += length)
        if (!bt_is_space(bt_utf8_decode(text->bytes + at, end - at, &length)))
            break;
    return at;
}

static bauta_status strip_run(const bt_normalizer_step *step,
                              bt_aligned_text *text, bauta_error *err)
{
    size_t hi =
        step->flags & RIGHT ? skip_space_back(text, text->size) : text->size;
    size_t lo = step->flags & LEFT ? skip_space(text, 0, hi) : 0;
    if (!text->owned) { // still the caller's bytes: narrow the view
        text->bytes += lo;
        text->size = hi - lo;
        text->base_offset += (uint32_t)lo;
        return BAUTA_OK;
    }
    if (lo == 0) {
        text->size = hi;
        return BAUTA_OK;
    }
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    bauta_status status = bt_aligned_text_append_range(&out, text, lo, hi, err);
    if (!status)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    return status;
}

bauta_status bt_normalizer_step_strip(bt_normalizer_step *step,
                                      const json_t *json, const char *path,
                                      bauta_error *err)
{
    bool left = true, right = true;
    bauta_status status = bt_step_bool(&left, json, "strip_left", path, err);
    if (!status)
        status = bt_step_bool(&right, json, "strip_right", path, err);
    step->run = strip_run;
    step->flags = (left ? LEFT : 0u) | (right ? RIGHT : 0u);
    return status;
}
