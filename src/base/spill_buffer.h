/* SPDX-License-Identifier: Apache-2.0 */
/* spill_buffer.h - a growable buffer that spills to disk.
 *
 * Up to a limit the bytes are on the heap. A larger buffer is a mapped,
 * unlinked temporary file: it is read and written like memory, and the system
 * can evict its pages. The file is in TMPDIR, or in /var/tmp. Its blocks are
 * allocated in advance, so a full disk is an error and not a SIGBUS. */
#ifndef BT_SPILL_BUFFER_H
#define BT_SPILL_BUFFER_H

#include "bauta.h"

/* Zero-initialised: empty. */
typedef struct bt_spill_buffer {
    void *bytes; /* moves when the buffer grows */
    size_t size, capacity;
    size_t unloaded; /* size at the last unload, if mapped */
    int file;        /* if mapped */
    bool mapped;
} bt_spill_buffer;

/* The default limit in bytes. */
enum { BT_SPILL_LIMIT = 32 << 20 };

/* Make room for `more` bytes after the `size` that are there. On failure the
 * buffer is unchanged. `what` is for the error message: "a corpus". */
bauta_status bt_spill_buffer_reserve(bt_spill_buffer *buffer, size_t more,
                                     size_t limit, const char *what,
                                     bauta_error *err);
/* Tell the system that a mapped buffer is not needed in memory for now. Its
 * contents are kept. */
void bt_spill_buffer_unload(const bt_spill_buffer *buffer);
void bt_spill_buffer_release(bt_spill_buffer *buffer);

#endif
