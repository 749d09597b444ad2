/* SPDX-License-Identifier: Apache-2.0 */
/* file_kind.h - recognizing files of other formats by their first bytes: GGUF,
 * Git LFS pointers, archives, pickles, ONNX, web pages.
 *
 * It only improves error messages: after a file could not be read, the message
 * says what the file is and what to do about it. */
#ifndef BT_FILE_KIND_H
#define BT_FILE_KIND_H

#include "bauta.h"

/* "is a GGUF file, ..." from the first bytes of a file; NULL: not recognized.
 */
const char *bt_file_kind_text(const void *bytes, size_t size);

/* After reading `path` has failed: return the same status, with a better
 * message if the file is recognized. BAUTA_OK and BAUTA_ERR_NOMEM are passed
 * through. */
bauta_status bt_file_kind_explain(bauta_status status, const char *path,
                                  bauta_error *err);

/* The first names in a folder and the number of others, for error messages:
 * "a.gguf, b.txt and 3 more". */
typedef struct bt_name_list {
    char text[256];
} bt_name_list;
bt_name_list bt_file_kind_list_folder(const char *path);

/* The error for a path without a config.json: it does not exist, is a file, or
 * is a folder with other files, which are listed. */
bauta_status bt_file_kind_explain_folder(const char *path, bauta_error *err);

#endif
