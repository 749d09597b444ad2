/* SPDX-License-Identifier: Apache-2.0 */
/* train_show.c - bauta train: what a person sees. On a terminal one line that
 * is rewritten, with a small curve of the loss; in a pipe plain lines. */
#include "train.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *text_of(const char *format, ...)
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

const char *grouped(char text[32], uint64_t number)
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

const char *duration(char text[32], double seconds)
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

show show_begin(size_t done, size_t steps)
{
    show s = { .terminal = isatty(STDERR_FILENO), .steps = steps };
    size_t left = steps > done ? steps - done : 1;
    s.every = left / 40 ? left / 40 : 1;
    s.last_drawn = now();
    return s;
}

/* ---- the curve --------------------------------------------------------- */

static void losses_add(show *s, const bauta_train_report *r)
{
    size_t part = (r->step - 1) * SHOW_LOSSES / (s->steps ? s->steps : 1);
    if (part >= SHOW_LOSSES || r->loss != r->loss)
        return;
    float *mean = &s->losses[part];
    s->counts[part]++;
    *mean += ((float)r->loss - *mean) / (float)s->counts[part];
}

/* Eight heights, from the least mean to the largest. */
static size_t curve_draw(char *text, const show *s)
{
    static const char *const bars[] = {
        "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"
    };
    float low = 0.0f, high = 0.0f;
    bool any = false;
    size_t size = 0;
    for (int i = 0; i < SHOW_LOSSES; i++) {
        if (!s->counts[i])
            continue;
        low = !any || s->losses[i] < low ? s->losses[i] : low;
        high = !any || s->losses[i] > high ? s->losses[i] : high;
        any = true;
    }
    for (int i = 0; i < SHOW_LOSSES; i++) {
        if (!s->counts[i])
            continue;
        float share = high > low ? (s->losses[i] - low) / (high - low) : 0.0f;
        const char *bar = bars[(int)(share * 7.0f + 0.5f)];
        memcpy(text + size, bar, strlen(bar));
        size += strlen(bar);
    }
    text[size] = '\0';
    return size;
}

/* ---- lines ------------------------------------------------------------- */

static size_t columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col
               ? size.ws_col
               : 80;
}

static void line_draw(show *s, const bauta_train_report *r)
{
    char text[256], left[32], speed[32], curve[4 * SHOW_LOSSES + 1];
    double rest =
        s->steps > r->step ? (double)(s->steps - r->step) * s->seconds : 0.0;
    int length =
        snprintf(text, sizeof(text),
                 "step %zu/%zu  loss %.4f  smoothed %.4f  %s tokens/s  %s left",
                 r->step, s->steps, r->loss, s->smooth,
                 grouped(speed, (uint64_t)s->rate), duration(left, rest));
    if (!s->terminal) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    size_t room = columns();
    bool fits = (size_t)length + 2 + SHOW_LOSSES < room;
    curve_draw(curve, s);
    fprintf(stderr, "\r\033[K%.*s%s%s", (int)room - 1, text, fits ? "  " : "",
            fits ? curve : "");
    fflush(stderr);
    s->drawn = true;
}

void show_step(show *s, const bauta_train_report *r, double seconds)
{
    const double keep = 0.95;
    double rate = seconds > 0.0 ? (double)r->tokens / seconds : 0.0;
    bool first = s->seconds == 0.0;
    if (r->loss == r->loss)
        s->smooth = first ? r->loss : keep * s->smooth + (1 - keep) * r->loss;
    s->rate = first ? rate : keep * s->rate + (1 - keep) * rate;
    s->seconds = first ? seconds : keep * s->seconds + (1 - keep) * seconds;
    losses_add(s, r);
    double at = now();
    double pause = s->terminal ? 0.1 : 30.0; // seconds between lines, at most
    bool draw = at - s->last_drawn > pause || r->step == s->steps ||
                (!s->terminal && r->step % s->every == 0);
    if (!draw)
        return;
    s->last_drawn = at;
    line_draw(s, r);
}

void show_validation(show *s, size_t done, size_t all)
{
    double at = now();
    if (at - s->last_drawn <= (s->terminal ? 0.1 : 30.0))
        return;
    s->last_drawn = at;
    fprintf(stderr, "%svalidating: %zu of %zu sequences%s",
            s->terminal ? "\r\033[K" : "", done, all, s->terminal ? "" : "\n");
    fflush(stderr);
    s->drawn = s->validating = s->terminal;
}

void show_line(show *s, const char *format, ...)
{
    va_list args;
    if (s->terminal && s->drawn)
        fputs(s->validating ? "\r\033[K" : "\n", stderr);
    s->drawn = s->validating = false;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void show_end(show *s)
{
    if (s->terminal && s->drawn)
        fputc('\n', stderr);
    s->drawn = false;
}
