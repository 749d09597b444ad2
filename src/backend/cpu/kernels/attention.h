/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - one step of masked attention: some queries, one key block.
 *
 * A step takes `rows` queries of one head (or of several heads that share a key
 * head) and a block of 64 keys, and updates the running state of the rows, as
 * in FlashAttention. The caller iterates over the plan. A kernel gets full rows
 * (words is NULL) or a word per row, in which bit j means that the row sees key
 * j. A hidden key enters no sum: it is skipped, not multiplied by zero.
 *
 * Keys that do not exist (the last block of a sequence may be short) are hidden
 * by the words like all others.
 *
 * Padding: head_pad and value_pad are the dimensions rounded up to 16. Padded
 * columns hold zeros, and their results are not used.
 *
 * Values are stored in panels of 64 columns, the last one narrower, so that a
 * kernel that takes 64 columns at a time reads them sequentially:
 *
 *     panel 0 (64 keys, 64 columns), panel 1 (64 keys, 64 columns), ...
 *
 * Units: queries are scaled by scale * log2(e) in advance, so scores are base-2
 * logarithms and the exponential is bt_exp2(). With a softcap they are scaled
 * by scale / softcap instead, and `terms` make the score of the product. */
#ifndef BT_ATTENTION_H
#define BT_ATTENTION_H

#include "backend/cpu/kernels/lanes.h"

#include <stddef.h>
#include <stdint.h>

enum { BT_VALUE_PANEL = 64 }; /* columns; also the keys of a block */

/* Offset in floats of the panel that holds a column, and the panel's width. */
static inline size_t bt_value_panel_start(size_t column)
{
    return column / BT_VALUE_PANEL * BT_VALUE_PANEL * BT_VALUE_PANEL;
}

static inline size_t bt_value_panel_width(size_t value_pad, size_t column)
{
    size_t rest = value_pad - column / BT_VALUE_PANEL * BT_VALUE_PANEL;
    return rest < BT_VALUE_PANEL ? rest : BT_VALUE_PANEL;
}

/* A block of keys is transposed, so that lanes are keys, in groups of as many
 * as a cache line holds. So the keys of a short sequence are contiguous:
 *
 *     group 0 (columns, keys 0 to 15), group 1 (columns, keys 16 to 31), ... */
enum { BT_KEY_GROUP = 16 };

/* Offset in floats of an element of a transposed block. */
static inline size_t bt_key_at(size_t columns, size_t key, size_t column)
{
    return (key / BT_KEY_GROUP * columns + column) * BT_KEY_GROUP +
           key % BT_KEY_GROUP;
}

/* Floats of a transposed block before its first unused group. */
static inline size_t bt_keys_end(size_t columns, size_t keys)
{
    return (keys + BT_KEY_GROUP - 1) / BT_KEY_GROUP * BT_KEY_GROUP * columns;
}

/* to = from (keys, columns), rows `stride` apart, transposed. Keys that do not
 * exist become zero. keys <= 64. */
typedef void bt_transpose_fn(float *to, const float *from, size_t stride,
                             size_t keys, size_t columns);
bt_transpose_fn bt_transpose_f32_c;

/* ---- Prefetch ----------------------------------------------------------- */

/* Software prefetch of the next task's rows while a kernel computes. Heads are
 * interleaved in memory, so the rows of one head are far apart and the hardware
 * prefetcher misses them. A kernel with such a list prefetches a few rows
 * between its strips: few enough not to fill the miss buffers, and enough that
 * the next task finds its rows in the cache. No result depends on it. */
enum {
    BT_PREFETCH_RANGES = 10,
    BT_PREFETCH_LINE = 16 /* floats in a cache line */
};

typedef struct bt_prefetch {
    struct {
        const float *rows;
        size_t stride, count, columns;
    } part[BT_PREFETCH_RANGES];
    size_t parts, total; /* ranges, and rows in all of them */
    size_t part_at, row_at;
    size_t pace; /* rows per bt_prefetch_some() */
} bt_prefetch;

/* An empty list. The ranges stay uninitialised. */
static inline void bt_prefetch_init(bt_prefetch *list)
{
    list->parts = list->total = 0;
    list->part_at = list->row_at = list->pace = 0;
}

/* Add a range of rows; ignored when the list is full. */
static inline void bt_prefetch_add(bt_prefetch *list, const float *rows,
                                   size_t stride, size_t count, size_t columns)
{
    if (list->parts == BT_PREFETCH_RANGES)
        return;
    list->part[list->parts].rows = rows;
    list->part[list->parts].stride = stride;
    list->part[list->parts].count = count;
    list->part[list->parts].columns = columns;
    list->parts++;
    list->total += count;
}

/* Prefetch the next `pace` rows. */
static inline void bt_prefetch_some(bt_prefetch *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->pace && list->part_at < list->parts; i++) {
        size_t part = list->part_at;
        const float *row =
            list->part[part].rows + list->row_at * list->part[part].stride;
        for (size_t c = 0; c < list->part[part].columns; c += BT_PREFETCH_LINE)
            __builtin_prefetch(row + c, 0, 2);
        if (++list->row_at == list->part[part].count) {
            list->part_at++;
            list->row_at = 0;
        }
    }
}

