/* SPDX-License-Identifier: Apache-2.0 */
/* trained_vocab.c - the result of training: a vocabulary that starts with the
 * special tokens and the alphabet, written as a tokenizer.json. */
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "text/learn/tokenizer_trainer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const *
bt_trainer_special_tokens(const bauta_tokenizer_trainer_options *options,
                          size_t *count)
{
    static const char *const bpe[] = { "<|endoftext|>" };
    static const char *const wordpiece[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                             "[MASK]" };
    static const char *const unigram[] = { "<pad>", "<unk>", "<s>", "</s>" };
    static const struct {
        const char *const *list;
        size_t count;
    } defaults[] = {
        [BAUTA_TOKENIZER_BPE] = { bpe, BT_LEN(bpe) },
        [BAUTA_TOKENIZER_WORDPIECE] = { wordpiece, BT_LEN(wordpiece) },
        [BAUTA_TOKENIZER_UNIGRAM] = { unigram, BT_LEN(unigram) },
    };
    if (options->special_tokens) {
        *count = options->special_token_count;
        return options->special_tokens;
    }
    *count = defaults[options->kind].count;
    return defaults[options->kind].list;
}

bauta_status
bt_trained_vocab_init(bt_trained_vocab *learned,
                      const bauta_tokenizer_trainer_options *options,
                      bauta_error *err)
{
    size_t count;
    const char *const *specials = bt_trainer_special_tokens(options, &count);
    *learned = (bt_trained_vocab){ .vocab = NULL };
    bauta_status status = bt_vocab_create(&learned->vocab, err);
    for (size_t i = 0; !status && i < count; i++) {
        size_t size = strlen(specials[i]);
        // A token may be given twice.
        if (bt_vocab_find(learned->vocab, specials[i], size) == BT_NO_ID)
            status = bt_vocab_add(learned->vocab, specials[i], size,
                                  (uint32_t)bt_vocab_size(learned->vocab), err);
    }
    if (!status)
        learned->special_count = bt_vocab_size(learned->vocab);
    return status;
}

bauta_status bt_trained_vocab_add_character(bt_vocab *vocab, const char *prefix,
                                            uint32_t code, uint32_t *id,
                                            bauta_error *err)
{
    char text[8];
    size_t size = strlen(prefix);
    memcpy(text, prefix, size);
    size += bt_utf8_encode(text + size, code);
    *id = bt_vocab_find(vocab, text, size);
    if (*id != BT_NO_ID)
        return BAUTA_OK;
    *id = (uint32_t)bt_vocab_size(vocab);
    return bt_vocab_add(vocab, text, size, *id, err);
}

bauta_status
bt_trained_vocab_check_size(const bt_trained_vocab *learned,
                            const bauta_tokenizer_trainer_options *options,
                            bauta_error *err)
{
    size_t size = bt_vocab_size(learned->vocab);
    if (options->vocab_size >= size)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "a vocabulary of %zu pieces is too small: the special "
                   "tokens and the alphabet are "
                   "%zu",
                   options->vocab_size, size);
}

void bt_trained_vocab_release(bt_trained_vocab *learned)
{
    bt_vocab_free(learned->vocab);
    bt_free(learned->merges);
    bt_free(learned->scores);
    *learned = (bt_trained_vocab){ .vocab = NULL };
}

/* ---- Normalizer, pre-tokenizer, decoder ---------------------------------- */

const char *
bt_trainer_normalizer_json(const bauta_tokenizer_trainer_options *options)
{
    bool lower = options->lowercase;
    switch (options->kind) {
    case BAUTA_TOKENIZER_WORDPIECE:
        return lower ? "{\"type\": \"BertNormalizer\", \"clean_text\": true, "
                       "\"handle_chinese_chars\": true, \"strip_accents\": "
                       "null, \"lowercase\": true}"
                     : "{\"type\": \"BertNormalizer\", \"clean_text\": true, "
                       "\"handle_chinese_chars\": true, \"strip_accents\": "
                       "null, \"lowercase\": false}";
    case BAUTA_TOKENIZER_UNIGRAM:
        // As in SentencePiece: white space is one space, none at the ends.
#define UNIGRAM_NORMALIZER(lowercase)                                      \
    "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Nmt\"}, "     \
    "{\"type\": \"NFKC\"}, " lowercase "{\"type\": \"Strip\", "            \
    "\"strip_left\": true, \"strip_right\": true}, {\"type\": "            \
    "\"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \" \"" \
    "}]}"
        return lower ? UNIGRAM_NORMALIZER("{\"type\": \"Lowercase\"}, ")
                     : UNIGRAM_NORMALIZER("");
    default:
        return "null";
    }
}

