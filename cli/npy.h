/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h - a table of floats as NumPy's .npy, row by row.
 *
 * The file appears under its name when it is whole, and not before. */
#ifndef NPY_H
#define NPY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct npy npy;

/* NULL, with errno set, where it cannot be written. */
npy *npy_open(const char *path, size_t width);
bool npy_row(npy *n, const float *row);
/* Give the file its name, or with `keep` false remove it. False, with errno
 * set, where something was not written. */
bool npy_close(npy *n, bool keep);

#endif
