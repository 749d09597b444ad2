/* SPDX-License-Identifier: Apache-2.0 */
/* test_corpus.c - files of text and of pairs as documents of tokens. */
#include "allocation_faults.h"
#include "base/memory.h"
#include "data/epoch.h"
#include "tiny_training.h"

static bauta_tokenizer *tokenizer;
static temp_folder files;

static int setup(void **state)
{
    (void)state;
    tokenizer = tiny_tokenizer();
    files = temp_folder_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bauta_tokenizer_free(tokenizer);
    temp_folder_free(&files);
    return 0;
}

static bauta_corpus_options options(bool lines, bool skip_bad)
{
    bauta_corpus_options o = BAUTA_CORPUS_OPTIONS_INIT;
    o.lines = lines;
    o.skip_invalid = skip_bad;
    return o;
}

/* Text that may contain NUL, by its size. */
#define BYTES(text) text, sizeof(text) - 1

static bauta_status load(bauta_corpus **out, const char *text, size_t size,
                         bauta_corpus_options o, bauta_error *err)
{
    const char *path = temp_folder_write(&files, "text", text, size);
    return bauta_corpus_load(out, tokenizer, &path, 1, &o, err);
}

static bauta_status load_pairs(bauta_corpus **out, const char *source,
                               const char *target, bool skip_bad,
                               bauta_error *err)
{
    char path[512];
    bauta_corpus_options o = options(false, skip_bad);
    snprintf(path, sizeof(path), "%s",
             temp_folder_write(&files, "source", source, strlen(source)));
    if (target)
        temp_folder_write(&files, "target", target, strlen(target));
    return bauta_corpus_load_pairs(
        out, tokenizer, path,
        target ? temp_folder_path(&files, "target") : NULL, &o, err);
}

/* A document as letters; "." is the end, "?" any other special. */
static void letters_are(const uint32_t *tokens, size_t count, const char *want)
{
    char got[256];
    assert_true(count < sizeof(got));
    for (size_t i = 0; i < count; i++)
        got[i] = (char)(tokens[i] == TINY_END ? '.'
                        : tokens[i] < TINY_A  ? '?'
                                             : 'a' + (int)(tokens[i] - TINY_A));
    got[count] = '\0';
    assert_string_equal(got, want);
}

static void documents_are(bauta_corpus *corpus, size_t count,
                          const char *const *want)
{
    assert_int_equal(bauta_corpus_documents(corpus), count);
    uint64_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n, m;
        const uint32_t *source;
        const uint32_t *text =
            bauta_corpus_document(corpus, i, &n, &source, &m);
        letters_are(text, n, want[i]);
        assert_null(source);
        tokens += n;
    }
    assert_int_equal(bauta_corpus_tokens(corpus), tokens);
    assert_null(bauta_corpus_document(corpus, count, NULL, NULL, NULL));
    bauta_corpus_free(corpus);
}

static void pairs_are(bauta_corpus *corpus, size_t count,
                      const char *const (*want)[2])
{
    assert_true(bauta_corpus_pairs(corpus));
    assert_int_equal(bauta_corpus_documents(corpus), count);
    for (size_t i = 0; i < count; i++) {
        size_t n, m;
        const uint32_t *source;
        const uint32_t *text =
            bauta_corpus_document(corpus, i, &n, &source, &m);
        letters_are(source, m, want[i][0]);
        letters_are(text, n, want[i][1]);
    }
    bauta_corpus_free(corpus);
}

/* ---- texts --------------------------------------------------------------- */

static void each_line_is_a_document(void **state)
{
    (void)state;
    static const char *const want[] = { "ab.", "c.", "d." };
    static const char *const texts[] = {
        "a b\nc\nd\n",       "a b\nc\nd",         "\na b\n\n\nc\nd\n\n",
        "a b\r\nc\r\nd\r\n", "a b\r\n\r\nc\nd\r", "a b </s>\nc</s>\nd",
    };
    for (size_t i = 0; i < BT_LEN(texts); i++) {
        bauta_corpus *corpus;
        must(load(&corpus, texts[i], strlen(texts[i]), options(true, false),
                  NULL),
             &(bauta_error){ 0 });
        documents_are(corpus, 3, want);
    }
}

