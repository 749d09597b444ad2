/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_ops.c - the operations of ops.h on the GPU: float32 against the
 * CPU's kernels bit for bit where ops.h says so, else against double within
 * bounds that are derived beside them; bfloat16 likewise, after one rounding.
 *
 * Matrices have random strides and starts, and NaN between their rows, which no
 * kernel may read; what lies between the rows of a result must stay. Every call
 * is made twice and gives the same bits, and rows alone give those of the
 * batch. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/sampling.h"
#include "backend/cuda/ops.h"
#include "checking.h"

#define U 0x1p-24 /* half a unit in the last place of 1.0f */

static const bt_kernels *cpu;

/* ---- matrices ------------------------------------------------------------ */

enum { MEMORY_MOST = 512 };
static void *device_memory[MEMORY_MOST], *host_memory[MEMORY_MOST];
static size_t device_count, host_count;

static void *host_alloc(size_t bytes)
{
    if (host_count == MEMORY_MOST)
        exit(2);
    return host_memory[host_count++] = calloc(bytes + 1, 1);
}

static void *device_alloc(const void *from, size_t bytes)
{
    if (device_count == MEMORY_MOST)
        exit(2);
    void *memory;
    if (from) {
        memory = to_device(from, bytes);
    } else {
        need_cuda(cudaMalloc(&memory, bytes + 16), "cudaMalloc");
        need_cuda(cudaMemset(memory, 0x55, bytes + 16), "cudaMemset");
    }
    return device_memory[device_count++] = memory;
}

/* Frees all that a case has allocated. */
static void case_end(void)
{
    while (device_count)
        cudaFree(device_memory[--device_count]);
    while (host_count)
        free(host_memory[--host_count]);
}

static void synchronize(const char *what)
{
    need_cuda(cudaDeviceSynchronize(), what);
}

/* A matrix here, in float32, and on the device. */
typedef struct mat {
    bauta_dtype dtype;
    size_t rows, columns, stride, start; /* start: elements before the first */
    float *x;                            /* (rows, columns) */
    unsigned char *bytes;                /* as on the device */
    void *memory;                        /* of the device */
} mat;

static size_t element(bauta_dtype dtype)
{
    return dtype == BAUTA_FLOAT32 ? 4 : 2;
}

static float rounded(bauta_dtype dtype, float x)
{
    uint16_t h;
    if (dtype == BAUTA_FLOAT32)
        return x;
    bt_convert_from_f32(&h, BAUTA_BFLOAT16, &x, 1);
    return from_bf16(h);
}

static size_t mat_bytes(const mat *m)
{
    return (m->start + m->rows * m->stride) * element(m->dtype);
}

static mat mat_shape(bauta_dtype dtype, size_t rows, size_t columns)
{
    mat m = { .dtype = dtype, .rows = rows, .columns = columns };
    switch (below(4)) {
    case 0:
        m.stride = columns;
        break;
    case 1:
        m.stride = columns + below(5);
        m.start = below(4);
        break;
    default:
        m.stride = (columns + 7) / 8 * 8 + 8 * below(2);
    }
    m.x = host_alloc(rows * columns * 4);
    m.bytes = host_alloc(mat_bytes(&m));
    return m;
}

static void mat_put(mat *m, size_t i, size_t j, float x)
{
    size_t at = m->start + i * m->stride + j;
    bt_convert_from_f32(m->bytes + at * element(m->dtype), m->dtype, &x, 1);
    m->x[i * m->columns + j] = rounded(m->dtype, x);
}

static void mat_upload(mat *m)
{
    if (!m->memory)
        m->memory = device_alloc(NULL, mat_bytes(m));
    need_cuda(
        cudaMemcpy(m->memory, m->bytes, mat_bytes(m), cudaMemcpyHostToDevice),
        "cudaMemcpy");
}

/* Random values in [-width, width), NaN between the rows. */
static mat mat_random(bauta_dtype dtype, size_t rows, size_t columns,
                      float width)
{
    mat m = mat_shape(dtype, rows, columns);
    memset(m.bytes, 0xff, mat_bytes(&m));
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            mat_put(&m, i, j, width * test_float(&random_stream));
    mat_upload(&m);
    return m;
}

/* For a result: 0x55 everywhere. */
static mat mat_empty(bauta_dtype dtype, size_t rows, size_t columns)
{
    mat m = mat_shape(dtype, rows, columns);
    memset(m.bytes, 0x55, mat_bytes(&m));
    mat_upload(&m);
    return m;
}

static bt_cuda_in in(const mat *m)
{
    return (bt_cuda_in){ (char *)m->memory + m->start * element(m->dtype),
                         m->stride };
}

static bt_cuda_out out(const mat *m)
{
    return (bt_cuda_out){ (char *)m->memory + m->start * element(m->dtype),
                          m->stride };
}

/* Rows from `first` on. */
static bt_cuda_in in_from(const mat *m, size_t first)
{
    return (bt_cuda_in){ (char *)m->memory +
                             (m->start + first * m->stride) * element(m->dtype),
                         m->stride };
}

static bt_cuda_out out_from(const mat *m, size_t first)
{
    bt_cuda_in x = in_from(m, first);
    return (bt_cuda_out){ (void *)(uintptr_t)x.data, x.stride };
}

/* The result, and that nothing between its rows has changed. */
static void mat_download(mat *m, const char *what)
{
    size_t e = element(m->dtype), bytes = mat_bytes(m);
    unsigned char *got = host_alloc(bytes);
    bool kept = true;
    need_cuda(cudaMemcpy(got, m->memory, bytes, cudaMemcpyDeviceToHost), what);
    for (size_t i = 0; i < m->start + m->rows * m->stride; i++)
        if (i < m->start || (i - m->start) % m->stride >= m->columns)
            kept &= !memcmp(got + i * e, m->bytes + i * e, e);
    for (size_t i = 0; i < m->rows; i++)
        bt_convert_f32(m->x + i * m->columns,
                       got + (m->start + i * m->stride) * e, m->dtype,
                       m->columns);
    checks++;
    if (!kept)
        FAIL("%s wrote between the rows of its result", what);
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b));
}

/* want (rows, columns), rounded to the type of got. */
static void expect_exact(const char *what, const mat *got, const float *want)
{
    checks++;
    for (size_t i = 0; i < got->rows * got->columns; i++)
        if (!same_bits(got->x[i], rounded(got->dtype, want[i]))) {
            FAIL("%s of %zu x %zu, %s: at %zu, %zu %.9g, not %.9g", what,
                 got->rows, got->columns, bt_dtype_name(got->dtype),
                 i / got->columns, i % got->columns, (double)got->x[i],
                 (double)rounded(got->dtype, want[i]));
            return;
        }
}

static void expect_near(const char *what, size_t i, double got, double want,
                        double bound)
{
    checks++;
    if (!(fabs(got - want) <= bound))
        FAIL("%s at %zu: %.9g, not %.9g within %.3g", what, i, got, want,
             bound);
}

/* What rounding to the type adds to a bound. */
static double rounding(bauta_dtype dtype, double x)
{
    return dtype == BAUTA_FLOAT32 ? 0 : fabs(x) * 0x1p-8 + 0x1p-133;
}

static bauta_dtype some_dtype(void)
{
    return below(2) ? BAUTA_FLOAT32 : BAUTA_BFLOAT16;
}

static size_t some_columns(size_t most)
{
    static const size_t edges[] = { 1,  7,   8,   9,   15,  16,  63,  64,
                                    65, 127, 128, 255, 256, 257, 768, 1024 };
    size_t x = below(2) ? edges[below(BT_LEN(edges))] : 1 + below(most);
    return x < most ? x : most;
}

