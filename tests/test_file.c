/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - reading, mapping and writing files, and the messages of
 * failures. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "temp_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void check_content(const char *path, const char *want)
{
    char *text;
    size_t size;
    bauta_error err;
    assert_int_equal(bt_file_read(&text, &size, path, 1 << 20, &err), BAUTA_OK);
    assert_int_equal(size, strlen(want));
    assert_string_equal(text, want);
    bt_free(text);
}

static void check_refusal(const bauta_error *err, bauta_status status,
                          const char *path, const char *why)
{
    assert_int_equal(err->status, status);
    if (!strstr(err->message, bt_path_tail(path)) || !strstr(err->message, why))
        fail_msg("\"%s\" should name %s and say \"%s\"", err->message, path,
                 why);
}

static void check_sentence(const bauta_error *err, const char *path,
                           const char *why)
{
    check_refusal(err, BAUTA_ERR_IO, path, why);
}

static void a_file_is_read_whole_or_mapped(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const char *path = temp_folder_write(&s, "x", "ab\0c", 4);
    char *text;
    size_t size;
    bt_file_map map;
    bauta_error err;
    assert_int_equal(bt_file_read(&text, &size, path, 4, &err), BAUTA_OK);
    assert_int_equal(size, 4);
    assert_memory_equal(text, "ab\0c\0", 5);
    bt_free(text);
    assert_int_equal(bt_file_map_init(&map, path, &err), BAUTA_OK);
    assert_int_equal(map.size, 4);
    assert_memory_equal(map.bytes, "ab\0c", 4);
    bt_file_map_release(&map);
    bt_file_map_release(&map); // and once more, as it is empty now

    path = temp_folder_write(&s, "empty", "", 0);
    check_content(path, "");
    assert_int_equal(bt_file_map_init(&map, path, &err), BAUTA_OK);
    assert_int_equal(map.size, 0);
    bt_file_map_release(&map);
    temp_folder_free(&s);
}

static void check_unreadable(const char *path, const char *why)
{
    char *text;
    size_t size;
    bt_file_map map;
    bauta_error err;
    assert_int_equal(bt_file_read(&text, &size, path, 100, &err), BAUTA_ERR_IO);
    assert_null(text);
    check_sentence(&err, path, why);
    assert_int_equal(bt_file_map_init(&map, path, &err), BAUTA_ERR_IO);
    check_sentence(&err, path, why);
    assert_int_equal(bt_file_map_init(&map, path, NULL), BAUTA_ERR_IO);
}

static void an_unreadable_file_is_named_with_the_reason(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char *text;
    size_t size;
    bauta_error err;
    check_unreadable(temp_folder_path(&s, "missing"), "No such file");
    check_unreadable(s.folder, "is a folder");
    assert_int_equal(mkfifo(temp_folder_path(&s, "pipe"), 0600), 0);
    check_unreadable(s.path, "not a regular file"); // and does not wait for it
    check_unreadable("/dev/zero", "not a regular file");
    const char *path = temp_folder_write(&s, "long", "12345", 5);
    assert_int_equal(bt_file_read(&text, &size, path, 4, &err),
                     BAUTA_ERR_FORMAT);
    check_refusal(&err, BAUTA_ERR_FORMAT, path, "has 5 bytes; the limit is 4");
    temp_folder_free(&s);
}

static void a_long_path_leaves_room_for_the_reason(void **state)
{
    (void)state;
    char path[3000];
    bauta_error err;
    memset(path, 'x', sizeof(path));
    for (size_t i = 0; i < sizeof(path); i += 100)
        path[i] = '/';
    memcpy(path + sizeof(path) - 6, "/last", 6);
    assert_int_equal(bt_file_write(path, "", 0, &err), BAUTA_ERR_IO);
    check_sentence(&err, path, "No such file");
    assert_non_null(strstr(err.message, "/last"));
    // The part that is shown does not begin inside a character either.
    memset(path, 0, sizeof(path));
    for (size_t i = 0; i < 200; i++)
        memcpy(path + 2 * i, "é", 2);
    memcpy(path + 400, "!", 2);
    assert_int_equal(strlen(bt_path_tail(path)), 119);
}

