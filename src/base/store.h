/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - a growable buffer that spills to disk.
 *
 * Up to a limit the bytes are on the heap. A larger buffer is a mapped,
 * unlinked temporary file: it is read and written like memory, and the system
 * can evict its pages. The file is in TMPDIR, or in /var/tmp. Its blocks are
 * allocated in advance, so a full disk is an error and not a SIGBUS. */
#ifndef BT_STORE_H
#define BT_STORE_H

#include "bauta.h"

/* Zero-initialised: empty. */
typedef struct bt_store {
    void *bytes; /* moves when the buffer grows */
    size_t size, capacity;
    size_t unloaded; /* size at the last unload, if mapped */
    int file;        /* if mapped */
    bool mapped;
} bt_store;

/* The default limit in bytes. */
enum { BT_STORE_MEMORY = 32 << 20 };

/* Make room for `more` bytes after the `size` that are there. On failure the
 * buffer is unchanged. `what` is for the error message: "a corpus". */
bauta_status bt_store_reserve(bt_store *buffer, size_t more, size_t limit,
                              const char *what, bauta_error *err);
/* Tell the system that a mapped buffer is not needed in memory for now. Its
 * contents are kept. */
void bt_store_unload(const bt_store *buffer);
void bt_store_release(bt_store *buffer);

#endif
