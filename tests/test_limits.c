/* SPDX-License-Identifier: Apache-2.0 */
/* test_limits.c - the limits that SECURITY.md promises for the memory and the
 * time that a hostile file or text takes. Each file is the worst known of its
 * kind. By default they have a few MiB; with BAUTA_LIMITS=whole, which `make
 * soak` sets, as much as is read. */
#include "memory_peak.h"
#include "tiny_models.h"

#include "text/tokenizer.h"
#include "train/checkpoint.h"

#include <time.h>

enum { MIB = 1 << 20 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool whole(void)
{
    const char *size = getenv("BAUTA_LIMITS");
    return size && !strcmp(size, "whole");
}

/* ---- Texts ----------------------------------------------------------------
 */

typedef struct text {
    char *bytes;
    size_t size;
} text;

static void text_put(text *t, const char *bytes)
{
    size_t size = strlen(bytes);
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

/* `first`, then as many of `form` as make `size` bytes with `last`. In `form`
 * '#' stands for the number of the copy, in decimal and with commas between
 * the copies where it ends with one. */
static text repeat(size_t size, const char *first, const char *form,
                   const char *last)
{
    text t = { malloc(size + 4096), 0 };
    size_t long_last = strlen(last), long_form = strlen(form) + 16;
    assert_non_null(t.bytes);
    text_put(&t, first);
    for (unsigned i = 0; t.size + long_form + long_last < size; i++)
        for (const char *c = form; *c; c++)
            if (*c == '#')
                t.size += (size_t)sprintf(t.bytes + t.size, "%u", i);
            else
                t.bytes[t.size++] = *c;
    if (t.bytes[t.size - 1] == ',')
        t.size--;
    text_put(&t, last);
    return t;
}

/* ---- Files ----------------------------------------------------------------
 */

typedef void load_fn(const char *folder);

static void load_tokenizer(const char *folder)
{
    bauta_tokenizer *tokenizer;
    bauta_error err = { 0 };
    bauta_status status = bauta_tokenizer_load(&tokenizer, folder, &err);
    if (status)
        printf("  %s\n", err.message);
    assert_int_not_equal(status, BAUTA_ERR_NOMEM);
    bauta_tokenizer_free(tokenizer);
}

static void load_model(const char *folder)
{
    bauta_model *model;
    bauta_generate_options options = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_error err = { 0 };
    bauta_status status = bauta_model_load(&model, folder, false, &err);
    if (!status)
        status = bauta_generate_options_load(&options, model, &err);
    if (status)
        printf("  %s\n", err.message);
    assert_int_not_equal(status, BAUTA_ERR_NOMEM);
    bauta_model_free(model);
}

static void load_notes(const char *folder)
{
    char *notes;
    bauta_error err = { 0 };
    assert_int_equal(bauta_checkpoint_notes(&notes, folder, &err),
                     BAUTA_ERR_FORMAT);
    printf("  %s\n", err.message);
}

static void load_codec(const char *folder)
{
    bauta_series_codec *codec;
    bauta_error err = { 0 };
    assert_int_equal(bauta_series_codec_load(&codec, folder, &err),
                     BAUTA_ERR_FORMAT);
    printf("  %s\n", err.message);
}

static void load_table(const char *folder)
{
    bauta_series *series;
    bauta_error err = { 0 };
    char path[600];
    snprintf(path, sizeof(path), "%s/table.csv", folder);
    bauta_status status = bauta_series_load(&series, path, NULL, &err);
    if (status)
        printf("  %s\n", err.message);
    assert_int_not_equal(status, BAUTA_ERR_NOMEM);
    bauta_series_free(series);
}

static void load_chat(const char *folder)
{
    bauta_chat_template *chat;
    bauta_error err = { 0 };
    bauta_status status = bauta_chat_template_load(&chat, folder, NULL, &err);
    if (status)
        printf("  %s\n", err.message);
    assert_int_not_equal(status, BAUTA_ERR_NOMEM);
    bauta_chat_template_free(chat);
}

#define WORDS(vocab)                                         \
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\"," \
    "\"vocab\":{\"a\":0" vocab "}}"
#define EIGHT "aaaaaaaa"
#define HUNDRED                                                             \
    EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT \
        "aaaa"
#define LONG HUNDRED HUNDRED HUNDRED

static const struct {
    const char *what, *file, *first, *form, *last;
    size_t most; /* MiB that are read of such a file */
    load_fn *load;
} files[] = {
    { "padding of empty objects", "tokenizer.json", "{\"padding\":[", "{},",
      "]," WORDS("") "}", 128, load_tokenizer },
    { "a member of empty objects", "tokenizer.json", "{\"x\":[", "{},", "]}",
      128, load_tokenizer },
    { "a member of empty lists", "tokenizer.json", "{\"x\":[", "[],", "]}", 128,
      load_tokenizer },
    { "a string of escapes", "tokenizer.json", "{\"x\":\"", "\\u0041", "\"}",
      128, load_tokenizer },
    { "normalizers", "tokenizer.json",
      "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[",
      "{\"type\":\"NFC\"},", "]}," WORDS("") "}", 128, load_tokenizer },
    { "added tokens", "tokenizer.json",
      "{" WORDS("") ",\"added_tokens\":[{\"id\":0,\"content\":\"a\"},",
      "{\"id\":#,\"content\":\"z#\"},", "]}", 128, load_tokenizer },
    { "words", "tokenizer.json",
      "{\"added_tokens\":[{\"id\":2000000,\"content\":\"zz\"}],"
      "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"0\",\"vocab\":{",
      "\"#\":#,", "}}}", 128, load_tokenizer },
    { "pieces of a BPE", "tokenizer.json",
      "{\"added_tokens\":[{\"id\":2000000,\"content\":\"zz\"}],"
      "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
      "\"#\":#,", "}}}", 128, load_tokenizer },
    { "merges", "tokenizer.json",
      "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[",
      "\"a a\",", "]}}", 128, load_tokenizer },
    { "pieces of a WordPiece", "tokenizer.json",
      "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"0\",\"vocab\":{",
      "\"#\":#,", "}}}", 128, load_tokenizer },
    { "long pieces of a WordPiece", "tokenizer.json",
      "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"0" LONG
      "\",\"vocab\":"
      "{",
      "\"#" LONG "\":#,", "}}}", 128, load_tokenizer },
    { "pieces of a Unigram", "tokenizer.json",
      "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[", "[\"#\",0],",
      "]}}", 128, load_tokenizer },
    { "a piece without an end", "tokenizer.json",
      "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"0\",\"vocab\":{\"0\":"
      "0,"
      "\"",
      "a", "\":1}}}", 128, load_tokenizer },
    { "lines", "vocab.txt", "[UNK]\n", "#\n", "", 128, load_tokenizer },
    { "pieces", "vocab.json", "{", "\"#\":#,", "}", 128, load_tokenizer },
    { "lines", "merges.txt", "", "a a\n", "", 128, load_tokenizer },
    { "empty objects", "tokenizer_config.json", "{\"x\":[", "{},", "]}", 16,
      load_tokenizer },
    { "added tokens", "added_tokens.json", "{", "\"#\":#,", "}", 16,
      load_tokenizer },
    { "any bytes", "special_tokens_map.json", "", "{", "", 16, load_tokenizer },
    { "empty objects", "config.json", "{\"x\":[", "{},", "]}", 1, load_model },
    { "empty objects", "generation_config.json", "{\"x\":[", "{},", "]}", 1,
      load_model },
    { "stop strings", "generation_config.json", "{\"stop_strings\":[", "\"a\",",
      "]}", 1, load_model },
    { "tensors", "model.safetensors.index.json", "{\"weight_map\":{",
      "\"#\":\"a.safetensors\",", "}}", 64, load_model },
    { "empty objects", "model.safetensors.index.json", "{\"x\":[", "{},", "]}",
      64, load_model },
    { "empty objects", "trainer.json", "{\"x\":[", "{},", "]}", 0, load_notes },
    { "empty objects", "series.json", "{\"x\":[", "{},", "]}", 0, load_codec },
    { "columns", "series.json", "{\"trained\":[", "{\"rows\":#},", "]}", 0,
      load_codec },
    { "empty cells", "table.csv", "a,b\n1,1\n", ",\n", "", 64, load_table },
    { "numbers", "table.csv", "a\n", "#\n", "", 64, load_table },
    { "dates", "table.csv", "d,a\n1999-01,1\n", "2000-01,1\n", "", 64,
      load_table },
    { "columns", "table.csv", "", "a,", "\n1\n", 64, load_table },
    { "a name", "table.csv", "", "a", "\n1\n", 64, load_table },
    { "an open quote", "table.csv", "a\n\"", ",", "", 64, load_table },
    { "text", "chat_template.jinja", "", "a", "", 1, load_chat },
    { "names", "chat_template.jinja", "", "{{a}}", "", 1, load_chat },
    { "numbers", "chat_template.jinja", "{{[", "#,", "]}}", 1, load_chat },
    { "conditions", "chat_template.jinja", "", "{%if a%}{%endif%}", "", 1,
      load_chat },
    { "open blocks", "chat_template.jinja", "", "{%if a%}", "", 1, load_chat },
    { "macros", "chat_template.jinja", "", "{%macro m#(a=#)%}{%endmacro%}", "",
      1, load_chat },
    { "a string", "chat_template.jinja", "{{'", "\\x41", "'}}", 1, load_chat },
};

/* Other files that a folder needs for the file to be read. */
static void others_write(temp_folder *s, const char *file, load_fn *load)
{
    if (load == load_tokenizer && strcmp(file, "tokenizer.json") &&
        strcmp(file, "vocab.txt"))
        temp_folder_write(s, "vocab.json", "{\"a\":0,\"aa\":1}", 14);
    if (load == load_tokenizer && strcmp(file, "tokenizer.json") &&
        strcmp(file, "vocab.txt"))
        temp_folder_write(s, "merges.txt", "a a\n", 4);
    if (load != load_model)
        return;
    temp_folder_write(s, "config.json", tinies[0].config,
                      strlen(tinies[0].config));
    if (!strcmp(file, "model.safetensors.index.json"))
        return;
    static tiny_weights w;
    tiny_weights_init(&w, s->folder);
    assert_int_equal(
        bt_safetensors_write(temp_folder_path(s, "model.safetensors"),
                             w.tensors, w.count, NULL, 0, NULL),
        0);
    tiny_weights_release(&w);
}

/* The table of SECURITY.md: the contents are held once; JSON values take at
 * most 40 MiB; a vocabulary and its model, or other results, take a multiple of
 * the file, but never more than 512 MiB. */
static size_t allowed(size_t size, size_t times)
{
    return size + 40 * (size_t)MIB +
           bt_size_min(times * size, 512 * (size_t)MIB);
}

/* Peak memory of the i-th file at a size. */
static void file_check(size_t i, size_t size)
{
    temp_folder s = temp_folder_create();
    text t = repeat(size, files[i].first, files[i].form, files[i].last);
    others_write(&s, files[i].file, files[i].load);
    temp_folder_write(&s, files[i].file, t.bytes, t.size);
    double start = seconds();
    peak_begin();
    files[i].load(s.folder);
    size_t bytes = peak_end(), times = files[i].most == 128 ? 24 : 2;
    size_t most = allowed(t.size, times);
    if (files[i].load == load_chat) // the file, its copy, and 32 MiB
        most = 2 * t.size + 32 * (size_t)MIB;
    if (files[i].load == load_table)
        most = 24 * t.size + 4 * (size_t)MIB;
    printf("%s of %s: %.1f MB, peak %.1f MB, %.1f s\n", files[i].file,
           files[i].what, 1e-6 * (double)t.size, 1e-6 * (double)bytes,
           seconds() - start);
    fflush(stdout);
    if (bytes > most)
        fail_msg("%s of %s: %zu bytes, allowed are %zu", files[i].file,
                 files[i].what, bytes, most);
    free(t.bytes);
    temp_folder_free(&s);
}

/* Sizes at which files of pieces are just within their number or their bytes,
 * and the largest that is read. */
static const size_t whole_sizes[] = { 16500000, 21500000, 35000000,
                                      128 * (size_t)MIB };

static void a_hostile_file_takes_bounded_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(files); i++) {
        size_t most = files[i].most ? files[i].most * MIB : 256 << 10;
        if (!whole())
            file_check(i, bt_size_min(most, 3 * MIB) - 64);
        for (size_t j = 0; whole() && j < BT_LEN(whole_sizes); j++)
            if (whole_sizes[j] <= most || j == 3)
                file_check(i, bt_size_min(most, whole_sizes[j]) - 64);
    }
}

