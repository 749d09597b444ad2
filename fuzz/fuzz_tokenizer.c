/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer.c - any bytes as a tokenizer.json.
 *
 * Either they are refused with a message, or the tokenizer encodes and decodes
 * some texts. */
#include "text/tokenizer.h"

#include "tokenizer_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const texts[] = {
        "",
        "Hello world, hello 12345!",
        "  a\tb\r\n\n c  ",
        "<s>[MASK] [UNK]</s><|endoftext|>",
        "Gr\xC3\xB6\xC3\x9F ger e\xCC\x81 \xE4\xBD\xA0\xF0\x9F\x91\xA9",
        "\xFF\xC3 a\xE2\x96\x81\xED\xA0\x80z\xF4\x90\x80\x80",
    };
    bauta_tokenizer *tokenizer;
    bauta_error err = { 0 };
    if (bt_tokenizer_parse_json(&tokenizer, (const char *)bytes, size,
                                "tokenizer.json", &err)) {
        must(tokenizer == NULL && err.message[0]);
        return 0;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        text_holds(tokenizer, texts[i], strlen(texts[i]), false);
    bauta_tokenizer_free(tokenizer);
    return 0;
}
