/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - files over POSIX; see file.h. */
#include "base/file.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the path cannot do, and what the system says about it. */
static bauta_status fail_errno(bauta_error *err, const char *path,
                               const char *what)
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
    while (((unsigned char)*path & 0xC0) == 0x80)
        path++; // not from within a character of UTF-8
    return path;
}

/* The first `length` bytes of `a`, then `b`. */
static char *text_join(const char *a, size_t length, const char *b)
{
    size_t more = strlen(b) + 1;
    char *text = bt_alloc(bt_size_add(length, more));
    if (!text)
        return NULL;
    memcpy(text, a, length);
    memcpy(text + length, b, more);
    return text;
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

/* ---- Folders ------------------------------------------------------------- */

bauta_status bt_parent_open(int *parent, const char **name, const char *path,
                            bauta_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    char *folder = slash ? text_join(path, length, "") : text_join(".", 1, "");
    *name = slash ? slash + 1 : path;
    *parent = -1;
    if (!folder)
        return bt_fail_memory(err, "the name of a folder", length + 1);
    *parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bt_free(folder);
    return *parent < 0 ? fail_errno(err, path, "open the folder it is in")
                       : BAUTA_OK;
}

int bt_folder_sync(int folder)
{
    return fsync(folder) != 0 && errno != EINVAL ? -1 : 0;
}

/* ---- Reading ------------------------------------------------------------- */

bool bt_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Open a regular file and say how large it is; *fd is -1 on failure. */
static bauta_status open_regular(int *fd, size_t *size, const char *path,
                                 bauta_error *err)
{
    struct stat info;
    bauta_status status = BAUTA_OK;
    // Without O_NONBLOCK opening a pipe waits for its writer. It means nothing
    // to regular files.
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return fail_errno(err, path, "open it");
    if (fstat(*fd, &info) != 0)
        status = fail_errno(err, path, "look at it");
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

/* Exactly `size` bytes; a file that has become shorter is an error. */
static bauta_status read_all(int fd, char *to, size_t size, const char *path,
                             bauta_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t count = read(fd, to + done, size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail_errno(err, path, "read it");
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
        status = bt_fail(err, BAUTA_ERR_IO,
                         "%s: has %zu bytes, of which at most %zu are read",
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
    if (size > 0) { // an empty mapping does not exist
        void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            status = fail_errno(err, path, "map it");
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

/* ---- Drafts -------------------------------------------------------------- */

struct bt_draft {
    char *path;         /* of the file that it is to be */
    const char *name;   /* the last part of the path */
    char temporary[64]; /* "" while no file of this name is ours */
    int folder, fd;     /* -1 when closed */
};

/* A file that did not exist before, nor a link of this name. Names differ by
 * process and by count, so a second attempt is only needed where a process of
 * the same number died. */
static bauta_status temporary_open(bt_draft *draft, bauta_error *err)
{
    static atomic_uint count;
    enum { ATTEMPTS = 1000 };
    char name[sizeof(draft->temporary)];
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(name, sizeof(name), ".bauta-%ld-%u.tmp", (long)getpid(),
                 atomic_fetch_add(&count, 1));
        // Not mkstemp, whose files only their owner may read.
        draft->fd =
            openat(draft->folder, name,
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (draft->fd >= 0) {
            memcpy(draft->temporary, name, sizeof(name));
            return BAUTA_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return fail_errno(err, draft->path, "create a file beside it");
}

/* The draft owns the folder's descriptor from here on. */
static bauta_status draft_make(bt_draft **out, int folder, const char *path,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_draft *draft = bt_alloc_zero(1, sizeof(*draft));
    if (!draft) {
        close(folder);
        return bt_fail_memory(err, "a file to write", sizeof(*draft));
    }
    *draft = (bt_draft){ .folder = folder, .fd = -1 };
    draft->path = text_join(path, strlen(path), "");
    if (draft->path) {
        const char *slash = strrchr(draft->path, '/');
        draft->name = slash ? slash + 1 : draft->path;
        status = temporary_open(draft, err);
    } else {
        status = bt_fail_memory(err, "the name of a file", strlen(path) + 1);
    }
    if (status)
        bt_draft_free(draft);
    else
        *out = draft;
    return status;
}

bauta_status bt_draft_create(bt_draft **out, const char *path, bauta_error *err)
{
    int folder;
    const char *name;
    *out = NULL;
    bauta_status status = bt_parent_open(&folder, &name, path, err);
    return status ? status : draft_make(out, folder, path, err);
}

bauta_status bt_draft_create_at(bt_draft **out, int folder, const char *path,
                                bauta_error *err)
{
    *out = NULL;
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return own < 0 ? fail_errno(err, path, "create a file there")
                   : draft_make(out, own, path, err);
}

bauta_status bt_draft_write(bt_draft *draft, const void *bytes, size_t size,
                            bauta_error *err)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t count = write(draft->fd, from, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail_errno(err, draft->path, "write it");
        from += count;
        size -= (size_t)count;
    }
    return BAUTA_OK;
}

bauta_status bt_draft_commit(bt_draft *draft, bauta_error *err)
{
    int fd = draft->fd;
    if (fsync(fd) != 0)
        return fail_errno(err, draft->path, "write it");
    draft->fd = -1; // whatever close says, the descriptor is gone
    if (close(fd) != 0)
        return fail_errno(err, draft->path, "write it");
    if (renameat(draft->folder, draft->temporary, draft->folder, draft->name))
        return fail_errno(err, draft->path, "replace it");
    draft->temporary[0] = '\0';
    if (bt_folder_sync(draft->folder) != 0)
        return fail_errno(err, draft->path, "make its new name durable");
    return BAUTA_OK;
}

void bt_draft_free(bt_draft *draft)
{
    if (!draft)
        return;
    if (draft->fd >= 0)
        close(draft->fd);
    if (draft->temporary[0])
        (void)unlinkat(draft->folder, draft->temporary, 0);
    if (draft->folder >= 0)
        close(draft->folder);
    bt_free(draft->path);
    bt_free(draft);
}

bauta_status bt_file_write(const char *path, const void *bytes, size_t size,
                           bauta_error *err)
{
    bt_draft *draft;
    bauta_status status = bt_draft_create(&draft, path, err);
    if (!status)
        status = bt_draft_write(draft, bytes, size, err);
    if (!status)
        status = bt_draft_commit(draft, err);
    bt_draft_free(draft);
    return status;
}
