/* SPDX-License-Identifier: Apache-2.0 */
/* date.h - dates of rows, and the interval between them.
 *
 * A date is a number of seconds since 1970-01-01 in the proleptic Gregorian
 * calendar, without time zones: every day has 86,400 seconds. */
#ifndef BT_DATE_H
#define BT_DATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a date was written, and is written again. */
typedef enum bt_date_form {
    BT_DATE_MONTH,  /* 2024-05 */
    BT_DATE_DAY,    /* 2024-05-31 */
    BT_DATE_MINUTE, /* 2024-05-31 23:30 */
    BT_DATE_SECOND  /* 2024-05-31 23:30:00 */
} bt_date_form;

/* Parse a whole text as a date; years from 1 to 9999, a 'T' may stand for the
 * blank. False if it is none. */
bool bt_date_parse(int64_t *date, bt_date_form *form, const char *text,
                   size_t size);
enum { BT_DATE_BYTES = 24 };
void bt_date_write(char text[BT_DATE_BYTES], int64_t date, bt_date_form form);

/* The distance of rows. */
typedef struct bt_interval {
    enum {
        BT_INTERVAL_NONE,    /* no dates */
        BT_INTERVAL_SECONDS, /* `step` seconds */
        BT_INTERVAL_WEEKDAY, /* days from Monday to Friday */
        BT_INTERVAL_MONTHS   /* `step` months */
    } kind;
    int64_t step;
} bt_interval;

/* The interval of increasing dates, by the median of their differences. */
bt_interval bt_interval_of(const int64_t *dates, size_t count);
/* The date `steps` intervals later. */
int64_t bt_interval_add(const bt_interval *interval, int64_t date,
                        size_t steps);
/* Rows in a season; 1 if there is none. */
size_t bt_interval_season(const bt_interval *interval);
/* How many places the calendar has: months or quarters of the year, days of the
 * week, or times of the week; 0 for other intervals, or if there are more than
 * BT_CALENDAR_MAX. And the place of a date. */
enum { BT_CALENDAR_MAX = 2016 };
size_t bt_interval_calendar(const bt_interval *interval);
size_t bt_calendar_place(const bt_interval *interval, int64_t date);

#endif
