/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_load.c - reading and tokenizing text files.
 *
 * Texts are read and encoded in chunks. A document that is larger than one
 * chunk is split where that changes no token (see text/boundary.h). */
#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "data/corpus.h"
#include "text/chunk_boundary.h"
#include "text/io/text_file.h"

#include <string.h>

enum { CHUNK = 256 << 10 }; /* bytes that are encoded at once, about */

/* The tokens of a text, with the end token. */
typedef struct buffer {
    uint32_t *ids;
    size_t count, room;
} buffer;

typedef struct corpus_reader {
    bauta_corpus *corpus;
    const bauta_tokenizer *tokenizer;
    bauta_corpus_options options;
    bt_chunk_boundary boundary;
    buffer text, source; /* reused */
    /* The current document: bytes that are not encoded yet. */
    char *held;
    size_t held_size, held_room;
    size_t searched;  /* bytes of these without a split point */
    bool begun;       /* a chunk of the document was encoded */
    uint32_t last;    /* the last token of that chunk */
    const char *name; /* of the file */
    size_t line;      /* in which `held` begins */
} corpus_reader;

/* ---- documents --------------------------------------------------------- */

/* The end token to append to a text, or BAUTA_NO_TOKEN if it has one. `last` is
 * its last token, or BAUTA_NO_TOKEN. */
static uint32_t ending(const bauta_tokenizer *t, uint32_t last)
{
    uint32_t eos = bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS);
    uint32_t sep = bauta_tokenizer_special_token(t, BAUTA_TOKEN_SEP);
    bool ended = last != BAUTA_NO_TOKEN && (last == eos || last == sep);
    return ended ? BAUTA_NO_TOKEN : eos;
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

/* A text and its position in a file. */
typedef struct passage {
    const char *text;
    size_t size;
    const char *name; /* of the file */
    size_t line;      /* from 1 */
} passage;

static size_t newlines(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\n';
    return count;
}

/* Count the characters unknown to the tokenizer, and note the first. */
static void unknown_note(bt_corpus_unknown *u, const bauta_tokenizer *tokenizer,
                         const bauta_tokens *tokens, const passage *p)
{
    bauta_unknown found =
        bauta_tokens_unknown(tokenizer, tokens, p->text, p->size);
    if (found.count && u->count == 0) {
        memcpy(u->first, p->text + found.start,
               bt_size_min(found.end - found.start, sizeof(u->first) - 1));
        strncpy(u->file, p->name, sizeof(u->file) - 1);
        u->line = p->line + newlines(p->text, found.start);
    }
    u->count += found.count;
}

static bauta_status buffer_encode(buffer *b, corpus_reader *r, const passage *p,
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
        uint32_t end =
            ending(tokenizer, tokens.count ? tokens.ids[tokens.count - 1]
                                           : BAUTA_NO_TOKEN);
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

/* ---- a document in chunks ---------------------------------------------- */

/* Append the tokens that the template puts before the text, or after it. */
static bauta_status template_put(corpus_reader *r, bool after, bauta_error *err)
{
    const bt_template *t = &r->tokenizer->single;
    bauta_status status = BAUTA_OK;
    bool seen = false;
    for (size_t i = 0; !status && i < t->count; i++) {
        uint32_t id = t->items[i].id;
        if (id != BT_TEMPLATE_A && seen == after) {
            status = bt_corpus_append(r->corpus, &id, 1, err);
            r->last = id;
        }
        seen |= id == BT_TEMPLATE_A;
    }
    return status;
}

/* Encode the first `size` bytes that are held. */
static bauta_status chunk_encode(corpus_reader *r, size_t size,
                                 bauta_error *err)
{
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens = { 0 };
    how.no_special_tokens = true;
    bauta_status status = r->begun ? BAUTA_OK : template_put(r, false, err);
    if (!status)
        status = bauta_tokenizer_encode(r->tokenizer, r->held, size, &how,
                                        &tokens, err);
    if (!status)
        status = bt_corpus_append(r->corpus, tokens.ids, tokens.count, err);
    if (tokens.count)
        r->last = tokens.ids[tokens.count - 1];
    if (!status)
        unknown_note(&r->corpus->unknown, r->tokenizer, &tokens,
                     &(passage){ r->held, size, r->name, r->line });
    bauta_tokens_release(&tokens);
    r->line += newlines(r->held, size);
    r->begun = true;
    r->held_size -= size;
    r->searched = 0;
    memmove(r->held, r->held + size, r->held_size);
    return status;
}

/* Encode everything up to the last split point. */
static bauta_status chunks_encode(corpus_reader *r, const bauta_text_file *file,
                                  bauta_error *err)
{
    size_t cut =
        bt_chunk_boundary_last(r->boundary, r->held, r->searched, r->held_size);
    if (cut)
        return chunk_encode(r, cut, err);
    r->searched = r->held_size - 2; // the last point may depend on later bytes
    if (r->held_size <= BT_TEXT_LINE_MAX)
        return BAUTA_OK;
    return bt_text_file_fail(file, bauta_text_file_lines(file) + 1,
                             "ends 64 MiB in which this tokenizer cannot split "
                             "the document; use one document per line",
                             err);
}

static bauta_status document_put(corpus_reader *r, const bauta_text_file *file,
                                 const char *text, size_t size,
                                 bauta_error *err)
{
    if (size == 0)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(r->held, r->held_room, r->held_size, size))
        return bt_fail_memory(err, "a document", size);
    memcpy(r->held + r->held_size, text, size);
    r->held_size += size;
    if (r->held_size < CHUNK || r->held_size - r->searched < CHUNK / 2)
        return BAUTA_OK;
    return chunks_encode(r, file, err);
}

