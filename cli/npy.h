/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h - write a float32 matrix as NumPy's .npy, row by row.
 *
 * The file appears under its name only when it is complete. */
#ifndef NPY_H
#define NPY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct npy npy;

/* NULL with errno set on failure. */
npy *npy_open(const char *path, size_t width);
bool npy_row(npy *n, const float *row);
/* Give the file its name, or with `keep` false remove it. False with errno set
 * if a write failed. */
bool npy_close(npy *n, bool keep);

#endif
