/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_f32.c - the GPU's plain float32 attention, forward and backward,
 * against float64: within an error derived from the arithmetic, with NaN in
 * everything hidden, the same bits in two runs, and batch-invariant rows; also
 * with softcaps and biases. */
#include "backend/cuda/cuda.h"
#include "biases.h"

/* ---- a problem --------------------------------------------------------- */

enum { Q, K, V, DOUT, INPUTS };
enum { OUT, LSE, DQ, DK, DV, DTABLE, RESULTS };

typedef struct problem {
    const char *name;
    bauta_mask *mask;
    bauta_attention_shape shape;
    size_t n, m, heads, kv_heads, d, e;
    size_t in_size[INPUTS], size[RESULTS];
    float *in[INPUTS];
    test_bias bias;
} problem;

typedef struct result {
    float *x[RESULTS];
} result;

static problem problem_make(const char *name, bauta_mask *mask, size_t heads,
                            size_t kv_heads, size_t d, size_t e, int bias)
{
    problem p = { .name = name,
                  .mask = mask,
                  .shape = BAUTA_ATTENTION_SHAPE_INIT };
    p.n = bauta_mask_queries(mask);
    p.m = bauta_mask_keys(mask);
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.d = d;
    p.e = e;
    p.shape.heads = heads;
    p.shape.kv_heads = kv_heads;
    p.shape.head_dim = d;
    p.shape.value_dim = e;
    p.in_size[Q] = p.size[DQ] = p.n * heads * d;
    p.in_size[K] = p.size[DK] = p.m * kv_heads * d;
    p.in_size[V] = p.size[DV] = p.m * kv_heads * e;
    p.in_size[DOUT] = p.size[OUT] = p.n * heads * e;
    p.size[LSE] = p.n * heads;
    p.bias = bias_make(bias, mask, heads);
    p.size[DTABLE] = p.bias.count;
    for (int i = 0; i < INPUTS; i++) {
        p.in[i] = malloc(p.in_size[i] * sizeof(float) + 1);
        for (size_t j = 0; j < p.in_size[i]; j++)
            p.in[i][j] = 2.0f * test_float(&random_stream);
    }
    // Keys that no query sees are NaN.
    for (size_t j = 0; j < p.m; j++) {
        bool seen = false;
        for (size_t i = 0; i < p.n && !seen; i++)
            seen = bauta_mask_visible(mask, i, j);
        for (size_t c = 0; c < kv_heads * d && !seen; c++)
            p.in[K][j * kv_heads * d + c] = NAN;
        for (size_t c = 0; c < kv_heads * e && !seen; c++)
            p.in[V][j * kv_heads * e + c] = NAN;
    }
    return p;
}

static void problem_free(problem *p)
{
    bauta_mask_free(p->mask);
    bias_free(&p->bias);
    for (int i = 0; i < INPUTS; i++)
        free(p->in[i]);
}

static void result_free(result *r)
{
    for (int i = 0; i < RESULTS; i++)
        free(r->x[i]);
}

/* Forward and backward of rows [first, first + rows). */
static result run(const problem *p, size_t first, size_t rows)
{
    bauta_error err = { 0 };
    bt_cuda_rows *r = NULL;
    float *in[INPUTS], *x[RESULTS];
    result back;
    bauta_attention_shape shape = p->shape;
    bauta_attention_bias bias = bias_of(&p->bias, first, true);
    if (p->bias.kind)
        shape.bias = &bias;
    need(bt_cuda_rows_create(&r, p->mask, first, rows, &err), &err);
    for (int i = 0; i < INPUTS; i++) {
        bool by_row = i == Q || i == DOUT;
        size_t each = by_row ? p->in_size[i] / p->n : 0;
        in[i] = to_device(p->in[i] + first * each,
                          (by_row ? rows * each : p->in_size[i]) * 4);
    }
    for (int i = 0; i < RESULTS; i++) {
        back.x[i] = malloc(p->size[i] * 4 + 1);
        memset(back.x[i], i == DTABLE ? 0 : 0xff, p->size[i] * 4); // is added
        x[i] = to_device(back.x[i], p->size[i] * 4);
    }
    if (p->bias.kind & BIAS_TABLE)
        bias.dtable = x[DTABLE];
    if (p->bias.kind & BIAS_TENSOR)
        bias.dtensor = x[DTABLE] + (bias.tensor - p->bias.device_table);
    need(bt_attention_forward_f32_cuda(r, &shape, in[Q], in[K], in[V], x[OUT],
                                       x[LSE], NULL, &err),
         &err);
    need(bt_attention_backward_f32_cuda(r, &shape, in[Q], in[K], in[V], x[OUT],
                                        x[LSE], in[DOUT], x[DQ], x[DK], x[DV],
                                        NULL, &err),
         &err);
    need_cuda(cudaDeviceSynchronize(), p->name);
    for (int i = 0; i < RESULTS; i++) {
        need_cuda(
            cudaMemcpy(back.x[i], x[i], p->size[i] * 4, cudaMemcpyDeviceToHost),
            "cudaMemcpy");
        cudaFree(x[i]);
    }
    for (int i = 0; i < INPUTS; i++)
        cudaFree(in[i]);
    bt_cuda_rows_free(r);
    return back;
}

