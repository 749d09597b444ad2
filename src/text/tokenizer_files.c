/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_files.c - the formats before tokenizer.json: GPT-2's vocabulary and
 * merges, BERT's list of pieces. Both are brought into the shape of a
 * tokenizer.json and read as one. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "text/document.h"
#include "text/unicode.h"

#include <string.h>

static bauta_status no_memory(bauta_error *err)
{
    return bt_fail_memory(err, "a tokenizer's files", 0);
}

/* The next line of a text, without its end; false behind the last one. */
static bool line_next(const char **line, size_t *length, const char **at,
                      const char *end)
{
    if (*at == end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *at = stop ? stop + 1 : end;
    *length = (size_t)((stop ? stop : end) - *line);
    if (*length && (*line)[*length - 1] == '\r')
        (*length)--;
    return true;
}

static bauta_status bad_line(const char *path, size_t number, const char *what,
                             bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: line %zu %s", bt_path_tail(path),
                   number, what);
}

/* ---- GPT-2 ------------------------------------------------------------- */

/* merges.txt as a list of strings. It begins with a line "#version: ...". */
static bauta_status merges_list(json_t *list, const char *text, size_t size,
                                const char *path, bauta_error *err)
{
    const char *at = text, *line;
    size_t length, number = 0;
    while (line_next(&line, &length, &at, text + size)) {
        number++;
        if (length == 0 || (length >= 9 && !memcmp(line, "#version:", 9)))
            continue;
        if (bt_utf8_valid(line, length) != length)
            return bad_line(path, number, "is not UTF-8", err);
        if (json_array_append_new(list, json_stringn(line, length)))
            return no_memory(err);
    }
    return BAUTA_OK;
}

bauta_status bt_document_gpt2(json_t **out, const char *vocab,
                              size_t vocab_size, const char *merges,
                              size_t merges_size, const char *vocab_path,
                              const char *merges_path, bauta_error *err)
{
    json_t *pieces = NULL, *list = json_array();
    *out = NULL;
    if (!list)
        return no_memory(err);
    bauta_status status =
        bt_document_read(&pieces, vocab, vocab_size, vocab_path, err);
    if (!status)
        status = merges_list(list, merges, merges_size, merges_path, err);
    if (!status) {
        *out = json_pack(
            "{s:{s:s,s:b,s:b},s:{s:s,s:b,s:b,s:b},"
            "s:{s:s,s:O,s:O},s:[]}",
            "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
            "use_regex", 1, "decoder", "type", "ByteLevel", "add_prefix_space",
            1, "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE",
            "vocab", pieces, "merges", list, "added_tokens");
        if (!*out)
            status = no_memory(err);
    }
    json_decref(pieces);
    json_decref(list);
    return status;
}

/* ---- BERT -------------------------------------------------------------- */

/* vocab.txt: a piece a line, ids counting from 0. */
static bauta_status pieces_object(json_t *object, const char *text, size_t size,
                                  const char *path, bauta_error *err)
{
    const char *at = text, *line;
    size_t length, number = 0;
    while (line_next(&line, &length, &at, text + size)) {
        json_t *id = json_integer((json_int_t)number++);
        if (!id)
            return no_memory(err);
        bool wrong =
            memchr(line, '\0', length) || bt_utf8_valid(line, length) != length;
        if (wrong || json_object_getn(object, line, length)) {
            json_decref(id);
            return bad_line(path, number,
                            wrong ? "is not UTF-8"
                                  : "is a piece that was there before",
                            err);
        }
        if (json_object_setn_new(object, line, length, id))
            return no_memory(err);
    }
    return BAUTA_OK;
}

bauta_status bt_document_bert(json_t **out, const char *vocab, size_t size,
                              bool lowercase, const char *path,
                              bauta_error *err)
{
    json_t *pieces = json_object();
    *out = NULL;
    if (!pieces)
        return no_memory(err);
    bauta_status status = pieces_object(pieces, vocab, size, path, err);
    if (!status) {
        *out = json_pack(
            "{s:{s:s,s:b,s:b,s:n,s:b},s:{s:s},s:{s:s,s:s,s:b},"
            "s:{s:s,s:s,s:s,s:i,s:O},s:[]}",
            "normalizer", "type", "BertNormalizer", "clean_text", 1,
            "handle_chinese_chars", 1, "strip_accents", "lowercase",
            (int)lowercase, "pre_tokenizer", "type", "BertPreTokenizer",
            "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1,
            "model", "type", "WordPiece", "unk_token", "[UNK]",
            "continuing_subword_prefix", "##", "max_input_chars_per_word", 100,
            "vocab", pieces, "added_tokens");
        if (!*out)
            status = no_memory(err);
    }
    json_decref(pieces);
    return status;
}
