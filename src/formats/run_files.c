/* SPDX-License-Identifier: Apache-2.0 */
/* run_files.c - writing files and links into the folder of a run. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files --------------------------------------------------------------- */

enum { NAME_ROOM = 64 };

/* ".name.new" */
static const char *draft_name(char draft[NAME_ROOM], const char *name)
{
    snprintf(draft, NAME_ROOM, ".%s.new", name);
    return draft;
}

FILE *bt_run_draft(const bauta_run *run, const char *name)
{
    char draft[NAME_ROOM];
    (void)unlinkat(run->folder, draft_name(draft, name), 0);
    int fd = openat(run->folder, draft,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file && fd >= 0) {
        int code = errno;
        close(fd);
        (void)unlinkat(run->folder, draft, 0);
        errno = code;
    }
    return file;
}

int bt_run_commit(const bauta_run *run, FILE *file, const char *name)
{
    char draft[NAME_ROOM];
    draft_name(draft, name);
    if (fflush(file) == 0 && fsync(fileno(file)) == 0 &&
        renameat(run->folder, draft, run->folder, name) == 0)
        return bt_directory_sync(run->folder);
    int code = errno;
    (void)unlinkat(run->folder, draft, 0);
    errno = code;
    return -1;
}

bauta_status bt_run_fail(const bauta_run *run, const char *name,
                         bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_IO, "%s/%s: cannot write: %s",
                   bt_path_tail(run->path), name, strerror(errno));
}

bauta_status bauta_run_write(const bauta_run *run, const char *name,
                             const void *bytes, size_t size, bauta_error *err)
{
    BT_NEED(run, err);
    BT_NEED(name, err);
    if (size)
        BT_NEED(bytes, err);
    if (!*name || strchr(name, '/') || strlen(name) + 6 > NAME_ROOM ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "'%.80s' is not the name of a file in a run", name);
    FILE *file = bt_run_draft(run, name);
    bool good = file && (size == 0 || fwrite(bytes, size, 1, file) == 1) &&
                bt_run_commit(run, file, name) == 0;
    bauta_status status = good ? BAUTA_OK : bt_run_fail(run, name, err);
    if (file)
        fclose(file);
    return status;
}

/* ---- links --------------------------------------------------------------- */

bauta_status bt_run_link(const bauta_run *run, const char *name, size_t step,
                         bauta_error *err)
{
    char target[32], draft[NAME_ROOM], is[32];
    snprintf(target, sizeof(target), BT_STEP_NAME, step);
    ssize_t length = readlinkat(run->folder, name, is, sizeof(is));
    if (length == (ssize_t)strlen(target) &&
        memcmp(is, target, (size_t)length) == 0)
        return BAUTA_OK;
    (void)unlinkat(run->folder, draft_name(draft, name), 0);
    if (symlinkat(target, run->folder, draft) == 0 &&
        renameat(run->folder, draft, run->folder, name) == 0 &&
        bt_directory_sync(run->folder) == 0)
        return BAUTA_OK;
    bauta_status status = bt_run_fail(run, name, err);
    (void)unlinkat(run->folder, draft, 0);
    return status;
}

static bool is_link(const bauta_run *run, const char *name)
{
    struct stat is;
    return fstatat(run->folder, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISLNK(is.st_mode);
}

bauta_status bt_run_links(const bauta_run *run, size_t last, size_t best,
                          bauta_error *err)
{
    size_t *steps, count;
    bauta_status status = bt_run_link(run, "last", last, err);
    if (status)
        return status;
    if (best && bt_run_has_checkpoint(run->folder, best))
        return bt_run_link(run, "best", best, err);
    status = bt_run_list(&steps, &count, run->folder, run->path, SIZE_MAX, err);
    bool later = !status && count && steps[count - 1] > last;
    bt_free(steps);
    if (later && is_link(run, "best") && unlinkat(run->folder, "best", 0))
        status = bt_run_fail(run, "best", err);
    return status;
}
