/* SPDX-License-Identifier: Apache-2.0 */
/* page_writer.h - buffered text output to a file that is not yet committed.
 * Errors are sticky: after the first one nothing more is written, and
 * bt_page_writer_finish() returns it. */
#ifndef BT_PAGE_WRITER_H
#define BT_PAGE_WRITER_H

#include "base/file.h"

enum { BT_PAGE_WRITER_BUFFER = 4096 };

typedef struct bt_page_writer {
    bt_atomic_file *draft;
    bauta_status status;
    bauta_error *err;
    size_t used;
    unsigned char group[3]; /* base64 input that is not a full group yet */
    size_t group_count;
    char buffer[BT_PAGE_WRITER_BUFFER];
} bt_page_writer;

void bt_page_writer_init(bt_page_writer *w, bt_atomic_file *draft,
                         bauta_error *err);
/* Flush; returns the status of all writes. */
bauta_status bt_page_writer_finish(bt_page_writer *w);

void bt_write_bytes(bt_page_writer *w, const void *bytes, size_t size);
void bt_write_text(bt_page_writer *w, const char *text);
void bt_write_number(bt_page_writer *w, size_t number);
/* A JSON string that is safe inside an HTML script: it contains no '<'. Invalid
 * UTF-8 becomes U+FFFD. */
void bt_write_string(bt_page_writer *w, const char *text);
/* Base64, a byte at a time; the end pads the last group. */
void bt_write_base64(bt_page_writer *w, unsigned char byte);
void bt_write_base64_end(bt_page_writer *w);

#endif
