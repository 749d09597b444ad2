/* SPDX-License-Identifier: Apache-2.0 */
/* format.c - strings, numbers and durations for output; see format.h. */
#include "format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *format_string(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    va_start(args, format);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

const char *format_grouped(char text[32], uint64_t number)
{
    char *at = text + 31;
    int digits = 0;
    *at = '\0';
    do {
        if (digits && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + number % 10);
        digits++;
    } while (number /= 10);
    return at;
}

const char *format_duration(char text[32], double seconds)
{
    unsigned long whole = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 0;
    if (seconds < 60.0)
        snprintf(text, 32, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(text, 32, "%lu min %02lu s", whole / 60, whole % 60);
    else if (whole < 48 * 3600)
        snprintf(text, 32, "%lu h %02lu min", whole / 3600, whole / 60 % 60);
    else
        snprintf(text, 32, "%.1f days", seconds / 86400.0);
    return text;
}
