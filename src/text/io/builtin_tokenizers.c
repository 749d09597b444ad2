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
    *out = bt_json_text(document, JSON_INDENT(1));
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
        bt_tokenizer_keep(tokenizer, name, text, size);
    return status;
}

/* Without this file transformers would derive the class from the model in the
 * folder: GPT-2's splits at spaces, Marian's needs SentencePiece. */
bauta_status bt_tokenizer_keep_config(bauta_tokenizer *tokenizer,
                                      bauta_error *err)
{
    static const char *const keys[BAUTA_TOKEN_NAMES] = {
        [BAUTA_TOKEN_BOS] = "bos_token",   [BAUTA_TOKEN_EOS] = "eos_token",
        [BAUTA_TOKEN_UNK] = "unk_token",   [BAUTA_TOKEN_PAD] = "pad_token",
        [BAUTA_TOKEN_CLS] = "cls_token",   [BAUTA_TOKEN_SEP] = "sep_token",
        [BAUTA_TOKEN_MASK] = "mask_token",
    };
    json_t *config =
        json_pack("{s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "clean_up_tokenization_spaces", 0);
    bool failed = !config;
    for (unsigned i = 0; i < BAUTA_TOKEN_NAMES && !failed; i++) {
        const char *piece =
            bauta_tokenizer_piece(tokenizer, tokenizer->names[i], NULL);
        if (piece)
            failed = json_object_set_new(config, keys[i], json_string(piece));
    }
    bauta_status status =
        failed ? no_memory(err)
               : store_json(tokenizer, "tokenizer_config.json", config, err);
    json_decref(config);
    return status;
}

/* Takes the document, which is NULL if memory ran out. It is written and parsed
 * as any tokenizer.json. */
static bauta_status create(bauta_tokenizer **out, json_t *document,
                           bauta_error *err)
{
    static const char name[] = "tokenizer.json";
    char *text;
    size_t size;
    bauta_status status = json_text(&text, &size, document, err);
    json_decref(document);
    if (!status)
        status = bt_tokenizer_parse_json(out, text, size, name, err);
    if (status) {
        bt_free(text);
        return status;
    }
    bt_tokenizer_keep(*out, name, text, size);
    status = bt_tokenizer_keep_config(*out, err);
    if (status) {
        bauta_tokenizer_free(*out);
        *out = NULL;
    }
    return status;
}

/* Add a character with the next id. */
static int character_add(json_t *vocab, uint32_t code)
{
    char bytes[4];
    size_t size = bt_utf8_put(bytes, code);
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

enum { CODES = 0x110000 };

/* Set the bits of the code points of a text. */
static void codes_collect(uint64_t *seen, const char *text, size_t length)
{
    for (size_t at = 0, n; at < length; at += n) {
        uint32_t code = bt_utf8_get(text + at, length - at, &n);
        seen[code / 64] |= UINT64_C(1) << code % 64;
    }
}

static json_t *codes_vocab(const uint64_t *seen)
{
    json_t *vocab = json_object();
    for (uint32_t code = 0; vocab && code < CODES; code++)
        if (seen[code / 64] >> code % 64 & 1 && character_add(vocab, code)) {
            json_decref(vocab);
            vocab = NULL;
        }
    return vocab;
}

bauta_status bauta_tokenizer_characters(bauta_tokenizer **out, const char *text,
                                        size_t length, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(text, err);
    uint64_t *seen = bt_alloc_zero(CODES / 64, sizeof(*seen));
    if (!seen)
        return no_memory(err);
    codes_collect(seen, text, length);
    bool nul = seen[0] & 1;
    json_t *vocab = nul ? NULL : codes_vocab(seen);
    bt_free(seen);
    if (nul)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the text holds NUL, which no vocabulary can");
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
