/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_backward.c - the gradients of the GPU's masked attention against a
 * float64 reference.
 *
 * Every case draws fresh inputs from a printed seed, poisons the outputs, runs
 * forward and backward twice and checks:
 *
 *   accuracy      within a bound derived from the arithmetic (see pair_of)
 *   the unseen    rows that see nothing, keys that no row sees: 0
 *   same bits     from run to run; from any cut of the rows into tiles; alone
 *                 and packed between neighbours
 *   the hidden    NaN, infinity and huge values in q, k, v or dout change no
 *                 bit of the gradients that do not depend on them; NaN shows in
 *                 all that do */
#include "problem.h"

/* ---- running ----------------------------------------------------------- */

static size_t dense = SIZE_MAX; /* see bt_cuda_plan_set_dense() */

/* A problem's tensors are its own; dout is beside it. */
typedef struct backward {
    problem p;
    uint16_t *dout;
} backward;

typedef struct gradients {
    uint16_t *out;
    float *lse;
    double *delta, *delta_mass; /* (rows, heads) rowsum(dout * out), and of the
                                   magnitudes; once check_accuracy began */
    uint16_t *dq, *dk, *dv;
    float *dtable;
} gradients;

static backward backward_make(const char *name, bauta_mask *mask, size_t heads,
                              size_t kv_heads, size_t d, size_t extra)
{
    backward b = { .p = problem_make(name, mask, heads, kv_heads, d, extra) };
    b.dout = random_bf16(b.p.out_size, 2.0f);
    return b;
}

static void backward_free(backward *b)
{
    free(b->dout);
    problem_free(&b->p);
}

static void gradients_free(gradients *g)
{
    free(g->out);
    free(g->lse);
    free(g->delta);
    free(g->delta_mass);
    free(g->dq);
    free(g->dk);
    free(g->dv);
    free(g->dtable);
}

/* Device memory for the tensors of one run: allocating takes longer than most
 * of the kernels. */
enum { ARENA = 2000u << 20 };
static unsigned char *arena;
static size_t arena_used;

static void *padded_row(const void *from, size_t bytes)
{
    if (!arena)
        need_cuda(cudaMalloc((void **)&arena, ARENA), "cudaMalloc");
    void *at = arena + arena_used;
    arena_used += (bytes + 511) / 256 * 256;
    if (arena_used > ARENA)
        need_cuda(cudaErrorMemoryAllocation, "the arena");
    need_cuda(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice),
              "cudaMemcpy");
    return at;
}

/* A NaN that no kernel produces, on the device and ready to be copied. */
static void *poisoned_memory(void **host, size_t bytes)
{
    *host = malloc(bytes + 1);
    memset(*host, 0x7f, bytes);
    return padded_row(*host, bytes);
}

static void fetch(void *host, void *device, size_t bytes)
{
    need_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
}

/* Rows [first, first + rows) of the problem, forward and backward. */
static gradients run_rows(const backward *b, size_t first, size_t rows,
                          size_t tile_rows)
{
    const problem *p = &b->p;
    bauta_attention_shape shape = p->shape;
    const bauta_attention_shape *a = &shape;
    bauta_attention_bias bias = bias_of(&p->bias, first, true);
    bauta_error err = { 0 };
    bt_cuda_plan *device_plan = NULL;
    gradients g = { .delta = NULL };
    size_t table_bytes = p->bias.count * 4;
    size_t out_bytes = rows * a->out_token * 2, lse_bytes = rows * p->heads * 4;
    size_t q_bytes = rows * a->q_token * 2, kv_bytes = p->kv_size * 2;

    if (p->bias.kind)
        shape.bias = &bias;
    bool gradient = bias.dtable || bias.dtensor;
    if (gradient) // is added to
        need_cuda(cudaMemset(p->bias.device_dtable, 0, table_bytes),
                  "cudaMemset");
    device_plan = plan_of(a, true, p->bias.kind ? SIZE_MAX : dense, p->mask,
                          first, rows, tile_rows);
    uint16_t *q = padded_row(p->q + first * a->q_token, q_bytes);
    uint16_t *k = padded_row(p->k, kv_bytes), *v = padded_row(p->v, kv_bytes);
    uint16_t *dout = padded_row(b->dout + first * a->out_token, out_bytes);
    uint16_t *out = poisoned_memory((void **)&g.out, out_bytes);
    float *lse = poisoned_memory((void **)&g.lse, lse_bytes);
    uint16_t *dq = poisoned_memory((void **)&g.dq, q_bytes);
    uint16_t *dk = poisoned_memory((void **)&g.dk, kv_bytes);
    uint16_t *dv = poisoned_memory((void **)&g.dv, kv_bytes);

    need(bt_attention_forward_bf16_cuda(device_plan, a, q, k, v, out, lse, NULL,
                                        &err),
         &err);
    need(bt_attention_backward_bf16_cuda(device_plan, a, q, k, v, out, lse,
                                         dout, dq, dk, dv, NULL, &err),
         &err);
    need_cuda(cudaDeviceSynchronize(), p->name);
    fetch(g.out, out, out_bytes);
    fetch(g.lse, lse, lse_bytes);
    fetch(g.dq, dq, q_bytes);
    fetch(g.dk, dk, kv_bytes);
    fetch(g.dv, dv, kv_bytes);
    if (gradient) {
        g.dtable = malloc(table_bytes);
        fetch(g.dtable, p->bias.device_dtable, table_bytes);
    }
    arena_used = 0;
    bt_cuda_plan_free(device_plan);
    return g;
}

