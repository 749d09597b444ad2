/* SPDX-License-Identifier: Apache-2.0 */
/* atomic_directory.h - directories that are written atomically.
 *
 * Files go into a temporary directory beside the target path. Committing syncs
 * all of them and renames the directory to the target in one step. Freeing
 * without a commit removes it.
 *
 * Both directories are held open and every name is relative to them, so no
 * symbolic link is followed even if others can write there. */
#ifndef BT_ATOMIC_DIRECTORY_H
#define BT_ATOMIC_DIRECTORY_H

#include "base/file.h"

#include <dirent.h>

typedef struct bt_atomic_directory bt_atomic_directory;

/* `path` must not exist or be an empty directory. */
bauta_status bt_atomic_directory_create(bt_atomic_directory **out,
                                        const char *path, bauta_error *err);
/* Start a file in it. */
bauta_status bt_atomic_directory_file(const bt_atomic_directory *directory,
                                      bt_atomic_file **out, const char *name,
                                      bauta_error *err);
/* Write a whole file in it. */
bauta_status bt_atomic_directory_write(const bt_atomic_directory *directory,
                                       const char *name, const void *bytes,
                                       size_t size, bauta_error *err);
bauta_status bt_atomic_directory_commit(bt_atomic_directory *directory,
                                        bauta_error *err);
void bt_atomic_directory_free(bt_atomic_directory *directory);

/* Format of a temporary directory's name: process id and counter. */
#define BT_ATOMIC_DIRECTORY_TEMPORARY ".bauta-%ld-%u.folder"

/* A copy of a path without trailing slashes; release it with bt_free(). */
char *bt_path_strip_slashes(const char *path);
/* Open a directory for readdir(). NULL with errno set on failure, also when the
 * name is a symbolic link. */
DIR *bt_directory_open(int folder, const char *name);

#endif
