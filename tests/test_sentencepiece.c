/* SPDX-License-Identifier: Apache-2.0 */
/* test_sentencepiece.c - SentencePiece models: the file format, and encoded
 * texts. */
#include "testing.h"

#include "allocation_faults.h"
#include "base/error.h"
#include "base/utf8.h"
#include "sentencepiece_fixtures.h"
#include "text/tokenizer.h"

#include <time.h>

static const char *const models[] = { "unigram", "bpe",   "bytes",
                                      "suffix",  "words", "chars" };

static spm_file model_file(const char *name)
{
    char file[64];
    snprintf(file, sizeof(file), "%s.model", name);
    return spm_tree(file);
}

static bauta_tokenizer *tokenizer_over(const void *bytes, size_t size)
{
    bauta_tokenizer *t;
    bauta_error err;
    if (bt_tokenizer_parse_sentencepiece(&t, bytes, size, "x.model", &err))
        fail_msg("%s", err.message);
    return t;
}

/* ---- The file ------------------------------------------------------------ */

static void a_model_is_read_as_it_was_written(void **state)
{
    (void)state;
    spm_file file = model_file("bpe");
    bt_sentencepiece m;
    assert_int_equal(
        bt_sentencepiece_parse(&m, file.bytes, file.size, "x", NULL), BAUTA_OK);
    assert_int_equal(m.model, BT_PIECE_MODEL_BPE);
    assert_int_equal(m.unknown, 0);
    assert_int_equal(m.pieces[1].type, BT_PIECE_CONTROL);
    assert_memory_equal(m.pieces[5].text.bytes, "at", m.pieces[5].text.size);
    assert_true(m.pieces[5].score == -1.0f);
    assert_true(m.add_dummy_prefix && m.remove_extra_whitespaces &&
                m.escape_whitespaces && !m.whitespace_suffix);
    assert_true(m.charsmap.size > 1000 && m.denormalizer_charsmap.size == 0);
    bt_sentencepiece_release(&m);
    bt_free(file.bytes);

    file = model_file("bytes");
    assert_int_equal(
        bt_sentencepiece_parse(&m, file.bytes, file.size, "x", NULL), BAUTA_OK);
    assert_true(m.byte_fallback && !m.add_dummy_prefix &&
                !m.remove_extra_whitespaces);
    bt_sentencepiece_release(&m);
    bt_free(file.bytes);
}

static void byte_pieces_have_one_spelling(void **state)
{
    (void)state;
    assert_int_equal(bt_piece_byte("<0x00>", 6), 0);
    assert_int_equal(bt_piece_byte("<0xAF>", 6), 0xAF);
    assert_int_equal(bt_piece_byte("<0xaf>", 6), -1);
    assert_int_equal(bt_piece_byte("<0xA>", 5), -1);
    assert_int_equal(bt_piece_byte("<0xAG>", 6), -1);
}

static void refused(const void *bytes, size_t size, const char *because)
{
    bauta_tokenizer *t;
    bauta_error err = { BAUTA_OK, "" };
    bauta_status status = bt_tokenizer_parse_sentencepiece(
        &t, bytes, size, "folder/x.model", &err);
    if (!strstr(err.message, because) || !strstr(err.message, "x.model"))
        fail_msg("\"%s\" lacks \"%s\"", err.message, because);
    assert_true(status == BAUTA_ERR_FORMAT || status == BAUTA_ERR_UNSUPPORTED);
    assert_null(t);
}

