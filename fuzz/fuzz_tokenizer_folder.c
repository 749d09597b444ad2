/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer_folder.c - any files as a tokenizer folder: vocab.txt,
 * vocab.json and merges.txt, Marian's source.spm, target.spm and vocab.json,
 * with tokenizer_config.json and the like.
 *
 * The input is the files back to back, each after a line "=== NAME". The folder
 * is refused with a message, or the tokenizer encodes and decodes some texts,
 * and has the same size when saved and loaded again. */
#include "temp_folder.h"
#include "tokenizer_checks.h"

static const char *const names[] = {
    "vocab.txt",         "vocab.json",
    "merges.txt",        "source.spm",
    "target.spm",        "target_vocab.json",
    "encoder.json",      "vocab.bpe",
    "tokenizer.model",   "spiece.model",
    "tokenizer.json",    "tokenizer_config.json",
    "added_tokens.json", "special_tokens_map.json",
    "config.json",
};

/* The name that a line begins with, or NULL. */
static const char *name_find(const uint8_t *line, size_t size)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);
        if (length < size && !memcmp(line, names[i], length) &&
            line[length] == '\n')
            return names[i];
    }
    return NULL;
}

/* Where the next "=== " at the start of a line is. */
static size_t mark_next(const uint8_t *bytes, size_t size, size_t from)
{
    for (size_t i = from; i + 4 <= size; i++)
        if (!memcmp(bytes + i, "=== ", 4) && (i == 0 || bytes[i - 1] == '\n'))
            return i;
    return size;
}

static void folder_fill(const uint8_t *bytes, size_t size)
{
    for (size_t at = mark_next(bytes, size, 0), end; at < size; at = end) {
        end = mark_next(bytes, size, at + 4);
        const char *name = name_find(bytes + at + 4, end - at - 4);
        size_t start = name ? at + 4 + strlen(name) + 1 : end;
        // Without the line's end before the next mark.
        size_t length = end - start - (end < size && end > start);
        if (name)
            temp_folder_put(name, bytes + start, length);
    }
}

/* A saved tokenizer loads as the same one. */
static void save_and_load(const bauta_tokenizer *tokenizer)
{
    bauta_tokenizer *again;
    bauta_error err = { 0 };
    char saved[128];
    snprintf(saved, sizeof(saved), "%s", temp_folder_path("saved"));
    bauta_status status = bauta_tokenizer_save(tokenizer, saved, &err);
    if (status) {
        must_refuse(status, &err);
        return;
    }
    must(!bauta_tokenizer_load(&again, saved, &err));
    must(bauta_tokenizer_vocab_size(again) ==
         bauta_tokenizer_vocab_size(tokenizer));
    bauta_tokenizer_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const texts[] = {
        "",
        "Hello world, hello 12345!  a\tb\r\n",
        "<s>[MASK] [UNK]</s><|endoftext|> >>de<< <pad>",
        "Gr\xC3\xB6\xC3\x9F ger e\xCC\x81 \xE4\xBD\xA0 \xFF\xE2\x96\x81z",
    };
    bauta_tokenizer *tokenizer;
    bauta_error err = { 0 };
    if (!temp_folder_make())
        temp_folder_clear("");
    folder_fill(bytes, size);
    bauta_status status =
        bauta_tokenizer_load(&tokenizer, temp_folder_root, &err);
    must(!tokenizer == !!status);
    if (status) {
        must_refuse(status, &err);
        return 0;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        text_holds(tokenizer, texts[i], strlen(texts[i]), true);
    save_and_load(tokenizer);
    bauta_tokenizer_free(tokenizer);
    return 0;
}
