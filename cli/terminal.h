/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h - attention weights and masks in the terminal. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Rows are queries, columns are keys. A weight of 0 marks a pair hidden by the
 * mask, as in bauta_model_attention_weights(). */
typedef struct heatmap {
    size_t rows, columns;
    const char *const *row_labels;    /* (rows) UTF-8 */
    const char *const *column_labels; /* (columns) */
    const float *weights;             /* (rows, columns) */
} heatmap;

/* Whether to use colours: the stream is a terminal and NO_COLOR is not set. */
bool terminal_has_colours(FILE *to);
/* Draw the weights in percent. With colours, brighter is more. A hidden pair is
 * a dot without background. */
void heatmap_draw(FILE *to, const heatmap *p, bool colours);

/* The same. If the labels are too wide for the terminal, those of the columns
 * are set vertically; columns that still do not fit follow in further parts,
 * without the rows that see none of them. */
void heatmap_draw_fitting(FILE *to, const heatmap *p, bool colours);

/* Draw the output of bauta_mask_text(). */
void mask_draw(FILE *to, const char *text, bool colours);
/* Draw one pair: '#' visible, '.' hidden, '!' a leak. Takes two columns with
 * colours, else one. */
void mask_draw_cell(FILE *to, char sign, bool colours);

/* The width of a UTF-8 text: one column per character. */
size_t text_columns(const char *text);
size_t text_columns_of(const char *text, size_t bytes);
/* The width of the terminal; 200 if the stream is none. */
size_t terminal_columns(FILE *to);

/* A token as a label: "▁love" and "Ġlove" become "love". Writes at most `size`
 * bytes, with the NUL. */
void token_label(char *to, size_t size, const char *piece);

#endif