/* ---- Tables ---------------------------------------------------------------
 */

/* A table of 1,024 columns and `rows` rows of missing values. */
static bauta_status table_load(size_t rows)
{
    enum { COLUMNS = 1024 };
    char line[COLUMNS + 1];
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_path(&s, "table.csv");
    FILE *file = fopen(path, "w");
    bauta_series *series;
    bauta_error err = { 0 };
    assert_non_null(file);
    memset(line, ',', COLUMNS);
    line[COLUMNS - 1] = '\n';
    line[COLUMNS] = '\0';
    fprintf(file, "%s7%s", line, line);
    for (size_t i = 1; i < rows; i++)
        fputs(line, file);
    assert_int_equal(fclose(file), 0);
    bauta_status status = bauta_series_load(&series, path, NULL, &err);
    if (status)
        printf("%zu rows: %s\n", rows, err.message);
    bauta_series_free(series);
    temp_folder_free(&s);
    return status;
}

static void a_table_has_at_most_67108864_cells(void **state)
{
    (void)state;
    if (!whole())
        skip(); // it takes 1 GiB
    assert_int_equal(table_load(65536), BAUTA_OK);
    assert_int_equal(table_load(65537), BAUTA_ERR_FORMAT);
}

/* ---- SentencePiece --------------------------------------------------------
 */

