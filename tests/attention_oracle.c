/* SPDX-License-Identifier: Apache-2.0 */
/* attention_oracle.c - the formula and its rounding analysis; see
 * attention_oracle.h. */
#include "attention_oracle.h"

#include <math.h>
#include <stdlib.h>

static const double u = 0x1p-24, log2e = 1.4426950408889634,
                    ln2 = 0.6931471805599453;

static double slack(double bound)
{
    return 1.01 * bound + 0x1p-120;
}

static void *zeros(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

/* sum of x y, and of |x y|. */
static double dot(const float *x, const float *y, size_t n, double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)y[i];
        *size += fabs((double)x[i] * (double)y[i]);
    }
    return sum;
}

/* Intermediate results of one row: its weights and the error bound of each. */
typedef struct row {
    double *s, *ds;         /* (keys) natural scores; base-2 error */
    double *slope, *dslope; /* (keys) of the softcap, and its error */
    double lse, dlse, max;
} row;

/* The softcap and the bias of one score; `error` is that of the product, base
 * 2. */
static void terms(const oracle *o, row *r, size_t i, size_t j, size_t head)
{
    double t = 0;
    r->slope[j] = 1;
    r->dslope[j] = 0;
    if (o->softcap != 0) {
        double dx = r->ds[j] / log2e / o->softcap;
        t = tanh(r->s[j] / o->softcap);
        r->slope[j] = 1 - t * t;
        r->dslope[j] = 12 * u * t * t + u + 2 * fabs(t) * r->slope[j] * dx;
        r->s[j] = o->softcap * t;
        r->ds[j] += 8 * u * log2e * fabs(r->s[j]);
    }
    if (o->bias) {
        size_t keys = bauta_mask_keys(o->mask);
        double b = o->bias[(i * o->heads + head) * keys + j];
        r->s[j] += b;
        if (b != -INFINITY)
            r->ds[j] += u * log2e * (2 * fabs(b) + fabs(r->s[j]));
    }
}

static const float *key_of(const oracle *o, size_t j, size_t head)
{
    size_t kv = head / (o->heads / o->kv_heads);
    return o->k + (j * o->kv_heads + kv) * o->head_dim;
}

static const float *value_of(const oracle *o, size_t j, size_t head)
{
    size_t kv = head / (o->heads / o->kv_heads);
    return o->v + (j * o->kv_heads + kv) * o->value_dim;
}

static double forward_row(oracle *o, row *r, size_t i, size_t head)
{
    size_t keys = bauta_mask_keys(o->mask), n = 0;
    const float *q = o->q + (i * o->heads + head) * o->head_dim;
    double max = -INFINITY, worst = 0, sum = 0, range = 0;
    for (size_t j = 0; j < keys; j++) {
        double size;
        if (!bauta_mask_visible(o->mask, i, j))
            continue;
        n++;
        r->s[j] = o->scale * dot(q, key_of(o, j, head), o->head_dim, &size);
        r->ds[j] =
            (double)(o->head_dim + 2) * u * fabs(o->scale) * log2e * size;
        terms(o, r, i, j, head);
        max = fmax(max, r->s[j]);
        worst = fmax(worst, r->ds[j]);
    }
    for (size_t j = 0; j < keys; j++)
        if (bauta_mask_visible(o->mask, i, j)) {
            sum += max == -INFINITY ? 0 : exp(r->s[j] - max);
            if (max != -INFINITY)
                range = fmax(range, fmin((max - r->s[j]) * log2e, 126));
        }
    double blocks = (double)(keys / 64 + 2);
    double e = ln2 * (2 * worst + 2 * u * range) + 3.1 * u + blocks * 4.1 * u;
    double lanes = ((double)n / 16 + 8) * u;
    r->max = max;
    if (max == -INFINITY)
        n = 0; // nothing, or scores of -infinity only
    r->lse = n ? max + log(sum) : -INFINITY;
    r->dlse = n ? e + lanes + 2 * u * fabs(r->lse) : 0;
    o->lse[i * o->heads + head] =
        (oracle_value){ r->lse, n ? slack(r->dlse) : 0 };
    return 2 * e + (double)n * u + lanes + 2 * u;
}

static void forward_outputs(oracle *o, const row *r, double relative, size_t i,
                            size_t head)
{
    size_t keys = bauta_mask_keys(o->mask);
    oracle_value *out = o->out + (i * o->heads + head) * o->value_dim;
    for (size_t e = 0; e < o->value_dim; e++) {
        double size = 0;
        for (size_t j = 0; j < keys; j++) {
            if (!bauta_mask_visible(o->mask, i, j))
                continue;
            double v = (double)value_of(o, j, head)[e];
            double w = r->lse == -INFINITY ? 0 : exp(r->s[j] - r->lse);
            out[e].value += w * v;
            size += (w + 0x1p-124) * fabs(v);
        }
        out[e].bound = r->lse == -INFINITY ? 0 : slack(size * relative);
    }
}