static float *download(const void *from, size_t count)
{
    float *to = host_alloc(count * 4);
    need_cuda(cudaMemcpy(to, from, count * 4, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    return to;
}

static uint32_t *random_ids(size_t count, size_t limit)
{
    uint32_t *ids = host_alloc(count * 4);
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)below(limit);
    return ids;
}

/* ---- elements ------------------------------------------------------------ */

static void check_scale(void)
{
    bauta_error err = { 0 };
    size_t rows = 1 + below(40), columns = some_columns(900);
    bauta_dtype from = some_dtype(), to_dtype = some_dtype();
    mat x = mat_random(from, rows, columns, 3);
    mat to = mat_random(to_dtype, rows, columns, 3);
    float scale = below(3) ? 1.0f : 1.7f;
    bool add = below(2), copies = below(3) == 0;
    float *want = host_alloc(rows * columns * 4);
    memcpy(want, copies ? x.x : to.x, rows * columns * 4);
    if (!copies)
        cpu->scale(want, x.x, scale, rows * columns, add);
    need(copies ? bt_cuda_copy(rows, columns, out(&to), to_dtype, in(&x), from,
                               NULL, &err)
                : bt_cuda_scale(rows, columns, out(&to), to_dtype, in(&x), from,
                                scale, add, NULL, &err),
         &err);
    mat_download(&to, "scale");
    expect_exact(copies ? "copy" : "scale", &to, want);
    case_end();
}

static void check_add(void)
{
    bauta_error err = { 0 };
    size_t rows = 1 + below(40), columns = some_columns(900);
    bauta_dtype dtype = some_dtype();
    mat a = mat_random(dtype, rows, columns, 3);
    mat b = mat_random(dtype, rows, columns, 3);
    mat to = mat_empty(dtype, rows, columns);
    float *want = host_alloc(rows * columns * 4);
    cpu->add(want, a.x, b.x, rows * columns);
    need(
        bt_cuda_add(rows, columns, dtype, out(&to), in(&a), in(&b), NULL, &err),
        &err);
    mat_download(&to, "add");
    expect_exact("add", &to, want);
    // In place.
    need(bt_cuda_add(rows, columns, dtype, out(&a), in(&a), in(&b), NULL, &err),
         &err);
    mat_download(&a, "add");
    expect_exact("add in place", &a, want);
    need(bt_cuda_fill(rows, columns, dtype, out(&to), 1.25f, NULL, &err), &err);
    mat_download(&to, "fill");
    for (size_t i = 0; i < rows * columns; i++)
        want[i] = 1.25f;
    expect_exact("fill", &to, want);
    case_end();
}

static void check_rows_by_index(void)
{
    bauta_error err = { 0 };
    size_t rows = 1 + below(40), columns = some_columns(300);
    size_t table_rows = rows + below(30);
    bauta_dtype dtype = some_dtype();
    mat table = mat_random(dtype, table_rows, columns, 3);
    mat to = mat_empty(dtype, rows, columns);
    uint32_t *index = random_ids(rows, table_rows);
    uint32_t *on_device = device_alloc(index, rows * 4);
    float *want = host_alloc(table_rows * columns * 4);
    for (size_t i = 0; i < rows; i++)
        memcpy(want + i * columns, table.x + index[i] * columns, columns * 4);
    need(bt_cuda_gather_rows(rows, columns, dtype, out(&to), in(&table),
                             on_device, NULL, &err),
         &err);
    mat_download(&to, "gather");
    expect_exact("gather", &to, want);
    bt_cuda_embedding_args e = {
        dtype, rows, columns, in(&table), { on_device, 1 }, 2.5f, out(&to)
    };
    for (size_t i = 0; i < rows; i++)
        cpu->scale(want + i * columns, table.x + index[i] * columns, 2.5f,
                   columns, false);
    need(bt_cuda_embedding(&e, NULL, &err), &err);
    mat_download(&to, "embedding");
    expect_exact("embedding", &to, want);

    // Back to rows that are all different.
    mat from = mat_random(dtype, rows, columns, 3);
    size_t step = table_rows / rows;
    bool add = below(2);
    for (size_t i = 0; i < rows; i++)
        index[i] = (uint32_t)((rows - 1 - i) * step);
    on_device = device_alloc(index, rows * 4);
    memcpy(want, table.x, table_rows * columns * 4);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            float *w = &want[index[i] * columns + j];
            *w = add ? *w + from.x[i * columns + j] : from.x[i * columns + j];
        }
    need(bt_cuda_scatter_rows(rows, columns, dtype, out(&table), in(&from),
                              on_device, add, NULL, &err),
         &err);
    mat_download(&table, "scatter");
    expect_exact("scatter", &table, want);
    case_end();
}

/* bfloat16: the functions of gemm_end.h are within a few units of 2^-20 of
 * exact ones, relative to at most 1 + |x|; then one rounding. */
static double act_bound(bauta_dtype dtype, double x, double want, double factor)
{
    return dtype == BAUTA_FLOAT32
               ? 0
               : rounding(dtype, want) + (1 + fabs(x)) * fabs(factor) * 0x1p-18;
}

static void expect_act(const char *what, const mat *got, const float *want,
                       const mat *x, const float *factor)
{
    if (got->dtype == BAUTA_FLOAT32) {
        expect_exact(what, got, want);
        return;
    }
    for (size_t i = 0; i < got->rows * got->columns; i++)
        expect_near(what, i, (double)got->x[i], (double)want[i],
                    act_bound(got->dtype, (double)x->x[i], (double)want[i],
                              factor ? (double)factor[i] : 1.0));
}

static void check_act(void)
{
    bauta_error err = { 0 };
    size_t rows = 1 + below(20), columns = some_columns(500);
    size_t count = rows * columns;
    bauta_dtype dtype = some_dtype();
    bt_act act = (bt_act)below(4);
    bool gated = below(2), add = below(2);
    float width = below(2) ? 3.0f : 25.0f;
    mat x = mat_random(dtype, rows, columns, width);
    mat by = mat_random(dtype, rows, columns, 2);
    mat dy = mat_random(dtype, rows, columns, 2);
    mat y = mat_empty(dtype, rows, columns);
    float *want = host_alloc(count * 4), *factor = host_alloc(count * 4);
    for (int i = 0; i < 8 && dtype == BAUTA_FLOAT32;
         i++) { // NaN stays, no 0 * inf
        float odd[] = { NAN, INFINITY, -INFINITY, -0.0f };
        mat_put(&x, below(rows), below(columns), odd[below(4)]);
    }
    mat_upload(&x);
    bt_cuda_act_args a = {
        .act = act, .dtype = dtype, .rows = rows, .columns = columns
    };
    a.x = in(&x);
    a.y = out(&y);
    if (gated)
        a.by = in(&by);
    cpu->act(act, want, x.x, gated ? by.x : NULL, count, false);
    need(bt_cuda_act(&a, NULL, &err), &err);
    mat_download(&y, "act");
    expect_act("act", &y, want, &x, gated ? by.x : NULL);

    mat dx = mat_random(dtype, rows, columns, 2);
    mat dby = mat_random(dtype, rows, columns, 2);
    bt_cuda_act_backward_args b = { .act = act,
                                    .dtype = dtype,
                                    .rows = rows,
                                    .columns = columns,
                                    .x = in(&x),
                                    .dy = in(&dy),
                                    .dx = out(&dx),
                                    .add_dx = add,
                                    .add_dby = !add };
    float *dby_want = host_alloc(count * 4);
    memcpy(want, dx.x, count * 4);
    memcpy(dby_want, dby.x, count * 4);
    cpu->act_backward(act, want, x.x, dy.x, gated ? by.x : NULL, count, add);
    cpu->act(act, dby_want, x.x, dy.x, count, !add);
    for (size_t i = 0; i < count; i++)
        factor[i] = 4 * (dy.x[i] * (gated ? by.x[i] : 1.0f));
    if (gated) {
        b.by = in(&by);
        b.dby = out(&dby);
    }
    need(bt_cuda_act_backward(&b, NULL, &err), &err);
    mat_download(&dx, "act's gradient");
    expect_act("act's gradient", &dx, want, &x, factor);
    if (gated) {
        mat_download(&dby, "gate's gradient");
        expect_act("gate's gradient", &dby, dby_want, &x, dy.x);
    }
    case_end();
}

static void check_dropout(void)
{
    bauta_error err = { 0 };
    size_t rows = 1 + below(30), columns = some_columns(500);
    bauta_dtype dtype = some_dtype();
    mat x = mat_random(dtype, rows, columns, 3);
    mat r = mat_random(dtype, rows, columns, 3);
    mat y = mat_empty(dtype, rows, columns);
    bool residual = below(2);
    uint64_t *tokens = host_alloc(rows * 8);
    for (size_t i = 0; i < rows; i++)
        tokens[i] = (uint64_t)test_u32(&random_stream) << below(32) |
                    test_u32(&random_stream);
    float *want = host_alloc(rows * columns * 4);
    bt_dropout d = { .columns = columns,
                     .seed = (uint64_t)test_u32(&random_stream) << 32 | 7,
                     .site = (uint32_t)below(1000),
                     .below = (uint32_t)(0x1p32 * 0.3),
                     .scale = 1.0f / 0.7f,
                     .tokens = tokens,
                     .x = x.x,
                     .y = want };
    if (residual) {
        memcpy(want, r.x, rows * columns * 4);
        d.add = true;
    }
    cpu->dropout(&d, 0, rows);
    bt_cuda_dropout_args a = { .dtype = dtype,
                               .rows = rows,
                               .columns = columns,
                               .seed = d.seed,
                               .site = d.site,
                               .below = d.below,
                               .scale = d.scale,
                               .tokens = device_alloc(tokens, rows * 8),
                               .x = in(&x),
                               .y = out(&y) };
    if (residual)
        a.residual = in(&r);
    need(bt_cuda_dropout(&a, NULL, &err), &err);
    mat_download(&y, "dropout");
    expect_exact("dropout", &y, want);
    case_end();
}

/* ---- sums ---------------------------------------------------------------- */

/* A lane adds 16 rows, eight lanes are added, then chunks: one in 32 in a
 * chain, and a tree of five. Each addition loses at most u of what is summed so
 * far. */
static void check_sum_rows(void)
{
    bauta_error err = { 0 };
    size_t rows = below(4) ? 1 + below(300) : 1 + below(6000);
    size_t columns = some_columns(400);
    bauta_dtype dtype = some_dtype();
    mat x = mat_random(dtype, rows, columns, 3);
    bool add = below(2);
    float *old = host_alloc(columns * 4);
    for (size_t c = 0; c < columns; c++)
        old[c] = test_float(&random_stream);
    void *workspace =
        device_alloc(NULL, bt_cuda_sum_rows_workspace(rows, columns));
    float *to[2], *got[2];
    for (int i = 0; i < 2; i++) {
        to[i] = device_alloc(old, columns * 4);
        need(bt_cuda_sum_rows(rows, columns, dtype, to[i], in(&x), add,
                              workspace, NULL, &err),
             &err);
        got[i] = download(to[i], columns);
    }
    checks++;
    if (memcmp(got[0], got[1], columns * 4))
        FAIL("a sum over rows differs between two runs");
    double steps = 16 + 8 + (double)rows / 4096 + 8;
    for (size_t c = 0; c < columns; c++) {
        double sum = add ? (double)old[c] : 0, size = fabs(sum);
        for (size_t i = 0; i < rows; i++) {
            sum += (double)x.x[i * columns + c];
            size += fabs((double)x.x[i * columns + c]);
        }
        expect_near("sum over rows", c, (double)got[0][c], sum,
                    steps * U * size);
    }
    case_end();
}