/* A model of 1 Unigram or 2 BPE, with pieces of at least `length` bytes. */
static text model_of(size_t size, char kind, size_t length)
{
    static const char unknown[] = "\x0a\x07\x0a\x03<u>\x18\x02";
    text t = { malloc(size + 4096), 0 };
    assert_non_null(t.bytes);
    text_put(&t, unknown);
    for (unsigned i = 0; t.size + length + 64 < size; i++) {
        char piece[1024];
        size_t n = (size_t)sprintf(piece, "%u", i);
        while (n < length)
            piece[n++] = 'a';
        size_t inner = n + 2 + (n > 127);
        t.bytes[t.size++] = 0x0a;
        if (inner > 127)
            t.bytes[t.size++] = (char)(inner | 0x80);
        t.bytes[t.size++] = (char)(inner > 127 ? inner >> 7 : inner);
        t.bytes[t.size++] = 0x0a;
        if (n > 127)
            t.bytes[t.size++] = (char)(n | 0x80);
        t.bytes[t.size++] = (char)(n > 127 ? n >> 7 : n);
        memcpy(t.bytes + t.size, piece, n);
        t.size += n;
    }
    memcpy(t.bytes + t.size, "\x12\x02\x18", 3);
    t.bytes[t.size + 3] = kind;
    t.size += 4;
    return t;
}

