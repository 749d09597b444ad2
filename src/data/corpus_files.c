/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_files.c - files of text, checked line by line and made into tokens. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "data/corpus.h"
#include "text/unicode.h"

#include <string.h>

/* A text as tokens, with its end. */
typedef struct buffer {
    uint32_t *ids;
    size_t count, room;
} buffer;

typedef struct reader {
    bauta_corpus *corpus;
    const bauta_tokenizer *tokenizer;
    bauta_corpus_options options;
    buffer text, source; /* reused */
} reader;

typedef struct line {
    const char *text;
    size_t size;
    size_t number; /* from 1 */
} line;

/* ---- lines ------------------------------------------------------------- */

/* A file, walked line by line. */
typedef struct lines {
    const char *path;
    bt_file_map map;
    size_t at, number;
} lines;

static bauta_status lines_init(lines *l, const char *path, bauta_error *err)
{
    *l = (lines){ .path = path };
    return bt_file_map_init(&l->map, path, err);
}

static bool line_next(lines *l, line *out)
{
    const char *text = (const char *)l->map.bytes;
    if (l->at == l->map.size)
        return false;
    const char *from = text + l->at;
    const char *end = memchr(from, '\n', l->map.size - l->at);
    size_t size = end ? (size_t)(end - from) : l->map.size - l->at;
    l->at += size + (end != NULL);
    if (size && from[size - 1] == '\r')
        size--;
    *out = (line){ from, size, ++l->number };
    return true;
}

/* What is wrong with a line, or NULL. */
static const char *line_wrong(const line *l)
{
    if (bt_utf8_valid(l->text, l->size) != l->size)
        return "is not UTF-8";
    return memchr(l->text, '\0', l->size) ? "holds NUL" : NULL;
}

static bauta_status fail_line(const lines *l, size_t number, const char *what,
                              bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: line %zu %s", bt_path_tail(l->path),
                   number, what);
}

/* ---- documents --------------------------------------------------------- */

/* Whether a text must be ended by hand, and with which token. */
static uint32_t ending(const bauta_tokenizer *t, const bauta_tokens *tokens)
{
    uint32_t eos = bauta_tokenizer_token(t, BAUTA_TOKEN_EOS);
    uint32_t sep = bauta_tokenizer_token(t, BAUTA_TOKEN_SEP);
    uint32_t last =
        tokens->count ? tokens->ids[tokens->count - 1] : BAUTA_NO_TOKEN;
    return tokens->count && (last == eos || last == sep) ? BAUTA_NO_TOKEN : eos;
}

static bauta_status buffer_reserve(buffer *b, size_t count, bauta_error *err)
{
    if (count <= b->room)
        return BAUTA_OK;
    bt_free(b->ids);
    b->ids = bt_alloc(count * sizeof(*b->ids));
    b->room = b->ids ? count : 0;
    return b->ids ? BAUTA_OK
                  : bt_fail_memory(err, "a document", count * sizeof(*b->ids));
}

/* A text, and where it begins. */
typedef struct passage {
    const char *text;
    size_t size;
    const char *path;
    size_t line; /* from 1 */
} passage;

/* Note the characters that the tokenizer did not know. */
static void unknown_note(bt_corpus_unknown *u, const bauta_tokenizer *tokenizer,
                         const bauta_tokens *tokens, const passage *p)
{
    bauta_unknown found =
        bauta_tokens_unknown(tokenizer, tokens, p->text, p->size);
    if (found.count && u->count == 0) {
        memcpy(u->first, p->text + found.start,
               bt_size_min(found.end - found.start, sizeof(u->first) - 1));
        strncpy(u->file, bt_path_tail(p->path), sizeof(u->file) - 1);
        u->line = p->line;
        for (size_t i = 0; i < found.start; i++)
            u->line += p->text[i] == '\n';
    }
    u->count += found.count;
}