static void check_embedding_backward(size_t rows, size_t table_rows)
{
    bauta_error err = { 0 };
    size_t columns = some_columns(600);
    bauta_dtype dtype = some_dtype();
    mat dy = mat_random(dtype, rows, columns, 2);
    uint32_t *ids = random_ids(rows, table_rows);
    // Half of them are the same few: long chains.
    for (size_t i = 0; i < rows / 2; i++)
        ids[below(rows)] = (uint32_t)below(1 + table_rows / 8);
    uint32_t padding = below(2) ? ids[below(rows)] : UINT32_MAX;
    size_t count = table_rows * columns;
    float *want = host_alloc(count * 4);
    for (size_t i = 0; i < count; i++)
        want[i] = test_float(&random_stream);
    float *to = device_alloc(want, count * 4);
    for (size_t i = 0; i < rows; i++)
        if (ids[i] == padding)
            for (size_t j = 0; j < columns; j++)
                mat_put(&dy, i, j, NAN);
    mat_upload(&dy);
    for (size_t i = 0; i < rows; i++)
        if (ids[i] != padding)
            cpu->scale(want + ids[i] * columns, dy.x + i * columns, 1.5f,
                       columns, true);
    bt_cuda_embedding_backward_args a = { .dtype = dtype,
                                          .rows = rows,
                                          .columns = columns,
                                          .table_rows = table_rows,
                                          .dy = in(&dy),
                                          .ids = device_alloc(ids, rows * 4),
                                          .scale = 1.5f,
                                          .padding_id = padding,
                                          .dtable = to };
    void *workspace = device_alloc(NULL, bt_cuda_embedding_workspace(rows));
    need(bt_cuda_embedding_backward(&a, workspace, NULL, &err), &err);
    synchronize("embedding's gradient");
    mat got = { .dtype = BAUTA_FLOAT32,
                .rows = table_rows,
                .columns = columns };
    got.x = download(to, count);
    expect_exact("embedding's gradient", &got, want);
    case_end();
}

/* ---- norms --------------------------------------------------------------- */

/* The longest chain of additions over a row: 3 in a group, 4 groups, 5 in a
 * warp, 32 warps. */
enum { NORM_STEPS = 44 };

typedef struct norm_case {
    bt_norm_kind kind;
    bauta_dtype dtype, gain_dtype;
    size_t rows, heads, width;
    float epsilon;
    mat x, residual, sum, y, gain, bias;
    bool has_residual, has_bias;
    float *mean, *scale; /* of the device */
} norm_case;

static norm_case norm_make(void)
{
    static const size_t widths[] = { 5,    16,   64,   65,   96,   128,  129,
                                     250,  256,  300,  512,  768,  1000, 1024,
                                     1100, 2048, 3000, 4096, 5000, 9000 };
    norm_case c = { .kind = below(2) ? BT_NORM_LAYER : BT_NORM_RMS,
                    .dtype = some_dtype(),
                    .rows = 1 + below(60),
                    .heads = 1,
                    .width = widths[below(BT_LEN(widths))],
                    .epsilon = 1e-5f,
                    .has_residual = below(2),
                    .has_bias = below(2) };
    if (c.width <= 128)
        c.heads = 1 + below(5);
    if (c.width <= 256 && below(2))
        c.rows = 1 + below(700);
    c.gain_dtype =
        c.dtype == BAUTA_FLOAT32 || below(2) ? BAUTA_FLOAT32 : BAUTA_BFLOAT16;
    size_t columns = c.heads * c.width;
    c.x = mat_random(c.dtype, c.rows, columns, 2);
    c.residual = mat_random(c.dtype, c.rows, columns, 2);
    c.sum = mat_empty(c.dtype, c.rows, columns);
    c.y = mat_empty(c.dtype, c.rows, columns);
    c.gain = mat_random(c.gain_dtype, 1, c.width, 2);
    c.bias = mat_random(c.gain_dtype, 1, c.width, 2);
    c.mean = device_alloc(NULL, c.rows * c.heads * 4);
    c.scale = device_alloc(NULL, c.rows * c.heads * 4);
    return c;
}

static bt_cuda_norm_args norm_args(const norm_case *c, size_t first,
                                   size_t rows)
{
    bt_cuda_norm_args a = { .kind = c->kind,
                            .dtype = c->dtype,
                            .gain_dtype = c->gain_dtype,
                            .rows = rows,
                            .heads = c->heads,
                            .width = c->width,
                            .epsilon = c->epsilon,
                            .x = in_from(&c->x, first),
                            .y = out_from(&c->y, first),
                            .gain = in(&c->gain).data,
                            .bias = c->has_bias ? in(&c->bias).data : NULL,
                            .mean = c->mean + first * c->heads,
                            .scale = c->scale + first * c->heads };
    if (c->has_residual) {
        a.residual = in_from(&c->residual, first);
        a.sum = out_from(&c->sum, first);
    }
    return a;
}

/* A row of doubles: mean, scale and their errors. */
static void norm_row(const norm_case *c, const float *x, size_t row,
                     const float *mean, const float *scale, const float *y)
{
    double sum = 0, size = 0, squares = 0, distance = 0;
    double w = (double)c->width;
    for (size_t j = 0; j < c->width; j++) {
        sum += (double)x[j];
        size += fabs((double)x[j]);
    }
    double m = c->kind == BT_NORM_LAYER ? sum / w : 0;
    double m_bound =
        c->kind == BT_NORM_LAYER ? (NORM_STEPS + 1) * U * size / w : 0;
    for (size_t j = 0; j < c->width; j++) {
        squares += ((double)x[j] - m) * ((double)x[j] - m);
        distance += fabs((double)x[j] - m);
    }
    double v = squares / w;
    double v_bound = 2 * m_bound * distance / w + m_bound * m_bound +
                     (NORM_STEPS + 5) * U * v;
    double s = 1 / sqrt(v + (double)c->epsilon);
    double s_bound = s * (v_bound / (2 * (v + (double)c->epsilon)) + 4 * U);
    expect_near("mean", row, (double)mean[row], m, m_bound);
    expect_near("scale", row, (double)scale[row], s, s_bound * 1.01);
    for (size_t j = 0; j < c->width; j++) {
        double d = (double)x[j] - m, gain = (double)c->gain.x[j];
        double h = d * s, bias = c->has_bias ? (double)c->bias.x[j] : 0;
        double want = h * gain + bias;
        double bound = fabs(gain) * (s * (m_bound + U * fabs(d)) * 1.01 +
                                     fabs(d) * s_bound + 3 * U * fabs(h)) +
                       2 * U * fabs(want);
        expect_near("norm", row * c->width + j, (double)y[j], want,
                    bound * 1.01 + rounding(c->dtype, want));
    }
}

/* The gradients of rows, in double, from the device's mean and scale. */
static void norm_backward_check(norm_case *c, const float *mean,
                                const float *scale, const mat *x)
{
    bauta_error err = { 0 };
    size_t columns = c->heads * c->width, rows = c->rows * c->heads;
    mat dy = mat_random(c->dtype, c->rows, columns, 2);
    mat add = mat_random(c->dtype, c->rows, columns, 2);
    mat dx = mat_empty(c->dtype, c->rows, columns);
    bool adds = below(2), add_sums = below(2);
    float *old = host_alloc(c->width * 4), *sums[2][2];
    for (size_t j = 0; j < c->width; j++)
        old[j] = test_float(&random_stream);
    bt_cuda_norm_backward_args b = { .kind = c->kind,
                                     .dtype = c->dtype,
                                     .gain_dtype = c->gain_dtype,
                                     .rows = c->rows,
                                     .heads = c->heads,
                                     .width = c->width,
                                     .x = in(x),
                                     .dy = in(&dy),
                                     .dx = out(&dx),
                                     .gain = in(&c->gain).data,
                                     .mean = c->mean,
                                     .scale = c->scale,
                                     .add_dgain = add_sums,
                                     .add_dbias = add_sums };
    if (adds)
        b.residual = in(&add);
    void *workspace =
        device_alloc(NULL, bt_cuda_norm_workspace(c->rows, c->heads, c->width));
    for (int i = 0; i < 2; i++) {
        b.dgain = device_alloc(old, c->width * 4);
        b.dbias = device_alloc(old, c->width * 4);
        need(bt_cuda_norm_backward(&b, workspace, NULL, &err), &err);
        sums[i][0] = download(b.dgain, c->width);
        sums[i][1] = download(b.dbias, c->width);
    }
    mat_download(&dx, "norm's gradient");
    float *before = host_alloc(c->rows * columns * 4);
    memcpy(before, dx.x, c->rows * columns * 4);
    b.dgain = b.dbias = NULL; // another kernel, the same rows
    need(bt_cuda_norm_backward(&b, workspace, NULL, &err), &err);
    mat_download(&dx, "norm's gradient");
    expect_exact("norm's gradient without sums", &dx, before);
    checks++;
    for (int i = 0; i < 2; i++)
        if (memcmp(sums[0][i], sums[1][i], c->width * 4))
            FAIL("the gradient of a gain differs between two runs");

    double *gain_sum = host_alloc(c->width * 8);
    double *bias_sum = host_alloc(c->width * 8);
    double *gain_size = host_alloc(c->width * 8);
    double *bias_size = host_alloc(c->width * 8);
    for (size_t i = 0; i < rows; i++) {
        size_t at = i / c->heads * columns + i % c->heads * c->width;
        double m = (double)mean[i], s = (double)scale[i];
        double g_sum = 0, gh_sum = 0, g_size = 0, gh_size = 0;
        double w = (double)c->width;
        for (size_t j = 0; j < c->width; j++) {
            double h = ((double)x->x[at + j] - m) * s;
            double d = (double)dy.x[at + j], g = d * (double)c->gain.x[j];
            g_sum += g, gh_sum += g * h;
            g_size += fabs(g), gh_size += fabs(g * h);
            gain_sum[j] += d * h, gain_size[j] += fabs(d * h);
            bias_sum[j] += d, bias_size[j] += fabs(d);
        }
        double g_mean = c->kind == BT_NORM_LAYER ? g_sum / w : 0;
        for (size_t j = 0; j < c->width; j++) {
            double h = ((double)x->x[at + j] - m) * s;
            double g = (double)dy.x[at + j] * (double)c->gain.x[j];
            double want = s * (g - g_mean - h * gh_sum / w);
            double bound =
                s * U *
                ((NORM_STEPS + 6) * (g_size + fabs(h) * gh_size) / w +
                 6 * (fabs(g) + fabs(g_mean) + fabs(h * gh_sum / w)));
            double other = adds ? (double)add.x[at + j] : 0;
            want += other;
            expect_near("norm's gradient", at + j, (double)before[at + j], want,
                        bound * 1.01 + U * fabs(want) +
                            rounding(c->dtype, want));
        }
    }
    double steps = 32 + 32 + (double)rows / 256 + 12;
    for (size_t j = 0; j < c->width; j++) {
        double o = add_sums ? (double)old[j] : 0;
        expect_near("gain's gradient", j, (double)sums[0][0][j],
                    gain_sum[j] + o, steps * U * (gain_size[j] + fabs(o)));
        expect_near("bias's gradient", j, (double)sums[0][1][j],
                    bias_sum[j] + o, steps * U * (bias_size[j] + fabs(o)));
    }
}

