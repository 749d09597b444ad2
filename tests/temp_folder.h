/* SPDX-License-Identifier: Apache-2.0 */
/* temp_folder.h - a temporary folder for the files of a test, removed at its
 * end. */
#ifndef BT_TEST_TEMP_FOLDER_H
#define BT_TEST_TEMP_FOLDER_H

#include "testing.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

typedef struct temp_folder {
    char folder[256];
    char path[512]; /* what temp_folder_path() gave last */
} temp_folder;

static inline temp_folder temp_folder_create(void)
{
    temp_folder s;
    const char *root = getenv("TMPDIR");
    snprintf(s.folder, sizeof(s.folder), "%s/bauta-test-XXXXXX",
             root ? root : "/tmp");
    assert_non_null(mkdtemp(s.folder));
    return s;
}

static inline const char *temp_folder_path(temp_folder *s, const char *name)
{
    snprintf(s->path, sizeof(s->path), "%s/%s", s->folder, name);
    return s->path;
}

/* Write a file without using the code under test. */
static inline const char *temp_folder_write(temp_folder *s, const char *name,
                                            const void *bytes, size_t size)
{
    FILE *file = fopen(temp_folder_path(s, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return s->path;
}

/* The number of entries of the folder. */
static inline size_t temp_folder_count(const temp_folder *s)
{
    size_t count = 0;
    DIR *entries = opendir(s->folder);
    assert_non_null(entries);
    for (struct dirent *e; (e = readdir(entries));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(entries);
    return count;
}

static inline void temp_folder_remove(const char *path)
{
    char inside[1024];
    DIR *entries = remove(path) == 0 ? NULL : opendir(path);
    if (!entries)
        return;
    for (struct dirent *e; (e = readdir(entries));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            snprintf(inside, sizeof(inside), "%s/%s", path, e->d_name) <
                (int)sizeof(inside))
            temp_folder_remove(inside);
    closedir(entries);
    remove(path);
}

static inline void temp_folder_free(temp_folder *s)
{
    temp_folder_remove(s->folder);
}

#endif
