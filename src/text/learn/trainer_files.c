/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_files.c - training texts from files, which may be larger than
 * memory. */
#include "base/array.h"
#include "base/memory.h"
#include "base/sized.h"
#include "text/io/text_file.h"
#include "text/learn/tokenizer_trainer.h"

#include <string.h>

enum { PART = 256 << 10 }; /* about how many bytes are counted at once */

typedef struct file_reader {
    bauta_tokenizer_trainer *vocabulary;
    bauta_corpus_options options;
    bauta_text_file *file;
    char *held; /* text that is not counted yet */
    size_t size, room;
    size_t searched; /* bytes of it where it cannot be divided */
    bool continues;  /* the start of the text was counted before */
} file_reader;

/* Count the first `size` bytes that are held. */
static bauta_status part_count(file_reader *r, size_t size, bauta_error *err)
{
    bauta_status status = bt_tokenizer_trainer_add_part(
        r->vocabulary, r->held ? r->held : "", size, r->continues, err);
    r->continues = true;
    r->size -= size;
    r->searched = 0;
    if (r->size)
        memmove(r->held, r->held + size, r->size);
    return status;
}

static bauta_status parts_count(file_reader *r, bauta_error *err)
{
    bool local = bt_tokenizer_trainer_takes_parts(r->vocabulary);
    for (size_t at = r->size; local && at-- > r->searched + 1;)
        if (bt_is_word_start(r->held, 0, at))
            return part_count(r, at, err);
    r->searched = r->size - 1;
    if (r->size <= BT_TEXT_LINE_MAX)
        return BAUTA_OK;
    return bt_text_file_fail(r->file, bauta_text_file_lines(r->file) + 1,
                             "ends 64 MiB without a place to cut the text",
                             err);
}

static bauta_status text_put(file_reader *r, const char *text, size_t size,
                             bauta_error *err)
{
    if (size == 0)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(r->held, r->room, r->size, size))
        return bt_fail_memory(err, "a text", size);
    memcpy(r->held + r->size, text, size);
    r->size += size;
    if (r->size < PART || r->size - r->searched < PART / 2)
        return BAUTA_OK;
    return parts_count(r, err);
}

static bauta_status text_end(file_reader *r, bauta_error *err)
{
    bauta_status status = part_count(r, r->size, err);
    r->continues = false;
    return status;
}

/* Part of a file whose lines are texts, each with its line break. With
 * `columns` a tab ends a text too and is read as a line break. */
static bauta_status part_lines(file_reader *r, const char *part, size_t size,
                               bool columns, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t at = 0, end; !status && at < size; at = end) {
        for (end = at; end < size && part[end] != '\n' &&
                       !(columns && part[end] == '\t');)
            end++;
        status = text_put(r, part + at, end - at, err);
        if (status || end == size)
            return status;
        status = text_put(r, "\n", 1, err);
        if (!status)
            status = text_end(r, err);
        end++;
    }
    return status;
}

static bauta_status part_put(file_reader *r, const char *part, size_t size,
                             bool columns, bauta_error *err)
{
    return r->options.lines ? part_lines(r, part, size, columns, err)
                            : text_put(r, part, size, err);
}

static bauta_status file_read(file_reader *r, bool columns, bauta_error *err)
{
    bauta_status status;
    const char *part = "";
    size_t size;
    bt_text_line line = { .text = "" };
    do {
        if (r->options.skip_invalid) {
            status = bt_text_file_next_line(r->file, &line, err);
            part = line.text;
            size = line.error ? 0 : line.size_with_break;
        } else {
            status = bauta_text_file_part(r->file, &part, &size, err);
        }
        if (!status && part)
            status = part_put(r, part, size, columns, err);
    } while (!status && part);
    if (!status && (!r->options.lines || r->size || r->continues))
        status = text_end(r, err);
    return status;
}

static bauta_status file_add(file_reader *r, const char *path, bool columns,
                             bauta_error *err)
{
    bauta_status status = bauta_text_file_open(&r->file, path, err);
    if (!status)
        status = file_read(r, columns, err);
    bauta_text_file_free(r->file);
    r->file = NULL;
    return status;
}

/* ---- Public functions ---------------------------------------------------- */

static bauta_status reader_init(file_reader *r,
                                bauta_tokenizer_trainer *vocabulary,
                                const bauta_corpus_options *options,
                                bauta_error *err)
{
    *r = (file_reader){ .vocabulary = vocabulary };
    BT_NEED(vocabulary, err);
    return BT_SIZED_READ(&r->options, BAUTA_CORPUS_OPTIONS_INIT, options,
                         "options", err);
}

bauta_status bauta_tokenizer_trainer_add_files(
    bauta_tokenizer_trainer *vocabulary, const char *const *files, size_t count,
    const bauta_corpus_options *options, bauta_error *err)
{
    file_reader r;
    if (count)
        BT_NEED(files, err);
    for (size_t i = 0; i < count; i++)
        if (!files[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "files[%zu] is NULL", i);
    bauta_status status = reader_init(&r, vocabulary, options, err);
    for (size_t i = 0; !status && i < count; i++)
        status = file_add(&r, files[i], false, err);
    bt_free(r.held);
    return status;
}

bauta_status bauta_tokenizer_trainer_add_pairs(
    bauta_tokenizer_trainer *vocabulary, const char *source, const char *target,
    const bauta_corpus_options *options, bauta_error *err)
{
    file_reader r;
    BT_NEED(source, err);
    bauta_status status = reader_init(&r, vocabulary, options, err);
    r.options.lines = true;
    if (!status)
        status = file_add(&r, source, !target, err);
    if (!status && target)
        status = file_add(&r, target, false, err);
    bt_free(r.held);
    return status;
}
