/* SPDX-License-Identifier: Apache-2.0 */
/* check_attention.c - the attention steps, their exponential and the transpose
 * of a key block. */
#include "check.h"

#include "base/error.h"

#include "backend/cpu/kernels/tanh.h"

enum { BLOCK = 64 };

static size_t pad16(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* ---- transpose --------------------------------------------------------- */

static void transpose_case(check *c, size_t keys, size_t columns, size_t gap)
{
    size_t stride = columns + gap;
    guarded from = check_floats(c, keys ? (keys - 1) * stride + columns : 0, 1);
    guarded want = check_floats(c, columns * BLOCK, 1);
    guarded got = check_copy(&want);
    floats_insert_special(&c->random, from.data, from.count, 3);
    c->reference->transpose(want.data, from.data, stride, keys, columns);
    c->twin->transpose(got.data, from.data, stride, keys, columns);
    check_same(c, "transpose", &want, &got);
    guarded_free(&from);
    guarded_free(&want);
    guarded_free(&got);
}

static void transpose_compare(check *c)
{
    static const size_t keys[] = { 0, 1, 7, 8, 9, 31, 63, 64 };
    static const size_t columns[] = { 1, 7, 8, 9, 16, 33, 64, 80, 255, 256 };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        for (size_t j = 0; j < sizeof(columns) / sizeof(columns[0]); j++)
            transpose_case(c, keys[i], columns[j], test_below(&c->random, 9));
}

/* ---- the forward step -------------------------------------------------- */

/* Words of some shape; the names say which. */
static void words_fill(check *c, uint64_t *words, size_t rows)
{
    size_t shape = test_below(&c->random, 6), at = test_below(&c->random, 64);
    for (size_t r = 0; r < rows; r++) {
        uint64_t any =
            (uint64_t)test_u32(&c->random) << 32 | test_u32(&c->random);
        size_t edge = (at + r) % 65;
        uint64_t below = edge == 64 ? ~(uint64_t)0 : ((uint64_t)1 << edge) - 1;
        switch (shape) {
        case 0: // anything
            words[r] = any;
            break;
        case 1: // a causal edge
            words[r] = below;
            break;
        case 2: // the left edge of a window
            words[r] = ~below;
            break;
        case 3: // a few keys
            words[r] = any & any << 7 & any >> 11 & any << 23;
            break;
        case 4: // rows that see nothing among rows that see all
            words[r] = any & 1 ? ~(uint64_t)0 : 0;
            break;
        default: // every row sees all, in words
            words[r] = ~(uint64_t)0;
        }
    }
}

/* Score terms of up to 200 rows: each row's biases end at an unreadable page if
 * all keys are visible, and are NaN where they are hidden. */
typedef struct term_buffers {
    guarded bias[200];
    const float *rows[200];
    size_t count;
    bt_score_terms terms;
} term_buffers;

/* Kind 0 has none, 1 a softcap, 2 biases, 3 both. */
static void terms_make(check *c, term_buffers *t, size_t rows, size_t kind,
                       const uint64_t *words)
{
    *t = (term_buffers){ .count = kind & 2 ? rows : 0 };
    t->terms.cap = kind & 1 ? 3.0f : 0.0f;
    for (size_t r = 0; r < t->count; r++) {
        t->bias[r] = check_floats(c, BLOCK, 4);
        if (test_below(&c->random, 4) == 0)
            floats_insert_special(&c->random, t->bias[r].data, BLOCK, 1);
        for (size_t j = 0; j < BLOCK && words; j++)
            if (!(words[r] >> j & 1))
                t->bias[r].data[j] = NAN;
        t->rows[r] = t->bias[r].data;
    }
    t->terms.bias = t->count ? t->rows : NULL;
}

static void terms_free(term_buffers *t)
{
    for (size_t r = 0; r < t->count; r++)
        guarded_free(&t->bias[r]);
}

typedef struct forward_buffers {
    guarded q, kt, v, m, l, o, p;
    uint64_t words[200];
    bt_attention_step step;
} forward_buffers;

/* `rows` rows of each head; `each` floats of one head's keys and values. */
static forward_buffers forward_make(check *c, size_t heads, size_t rows,
                                    size_t d, size_t e)
{
    forward_buffers b;
    size_t dp = pad16(d), ep = pad16(e), each = BLOCK * (d > ep ? d : ep);
    size_t group = rows;
    rows *= heads;
    b.q = check_floats(c, rows * dp, 4);
    b.kt = check_floats(c, (heads - 1) * each + d * BLOCK, 1);
    b.v = check_floats(c, (heads - 1) * each + BLOCK * ep, 1);
    b.m = check_floats(c, rows, 4);
    b.l = check_floats(c, rows * BT_LANES, 1);
    b.o = check_floats(c, rows * ep, 1);
    b.p = check_floats(c, rows * BLOCK, 1);
    for (size_t i = 0; i < b.l.count; i++)
        b.l.data[i] = fabsf(b.l.data[i]);
    for (size_t r = 0; r < rows; r++)
        if (test_below(&c->random, 2)) { // a row at its beginning
            b.m.data[r] = -INFINITY;
            memset(b.l.data + r * BT_LANES, 0, BT_LANES * sizeof(float));
            memset(b.o.data + r * ep, 0, ep * sizeof(float));
        }
    words_fill(c, b.words, rows);
    b.step = (bt_attention_step){ .rows = group,
                                  .heads = heads,
                                  .head_stride = each,
                                  .head_dim = d,
                                  .head_pad = dp,
                                  .value_pad = ep };
    return b;
}

static void forward_run(const forward_buffers *b, bt_attention_forward_fn *run,
                        guarded *m, guarded *l, guarded *o)
{
    bt_attention_step s = b->step;
    s.q = b->q.data;
    s.kt = b->kt.data;
    s.v = b->v.data;
    s.m = m->data;
    s.l = l->data;
    s.o = o->data;
    s.p = b->p.data;
    run(&s);
}

static void forward_free(forward_buffers *b)
{
    guarded *all[] = { &b->q, &b->kt, &b->v, &b->m, &b->l, &b->o, &b->p };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        guarded_free(all[i]);
}

/* All rows see the same keys, as the query heads of a key head do. */
static void words_repeat(forward_buffers *b)
{
    for (size_t r = 1; r < b->step.rows; r++)
        b->words[r] = b->words[0];
}

static void forward_case(check *c, size_t heads, size_t rows, size_t d,
                         size_t e, bool full, size_t odd, size_t kind)
{
    forward_buffers b = forward_make(c, heads, rows, d, e);
    term_buffers terms;
    if (heads > 1 && odd % 2)
        words_repeat(&b);
    b.step.words = full ? NULL : b.words;
    terms_make(c, &terms, rows, kind, b.step.words);
    b.step.terms = kind ? &terms.terms : NULL;
    floats_insert_special(&c->random, b.q.data, b.q.count, odd);
    floats_insert_special(&c->random, b.kt.data, b.kt.count, odd);
    floats_insert_special(&c->random, b.v.data, b.v.count, odd);
    guarded m = check_copy(&b.m), l = check_copy(&b.l), o = check_copy(&b.o);
    forward_run(&b, c->reference->attention_forward, &b.m, &b.l, &b.o);
    forward_run(&b, c->twin->attention_forward, &m, &l, &o);
    check_same(c, "m", &b.m, &m);
    check_same(c, "l", &b.l, &l);
    check_same(c, "o", &b.o, &o);
    guarded_free(&m);
    guarded_free(&l);
    guarded_free(&o);
    forward_free(&b);
    terms_free(&terms);
}

static const size_t rows_of[] = { 1, 2, 5, 6, 7, 12, 13, 96, 97, 192 };
static const size_t dims_of[] = { 1, 3, 16, 17, 48, 64, 65, 100, 128, 256 };

static void forward_compare(check *c)
{
    for (size_t i = 0; i < sizeof(rows_of) / sizeof(rows_of[0]); i++)
        for (size_t j = 0; j < sizeof(dims_of) / sizeof(dims_of[0]); j++) {
            size_t other = dims_of[test_below(&c->random, 10)];
            forward_case(c, 1, rows_of[i], dims_of[j], dims_of[j], true, 0, 0);
            forward_case(c, 1, rows_of[i], dims_of[j], other, false, 0, 0);
            forward_case(c, 1, rows_of[i], other, dims_of[j], false, 3, 0);
            forward_case(c, 1, rows_of[i], dims_of[j], other, (i + j) % 2,
                         3 * (i % 2), 1 + (i + j) % 3);
        }
}

/* Heads that share a step; some numbers of rows and columns run together. */
static void forward_heads_compare(check *c)
{
    static const size_t dims[] = { 3, 8, 16, 17, 32, 48, 64, 65, 128 };
    for (size_t heads = 2; heads <= 9; heads++)
        for (size_t rows = 1; rows <= 3; rows++)
            for (size_t j = 0; j < BT_LEN(dims); j++) {
                size_t other = dims[test_below(&c->random, BT_LEN(dims))];
                forward_case(c, heads, rows, other, dims[j], true, 0, 0);
                forward_case(c, heads, rows, other, dims[j], false, 1, 0);
                forward_case(c, heads, rows, dims[j], other, false, 0, 0);
            }
    forward_case(c, 7, 20, 16, 16, false, 0, 0);
}

/* ---- the exponential, as the steps evaluate it ------------------------- */

static const float exp_edges[] = {
    0.0f,          -0.0f,     1.0f,           -1.0f,     0.5f,
    -0.5f,         -125.0f,   -0x1.f40002p6f, -126.0f,   127.0f,
    0x1.fc0002p6f, 128.0f,    INFINITY,       -INFINITY, NAN,
    -1e30f,        0x1p-149f, 1e30f,          -0x1p-24f, 126.5f
};

/* 64 numbers at once: with one column and q = 1 the scores are the keys, and a
 * log-sum-exp of 0 makes p their exponentials. */
static void exp2_case(check *c, const guarded *x)
{
    float one[16] = { 1 }, zeros[BLOCK * 16] = { 0 }, row[16] = { 0 };
    guarded want = check_copy(x), got = check_copy(x);
    float ds[BLOCK], zero = 0;
    bt_attention_grad g = { .rows = 1,
                            .head_dim = 1,
                            .head_pad = 16,
                            .value_dim = 1,
                            .value_pad = 16,
                            .q = one,
                            .dout = row,
                            .lse = &zero,
                            .delta = &zero,
                            .kt = x->data,
                            .k = zeros,
                            .vt = zeros,
                            .dq = row,
                            .dk = (float[BLOCK * 16]){ 0 },
                            .dv = (float[BLOCK * 16]){ 0 },
                            .p = got.data,
                            .ds = ds };
    c->twin->attention_backward(&g);
    for (size_t i = 0; i < BLOCK; i++)
        want.data[i] = bt_exp2(x->data[i]);
    check_same(c, "exp2", &want, &got);
    guarded_free(&want);
    guarded_free(&got);
}

static void exp2_compare(check *c)
{
    guarded x = check_floats(c, BLOCK, 1);
    for (size_t i = 0; i < sizeof(exp_edges) / sizeof(exp_edges[0]); i++)
        x.data[i] = exp_edges[i];
    exp2_case(c, &x);
    for (size_t round = 0; round < 20000; round++) {
        for (size_t i = 0; i < BLOCK; i++) { // any bits, or the usual range
            uint32_t bits = test_u32(&c->random);
            if (round % 2)
                memcpy(&x.data[i], &bits, sizeof(bits));
            else
                x.data[i] = test_float(&c->random) * 130;
        }
        exp2_case(c, &x);
    }
    guarded_free(&x);
}

/* ---- the backward step ------------------------------------------------- */

typedef struct backward_buffers {
    guarded q, dout, lse, delta, kt, k, vt, p, ds, raw;
    guarded dq, dk, dv;
    uint64_t words[200];
    bt_attention_grad grad;
} backward_buffers;

static backward_buffers backward_make(check *c, size_t rows, size_t d, size_t e)
{
    backward_buffers b;
    size_t dp = pad16(d), ep = pad16(e);
    b.q = check_floats(c, rows * dp, 1);
    b.dout = check_floats(c, rows * ep, 1);
    b.lse = check_floats(c, rows, 2);
    b.delta = check_floats(c, rows, 1);
    b.kt = check_floats(c, d * BLOCK, 1);
    b.k = check_floats(c, BLOCK * dp, 1);
    b.vt = check_floats(c, e * BLOCK, 1);
    b.p = check_floats(c, rows * BLOCK, 1);
    b.ds = check_floats(c, rows * BLOCK, 1);
    b.raw = check_floats(c, rows * BLOCK, 1);
    b.dq = check_floats(c, rows * dp, 1);
    b.dk = check_floats(c, BLOCK * dp, 1);
    b.dv = check_floats(c, BLOCK * ep, 1);
    b.lse.data[0] = INFINITY; // a row that has turned out to be empty
    words_fill(c, b.words, rows);
    b.grad = (bt_attention_grad){ .rows = rows,
                                  .head_dim = d,
                                  .head_pad = dp,
                                  .value_dim = e,
                                  .value_pad = ep };
    return b;
}

static void backward_run(const backward_buffers *b,
                         bt_attention_backward_fn *run, guarded *dq,
                         guarded *dk, guarded *dv)
{
    bt_attention_grad g = b->grad;
    g.q = b->q.data;
    g.dout = b->dout.data;
    g.lse = b->lse.data;
    g.delta = b->delta.data;
    g.kt = b->kt.data;
    g.k = b->k.data;
    g.vt = b->vt.data;
    g.p = b->p.data;
    g.ds = b->ds.data;
    g.raw = b->raw.data;
    g.dq = dq->data;
    g.dk = dk->data;
    g.dv = dv->data;
    run(&g);
}

static void backward_free(backward_buffers *b)
{
    guarded *all[] = { &b->q,  &b->dout, &b->lse, &b->delta, &b->kt,
                       &b->k,  &b->vt,   &b->p,   &b->ds,    &b->raw,
                       &b->dq, &b->dk,   &b->dv };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        guarded_free(all[i]);
}

/* The gradients of the visible scores: those of the products, and before the
 * softcap. */
static void check_scores(check *c, const char *name, const guarded *want,
                         const float *got, const uint64_t *words)
{
    guarded seen = check_copy(want);
    for (size_t i = 0; i < want->count; i++)
        if (!words || words[i / BLOCK] >> i % BLOCK & 1)
            seen.data[i] = got[i];
    check_same(c, name, want, &seen);
    guarded_free(&seen);
}

static void backward_case(check *c, size_t rows, size_t d, size_t e, bool full,
                          size_t odd, size_t kind)
{
    backward_buffers b = backward_make(c, rows, d, e);
    term_buffers terms;
    b.grad.words = full ? NULL : b.words;
    terms_make(c, &terms, rows, kind, b.grad.words);
    b.grad.terms = kind ? &terms.terms : NULL;
    floats_insert_special(&c->random, b.q.data, b.q.count, odd);
    floats_insert_special(&c->random, b.dout.data, b.dout.count, odd);
    floats_insert_special(&c->random, b.kt.data, b.kt.count, odd);
    floats_insert_special(&c->random, b.vt.data, b.vt.count, odd);
    guarded dq = check_copy(&b.dq), dk = check_copy(&b.dk),
            dv = check_copy(&b.dv);
    backward_run(&b, c->reference->attention_backward, &b.dq, &b.dk, &b.dv);
    guarded ds = check_copy(&b.ds), raw = check_copy(&b.raw);
    backward_run(&b, c->twin->attention_backward, &dq, &dk, &dv);
    check_scores(c, "ds", &ds, b.ds.data, b.grad.words);
    if (kind & 1)
        check_scores(c, "raw", &raw, b.raw.data, b.grad.words);
    guarded_free(&ds);
    guarded_free(&raw);
    check_same(c, "dq", &b.dq, &dq);
    check_same(c, "dk", &b.dk, &dk);
    check_same(c, "dv", &b.dv, &dv);
    guarded_free(&dq);
    guarded_free(&dk);
    guarded_free(&dv);
    backward_free(&b);
    terms_free(&terms);
}

static void backward_compare(check *c)
{
    for (size_t i = 0; i < sizeof(rows_of) / sizeof(rows_of[0]); i++)
        for (size_t j = 0; j < sizeof(dims_of) / sizeof(dims_of[0]); j++) {
            size_t other = dims_of[test_below(&c->random, 10)];
            backward_case(c, rows_of[i], dims_of[j], dims_of[j], true, 0, 0);
            backward_case(c, rows_of[i], dims_of[j], other, false, 0, 0);
            backward_case(c, rows_of[i], other, dims_of[j], false, 3, 0);
            backward_case(c, rows_of[i], dims_of[j], other, (i + j) % 2,
                          3 * (i % 2), 1 + (i + j) % 3);
        }
}

/* ---- times ------------------------------------------------------------- */

typedef struct timed {
    forward_buffers *forward;
    backward_buffers *backward;
    const bt_kernels *kernels;
} timed;

static void time_forward(void *argument)
{
    timed *t = argument;
    forward_buffers *b = t->forward;
    forward_run(b, t->kernels->attention_forward, &b->m, &b->l, &b->o);
}

static void time_backward(void *argument)
{
    timed *t = argument;
    backward_buffers *b = t->backward;
    backward_run(b, t->kernels->attention_backward, &b->dq, &b->dk, &b->dv);
}

static void bench_line(const char *what, size_t rows, size_t d, double products,
                       double reference, double twin)
{
    double flop = 2.0 * products * (double)(rows * BLOCK * d);
    printf("  %s %zu rows, head %zu: c %.0f ns, twin %.0f ns (%.1f times), "
           "%.1f GFLOP/s\n",
           what, rows, d, reference, twin, reference / twin, flop / twin);
}

static void forward_bench(check *c)
{
    static const size_t dims[] = { 64, 128 };
    for (size_t i = 0; i < 2; i++) {
        forward_buffers b = forward_make(c, 1, 96, dims[i], dims[i]);
        timed t = { &b, NULL, c->reference };
        double reference = check_time(time_forward, &t);
        t.kernels = c->twin;
        bench_line("forward", 96, dims[i], 2, reference,
                   check_time(time_forward, &t));
        forward_free(&b);
    }
}

static void backward_bench(check *c)
{
    static const size_t dims[] = { 64, 128 };
    for (size_t i = 0; i < 2; i++) {
        backward_buffers b = backward_make(c, 96, dims[i], dims[i]);
        timed t = { NULL, &b, c->reference };
        double reference = check_time(time_backward, &t);
        t.kernels = c->twin;
        bench_line("backward", 96, dims[i], 5, reference,
                   check_time(time_backward, &t));
        backward_free(&b);
    }
}

int main(int argc, char **argv)
{
    static const check_op ops[] = {
        { "transpose", transpose_compare, NULL },
        { "exp2", exp2_compare, NULL },
        { "attention_forward", forward_compare, forward_bench },
        { "attention_heads", forward_heads_compare, NULL },
        { "attention_backward", backward_compare, backward_bench },
    };
    return check_main(argc, argv, ops, sizeof(ops) / sizeof(ops[0]));
}
