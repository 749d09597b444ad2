/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - files of named tensors, as Hugging Face stores weights.
 *
 *     8 bytes   length of the header, little endian
 *     header    {"__metadata__": {"key": "text", ...},
 *                "name": {"dtype": "F32", "shape": [2, 3],
 *                         "data_offsets": [0, 24]}, ...}, padded with spaces
 *     data      the tensors, one behind the other; offsets count from here
 *
 * A reader maps the file and copies nothing: it is as strict as the format's
 * own library or stricter, so that a file which is opened has every tensor in
 * its place, each byte of the data belonging to exactly one. The limits below
 * are ours. They keep what a file can make us allocate within 64 MiB and its
 * own size, beside the mapping. */
#ifndef BT_SAFETENSORS_H
#define BT_SAFETENSORS_H

#include "base/directory.h"
#include "formats/dtype.h"

#include "bauta.h"

enum {
    BT_RANK_MAX = 8,
    BT_TENSORS_MAX = 1 << 19, /* in one file */
    BT_HEADER_MAX = 100000000 /* bytes; the format's own limit */
};

typedef struct bt_stored {
    const char *name; /* UTF-8 */
    bt_dtype dtype;
    unsigned rank;
    size_t shape[BT_RANK_MAX];
    const void *data; /* may be unaligned; see bt_convert_f32() */
    size_t bytes;     /* product of shape x size of dtype */
} bt_stored;

/* The bytes that a shape needs; SIZE_MAX when that is too many to count. */
size_t bt_stored_bytes(bt_dtype dtype, unsigned rank, const size_t *shape);

/* ---- Reading ------------------------------------------------------------- */

typedef struct bt_safetensors bt_safetensors;

bauta_status bt_safetensors_open(bt_safetensors **out, const char *path,
                                 bauta_error *err);
/* The same for a file that is in memory, where it must stay; sentences call it
 * `path`. */
bauta_status bt_safetensors_parse(bt_safetensors **out, const char *path,
                                  const void *bytes, size_t size,
                                  bauta_error *err);
/* Whether the bytes before the data would be read if data_size more followed.
 */
bauta_status bt_safetensors_check(const char *path, const void *bytes,
                                  size_t size, size_t data_size,
                                  bauta_error *err);
void bt_safetensors_free(bt_safetensors *file);

/* Tensors in the order of their names. They live as long as the file. */
size_t bt_safetensors_count(const bt_safetensors *file);
const bt_stored *bt_safetensors_at(const bt_safetensors *file, size_t index);
/* NULL where there is none of this name. */
const bt_stored *bt_safetensors_find(const bt_safetensors *file,
                                     const char *name);
/* What the metadata say under a key; NULL when nothing. */
const char *bt_safetensors_metadata(const bt_safetensors *file,
                                    const char *key);

/* ---- Writing ------------------------------------------------------------- */

typedef struct bt_metadata {
    const char *key, *value;
} bt_metadata;

/* Write a file, atomically (see bt_draft). What the reader would refuse is not
 * written: names are unique UTF-8, and bytes are what the shape needs. The
 * bytes are those that the format's own library writes: tensors sorted by type
 * and name, the header padded to a multiple of eight. Metadata stand in the
 * order given; NULL stands for "format": "pt", without which transformers
 * refuses a file. */
bauta_status bt_safetensors_write(const char *path, const bt_stored *tensors,
                                  size_t count, const bt_metadata *metadata,
                                  size_t metadata_count, bauta_error *err);
/* The same into a folder that is being written, with the usual metadata. */
bauta_status bt_safetensors_write_in(const bt_directory *to, const char *name,
                                     const bt_stored *tensors, size_t count,
                                     bauta_error *err);

/* The part of such a file that comes before the data, for bt_free(). `order`
 * points to the tensors and is sorted as their data must follow. */
bauta_status bt_safetensors_header(unsigned char **out, size_t *size,
                                   const char *path, const bt_stored **order,
                                   size_t count, const bt_metadata *metadata,
                                   size_t metadata_count, bauta_error *err);

#endif
