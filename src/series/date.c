/* SPDX-License-Identifier: Apache-2.0 */
/* date.c - dates of rows, and the interval between them. */
#include "series/date.h"

#include <stdio.h>

enum { DAY = 86400 };

/* ---- the calendar ------------------------------------------------------ */

/* Days from 1970-01-01 to a date; months from 1. Years are counted from March,
 * so that the leap day is the last one. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month > 2 ? year : year - 1;
    int64_t m = month > 2 ? month - 3 : month + 9;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 -
           719468;
}

static bool leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int64_t month_days(int64_t year, int64_t month)
{
    static const int8_t days[] = { 31, 28, 31, 30, 31, 30,
                                   31, 31, 30, 31, 30, 31 };
    return days[month - 1] + (month == 2 && leap(year));
}

typedef struct civil {
    int64_t year, month, day;
} civil;

/* Dates come from bt_date_parse(), or are a bounded number of steps later. */
static civil civil_of(int64_t days)
{
    civil c = { 1970 + days / 366, 1, 1 };
    if (days < 0)
        c.year = 1969 + days / 365;
    while (days_of(c.year, 1, 1) > days)
        c.year--;
    while (days_of(c.year + 1, 1, 1) <= days)
        c.year++;
    while (c.month < 12 && days_of(c.year, c.month + 1, 1) <= days)
        c.month++;
    c.day = days - days_of(c.year, c.month, 1) + 1;
    return c;
}

static int64_t day_number(int64_t date)
{
    return date >= 0 ? date / DAY : -((-date + DAY - 1) / DAY);
}

/* 0 is Monday. */
static int64_t weekday(int64_t date)
{
    int64_t day = (day_number(date) + 3) % 7; // 1970-01-01 was a Thursday
    return day < 0 ? day + 7 : day;
}

/* ---- text -------------------------------------------------------------- */

