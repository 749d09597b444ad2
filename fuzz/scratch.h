/* SPDX-License-Identifier: Apache-2.0 */
/* temp_folder.h - a temporary folder in memory for the files of a fuzz target,
 * for readers that take a path. It is created on first use and removed when the
 * program ends normally. */
#ifndef FUZZ_SCRATCH_H
#define FUZZ_SCRATCH_H

#include "must.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_name[64];

/* The path of a file in it; "" is the folder. Lives until the next call. */
static inline const char *scratch_path(const char *name)
{
    static char path[128];
    must(snprintf(path, sizeof(path), "%s/%s", scratch_name, name) <
         (int)sizeof(path));
    return path;
}

/* Remove its contents, or those of a folder inside. */
static inline void scratch_clear(const char *inside)
{
    char name[96];
    DIR *entries = opendir(scratch_path(inside));
    for (struct dirent *e; entries && (e = readdir(entries));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        must(snprintf(name, sizeof(name), "%s%s%s", inside, *inside ? "/" : "",
                      e->d_name) < (int)sizeof(name));
        if (unlink(scratch_path(name))) {
            scratch_clear(name);
            rmdir(scratch_path(name));
        }
    }
    if (entries)
        closedir(entries);
}

static inline void scratch_remove(void)
{
    scratch_clear("");
    rmdir(scratch_name);
}

/* Its path; false when it was made before. */
static inline bool scratch_make(void)
{
    if (scratch_name[0])
        return false;
    snprintf(scratch_name, sizeof(scratch_name), "%s/bauta-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(scratch_name) != NULL);
    must(atexit(scratch_remove) == 0);
    return true;
}

static inline void scratch_put(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(scratch_path(name), "wb");
    must(file && fwrite(bytes, 1, size, file) == size && !fclose(file));
}

#endif
