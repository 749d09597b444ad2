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

/* A token as a label: "▁love" and "Ġlove" are love. Writes at most `size`
 * bytes with the NUL. */
void draw_label(char *to, size_t size, const char *piece);

#endif