static void model_check(size_t size, char kind, size_t length)
{
    temp_folder s = temp_folder_create();
    text t = model_of(size, kind, length);
    temp_folder_write(&s, "tokenizer.model", t.bytes, t.size);
    peak_begin();
    load_tokenizer(s.folder);
    size_t bytes = peak_end();
    printf("tokenizer.model, kind %d, pieces of %zu: %.1f MB, peak %.1f MB\n",
           kind, length, 1e-6 * (double)t.size, 1e-6 * (double)bytes);
    fflush(stdout);
    assert_true(bytes <= allowed(t.size, 64));
    free(t.bytes);
    temp_folder_free(&s);
}

static void a_hostile_sentencepiece_model_takes_bounded_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char kind = (char)(1 + i % 2);
        size_t length = i < 2 ? 1 : 500;
        if (!whole())
            model_check(3 * MIB, kind, length);
        for (size_t j = 0; whole() && j < BT_LEN(whole_sizes); j++)
            model_check(whole_sizes[j] - 64, kind, length);
    }
}

/* ---- Texts that are encoded ------------------------------------------------
 */

#define SPLIT(pattern)                                                         \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}," WORDS("") "}"
#define BYTES_OF(vocab, first)                                               \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false," \
    "\"use_regex\":" first "},\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab \
    "},\"merges\":[]}}"

