/* SPDX-License-Identifier: Apache-2.0 */
/* atomic_directory.c - atomic directories over POSIX; see atomic_directory.h.
 */
#define _GNU_SOURCE // sync_file_range()
#include "base/atomic_directory.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct bt_atomic_directory {
    char *path;         /* the target, without trailing slashes */
    const char *name;   /* last component of the path */
    char temporary[64]; /* name of the temporary directory; "" when none */
    int parent, fd;     /* -1 when closed */
};

static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

DIR *bt_directory_open(int folder, const char *name)
{
    int fd =
        openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) {
        int code = errno;
        close(fd);
        errno = code;
    }
    return entries;
}

/* Fail unless the target does not exist or is an empty directory. */
static bauta_status target_check(const bt_atomic_directory *d, bauta_error *err)
{
    bool full = false;
    DIR *entries = bt_directory_open(d->parent, d->name);
    if (!entries && errno == ENOENT)
        return BAUTA_OK;
    if (!entries && (errno == ELOOP || errno == ENOTDIR))
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: exists and is not a folder; choose another name or "
                       "remove it",
                       bt_path_tail(d->path));
    if (!entries)
        return bt_fail_errno(err, d->path, "write a folder there");
    for (struct dirent *e; !full && (e = readdir(entries));)
        full = is_entry(e->d_name);
    closedir(entries);
    if (full)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: exists and is not empty; choose another folder or "
                       "remove it",
                       bt_path_tail(d->path));
    return BAUTA_OK;
}

char *bt_path_strip_slashes(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return bt_path_copy(path, length);
}

/* Create a directory that did not exist. A retry is needed only when a process
 * with the same id died and left one behind. */
static bauta_status temporary_create(bt_atomic_directory *d, bauta_error *err)
{
    static atomic_uint count;
    enum { ATTEMPTS = 1000 };
    char name[sizeof(d->temporary)];
    int made = -1;
    for (int i = 0; made && i < ATTEMPTS; i++) {
        snprintf(name, sizeof(name), BT_ATOMIC_DIRECTORY_TEMPORARY,
                 (long)getpid(), atomic_fetch_add(&count, 1));
        made = mkdirat(d->parent, name, 0777);
        if (made && errno != EEXIST)
            break;
    }
    if (made)
        return bt_fail_errno(err, d->path, "create a folder beside it");
    memcpy(d->temporary, name, sizeof(name));
    d->fd = openat(d->parent, name,
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return d->fd < 0 ? bt_fail_errno(err, d->path, "open a folder beside it")
                     : BAUTA_OK;
}

bauta_status bt_atomic_directory_create(bt_atomic_directory **out,
                                        const char *path, bauta_error *err)
{
    *out = NULL;
    if (!*path)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the folder has no name");
    bt_atomic_directory *d = bt_alloc_zero(1, sizeof(*d));
    if (!d)
        return bt_fail_memory(err, "a folder to write", sizeof(*d));
    d->parent = d->fd = -1;
    d->path = bt_path_strip_slashes(path);
    bauta_status status =
        d->path ? bt_path_open_parent(&d->parent, &d->name, d->path, err)
                : bt_fail_memory(err, "the name of a folder", strlen(path) + 1);
    if (!status)
        status = target_check(d, err);
    if (!status)
        status = temporary_create(d, err);
    if (status)
        bt_atomic_directory_free(d);
    else
        *out = d;
    return status;
}

bauta_status bt_atomic_directory_file(const bt_atomic_directory *directory,
                                      bt_atomic_file **out, const char *name,
                                      bauta_error *err)
{
    *out = NULL;
    char *path = bt_path_join(directory->path, name);
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(name));
    bauta_status status =
        bt_atomic_file_create_at(out, directory->fd, path, err);
    bt_free(path);
    return status;
}

bauta_status bt_atomic_directory_write(const bt_atomic_directory *directory,
                                       const char *name, const void *bytes,
                                       size_t size, bauta_error *err)
{
    bt_atomic_file *file;
    bauta_status status = bt_atomic_directory_file(directory, &file, name, err);
    if (!status)
        status = bt_atomic_file_write(file, bytes, size, err);
    if (!status)
        status = bt_atomic_file_commit(file, err);
    bt_atomic_file_free(file);
    return status;
}

/* Start writing a file to disk; only a hint. */
static int file_start(int fd)
{
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd;
#endif
    return 0;
}

static int with_file(int folder, const char *name, int (*use)(int fd))
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int status = fd < 0 ? -1 : use(fd), code = errno;
    if (fd >= 0)
        close(fd);
    errno = code;
    return status;
}

static int with_files(int folder, int (*use)(int fd))
{
    int status = 0;
    DIR *entries = bt_directory_open(folder, ".");
    if (!entries)
        return -1;
    for (struct dirent *e; status == 0 && (e = readdir(entries));)
        if (is_entry(e->d_name))
            status = with_file(folder, e->d_name, use);
    int code = errno;
    closedir(entries);
    errno = code;
    return status;
}

/* Sync all files, then the directory. The files are sent to the disk together
 * first, so that one transaction of the file system holds them and most of the
 * calls that follow find nothing left to do. */
static int files_sync(int folder)
{
    return with_files(folder, file_start) != 0 || with_files(folder, fsync) != 0
               ? -1
               : bt_directory_sync(folder);
}

bauta_status bt_atomic_directory_commit(bt_atomic_directory *directory,
                                        bauta_error *err)
{
    bt_atomic_directory *d = directory;
    if (files_sync(d->fd) != 0)
        return bt_fail_errno(err, d->path, "write it");
    // rename() does not replace a file or a link with a directory.
    if (renameat(d->parent, d->temporary, d->parent, d->name) != 0)
        return bt_fail_errno(err, d->path, "put the new folder there");
    d->temporary[0] = '\0';
    if (bt_directory_sync(d->parent) != 0)
        return bt_fail_errno(err, d->path, "make its name durable");
    return BAUTA_OK;
}

/* It holds files only. */
static void temporary_remove(const bt_atomic_directory *d)
{
    DIR *entries = d->fd < 0 ? NULL : bt_directory_open(d->fd, ".");
    if (entries) {
        for (struct dirent *e; (e = readdir(entries));)
            if (is_entry(e->d_name))
                (void)unlinkat(d->fd, e->d_name, 0);
        closedir(entries);
    }
    (void)unlinkat(d->parent, d->temporary, AT_REMOVEDIR);
}

void bt_atomic_directory_free(bt_atomic_directory *directory)
{
    if (!directory)
        return;
    if (directory->temporary[0])
        temporary_remove(directory);
    if (directory->fd >= 0)
        close(directory->fd);
    if (directory->parent >= 0)
        close(directory->parent);
    bt_free(directory->path);
    bt_free(directory);
}
