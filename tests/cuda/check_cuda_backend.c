/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_backend.c - every operation of the table of backend.h on a GPU.
 *
 * Each case runs on the GPU and on the CPU with the same numbers, in float32
 * and, rounded to bfloat16, in bfloat16. In float32 the operations for which
 * ops.h and gemm_f32.h promise the CPU's bits must have them. Elsewhere a
 * result may differ by the roundings that are counted beside the case. Then
 * rows alone must have the bits that they have in the batch, and keys that went
 * through pages in several steps those of the forward pass.
 *
 * The accuracy of the kernels is the subject of check_cuda_ops and its
 * neighbours; here it is that the table reaches them with the right
 * arguments. */
#include "backend/block_table.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/driver.h"
#include "checking.h"

/* ---- A case -------------------------------------------------------------- */

enum { BUFFERS_MOST = 256, RESULTS_MOST = 16 };

/* What an operation gave, as float32. */
typedef struct result {
    const char *name;
    size_t rows, columns;
    bool by_row; /* a row depends on this row alone */
    float *x;
} result;

typedef struct side {
    bt_stream *stream;
    bauta_dtype dtype;   /* of activations on this side */
    bool rounds;         /* numbers are rounded to bfloat16 */
    size_t first, count; /* rows that are computed; count SIZE_MAX: all */
    bt_buffer buffers[BUFFERS_MOST];
    bt_tensor tensors[BUFFERS_MOST];
    size_t used;
    result results[RESULTS_MOST];
    size_t result_count;
    double bound; /* relative to the largest number, see compare() */
} side;

static bt_stream *cuda, *cpu;

#define MUST(call)                       \
    do {                                 \
        bauta_error must_err = { 0 };    \
        bauta_error *err = &must_err;    \
        bauta_status must_status = call; \
        need(must_status, &must_err);    \
    } while (0)

