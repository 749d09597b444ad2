/* SPDX-License-Identifier: Apache-2.0 */
/* legacy_formats.c - the formats before tokenizer.json: GPT-2's vocab.json and
 * merges.txt, BERT's vocab.txt. Both are converted to the form of a
 * tokenizer.json. */
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/io/json_members.h"
#include "text/io/tokenizer_json.h"

#include <string.h>

static bauta_status fail_line(const char *path, size_t number, const char *what,
                              bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: line %zu %s", bt_path_tail(path),
                   number, what);
}

/* Takes the tree, which is NULL if memory ran out. */
static bauta_status document_init(bt_tokenizer_json *d, const char *path,
                                  json_t *root, bauta_error *err)
{
    *d = (bt_tokenizer_json){ .path = path, .root = root };
    if (!root)
        return bt_fail_memory(err, "a tokenizer's files", 0);
    return bt_vocab_create(&d->vocab, err);
}

/* ---- GPT-2 --------------------------------------------------------------- */

static bauta_status lines_check(const char *text, size_t size, const char *path,
                                bauta_error *err)
{
    const char *at = text, *line;
    size_t length, number = 0;
    while (bt_next_line(&line, &length, &at, text + size)) {
        number++;
        if (bt_utf8_valid_prefix(line, length) != length)
            return fail_line(path, number, "is not UTF-8", err);
    }
    return BAUTA_OK;
}

bauta_status bt_tokenizer_json_init_gpt2(bt_tokenizer_json *d,
                                         const char *vocab, size_t vocab_size,
                                         const char *merges, size_t merges_size,
                                         const char *vocab_path,
                                         const char *merges_path,
                                         bauta_error *err)
{
    bt_json_reader json = bt_json_reader_init(vocab_path, vocab, vocab_size);
    json.flags = BT_JSON_LINES;
    bauta_status status = document_init(
        d, vocab_path,
        json_pack("{s:{s:s,s:b,s:b},s:{s:s,s:b,s:b,s:b},s:{s:s,s:{},s:[]},"
                  "s:[]}",
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
                  "use_regex", 1, "decoder", "type", "ByteLevel",
                  "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1,
                  "model", "type", "BPE", "vocab", "merges", "added_tokens"),
        err);
    if (!status)
        status = bt_tokenizer_json_vocab(d->vocab, &json, err);
    if (!status)
        status = bt_json_expect_end(&json, err);
    if (!status)
        status = lines_check(merges, merges_size, merges_path, err);
    d->merges = merges;
    d->merges_size = merges_size;
    d->merges_are_lines = true;
    return status;
}

/* ---- BERT ---------------------------------------------------------------- */

/* vocab.txt: one piece per line, ids from 0. */
static bauta_status pieces_read(bt_vocab *vocab, const char *text, size_t size,
                                const char *path, bauta_error *err)
{
    const char *at = text, *line;
    size_t length;
    uint32_t id = 0;
    bauta_status status = BAUTA_OK;
    while (!status && bt_next_line(&line, &length, &at, text + size)) {
        if (memchr(line, '\0', length) ||
            bt_utf8_valid_prefix(line, length) != length)
            return fail_line(path, id + 1, "is not UTF-8", err);
        if (bt_vocab_find(vocab, line, length) != BT_NO_ID)
            return fail_line(path, id + 1, "is a piece that was there before",
                             err);
        status = bt_vocab_add_from_file(vocab, line, length, id++, path, err);
    }
    return status;
}

bauta_status bt_tokenizer_json_init_bert(bt_tokenizer_json *d,
                                         const char *vocab, size_t size,
                                         bool lowercase, const char *path,
                                         bauta_error *err)
{
    bauta_status status = document_init(
        d, path,
        json_pack("{s:{s:s,s:b,s:b,s:n,s:b},s:{s:s},s:{s:s,s:s,s:b},"
                  "s:{s:s,s:s,s:s,s:i,s:{}},s:[]}",
                  "normalizer", "type", "BertNormalizer", "clean_text", 1,
                  "handle_chinese_chars", 1, "strip_accents", "lowercase",
                  (int)lowercase, "pre_tokenizer", "type", "BertPreTokenizer",
                  "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1,
                  "model", "type", "WordPiece", "unk_token", "[UNK]",
                  "continuing_subword_prefix", "##", "max_input_chars_per_word",
                  100, "vocab", "added_tokens"),
        err);
    return status ? status : pieces_read(d->vocab, vocab, size, path, err);
}
