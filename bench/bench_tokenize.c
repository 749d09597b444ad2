/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tokenize.c - encoding and decoding speed of one thread, in megabytes of
 * text a second.
 *
 *   bench_tokenize [TOKENIZER [TEXT]...]
 *
 * By default GPT-2's vocabulary and the test and validation texts of WikiText-2
 * from the data folder. A text is encoded as a whole, and line by line, as
 * bench/tokenize_peers.py has other libraries do it. */
#include "bauta.h"
#include "bench.h"

#include <unistd.h>

enum { TURNS = 9 };

typedef struct file {
    char *bytes;
    size_t size;
} file;

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static file file_read(const char *path)
{
    FILE *stream = fopen(path, "rb");
    file f = { NULL, 0 };
    if (stream && fseek(stream, 0, SEEK_END) == 0) {
        f.size = (size_t)ftell(stream);
        rewind(stream);
        f.bytes = malloc(f.size + 1);
    }
    if (!f.bytes || fread(f.bytes, 1, f.size, stream) != f.size) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(stream);
    return f;
}

/* Encode in one go or line by line; returns how many tokens there are. */
static size_t encode(const bauta_tokenizer *tokenizer, file text, bool lines)
{
    size_t count = 0;
    bauta_error err;
    for (size_t at = 0, size; at < text.size; at += size) {
        bauta_tokens tokens;
        const char *end =
            lines ? memchr(text.bytes + at, '\n', text.size - at) : NULL;
        size = end ? (size_t)(end - text.bytes) + 1 - at : text.size - at;
        must(bauta_tokenizer_encode(tokenizer, text.bytes + at, size, NULL,
                                    &tokens, &err),
             &err);
        count += tokens.count;
        bauta_tokens_release(&tokens);
    }
    return count;
}

static void encode_time(const bauta_tokenizer *tokenizer, const char *name,
                        file text, bool lines)
{
    double seconds[TURNS];
    size_t count = encode(tokenizer, text, lines); // warm-up
    for (int i = 0; i < TURNS; i++) {
        double begin = bench_now();
        encode(tokenizer, text, lines);
        seconds[i] = bench_now() - begin;
    }
    printf("encode %-6s %6.1f MB/s  %zu tokens of %zu bytes  %s\n",
           lines ? "lines" : "whole",
           (double)text.size / bench_median(seconds, TURNS) * 1e-6, count,
           text.size, name);
}

static void decode_time(const bauta_tokenizer *tokenizer, const char *name,
                        file text)
{
    double seconds[TURNS];
    bauta_tokens tokens;
    bauta_error err;
    must(bauta_tokenizer_encode(tokenizer, text.bytes, text.size, NULL, &tokens,
                                &err),
         &err);
    for (int i = 0; i < TURNS; i++) {
        char *out;
        size_t size;
        double begin = bench_now();
        must(bauta_tokenizer_decode(tokenizer, tokens.ids, tokens.count, NULL,
                                    &out, &size, &err),
             &err);
        seconds[i] = bench_now() - begin;
        bauta_text_free(out);
    }
    printf("decode        %6.1f MB/s  %s\n",
           (double)text.size / bench_median(seconds, TURNS) * 1e-6, name);
    bauta_tokens_release(&tokens);
}

static void text_time(const bauta_tokenizer *tokenizer, const char *path)
{
    file text = file_read(path);
    encode_time(tokenizer, path, text, true);
    encode_time(tokenizer, path, text, false);
    decode_time(tokenizer, path, text);
    free(text.bytes);
}

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        "../shared/data/wikitext-2-raw/wiki.test.raw",
        "../shared/data/wikitext-2-raw/wiki.valid.raw",
    };
    const char *path = argc > 1 ? argv[1] : "../shared/data/gpt2-bpe";
    bauta_tokenizer *tokenizer;
    bauta_error err;
    if (argc < 2 && access(path, R_OK) != 0) {
        printf("%s is not there; nothing is timed\n", path);
        return 0;
    }
    double begin = bench_now();
    must(bauta_tokenizer_load(&tokenizer, path, &err), &err);
    printf("load          %6.1f ms    %s\n", (bench_now() - begin) * 1e3, path);
    for (int i = 2; i < argc; i++)
        text_time(tokenizer, argv[i]);
    for (size_t i = 0; argc < 3 && i < sizeof(texts) / sizeof(*texts); i++)
        text_time(tokenizer, texts[i]);
    bauta_tokenizer_free(tokenizer);
    return 0;
}
