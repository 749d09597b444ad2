/* SPDX-License-Identifier: Apache-2.0 */
/* train_folder.c - bauta train: the folder of a run.
 *
 *   RUN/step-00001000/   checkpoints, each a model folder
 *   RUN/last, RUN/best   links to two of them
 *   RUN/average/         the mean of the last ones, or the moving average
 *   RUN/metrics.jsonl, RUN/events.out.tfevents.*
 *
 * A run folder may come from an untrusted source. Everything is named relative
 * to the open folder, only new files are written, and no link is followed when
 * writing or removing. */
#include "cli.h"
#include "format.h"
#include "train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_NAME "step-%08zu"

char *checkpoint_path(const char *run, size_t step)
{
    return format_string("%s/" STEP_NAME, run, step);
}

/* The step in the name of a checkpoint; 0 for other names. */
static size_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return 0;
    errno = 0;
    unsigned long step = strtoul(name + 5, &end, 10);
    return *end || errno ? 0 : step;
}

/* A checkpoint whose removal was interrupted has no trainer.json. */
static bool is_complete(const run_folder *f, const char *name)
{
    struct stat is;
    char path[300];
    snprintf(path, sizeof(path), "%s/trainer.json", name);
    return fstatat(f->fd, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(is.st_mode) && faccessat(f->fd, path, F_OK, 0) == 0;
}

/* Insert `step` among the largest `count`; returns how many there are. */
static size_t step_insert(size_t *steps, size_t held, size_t count, size_t step)
{
    size_t at = held;
    if (held == count) {
        if (count == 0 || step < steps[0])
            return held;
        memmove(steps, steps + 1, (count - 1) * sizeof(*steps));
        at = --held;
    }
    while (at > 0 && steps[at - 1] > step) {
        steps[at] = steps[at - 1];
        at--;
    }
    steps[at] = step;
    return held + 1;
}

size_t folder_steps(const run_folder *f, size_t most, size_t *steps,
                    size_t count)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t held = 0;
    const struct dirent *entry;
    if (!dir && fd >= 0)
        close(fd);
    while (dir && (entry = readdir(dir))) {
        size_t step = step_of(entry->d_name);
        if (step && step <= most && is_complete(f, entry->d_name))
            held = step_insert(steps, held, count, step);
    }
    if (dir)
        closedir(dir);
    return held;
}

int folder_open(run_folder *f, const char *run, bool resumed, bool held)
{
    bauta_error err;
    size_t step;
    *f = (run_folder){ .path = run, .fd = -1 };
    if (held && bauta_run_open(&f->run, run, !resumed, &err))
        return train_failed(&err);
    if (held && !bauta_run_locked(f->run))
        fprintf(stderr,
                "%s: the file system has no locks; make sure that no other "
                "training process writes there\n",
                run);
    f->fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return cli_fail(VERB, "%s: %s", run, strerror(errno));
    if (!resumed && folder_steps(f, SIZE_MAX, &step, 1))
        return cli_fail(VERB,
                        "%s already has a run: '--resume %s' continues it, "
                        "another --out starts a new one",
                        run, run);
    return CLI_OK;
}

void folder_close(run_folder *f)
{
    if (f->fd >= 0)
        close(f->fd);
    bauta_run_free(f->run);
    *f = (run_folder){ .fd = -1 };
}

int folder_failed(const run_folder *f, const char *name)
{
    return cli_fail(VERB, "%s/%s: cannot write: %s", f->path, name,
                    strerror(errno));
}

FILE *folder_create(const run_folder *f, const char *name)
{
    int fd = openat(f->fd, name,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file && fd >= 0) {
        int code = errno;
        close(fd);
        (void)unlinkat(f->fd, name, 0);
        errno = code;
    }
    return file;
}

/* ".name.new" */
static const char *draft_name(char draft[64], const char *name)
{
    snprintf(draft, 64, ".%s.new", name);
    return draft;
}

FILE *folder_draft(const run_folder *f, const char *name)
{
    char draft[64];
    (void)unlinkat(f->fd, draft_name(draft, name), 0);
    return folder_create(f, draft);
}

int folder_commit(const run_folder *f, FILE *file, const char *name)
{
    char draft[64];
    draft_name(draft, name);
    if (fflush(file) == 0 && fsync(fileno(file)) == 0 &&
        renameat(f->fd, draft, f->fd, name) == 0)
        return folder_sync(f);
    int code = errno;
    (void)unlinkat(f->fd, draft, 0);
    errno = code;
    return -1;
}

int folder_link(const run_folder *f, const char *name, size_t step)
{
    char target[32], draft[64], is[32];
    snprintf(target, sizeof(target), STEP_NAME, step);
    ssize_t length = readlinkat(f->fd, name, is, sizeof(is));
    if (length == (ssize_t)strlen(target) &&
        memcmp(is, target, (size_t)length) == 0)
        return CLI_OK;
    (void)unlinkat(f->fd, draft_name(draft, name), 0);
    if (symlinkat(target, f->fd, draft) == 0 &&
        renameat(f->fd, draft, f->fd, name) == 0 && folder_sync(f) == 0)
        return CLI_OK;
    int failed = folder_failed(f, name);
    (void)unlinkat(f->fd, draft, 0);
    return failed;
}

/* Some file systems do not support it: EINVAL. */
int folder_sync(const run_folder *f)
{
    return fsync(f->fd) && errno != EINVAL ? -1 : 0;
}

static bool is_link(const run_folder *f, const char *name)
{
    struct stat is;
    return fstatat(f->fd, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISLNK(is.st_mode);
}

int folder_links(const run_folder *f, size_t last, size_t best, bool back)
{
    char name[32];
    int failed = folder_link(f, "last", last);
    snprintf(name, sizeof(name), STEP_NAME, best);
    if (failed)
        return failed;
    if (best && is_complete(f, name))
        return folder_link(f, "best", best);
    if (back && is_link(f, "best") && unlinkat(f->fd, "best", 0))
        return folder_failed(f, "best");
    return CLI_OK;
}

int folder_remove(const run_folder *f, const char *name)
{
    bauta_error err = { .message = "out of memory" };
    char *path = format_string("%s/%s", f->path, name);
    bauta_status status =
        path ? bauta_checkpoint_remove(path, &err) : BAUTA_ERR_NOMEM;
    free(path);
    return status ? train_failed(&err) : CLI_OK;
}

void folder_prune(run_folder *f, size_t newest, size_t keep, size_t best)
{
    enum { SOME = 4096 };
    bauta_error err = { .message = "out of memory" };
    size_t *steps = calloc(SOME, sizeof(*steps));
    size_t count = steps ? folder_steps(f, newest, steps, SOME) : 0;
    for (size_t i = 0; i + keep < count; i++) {
        char *path =
            steps[i] == best ? NULL : checkpoint_path(f->path, steps[i]);
        // A failure is no reason to stop, and is reported once.
        if (path && bauta_checkpoint_remove(path, &err) && !f->warned) {
            f->warned = true;
            fprintf(stderr, "%s\n", err.message);
        }
        free(path);
    }
    free(steps);
}
