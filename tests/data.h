/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - files of the data folder, which is optional, and a small safetensors
 * reader for the tests. */
#ifndef BT_TEST_DATA_H
#define BT_TEST_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* The path of a file of the data folder, in `buffer`; NULL if there is none.
 * The folder is $BAUTA_DATA, or else ../shared/data beside the source tree. */
const char *test_data_path(char *buffer, size_t size, const char *relative);

/* The same for tests/data in the source tree, which always exists. */
const char *test_tree_path(char *buffer, size_t size, const char *relative);

/* A file of tensors, with a JSON header. */
typedef struct tensors tensors;

/* NULL when the file cannot be read or is not of this format. */
tensors *tensors_load(const char *path);
void tensors_free(tensors *file);
bool tensors_have(const tensors *file, const char *name);

enum { TENSOR_RANK_MAX = 4 };

typedef enum tensor_type {
    TENSOR_F32,  /* also of a file's float16 */
    TENSOR_BOOL, /* one byte each, 0 or 1 */
    TENSOR_I64,
    TENSOR_OTHER /* of a type that no test reads: dims are there, data is not */
} tensor_type;

typedef struct tensor {
    tensor_type type;
    bool half; /* the file has float16, which was widened exactly */
    size_t rank, dims[TENSOR_RANK_MAX], count;
    void *data; /* its own block, since offsets in a file may be unaligned */
} tensor;

/* Read one tensor. False if the file has none of this name or its entry is
 * invalid; the tensor is then empty. */
bool tensor_read(tensor *out, const tensors *file, const char *name);
void tensor_release(tensor *t);

#endif