/* ---- the reference ----------------------------------------------------- */

/* Values in float64, and beside each the sum of the magnitudes of its terms. */
typedef struct exact {
    double *x[RESULTS], *size[RESULTS];
    double reach; /* the largest sum of |q| |k| of a visible pair */
    double added; /* and of its softcap and bias */
} exact;

static double dot(const float *a, const float *b, size_t d, double *size)
{
    double sum = 0.0;
    *size = 0.0;
    for (size_t i = 0; i < d; i++) {
        sum += (double)a[i] * (double)b[i];
        *size += fabs((double)a[i] * (double)b[i]);
    }
    return sum;
}

static void add(exact *e, int what, size_t at, double value, double size)
{
    e->x[what][at] += value;
    e->size[what][at] += size;
}

static void reference_row(exact *e, const problem *p, size_t i, size_t h)
{
    size_t spans, kv = h / (p->heads / p->kv_heads);
    const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
    const float *q = p->in[Q] + (i * p->heads + h) * p->d;
    size_t o_at = (i * p->heads + h) * p->e, q_at = (i * p->heads + h) * p->d;
    const float *dout = p->in[DOUT] + o_at;
    double scale = 1.0 / sqrt((double)p->d), max = -INFINITY, sum = 0.0;
    double delta = 0.0, delta_size = 0.0, size;

    for (int pass = 0; pass < 4; pass++)
        for (size_t a = 0; a < spans; a++)
            for (size_t j = span[a].lo; j < span[a].hi; j++) {
                size_t k_at = (j * p->kv_heads + kv) * p->d;
                size_t v_at = (j * p->kv_heads + kv) * p->e;
                const float *k = p->in[K] + k_at, *v = p->in[V] + v_at;
                double x = dot(q, k, p->d, &size) * scale, added, slope;
                e->reach = fmax(e->reach, size * scale);
                x = bias_score(&p->bias, x, i, h, j, &added, &slope);
                e->added = fmax(e->added, added);
                double w = pass && max != -INFINITY ? exp(x - max) : 0.0;
                if (pass == 0)
                    max = fmax(max, x);
                if (pass == 1)
                    sum += w;
                if (pass < 2)
                    continue;
                w = sum != 0.0 ? w / sum : 0.0;
                double dw = dot(dout, v, p->e, &size);
                if (pass == 2) {
                    for (size_t c = 0; c < p->e; c++) {
                        double value = w * (double)v[c];
                        add(e, OUT, o_at + c, value, fabs(value));
                    }
                    delta += w * dw;
                    delta_size += w * size;
                    continue;
                }
                double ds = w * (dw - delta) * scale;
                double ds_size = w * (size + delta_size) * scale;
                if (p->bias.kind & (BIAS_TABLE | BIAS_TENSOR))
                    add(e, DTABLE, bias_at(&p->bias, i, h, j), ds / scale,
                        ds_size / scale);
                ds *= slope;
                for (size_t c = 0; c < p->d; c++) {
                    add(e, DQ, q_at + c, ds * (double)k[c],
                        ds_size * fabs((double)k[c]));
                    add(e, DK, k_at + c, ds * (double)q[c],
                        ds_size * fabs((double)q[c]));
                }
                for (size_t c = 0; c < p->e; c++)
                    add(e, DV, v_at + c, w * (double)dout[c],
                        w * fabs((double)dout[c]));
            }
    bool empty = !spans || sum == 0.0;
    e->x[LSE][i * p->heads + h] = empty ? -INFINITY : max + log(sum);
    e->size[LSE][i * p->heads + h] = empty ? 0.0 : fabs(max + log(sum)) + 1.0;
}

static exact reference(const problem *p)
{
    exact e = { .reach = 0.0 };
    for (int i = 0; i < RESULTS; i++) {
        e.x[i] = calloc(p->size[i] + 1, sizeof(double));
        e.size[i] = calloc(p->size[i] + 1, sizeof(double));
    }
    for (size_t i = 0; i < p->n; i++)
        for (size_t h = 0; h < p->heads; h++)
            reference_row(&e, p, i, h);
    return e;
}

/* Scores are chains of d products and so off by d ulp of their reach, weights
 * by that and by the sums over keys; each further sum adds its own length.
 * Softcaps and biases cost some ulp of their magnitudes. */
