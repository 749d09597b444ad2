/* SPDX-License-Identifier: Apache-2.0 */
/* train_display.c - bauta train: progress on stderr. On a terminal one line
 * that is rewritten, with a small curve of the loss; else plain lines. */
#include "format.h"
#include "train.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

train_display display_begin(size_t done, size_t steps)
{
    train_display s = { .terminal = isatty(STDERR_FILENO), .steps = steps };
    size_t left = steps > done ? steps - done : 1;
    s.every = left / 40 ? left / 40 : 1;
    s.last_drawn = seconds_now();
    return s;
}

/* ---- the curve --------------------------------------------------------- */

static void losses_add(train_display *s, const bauta_train_report *r)
{
    size_t part = (r->step - 1) * DISPLAY_LOSSES / (s->steps ? s->steps : 1);
    if (part >= DISPLAY_LOSSES || r->loss != r->loss)
        return;
    float *mean = &s->losses[part];
    s->counts[part]++;
    *mean += ((float)r->loss - *mean) / (float)s->counts[part];
}

/* Eight heights, from the smallest mean to the largest. */
static size_t curve_draw(char *text, const train_display *s)
{
    static const char *const bars[] = {
        "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"
    };
    float low = 0.0f, high = 0.0f;
    bool any = false;
    size_t size = 0;
    for (int i = 0; i < DISPLAY_LOSSES; i++) {
        if (!s->counts[i])
            continue;
        low = !any || s->losses[i] < low ? s->losses[i] : low;
        high = !any || s->losses[i] > high ? s->losses[i] : high;
        any = true;
    }
    for (int i = 0; i < DISPLAY_LOSSES; i++) {
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

static void line_draw(train_display *s, const bauta_train_report *r)
{
    char text[256], left[32], speed[32], curve[4 * DISPLAY_LOSSES + 1];
    double rest =
        s->steps > r->step ? (double)(s->steps - r->step) * s->seconds : 0.0;
    int length = snprintf(
        text, sizeof(text),
        "step %zu/%zu  loss %.4f  smoothed %.4f  %s tokens/s  %s left", r->step,
        s->steps, r->loss, s->smooth, format_grouped(speed, (uint64_t)s->rate),
        format_duration(left, rest));
    if (!s->terminal) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    size_t room = columns();
    bool fits = (size_t)length + 2 + DISPLAY_LOSSES < room;
    curve_draw(curve, s);
    fprintf(stderr, "\r\033[K%.*s%s%s", (int)room - 1, text, fits ? "  " : "",
            fits ? curve : "");
    fflush(stderr);
    s->drawn = true;
}

void display_step(train_display *s, const bauta_train_report *r, double seconds)
{
    const double keep = 0.95;
    double rate = seconds > 0.0 ? (double)r->tokens / seconds : 0.0;
    bool first = s->seconds == 0.0;
    if (r->loss == r->loss)
        s->smooth = first ? r->loss : keep * s->smooth + (1 - keep) * r->loss;
    s->rate = first ? rate : keep * s->rate + (1 - keep) * rate;
    s->seconds = first ? seconds : keep * s->seconds + (1 - keep) * seconds;
    losses_add(s, r);
    double at = seconds_now();
    double pause = s->terminal ? 0.1 : 30.0; // seconds between lines, at most
    bool draw = at - s->last_drawn > pause || r->step == s->steps ||
                (!s->terminal && r->step % s->every == 0);
    if (!draw)
        return;
    s->last_drawn = at;
    line_draw(s, r);
}

void display_validation(train_display *s, size_t done, size_t all)
{
    double at = seconds_now();
    if (at - s->last_drawn <= (s->terminal ? 0.1 : 30.0))
        return;
    s->last_drawn = at;
    fprintf(stderr, "%svalidating: %zu of %zu sequences%s",
            s->terminal ? "\r\033[K" : "", done, all, s->terminal ? "" : "\n");
    fflush(stderr);
    s->drawn = s->validating = s->terminal;
}

void display_line(train_display *s, const char *format, ...)
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

void display_end(train_display *s)
{
    if (s->terminal && s->drawn)
        fputc('\n', stderr);
    s->drawn = false;
}
