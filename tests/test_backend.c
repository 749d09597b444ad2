/* SPDX-License-Identifier: Apache-2.0 */
/* test_backend.c - every operation of the table of backend.h, on every backend,
 * against its formula in double within derived bounds.
 *
 * A new backend is one line in `backends`. Bounds count roundings, with
 * u = 2^-24: a sum of n terms in any order is within n u of the sum of their
 * magnitudes. Shapes and numbers are random, from a printed seed. */
#include "attention_oracle.h"
#include "backend/block_table.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/sampling.h"
#include "backend_rig.h"
#include "base/thread_pool.h"
#include "masks.h"
#include "reference_backend.h"

static uint64_t seed;
static bt_thread_pool *pool;
static const double u = 0x1p-24;

/* ---- Backends ---------------------------------------------------------- */

static bauta_status open_cpu(bt_stream **out, bauta_error *err)
{
    return bt_cpu_stream_create(out, bt_kernels_get(NULL), NULL, err);
}

static bauta_status open_cpu_threads(bt_stream **out, bauta_error *err)
{
    return bt_cpu_stream_create(out, bt_kernels_get(NULL), pool, err);
}

static bauta_status open_reference(bt_stream **out, bauta_error *err)
{
    return bt_reference_driver.open(out, 0, NULL, err);
}

#if defined(BT_TEST_CUDA)
#include "backend/cuda/driver.h"

static bauta_status open_cuda(bt_stream **out, bauta_error *err)
{
    bauta_status status = bt_cuda_driver.open(out, -1, NULL, err);
    if (!status)
        (*out)->dtype = BAUTA_FLOAT32;
    return status;
}
#endif

typedef struct backend_case {
    const char *name;
    bauta_status (*open)(bt_stream **out, bauta_error *err);
} backend_case;

static backend_case backends[] = {
    { "cpu", open_cpu },
    { "cpu, 3 threads", open_cpu_threads },
    { "reference", open_reference },
#if defined(BT_TEST_CUDA)
    { "cuda", open_cuda },
#endif
};

static rig *rig_open(void **state, const char *what)
{
    const backend_case *given = *state;
    bauta_error err;
    rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    if (given->open(&r->stream, &err))
        fail_msg("%s", err.message);
    r->backend = r->stream->backend;
    r->random = test_random_from(seed);
    r->what = what;
    return r;
}

static void rig_close(rig *r)
{
    rig_clear(r);
    RIG_MUST(r, r->backend->sync(r->stream, &r->err));
    r->backend->stream_free(r->stream);
    free(r);
    assert_int_equal(reference_backend_live_buffers(), 0);
}

/* ---- Shapes ------------------------------------------------------------ */

enum { ROUNDS = 24 };

/* Rows include 0 and 1, columns a vector more or less. */
static size_t random_rows(rig *r)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 7, 16, 33, 70 };
    return sizes[test_below(&r->random, BT_LEN(sizes))];
}

static size_t random_columns(rig *r)
{
    static const size_t sizes[] = { 1, 2, 5, 15, 16, 17, 31, 64, 97 };
    return sizes[test_below(&r->random, BT_LEN(sizes))];
}

static bool random_bool(rig *r)
{
    return test_below(&r->random, 2);
}

/* More columns of a larger matrix, where a stride is allowed. */
static size_t random_extra(rig *r)
{
    return random_bool(r) ? 5 : 0;
}

static uint32_t *random_ids(rig *r, size_t count, size_t below)
{
    uint32_t *ids = rig_memory(r, count, sizeof(*ids));
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)test_below(&r->random, below);
    return ids;
}

/* The first contents of an output: numbers to add to, or NULL. */
static float *random_start(rig *r, size_t count, bool add)
{
    return add ? rig_random(r, count, 1) : NULL;
}

static double start_of(const float *start, size_t at)
{
    return start ? (double)start[at] : 0.0;
}

/* ---- Memory ------------------------------------------------------------ */

static void memory_holds_what_was_uploaded(void **state)
{
    rig *r = rig_open(state, "memory");
    const bt_backend *b = r->backend;
    bt_buffer buffer = { 0 }, empty = { 0 };
    unsigned char bytes[200], got[200];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    RIG_MUST(r, b->alloc(r->stream, &buffer, 200, &r->err));
    RIG_MUST(r, b->alloc(r->stream, &empty, 0, &r->err));
    assert_ptr_equal(buffer.backend, b);
    assert_int_equal(buffer.bytes, 200);
    assert_int_equal((uintptr_t)buffer.memory % 64, 0);
    RIG_MUST(r, b->upload(r->stream, &buffer, 0, bytes, 200, &r->err));
    RIG_MUST(r, b->upload(r->stream, &buffer, 3, bytes + 100, 5, &r->err));
    RIG_MUST(r, b->fill(r->stream, &buffer, 190, 0x5a, 10, &r->err));
    RIG_MUST(r, b->download(r->stream, got, &buffer, 0, 200, &r->err));
    memcpy(bytes + 3, bytes + 100, 5);
    memset(bytes + 190, 0x5a, 10);
    assert_memory_equal(got, bytes, 200);
    RIG_MUST(r, b->download(r->stream, got, &buffer, 101, 7, &r->err));
    assert_memory_equal(got, bytes + 101, 7);
    RIG_MUST(r, b->upload(r->stream, &empty, 0, bytes, 0, &r->err));
    RIG_MUST(r, b->download(r->stream, got, &empty, 0, 0, &r->err));
    b->free(&buffer);
    b->free(&empty);
    b->free(&(bt_buffer){ 0 });
    rig_close(r);
}

/* Large fills take another way than small ones. */
static void a_large_fill_ends_where_it_should(void **state)
{
    enum { BYTES = (1 << 26) + 77, FROM = 5 };
    rig *r = rig_open(state, "a large fill");
    const bt_backend *b = r->backend;
    bt_buffer buffer;
    unsigned char *want = malloc(BYTES), *got = malloc(BYTES);
    assert_non_null(want);
    assert_non_null(got);
    RIG_MUST(r, b->alloc(r->stream, &buffer, BYTES, &r->err));
    RIG_MUST(r, b->fill(r->stream, &buffer, 0, 1, BYTES, &r->err));
    RIG_MUST(r,
             b->fill(r->stream, &buffer, FROM, 0x5a, (1 << 26) + 3, &r->err));
    RIG_MUST(r, b->download(r->stream, got, &buffer, 0, BYTES, &r->err));
    memset(want, 1, BYTES);
    memset(want + FROM, 0x5a, (1 << 26) + 3);
    assert_int_equal(memcmp(got, want, BYTES), 0);
    b->free(&buffer);
    free(want);
    free(got);
    rig_close(r);
}

static void tensors_are_copied_by_rows(void **state)
{
    rig *r = rig_open(state, "copies of tensors");
    float *data = rig_random(r, 60, 1), *zeros = rig_memory(r, 60, 4);
    const bt_tensor *dense = rig_input(r, data, 6, 10);
    const bt_tensor *view = rig_output_view(r, data, 6, 10, 7);
    rig_same(r, "dense", rig_fetch(r, dense), data, 60);
    rig_same(r, "view", rig_fetch(r, view), data, 60);
    bt_tensor rows = bt_tensor_rows(view, 2, 3);
    rig_same(r, "rows", rig_fetch(r, &rows), data + 20, 30);
    RIG_MUST(r, bt_tensor_zero(r->stream, &rows, &r->err));
    memcpy(zeros, data, 20 * sizeof(float));
    memcpy(zeros + 50, data + 50, 10 * sizeof(float));
    rig_same(r, "zeroed", rig_fetch(r, view), zeros, 60);
    assert_int_equal(bt_tensor_host(dense) != NULL, r->backend->host_visible);
    rig_close(r);
}

static void a_forked_stream_shares_memory(void **state)
{
    rig *r = rig_open(state, "a forked stream");
    bt_stream *fork = NULL;
    float *data = rig_random(r, 12, 1), got[12];
    const bt_tensor *x = rig_input(r, data, 3, 4);
    RIG_MUST(r, r->backend->sync(r->stream, &r->err));
    if (r->backend->stream_fork) {
        RIG_MUST(r, r->backend->stream_fork(&fork, r->stream, &r->err));
        RIG_MUST(r, bt_tensor_download(fork, got, x, &r->err));
        rig_same(r, "x", got, data, 12);
        RIG_MUST(r, r->backend->sync(fork, &r->err));
        r->backend->stream_free(fork);
    }
    rig_close(r);
}

static void every_operation_is_there(void **state)
{
    rig *r = rig_open(state, "the table");
    const bt_op_shape shape = { .columns = 64, .heads = 2, .head_dim = 32 };
    for (int op = 0; op < BT_OP_COUNT; op++)
        if (!r->backend->supports(r->stream, (bt_op)op, BAUTA_FLOAT32,
                                  &shape) &&
            op != BT_OP_softcap && op != BT_OP_softcap_grad)
            fail_msg("%s has no %s", r->backend->name, bt_op_name((bt_op)op));
#define IS_THERE(name) assert_non_null(r->backend->name);
    BT_OP_MAP(IS_THERE)
    rig_close(r);
}

/* ---- Products ---------------------------------------------------------- */

/* A layer's numbers; W is (outputs, inputs) or its transpose. */
typedef struct layer {
    size_t rows, inputs, outputs;
    bool transposed;
    float *x, *w, *bias, *dy;
} layer;

static layer layer_random(rig *r, size_t rows, size_t inputs, bool transposed)
{
    layer l = { rows, inputs, random_columns(r), transposed, NULL, NULL,
                NULL, NULL };
    l.x = rig_random(r, rows * inputs, 1);
    l.w = rig_random(r, inputs * l.outputs, 1);
    l.bias = random_bool(r) ? rig_random(r, l.outputs, 1) : NULL;
    l.dy = rig_random(r, rows * l.outputs, 1);
    return l;
}

static double w_of(const layer *l, size_t out, size_t in)
{
    return (double)
        l->w[l->transposed ? in * l->outputs + out : out * l->inputs + in];
}

static const bt_tensor *layer_w(rig *r, const layer *l)
{
    return rig_input_view(r, l->w, l->transposed ? l->inputs : l->outputs,
                          l->transposed ? l->outputs : l->inputs,
                          random_extra(r));
}

/* `inputs` products, the bias and the store. */
static void check_linear(rig *r, const layer *l, const float *got)
{
    for (size_t i = 0; i < l->rows; i++)
        for (size_t o = 0; o < l->outputs; o++) {
            double want = l->bias ? (double)l->bias[o] : 0.0, size = fabs(want);
            for (size_t k = 0; k < l->inputs; k++) {
                double term = (double)l->x[i * l->inputs + k] * w_of(l, o, k);
                want += term;
                size += fabs(term);
            }
            rig_within(r, "y", i * l->outputs + o,
                       (double)got[i * l->outputs + o], want,
                       rig_roundings(l->inputs + 2) * size);
        }
}

static void linear_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "linear");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        layer l[BT_LINEAR_LAYERS_MAX];
        bt_linear_layer layers[BT_LINEAR_LAYERS_MAX];
        size_t count = 1 + round % BT_LINEAR_LAYERS_MAX;
        l[0] =
            layer_random(r, random_rows(r), random_columns(r), random_bool(r));
        const bt_tensor *x =
            rig_input_view(r, l[0].x, l[0].rows, l[0].inputs, random_extra(r));
        for (size_t i = 0; i < count; i++) {
            if (i) {
                l[i] = layer_random(r, l[0].rows, l[0].inputs, l[0].transposed);
                l[i].x = l[0].x;
            }
            layers[i] = (bt_linear_layer){
                layer_w(r, &l[i]),
                l[i].bias ? rig_input(r, l[i].bias, 1, l[i].outputs) : NULL,
                rig_output_view(r, NULL, l[0].rows, l[i].outputs,
                                random_extra(r))
            };
        }
        RIG_RUN(r, linear, .x = x, .count = count, .layers = layers,
                .transposed = l[0].transposed);
        for (size_t i = 0; i < count; i++)
            check_linear(r, &l[i], rig_fetch(r, layers[i].y));
    }
    rig_close(r);
}

static void linear_of_a_row_alone_has_the_same_bits(void **state)
{
    rig *r = rig_open(state, "linear of a row");
    for (size_t round = 0; round < 6; round++, rig_clear(r)) {
        layer l = layer_random(r, 40, random_columns(r), round % 2);
        const bt_tensor *x = rig_input(r, l.x, l.rows, l.inputs);
        const bt_tensor *w = layer_w(r, &l);
        const bt_tensor *y = rig_output(r, NULL, l.rows, l.outputs);
        RIG_RUN(r, linear, .x = x, .count = 1,
                .layers = &(bt_linear_layer){ w, NULL, y },
                .transposed = l.transposed);
        const float *all = rig_fetch(r, y);
        for (size_t rows = 1; rows <= 3; rows++) {
            size_t first = test_below(&r->random, l.rows - rows);
            bt_tensor some = bt_tensor_rows(x, first, rows);
            const bt_tensor *alone = rig_output(r, NULL, rows, l.outputs);
            RIG_RUN(r, linear, .x = &some, .count = 1,
                    .layers = &(bt_linear_layer){ w, NULL, alone },
                    .transposed = l.transposed);
            rig_same(r, "y", rig_fetch(r, alone), all + first * l.outputs,
                     rows * l.outputs);
        }
    }
    rig_close(r);
}

