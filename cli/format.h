/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - strings, numbers and durations for output; a clock. */
#ifndef FORMAT_H
#define FORMAT_H

#include <stdint.h>

/* Seconds of a monotonic clock. */
double seconds_now(void);
/* What printf() would print, for free(); NULL if out of memory. */
char *format_string(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* 1234567 as "1,234,567": scripts that split at blanks still see one word. */
const char *format_grouped(char text[32], uint64_t number);
/* "1 h 02 min", "3 min 04 s" or "5.2 s". */
const char *format_duration(char text[32], double seconds);

#endif
