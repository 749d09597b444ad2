/* SPDX-License-Identifier: Apache-2.0 */
/* attention_oracle.h - masked attention in float64 from a dense mask, by the
 * formula, and how far float32 may be from it.
 *
 * It uses nothing of the library but bauta_mask_visible(). The bounds are
 * first-order rounding analysis with u = 2^-24; g(n) = n u bounds a chain of n
 * operations. Below, |q||k| is the sum over d of |q_d k_d|.
 *
 *   score (base 2)  q is scaled (2 roundings), then a chain over d:
 *       ds_j = g(d + 2) * scale * log2(e) * |q||k_j|
 *   probability, relative: the exponent x = s_j - m is rounded once, exp2 is
 *   within 3.1 u, and each block may rescale by a factor of its own (exp2, a
 *   subtraction, a product):
 *       e_j = ln2 (2 max ds + 2 u |x|) + 3.1 u + blocks (4.1 u) and, below
 *       2^-125, a flush to zero
 *   output, a quotient of sums over n keys:
 *       |do_e| <= sum_j w_j |v_je| (2 max e + g(n) + g(n / 16 + 8) + 2 u)
 *   lse:
 *       |dlse| <= max e + g(n / 16 + 8) + 2 u |lse|
 *   P in the backward pass:
 *       f_j = ln2 (ds_j + u |x|) + dlse + u |lse| + 3.1 u
 *   dP, delta and dS = P (dP - delta):
 *       ddP    = g(dv) |dout||v_j|
 *       ddelta = sum_e |dout_e| |do_e| + g(dv / 16 + 6) |dout||out|
 *       ddS    = P ((|dP| + |delta|)(f + 2 u) + ddP + ddelta)
 *   gradients:
 *       |ddV_j| <= sum_i P |dout_i| (f + g(rows))
 *       |ddQ_i| <= scale sum_j |k_j| (ddS + |dS| (g(keys) + u))
 *       |ddK_j| <= scale sum_i |q_i| (ddS + |dS| (g(rows) + 4 u))
 *
 * With a softcap c, q is scaled by scale / c, and t = tanh(x) is within 6 u, so
 * the score c t log2(e), whose factor and product round, has in addition
 *       8 u log2(e) |c t|
 * and a bias b, itself rounded once where it is a slope, adds
 *       u log2(e) (2 |b| + |c t + b|).
 * In the backward pass the gradient of the product is dS (1 - t^2):
 *       d(1 - t^2) = 12 u t^2 + u + 2 |t| (1 - t^2) dx
 *
 * The sums leave out products of two errors; every bound is therefore enlarged
 * by a hundredth and by 2^-120, where float32 runs out of exponents. */
#ifndef BT_TEST_ATTENTION_ORACLE_H
#define BT_TEST_ATTENTION_ORACLE_H

#include "bauta.h"

/* A number and how far from it float32 may be. */
typedef struct oracle_value {
    double value, bound;
} oracle_value;

/* One problem in dense layout: q (queries, heads, head_dim), and so on. */
typedef struct oracle {
    const bauta_mask *mask;
    size_t heads, kv_heads, head_dim, value_dim;
    double scale;
    const float *q, *k, *v, *dout;
    double softcap;     /* 0: none */
    const double *bias; /* (queries, heads, keys) or NULL; only those of visible
                           pairs are read */
    /* Filled by oracle_run; lse -infinity for a query that sees nothing. */
    oracle_value *out, *lse, *dq, *dk, *dv;
    oracle_value *dbias; /* (queries, heads, keys), with dout */
} oracle;

/* Compute the outputs and, when dout is given, the gradients. Memory comes from
 * malloc and is released by oracle_release; a failed malloc aborts the test. */
void oracle_run(oracle *o);
void oracle_release(oracle *o);

/* The largest |got - value| / bound; infinity where one is wrong about being
 * infinite or NaN. Above 1 the bound is broken. */
double oracle_error(const oracle_value *want, const float *got, size_t count);

#endif