static gradients run(const backward *b)
{
    return run_rows(b, 0, b->p.n, bt_cuda_tile_rows(b->p.d));
}

/* ---- the reference ----------------------------------------------------- */

static double dot(const uint16_t *a, const uint16_t *b, size_t d, double *mass)
{
    double sum = 0.0;
    *mass = 0.0;
    for (size_t c = 0; c < d; c++) {
        double product = (double)from_bf16(a[c]) * (double)from_bf16(b[c]);
        sum += product;
        *mass += fabs(product);
    }
    return sum;
}

static size_t kv_head(const problem *p, size_t head)
{
    return head / (p->heads / p->kv_heads);
}

static const uint16_t *q_row(const problem *p, size_t i, size_t head)
{
    return p->q + i * p->shape.q_token + head * p->shape.q_head;
}

static const uint16_t *out_row(const problem *p, const uint16_t *x, size_t i,
                               size_t head)
{
    return x + i * p->shape.out_token + head * p->shape.out_head;
}

static const uint16_t *k_row(const problem *p, size_t j, size_t kv)
{
    return p->k + j * p->shape.k_token + kv * p->shape.k_head;
}

static const uint16_t *v_row(const problem *p, size_t j, size_t kv)
{
    return p->v + j * p->shape.v_token + kv * p->shape.v_head;
}

/* The weight of a visible pair and the gradient of its score, with how far they
 * may be off when a product takes them. Scores, dP and delta are sums of d
 * exact products in float32, which the tensor cores truncate (d * 2^-23 of the
 * sum of their magnitudes, twice for what they drop between groups); scaling,
 * the logarithm of the sum and 2^x cost some ulps of their arguments; then both
 * are rounded to bf16 (2^-8). With heads up to 64, dS is made of weights that
 * are rounded already, over queries and in dense documents, and there with
 * heads over 128, too. A softcap c is within c * 2^-21, its derivative within
 * 2^-19, and a bias costs an ulp or two of itself. Weights below 2^-126 are 0.
 */
typedef struct pair {
    double p, ds, p_error, ds_error, ds_key_error;
    double dbias, dbias_error; /* the gradient of the bias */
} pair;

static pair pair_of(const backward *b, const gradients *g, size_t i,
                    size_t head, size_t j)
{
    const problem *p = &b->p;
    size_t kv = kv_head(p, head), d = p->d;
    double scale = 1.0 / sqrt((double)d), reach, mass;
    double delta = g->delta[i * p->heads + head];
    double delta_mass = g->delta_mass[i * p->heads + head];
    double lse = (double)g->lse[i * p->heads + head];
    const uint16_t *dout = out_row(p, b->dout, i, head);
    double score = dot(q_row(p, i, head), k_row(p, j, kv), d, &reach) * scale;
    double dp = dot(dout, v_row(p, j, kv), d, &mass);
    double sums = (double)d * 0x1p-22;
    double score_error =
        reach * scale * (sums + 0x1p-21) + (fabs(lse) + 1.0) * 0x1p-21;
    double added, slope;
    pair x = { 0 };
    if (lse == -INFINITY) // all scores are
        return x;
    score = bias_score(&p->bias, score, i, head, j, &added, &slope);
    score_error += added * 0x1p-20;
    x.p = score == -INFINITY ? 0.0 : exp(score - lse);
    x.dbias = x.p * (dp - delta);
    x.ds = x.dbias * slope;
    double small = (mass + delta_mass) * (x.p * sums + 0x1p-126);
    x.p_error = x.p * (score_error + 0x1.01p-8) + 0x1p-126;
    x.dbias_error = fabs(x.dbias) * (score_error + 0x1p-21) + small;
    x.ds_error = fabs(x.ds) * (score_error + 0x1.01p-8 + 0x1p-22) + small;
    if (slope != 1.0)
        x.ds_error += fabs(x.dbias) * 0x1p-19;
    bool packed = d <= 64 || (d > 128 && dense != SIZE_MAX);
    x.ds_key_error = x.ds_error + (packed ? fabs(x.ds) * 0x1.01p-8 : 0.0);
    if (dense != SIZE_MAX)
        x.ds_error = x.ds_key_error;
    return x;
}