/* ---- Attention ---------------------------------------------------------- */

/* What is done to a score x after its product: first the softcap, then the
 * bias, each of which may be missing. Only biases of visible keys are read.
 *
 *   x = cap * tanh(x)                cap is softcap * log2(e)
 *   x = fma(bias[row][j], log2(e), x) */
typedef struct bt_score_terms {
    float cap;                /* 0: none */
    const float *const *bias; /* (rows) of 64 biases each; NULL: none */
} bt_score_terms;

/* The forward step. For each row of each head, in this order:
 *
 *   s[j] = chain over d of fma(q[d], k[j][d], .) from 0, for visible j
 *   s[j] by the terms, if there are any
 *   n    = max(m, s[j] ...)          NaN is ignored
 *   base = n, or 0 where n is -infinity
 *   a    = exp2(m - base)            rescales the earlier blocks; often 1
 *   p[j] = exp2(s[j] - base)
 *   l[t] = l[t] * a, then + p[t], + p[t + 16], + p[t + 32], + p[t + 48]
 *   o[e] = o[e] * a, then chain over visible j of fma(p[j], v[j][e], .)
 *   m    = n */
typedef struct bt_attention_step {
    size_t rows, head_dim, head_pad, value_pad;
    /* Key heads, each with `rows` rows of its own and the same words: those of
     * head h follow those of head h - 1 in q, m, l, o and p, and its keys and
     * values are `head_stride` floats further on. Several heads have neither
     * `next` nor terms. */
    size_t heads, head_stride;
    const float *q;              /* (rows, head_pad) scaled */
    const float *kt;             /* 64 keys, transposed */
    const float *v;              /* 64 values in panels of columns, as above */
    const float *next;           /* keys of the next block, or NULL */
    const uint64_t *words;       /* (rows) or NULL: every row sees all 64 */
    float *m;                    /* (rows) starts at -infinity */
    float *l;                    /* (rows, 16) starts at 0 */
    float *o;                    /* (rows, value_pad) starts at 0 */
    float *p;                    /* (rows, 64) scratch */
    bt_prefetch *prefetch;       /* rows to prefetch meanwhile, or NULL */
    const bt_score_terms *terms; /* or NULL */
} bt_attention_step;
typedef void bt_attention_forward_fn(const bt_attention_step *step);

/* The step of one head alone. */
static inline bt_attention_step
bt_attention_step_of_head(const bt_attention_step *s, size_t head)
{
    bt_attention_step one = *s;
    size_t row = head * s->rows;
    one.heads = 1;
    one.q += row * s->head_pad;
    one.kt += head * s->head_stride;
    one.v += head * s->head_stride;
    one.m += row;
    one.l += row * BT_LANES;
    one.o += row * s->value_pad;
    one.p += row * BT_VALUE_PANEL;
    return one;
}

bt_attention_forward_fn bt_attention_forward_f32_c;

/* The backward step: adds the contribution of a block and some rows to the
 * gradients of both. For each row, then each visible j:
 *
 *   s[j]  as in the forward step        p[j]  = exp2(s[j] - lse)
 *   dp[j] = chain over e of fma(dout[e], v[j][e], .) from 0
 *   ds[j] = p[j] * (dp[j] - delta)
 *   dq[d]    = chain over visible j    of fma(ds[j], k[j][d], .)
 *   dk[j][d] = chain over seeing rows  of fma(ds[j], q[d], .)
 *   dv[j][e] = chain over seeing rows  of fma(p[j], dout[e], .)
 *
 * each starting from the value in memory. The caller finally multiplies dq by
 * the scale and dk by ln 2, since q is scaled and k is not.
 *
 * With a softcap, t = tanh(x): before the three chains the gradient of the
 * biased score moves to `raw`, and ds becomes that of the product:
 *
 *   raw[j] = ds[j]        ds[j] = raw[j] * fma(-t, t, 1) */
typedef struct bt_attention_grad {
    size_t rows, head_dim, head_pad, value_dim, value_pad;
    const float *q;        /* (rows, head_pad) scaled */
    const float *dout;     /* (rows, value_pad) */
    const float *lse;      /* (rows) base 2; +infinity where a row is empty */
    const float *delta;    /* (rows) sum of dout * out */
    const float *kt;       /* 64 keys, transposed */
    const float *k;        /* (64, head_pad) */
    const float *vt;       /* 64 values, transposed as keys are */
    const uint64_t *words; /* (rows) or NULL */
    float *dq;             /* (rows, head_pad) */
    float *dk;             /* (64, head_pad) */
    float *dv;             /* (64, value_pad) */
    float *p, *ds;         /* (rows, 64) scratch each */
    bt_prefetch *prefetch; /* rows to prefetch meanwhile, or NULL */
    const bt_score_terms *terms; /* or NULL */
    float *raw;                  /* (rows, 64) scratch if there is a softcap */
} bt_attention_grad;
typedef void bt_attention_backward_fn(const bt_attention_grad *grad);
bt_attention_backward_fn bt_attention_backward_f32_c;

#endif