#define BYTELEVEL                                             \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, " \
    "\"trim_offsets\": true, \"use_regex\": true}"
#define METASPACE                                                   \
    "{\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", " \
    "\"prepend_scheme\": \"always\", \"split\": true}"

const char *
bt_trainer_pretokenizer_json(const bauta_tokenizer_trainer_options *options)
{
    static const char *const all[] = {
        [BAUTA_TOKENIZER_BPE] = BYTELEVEL,
        [BAUTA_TOKENIZER_WORDPIECE] = "{\"type\": \"BertPreTokenizer\"}",
        [BAUTA_TOKENIZER_UNIGRAM] = METASPACE,
    };
    return all[options->kind];
}

static const char *decoder_of(const bauta_tokenizer_trainer_options *options)
{
    static const char *const all[] = {
        [BAUTA_TOKENIZER_BPE] = BYTELEVEL,
        [BAUTA_TOKENIZER_WORDPIECE] =
            "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
        [BAUTA_TOKENIZER_UNIGRAM] = METASPACE,
    };
    return all[options->kind];
}

/* ---- Writing ------------------------------------------------------------- */

typedef struct json_writer {
    char *text;
    size_t size, room;
    bool failed; /* memory ran out */
} json_writer;

static void put(json_writer *w, const char *bytes, size_t size)
{
    if (w->failed || BT_ARRAY_RESERVE(w->text, w->room, w->size, size)) {
        w->failed = true;
        return;
    }
    memcpy(w->text + w->size, bytes, size);
    w->size += size;
}

static void put_text(json_writer *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_format(json_writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For numbers: at most 127 bytes. */
static void put_format(json_writer *w, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    put_text(w, text);
}

/* Well-formed UTF-8 as a JSON string. */
static void put_string(json_writer *w, const char *text, size_t size)
{
    size_t done = 0;
    put(w, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(w, text + done, i - done);
        if (c < 0x20)
            put_format(w, "\\u%04x", c);
        else
            put(w, (char[]){ '\\', (char)c }, 2);
        done = i + 1;
    }
    put(w, text + done, size - done);
    put(w, "\"", 1);
}

/* A number from -1000 to 0 with 12 decimals, independent of the locale. */
static void put_score(json_writer *w, double score)
{
    const long long unit = 1000000000000;
    long long parts = llround(-score * (double)unit);
    put_format(w, "%s%lld.%012lld", parts ? "-" : "", parts / unit,
               parts % unit);
}

/* ---- Parts of tokenizer.json --------------------------------------------- */

static void put_piece(json_writer *w, const bt_vocab *vocab, uint32_t id)
{
    size_t size = 0;
    const char *piece = bt_vocab_piece(vocab, id, &size);
    put_string(w, piece ? piece : "", size);
}

/* Special tokens are the first pieces. */
static void put_added(json_writer *w, const bt_trained_vocab *learned,
                      size_t count)
{
    put_text(w, "  \"added_tokens\": [");
    for (uint32_t id = 0; id < count; id++) {
        put_format(w, "%s\n    {\"id\": %u, \"content\": ", id ? "," : "", id);
        put_piece(w, learned->vocab, id);
        put_text(w, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
                    "false, \"normalized\": false, \"special\": true}");
    }
    put_text(w, "\n  ],\n");
}

/* [CLS] A [SEP] B [SEP]. */
static void put_template(json_writer *w, const bt_trained_vocab *learned)
{
    uint32_t cls = bt_vocab_find(learned->vocab, "[CLS]", 5);
    uint32_t sep = bt_vocab_find(learned->vocab, "[SEP]", 5);
#define TOKEN(name, type) \
    "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": " type "}}"
#define TEXT(name, type) \
    "{\"Sequence\": {\"id\": \"" name "\", \"type_id\": " type "}}"
#define SINGLE TOKEN("[CLS]", "0") ", " TEXT("A", "0") ", " TOKEN("[SEP]", "0")
    put_text(w, "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
                "    \"single\": [" SINGLE "],\n"
                "    \"pair\": [" SINGLE ", " TEXT("B", "1") ", " TOKEN(
                    "[SEP]", "1") "],\n"
                                  "    \"special_tokens\": {");
    put_format(w, "\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [%u], ", cls);
    put_format(w, "\"tokens\": [\"[CLS]\"]}, \"[SEP]\": {\"id\": \"[SEP]\", ");
    put_format(w, "\"ids\": [%u], \"tokens\": [\"[SEP]\"]}}},\n", sep);
}