/* `outputs` products, and what was there. */
static void linear_dx_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "linear_dx");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        layer l = layer_random(r, random_rows(r), random_columns(r), round % 2);
        bool add = random_bool(r);
        float *start = random_start(r, l.rows * l.inputs, add);
        const bt_tensor *dx =
            rig_output_view(r, start, l.rows, l.inputs, random_extra(r));
        RIG_RUN(r, linear_dx,
                .dy =
                    rig_input_view(r, l.dy, l.rows, l.outputs, random_extra(r)),
                .w = layer_w(r, &l), .dx = dx, .transposed = l.transposed,
                .add = add);
        const float *got = rig_fetch(r, dx);
        for (size_t at = 0; at < l.rows * l.inputs; at++) {
            size_t i = at / l.inputs, k = at % l.inputs;
            double want = start_of(start, at), size = fabs(want);
            for (size_t o = 0; o < l.outputs; o++) {
                double term = (double)l.dy[i * l.outputs + o] * w_of(&l, o, k);
                want += term;
                size += fabs(term);
            }
            rig_within(r, "dx", at, (double)got[at], want,
                       rig_roundings(l.outputs + 2) * size);
        }
    }
    rig_close(r);
}

/* `rows` products, and what was there. Without rows the gradient is 0. */
static void linear_dw_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "linear_dw");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        layer l = layer_random(r, random_rows(r), random_columns(r), round % 2);
        size_t count = l.inputs * l.outputs;
        bool add = random_bool(r);
        float *start = random_start(r, count, add);
        const bt_tensor *dw = rig_output_view(
            r, start, l.transposed ? l.inputs : l.outputs,
            l.transposed ? l.outputs : l.inputs, random_extra(r));
        RIG_RUN(r, linear_dw,
                .x = rig_input_view(r, l.x, l.rows, l.inputs, random_extra(r)),
                .dy =
                    rig_input_view(r, l.dy, l.rows, l.outputs, random_extra(r)),
                .dw = dw, .transposed = l.transposed, .add = add);
        const float *got = rig_fetch(r, dw);
        for (size_t at = 0; at < count; at++) {
            size_t across = l.transposed ? l.outputs : l.inputs;
            size_t o = l.transposed ? at % across : at / across;
            size_t k = l.transposed ? at / across : at % across;
            double want = start_of(start, at), size = fabs(want);
            for (size_t i = 0; i < l.rows; i++) {
                double term = (double)l.dy[i * l.outputs + o] *
                              (double)l.x[i * l.inputs + k];
                want += term;
                size += fabs(term);
            }
            rig_within(r, "dw", at, (double)got[at], want,
                       rig_roundings(l.rows + 2) * size);
        }
    }
    rig_close(r);
}

static void sum_rows_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "sum_rows");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        bool add = random_bool(r);
        float *x = rig_random(r, rows * columns, 1);
        float *start = random_start(r, columns, add);
        const bt_tensor *to = rig_output(r, start, 1, columns);
        RIG_RUN(r, sum_rows,
                .x = rig_input_view(r, x, rows, columns, random_extra(r)),
                .to = to, .add = add);
        const float *got = rig_fetch(r, to);
        for (size_t j = 0; j < columns; j++) {
            double want = start_of(start, j), size = fabs(want);
            for (size_t i = 0; i < rows; i++) {
                want += (double)x[i * columns + j];
                size += fabs((double)x[i * columns + j]);
            }
            rig_within(r, "to", j, (double)got[j], want,
                       rig_roundings(rows + 1) * size);
        }
    }
    rig_close(r);
}

/* ---- Rows by index ----------------------------------------------------- */

static void embedding_rounds_once(void **state)
{
    rig *r = rig_open(state, "embedding");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r), n = 11;
        float scale = round % 2 ? 1.0f : 3.7f;
        float *table = rig_random(r, n * columns, 1);
        uint32_t *ids = random_ids(r, rows, n);
        const bt_tensor *y = rig_output(r, NULL, rows, columns);
        RIG_RUN(r, embedding, .table = rig_input(r, table, n, columns), .y = y,
                .ids = rig_ids(r, ids, rows), .scale = scale);
        const float *got = rig_fetch(r, y);
        for (size_t at = 0; at < rows * columns; at++) {
            size_t from = ids[at / columns] * columns + at % columns;
            double want = (double)table[from] * (double)scale;
            rig_within(r, "y", at, (double)got[at], want,
                       scale == 1.0f ? 0 : u * fabs(want));
        }
    }
    rig_close(r);
}

/* A product and a sum for each row of the id, and what was there. Rows of the
 * padding id are not read: they hold NaN. */
static void embedding_grad_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "embedding_grad");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r), n = 5;
        size_t count = n * columns;
        uint32_t padding = round % 3 ? 2 : UINT32_MAX;
        bool add = random_bool(r);
        float *dy = rig_random(r, rows * columns, 1);
        float *start = random_start(r, count, add);
        uint32_t *ids = random_ids(r, rows, n);
        double *want = rig_memory(r, count, sizeof(double));
        double *size = rig_memory(r, count, sizeof(double));
        for (size_t at = 0; at < count; at++)
            size[at] = fabs(want[at] = start_of(start, at));
        for (size_t at = 0; at < rows * columns; at++) {
            size_t to = ids[at / columns] * columns + at % columns;
            if (ids[at / columns] == padding) {
                dy[at] = NAN;
                continue;
            }
            want[to] += (double)dy[at] * 1.75;
            size[to] += fabs((double)dy[at] * 1.75);
        }
        const bt_tensor *dtable = rig_output(r, start, n, columns);
        RIG_RUN(r, embedding_grad, .dy = rig_input(r, dy, rows, columns),
                .dtable = dtable, .ids = rig_ids(r, ids, rows), .scale = 1.75f,
                .padding_id = padding, .add = add);
        const float *got = rig_fetch(r, dtable);
        for (size_t at = 0; at < count; at++)
            rig_within(r, "dtable", at, (double)got[at], want[at],
                       rig_roundings(2 * rows + 1) * size[at]);
    }
    rig_close(r);
}

static void scatter_add_adds_to_its_rows_only(void **state)
{
    rig *r = rig_open(state, "scatter_add");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t n = 2 * rows + 1;
        float *x = rig_random(r, rows * columns, 1);
        float *start = rig_random(r, n * columns, 1);
        float *want = rig_memory(r, n * columns, sizeof(float));
        uint32_t *index = rig_memory(r, rows, sizeof(*index));
        memcpy(want, start, n * columns * sizeof(float));
        for (size_t i = 0; i < rows; i++) {
            index[i] = (uint32_t)(2 * i + test_below(&r->random, 2));
            for (size_t j = 0; j < columns; j++)
                want[index[i] * columns + j] += x[i * columns + j];
        }
        const bt_tensor *to = rig_output(r, start, n, columns);
        RIG_RUN(r, scatter_add, .x = rig_input(r, x, rows, columns), .to = to,
                .index = rig_ids(r, index, rows));
        rig_same(r, "to", rig_fetch(r, to), want, n * columns);
    }
    rig_close(r);
}

/* ---- Norms ------------------------------------------------------------- */

/* A case, and the host's numbers. */
typedef struct norm_case {
    bt_norm_kind kind;
    size_t rows, heads, n;
    float *x, *gain, *bias, *dy;
} norm_case;

static norm_case norm_random(rig *r, size_t rows)
{
    static const size_t sizes[] = { 2, 5, 16, 17, 64, 97 };
    norm_case c = { .rows = rows, .heads = 1 + test_below(&r->random, 3) };
    c.kind = random_bool(r) ? BT_NORM_LAYER : BT_NORM_RMS;
    c.n = sizes[test_below(&r->random, BT_LEN(sizes))];
    c.x = rig_random(r, c.rows * c.heads * c.n, 2);
    c.gain = rig_random(r, c.n, 1);
    c.bias = random_bool(r) ? rig_random(r, c.n, 1) : NULL;
    c.dy = rig_random(r, c.rows * c.heads * c.n, 1);
    return c;
}

/* A line's statistics, and how far off they may be, in u.
 *
 * The mean of n numbers up to M is within (n + 2) M, so a difference from it is
 * within E = (n + 3) M. That shifts the mean square by 2 E mean|d| and hence
 * the scale s by E s^2 mean|d| <= E s, relative; sum, epsilon, root and
 * division add n / 2 + 6. h = d s then is within E s (1 + |h|) +
 * (n / 2 + 7) |h|. */
typedef struct norm_line {
    const float *x;
    double mean, scale, off, off_scale;
} norm_line;

#define NORM_EPSILON 1e-5f

static norm_line norm_line_of(const norm_case *c, size_t line)
{
    norm_line l = { .x = c->x + line * c->n };
    double max = 0, square = 0, n = (double)c->n;
    for (size_t j = 0; j < c->n; j++) {
        max = fmax(max, fabs((double)l.x[j]));
        l.mean += c->kind == BT_NORM_LAYER ? (double)l.x[j] / n : 0;
    }
    for (size_t j = 0; j < c->n; j++)
        square += ((double)l.x[j] - l.mean) * ((double)l.x[j] - l.mean) / n;
    l.scale = 1 / sqrt(square + (double)NORM_EPSILON);
    l.off = (n + 3) * max * l.scale;
    l.off_scale = l.off + n / 2 + 6;
    return l;
}

static double norm_h(const norm_line *l, size_t j, double *off)
{
    double h = ((double)l->x[j] - l->mean) * l->scale;
    *off = l->off + fabs(h) * (l->off_scale + 1);
    return h;
}

/* The tensors of a case, after the forward pass. */
typedef struct norm_tensors {
    const bt_tensor *x, *gain, *y, *mean, *scale;
} norm_tensors;

static norm_tensors norm_run(rig *r, const norm_case *c)
{
    size_t columns = c->heads * c->n, lines = c->rows * c->heads;
    norm_tensors t = { rig_input(r, c->x, c->rows, columns),
                       rig_input(r, c->gain, 1, c->n),
                       rig_output(r, NULL, c->rows, columns),
                       rig_output(r, NULL, lines, 1),
                       rig_output(r, NULL, lines, 1) };
    RIG_RUN(r, norm, .kind = c->kind, .epsilon = NORM_EPSILON,
            .heads = c->heads, .x = t.x, .gain = t.gain,
            .bias = c->bias ? rig_input(r, c->bias, 1, c->n) : NULL, .y = t.y,
            .mean = t.mean, .scale = t.scale);
    return t;
}

static void norm_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "norm");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        norm_case c = norm_random(r, random_rows(r));
        norm_tensors t = norm_run(r, &c);
        const float *y = rig_fetch(r, t.y), *mean = rig_fetch(r, t.mean);
        const float *scale = rig_fetch(r, t.scale);
        for (size_t i = 0; i < c.rows * c.heads; i++) {
            norm_line l = norm_line_of(&c, i);
            rig_within(r, "mean", i, (double)mean[i], l.mean,
                       u * l.off / l.scale);
            rig_within(r, "scale", i, (double)scale[i], l.scale,
                       u * l.off_scale * l.scale);
            for (size_t j = 0; j < c.n; j++) {
                double off, h = norm_h(&l, j, &off), gain = (double)c.gain[j];
                double bias = c.bias ? (double)c.bias[j] : 0.0;
                rig_within(
                    r, "y", i * c.n + j, (double)y[i * c.n + j],
                    h * gain + bias,
                    u * (fabs(gain) * off + 2 * (fabs(h * gain) + fabs(bias))));
            }
        }
    }
    rig_close(r);
}

static void norm_of_a_row_alone_has_the_same_bits(void **state)
{
    rig *r = rig_open(state, "norm of a row");
    for (size_t round = 0; round < 6; round++, rig_clear(r)) {
        norm_case c = norm_random(r, 20);
        norm_tensors all = norm_run(r, &c);
        size_t columns = c.heads * c.n, row = test_below(&r->random, c.rows);
        const float *y = rig_fetch(r, all.y);
        norm_case alone = c;
        alone.rows = 1;
        alone.x = c.x + row * columns;
        norm_tensors one = norm_run(r, &alone);
        rig_same(r, "y", rig_fetch(r, one.y), y + row * columns, columns);
    }
    rig_close(r);
}

/* A gradient with its bound, in u, on top of what was there. */
typedef struct gradient {
    float *start;
    double *want, *size;
    const bt_tensor *tensor;
    bool add;
} gradient;

static gradient gradient_create(rig *r, size_t rows, size_t columns)
{
    gradient g = { .add = random_bool(r) };
    g.start = random_start(r, rows * columns, g.add);
    g.want = rig_memory(r, rows * columns, sizeof(double));
    g.size = rig_memory(r, rows * columns, sizeof(double));
    g.tensor = rig_output(r, g.start, rows, columns);
    return g;
}

/* The last sum rounds once more. */
static void gradient_check(rig *r, const char *name, const gradient *g)
{
    const float *got = rig_fetch(r, g->tensor);
    for (size_t i = 0; i < g->tensor->rows * g->tensor->columns; i++) {
        double start = start_of(g->start, i);
        rig_within(r, name, i, (double)got[i], start + g->want[i],
                   1.01 * u * (g->size[i] + fabs(start) + fabs(g->want[i])));
    }
}

/* dx of a line: s (g - mean g - h mean gh), term by term. */
static void norm_line_dx(const norm_case *c, size_t line, gradient *dx)
{
    norm_line l = norm_line_of(c, line);
    double n = (double)c->n, g_mean = 0, g_size = 0, gh_mean = 0, gh_size = 0;
    double gh_off = 0, sums = n + 3, off;
    for (size_t j = 0; j < c->n; j++) {
        double h = norm_h(&l, j, &off);
        double g = (double)c->dy[line * c->n + j] * (double)c->gain[j];
        g_mean += c->kind == BT_NORM_LAYER ? g / n : 0;
        g_size += fabs(g) / n;
        gh_mean += g * h / n;
        gh_size += fabs(g * h) / n;
        gh_off += fabs(g) * off / n;
    }
    gh_off += sums * gh_size;
    for (size_t j = 0; j < c->n; j++) {
        double h = norm_h(&l, j, &off);
        double g = (double)c->dy[line * c->n + j] * (double)c->gain[j];
        double want = l.scale * (g - g_mean - h * gh_mean);
        dx->want[line * c->n + j] = want;
        dx->size[line * c->n + j] =
            l.scale * (4 * fabs(g) + (sums + 3) * g_size + fabs(h) * gh_off +
                       fabs(gh_mean) * off + 3 * fabs(h) * gh_size) +
            fabs(want) * l.off_scale;
    }
}

