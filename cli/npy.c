/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - write a float32 matrix as NumPy's .npy, version 1.0; see npy.h. */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 128 }; /* fixed, so that it can be written last */

struct npy {
    FILE *file;
    char *path, *temporary;
    size_t rows, width;
};

static void npy_free(npy *n)
{
    free(n->path);
    free(n->temporary);
    free(n);
}

/* A file beside the final one, so that a rename suffices, with the permissions
 * of a new file. */
static FILE *temporary_open(char *path)
{
    mode_t mask = umask(0);
    umask(mask);
    int file = mkstemp(path);
    if (file < 0)
        return NULL;
    fchmod(file, 0666 & ~mask);
    return fdopen(file, "wb");
}

npy *npy_open(const char *path, size_t width)
{
    static const char header[HEADER];
    npy *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->width = width;
    n->path = strdup(path);
    n->temporary = malloc(strlen(path) + 8);
    if (n->path && n->temporary) {
        sprintf(n->temporary, "%s.XXXXXX", path);
        n->file = temporary_open(n->temporary);
    }
    if (n->file && fwrite(header, 1, HEADER, n->file) == HEADER)
        return n;
    int why = errno;
    npy_free(n);
    errno = why;
    return NULL;
}

bool npy_row(npy *n, const float *row)
{
    n->rows++;
    return fwrite(row, sizeof(*row), n->width, n->file) == n->width;
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
    return fseek(n->file, 0, SEEK_SET) == 0 &&
           fwrite(text, 1, HEADER, n->file) == HEADER;
}

bool npy_close(npy *n, bool keep)
{
    bool good = !keep || (header_write(n) && fflush(n->file) == 0 &&
                          !ferror(n->file) && fsync(fileno(n->file)) == 0);
    int why = errno;
    fclose(n->file);
    if (good && keep && rename(n->temporary, n->path) != 0) {
        good = false;
        why = errno;
    }
    if (!good || !keep)
        unlink(n->temporary);
    npy_free(n);
    errno = why;
    return good;
}
