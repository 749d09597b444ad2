/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - reading, mapping and atomically writing files.
 *
 * Error messages name the file and the reason. Only regular files are opened
 * for reading: a pipe or a device could block forever. */
#ifndef BT_FILE_H
#define BT_FILE_H

#include "bauta.h"

/* Whether the path exists, whatever it is. */
bool bt_file_exists(const char *path);

/* Read a small file into memory, with a terminating NUL that *size does not
 * count; release it with bt_free(). A file of more than `limit` bytes is an
 * error and is not read. */
bauta_status bt_file_read(char **out, size_t *size, const char *path,
                          size_t limit, bauta_error *err);

/* A file mapped read-only. As with every mapping, truncating the file while it
 * is mapped raises SIGBUS. */
typedef struct bt_file_map {
    const unsigned char *bytes; /* NULL when the file is empty */
    size_t size;
} bt_file_map;

bauta_status bt_file_map_init(bt_file_map *map, const char *path,
                              bauta_error *err);
void bt_file_map_release(bt_file_map *map);
/* Give back the memory of some bytes of a mapped file. They are read from the
 * file again if they are used once more. */
void bt_file_map_forget(const void *bytes, size_t size);

/* A file that is written under a temporary name in the same directory.
 * Committing syncs it and renames it over the target in one step. Freeing
 * without a commit removes it and leaves the old file as it was. */
typedef struct bt_atomic_file bt_atomic_file;

bauta_status bt_atomic_file_create(bt_atomic_file **out, const char *path,
                                   bauta_error *err);
/* In an open directory that is itself a draft: the file has its name from the
 * start, and the owner of the directory syncs it. `path` names the file in
 * messages; its last component is the file's name. */
bauta_status bt_atomic_file_create_at(bt_atomic_file **out, int folder,
                                      const char *path, bauta_error *err);
bauta_status bt_atomic_file_write(bt_atomic_file *file, const void *bytes,
                                  size_t size, bauta_error *err);
/* After a failure the old file is still in place, unless only the final sync of
 * the directory failed: then the new file is. */
bauta_status bt_atomic_file_commit(bt_atomic_file *file, bauta_error *err);
void bt_atomic_file_free(bt_atomic_file *file);

/* Write a whole file atomically. */
bauta_status bt_file_write(const char *path, const void *bytes, size_t size,
                           bauta_error *err);

/* Open the directory that contains a path; *name is its last component. */
bauta_status bt_path_open_parent(int *parent, const char **name,
                                 const char *path, bauta_error *err);
/* fsync() an open directory; -1 with errno set on failure. EINVAL, from file
 * systems that cannot sync directories, is not a failure. */
int bt_directory_sync(int folder);

/* "folder/name", and the first `length` bytes of a path; release them with
 * bt_free(). NULL when there is no memory. */
char *bt_path_join(const char *folder, const char *name);
char *bt_path_copy(const char *path, size_t length);

/* The end of a path, short enough to leave room in a message. */
const char *bt_path_tail(const char *path);
/* Whether a name ends in, for example, ".json". */
bool bt_ends_with(const char *name, const char *end);

/* "<path>: cannot <what>: <reason>", the reason taken from errno. */
bauta_status bt_fail_errno(bauta_error *err, const char *path,
                           const char *what);

#endif
