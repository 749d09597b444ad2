/* SPDX-License-Identifier: Apache-2.0 */
/* line_editor.c - lines that a user types; see line_editor.h.
 *
 * The terminal sends every key while a line is edited and is as before in
 * between. Keys that move the cursor arrive as escape sequences (ECMA-48). */
#include "line_editor.h"

#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { HISTORY_MAX = 1000 };

#define CONTROL(letter) ((letter)&0x1f)

typedef enum key {
    KEY_NONE = 0x100, /* above all bytes */
    KEY_UP,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_EOF
} key;

void line_editor_init(line_editor *e)
{
    const char *terminal = getenv("TERM");
    *e = (line_editor){ .editing = isatty(0) && isatty(2) && terminal &&
                                   strcmp(terminal, "dumb") != 0 };
}

void line_editor_release(line_editor *e)
{
    for (size_t i = 0; i < e->history_count; i++)
        free(e->history[i]);
    free(e->history);
    free(e->line);
}

/* ---- the line ---------------------------------------------------------- */

static bool line_reserve(line_editor *e, size_t length)
{
    if (length < e->room)
        return true;
    size_t room = 2 * length + 64;
    char *line = realloc(e->line, room);
    if (!line)
        return false;
    e->line = line;
    e->room = room;
    return true;
}

static bool line_set(line_editor *e, const char *text)
{
    size_t length = strlen(text);
    if (!line_reserve(e, length))
        return false;
    memcpy(e->line, text, length + 1);
    e->length = e->cursor = length;
    return true;
}

static bool byte_insert(line_editor *e, char byte)
{
    if (!line_reserve(e, e->length + 1))
        return false;
    memmove(e->line + e->cursor + 1, e->line + e->cursor,
            e->length - e->cursor + 1);
    e->line[e->cursor++] = byte;
    e->length++;
    return true;
}

static void bytes_remove(line_editor *e, size_t from, size_t to)
{
    memmove(e->line + from, e->line + to, e->length - to + 1);
    e->length -= to - from;
    e->cursor = from;
}

static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* The beginnings of the characters before and after the cursor. */
static size_t character_before(const line_editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && continues_character(e->line[--at]))
        ;
    return at;
}

static size_t character_after(const line_editor *e)
{
    size_t at = e->cursor;
    if (at < e->length)
        at++;
    while (at < e->length && continues_character(e->line[at]))
        at++;
    return at;
}

static size_t word_before(const line_editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && e->line[at - 1] == ' ')
        at--;
    while (at > 0 && e->line[at - 1] != ' ')
        at--;
    return at;
}

/* ---- history ----------------------------------------------------------- */

/* Without memory a line is not kept. */
static void history_add(line_editor *e)
{
    const char *last = e->history_count ? e->history[e->history_count - 1] : "";
    if (!e->length || strcmp(e->line, last) == 0)
        return;
    if (e->history_count == HISTORY_MAX) {
        free(e->history[0]);
        e->history_count--;
        memmove(e->history, e->history + 1,
                e->history_count * sizeof(*e->history));
    }
    if (e->history_count == e->history_room) {
        size_t room = 2 * e->history_room + 16;
        char **more = realloc(e->history, room * sizeof(*more));
        if (!more)
            return;
        e->history = more;
        e->history_room = room;
    }
    char *copy = strdup(e->line);
    if (copy)
        e->history[e->history_count++] = copy;
}

/* ---- the terminal ------------------------------------------------------ */

static bool keys_begin(struct termios *before)
{
    struct termios keys;
    if (tcgetattr(0, before))
        return false;
    keys = *before;
    keys.c_iflag &= (tcflag_t) ~(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    keys.c_lflag &= (tcflag_t) ~(ECHO | ICANON | IEXTEN | ISIG);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    return tcsetattr(0, TCSADRAIN, &keys) == 0;
}

/* A byte of the terminal, or -1 at its end. */
static int byte_read(void)
{
    unsigned char byte;
    for (;;) {
        ssize_t got = read(0, &byte, 1);
        if (got == 1)
            return byte;
        if (got == 0 || errno != EINTR)
            return -1;
    }
}

/* What follows ESC [ or ESC O: a number, perhaps, and a letter or "~". */
static key sequence_read(void)
{
    int number = 0, byte = byte_read();
    while ((byte >= '0' && byte <= '9') || byte == ';') {
        number = byte == ';' ? 0 : (number * 10 + byte - '0') % 1000;
        byte = byte_read();
    }
    switch (byte) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'C':
        return KEY_RIGHT;
    case 'D':
        return KEY_LEFT;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    case '~':
        if (number == 3)
            return KEY_DELETE;
        if (number == 1 || number == 7)
            return KEY_HOME;
        return number == 4 || number == 8 ? KEY_END : KEY_NONE;
    case -1:
        return KEY_EOF;
    default:
        return KEY_NONE;
    }
}

/* A byte of text or a control character as itself, or a key. */
static int key_read(void)
{
    int byte = byte_read();
    if (byte < 0)
        return KEY_EOF;
    if (byte != 0x1b)
        return byte;
    byte = byte_read();
    return byte == '[' || byte == 'O' ? (int)sequence_read() : KEY_NONE;
}