static void a_written_file_replaces_the_old_one(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    struct stat info;
    mode_t mask = umask(027);
    const char *path = temp_folder_path(&s, "x");
    assert_int_equal(bt_file_write(path, "first", 5, &err), BAUTA_OK);
    check_content(path, "first");
    assert_int_equal(bt_file_write(path, "second", 6, &err), BAUTA_OK);
    check_content(path, "second");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640); // as the umask says
    umask(mask);
    assert_int_equal(temp_folder_count(&s), 1);
    temp_folder_free(&s);
}

static void a_bare_file_name_is_in_the_current_folder(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    char before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(s.folder), 0);
    assert_int_equal(bt_file_write("x", "here", 4, &err), BAUTA_OK);
    assert_int_equal(chdir(before), 0);
    check_content(temp_folder_path(&s, "x"), "here");
    temp_folder_free(&s);
}

static void an_uncommitted_draft_leaves_no_trace(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bt_atomic_file *draft;
    bauta_error err;
    const char *path = temp_folder_write(&s, "x", "old", 3);
    assert_int_equal(bt_atomic_file_create(&draft, path, &err), BAUTA_OK);
    assert_int_equal(bt_atomic_file_write(draft, "new", 3, &err), BAUTA_OK);
    assert_int_equal(temp_folder_count(&s), 2);
    check_content(path, "old");
    bt_atomic_file_free(draft);
    assert_int_equal(temp_folder_count(&s), 1);
    check_content(path, "old");
    bt_atomic_file_free(NULL);
    temp_folder_free(&s);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    struct rlimit before, small;
    bauta_error err;
    char *large = calloc(1, 1 << 20);
    const char *path = temp_folder_write(&s, "x", "old", 3);
    // The closest to a full disk that a process can set up for itself.
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 16;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bauta_status status = bt_file_write(path, large, 1 << 20, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, BAUTA_ERR_IO);
    check_sentence(&err, path, "File too large");
    assert_int_equal(temp_folder_count(&s), 1);
    check_content(path, "old");
    free(large);
    temp_folder_free(&s);
}

static void a_failed_replacement_keeps_the_old_file(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    const char *path = temp_folder_path(&s, "folder");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bt_file_write(path, "x", 1, &err), BAUTA_ERR_IO);
    check_sentence(&err, path, "Is a directory");
    assert_int_equal(temp_folder_count(&s), 1);
    path = temp_folder_path(&s, "folder/missing/x");
    assert_int_equal(bt_file_write(path, "x", 1, &err), BAUTA_ERR_IO);
    check_sentence(&err, path, "No such file");
    temp_folder_free(&s);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err;
    char *text;
    size_t size;
    const char *path = temp_folder_write(&s, "x", "old", 3);
    faults_begin();
    size_t k = 0;
    for (;; k++) {
        faults_arm(k);
        bauta_status status = bt_file_write(path, "new", 3, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), 0);
        assert_int_equal(temp_folder_count(&s), 1);
        check_content(path, "old");
    }
    assert_int_equal(k, 3);
    check_content(path, "new");
    faults_arm(0);
    assert_int_equal(bt_file_read(&text, &size, path, 9, &err),
                     BAUTA_ERR_NOMEM);
    assert_true(faults_disarm());
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

static void a_quotation_is_short_and_printable(void **state)
{
    (void)state;
    char text[200];
    assert_string_equal(bt_quote("a\n\x1b[1mb\x7f").text, "a??[1mb?");
    assert_string_equal(bt_quote("").text, "");
    memset(text, 'x', sizeof(text));
    text[63] = '\0';
    assert_string_equal(bt_quote(text).text, text);
    text[63] = 'x';
    text[199] = '\0';
    assert_int_equal(strlen(bt_quote(text).text), 63);
    assert_string_equal(bt_quote(text).text + 60, "...");
    memcpy(text + 58, "仮面", 6); // the cut would fall into the first
    assert_string_equal(bt_quote(text).text + 57, "x...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_or_mapped),
        cmocka_unit_test(an_unreadable_file_is_named_with_the_reason),
        cmocka_unit_test(a_long_path_leaves_room_for_the_reason),
        cmocka_unit_test(a_written_file_replaces_the_old_one),
        cmocka_unit_test(a_bare_file_name_is_in_the_current_folder),
        cmocka_unit_test(an_uncommitted_draft_leaves_no_trace),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_failed_replacement_keeps_the_old_file),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_quotation_is_short_and_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
