/* SPDX-License-Identifier: Apache-2.0 */
/* temp_folder.h - a temporary folder for the files of a test, removed at its
 * end. */
#ifndef BT_SCRATCH_H
#define BT_SCRATCH_H

#include "testing.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

typedef struct scratch {
    char folder[256];
    char path[512]; /* what scratch_path() gave last */
} scratch;

static inline scratch scratch_create(void)
{
    scratch s;
    const char *root = getenv("TMPDIR");
    snprintf(s.folder, sizeof(s.folder), "%s/bauta-test-XXXXXX",
             root ? root : "/tmp");
    assert_non_null(mkdtemp(s.folder));
    return s;
}

static inline const char *scratch_path(scratch *s, const char *name)
{
    snprintf(s->path, sizeof(s->path), "%s/%s", s->folder, name);
    return s->path;
}

/* Write a file without using the code under test. */
static inline const char *scratch_file(scratch *s, const char *name,
                                       const void *bytes, size_t size)
{
    FILE *file = fopen(scratch_path(s, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return s->path;
}

/* The number of entries of the folder. */
static inline size_t scratch_count(const scratch *s)
{
    size_t count = 0;
    DIR *entries = opendir(s->folder);
    assert_non_null(entries);
    for (struct dirent *e; (e = readdir(entries));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(entries);
    return count;
}

static inline void scratch_remove(const char *path)
{
    char inside[1024];
    DIR *entries = remove(path) == 0 ? NULL : opendir(path);
    if (!entries)
        return;
    for (struct dirent *e; (e = readdir(entries));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            snprintf(inside, sizeof(inside), "%s/%s", path, e->d_name) <
                (int)sizeof(inside))
            scratch_remove(inside);
    closedir(entries);
    remove(path);
}

static inline void scratch_free(scratch *s)
{
    scratch_remove(s->folder);
}

#endif
