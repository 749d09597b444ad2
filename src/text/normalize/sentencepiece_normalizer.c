/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_normalizer.c - SentencePiece's normalization.
 *
 * The text is read in chunks: the longest user-defined piece at a position,
 * else the longest match of the charsmap, else one character. White space is
 * processed after mapping, since the map may turn other characters into spaces.
 *
 * A byte that is not UTF-8 is U+FFFD here but is not looked up: a map may
 * replace U+FFFD, and SentencePiece applies that only to a U+FFFD of the text.
 * The two differ in their origins. */
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/normalize/charsmap.h"
#include "text/normalize/normalizer_step.h"
#include "text/subword/trie.h"

#include <string.h>

#define METASPACE "\xE2\x96\x81" /* U+2581, an escaped space */
enum { METASPACE_SIZE = sizeof(METASPACE) - 1 };

typedef struct norm {
    bt_charsmap *map; /* or NULL */
    bt_trie kept;     /* user-defined pieces, which are not changed */
    bool dummy_prefix, remove_extra, escape, suffix, codes; /* of the spec */
} norm;

/* ---- User-defined pieces ------------------------------------------------- */

static bauta_status fill_kept(norm *s,
                              const bt_sentencepiece_normalizer_spec *spec,
                              bauta_error *err)
{
    size_t size = spec->user_defined_count * sizeof(bt_trie_key);
    bt_trie_key *keys = bt_alloc(size);
    if (!keys)
        return bt_fail_memory(err, "user-defined pieces", size);
    for (size_t i = 0; i < spec->user_defined_count; i++)
        keys[i] = (bt_trie_key){ spec->user_defined[i],
                                 (uint32_t)strlen(spec->user_defined[i]), 0 };
    bauta_status status =
        bt_trie_init(&s->kept, keys, spec->user_defined_count, err);
    bt_free(keys);
    return status;
}

/* ---- Chunks -------------------------------------------------------------- */

typedef struct mapped_chunk {
    const char *form; /* its replacement */
    size_t form_size;
    size_t size; /* bytes of the text */
} mapped_chunk;

typedef struct norm_pass {
    const norm *norm;
    const bt_aligned_text *in;
    bt_aligned_text *out;
    bauta_error *err;
    size_t at;
    size_t limit; /* of lookups: the next malformed byte */
} norm_pass;

/* The next character that replaces a malformed byte, or the end. */
static size_t find_malformed(const bt_aligned_text *in, size_t at)
{
    while (in->origins && at < in->size && !bt_aligned_text_is_repaired(in, at))
        at++;
    return in->origins ? at : in->size;
}

static mapped_chunk read_chunk(norm_pass *r)
{
    const char *text = r->in->bytes + r->at;
    mapped_chunk c = { .form = text, .form_size = 3, .size = 3 };
    if (r->at == r->limit) {
        r->limit = find_malformed(r->in, r->at + 3);
        return c;
    }
    size_t left = r->limit - r->at;
    uint32_t value;
    c.size = c.form_size =
        bt_trie_longest_prefix(&r->norm->kept, text, left, &value);
    if (c.size > 0)
        return c;
    if (r->norm->map)
        c.size = bt_charsmap_find(r->norm->map, text, left, true, &c.form,
                                  &c.form_size);
    if (c.size > 0)
        return c;
    size_t size = bt_utf8_length((unsigned char)text[0]);
    return (mapped_chunk){ text, size, size };
}

/* ---- Spaces -------------------------------------------------------------- */

static bauta_status put_space(norm_pass *r, bt_origin origin)
{
    bool escape = r->norm->escape;
    return bt_aligned_text_append(r->out, escape ? METASPACE : " ",
                                  escape ? METASPACE_SIZE : 1, origin, r->err);
}

static bauta_status put_form(norm_pass *r, const char *form, size_t size,
                             bt_origin origin)
{
    bauta_status status = BAUTA_OK;
    while (!status && size > 0) {
        const char *space = r->norm->escape ? memchr(form, ' ', size) : NULL;
        size_t plain = space ? (size_t)(space - form) : size;
        if (plain > 0)
            status =
                bt_aligned_text_append(r->out, form, plain, origin, r->err);
        if (!status && space)
            status = put_space(r, origin);
        form += plain + (space ? 1 : 0);
        size -= plain + (space ? 1 : 0);
    }
    return status;
}

