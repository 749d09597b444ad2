/* SPDX-License-Identifier: Apache-2.0 */
/* op_cases.h - the ops of the tape as a table of cases: how each is called, and
 * its formula in double with a rounding analysis. */
#ifndef BT_TEST_OP_CASES_H
#define BT_TEST_OP_CASES_H

#include "autograd/ops.h"

enum { OP_INPUTS = 3, OP_IDS = 7 };

typedef struct op_case op_case;

/* The arguments of an op beside tensors. */
typedef struct op_data {
    size_t rows, columns;
    uint32_t *ids, *positions; /* (rows) */
    uint64_t *tokens;          /* (rows) */
    float *frequencies;        /* (columns), more than needed */
} op_data;

struct op_case {
    const char *name;
    bt_tensor *(*call)(bt_tape *tape, const op_case *c, const op_data *d,
                       bt_tensor *const in[OP_INPUTS]);
    /* y, and in `size` the effect of an error of 1 u on it. */
    void (*forward)(const op_case *c, const op_data *d, double *const in[],
                    double *y, double *size);
    /* The gradients of the inputs, likewise. */
    void (*backward)(const op_case *c, const op_data *d, double *const in[],
                     const double *dy, double *const grad[],
                     double *const size[]);
    size_t inputs;
    bool wide[OP_INPUTS]; /* (rows, columns); else (1, columns / heads) */
    bool table;           /* input 0 is (OP_IDS, columns) */
    bool same;            /* input 1 is input 0, the same tensor */
    bool chained;         /* gradients go into a chain, not into one sum */
    bt_act act;
    bt_norm_kind kind;
    size_t heads;
};

extern const op_case op_cases[];
extern const size_t op_case_count;

/* Rows and columns of input i. */
size_t op_rows(const op_case *c, const op_data *d, size_t i);
size_t op_columns(const op_case *c, const op_data *d, size_t i);

#define OP_RATE 0.3f
#define OP_SEED 0x0123456789abcdef
#define OP_SITE 5u
#define OP_SCALE 1.75f
#define OP_EPSILON 1e-5f

/* Whether the dropout case keeps an element. */
bool op_keeps(uint64_t token, size_t column);

#endif