static void put_vocab(json_writer *w, const bt_vocab *vocab)
{
    size_t count = bt_vocab_size(vocab);
    put_text(w, "    \"vocab\": {");
    for (uint32_t id = 0; id < count; id++) {
        put_text(w, id ? ",\n      " : "\n      ");
        put_piece(w, vocab, id);
        put_format(w, ": %u", id);
    }
    put_text(w, "\n    }");
}

static void put_bpe(json_writer *w, const bt_trained_vocab *learned)
{
    put_text(w, "\"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                "    \"continuing_subword_prefix\": null, "
                "\"end_of_word_suffix\": null,\n"
                "    \"fuse_unk\": false, \"byte_fallback\": false, "
                "\"ignore_merges\": false,\n");
    put_vocab(w, learned->vocab);
    put_text(w, ",\n    \"merges\": [");
    for (size_t i = 0; i < learned->merge_count; i++) {
        put_text(w, i ? ",\n      [" : "\n      [");
        put_piece(w, learned->vocab, learned->merges[i].left);
        put_text(w, ", ");
        put_piece(w, learned->vocab, learned->merges[i].right);
        put_text(w, "]");
    }
    put_text(w, "\n    ]\n");
}

static void put_wordpiece(json_writer *w, const bt_trained_vocab *learned)
{
    put_text(w, "\"WordPiece\", \"unk_token\": \"[UNK]\",\n"
                "    \"continuing_subword_prefix\": \"##\", "
                "\"max_input_chars_per_word\": 100,\n");
    put_vocab(w, learned->vocab);
    put_text(w, "\n");
}

static void put_unigram(json_writer *w, const bt_trained_vocab *learned)
{
    size_t count = bt_vocab_size(learned->vocab);
    put_format(w, "\"Unigram\", \"unk_id\": %u, \"byte_fallback\": false,\n",
               bt_vocab_find(learned->vocab, "<unk>", 5));
    put_text(w, "    \"vocab\": [");
    for (uint32_t id = 0; id < count; id++) {
        put_text(w, id ? ",\n      [" : "\n      [");
        put_piece(w, learned->vocab, id);
        put_text(w, ", ");
        put_score(w, learned->scores[id]);
        put_text(w, "]");
    }
    put_text(w, "\n    ]\n");
}

static void put_model(json_writer *w, const bt_trained_vocab *learned,
                      bauta_tokenizer_kind kind)
{
    put_text(w, "  \"model\": {\"type\": ");
    if (kind == BAUTA_TOKENIZER_BPE)
        put_bpe(w, learned);
    else if (kind == BAUTA_TOKENIZER_WORDPIECE)
        put_wordpiece(w, learned);
    else
        put_unigram(w, learned);
    put_text(w, "  }\n}\n");
}

static void put_member(json_writer *w, const char *key, const char *json)
{
    put_text(w, "  \"");
    put_text(w, key);
    put_text(w, "\": ");
    put_text(w, json);
    put_text(w, ",\n");
}

bauta_status
bt_trained_vocab_json(char **out, size_t *size, const bt_trained_vocab *learned,
                      const bauta_tokenizer_trainer_options *options,
                      bauta_error *err)
{
    json_writer w = { .text = NULL };
    const bt_vocab *vocab = learned->vocab;
    bool has_template =
        options->kind == BAUTA_TOKENIZER_WORDPIECE &&
        bt_vocab_find(vocab, "[CLS]", 5) < learned->special_count &&
        bt_vocab_find(vocab, "[SEP]", 5) < learned->special_count;
    put_text(&w, "{\n");
    put_member(&w, "version", "\"1.0\"");
    put_member(&w, "truncation", "null");
    put_member(&w, "padding", "null");
    put_added(&w, learned, learned->special_count);
    put_member(&w, "normalizer", bt_trainer_normalizer_json(options));
    put_member(&w, "pre_tokenizer", bt_trainer_pretokenizer_json(options));
    if (has_template)
        put_template(&w, learned);
    else
        put_member(&w, "post_processor", "null");
    put_member(&w, "decoder", decoder_of(options));
    put_model(&w, learned, options->kind);
    if (w.failed) {
        bt_free(w.text);
        *out = NULL;
        *size = 0;
        return bt_fail_memory(err, "a tokenizer.json", w.size);
    }
    *out = w.text;
    *size = w.size;
    return BAUTA_OK;
}
