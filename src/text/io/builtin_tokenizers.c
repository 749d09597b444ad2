/* SPDX-License-Identifier: Apache-2.0 */
/* builtin_tokenizers.c - tokenizers that need no file: bytes and characters.
 *
 * Both are a BPE without merges and are stored as a tokenizer.json that other
 * libraries read. Special tokens have the last ids, so that the ids of bytes
 * and characters do not depend on them. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/io/tokenizer_config.h"
#include "text/io/tokenizer_json.h"
#include "text/subword/bytelevel.h"

#include <string.h>

static bauta_status no_memory(bauta_error *err)
{
    return bt_fail_memory(err, "a vocabulary", 0);
}

/* JSON text with a final line feed, for bt_free(). */
static bauta_status json_text(char **out, size_t *size, const json_t *document,
                              bauta_error *err)
{
    *out = bt_json_dump(document, JSON_INDENT(1));
    *size = *out ? strlen(*out) + 1 : 0;
    if (!*out)
        return no_memory(err);
    (*out)[*size - 1] = '\n'; // instead of the NUL
    return BAUTA_OK;
}

/* Store JSON in the tokenizer, for saving. */
static bauta_status store_json(bauta_tokenizer *tokenizer, const char *name,
                               const json_t *document, bauta_error *err)
{
    char *text;
    size_t size;
    bauta_status status = json_text(&text, &size, document, err);
    if (!status)
        bt_tokenizer_store_file(tokenizer, name, text, size);
    return status;
}

/* Without this file transformers would derive the class from the model in the
 * folder: GPT-2's splits at spaces, Marian's needs SentencePiece. */
bauta_status bt_tokenizer_store_config(bauta_tokenizer *tokenizer,
                                       bauta_error *err)
{
    json_t *config =
        json_pack("{s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "clean_up_tokenization_spaces", 0);
    bool failed = !config;
    for (unsigned i = 0; i < BAUTA_TOKEN_COUNT && !failed; i++) {
        const char *piece =
            bauta_tokenizer_piece(tokenizer, tokenizer->special_ids[i], NULL);
        if (piece)
            failed = json_object_set_new(config, bt_special_token_keys[i],
                                         json_string(piece));
    }
    bauta_status status =
        failed ? no_memory(err)
               : store_json(tokenizer, "tokenizer_config.json", config, err);
    json_decref(config);
    return status;
}

bauta_status bt_tokenizer_create_json(bauta_tokenizer **out, char *text,
                                      size_t size, bauta_error *err)
{
    static const char name[] = "tokenizer.json";
    bauta_status status = bt_tokenizer_parse_json(out, text, size, name, err);
    if (status) {
        bt_free(text);
        return status;
    }
    bt_tokenizer_store_file(*out, name, text, size);
    status = bt_tokenizer_store_config(*out, err);
    if (status) {
        bauta_tokenizer_free(*out);
        *out = NULL;
    }
    return status;
}

/* Takes the document, which is NULL if memory ran out. */
static bauta_status create(bauta_tokenizer **out, json_t *document,
                           bauta_error *err)
{
    char *text;
    size_t size;
    bauta_status status = json_text(&text, &size, document, err);
    json_decref(document);
    return status ? status : bt_tokenizer_create_json(out, text, size, err);
}

/* Add a character with the next id. */
static int character_add(json_t *vocab, uint32_t code)
{
    char bytes[4];
    size_t size = bt_utf8_encode(bytes, code);
    json_int_t id = (json_int_t)json_object_size(vocab);
    return json_object_setn_new(vocab, bytes, size, json_integer(id));
}

#define END "<|endoftext|>"
#define UNKNOWN "<unk>"

/* Add a special token with the next id; returns its entry of "added_tokens", or
 * NULL if memory ran out. */
static json_t *special_add(json_t *vocab, const char *content)
{
    json_int_t id = (json_int_t)json_object_size(vocab);
    if (!vocab || json_object_set_new(vocab, content, json_integer(id)))
        return NULL;
    return json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content",
                     content, "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", 1);
}

bauta_status bauta_tokenizer_bytes(bauta_tokenizer **out, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    json_t *vocab = json_object();
    for (unsigned b = 0; b < 256; b++)
        if (!vocab || character_add(vocab, bt_bytelevel_char((unsigned char)b)))
            return json_decref(vocab), no_memory(err);
    json_t *end = special_add(vocab, END);
    return create(
        out,
        json_pack("{s:s,s:[o],s:{s:s,s:b,s:b},s:{s:s},s:{s:s,s:o,s:[]}}",
                  "version", "1.0", "added_tokens", end, "pre_tokenizer",
                  "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0,
                  "decoder", "type", "ByteLevel", "model", "type", "BPE",
                  "vocab", vocab, "merges"),
        err);
}

/* ---- Characters ---------------------------------------------------------- */

void bt_char_set_add(uint64_t *set, const char *text, size_t length)
{
    for (size_t at = 0, n; at < length; at += n) {
        uint32_t code = bt_utf8_decode(text + at, length - at, &n);
        set[code / 64] |= UINT64_C(1) << code % 64;
    }
}

static json_t *char_set_vocab(const uint64_t *set)
{
    json_t *vocab = json_object();
    for (uint32_t code = 0; vocab && code < 64 * BT_CHAR_SET_WORDS; code++)
        if (set[code / 64] >> code % 64 & 1 && character_add(vocab, code)) {
            json_decref(vocab);
            vocab = NULL;
        }
    return vocab;
}

bauta_status bt_tokenizer_create_characters(bauta_tokenizer **out,
                                            const uint64_t *set,
                                            bauta_error *err)
{
    if (set[0] & 1)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the text contains NUL, which cannot be in a "
                       "vocabulary");
    json_t *vocab = char_set_vocab(set);
    if (!vocab)
        return no_memory(err);
    json_t *unknown = special_add(vocab, UNKNOWN);
    json_t *end = special_add(vocab, END);
    return create(out,
                  json_pack("{s:s,s:[o,o],s:{s:s},s:{s:s,s:s,s:o,s:[]}}",
                            "version", "1.0", "added_tokens", unknown, end,
                            "decoder", "type", "Fuse", "model", "type", "BPE",
                            "unk_token", UNKNOWN, "vocab", vocab, "merges"),
                  err);
}

bauta_status bauta_tokenizer_characters(bauta_tokenizer **out, const char *text,
                                        size_t length, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(text, err);
    uint64_t *set = bt_alloc_zero(BT_CHAR_SET_WORDS, sizeof(*set));
    if (!set)
        return no_memory(err);
    bt_char_set_add(set, text, length);
    bauta_status status = bt_tokenizer_create_characters(out, set, err);
    bt_free(set);
    return status;
}
