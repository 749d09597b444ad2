/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - creating, saving and querying a tokenizer. */
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

bauta_status bt_tokenizer_create(bauta_tokenizer **out, bauta_error *err)
{
    bauta_tokenizer *tokenizer = bt_alloc_zero(1, sizeof(*tokenizer));
    *out = tokenizer;
    if (!tokenizer)
        return bt_fail_memory(err, "a tokenizer", sizeof(*tokenizer));
    for (size_t i = 0; i < BAUTA_TOKEN_COUNT; i++)
        tokenizer->special_ids[i] = BT_NO_ID;
    return BAUTA_OK;
}

void bauta_tokenizer_free(bauta_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    bauta_tokenizer_free(tokenizer->target);
    for (size_t i = 0; i < tokenizer->file_count; i++)
        bt_free(tokenizer->files[i].bytes);
    bt_detokenizer_chain_free(tokenizer->detokenizer);
    bt_template_release(&tokenizer->pair);
    bt_template_release(&tokenizer->single);
    bt_subword_free(tokenizer->model);
    bt_pretokenizer_free(tokenizer->pretokenizer);
    bt_added_tokens_free(tokenizer->added_tokens);
    bt_normalizer_free(tokenizer->normalizer);
    bt_vocab_free(tokenizer->model_vocab);
    bt_vocab_free(tokenizer->vocab);
    bt_free(tokenizer->is_special);
    bt_free(tokenizer->unknown_surface);
    bt_free(tokenizer);
}

void bt_tokenizer_store_file(bauta_tokenizer *tokenizer, const char *name,
                             char *bytes, size_t size)
{
    if (tokenizer->file_count == BT_TOKENIZER_FILES) {
        bt_free(bytes);
        return;
    }
    tokenizer->files[tokenizer->file_count++] =
        (bt_tokenizer_file){ .name = name, .bytes = bytes, .size = size };
}

static bauta_status file_save(const bt_tokenizer_file *file, const char *folder,
                              bauta_error *err)
{
    char *path = bt_path_join(folder, file->name);
    if (!path)
        return bt_fail_memory(err, "a path", strlen(folder));
    bauta_status status = bt_file_write(path, file->bytes, file->size, err);
    bt_free(path);
    return status;
}

bauta_status bauta_tokenizer_save(const bauta_tokenizer *tokenizer,
                                  const char *folder, bauta_error *err)
{
    BT_NEED(tokenizer, err);
    BT_NEED(folder, err);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < tokenizer->file_count; i++)
        status = file_save(&tokenizer->files[i], folder, err);
    return status;
}

/* ---- Queries ------------------------------------------------------------- */

size_t bauta_tokenizer_vocab_size(const bauta_tokenizer *tokenizer)
{
    return bt_vocab_size(tokenizer->vocab);
}

const char *bauta_tokenizer_piece(const bauta_tokenizer *tokenizer, uint32_t id,
                                  size_t *length)
{
    size_t size = 0;
    const char *piece = bt_vocab_piece(tokenizer->vocab, id, &size);
    if (length)
        *length = size;
    return piece;
}

uint32_t bauta_tokenizer_find(const bauta_tokenizer *tokenizer,
                              const char *piece, size_t length)
{
    return bt_vocab_find(tokenizer->vocab, piece, length);
}

uint32_t bauta_tokenizer_special_token(const bauta_tokenizer *tokenizer,
                                       bauta_special_token name)
{
    return (unsigned)name < BAUTA_TOKEN_COUNT ? tokenizer->special_ids[name]
                                              : BAUTA_NO_TOKEN;
}

bool bauta_tokenizer_is_special(const bauta_tokenizer *tokenizer, uint32_t id)
{
    return tokenizer->is_special && id < bt_vocab_size(tokenizer->vocab) &&
           tokenizer->is_special[id];
}

bauta_status bt_tokenizer_mark_special(bauta_tokenizer *tokenizer, uint32_t id,
                                       bauta_error *err)
{
    size_t size = bt_vocab_size(tokenizer->vocab);
    if (!tokenizer->is_special) {
        tokenizer->is_special = bt_alloc_zero(size, 1);
        if (!tokenizer->is_special)
            return bt_fail_memory(err, "the marks of special tokens", size);
    }
    if (id < size)
        tokenizer->is_special[id] = 1;
    return BAUTA_OK;
}

/* ---- Unknown characters -------------------------------------------------- */

/* Count the characters of bytes [from, to), and note the first one. */
static void unknown_add(bauta_unknown *u, const char *text, size_t from,
                        size_t to)
{
    for (size_t at = from, size; at < to; at += size, u->count++) {
        bt_utf8_decode(text + at, to - at, &size);
        if (u->count == 0) {
            u->start = at;
            u->end = at + size;
        }
    }
}

/* Whether the text is the token itself: <|endoftext|> is the unknown token of
 * GPT-2, and a text may contain it. */
static bool is_piece(const bauta_tokenizer *t, uint32_t id, const char *text,
                     size_t size)
{
    size_t length = 0;
    const char *piece = bt_vocab_piece(t->vocab, id, &length);
    return piece && length == size && memcmp(piece, text, size) == 0;
}

bauta_unknown bauta_tokens_unknown(const bauta_tokenizer *t,
                                   const bauta_tokens *tokens, const char *text,
                                   size_t length)
{
    bauta_unknown found = { 0, 0, 0 };
    uint32_t unknown = t->special_ids[BAUTA_TOKEN_UNK];
    bool gaps = unknown == BT_NO_ID && !t->normalizer &&
                (!t->pretokenizer || t->bytelevel);
    size_t done = 0; // bytes of the text that tokens cover
    for (size_t i = 0; i < tokens->count; i++) {
        size_t from = tokens->starts[i], to = tokens->ends[i];
        if (gaps && from > done)
            unknown_add(&found, text, done, from);
        if (tokens->ids[i] == unknown &&
            !is_piece(t, unknown, text + from, to - from))
            unknown_add(&found, text, from, to);
        done = to > done ? to : done;
    }
    if (gaps && length > done)
        unknown_add(&found, text, done, length);
    return found;
}
