/* SPDX-License-Identifier: Apache-2.0 */
/* test_text_file.c - text files: lines, parts, refused bytes, gzip. */
#include "allocation_faults.h"
#include "base/error.h"
#include "temp_folder.h"
#include "testing.h"
#include "text/io/text_file.h"

#include <string.h>

#define BYTES(text) text, sizeof(text) - 1

static temp_folder files;

static bauta_text_file *file_open(const char *path)
{
    bauta_text_file *file = NULL;
    bauta_error err = { .message = "" };
    if (bauta_text_file_open(&file, path, &err))
        fail_msg("%s", err.message);
    return file;
}

static bauta_text_file *file_of(const char *text, size_t size)
{
    return file_open(temp_folder_write(&files, "text", text, size));
}

/* ---- lines --------------------------------------------------------------- */

static void lines_end_with_lf_or_cr_lf(void **state)
{
    (void)state;
    static const struct {
        const char *text, *lines; /* with | between them */
    } cases[] = {
        { "", "" },
        { "a", "a|" },
        { "a\n", "a|" },
        { "a\nb", "a|b|" },
        { "a\r\nb\r", "a|b|" },
        { "\n\na\n", "||a|" },
        { "a\rb\n", "a\rb|" },
        { "\r\n", "|" },
        { "\xC3\xA9\n", "\xC3\xA9|" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        char got[64] = "";
        const char *line;
        size_t length, count = 0;
        bauta_text_file *file = file_of(cases[i].text, strlen(cases[i].text));
        while (!bauta_text_file_line(file, &line, &length, NULL) && line) {
            assert_int_equal(strlen(line), length);
            strcat(strcat(got, line), "|");
            assert_int_equal(bauta_text_file_lines(file), ++count);
        }
        assert_string_equal(got, cases[i].lines);
        assert_true(bauta_text_file_ready(file));
        bauta_text_file_free(file);
    }
}

static void a_bad_line_is_named_and_the_next_one_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *message;
    } bad[] = {
        { BYTES("a\nb\xFF\nc"), "text: line 2 is not UTF-8 (byte 2 of it)" },
        { BYTES("a\n\0b\nc"), "text: line 2 holds NUL (byte 1 of it)" },
        { BYTES("a\n\xED\xA0\x80\nc"), "line 2 is not UTF-8 (byte 1 of it)" },
        { BYTES("a\nbb\xC3\nc"), "line 2 is not UTF-8 (byte 3 of it)" },
    };
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        bauta_error err;
        const char *line;
        bauta_text_file *file = file_of(bad[i].text, bad[i].size);
        assert_int_equal(bauta_text_file_line(file, &line, NULL, &err),
                         BAUTA_OK);
        assert_int_equal(bauta_text_file_line(file, &line, NULL, &err),
                         BAUTA_ERR_FORMAT);
        assert_null(line);
        if (!strstr(err.message, bad[i].message))
            fail_msg("\"%s\", not \"%s\"", err.message, bad[i].message);
        assert_int_equal(bauta_text_file_line(file, &line, NULL, &err),
                         BAUTA_OK);
        assert_string_equal(line, "c");
        bauta_text_file_free(file);
    }
}

/* ---- parts --------------------------------------------------------------- */

/* All parts together; each is whole characters. */
static size_t parts_join(bauta_text_file *file, char *to, bauta_error *err)
{
    const char *part;
    size_t size, all = 0;
    while (!bauta_text_file_part(file, &part, &size, err) && part) {
        assert_true(((unsigned char)part[0] & 0xC0) != 0x80);
        memcpy(to + all, part, size);
        all += size;
    }
    return all;
}