static bauta_tokenizer *parsed(const char *json)
{
    bauta_tokenizer *tokenizer;
    bauta_error err;
    if (bt_tokenizer_parse_json(&tokenizer, json, strlen(json), "t.json", &err))
        fail_msg("%s", err.message);
    return tokenizer;
}

static const struct {
    const char *what, *json, *unit;
    size_t longer; /* how many times the normalizer makes the text */
} texts[] = {
    { "a split for each byte", SPLIT("."), "a", 1 },
    { "a word for each two bytes", BYTES_OF("\"a\":0,\"!\":1", "true"), "!a",
      1 },
    { "one word", BYTES_OF("\"a\":0", "false"), "a", 1 },
    { "bytes that are not UTF-8", BYTES_OF("\"\\u00ff\":0", "true"), "\xff",
      1 },
    { "a lattice",
      "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],"
      "[\"a\",-1]]}}",
      "a", 1 },
    { "added tokens",
      "{\"added_tokens\":[{\"id\":1,\"content\":\"b\"}]," WORDS("") "}", "b",
      1 },
    { "added tokens among others",
      "{\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"normalized\":true}],"
      "\"normalizer\":{\"type\":\"Lowercase\"}," WORDS("") "}",
      "bB", 1 },
    { "a text that grows",
      "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
      "\"content\":\"aaaaaaaaaaaaaaaa\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
      "{\"a\":0},\"merges\":[]}}",
      "a", 16 },
    { "a text that grows too much",
      "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
      "\"content\":\"" HUNDRED "\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
      "{\"a\":0},\"merges\":[]}}",
      "a", 16 },
};

static void a_text_takes_80_bytes_a_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(texts); i++) {
        size_t size = (whole() ? 32 * MIB : MIB) / texts[i].longer;
        text t = repeat(size, "", texts[i].unit, "");
        bauta_tokens tokens = { 0 };
        peak_begin();
        bauta_tokenizer *tokenizer = parsed(texts[i].json);
        bauta_status status = bauta_tokenizer_encode(tokenizer, t.bytes, t.size,
                                                     NULL, &tokens, NULL);
        assert_int_not_equal(status, BAUTA_ERR_NOMEM);
        bauta_tokens_release(&tokens);
        bauta_tokenizer_free(tokenizer);
        size_t bytes = peak_end();
        printf("%s: %.1f bytes a byte\n", texts[i].what,
               (double)bytes / (double)t.size);
        assert_true(bytes <= 80 * texts[i].longer * t.size + MIB);
        free(t.bytes);
    }
}

/* ---- Time -----------------------------------------------------------------
 */

static const struct {
    const char *pattern, *unit;
    size_t size;
} patterns[] = {
    // Each word takes many steps, but fewer than a match may.
    { "(a+)+$", EIGHT EIGHT EIGHT "~", 1000 },
    { "(a+)+$", "a", 1000 },
    { "(a+)+$", "a", 100000 },
    { "(a|aa)+b|(a)\\\\2c", "a", 100000 },
    { "(?=a*b)a", "a", 100000 },
    { "a[^b]*(b|c)", "a", 100000 },
    { "(?:a|b)*c", "a", 100000 },
    { "a*a*a*b", "a", 100000 },
};

/* Seconds of processor time that encoding takes: `size` bytes of copies of
 * `unit`, and one that is no "a". */
