/* SPDX-License-Identifier: Apache-2.0 */
/* output_file.c - a file that appears under its name only when it is complete;
 * see output_file.h. */
#include "output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void output_file_release(output_file *f)
{
    int why = errno;
    free(f->path);
    free(f->temporary);
    *f = (output_file){ 0 };
    errno = why;
}

/* mkstemp() with the permissions of a new file. */
static FILE *temporary_open(char *path)
{
    mode_t mask = umask(0);
    umask(mask);
    int fd = mkstemp(path);
    if (fd < 0)
        return NULL;
    fchmod(fd, 0666 & ~mask);
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        int why = errno;
        close(fd);
        unlink(path);
        errno = why;
    }
    return file;
}

bool output_file_open(output_file *f, const char *path)
{
    size_t size = strlen(path) + sizeof(".XXXXXX");
    *f = (output_file){ .path = malloc(size), .temporary = malloc(size) };
    if (f->path && f->temporary) {
        strcpy(f->path, path);
        snprintf(f->temporary, size, "%s.XXXXXX", path);
        f->file = temporary_open(f->temporary);
    }
    if (f->file)
        return true;
    if (!f->path || !f->temporary)
        errno = ENOMEM;
    output_file_release(f);
    return false;
}

bool output_file_close(output_file *f, bool keep)
{
    bool good = !keep || (fflush(f->file) == 0 && !ferror(f->file) &&
                          fsync(fileno(f->file)) == 0);
    int why = errno;
    if (fclose(f->file) != 0 && good) {
        good = !keep;
        why = errno;
    }
    if (good && keep && rename(f->temporary, f->path) != 0) {
        good = false;
        why = errno;
    }
    if (!good || !keep)
        unlink(f->temporary);
    errno = why;
    output_file_release(f);
    return good;
}
