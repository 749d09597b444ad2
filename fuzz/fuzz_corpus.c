/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_corpus.c - any bytes as text files.
 *
 * Bits of the first byte: 1, each line is a document; 2, skip bad lines; 4,
 * pairs in two columns; 8, pairs in two files, separated by a byte 0x1E. The
 * files are refused with a message, or every document has tokens of the
 * tokenizer and as many as the corpus reports. */
#include "temp_folder.h"
#include "text/tokenizer.h"

enum { LINES = 1, SKIP_BAD = 2, COLUMNS = 4, FILES = 8, SEPARATOR = 0x1E };

static const char document[] =
    "{\"added_tokens\":[{\"id\":6,\"content\":\"</s>\",\"special\":true}],"
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,"
    "\"a\":1,\"b\":2,\"the\":3,\"mask\":4,\".\":5,\"</s>\":6}},"
    "\"pre_tokenizer\":{\"type\":\"Whitespace\"}}";

static const bauta_tokenizer *tokenizer_of(void)
{
    static bauta_tokenizer *tokenizer;
    must(tokenizer ||
         !bt_tokenizer_parse_json(&tokenizer, document, sizeof(document) - 1,
                                  "tokenizer.json", NULL));
    return tokenizer;
}

static void tokens_check(const uint32_t *tokens, size_t count)
{
    must(tokens || !count);
    for (size_t i = 0; i < count; i++)
        must(tokens[i] < bauta_tokenizer_vocab_size(tokenizer_of()));
}

static void corpus_check(const bauta_corpus *corpus, bool pairs)
{
    uint64_t all = 0;
    for (size_t i = 0; i < bauta_corpus_documents(corpus); i++) {
        size_t count, source_count;
        const uint32_t *source;
        const uint32_t *tokens =
            bauta_corpus_document(corpus, i, &count, &source, &source_count);
        must(tokens != NULL && !source == !pairs);
        tokens_check(tokens, count);
        if (source)
            tokens_check(source, source_count);
        all += count;
    }
    must(all == bauta_corpus_tokens(corpus));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bauta_corpus_options options = BAUTA_CORPUS_OPTIONS_INIT;
    bauta_corpus *corpus;
    bauta_error err = { 0 };
    char first[128], second[128];
    const char *files[] = { first, second };
    if (size == 0)
        return 0;
    temp_folder_make();
    const uint8_t how = *bytes++;
    const uint8_t *cut = memchr(bytes, SEPARATOR, --size);
    size_t length = cut ? (size_t)(cut - bytes) : size;
    temp_folder_put("first", bytes, length);
    temp_folder_put("second", cut ? cut + 1 : bytes,
                    cut ? size - length - 1 : 0);
    snprintf(first, sizeof(first), "%s", temp_folder_path("first"));
    snprintf(second, sizeof(second), "%s", temp_folder_path("second"));
    options.lines = how & LINES;
    options.skip_invalid = how & SKIP_BAD;
    bool pairs = how & (COLUMNS | FILES);
    bauta_status status =
        pairs ? bauta_corpus_load_pairs(&corpus, tokenizer_of(), first,
                                        how & FILES ? second : NULL, &options,
                                        &err)
              : bauta_corpus_load(&corpus, tokenizer_of(), files, cut ? 2 : 1,
                                  &options, &err);
    must(!corpus == !!status);
    if (status)
        must_refuse(status, &err);
    else
        corpus_check(corpus, pairs);
    bauta_corpus_free(corpus);
    return 0;
}