static void malformed_input_is_an_error(void **state)
{
    (void)state;
#define WITH(bytes) bytes, sizeof(bytes) - 1
    refused(WITH(""), "none of its 0 pieces is the unknown");
    refused(WITH("\x80"), "byte 0: a number is cut off");
    refused(WITH("\x08\x80"), "byte 1: a number is cut off");
    refused(WITH("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"), "64 bits");
    refused(WITH("\x02\x00"), "byte 0: is not a protobuf field");
    refused(WITH("\x0B"), "unknown wire type 3");
    refused(WITH("\x0A\x05"), "byte 0: a field of 5 bytes has only 0");
    refused(WITH("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), "has only 0");
    refused(WITH("\x7D\x01\x02\x03"), "a field of 4 bytes has only 3");
    refused(WITH("\x08\x05"), "a piece has the wire type 0");
    refused(WITH("\x0A\x00"), "piece 0 is empty");
    refused(WITH("\x0A\x03\x0A\x01\xFF"), "byte 0: piece 0 is not UTF-8");
    refused(WITH("\x0A\x04\x0A\x02\x61\x00"), "piece 0 has a NUL");
    refused(WITH("\x0A\x08\x0A\x01\x61\x15\x00\x00\x80\x7F"), "not finite");
    refused(WITH("\x0A\x05\x0A\x01\x61\x18\x09"), "byte 5: a piece has the "
                                                  "unknown type 9");
    refused(WITH("\x12\x02\x18\x07"), "unknown model_type 7");
#undef WITH
}

static void inconsistent_pieces_are_refused(void **state)
{
    (void)state;
    static spm_model m;
    m.size = 0;
    spm_piece(&m, "<unk>", 0, BT_PIECE_UNKNOWN);
    spm_piece(&m, "a", 0, BT_PIECE_NORMAL);
    size_t good = m.size;
    bauta_tokenizer_free(tokenizer_over(m.bytes, m.size));

    spm_piece(&m, "<u>", 0, BT_PIECE_UNKNOWN);
    refused(m.bytes, m.size, "piece 2 is a second unknown piece beside 0");
    m.size = good;
    spm_piece(&m, "a", 0, BT_PIECE_NORMAL);
    refused(m.bytes, m.size, "piece \"a\" has the ids 1 and 2");
    m.size = good;
    spm_piece(&m, "<0x41>", 0, BT_PIECE_BYTE);
    refused(m.bytes, m.size, "piece 2 has the type BYTE without");
    m.size = good;
    spm_piece(&m, "<41>", 0, BT_PIECE_BYTE);
    refused(m.bytes, m.size, "piece 2 has the type BYTE but is not");
    m.size = good;
    spm_spec(&m, 2, 35, 1);
    refused(m.bytes, m.size, "has byte_fallback but no piece <0x00>");
    m.size = good;
    spm_data(&m, 2, "\xE2\x02\x01\x88", 4);
    refused(m.bytes, m.size, "unk_surface is not UTF-8");
    m.size = good;
    spm_data(&m, 5, "\x12\x02XX", 4);
    refused(m.bytes, m.size, "denormalizer_spec");
    m.size = good;
    spm_data(&m, 3, "\x12\x02XX", 4);
    refused(m.bytes, m.size, "the map of characters has only 2 bytes");
}

static void pieces_that_are_too_long_are_refused(void **state)
{
    (void)state;
    static spm_model m;
    static char text[8001];
    memset(text, 'a', sizeof(text) - 1);
    m.size = 0;
    spm_piece(&m, "<unk>", 0, BT_PIECE_UNKNOWN);
    spm_piece(&m, text, 0, BT_PIECE_NORMAL);
    refused(m.bytes, m.size, "piece 1 has 8000 bytes");
    m.size = 0;
    spm_piece(&m, "<unk>", 0, BT_PIECE_UNKNOWN);
    size_t good = m.size;
    text[513] = 0;
    spm_piece(&m, text, 0, BT_PIECE_NORMAL);
    refused(m.bytes, m.size, "piece 1 has 513 bytes; at most 512");
    spm_spec(&m, 2, 3, BT_PIECE_MODEL_WORD);
    bauta_tokenizer_free(tokenizer_over(m.bytes, m.size));
    m.size = good;
    spm_piece(&m, text, 0, BT_PIECE_USER);
    spm_spec(&m, 2, 3, BT_PIECE_MODEL_WORD);
    refused(m.bytes, m.size, "piece 1 has 513 bytes; at most 512");
}

/* Encode and decode some text; any result is fine. */
static void use(const bauta_tokenizer *t)
{
    static const char text[] = "the cat [M \xEF\xAC\x81 lowest\xFF\xE6\x97 ";
    bauta_tokens tokens;
    bauta_error err;
    char *back = NULL;
    assert_int_equal(
        bauta_tokenizer_encode(t, text, sizeof(text) - 1, NULL, &tokens, &err),
        BAUTA_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        assert_true(tokens.ids[i] < bauta_tokenizer_vocab_size(t));
        assert_true(tokens.starts[i] <= tokens.ends[i] &&
                    tokens.ends[i] < sizeof(text));
    }
    assert_int_equal(bauta_tokenizer_decode(t, tokens.ids, tokens.count, NULL,
                                            &back, NULL, &err),
                     BAUTA_OK);
    bauta_text_free(back);
    bauta_tokens_release(&tokens);
}

static void survive(const void *bytes, size_t size)
{
    bauta_tokenizer *t;
    bauta_error err = { BAUTA_OK, "" };
    // In a block of its exact size, so that overreads are detected.
    void *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    bauta_status status =
        bt_tokenizer_parse_sentencepiece(&t, copy, size, "x.model", &err);
    free(copy);
    if (status)
        assert_true(status == err.status && err.message[0]);
    else
        use(t);
    bauta_tokenizer_free(t);
}

static void truncated_and_changed_files_do_not_crash(void **state)
{
    (void)state;
    for (size_t k = 0; k < BT_LEN(models); k++) {
        spm_file file = model_file(models[k]);
        for (size_t i = 0; i < file.size; i++)
            survive(file.bytes, i);
        // All bits of small files, of large ones some.
        size_t step = 1 + file.size / 400;
        for (size_t i = 0; i < 8 * file.size; i += step) {
            file.bytes[i / 8] ^= (char)(1 << i % 8);
            survive(file.bytes, file.size);
            file.bytes[i / 8] ^= (char)(1 << i % 8);
        }
        bt_free(file.bytes);
    }
}

static void random_bytes_do_not_crash(void **state)
{
    test_random *r = *state;
    for (int round = 0; round < 2000; round++) {
        unsigned char bytes[64];
        size_t size = test_below(r, sizeof(bytes));
        for (size_t i = 0; i < size; i++)
            bytes[i] = (unsigned char)(test_below(r, 2) ? test_below(r, 256)
                                                        : test_below(r, 32));
        survive(bytes, size);
    }
}

/* ---- Texts --------------------------------------------------------------- */

static void text_check(const char *name, const bauta_tokenizer *t,
                       const json_t *row)
{
    spm_file text = spm_hex(row, "text"), want = spm_hex(row, "decoded");
    bauta_tokens tokens;
    bauta_error err;
    char *back;
    size_t size;
    assert_int_equal(
        bauta_tokenizer_encode(t, text.bytes, text.size, NULL, &tokens, &err),
        BAUTA_OK);
    spm_assert_ids(name, row, tokens.ids, tokens.count,
                   json_object_get(row, "ids"));
    assert_int_equal(bauta_tokenizer_decode(t, tokens.ids, tokens.count, NULL,
                                            &back, &size, &err),
                     BAUTA_OK);
    if (size != want.size || memcmp(back, want.bytes, size) != 0)
        fail_msg("%s: \"%s\" decoded to \"%s\", not \"%s\"", name, text.bytes,
                 back, want.bytes);
    bauta_text_free(back);
    bauta_tokens_release(&tokens);
    free(text.bytes);
    free(want.bytes);
}

static void texts_match_the_library(void **state)
{
    (void)state;
    for (size_t k = 0; k < BT_LEN(models); k++) {
        spm_file file = model_file(models[k]);
        bauta_tokenizer *t = tokenizer_over(file.bytes, file.size);
        bt_free(file.bytes); // the tokenizer must not need it
        json_t *rows = spm_expected(models[k]);
        for (size_t i = 0; i < json_array_size(rows); i++)
            text_check(models[k], t, json_array_get(rows, i));
        json_decref(rows);
        bauta_tokenizer_free(t);
    }
}

static void tokens_have_byte_offsets(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count, at[5][2];
    } rows[] = {
        { "the cat", 2, { { 0, 3 }, { 3, 7 } } },
        { "  the\t\tcat  ", 2, { { 2, 5 }, { 5, 10 } } },
        // The ligature is three bytes and becomes two characters of a piece.
        { "\xEF\xAC\x81.", 2, { { 0, 3 }, { 3, 4 } } },
        { "a\xCC\x8A"
          "b",
          3,
          { { 0, 0 }, { 0, 3 }, { 3, 4 } } },
        { "\xFF.", 3, { { 0, 0 }, { 0, 1 }, { 1, 2 } } },
    };
    spm_file file = model_file("unigram");
    bauta_tokenizer *t = tokenizer_over(file.bytes, file.size);
    bt_free(file.bytes);
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        bauta_tokens tokens;
        assert_int_equal(bauta_tokenizer_encode(t, rows[i].text,
                                                strlen(rows[i].text), NULL,
                                                &tokens, NULL),
                         BAUTA_OK);
        assert_int_equal(tokens.count, rows[i].count);
        for (size_t j = 0; j < tokens.count; j++) {
            assert_int_equal(tokens.starts[j], rows[i].at[j][0]);
            assert_int_equal(tokens.ends[j], rows[i].at[j][1]);
        }
        bauta_tokens_release(&tokens);
    }
    bauta_tokenizer_free(t);
}

