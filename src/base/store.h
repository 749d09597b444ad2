/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - arrays that may be larger than memory.
 *
 * Up to a limit the bytes are on the heap. A larger array is in a temporary
 * file without a name, which is mapped: it is read and written like memory, and
 * the system may take its pages back whenever it needs them. The file is in
 * the folder that TMPDIR names, or in /var/tmp; its blocks are reserved before
 * they are used, so a full disk is an error and not a signal. */
#ifndef BT_STORE_H
#define BT_STORE_H

#include "bauta.h"

/* All zero: empty. */
typedef struct bt_store {
    void *bytes; /* moves when the store grows */
    size_t size, room;
    size_t unloaded; /* size when a mapped one was last unloaded */
    int file;        /* of a mapped one */
    bool mapped;
} bt_store;

/* The limit, unless the caller has another one. */
enum { BT_STORE_MEMORY = 32 << 20 };

/* Make room for `more` bytes after the `size` that are there; the store is as
 * it was on failure. `what` is for the sentence: "a corpus". */
bauta_status bt_store_reserve(bt_store *store, size_t more, size_t limit,
                              const char *what, bauta_error *err);
/* Tell the system that a mapped store is not needed in memory for now. The
 * bytes stay what they are. */
void bt_store_unload(const bt_store *store);
void bt_store_release(bt_store *store);

#endif
