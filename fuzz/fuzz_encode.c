/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_encode.c - any bytes as text, for tokenizers of each kind.
 *
 * For byte-level tokenizers, decoding gives back well-formed text, and the
 * tokens of any text cover every byte once. */
#include "base/utf8.h"
#include "text/tokenizer.h"

#include "tokenizer_checks.h"

#define VOCAB                                                               \
    "\"a\":0,\"b\":1,\"e\":2,\"l\":3,\"ab\":4,\"el\":5,\"abel\":6,\"?\":7," \
    "\"##a\":8,\"##b\":9,\"\xE2\x96\x81\":10,\"\xE2\x96\x81"                \
    "a\":11"

static const char *const documents[] = {
    "{\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
    "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},"
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\","
    "\"continuing_subword_prefix\":\"##\",\"vocab\":{" VOCAB "}}}",

    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
    "\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":"
    "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":"
    "\" \",\"start\":1,\"stop\":0}]},"
    "\"added_tokens\":[{\"id\":12,\"content\":\"<s>\",\"special\":true,"
    "\"lstrip\":true},{\"id\":13,\"content\":\"be\",\"single_word\":true,"
    "\"normalized\":true}],"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,"
    "\"byte_fallback\":true,\"vocab\":{" VOCAB "},"
    "\"merges\":[\"a b\",\"e l\",\"ab el\",\"\xE2\x96\x81 a\"]}}",

    "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":"
    "\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":"
    "\"always\",\"split\":true},\"decoder\":{\"type\":\"Metaspace\","
    "\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],"
    "[\"a\",-2.5],[\"b\",-3],[\"ab\",-4.5],[\"\xE2\x96\x81\",-2],"
    "[\"\xE2\x96\x81"
    "a\",-3.5],[\"\xC3\xA9\",-6]]}}",

    "{\"normalizer\":{\"type\":\"NFD\"},\"pre_tokenizer\":{\"type\":"
    "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":\"\\\\p{N}{1,3}|\\\\s+(?!\\\\S)\"},\"behavior\":"
    "\"MergedWithNext\",\"invert\":false},{\"type\":\"Punctuation\"},"
    "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":"
    "\"Whitespace\"}]},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
    "\"vocab\":{" VOCAB "}}}",
};

enum { DOCUMENTS = sizeof(documents) / sizeof(documents[0]) };

static bauta_tokenizer *tokenizers[DOCUMENTS + 1];

static void tokenizers_make(void)
{
    if (tokenizers[DOCUMENTS])
        return;
    for (size_t i = 0; i < DOCUMENTS; i++)
        must(!bt_tokenizer_parse_json(&tokenizers[i], documents[i],
                                      strlen(documents[i]), "document", NULL));
    must(!bauta_tokenizer_bytes(&tokenizers[DOCUMENTS], NULL));
}

/* A token for each byte. */
static void bytes_hold(const bauta_tokenizer *tokenizer, const char *text,
                       size_t size)
{
    bauta_encode_options literal = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    size_t length;
    literal.split_special_tokens = true; // <|endoftext|> too
    must(!bauta_tokenizer_encode(tokenizer, text, size, &literal, &tokens,
                                 NULL));
    must(tokens.count == size);
    for (size_t i = 0; i < size; i++)
        must(tokens.ids[i] == (unsigned char)text[i] && tokens.starts[i] == i &&
             tokens.ends[i] == i + 1);
    char *back = decoding_holds(tokenizer, &tokens, &length);
    if (bt_utf8_valid_prefix(text, size) == size)
        must(length == size && !memcmp(back, text, size));
    bauta_text_free(back);
    bauta_tokens_release(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *text = (const char *)bytes;
    tokenizers_make();
    for (size_t i = 0; i < DOCUMENTS; i++)
        text_holds(tokenizers[i], text ? text : "", size, false);
    bytes_hold(tokenizers[DOCUMENTS], text ? text : "", size);
    return 0;
}
