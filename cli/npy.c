/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - write a float32 matrix as NumPy's .npy, version 1.0; see npy.h. */
#include "npy.h"

#include "output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 128 }; /* fixed, so that it can be written last */

struct npy {
    output_file out;
    size_t rows, width;
};

npy *npy_open(const char *path, size_t width)
{
    static const char header[HEADER];
    npy *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->width = width;
    if (output_file_open(&n->out, path)) {
        if (fwrite(header, 1, HEADER, n->out.file) == HEADER)
            return n;
        int why = errno;
        output_file_close(&n->out, false);
        errno = why;
    }
    free(n);
    return NULL;
}

bool npy_row(npy *n, const float *row)
{
    n->rows++;
    return fwrite(row, sizeof(*row), n->width, n->out.file) == n->width;
}

/* The header, padded with blanks to its fixed size. */
static bool header_write(npy *n)
{
    const unsigned one = 1;
    char order = *(const char *)&one ? '<' : '>', text[HEADER];
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)(HEADER - 10); // little-endian, 16 bits
    text[9] = 0;
    int used = snprintf(text + 10, HEADER - 10,
                        "{'descr': '%cf4', 'fortran_order': False, 'shape': "
                        "(%zu, %zu), }",
                        order, n->rows, n->width);
    memset(text + 10 + used, ' ', (size_t)(HEADER - 11 - used));
    text[HEADER - 1] = '\n';
    return fseek(n->out.file, 0, SEEK_SET) == 0 &&
           fwrite(text, 1, HEADER, n->out.file) == HEADER;
}

bool npy_close(npy *n, bool keep)
{
    bool good = !keep || header_write(n);
    int why = errno;
    if (!output_file_close(&n->out, good && keep) && good)
        good = false;
    else
        errno = why;
    free(n);
    return good;
}
