/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - text into a draft of a file. Errors stick: after the first one
 * nothing is written, so that what writes needs no check behind each piece. */
#ifndef BT_WRITER_H
#define BT_WRITER_H

#include "base/file.h"

enum { BT_WRITER_ROOM = 4096 };

typedef struct bt_writer {
    bt_draft *draft;
    bauta_status status;
    bauta_error *err;
    size_t used;
    unsigned char bits[3]; /* of base64, not yet written */
    size_t bit_count;
    char buffer[BT_WRITER_ROOM];
} bt_writer;

void bt_writer_init(bt_writer *w, bt_draft *draft, bauta_error *err);
/* What is left in the buffer; the status of all. */
bauta_status bt_writer_finish(bt_writer *w);

void bt_write_bytes(bt_writer *w, const void *bytes, size_t size);
void bt_write_text(bt_writer *w, const char *text);
void bt_write_number(bt_writer *w, size_t number);
/* A JSON string that may stand inside a script of HTML: there is no '<' in it.
 * Bytes that are not UTF-8 become U+FFFD. */
void bt_write_string(bt_writer *w, const char *text);
/* Base64, a byte at a time; the end fills the last group up. */
void bt_write_base64(bt_writer *w, unsigned char byte);
void bt_write_base64_end(bt_writer *w);

#endif