static void a_file_is_one_document_by_default(void **state)
{
    (void)state;
    bauta_corpus *corpus;
    bauta_error err;
    must(load(&corpus, BYTES("a b\n\nc\r\nd"), options(false, false), &err),
         &err);
    documents_are(corpus, 1, (const char *const[]){ "abcd." });
    must(load(&corpus, BYTES(""), options(false, false), &err), &err);
    documents_are(corpus, 1, (const char *const[]){ "." });
    must(load(&corpus, BYTES(""), options(false, true), &err), &err);
    documents_are(corpus, 1, (const char *const[]){ "." });
    must(load(&corpus, BYTES(""), options(true, false), &err), &err);
    documents_are(corpus, 0, NULL);
}

static void several_files_are_concatenated(void **state)
{
    (void)state;
    char paths[3][512];
    const char *list[3];
    static const char *const texts[] = { "a", "b\n", "c\nd" };
    bauta_corpus *corpus;
    bauta_error err;
    for (size_t i = 0; i < 3; i++) {
        char name[] = { (char)('0' + (int)i), '\0' };
        snprintf(paths[i], sizeof(paths[i]), "%s",
                 temp_folder_write(&files, name, texts[i], strlen(texts[i])));
        list[i] = paths[i];
    }
    must(bauta_corpus_load(&corpus, tokenizer, list, 3, NULL, &err), &err);
    documents_are(corpus, 3, (const char *const[]){ "a.", "b.", "cd." });
}

static void a_bad_line_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *message;
    } bad[] = {
        { BYTES("a\nb \xFF\nc\n"), "line 2 is not UTF-8" },
        { BYTES("a\n\nb\xC3"), "line 3 is not UTF-8" },
        { BYTES("a\xED\xA0\x80\n"), "line 1 is not UTF-8" },
        { BYTES("a\xC0\x80\n"), "line 1 is not UTF-8" },
        { BYTES("a\nb\nc\0d"), "line 3 holds NUL" },
    };
    for (size_t i = 0; i < 2 * BT_LEN(bad); i++) {
        bauta_corpus *corpus;
        bauta_error err;
        assert_int_equal(load(&corpus, bad[i / 2].text, bad[i / 2].size,
                              options(i % 2, false), &err),
                         BAUTA_ERR_FORMAT);
        assert_null(corpus);
        assert_non_null(strstr(err.message, bad[i / 2].message));
        assert_non_null(strstr(err.message, "/text: "));
    }
}