static void norm_line_sums(const norm_case *c, size_t line, gradient *dgain,
                           gradient *dbias)
{
    norm_line l = norm_line_of(c, line);
    double sums = (double)(c->rows * c->heads) + 3, off;
    for (size_t j = 0; j < c->n; j++) {
        double h = norm_h(&l, j, &off), g = (double)c->dy[line * c->n + j];
        dgain->want[j] += g * h;
        dgain->size[j] += fabs(g) * off + sums * fabs(g * h);
        dbias->want[j] += g;
        dbias->size[j] += sums * fabs(g);
    }
}

static void norm_grad_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "norm_grad");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        norm_case c = norm_random(r, random_rows(r));
        size_t columns = c.heads * c.n;
        norm_tensors t = norm_run(r, &c);
        gradient dx = gradient_create(r, c.rows, columns);
        gradient dgain = gradient_create(r, 1, c.n);
        gradient dbias = gradient_create(r, 1, c.n);
        // Each may be missing.
        bool has_dx = round % 4 != 1, has_dgain = round % 4 != 2;
        bool has_dbias = round % 4 != 3;
        RIG_RUN(r, norm_grad, .kind = c.kind, .epsilon = NORM_EPSILON,
                .heads = c.heads, .x = t.x, .gain = t.gain, .mean = t.mean,
                .scale = t.scale, .dy = rig_input(r, c.dy, c.rows, columns),
                .dx = has_dx ? dx.tensor : NULL,
                .dgain = has_dgain ? dgain.tensor : NULL,
                .dbias = has_dbias ? dbias.tensor : NULL, .add_dx = dx.add,
                .add_dgain = dgain.add, .add_dbias = dbias.add);
        for (size_t i = 0; i < c.rows * c.heads; i++) {
            norm_line_dx(&c, i, &dx);
            norm_line_sums(&c, i, &dgain, &dbias);
        }
        if (has_dx)
            gradient_check(r, "dx", &dx);
        if (has_dgain)
            gradient_check(r, "dgain", &dgain);
        if (has_dbias)
            gradient_check(r, "dbias", &dbias);
    }
    rig_close(r);
}

/* ---- Activations ------------------------------------------------------- */

/* An activation's value and slope, and the sizes to which their errors are
 * relative, as kernels/activations.h derives them: 20 u and 26 u at most. A
 * backend that computes them otherwise has to be as good. A probability below
 * the smallest normal number may be 0: `flush` is its effect on both. */
typedef struct act_point {
    double value, slope, value_size, slope_size, flush;
} act_point;

static act_point sigmoid_point(double x, double w, double w_slope)
{
    double s = 1 / (1 + exp(-w)), q = 1 / (1 + exp(w));
    double factor = 1 + fabs(w) * q;
    return (act_point){ x * s, s + x * w_slope * s * q, fabs(x * s) * factor,
                        (s + fabs(x * w_slope * s * q)) * factor,
                        0x1p-125 * (1 + fabs(x) + fabs(x * w_slope)) };
}

static act_point act_point_of(bt_act act, double x)
{
    double k0 = 2 * sqrt(2 / M_PI), k1 = 0.044715 * k0;
    double phi = 0.5 * erfc(-x * M_SQRT1_2);
    double bell = exp(-0.5 * x * x) / sqrt(2 * M_PI);
    switch (act) {
    case BT_ACT_RELU:
        return (act_point){ x < 0 ? 0 : x, x > 0, fabs(x), x > 0, 0 };
    case BT_ACT_GELU_ERF:
        return (act_point){ x * phi, phi + x * bell, fabs(x * phi),
                            phi + fabs(x * bell), 0x1p-125 * (1 + fabs(x)) };
    case BT_ACT_GELU_TANH:
        return sigmoid_point(x, x * (k0 + k1 * x * x), k0 + 3 * k1 * x * x);
    case BT_ACT_SILU:
        break;
    }
    return sigmoid_point(x, x, 1);
}

/* Numbers of all sizes, up to where activations are x or 0. */
static float *random_act_inputs(rig *r, size_t count)
{
    static const float sizes[] = { 0.01f, 1, 4, 30, 100 };
    float *x = rig_random(r, count, 1);
    for (size_t i = 0; i < count; i++)
        x[i] *= sizes[test_below(&r->random, BT_LEN(sizes))];
    return x;
}

static void act_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "act");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        bt_act act = (bt_act)(round % 4);
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        float *x = random_act_inputs(r, count);
        float *up = random_bool(r) ? rig_random(r, count, 2) : NULL;
        const bt_tensor *y = rig_output(r, NULL, rows, columns);
        RIG_RUN(r, act, .act = act, .x = rig_input(r, x, rows, columns),
                .up = up ? rig_input(r, up, rows, columns) : NULL, .y = y);
        const float *got = rig_fetch(r, y);
        for (size_t i = 0; i < count; i++) {
            act_point p = act_point_of(act, (double)x[i]);
            double by = up ? (double)up[i] : 1;
            rig_within(r, "y", i, (double)got[i], p.value * by,
                       (21 * u * p.value_size + p.flush) * fabs(by));
        }
    }
    rig_close(r);
}

static void act_keeps_nan_and_has_limits(void **state)
{
    rig *r = rig_open(state, "limits of act");
    const float x[] = { NAN, INFINITY, -INFINITY, 0.0f, 1e30f, -1e30f };
    for (int act = 0; act < 4; act++, rig_clear(r)) {
        const bt_tensor *y = rig_output(r, NULL, 1, 6);
        RIG_RUN(r, act, .act = (bt_act)act, .x = rig_input(r, x, 1, 6), .y = y);
        const float *got = rig_fetch(r, y);
        assert_true(isnan(got[0]));
        assert_true(got[1] == INFINITY && got[2] == 0 && got[3] == 0);
        assert_true(got[4] == 1e30f && got[5] == 0);
    }
    rig_close(r);
}

/* A gate that multiplies itself has one gradient, to which both parts add. */
static void run_act_grad(rig *r, size_t round, bool same)
{
    bt_act act = (bt_act)(round % 4);
    size_t rows = random_rows(r), columns = random_columns(r);
    size_t count = rows * columns;
    float *x = random_act_inputs(r, count), *dy = rig_random(r, count, 1);
    float *up = same ? x : random_bool(r) ? rig_random(r, count, 2) : NULL;
    const bt_tensor *tx = rig_input(r, x, rows, columns), *tup = NULL;
    if (up)
        tup = same ? tx : rig_input(r, up, rows, columns);
    gradient dx = gradient_create(r, rows, columns);
    gradient other = gradient_create(r, rows, columns);
    gradient *dup = same ? &dx : &other;
    bool has_dx = same || round % 3 != 1, has_dup = up && round % 3 != 2;
    RIG_RUN(r, act_grad, .act = act, .x = tx, .up = tup,
            .dy = rig_input(r, dy, rows, columns),
            .dx = has_dx ? dx.tensor : NULL,
            .dup = has_dup ? dup->tensor : NULL, .add_dx = dx.add,
            .add_dup = same ? true : dup->add);
    for (size_t i = 0; i < count; i++) {
        act_point p = act_point_of(act, (double)x[i]);
        double by = (up ? (double)up[i] : 1) * (double)dy[i];
        dx.want[i] += p.slope * by;
        dx.size[i] += (29 * p.slope_size + p.flush / u) * fabs(by);
        if (!has_dup)
            continue;
        dup->want[i] += p.value * (double)dy[i];
        dup->size[i] += (22 * p.value_size + p.flush / u) * fabs((double)dy[i]);
        if (same) // the first sum rounds too
            dx.size[i] += fabs(start_of(dx.start, i)) + fabs(p.slope * by);
    }
    if (has_dx)
        gradient_check(r, "dx", &dx);
    if (has_dup && !same)
        gradient_check(r, "dup", dup);
}

static void act_grad_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "act_grad");
    for (size_t round = 0; round < 2 * ROUNDS; round++, rig_clear(r))
        run_act_grad(r, round, round % 5 == 0);
    rig_close(r);
}

/* ---- Elements ---------------------------------------------------------- */

/* Cosine or sine is rounded, a product is, and the sum twice at most: 4 u of
 * both products, with the sum to what is there. */
/* A layer and an activation in one, and a gradient and a slope. */
static void fused_act(rig *r)
{
    layer l =
        layer_random(r, random_rows(r), random_columns(r), random_bool(r));
    bt_act act = (bt_act)test_below(&r->random, 4);
    size_t count = l.rows * l.outputs;
    const bt_tensor *x = rig_input(r, l.x, l.rows, l.inputs);
    const bt_tensor *w = layer_w(r, &l), *to[6];
    for (size_t i = 0; i < BT_LEN(to); i++)
        to[i] = rig_output(r, NULL, l.rows, l.outputs);
    RIG_RUN(r, linear, .x = x, .count = 1,
            .layers = &(bt_linear_layer){ w, NULL, to[0] },
            .transposed = l.transposed, .has_act = true, .act = act,
            .pre = to[1]);
    RIG_RUN(r, linear, .x = x, .count = 1,
            .layers = &(bt_linear_layer){ w, NULL, to[2] },
            .transposed = l.transposed);
    RIG_RUN(r, act, .act = act, .x = to[2], .y = to[3]);
    rig_same(r, "y", rig_fetch(r, to[0]), rig_fetch(r, to[3]), count);
    rig_same(r, "pre", rig_fetch(r, to[1]), rig_fetch(r, to[2]), count);
    // x stands for dy: the layer the other way round has these weights.
    const bt_tensor *dx = rig_output(r, NULL, l.rows, l.outputs);
    RIG_RUN(r, linear_dx, .dy = x, .w = w, .dx = dx,
            .transposed = !l.transposed, .slope = to[2], .act = act);
    RIG_RUN(r, linear_dx, .dy = x, .w = w, .dx = to[4],
            .transposed = !l.transposed);
    RIG_RUN(r, act_grad, .act = act, .x = to[2], .dy = to[4], .dx = to[5]);
    rig_same(r, "dx", rig_fetch(r, dx), rig_fetch(r, to[5]), count);
}

/* A sum and its norm in one. */
static void fused_norm(rig *r)
{
    norm_case c = norm_random(r, random_rows(r));
    c.n *= c.heads;
    c.heads = 1;
    c.gain = rig_random(r, c.n, 1);
    c.bias = NULL;
    const bt_tensor *a = rig_input(r, c.x, c.rows, c.n);
    const bt_tensor *b = rig_input(r, c.dy, c.rows, c.n);
    const bt_tensor *gain = rig_input(r, c.gain, 1, c.n);
    const bt_tensor *sum = rig_output(r, NULL, c.rows, c.n);
    const bt_tensor *y = rig_output(r, NULL, c.rows, c.n);
    const bt_tensor *mean = rig_output(r, NULL, c.rows, 1);
    const bt_tensor *scale = rig_output(r, NULL, c.rows, 1);
    const bt_tensor *apart = rig_output(r, NULL, c.rows, c.n);
    RIG_RUN(r, norm, .kind = c.kind, .epsilon = NORM_EPSILON, .heads = 1,
            .x = a, .gain = gain, .y = y, .mean = mean, .scale = scale,
            .residual = b, .sum = sum);
    RIG_RUN(r, add, .a = a, .b = b, .y = apart);
    c.x = rig_fetch(r, apart);
    norm_tensors t = norm_run(r, &c);
    rig_same(r, "sum", rig_fetch(r, sum), c.x, c.rows * c.n);
    rig_same(r, "y", rig_fetch(r, y), rig_fetch(r, t.y), c.rows * c.n);
    rig_same(r, "mean", rig_fetch(r, mean), rig_fetch(r, t.mean), c.rows);
    rig_same(r, "scale", rig_fetch(r, scale), rig_fetch(r, t.scale), c.rows);
}

static void fused_operations_have_the_bits_of_their_parts(void **state)
{
    rig *r = rig_open(state, "fused operations");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        if (r->backend->fusions & BT_FUSE_LINEAR_ACT)
            fused_act(r);
        if (r->backend->fusions & BT_FUSE_ADD_NORM)
            fused_norm(r);
    }
    rig_close(r);
}

static void rotary_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "rotary");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), heads = 1 + test_below(&r->random, 3);
        size_t half = random_columns(r), dim = 2 * half, columns = heads * dim;
        bool back = random_bool(r);
        float *x = rig_random(r, rows * columns, 1);
        float *frequencies = rig_random(r, half, 1);
        uint32_t *positions = random_ids(r, rows, 5000);
        gradient y = gradient_create(r, rows, columns);
        RIG_RUN(r, rotary, .heads = heads, .x = rig_input(r, x, rows, columns),
                .y = y.tensor, .positions = rig_ids(r, positions, rows),
                .frequencies = rig_input(r, frequencies, 1, half), .back = back,
                .add = y.add);
        for (size_t i = 0; i < rows * heads; i++)
            for (size_t j = 0; j < half; j++) {
                size_t a = i * dim + j, b = a + half;
                double angle = (double)positions[i / heads] *
                               (double)frequencies[j] * (back ? -1 : 1);
                double p = (double)x[a], q = (double)x[b];
                double c = cos(angle), s = sin(angle);
                y.want[a] = p * c - q * s;
                y.want[b] = q * c + p * s;
                y.size[a] = 4 * (fabs(p * c) + fabs(q * s));
                y.size[b] = 4 * (fabs(q * c) + fabs(p * s));
            }
        gradient_check(r, "y", &y);
    }
    rig_close(r);
}

