/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - files over POSIX; see file.h. */
#include "base/file.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bauta_status bt_fail_errno(bauta_error *err, const char *path, const char *what)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s: cannot %s: %s", bt_path_tail(path),
                   what, strerror(errno));
}

const char *bt_path_tail(const char *path)
{
    enum { SHOWN = 120 };
    size_t length = strlen(path);
    if (length > SHOWN)
        path += length - SHOWN;
    while (bt_utf8_continues(*path))
        path++; // do not start inside a UTF-8 character
    return path;
}

bool bt_ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

char *bt_path_copy(const char *path, size_t length)
{
    char *copy = bt_alloc(bt_size_add(length, 1));
    if (!copy)
        return NULL;
    memcpy(copy, path, length);
    copy[length] = '\0';
    return copy;
}

char *bt_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder), size = length + strlen(name) + 2;
    char *path = bt_alloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", folder,
                 length && folder[length - 1] == '/' ? "" : "/", name);
    return path;
}

/* ---- Directories
 * ------------------------------------------------------------- */

bauta_status bt_path_open_parent(int *parent, const char **name,
                                 const char *path, bauta_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    char *folder = slash ? bt_path_copy(path, length) : bt_path_copy(".", 1);
    *name = slash ? slash + 1 : path;
    *parent = -1;
    if (!folder)
        return bt_fail_memory(err, "the name of a folder", length + 1);
    *parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bt_free(folder);
    return *parent < 0 ? bt_fail_errno(err, path, "open the folder it is in")
                       : BAUTA_OK;
}

int bt_directory_sync(int folder)
{
    return fsync(folder) != 0 && errno != EINVAL ? -1 : 0;
}

/* ---- Reading ------------------------------------------------------------- */

bool bt_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Open a regular file and get its size; *fd is -1 on failure. */
static bauta_status open_regular(int *fd, size_t *size, const char *path,
                                 bauta_error *err)
{
    struct stat info;
    bauta_status status = BAUTA_OK;
    // Without O_NONBLOCK, opening a pipe waits for a writer. It has no effect
    // on regular files.
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return bt_fail_errno(err, path, "open it");
    if (fstat(*fd, &info) != 0)
        status = bt_fail_errno(err, path, "look at it");
    else if (!S_ISREG(info.st_mode))
        status = bt_fail(err, BAUTA_ERR_IO, "%s: is %s, not a regular file",
                         bt_path_tail(path),
                         S_ISDIR(info.st_mode) ? "a folder" : "special");
    else if ((uintmax_t)info.st_size > PTRDIFF_MAX)
        status = bt_fail(err, BAUTA_ERR_IO, "%s: is too large to address",
                         bt_path_tail(path));
    else
        *size = (size_t)info.st_size;
    if (status) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* Read exactly `size` bytes; a file that became shorter is an error. */
static bauta_status read_all(int fd, char *to, size_t size, const char *path,
                             bauta_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = read(fd, to + done, size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return bt_fail_errno(err, path, "read it");
        if (count == 0)
            return bt_fail(err, BAUTA_ERR_IO,
                           "%s: became shorter while it was read",
                           bt_path_tail(path));
        done += (size_t)count;
    }
    return BAUTA_OK;
}

bauta_status bt_file_read(char **out, size_t *size, const char *path,
                          size_t limit, bauta_error *err)
{
    char *text = NULL;
    size_t length = 0;
    int fd = -1;

    *out = NULL;
    *size = 0;
    bauta_status status = open_regular(&fd, &length, path, err);
    if (status)
        return status;
    if (length > limit) {
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: has %zu bytes; the limit is %zu",
                         bt_path_tail(path), length, limit);
        goto done;
    }
    text = bt_alloc(length + 1);
    if (!text) {
        status = bt_fail_memory(err, bt_path_tail(path), length + 1);
        goto done;
    }
    status = read_all(fd, text, length, path, err);
    if (status)
        goto done;
    text[length] = '\0';
    *out = text;
    *size = length;
    text = NULL;
done:
    close(fd);
    bt_free(text);
    return status;
}

bauta_status bt_file_map_init(bt_file_map *map, const char *path,
                              bauta_error *err)
{
    int fd = -1;
    size_t size = 0;
    *map = (bt_file_map){ NULL, 0 };
    bauta_status status = open_regular(&fd, &size, path, err);
    if (status)
        return status;
    if (size > 0) { // mmap() refuses an empty mapping
        void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            status = bt_fail_errno(err, path, "map it");
        else
            *map = (bt_file_map){ bytes, size };
    }
    close(fd); // the mapping keeps the file
    return status;
}

void bt_file_map_release(bt_file_map *map)
{
    if (map->size > 0)
        munmap((void *)(uintptr_t)map->bytes, map->size);
    *map = (bt_file_map){ NULL, 0 };
}