static void bad_lines_are_skipped_and_counted(void **state)
{
    (void)state;
    bauta_corpus *corpus;
    bauta_error err;
    must(load(&corpus, BYTES("a\n\xFF\nb\nc\0\n\xC3"), options(true, true),
              &err),
         &err);
    assert_int_equal(bauta_corpus_skipped(corpus), 3);
    documents_are(corpus, 2, (const char *const[]){ "a.", "b." });
    must(load(&corpus, BYTES("a\n\xFF\nb\r\nc\0\nd"), options(false, true),
              &err),
         &err);
    assert_int_equal(bauta_corpus_skipped(corpus), 2);
    documents_are(corpus, 1, (const char *const[]){ "abd." });
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    bauta_corpus *corpus;
    bauta_error err;
    const char *path = "/nowhere/at all";
    assert_int_equal(
        bauta_corpus_load(&corpus, tokenizer, &path, 1, NULL, &err),
        BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(
        bauta_corpus_load_pairs(&corpus, tokenizer, path, NULL, NULL, &err),
        BAUTA_ERR_IO);
    bauta_corpus_options o = options(true, false);
    o.size--;
    assert_int_equal(bauta_corpus_load(&corpus, tokenizer, &path, 1, &o, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "BAUTA_CORPUS_OPTIONS_INIT"));
}

static void files_that_are_null_are_refused(void **state)
{
    (void)state;
    char path[512];
    bauta_corpus *corpus;
    bauta_error err;
    snprintf(path, sizeof(path), "%s",
             temp_folder_write(&files, "text", "a", 1));
    const char *const list[] = { path, NULL };
    assert_int_equal(bauta_corpus_load(&corpus, tokenizer, list, 2, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "files[1] is NULL"));
    assert_null(corpus);
}

/* ---- counts that no memory holds ----------------------------------------- */

/* Words and line breaks, of 640 KiB: more than is encoded at once. */
enum { LARGE = 640 << 10 };

static char *large_text(bool one_line)
{
    static const char *const bits[] = { "a",  "b",  "cd", " ",    " ",
                                        "  ", "\n", "e.", "\r\n", "\n\n" };
    char *text = malloc(LARGE + 4);
    test_random r = test_random_from(3);
    size_t size = 0;
    assert_non_null(text);
    while (size < LARGE)
        size += (size_t)sprintf(text + size, "%s",
                                bits[test_below(&r, one_line ? 6 : 10)]);
    text[LARGE] = '\0';
    return text;
}

/* The tokens of a text encoded at once, and its end token. */
static void document_is(const bauta_corpus *corpus, size_t index,
                        const bauta_tokenizer *t, const char *text, size_t size)
{
    bauta_tokens want;
    size_t count;
    const uint32_t *got =
        bauta_corpus_document(corpus, index, &count, NULL, NULL);
    uint32_t end = bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS);
    assert_int_equal(bauta_tokenizer_encode(t, text, size, NULL, &want, NULL),
                     BAUTA_OK);
    bool ended = end != BAUTA_NO_TOKEN;
    assert_int_equal(count, want.count + ended);
    assert_memory_equal(got, want.ids, want.count * sizeof(*got));
    if (ended)
        assert_int_equal(got[count - 1], end);
    bauta_tokens_release(&want);
}

static bauta_tokenizer *learned(bauta_tokenizer_kind kind, const char *text)
{
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_tokenizer *made = NULL;
    bauta_error err;
    size_t size = 100000;
    o.kind = kind;
    o.vocab_size = 300;
    must(bauta_tokenizer_train(&made, &o, &text, &size, 1, &err), &err);
    return made;
}

/* A document that is encoded in parts and kept in a file has the same tokens as
 * one encoded at once. */
static void a_large_document_has_the_same_tokens(void **state)
{
    (void)state;
    for (int one_line = 0; one_line < 2; one_line++) {
        char *text = large_text(one_line);
        const char *path = temp_folder_write(&files, "large", text, LARGE);
        for (int kind = 0; kind <= BAUTA_TOKENIZER_CHARACTERS; kind++) {
            bauta_tokenizer *t = learned((bauta_tokenizer_kind)kind, text);
            bauta_corpus_options o = options(false, kind % 2);
            bauta_corpus *in_memory, *in_file;
            bauta_error err;
            o.memory_bytes = (size_t)1 << 40;
            must(bauta_corpus_load(&in_memory, t, &path, 1, &o, &err), &err);
            o.memory_bytes = 1;
            must(bauta_corpus_load(&in_file, t, &path, 1, &o, &err), &err);
            document_is(in_memory, 0, t, text, LARGE);
            document_is(in_file, 0, t, text, LARGE);
            assert_true(in_file->text.token_store.mapped);
            assert_false(in_memory->text.token_store.mapped);
            assert_int_equal(bauta_corpus_bytes(in_file), LARGE);
            assert_true(bt_corpus_digest(in_file) ==
                        bt_corpus_digest(in_memory));
            bauta_corpus_free(in_memory);
            bauta_corpus_free(in_file);
            bauta_tokenizer_free(t);
        }
        remove(path);
        free(text);
    }
}