/* A row of a gradient: values, and how far a result may be off. */
typedef struct exact {
    double value[256], error[256], mass[256];
    size_t terms;
} exact;

static void add(exact *e, double weight, double error, const uint16_t *x,
                size_t d)
{
    for (size_t c = 0; c < d; c++) {
        double value = (double)from_bf16(x[c]);
        e->value[c] += weight * value;
        e->mass[c] += fabs(weight * value);
        e->error[c] += error * fabs(value);
    }
    e->terms++;
}

/* Summing costs 2^-22 of the magnitudes a term, in one sum or in sums of query
 * heads that are added by a tree: no term is in more additions. The result is
 * rounded to bf16. A row of no terms must be exact. */
static double bound_of(const exact *e, size_t c, double factor)
{
    double error = e->error[c] + e->mass[c] * (double)e->terms * 0x1p-22;
    return e->terms ? factor * error + fabs(factor * e->value[c]) * 0x1.01p-8 +
                          0x1p-130
                    : 0.0;
}

static double compare(const backward *b, const char *what, const exact *e,
                      double factor, const uint16_t *got, size_t token,
                      size_t head)
{
    double worst = 0.0;
    for (size_t c = 0; c < b->p.d; c++) {
        double want = factor * e->value[c], bound = bound_of(e, c, factor);
        double off = fabs((double)from_bf16(got[c]) - want);
        if (!(off <= bound))
#pragma omp critical
            FAIL("%s: %s of token %zu head %zu column %zu is %g, want %g "
                 "within %g",
                 b->p.name, what, token, head, c, (double)from_bf16(got[c]),
                 want, bound);
        if (bound > 0.0)
            worst = fmax(worst, off / bound);
    }
    return worst;
}

static double check_row(const backward *b, const gradients *g, size_t i,
                        size_t head)
{
    const problem *p = &b->p;
    size_t spans;
    const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
    exact e = { .terms = 0 };
    for (size_t s = 0; s < spans; s++)
        for (size_t j = span[s].lo; j < span[s].hi; j++) {
            pair x = pair_of(b, g, i, head, j);
            add(&e, x.ds, x.ds_error, k_row(p, j, kv_head(p, head)), p->d);
        }
    return compare(b, "dq", &e, 1.0 / sqrt((double)p->d),
                   g->dq + i * p->shape.q_token + head * p->shape.q_head, i,
                   head);
}

static double check_key(const backward *b, const gradients *g, size_t j,
                        size_t kv)
{
    const problem *p = &b->p;
    size_t group = p->heads / p->kv_heads;
    exact dk = { .terms = 0 }, dv = { .terms = 0 };
    for (size_t i = 0; i < p->n; i++) {
        if (!bauta_mask_visible(p->mask, i, j))
            continue;
        for (size_t head = kv * group; head < (kv + 1) * group; head++) {
            pair x = pair_of(b, g, i, head, j);
            add(&dk, x.ds, x.ds_key_error, q_row(p, i, head), p->d);
            add(&dv, x.p, x.p_error, out_row(p, b->dout, i, head), p->d);
        }
    }
    double a =
        compare(b, "dk", &dk, 1.0 / sqrt((double)p->d),
                g->dk + j * p->shape.k_token + kv * p->shape.k_head, j, kv);
    return fmax(a, compare(b, "dv", &dv, 1.0,
                           g->dv + j * p->shape.v_token + kv * p->shape.v_head,
                           j, kv));
}

