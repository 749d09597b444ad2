/* SPDX-License-Identifier: Apache-2.0 */
/* test_run.c - the folder of a run: its lock, the removal of partial files, and
 * the removal of checkpoints. */
#include "allocation_faults.h"
#include "formats/run_folder.h"
#include "temp_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A file system without locks, when asked for. */
static bool no_locks;
int flock(int fd, int how)
{
    if (no_locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, how);
}

static bauta_run *hold(const char *folder, bool create)
{
    bauta_run *run = NULL;
    bauta_error err;
    if (bauta_run_open(&run, folder, create, &err))
        fail_msg("%s", err.message);
    return run;
}

static void refused(const char *folder, const char *message)
{
    bauta_run *run = (bauta_run *)&no_locks;
    bauta_error err = { 0 };
    assert_int_equal(bauta_run_open(&run, folder, false, &err), BAUTA_ERR_IO);
    assert_null(run);
    if (!strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
}

static bool exists(temp_folder *s, const char *name)
{
    struct stat is;
    return lstat(temp_folder_path(s, name), &is) == 0;
}

/* ---- the lock ---------------------------------------------------------- */

static void a_run_has_one_owner(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char message[64];
    snprintf(message, sizeof(message), "(process %ld on ", (long)getpid());
    bauta_run *run = hold(s.folder, false);
    assert_true(bauta_run_locked(run));
    refused(s.folder, "another training runs in this folder");
    refused(s.folder, message);
    bauta_run_free(run);
    assert_int_equal(temp_folder_count(&s), 0);
    bauta_run_free(hold(s.folder, true));
    bauta_run_free(NULL);
    temp_folder_free(&s);
}

/* Any contents of the lock file. */
static void an_unknown_lock_holder_is_an_error(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "\n", "\x1b[2J\a" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        temp_folder s = temp_folder_create();
        bauta_error err = { 0 };
        bauta_run *run = hold(s.folder, false), *other;
        temp_folder_write(&s, BT_RUN_LOCK, texts[i], strlen(texts[i]));
        assert_int_equal(bauta_run_open(&other, s.folder, false, &err),
                         BAUTA_ERR_IO);
        for (const char *c = err.message; *c; c++)
            assert_true((unsigned char)*c >= ' ');
        bauta_run_free(run);
        temp_folder_free(&s);
    }
}