void bt_file_map_forget(const void *bytes, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)bytes + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)bytes + size) / page * page;
    if (from < to)
        (void)madvise((void *)from, to - from, MADV_DONTNEED); // only a hint
}

/* ---- Atomic files
 * -------------------------------------------------------------- */

struct bt_atomic_file {
    char *path;         /* of the target */
    const char *name;   /* last component of the path */
    char temporary[64]; /* room for the name of a temporary file */
    const char *draft;  /* the name that it has until then; NULL when none */
    int folder, fd;     /* -1 when closed */
    bool in_draft;      /* of a directory: it has its own name there */
};

/* Create a file that did not exist, not even as a link. The name holds the
 * process id and a counter, so a retry is needed only when a process with the
 * same id died and left a file behind. */
static bauta_status temporary_open(bt_atomic_file *file, bauta_error *err)
{
    static atomic_uint count;
    enum { ATTEMPTS = 1000 };
    const char *name = file->in_draft ? file->name : file->temporary;
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(file->temporary, sizeof(file->temporary), ".bauta-%ld-%u.tmp",
                 (long)getpid(), atomic_fetch_add(&count, 1));
        // Not mkstemp(), whose files are readable by their owner only.
        file->fd =
            openat(file->folder, name,
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->fd >= 0) {
            file->draft = name;
            return BAUTA_OK;
        }
        if (errno != EEXIST || file->in_draft)
            break;
    }
    return bt_fail_errno(err, file->path, "create a file beside it");
}

/* Takes ownership of the directory's descriptor. */
static bauta_status draft_make(bt_atomic_file **out, int folder, bool in_draft,
                               const char *path, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_atomic_file *file = bt_alloc_zero(1, sizeof(*file));
    if (!file) {
        close(folder);
        return bt_fail_memory(err, "a file to write", sizeof(*file));
    }
    *file =
        (bt_atomic_file){ .folder = folder, .fd = -1, .in_draft = in_draft };
    file->path = bt_path_copy(path, strlen(path));
    if (file->path) {
        const char *slash = strrchr(file->path, '/');
        file->name = slash ? slash + 1 : file->path;
        status = temporary_open(file, err);
    } else {
        status = bt_fail_memory(err, "the name of a file", strlen(path) + 1);
    }
    if (status)
        bt_atomic_file_free(file);
    else
        *out = file;
    return status;
}

bauta_status bt_atomic_file_create(bt_atomic_file **out, const char *path,
                                   bauta_error *err)
{
    int folder;
    const char *name;
    *out = NULL;
    bauta_status status = bt_path_open_parent(&folder, &name, path, err);
    return status ? status : draft_make(out, folder, false, path, err);
}

bauta_status bt_atomic_file_create_at(bt_atomic_file **out, int folder,
                                      const char *path, bauta_error *err)
{
    *out = NULL;
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return own < 0 ? bt_fail_errno(err, path, "create a file there")
                   : draft_make(out, own, true, path, err);
}

bauta_status bt_atomic_file_write(bt_atomic_file *file, const void *bytes,
                                  size_t size, bauta_error *err)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t count = write(file->fd, from, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return bt_fail_errno(err, file->path, "write it");
        from += count;
        size -= (size_t)count;
    }
    return BAUTA_OK;
}

bauta_status bt_atomic_file_commit(bt_atomic_file *file, bauta_error *err)
{
    int fd = file->fd;
    if (!file->in_draft && fsync(fd) != 0)
        return bt_fail_errno(err, file->path, "write it");
    file->fd = -1; // close() releases it even when it fails
    if (close(fd) != 0)
        return bt_fail_errno(err, file->path, "write it");
    if (!file->in_draft &&
        renameat(file->folder, file->draft, file->folder, file->name))
        return bt_fail_errno(err, file->path, "replace it");
    file->draft = NULL;
    if (!file->in_draft && bt_directory_sync(file->folder) != 0)
        return bt_fail_errno(err, file->path, "make its new name durable");
    return BAUTA_OK;
}

void bt_atomic_file_free(bt_atomic_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->draft)
        (void)unlinkat(file->folder, file->draft, 0);
    if (file->folder >= 0)
        close(file->folder);
    bt_free(file->path);
    bt_free(file);
}

bauta_status bt_file_write(const char *path, const void *bytes, size_t size,
                           bauta_error *err)
{
    bt_atomic_file *file;
    bauta_status status = bt_atomic_file_create(&file, path, err);
    if (!status)
        status = bt_atomic_file_write(file, bytes, size, err);
    if (!status)
        status = bt_atomic_file_commit(file, err);
    bt_atomic_file_free(file);
    return status;
}
