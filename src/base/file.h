/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - files: read whole, mapped, or written so that no reader ever sees
 * half of one.
 *
 * Every failure is a sentence that names the file and says why. Only regular
 * files are opened for reading: a pipe or a device could make a program wait
 * for ever. */
#ifndef BT_FILE_H
#define BT_FILE_H

#include "bauta.h"

/* Whether something of this name is there, of whatever kind. */
bool bt_file_exists(const char *path);

/* A small file as a whole, with a NUL behind it that *size does not count;
 * bt_free() releases it. More than `limit` bytes are refused unread. */
bauta_status bt_file_read(char **out, size_t *size, const char *path,
                          size_t limit, bauta_error *err);

/* A file seen through memory, read only. Whoever shortens it on the disk
 * meanwhile takes the program down (SIGBUS), as with every mapping. */
typedef struct bt_file_map {
    const unsigned char *bytes; /* NULL when the file is empty */
    size_t size;
} bt_file_map;

bauta_status bt_file_map_init(bt_file_map *map, const char *path,
                              bauta_error *err);
void bt_file_map_release(bt_file_map *map);

/* A draft is a file that is being written under another name in the same
 * folder. Committing makes it durable and puts it in the place of the old
 * file, if there was one, in a single step. A draft that is freed without
 * having been committed leaves no trace, and the old file is as it was. */
typedef struct bt_draft bt_draft;

bauta_status bt_draft_create(bt_draft **out, const char *path,
                             bauta_error *err);
/* In a folder that is open already, whatever has its name by now. `path` is how
 * sentences name the file; its last part is the file's name. */
bauta_status bt_draft_create_at(bt_draft **out, int folder, const char *path,
                                bauta_error *err);
bauta_status bt_draft_write(bt_draft *draft, const void *bytes, size_t size,
                            bauta_error *err);
/* After a failure the old file is still there; only when the last step fails,
 * which makes the renaming durable, is it the new one already. */
bauta_status bt_draft_commit(bt_draft *draft, bauta_error *err);
void bt_draft_free(bt_draft *draft);

/* All of that for bytes that are at hand. */
bauta_status bt_file_write(const char *path, const void *bytes, size_t size,
                           bauta_error *err);

/* Open the folder that a path is in; *name is the path's last part. */
bauta_status bt_parent_open(int *parent, const char **name, const char *path,
                            bauta_error *err);
/* Make the names in an open folder durable; -1 and errno on failure. File
 * systems that cannot do it say so by EINVAL, which is no failure. */
int bt_folder_sync(int folder);

/* "folder/name", for bt_free(); NULL when there is no memory. */
char *bt_path_join(const char *folder, const char *name);

/* The end of a path, short enough that a sentence with it has room for more. */
const char *bt_path_tail(const char *path);

#endif
