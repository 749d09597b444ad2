/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_norm.c - SentencePiece's normalisation.
 *
 * The text is read in chunks: the longest string at this place that is to be
 * kept, else the longest that the map of characters has, else a character.
 * Spaces are sorted out in what the chunks became, so that a map which makes
 * spaces of other characters is heeded too.
 *
 * A byte that is not UTF-8 stands here as U+FFFD, but is not looked up: a map
 * may well do something to U+FFFD, and the original does it only to one that
 * was written. The two differ in their origins. */
#include "base/error.h"
#include "base/memory.h"
#include "text/charsmap.h"
#include "text/normalizer_step.h"
#include "text/trie.h"
#include "text/unicode.h"

#include <string.h>

#define BLOCK "\xE2\x96\x81" /* U+2581 stands for a space */
enum { BLOCK_SIZE = sizeof(BLOCK) - 1 };

typedef struct norm {
    bt_charsmap *map; /* or NULL */
    bt_trie kept;     /* strings that pass as they are */
    bool dummy_prefix, remove_extra, escape, suffix, codes;
} norm;

/* ---- Strings that are kept ----------------------------------------------- */

static bauta_status kept_fill(norm *s, const bt_sentencepiece_norm *spec,
                              bauta_error *err)
{
    size_t size = spec->kept_count * sizeof(bt_trie_key);
    bt_trie_key *keys = bt_alloc(size);
    if (!keys)
        return bt_fail_memory(err, "user-defined pieces", size);
    for (size_t i = 0; i < spec->kept_count; i++)
        keys[i] =
            (bt_trie_key){ spec->kept[i], (uint32_t)strlen(spec->kept[i]), 0 };
    bauta_status status = bt_trie_init(&s->kept, keys, spec->kept_count, err);
    bt_free(keys);
    return status;
}

/* ---- Chunks -------------------------------------------------------------- */

typedef struct chunk {
    const char *form; /* what it becomes */
    size_t form_size;
    size_t size; /* how many bytes of the text it is */
} chunk;

typedef struct run {
    const norm *norm;
    const bt_text *in;
    bt_text *out;
    bauta_error *err;
    size_t at;
    size_t limit; /* of what may be looked up: the next wrong byte */
} run;

/* Whether the character here stands for a byte that was not UTF-8. */
static bool is_wrong(const bt_text *in, size_t at)
{
    return in->size - at >= 3 && in->bytes[at] == '\xEF' &&
           in->bytes[at + 1] == '\xBF' && in->bytes[at + 2] == '\xBD' &&
           in->origins[at].from == in->origins[at + 2].from;
}

static size_t wrong_find(const bt_text *in, size_t at)
{
    while (in->origins && at < in->size && !is_wrong(in, at))
        at++;
    return in->origins ? at : in->size;
}

static chunk chunk_read(run *r)
{
    const char *text = r->in->bytes + r->at;
    chunk c = { .form = text, .form_size = 3, .size = 3 };
    if (r->at == r->limit) {
        r->limit = wrong_find(r->in, r->at + 3);
        return c;
    }
    size_t left = r->limit - r->at;
    uint32_t value;
    c.size = c.form_size = bt_trie_longest(&r->norm->kept, text, left, &value);
    if (c.size > 0)
        return c;
    if (r->norm->map)
        c.size = bt_charsmap_find(r->norm->map, text, left, true, &c.form,
                                  &c.form_size);
    if (c.size > 0)
        return c;
    size_t size = bt_utf8_length((unsigned char)text[0]);
    return (chunk){ text, size, size };
}

/* ---- Spaces -------------------------------------------------------------- */

static bauta_status put_space(run *r, bt_origin origin)
{
    bool escape = r->norm->escape;
    return bt_text_put(r->out, escape ? BLOCK : " ", escape ? BLOCK_SIZE : 1,
                       origin, r->err);
}