/* The tokens are the same as those of buffer_encode(). */
static bauta_status document_end(corpus_reader *r, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!r->begun) {
        passage whole = { r->held ? r->held : "", r->held_size, r->name,
                          r->line };
        status = buffer_encode(&r->text, r, &whole, false, err);
        if (!status)
            status =
                bt_corpus_append(r->corpus, r->text.ids, r->text.count, err);
    } else {
        status = chunk_encode(r, r->held_size, err);
        if (!status)
            status = template_put(r, true, err);
        uint32_t end = ending(r->tokenizer, r->last);
        if (!status && end != BAUTA_NO_TOKEN)
            status = bt_corpus_append(r->corpus, &end, 1, err);
    }
    r->held_size = r->searched = 0;
    r->begun = false;
    return status ? status : bt_corpus_end_document(r->corpus, err);
}

/* ---- texts ------------------------------------------------------------- */

/* End a line, which is a document unless it is empty. */
static bauta_status line_end(corpus_reader *r, bauta_error *err)
{
    if (r->held_size && r->held[r->held_size - 1] == '\r')
        r->held_size--;
    bauta_status status =
        r->held_size || r->begun ? document_end(r, err) : BAUTA_OK;
    r->line++;
    return status;
}

/* Add a chunk of a file line by line. */
static bauta_status chunk_add_lines(corpus_reader *r,
                                    const bauta_text_file *file,
                                    const char *chunk, size_t size,
                                    bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t at = 0; !status && at < size;) {
        const char *stop = memchr(chunk + at, '\n', size - at);
        size_t end = stop ? (size_t)(stop - chunk) : size;
        status = document_put(r, file, chunk + at, end - at, err);
        if (!status && stop)
            status = line_end(r, err);
        at = end + (stop != NULL);
    }
    return status;
}

/* Add a file; invalid UTF-8 is an error. */
static bauta_status add_chunks(corpus_reader *r, bauta_text_file *file,
                               bauta_error *err)
{
    bauta_status status;
    const char *chunk;
    size_t size;
    while (!(status = bauta_text_file_part(file, &chunk, &size, err)) &&
           chunk) {
        status = r->options.lines ? chunk_add_lines(r, file, chunk, size, err)
                                  : document_put(r, file, chunk, size, err);
        if (status)
            break;
    }
    if (status)
        return status;
    return r->options.lines ? line_end(r, err) : document_end(r, err);
}

/* Add a file, skipping invalid lines. */
static bauta_status add_valid_lines(corpus_reader *r, bauta_text_file *file,
                                    bauta_error *err)
{
    bauta_status status;
    bt_text_line line;
    while (!(status = bt_text_file_next_line(file, &line, err)) && line.text) {
        if (line.error) {
            r->corpus->skipped++;
            r->line++;
            continue;
        }
        status = document_put(
            r, file, line.text,
            r->options.lines ? line.size : line.size_with_break, err);
        if (!status && r->options.lines)
            status = line_end(r, err);
        if (status)
            break;
    }
    return status || r->options.lines ? status : document_end(r, err);
}

static bauta_status file_add(corpus_reader *r, const char *path,
                             bauta_error *err)
{
    bauta_text_file *file = NULL;
    bauta_status status = bauta_text_file_open(&file, path, err);
    if (status)
        return status;
    r->name = bt_text_file_name(file);
    r->line = 1;
    status = r->options.skip_invalid ? add_valid_lines(r, file, err)
                                     : add_chunks(r, file, err);
    r->corpus->bytes += bt_text_file_bytes(file);
    bauta_text_file_free(file);
    return status;
}

/* ---- pairs ------------------------------------------------------------- */

/* A line of each file, or the two columns of one line. */
typedef struct pair {
    bt_text_line source, target;
} pair;