/* The gradient of the table or tensor: of every pair once. Sums are float32. */
static void check_table(const backward *b, const gradients *g)
{
    const problem *p = &b->p;
    size_t count = p->bias.count;
    double *want = calloc(count, sizeof(double));
    double *error = calloc(count, sizeof(double));
    double *mass = calloc(count, sizeof(double));
    size_t *terms = calloc(count, sizeof(size_t));
#pragma omp parallel for if (!(p->bias.kind & BIAS_SHARED))
    for (size_t head = 0; head < p->heads; head++)
        for (size_t i = 0; i < p->n; i++) {
            size_t spans;
            const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
            for (size_t s = 0; s < spans; s++)
                for (size_t j = span[s].lo; j < span[s].hi; j++) {
                    size_t at = bias_at(&p->bias, i, head, j);
                    pair x = pair_of(b, g, i, head, j);
                    want[at] += x.dbias;
                    error[at] += x.dbias_error;
                    mass[at] += fabs(x.dbias);
                    terms[at]++;
                }
        }
    checks++;
    for (size_t at = 0; at < count; at++) {
        double bound = error[at] + mass[at] * (double)terms[at] * 0x1p-22;
        if (fabs((double)g->dtable[at] - want[at]) <= bound)
            continue;
        FAIL("%s: dtable or dtensor %zu of %zu is %g, want %g within %g",
             p->name, at, count, (double)g->dtable[at], want[at], bound);
        break;
    }
    free(want);
    free(error);
    free(mass);
    free(terms);
}

/* `stride`: check every stride-th row and key. */
static double check_accuracy(const backward *b, gradients *g, size_t stride)
{
    const problem *p = &b->p;
    double worst = 0.0;
    g->delta = malloc((p->n * p->heads + 1) * sizeof(double));
    g->delta_mass = malloc((p->n * p->heads + 1) * sizeof(double));
    for (size_t i = 0; i < p->n; i++)
        for (size_t head = 0; head < p->heads; head++)
            g->delta[i * p->heads + head] =
                dot(out_row(p, b->dout, i, head), out_row(p, g->out, i, head),
                    p->d, &g->delta_mass[i * p->heads + head]);
#pragma omp parallel for collapse(2) schedule(dynamic) reduction(max : worst)
    for (size_t i = 0; i < (p->n + stride - 1) / stride; i++)
        for (size_t head = 0; head < p->heads; head++)
            worst = fmax(worst, check_row(b, g, i * stride, head));
#pragma omp parallel for collapse(2) schedule(dynamic) reduction(max : worst)
    for (size_t j = 0; j < (p->m + stride - 1) / stride; j++)
        for (size_t kv = 0; kv < p->kv_heads; kv++)
            worst = fmax(worst, check_key(b, g, j * stride, kv));
    if (g->dtable && stride == 1)
        check_table(b, g);
    checks++;
    return worst;
}

/* ---- bits -------------------------------------------------------------- */

/* The gaps between tokens must be unwritten. */
static void check_gap(const backward *b, const char *what, const uint16_t *x,
                      size_t tokens, size_t width, size_t token)
{
    for (size_t i = 0; i < tokens; i++)
        for (size_t c = width; c < token; c++)
            if (x[i * token + c] != 0x7f7f) {
                FAIL("%s: wrote after the heads of %s of token %zu", b->p.name,
                     what, i);
                return;
            }
}

static void check_gaps(const backward *b, const gradients *g)
{
    const problem *p = &b->p;
    size_t width = p->heads * p->d, kv_width = p->kv_heads * p->d;
    check_gap(b, "dq", g->dq, p->n, width, p->shape.q_token);
    check_gap(b, "dk", g->dk, p->m, kv_width, p->shape.k_token);
    check_gap(b, "dv", g->dv, p->m, kv_width, p->shape.v_token);
    checks++;
}

/* Tokens [0, count) of y equal [first, ...) of x, bit for bit. */
static void check_same(const backward *b, const char *why, const char *what,
                       const uint16_t *x, size_t first, const uint16_t *y,
                       size_t count, size_t width, size_t token)
{
    checks++;
    size_t others = 0, where = 0;
    for (size_t i = count; i-- > 0;)
        if (memcmp(x + (first + i) * token, y + i * token, width * 2)) {
            where = first + i;
            others++;
        }
    if (others)
        FAIL("%s: %s: %s of %zu tokens has other bits, the first one is %zu",
             b->p.name, why, what, others, where);
}

