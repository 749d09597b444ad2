/* SPDX-License-Identifier: Apache-2.0 */
/* train_folder.c - bauta train: the folder of a run. bauta_run_train() writes
 * most of it; the program adds options.json and TensorBoard's events.
 *
 * A run folder may come from an untrusted source. Everything is named relative
 * to the open folder, only new files are written, and no link is followed. */
#include "cli.h"
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A new run must not continue another one. */
static int no_run_check(const char *run)
{
    bauta_error err;
    char *checkpoint;
    size_t step;
    if (bauta_run_checkpoint(&checkpoint, &step, run, SIZE_MAX, &err))
        return train_failed(&err);
    bauta_text_free(checkpoint);
    return step == 0 ? CLI_OK
                     : cli_fail(VERB,
                                "%s already has a run: '--resume %s' continues "
                                "it, another --out starts a new one",
                                run, run);
}

int folder_open(run_folder *f, const char *run, bool resumed, bool held)
{
    bauta_error err;
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
    return resumed ? CLI_OK : no_run_check(run);
}

void folder_close(run_folder *f)
{
    if (f->fd >= 0)
        close(f->fd);
    bauta_run_free(f->run);
    *f = (run_folder){ .fd = -1 };
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
