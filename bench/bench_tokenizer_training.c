/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tokenizer_training.c - training a tokenizer of 8,000 pieces of each
 * kind, on one thread.
 *
 *   bench_tokenizer_training [FILE...]     the training text
 *
 * Without files the text is synthetic: words of random syllables with the
 * frequencies of Zipf's law. bench/tokenizer_training_peers.py measures other
 * trainers on the same files. */
#include "bauta.h"
#include "bench.h"

#include <math.h>

enum { PIECES = 8000, TURNS = 5, WORDS = 40000, SIZE = 5000000 };

typedef struct text {
    char *bytes;
    size_t size;
} text;

static void add(text *t, const char *bytes, size_t size)
{
    t->bytes = realloc(t->bytes, t->size + size);
    if (!t->bytes)
        exit(1);
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

static void read_file(text *t, const char *path)
{
    char block[1 << 16];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    for (size_t got; (got = fread(block, 1, sizeof(block), file));)
        add(t, block, got);
    fclose(file);
}

static uint32_t draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void word_make(char word[32])
{
    static const char *const begin[] = { "b", "d", "f", "gr", "k", "l",
                                         "m", "n", "p", "s",  "t", "st" };
    static const char *const end[] = { "a", "e", "i", "o", "u", "an", "er" };
    word[0] = '\0';
    for (uint32_t i = draw() % 4; i < 5; i++) {
        strcat(word, begin[draw() % 12]);
        strcat(word, end[draw() % 7]);
    }
}

/* Word number n is about as frequent as 1 / n. */
static text text_make(void)
{
    static char words[WORDS][32];
    text t = { .size = 0 };
    for (size_t i = 0; i < WORDS; i++)
        word_make(words[i]);
    t.bytes = malloc(SIZE + 64);
    while (t.size < SIZE) {
        double at = exp(log(WORDS) * draw() / 0x1p31);
        t.size +=
            (size_t)sprintf(t.bytes + t.size, "%s%s", words[(size_t)at % WORDS],
                            draw() % 12 ? " " : ".\n");
    }
    return t;
}

static void measure(bauta_tokenizer_kind kind, const char *name, const text *t)
{
    double seconds[TURNS];
    size_t pieces = 0;
    bauta_tokenizer_trainer_options options =
        BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    options.kind = kind;
    options.vocab_size = PIECES;
    for (int i = 0; i < TURNS; i++) {
        const char *bytes = t->bytes;
        bauta_tokenizer *tokenizer;
        bauta_error err;
        double begin = bench_now();
        if (bauta_tokenizer_train(&tokenizer, &options, &bytes, &t->size, 1,
                                  &err)) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        seconds[i] = bench_now() - begin;
        pieces = bauta_tokenizer_vocab_size(tokenizer);
        bauta_tokenizer_free(tokenizer);
    }
    double median = bench_median(seconds, TURNS);
    printf("  %-10s %6zu pieces  %7.3f s (best %7.3f)  %6.1f MB/s\n", name,
           pieces, median, seconds[0], (double)t->size / median * 1e-6);
}

int main(int argc, char **argv)
{
    text t = { .size = 0 };
    for (int i = 1; i < argc; i++)
        read_file(&t, argv[i]);
    if (argc == 1)
        t = text_make();
    printf("vocabularies from %.1f MB, median of %d\n", (double)t.size * 1e-6,
           TURNS);
    measure(BAUTA_TOKENIZER_BPE, "bpe", &t);
    measure(BAUTA_TOKENIZER_WORDPIECE, "wordpiece", &t);
    measure(BAUTA_TOKENIZER_UNIGRAM, "unigram", &t);
    free(t.bytes);
    return 0;
}