static void check_same_rows(const backward *b, const char *why,
                            const gradients *x, size_t first,
                            const gradients *y, size_t rows)
{
    size_t width = b->p.heads * b->p.d;
    check_same(b, why, "out", x->out, first, y->out, rows, width,
               b->p.shape.out_token);
    check_same(b, why, "lse", (const uint16_t *)x->lse, first,
               (const uint16_t *)y->lse, rows, b->p.heads * 2, b->p.heads * 2);
    check_same(b, why, "dq", x->dq, first, y->dq, rows, width,
               b->p.shape.q_token);
}

static void check_same_keys(const backward *b, const char *why,
                            const gradients *x, size_t first,
                            const gradients *y, size_t keys)
{
    size_t width = b->p.kv_heads * b->p.d;
    check_same(b, why, "dk", x->dk, first, y->dk, keys, width,
               b->p.shape.k_token);
    check_same(b, why, "dv", x->dv, first, y->dv, keys, width,
               b->p.shape.v_token);
}

static void check_same_table(const backward *b, const gradients *x,
                             const gradients *y)
{
    checks++;
    if (x->dtable &&
        memcmp(x->dtable, y->dtable, b->p.bias.count * sizeof(float)))
        FAIL("%s: run again: dtable has other bits", b->p.name);
}

/* ---- hidden values ----------------------------------------------------- */

enum { POISON_Q, POISON_DOUT, POISON_K, POISON_V, POISONS };

static const char *const poison_names[] = { "q", "dout", "k", "v" };

/* Which rows depend on what was poisoned, and which keys on those rows. */
typedef struct taint {
    bool *row, *key;
} taint;

static taint taint_of(const problem *p, const bool *hit, bool of_keys)
{
    taint x = { calloc(p->n + 1, 1), calloc(p->m + 1, 1) };
    for (size_t i = 0; i < p->n; i++) {
        size_t spans;
        const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
        x.row[i] = !of_keys && hit[i] && spans;
        for (size_t s = 0; s < spans; s++)
            for (size_t j = span[s].lo; j < span[s].hi && of_keys; j++)
                x.row[i] |= hit[j];
        for (size_t s = 0; s < spans && x.row[i]; s++)
            memset(x.key + span[s].lo, 1, span[s].hi - span[s].lo);
    }
    return x;
}

/* Tainted tokens are NaN, if that was the poison; others keep their bits. */
static void check_tokens(const backward *b, const char *poison,
                         const char *what, const bool *tainted, bool nan,
                         const uint16_t *clean, const uint16_t *got,
                         size_t tokens, size_t width, size_t token)
{
    for (size_t i = 0; i < tokens; i++)
        for (size_t c = 0; c < width; c++) {
            uint16_t is = got[i * token + c], was = clean[i * token + c];
            bool is_nan = from_bf16(is) != from_bf16(is);
            if (tainted && tainted[i] ? nan && !is_nan : is != was) {
                FAIL("%s: poisoned %s: %s of token %zu column %zu is %04x, was "
                     "%04x",
                     b->p.name, poison, what, i, c, is, was);
                return;
            }
        }
}

/* Poison a few tokens of one input, in all or one of each head's columns. */
static void check_poison(backward *b, const gradients *clean, int which,
                         uint16_t poison, bool one_column)
{
    problem *p = &b->p;
    bool of_keys = which == POISON_K || which == POISON_V;
    uint16_t *x[] = { p->q, b->dout, p->k, p->v };
    size_t token[] = { p->shape.q_token, p->shape.out_token, p->shape.k_token,
                       p->shape.v_token };
    size_t tokens = of_keys ? p->m : p->n;
    size_t width = (of_keys ? p->kv_heads : p->heads) * p->d;
    size_t bytes = tokens * token[which] * 2;
    uint16_t *saved = malloc(bytes);
    bool *hit = calloc(tokens, 1);
    memcpy(saved, x[which], bytes);
    for (size_t few = 0; few < 3; few++) {
        size_t at = below(tokens);
        size_t only = below(p->d);
        hit[at] = true;
        for (size_t c = 0; c < width; c++)
            if (!one_column || c % p->d == only)
                x[which][at * token[which] + c] = poison;
    }
    gradients g = run(b);
    taint t = taint_of(p, hit, of_keys);
    bool nan = from_bf16(poison) != from_bf16(poison);
    const char *name = poison_names[which];
    check_tokens(b, name, "dq", t.row, nan, clean->dq, g.dq, p->n,
                 p->heads * p->d, p->shape.q_token);
    check_tokens(b, name, "dk", t.key, nan, clean->dk, g.dk, p->m,
                 p->kv_heads * p->d, p->shape.k_token);
    // Values do not affect their own gradient.
    check_tokens(b, name, "dv", which == POISON_V ? NULL : t.key, nan,
                 clean->dv, g.dv, p->m, p->kv_heads * p->d, p->shape.v_token);
    checks++;
    gradients_free(&g);
    memcpy(x[which], saved, bytes);
    free(t.row);
    free(t.key);
    free(hit);
    free(saved);
}

