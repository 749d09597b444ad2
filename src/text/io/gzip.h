/* SPDX-License-Identifier: Apache-2.0 */
/* gzip.h - streaming decompression of gzip. Without zlib bt_gzip_create()
 * fails. */
#ifndef BT_GZIP_H
#define BT_GZIP_H

#include "bauta.h"

typedef struct bt_gzip bt_gzip;

/* `name` is for messages and must outlive the object. */
bauta_status bt_gzip_create(bt_gzip **out, const char *name, bauta_error *err);
void bt_gzip_free(bt_gzip *gzip);

/* Decompress from *in to *out and advance both. Concatenated members are one
 * text. */
bauta_status bt_gzip_inflate(bt_gzip *gzip, const unsigned char **in,
                             size_t *in_size, unsigned char **out,
                             size_t *out_size, bauta_error *err);
/* The end of the file: fails inside a member. */
bauta_status bt_gzip_end(const bt_gzip *gzip, bauta_error *err);

#endif