static void special_tokens_have_names_and_are_not_found_in_text(void **state)
{
    (void)state;
    spm_file file = model_file("suffix");
    bauta_tokenizer *t = tokenizer_over(file.bytes, file.size);
    bt_free(file.bytes);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_UNK), 0);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_BOS), 1);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_EOS), 2);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_PAD), 14);
    assert_int_equal(bauta_tokenizer_special_token(t, BAUTA_TOKEN_MASK),
                     BAUTA_NO_TOKEN);
    assert_true(bauta_tokenizer_is_special(t, 1));
    assert_false(bauta_tokenizer_is_special(t, 0));
    bauta_tokens tokens;
    assert_int_equal(
        bauta_tokenizer_encode(t, "</s><s>", 7, NULL, &tokens, NULL), BAUTA_OK);
    for (size_t i = 0; i < tokens.count; i++)
        assert_false(bauta_tokenizer_is_special(t, tokens.ids[i]));
    bauta_tokens_release(&tokens);
    bauta_tokenizer_free(t);
}

/* ---- BPE against a slow reference ---------------------------------------- */

enum { RANDOM_PIECES = 40, RANDOM_TEXT = 60 };

typedef struct random_piece {
    char text[16];
    float score;
} random_piece;

typedef struct symbol {
    size_t lo, hi;
} symbol;

