/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.h - bytes that grow. */
#ifndef SERVER_BUFFER_H
#define SERVER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct buffer {
    char *at; /* (length) and a NUL, unless NULL; for free() */
    size_t length, room;
    bool failed; /* out of memory: something is missing */
} buffer;

void buffer_add(buffer *b, const char *bytes, size_t length);
void buffer_print(buffer *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void buffer_release(buffer *b);

#endif