/* A split, and the batches of an epoch, are the same for a corpus in a file. */
static void a_corpus_in_a_file_equals_one_in_memory(void **state)
{
    (void)state;
    char *text = large_text(false);
    const char *path = temp_folder_write(&files, "large", text, LARGE / 2);
    bt_packing how = { .context = 4, .tokens = 64 };
    bauta_corpus *corpus[2], *rest[2];
    bt_epoch epoch[2];
    bauta_error err;
    for (int i = 0; i < 2; i++) {
        bauta_corpus_options o = options(true, false);
        o.memory_bytes = i ? 1 : 0;
        must(bauta_corpus_load(&corpus[i], tokenizer, &path, 1, &o, &err),
             &err);
        must(bauta_corpus_split(corpus[i], 0.3, &rest[i], &err), &err);
        must(bt_epoch_init(&epoch[i], corpus[i], &how, 7, 1, &err), &err);
    }
    assert_true(epoch[1].example_store.mapped &&
                !epoch[0].example_store.mapped);
    assert_true(bt_corpus_digest(corpus[0]) == bt_corpus_digest(corpus[1]));
    assert_true(bt_corpus_digest(rest[0]) == bt_corpus_digest(rest[1]));
    assert_true(bt_corpus_digest(rest[0]) != bt_corpus_digest(corpus[0]));
    assert_true(epoch[0].count > 1000 && epoch[0].count == epoch[1].count);
    assert_memory_equal(epoch[0].examples, epoch[1].examples,
                        epoch[0].count * sizeof(*epoch[0].examples));
    for (int i = 0; i < 2; i++) {
        bt_epoch_release(&epoch[i]);
        bauta_corpus_free(corpus[i]);
        bauta_corpus_free(rest[i]);
    }
    remove(path);
    free(text);
}

/* Peak memory of the library. */
static struct {
    size_t now, most;
} counted;

static void *count_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    size_t *memory =
        aligned_alloc(align, (size + 2 * align - 1) / align * align);
    if (!memory)
        return NULL;
    counted.now += size;
    counted.most = counted.now > counted.most ? counted.now : counted.most;
    *memory = size;
    return (char *)memory + align;
}

static void count_free(void *user, void *memory)
{
    (void)user;
    char *block = (char *)memory - BT_ALIGN;
    counted.now -= *(size_t *)(void *)block;
    free(block);
}

/* Memory does not grow with the file, whether a document is one long line or
 * many, and whether or not documents are lines. */
static void memory_does_not_grow_with_the_file(void **state)
{
    (void)state;
    static const bauta_allocator allocator = { count_alloc, count_free, NULL };
    size_t most[2][3];
    for (size_t times = 1; times <= 4; times += 3)
        for (int kind = 0; kind < 3; kind++) {
            char *text = large_text(kind == 1);
            const char *path = temp_folder_path(&files, "large");
            FILE *out = fopen(path, "wb");
            for (size_t i = 0; i < times; i++)
                fwrite(text, 1, LARGE, out);
            fclose(out);
            bauta_allocator_set(&allocator);
            bauta_tokenizer *t = learned(BAUTA_TOKENIZER_BPE, text);
            bauta_corpus_options o = options(kind == 2, false);
            bauta_corpus *corpus;
            bauta_error err;
            o.memory_bytes = 64 << 10;
            counted.most = counted.now;
            must(bauta_corpus_load(&corpus, t, &path, 1, &o, &err), &err);
            most[times > 1][kind] = counted.most;
            bauta_corpus_free(corpus);
            bauta_tokenizer_free(t);
            assert_int_equal(counted.now, 0);
            bauta_allocator_set(NULL);
            remove(path);
            free(text);
        }
    for (int kind = 0; kind < 3; kind++) {
        printf("%zu KiB for 640 KiB, %zu KiB for 2.5 MiB\n",
               most[0][kind] >> 10, most[1][kind] >> 10);
        assert_true(most[1][kind] < most[0][kind] + (64 << 10));
        assert_true(most[1][kind] < (size_t)32 << 20);
    }
}

