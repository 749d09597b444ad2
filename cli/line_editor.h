/* SPDX-License-Identifier: Apache-2.0 */
/* line_editor.h - lines that a user types, with editing and a history.
 *
 * On a terminal: arrows, Home, End, Backspace, Delete and the keys of Emacs
 * (Ctrl-A, E, B, F, K, U, W, L), Up and Down for earlier lines. A line that is
 * too wide scrolls. Elsewhere lines are read as they are. */
#ifndef LINE_EDITOR_H
#define LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_editor {
    bool editing; /* stdin and stderr are a terminal that can move a cursor */
    char *line;   /* (length) and a NUL: what line_read() read */
    size_t length, room;
    size_t cursor;  /* a byte of the line */
    size_t left;    /* the first byte that is shown */
    char **history; /* (history_count) the latest line last */
    size_t history_count, history_room;
} line_editor;

typedef enum line_status {
    LINE_OK,
    LINE_END,         /* end of file, or Ctrl-D on an empty line */
    LINE_INTERRUPTED, /* Ctrl-C */
    LINE_FAILED       /* errno says why */
} line_status;

void line_editor_init(line_editor *e);
void line_editor_release(line_editor *e);
/* Read a line, without its newline. The prompt is shown on a terminal. */
line_status line_read(line_editor *e, const char *prompt);

#endif