static void add_rounds_once(void **state)
{
    rig *r = rig_open(state, "add");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        float *a = rig_random(r, count, 1), *b = rig_random(r, count, 1);
        float *want = rig_memory(r, count, sizeof(float));
        bool same = round % 4 == 0;
        for (size_t i = 0; i < count; i++)
            want[i] = a[i] + (same ? a[i] : b[i]);
        const bt_tensor *ta = rig_input(r, a, rows, columns);
        const bt_tensor *tb = same ? ta : rig_input(r, b, rows, columns);
        const bt_tensor *y = rig_output(r, NULL, rows, columns);
        RIG_RUN(r, add, .a = ta, .b = tb, .y = y);
        rig_same(r, "y", rig_fetch(r, y), want, count);
    }
    rig_close(r);
}

static void scale_rounds_once(void **state)
{
    rig *r = rig_open(state, "scale");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        float *x = rig_random(r, count, 1), *before = rig_random(r, count, 1);
        bool add = round % 2;
        float factor = 0.3f;
        const bt_tensor *y = rig_output(r, add ? before : NULL, rows, columns);
        RIG_RUN(r, scale, .x = rig_input(r, x, rows, columns), .y = y,
                .factor = factor, .add = add);
        const float *got = rig_fetch(r, y);
        for (size_t i = 0; i < count; i++) {
            double want = (double)x[i] * (double)factor;
            double size = fabs(want) + (add ? fabs((double)before[i]) : 0);
            rig_within(r, "y", i, (double)got[i],
                       want + (add ? (double)before[i] : 0),
                       size * rig_roundings(2));
        }
    }
    rig_close(r);
}

/* The quotient, tanh within 6 u of u = 2^-24, and the product; the slope of
 * tanh is at most 1, and an error of t enters 1 - t^2 twice. */
static void softcap_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "softcap");
    const bt_op_shape shape = { .columns = 8 };
    bool there =
        r->backend->supports(r->stream, BT_OP_softcap, BAUTA_FLOAT32, &shape);
    for (size_t round = 0; there && round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns, extra = test_below(&r->random, 4);
        float *x = rig_random(r, count, 9), *dy = rig_random(r, count, 1);
        float *before = rig_random(r, count, 1);
        bool add = round % 2;
        double cap = 2.5;
        const bt_tensor *y = rig_output_view(r, NULL, rows, columns, extra);
        const bt_tensor *dx =
            rig_output_view(r, add ? before : NULL, rows, columns, extra);
        RIG_RUN(r, softcap, .x = rig_input_view(r, x, rows, columns, extra),
                .y = y, .cap = (float)cap);
        RIG_RUN(r, softcap_grad, .y = y,
                .dy = rig_input_view(r, dy, rows, columns, extra), .dx = dx,
                .cap = (float)cap, .add = add);
        const float *got = rig_fetch(r, y), *grad = rig_fetch(r, dx);
        for (size_t i = 0; i < count; i++) {
            double q = (double)x[i] / cap, t = tanh(q);
            double d = (double)dy[i] * (1 - t * t);
            double old = add ? (double)before[i] : 0;
            rig_within(r, "y", i, (double)got[i], cap * t,
                       cap * (fabs(t) * 9 * u + fabs(q) * (1 - t * t) * u));
            rig_within(r, "dx", i, (double)grad[i], d + old,
                       fabs((double)dy[i]) * 30 * u + fabs(d + old) * 3 * u);
        }
    }
    rig_close(r);
}

static void accumulate_copies_or_adds(void **state)
{
    rig *r = rig_open(state, "accumulate");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        bool add = random_bool(r);
        float *x = rig_random(r, count, 1);
        float *start = random_start(r, count, add);
        float *want = rig_memory(r, count, sizeof(float));
        for (size_t i = 0; i < count; i++)
            want[i] = add ? start[i] + x[i] : x[i];
        const bt_tensor *to =
            rig_output_view(r, start, rows, columns, random_extra(r));
        RIG_RUN(r, accumulate,
                .x = rig_input_view(r, x, rows, columns, random_extra(r)),
                .to = to, .add = add);
        rig_same(r, "to", rig_fetch(r, to), want, count);
    }
    rig_close(r);
}

/* Between float32 and the shorter types that the backend has. */
static void accumulate_converts_types(void **state)
{
    static const bauta_dtype types[] = { BAUTA_BFLOAT16, BAUTA_FLOAT16 };
    rig *r = rig_open(state, "accumulate of types");
    const bt_op_shape shape = { .columns = 37 };
    for (size_t i = 0; i < BT_LEN(types); i++, rig_clear(r)) {
        if (!r->backend->supports(r->stream, BT_OP_accumulate, types[i],
                                  &shape))
            continue;
        float *x = rig_random(r, 4 * 37, 1);
        float *want = rig_memory(r, 4 * 37, sizeof(float));
        uint16_t *rounded = rig_memory(r, 4 * 37, sizeof(*rounded));
        assert_true(bt_convert_from_f32(rounded, types[i], x, 4 * 37));
        assert_true(bt_convert_f32(want, rounded, types[i], 4 * 37));
        const bt_tensor *low = rig_place(r, types[i], 4, 37, 0, NULL, true);
        const bt_tensor *back = rig_output(r, NULL, 4, 37);
        RIG_RUN(r, accumulate, .x = rig_input(r, x, 4, 37), .to = low);
        RIG_RUN(r, accumulate, .x = low, .to = back);
        assert_memory_equal(rig_fetch(r, low), rounded, 4 * 37 * 2);
        rig_same(r, "back", rig_fetch(r, back), want, 4 * 37);
    }
    rig_close(r);
}

/* Philox with the counters of kernels/pointwise.h. */
static bool dropout_keeps(uint64_t token, size_t column, uint64_t key_of,
                          uint32_t site, float rate)
{
    const uint32_t key[] = { (uint32_t)key_of, (uint32_t)(key_of >> 32) };
    const uint32_t counter[] = { (uint32_t)(column / 64 * 16 + column % 16),
                                 site, (uint32_t)token,
                                 (uint32_t)(token >> 32) };
    uint32_t words[4];
    bt_philox(words, counter, key);
    return words[column % 64 / 16] >= (uint32_t)((double)rate * 0x1p32);
}

/* The scale is rounded, and the product; a dropped element is 0, even NaN. */
static void dropout_drops_the_same_elements_everywhere(void **state)
{
    rig *r = rig_open(state, "dropout");
    const uint64_t key = 0x0123456789abcdef;
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r) * 3;
        float rate = 0.1f + 0.15f * (float)(round % 6);
        uint32_t site = test_u32(&r->random);
        float *x = rig_random(r, rows * columns, 1);
        uint64_t *tokens = rig_memory(r, rows, sizeof(*tokens));
        gradient y = gradient_create(r, rows, columns);
        for (size_t i = 0; i < rows; i++)
            tokens[i] = (uint64_t)test_u32(&r->random) << (i % 33);
        for (size_t i = 0; i < rows * columns; i++) {
            if (dropout_keeps(tokens[i / columns], i % columns, key, site,
                              rate)) {
                y.want[i] = (double)x[i] / (1 - (double)rate);
                y.size[i] = 2 * fabs(y.want[i]);
            } else {
                x[i] = NAN;
            }
        }
        RIG_RUN(r, dropout, .x = rig_input(r, x, rows, columns), .y = y.tensor,
                .tokens = rig_place(r, BAUTA_UINT64, rows, 1, 0, tokens, false),
                .rate = rate, .seed = key, .site = site, .add = y.add);
        gradient_check(r, "y", &y);
    }
    rig_close(r);
}

/* ---- Attention --------------------------------------------------------- */

enum { SEQUENCES = 3 };

/* A batch mask, and the mask of it. */
typedef struct mask_case {
    size_t rows[SEQUENCES], keys[SEQUENCES];
    size_t prefixes[SEQUENCES], windows[SEQUENCES];
    bauta_mask *extra, *whole;
    bt_batch_mask mask;
} mask_case;

static void mask_init(rig *r, mask_case *m, bool causal, bool extra)
{
    static const size_t sizes[] = { 0, 1, 2, 5, 30, 64, 65, 100 };
    size_t count = 1 + test_below(&r->random, SEQUENCES), rows = 0, keys = 0;
    *m = (mask_case){ 0 };
    for (size_t s = 0; s < count; s++) {
        m->rows[s] = sizes[test_below(&r->random, BT_LEN(sizes))];
        m->keys[s] = sizes[test_below(&r->random, BT_LEN(sizes))];
        if (causal && m->keys[s] < m->rows[s])
            m->keys[s] = m->rows[s];
        m->prefixes[s] = test_below(&r->random, m->keys[s] + 1);
        m->windows[s] = test_below(&r->random, 40);
        rows += m->rows[s];
        keys += m->keys[s];
    }
    if (extra)
        m->extra = test_mask_random(&r->random, rows, keys, 2);
    m->mask = (bt_batch_mask){
        .queries = { count, m->rows, 0 },
        .keys = { count, m->keys, 0 },
        .prefixes = causal && random_bool(r) ? m->prefixes : NULL,
        .windows = causal && random_bool(r) ? m->windows : NULL,
        .extra = m->extra,
        .causal = causal,
        .window = causal && random_bool(r) ? 1 + test_below(&r->random, 30) : 0
    };
    RIG_MUST(r, bt_batch_mask_create(&m->whole, &m->mask, &r->err));
}

static void mask_release(mask_case *m)
{
    bauta_mask_free(m->whole);
    bauta_mask_free(m->extra);
}

/* An attention with its inputs on the host. */
typedef struct attention_case {
    size_t rows, keys, heads, kv_heads, head_dim, value_dim;
    float scale; /* as given */
    size_t nq, nk, nv, no;
    float *q, *k, *v, *dout;
    /* Its bias; what it has not is 0. */
    bool biased;
    float softcap;
    float *slopes, *table; /* (heads); (distances, heads) */
    size_t distances;
    ptrdiff_t first_distance;
    uint32_t *positions; /* (rows) */
    double *dense;       /* (rows, heads, keys) the same, pair by pair */
} attention_case;

/* The row of the table for query i and key j, and their distance. */
static size_t distance_row(const attention_case *c, const bauta_mask *mask,
                           size_t i, size_t j, ptrdiff_t *distance)
{
    *distance = (ptrdiff_t)(j - bauta_mask_origin(mask, i)) -
                (ptrdiff_t)c->positions[i];
    ptrdiff_t row = *distance - c->first_distance;
    ptrdiff_t last = (ptrdiff_t)c->distances - 1;
    return (size_t)(row < 0 ? 0 : row > last ? last : row);
}

/* Draw a bias, where the backend has them: a softcap, slopes, a table, or a
 * softcap with one of them. */
static void bias_random(rig *r, attention_case *c, const bauta_mask *mask)
{
    const bt_op_shape shape = { .biased = true };
    if (!r->backend->supports(r->stream, BT_OP_attention, BAUTA_FLOAT32,
                              &shape))
        return;
    size_t form = test_below(&r->random, 3);
    c->biased = true;
    if (form == 0 || random_bool(r))
        c->softcap = 1.5f;
    c->distances = 1 + test_below(&r->random, 100);
    c->first_distance = -(ptrdiff_t)test_below(&r->random, 70);
    if (form == 1)
        c->slopes = rig_random(r, c->heads, 0.1f);
    if (form == 2)
        c->table = rig_random(r, c->distances * c->heads, 3);
    c->positions = rig_memory(r, c->rows, sizeof(*c->positions));
    for (size_t i = 0; i < c->rows; i++)
        c->positions[i] = (uint32_t)test_below(&r->random, c->keys + 2);
    c->dense = rig_memory(r, c->rows * c->heads * c->keys, sizeof(double));
    for (size_t i = 0; i < c->rows; i++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t j = 0; j < c->keys; j++) {
                ptrdiff_t distance = 0;
                size_t row = 0;
                if (bauta_mask_visible(mask, i, j))
                    row = distance_row(c, mask, i, j, &distance);
                c->dense[(i * c->heads + h) * c->keys + j] =
                    c->slopes  ? (double)c->slopes[h] * (double)distance
                    : c->table ? (double)c->table[row * c->heads + h]
                               : 0.0;
            }
}

static bt_attention_bias bias_of(rig *r, const attention_case *c)
{
    bt_attention_bias bias = { .softcap = c->softcap,
                               .first_distance = c->first_distance };
    if (c->slopes)
        bias.slopes = rig_input(r, c->slopes, 1, c->heads);
    if (c->table)
        bias.table = rig_input(r, c->table, c->distances, c->heads);
    if (c->slopes || c->table)
        bias.positions = rig_ids(r, c->positions, c->rows);
    return bias;
}

static attention_case attention_random(rig *r, const bauta_mask *mask)
{
    static const size_t dims[] = { 1, 2, 8, 16, 17, 32, 40, 64 };
    attention_case c = { .rows = bauta_mask_queries(mask),
                         .keys = bauta_mask_keys(mask),
                         .kv_heads = 1 + test_below(&r->random, 2) };
    c.heads = c.kv_heads * (1 + test_below(&r->random, 3));
    c.head_dim = dims[test_below(&r->random, BT_LEN(dims))];
    c.value_dim = random_bool(r) ? c.head_dim
                                 : dims[test_below(&r->random, BT_LEN(dims))];
    c.scale = random_bool(r) ? 0.0f : 0.3f;
    c.nq = c.rows * c.heads * c.head_dim;
    c.nk = c.keys * c.kv_heads * c.head_dim;
    c.nv = c.keys * c.kv_heads * c.value_dim;
    c.no = c.rows * c.heads * c.value_dim;
    float size = (float)(1 + test_below(&r->random, 3)); // flat to peaked
    c.q = rig_random(r, c.nq, size);
    c.k = rig_random(r, c.nk, size);
    c.v = rig_random(r, c.nv, 1);
    c.dout = rig_random(r, c.no, 1);
    return c;
}