/* Characters of all lengths, at all offsets from the ends of chunks. */
static void parts_are_the_whole_text(void **state)
{
    (void)state;
    enum { SIZE = 300000 };
    static const char *const bits[] = { "a", "\xC3\xA9", "\xE2\x96\x81",
                                        "\xF0\x9F\x98\x80", "\n" };
    char *text = malloc(SIZE + 4), *got = malloc(SIZE + 4);
    test_random r = test_random_from(test_seed());
    size_t size = 0;
    while (size < SIZE)
        size += (size_t)sprintf(text + size, "%s", bits[test_below(&r, 5)]);
    for (size_t cut = 0; cut < 4; cut++) {
        bauta_error err = { .message = "" };
        bauta_text_file *file = file_of(text, size);
        assert_int_equal(parts_join(file, got, &err), size);
        assert_memory_equal(got, text, size);
        assert_int_equal(bt_text_file_bytes(file), size);
        bauta_text_file_free(file);
        memmove(text, text + 4, size -= 4);
        while (((unsigned char)text[0] & 0xC0) == 0x80)
            memmove(text, text + 1, --size);
    }
    free(text);
    free(got);
}

static void parts_name_bad_bytes(void **state)
{
    (void)state;
    enum { SIZE = 200000 };
    static char text[SIZE], got[SIZE];
    bauta_error err = { .message = "" };
    memset(text, 'a', SIZE);
    text[9] = '\n';
    text[150000] = (char)0xE2;
    bauta_text_file *file = file_of(text, SIZE);
    assert_int_equal(parts_join(file, got, &err), 150000);
    assert_non_null(strstr(err.message, "line 2 is not UTF-8 (byte 149991 of"));
    bauta_text_file_free(file);
    file = file_of(BYTES("a\nb\xE2\x96")); // the end cuts a character
    assert_int_equal(parts_join(file, got, &err), 3);
    assert_non_null(strstr(err.message, "line 2 is not UTF-8 (byte 2 of it)"));
    bauta_text_file_free(file);
}

/* ---- files that are no text ---------------------------------------------- */

static void other_files_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *message;
    } others[] = {
        { BYTES("\x28\xB5\x2F\xFD...."), "is compressed with zstd" },
        { BYTES("\xFD"
                "7zXZ\0"),
          "is compressed with xz" },
        { BYTES("BZh91AY&SY"), "is compressed with bzip2" },
        { BYTES("PK\3\4...."), "is a zip archive" },
        { BYTES("\xFF\xFEt\0"), "is UTF-16" },
    };
    const char *line;
    bauta_error err;
    for (size_t i = 0; i < BT_LEN(others); i++) {
        bauta_text_file *file = file_of(others[i].text, others[i].size);
        assert_int_equal(bauta_text_file_line(file, &line, NULL, &err),
                         BAUTA_ERR_FORMAT);
        assert_non_null(strstr(err.message, others[i].message));
        bauta_text_file_free(file);
    }
    // Their beginnings alone are valid text.
    bauta_text_file *file = file_of("BZh", 3);
    assert_int_equal(bauta_text_file_line(file, &line, NULL, &err), BAUTA_OK);
    assert_string_equal(line, "BZh");
    bauta_text_file_free(file);
}