/* `digits` digits from text[at]; -1 if there are others. */
static int64_t digits_read(const char *text, size_t size, size_t at,
                           size_t digits)
{
    int64_t value = 0;
    if (at + digits > size)
        return -1;
    for (size_t i = at; i < at + digits; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

/* The part after the day: " 23:30" or " 23:30:00". */
static int64_t time_read(const char *text, size_t size)
{
    int64_t hour = digits_read(text, size, 11, 2);
    int64_t minute = digits_read(text, size, 14, 2);
    int64_t second = size == 16 ? 0 : digits_read(text, size, 17, 2);
    bool signs = (text[10] == ' ' || text[10] == 'T') && text[13] == ':' &&
                 (size == 16 || text[16] == ':');
    if (!signs || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
        second < 0 || second > 59)
        return -1;
    return 3600 * hour + 60 * minute + second;
}

bool bt_date_parse(int64_t *date, bt_date_form *form, const char *text,
                   size_t size)
{
    int64_t time = 0, day = 1;
    if (size != 7 && size != 10 && size != 16 && size != 19)
        return false;
    int64_t year = digits_read(text, size, 0, 4);
    int64_t month = digits_read(text, size, 5, 2);
    if (year < 1 || month < 1 || month > 12 || text[4] != '-')
        return false;
    if (size >= 10) {
        day = digits_read(text, size, 8, 2);
        if (text[7] != '-' || day < 1 || day > month_days(year, month))
            return false;
    }
    if (size >= 16 && (time = time_read(text, size)) < 0)
        return false;
    *date = days_of(year, month, day) * DAY + time;
    *form = size == 7    ? BT_DATE_MONTH
            : size == 10 ? BT_DATE_DAY
            : size == 16 ? BT_DATE_MINUTE
                         : BT_DATE_SECOND;
    return true;
}

void bt_date_write(char text[BT_DATE_BYTES], int64_t date, bt_date_form form)
{
    civil c = civil_of(day_number(date));
    int second = (int)(date - day_number(date) * DAY);
    int year = (int)(c.year > 99999 ? 99999 : c.year);
    int length = snprintf(text, BT_DATE_BYTES, "%04d-%02d", year % 100000,
                          (int)c.month % 100);
    char *rest = text + length;
    size_t room = BT_DATE_BYTES - (size_t)length;
    if (form == BT_DATE_DAY)
        snprintf(rest, room, "-%02d", (int)c.day % 100);
    else if (form == BT_DATE_MINUTE)
        snprintf(rest, room, "-%02d %02d:%02d", (int)c.day % 100,
                 second / 3600 % 100, second / 60 % 60);
    else if (form == BT_DATE_SECOND)
        snprintf(rest, room, "-%02d %02d:%02d:%02d", (int)c.day % 100,
                 second / 3600 % 100, second / 60 % 60, second % 60);
}

/* ---- intervals --------------------------------------------------------- */

/* The most frequent difference of consecutive dates, found in one pass by
 * majority vote; irregular dates give one of theirs. */
static int64_t usual_step(const int64_t *dates, size_t count)
{
    int64_t step = 0;
    size_t votes = 0;
    for (size_t i = 1; i < count; i++) {
        int64_t d = dates[i] - dates[i - 1];
        if (votes == 0)
            step = d;
        if (d == step)
            votes++;
        else
            votes--;
    }
    return step;
}

/* Whether all dates are days from Monday to Friday. */
static bool weekdays_only(const int64_t *dates, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (weekday(dates[i]) > 4 || dates[i] % DAY)
            return false;
    return count > 5;
}

/* The months between the first two dates if all are as far apart, on the same
 * day of the month; else 0. */
static int64_t month_step(const int64_t *dates, size_t count)
{
    int64_t step = 0;
    for (size_t i = 1; i < count; i++) {
        civil a = civil_of(day_number(dates[i - 1]));
        civil b = civil_of(day_number(dates[i]));
        int64_t months = 12 * (b.year - a.year) + b.month - a.month;
        bool ends = a.day == month_days(a.year, a.month) &&
                    b.day == month_days(b.year, b.month);
        if ((a.day != b.day && !ends) || months < 1 || (step && months != step))
            return 0;
        step = months;
    }
    return step;
}

bt_interval bt_interval_of(const int64_t *dates, size_t count)
{
    if (count < 3)
        return (bt_interval){ BT_INTERVAL_NONE, 0 };
    int64_t months = month_step(dates, count);
    if (months)
        return (bt_interval){ BT_INTERVAL_MONTHS, months };
    int64_t step = usual_step(dates, count);
    if (step == DAY && weekdays_only(dates, count))
        return (bt_interval){ BT_INTERVAL_WEEKDAY, DAY };
    return (bt_interval){ BT_INTERVAL_SECONDS, step };
}

static int64_t months_add(int64_t date, int64_t months)
{
    civil c = civil_of(day_number(date));
    bool end = c.day == month_days(c.year, c.month);
    int64_t month = 12 * c.year + c.month - 1 + months;
    int64_t year = month / 12, last = month_days(year, month % 12 + 1);
    int64_t day = c.day > last || (end && c.day >= 28) ? last : c.day;
    return days_of(year, month % 12 + 1, day) * DAY + date -
           day_number(date) * DAY;
}

/* Steps that stay before the year 100,000. */
static int64_t steps_most(int64_t step_seconds, int64_t date)
{
    return (days_of(99999, 1, 1) * DAY - date) / step_seconds;
}

int64_t bt_interval_add(const bt_interval *interval, int64_t date, size_t steps)
{
    bool months = interval->kind == BT_INTERVAL_MONTHS;
    int64_t step = months ? 31 * DAY * interval->step : interval->step;
    int64_t n = (int64_t)steps, most = step ? steps_most(step, date) : 0;
    if (n > most)
        n = most;
    switch (interval->kind) {
    case BT_INTERVAL_SECONDS:
        return date + n * interval->step;
    case BT_INTERVAL_MONTHS:
        return months_add(date, n * interval->step);
    case BT_INTERVAL_WEEKDAY:
        date += n / 5 * 7 * DAY;
        for (n %= 5; n > 0; n--)
            date += weekday(date) == 4 ? 3 * DAY : DAY;
        return date;
    case BT_INTERVAL_NONE:
        break;
    }
    return date;
}

size_t bt_interval_season(const bt_interval *interval)
{
    int64_t step = interval->step;
    switch (interval->kind) {
    case BT_INTERVAL_MONTHS:
        return 12 % step == 0 ? (size_t)(12 / step) : 1;
    case BT_INTERVAL_WEEKDAY:
        return 5;
    case BT_INTERVAL_SECONDS:
        return step == 7 * DAY                 ? 52
               : step == DAY                   ? 7
               : step < DAY && DAY % step == 0 ? (size_t)(DAY / step)
                                               : 1;
    case BT_INTERVAL_NONE:
        break;
    }
    return 1;
}

size_t bt_interval_calendar(const bt_interval *interval)
{
    int64_t step = interval->step;
    if (interval->kind == BT_INTERVAL_WEEKDAY)
        return 7;
    if (interval->kind == BT_INTERVAL_MONTHS)
        return 12 % step == 0 && step < 12 ? (size_t)(12 / step) : 0;
    if (interval->kind != BT_INTERVAL_SECONDS || step > DAY || DAY % step)
        return 0;
    return 7 * DAY / step <= BT_CALENDAR_MAX ? (size_t)(7 * DAY / step) : 0;
}

size_t bt_calendar_place(const bt_interval *interval, int64_t date)
{
    int64_t second = date - day_number(date) * DAY;
    if (interval->kind == BT_INTERVAL_MONTHS)
        return (size_t)((civil_of(day_number(date)).month - 1) /
                        interval->step);
    return (size_t)((weekday(date) * DAY + second) / interval->step);
}
