/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c - attention weights and masks in the terminal; see terminal.h. */
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROW = 4, WIDE = 10 };  /* columns of a cell */
enum { DIGITS = 3, FEWEST = 4 }; /* of narrow cells; cells side by side */

bool terminal_has_colours(FILE *to)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(to)) && !(no && *no) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

/* ---- labels ------------------------------------------------------------ */

/* Whether a byte of UTF-8 is the first one of a character. */
static bool starts_character(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}

size_t text_columns(const char *text)
{
    return text_columns_of(text, strlen(text));
}

size_t text_columns_of(const char *text, size_t bytes)
{
    size_t width = 0;
    for (size_t i = 0; i < bytes; i++)
        width += starts_character(text[i]);
    return width;
}

/* The length of the first `width` characters. */
static size_t bytes_of(const char *text, size_t width)
{
    size_t bytes = 0;
    while (text[bytes]) {
        if (starts_character(text[bytes]) && width-- == 0)
            break;
        bytes++;
    }
    return bytes;
}

static void spaces(FILE *to, size_t count)
{
    while (count--)
        fputc(' ', to);
}

/* A text, cut if it is too wide, aligned within `width` columns. */
static void label_draw(FILE *to, const char *text, size_t width, bool right)
{
    size_t own = text_columns(text) < WIDE ? text_columns(text) : WIDE;
    size_t room = own < width ? width - own : 0;
    if (right)
        spaces(to, room);
    fwrite(text, 1, bytes_of(text, own), to);
    if (!right)
        spaces(to, room);
}

void token_label(char *to, size_t size, const char *piece)
{
    static const char *const spaced[] = { "▁", "Ġ" };
    for (size_t i = 0; i < 2; i++)
        if (strncmp(piece, spaced[i], strlen(spaced[i])) == 0 &&
            piece[strlen(spaced[i])])
            piece += strlen(spaced[i]);
    snprintf(to, size, "%s", piece);
}

static size_t widest(const char *const *labels, size_t count, size_t least)
{
    size_t width = least;
    for (size_t i = 0; i < count; i++)
        width =
            text_columns(labels[i]) > width ? text_columns(labels[i]) : width;
    return width < WIDE ? width : WIDE;
}

/* ---- cells ------------------------------------------------------------- */

/* Dark blue to bright yellow; the square root makes small weights visible. */
static void background(FILE *to, float weight)
{
    static const float dark[] = { 26, 28, 54 }, bright[] = { 255, 214, 90 };
    float share = sqrtf(weight < 0 ? 0 : weight > 1 ? 1 : weight);
    int colour[3];
    for (int i = 0; i < 3; i++)
        colour[i] = (int)(dark[i] + share * (bright[i] - dark[i]));
    fprintf(to, "\033[48;2;%d;%d;%dm\033[38;2;%sm", colour[0], colour[1],
            colour[2], share > 0.6f ? "20;20;30" : "200;205;225");
}

static void cell_draw(FILE *to, float weight, size_t width, bool colours)
{
    char text[16] = "·";
    bool hidden = weight == 0;
    if (!hidden)
        snprintf(text, sizeof(text), "%.0f", 100.0 * (double)weight);
    if (colours && hidden)
        fputs("\033[2m", to);
    else if (colours)
        background(to, weight);
    label_draw(to, text, width + 1, true);
    if (colours)
        fputs("\033[0m", to);
}

void heatmap_draw(FILE *to, const heatmap *p, bool colours)
{
    size_t left = widest(p->row_labels, p->rows, 1);
    size_t width = widest(p->column_labels, p->columns, NARROW);
    spaces(to, 2 + left + 1);
    for (size_t j = 0; j < p->columns; j++)
        label_draw(to, p->column_labels[j], width + 1, true);
    fputc('\n', to);
    for (size_t i = 0; i < p->rows; i++) {
        fputs("  ", to);
        label_draw(to, p->row_labels[i], left, true);
        fputc(' ', to);
        for (size_t j = 0; j < p->columns; j++)
            cell_draw(to, p->weights[i * p->columns + j], width, colours);
        fputc('\n', to);
    }
}