static void arguments_and_files_that_are_missing_are_errors(void **state)
{
    (void)state;
    bauta_text_file *file;
    bauta_error err;
    const char *text;
    size_t size;
    assert_int_equal(bauta_text_file_open(&file, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_text_file_open(&file, "/nowhere", &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere: cannot open it: "));
    assert_int_equal(bauta_text_file_line(NULL, &text, &size, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_text_file_part(NULL, &text, &size, &err),
                     BAUTA_ERR_ARGUMENT);
    file = file_open(files.folder);
    assert_int_equal(bauta_text_file_line(file, &text, &size, &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "cannot read it: "));
    bauta_text_file_free(file);
    bauta_text_file_free(NULL);
}

static void a_line_has_at_most_64_mib(void **state)
{
    (void)state;
    static char block[1 << 20];
    const char *line;
    bauta_error err;
    memset(block, 'a', sizeof(block));
    FILE *out = fopen(temp_folder_path(&files, "long"), "wb");
    assert_non_null(out);
    fputs("short\n", out);
    for (int i = 0; i < 65; i++)
        assert_int_equal(fwrite(block, 1, sizeof(block), out), sizeof(block));
    fclose(out);
    bauta_text_file *file = file_open(temp_folder_path(&files, "long"));
    assert_int_equal(bauta_text_file_line(file, &line, NULL, &err), BAUTA_OK);
    assert_int_equal(bauta_text_file_line(file, &line, NULL, &err),
                     BAUTA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "line 2 is longer than 64 MiB"));
    bauta_text_file_free(file);
    remove(temp_folder_path(&files, "long"));
}

/* ---- gzip ---------------------------------------------------------------- */

/* "one\n", and "two\n", as gzip -n packs them. */
static const unsigned char one[] = { 0x1F, 0x8B, 0x08, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x03, 0xCB, 0xCF,
                                     0x4B, 0xE5, 0x02, 0x00, 0x9F, 0xA8,
                                     0x17, 0xF8, 0x04, 0x00, 0x00, 0x00 };
static const unsigned char two[] = { 0x1F, 0x8B, 0x08, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x03, 0x2B, 0x29,
                                     0xCF, 0xE7, 0x02, 0x00, 0x74, 0x08,
                                     0x17, 0x96, 0x04, 0x00, 0x00, 0x00 };

/* Whether this build has zlib; the error message is checked if not. */
static bool has_gzip(void)
{
    const char *line;
    bauta_error err = { .message = "" };
    bauta_text_file *file = file_of((const char *)one, sizeof(one));
    bool has = !bauta_text_file_line(file, &line, NULL, &err);
    if (!has)
        assert_non_null(strstr(err.message, "was built without zlib"));
    bauta_text_file_free(file);
    return has;
}

static void gzip_is_read_as_a_stream(void **state)
{
    (void)state;
    char packed[sizeof(one) + sizeof(two)];
    char got[16];
    bauta_error err = { .message = "" };
    if (!has_gzip())
        return;
    memcpy(packed, one, sizeof(one));
    memcpy(packed + sizeof(one), two, sizeof(two));
    bauta_text_file *file = file_of(packed, sizeof(packed));
    assert_int_equal(parts_join(file, got, &err), 8);
    assert_memory_equal(got, "one\ntwo\n", 8);
    assert_string_equal(err.message, "");
    bauta_text_file_free(file);
    // Truncated at every position, and every byte changed.
    for (size_t size = 3; size < sizeof(packed); size++) {
        file = file_of(packed, size);
        err.message[0] = '\0';
        parts_join(file, got, &err);
        assert_int_equal(err.message[0] == '\0', size == sizeof(one));
        bauta_text_file_free(file);
    }
    for (size_t i = 16; i < sizeof(one); i++) { // checksum and length
        packed[i] ^= 1;
        file = file_of(packed, sizeof(packed));
        parts_join(file, got, &err);
        assert_non_null(strstr(err.message, "text: the gzip data are damaged"));
        bauta_text_file_free(file);
        packed[i] ^= 1;
    }
}

/* ---- faults -------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static char text[400000];
    bool gzip = has_gzip();
    memset(text, 'a', sizeof(text));
    faults_begin();
    for (int kind = 0; kind < 1 + gzip; kind++)
        for (size_t k = 0;; k++) {
            char path[512];
            bauta_text_file *file = NULL;
            const char *line = NULL;
            size_t live = faults_live();
            snprintf(
                path, sizeof(path), "%s",
                kind ? temp_folder_write(&files, "text", one, sizeof(one))
                     : temp_folder_write(&files, "text", text, sizeof(text)));
            faults_arm(k);
            bauta_status status = bauta_text_file_open(&file, path, NULL);
            if (!status)
                status = bauta_text_file_line(file, &line, NULL, NULL);
            bool failed = faults_disarm();
            bauta_text_file_free(file);
            assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
            assert_int_equal(faults_live(), live);
            if (!failed)
                break;
        }
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_with_lf_or_cr_lf),
        cmocka_unit_test(a_bad_line_is_named_and_the_next_one_is_read),
        cmocka_unit_test(parts_are_the_whole_text),
        cmocka_unit_test(parts_name_bad_bytes),
        cmocka_unit_test(other_files_are_refused_by_name),
        cmocka_unit_test(arguments_and_files_that_are_missing_are_errors),
        cmocka_unit_test(a_line_has_at_most_64_mib),
        cmocka_unit_test(gzip_is_read_as_a_stream),
        cmocka_unit_test(every_allocation_may_fail),
    };
    files = temp_folder_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_free(&files);
    return failed;
}
