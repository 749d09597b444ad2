/* SPDX-License-Identifier: Apache-2.0 */
/* op_cases.c - the formulas; see op_cases.h. Bounds are in u = 2^-24, to first
 * order. */
#include "op_cases.h"

#include "backend/cpu/kernels/activations.h"
#include "base/error.h"
#include "base/philox.h"

#include <math.h>
#include <string.h>

size_t op_rows(const op_case *c, const op_data *d, size_t i)
{
    if (c->table)
        return OP_IDS;
    return c->wide[i] ? d->rows : 1;
}

size_t op_columns(const op_case *c, const op_data *d, size_t i)
{
    return c->wide[i] ? d->columns : d->columns / c->heads;
}

/* ---- norm -------------------------------------------------------------- */

static bt_tensor *norm_call(bt_tape *tape, const op_case *c, const op_data *d,
                            bt_tensor *const in[])
{
    (void)d;
    return bt_op_norm(tape, in[0], in[1], c->inputs > 2 ? in[2] : NULL, c->kind,
                      OP_EPSILON, c->heads);
}

/* A row's statistics, and how far off they may be.
 *
 * The mean of n numbers up to M is within (n / 16 + 5) M (sixteen lanes, their
 * tree, the division), so a difference from it is within E = (n / 16 + 7) M.
 * That shifts the mean square by 2 E mean|d| and hence the scale s by
 * E s^2 mean|d| <= E s, relative; sum, epsilon, root and division add n / 32 +
 * 6. h = d s then is within E s (1 + |h|) + (n / 32 + 7) |h|. */
typedef struct row {
    size_t n;
    const double *x;
    double mean, scale, off, off_scale;
} row;

static row row_of(const op_case *c, const double *x, size_t n)
{
    row r = { .n = n, .x = x };
    double max = 0, square = 0, size = (double)n;
    for (size_t j = 0; j < n; j++) {
        max = fmax(max, fabs(x[j]));
        r.mean += c->kind == BT_NORM_LAYER ? x[j] / size : 0;
    }
    for (size_t j = 0; j < n; j++)
        square += (x[j] - r.mean) * (x[j] - r.mean) / size;
    r.scale = 1 / sqrt(square + (double)OP_EPSILON);
    r.off = (size / 16 + 7) * max * r.scale;
    r.off_scale = r.off + size / 32 + 6;
    return r;
}

static double row_h(const row *r, size_t j, double *off)
{
    double h = (r->x[j] - r->mean) * r->scale;
    *off = r->off + fabs(h) * (r->off_scale + 1);
    return h;
}

static void norm_forward(const op_case *c, const op_data *d, double *const in[],
                         double *y, double *size)
{
    size_t n = d->columns / c->heads;
    for (size_t i = 0; i < d->rows * c->heads; i++) {
        row r = row_of(c, in[0] + i * n, n);
        for (size_t j = 0; j < n; j++) {
            double off, h = row_h(&r, j, &off), gain = in[1][j];
            double bias = c->inputs > 2 ? in[2][j] : 0;
            y[i * n + j] = h * gain + bias;
            size[i * n + j] =
                fabs(gain) * off + 2 * (fabs(h * gain) + fabs(bias));
        }
    }
}

/* dx of a row: s (g - mean g - h mean gh), term by term. */
static void norm_backward_row(const op_case *c, const row *r,
                              const double *gain, const double *dy, double *dx,
                              double *size)
{
    double n = (double)r->n, g_mean = 0, g_size = 0, gh_mean = 0, gh_size = 0;
    double gh_off = 0, lanes = n / 16 + 7;
    for (size_t j = 0; j < r->n; j++) {
        double off, h = row_h(r, j, &off), g = dy[j] * gain[j];
        g_mean += c->kind == BT_NORM_LAYER ? g / n : 0;
        g_size += fabs(g) / n;
        gh_mean += g * h / n;
        gh_size += fabs(g * h) / n;
        gh_off += fabs(g) * off / n;
    }
    gh_off += lanes * gh_size;
    for (size_t j = 0; j < r->n; j++) {
        double off, h = row_h(r, j, &off), g = dy[j] * gain[j];
        dx[j] = r->scale * (g - g_mean - h * gh_mean);
        size[j] =
            r->scale * (4 * fabs(g) + (lanes + 3) * g_size + fabs(h) * gh_off +
                        fabs(gh_mean) * off + 3 * fabs(h) * gh_size) +
            fabs(dx[j]) * r->off_scale;
    }
}