static void skip_leading_spaces(norm_pass *r)
{
    while (r->at < r->in->size) {
        size_t limit = r->limit;
        mapped_chunk c = read_chunk(r);
        if (c.form_size != 1 || c.form[0] != ' ') {
            r->limit = limit;
            return;
        }
        r->at += c.size;
    }
}

static void drop_trailing_spaces(norm_pass *r, size_t from)
{
    const char *space = r->norm->escape ? METASPACE : " ";
    size_t size = r->norm->escape ? METASPACE_SIZE : 1;
    bt_aligned_text *out = r->out;
    while (out->size - from >= size &&
           memcmp(out->bytes + out->size - size, space, size) == 0)
        out->size -= size;
}

static bauta_status put_chunks(norm_pass *r)
{
    bool after_space = r->norm->remove_extra;
    bauta_status status = BAUTA_OK;
    while (!status && r->at < r->in->size) {
        mapped_chunk c = read_chunk(r);
        bt_origin origin = bt_aligned_text_origin(r->in, r->at, r->at + c.size);
        for (; after_space && c.form_size > 0 && *c.form == ' '; c.form_size--)
            c.form++;
        if (c.form_size > 0) {
            after_space =
                r->norm->remove_extra && c.form[c.form_size - 1] == ' ';
            status = put_form(r, c.form, c.form_size, origin);
        }
        r->at += c.size;
    }
    return status;
}

/* Copy Marian's language code at the start, such as ">>de<<", unchanged. */
static bauta_status put_language_code(norm_pass *r)
{
    const bt_aligned_text *in = r->in;
    if (!r->norm->codes || in->size < 4 || memcmp(in->bytes, ">>", 2) != 0)
        return BAUTA_OK;
    size_t end = 2;
    while (end + 2 <= in->size && memcmp(in->bytes + end, "<<", 2) != 0)
        end++;
    if (end + 2 > in->size)
        return BAUTA_OK;
    r->at = end + 2;
    r->limit = find_malformed(in, r->at);
    return bt_aligned_text_append_range(r->out, in, 0, r->at, r->err);
}

static bauta_status put_text(norm_pass *r)
{
    const norm *s = r->norm;
    bauta_status status = put_language_code(r);
    if (status)
        return status;
    size_t from = r->out->size, end = r->in->size;
    if (s->remove_extra)
        skip_leading_spaces(r);
    if (r->at == end)
        return BAUTA_OK;
    if (s->dummy_prefix && !s->suffix)
        status = put_space(r, bt_aligned_text_origin(r->in, r->at, r->at));
    if (!status)
        status = put_chunks(r);
    if (status)
        return status;
    if (s->remove_extra)
        drop_trailing_spaces(r, from);
    if (s->dummy_prefix && s->suffix)
        status = put_space(r, bt_aligned_text_origin(r->in, end, end));
    return status;
}

static bauta_status norm_run(const bt_normalizer_step *step,
                             bt_aligned_text *text, bauta_error *err)
{
    bt_aligned_text out;
    bt_aligned_text_init_empty(&out);
    norm_pass r = { step->data, text, &out, err, 0, find_malformed(text, 0) };
    bauta_status status = put_text(&r);
    if (!status)
        bt_aligned_text_replace(text, &out);
    bt_aligned_text_release(&out);
    return status;
}

/* ---- Creating ----------------------------------------------------------- */

static void norm_free(void *data)
{
    norm *s = data;
    bt_charsmap_free(s->map);
    bt_trie_release(&s->kept);
    bt_free(s);
}

bauta_status
bt_normalizer_step_sentencepiece(bt_normalizer_step *step,
                                 const bt_sentencepiece_normalizer_spec *spec,
                                 const char *path, bauta_error *err)
{
    norm *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return bt_fail_memory(err, "a normalizer", sizeof(*s));
    s->dummy_prefix = spec->add_dummy_prefix;
    s->remove_extra = spec->remove_extra_whitespaces;
    s->escape = spec->escape_whitespaces;
    s->suffix = spec->whitespace_as_suffix;
    s->codes = spec->language_codes;
    bauta_status status = fill_kept(s, spec, err);
    if (!status && spec->charsmap_size > 0)
        status = bt_charsmap_create(&s->map, spec->charsmap,
                                    spec->charsmap_size, path, err);
    if (status) {
        norm_free(s);
        return status;
    }
    *step =
        (bt_normalizer_step){ .run = norm_run, .free = norm_free, .data = s };
    return BAUTA_OK;
}