/* delta = dout . out, and its error. */
static oracle_value row_delta(const oracle *o, size_t i, size_t head)
{
    const float *dout = o->dout + (i * o->heads + head) * o->value_dim;
    const oracle_value *out = o->out + (i * o->heads + head) * o->value_dim;
    oracle_value delta = { 0, 0 };
    for (size_t e = 0; e < o->value_dim; e++) {
        double d = (double)dout[e];
        delta.value += d * out[e].value;
        delta.bound +=
            fabs(d) * out[e].bound +
            fabs(d * out[e].value) * u * ((double)o->value_dim / 16 + 6);
    }
    return delta;
}

static void add(oracle_value *to, double value, double bound)
{
    to->value += value;
    to->bound += bound;
}

static void backward_pair(oracle *o, const row *r, oracle_value delta, size_t i,
                          size_t j, size_t head)
{
    size_t queries = bauta_mask_queries(o->mask);
    size_t keys = bauta_mask_keys(o->mask), group = o->heads / o->kv_heads;
    const float *q = o->q + (i * o->heads + head) * o->head_dim;
    const float *dout = o->dout + (i * o->heads + head) * o->value_dim;
    const float *k = key_of(o, j, head), *v = value_of(o, j, head);
    oracle_value *dq = o->dq + (i * o->heads + head) * o->head_dim;
    oracle_value *dk = o->dk + (k - o->k), *dv = o->dv + (v - o->v);
    double size, dp = dot(dout, v, o->value_dim, &size);
    double p = exp(r->s[j] - r->lse);
    double x = fmin(fabs(r->s[j] - r->lse) * log2e, 126);
    double f = ln2 * (r->ds[j] + u * x) + r->dlse + u * fabs(r->lse) + 3.1 * u;
    double ds = p * (dp - delta.value);
    double dds =
        (p + 0x1p-124) * ((fabs(dp) + fabs(delta.value)) * (f + 2 * u) +
                          (double)o->value_dim * u * size + delta.bound);
    double rows = (double)(queries * group) * u;
    add(&o->dbias[(i * o->heads + head) * keys + j], ds, dds);
    dds = dds * r->slope[j] + fabs(ds) * (r->dslope[j] + u);
    ds *= r->slope[j];
    for (size_t e = 0; e < o->value_dim; e++)
        add(&dv[e], p * (double)dout[e],
            (p + 0x1p-124) * fabs((double)dout[e]) * (f + rows));
    for (size_t d = 0; d < o->head_dim; d++) {
        double kd = o->scale * (double)k[d], qd = o->scale * (double)q[d];
        add(&dq[d], ds * kd,
            fabs(kd) * (dds + fabs(ds) * ((double)keys + 1) * u));
        add(&dk[d], ds * qd, fabs(qd) * (dds + fabs(ds) * (rows + 4 * u)));
    }
}

static void run_row(oracle *o, row *r, size_t i, size_t head)
{
    size_t keys = bauta_mask_keys(o->mask);
    double relative = forward_row(o, r, i, head);
    forward_outputs(o, r, relative, i, head);
    if (!o->dout)
        return;
    if (r->lse == -INFINITY)
        return; // the gradients are 0
    oracle_value delta = row_delta(o, i, head);
    for (size_t j = 0; j < keys; j++)
        if (bauta_mask_visible(o->mask, i, j))
            backward_pair(o, r, delta, i, j, head);
}

void oracle_run(oracle *o)
{
    size_t queries = bauta_mask_queries(o->mask);
    size_t keys = bauta_mask_keys(o->mask);
    size_t nk = keys * o->kv_heads * o->head_dim;
    size_t nv = keys * o->kv_heads * o->value_dim;
    size_t nq = queries * o->heads * o->head_dim;
    row r = { .s = zeros(keys, sizeof(double)),
              .ds = zeros(keys, sizeof(double)),
              .slope = zeros(keys, sizeof(double)),
              .dslope = zeros(keys, sizeof(double)) };
    o->out = zeros(queries * o->heads * o->value_dim, sizeof(*o->out));
    o->lse = zeros(queries * o->heads, sizeof(*o->lse));
    o->dq = zeros(nq, sizeof(*o->dq));
    o->dk = zeros(nk, sizeof(*o->dk));
    o->dv = zeros(nv, sizeof(*o->dv));
    o->dbias =
        zeros(o->dout ? queries * o->heads * keys : 0, sizeof(*o->dbias));
    for (size_t i = 0; i < queries; i++)
        for (size_t head = 0; head < o->heads; head++)
            run_row(o, &r, i, head);
    for (size_t i = 0; i < nq; i++)
        o->dq[i].bound = slack(o->dq[i].bound);
    for (size_t i = 0; i < nk; i++)
        o->dk[i].bound = slack(o->dk[i].bound);
    for (size_t i = 0; i < nv; i++)
        o->dv[i].bound = slack(o->dv[i].bound);
    free(r.s);
    free(r.ds);
    free(r.slope);
    free(r.dslope);
}

void oracle_release(oracle *o)
{
    free(o->out);
    free(o->lse);
    free(o->dq);
    free(o->dk);
    free(o->dv);
    free(o->dbias);
}

double oracle_error(const oracle_value *want, const float *got, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double g = (double)got[i], error = fabs(g - want[i].value);
        if (g == want[i].value)
            continue; // also equal infinities
        if (!isfinite(g) || !isfinite(want[i].value))
            return INFINITY;
        worst = fmax(worst, error / want[i].bound);
    }
    return worst;
}