static void a_missing_folder_is_named(void **state)
{
    (void)state;
    const char *before = getenv("TMPDIR");
    char *kept = before ? strdup(before) : NULL;
    char *text = large_text(false);
    const char *path = temp_folder_write(&files, "large", text, LARGE / 2);
    bauta_corpus_options o = options(false, false);
    bauta_corpus *corpus;
    bauta_error err;
    o.memory_bytes = 1;
    setenv("TMPDIR", "/nowhere", 1);
    assert_int_equal(bauta_corpus_load(&corpus, tokenizer, &path, 1, &o, &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere: cannot make a temporary"));
    if (kept)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
    free(text);
    remove(path);
}

/* ---- pairs --------------------------------------------------------------- */

static void lines_of_two_files_are_pairs(void **state)
{
    (void)state;
    static const char *const want[][2] = { { "a.", "bc." }, { "de.", "f." } };
    static const char *const texts[][2] = {
        { "a\nd e\n", "b c\nf\n" },   { "a\nd e", "b c\nf\n" },
        { "a\r\nd e\r\n", "b c\nf" }, { "a\tb c\nd e\tf\n", NULL },
        { "a\tb c\r\nd e\tf", NULL },
    };
    for (size_t i = 0; i < BT_LEN(texts); i++) {
        bauta_corpus *corpus;
        bauta_error err;
        must(load_pairs(&corpus, texts[i][0], texts[i][1], false, &err), &err);
        pairs_are(corpus, 2, want);
    }
}

static void mismatched_pairs_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *source, *target, *message;
    } bad[] = {
        { "a\nb\nc\n", "a\nb\n", "source has 3 lines" },
        { "a\nb\nc\n", "a\nb\n", "target has 2" },
        { "a\n", "a\nb\nc\nd", "target has 4" },
        { "a\n", "", "target has 0" },
        { "a\n\nc\n", "a\nb\nc\n", "source: line 2 is empty" },
        { "a\nb\nc\n", "a\nb\n\n", "target: line 3 is empty" },
        { "a\nb\n", "a\n\xFF\n", "target: line 2 is not UTF-8" },
        { "\xFF\nb\n", "a\n\xFF\n", "source: line 1 is not UTF-8" },
        { "a\tb\nc\n", NULL, "source: line 2 does not have two columns" },
        { "a\tb\tc\n", NULL, "source: line 1 does not have two columns" },
        { "a\tb\n\n", NULL, "source: line 2 does not have two columns" },
        { "a\t\n", NULL, "source: line 1 is empty" },
        { "\tb\n", NULL, "source: line 1 is empty" },
    };
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        bauta_corpus *corpus;
        bauta_error err;
        assert_int_equal(
            load_pairs(&corpus, bad[i].source, bad[i].target, false, &err),
            BAUTA_ERR_FORMAT);
        assert_null(corpus);
        if (!strstr(err.message, bad[i].message))
            fail_msg("\"%s\", not \"%s\"", err.message, bad[i].message);
    }
}

static void bad_pairs_are_skipped_and_counted(void **state)
{
    (void)state;
    static const char *const want[][2] = { { "a.", "b." }, { "c.", "d." } };
    bauta_corpus *corpus;
    bauta_error err;
    must(load_pairs(&corpus, "a\n\n\xFF\ne\nc\n", "b\nx\ny\n\nd\n", true, &err),
         &err);
    assert_int_equal(bauta_corpus_skipped(corpus), 3);
    pairs_are(corpus, 2, want);
    must(load_pairs(&corpus, "a\tb\nx\n\nc\td\n\te\nx\ty\tz", NULL, true, &err),
         &err);
    assert_int_equal(bauta_corpus_skipped(corpus), 4);
    pairs_are(corpus, 2, want);
    // Files that do not match each other are not an error of single lines.
    assert_int_equal(load_pairs(&corpus, "a\nb\n", "a\n", true, &err),
                     BAUTA_ERR_FORMAT);
}

static void a_line_of_spaces_is_a_pair_without_words(void **state)
{
    (void)state;
    static const char *const want[][2] = { { ".", "a." }, { "b.", "." } };
    bauta_corpus *corpus;
    bauta_error err;
    must(load_pairs(&corpus, " \nb\n", "a\n \n", false, &err), &err);
    pairs_are(corpus, 2, want);
}

