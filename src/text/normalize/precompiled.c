/* SPDX-License-Identifier: Apache-2.0 */
/* precompiled.c - the normalizer "Precompiled" of a tokenizer.json.
 *
 * It uses SentencePiece's charsmap, but not with the longest match. Hugging
 * Face's library goes through the grapheme clusters of a text. The shortest
 * prefix in the map of a cluster of fewer than six bytes replaces the whole
 * cluster; otherwise its characters are looked up one by one. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/normalize/charsmap.h"
#include "text/normalize/normalizer_step.h"

#include <string.h>
#include <utf8proc.h>

enum { CLUSTER_BYTES = 6 }; /* clusters below this are looked up whole */

/* ---- Base 64 ------------------------------------------------------------- */

static int digit64(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decode padded base 64; `out` has room for 3/4 of size. False if malformed. */
static bool base64_decode(unsigned char *out, size_t *out_size,
                          const char *text, size_t size)
{
    size_t pad = 0, n = 0;
    if (size % 4 != 0)
        return false;
    while (pad < 2 && pad < size && text[size - 1 - pad] == '=')
        pad++;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t word = 0;
        for (size_t j = i; j < i + 4; j++) {
            int digit = j >= size - pad ? 0 : digit64(text[j]);
            if (digit < 0)
                return false;
            word = word << 6 | (uint32_t)digit;
        }
        for (int j = 0; j < 3; j++)
            out[n++] = (unsigned char)(word >> (16 - 8 * j));
    }
    *out_size = n - pad;
    return true;
}

/* ---- Clusters ------------------------------------------------------------ */

/* The end of the cluster that begins at `at`. */
static size_t cluster_end(const bt_aligned_text *text, size_t at)
{
    utf8proc_int32_t state = 0;
    size_t length;
    uint32_t code = bt_utf8_decode(text->bytes + at, text->size - at, &length);
    for (at += length; at < text->size; at += length) {
        uint32_t next =
            bt_utf8_decode(text->bytes + at, text->size - at, &length);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code,
                                             (utf8proc_int32_t)next, &state))
            break;
        code = next;
    }
    return at;
}

/* Replace bytes [lo, hi) by a form. Its characters get the origins of theirs
 * one by one; surplus characters get that of the last one. */
static bauta_status append_form(bt_aligned_text *out, const bt_aligned_text *in,
                                size_t lo, size_t hi, const char *form,
                                size_t size, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_origin origin = bt_aligned_text_origin(in, lo, lo);
    for (size_t at = 0, length; !status && at < size; at += length) {
        length = bt_utf8_length((unsigned char)form[at]);
        if (lo < hi) {
            size_t next = lo + bt_utf8_length((unsigned char)in->bytes[lo]);
            origin = bt_aligned_text_origin(in, lo, next);
            lo = next;
        }
        status = bt_aligned_text_append(out, form + at, length, origin, err);
    }
    return status;
}

static bauta_status append_cluster(const bt_charsmap *map, bt_aligned_text *out,
                                   const bt_aligned_text *in, size_t lo,
                                   size_t hi, bauta_error *err)
{
    const char *form;
    size_t size;
    bauta_status status = BAUTA_OK;
    if (hi - lo < CLUSTER_BYTES &&
        bt_charsmap_find(map, in->bytes + lo, hi - lo, false, &form, &size))
        return append_form(out, in, lo, hi, form, size, err);
    for (size_t next; !status && lo < hi; lo = next) {
        next = lo + bt_utf8_length((unsigned char)in->bytes[lo]);
        if (bt_charsmap_find(map, in->bytes + lo, next - lo, false, &form,
                             &size))
            status = append_form(out, in, lo, next, form, size, err);
        else
            status = bt_aligned_text_append_range(out, in, lo, next, err);
    }
    return status;
}

static bauta_status precompiled_run(const bt_normalizer_step *step,
                                    bt_aligned_text *text, bauta_error *err)
{
    bt_aligned_text out;
    bauta_status status = BAUTA_OK;
    bt_aligned_text_init_empty(&out);
    for (size_t lo = 0, hi; !status && lo < text->size; lo = hi) {
        hi = cluster_end(text, lo);
        status = append_cluster(step->data, &out, text, lo, hi, err);
    }
    if (!status)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    return status;
}

static void precompiled_free(void *data)
{
    bt_charsmap_free(data);
}

bauta_status bt_normalizer_step_precompiled(bt_normalizer_step *step,
                                            const json_t *json,
                                            const char *path, bauta_error *err)
{
    const json_t *value = json_object_get(json, "precompiled_charsmap");
    size_t size = json_string_length(value);
    bt_charsmap *map = NULL;
    if (!json_is_string(value))
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: \"Precompiled\" has no \"precompiled_charsmap\"",
                       bt_path_tail(path));
    unsigned char *bytes = bt_alloc(size / 4 * 3);
    if (!bytes)
        return bt_fail_memory(err, "a map of characters", size / 4 * 3);
    bauta_status status;
    if (!base64_decode(bytes, &size, json_string_value(value), size))
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: \"precompiled_charsmap\" is not base 64",
                         bt_path_tail(path));
    else
        status = bt_charsmap_create(&map, bytes, size, path, err);
    bt_free(bytes);
    if (!status)
        *step = (bt_normalizer_step){ .run = precompiled_run,
                                      .free = precompiled_free,
                                      .data = map };
    return status;
}
