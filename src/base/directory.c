/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - folders over POSIX; see directory.h. */
#include "base/directory.h"

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

struct bt_directory {
    char *path; /* where it is to be, without slashes at its end */
    char *parent;
    char *temporary; /* NULL while no folder of this name is ours */
};

static bauta_status fail_errno(bauta_error *err, const char *path,
                               const char *what)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: cannot %s: %s", bt_path_tail(path),
                   what, strerror(errno));
}

static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Nothing there, or an empty folder. */
static bauta_status vacant_check(const char *path, bauta_error *err)
{
    bool full = false;
    DIR *entries = opendir(path);
    if (!entries && errno == ENOENT)
        return BAUTA_OK;
    if (!entries)
        return fail_errno(err, path, "write a folder there");
    for (struct dirent *e; !full && (e = readdir(entries));)
        full = is_entry(e->d_name);
    closedir(entries);
    if (full)
        return bt_fail(err, BAUTA_ERR_IO,
                       "%s: exists and is not empty; choose another folder or "
                       "remove it",
                       bt_path_tail(path));
    return BAUTA_OK;
}

static char *text_copy(const char *text, size_t length)
{
    char *copy = bt_alloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* The path without slashes at its end, and the folder that it is in. */
static bool names_set(bt_directory *d, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    d->path = text_copy(path, length);
    if (!d->path)
        return false;
    const char *slash = strrchr(d->path, '/');
    if (slash)
        d->parent = text_copy(d->path,
                              slash == d->path ? 1 : (size_t)(slash - d->path));
    else
        d->parent = text_copy(".", 1);
    return d->parent != NULL;
}

/* A folder that did not exist before: another attempt is only needed where a
 * process of the same number died. */
static bauta_status temporary_create(bt_directory *d, bauta_error *err)
{
    static atomic_uint count;
    enum { ATTEMPTS = 1000 };
    char name[64];
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(name, sizeof(name), ".bauta-%ld-%u.folder", (long)getpid(),
                 atomic_fetch_add(&count, 1));
        char *path = bt_path_join(d->parent, name);
        if (!path)
            return bt_fail_memory(err, "the name of a folder", sizeof(name));
        if (mkdir(path, 0777) == 0) {
            d->temporary = path;
            return BAUTA_OK;
        }
        int code = errno;
        bt_free(path);
        errno = code;
        if (code != EEXIST)
            break;
    }
    return fail_errno(err, d->path, "create a folder beside it");
}

bauta_status bt_directory_create(bt_directory **out, const char *path,
                                 bauta_error *err)
{
    *out = NULL;
    if (!*path)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the folder has no name");
    bt_directory *d = bt_alloc_zero(1, sizeof(*d));
    if (!d)
        return bt_fail_memory(err, "a folder to write", sizeof(*d));
    bauta_status status =
        names_set(d, path)
            ? vacant_check(d->path, err)
            : bt_fail_memory(err, "the name of a folder", strlen(path) + 1);
    if (!status)
        status = temporary_create(d, err);
    if (status)
        bt_directory_free(d);
    else
        *out = d;
    return status;
}

char *bt_directory_file(const bt_directory *directory, const char *name)
{
    return bt_path_join(directory->temporary, name);
}

bauta_status bt_directory_write(const bt_directory *directory, const char *name,
                                const void *bytes, size_t size,
                                bauta_error *err)
{
    char *path = bt_directory_file(directory, name);
    if (!path)
        return bt_fail_memory(err, "the name of a file", strlen(name));
    bauta_status status = bt_file_write(path, bytes, size, err);
    bt_free(path);
    return status;
}

/* Make the names in a folder durable. Some file systems cannot and say so. */
static int names_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = fsync(fd);
    int code = errno;
    close(fd);
    errno = code;
    return result != 0 && code != EINVAL ? -1 : 0;
}

bauta_status bt_directory_commit(bt_directory *directory, bauta_error *err)
{
    bt_directory *d = directory;
    if (names_sync(d->temporary) != 0)
        return fail_errno(err, d->path, "write it");
    if (rename(d->temporary, d->path) != 0)
        return fail_errno(err, d->path, "put the new folder there");
    bt_free(d->temporary);
    d->temporary = NULL;
    if (names_sync(d->parent) != 0)
        return fail_errno(err, d->path, "make its name durable");
    return BAUTA_OK;
}

/* A draft has files only. */
static void temporary_remove(const char *path)
{
    DIR *entries = opendir(path);
    if (entries) {
        for (struct dirent *e; (e = readdir(entries));)
            if (is_entry(e->d_name))
                (void)unlinkat(dirfd(entries), e->d_name, 0);
        closedir(entries);
    }
    (void)rmdir(path);
}

void bt_directory_free(bt_directory *directory)
{
    if (!directory)
        return;
    if (directory->temporary)
        temporary_remove(directory->temporary);
    bt_free(directory->temporary);
    bt_free(directory->parent);
    bt_free(directory->path);
    bt_free(directory);
}