/* ---- by hand ------------------------------------------------------------- */

static void unknown_are(const bauta_corpus *corpus, uint64_t count,
                        const char *first, const char *file, size_t line)
{
    const char *is, *in;
    size_t at;
    assert_int_equal(bauta_corpus_unknown(corpus, NULL, NULL, NULL), count);
    assert_int_equal(bauta_corpus_unknown(corpus, &is, &in, &at), count);
    assert_string_equal(is, first);
    assert_string_equal(strrchr(in, '/') ? strrchr(in, '/') + 1 : in, file);
    assert_int_equal(at, line);
}

static void unknown_characters_are_counted_and_located(void **state)
{
    (void)state;
    bauta_corpus *corpus;
    bauta_error err;
    bauta_tokenizer *before = tokenizer;
    must(bauta_tokenizer_characters(&tokenizer, "ab\n", 3, &err), &err);
    must(load(&corpus, BYTES("ab\nba\n"), options(true, false), &err), &err);
    unknown_are(corpus, 0, "", "", 0);
    bauta_corpus_free(corpus);
    for (int lines = 0; lines < 2; lines++) {
        must(load(&corpus, BYTES("ab\nb\xC3\xB6za\nx\n"), options(lines, false),
                  &err),
             &err);
        unknown_are(corpus, 3, "\xC3\xB6", "text", 2);
        bauta_corpus_free(corpus);
    }
    must(load_pairs(&corpus, "ab\na\n", "b\na!\n", false, &err), &err);
    unknown_are(corpus, 1, "!", "target", 2);
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
    tokenizer = before;
}