/* ---- the cases --------------------------------------------------------- */

/* Two kinds, each of them perhaps inverted, under AND or OR. */
static bauta_mask *make_mixed(size_t n, size_t m)
{
    bauta_mask *part[2];
    for (size_t x = 0; x < 2; x++) {
        size_t kind = below(BT_LEN(kinds));
        while (kinds[kind].square && n != m)
            kind = below(BT_LEN(kinds));
        part[x] = kinds[kind].make(n, m);
        if (below(4) == 0) {
            bauta_error err = { 0 };
            bauta_mask *not = NULL;
            need(bauta_mask_not(&not, part[x], &err), &err);
            bauta_mask_free(part[x]);
            part[x] = not ;
        }
    }
    return both(part[0], part[1], below(2));
}

/* The cases for a race detector: every kernel once, those of the second pass
 * with some work. */
static void check_watched(backward *b)
{
    gradients g = run(b);
    check_accuracy(b, &g, 7);
    check_poison(b, &g, POISON_K, poisons[0], false);
    check_poison(b, &g, POISON_DOUT, poisons[0], false);
    printf("%s\n", b->p.name);
    fflush(stdout);
    gradients_free(&g);
    backward_free(b);
}

static void check_case(const char *kind, make_fn *make, size_t size, size_t d)
{
    char name[96];
    snprintf(name, sizeof(name), "%s_%zux%zu_d%zu%s", kind, sizes[size].n,
             sizes[size].m, d, bias_name(bias_kind));
    backward b = backward_make(name, make(sizes[size].n, sizes[size].m),
                               sizes[size].heads, sizes[size].kv_heads, d,
                               sizes[size].extra);
    problem *p = &b.p;
    if (race_head) {
        check_watched(&b);
        return;
    }
    gradients g = run(&b), again = run(&b);
    check_accuracy(&b, &g, p->n * p->m > 200000 ? 5 : 1);
    check_gaps(&b, &g);
    check_same_rows(&b, "run again", &g, 0, &again, p->n);
    check_same_keys(&b, "run again", &g, 0, &again, p->m);
    check_same_table(&b, &g, &again);
    gradients_free(&again);

    size_t first = below(p->n);
    size_t rows = 1 + below(p->n - first);
    again = run_rows(&b, first, rows, bt_cuda_tile_rows(d));
    check_same_rows(&b, "some of the rows", &g, first, &again, rows);
    gradients_free(&again);
    again = run_rows(&b, 0, p->n, 1 + below(100));
    check_same_rows(&b, "smaller tiles", &g, 0, &again, p->n);
    check_same_keys(&b, "smaller tiles", &g, 0, &again, p->m);
    gradients_free(&again);

    for (int which = 0; which < POISONS; which++)
        for (int once = 0; once < 2; once++)
            check_poison(&b, &g, which,
                         poisons[once ? 0 : below(BT_LEN(poisons))], once);
    gradients_free(&g);
    backward_free(&b);
}