static bauta_status buffer_encode(buffer *b, reader *r, const passage *p,
                                  bool target, bauta_error *err)
{
    const bauta_tokenizer *tokenizer = r->tokenizer;
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    how.target = target;
    bauta_status status =
        bauta_tokenizer_encode(tokenizer, p->text, p->size, &how, &tokens, err);
    if (!status)
        status = buffer_reserve(b, tokens.count + 1, err);
    if (!status) {
        uint32_t end = ending(tokenizer, &tokens);
        b->count = tokens.count;
        if (b->count)
            memcpy(b->ids, tokens.ids, b->count * sizeof(*b->ids));
        if (end != BAUTA_NO_TOKEN)
            b->ids[b->count++] = end;
        unknown_note(&r->corpus->unknown, tokenizer, &tokens, p);
    }
    bauta_tokens_release(&tokens);
    return status;
}

static bauta_status text_add(reader *r, const passage *p, bauta_error *err)
{
    bauta_status status = buffer_encode(&r->text, r, p, false, err);
    if (!status)
        status = bauta_corpus_add(r->corpus, r->text.ids, r->text.count, NULL,
                                  0, err);
    return status;
}

static bauta_status add_lines(reader *r, lines *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (line at; !status && line_next(l, &at);) {
        const char *wrong = line_wrong(&at);
        if (wrong && r->options.skip_bad)
            r->corpus->skipped++;
        else if (wrong)
            status = fail_line(l, at.number, wrong, err);
        else if (at.size)
            status = text_add(
                r, &(passage){ at.text, at.size, l->path, at.number }, err);
    }
    return status;
}

/* The whole file as one document; with skip_bad, without its bad lines. */
static bauta_status add_whole(reader *r, lines *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    char *good = NULL;
    size_t size = 0, begin = 0;
    if (r->options.skip_bad) {
        good = bt_alloc(l->map.size);
        if (!good)
            return bt_fail_memory(err, "a text", l->map.size);
    }
    for (line at; !status && line_next(l, &at); begin = l->at) {
        const char *wrong = line_wrong(&at);
        if (wrong && !good)
            status = fail_line(l, at.number, wrong, err);
        else if (wrong)
            r->corpus->skipped++;
        if (good && !wrong) {
            memcpy(good + size, l->map.bytes + begin, l->at - begin);
            size += l->at - begin;
        }
    }
    passage whole = { good, size, l->path, 1 };
    if (!good) {
        whole.text = l->map.size ? (const char *)l->map.bytes : "";
        whole.size = l->map.size;
    }
    if (!status)
        status = text_add(r, &whole, err);
    bt_free(good);
    return status;
}

static bauta_status file_add(reader *r, const char *path, bauta_error *err)
{
    lines l;
    bauta_status status = lines_init(&l, path, err);
    if (status)
        return status;
    status = r->options.lines ? add_lines(r, &l, err) : add_whole(r, &l, err);
    bt_file_map_release(&l.map);
    return status;
}

/* ---- pairs ------------------------------------------------------------- */

static bauta_status pair_add(reader *r, const passage *source,
                             const passage *target, bauta_error *err)
{
    bauta_status status = buffer_encode(&r->source, r, source, false, err);
    if (!status)
        status = buffer_encode(&r->text, r, target, true, err);
    if (!status)
        status = bauta_corpus_add(r->corpus, r->text.ids, r->text.count,
                                  r->source.ids, r->source.count, err);
    return status;
}

static const char *pair_wrong(const line *source, const line *target)
{
    const char *wrong = line_wrong(source);
    if (!wrong)
        wrong = line_wrong(target);
    if (!wrong && (source->size == 0 || target->size == 0))
        wrong = "is empty";
    return wrong;
}

/* One pair, or a failure that names the line of the side that is wrong. */
static bauta_status pair_take(reader *r, const lines *sources,
                              const line *source, const lines *targets,
                              const line *target, bauta_error *err)
{
    const char *wrong = pair_wrong(source, target);
    if (!wrong)
        return pair_add(r,
                        &(passage){ source->text, source->size, sources->path,
                                    source->number },
                        &(passage){ target->text, target->size, targets->path,
                                    target->number },
                        err);
    if (r->options.skip_bad) {
        r->corpus->skipped++;
        return BAUTA_OK;
    }
    bool first = line_wrong(source) || source->size == 0;
    return fail_line(first ? sources : targets, source->number, wrong, err);
}

