/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - a folder that appears as a whole or not at all.
 *
 * Files are written into a folder of another name beside the place where it
 * is to be. Committing makes it durable and moves it there in one step. One
 * that is freed without having been committed leaves no trace.
 *
 * Both folders are held open, and everything is named relative to them: no
 * link is followed, whoever else may write there. */
#ifndef BT_DIRECTORY_H
#define BT_DIRECTORY_H

#include "base/file.h"

#include <dirent.h>

typedef struct bt_directory bt_directory;

/* What is at `path` must be nothing, or an empty folder. */
bauta_status bt_directory_create(bt_directory **out, const char *path,
                                 bauta_error *err);
/* A draft of a file in it. */
bauta_status bt_directory_draft(const bt_directory *directory, bt_draft **out,
                                const char *name, bauta_error *err);
/* A file in it, from bytes that are at hand. */
bauta_status bt_directory_write(const bt_directory *directory, const char *name,
                                const void *bytes, size_t size,
                                bauta_error *err);
bauta_status bt_directory_commit(bt_directory *directory, bauta_error *err);
void bt_directory_free(bt_directory *directory);

/* The name of a folder that is being written: the process and a count. */
#define BT_DIRECTORY_DRAFT ".bauta-%ld-%u.folder"

/* A copy of a path without slashes at its end, for bt_free(). */
char *bt_path_plain(const char *path);
/* The entries of a folder that is itself no link; NULL and errno. */
DIR *bt_folder_list(int folder, const char *name);

#endif
