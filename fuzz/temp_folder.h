/* SPDX-License-Identifier: Apache-2.0 */
/* temp_folder.h - a temporary folder in memory for the files of a fuzz target,
 * for readers that take a path. It is created on first use and removed when the
 * program ends normally. */
#ifndef BT_FUZZ_TEMP_FOLDER_H
#define BT_FUZZ_TEMP_FOLDER_H

#include "checks.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char temp_folder_root[64];

/* The path of a file in it; "" is the folder. Lives until the next call. */
static inline const char *temp_folder_path(const char *name)
{
    static char path[128];
    must(snprintf(path, sizeof(path), "%s/%s", temp_folder_root, name) <
         (int)sizeof(path));
    return path;
}

/* Remove its contents, or those of a folder inside. */
static inline void temp_folder_clear(const char *inside)
{
    char name[96];
    DIR *entries = opendir(temp_folder_path(inside));
    for (struct dirent *e; entries && (e = readdir(entries));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        must(snprintf(name, sizeof(name), "%s%s%s", inside, *inside ? "/" : "",
                      e->d_name) < (int)sizeof(name));
        if (unlink(temp_folder_path(name))) {
            temp_folder_clear(name);
            rmdir(temp_folder_path(name));
        }
    }
    if (entries)
        closedir(entries);
}

static inline void temp_folder_remove(void)
{
    temp_folder_clear("");
    rmdir(temp_folder_root);
}

/* Its path; false when it was made before. */
static inline bool temp_folder_make(void)
{
    if (temp_folder_root[0])
        return false;
    snprintf(temp_folder_root, sizeof(temp_folder_root), "%s/bauta-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(temp_folder_root) != NULL);
    must(atexit(temp_folder_remove) == 0);
    return true;
}

static inline void temp_folder_put(const char *name, const void *bytes,
                                   size_t size)
{
    FILE *file = fopen(temp_folder_path(name), "wb");
    must(file && fwrite(bytes, 1, size, file) == size && !fclose(file));
}

#endif