static bauta_status add_two(reader *r, lines *sources, lines *targets,
                            bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    line source, target;
    for (;;) {
        bool more = line_next(sources, &source);
        bool too = line_next(targets, &target);
        if (!more && !too)
            return BAUTA_OK;
        if (more != too)
            break;
        status = pair_take(r, sources, &source, targets, &target, err);
        if (status)
            return status;
    }
    while (line_next(sources, &source) || line_next(targets, &target))
        ;
    return bt_fail(err, BAUTA_ERR_IO, "%s has %zu lines, %s has %zu",
                   bt_path_tail(sources->path), sources->number,
                   bt_path_tail(targets->path), targets->number);
}

static bauta_status add_columns(reader *r, lines *l, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (line at; !status && line_next(l, &at);) {
        const char *tab = memchr(at.text, '\t', at.size);
        size_t first = tab ? (size_t)(tab - at.text) : 0;
        line source = { at.text, first, at.number };
        line target = { at.text + first + 1, tab ? at.size - first - 1 : 0,
                        at.number };
        bool two = tab && !memchr(target.text, '\t', target.size);
        if (two)
            status = pair_take(r, l, &source, l, &target, err);
        else if (r->options.skip_bad)
            r->corpus->skipped++;
        else
            status = fail_line(l, at.number, "has not two columns", err);
    }
    return status;
}

static bauta_status pairs_add(reader *r, const char *source, const char *target,
                              bauta_error *err)
{
    lines from, to = { 0 };
    bauta_status status = lines_init(&from, source, err);
    if (status)
        return status;
    if (target)
        status = lines_init(&to, target, err);
    if (!status)
        status =
            target ? add_two(r, &from, &to, err) : add_columns(r, &from, err);
    bt_file_map_release(&from.map);
    bt_file_map_release(&to.map);
    return status;
}

/* ---- the door ---------------------------------------------------------- */

static bauta_status reader_init(reader *r, const bauta_tokenizer *tokenizer,
                                const bauta_corpus_options *options,
                                bauta_error *err)
{
    *r = (reader){ .tokenizer = tokenizer };
    r->options = (bauta_corpus_options)BAUTA_CORPUS_OPTIONS_INIT;
    if (options) {
        BT_NEED_SIZE(options, bauta_corpus_options, "BAUTA_CORPUS_OPTIONS_INIT",
                     err);
        r->options = *options;
    }
    return bauta_corpus_create(&r->corpus, err);
}

static bauta_status reader_finish(reader *r, bauta_corpus **out,
                                  bauta_status status)
{
    bt_free(r->text.ids);
    bt_free(r->source.ids);
    if (status)
        bauta_corpus_free(r->corpus);
    else
        *out = r->corpus;
    return status;
}

bauta_status bauta_corpus_load(bauta_corpus **out,
                               const bauta_tokenizer *tokenizer,
                               const char *const *files, size_t count,
                               const bauta_corpus_options *options,
                               bauta_error *err)
{
    reader r;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(tokenizer, err);
    BT_NEED(files, err);
    bauta_status status = reader_init(&r, tokenizer, options, err);
    for (size_t i = 0; !status && i < count; i++)
        status = file_add(&r, files[i], err);
    return reader_finish(&r, out, status);
}

bauta_status bauta_corpus_load_pairs(bauta_corpus **out,
                                     const bauta_tokenizer *tokenizer,
                                     const char *source, const char *target,
                                     const bauta_corpus_options *options,
                                     bauta_error *err)
{
    reader r;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(tokenizer, err);
    BT_NEED(source, err);
    bauta_status status = reader_init(&r, tokenizer, options, err);
    if (!status)
        status = pairs_add(&r, source, target, err);
    return reader_finish(&r, out, status);
}