static void fill_nan(float *x, size_t row, size_t width)
{
    for (size_t i = 0; i < width; i++)
        x[row * width + i] = i % 2 ? NAN : INFINITY;
}

/* Keys that nobody sees, and rows that see nothing, hold NaN and infinity. */
static void attention_poison(attention_case *c, const bauta_mask *mask)
{
    for (size_t j = 0; j < c->keys; j++) {
        bool seen = false;
        for (size_t i = 0; i < c->rows && !seen; i++)
            seen = bauta_mask_visible(mask, i, j);
        if (seen)
            continue;
        fill_nan(c->k, j, c->kv_heads * c->head_dim);
        fill_nan(c->v, j, c->kv_heads * c->value_dim);
    }
    for (size_t i = 0; i < c->rows; i++) {
        size_t count;
        bauta_mask_row(mask, i, &count);
        if (count)
            continue;
        fill_nan(c->q, i, c->heads * c->head_dim);
        fill_nan(c->dout, i, c->heads * c->value_dim);
    }
}

typedef struct attention_results {
    const float *out, *lse, *dq, *dk, *dv;
    const float *dtable, *before; /* after and before, or NULL */
} attention_results;

/* Forward and backward; or forward alone, without lse. */
static attention_results attention_run(rig *r, const attention_case *c,
                                       const bt_attention_plan *plan,
                                       bool backward)
{
    size_t q_columns = c->heads * c->head_dim;
    size_t k_columns = c->kv_heads * c->head_dim;
    size_t v_columns = c->kv_heads * c->value_dim;
    size_t o_columns = c->heads * c->value_dim;
    const bt_tensor *q = rig_input(r, c->q, c->rows, q_columns);
    const bt_tensor *k = rig_input(r, c->k, c->keys, k_columns);
    const bt_tensor *v = rig_input(r, c->v, c->keys, v_columns);
    const bt_tensor *out = rig_output(r, NULL, c->rows, o_columns);
    const bt_tensor *lse = rig_output(r, NULL, c->rows, c->heads);
    bt_attention_bias terms = bias_of(r, c);
    const bt_attention_bias *bias = c->biased ? &terms : NULL;
    RIG_RUN(r, attention, .plan = plan, .heads = c->heads,
            .kv_heads = c->kv_heads, .scale = c->scale, .q = q, .k = k, .v = v,
            .out = out, .lse = backward ? lse : NULL, .bias = bias);
    attention_results got = { .out = rig_fetch(r, out) };
    if (!backward)
        return got;
    const bt_tensor *dq = rig_output(r, NULL, c->rows, q_columns);
    const bt_tensor *dk = rig_output(r, NULL, c->keys, k_columns);
    const bt_tensor *dv = rig_output(r, NULL, c->keys, v_columns);
    const bt_tensor *dtable = NULL;
    bool add = c->rows % 2;
    if (c->table) {
        got.before = add ? rig_random(r, c->distances * c->heads, 1) : NULL;
        dtable = rig_output(r, got.before, c->distances, c->heads);
    }
    RIG_RUN(r, attention_grad, .plan = plan, .heads = c->heads,
            .kv_heads = c->kv_heads, .scale = c->scale, .q = q, .k = k, .v = v,
            .out = out, .lse = lse,
            .dout = rig_input(r, c->dout, c->rows, o_columns), .dq = dq,
            .dk = dk, .dv = dv, .bias = bias, .dtable = dtable,
            .add_dtable = add);
    if (dtable)
        got.dtable = rig_fetch(r, dtable);
    got.lse = rig_fetch(r, lse);
    got.dq = rig_fetch(r, dq);
    got.dk = rig_fetch(r, dk);
    got.dv = rig_fetch(r, dv);
    return got;
}

static void oracle_check(rig *r, const char *name, const oracle_value *want,
                         const float *got, size_t count)
{
    double error = oracle_error(want, got, count);
    if (!(error <= 1))
        fail_msg("%s, %s: %s is off by %.3g times its bound", r->backend->name,
                 r->what, name, error);
}

static oracle oracle_of(const attention_case *c, const bauta_mask *mask,
                        bool backward)
{
    oracle o = { .mask = mask,
                 .heads = c->heads,
                 .kv_heads = c->kv_heads,
                 .head_dim = c->head_dim,
                 .value_dim = c->value_dim,
                 .scale = c->scale != 0.0f ? (double)c->scale
                                           : 1 / sqrt((double)c->head_dim),
                 .q = c->q,
                 .k = c->k,
                 .v = c->v,
                 .dout = backward ? c->dout : NULL,
                 .softcap = (double)c->softcap,
                 .bias = c->biased ? c->dense : NULL };
    oracle_run(&o);
    return o;
}

/* The gradient of the table: sums over pairs, of which a float chain may have
 * a rounding for each. */
static void dtable_check(rig *r, const attention_case *c,
                         const bauta_mask *mask, const oracle *o,
                         const attention_results *got)
{
    size_t count = c->distances * c->heads;
    oracle_value *want = rig_memory(r, count, sizeof(*want));
    memset(want, 0, count * sizeof(*want));
    for (size_t i = 0; i < count && got->before; i++) {
        want[i].value = (double)got->before[i];
        want[i].bound = fabs(want[i].value) * 0x1p-23;
    }
    for (size_t i = 0; i < c->rows; i++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t j = 0; j < c->keys; j++) {
                ptrdiff_t distance;
                if (!bauta_mask_visible(mask, i, j))
                    continue;
                const oracle_value *d =
                    &o->dbias[(i * c->heads + h) * c->keys + j];
                size_t row = distance_row(c, mask, i, j, &distance);
                oracle_value *to = &want[row * c->heads + h];
                to->value += d->value;
                to->bound +=
                    1.01 * d->bound + 0x1p-120 +
                    fabs(d->value) * (double)(c->rows * c->keys) * 0x1p-24;
            }
    oracle_check(r, "dtable", want, got->dtable, count);
}

/* The bounds are derived in attention_oracle.h. One plan is rebuilt for every
 * mask. */
static void attention_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "attention");
    bt_attention_plan *plan = NULL;
    for (size_t round = 0; round < 2 * ROUNDS; round++, rig_clear(r)) {
        mask_case m;
        bool backward = round % 4 != 3;
        mask_init(r, &m, random_bool(r), random_bool(r));
        RIG_MUST(r, r->backend->plan_build(r->stream, &plan, &m.mask,
                                           backward ? BT_PLAN_BACKWARD
                                                    : BT_PLAN_FORWARD,
                                           &r->err));
        assert_int_equal(plan->rows, bauta_mask_queries(m.whole));
        assert_int_equal(plan->keys, bauta_mask_keys(m.whole));
        attention_case c = attention_random(r, m.whole);
        attention_poison(&c, m.whole);
        if (round % 2)
            bias_random(r, &c, m.whole);
        attention_results got = attention_run(r, &c, plan, backward);
        oracle o = oracle_of(&c, m.whole, backward);
        oracle_check(r, "out", o.out, got.out, c.no);
        if (backward) {
            oracle_check(r, "lse", o.lse, got.lse, c.rows * c.heads);
            oracle_check(r, "dq", o.dq, got.dq, c.nq);
            oracle_check(r, "dk", o.dk, got.dk, c.nk);
            oracle_check(r, "dv", o.dv, got.dv, c.nv);
            if (got.dtable)
                dtable_check(r, &c, m.whole, &o, &got);
        }
        oracle_release(&o);
        mask_release(&m);
    }
    r->backend->plan_free(plan);
    r->backend->plan_free(NULL);
    rig_close(r);
}

/* For one row, all keys that it does not see become NaN; for one key, all rows
 * that do not see it. */
static void hidden_keys_change_no_bit(void **state)
{
    rig *r = rig_open(state, "hidden keys");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        mask_case m;
        bt_attention_plan *plan = NULL;
        mask_init(r, &m, random_bool(r), true);
        RIG_MUST(r, r->backend->plan_build(r->stream, &plan, &m.mask,
                                           BT_PLAN_BACKWARD, &r->err));
        attention_case c = attention_random(r, m.whole);
        attention_results clean = attention_run(r, &c, plan, true);
        size_t q_row = c.heads * c.head_dim, o_row = c.heads * c.value_dim;
        size_t k_row = c.kv_heads * c.head_dim;
        size_t v_row = c.kv_heads * c.value_dim;
        attention_case keys = c, rows = c;
        keys.k = memcpy(rig_random(r, c.nk, 1), c.k, c.nk * sizeof(float));
        keys.v = memcpy(rig_random(r, c.nv, 1), c.v, c.nv * sizeof(float));
        rows.q = memcpy(rig_random(r, c.nq, 1), c.q, c.nq * sizeof(float));
        rows.dout =
            memcpy(rig_random(r, c.no, 1), c.dout, c.no * sizeof(float));
        size_t i = test_below(&r->random, c.rows);
        size_t j = test_below(&r->random, c.keys);
        for (size_t key = 0; key < c.keys && i < c.rows; key++)
            if (!bauta_mask_visible(m.whole, i, key)) {
                fill_nan(keys.k, key, k_row);
                fill_nan(keys.v, key, v_row);
            }
        for (size_t row = 0; row < c.rows && j < c.keys; row++)
            if (!bauta_mask_visible(m.whole, row, j)) {
                fill_nan(rows.q, row, q_row);
                fill_nan(rows.dout, row, o_row);
            }
        if (i < c.rows) {
            attention_results got = attention_run(r, &keys, plan, true);
            rig_same(r, "out", got.out + i * o_row, clean.out + i * o_row,
                     o_row);
            rig_same(r, "lse", got.lse + i * c.heads, clean.lse + i * c.heads,
                     c.heads);
            rig_same(r, "dq", got.dq + i * q_row, clean.dq + i * q_row, q_row);
        }
        if (j < c.keys) {
            attention_results got = attention_run(r, &rows, plan, true);
            rig_same(r, "dk", got.dk + j * k_row, clean.dk + j * k_row, k_row);
            rig_same(r, "dv", got.dv + j * v_row, clean.dv + j * v_row, v_row);
        }
        r->backend->plan_free(plan);
        mask_release(&m);
    }
    rig_close(r);
}

/* ---- The KV cache ------------------------------------------------------ */

enum { TABLES = 4, LAYERS = 2, TOKENS_MAX = 320 };

/* Sequences in pages, and all their keys and values on the host. */
typedef struct kv_case {
    attention_case shape; /* its sizes */
    bt_kv_pool *pool;
    bt_block_table tables[TABLES];
    size_t count, window;
    float *k[TABLES][LAYERS], *v[TABLES][LAYERS]; /* (TOKENS_MAX, columns) */
    bt_attention_plan *plan;
} kv_case;

static size_t k_columns(const kv_case *c)
{
    return c->shape.kv_heads * c->shape.head_dim;
}

static size_t v_columns(const kv_case *c)
{
    return c->shape.kv_heads * c->shape.value_dim;
}

static void kv_history(rig *r, kv_case *c, size_t table)
{
    for (size_t l = 0; l < LAYERS; l++) {
        c->k[table][l] = rig_memory(r, TOKENS_MAX * k_columns(c), 4);
        c->v[table][l] = rig_memory(r, TOKENS_MAX * v_columns(c), 4);
    }
}

static void kv_init(rig *r, kv_case *c, size_t window)
{
    static const size_t dims[] = { 2, 8, 17, 32 };
    bauta_attention_shape given = BAUTA_ATTENTION_SHAPE_INIT;
    bt_attention_shape shape;
    *c = (kv_case){ .count = TABLES - 1, .window = window };
    c->shape.kv_heads = given.kv_heads = 1 + test_below(&r->random, 2);
    c->shape.heads = given.heads =
        given.kv_heads * (1 + test_below(&r->random, 2));
    c->shape.head_dim = given.head_dim =
        dims[test_below(&r->random, BT_LEN(dims))];
    c->shape.value_dim = given.value_dim =
        random_bool(r) ? given.head_dim
                       : dims[test_below(&r->random, BT_LEN(dims))];
    RIG_MUST(r, bt_attention_shape_resolve(&shape, &given, &r->err));
    assert_true(r->backend->kv_page_bytes(&shape, BAUTA_FLOAT32) > 0);
    RIG_MUST(r, bt_kv_pool_create(&c->pool, r->backend, &shape, BAUTA_FLOAT32,
                                  0, &r->err));
    for (size_t i = 0; i < TABLES; i++) {
        bt_block_table_init(&c->tables[i], c->pool, LAYERS);
        kv_history(r, c, i);
    }
}

static void kv_release(rig *r, kv_case *c)
{
    for (size_t i = 0; i < TABLES; i++)
        bt_block_table_release(&c->tables[i]);
    r->backend->plan_free(c->plan);
    bt_kv_pool_release(c->pool);
}

/* Keys and values of the rows of a step, as attention is to see them. */
static void kv_remember(kv_case *c, const bt_kv_batch *batch, size_t at_layer,
                        const float *k, const float *v)
{
    for (size_t s = 0; s < batch->count; s++) {
        const bt_kv_sequence *part = &batch->sequences[s];
        size_t at = part->table->tokens;
        memcpy(c->k[s][at_layer] + at * k_columns(c),
               k + part->row * k_columns(c),
               part->rows * k_columns(c) * sizeof(float));
        memcpy(c->v[s][at_layer] + at * v_columns(c),
               v + part->row * v_columns(c),
               part->rows * v_columns(c) * sizeof(float));
    }
}