/* Documents, each under its own mask: together, and each alone. */
static void check_packed(size_t d)
{
    static const size_t length[] = { 130, 1, 515, 64, 257, 300 };
    static make_fn *const make[] = { make_causal, make_all,    make_sinks,
                                     make_dense,  make_window, make_dense };
    bauta_mask *parts[BT_LEN(length)], *mask = NULL;
    bauta_error err = { 0 };
    char name[96];
    for (size_t x = 0; x < BT_LEN(length); x++)
        parts[x] = make[x](length[x], length[x]);
    need(bauta_mask_pack(&mask, BT_LEN(length),
                         (const bauta_mask *const *)parts, &err),
         &err);
    snprintf(name, sizeof(name), "packed_d%zu", d);
    backward b = backward_make(name, mask, 4, 2, d, 0);
    gradients g = run(&b);
    check_accuracy(&b, &g, 1);
    size_t at = 0;
    for (size_t x = 0; x < BT_LEN(length); x++) {
        backward one = b;
        one.p.mask = parts[x];
        one.p.n = one.p.m = length[x];
        one.p.q = b.p.q + at * b.p.shape.q_token;
        one.p.k = b.p.k + at * b.p.shape.k_token;
        one.p.v = b.p.v + at * b.p.shape.v_token;
        one.dout = b.dout + at * b.p.shape.out_token;
        one.p.kv_size = one.p.m * b.p.shape.k_token;
        if (b.p.bias.kind) { // the mask of a part knows nothing of the others
            one.p.bias.device_positions += at;
            one.p.bias.device_tensor_rows += at;
        }
        gradients alone = run(&one);
        check_same_rows(&b, "alone", &g, at, &alone, length[x]);
        check_same_keys(&b, "alone", &g, at, &alone, length[x]);
        gradients_free(&alone);
        bauta_mask_free(parts[x]);
        at += length[x];
    }
    gradients_free(&g);
    backward_free(&b);
}

/* Many items for each multiprocessor; not every row or key is checked. */
static void check_long(const char *kind, bauta_mask *mask, size_t heads,
                       size_t kv_heads, size_t d, size_t stride)
{
    char name[96];
    snprintf(name, sizeof(name), "long_%s_%zu_d%zu", kind,
             bauta_mask_queries(mask), d);
    backward b = backward_make(name, mask, heads, kv_heads, d, 0);
    gradients g = run(&b);
    double worst = check_accuracy(&b, &g, stride);
    for (int i = 0; i < 5; i++) { // a race need not show at once
        gradients again = run(&b);
        check_same_rows(&b, "run again", &g, 0, &again, b.p.n);
        check_same_keys(&b, "run again", &g, 0, &again, b.p.m);
        gradients_free(&again);
    }
    printf("%-34s worst error %.2f of the bound\n", name, worst);
    fflush(stdout);
    gradients_free(&g);
    backward_free(&b);
}

/* A document that is split, if heads are not of 64, and the same one with a
 * limit at which it is dense, but too short for that: only dK and dV change. */
static void check_split(size_t heads, size_t kv_heads, size_t d)
{
    size_t before = failures, n = quick ? 500 : 2500;
    backward b =
        backward_make("split", make_prefix(n, n), heads, kv_heads, d, 0);
    size_t bytes = n * b.p.shape.k_token * sizeof(uint16_t);
    gradients split = run(&b);
    check_accuracy(&b, &split, 97);
    for (int i = 0; i < 5; i++) {
        gradients again = run(&b);
        check_same_rows(&b, "run again", &split, 0, &again, n);
        check_same_keys(&b, "run again", &split, 0, &again, n);
        gradients_free(&again);
    }
    dense = n / 2 + 1;
    gradients whole = run(&b);
    dense = 0;
    check_accuracy(&b, &whole, 97);
    check_same_rows(&b, "not split", &split, 0, &whole, n);
    if (d <= 64)
        check_same_keys(&b, "not split", &split, 0, &whole, n);
    else if (memcmp(split.dk, whole.dk, bytes) == 0)
        FAIL("%s: dk is summed in one order", b.p.name);
    gradients_free(&split);
    gradients_free(&whole);
    backward_free(&b);
    printf("split %zu:%-20zu d%-4zu %s\n", heads, kv_heads, d,
           failures == before ? "ok" : "FAILED");
    fflush(stdout);
}

