/* SPDX-License-Identifier: Apache-2.0 */
/* train_folder.c - bauta train: the folder of a run.
 *
 *   RUN/step-00001000/   checkpoints, each a model folder
 *   RUN/last, RUN/best   links to two of them
 *   RUN/average/         the mean of the last ones, or the moving average
 *   RUN/metrics.jsonl, RUN/events.out.tfevents.* */
#include "cli.h"
#include "train.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_NAME "step-%08zu"
enum { PATH_ROOM = PATH_MAX + 64 };

char *checkpoint_path(const char *run, size_t step)
{
    return text_of("%s/" STEP_NAME, run, step);
}

/* The number of a checkpoint's name; 0 for other names. */
static size_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return 0;
    unsigned long step = strtoul(name + 5, &end, 10);
    return *end ? 0 : step;
}

/* What is left of one whose removal was cut short has no trainer.json. */
static bool is_whole(const char *run, const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof(path), "%s/%s/trainer.json", run, name);
    return access(path, F_OK) == 0;
}

/* Put `step` into its place among the largest `count`; how many are there. */
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

size_t folder_steps(const char *run, size_t *steps, size_t count)
{
    DIR *dir = opendir(run);
    size_t held = 0;
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        size_t step = step_of(entry->d_name);
        if (step && is_whole(run, entry->d_name))
            held = step_insert(steps, held, count, step);
    }
    if (dir)
        closedir(dir);
    return held;
}

/* All folders of a path. */
static int folders_make(const char *path)
{
    char part[PATH_ROOM];
    size_t length = strlen(path);
    if (length >= sizeof(part)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i])
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return -1;
    }
    return 0;
}

/* Whether a name is of a folder that the library was writing (see
 * bauta_trainer_save) in a process that is no more. */
static bool is_left_behind(const char *name)
{
    long process;
    int end = 0;
    if (sscanf(name, ".bauta-%ld-%*u.folder%n", &process, &end) != 1 || !end ||
        name[end] || process <= 0)
        return false;
    return kill((pid_t)process, 0) && errno == ESRCH;
}

/* Remove what a killed program left behind. */
static void folder_sweep(const char *run)
{
    char path[PATH_ROOM];
    DIR *dir = opendir(run);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "%s/%s", run, entry->d_name);
        if (is_left_behind(entry->d_name))
            folder_remove(path);
    }
    if (dir)
        closedir(dir);
}

int folder_open(const char *run, bool exists)
{
    struct stat info;
    size_t step;
    if (!exists && folder_steps(run, &step, 1))
        return cli_fail(VERB,
                        "%s holds a run already: '--resume %s' goes on with "
                        "it, another --out begins a new one",
                        run, run);
    if (folders_make(run) || stat(run, &info))
        return cli_fail(VERB, "%s: %s", run, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return cli_fail(VERB, "%s is not a folder", run);
    if (access(run, W_OK))
        return cli_fail(VERB, "%s: %s", run, strerror(errno));
    if (exists)
        folder_sweep(run);
    return CLI_OK;
}

int folder_link(const char *run, const char *name, size_t step)
{
    char target[32], path[PATH_ROOM], draft[PATH_ROOM];
    snprintf(target, sizeof(target), STEP_NAME, step);
    snprintf(path, sizeof(path), "%s/%s", run, name);
    snprintf(draft, sizeof(draft), "%s/.%s.new", run, name);
    unlink(draft);
    if (symlink(target, draft) == 0 && rename(draft, path) == 0)
        return CLI_OK;
    int failed = cli_fail(VERB, "%s: %s", path, strerror(errno));
    unlink(draft);
    return failed;
}

/* trainer.json goes first: without it, half a checkpoint is none. */
int folder_remove(const char *path)
{
    char file[PATH_ROOM];
    snprintf(file, sizeof(file), "%s/trainer.json", path);
    unlink(file);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    if (!dir)
        return errno == ENOENT
                   ? CLI_OK
                   : cli_fail(VERB, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        unlink(file);
    }
    closedir(dir);
    return rmdir(path) ? cli_fail(VERB, "%s: cannot remove it: %s", path,
                                  strerror(errno))
                       : CLI_OK;
}

int folder_prune(const char *run, size_t keep, size_t best)
{
    enum { SOME = 4096 };
    size_t *steps = calloc(SOME, sizeof(*steps));
    size_t count = steps ? folder_steps(run, steps, SOME) : 0;
    int failed = steps ? CLI_OK : cli_fail(VERB, "out of memory");
    for (size_t i = 0; !failed && i + keep < count; i++) {
        char *path = steps[i] == best ? NULL : checkpoint_path(run, steps[i]);
        if (path)
            failed = folder_remove(path);
        free(path);
    }
    free(steps);
    return failed;
}