static void norm_backward(const op_case *c, const op_data *d,
                          double *const in[], const double *dy,
                          double *const grad[], double *const size[])
{
    size_t n = d->columns / c->heads, rows = d->rows * c->heads;
    double lanes = (double)rows / 16 + 7;
    for (size_t i = 0; i < rows; i++) {
        row r = row_of(c, in[0] + i * n, n);
        norm_backward_row(c, &r, in[1], dy + i * n, grad[0] + i * n,
                          size[0] + i * n);
        for (size_t j = 0; j < n; j++) {
            double off, h = row_h(&r, j, &off), g = dy[i * n + j];
            grad[1][j] += g * h;
            size[1][j] += fabs(g) * off + lanes * fabs(g * h);
            if (c->inputs > 2) {
                grad[2][j] += g;
                size[2][j] += lanes * fabs(g);
            }
        }
    }
}

/* ---- act, gated -------------------------------------------------------- */

static bt_tensor *act_call(bt_tape *tape, const op_case *c, const op_data *d,
                           bt_tensor *const in[])
{
    (void)d;
    return c->inputs > 1 ? bt_op_gated(tape, in[0], in[1], c->act)
                         : bt_op_act(tape, in[0], c->act);
}

/* An activation's value and slope, and the sizes to which their errors are
 * relative, as activations.h derives them: 20 and 26 times at most. */
typedef struct point {
    double value, slope, value_size, slope_size;
} point;

static point sigmoid_point(double x, double w, double w_slope)
{
    double s = 1 / (1 + exp(-w)), q = 1 / (1 + exp(w));
    double factor = 1 + fabs(w) * q;
    return (point){ x * s, s + x * w_slope * s * q, fabs(x * s) * factor,
                    (s + fabs(x * w_slope * s * q)) * factor };
}

static point point_of(bt_act act, double x)
{
    double k0 = BT_GELU_TANH_K0, k1 = BT_GELU_TANH_K1;
    switch (act) {
    case BT_ACT_RELU:
        return (point){ x < 0 ? 0 : x, x > 0, fabs(x), x > 0 };
    case BT_ACT_GELU_ERF: {
        double phi = 0.5 * erfc(-x * M_SQRT1_2);
        double bell = 0.3989422804014326779 * exp(-0.5 * x * x);
        return (point){ x * phi, phi + x * bell, fabs(x * phi),
                        phi + fabs(x * bell) };
    }
    case BT_ACT_GELU_TANH:
        return sigmoid_point(x, x * (k0 + k1 * x * x), k0 + 3 * k1 * x * x);
    case BT_ACT_SILU:
        break;
    }
    return sigmoid_point(x, x, 1);
}

static void act_forward(const op_case *c, const op_data *d, double *const in[],
                        double *y, double *size)
{
    for (size_t i = 0; i < d->rows * d->columns; i++) {
        point p = point_of(c->act, in[0][i]);
        double up = c->inputs > 1 ? in[c->same ? 0 : 1][i] : 1;
        y[i] = p.value * up;
        size[i] = 21 * p.value_size * fabs(up);
    }
}

static void act_backward(const op_case *c, const op_data *d, double *const in[],
                         const double *dy, double *const grad[],
                         double *const size[])
{
    size_t other = c->same ? 0 : 1;
    for (size_t i = 0; i < d->rows * d->columns; i++) {
        point p = point_of(c->act, in[0][i]);
        double up = c->inputs > 1 ? in[other][i] : 1;
        grad[0][i] += p.slope * up * dy[i];
        size[0][i] += 29 * p.slope_size * fabs(up * dy[i]);
        if (c->inputs > 1) {
            grad[other][i] += p.value * dy[i];
            size[other][i] += 22 * p.value_size * fabs(dy[i]);
        }
    }
}