static double encoding(const char *json, const char *unit, size_t size,
                       bauta_status *status, bauta_error *err)
{
    text t = repeat(size + 17, "", unit, "~");
    bauta_tokens tokens = { 0 };
    bauta_tokenizer *tokenizer = parsed(json);
    double start = seconds();
    *status =
        bauta_tokenizer_encode(tokenizer, t.bytes, t.size, NULL, &tokens, err);
    start = seconds() - start;
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(tokenizer);
    free(t.bytes);
    return start;
}

#ifdef BT_SANITIZED
static const double second = 20.0;
#else
static const double second = 1.0;
#endif

static void a_pattern_takes_less_than_a_second(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(patterns); i++) {
        char json[1024];
        bauta_status status;
        bauta_error err = { 0 };
        const char *p = patterns[i].pattern;
        snprintf(json, sizeof(json),
                 "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
                 "\"Regex\":\"%s\"},\"behavior\":\"Isolated\",\"invert\":"
                 "false}," WORDS("") "}",
                 p);
        double took =
            encoding(json, patterns[i].unit, patterns[i].size, &status, &err);
        printf("%s, %zu bytes: %.3f s %s\n", p, patterns[i].size, took,
               err.message);
        assert_true(took < second);
        if (i > 2)
            continue;
        assert_int_equal(status, BAUTA_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "the pattern \"(a+)+$\" takes too "
                                            "many steps"));
    }
}

/* Texts below the limit match as usual. */
static void a_pattern_may_backtrack_far(void **state)
{
    (void)state;
    static const char json[] = SPLIT(
        "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+|[a-z]+b(?=c)|(?:a|b)+");
    enum { SIZE = 300000 };
    char *bytes = malloc(SIZE + 1);
    bauta_tokens tokens;
    bauta_tokenizer *tokenizer = parsed(json);
    memset(bytes, ' ', SIZE / 3);
    memset(bytes + SIZE / 3, 'a', SIZE / 3);
    memset(bytes + SIZE / 3 * 2, 'a', SIZE / 3);
    bytes[SIZE - 2] = 'b';
    bytes[SIZE - 1] = 'c';
    assert_int_equal(
        bauta_tokenizer_encode(tokenizer, bytes, SIZE, NULL, &tokens, NULL), 0);
    assert_int_equal(tokens.count, 4); // spaces, the last one, letters, c
    assert_int_equal(tokens.ends[0], SIZE / 3 - 1);
    assert_int_equal(tokens.ends[2], SIZE - 1);
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(tokenizer);
    free(bytes);
}

/* A word in which every position begins like a piece that does not exist. */
static void a_long_word_takes_less_than_a_second(void **state)
{
    (void)state;
    bauta_status status;
    double took = encoding(
        "{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":"
        "1000000,\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\","
        "\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"##~\":3,\"##" LONG HUNDRED
            HUNDRED "b\":4}}}",
        "a", 100000, &status, NULL);
    printf("WordPiece, 100000 letters: %.3f s\n", took);
    assert_int_equal(status, BAUTA_OK);
    assert_true(took < second);
}

static void a_piece_that_is_too_long_is_refused(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":1000,"
        "\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"" LONG LONG "\":1}}}";
    bauta_tokenizer *tokenizer;
    bauta_error err;
    assert_int_equal(
        bt_tokenizer_parse_json(&tokenizer, json, strlen(json), "t.json", &err),
        BAUTA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "t.json: piece 1 has 600 bytes; at most "
                                     "512 are supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_file_takes_bounded_memory),
        cmocka_unit_test(a_table_has_at_most_67108864_cells),
        cmocka_unit_test(a_hostile_sentencepiece_model_takes_bounded_memory),
        cmocka_unit_test(a_text_takes_80_bytes_a_byte),
        cmocka_unit_test(a_pattern_takes_less_than_a_second),
        cmocka_unit_test(a_pattern_may_backtrack_far),
        cmocka_unit_test(a_long_word_takes_less_than_a_second),
        cmocka_unit_test(a_piece_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