#define RUN(s, op, ...)            \
    MUST((s)->stream->backend->op( \
        (s)->stream, &(const bt_##op##_args){ __VA_ARGS__ }, err))

/* Random numbers in [-size, size), the same on both sides. */
static float *numbers(const side *s, size_t count, float size)
{
    float *x = malloc((count + 1) * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        x[i] = test_float(&random_stream) * size;
        if (s->rounds)
            x[i] = from_bf16(to_bf16(x[i]));
    }
    return x;
}

/* A tensor of any type with rows `extra` elements further apart than needed. */
static bt_tensor *place(side *s, bauta_dtype dtype, size_t rows, size_t columns,
                        size_t extra, const void *from)
{
    if (s->used == BUFFERS_MOST)
        exit(2);
    bt_buffer *buffer = &s->buffers[s->used];
    bt_tensor *t = &s->tensors[s->used++];
    size_t stride = columns + extra;
    size_t bytes = rows * stride * bt_dtype_size(dtype);
    MUST(s->stream->backend->alloc(s->stream, buffer, bytes, err));
    MUST(s->stream->backend->fill(s->stream, buffer, 0, 0xff, bytes, err));
    *t = bt_tensor_of(buffer, dtype, rows, columns);
    t->stride = stride;
    if (from)
        MUST(bt_tensor_upload(s->stream, t, from, err));
    return t;
}

static bt_tensor *floats(side *s, bauta_dtype dtype, size_t rows,
                         size_t columns, size_t extra, const float *x)
{
    size_t count = rows * columns;
    if (!x)
        return place(s, dtype, rows, columns, extra, NULL);
    void *as = malloc(count * 4 + 1);
    bt_convert_from_f32(as, dtype, x, count);
    bt_tensor *t = place(s, dtype, rows, columns, extra, as);
    free(as);
    return t;
}

/* Random activations and weights of the side's type. */
static bt_tensor *input(side *s, size_t rows, size_t columns, float size)
{
    float *x = numbers(s, rows * columns, size);
    bt_tensor *t = floats(s, s->dtype, rows, columns, 0, x);
    free(x);
    return t;
}

static size_t slice_rows(const side *s, size_t rows)
{
    return s->count == SIZE_MAX ? rows : s->count;
}

/* The rows of a tensor that the side computes. */
static bt_tensor *slice(side *s, bt_tensor *t)
{
    if (s->count != SIZE_MAX)
        *t = bt_tensor_rows(t, s->first, s->count);
    return t;
}

static bt_tensor *rows_input(side *s, size_t rows, size_t columns, float size)
{
    return slice(s, input(s, rows, columns, size));
}

/* Room for the rows that the side computes. */
static bt_tensor *rows_output(side *s, size_t rows, size_t columns)
{
    return place(s, s->dtype, slice_rows(s, rows), columns, 0, NULL);
}

static bt_tensor *words(side *s, size_t rows, size_t limit)
{
    uint32_t *x = malloc(rows * 4 + 1);
    for (size_t i = 0; i < rows; i++)
        x[i] = (uint32_t)below(limit);
    bt_tensor *t = place(s, BAUTA_UINT32, rows, 1, 0, x);
    free(x);
    return t;
}

static void keep(side *s, const char *name, const bt_tensor *t, bool by_row)
{
    size_t count = t->rows * t->columns;
    void *raw = malloc(count * 8 + 1);
    float *x = malloc(count * 4 + 1);
    MUST(bt_tensor_download(s->stream, raw, t, err));
    if (t->dtype == BAUTA_FLOAT64)
        for (size_t i = 0; i < count; i++)
            x[i] = (float)((double *)raw)[i];
    else
        bt_convert_f32(x, raw, t->dtype, count);
    free(raw);
    s->results[s->result_count++] =
        (result){ name, t->rows, t->columns, by_row, x };
}

static void side_clear(side *s)
{
    MUST(s->stream->backend->sync(s->stream, err));
    for (size_t i = 0; i < s->used; i++)
        s->stream->backend->free(&s->buffers[i]);
    for (size_t i = 0; i < s->result_count; i++)
        free(s->results[i].x);
    s->used = s->result_count = 0;
}

/* ---- Comparison ---------------------------------------------------------- */

static bool same_bits(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], 4) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static double largest_of(const float *x, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(x[i]))
            largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* |got - want| <= (rounding of the type) |want| + bound (largest of the row, or
 * of all where a result is a sum over rows). */
static void compare(const char *what, const side *got, const side *want,
                    bool exact)
{
    double rounding = got->rounds ? 0x1p-8 : 0x1p-22;
    for (size_t r = 0; r < got->result_count; r++) {
        const result *g = &got->results[r], *w = &want->results[r];
        checks++;
        if (exact) {
            if (!same_bits(g->x, w->x, g->rows * g->columns))
                FAIL("%s: %s is not the CPU's to the bit", what, g->name);
            continue;
        }
        double all = largest_of(w->x, g->rows * g->columns);
        for (size_t i = 0; i < g->rows; i++) {
            const float *x = g->x + i * g->columns, *y = w->x + i * g->columns;
            double largest = g->by_row ? largest_of(y, g->columns) : all;
            double worst = 0;
            for (size_t j = 0; j < g->columns; j++) {
                double bound =
                    rounding * fabs((double)y[j]) + got->bound * largest;
                double error = fabs((double)x[j] - (double)y[j]);
                if (!(error <= bound) && !(isinf(x[j]) && x[j] == y[j]))
                    worst = fmax(worst, isnan(error) ? 1e30 : error);
            }
            if (worst > 0) {
                FAIL("%s: %s, row %zu of %zu: %g off, the largest is %g", what,
                     g->name, i, g->rows, worst, largest);
                break;
            }
        }
    }
}

static void compare_rows(const char *what, const side *part, const side *all)
{
    for (size_t r = 0; r < part->result_count; r++) {
        const result *p = &part->results[r], *a = &all->results[r];
        size_t rows = a->rows ? p->rows : 0;
        if (!p->by_row)
            continue;
        checks++;
        // Results of heads have several rows for each one of the batch.
        size_t per = part->count ? rows / part->count : 0;
        if (!same_bits(p->x, a->x + part->first * per * a->columns,
                       rows * p->columns))
            FAIL("%s: %s of rows %zu to %zu is another than in the batch", what,
                 p->name, part->first, part->first + part->count - 1);
    }
}

/* An operation with its inputs and outputs. */
typedef void case_fn(side *s);

typedef struct op_case {
    const char *name;
    case_fn *run;
    size_t rows;
    bool exact; /* the CPU's bits in float32 */
    double bound_f32, bound_bf16;
} op_case;

static void run_side(side *s, const op_case *c, test_random seed)
{
    random_stream = seed;
    s->bound = s->rounds ? c->bound_bf16 : c->bound_f32;
    c->run(s);
}

static void run_case(const op_case *c, bool low)
{
    static side gpu, host, part;
    test_random seed = random_stream;
    gpu = (side){ .stream = cuda,
                  .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                  .rounds = low,
                  .count = SIZE_MAX };
    host = (side){
        .stream = cpu, .dtype = BAUTA_FLOAT32, .rounds = low, .count = SIZE_MAX
    };
    char what[64];
    snprintf(what, sizeof(what), "%s in %s", c->name,
             low ? "bfloat16" : "float32");
    run_side(&gpu, c, seed);
    run_side(&host, c, seed);
    compare(what, &gpu, &host, c->exact && !low);
    for (int i = 0; i < 3 && c->rows; i++) {
        part = gpu;
        part.used = part.result_count = 0;
        part.count = i == 0 ? 1 : 1 + below(c->rows);
        part.first = below(c->rows - part.count + 1);
        test_random after = random_stream;
        run_side(&part, c, seed);
        random_stream = after;
        compare_rows(what, &part, &gpu);
        side_clear(&part);
    }
    side_clear(&gpu);
    side_clear(&host);
}

/* ---- Products ------------------------------------------------------------ */

enum { ROWS = 131, WIDE = 200, TALL = 136 };

/* Sums of WIDE products: in bfloat16 the tensor cores cut the terms of a step
 * at 2^-23 of the largest, so that WIDE 2^-22 of the sum of magnitudes covers
 * them; that sum is at most about 40 times the largest result here. */
static void linear(side *s)
{
    bt_tensor *x = rows_input(s, ROWS, WIDE, 1.0f);
    for (int transposed = 0; transposed < 2; transposed++) {
        bt_tensor *w = transposed ? input(s, WIDE, TALL, 0.3f)
                                  : input(s, TALL, WIDE, 0.3f);
        bt_tensor *bias = input(s, 1, TALL, 1.0f);
        bt_tensor *y = rows_output(s, ROWS, TALL);
        bt_linear_layer layer = { w, transposed ? NULL : bias, y };
        RUN(s, linear, .x = x, .count = 1, .layers = &layer,
            .transposed = transposed);
        keep(s, transposed ? "y of x W" : "y of x W^T", y, true);
    }
}

/* Three layers side by side in memory are one product, with the same bits as
 * one at a time. */
static void linears(side *s)
{
    const size_t widths[] = { 64, 32, 40 };
    for (int transposed = 0; transposed < 2; transposed++) {
        bt_tensor *x = rows_input(s, ROWS, WIDE, 1.0f);
        bt_tensor *w = transposed ? input(s, WIDE, TALL, 0.3f)
                                  : input(s, TALL, WIDE, 0.3f);
        bt_tensor *bias = input(s, 1, TALL, 1.0f);
        bt_tensor *y = rows_output(s, ROWS, TALL);
        bt_tensor *apart = rows_output(s, ROWS, TALL);
        bt_tensor ws[3], biases[3], ys[3], alone[3];
        bt_linear_layer layers[3];
        for (size_t i = 0, at = 0; i < 3; at += widths[i++]) {
            ws[i] = *w;
            ws[i].offset += transposed ? at : at * w->stride;
            *(transposed ? &ws[i].columns : &ws[i].rows) = widths[i];
            biases[i] = *bias;
            biases[i].offset += at;
            biases[i].columns = widths[i];
            ys[i] = *y;
            ys[i].offset += at;
            ys[i].columns = widths[i];
            alone[i] = *apart;
            alone[i].offset += at;
            alone[i].columns = widths[i];
            layers[i] = (bt_linear_layer){ &ws[i], &biases[i], &ys[i] };
        }
        RUN(s, linear, .x = x, .count = 3, .layers = layers,
            .transposed = transposed);
        for (size_t i = 0; i < 3; i++) {
            layers[i].y = &alone[i];
            RUN(s, linear, .x = x, .count = 1, .layers = &layers[i],
                .transposed = transposed);
        }
        keep(s, "y of several layers", y, true);
        keep(s, "y of one layer after the other", apart, true);
        const result *r = &s->results[s->result_count - 2];
        checks++;
        if (!same_bits(r[0].x, r[1].x, r->rows * r->columns))
            FAIL("several layers at once differ from one after the other");
    }
}

/* A vocabulary that is no multiple of 8, dense and with a stride that is, and
 * float32 logits. */
static void linear_odd(side *s)
{
    bt_tensor *x = rows_input(s, ROWS, 48, 1.0f);
    bt_tensor *w = input(s, 77, 48, 0.3f);
    bt_tensor *dense = rows_output(s, ROWS, 77);
    bt_tensor *strided = place(s, s->dtype, slice_rows(s, ROWS), 77, 3, NULL);
    bt_tensor *wide = place(s, BAUTA_FLOAT32, slice_rows(s, ROWS), 77, 0, NULL);
    bt_tensor *const ys[] = { dense, strided, wide };
    const char *const names[] = { "dense", "strided", "float32" };
    for (int i = 0; i < 3; i++) {
        bt_linear_layer layer = { w, NULL, ys[i] };
        RUN(s, linear, .x = x, .count = 1, .layers = &layer);
        keep(s, names[i], ys[i], true);
    }
    bt_tensor *dx = rows_output(s, ROWS, 48);
    RUN(s, linear_dx, .dy = dense, .w = w, .dx = dx);
    keep(s, "dx", dx, true);
}

static void linear_dx(side *s)
{
    bt_tensor *dy = rows_input(s, ROWS, TALL, 1.0f);
    for (int i = 0; i < 4; i++) {
        bool transposed = i % 2, add = i / 2;
        bt_tensor *w = transposed ? input(s, WIDE, TALL, 0.3f)
                                  : input(s, TALL, WIDE, 0.3f);
        bt_tensor *dx = rows_input(s, ROWS, WIDE, 1.0f);
        RUN(s, linear_dx, .dy = dy, .w = w, .dx = dx, .transposed = transposed,
            .add = add);
        keep(s, add ? "dx, added" : "dx", dx, true);
    }
}

static void linear_dw(side *s)
{
    bt_tensor *x = input(s, ROWS, WIDE, 1.0f);
    bt_tensor *dy = input(s, ROWS, TALL, 1.0f);
    for (int i = 0; i < 4; i++) {
        bool transposed = i % 2, add = i / 2;
        size_t rows = transposed ? WIDE : TALL;
        size_t columns = transposed ? TALL : WIDE;
        float *start = numbers(s, rows * columns, 1.0f);
        bt_tensor *dw = floats(s, BAUTA_FLOAT32, rows, columns, 0, start);
        free(start);
        RUN(s, linear_dw, .x = x, .dy = dy, .dw = dw, .transposed = transposed,
            .add = add);
        keep(s, add ? "dW, added" : "dW", dw, false);
    }
    bt_tensor *dbias = floats(s, BAUTA_FLOAT32, 1, TALL, 0, NULL);
    RUN(s, sum_rows, .x = dy, .to = dbias);
    keep(s, "dbias", dbias, false);
    RUN(s, sum_rows, .x = dy, .to = dbias, .add = true);
    keep(s, "dbias, added", dbias, false);
}

/* The float32 ones that have the CPU's bits. */
static void linear_dw_exact(side *s)
{
    bt_tensor *x = input(s, 700, 33, 1.0f);
    bt_tensor *dy = input(s, 700, 45, 1.0f);
    float *start = numbers(s, 45 * 33, 1.0f);
    bt_tensor *dw = floats(s, BAUTA_FLOAT32, 45, 33, 5, start);
    free(start);
    RUN(s, linear_dw, .x = x, .dy = dy, .dw = dw, .add = true);
    keep(s, "dW", dw, false);
}

/* ---- Elements and rows --------------------------------------------------- */

static void embedding(side *s)
{
    bt_tensor *table = input(s, 50, 96, 1.0f);
    bt_tensor *ids = slice(s, words(s, ROWS, 50));
    bt_tensor *y = rows_output(s, ROWS, 96);
    RUN(s, embedding, .table = table, .ids = ids, .y = y, .scale = 1.25f);
    keep(s, "y", y, true);
    float *x = numbers(s, (size_t)50 * 96, 1.0f);
    bt_tensor *wide = floats(s, BAUTA_FLOAT32, 50, 96, 0, x);
    free(x);
    RUN(s, embedding, .table = wide, .ids = ids, .y = y, .scale = 0.5f);
    keep(s, "y of a float32 table", y, true);
}

static void embedding_grad(side *s)
{
    bt_tensor *ids = words(s, ROWS, 50);
    bt_tensor *dy = input(s, ROWS, 96, 1.0f);
    float *start = numbers(s, (size_t)50 * 96, 1.0f);
    bt_tensor *dtable = floats(s, BAUTA_FLOAT32, 50, 96, 0, start);
    free(start);
    for (int add = 1; add >= 0; add--) {
        RUN(s, embedding_grad, .dy = dy, .dtable = dtable, .ids = ids,
            .scale = 0.5f, .padding_id = 3, .add = add);
        keep(s, add ? "dtable, added" : "dtable", dtable, false);
    }
}

static void norm(side *s)
{
    for (int i = 0; i < 3; i++) {
        size_t heads = i == 2 ? 4 : 1, width = 192 / heads;
        bt_norm_kind kind = i == 0 ? BT_NORM_LAYER : BT_NORM_RMS;
        bt_tensor *x = rows_input(s, ROWS, 192, 2.0f);
        bt_tensor *gain = input(s, 1, width, 1.0f);
        bt_tensor *bias = i == 0 ? input(s, 1, width, 1.0f) : NULL;
        size_t rows = slice_rows(s, ROWS);
        bt_tensor *y = rows_output(s, ROWS, 192);
        bt_tensor *mean = floats(s, BAUTA_FLOAT32, rows * heads, 1, 0, NULL);
        bt_tensor *scale = floats(s, BAUTA_FLOAT32, rows * heads, 1, 0, NULL);
        RUN(s, norm, .kind = kind, .epsilon = 1e-5f, .heads = heads, .x = x,
            .gain = gain, .bias = bias, .y = y, .mean = mean, .scale = scale);
        keep(s, "y", y, true);
        keep(s, "scale", scale, true);
    }
}

static void norm_grad(side *s)
{
    for (int add = 0; add < 2; add++) {
        bt_tensor *x = rows_input(s, ROWS, 192, 2.0f);
        bt_tensor *gain = input(s, 1, 192, 1.0f);
        bt_tensor *dy = rows_input(s, ROWS, 192, 1.0f);
        bt_tensor *dx = rows_input(s, ROWS, 192, 1.0f);
        size_t rows = slice_rows(s, ROWS);
        bt_tensor *y = rows_output(s, ROWS, 192);
        bt_tensor *mean = floats(s, BAUTA_FLOAT32, rows, 1, 0, NULL);
        bt_tensor *scale = floats(s, BAUTA_FLOAT32, rows, 1, 0, NULL);
        float *start = numbers(s, 192, 1.0f);
        bt_tensor *dgain = floats(s, BAUTA_FLOAT32, 1, 192, 0, start);
        bt_tensor *dbias = floats(s, BAUTA_FLOAT32, 1, 192, 0, start);
        free(start);
        RUN(s, norm, .kind = BT_NORM_LAYER, .epsilon = 1e-5f, .heads = 1,
            .x = x, .gain = gain, .y = y, .mean = mean, .scale = scale);
        RUN(s, norm_grad, .kind = BT_NORM_LAYER, .epsilon = 1e-5f, .heads = 1,
            .x = x, .gain = gain, .mean = mean, .scale = scale, .dy = dy,
            .dx = dx, .dgain = dgain, .dbias = dbias, .add_dx = add,
            .add_dgain = add, .add_dbias = add);
        keep(s, add ? "dx, added" : "dx", dx, true);
        keep(s, "dgain", dgain, false);
        keep(s, "dbias", dbias, false);
    }
}

static void act(side *s)
{
    for (int i = 0; i < 4; i++) {
        bt_tensor *x = rows_input(s, ROWS, 72, 4.0f);
        bt_tensor *up = i % 2 ? rows_input(s, ROWS, 72, 1.0f) : NULL;
        bt_tensor *y = rows_output(s, ROWS, 72);
        RUN(s, act, .act = (bt_act)i, .x = x, .up = up, .y = y);
        keep(s, "y", y, true);
    }
}

static void act_grad(side *s)
{
    for (int i = 0; i < 3; i++) {
        bt_act kind = i == 0 ? BT_ACT_GELU_TANH : BT_ACT_SILU;
        bt_tensor *x = rows_input(s, ROWS, 72, 4.0f);
        bt_tensor *up = i ? rows_input(s, ROWS, 72, 1.0f) : NULL;
        bt_tensor *dy = rows_input(s, ROWS, 72, 1.0f);
        bt_tensor *dx = i == 2 ? NULL : rows_input(s, ROWS, 72, 1.0f);
        bt_tensor *dup = i ? rows_input(s, ROWS, 72, 1.0f) : NULL;
        RUN(s, act_grad, .act = kind, .x = x, .up = up, .dy = dy, .dx = dx,
            .dup = dup, .add_dx = i == 1, .add_dup = i == 2);
        if (dx)
            keep(s, "dx", dx, true);
        if (dup)
            keep(s, "dup", dup, true);
    }
}

static void rotary(side *s)
{
    float frequencies[32];
    for (int i = 0; i < 32; i++)
        frequencies[i] = (float)pow(10000.0, -i / 32.0);
    bt_tensor *f = floats(s, BAUTA_FLOAT32, 1, 32, 0, frequencies);
    for (int i = 0; i < 3; i++) {
        bt_tensor *x = rows_input(s, ROWS, (size_t)64 * 3, 1.0f);
        bt_tensor *y = rows_input(s, ROWS, (size_t)64 * 3, 1.0f);
        bt_tensor *positions = slice(s, words(s, ROWS, 5000));
        RUN(s, rotary, .heads = 3, .x = x, .y = y, .positions = positions,
            .frequencies = f, .back = i > 0, .add = i > 1);
        keep(s, "y", y, true);
    }
}

static void sums(side *s)
{
    bt_tensor *a = rows_input(s, ROWS, 75, 1.0f);
    bt_tensor *b = rows_input(s, ROWS, 75, 1.0f);
    bt_tensor *y = rows_output(s, ROWS, 75);
    RUN(s, add, .a = a, .b = b, .y = y);
    keep(s, "y", y, true);
    RUN(s, accumulate, .x = a, .to = y, .add = true);
    keep(s, "accumulated", y, true);
    bt_tensor *wide = floats(s, BAUTA_FLOAT32, y->rows, 75, 0, NULL);
    RUN(s, accumulate, .x = y, .to = wide);
    keep(s, "converted", wide, true);
}

static void scatter_add(side *s)
{
    uint32_t index[20];
    for (uint32_t i = 0; i < 20; i++)
        index[i] = (i * 7 + 3) % ROWS;
    bt_tensor *x = input(s, 20, 75, 1.0f);
    bt_tensor *to = input(s, ROWS, 75, 1.0f);
    bt_tensor *at = place(s, BAUTA_UINT32, 20, 1, 0, index);
    RUN(s, scatter_add, .x = x, .to = to, .index = at);
    keep(s, "to", to, false);
}

static void dropout(side *s)
{
    uint64_t tokens[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        tokens[i] = (uint64_t)test_u32(&random_stream) << 8;
    bt_tensor *keys = slice(s, place(s, BAUTA_UINT64, ROWS, 1, 0, tokens));
    for (int add = 0; add < 2; add++) {
        bt_tensor *x = rows_input(s, ROWS, 75, 1.0f);
        bt_tensor *y = rows_input(s, ROWS, 75, 1.0f);
        RUN(s, dropout, .x = x, .y = y, .tokens = keys, .rate = 0.25f,
            .seed = 12345, .site = 7, .add = add);
        keep(s, add ? "y, added" : "y", y, true);
    }
}

/* ---- Loss ---------------------------------------------------------------- */

static void cross_entropy(side *s)
{
    for (int i = 0; i < 2; i++) {
        size_t rows = slice_rows(s, ROWS);
        bt_tensor *z = rows_input(s, ROWS, 1000, 6.0f);
        bt_tensor *labels = slice(s, words(s, ROWS, 1000));
        float *weights = numbers(s, ROWS, 1.0f);
        bt_tensor *w = slice(s, floats(s, BAUTA_FLOAT32, ROWS, 1, 0, weights));
        free(weights);
        bt_tensor *losses = place(s, BAUTA_FLOAT64, rows, 1, 0, NULL);
        RUN(s, cross_entropy, .logits = z, .labels = labels,
            .weights = i ? w : NULL, .smoothing = i ? 0.1 : 0.0, .share = 0.01,
            .gradient = true, .losses = losses);
        keep(s, "dlogits", z, true);
        keep(s, "losses", losses, true);
    }
    bt_tensor *z = rows_input(s, ROWS, 1000, 6.0f);
    bt_tensor *labels = slice(s, words(s, ROWS, 1000));
    bt_tensor *logprobs =
        floats(s, BAUTA_FLOAT32, slice_rows(s, ROWS), 1, 0, NULL);
    RUN(s, logprobs, .logits = z, .labels = labels, .logprobs = logprobs);
    keep(s, "logprobs", logprobs, true);
}

/* ---- Optimizer ----------------------------------------------------------- */

/* Two parameters and three steps. On the GPU in bfloat16 they have masters,
 * which must have the CPU's bits, and of which they are the rounded copies. */
static void adamw(side *s)
{
    const size_t sizes[2][2] = { { 100, 700 }, { 1, 333 } };
    bt_optimizer_options options = BT_OPTIMIZER_OPTIONS_INIT;
    bt_adamw_slot slots[2];
    bt_tensor *masters[2], *grads[2];
    bool low = s->dtype == BAUTA_BFLOAT16;
    options.max_grad_norm = 1.0;
    memset(slots, 0, sizeof(slots));
    for (int i = 0; i < 2; i++) {
        size_t rows = sizes[i][0], columns = sizes[i][1], n = rows * columns;
        float *x = numbers(s, n, 1.0f), *g = numbers(s, n, 0.1f);
        float *zeros = calloc(n, sizeof(float));
        masters[i] = floats(s, BAUTA_FLOAT32, rows, columns, 0, x);
        grads[i] = floats(s, BAUTA_FLOAT32, rows, columns, 0, g);
        bt_tensor *p =
            low ? floats(s, BAUTA_BFLOAT16, rows, columns, 0, x) : masters[i];
        p->grad = grads[i]->buffer;
        p->grad_dtype = BAUTA_FLOAT32;
        slots[i].parameter = p;
        if (low)
            slots[i].master = *masters[i];
        slots[i].first = *floats(s, BAUTA_FLOAT32, rows, columns, 0, zeros);
        slots[i].second = *floats(s, BAUTA_FLOAT32, rows, columns, 0, zeros);
        slots[i].decay = i == 0;
        free(x);
        free(g);
        free(zeros);
    }
    float norms[3];
    for (size_t step = 1; step <= 3; step++) {
        double value = 0;
        RUN(s, adamw, .slots = slots, .count = 2, .options = &options,
            .learning_rate = 0.01, .step = step, .norm = &value);
        norms[step - 1] = (float)value;
    }
    keep(s, "p", masters[0], false);
    keep(s, "second p", masters[1], false);
    keep(s, "second moment", &slots[0].second, false);
    bt_tensor *seen = floats(s, BAUTA_FLOAT32, 1, 3, 0, norms);
    keep(s, "norms", seen, false);
    if (low) {
        keep(s, "copy", slots[0].parameter, false);
        const result *copy = &s->results[--s->result_count];
        const float *master = s->results[0].x;
        checks++;
        for (size_t i = 0; i < copy->rows * copy->columns; i++)
            if (copy->x[i] != from_bf16(to_bf16(master[i]))) {
                FAIL("adamw: the copy is not the rounded master at %zu", i);
                break;
            }
        free(copy->x);
    }
    RUN(s, ema, .average = masters[0], .x = grads[0], .keep = 0.9f,
        .take = 0.1f);
    keep(s, "average", masters[0], false);
    RUN(s, swap, .a = masters[0], .b = grads[0]);
    keep(s, "swapped", masters[0], false);
}

/* ---- Attention ----------------------------------------------------------- */

/* Packed sequences. Of a slice only the sequence `first` is computed. */
enum { SEQUENCES = 4, HEADS = 4, KV_HEADS = 2 };
static const size_t lengths[SEQUENCES] = { 70, 1, 200, 33 };
static size_t head_dim = 64;

/* Weights and their gradients are rounded to bfloat16 for the products with
 * them, 2^-9 relative each, which the bound of 2^-5 of the largest covers. */
static void attention_of(side *s, size_t window)
{
    bool one = s->count != SIZE_MAX;
    size_t first = one ? s->first : 0, count = one ? 1 : SEQUENCES;
    size_t before = 0, tokens = 0, all = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        before += i < first ? lengths[i] : 0;
        tokens += i >= first && i < first + count ? lengths[i] : 0;
        all += lengths[i];
    }
    size_t q_columns = HEADS * head_dim, k_columns = KV_HEADS * head_dim;
    bt_tensor *in[4], *out[4];
    for (int i = 0; i < 4; i++) {
        size_t columns = i == 0 || i == 3 ? q_columns : k_columns;
        in[i] = input(s, all, columns, 1.0f);
        *in[i] = bt_tensor_rows(in[i], before, tokens);
        out[i] = place(s, s->dtype, tokens, columns, 0, NULL);
    }
    bt_tensor *lse = floats(s, BAUTA_FLOAT32, tokens, HEADS, 0, NULL);
    bt_batch_mask mask = { .queries = { count, lengths + first, 0 },
                           .keys = { count, lengths + first, 0 },
                           .causal = true,
                           .window = window };
    bt_attention_plan *plan = NULL;
    MUST(s->stream->backend->plan_build(s->stream, &plan, &mask,
                                        BT_PLAN_BACKWARD, err));
    RUN(s, attention, .plan = plan, .heads = HEADS, .kv_heads = KV_HEADS,
        .q = in[0], .k = in[1], .v = in[2], .out = out[3], .lse = lse);
    bt_tensor *result_out = out[3];
    RUN(s, attention_grad, .plan = plan, .heads = HEADS, .kv_heads = KV_HEADS,
        .q = in[0], .k = in[1], .v = in[2], .out = result_out, .lse = lse,
        .dout = in[3], .dq = out[0], .dk = out[1], .dv = out[2]);
    keep(s, "out", out[3], false);
    keep(s, "lse", lse, false);
    keep(s, "dq", out[0], false);
    keep(s, "dk", out[1], false);
    keep(s, "dv", out[2], false);
    s->stream->backend->plan_free(plan);
}

static void attention(side *s)
{
    attention_of(s, 0);
}

static void attention_window(side *s)
{
    attention_of(s, 40);
}

/* A sequence alone has the bits that it has in the batch. */
static void check_sequences_alone(bool low, case_fn *run, const char *what)
{
    static side all, one;
    test_random seed = random_stream;
    all = (side){ .stream = cuda,
                  .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                  .rounds = low,
                  .count = SIZE_MAX };
    run(&all);
    for (size_t i = 0, row = 0; i < SEQUENCES; row += lengths[i++]) {
        one = (side){ .stream = cuda,
                      .dtype = all.dtype,
                      .rounds = low,
                      .first = i,
                      .count = 1 };
        random_stream = seed;
        run(&one);
        for (size_t r = 0; r < all.result_count; r++) {
            const result *a = &all.results[r], *o = &one.results[r];
            checks++;
            if (!same_bits(o->x, a->x + row * a->columns, o->rows * o->columns))
                FAIL("%s of %zu in %s: %s of sequence %zu alone is another "
                     "than in the batch",
                     what, head_dim, low ? "bfloat16" : "float32", a->name, i);
        }
        side_clear(&one);
    }
    side_clear(&all);
}

/* ---- Pages --------------------------------------------------------------- */

enum { LAYERS = 2, PAGED = 3, TOKENS = 300 };

typedef struct paged {
    bt_tensor *q[LAYERS], *k[LAYERS], *v[LAYERS], *out[LAYERS];
    bt_block_table tables[PAGED];
    bt_attention_plan *plan;
    bool rotary; /* queries and keys are rotated, while keys are written */
} paged;

static bt_tensor *frequencies_of(side *s)
{
    float x[128];
    for (size_t i = 0; i < head_dim / 2; i++)
        x[i] = powf(100.0f, -(float)i / (float)head_dim);
    return floats(s, BAUTA_FLOAT32, 1, head_dim / 2, 0, x);
}

/* Rows of sequences that begin at a token. */
static bt_tensor *positions_of(side *s, const size_t *from, const size_t *rows)
{
    uint32_t x[PAGED * TOKENS];
    size_t total = 0;
    for (size_t i = 0; i < PAGED; i++)
        for (size_t r = 0; r < rows[i]; r++)
            x[total++] = (uint32_t)(from[i] + r);
    return place(s, BAUTA_UINT32, total, 1, 0, x);
}

/* Rows of all sequences, each of TOKENS tokens, one after the other; those of
 * a step are gathered on the host's side of things: by copies of rows. */
static bt_tensor *gather(side *s, const bt_tensor *t, const size_t *from,
                         const size_t *rows)
{
    size_t total = 0;
    for (size_t i = 0; i < PAGED; i++)
        total += rows[i];
    bt_tensor *to = place(s, s->dtype, total, t->columns, 0, NULL);
    total = 0;
    for (size_t i = 0; i < PAGED; i++) {
        bt_tensor a = bt_tensor_rows(t, i * TOKENS + from[i], rows[i]);
        bt_tensor b = bt_tensor_rows(to, total, rows[i]);
        RUN(s, accumulate, .x = &a, .to = &b);
        total += rows[i];
    }
    return to;
}

static void paged_step(side *s, paged *p, const size_t *rows, size_t window)
{
    bt_kv_sequence parts[PAGED];
    size_t from[PAGED], keys[PAGED], total = 0;
    bt_block_table *all[PAGED];
    for (size_t i = 0; i < PAGED; i++) {
        from[i] = p->tables[i].tokens;
        keys[i] = from[i] + rows[i];
        parts[i] = (bt_kv_sequence){ &p->tables[i], total, rows[i] };
        total += rows[i];
        all[i] = &p->tables[i];
        MUST(bt_block_table_alloc(&p->tables[i], s->stream, rows[i], err));
    }
    MUST(bt_block_tables_commit(all, PAGED, s->stream, err));
    bt_kv_batch batch = { PAGED, parts };
    bt_batch_mask mask = { .queries = { PAGED, rows, 0 },
                           .keys = { PAGED, keys, 0 },
                           .causal = true,
                           .window = window };
    MUST(s->stream->backend->plan_build(s->stream, &p->plan, &mask,
                                        BT_PLAN_DECODE, err));
    for (size_t l = 0; l < LAYERS; l++) {
        bt_tensor *q = gather(s, p->q[l], from, rows);
        bt_tensor *k = gather(s, p->k[l], from, rows);
        bt_tensor *v = gather(s, p->v[l], from, rows);
        bt_tensor *out = place(s, s->dtype, total, q->columns, 0, NULL);
        bt_tensor *turned = place(s, s->dtype, total, q->columns, 0, NULL);
        bt_kv_write_args write = {
            .batch = &batch, .layer = l, .k = k, .v = v
        };
        if (p->rotary) {
            write.positions = positions_of(s, from, rows);
            write.frequencies = frequencies_of(s);
            write.heads = HEADS;
            write.q = q;
            write.q_out = q = turned;
        }
        bool fused = below(2);
        if (!fused)
            MUST(s->stream->backend->kv_write(s->stream, &write, err));
        RUN(s, paged_attention, .plan = p->plan, .batch = &batch, .layer = l,
            .heads = HEADS, .kv_heads = KV_HEADS, .q = q, .out = out,
            .write = fused ? &write : NULL);
        for (size_t i = 0, row = 0; i < PAGED; row += rows[i++]) {
            bt_tensor a = bt_tensor_rows(out, row, rows[i]);
            bt_tensor b =
                bt_tensor_rows(p->out[l], i * TOKENS + from[i], rows[i]);
            RUN(s, accumulate, .x = &a, .to = &b);
        }
    }
    for (size_t i = 0; i < PAGED; i++) {
        bt_block_table_advance(&p->tables[i], rows[i]);
        for (size_t l = 0; l < LAYERS && window; l++)
            if (p->tables[i].tokens + 1 > window)
                bt_block_table_free_before(&p->tables[i], l,
                                           p->tables[i].tokens + 1 - window);
    }
}

/* The forward pass over all tokens of all sequences. */
static bt_tensor *whole(side *s, const paged *p, size_t layer, size_t window)
{
    const size_t tokens[PAGED] = { TOKENS, TOKENS, TOKENS };
    const bt_tensor *q = p->q[layer], *k = p->k[layer];
    bt_batch_mask mask = { .queries = { PAGED, tokens, 0 },
                           .keys = { PAGED, tokens, 0 },
                           .causal = true,
                           .window = window };
    bt_attention_plan *plan = NULL;
    bt_tensor *out = place(s, s->dtype, q->rows, q->columns, 0, NULL);
    MUST(s->stream->backend->plan_build(s->stream, &plan, &mask,
                                        BT_PLAN_FORWARD, err));
    if (p->rotary) {
        bt_tensor *at = positions_of(s, (const size_t[PAGED]){ 0 }, tokens);
        bt_tensor *frequencies = frequencies_of(s);
        const bt_tensor **const both[] = { &q, &k };
        for (int i = 0; i < 2; i++) {
            const bt_tensor *x = *both[i];
            bt_tensor *y = place(s, s->dtype, x->rows, x->columns, 0, NULL);
            RUN(s, rotary, .heads = x->columns / head_dim, .x = x, .y = y,
                .positions = at, .frequencies = frequencies);
            *both[i] = y;
        }
    }
    RUN(s, attention, .plan = plan, .heads = HEADS, .kv_heads = KV_HEADS,
        .q = q, .k = k, .v = p->v[layer], .out = out);
    s->stream->backend->plan_free(plan);
    return out;
}

/* Steps of one token, of a few and of many, with sequences that are forked
 * from another, and pages that a window hides from all later tokens. */
static void check_pages(bool low, size_t window, bool turn)
{
    static side s;
    static paged p;
    s = (side){ .stream = cuda,
                .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                .rounds = low,
                .count = SIZE_MAX };
    memset(&p, 0, sizeof(p));
    p.rotary = turn;
    bauta_attention_shape given = BAUTA_ATTENTION_SHAPE_INIT;
    bt_attention_shape shape;
    bt_kv_pool *pool = NULL;
    given.heads = HEADS;
    given.kv_heads = KV_HEADS;
    given.head_dim = head_dim;
    MUST(bt_attention_shape_resolve(&shape, &given, err));
    MUST(bt_kv_pool_create(&pool, cuda->backend, &shape, s.dtype, 0, err));
    for (size_t l = 0; l < LAYERS; l++) {
        size_t rows = (size_t)PAGED * TOKENS;
        p.q[l] = input(&s, rows, HEADS * head_dim, 1.0f);
        p.k[l] = input(&s, rows, KV_HEADS * head_dim, 1.0f);
        p.v[l] = input(&s, rows, KV_HEADS * head_dim, 1.0f);
        p.out[l] = place(&s, s.dtype, rows, HEADS * head_dim, 0, NULL);
        // The first tokens of sequence 2 are those of sequence 1.
        bt_tensor *const kv[] = { p.k[l], p.v[l], p.q[l] };
        for (int i = 0; i < 3; i++) {
            bt_tensor from = bt_tensor_rows(kv[i], TOKENS, 100);
            bt_tensor to = bt_tensor_rows(kv[i], 2 * TOKENS, 100);
            RUN(&s, accumulate, .x = &from, .to = &to);
        }
    }
    for (size_t i = 0; i < PAGED; i++)
        bt_block_table_init(&p.tables[i], pool, LAYERS);
    paged_step(&s, &p, (const size_t[]){ 70, 100, 0 }, window);
    bt_block_table_release(&p.tables[2]);
    MUST(bt_block_table_fork(&p.tables[2], &p.tables[1], err));
    for (size_t l = 0; l < LAYERS; l++) {
        bt_tensor from = bt_tensor_rows(p.out[l], TOKENS, 100);
        bt_tensor to = bt_tensor_rows(p.out[l], 2 * TOKENS, 100);
        RUN(&s, accumulate, .x = &from, .to = &to);
    }
    while (p.tables[0].tokens < TOKENS || p.tables[1].tokens < TOKENS ||
           p.tables[2].tokens < TOKENS) {
        size_t rows[PAGED], most = below(2) ? 1 : 60;
        for (size_t i = 0; i < PAGED; i++) {
            static const size_t some[] = { 1, 1, 1, 7, 60 };
            size_t left = TOKENS - p.tables[i].tokens;
            rows[i] = bt_size_min(some[below(BT_LEN(some))], most);
            rows[i] = rows[i] < left ? rows[i] : left;
        }
        paged_step(&s, &p, rows, window);
        // Buffers of steps are many, and done with.
        MUST(s.stream->backend->sync(s.stream, err));
        while (s.used > 4 * LAYERS)
            s.stream->backend->free(&s.buffers[--s.used]);
    }
    for (size_t l = 0; l < LAYERS; l++) {
        keep(&s, "over pages", p.out[l], false);
        keep(&s, "forward", whole(&s, &p, l, window), false);
        const result *r = &s.results[s.result_count - 2];
        checks++;
        if (!same_bits(r[0].x, r[1].x, r->rows * r->columns))
            FAIL("paged attention of heads of %zu in %s, window %zu: layer "
                 "%zu differs from the forward pass",
                 head_dim, low ? "bfloat16" : "float32", window, l);
    }
    for (size_t i = 0; i < PAGED; i++)
        bt_block_table_release(&p.tables[i]);
    cuda->backend->plan_free(p.plan);
    bt_kv_pool_release(pool);
    side_clear(&s);
}

/* ---- Gradients of a batch in parts ----------------------------------------
 */

/* The loss works on parts of logits_rows rows: their dW, added up, is that of
 * all rows at once. */
static void check_parts(void)
{
    static side s;
    s = (side){ .stream = cuda,
                .dtype = BAUTA_BFLOAT16,
                .rounds = true,
                .count = SIZE_MAX };
    size_t part = cuda->backend->logits_rows, rows = 2 * part + 100;
    bt_tensor *x = input(&s, rows, 64, 1.0f), *dy = input(&s, rows, 72, 1.0f);
    bt_tensor *all = floats(&s, BAUTA_FLOAT32, 72, 64, 0, NULL);
    bt_tensor *sum = floats(&s, BAUTA_FLOAT32, 72, 64, 0, NULL);
    RUN(&s, linear_dw, .x = x, .dy = dy, .dw = all);
    for (size_t from = 0; from < rows; from += part) {
        size_t count = rows - from < part ? rows - from : part;
        bt_tensor some_x = bt_tensor_rows(x, from, count);
        bt_tensor some_dy = bt_tensor_rows(dy, from, count);
        RUN(&s, linear_dw, .x = &some_x, .dy = &some_dy, .dw = sum,
            .add = from > 0);
    }
    keep(&s, "dW", all, false);
    keep(&s, "dW in parts", sum, false);
    checks++;
    if (!same_bits(s.results[0].x, s.results[1].x, 72 * 64))
        FAIL("linear_dw of parts of %zu rows is another than of all", part);
    side_clear(&s);
}

/* ---- Fused operations ----------------------------------------------------
 */

/* Whether the last two results have the same bits. */
static void expect_same(const side *s, const char *what)
{
    const result *r = &s->results[s->result_count - 2];
    checks++;
    if (!same_bits(r[0].x, r[1].x, r->rows * r->columns))
        FAIL("%s in %s: %s differs", what,
             s->dtype == BAUTA_BFLOAT16 ? "bfloat16" : "float32", r->name);
}

/* A layer with an activation is a layer, and then an activation; the same of
 * the gradient before it. */
static void linear_act(side *s, size_t rows, size_t terms, bool transposed,
                       bt_act kind)
{
    bt_tensor *x = input(s, rows, terms, 1.0f);
    bt_tensor *w =
        transposed ? input(s, terms, TALL, 0.2f) : input(s, TALL, terms, 0.2f);
    bt_tensor *bias = input(s, 1, TALL, 1.0f), *to[6];
    for (int i = 0; i < 6; i++)
        to[i] = place(s, s->dtype, rows, TALL, 0, NULL);
    bt_linear_layer layer = { w, bias, to[0] };
    RUN(s, linear, .x = x, .count = 1, .layers = &layer,
        .transposed = transposed, .has_act = true, .act = kind);
    layer.y = to[1];
    RUN(s, linear, .x = x, .count = 1, .layers = &layer,
        .transposed = transposed, .has_act = true, .act = kind, .pre = to[2]);
    layer.y = to[3];
    RUN(s, linear, .x = x, .count = 1, .layers = &layer,
        .transposed = transposed);
    RUN(s, act, .act = kind, .x = to[3], .y = to[4]);
    keep(s, "y", to[0], true);
    keep(s, "y", to[4], true);
    expect_same(s, "a linear layer with an activation");
    keep(s, "pre", to[2], true);
    keep(s, "pre", to[3], true);
    expect_same(s, "a linear layer with an activation");
    keep(s, "y beside pre", to[1], true);
    keep(s, "y beside pre", to[4], true);
    expect_same(s, "a linear layer with an activation");
    // x stands for dy: the layer the other way round has these weights.
    RUN(s, linear_dx, .dy = x, .w = w, .dx = to[0], .transposed = !transposed,
        .slope = to[3], .act = kind);
    RUN(s, linear_dx, .dy = x, .w = w, .dx = to[1], .transposed = !transposed);
    RUN(s, act_grad, .act = kind, .x = to[3], .dy = to[1], .dx = to[5]);
    s->result_count -= 4;
    for (int i = 0; i < 4; i++)
        free(s->results[s->result_count + (size_t)i].x);
    keep(s, "dx", to[0], true);
    keep(s, "dx", to[5], true);
    expect_same(s, "a gradient with the slope of an activation");
}

static void check_linear_act(bool low)
{
    static const size_t some_rows[] = { 1, 5, 33, 64, 65, 200, 777 };
    static const size_t some_terms[] = { 200, 2100, 768 };
    static side s;
    for (size_t i = 0; i < BT_LEN(some_rows) * BT_LEN(some_terms) * 8; i++) {
        s = (side){ .stream = cuda,
                    .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                    .rounds = low,
                    .count = SIZE_MAX };
        linear_act(&s, some_rows[i / 8 % BT_LEN(some_rows)],
                   some_terms[i / 8 / BT_LEN(some_rows)], i % 8 / 4,
                   (bt_act)(i % 4));
        side_clear(&s);
    }
}

/* A norm with a residual is a sum, and then a norm. */
static void check_add_norm(bool low)
{
    static const size_t widths[] = { 40, 64, 200, 768, 1000, 4096, 9000 };
    static side s;
    for (size_t i = 0; i < BT_LEN(widths) * 2; i++) {
        s = (side){ .stream = cuda,
                    .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                    .rounds = low,
                    .count = SIZE_MAX };
        size_t rows = 1 + below(90), width = widths[i / 2];
        bt_norm_kind kind = i % 2 ? BT_NORM_RMS : BT_NORM_LAYER;
        bt_tensor *a = input(&s, rows, width, 1.0f);
        bt_tensor *b = input(&s, rows, width, 3.0f);
        bt_tensor *gain = input(&s, 1, width, 1.0f);
        bt_tensor *bias = i % 2 ? NULL : input(&s, 1, width, 1.0f);
        bt_tensor *sum[2], *y[2], *mean[2], *scale[2];
        for (int j = 0; j < 2; j++) {
            sum[j] = place(&s, s.dtype, rows, width, 0, NULL);
            y[j] = place(&s, s.dtype, rows, width, 0, NULL);
            mean[j] = floats(&s, BAUTA_FLOAT32, rows, 1, 0, NULL);
            scale[j] = floats(&s, BAUTA_FLOAT32, rows, 1, 0, NULL);
        }
        RUN(&s, norm, .kind = kind, .epsilon = 1e-5f, .heads = 1, .x = a,
            .gain = gain, .bias = bias, .y = y[0], .mean = mean[0],
            .scale = scale[0], .residual = b, .sum = sum[0]);
        RUN(&s, add, .a = a, .b = b, .y = sum[1]);
        RUN(&s, norm, .kind = kind, .epsilon = 1e-5f, .heads = 1, .x = sum[1],
            .gain = gain, .bias = bias, .y = y[1], .mean = mean[1],
            .scale = scale[1]);
        bt_tensor **const all[] = { sum, y, mean, scale };
        static const char *const names[] = { "sum", "y", "mean", "scale" };
        for (size_t t = 0; t < BT_LEN(all); t++) {
            keep(&s, names[t], all[t][0], true);
            keep(&s, names[t], all[t][1], true);
            expect_same(&s, "a norm with a residual");
        }
        side_clear(&s);
    }
}

/* ---- Held operations ------------------------------------------------------
 */

/* A sublayer of a decoder as a step queues it: a product, the norm of the sum
 * of its result and a residual, two layers side by side, a gated activation of
 * theirs, another product. `between` is where another operation comes in
 * between: after so many of them. */
enum { HELD_WIDTH = 1792, HELD_FFN = 896, HELD_TENSORS = 7 };

typedef struct held_chain {
    bt_tensor *x, *out, *residual, *gain, *up, *down; /* weights and inputs */
    bt_tensor *to[HELD_TENSORS]; /* product, sum, y, both layers, gated, last,
                                  * and what comes in between */
    bt_tensor *mean, *scale;
    bool in_place; /* the sum overwrites the residual */
    bool swapped;  /* the first product is the norm's residual */
} held_chain;

static void held_between(side *s, const held_chain *c, bool now)
{
    if (now)
        RUN(s, add, .a = c->x, .b = c->x, .y = c->to[6]);
}

static void held_run(side *s, const held_chain *c, int between)
{
    bt_linear_layer first = { c->out, NULL, c->to[0] }, layers[2];
    bt_tensor w[2], y[2];
    RUN(s, linear, .x = c->x, .count = 1, .layers = &first);
    held_between(s, c, between == 1);
    RUN(s, norm, .kind = BT_NORM_RMS, .epsilon = 1e-5f, .heads = 1,
        .x = c->swapped ? c->residual : c->to[0], .gain = c->gain,
        .y = c->to[2], .mean = c->mean, .scale = c->scale,
        .residual = c->swapped ? c->to[0] : c->residual,
        .sum = c->in_place ? c->residual : c->to[1]);
    held_between(s, c, between == 2);
    for (size_t i = 0; i < 2; i++) {
        w[i] = *c->up;
        w[i].rows = HELD_FFN;
        w[i].offset += i * HELD_FFN * c->up->stride;
        y[i] = *c->to[3];
        y[i].columns = HELD_FFN;
        y[i].offset += i * HELD_FFN;
        layers[i] = (bt_linear_layer){ &w[i], NULL, &y[i] };
    }
    RUN(s, linear, .x = c->to[2], .count = 2, .layers = layers);
    held_between(s, c, between == 3);
    RUN(s, act, .act = BT_ACT_SILU, .x = &y[1], .up = &y[0], .y = c->to[4]);
    held_between(s, c, between == 4);
    bt_linear_layer last = { c->down, NULL, c->to[5] };
    RUN(s, linear, .x = c->to[4], .count = 1, .layers = &last);
}

/* In a step, where operations are held and carried out by others, results are
 * those of one operation after the other. */
static void check_held(void)
{
    static const size_t some_rows[] = { 1, 3, 8, 9, 32, 64, 65 };
    static const char *const names[] = {
        "the first product", "sum",   "y",
        "both layers",       "gated", "the last product"
    };
    const side empty = { .stream = cuda,
                         .dtype = BAUTA_BFLOAT16,
                         .rounds = true,
                         .count = SIZE_MAX };
    static side s, weights;
    weights = empty;
    const held_chain given = {
        .out = input(&weights, HELD_WIDTH, HELD_WIDTH, 0.05f),
        .gain = input(&weights, 1, HELD_WIDTH, 1.0f),
        .up = input(&weights, 2 * HELD_FFN, HELD_WIDTH, 0.05f),
        .down = input(&weights, HELD_WIDTH, HELD_FFN, 0.05f)
    };
    for (size_t i = 0; i < BT_LEN(some_rows) * 10; i++) {
        s = empty;
        size_t rows = some_rows[i / 10];
        int between = (int)(i % 5);
        held_chain c[2] = { given, given };
        c[0].x = c[1].x = input(&s, rows, HELD_WIDTH, 1.0f);
        c[0].in_place = c[1].in_place = i % 10 >= 5;
        c[0].swapped = c[1].swapped = below(2);
        test_random at = random_stream;
        for (int j = 0; j < 2; j++) {
            static const size_t widths[] = { HELD_WIDTH, HELD_WIDTH,
                                             HELD_WIDTH, 2 * HELD_FFN,
                                             HELD_FFN,   HELD_WIDTH,
                                             HELD_WIDTH };
            random_stream = at; // the same residual
            c[j].residual = input(&s, rows, HELD_WIDTH, 3.0f);
            for (int t = 0; t < HELD_TENSORS; t++)
                c[j].to[t] = place(&s, s.dtype, rows, widths[t], 0, NULL);
            c[j].mean = floats(&s, BAUTA_FLOAT32, rows, 1, 0, NULL);
            c[j].scale = floats(&s, BAUTA_FLOAT32, rows, 1, 0, NULL);
        }
        held_run(&s, &c[0], between);
        cuda->backend->step_begin(cuda, 1000 + i);
        held_run(&s, &c[1], between);
        MUST(cuda->backend->step_end(cuda, err));
        for (int t = 0; t < 6; t++) {
            for (int j = 0; j < 2; j++)
                keep(&s, names[t],
                     t == 1 && c[j].in_place ? c[j].residual : c[j].to[t],
                     true);
            expect_same(&s, "held operations");
        }
        for (int j = 0; j < 2; j++)
            keep(&s, "scale", c[j].scale, true);
        expect_same(&s, "held operations");
        side_clear(&s);
    }
    side_clear(&weights);
}

/* ---- Strides ------------------------------------------------------------- */

/* Columns of a matrix as a tensor. */
static bt_tensor columns_of(const bt_tensor *t, size_t first, size_t count)
{
    bt_tensor part = *t;
    part.offset += first;
    part.columns = count;
    return part;
}

/* Attention and its gradient of queries, keys and values that are columns of
 * one matrix. */
static void check_strided(bool low)
{
    static side s;
    s = (side){ .stream = cuda,
                .dtype = low ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                .rounds = low,
                .count = SIZE_MAX };
    const size_t starts[] = { 0, HEADS, HEADS + KV_HEADS };
    const size_t heads[] = { HEADS, KV_HEADS, KV_HEADS };
    size_t tokens = 0, width = (HEADS + 2 * KV_HEADS) * head_dim;
    for (size_t i = 0; i < SEQUENCES; i++)
        tokens += lengths[i];
    bt_tensor *qkv = input(&s, tokens, width, 1.0f);
    bt_tensor *dqkv = place(&s, s.dtype, tokens, width, 0, NULL);
    bt_tensor *dout = input(&s, tokens, HEADS * head_dim, 1.0f);
    bt_tensor in[2][3], grads[2][3];
    for (size_t i = 0; i < 3; i++) {
        size_t count = heads[i] * head_dim;
        in[0][i] = columns_of(qkv, starts[i] * head_dim, count);
        grads[0][i] = columns_of(dqkv, starts[i] * head_dim, count);
        in[1][i] = *place(&s, s.dtype, tokens, count, 0, NULL);
        grads[1][i] = *place(&s, s.dtype, tokens, count, 0, NULL);
        RUN(&s, accumulate, .x = &in[0][i], .to = &in[1][i]);
    }
    bt_batch_mask mask = { .queries = { SEQUENCES, lengths, 0 },
                           .keys = { SEQUENCES, lengths, 0 },
                           .causal = true };
    bt_attention_plan *plan = NULL;
    MUST(cuda->backend->plan_build(cuda, &plan, &mask, BT_PLAN_BACKWARD, err));
    bt_tensor *out[2];
    for (int i = 0; i < 2; i++) {
        out[i] = place(&s, s.dtype, tokens, HEADS * head_dim, 0, NULL);
        bt_tensor *lse = floats(&s, BAUTA_FLOAT32, tokens, HEADS, 0, NULL);
        RUN(&s, attention, .plan = plan, .heads = HEADS, .kv_heads = KV_HEADS,
            .q = &in[i][0], .k = &in[i][1], .v = &in[i][2], .out = out[i],
            .lse = lse);
        RUN(&s, attention_grad, .plan = plan, .heads = HEADS,
            .kv_heads = KV_HEADS, .q = &in[i][0], .k = &in[i][1],
            .v = &in[i][2], .out = out[i], .lse = lse, .dout = dout,
            .dq = &grads[i][0], .dk = &grads[i][1], .dv = &grads[i][2]);
    }
    keep(&s, "out", out[0], true);
    keep(&s, "out", out[1], true);
    expect_same(&s, "attention over columns of a matrix");
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = { "dq", "dk", "dv" };
        keep(&s, names[i], &grads[0][i], true);
        keep(&s, names[i], &grads[1][i], true);
        expect_same(&s, "attention over columns of a matrix");
    }
    cuda->backend->plan_free(plan);
    side_clear(&s);
}

/* ---- Errors and support -------------------------------------------------- */

static void check_support(void)
{
    const bt_backend *b = cuda->backend;
    const bt_op_shape usual = { .columns = 64, .heads = 2, .head_dim = 32 };
    const bt_op_shape odd = { .columns = 60, .heads = 2, .head_dim = 30 };
    const bt_op_shape biased = { .head_dim = 32, .biased = true };
    for (int op = 0; op < BT_OP_COUNT; op++) {
        checks++;
        if (!b->supports(cuda, (bt_op)op, BAUTA_FLOAT32, &usual))
            FAIL("no %s in float32", bt_op_name((bt_op)op));
        if (op != BT_OP_ema &&
            !b->supports(cuda, (bt_op)op, BAUTA_BFLOAT16, &usual))
            FAIL("no %s in bfloat16", bt_op_name((bt_op)op));
        if (b->supports(cuda, (bt_op)op, BAUTA_INT8, &usual))
            FAIL("%s in int8", bt_op_name((bt_op)op));
    }
    checks++;
    if (b->supports(cuda, BT_OP_attention, BAUTA_BFLOAT16, &odd))
        FAIL("attention in bfloat16 with heads of 30");
    checks++;
    if (!b->supports(cuda, BT_OP_attention, BAUTA_FLOAT32, &biased) ||
        !b->supports(cuda, BT_OP_attention_grad, BAUTA_BFLOAT16, &biased))
        FAIL("no attention with a bias");
    static side s;
    s = (side){ .stream = cuda, .dtype = BAUTA_BFLOAT16, .count = SIZE_MAX };
    bt_tensor *low = input(&s, 4, 16, 1.0f);
    float *x = numbers(&s, 64, 1.0f);
    bt_tensor *wide = floats(&s, BAUTA_FLOAT32, 4, 16, 0, x);
    free(x);
    bauta_error err = { 0 };
    checks++;
    if (b->add(cuda, &(const bt_add_args){ low, wide, low }, &err) !=
        BAUTA_ERR_UNSUPPORTED)
        FAIL("a sum of bfloat16 and float32 was taken");
    side_clear(&s);
}

/* More than the staging memory at once, at odd places. */
static void check_copies(void)
{
    const bt_backend *b = cuda->backend;
    size_t bytes = (size_t)37 << 20;
    unsigned char *from = malloc(bytes), *to = malloc(bytes);
    bt_buffer buffer;
    for (size_t i = 0; i < bytes; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 13);
    MUST(b->alloc(cuda, &buffer, bytes, err));
    MUST(b->upload(cuda, &buffer, 0, from, bytes, err));
    for (size_t i = 0; i < 20000; i++) {
        size_t at = below(bytes - 300), count = below(300);
        for (size_t j = 0; j < count; j++)
            from[at + j] = (unsigned char)(i + j);
        MUST(b->upload(cuda, &buffer, at, from + at, count, err));
    }
    MUST(b->download(cuda, to, &buffer, 0, bytes, err));
    checks++;
    if (memcmp(from, to, bytes) != 0)
        FAIL("memory came back changed");
    MUST(b->fill(cuda, &buffer, 5, 0x3c, 1000, err));
    memset(from + 5, 0x3c, 1000);
    MUST(b->download(cuda, to, &buffer, 0, 2000, err));
    checks++;
    if (memcmp(from, to, 2000) != 0)
        FAIL("memory was not filled");
    b->free(&buffer);
    free(from);
    free(to);
}

/* ---- All of it ----------------------------------------------------------- */

static const op_case cases[] = {
    { "linear", linear, ROWS, true, 0, 0x1p-9 },
    { "linears", linears, ROWS, true, 0, 0x1p-9 },
    { "linear of an odd width", linear_odd, ROWS, true, 0, 0x1p-6 },
    { "linear_dx", linear_dx, ROWS, true, 0, 0x1p-9 },
    { "linear_dw", linear_dw, 0, false, 0x1p-16, 0x1p-12 },
    { "linear_dw of many rows", linear_dw_exact, 0, true, 0, 0x1p-12 },
    { "embedding", embedding, ROWS, true, 0, 0 },
    { "embedding_grad", embedding_grad, 0, true, 0, 0x1p-20 },
    { "norm", norm, ROWS, false, 0x1p-18, 0x1p-14 },
    // The gradient of x is of the norm of rounded rows in both cases.
    { "norm_grad", norm_grad, ROWS, false, 0x1p-16, 0x1p-12 },
    { "act", act, ROWS, true, 0, 0x1p-16 },
    { "act_grad", act_grad, ROWS, true, 0, 0x1p-12 },
    { "rotary", rotary, ROWS, true, 0, 0x1p-14 },
    // A sum that is rounded is added to once more.
    { "add and accumulate", sums, ROWS, true, 0, 0x1p-7 },
    { "scatter_add", scatter_add, 0, true, 0, 0x1p-8 },
    { "dropout", dropout, ROWS, true, 0, 0x1p-8 },
    { "cross_entropy and logprobs", cross_entropy, ROWS, false, 0x1p-16,
      0x1p-9 },
    { "adamw, ema and swap", adamw, 0, true, 0, 0 },
    { "attention", attention, 0, false, 0x1p-14, 0x1p-5 },
    { "attention in a window", attention_window, 0, false, 0x1p-14, 0x1p-5 },
};

int main(int argc, char **argv)
{
    static const size_t dims[] = { 64, 128, 40, 8, 256 };
    check_begin(argc, argv);
    MUST(bt_cuda_driver.open(&cuda, -1, NULL, err));
    MUST(bt_cpu_stream_create(&cpu, bt_kernels_get(NULL), NULL, err));
    printf("device %s\n", cuda->device);
    check_support();
    check_copies();
    check_parts();
    for (int low = 0; low < 2; low++) {
        check_linear_act(low);
        check_add_norm(low);
    }
    check_held();
    for (size_t round = 0; round < (quick ? 1 : 3); round++)
        for (size_t i = 0; i < BT_LEN(cases); i++)
            for (int low = 0; low < 2; low++)
                run_case(&cases[i], low);
    for (size_t i = 0; i < (quick ? 1 : BT_LEN(dims)); i++) {
        head_dim = dims[i];
        for (int low = 0; low < 2; low++) {
            check_sequences_alone(low, attention, "attention");
            check_sequences_alone(low, attention_window, "window");
            check_pages(low, 0, false);
            check_pages(low, 50, true);
            check_strided(low);
        }
    }
    MUST(cuda->backend->sync(cuda, err));
    cuda->backend->stream_free(cuda);
    cpu->backend->stream_free(cpu);
    return check_end();
}