static const char *const letters[] = { "a", "b", "\xC3\xA9", "\xE2\x96\x81" };

static size_t word_random(test_random *r, char *out, size_t most)
{
    size_t count = 1 + test_below(r, most), size = 0;
    for (size_t i = 0; i < count; i++) {
        const char *letter = letters[test_below(r, BT_LEN(letters))];
        memcpy(out + size, letter, strlen(letter));
        size += strlen(letter);
    }
    out[size] = 0;
    return size;
}

static size_t piece_find(const random_piece *pieces, size_t count,
                         const char *text, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(pieces[i].text) == size &&
            memcmp(pieces[i].text, text, size) == 0)
            return i;
    return SIZE_MAX;
}

/* Merge the best pair until there is none; then look everything up. */
static size_t reference_encode(const random_piece *pieces, size_t count,
                               const char *text, size_t size, uint32_t *ids)
{
    symbol s[3 * RANDOM_TEXT];
    size_t n = 0, found = 0;
    for (size_t at = 0; at < size; at = s[n++].hi)
        s[n] = (symbol){ at, at + bt_utf8_length((unsigned char)text[at]) };
    for (;;) {
        size_t best = SIZE_MAX, best_piece = SIZE_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t p = piece_find(pieces, count, text + s[i].lo,
                                  s[i + 1].hi - s[i].lo);
            if (p != SIZE_MAX && (best == SIZE_MAX ||
                                  pieces[p].score > pieces[best_piece].score)) {
                best = i;
                best_piece = p;
            }
        }
        if (best == SIZE_MAX)
            break;
        s[best].hi = s[best + 1].hi;
        memmove(s + best + 1, s + best + 2, (n - best - 2) * sizeof(*s));
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        size_t p = piece_find(pieces, count, text + s[i].lo, s[i].hi - s[i].lo);
        uint32_t id = p == SIZE_MAX ? 0 : (uint32_t)p + 1;
        if (id != 0 || found == 0 || ids[found - 1] != 0)
            ids[found++] = id;
    }
    return found;
}