/* ---- narrow terminals -------------------------------------------------- */

size_t terminal_columns(FILE *to)
{
    enum { WIDE_ENOUGH = 200 };
    struct winsize size;
    if (isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0)
        return size.ws_col;
    return WIDE_ENOUGH;
}

/* A run of columns, with room for three digits each. */
typedef struct panel {
    size_t from, to;   /* columns */
    size_t left, high; /* width of the row labels, height of the others */
} panel;

/* Character `at` of a text, or a blank beyond its end. */
static void character_draw(FILE *to, const char *text, size_t at)
{
    text += bytes_of(text, at);
    if (*text)
        fwrite(text, 1, bytes_of(text, 1), to);
    else
        fputc(' ', to);
}

/* Column labels read downwards and end just above the cells. */
static void labels_draw_down(FILE *to, const heatmap *p, const panel *v)
{
    for (size_t line = 0; line < v->high; line++) {
        spaces(to, 2 + v->left + 1);
        for (size_t j = v->from; j < v->to; j++) {
            const char *label = p->column_labels[j];
            size_t own = text_columns(label);
            size_t skip = v->high - (own < v->high ? own : v->high);
            spaces(to, DIGITS);
            if (line < skip)
                fputc(' ', to);
            else
                character_draw(to, label, line - skip);
        }
        fputc('\n', to);
    }
}

static bool row_hidden(const heatmap *p, const panel *v, size_t row)
{
    size_t j = v->from;
    while (j < v->to && p->weights[row * p->columns + j] == 0)
        j++;
    return j == v->to;
}

static void panel_draw(FILE *to, const heatmap *p, const panel *v, bool colours)
{
    bool part = v->to - v->from < p->columns;
    labels_draw_down(to, p, v);
    for (size_t i = 0; i < p->rows; i++) {
        if (part && row_hidden(p, v, i))
            continue;
        fputs("  ", to);
        label_draw(to, p->row_labels[i], v->left, true);
        fputc(' ', to);
        for (size_t j = v->from; j < v->to; j++)
            cell_draw(to, p->weights[i * p->columns + j], DIGITS, colours);
        fputc('\n', to);
    }
}

void heatmap_draw_fitting(FILE *to, const heatmap *p, bool colours)
{
    size_t room = terminal_columns(to);
    size_t width = widest(p->column_labels, p->columns, NARROW);
    panel v = { .left = widest(p->row_labels, p->rows, 1) };
    if (v.left + 4 + p->columns * (width + 1) <= room) {
        heatmap_draw(to, p, colours);
        return;
    }
    v.high = widest(p->column_labels, p->columns, 1);
    size_t most = room > v.left + 4 ? (room - v.left - 4) / (DIGITS + 1) : 0;
    most = most < FEWEST ? FEWEST : most;
    for (; v.from < p->columns; v.from = v.to) {
        v.to = v.from + most < p->columns ? v.from + most : p->columns;
        if (most < p->columns)
            fprintf(to, "%s  columns %zu to %zu of %zu\n\n", v.from ? "\n" : "",
                    v.from, v.to - 1, p->columns);
        panel_draw(to, p, &v, colours);
    }
    if (most < p->columns)
        fputs("\n  Rows that see no column of a part are left out of it.\n",
              to);
}

void mask_draw_cell(FILE *to, char sign, bool colours)
{
    if (!colours)
        fputc(sign, to);
    else if (sign == '#')
        fputs("\033[48;2;46;160;140m  \033[0m", to);
    else if (sign == '!')
        fputs("\033[48;2;200;30;45m\033[1;38;2;255;255;255m !\033[0m", to);
    else
        fputs("\033[2m ·\033[0m", to);
}

void mask_draw(FILE *to, const char *text, bool colours)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputc('\n', to);
        else
            mask_draw_cell(to, *text, colours);
    }
}
