/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c - bytes that grow; see buffer.h. */
#include "buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_add(buffer *b, const char *bytes, size_t length)
{
    if (b->failed)
        return;
    if (b->room - b->length <= length) {
        size_t room = 2 * (b->length + length) + 64;
        char *more = realloc(b->at, room);
        if (!more) {
            b->failed = true;
            return;
        }
        b->at = more;
        b->room = room;
    }
    if (length)
        memcpy(b->at + b->length, bytes, length);
    b->length += length;
    b->at[b->length] = '\0';
}

void buffer_print(buffer *b, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof(text))
        b->failed = true;
    else
        buffer_add(b, text, (size_t)length);
}

void buffer_release(buffer *b)
{
    free(b->at);
    *b = (buffer){ 0 };
}
