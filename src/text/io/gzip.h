/* SPDX-License-Identifier: Apache-2.0 */
/* gzip.h - gzip, decompressed as it is read. Without zlib, opening fails with
 * a sentence. */
#ifndef BT_GZIP_H
#define BT_GZIP_H

#include "bauta.h"

typedef struct bt_gzip bt_gzip;

/* `name` is for sentences and lives as long. */
bauta_status bt_gzip_create(bt_gzip **out, const char *name, bauta_error *err);
void bt_gzip_free(bt_gzip *gzip);

/* Decompress from *in to *out and move both on. Several members, one after the
 * other, are one text. */
bauta_status bt_gzip_run(bt_gzip *gzip, const unsigned char **in,
                         size_t *in_size, unsigned char **out, size_t *out_size,
                         bauta_error *err);
/* The file ends here: fails if a member does not. */
bauta_status bt_gzip_end(const bt_gzip *gzip, bauta_error *err);

#endif