static void check_refusals(void)
{
    bauta_error err = { 0 };
    bauta_mask *mask = make_causal(8, 8);
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bt_cuda_plan *device_plan = plan_of(&shape, false, dense, mask, 0, 8, 8);
    uint16_t *x = to_device(NULL, 0);
    if (bt_attention_backward_bf16_cuda(device_plan, &shape, x, x, x, x,
                                        (float *)x, x, x, x, x, NULL,
                                        &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a plan for the forward pass alone was not refused");
    bt_cuda_plan_free(device_plan);
    device_plan = plan_of(&shape, true, dense, mask, 0, 8, 8);
    if (bt_attention_backward_bf16_cuda(device_plan, &shape, x, x, x, x,
                                        (float *)x, x, x, x + 1, x, NULL,
                                        &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a dk that is not aligned was not refused");
    cudaFree(x);
    bt_cuda_plan_free(device_plan);
    bauta_mask_free(mask);
    checks++;
}

static void check_kind(const mask_kind *k, size_t d, bool few)
{
    size_t before = failures;
    for (size_t s = 0; s < BT_LEN(sizes); s++)
        if (fits(k, s, few))
            check_case(k->name, k->make, s, d);
    if (!few || k->quick)
        printf("%-28s d%-4zu %s\n", k->name, d,
               failures == before ? "ok" : "FAILED");
    fflush(stdout);
}

/* `few`: some small cases only. */
static void check_head(size_t d, bool few)
{
    const mask_kind mixed = { "mixed", make_mixed, false, false };
    for (size_t x = 0; x < BT_LEN(kinds); x++)
        check_kind(&kinds[x], d, few);
    for (size_t x = 0; x < 4; x++)
        check_kind(&mixed, d, few);
    check_packed(d);
    if (few)
        return;
    check_long("causal", make_causal(4129, 4129), 16, 4, d, 211);
    check_long("lengths_with_holes", make_holes(12, 400), 16, 16, d, 23);
    check_long("documents_and_causal", make_documents_causal(5000, 5000), 16,
               16, d, 211);
    // So many rows that heads are processed in several bands.
    check_long("window", make_window(34000, 34000), 7, 7, d, 7919);
}

/* Softcaps and biases, with a few cases of every kind of mask. */
static void check_biases(size_t d)
{
    size_t before = failures;
    for (size_t b = 0; b < BT_LEN(bias_kinds); b++) {
        bias_kind = bias_kinds[b];
        for (size_t x = 0; x < BT_LEN(kinds); x++) {
            size_t s = (b + x) % BT_LEN(sizes);
            if (fits(&kinds[x], s, false) && (!quick || (b + x) % 4 == 0))
                check_case(kinds[x].name, kinds[x].make, s, d);
        }
        bias_kind |= BIAS_POSITIONS;
        check_packed(d);
        bias_kind = bias_kinds[b];
        if (!quick && !(bias_kind & BIAS_TENSOR))
            check_long("biased", make_causal(4129, 4129), 16, 4, d, 211);
    }
    bias_kind = BIAS_NONE;
    printf("softcaps and biases          d%-4zu %s\n", d,
           failures == before ? "ok" : "FAILED");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const size_t part[] = { 8, 40, 72, 96, 120, 136, 200, 248 };
    check_begin(argc, argv);
    if (race_head) {
        bias_kind = BIAS_CAP | BIAS_TABLE;
        for (size_t x = 0; x < BT_LEN(kinds); x++)
            check_kind(&kinds[x], race_head, true);
        bias_kind = BIAS_NONE;
        for (size_t x = 0; x < BT_LEN(kinds); x++)
            check_kind(&kinds[x], race_head, true);
        dense = 0;
        for (size_t x = 0; x < BT_LEN(kinds); x++)
            check_kind(&kinds[x], race_head, true);
        return check_end();
    }
    for (size_t d = 64; d <= 256; d += 64)
        check_biases(d == 192 ? 184 : d);
    for (size_t d = 64; d <= 256; d += 64)
        check_head(d, quick);
    for (size_t i = 0; i < BT_LEN(part); i++)
        if (!quick || part[i] == 96)
            check_head(part[i], true);
    check_refusals();
    // All documents by one kernel, split where that may be; then those that are
    // seen by 100 queries on average, and others by two.
    dense = 0;
    for (size_t d = 64; d <= 256; d += d < 128 ? 32 : 64) {
        // The reference takes most of the time, above all with large heads.
        check_head(d, quick || d > 128);
        if (!quick && d > 128)
            check_long("causal", make_causal(4129, 4129), 16, 4, d, 211);
        check_split(16, 4, d);
        check_split(15, 3, d);
        check_split(14, 2, d);
        check_split(6, 1, d);
    }
    check_head(40, true);
    check_head(152, true);
    check_head(216, true);
    dense = 100;
    for (size_t d = 64; d <= 256; d += 64) {
        check_head(d, true);
        for (size_t x = 0; x < 4 && !quick; x++)
            check_packed(d);
    }
    return check_end();
}