/* One row: the prompt, and the part of the line around the cursor. */
static void line_draw(line_editor *e, const char *prompt)
{
    size_t columns = terminal_columns(stderr), used = text_columns(prompt) + 1;
    size_t most = columns > used + 4 ? columns - used : 4;
    if (e->left > e->cursor)
        e->left = e->cursor;
    while (text_columns_of(e->line + e->left, e->cursor - e->left) > most ||
           (e->left && continues_character(e->line[e->left])))
        e->left++;
    size_t end = e->left, width = 0;
    while (end < e->length &&
           (width < most || continues_character(e->line[end])))
        width += !continues_character(e->line[end++]);
    fprintf(stderr, "\r%s%.*s\x1b[K\r", prompt, (int)(end - e->left),
            e->line + e->left);
    size_t at = text_columns(prompt) +
                text_columns_of(e->line + e->left, e->cursor - e->left);
    if (at)
        fprintf(stderr, "\x1b[%zuC", at);
    fflush(stderr);
}

/* ---- keys -------------------------------------------------------------- */

/* Move through the history; the line that was begun follows the last one. */
static bool history_move(line_editor *e, size_t *at, char **begun, key where)
{
    if (where == KEY_UP ? *at == 0 : *at == e->history_count)
        return true;
    if (*at == e->history_count) {
        free(*begun);
        *begun = strdup(e->line);
        if (!*begun)
            return false;
    }
    *at = where == KEY_UP ? *at - 1 : *at + 1;
    return line_set(e, *at == e->history_count ? *begun : e->history[*at]);
}

static void cursor_move(line_editor *e, int pressed)
{
    if (pressed == KEY_LEFT || pressed == CONTROL('b'))
        e->cursor = character_before(e);
    else if (pressed == KEY_RIGHT || pressed == CONTROL('f'))
        e->cursor = character_after(e);
    else if (pressed == KEY_HOME || pressed == CONTROL('a'))
        e->cursor = 0;
    else if (pressed == KEY_END || pressed == CONTROL('e'))
        e->cursor = e->length;
}

static void text_remove(line_editor *e, int pressed)
{
    if (pressed == 0x7f || pressed == CONTROL('h'))
        bytes_remove(e, character_before(e), e->cursor);
    else if (pressed == KEY_DELETE || pressed == CONTROL('d'))
        bytes_remove(e, e->cursor, character_after(e));
    else if (pressed == CONTROL('k'))
        bytes_remove(e, e->cursor, e->length);
    else if (pressed == CONTROL('u'))
        bytes_remove(e, 0, e->cursor);
    else if (pressed == CONTROL('w'))
        bytes_remove(e, word_before(e), e->cursor);
}

/* False if memory runs out. */
static bool key_apply(line_editor *e, int pressed, size_t *at, char **begun)
{
    if (pressed == KEY_UP || pressed == CONTROL('p'))
        return history_move(e, at, begun, KEY_UP);
    if (pressed == KEY_DOWN || pressed == CONTROL('n'))
        return history_move(e, at, begun, KEY_DOWN);
    if (pressed == CONTROL('l'))
        fputs("\x1b[H\x1b[2J", stderr);
    else if (pressed >= 0x20 && pressed < KEY_NONE && pressed != 0x7f)
        return byte_insert(e, (char)pressed);
    cursor_move(e, pressed);
    text_remove(e, pressed);
    return true;
}

static line_status keys_read(line_editor *e, const char *prompt)
{
    size_t at = e->history_count;
    char *begun = NULL;
    line_status status = LINE_FAILED;
    errno = ENOMEM;
    for (bool good = line_set(e, ""); good;) {
        line_draw(e, prompt);
        int pressed = key_read();
        if (pressed == '\r' || pressed == '\n') {
            status = LINE_OK;
            break;
        }
        if (pressed == CONTROL('c')) {
            status = LINE_INTERRUPTED;
            break;
        }
        if (pressed == KEY_EOF || (pressed == CONTROL('d') && !e->length)) {
            status = LINE_END;
            break;
        }
        good = key_apply(e, pressed, &at, &begun);
    }
    free(begun);
    e->left = 0;
    return status;
}

static line_status line_edit(line_editor *e, const char *prompt)
{
    struct termios before;
    if (!keys_begin(&before))
        return LINE_FAILED;
    line_status status = keys_read(e, prompt);
    tcsetattr(0, TCSADRAIN, &before);
    fputs("\n", stderr);
    if (status == LINE_OK)
        history_add(e);
    return status;
}

line_status line_read(line_editor *e, const char *prompt)
{
    if (e->editing)
        return line_edit(e, prompt);
    if (isatty(0))
        fputs(prompt, stderr);
    errno = 0;
    ssize_t length = getline(&e->line, &e->room, stdin);
    if (length < 0 && errno == EINTR) {
        clearerr(stdin);
        return LINE_INTERRUPTED;
    }
    if (length < 0)
        return ferror(stdin) || errno == ENOMEM ? LINE_FAILED : LINE_END;
    if (length && e->line[length - 1] == '\n')
        e->line[--length] = '\0';
    e->length = (size_t)length;
    return LINE_OK;
}
