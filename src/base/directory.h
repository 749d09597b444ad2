/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - a folder that appears as a whole or not at all.
 *
 * Files are written into a folder of another name beside the place where it
 * is to be. Committing makes it durable and moves it there in one step. One
 * that is freed without having been committed leaves no trace. */
#ifndef BT_DIRECTORY_H
#define BT_DIRECTORY_H

#include "bauta.h"

typedef struct bt_directory bt_directory;

/* What is at `path` must be nothing, or an empty folder. */
bauta_status bt_directory_create(bt_directory **out, const char *path,
                                 bauta_error *err);
/* Where to write a file of this name, for bt_free(); NULL without memory. */
char *bt_directory_file(const bt_directory *directory, const char *name);
/* Write one there. */
bauta_status bt_directory_write(const bt_directory *directory, const char *name,
                                const void *bytes, size_t size,
                                bauta_error *err);
bauta_status bt_directory_commit(bt_directory *directory, bauta_error *err);
void bt_directory_free(bt_directory *directory);

#endif