static void check_norm(void)
{
    bauta_error err = { 0 };
    norm_case c = norm_make();
    size_t columns = c.heads * c.width;
    bt_cuda_norm_args a = norm_args(&c, 0, c.rows);
    need(bt_cuda_norm(&a, NULL, &err), &err);
    mat_download(&c.y, "norm");
    float *mean = download(c.mean, c.rows * c.heads);
    float *scale = download(c.scale, c.rows * c.heads);
    if (c.has_residual) {
        float *want = host_alloc(c.rows * columns * 4);
        cpu->add(want, c.x.x, c.residual.x, c.rows * columns);
        mat_download(&c.sum, "norm's sum");
        expect_exact("norm's sum", &c.sum, want);
    }
    const mat *x = c.has_residual ? &c.sum : &c.x;
    for (size_t i = 0; i < c.rows * c.heads; i++) {
        size_t at = i / c.heads * columns + i % c.heads * c.width;
        norm_row(&c, x->x + at, i, mean, scale, c.y.x + at);
    }
    // Rows alone, next to a row of NaN.
    float *whole = host_alloc(c.rows * columns * 4);
    memcpy(whole, c.y.x, c.rows * columns * 4);
    size_t first = below(c.rows), rows = 1 + below(c.rows - first);
    mat spoiled = c.x;
    spoiled.x = host_alloc(c.rows * columns * 4);
    spoiled.bytes = host_alloc(mat_bytes(&c.x));
    spoiled.memory = NULL;
    memcpy(spoiled.bytes, c.x.bytes, mat_bytes(&c.x));
    for (size_t j = 0; j < columns && first + rows < c.rows; j++)
        mat_put(&spoiled, first + rows, j, NAN);
    mat_upload(&spoiled);
    a = norm_args(&c, first, rows);
    a.x = in_from(&spoiled, first);
    need(bt_cuda_norm(&a, NULL, &err), &err);
    mat_download(&c.y, "norm of some rows");
    expect_exact("norm of some rows", &c.y, whole);
    norm_backward_check(&c, mean, scale, x);
    case_end();
}

/* ---- rotary embeddings and pages ----------------------------------------- */

static void check_rotary(void)
{
    bauta_error err = { 0 };
    static const size_t dims[] = { 2, 6, 16, 32, 64, 80, 96, 128, 256 };
    size_t rows = 1 + below(60), heads = 1 + below(6);
    size_t dim = dims[below(BT_LEN(dims))], columns = heads * dim;
    bauta_dtype dtype = some_dtype();
    mat x = mat_random(dtype, rows, columns, 3);
    mat y = mat_random(dtype, rows, columns, 3);
    uint32_t *positions = random_ids(rows, below(2) ? 100 : 1 << 20);
    float *frequencies = host_alloc(dim * 2);
    for (size_t i = 0; i < dim / 2; i++)
        frequencies[i] = powf(10000.0f, -2.0f * (float)i / (float)dim);
    float *want = host_alloc(rows * columns * 4);
    memcpy(want, y.x, rows * columns * 4);
    bt_rotary r = { .heads = heads,
                    .dim = dim,
                    .positions = positions,
                    .frequencies = frequencies,
                    .x = x.x,
                    .y = want,
                    .back = below(2),
                    .add = below(2) };
    cpu->rotary(&r, 0, rows);
    bt_cuda_rotary_args a = { .dtype = dtype,
                              .rows = rows,
                              .heads = heads,
                              .dim = dim,
                              .positions = device_alloc(positions, rows * 4),
                              .frequencies = device_alloc(frequencies, dim * 2),
                              .x = in(&x),
                              .y = out(&y),
                              .back = r.back,
                              .add = r.add };
    need(bt_cuda_rotary(&a, NULL, &err), &err);
    mat_download(&y, "rotary");
    expect_exact("rotary", &y, want);
    // In place.
    r.add = a.add = false;
    cpu->rotary(&r, 0, rows);
    a.y = out(&x);
    need(bt_cuda_rotary(&a, NULL, &err), &err);
    mat_download(&x, "rotary in place");
    expect_exact("rotary in place", &x, want);
    case_end();
}

/* Pages as a matrix of (pages * heads * keys) rows. */
static void check_kv(void)
{
    bauta_error err = { 0 };
    enum { PAGES = 7, KEYS = 64 };
    static const size_t dims[] = { 8, 16, 64, 80, 128 };
    size_t rows = 1 + below(50), kv_heads = 1 + below(4);
    size_t heads = kv_heads * (1 + below(3)), dim = dims[below(BT_LEN(dims))];
    size_t q_columns = heads * dim, columns = kv_heads * dim;
    bauta_dtype dtype = some_dtype();
    bool rotates = below(3);
    mat q = mat_random(dtype, rows, q_columns, 3);
    mat k = mat_random(dtype, rows, columns, 3);
    mat v = mat_random(dtype, rows, columns, 3);
    mat q_to = mat_empty(dtype, rows, q_columns);
    size_t page_rows = PAGES * kv_heads * KEYS;
    mat pages[2];
    for (int i = 0; i < 2; i++) {
        pages[i] = mat_random(dtype, page_rows, dim, 3);
        pages[i].stride = dim; // dense, from the start of the memory
        pages[i].start = 0;
        for (size_t r = 0; r < page_rows; r++)
            for (size_t c = 0; c < dim; c++)
                mat_put(&pages[i], r, c, pages[i].x[r * dim + c]);
        mat_upload(&pages[i]);
    }
    uint32_t *positions = random_ids(rows, 5000);
    float *frequencies = host_alloc(dim * 2);
    for (size_t i = 0; i < dim / 2; i++)
        frequencies[i] = powf(10000.0f, -2.0f * (float)i / (float)dim);
    // Different places: a walk through all slots of all pages.
    bt_cuda_kv_place *places = host_alloc(rows * sizeof(*places));
    size_t step = PAGES * KEYS / rows;
    for (size_t i = 0; i < rows; i++)
        places[i] = (bt_cuda_kv_place){ (uint32_t)(i * step / KEYS),
                                        (uint32_t)(i * step % KEYS) };
    if (rows > 1)
        places[below(rows)].page = UINT32_MAX;
    float *k_want = host_alloc(rows * columns * 4);
    float *q_want = host_alloc(rows * q_columns * 4);
    memcpy(k_want, k.x, rows * columns * 4);
    memcpy(q_want, q.x, rows * q_columns * 4);
    if (rotates) {
        bt_rotary r = { .heads = kv_heads,
                        .dim = dim,
                        .positions = positions,
                        .frequencies = frequencies,
                        .x = k.x,
                        .y = k_want };
        cpu->rotary(&r, 0, rows);
        r.heads = heads;
        r.x = q.x;
        r.y = q_want;
        cpu->rotary(&r, 0, rows);
    }
    float *want[2];
    for (int i = 0; i < 2; i++) {
        want[i] = host_alloc(page_rows * dim * 4);
        memcpy(want[i], pages[i].x, page_rows * dim * 4);
        for (size_t r = 0; r < rows; r++)
            for (size_t h = 0; h < kv_heads && places[r].page < PAGES; h++)
                memcpy(want[i] + ((places[r].page * kv_heads + h) * KEYS +
                                  places[r].slot) *
                                     dim,
                       (i ? v.x : k_want) + r * columns + h * dim, dim * 4);
    }
    bt_cuda_page_out to = { pages[0].memory, pages[1].memory,
                            kv_heads * KEYS * dim, KEYS * dim, dim };
    bt_cuda_kv_write_args a = {
        .dtype = dtype,
        .rows = rows,
        .heads = heads,
        .kv_heads = kv_heads,
        .dim = dim,
        .positions = rotates ? device_alloc(positions, rows * 4) : NULL,
        .frequencies = device_alloc(frequencies, dim * 2),
        .q = in(&q),
        .k = in(&k),
        .v = in(&v),
        .q_out = out(&q_to),
        .pages = to,
        .places = device_alloc(places, rows * sizeof(*places))
    };
    need(bt_cuda_kv_write(&a, NULL, &err), &err);
    mat_download(&q_to, "kv_write");
    expect_exact("rotated queries", &q_to, q_want);
    for (int i = 0; i < 2; i++) {
        mat_download(&pages[i], "kv_write");
        expect_exact(i ? "pages of values" : "pages of keys", &pages[i],
                     want[i]);
    }
    bt_cuda_kv_copy_item items[] = { { 0, 5, 1 + (uint32_t)below(KEYS) },
                                     { 1, 6, KEYS } };
    need(bt_cuda_kv_copy(dtype, kv_heads, dim, to,
                         device_alloc(items, sizeof(items)), 2, NULL, &err),
         &err);
    for (int i = 0; i < 2; i++) {
        for (int x = 0; x < 2; x++)
            for (size_t h = 0; h < kv_heads; h++)
                memcpy(want[i] + (items[x].to * kv_heads + h) * KEYS * dim,
                       want[i] + (items[x].from * kv_heads + h) * KEYS * dim,
                       items[x].tokens * dim * 4);
        mat_download(&pages[i], "kv_copy");
        expect_exact("copied pages", &pages[i], want[i]);
    }
    case_end();
}