static void a_corpus_is_of_one_kind(void **state)
{
    (void)state;
    const uint32_t ids[] = { 7, 8 };
    bauta_corpus *corpus;
    bauta_error err;
    must(bauta_corpus_create(&corpus, &err), &err);
    must(bauta_corpus_add(corpus, ids, 2, NULL, 0, &err), &err);
    assert_int_equal(bauta_corpus_add(corpus, ids, 2, ids, 1, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_corpus_add(corpus, NULL, 2, NULL, 0, &err),
                     BAUTA_ERR_ARGUMENT);
    must(bauta_corpus_add(corpus, NULL, 0, NULL, 0, &err), &err);
    documents_are(corpus, 2, (const char *const[]){ "cd", "" });
}

static void digests_distinguish_corpora(void **state)
{
    (void)state;
    static const char *const texts[] = { "a b\nc", "a\nb c", "a b c", "a b d",
                                         "a b\nc\nd" };
    uint64_t seen[BT_LEN(texts)];
    for (size_t i = 0; i < BT_LEN(texts); i++) {
        bauta_corpus *corpus;
        bauta_error err;
        must(load(&corpus, texts[i], strlen(texts[i]), options(true, false),
                  &err),
             &err);
        seen[i] = bt_corpus_digest(corpus);
        for (size_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
        bauta_corpus_free(corpus);
    }
}

static void the_end_of_a_corpus_is_split_off(void **state)
{
    (void)state;
    bauta_corpus *corpus, *rest;
    bauta_error err;
    must(load(&corpus, BYTES("a\nb\nc\nd\ne"), options(true, false), &err),
         &err);
    must(bauta_corpus_split(corpus, 0.4, &rest, &err), &err);
    documents_are(corpus, 3, (const char *const[]){ "a.", "b.", "c." });
    documents_are(rest, 2, (const char *const[]){ "d.", "e." });

    must(load(&corpus, BYTES("a b c d e f g h i"), options(false, false), &err),
         &err);
    must(bauta_corpus_split(corpus, 0.25, &rest, &err), &err);
    documents_are(corpus, 1, (const char *const[]){ "abcdefg" });
    documents_are(rest, 1, (const char *const[]){ "hi." });

    must(load_pairs(&corpus, "a\tb\nc\td\ne\tf", NULL, false, &err), &err);
    must(bauta_corpus_split(corpus, 0.3, &rest, &err), &err);
    pairs_are(corpus, 2,
              (const char *const[][2]){ { "a.", "b." }, { "c.", "d." } });
    pairs_are(rest, 1, (const char *const[][2]){ { "e.", "f." } });
}

static void a_split_that_leaves_nothing_is_refused(void **state)
{
    (void)state;
    bauta_corpus *corpus, *rest;
    bauta_error err;
    must(load(&corpus, BYTES("a\nb"), options(true, false), &err), &err);
    static const double shares[] = { 0.0, 1.0, -1.0, 2.0, 0.9 };
    for (size_t i = 0; i < BT_LEN(shares); i++) {
        assert_int_equal(bauta_corpus_split(corpus, shares[i], &rest, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_null(rest);
    }
    documents_are(corpus, 2, (const char *const[]){ "a.", "b." });
    must(load(&corpus, BYTES(""), options(false, false), &err), &err);
    assert_int_equal(bauta_corpus_split(corpus, 0.5, &rest, &err),
                     BAUTA_ERR_ARGUMENT);
    documents_are(corpus, 1, (const char *const[]){ "." });
}

/* ---- faults -------------------------------------------------------------- */

/* Load and split with allocation k failing; true when there are fewer. */
static bool load_survives(int kind, size_t k)
{
    bauta_corpus *corpus = NULL, *rest = NULL;
    bauta_corpus_options o = options(kind == 0, true);
    bauta_error err;
    size_t live = faults_live();
    const char *path = temp_folder_path(&files, "text");
    faults_arm(k);
    bauta_status status =
        kind < 2 ? bauta_corpus_load(&corpus, tokenizer, &path, 1, &o, &err)
                 : bauta_corpus_load_pairs(&corpus, tokenizer, path,
                                           kind == 2 ? path : NULL, &o, &err);
    if (!status)
        status = bauta_corpus_split(corpus, 0.5, &rest, &err);
    bool failed = faults_disarm();
    bauta_corpus_free(corpus);
    bauta_corpus_free(rest);
    assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
    assert_int_equal(faults_live(), live);
    return !failed;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char text[2000], other[2000];
    bauta_tokenizer *mine = tokenizer;
    for (size_t i = 0; i < sizeof(text); i += 8) {
        memcpy(text + i, i % 40 ? "a b c d " : "a b c d\n", 8);
        memcpy(other + i, "a b\tc d\n", 8);
    }
    faults_begin();
    tokenizer = tiny_tokenizer();
    for (int kind = 0; kind < 4; kind++) {
        temp_folder_write(&files, "text", kind == 3 ? other : text,
                          sizeof(text));
        for (size_t k = 0; !load_survives(kind, k); k++)
            ;
    }
    bauta_tokenizer_free(tokenizer);
    assert_int_equal(faults_end(), 0);
    tokenizer = mine;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_is_a_document),
        cmocka_unit_test(a_file_is_one_document_by_default),
        cmocka_unit_test(several_files_are_concatenated),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(bad_lines_are_skipped_and_counted),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(files_that_are_null_are_refused),
        cmocka_unit_test(a_large_document_has_the_same_tokens),
        cmocka_unit_test(a_corpus_in_a_file_equals_one_in_memory),
        cmocka_unit_test(memory_does_not_grow_with_the_file),
        cmocka_unit_test(a_missing_folder_is_named),
        cmocka_unit_test(lines_of_two_files_are_pairs),
        cmocka_unit_test(mismatched_pairs_are_named),
        cmocka_unit_test(bad_pairs_are_skipped_and_counted),
        cmocka_unit_test(a_line_of_spaces_is_a_pair_without_words),
        cmocka_unit_test(unknown_characters_are_counted_and_located),
        cmocka_unit_test(a_corpus_is_of_one_kind),
        cmocka_unit_test(digests_distinguish_corpora),
        cmocka_unit_test(the_end_of_a_corpus_is_split_off),
        cmocka_unit_test(a_split_that_leaves_nothing_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