static bauta_status pair_add(corpus_reader *r, const passage *source,
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

/* Add a pair, or fail with the line of the side that is invalid. */
static bauta_status pair_take(corpus_reader *r, const bauta_text_file *sources,
                              const bauta_text_file *targets, const pair *p,
                              bauta_error *err)
{
    const bt_text_line *wrong = p->source.error   ? &p->source
                                : p->target.error ? &p->target
                                : !p->source.size ? &p->source
                                : !p->target.size ? &p->target
                                                  : NULL;
    if (!wrong)
        return pair_add(
            r,
            &(passage){ p->source.text, p->source.size,
                        bt_text_file_name(sources), p->source.number },
            &(passage){ p->target.text, p->target.size,
                        bt_text_file_name(targets), p->target.number },
            err);
    if (r->options.skip_invalid) {
        r->corpus->skipped++;
        return BAUTA_OK;
    }
    const bauta_text_file *file = wrong == &p->source ? sources : targets;
    return wrong->error
               ? bt_text_file_fail_invalid(file, wrong, err)
               : bt_text_file_fail(file, wrong->number, "is empty", err);
}

/* Count the lines of both files, for the error message. */
static bauta_status fail_lengths(bauta_text_file *sources,
                                 bauta_text_file *targets, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_text_line line = { .text = "" };
    while (!status && line.text)
        status = bt_text_file_next_line(sources, &line, err);
    line.text = "";
    while (!status && line.text)
        status = bt_text_file_next_line(targets, &line, err);
    if (status)
        return status;
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s has %zu lines, %s has %zu",
                   bt_text_file_name(sources), bauta_text_file_lines(sources),
                   bt_text_file_name(targets), bauta_text_file_lines(targets));
}

static bauta_status add_two_files(corpus_reader *r, bauta_text_file *sources,
                                  bauta_text_file *targets, bauta_error *err)
{
    pair p;
    for (;;) {
        bauta_status status = bt_text_file_next_line(sources, &p.source, err);
        if (!status)
            status = bt_text_file_next_line(targets, &p.target, err);
        if (!status && !p.source.text && !p.target.text)
            return BAUTA_OK;
        if (!status && (!p.source.text || !p.target.text))
            return fail_lengths(sources, targets, err);
        if (!status)
            status = pair_take(r, sources, targets, &p, err);
        if (status)
            return status;
    }
}

/* Split a line into two columns; false if there are not exactly two. */
static bool columns_split(pair *p, const bt_text_line *line)
{
    const char *tab = memchr(line->text, '\t', line->size);
    size_t first = tab ? (size_t)(tab - line->text) : 0;
    p->source = p->target = *line;
    p->source.size = first;
    p->target.text += first + 1;
    p->target.size -= tab ? first + 1 : 0;
    return tab && !memchr(p->target.text, '\t', p->target.size);
}

static bauta_status add_columns(corpus_reader *r, bauta_text_file *file,
                                bauta_error *err)
{
    bauta_status status;
    bt_text_line line;
    while (!(status = bt_text_file_next_line(file, &line, err)) && line.text) {
        pair p;
        if (columns_split(&p, &line))
            status = pair_take(r, file, file, &p, err);
        else if (r->options.skip_invalid)
            r->corpus->skipped++;
        else
            status = bt_text_file_fail(file, line.number,
                                       "does not have two columns", err);
        if (status)
            break;
    }
    return status;
}

static bauta_status pairs_add(corpus_reader *r, const char *source,
                              const char *target, bauta_error *err)
{
    bauta_text_file *from = NULL, *to = NULL;
    bauta_status status = bauta_text_file_open(&from, source, err);
    if (!status && target)
        status = bauta_text_file_open(&to, target, err);
    if (!status)
        status = target ? add_two_files(r, from, to, err)
                        : add_columns(r, from, err);
    if (!status)
        r->corpus->bytes +=
            bt_text_file_bytes(from) + (to ? bt_text_file_bytes(to) : 0);
    bauta_text_file_free(from);
    bauta_text_file_free(to);
    return status;
}

/* ---- public calls ------------------------------------------------------ */

static bauta_status reader_init(corpus_reader *r,
                                const bauta_tokenizer *tokenizer,
                                const bauta_corpus_options *options,
                                bauta_error *err)
{
    *r = (corpus_reader){ .tokenizer = tokenizer };
    bauta_status status = BT_SIZED_READ(&r->options, BAUTA_CORPUS_OPTIONS_INIT,
                                        options, "options", err);
    r->boundary = bt_chunk_boundary_of(tokenizer);
    r->last = BAUTA_NO_TOKEN;
    if (!status)
        status = bauta_corpus_create(&r->corpus, err);
    if (!status && r->options.memory_bytes)
        r->corpus->memory = r->options.memory_bytes;
    return status;
}

static bauta_status reader_finish(corpus_reader *r, bauta_corpus **out,
                                  bauta_status status)
{
    bt_free(r->text.ids);
    bt_free(r->source.ids);
    bt_free(r->held);
    if (r->corpus)
        bt_corpus_unload(r->corpus);
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
    corpus_reader r;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(tokenizer, err);
    BT_NEED(files, err);
    for (size_t i = 0; i < count; i++)
        if (!files[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "files[%zu] is NULL", i);
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
    corpus_reader r;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(tokenizer, err);
    BT_NEED(source, err);
    bauta_status status = reader_init(&r, tokenizer, options, err);
    if (!status)
        status = pairs_add(&r, source, target, err);
    return reader_finish(&r, out, status);
}