/* ---- cross-entropy ------------------------------------------------------- */

typedef struct loss_case {
    size_t rows, vocab;
    bauta_dtype dtype;
    mat z;
    uint32_t *labels, *labels_device;
    float *weights, *weights_device;
    double smoothing, share;
} loss_case;

/* exp is within 5.1 u (ex2.approx: 2^-22) and its argument within u of itself,
 * twice, and in bfloat16 within 3 u of the largest logit; the sum takes 3 + 4 +
 * 5 steps in a slice, then a factor of 6.1 u and at most 33 + 5 steps. Terms
 * that matter have arguments down to about -log of the vocabulary. */
static double sum_bound(const loss_case *c, double max)
{
    double d = log((double)c->vocab) + 1;
    return U *
           (60 + 4 + 3 * d + (c->dtype == BAUTA_BFLOAT16 ? 3 * fabs(max) : 0));
}

static void loss_row_check(const loss_case *c, size_t row, double loss,
                           float lse, float logprob, const float *dz,
                           bauta_dtype dz_dtype)
{
    const float *z = c->z.x + row * c->vocab;
    uint32_t label = c->labels[row];
    double max = -INFINITY, sum = 0, mean = 0, size = 0;
    if (label == UINT32_MAX) {
        checks++;
        bool zero = loss == 0 && lse == 0 && logprob == 0;
        for (size_t j = 0; j < c->vocab; j++)
            zero &= dz[j] == 0;
        if (!zero)
            FAIL("an ignored row has a loss or a gradient");
        return;
    }
    for (size_t j = 0; j < c->vocab; j++)
        max = fmax(max, (double)z[j]);
    for (size_t j = 0; j < c->vocab; j++) {
        sum += exp((double)z[j] - max);
        mean += (double)z[j] / (double)c->vocab;
        size += fabs((double)z[j]) / (double)c->vocab;
    }
    double weight = c->weights ? (double)c->weights[row] : 1;
    double s = c->smoothing, want_lse = max + log(sum),
           error = sum_bound(c, max);
    double value =
        (1 - s) * (want_lse - (double)z[label]) + s * (want_lse - mean);
    expect_near("loss", row, loss, weight * value,
                fabs(weight) * (error + s * 16 * U * size) + 1e-12);
    expect_near("lse", row, (double)lse, want_lse, error + U * fabs(want_lse));
    expect_near("logprob", row, (double)logprob, (double)z[label] - want_lse,
                error + 2 * U * (fabs(want_lse) + fabs((double)z[label])));
    double share = c->share * weight;
    for (size_t j = 0; j < c->vocab; j++) {
        double d = (double)z[j] - max, p = exp(d) / sum;
        double want =
            share * (p - s / (double)c->vocab - (j == label ? 1 - s : 0));
        double bound = fabs(share) * (p * (error + U * (12 + 4 * fabs(d))) +
                                      4 * U * (s / (double)c->vocab) +
                                      (j == label ? 4 * U : 0)) +
                       fabs(share) * 0x1p-120;
        expect_near("dlogits", row * c->vocab + j, (double)dz[j], want,
                    bound + 2 * U * fabs(want) + rounding(dz_dtype, want));
    }
}

static bt_cuda_cross_entropy_args loss_args(const loss_case *c, size_t first,
                                            size_t rows, double *losses,
                                            float *lse, float *logprobs)
{
    return (bt_cuda_cross_entropy_args){
        .rows = rows,
        .vocab = c->vocab,
        .dtype = c->dtype,
        .logits = in_from(&c->z, first),
        .labels = c->labels_device + first,
        .weights = c->weights ? c->weights_device + first : NULL,
        .smoothing = c->smoothing,
        .share = c->share,
        .losses = losses + first,
        .lse = lse + first,
        .logprobs = logprobs + first
    };
}

static loss_case loss_make(size_t rows, size_t vocab)
{
    loss_case c = { .rows = rows, .vocab = vocab, .dtype = some_dtype() };
    c.z = mat_random(c.dtype, rows, vocab, below(2) ? 4.0f : 20.0f);
    c.smoothing = below(2) ? 0 : 0.1;
    c.share = 1.0 / 37;
    c.labels = random_ids(rows, vocab);
    if (below(2)) {
        c.weights = host_alloc(rows * 4);
        for (size_t i = 0; i < rows; i++)
            c.weights[i] = fabsf(test_float(&random_stream));
        c.weights_device = device_alloc(c.weights, rows * 4);
    }
    if (rows > 2) {
        size_t ignored = below(rows);
        c.labels[ignored] = UINT32_MAX;
        for (size_t j = 0; j < vocab; j++)
            mat_put(&c.z, ignored, j, NAN);
        mat_upload(&c.z);
    }
    c.labels_device = device_alloc(c.labels, rows * 4);
    return c;
}