/* ---- rotary ------------------------------------------------------------ */

static bt_tensor *rotary_call(bt_tape *tape, const op_case *c, const op_data *d,
                              bt_tensor *const in[])
{
    return bt_op_rotary(tape, in[0], c->heads, d->positions, d->frequencies);
}

/* Cosine or sine is rounded, a product is, and the fused sum: 3 u of the sum
 * of both products at most. */
static void rotary_turn(const op_case *c, const op_data *d, const double *x,
                        double *y, double *size, double direction)
{
    size_t dim = d->columns / c->heads, half = dim / 2;
    for (size_t i = 0; i < d->rows * c->heads; i++)
        for (size_t j = 0; j < half; j++) {
            size_t a = i * dim + j, b = a + half;
            double angle = (double)d->positions[i / c->heads] *
                           (double)d->frequencies[j] * direction;
            y[a] = x[a] * cos(angle) - x[b] * sin(angle);
            y[b] = x[b] * cos(angle) + x[a] * sin(angle);
            size[a] = 3 * (fabs(x[a] * cos(angle)) + fabs(x[b] * sin(angle)));
            size[b] = 3 * (fabs(x[b] * cos(angle)) + fabs(x[a] * sin(angle)));
        }
}

static void rotary_forward(const op_case *c, const op_data *d,
                           double *const in[], double *y, double *size)
{
    rotary_turn(c, d, in[0], y, size, 1);
}

static void rotary_backward(const op_case *c, const op_data *d,
                            double *const in[], const double *dy,
                            double *const grad[], double *const size[])
{
    (void)in;
    rotary_turn(c, d, dy, grad[0], size[0], -1);
}

/* ---- embed ------------------------------------------------------------- */

static bt_tensor *embed_call(bt_tape *tape, const op_case *c, const op_data *d,
                             bt_tensor *const in[])
{
    (void)c;
    return bt_op_embedding(tape, in[0], d->ids, d->rows, OP_SCALE,
                           BT_IGNORE_INDEX);
}

static void embed_forward(const op_case *c, const op_data *d,
                          double *const in[], double *y, double *size)
{
    (void)c;
    for (size_t i = 0; i < d->rows; i++)
        for (size_t j = 0; j < d->columns; j++) {
            double v = in[0][d->ids[i] * d->columns + j] * (double)OP_SCALE;
            y[i * d->columns + j] = v;
            size[i * d->columns + j] = fabs(v);
        }
}

/* A chain of at most `rows` fused steps. */
static void embed_backward(const op_case *c, const op_data *d,
                           double *const in[], const double *dy,
                           double *const grad[], double *const size[])
{
    (void)c;
    (void)in;
    for (size_t i = 0; i < d->rows; i++)
        for (size_t j = 0; j < d->columns; j++) {
            size_t to = d->ids[i] * d->columns + j;
            double v = dy[i * d->columns + j] * (double)OP_SCALE;
            grad[0][to] += v;
            size[0][to] += (double)d->rows * fabs(v);
        }
}

/* ---- add --------------------------------------------------------------- */

static bt_tensor *add_call(bt_tape *tape, const op_case *c, const op_data *d,
                           bt_tensor *const in[])
{
    (void)c;
    (void)d;
    return bt_op_add(tape, in[0], in[1]);
}

static void add_forward(const op_case *c, const op_data *d, double *const in[],
                        double *y, double *size)
{
    for (size_t i = 0; i < d->rows * d->columns; i++) {
        y[i] = in[0][i] + in[c->same ? 0 : 1][i];
        size[i] = fabs(y[i]);
    }
}

static void add_backward(const op_case *c, const op_data *d, double *const in[],
                         const double *dy, double *const grad[],
                         double *const size[])
{
    (void)in;
    for (size_t i = 0; i < d->rows * d->columns; i++) {
        grad[0][i] += dy[i];
        grad[c->same ? 0 : 1][i] += dy[i];
        size[0][i] += fabs(dy[i]);
    }
}

/* ---- dropout ----------------------------------------------------------- */