static bool can_rotate(const rig *r, const kv_case *c)
{
    return r->backend->fusions & BT_FUSE_ROTARY_KV_WRITE &&
           c->shape.head_dim == c->shape.value_dim &&
           c->shape.head_dim % 2 == 0;
}

/* Rotate and write in one: the queries have the bits of rotary alone, and so do
 * the keys that attention sees. */
static void kv_write_rotated(rig *r, kv_case *c, const bt_kv_batch *batch,
                             size_t rows, size_t at_layer, const float *k,
                             const float *v)
{
    size_t dim = c->shape.head_dim, columns = c->shape.heads * dim;
    const bt_tensor *positions = rig_ids(r, random_ids(r, rows, 5000), rows);
    const bt_tensor *frequencies =
        rig_input(r, rig_random(r, dim / 2, 1), 1, dim / 2);
    const bt_tensor *q =
        rig_input(r, rig_random(r, rows * columns, 1), rows, columns);
    const bt_tensor *keys = rig_input(r, k, rows, k_columns(c));
    const bt_tensor *q_out = rig_output(r, NULL, rows, columns);
    const bt_tensor *q_apart = rig_output(r, NULL, rows, columns);
    const bt_tensor *k_apart = rig_output(r, NULL, rows, k_columns(c));
    RIG_RUN(r, kv_write, .batch = batch, .layer = at_layer, .k = keys,
            .v = rig_input(r, v, rows, v_columns(c)), .positions = positions,
            .frequencies = frequencies, .heads = c->shape.heads, .q = q,
            .q_out = q_out);
    RIG_RUN(r, rotary, .heads = c->shape.heads, .x = q, .y = q_apart,
            .positions = positions, .frequencies = frequencies);
    RIG_RUN(r, rotary, .heads = c->shape.kv_heads, .x = keys, .y = k_apart,
            .positions = positions, .frequencies = frequencies);
    rig_same(r, "q", rig_fetch(r, q_out), rig_fetch(r, q_apart),
             rows * columns);
    kv_remember(c, batch, at_layer, rig_fetch(r, k_apart), v);
}

/* Write rows of a step after the tokens of the tables. With `junk` they are
 * NaN, to be overwritten by the same or fewer rows. */
static void kv_write_rows(rig *r, kv_case *c, const bt_kv_batch *batch,
                          size_t rows, bool junk)
{
    for (size_t l = 0; l < LAYERS; l++) {
        float *k = rig_random(r, rows * k_columns(c), 2);
        float *v = rig_random(r, rows * v_columns(c), 1);
        for (size_t i = 0; i < rows && junk; i++) {
            fill_nan(k, i, k_columns(c));
            fill_nan(v, i, v_columns(c));
        }
        if (!junk)
            kv_remember(c, batch, l, k, v);
        if (can_rotate(r, c) && l % 2 && !junk)
            kv_write_rotated(r, c, batch, rows, l, k, v);
        else
            RIG_RUN(r, kv_write, .batch = batch, .layer = l,
                    .k = rig_input(r, k, rows, k_columns(c)),
                    .v = rig_input(r, v, rows, v_columns(c)));
    }
}

/* Compare the attention of a step with the oracle over the whole history. */
static void kv_attend(rig *r, kv_case *c, const bt_kv_batch *batch,
                      const bt_batch_mask *mask)
{
    bauta_mask *whole = NULL;
    attention_case a = c->shape;
    RIG_MUST(r, bt_batch_mask_create(&whole, mask, &r->err));
    RIG_MUST(r, r->backend->plan_build(r->stream, &c->plan, mask,
                                       BT_PLAN_DECODE, &r->err));
    a.rows = bauta_mask_queries(whole);
    a.keys = bauta_mask_keys(whole);
    for (size_t l = 0; l < LAYERS; l++) {
        size_t o_columns = a.heads * a.value_dim, key = 0;
        a.q = rig_random(r, a.rows * a.heads * a.head_dim, 2);
        a.k = rig_random(r, a.keys * k_columns(c), 1);
        a.v = rig_random(r, a.keys * v_columns(c), 1);
        for (size_t s = 0; s < batch->count; s++) {
            size_t keys = mask->keys.lengths[s];
            memcpy(a.k + key * k_columns(c), c->k[s][l],
                   keys * k_columns(c) * sizeof(float));
            memcpy(a.v + key * v_columns(c), c->v[s][l],
                   keys * v_columns(c) * sizeof(float));
            key += keys;
        }
        const bt_tensor *out = rig_output(r, NULL, a.rows, o_columns);
        if (l % 2)
            bias_random(r, &a, whole);
        bt_attention_bias bias = bias_of(r, &a);
        RIG_RUN(r, paged_attention, .plan = c->plan, .batch = batch, .layer = l,
                .heads = a.heads, .kv_heads = a.kv_heads,
                .q = rig_input(r, a.q, a.rows, a.heads * a.head_dim),
                .out = out, .bias = a.biased ? &bias : NULL);
        oracle o = oracle_of(&a, whole, false);
        oracle_check(r, "out", o.out, rig_fetch(r, out), a.rows * o_columns);
        oracle_release(&o);
    }
    bauta_mask_free(whole);
}

/* Pages that the next rows cannot see any more. */
static void kv_free_hidden(kv_case *c)
{
    for (size_t s = 0; s < c->count && c->window; s++)
        for (size_t l = 0; l < LAYERS; l++)
            if (c->tables[s].tokens + 1 > c->window)
                bt_block_table_free_before(&c->tables[s], l,
                                           c->tables[s].tokens + 1 - c->window);
}

/* One step: new rows of every sequence, some with many, some with none. */
static void kv_step(rig *r, kv_case *c)
{
    static const size_t sizes[] = { 0, 1, 1, 1, 5, 64, 70 };
    bt_kv_sequence parts[TABLES];
    size_t rows[TABLES], keys[TABLES], total = 0;
    for (size_t s = 0; s < c->count; s++) {
        rows[s] = sizes[test_below(&r->random, BT_LEN(sizes))];
        if (c->tables[s].tokens + rows[s] + 1 > TOKENS_MAX)
            rows[s] = 0;
        // Room for one more, which holds NaN after the step.
        RIG_MUST(r, bt_block_table_reserve(&c->tables[s], r->stream,
                                           rows[s] + 1, &r->err));
        parts[s] = (bt_kv_sequence){ &c->tables[s], total, rows[s] + 1 };
        total += rows[s] + 1;
    }
    bt_kv_batch batch = { c->count, parts };
    kv_write_rows(r, c, &batch, total, true);
    total = 0;
    for (size_t s = 0; s < c->count; s++) {
        parts[s] = (bt_kv_sequence){ &c->tables[s], total, rows[s] };
        keys[s] = c->tables[s].tokens + rows[s];
        total += rows[s];
    }
    kv_write_rows(r, c, &batch, total, false);
    bt_batch_mask mask = { .queries = { c->count, rows, 0 },
                           .keys = { c->count, keys, 0 },
                           .causal = true,
                           .window = c->window };
    kv_attend(r, c, &batch, &mask);
    for (size_t s = 0; s < c->count; s++) {
        bt_block_table_advance(&c->tables[s], rows[s]);
        bt_block_table_truncate(&c->tables[s], c->tables[s].tokens);
    }
    kv_free_hidden(c);
}

static void paged_attention_equals_attention_over_all_tokens(void **state)
{
    rig *r = rig_open(state, "paged_attention");
    for (size_t round = 0; round < 6; round++, rig_clear(r)) {
        kv_case c;
        kv_init(r, &c, round % 3 == 1 ? 20 : 0);
        // Step by step, so that what was placed can be checked and freed.
        for (size_t step = 0; step < 3; step++)
            kv_step(r, &c);
        kv_release(r, &c);
    }
    rig_close(r);
}

/* A fork shares pages; the first write to one of them copies it. */
static void forked_tables_are_copied_on_write(void **state)
{
    rig *r = rig_open(state, "kv_copy");
    for (size_t round = 0; round < 4; round++, rig_clear(r)) {
        kv_case c;
        kv_init(r, &c, 0);
        kv_step(r, &c);
        RIG_MUST(r, bt_block_table_fork(&c.tables[TABLES - 1], &c.tables[0],
                                        &r->err));
        for (size_t l = 0; l < LAYERS; l++) {
            memcpy(c.k[TABLES - 1][l], c.k[0][l],
                   TOKENS_MAX * k_columns(&c) * sizeof(float));
            memcpy(c.v[TABLES - 1][l], c.v[0][l],
                   TOKENS_MAX * v_columns(&c) * sizeof(float));
        }
        c.count = TABLES;
        kv_step(r, &c);
        kv_step(r, &c);
        kv_release(r, &c);
    }
    rig_close(r);
}

/* Cross-attention: the tables get no rows, and a sequence may have any number
 * of queries. */
static void paged_attention_without_new_rows_sees_the_tables(void **state)
{
    rig *r = rig_open(state, "paged cross-attention");
    for (size_t round = 0; round < 4; round++, rig_clear(r)) {
        kv_case c;
        kv_init(r, &c, 0);
        kv_step(r, &c);
        bt_kv_sequence parts[TABLES];
        size_t rows[TABLES], keys[TABLES];
        for (size_t s = 0; s < c.count; s++) {
            rows[s] = test_below(&r->random, 8);
            keys[s] = c.tables[s].tokens;
            parts[s] = (bt_kv_sequence){ &c.tables[s], 0, 0 };
        }
        bt_batch_mask mask = { .queries = { c.count, rows, 0 },
                               .keys = { c.count, keys, 0 } };
        kv_attend(r, &c, &(bt_kv_batch){ c.count, parts }, &mask);
        kv_release(r, &c);
    }
    rig_close(r);
}

/* ---- Loss -------------------------------------------------------------- */

/* A row of logits z in double, and its bounds. With R the range of the logits:
 *
 * - z - max rounds once: off by u R. The exponential is within 5.1 u, and the
 *   sum of n of them within another n u: A = u R + (5.1 + n) u, relative.
 * - A probability has that twice, and two roundings: 2 A + 2 u.
 * - The loss is computed in double from the sum: A, and 2^-38 for the
 *   logarithm.
 * - dz is made of p g, s g / n and (1 - s) g at the label, and rounds three
 *   times at most. */
typedef struct loss_row {
    double lse, mean, sum_error;
} loss_row;

static loss_row loss_row_of(const float *z, size_t n)
{
    double max = (double)z[0], min = max, sum = 0;
    loss_row row = { 0 };
    for (size_t j = 0; j < n; j++) {
        max = fmax(max, (double)z[j]);
        min = fmin(min, (double)z[j]);
        row.mean += (double)z[j] / (double)n;
    }
    for (size_t j = 0; j < n; j++)
        sum += exp((double)z[j] - max);
    row.lse = max + log(sum);
    row.sum_error = u * (max - min) + (5.1 + (double)n) * u;
    return row;
}

static void check_loss_row(rig *r, const float *z, const float *dz, double loss,
                           size_t n, uint32_t label, double weight, double s,
                           double share)
{
    loss_row row = loss_row_of(z, n);
    double value =
        (1 - s) * (row.lse - (double)z[label]) + s * (row.lse - row.mean);
    double g = share * weight;
    rig_within(r, "loss", 0, loss, weight * value,
               fabs(weight) * (row.sum_error + 0x1p-38 +
                               0x1p-48 * (fabs(value) + fabs(row.lse))));
    for (size_t j = 0; j < n && dz; j++) {
        double p = exp((double)z[j] - row.lse), even = s / (double)n;
        double at_label = j == label ? 1 - s : 0;
        rig_within(r, "dz", j, (double)dz[j], g * (p - even - at_label),
                   1.01 * fabs(g) *
                       ((p + 0x1p-124) * (2 * row.sum_error + 2 * u) +
                        3 * u * (p + even + at_label)));
    }
}

static void cross_entropy_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "cross_entropy");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), n = random_columns(r) + 1;
        double smoothing = round % 3 ? 0.1 * (double)(round % 3) : 0.0;
        double share = 1.0 / (double)(rows + 1);
        bool gradient_too = random_bool(r);
        float *z = rig_random(r, rows * n, round % 2 ? 3 : 30);
        float *weights = random_bool(r) ? rig_random(r, rows, 4) : NULL;
        uint32_t *labels = random_ids(r, rows, n);
        const bt_tensor *logits =
            rig_output_view(r, z, rows, n, random_extra(r));
        const bt_tensor *losses =
            rig_place(r, BAUTA_FLOAT64, rows, 1, 0, NULL, true);
        RIG_RUN(r, cross_entropy, .logits = logits,
                .labels = rig_ids(r, labels, rows),
                .weights = weights ? rig_input(r, weights, rows, 1) : NULL,
                .smoothing = smoothing, .share = share,
                .gradient = gradient_too, .losses = losses);
        const float *dz = gradient_too ? rig_fetch(r, logits) : NULL;
        const double *got = rig_fetch(r, losses);
        for (size_t i = 0; i < rows; i++)
            check_loss_row(r, z + i * n, dz ? dz + i * n : NULL, got[i], n,
                           labels[i], weights ? (double)weights[i] : 1.0,
                           smoothing, share);
    }
    rig_close(r);
}

static void cross_entropy_of_nan_stays_in_its_row(void **state)
{
    rig *r = rig_open(state, "cross_entropy of NaN");
    enum { N = 20 };
    float *z = rig_random(r, 4 * N, 3);
    uint32_t *labels = random_ids(r, 4, N);
    z[1 * N + 3] = NAN;
    z[2 * N + 5] = INFINITY;
    z[3 * N + 7] = -INFINITY; // takes no part
    labels[3] = 6;
    const bt_tensor *logits = rig_output(r, z, 4, N);
    const bt_tensor *losses = rig_place(r, BAUTA_FLOAT64, 4, 1, 0, NULL, true);
    RIG_RUN(r, cross_entropy, .logits = logits, .labels = rig_ids(r, labels, 4),
            .share = 1.0, .gradient = true, .losses = losses);
    const double *got = rig_fetch(r, losses);
    const float *dz = rig_fetch(r, logits);
    assert_true(isfinite(got[0]) && isnan(got[1]) && isnan(got[2]));
    assert_true(isfinite(got[3]) && dz[3 * N + 7] == 0.0f);
    check_loss_row(r, z, dz, got[0], N, labels[0], 1, 0, 1);
    rig_close(r);
}

