/* SPDX-License-Identifier: Apache-2.0 */
/* run_lock.c - locking the folder of a training run.
 *
 * The lock is flock() on a file in the folder. The kernel releases it when the
 * process ends, for whatever reason. Process ids play no role, so it also works
 * between containers that share a folder, and between machines if the file
 * system supports it. The file's text names the holder, for error messages
 * only.
 *
 * The folder is untrusted: links are not followed, and only a regular file with
 * one name is written to. */
#include "base/error.h"
#include "base/memory.h"
#include "formats/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bauta_status fail_errno(bauta_error *err, const char *path,
                               const char *what)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: cannot %s: %s", bt_path_tail(path),
                   what, strerror(errno));
}

/* ---- the folder ---------------------------------------------------------- */

/* Create all missing folders of the path. */
static bauta_status folders_create(bauta_run *run, bauta_error *err)
{
    size_t length = strlen(run->path);
    for (size_t i = 1; i <= length; i++) {
        char end = run->path[i];
        if (end != '/' && end)
            continue;
        run->path[i] = '\0';
        int failed = mkdir(run->path, 0777);
        run->path[i] = end;
        if (!failed && !run->created)
            run->created = i;
        if (failed && errno != EEXIST)
            return fail_errno(err, run->path, "create the folder");
    }
    return BAUTA_OK;
}

/* Remove the folders that were created here and are still empty. */
static void folders_remove(bauta_run *run)
{
    for (size_t i = strlen(run->path); run->created && i >= run->created; i--) {
        if ((run->path[i] != '/' && run->path[i]) || run->path[i - 1] == '/')
            continue;
        run->path[i] = '\0';
        if (rmdir(run->path) != 0)
            return;
    }
}

/* ---- the lock ------------------------------------------------------------ */

static void holder_write(int lock)
{
    char host[128] = "", text[192];
    (void)gethostname(host, sizeof(host) - 1);
    int size = snprintf(text, sizeof(text), "process %ld on %s\n",
                        (long)getpid(), host);
    // A failure only shortens an error message.
    if (ftruncate(lock, 0) == 0 && size > 0) {
        ssize_t written = pwrite(lock, text, (size_t)size, 0);
        (void)written;
    }
}

static bauta_status fail_held(const bauta_run *run, int lock, bauta_error *err)
{
    char text[64];
    ssize_t size = pread(lock, text, sizeof(text) - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s: another training runs in this folder (%s); stop it or "
                   "choose another folder",
                   bt_path_tail(run->path),
                   *text ? bt_quote(text).text : "unknown process");
}

/* Whether the file still has its name: the last holder may have removed it
 * since it was opened. */
static bool has_its_name(const bauta_run *run, int lock)
{
    struct stat mine, named;
    return fstat(lock, &mine) == 0 &&
           fstatat(run->folder, BT_RUN_LOCK, &named, AT_SYMLINK_NOFOLLOW) ==
               0 &&
           mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

/* *lock is -1 if it must be tried again. */
static bauta_status lock_try(bauta_run *run, int *lock, bauta_error *err)
{
    struct stat is;
    int failed;
    *lock =
        openat(run->folder, BT_RUN_LOCK,
               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*lock < 0)
        return fail_errno(err, run->path, "open '" BT_RUN_LOCK "' in it");
    if (fstat(*lock, &is) != 0 || !S_ISREG(is.st_mode) || is.st_nlink > 1)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: '" BT_RUN_LOCK "' in it is not a file that bauta "
                       "made; remove it",
                       bt_path_tail(run->path));
    while ((failed = flock(*lock, LOCK_EX | LOCK_NB)) && errno == EINTR)
        ;
    if (failed && errno == EWOULDBLOCK)
        return fail_held(run, *lock, err);
    run->locked = !failed; // some file systems do not support locks
    if (failed || has_its_name(run, *lock))
        return BAUTA_OK;
    close(*lock);
    *lock = -1;
    return BAUTA_OK;
}

static bauta_status lock_take(bauta_run *run, bauta_error *err)
{
    enum { ATTEMPTS = 100 };
    bauta_status status = BAUTA_OK;
    for (int i = 0; !status && run->lock < 0 && i < ATTEMPTS; i++)
        status = lock_try(run, &run->lock, err);
    if (!status && run->lock < 0)
        status = bt_fail(err, BAUTA_ERR_IO,
                         "%s: cannot be locked: other programs keep locking it",
                         bt_path_tail(run->path));
    if (status) {
        run->locked = false;
        return status;
    }
    if (run->locked)
        holder_write(run->lock);
    return BAUTA_OK;
}

/* ---- leftovers of killed programs ---------------------------------------- */

/* No other program writes here while the lock is held, so every file with a
 * temporary name was left by a program that was killed. */
static bauta_status leftovers_remove(const bauta_run *run, bauta_error *err)
{
    DIR *entries = bt_directory_open(run->folder, ".");
    if (!entries)
        return fail_errno(err, run->path, "list it");
    for (struct dirent *e; (e = readdir(entries));) {
        struct stat is;
        if (bt_is_temporary_name(e->d_name, ".folder"))
            (void)bt_checkpoint_remove(run->folder, e->d_name, e->d_name, NULL);
        else if (bt_is_temporary_name(e->d_name, ".tmp") &&
                 fstatat(run->folder, e->d_name, &is, AT_SYMLINK_NOFOLLOW) ==
                     0 &&
                 S_ISREG(is.st_mode))
            (void)unlinkat(run->folder, e->d_name, 0);
    }
    closedir(entries);
    return BAUTA_OK;
}

/* ---- public calls -------------------------------------------------------- */

static bauta_status run_fill(bauta_run *run, bool create, bauta_error *err)
{
    bauta_status status = create ? folders_create(run, err) : BAUTA_OK;
    if (status)
        return status;
    run->folder = open(run->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->folder < 0)
        return fail_errno(err, run->path, "open the folder");
    status = lock_take(run, err);
    if (!status && run->locked)
        status = leftovers_remove(run, err);
    return status;
}

bauta_status bauta_run_open(bauta_run **out, const char *folder, bool create,
                            bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(folder, err);
    if (!*folder)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the folder has no name");
    bauta_run *run = bt_alloc_zero(1, sizeof(*run));
    if (!run)
        return bt_fail_memory(err, "a run", sizeof(*run));
    run->folder = run->lock = -1;
    run->path = bt_path_strip_slashes(folder);
    bauta_status status = run->path
                              ? run_fill(run, create, err)
                              : bt_fail_memory(err, "the name of a folder", 0);
    if (status)
        bauta_run_free(run);
    else
        *out = run;
    return status;
}

bool bauta_run_locked(const bauta_run *run)
{
    return run->locked;
}

void bauta_run_free(bauta_run *run)
{
    if (!run)
        return;
    if (run->locked)
        (void)unlinkat(run->folder, BT_RUN_LOCK, 0);
    if (run->path)
        folders_remove(run);
    if (run->lock >= 0)
        close(run->lock);
    if (run->folder >= 0)
        close(run->folder);
    bt_free(run->path);
    bt_free(run);
}
