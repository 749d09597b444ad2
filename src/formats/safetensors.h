/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - files of named tensors, as Hugging Face stores weights.
 *
 *     8 bytes   length of the header, little endian
 *     header    {"__metadata__": {"key": "text", ...},
 *                "name": {"dtype": "F32", "shape": [2, 3],
 *                         "data_offsets": [0, 24]}, ...}, padded with spaces
 *     data      the tensors, back to back; offsets count from here
 *
 * The reader maps the file and copies nothing. It is at least as strict as the
 * format's own library: in a file that opens, every byte of the data belongs to
 * exactly one tensor. The limits below are ours. They bound the memory that a
 * file can make us allocate, beside the mapping, to 64 MiB plus its own size.
 */
#ifndef BT_SAFETENSORS_H
#define BT_SAFETENSORS_H

#include "base/atomic_directory.h"
#include "tensor/tensor.h"

#include "bauta.h"

enum {
    BT_RANK_MAX = 8,
    BT_TENSORS_MAX = 1 << 19, /* in one file */
    BT_HEADER_MAX = 100000000 /* bytes; the format's own limit */
};

typedef struct bt_stored_tensor {
    const char *name; /* UTF-8 */
    bauta_dtype dtype;
    unsigned rank;
    size_t shape[BT_RANK_MAX];
    const void *data; /* may be unaligned; see bt_convert_f32() */
    size_t bytes;     /* product of shape x size of dtype */
} bt_stored_tensor;

/* The number of bytes of a shape; SIZE_MAX on overflow. */
size_t bt_stored_tensor_bytes(bauta_dtype dtype, unsigned rank,
                              const size_t *shape);

/* ---- Reading ------------------------------------------------------------- */

typedef struct bt_safetensors bt_safetensors;

bauta_status bt_safetensors_open(bt_safetensors **out, const char *path,
                                 bauta_error *err);
/* Read a file in memory, which must outlive the result. `path` is its name in
 * errors. */
bauta_status bt_safetensors_parse(bt_safetensors **out, const char *path,
                                  const void *bytes, size_t size,
                                  bauta_error *err);
/* Check the bytes before the data, as if data_size bytes of data followed. */
bauta_status bt_safetensors_check(const char *path, const void *bytes,
                                  size_t size, size_t data_size,
                                  bauta_error *err);
void bt_safetensors_free(bt_safetensors *file);

/* Tensors sorted by name. They live as long as the file. */
size_t bt_safetensors_count(const bt_safetensors *file);
const bt_stored_tensor *bt_safetensors_at(const bt_safetensors *file,
                                          size_t index);
/* NULL if there is no such tensor. */
const bt_stored_tensor *bt_safetensors_find(const bt_safetensors *file,
                                            const char *name);
/* The metadata value of a key, or NULL. */
const char *bt_safetensors_metadata(const bt_safetensors *file,
                                    const char *key);

/* ---- Writing ------------------------------------------------------------- */

typedef struct bt_metadata {
    const char *key, *value;
} bt_metadata;

/* Write a file atomically (see bt_atomic_file). A file that the reader would
 * reject is not written: names must be unique UTF-8, and bytes must match the
 * shape. The result is byte for byte that of the format's own library: tensors
 * sorted by type and name, the header padded to a multiple of eight. Metadata
 * keep their order; NULL stands for "format": "pt", which transformers
 * requires. */
bauta_status bt_safetensors_write(const char *path,
                                  const bt_stored_tensor *tensors, size_t count,
                                  const bt_metadata *metadata,
                                  size_t metadata_count, bauta_error *err);
/* Write a file into a folder that is being created, with default metadata. */
bauta_status bt_safetensors_write_in(const bt_atomic_directory *to,
                                     const char *name,
                                     const bt_stored_tensor *tensors,
                                     size_t count, bauta_error *err);

/* The bytes of a file before the data, for bt_free(). `order` points to the
 * tensors and is sorted into the order of their data. */
bauta_status bt_safetensors_header(unsigned char **out, size_t *size,
                                   const char *path,
                                   const bt_stored_tensor **order, size_t count,
                                   const bt_metadata *metadata,
                                   size_t metadata_count, bauta_error *err);

#endif