static void random_merges_equal_a_slow_reference(void **state)
{
    test_random *r = *state;
    static spm_model m;
    for (int round = 0; round < 300; round++) {
        random_piece pieces[RANDOM_PIECES];
        size_t count = 0;
        m.size = 0;
        spm_piece(&m, "<unk>", 0, BT_PIECE_UNKNOWN);
        for (size_t i = 0; i < RANDOM_PIECES; i++) {
            random_piece *p = pieces + count;
            size_t size = word_random(r, p->text, 4);
            p->score = -(float)test_below(r, 8);
            if (piece_find(pieces, count, p->text, size) != SIZE_MAX)
                continue;
            spm_piece(&m, p->text, p->score, BT_PIECE_NORMAL);
            count++;
        }
        spm_spec(&m, 2, 3, BT_PIECE_MODEL_BPE);
        spm_spec(&m, 3, 3, 0); // no space put in,
        spm_spec(&m, 3, 4, 0); // none taken out
        bauta_tokenizer *t = tokenizer_over(m.bytes, m.size);
        for (int i = 0; i < 20; i++) {
            char text[4 * RANDOM_TEXT];
            uint32_t ids[4 * RANDOM_TEXT];
            size_t size = word_random(r, text, RANDOM_TEXT);
            bauta_tokens tokens;
            assert_int_equal(
                bauta_tokenizer_encode(t, text, size, NULL, &tokens, NULL),
                BAUTA_OK);
            size_t n = reference_encode(pieces, count, text, size, ids);
            assert_int_equal(tokens.count, n);
            assert_memory_equal(tokens.ids, ids, n * sizeof(*ids));
            bauta_tokens_release(&tokens);
        }
        bauta_tokenizer_free(t);
    }
}

/* ---- Limits -------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Runs of one letter: every cut of every piece is a merge, and a long text has
 * merges everywhere. */
static void crafted_pieces_take_bounded_time(void **state)
{
    (void)state;
    static spm_model m;
    char text[301];
    enum { LENGTH = 1 << 18 };
    char *longer = malloc(LENGTH);
    assert_non_null(longer);
    memset(longer, 'a', LENGTH);
    m.size = 0;
    spm_piece(&m, "<unk>", 0, BT_PIECE_UNKNOWN);
    for (size_t i = 1; i <= 300; i++) {
        memset(text, 'a', i);
        text[i] = 0;
        spm_piece(&m, text, (float)i, BT_PIECE_NORMAL);
    }
    for (unsigned kind = BT_PIECE_MODEL_UNIGRAM; kind <= BT_PIECE_MODEL_CHAR;
         kind++) {
        size_t good = m.size;
        spm_spec(&m, 2, 3, kind);
        double start = seconds();
        bauta_tokenizer *t = tokenizer_over(m.bytes, m.size);
        bauta_tokens tokens;
        assert_int_equal(
            bauta_tokenizer_encode(t, longer, LENGTH, NULL, &tokens, NULL),
            BAUTA_OK);
        printf("kind %u: %zu tokens, %.2f s\n", kind, tokens.count,
               seconds() - start);
        bauta_tokens_release(&tokens);
        bauta_tokenizer_free(t);
        m.size = good;
    }
    free(longer);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(models); i++) {
        spm_file file = model_file(models[i]);
        faults_begin();
        for (size_t k = 0;; k++) {
            bauta_tokenizer *t;
            bauta_error err;
            faults_arm(k);
            bauta_status status = bt_tokenizer_parse_sentencepiece(
                &t, file.bytes, file.size, "x", &err);
            bool failed = faults_disarm();
            bauta_tokenizer_free(t);
            assert_int_equal(faults_live(), 0);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (!failed)
                break;
        }
        faults_end();
        bt_free(file.bytes);
    }
}