/* The log-sum-exp is rounded, and the difference. */
static void logprobs_stay_within_their_bound(void **state)
{
    rig *r = rig_open(state, "logprobs");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), n = random_columns(r);
        float *z = rig_random(r, rows * n, round % 2 ? 3 : 30);
        uint32_t *labels = random_ids(r, rows, n);
        const bt_tensor *logprobs = rig_output(r, NULL, rows, 1);
        bool broken = rows > 1 && round % 4 == 0;
        if (broken)
            z[0] = NAN;
        RIG_RUN(r, logprobs,
                .logits = rig_output_view(r, z, rows, n, random_extra(r)),
                .labels = rig_ids(r, labels, rows), .logprobs = logprobs);
        const float *got = rig_fetch(r, logprobs);
        for (size_t i = broken; i < rows; i++) {
            loss_row row = loss_row_of(z + i * n, n);
            double want = (double)z[i * n + labels[i]] - row.lse;
            rig_within(r, "logprobs", i, (double)got[i], want,
                       row.sum_error + 0x1p-38 +
                           1.01 * u * (fabs(row.lse) + fabs(want)));
        }
        if (broken)
            assert_true(isnan(got[0]));
    }
    rig_close(r);
}

/* ---- Sampling ---------------------------------------------------------- */

enum { SAMPLES = 6, SAMPLE_VOCAB = 70, SAMPLE_HISTORY = 9 };

/* Options of all kinds, and a history. */
static void sample_options(rig *r, bauta_generate_options *o, uint32_t *history)
{
    *o = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    for (size_t i = 0; i < SAMPLE_HISTORY; i++)
        history[i] = (uint32_t)test_below(&r->random, 6);
    o->do_sample = test_below(&r->random, 2);
    o->seed = test_below(&r->random, 1000);
    if (test_below(&r->random, 2))
        o->temperature = 0.5f;
    if (test_below(&r->random, 2))
        o->top_k = 1 + test_below(&r->random, 20);
    if (test_below(&r->random, 2))
        o->top_p = 0.7f;
    if (test_below(&r->random, 3) == 0)
        o->repetition_penalty = 1.4f;
    if (test_below(&r->random, 3) == 0)
        o->presence_penalty = 0.7f;
    if (test_below(&r->random, 3) == 0)
        o->frequency_penalty = -0.3f;
    if (test_below(&r->random, 3) == 0) {
        static const bauta_token_bias biases[] = { { 1, 2.5f }, { 5, -9.0f } };
        o->logit_bias = biases;
        o->logit_bias_count = 2;
    }
    if (test_below(&r->random, 3) == 0)
        o->no_repeat_ngram_size = 2;
    if (test_below(&r->random, 3) == 0) {
        o->suppress_token_count = 1;
        o->suppress_tokens[0] = 3;
    }
}

static bt_sampler_scratch sample_scratch(rig *r)
{
    static float work[SAMPLE_VOCAB], exps[SAMPLE_VOCAB], lse[SAMPLES];
    static float maxima[SAMPLE_VOCAB / BT_TOPK_BLOCK + 1];
    static unsigned char marks[SAMPLE_VOCAB];
    static bt_topk_item topk[SAMPLE_VOCAB];
    (void)r;
    return (bt_sampler_scratch){ .kernels = bt_kernels_get("c"),
                                 .vocab = SAMPLE_VOCAB,
                                 .work = work,
                                 .exps = exps,
                                 .maxima = maxima,
                                 .marks = marks,
                                 .topk = topk,
                                 .topk_capacity = SAMPLE_VOCAB,
                                 .lse = lse };
}

/* The tokens are those of cpu/sampling.h, unless a backend's log-sum-exp rounds
 * otherwise and the draw meets a boundary, which random numbers do not. */
static void sample_chooses_as_the_sampler(void **state)
{
    rig *r = rig_open(state, "sample");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        bauta_generate_options options[SAMPLES];
        uint32_t history[SAMPLES][SAMPLE_HISTORY];
        bt_sample_item items[SAMPLES];
        float *z = rig_random(r, SAMPLES * SAMPLE_VOCAB, 3);
        const bt_tensor *logits =
            rig_input_view(r, z, SAMPLES, SAMPLE_VOCAB, random_extra(r));
        for (size_t i = 0; i < SAMPLES; i++) {
            sample_options(r, &options[i], history[i]);
            items[i] = (bt_sample_item){
                .row = SAMPLES - 1 - i,
                .options = &options[i],
                .history = { history[i], SAMPLE_HISTORY, 2, 1000 },
            };
        }
        RIG_RUN(r, sample, .logits = logits, .count = SAMPLES, .items = items);
        bt_sampler_scratch scratch = sample_scratch(r);
        for (size_t i = 0; i < SAMPLES; i++) {
            bt_sampled_token want;
            bt_sample_status status =
                bt_sample(&want, &scratch, z + items[i].row * SAMPLE_VOCAB,
                          &options[i], &items[i].history);
            assert_int_equal(items[i].status, status);
            assert_int_equal(items[i].token.token, want.token);
            rig_within(r, "logprob", i, (double)items[i].token.logprob,
                       (double)want.logprob, 1e-5);
        }
    }
    rig_close(r);
}

static void beam_chooses_as_the_sampler(void **state)
{
    enum { WANT = 7, BEAMS = 3 };
    rig *r = rig_open(state, "beam");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        bauta_generate_options options[2];
        uint32_t history[BEAMS][SAMPLE_HISTORY];
        bt_token_history histories[BEAMS];
        float scores[BEAMS];
        bt_beam_choice got[2][WANT], want[WANT];
        bt_beam_item items[2];
        float *z = rig_random(r, 2 * BEAMS * SAMPLE_VOCAB, 3);
        const bt_tensor *logits =
            rig_input_view(r, z, 2 * BEAMS, SAMPLE_VOCAB, random_extra(r));
        for (size_t b = 0; b < BEAMS; b++) {
            sample_options(r, &options[0], history[b]);
            histories[b] =
                (bt_token_history){ history[b], SAMPLE_HISTORY, 2, 1000 };
            scores[b] = -test_float(&r->random);
        }
        for (size_t i = 0; i < 2; i++) {
            uint32_t unused[SAMPLE_HISTORY];
            sample_options(r, &options[i], unused);
            options[i].renormalize_logits = test_below(&r->random, 2);
            items[i] = (bt_beam_item){ .row = i * BEAMS,
                                       .beams = BEAMS,
                                       .options = &options[i],
                                       .scores = scores,
                                       .histories = histories,
                                       .want = WANT,
                                       .choices = got[i] };
        }
        RIG_RUN(r, beam, .logits = logits, .count = 2, .items = items);
        bt_sampler_scratch scratch = sample_scratch(r);
        for (size_t i = 0; i < 2; i++) {
            bt_beam_rows rows = { .beams = BEAMS,
                                  .rows = z + i * BEAMS * SAMPLE_VOCAB,
                                  .stride = SAMPLE_VOCAB,
                                  .scores = scores,
                                  .options = &options[i],
                                  .histories = histories,
                                  .want = WANT,
                                  .choices = want };
            assert_int_equal(items[i].status,
                             bt_beam_rows_select(&rows, &scratch));
            assert_int_equal(items[i].count, rows.count);
            for (size_t k = 0; k < rows.count; k++) {
                assert_int_equal(got[i][k].beam, want[k].beam);
                assert_int_equal(got[i][k].token, want[k].token);
                rig_within(r, "score", k, (double)got[i][k].score,
                           (double)want[k].score, 1e-5);
            }
        }
    }
    rig_close(r);
}

/* ---- Optimizer --------------------------------------------------------- */

enum { SLOTS = 3 };

/* A parameter with its gradient and moments, on the host and the device. */
typedef struct adamw_case {
    size_t rows, columns, count;
    float *p, *g, *m, *v;
    bt_tensor parameter;
    const bt_tensor *gradient, *first, *second;
} adamw_case;

/* With `odd`, that is the first element of the gradient. */
static void adamw_init(rig *r, adamw_case *c, size_t rows, const float *odd)
{
    c->rows = rows;
    c->columns = random_columns(r);
    c->count = c->rows * c->columns;
    c->p = rig_random(r, c->count, 1);
    c->g = rig_random(r, c->count, 1);
    c->m = rig_random(r, c->count, 1);
    c->v = rig_random(r, c->count, 1);
    for (size_t i = 0; i < c->count; i++)
        c->v[i] = fabsf(c->v[i]);
    if (odd)
        c->g[0] = *odd;
    c->parameter = *rig_output(r, c->p, c->rows, c->columns);
    c->gradient = rig_input(r, c->g, c->rows, c->columns);
    c->parameter.grad = c->gradient->buffer;
    c->parameter.grad_offset = c->gradient->offset;
    c->first = rig_output(r, c->m, c->rows, c->columns);
    c->second = rig_output(r, c->v, c->rows, c->columns);
}

/* The step as kernels/pointwise.h writes it, with every constant rounded:
 *
 * - g: the scale and the product: 2 u |g|.
 * - m: w (g - m) has the error of g, of w and of the difference; the sum rounds
 *   twice more.
 * - v: its terms are positive, so errors are relative: 9 u at most.
 * - The denominator: half of that, and 5 u.
 * - p: the error of m, carried through; that of the denominator, and one each
 *   for step, product and quotient; p keep has two, the difference one. */
static void check_adamw(rig *r, const adamw_case *c,
                        const bt_optimizer_options *o, double rate,
                        double decay, size_t t, double scale)
{
    const float *p = rig_fetch(r, &c->parameter), *m = rig_fetch(r, c->first);
    const float *v = rig_fetch(r, c->second);
    for (size_t i = 0; i < c->count; i++) {
        double g = (double)c->g[i] * scale, w1 = 1 - o->beta1;
        double old = (double)c->m[i], new_m = old + w1 * (g - old);
        double new_v = o->beta2 * (double)c->v[i] + (1 - o->beta2) * g * g;
        double size =
            sqrt(new_v) / sqrt(1 - pow(o->beta2, (double)t)) + o->epsilon;
        double step = rate / (1 - pow(o->beta1, (double)t));
        double start = (double)c->p[i];
        double new_p = start * (1 - rate * decay) - step * new_m / size;
        double m_error = w1 * (4 * u * fabs(g) + 3 * u * fabs(old)) +
                         2 * u * fabs(new_m) + u * fabs(old);
        double p_error = step * m_error / size +
                         13 * u * fabs(step * new_m / size) +
                         u * (2 * fabs(start) + fabs(new_p));
        rig_within(r, "m", i, (double)m[i], new_m, 1.01 * m_error);
        rig_within(r, "v", i, (double)v[i], new_v, 1.01 * 9 * u * new_v);
        rig_within(r, "p", i, (double)p[i], new_p, 1.01 * p_error);
    }
}

static double norm_of(const adamw_case *cases)
{
    double sum = 0;
    for (size_t s = 0; s < SLOTS; s++)
        for (size_t i = 0; i < cases[s].count; i++)
            sum += (double)cases[s].g[i] * (double)cases[s].g[i];
    return sqrt(sum);
}

static void adamw_slots(const adamw_case *cases, bt_adamw_slot *slots)
{
    for (size_t s = 0; s < SLOTS; s++)
        slots[s] = (bt_adamw_slot){ .parameter = &cases[s].parameter,
                                    .first = *cases[s].first,
                                    .second = *cases[s].second,
                                    .decay = s % 2 == 0 };
}

static void adamw_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "adamw");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        adamw_case cases[SLOTS];
        bt_adamw_slot slots[SLOTS];
        bt_optimizer_options o = BT_OPTIMIZER_OPTIONS_INIT;
        size_t t = 1 + round * round;
        double norm = NAN, scale = 1, rate = 1e-2;
        o.max_grad_norm = round % 3 == 0 ? 0.5 : round % 3 == 1 ? 1e6 : 0;
        for (size_t s = 0; s < SLOTS; s++)
            adamw_init(r, &cases[s], random_rows(r), NULL);
        adamw_slots(cases, slots);
        RIG_RUN(r, adamw, .slots = slots, .count = SLOTS, .options = &o,
                .learning_rate = rate, .step = t, .norm = &norm);
        double want = norm_of(cases);
        rig_within(r, "norm", 0, norm, want, 1e-9 * want);
        if (o.max_grad_norm > 0 && o.max_grad_norm / (want + 1e-6) < 1)
            scale = o.max_grad_norm / (want + 1e-6);
        for (size_t s = 0; s < SLOTS; s++)
            check_adamw(r, &cases[s], &o, rate,
                        slots[s].decay ? o.weight_decay : 0, t, scale);
    }
    rig_close(r);
}

static void adamw_skips_a_step_that_is_not_finite(void **state)
{
    rig *r = rig_open(state, "adamw of NaN");
    static const float odd[] = { NAN, INFINITY };
    for (size_t i = 0; i < BT_LEN(odd); i++, rig_clear(r)) {
        adamw_case cases[SLOTS];
        bt_adamw_slot slots[SLOTS];
        bt_optimizer_options o = BT_OPTIMIZER_OPTIONS_INIT;
        double norm = 0;
        for (size_t s = 0; s < SLOTS; s++)
            adamw_init(r, &cases[s], 3, s == 1 ? &odd[i] : NULL);
        adamw_slots(cases, slots);
        RIG_RUN(r, adamw, .slots = slots, .count = SLOTS, .options = &o,
                .learning_rate = 0.1, .step = 1, .norm = &norm);
        assert_true(isnan(norm) || isinf(norm));
        for (size_t s = 0; s < SLOTS; s++) {
            rig_same(r, "p", rig_fetch(r, &cases[s].parameter), cases[s].p,
                     cases[s].count);
            rig_same(r, "m", rig_fetch(r, cases[s].first), cases[s].m,
                     cases[s].count);
            rig_same(r, "v", rig_fetch(r, cases[s].second), cases[s].v,
                     cases[s].count);
        }
    }
    rig_close(r);
}