static bauta_status put_form(run *r, const char *form, size_t size,
                             bt_origin origin)
{
    bauta_status status = BAUTA_OK;
    while (!status && size > 0) {
        const char *space = r->norm->escape ? memchr(form, ' ', size) : NULL;
        size_t plain = space ? (size_t)(space - form) : size;
        if (plain > 0)
            status = bt_text_put(r->out, form, plain, origin, r->err);
        if (!status && space)
            status = put_space(r, origin);
        form += plain + (space ? 1 : 0);
        size -= plain + (space ? 1 : 0);
    }
    return status;
}

static void leading_skip(run *r)
{
    while (r->at < r->in->size) {
        size_t limit = r->limit;
        chunk c = chunk_read(r);
        if (c.form_size != 1 || c.form[0] != ' ') {
            r->limit = limit;
            return;
        }
        r->at += c.size;
    }
}

static void trailing_drop(run *r, size_t from)
{
    const char *space = r->norm->escape ? BLOCK : " ";
    size_t size = r->norm->escape ? BLOCK_SIZE : 1;
    bt_text *out = r->out;
    while (out->size - from >= size &&
           memcmp(out->bytes + out->size - size, space, size) == 0)
        out->size -= size;
}

static bauta_status chunks_put(run *r)
{
    bool after_space = r->norm->remove_extra;
    bauta_status status = BAUTA_OK;
    while (!status && r->at < r->in->size) {
        chunk c = chunk_read(r);
        bt_origin origin = bt_text_origin(r->in, r->at, r->at + c.size);
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

/* Marian's ">>de<<" at the beginning is taken over as it is. */
static bauta_status code_put(run *r)
{
    const bt_text *in = r->in;
    if (!r->norm->codes || in->size < 4 || memcmp(in->bytes, ">>", 2) != 0)
        return BAUTA_OK;
    size_t end = 2;
    while (end + 2 <= in->size && memcmp(in->bytes + end, "<<", 2) != 0)
        end++;
    if (end + 2 > in->size)
        return BAUTA_OK;
    r->at = end + 2;
    r->limit = wrong_find(in, r->at);
    return bt_text_copy(r->out, in, 0, r->at, r->err);
}

static bauta_status norm_put(run *r)
{
    const norm *s = r->norm;
    bauta_status status = code_put(r);
    if (status)
        return status;
    size_t from = r->out->size, end = r->in->size;
    if (s->remove_extra)
        leading_skip(r);
    if (r->at == end)
        return BAUTA_OK;
    if (s->dummy_prefix && !s->suffix)
        status = put_space(r, bt_text_origin(r->in, r->at, r->at));
    if (!status)
        status = chunks_put(r);
    if (status)
        return status;
    if (s->remove_extra)
        trailing_drop(r, from);
    if (s->dummy_prefix && s->suffix)
        status = put_space(r, bt_text_origin(r->in, end, end));
    return status;
}

static bauta_status step_run(const bt_step *step, bt_text *text,
                             bauta_error *err)
{
    bt_text out;
    bt_text_init_empty(&out);
    run r = { step->data, text, &out, err, 0, wrong_find(text, 0) };
    bauta_status status = norm_put(&r);
    if (!status)
        bt_text_become(text, &out);
    bt_text_release(&out);
    return status;
}

/* ---- Making it ----------------------------------------------------------- */

static void norm_free(void *data)
{
    norm *s = data;
    bt_charsmap_free(s->map);
    bt_trie_release(&s->kept);
    bt_free(s);
}

bauta_status bt_step_sentencepiece(bt_step *step,
                                   const bt_sentencepiece_norm *spec,
                                   const char *path, bauta_error *err)
{
    norm *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return bt_fail_memory(err, "a normalizer", sizeof(*s));
    s->dummy_prefix = spec->dummy_prefix;
    s->remove_extra = spec->remove_extra;
    s->escape = spec->escape;
    s->suffix = spec->suffix;
    s->codes = spec->codes;
    bauta_status status = kept_fill(s, spec, err);
    if (!status && spec->charsmap_size > 0)
        status = bt_charsmap_create(&s->map, spec->charsmap,
                                    spec->charsmap_size, path, err);
    if (status) {
        norm_free(s);
        return status;
    }
    *step = (bt_step){ .run = step_run, .free = norm_free, .data = s };
    return BAUTA_OK;
}