static void each_allocation_of_encoding_may_fail(void **state)
{
    (void)state;
    static const char text[] = "kk the lowest\xFF [MASK] \xF0\x9F\x8E\xAD qq";
    for (size_t i = 0; i < BT_LEN(models); i++) {
        spm_file file = model_file(models[i]);
        faults_begin();
        bauta_tokenizer *t = tokenizer_over(file.bytes, file.size);
        size_t live = faults_live();
        for (size_t k = 0;; k++) {
            bauta_tokens tokens;
            faults_arm(k);
            bauta_status status = bauta_tokenizer_encode(
                t, text, sizeof(text) - 1, NULL, &tokens, NULL);
            bool failed = faults_disarm();
            bauta_tokens_release(&tokens);
            assert_int_equal(faults_live(), live);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            if (!failed)
                break;
        }
        bauta_tokenizer_free(t);
        assert_int_equal(faults_end(), 0);
        bt_free(file.bytes);
    }
}

/* ---- Trained models ------------------------------------------------------ */

/* Returns how many lines there were. */
static size_t golden_check(const char *model, const char *golden)
{
    char path[512], relative[128], line[1 << 16];
    size_t lines = 0;
    if (!test_data_path(path, sizeof(path), model))
        return 0;
    spm_file file = spm_read(path);
    bauta_tokenizer *t = tokenizer_over(file.bytes, file.size);
    bt_free(file.bytes);
    snprintf(relative, sizeof(relative), "tokenizer-golden/%s.jsonl", golden);
    assert_non_null(test_data_path(path, sizeof(path), relative));
    FILE *rows = fopen(path, "r");
    assert_non_null(rows);
    for (; fgets(line, sizeof(line), rows); lines++) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        const json_t *text = json_object_get(row, "text");
        bauta_tokens tokens;
        assert_int_equal(bauta_tokenizer_encode(t, json_string_value(text),
                                                json_string_length(text), NULL,
                                                &tokens, NULL),
                         BAUTA_OK);
        spm_assert_ids(golden, row, tokens.ids, tokens.count,
                       json_object_get(row, "ids"));
        bauta_tokens_release(&tokens);
        json_decref(row);
    }
    fclose(rows);
    bauta_tokenizer_free(t);
    return lines;
}

static void trained_models_equal_sentencepiece(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "llama2-tokenizer/tokenizer.model", "llama2-spm" },
        { "sentencepiece-test/test_model.model", "sp-unigram-test" },
        { "sentencepiece-test/hf_test_sentencepiece_bpe.model", "sp-bpe-test" },
        { "sentencepiece-test/hf_test_sentencepiece_with_bytefallback.model",
          "sp-bytefallback" },
        { "marian-spm/fr-en/source.spm", "marian-fr-en-source" },
        { "marian-spm/fr-en/target.spm", "marian-fr-en-target" },
    };
    size_t skipped = 0;
    for (size_t i = 0; i < BT_LEN(rows); i++) {
        size_t lines = golden_check(rows[i][0], rows[i][1]);
        printf("%s: %zu texts\n", rows[i][1], lines);
        skipped += lines == 0;
    }
    if (skipped)
        printf("skipped %zu models that are not here\n", skipped);
    if (skipped == BT_LEN(rows))
        skip();
}

int main(void)
{
    test_random random = test_random_from(test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_read_as_it_was_written),
        cmocka_unit_test(byte_pieces_have_one_spelling),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test(inconsistent_pieces_are_refused),
        cmocka_unit_test(pieces_that_are_too_long_are_refused),
        cmocka_unit_test(truncated_and_changed_files_do_not_crash),
        cmocka_unit_test_prestate(random_bytes_do_not_crash, &random),
        cmocka_unit_test(texts_match_the_library),
        cmocka_unit_test(tokens_have_byte_offsets),
        cmocka_unit_test(special_tokens_have_names_and_are_not_found_in_text),
        cmocka_unit_test_prestate(random_merges_equal_a_slow_reference,
                                  &random),
        cmocka_unit_test(crafted_pieces_take_bounded_time),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(each_allocation_of_encoding_may_fail),
        cmocka_unit_test(trained_models_equal_sentencepiece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
