/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - weights of attention as a picture in the terminal. */
#ifndef DRAW_H
#define DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A row a query, a column a key. A weight of 0 is a pair that the mask hides,
 * as bauta_model_look() has it. */
typedef struct picture {
    size_t rows, columns;
    const char *const *row_labels;    /* (rows) UTF-8 */
    const char *const *column_labels; /* (columns) */
    const float *weights;             /* (rows, columns) */
} picture;

/* Whether a stream takes colours: a terminal does, unless NO_COLOR says no. */
bool draw_in_colours(FILE *to);
/* Weights in percent. In colours, brighter is more; hidden pairs are a dot
 * without a ground, which no weight is. */
void draw_picture(FILE *to, const picture *p, bool colours);

/* The same, or where the terminal is too narrow for that a character for each
 * pair: tenths of the weight, and a dot where it is hidden. */
void draw_fitting(FILE *to, const picture *p, bool colours);

/* What bauta_mask_text() wrote. */
void draw_mask(FILE *to, const char *text, bool colours);
/* A pair of a mask by its sign: '#' visible, '.' hidden, '!' visible and ought
 * not to be. In colours it takes two columns, else one. */
void draw_sign(FILE *to, char sign, bool colours);

/* Characters of a text, which are as wide as a column each. */
size_t draw_width(const char *text);
/* Columns of the terminal; what is no terminal is taken for a wide one. */
size_t draw_room(FILE *to);

/* A token as a label: "▁love" and "Ġlove" are love. Writes at most `size`
 * bytes with the NUL. */
void draw_label(char *to, size_t size, const char *piece);

#endif
