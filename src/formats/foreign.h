/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - files that are not what they should be, recognised by their first
 * bytes: GGUF, Git LFS pointers, archives, pickles, ONNX, web pages.
 *
 * Nothing here decides what is read. When a file has failed as what it should
 * be, the sentence says what it is instead, and what to do about it. */
#ifndef BT_FOREIGN_H
#define BT_FOREIGN_H

#include "bauta.h"

/* "is a GGUF file, ..." of the first bytes of a file; NULL: not known. */
const char *bt_foreign_text(const void *bytes, size_t size);

/* After a failure over `path`: the same status, with a better sentence where
 * the file is recognised. BAUTA_OK and BAUTA_ERR_NOMEM pass. */
bauta_status bt_foreign_explain(bauta_status status, const char *path,
                                bauta_error *err);

/* The first names in a folder and how many more there are, for a sentence that
 * says what is missing: "a.gguf, b.txt and 3 more". */
typedef struct bt_foreign_names {
    char text[240];
} bt_foreign_names;
bt_foreign_names bt_foreign_list(const char *path);

/* The sentence for a path that has no config.json: it does not exist, is a
 * file, or is a folder of other things, which are named. */
bauta_status bt_foreign_folder(const char *path, bauta_error *err);

#endif