static void a_lock_ends_with_its_process(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bauta_run *run;
        if (bauta_run_open(&run, s.folder, false, NULL) ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    refused(s.folder, "another training");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(exists(&s, BT_RUN_LOCK)); // and is ignored
    bauta_run_free(hold(s.folder, false));
    close(ready[0]);
    close(ready[1]);
    temp_folder_free(&s);
}

/* The lock file is removed when a run is freed, so it may disappear between
 * another process's opening and locking it. */
static void child_compete(const char *folder)
{
    char inside[600];
    snprintf(inside, sizeof(inside), "%s/inside", folder);
    for (int held = 0; held < 100;) {
        bauta_run *run;
        if (bauta_run_open(&run, folder, false, NULL))
            continue;
        int fd = open(inside, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0)
            _exit(1); // another process holds the lock
        close(fd);
        unlink(inside);
        bauta_run_free(run);
        held++;
    }
    _exit(0);
}

static void one_of_many_competitors_gets_the_lock(void **state)
{
    (void)state;
    enum { CHILDREN = 4 };
    temp_folder s = temp_folder_create();
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            child_compete(s.folder);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    temp_folder_free(&s);
}

static void a_foreign_lock_file_is_refused(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char other[512];
    struct stat is;
    snprintf(other, sizeof(other), "%s",
             temp_folder_write(&s, "other", "12", 2));
    assert_int_equal(symlink("other", temp_folder_path(&s, BT_RUN_LOCK)), 0);
    refused(s.folder, BT_RUN_LOCK);
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(link(other, temp_folder_path(&s, BT_RUN_LOCK)), 0);
    refused(s.folder, "not a file that bauta made");
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(mkfifo(temp_folder_path(&s, BT_RUN_LOCK), 0600), 0);
    refused(s.folder, "not a file that bauta made");
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(mkdir(temp_folder_path(&s, BT_RUN_LOCK), 0700), 0);
    refused(s.folder, "Is a directory");
    assert_int_equal(stat(other, &is), 0);
    assert_int_equal(is.st_size, 2);
    temp_folder_free(&s);
}

static void without_locks_nothing_is_removed(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    assert_int_equal(mkdir(temp_folder_path(&s, ".bauta-1-0.folder"), 0700), 0);
    no_locks = true;
    bauta_run *run = hold(s.folder, false);
    no_locks = false;
    assert_false(bauta_run_locked(run));
    bauta_run_free(run);
    assert_true(exists(&s, ".bauta-1-0.folder"));
    temp_folder_free(&s);
}

/* ---- the folder -------------------------------------------------------- */

static void an_empty_run_folder_is_removed(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char path[512], kept[600];
    snprintf(path, sizeof(path), "%s/a/b//c/", s.folder);
    refused(path, "No such file");
    assert_int_equal(temp_folder_count(&s), 0);
    bauta_run_free(hold(path, true));
    assert_int_equal(temp_folder_count(&s), 0);

    // Existing files stay, and so do folders that are not empty.
    assert_int_equal(mkdir(temp_folder_path(&s, "a"), 0700), 0);
    bauta_run_free(hold(path, true));
    assert_true(exists(&s, "a") && !exists(&s, "a/b"));
    bauta_run *run = hold(path, true);
    snprintf(kept, sizeof(kept), "%skept", path);
    int fd = open(kept, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    bauta_run_free(run);
    assert_true(exists(&s, "a/b/c/kept"));
    refused(kept, "Not a directory");
    temp_folder_free(&s);
}

static void partial_files_are_removed(void **state)
{
    (void)state;
    static const char *const swept[] = { ".bauta-1-0.folder",
                                         ".bauta-4194300-12.folder",
                                         ".bauta-1-0.tmp" };
    static const char *const kept[] = { ".bauta-1-0.folder2", ".bauta-1.folder",
                                        ".bauta-x-0.folder",  ".bauta--0.tmp",
                                        ".bauta-1-0.tmp.",    "step-1" };
    temp_folder s = temp_folder_create();
    temp_folder_write(&s, swept[2], "", 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(mkdir(temp_folder_path(&s, swept[i]), 0700), 0);
    temp_folder_write(&s, ".bauta-1-0.folder/model.safetensors", "x", 1);
    temp_folder_write(&s, ".bauta-1-0.folder/.bauta-1-1.tmp", "x", 1);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        assert_int_equal(mkdir(temp_folder_path(&s, kept[i]), 0700), 0);
    // Files of other programs, and links, are not partial files of ours.
    assert_int_equal(mkdir(temp_folder_path(&s, ".bauta-2-0.folder"), 0700), 0);
    temp_folder_write(&s, ".bauta-2-0.folder/mine", "x", 1);
    assert_int_equal(
        symlink("step-1", temp_folder_path(&s, ".bauta-3-0.folder")), 0);
    assert_int_equal(symlink("step-1", temp_folder_path(&s, ".bauta-3-0.tmp")),
                     0);
    bauta_run_free(hold(s.folder, false));
    for (size_t i = 0; i < sizeof(swept) / sizeof(swept[0]); i++)
        assert_false(exists(&s, swept[i]));
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        assert_true(exists(&s, kept[i]));
    assert_true(exists(&s, ".bauta-2-0.folder/mine"));
    assert_true(exists(&s, ".bauta-3-0.folder"));
    assert_true(exists(&s, ".bauta-3-0.tmp"));
    temp_folder_free(&s);
}

/* ---- removing ---------------------------------------------------------- */

static void a_checkpoint_with_only_our_files_is_removed(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_error err = { 0 };
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", temp_folder_path(&s, "step-1"));
    assert_int_equal(bauta_checkpoint_remove(folder, &err), BAUTA_OK);
    for (int mine = 1; mine >= 0; mine--) {
        assert_true(mkdir(folder, 0700) == 0 || errno == EEXIST);
        temp_folder_write(&s, "step-1/trainer.json", "{}", 2);
        temp_folder_write(&s, "step-1/vocab.txt", "", 0);
        if (mine) {
            temp_folder_write(&s, "step-1/mine", "", 0);
            assert_int_equal(bauta_checkpoint_remove(folder, &err),
                             BAUTA_ERR_IO);
            assert_non_null(strstr(err.message, "did not write 'mine'"));
            assert_true(exists(&s, "step-1/trainer.json"));
            assert_int_equal(unlink(temp_folder_path(&s, "step-1/mine")), 0);
        }
    }
    // A link with one of our names, in the folder and as the folder.
    temp_folder_write(&s, "elsewhere", "", 0);
    assert_int_equal(
        symlink("../elsewhere", temp_folder_path(&s, "step-1/config.json")), 0);
    assert_int_equal(bauta_checkpoint_remove(folder, &err), BAUTA_ERR_IO);
    assert_true(exists(&s, "step-1/trainer.json"));
    assert_int_equal(unlink(temp_folder_path(&s, "step-1/config.json")), 0);
    assert_int_equal(symlink("step-1", temp_folder_path(&s, "step-2")), 0);
    assert_int_equal(bauta_checkpoint_remove(s.path, &err), BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "is not a folder"));
    assert_true(exists(&s, "step-1/trainer.json"));
    assert_int_equal(bauta_checkpoint_remove(folder, &err), BAUTA_OK);
    assert_false(exists(&s, "step-1"));
    assert_int_equal(bauta_checkpoint_remove(NULL, NULL), BAUTA_ERR_ARGUMENT);
    temp_folder_free(&s);
}

/* ---- memory ------------------------------------------------------------ */

static void each_allocation_may_fail(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_run *run;
    bauta_error err;
    char path[512];
    size_t k = 0;
    snprintf(path, sizeof(path), "%s/a/b", s.folder);
    faults_begin();
    for (;; k++) {
        faults_arm(k);
        bauta_status status = bauta_run_open(&run, path, true, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(run);
        assert_int_equal(faults_live(), 0);
        assert_int_equal(temp_folder_count(&s), 0);
    }
    assert_int_equal(k, 2);
    bauta_run_free(run);
    for (k = 0;; k++) {
        faults_arm(k);
        bauta_status status = bauta_checkpoint_remove(path, &err);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
    }
    assert_true(k >= 2);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_has_one_owner),
        cmocka_unit_test(an_unknown_lock_holder_is_an_error),
        cmocka_unit_test(a_lock_ends_with_its_process),
        cmocka_unit_test(one_of_many_competitors_gets_the_lock),
        cmocka_unit_test(a_foreign_lock_file_is_refused),
        cmocka_unit_test(without_locks_nothing_is_removed),
        cmocka_unit_test(an_empty_run_folder_is_removed),
        cmocka_unit_test(partial_files_are_removed),
        cmocka_unit_test(a_checkpoint_with_only_our_files_is_removed),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
