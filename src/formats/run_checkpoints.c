/* SPDX-License-Identifier: Apache-2.0 */
/* run_checkpoints.c - listing and removing the checkpoints of a run. */
#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names --------------------------------------------------------------- */

static void step_name(char name[32], size_t step)
{
    snprintf(name, 32, BT_STEP_NAME, step);
}

char *bt_run_checkpoint_path(const char *run, size_t step)
{
    char name[32];
    step_name(name, step);
    return bt_path_join(run, name);
}

/* The step in the name of a checkpoint; 0 for other names. */
static size_t step_of(const char *name)
{
    char *end, again[32];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return 0;
    errno = 0;
    unsigned long step = strtoul(name + 5, &end, 10);
    step_name(again, step);
    return errno || strcmp(again, name) != 0 ? 0 : step;
}

bool bt_run_has_checkpoint(int folder, size_t step)
{
    struct stat is;
    char name[32], record[64];
    step_name(name, step);
    snprintf(record, sizeof(record), "%s/trainer.json", name);
    return fstatat(folder, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(is.st_mode) && faccessat(folder, record, F_OK, 0) == 0;
}

/* ---- listing ------------------------------------------------------------- */

static int step_compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

bauta_status bt_run_list(size_t **steps, size_t *count, int folder,
                         const char *path, size_t max_step, bauta_error *err)
{
    size_t room = 0;
    bauta_status status = BAUTA_OK;
    *steps = NULL;
    *count = 0;
    DIR *entries = bt_directory_open(folder, ".");
    if (!entries)
        return bt_fail_errno(err, path, "list it");
    for (struct dirent *e; !status && (e = readdir(entries));) {
        size_t step = step_of(e->d_name);
        if (!step || step > max_step || !bt_run_has_checkpoint(folder, step))
            continue;
        if (BT_ARRAY_RESERVE(*steps, room, *count, 1))
            status = bt_fail_memory(err, "a list of checkpoints", sizeof(step));
        else
            (*steps)[(*count)++] = step;
    }
    closedir(entries);
    if (*count)
        qsort(*steps, *count, sizeof(**steps), step_compare);
    return status;
}

bauta_status bauta_run_checkpoint(char **folder, size_t *step, const char *run,
                                  size_t max_step, bauta_error *err)
{
    BT_NEED(folder, err);
    *folder = NULL;
    BT_NEED(step, err);
    *step = 0;
    BT_NEED(run, err);
    size_t *steps, count;
    int fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return bt_fail_errno(err, run, "open the folder");
    bauta_status status = bt_run_list(&steps, &count, fd, run, max_step, err);
    close(fd);
    if (!status && count) {
        *folder = bt_run_checkpoint_path(run, steps[count - 1]);
        if (*folder)
            *step = steps[count - 1];
        else
            status = bt_fail_memory(err, "the name of a folder", strlen(run));
    }
    bt_free(steps);
    return status;
}

/* ---- removing ------------------------------------------------------------ */

bauta_status bt_run_prune(const bauta_run *run, size_t newest, size_t keep,
                          size_t best, bauta_error *err)
{
    size_t *steps, count;
    bauta_status first =
        bt_run_list(&steps, &count, run->folder, run->path, newest, err);
    size_t old = !first && count > keep ? count - keep : 0;
    for (size_t i = 0; i < old; i++) {
        if (steps[i] == best)
            continue;
        bauta_error *why = first ? NULL : err; // the first one is reported
        char *path = bt_run_checkpoint_path(run->path, steps[i]);
        bauta_status status =
            path ? bauta_checkpoint_remove(path, why)
                 : bt_fail_memory(why, "the name of a folder", 0);
        first = first ? first : status;
        bt_free(path);
    }
    bt_free(steps);
    return first;
}