static void check_accuracy(const problem *p, const result *r)
{
    static const char *const names[] = { "out", "lse", "dq",
                                         "dk",  "dv",  "dtable" };
    exact e = reference(p);
    double terms = (double)(p->d + p->e + p->m + p->n * p->heads);
    double bound = 0x1p-23 * (4.0 * e.reach * (double)p->d + 8.0 * e.added +
                              2.0 * terms + 64.0);
    for (int i = 0; i < RESULTS; i++) {
        for (size_t j = 0; j < p->size[i]; j++) {
            double got = (double)r->x[i][j], want = e.x[i][j];
            if (got == want || fabs(got - want) <= bound * e.size[i][j])
                continue;
            FAIL("%s: %s %zu is %g, want %g within %g", p->name, names[i], j,
                 got, want, bound * e.size[i][j]);
            break;
        }
        free(e.x[i]);
        free(e.size[i]);
        checks++;
    }
}

static void check_same(const problem *p, const char *what, int i,
                       const float *a, const float *b, size_t count)
{
    checks++;
    if (memcmp(a, b, count * sizeof(float)))
        FAIL("%s: %s: result %d has other bits", p->name, what, i);
}

static void check_case(const char *kind, bauta_mask *mask, size_t heads,
                       size_t kv_heads, size_t d, size_t e, int bias)
{
    char name[96];
    snprintf(name, sizeof(name), "%s %s d%zu", kind, bias_name(bias), d);
    problem p = problem_make(name, mask, heads, kv_heads, d, e, bias);
    result r = run(&p, 0, p.n), again = run(&p, 0, p.n);
    check_accuracy(&p, &r);
    for (int i = 0; i < RESULTS; i++)
        check_same(&p, "again", i, r.x[i], again.x[i], p.size[i]);
    result_free(&again);
    size_t first = below(p.n);
    size_t rows = 1 + below(p.n - first);
    again = run(&p, first, rows);
    for (int i = OUT; i <= DQ; i++) {
        size_t each = p.size[i] / p.n;
        check_same(&p, "some rows", i, r.x[i] + first * each, again.x[i],
                   rows * each);
    }
    result_free(&again);
    result_free(&r);
    problem_free(&p);
}

/* ---- the cases --------------------------------------------------------- */

static bauta_mask *make_documents(size_t n, size_t m)
{
    size_t a[3] = { n / 3, n / 3, n - n / 3 * 2 };
    size_t b[3] = { m / 4, m / 2, m - m / 4 - m / 2 };
    MAKE(bauta_mask_documents(&mask, 3, a, b, &err));
}

static const struct {
    const char *name;
    make_fn *make;
} kinds[] = {
    { "all", make_all },       { "causal", make_causal },
    { "window", make_window }, { "documents", make_documents },
    { "prefix", make_prefix }, { "dense_with_empty_rows", make_dense },
};

static const struct {
    size_t n, m, heads, kv_heads, d, e;
} sizes[] = {
    { 1, 1, 1, 1, 1, 1 },       { 40, 40, 2, 2, 64, 64 },
    { 65, 33, 4, 2, 80, 8 },    { 17, 130, 6, 2, 33, 200 },
    { 70, 70, 3, 1, 256, 256 },
};

static const int biases[] = { BIAS_CAP,
                              BIAS_SLOPES,
                              BIAS_TABLE | BIAS_POSITIONS,
                              BIAS_CAP | BIAS_SLOPES | BIAS_POSITIONS,
                              BIAS_CAP | BIAS_TABLE,
                              BIAS_TABLE | BIAS_HOLES,
                              BIAS_TENSOR,
                              BIAS_CAP | BIAS_TENSOR | BIAS_POSITIONS,
                              BIAS_TENSOR | BIAS_SHARED | BIAS_HOLES };

int main(int argc, char **argv)
{
    check_begin(argc, argv);
    for (size_t x = 0; x < BT_LEN(kinds); x++)
        for (size_t s = 0; s < (quick ? 3 : BT_LEN(sizes)); s++)
            check_case(kinds[x].name, kinds[x].make(sizes[s].n, sizes[s].m),
                       sizes[s].heads, sizes[s].kv_heads, sizes[s].d,
                       sizes[s].e, BIAS_NONE);
    for (size_t x = 0; x < BT_LEN(kinds); x++)
        for (size_t s = 0; s < (quick ? 3 : BT_LEN(sizes)); s++)
            for (size_t b = 0; b < BT_LEN(biases); b++)
                check_case(kinds[x].name, kinds[x].make(sizes[s].n, sizes[s].m),
                           sizes[s].heads, sizes[s].kv_heads, sizes[s].d,
                           sizes[s].e, biases[b]);
    return check_end();
}