static void check_cross_entropy(size_t rows, size_t vocab)
{
    bauta_error err = { 0 };
    loss_case c = loss_make(rows, vocab);
    bauta_dtype dz_dtype = some_dtype();
    mat dz = mat_empty(dz_dtype, rows, vocab);
    double *losses = device_alloc(NULL, rows * 8);
    float *lse = device_alloc(NULL, rows * 4);
    float *logprobs = device_alloc(NULL, rows * 4);
    bt_cuda_cross_entropy_args a =
        loss_args(&c, 0, rows, losses, lse, logprobs);
    a.dlogits = out(&dz);
    a.dlogits_dtype = dz_dtype;
    need(bt_cuda_cross_entropy(&a, NULL, &err), &err);
    mat_download(&dz, "cross-entropy");
    double *each = (double *)(void *)download(losses, 2 * rows);
    float *each_lse = download(lse, rows);
    float *each_logprob = download(logprobs, rows);
    for (size_t i = 0; i < rows; i++)
        loss_row_check(&c, i, each[i], each_lse[i], each_logprob[i],
                       dz.x + i * vocab, dz_dtype);

    // The sampler's lse has the same bits.
    bt_cuda_row_stats *stats =
        device_alloc(NULL, rows * sizeof(bt_cuda_row_stats));
    void *workspace =
        device_alloc(NULL, bt_cuda_row_stats_workspace(rows, vocab));
    need(bt_cuda_row_stats_of(rows, vocab, c.dtype, in(&c.z), stats, workspace,
                              NULL, &err),
         &err);
    bt_cuda_row_stats *got =
        (bt_cuda_row_stats *)(void *)download(stats, rows * sizeof(*got) / 4);
    checks++;
    for (size_t i = 0; i < rows; i++)
        if (c.labels[i] != UINT32_MAX && !same_bits(got[i].lse, each_lse[i]))
            FAIL("lse of the sampler %.9g, of the loss %.9g",
                 (double)got[i].lse, (double)each_lse[i]);

    // Some rows alone, and over the logits.
    size_t first = below(rows), some = 1 + below(rows - first);
    bool narrow = c.dtype == BAUTA_FLOAT32 && dz_dtype == BAUTA_BFLOAT16;
    if (!narrow && c.dtype != dz_dtype) {
        case_end();
        return;
    }
    a = loss_args(&c, first, some, losses, lse, logprobs);
    a.dlogits = out_from(&c.z, first);
    a.dlogits.stride *= narrow ? 2 : 1;
    a.dlogits_dtype = dz_dtype;
    need(bt_cuda_cross_entropy(&a, NULL, &err), &err);
    synchronize("cross-entropy in place");
    double *again = (double *)(void *)download(losses, 2 * rows);
    unsigned char *bytes = host_alloc(mat_bytes(&c.z));
    need_cuda(
        cudaMemcpy(bytes, c.z.memory, mat_bytes(&c.z), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    float *z = host_alloc(vocab * 4);
    checks++;
    if (memcmp(each, again, rows * 8))
        FAIL("losses of some rows differ from those of all");
    for (size_t i = first; i < first + some; i++) {
        bt_convert_f32(z,
                       bytes + (c.z.start + i * c.z.stride) * element(c.dtype),
                       dz_dtype, vocab);
        checks++;
        if (memcmp(z, dz.x + i * vocab, vocab * 4))
            FAIL("gradients over the logits of %zu x %zu (%s over %s) differ "
                 "in row %zu",
                 rows, vocab, bt_dtype_name(dz_dtype), bt_dtype_name(c.dtype),
                 i);
    }
    // Their sum: a tree in double.
    double *total = device_alloc(NULL, 8), sum = 0;
    need(bt_cuda_sum_f64(total, losses, rows, NULL, &err), &err);
    double *got_sum = (double *)(void *)download(total, 2);
    for (size_t i = 0; i < rows; i++)
        sum += each[i];
    expect_near("sum of losses", 0, *got_sum, sum, 1e-13 * (1 + fabs(sum)));
    case_end();
}

/* ---- optimizer ----------------------------------------------------------- */

enum { SLOTS = 4 };

typedef struct adamw_case {
    size_t counts[SLOTS];
    float *p[SLOTS], *m[SLOTS], *v[SLOTS], *grad[SLOTS]; /* here */
    bt_cuda_slot slots[SLOTS];
    bt_cuda_slot *slots_device;
    bt_cuda_piece *pieces, *pieces_device;
    size_t piece_count;
} adamw_case;

static float *random_floats(size_t count, float width)
{
    float *x = host_alloc(count * 4);
    for (size_t i = 0; i < count; i++)
        x[i] = width * test_float(&random_stream);
    return x;
}

static adamw_case adamw_make(void)
{
    adamw_case c = { .counts = { 3 * BT_CUDA_PIECE + 5, 77, BT_CUDA_PIECE,
                                 40000 } };
    for (size_t i = 0; i < SLOTS; i++) {
        size_t n = c.counts[i], shift = i == 3; // one that is not aligned
        c.p[i] = random_floats(n, 1);
        c.m[i] = random_floats(n, 0.1f);
        c.v[i] = random_floats(n, 0.1f);
        for (size_t j = 0; j < n; j++)
            c.v[i][j] = fabsf(c.v[i][j]);
        c.grad[i] = random_floats(n, 0.5f);
        float *on[4], *from[4] = { c.p[i], c.m[i], c.v[i], c.grad[i] };
        for (int x = 0; x < 4; x++) {
            on[x] = (float *)device_alloc(NULL, (n + 1) * 4) + shift;
            need_cuda(cudaMemcpy(on[x], from[x], n * 4, cudaMemcpyHostToDevice),
                      "cudaMemcpy");
        }
        c.slots[i] = (bt_cuda_slot){ on[0],
                                     on[1],
                                     on[2],
                                     on[3],
                                     i == 1 ? NULL : device_alloc(NULL, n * 2),
                                     n,
                                     i % 2 == 0 };
    }
    c.piece_count = bt_cuda_pieces(NULL, c.counts, SLOTS);
    c.pieces = host_alloc(c.piece_count * sizeof(*c.pieces));
    bt_cuda_pieces(c.pieces, c.counts, SLOTS);
    c.pieces_device = device_alloc(c.pieces, c.piece_count * sizeof(*c.pieces));
    c.slots_device = device_alloc(c.slots, sizeof(c.slots));
    return c;
}

/* As train/optimizer.c. */
static bt_adamw adamw_constants(const bt_cuda_adamw_options *o, size_t steps,
                                double norm, double decay)
{
    double scale = o->max_grad_norm / (norm + 1e-6), power[2] = { 1, 1 };
    for (int i = 0; i < 2; i++) {
        double base = i ? o->beta2 : o->beta1;
        for (size_t n = steps; n; n >>= 1, base *= base)
            if (n & 1)
                power[i] *= base;
    }
    return (bt_adamw){
        .scale = (float)(o->max_grad_norm > 0 && scale < 1 ? scale : 1),
        .keep = (float)(1 - o->rate * decay),
        .beta1 = (float)o->beta1,
        .weight1 = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .weight2 = (float)(1 - o->beta2),
        .root = (float)sqrt(1 - power[1]),
        .epsilon = (float)o->epsilon,
        .step = (float)(o->rate / (1 - power[0])),
    };
}

static double adamw_norm(const adamw_case *c)
{
    double sum = 0;
    for (size_t i = 0; i < c->piece_count; i++)
        sum += cpu->squares(c->grad[c->pieces[i].slot] + c->pieces[i].from,
                            c->pieces[i].count);
    return sqrt(sum);
}

static void adamw_compare(const adamw_case *c, const char *what)
{
    for (size_t i = 0; i < SLOTS; i++) {
        size_t n = c->counts[i];
        const float *want[] = { c->p[i], c->m[i], c->v[i] };
        float *on[] = { c->slots[i].p, c->slots[i].m, c->slots[i].v };
        for (int x = 0; x < 3; x++) {
            float *got = download(on[x], n);
            checks++;
            if (memcmp(got, want[x], n * 4))
                FAIL("%s: %s of slot %zu", what,
                     x == 0   ? "weights"
                     : x == 1 ? "first moments"
                              : "second moments",
                     i);
        }
        if (!c->slots[i].copy)
            continue;
        uint16_t *copy = (uint16_t *)(void *)download(c->slots[i].copy, n / 2);
        uint16_t *same = host_alloc(n * 2);
        bt_convert_from_f32(same, BAUTA_BFLOAT16, c->p[i], n);
        checks++;
        if (memcmp(copy, same, n / 2 * 4))
            FAIL("%s: bfloat16 weights of slot %zu", what, i);
    }
}

static void check_adamw(void)
{
    bauta_error err = { 0 };
    adamw_case c = adamw_make();
    bt_cuda_adamw_options o = { 0.9, 0.999, 1e-8, 0.01, 1.0, 1e-3 };
    bt_cuda_adamw_state zero = { .steps = 7 }, got;
    bt_cuda_adamw_state *state = device_alloc(&zero, sizeof(zero));
    double *squares = device_alloc(NULL, c.piece_count * 8);
    double norm = adamw_norm(&c);
    for (size_t step = 8; step < 10; step++) {
        bt_adamw constants[] = { adamw_constants(&o, step, norm, 0),
                                 adamw_constants(&o, step, norm,
                                                 o.weight_decay) };
        for (size_t i = 0; i < SLOTS; i++)
            cpu->adamw(&constants[c.slots[i].decay], c.p[i], c.m[i], c.v[i],
                       c.grad[i], c.counts[i]);
        need(bt_cuda_adamw(c.slots_device, c.pieces_device, c.piece_count, &o,
                           state, squares, NULL, &err),
             &err);
        need_cuda(cudaMemcpy(&got, state, sizeof(got), cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
        checks++;
        if (got.norm != norm || !got.taken || got.steps != step)
            FAIL("AdamW: norm %.17g, not %.17g; %zu steps, not %zu", got.norm,
                 norm, (size_t)got.steps, step);
        adamw_compare(&c, "AdamW");
    }
    // A gradient that is not finite: nothing changes.
    c.grad[2][100] = INFINITY;
    need_cuda(cudaMemcpy((void *)(uintptr_t)c.slots[2].grad, c.grad[2],
                         c.counts[2] * 4, cudaMemcpyHostToDevice),
              "cudaMemcpy");
    need(bt_cuda_adamw(c.slots_device, c.pieces_device, c.piece_count, &o,
                       state, squares, NULL, &err),
         &err);
    need_cuda(cudaMemcpy(&got, state, sizeof(got), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    checks++;
    if (got.taken || got.steps != 9 || isfinite(got.norm))
        FAIL("AdamW took a step with an infinite gradient");
    adamw_compare(&c, "a step that is skipped");
    case_end();
}

static void check_ema(size_t count, size_t shift)
{
    bauta_error err = { 0 };
    float *a = random_floats(count, 1), *x = random_floats(count, 1);
    float *to = (float *)device_alloc(NULL, (count + 4) * 4) + shift;
    float *from = (float *)device_alloc(NULL, (count + 4) * 4) + shift;
    need_cuda(cudaMemcpy(to, a, count * 4, cudaMemcpyHostToDevice), "copy");
    need_cuda(cudaMemcpy(from, x, count * 4, cudaMemcpyHostToDevice), "copy");
    for (size_t i = 0; i < count; i++)
        a[i] = 0.99f * a[i] + 0.01f * x[i];
    need(bt_cuda_ema(to, from, count, 0.99f, 0.01f, NULL, &err), &err);
    mat got = { .dtype = BAUTA_FLOAT32, .rows = 1, .columns = count };
    got.x = download(to, count);
    expect_exact("moving average", &got, a);
    need(bt_cuda_swap(to, from, count, NULL, &err), &err);
    got.x = download(to, count);
    expect_exact("swap", &got, x);
    got.x = download(from, count);
    expect_exact("swap", &got, a);
    case_end();
}

/* ---- sampling ------------------------------------------------------------ */

typedef struct sample_case {
    size_t rows, vocab;
    mat z;
    bauta_generate_options *options; /* (rows) */
    bt_token_history *histories;
    bt_cuda_processors *processors;
} sample_case;

static void sampler_scratch_init(bt_sampler_scratch *s, size_t vocab)
{
    *s = (bt_sampler_scratch){ .kernels = cpu, .vocab = vocab };
    s->work = host_alloc(vocab * 4);
    s->exps = host_alloc(vocab * 4);
    s->maxima = host_alloc((vocab / BT_TOPK_BLOCK + 1) * 4);
    s->marks = host_alloc(vocab);
    s->topk_capacity = vocab;
    s->topk = host_alloc(vocab * sizeof(*s->topk));
}

/* Processors of a row, for the CPU and for the device. */
static void some_processors(sample_case *c, size_t row, size_t most_history)
{
    bauta_generate_options *o = &c->options[row];
    bt_token_history *h = &c->histories[row];
    bt_cuda_processors *p = &c->processors[row];
    h->count = 1 + below(most_history);
    h->limit = 10 * most_history;
    // Few different tokens, so that n-grams repeat.
    uint32_t *ids = random_ids(h->count, c->vocab < 5 ? c->vocab : 5);
    h->ids = ids;
    *p = (bt_cuda_processors){ .history = device_alloc(ids, h->count * 4),
                               .history_count = (uint32_t)h->count,
                               .repetition_penalty = 1.0f };
    if (below(2))
        p->repetition_penalty = o->repetition_penalty = 1.3f;
    if (below(3) == 0) {
        p->presence_penalty = o->presence_penalty = 0.7f;
        p->frequency_penalty = o->frequency_penalty = -0.3f;
        p->new_tokens = p->history; // h->prompt is 0
        p->new_count = p->history_count;
    }
    if (below(3) == 0 && c->vocab > 20) {
        static const bauta_token_bias biases[] = { { 1, 2.5f }, { 5, -9.0f } };
        static const uint32_t tokens[] = { 1, 5 };
        static const float values[] = { 2.5f, -9.0f };
        o->logit_bias = biases;
        o->logit_bias_count = p->bias_count = 2;
        p->bias_tokens = device_alloc(tokens, sizeof(tokens));
        p->biases = device_alloc(values, sizeof(values));
    }
    if (below(3) == 0) {
        o->no_repeat_ngram_size = 1 + below(3);
        p->no_repeat_ngram_size = (uint32_t)o->no_repeat_ngram_size;
    }
    if (below(3) == 0 && c->vocab > 20) {
        o->suppress_token_count = 3;
        for (size_t i = 0; i < 3; i++)
            o->suppress_tokens[i] = (uint32_t)below(c->vocab);
        p->masked = device_alloc(o->suppress_tokens, 12);
        p->masked_count = 3;
    }
    if (below(3) == 0 && c->vocab > 20 && h->count > 2) {
        // Two words: one that follows the history, and one that does not.
        static bauta_token_seq words[2];
        uint32_t *tokens = host_alloc(6 * 4);
        uint32_t ends[] = { 3, 5 };
        memcpy(tokens, ids + h->count - 2, 8);
        tokens[2] = (uint32_t)below(c->vocab);
        tokens[3] = (uint32_t)c->vocab - 1;
        tokens[4] = (uint32_t)below(c->vocab);
        words[0] = (bauta_token_seq){ 3, tokens };
        words[1] = (bauta_token_seq){ 2, tokens + 3 };
        bauta_token_seq *copy = host_alloc(sizeof(words));
        memcpy(copy, words, sizeof(words));
        o->bad_words = copy;
        o->bad_word_count = 2;
        p->bad_words = device_alloc(tokens, 20);
        p->bad_ends = device_alloc(ends, sizeof(ends));
        p->bad_word_count = 2;
    }
    if (below(8) == 0) {
        o->forced_eos_token_id = (uint32_t)below(c->vocab);
        h->limit = h->count + 1;
        p->forces = true;
        p->forced = o->forced_eos_token_id;
    }
}

static sample_case sample_make(size_t rows, size_t vocab)
{
    sample_case c = { .rows = rows, .vocab = vocab };
    c.z = mat_random(some_dtype(), rows, vocab, below(2) ? 3.0f : 12.0f);
    c.options = host_alloc(rows * sizeof(*c.options));
    c.histories = host_alloc(rows * sizeof(*c.histories));
    c.processors = host_alloc(rows * sizeof(*c.processors));
    for (size_t i = 0; i < rows; i++) {
        c.options[i] = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
        c.processors[i].repetition_penalty = 1.0f;
        c.histories[i] = (bt_token_history){ .count = below(1000) };
        c.histories[i].limit = 100000;
        if (below(2))
            some_processors(&c, i, 40);
    }
    // Equal values, in a row of few different ones.
    for (size_t j = 0; j < vocab && below(2); j++)
        mat_put(&c.z, 0, j, (float)below(7) * 0.5f);
    mat_upload(&c.z);
    return c;
}

/* Results in pinned memory are those on the GPU. */
static void sampled_equal(const bt_cuda_sampled *a, const bt_cuda_sampled *b,
                          size_t rows)
{
    checks++;
    for (size_t i = 0; i < rows; i++)
        if (a[i].status != b[i].status || a[i].token != b[i].token ||
            !same_bits(a[i].logprob, b[i].logprob) || a[i].score != b[i].score)
            FAIL("row %zu of %zu has another result on the host", i, rows);
}

static void check_sample(size_t rows, size_t vocab)
{
    bauta_error err = { 0 };
    sample_case c = sample_make(rows, vocab);
    bt_cuda_sample_row *how = host_alloc(rows * sizeof(*how));
    for (size_t i = 0; i < rows; i++) {
        bauta_generate_options *o = &c.options[i];
        o->do_sample = below(4) != 0;
        o->seed = (uint64_t)test_u32(&random_stream) << 32 | i;
        if (below(2))
            o->temperature = 0.3f + (float)below(20) * 0.1f;
        if (below(2))
            o->top_k = 1 + below(below(2) ? 50 : 2 * vocab);
        if (below(2))
            o->top_p = 0.05f + 0.9f * (float)below(100) / 100;
        if (below(3) == 0)
            o->min_p = 0.1f * (float)below(5);
        how[i] = (bt_cuda_sample_row){ .processors = c.processors[i],
                                       .do_sample = o->do_sample,
                                       .temperature = o->temperature,
                                       .top_k = (uint32_t)o->top_k,
                                       .top_p = o->top_p,
                                       .min_p = o->min_p,
                                       .seed = o->seed,
                                       .position = c.histories[i].count };
    }
    if (rows > 3) {
        mat_put(&c.z, rows - 1, below(vocab), NAN);
        for (size_t j = 0; j < vocab; j++)
            mat_put(&c.z, rows - 2, j, -INFINITY);
        mat_upload(&c.z);
    }
    bt_cuda_sample_row *how_device = device_alloc(how, rows * sizeof(*how));
    bt_cuda_sampled *to = device_alloc(NULL, rows * sizeof(*to));
    float *work = device_alloc(NULL, rows * (vocab + 8) * 4);
    bt_cuda_sampled *host = NULL;
    need_cuda(cudaMallocHost((void **)&host, rows * sizeof(*host)),
              "pinned memory");
    need(bt_cuda_sample(rows, vocab, c.z.dtype, in(&c.z), how_device, to, host,
                        work, NULL, &err),
         &err);
    synchronize("sampling");
    bt_cuda_sampled *got =
        (bt_cuda_sampled *)(void *)download(to, rows * sizeof(*to) / 4);
    sampled_equal(got, host, rows);
    bt_sampler_scratch scratch;
    sampler_scratch_init(&scratch, vocab);
    double bound = U * (64 + 3 * log((double)vocab) + 3 * 12);
    for (size_t i = 0; i < rows; i++) {
        bt_sampled_token want = { 0 };
        bt_sample_status status = bt_sample(&want, &scratch, c.z.x + i * vocab,
                                            &c.options[i], &c.histories[i]);
        checks++;
        if (got[i].status != (int32_t)status ||
            (!status && got[i].token != want.token)) {
            FAIL("sampling, row %zu of %zu (%s): status %d token %u, not %d "
                 "%u; T %g k %zu p %g min %g, penalty %g n-grams %zu",
                 i, vocab, bt_dtype_name(c.z.dtype), (int)got[i].status,
                 (unsigned)got[i].token, (int)status, (unsigned)want.token,
                 (double)c.options[i].temperature, c.options[i].top_k,
                 (double)c.options[i].top_p, (double)c.options[i].min_p,
                 (double)c.options[i].repetition_penalty,
                 c.options[i].no_repeat_ngram_size);
            continue;
        }
        if (status)
            continue;
        double scale = fabs((double)want.logprob) + 40;
        expect_near("log-probability", i, (double)got[i].logprob,
                    (double)want.logprob, 2 * bound + 4 * U * scale);
        scale = fabs(want.score) + 40;
        expect_near("score", i, got[i].score, want.score,
                    2 * bound + 4 * U * scale);
    }
    // A row alone.
    size_t row = below(rows);
    need(bt_cuda_sample(1, vocab, c.z.dtype, in_from(&c.z, row),
                        how_device + row, to, NULL, work, NULL, &err),
         &err);
    bt_cuda_sampled *alone =
        (bt_cuda_sampled *)(void *)download(to, sizeof(*to) / 4);
    checks++;
    if (alone->status != got[row].status || alone->token != got[row].token ||
        !same_bits(alone->logprob, got[row].logprob) ||
        alone->score != got[row].score)
        FAIL("a row that is sampled alone differs");
    // The plain maximum by many blocks.
    void *workspace =
        device_alloc(NULL, bt_cuda_row_stats_workspace(rows, vocab));
    need(bt_cuda_sample_greedy(rows, vocab, c.z.dtype, in(&c.z), to, host,
                               workspace, NULL, &err),
         &err);
    got = (bt_cuda_sampled *)(void *)download(to, rows * sizeof(*to) / 4);
    sampled_equal(got, host, rows);
    cudaFreeHost(host);
    bauta_generate_options plain = BAUTA_GENERATE_OPTIONS_INIT;
    bt_token_history none = { .limit = 1000 };
    for (size_t i = 0; i < rows; i++) {
        bt_sampled_token want = { 0 };
        bt_sample_status status =
            bt_sample(&want, &scratch, c.z.x + i * vocab, &plain, &none);
        checks++;
        if (got[i].status != (int32_t)status ||
            (!status && got[i].token != want.token))
            FAIL("greedy: status %d token %u, not %d %u", (int)got[i].status,
                 (unsigned)got[i].token, (int)status, (unsigned)want.token);
    }
    case_end();
}

/* ---- beams --------------------------------------------------------------- */

/* Log-sum-exps of rows of float32, with the device's bits. */
static float *device_lse(const float *x, size_t rows, size_t vocab)
{
    bauta_error err = { 0 };
    bt_cuda_row_stats *to = device_alloc(NULL, rows * sizeof(*to));
    void *workspace =
        device_alloc(NULL, bt_cuda_row_stats_workspace(rows, vocab));
    bt_cuda_in on = { device_alloc(x, rows * vocab * 4), vocab };
    need(bt_cuda_row_stats_of(rows, vocab, BAUTA_FLOAT32, on, to, workspace,
                              NULL, &err),
         &err);
    bt_cuda_row_stats *got =
        (bt_cuda_row_stats *)(void *)download(to, rows * sizeof(*to) / 4);
    float *lse = host_alloc(rows * 4);
    for (size_t i = 0; i < rows; i++)
        lse[i] = got[i].lse;
    return lse;
}

/* What decode/beam.c selects, given the device's log-sum-exps: to the bit. */
static void check_beams(size_t beams, size_t vocab, size_t want)
{
    bauta_error err = { 0 };
    enum { GROUPS = 2 };
    size_t rows = GROUPS * beams;
    sample_case c = sample_make(rows, vocab);
    bt_cuda_beam_row *how = host_alloc(rows * sizeof(*how));
    bool renormalize = below(2);
    for (size_t i = 0; i < rows; i++) {
        how[i] =
            (bt_cuda_beam_row){ c.processors[i], renormalize,
                                -5.0f * fabsf(test_float(&random_stream)) };
        if (below(4) == 0 && i)
            how[i].score = how[i - 1].score;
    }
    bt_cuda_row_stats *stats = device_alloc(NULL, rows * sizeof(*stats));
    void *workspace =
        device_alloc(NULL, bt_cuda_row_stats_workspace(rows, vocab));
    need(bt_cuda_row_stats_of(rows, vocab, c.z.dtype, in(&c.z), stats,
                              workspace, NULL, &err),
         &err);
    bt_cuda_row_stats *raw =
        (bt_cuda_row_stats *)(void *)download(stats, rows * sizeof(*stats) / 4);
    bt_sampler_scratch scratch;
    sampler_scratch_init(&scratch, vocab);
    float *work = host_alloc(rows * vocab * 4), *less = host_alloc(rows * 4);
    for (size_t i = 0; i < rows; i++) {
        float *w = work + i * vocab;
        for (size_t j = 0; j < vocab; j++)
            w[j] = c.z.x[i * vocab + j] - raw[i].lse;
        bt_logits_processors_apply(w, &scratch, &c.options[i], &c.histories[i]);
    }
    float *again = device_lse(work, rows, vocab);
    for (size_t i = 0; i < rows; i++)
        less[i] = renormalize ? again[i] : 0;

    bt_cuda_beam_group groups[GROUPS];
    for (size_t g = 0; g < GROUPS; g++)
        groups[g] =
            (bt_cuda_beam_group){ (uint32_t)(g * beams), (uint32_t)beams };
    bt_cuda_beam_args a = {
        .rows = rows,
        .vocab = vocab,
        .groups = GROUPS,
        .want = want,
        .most_beams = beams,
        .dtype = c.z.dtype,
        .logits = in(&c.z),
        .how = device_alloc(how, rows * sizeof(*how)),
        .group = device_alloc(groups, sizeof(groups)),
        .choices =
            device_alloc(NULL, GROUPS * want * sizeof(bt_cuda_beam_choice)),
        .counts = device_alloc(NULL, GROUPS * 4),
        .status = device_alloc(NULL, GROUPS * 4),
        .work = device_alloc(NULL, rows * (vocab + 8) * 4),
        .workspace = device_alloc(NULL, bt_cuda_beam_workspace(rows, want))
    };
    need(bt_cuda_beam(&a, NULL, &err), &err);
    synchronize("beams");
    bt_cuda_beam_choice *got = (bt_cuda_beam_choice *)(void *)download(
        a.choices, GROUPS * want * sizeof(*got) / 4);
    uint32_t *counts = (uint32_t *)(void *)download(a.counts, GROUPS);
    bt_topk_item *items = host_alloc(want * sizeof(*items));
    for (size_t g = 0; g < GROUPS; g++) {
        bt_topk picks = bt_topk_init(items, want);
        for (size_t b = 0; b < beams; b++) {
            size_t i = g * beams + b;
            const float *w = work + i * vocab;
            if (isnan(again[i]))
                continue; // all are masked
            bt_block_maxima(scratch.maxima, cpu, w, vocab);
            bt_topk_add_row(&picks, w, vocab, scratch.maxima, (uint32_t)b,
                            less[i], how[i].score);
        }
        bt_topk_sort(&picks);
        checks++;
        bool same = counts[g] == picks.count;
        for (size_t i = 0; i < picks.count && same; i++) {
            const bt_cuda_beam_choice *x = &got[g * want + i];
            size_t row = g * beams + x->beam;
            same = x->score == items[i].value && x->beam == items[i].row &&
                   x->token == items[i].id &&
                   same_bits(x->logprob,
                             c.z.x[row * vocab + x->token] - raw[row].lse);
        }
        if (!same)
            FAIL("%zu beams of %zu (%s) and %zu candidates: %u found, not %zu, "
                 "or others",
                 beams, vocab, bt_dtype_name(c.z.dtype), want, counts[g],
                 picks.count);
    }
    case_end();
}

/* ---- refusals ------------------------------------------------------------ */

static void refusals(void)
{
    bauta_error err = { 0 };
    bt_cuda_out to = { NULL, 0 };
    bt_cuda_in from = { NULL, 0 };
    checks += 4;
    if (bt_cuda_add(1, 1, BAUTA_FLOAT16, to, from, from, NULL, &err) !=
        BAUTA_ERR_UNSUPPORTED)
        FAIL("F16 was accepted");
    bt_cuda_norm_args wide = { .dtype = BAUTA_FLOAT32,
                               .gain_dtype = BAUTA_FLOAT32,
                               .rows = 1,
                               .heads = 1,
                               .width = 20000 };
    if (bt_cuda_norm(&wide, NULL, &err) != BAUTA_ERR_UNSUPPORTED)
        FAIL("a norm over 20,000 columns was accepted");
    bt_cuda_rotary_args odd = {
        .dtype = BAUTA_FLOAT32, .rows = 1, .heads = 1, .dim = 7
    };
    if (bt_cuda_rotary(&odd, NULL, &err) != BAUTA_ERR_UNSUPPORTED)
        FAIL("heads of seven columns were rotated");
    float x;
    bt_cuda_cross_entropy_args over = { .rows = 2,
                                        .vocab = 8,
                                        .dtype = BAUTA_FLOAT32,
                                        .dlogits_dtype = BAUTA_BFLOAT16,
                                        .logits = { &x, 8 },
                                        .dlogits = { &x, 8 } };
    if (bt_cuda_cross_entropy(&over, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("gradients were written over logits of other rows");
    // Nothing to do is no error.
    need(bt_cuda_add(0, 5, BAUTA_FLOAT32, to, from, from, NULL, &err), &err);
}

int main(int argc, char **argv)
{
    check_begin(argc, argv);
    cpu = bt_kernels_get("c");
    int times = quick ? 3 : 60;
    refusals();
    for (int i = 0; i < times; i++) {
        check_scale();
        check_add();
        check_rows_by_index();
        check_act();
        check_dropout();
        check_sum_rows();
        check_rotary();
        check_kv();
        check_norm();
        check_embedding_backward(1 + below(quick ? 300 : 4000), 1 + below(700));
    }
    if (!quick) {
        check_embedding_backward(20000, 50257);
        check_embedding_backward(5000, 70000);
    }
    check_adamw();
    check_ema(5001, 0);
    check_ema(5001, 1);
    static const size_t vocabs[] = { 1,    2,    50,   1000,  1023, 1024,
                                     1025, 5000, 9000, 33000, 50257 };
    for (size_t i = 0; i < BT_LEN(vocabs); i++) {
        if (quick && vocabs[i] > 2000 && vocabs[i] != 9000)
            continue;
        for (int x = 0; x < (quick ? 1 : 6); x++) {
            check_cross_entropy(1 + below(9), vocabs[i]);
            check_sample(1 + below(9), vocabs[i]);
            check_beams(1 + below(5), vocabs[i], 1 + below(24));
        }
    }
    if (!quick) {
        check_cross_entropy(3, 128256);
        check_sample(4, 128256);
        check_beams(2, 50257, 1000);
    }
    return check_end();
}