static bt_tensor *dropout_call(bt_tape *tape, const op_case *c,
                               const op_data *d, bt_tensor *const in[])
{
    (void)c;
    return bt_op_dropout(tape, in[0], OP_RATE, OP_SEED, OP_SITE, d->tokens);
}

bool op_keeps(uint64_t token, size_t column)
{
    const uint32_t key[] = { (uint32_t)OP_SEED, (uint32_t)(OP_SEED >> 32) };
    uint32_t counter[] = { (uint32_t)(column / 64 * 16 + column % 16), OP_SITE,
                           (uint32_t)token, (uint32_t)(token >> 32) };
    uint32_t words[4];
    bt_philox(words, counter, key);
    return words[column % 64 / 16] >= (uint32_t)((double)OP_RATE * 0x1p32);
}

/* The scale is rounded once, the product again. */
static void dropout_turn(const op_data *d, const double *x, double *y,
                         double *size)
{
    for (size_t i = 0; i < d->rows; i++)
        for (size_t j = 0; j < d->columns; j++) {
            size_t at = i * d->columns + j;
            y[at] = 0;
            if (op_keeps(d->tokens[i], j))
                y[at] = x[at] / (1 - (double)OP_RATE);
            size[at] = 2 * fabs(y[at]);
        }
}

static void dropout_forward(const op_case *c, const op_data *d,
                            double *const in[], double *y, double *size)
{
    (void)c;
    dropout_turn(d, in[0], y, size);
}

static void dropout_backward(const op_case *c, const op_data *d,
                             double *const in[], const double *dy,
                             double *const grad[], double *const size[])
{
    (void)c;
    (void)in;
    dropout_turn(d, dy, grad[0], size[0]);
}

/* ---- the table --------------------------------------------------------- */

#define NORM                                                               \
    .call = norm_call, .forward = norm_forward, .backward = norm_backward, \
    .wide = { true }
#define ACT                                                             \
    .call = act_call, .forward = act_forward, .backward = act_backward, \
    .wide = { true, true }, .heads = 1
#define ADD                                                             \
    .call = add_call, .forward = add_forward, .backward = add_backward, \
    .wide = { true, true }, .heads = 1

const op_case op_cases[] = {
    { "layer norm", NORM, .inputs = 3, .heads = 1 },
    { "layer norm without bias", NORM, .inputs = 2, .heads = 1 },
    { "layer norm of heads", NORM, .inputs = 3, .heads = 3 },
    { "rms norm", NORM, .inputs = 2, .kind = BT_NORM_RMS, .heads = 1 },
    { "rms norm of heads", NORM, .inputs = 2, .kind = BT_NORM_RMS, .heads = 2 },
    { "relu", ACT, .inputs = 1, .act = BT_ACT_RELU },
    { "gelu_erf", ACT, .inputs = 1, .act = BT_ACT_GELU_ERF },
    { "gelu_tanh", ACT, .inputs = 1, .act = BT_ACT_GELU_TANH },
    { "silu", ACT, .inputs = 1, .act = BT_ACT_SILU },
    { "gated relu", ACT, .inputs = 2, .act = BT_ACT_RELU },
    { "gated gelu_erf", ACT, .inputs = 2, .act = BT_ACT_GELU_ERF },
    { "gated gelu_tanh", ACT, .inputs = 2, .act = BT_ACT_GELU_TANH },
    { "gated silu", ACT, .inputs = 2, .act = BT_ACT_SILU },
    { "silu gated by itself", ACT, .inputs = 2, .act = BT_ACT_SILU,
      .same = true, .chained = true },
    { "rotary", rotary_call, rotary_forward, rotary_backward, .inputs = 1,
      .wide = { true }, .heads = 2 },
    { "embed", embed_call, embed_forward, embed_backward, .inputs = 1,
      .wide = { true }, .table = true, .chained = true, .heads = 1 },
    { "add", ADD, .inputs = 2 },
    { "add to itself", ADD, .inputs = 2, .same = true, .chained = true },
    { "dropout", dropout_call, dropout_forward, dropout_backward, .inputs = 1,
      .wide = { true }, .heads = 1 },
};
const size_t op_case_count = BT_LEN(op_cases);