/* Two products and a sum: 2 u of each product. */
static void ema_stays_within_its_bound(void **state)
{
    rig *r = rig_open(state, "ema");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        float *average = rig_random(r, count, 1), *x = rig_random(r, count, 1);
        const bt_tensor *to = rig_output(r, average, rows, columns);
        RIG_RUN(r, ema, .average = to, .x = rig_input(r, x, rows, columns),
                .keep = 0.9f, .take = 0.1f);
        const float *got = rig_fetch(r, to);
        for (size_t i = 0; i < count; i++) {
            double kept = (double)0.9f * (double)average[i];
            double taken = (double)0.1f * (double)x[i];
            rig_within(r, "average", i, (double)got[i], kept + taken,
                       2 * u * (fabs(kept) + fabs(taken)));
        }
    }
    rig_close(r);
}

static void swap_exchanges_bits(void **state)
{
    rig *r = rig_open(state, "swap");
    for (size_t round = 0; round < ROUNDS; round++, rig_clear(r)) {
        size_t rows = random_rows(r), columns = random_columns(r);
        size_t count = rows * columns;
        float *a = rig_random(r, count, 1), *b = rig_random(r, count, 1);
        if (count)
            a[0] = NAN;
        const bt_tensor *ta = rig_output(r, a, rows, columns);
        const bt_tensor *tb = rig_output(r, b, rows, columns);
        RIG_RUN(r, swap, .a = ta, .b = tb);
        rig_same(r, "a", rig_fetch(r, ta), b, count);
        rig_same(r, "b", rig_fetch(r, tb), a, count);
    }
    rig_close(r);
}

/* ---- The reference backend --------------------------------------------- */

static void host_access_is_caught(void **state)
{
    (void)state;
    assert_true(reference_backend_catches_host_access());
    assert_int_equal(reference_backend_live_buffers(), 0);
}

static rig *rig_open_reference(const char *what)
{
    static backend_case reference = { "reference", open_reference };
    void *given = &reference;
    return rig_open(&given, what);
}

static void expect(const char *message, bauta_status status,
                   bauta_status got_status, const bauta_error *err)
{
    if (got_status != status || !strstr(err->message, message))
        fail_msg("status %d, \"%s\", not %d, \"%s\"", got_status, err->message,
                 status, message);
}

static void expect_add(rig *r, const bt_tensor *a, const bt_tensor *b,
                       const bt_tensor *y, const char *message)
{
    bauta_error err = { 0 };
    bauta_status status =
        r->backend->add(r->stream, &(const bt_add_args){ a, b, y }, &err);
    expect(message, BAUTA_ERR_ARGUMENT, status, &err);
}

static void a_wrong_operand_is_an_error(void **state)
{
    (void)state;
    rig *r = rig_open_reference("wrong operands");
    float *data = rig_random(r, 60, 1), memory[60] = { 0 };
    const bt_tensor *a = rig_input(r, data, 6, 10);
    const bt_tensor *b = rig_input(r, data, 6, 10);
    const bt_tensor *y = rig_output(r, data, 6, 10);
    bt_buffer host = bt_buffer_of_host(memory, sizeof(memory));
    bt_buffer freed = { 0 };
    RIG_MUST(r, r->backend->alloc(r->stream, &freed, sizeof(memory), &r->err));
    bt_buffer gone = freed;
    r->backend->free(&freed);
    bt_tensor wrong = *b;
    wrong.rows = 5;
    expect_add(r, a, &wrong, y, "add: b has 5 rows, not 6");
    wrong = *b;
    wrong.dtype = BAUTA_UINT32;
    expect_add(r, a, &wrong, y, "add: b is of type U32, not F32");
    wrong = *b;
    wrong.offset += 1000;
    expect_add(r, a, &wrong, y, "add: b ends at element");
    wrong = *b;
    wrong.stride = 1000;
    expect_add(r, a, &wrong, y, "add: b ends at element");
    wrong = bt_tensor_of(&host, BAUTA_FLOAT32, 6, 10);
    expect_add(r, a, &wrong, y, "add: b is not in a live buffer");
    wrong = bt_tensor_of(&gone, BAUTA_FLOAT32, 6, 10);
    expect_add(r, a, &wrong, y, "add: b is not in a live buffer");
    wrong = bt_tensor_of(NULL, BAUTA_FLOAT32, 6, 10);
    expect_add(r, a, &wrong, y, "add: b is not in a live buffer");
    expect_add(r, a, NULL, y, "add: b is NULL");
    wrong = *y;
    wrong.offset -= 3;
    expect_add(r, a, &wrong, y, "add: b and y overlap");
    rig_close(r);
}

/* Columns of one matrix may be inputs and outputs at the same time. */
static void columns_of_one_matrix_do_not_overlap(void **state)
{
    (void)state;
    rig *r = rig_open_reference("columns of a matrix");
    float *data = rig_random(r, 4 * 12, 1), want[4 * 3];
    const bt_tensor *whole = rig_output(r, data, 4, 12);
    bt_tensor from = *whole, to = *whole;
    bauta_error err = { 0 };
    from.columns = to.columns = 3;
    to.offset += 4;
    for (size_t i = 0; i < 12; i++)
        want[i] = data[i / 3 * 12 + i % 3];
    RIG_RUN(r, accumulate, .x = &from, .to = &to);
    rig_same(r, "to", rig_fetch(r, &to), want, 12);
    to.offset = from.offset + 2;
    bauta_status status = r->backend->accumulate(
        r->stream, &(const bt_accumulate_args){ &from, &to, false }, &err);
    expect("accumulate: x and to overlap", BAUTA_ERR_ARGUMENT, status, &err);
    expect_add(r, &from, &from, &to, "add: a has 3 columns and a stride of 12");
    rig_close(r);
}

static void a_missing_type_is_unsupported(void **state)
{
    (void)state;
    rig *r = rig_open_reference("types");
    float *data = rig_random(r, 60, 1);
    const bt_tensor *a = rig_input(r, data, 6, 10);
    const bt_tensor *y = rig_output(r, NULL, 6, 10);
    const bt_tensor *half = rig_place(r, BAUTA_FLOAT16, 6, 10, 0, NULL, false);
    const bt_op_shape shape = { .columns = 10 };
    bauta_error err = { 0 };
    assert_false(
        r->backend->supports(r->stream, BT_OP_add, BAUTA_FLOAT16, &shape));
    bauta_status status =
        r->backend->add(r->stream, &(const bt_add_args){ a, half, y }, &err);
    expect("add for F16", BAUTA_ERR_UNSUPPORTED, status, &err);
    // Packed weights are of the CPU only.
    bt_tensor packed = *a;
    packed.buffer = NULL;
    packed.packed = (const void *)&shape;
    status = r->backend->linear(
        r->stream,
        &(const bt_linear_args){ .x = a,
                                 .count = 1,
                                 .layers =
                                     &(bt_linear_layer){ &packed, NULL, y } },
        &err);
    expect("linear for", BAUTA_ERR_UNSUPPORTED, status, &err);
    rig_close(r);
}

static void wrong_ids_and_copies_are_errors(void **state)
{
    (void)state;
    rig *r = rig_open_reference("wrong ids");
    const bt_backend *b = r->backend;
    float *data = rig_random(r, 60, 1);
    const uint32_t ids[] = { 0, 6 };
    const bt_tensor *table = rig_input(r, data, 6, 10);
    const bt_tensor *y = rig_output(r, NULL, 2, 10);
    bauta_error err = { 0 };
    bauta_status status = b->embedding(
        r->stream,
        &(const bt_embedding_args){ table, y, rig_ids(r, ids, 2), 1.0f }, &err);
    expect("embedding: ids[1] is 6, not below 6", BAUTA_ERR_ARGUMENT, status,
           &err);
    size_t bytes = table->buffer->bytes;
    status = b->upload(r->stream, table->buffer, bytes - 4, data, 5, &err);
    expect("upload: 5 bytes at", BAUTA_ERR_ARGUMENT, status, &err);
    status = b->download(r->stream, data, table->buffer, SIZE_MAX, 2, &err);
    expect("download: 2 bytes at", BAUTA_ERR_ARGUMENT, status, &err);
    status = b->fill(r->stream, table->buffer, bytes + 1, 0, 0, &err);
    expect("fill: 0 bytes at", BAUTA_ERR_ARGUMENT, status, &err);
    bt_stream foreign = { .backend = &bt_cpu_backend };
    status = b->fill(&foreign, table->buffer, 0, 0, 0, &err);
    expect("fill: the stream is not", BAUTA_ERR_ARGUMENT, status, &err);
    rig_close(r);
}

static void a_plan_serves_its_use_only(void **state)
{
    (void)state;
    rig *r = rig_open_reference("use of a plan");
    const size_t length = 4;
    bt_batch_mask mask = { .queries = { 1, &length, 0 },
                           .keys = { 1, &length, 0 },
                           .causal = true };
    float *data = rig_random(r, 32, 1);
    const bt_tensor *x = rig_input(r, data, 4, 8);
    bt_attention_plan *plan = NULL;
    bauta_error err = { 0 };
    RIG_MUST(r, r->backend->plan_build(r->stream, &plan, &mask, BT_PLAN_DECODE,
                                       &r->err));
    bauta_status status = r->backend->attention(
        r->stream,
        &(const bt_attention_args){ .plan = plan,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .q = x,
                                    .k = x,
                                    .v = x,
                                    .out = rig_output(r, NULL, 4, 8) },
        &err);
    expect("attention: the plan was built for another use", BAUTA_ERR_ARGUMENT,
           status, &err);
    r->backend->plan_free(plan);
    rig_close(r);
}

/* ---- All tests --------------------------------------------------------- */

#define TEST(name)  \
    {               \
#name, name \
    }
static const struct {
    const char *name;
    CMUnitTestFunction run;
} operation_tests[] = {
    TEST(memory_holds_what_was_uploaded),
    TEST(a_large_fill_ends_where_it_should),
    TEST(tensors_are_copied_by_rows),
    TEST(a_forked_stream_shares_memory),
    TEST(every_operation_is_there),
    TEST(linear_stays_within_its_bound),
    TEST(linear_of_a_row_alone_has_the_same_bits),
    TEST(linear_dx_stays_within_its_bound),
    TEST(linear_dw_stays_within_its_bound),
    TEST(sum_rows_stays_within_its_bound),
    TEST(embedding_rounds_once),
    TEST(embedding_grad_stays_within_its_bound),
    TEST(scatter_add_adds_to_its_rows_only),
    TEST(norm_stays_within_its_bound),
    TEST(norm_of_a_row_alone_has_the_same_bits),
    TEST(norm_grad_stays_within_its_bound),
    TEST(act_stays_within_its_bound),
    TEST(act_keeps_nan_and_has_limits),
    TEST(act_grad_stays_within_its_bound),
    TEST(fused_operations_have_the_bits_of_their_parts),
    TEST(rotary_stays_within_its_bound),
    TEST(add_rounds_once),
    TEST(scale_rounds_once),
    TEST(softcap_stays_within_its_bound),
    TEST(accumulate_copies_or_adds),
    TEST(accumulate_converts_types),
    TEST(dropout_drops_the_same_elements_everywhere),
    TEST(attention_stays_within_its_bound),
    TEST(hidden_keys_change_no_bit),
    TEST(paged_attention_equals_attention_over_all_tokens),
    TEST(forked_tables_are_copied_on_write),
    TEST(paged_attention_without_new_rows_sees_the_tables),
    TEST(cross_entropy_stays_within_its_bound),
    TEST(cross_entropy_of_nan_stays_in_its_row),
    TEST(logprobs_stay_within_their_bound),
    TEST(sample_chooses_as_the_sampler),
    TEST(beam_chooses_as_the_sampler),
    TEST(adamw_stays_within_its_bound),
    TEST(adamw_skips_a_step_that_is_not_finite),
    TEST(ema_stays_within_its_bound),
    TEST(swap_exchanges_bits),
};

/* All operations on one backend. */
static int run_operations(backend_case *on)
{
    struct CMUnitTest tests[BT_LEN(operation_tests)];
    for (size_t i = 0; i < BT_LEN(operation_tests); i++)
        tests[i] = (struct CMUnitTest){ .name = operation_tests[i].name,
                                        .test_func = operation_tests[i].run,
                                        .initial_state = on };
    return cmocka_run_group_tests_name(on->name, tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest reference_tests[] = {
        cmocka_unit_test(host_access_is_caught),
        cmocka_unit_test(a_wrong_operand_is_an_error),
        cmocka_unit_test(columns_of_one_matrix_do_not_overlap),
        cmocka_unit_test(a_missing_type_is_unsupported),
        cmocka_unit_test(wrong_ids_and_copies_are_errors),
        cmocka_unit_test(a_plan_serves_its_use_only),
    };
    int failed = 0;
    seed = test_seed();
    if (bt_thread_pool_create(&pool, 3, NULL))
        return 1;
    failed += cmocka_run_group_tests_name("the reference backend",
                                          reference_tests, NULL, NULL);
    for (size_t i = 0; i < BT_LEN(backends); i++)
        failed += run_operations(&backends[i]);
    bt_thread_pool_free(pool);
    return failed;
}
