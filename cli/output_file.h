/* SPDX-License-Identifier: Apache-2.0 */
/* output_file.h - a file that appears under its name only when it is complete.
 */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct output_file {
    FILE *file;
    char *path, *temporary;
} output_file;

/* Create a temporary file beside `path`. False with errno set on failure; there
 * is nothing to close then. */
bool output_file_open(output_file *f, const char *path);
/* Make the file durable and rename it to its path, or with `keep` false remove
 * it. False with errno set on failure; the file is then removed, too. */
bool output_file_close(output_file *f, bool keep);

#endif
