/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - products on the GPU: what is asked for is checked, and a kernel, its
 * tiles and how its chunks are spread are chosen. No choice changes a bit. */
#include "backend/cuda/gemm_task.h"

#include "base/error.h"

#include <cuda_runtime_api.h>
#include <limits.h>

enum {
    NARROW_BLOCKS = 8,   /* of a cluster, at most */
    NORM_COLUMNS = 2048, /* that a product normalizes, at most */
    GATE_COLUMNS = 8192, /* and whose gates it applies */
    LONG_K = 3072        /* of a block that gains by a longer ring of stages */
};

/* ---- arguments ---------------------------------------------------------- */

static size_t or_length(size_t stride, size_t length)
{
    return stride ? stride : length;
}

/* The product with no stride left out. */
static bt_cuda_gemm_args with_strides(const bt_cuda_gemm_args *given)
{
    bt_cuda_gemm_args p = *given;
    p.lda = or_length(p.lda, p.form == BT_GEMM_TN ? p.m : p.k);
    p.ldb = or_length(p.ldb, p.form == BT_GEMM_NT ? p.k : p.n);
    p.ldo = or_length(p.ldo, p.n);
    p.ld_pre = or_length(p.ld_pre, p.ldo);
    p.ld_slope = or_length(p.ld_slope, p.ldo);
    p.ld_residual = or_length(p.ld_residual, p.ldo);
    return p;
}

static bauta_status check_matrix(const char *name, const void *at,
                                 size_t stride, size_t length, bool needed,
                                 bauta_error *err)
{
    if (!at && !needed)
        return BAUTA_OK;
    if (!at)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is NULL", name);
    if ((uintptr_t)at % 16 || stride % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its leading stride, "
                       "%zu, be a multiple of 8",
                       name, stride);
    if (stride < length)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s has a leading stride of %zu and rows of %zu", name,
                       stride, length);
    return BAUTA_OK;
}

/* Whether tiles that take turns end with the activation or the slope. */
static bool takes_turns(const bt_cuda_gemm_args *p)
{
    bool slopes = p->slope && !p->pre && !p->bias;
    return (p->has_act || slopes) && p->act != BT_ACT_SILU &&
           p->form != BT_GEMM_TN && p->k && p->k <= BT_GEMM_CHUNK &&
           p->n % 8 == 0 && !p->out_f32 && !p->residual;
}

bool bt_cuda_gemm_fuses(const bt_cuda_gemm_args *p)
{
    return takes_turns(p) ||
           (p->m <= BT_GEMM_SMALL_ROWS && p->form != BT_GEMM_TN);
}

/* Whether the general end of large products has the activation or slope. */
static bool ends_anyhow(const bt_cuda_gemm_args *p)
{
    return (!p->has_act || p->form == BT_GEMM_NT) &&
           (!p->slope || p->form == BT_GEMM_NN);
}

/* ---- what comes before ------------------------------------------------- */

/* A matrix that threads read or write eight columns at a time. */
typedef struct whole_matrix {
    const void *at;
    size_t stride, rows, columns;
} whole_matrix;

static bool is_whole(whole_matrix x)
{
    return x.columns % 8 == 0 && (uintptr_t)x.at % 16 == 0 &&
           (x.rows <= 1 || x.stride % 8 == 0);
}

static bool overlaps(whole_matrix x, whole_matrix y)
{
    uintptr_t a = (uintptr_t)x.at, b = (uintptr_t)y.at;
    size_t after_a = ((x.rows - 1) * x.stride + x.columns) * 2;
    size_t after_b = ((y.rows - 1) * y.stride + y.columns) * 2;
    return a && b && a < b + after_b && b < a + after_a;
}

/* Whether all blocks can compute y from two matrices, while some write it. */
static bool can_make(const bt_cuda_gemm_args *p, bt_cuda_in x, bt_cuda_in with,
                     bt_cuda_out sum, bt_cuda_out y)
{
    const whole_matrix in[] = {
        { x.data, or_length(x.stride, p->k), p->m, p->k },
        { with.data, or_length(with.stride, p->k), p->m, p->k }
    };
    const whole_matrix out[] = {
        { y.data, or_length(y.stride, p->k), p->m, p->k },
        { sum.data, or_length(sum.stride, p->k), p->m, p->k }
    };
    for (size_t i = 0; i < BT_LEN(in); i++) {
        if (!is_whole(in[i]) || !is_whole(out[i]))
            return false;
        for (size_t j = 0; j < BT_LEN(out); j++)
            if (overlaps(in[i], out[j]))
                return false;
    }
    return p->a == y.data &&
           (p->m == 1 || or_length(p->lda, p->k) == out[0].stride);
}

static whole_matrix whole_in(bt_cuda_in x, size_t rows, size_t columns)
{
    return (whole_matrix){ x.data, or_length(x.stride, columns), rows,
                           columns };
}

/* Whether a product of few rows can end with a gate: half of a tile's weights
 * are those of the gate, so tiles are whole. */
static bool has_halves(const bt_cuda_gemm_args *p)
{
    return p->m && p->m <= BT_GEMM_SMALL_ROWS && p->k && p->n &&
           p->n % 64 == 0 && p->form == BT_GEMM_NT && !p->out_f32 &&
           !p->has_act && !p->slope && !p->pre && !p->residual && !p->norm &&
           !p->gate;
}

bool bt_cuda_gemm_may_end(const bt_cuda_gemm_args *p)
{
    return has_halves(p) && p->n > BT_GEMM_NARROW_WEIGHTS / p->k;
}

/* The gate's results must be none that other blocks read. */
bool bt_cuda_gemm_ends(const bt_cuda_gemm_args *p)
{
    const bt_cuda_act_args *g = p->end_gate;
    const uint16_t *first = p->out, *second = first + p->n / 2;
    bool gate_first = g->x.data == first;
    whole_matrix a = { p->a, or_length(p->lda, p->k), p->m, p->k };
    whole_matrix out = { p->out, or_length(p->ldo, p->n), p->m, p->n };
    whole_matrix x = whole_in(g->x, p->m, p->n / 2);
    whole_matrix by = whole_in(g->by, p->m, p->n / 2);
    whole_matrix y =
        whole_in((bt_cuda_in){ g->y.data, g->y.stride }, p->m, p->n / 2);
    return has_halves(p) && by.at && g->dtype == BAUTA_BFLOAT16 &&
           g->rows == p->m && g->columns == p->n / 2 &&
           x.at == (gate_first ? first : second) &&
           by.at == (gate_first ? second : first) &&
           (p->m == 1 || (x.stride == out.stride && by.stride == out.stride)) &&
           is_whole(y) && !overlaps(y, a) && !overlaps(y, out);
}

bool bt_cuda_gemm_takes(const bt_cuda_gemm_args *p)
{
    const bt_cuda_norm_args *n = p->norm;
    const bt_cuda_act_args *g = p->gate;
    size_t chunk = (size_t)bt_gemm_few_chunk(p->n, p->k);
    if (p->m == 0 || p->m > BT_GEMM_TAKES_ROWS || !p->n || !p->k ||
        p->form == BT_GEMM_TN || !p->b_ready || (n && g) ||
        p->k > GATE_COLUMNS || p->n > BT_GEMM_NARROW_WEIGHTS / p->k ||
        (p->n + 63) / 64 * ((p->k + chunk - 1) / chunk) > BT_GEMM_TAKES_BLOCKS)
        return false;
    if (n)
        return n->dtype == BAUTA_BFLOAT16 && n->gain_dtype == BAUTA_BFLOAT16 &&
               n->heads == 1 && n->rows == p->m && n->width == p->k &&
               p->k <= NORM_COLUMNS && (uintptr_t)n->gain % 16 == 0 &&
               (uintptr_t)n->bias % 16 == 0 &&
               can_make(p, n->x, n->residual, n->sum, n->y);
    return g && g->dtype == BAUTA_BFLOAT16 && g->by.data && g->rows == p->m &&
           g->columns == p->k &&
           can_make(p, g->x, g->by, (bt_cuda_out){ NULL, 0 }, g->y);
}

static bt_gemm_source source_of(const bt_cuda_gemm_args *p)
{
    return p->norm ? BT_ROWS_NORM : p->gate ? BT_ROWS_GATED : BT_ROWS_GIVEN;
}

static bt_gemm_gate gate_of(const bt_cuda_gemm_args *p)
{
    const bt_cuda_act_args *g = p->end_gate;
    if (!g)
        return (bt_gemm_gate){ 0 };
    return (bt_gemm_gate){ .y = g->y.data,
                           .ld_y = or_length(g->y.stride, p->n / 2),
                           .half = (int)p->n / 2,
                           .gate_first = g->x.data == p->out,
                           .act = g->act };
}

static bt_gemm_rows rows_of(const bt_cuda_gemm_args *p)
{
    bt_gemm_rows r = {
        .x = p->a, .ldx = p->lda, .m = (int)p->m, .k = (int)p->k
    };
    bt_cuda_in with = { NULL, 0 };
    bt_cuda_out y = { NULL, 0 };
    if (p->norm) {
        const bt_cuda_norm_args *n = p->norm;
        r.x = n->x.data;
        r.ldx = or_length(n->x.stride, p->k);
        with = n->residual;
        y = n->y;
        r.sum = n->sum.data;
        r.ld_sum = or_length(n->sum.stride, p->k);
        r.gain = n->gain;
        r.bias = n->bias;
        r.mean = n->mean;
        r.scale = n->scale;
        r.inverse = 1.0f / (float)n->width;
        r.epsilon = n->epsilon;
        r.rms = n->kind == BT_NORM_RMS;
    } else if (p->gate) {
        r.x = p->gate->x.data;
        r.ldx = or_length(p->gate->x.stride, p->k);
        with = p->gate->by;
        y = p->gate->y;
        r.act = p->gate->act;
    }
    r.with = with.data;
    r.ld_with = or_length(with.stride, p->k);
    r.y = y.data;
    r.ld_y = or_length(y.stride, p->k);
    return r;
}

/* ---- checks ------------------------------------------------------------ */

/* `small`: by the kernel for few rows, or by the reference. */
static bauta_status check(const bt_cuda_gemm_args *p, bool small,
                          bauta_error *err)
{
    bauta_status status;
    if (p->m > INT_MAX / 2 || p->n > INT_MAX / 2 || p->k > INT_MAX / 2)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a product of %zu x %zu x %zu is too large", p->m, p->n,
                       p->k);
    if (p->accumulate && !p->out_f32)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "only float32 results are added to");
    if (p->end_gate && (!small || !bt_cuda_gemm_ends(p)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "no product of %zu x %zu x %zu ends with this gate",
                       p->m, p->n, p->k);
    if (p->has_act && p->slope)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a product has an activation or its slope, not both");
    if ((p->norm || p->gate) && (!small || !bt_cuda_gemm_takes(p)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "no product of %zu x %zu x %zu takes this norm or gate",
                       p->m, p->n, p->k);
    if (!small && !ends_anyhow(p) && !takes_turns(p))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "no kernel of many rows ends like this product");
    if ((status = check_matrix("a", p->a, p->lda,
                               p->form == BT_GEMM_TN ? p->m : p->k, p->k > 0,
                               err)) ||
        (status = check_matrix("b", p->b, p->ldb,
                               p->form == BT_GEMM_NT ? p->k : p->n, p->k > 0,
                               err)) ||
        (status = check_matrix("out", p->out, p->ldo, p->n, true, err)) ||
        (status = check_matrix("bias", p->bias, 0, 0, false, err)) ||
        (status = check_matrix("pre", p->pre, p->ld_pre, p->n, false, err)) ||
        (status =
             check_matrix("slope", p->slope, p->ld_slope, p->n, false, err)))
        return status;
    return check_matrix("residual", p->residual, p->ld_residual, p->n, false,
                        err);
}

static bt_gemm_end end_of(const bt_cuda_gemm_args *p)
{
    bt_gemm_end end = {
        .out = p->out,
        .bias = p->bias,
        .slope = p->slope,
        .residual = p->residual,
        .pre = p->pre,
        .ldo = p->ldo,
        .ld_pre = p->ld_pre,
        .ld_slope = p->ld_slope,
        .ld_residual = p->ld_residual,
        .m = (int)p->m,
        .n = (int)p->n,
        .out_f32 = p->out_f32,
        .accumulate = p->accumulate,
    };
    if (p->has_act)
        end.kind = 1 + (int)p->act;
    if (p->slope)
        end.kind = 5 + (int)p->act;
    return end;
}

/* ---- choices ------------------------------------------------------------- */

typedef struct tile_shape {
    const char *name;
    int columns;
    bool ping;
} tile_shape;

#define SHAPE(name, columns, ping) { #name, columns, ping },
static const tile_shape shapes[] = { BT_GEMM_TILES(SHAPE) };

const char *bt_gemm_tile_name(bt_gemm_tile tile)
{
    return shapes[tile].name;
}

static int ceil_div(size_t a, size_t b)
{
    return (int)((a + b - 1) / b);
}

static int chunk_of(const bt_gemm_choice *choice, const bt_cuda_gemm_args *p)
{
    if (choice->chunk)
        return choice->chunk;
    if (choice->small)
        return bt_gemm_few_chunk(p->n, p->k);
    return p->form == BT_GEMM_TN ? bt_gemm_row_chunk(p->m, p->n)
                                 : BT_GEMM_CHUNK;
}

/* Whether chunks are added to the result one by one: a part of a batch has more
 * than one short chunk, and dW in parts is that of the whole batch. */
static bool adds_onto(const bt_cuda_gemm_args *p)
{
    return p->form == BT_GEMM_TN && p->accumulate &&
           bt_gemm_row_chunk(p->m, p->n) < BT_GEMM_ROW_CHUNK;
}

/* What a task takes, in steps of k of tiles of 192 columns. The GPU slows its
 * clock where all multiprocessors multiply, so that a few that have nothing to
 * do cost little. */
static double cost_of(const bt_gemm_task *t, tile_shape s)
{
    int tails = t->chunks - t->head, most = t->head, rounds = 0;
    if (tails && t->part) {
        int all = t->part * (t->head > 1 ? tails : t->chunks);
        rounds = ceil_div((size_t)all,
                          (size_t)(t->workers - (t->head > 1 ? t->part : 0)));
        most = rounds > most ? rounds : most;
    }
    double longest = t->whole * t->chunks + (t->part ? most : 0);
    double tiles = t->whole + (double)t->part / t->workers;
    double average = tiles * t->chunks, steps = longest / 1.13;
    steps = (steps > average ? steps : average) * t->chunk_steps;
    // Partial sums are written, and read by one worker or by another kernel.
    if (rounds && t->join)
        steps += 3 + 2.5 * tails + 1.5 * rounds;
    else if (rounds)
        steps += 10 + 1.5 * rounds + 0.06 * (1 + tails) * t->part;
    // Ping pong hides the ends of short sums, where there are many.
    double ease = s.columns < 192 ? 1.05 : 1;
    if (s.ping != (t->chunks == 1))
        ease *= 1.1;
    return steps * s.columns / 192 * ease;
}

/* Whether the shape of tile can do it: ping pong takes single chunks only. */
static bool can(const bt_gemm_task *t, tile_shape s)
{
    return !s.ping || t->chunks == 1 || (t->head == 1 && !t->whole);
}

/* With so many chunks of a left-over tile for its first worker. */
static void set_head(bt_gemm_task *t, int head)
{
    int tails = t->chunks - head;
    t->head = head;
    t->join = tails && tails <= BT_GEMM_JOINED &&
              (head > 1 || t->part * t->chunks <= t->workers);
}

/* The work as a task of this shape of tile would deal it. */
static void deal(bt_gemm_task *t, const bt_gemm_choice *choice,
                 const bt_cuda_gemm_args *p, int multiprocessors)
{
    tile_shape s = shapes[choice->tile];
    t->tiles_m = ceil_div(p->m, BT_GEMM_TILE_ROWS);
    t->tiles_n = ceil_div(p->n, (size_t)s.columns);
    t->group = choice->group ? choice->group : 16;
    t->steps = ceil_div(p->k, BT_GEMM_STEP);
    t->chunk_steps = chunk_of(choice, p) / BT_GEMM_STEP;
    t->chunks = ceil_div((size_t)t->steps, (size_t)t->chunk_steps);
    if (t->chunk_steps > t->steps)
        t->chunk_steps = t->steps;
    t->workers = multiprocessors;
    t->whole = t->tiles_m * t->tiles_n / t->workers;
    t->part = t->tiles_m * t->tiles_n % t->workers;
    set_head(t, t->chunks);
    t->onto = adds_onto(p) && t->chunks > 1;
    if (t->onto) { // by the merge kernel, all tiles
        t->part += t->whole * t->workers;
        t->whole = 0;
        t->head = 1;
        t->join = false;
        return;
    }
    if (choice->head < 0) {
        bt_gemm_task with = *t;
        double best = cost_of(t, s);
        for (int head = 1; head < t->chunks && t->part; head++) {
            set_head(&with, head);
            double cost = cost_of(&with, s);
            if (cost < best && can(&with, s)) {
                best = cost;
                set_head(t, head);
            }
        }
    } else if (choice->head && choice->head < t->chunks) {
        set_head(t, choice->head);
    }
}

/* The workspace: flags, partial sums. */
static size_t task_bytes(const bt_gemm_task *t, tile_shape s)
{
    if (t->head == t->chunks)
        return 0;
    return BT_GEMM_ZEROS + (size_t)(1 + t->chunks - t->head) * (size_t)t->part *
                               BT_GEMM_TILE_ROWS * (size_t)s.columns *
                               sizeof(float);
}

size_t bt_gemm_choice_bytes(const bt_gemm_choice *choice,
                            const bt_cuda_gemm_args *p, int multiprocessors)
{
    bt_gemm_task t = { 0 };
    if (choice->small)
        return 0;
    deal(&t, choice, p, multiprocessors);
    return task_bytes(&t, shapes[choice->tile]);
}

static int small_rows(const bt_cuda_gemm_args *p)
{
    return p->m <= 8 ? 8 : p->m <= 16 ? 16 : p->m <= 32 ? 32 : 64;
}

/* How the narrow kernel divides k. */
typedef struct narrow_shape {
    int panels, chunk_panels, chunks, blocks;
} narrow_shape;

static narrow_shape narrow_of(const bt_gemm_choice *choice,
                              const bt_cuda_gemm_args *p)
{
    narrow_shape s = { .panels = ceil_div(p->k, BT_GEMM_STEP),
                       .chunk_panels = chunk_of(choice, p) / BT_GEMM_STEP };
    s.chunks = ceil_div((size_t)s.panels, (size_t)s.chunk_panels);
    if (s.chunk_panels > s.panels)
        s.chunk_panels = s.panels;
    s.blocks = choice->blocks > s.chunks ? choice->blocks : s.chunks;
    return s;
}

bool bt_gemm_narrow_can(const bt_gemm_choice *choice,
                        const bt_cuda_gemm_args *p)
{
    narrow_shape s = narrow_of(choice, p);
    return p->m <= BT_GEMM_SMALL_ROWS && p->form != BT_GEMM_TN && p->k &&
           s.chunk_panels <= BT_GEMM_NARROW_K / BT_GEMM_STEP &&
           (choice->narrow == 32 || choice->narrow == 64) &&
           s.blocks <= NARROW_BLOCKS &&
           bt_gemm_narrow_bytes(small_rows(p), choice->narrow, s.chunk_panels,
                                s.chunks, s.blocks) <= BT_GEMM_NARROW_BYTES;
}

/* Rows of weights in a tile. Every block costs time, and so does a tile that is
 * so large that no block of the kernel that follows finds room beside it:
 * measured on an H200, 64 up to 16 rows and where there would be more blocks
 * than multiprocessors, else 32. 0: the matrix is too large. */
static int narrow_tile(const bt_cuda_gemm_args *p, int multiprocessors)
{
    if (p->k == 0 || p->n > BT_GEMM_NARROW_WEIGHTS / p->k)
        return 0;
    for (int i = 0; i < 2; i++) {
        bt_gemm_choice c = { .small = true, .narrow = i ? 64 : 32 };
        narrow_shape s = narrow_of(&c, p);
        int blocks = ceil_div(p->n, (size_t)c.narrow) * s.chunks;
        bool few = p->m > 16 || p->n <= 1024;
        if (bt_gemm_narrow_can(&c, p) && blocks <= multiprocessors &&
            (few || c.narrow == 64))
            return c.narrow;
    }
    return p->norm || p->gate ? 64 : 0;
}

/* Tiles of 64 rows of weights, and clusters until all multiprocessors have
 * work; for small matrices narrow tiles that wait in shared memory for the
 * rows. */
static void choose_small(bt_gemm_choice *choice, const bt_cuda_gemm_args *p,
                         int multiprocessors)
{
    int tiles = ceil_div(p->n, 64);
    choice->small = true;
    int chunks = ceil_div(p->k, (size_t)chunk_of(choice, p));
    choice->blocks = 1;
    if (!p->end_gate)
        choice->narrow = narrow_tile(p, multiprocessors);
    if (choice->narrow)
        choice->blocks = chunks;
    while (!choice->narrow && choice->blocks < 8 && choice->blocks < chunks &&
           tiles * choice->blocks < multiprocessors * 9 / 10)
        choice->blocks *= 2;
}

void bt_gemm_choose(bt_gemm_choice *choice, const bt_cuda_gemm_args *given,
                    size_t workspace_bytes, int multiprocessors)
{
    bt_cuda_gemm_args p = with_strides(given);
    *choice = (bt_gemm_choice){ 0 };
    if (p.m <= BT_GEMM_SMALL_ROWS && p.form != BT_GEMM_TN) {
        choose_small(choice, &p, multiprocessors);
        return;
    }
    // Of the shapes that fit the workspace, the one that takes least.
    static const int lengths[] = { BT_GEMM_CHUNKS };
    double best = 0;
    bool found = false;
    for (size_t i = 0; i < BT_GEMM_TILE_COUNT * 2 * BT_LEN(lengths); i++) {
        bt_gemm_choice c = { .tile = (bt_gemm_tile)(i / 2 % BT_GEMM_TILE_COUNT),
                             .head = i % 2 ? 0 : -1,
                             .chunk = lengths[i / 2 / BT_GEMM_TILE_COUNT] };
        bt_gemm_task t = { 0 };
        deal(&t, &c, &p, multiprocessors);
        double cost = cost_of(&t, shapes[c.tile]);
        if (takes_turns(&p) && (!shapes[c.tile].ping || t.chunks > 1))
            continue;
        if (can(&t, shapes[c.tile]) &&
            task_bytes(&t, shapes[c.tile]) <= workspace_bytes &&
            (!found || cost < best)) {
            best = cost;
            *choice = c;
            found = true;
        }
    }
}

/* ---- launches --------------------------------------------------------------
 */

/* A matrix as the copy engine sees it: rows of `columns` elements, boxes of
 * `box_columns` columns, 32 or 64, and `box_rows` rows, whose lines are
 * swizzled. Beyond its ends it reads as zero. */
static bauta_status encode_box(CUtensorMap *map, const bt_cuda_device *on,
                               const char *name, const void *at, size_t rows,
                               size_t columns, size_t stride, int box_rows,
                               int box_columns, bauta_error *err)
{
    cuuint64_t sizes[2] = { columns, rows }, strides[1] = { stride * 2 };
    cuuint32_t box[2] = { (cuuint32_t)box_columns, (cuuint32_t)box_rows };
    cuuint32_t steps[2] = { 1, 1 };
    CUtensorMapSwizzle swizzle = box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                   : CU_TENSOR_MAP_SWIZZLE_64B;
    CUresult result = on->tensor_map_encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)at, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s of %zu x %zu with stride %zu is nothing for the "
                       "GPU's copy engine (%d)",
                       name, rows, columns, stride, (int)result);
    return BAUTA_OK;
}

static bauta_status encode(CUtensorMap *map, const bt_cuda_device *on,
                           const char *name, const void *at, size_t rows,
                           size_t columns, size_t stride, int box_rows,
                           bauta_error *err)
{
    return encode_box(map, on, name, at, rows, columns, stride, box_rows, 64,
                      err);
}

static bauta_status launched(int status, bauta_error *err)
{
    if (status)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a product did not start: %s",
                       cudaGetErrorString((cudaError_t)status));
    return BAUTA_OK;
}

/* Stages of a block: what fits half of a multiprocessor, so that the next
 * kernel's first weights have the other half. Blocks that each have a
 * multiprocessor may take all of it: where all steps fit, they are all fetched
 * before the rows come, and where there are many, a longer ring gains more than
 * the next kernel's first weights do. */
static void set_stages(bt_gemm_small_task *t, int rows, int multiprocessors)
{
    t->stages = bt_gemm_small_stages(rows, t, false);
    if (!t->stages) { // too many sums
        t->blocks = 1;
        t->per = t->chunks;
        t->stages = bt_gemm_small_stages(rows, t, false);
    }
    int steps = t->per * t->chunk_steps;
    int most = bt_gemm_small_stages(rows, t, true);
    int blocks = ceil_div((size_t)t->end.n, 64) * t->blocks;
    if (steps > t->steps)
        steps = t->steps;
    if (steps <= t->stages || blocks > multiprocessors)
        return;
    if (steps <= most)
        t->stages = steps;
    else if (steps * bt_gemm_small_step(rows) > LONG_K)
        t->stages = most;
}

static bauta_status run_small(const bt_gemm_choice *choice,
                              const bt_cuda_gemm_args *p,
                              const bt_cuda_device *on, void *stream,
                              bauta_error *err)
{
    int rows = small_rows(p), step = bt_gemm_small_step(rows);
    bool outside = p->form != BT_GEMM_NT; // b has k outside
    bt_gemm_small_task t = { .end = end_of(p),
                             .gate = gate_of(p),
                             .b_ready = p->b_ready };
    t.steps = ceil_div(p->k, (size_t)step);
    t.chunk_steps = chunk_of(choice, p) / step;
    t.chunks = ceil_div((size_t)t.steps, (size_t)t.chunk_steps);
    t.blocks = choice->blocks;
    t.per = ceil_div((size_t)t.chunks, (size_t)t.blocks);
    set_stages(&t, rows, on->multiprocessors);
    bauta_status status =
        encode(&t.a, on, "a", p->a, p->m, p->k, p->lda, rows, err);
    if (!status)
        status =
            encode(&t.b, on, "b", p->b, outside ? p->k : p->n,
                   outside ? p->n : p->k, p->ldb, t.gate.half ? 32 : 64, err);
    if (status)
        return status;
    return launched(bt_gemm_small(p->form, rows, &t, stream), err);
}

static bauta_status run_narrow(const bt_gemm_choice *choice,
                               const bt_cuda_gemm_args *p,
                               const bt_cuda_device *on, void *stream,
                               bauta_error *err)
{
    int rows = small_rows(p), tile = choice->narrow;
    bool outside = p->form != BT_GEMM_NT; // b has k outside
    narrow_shape s = narrow_of(choice, p);
    if (!bt_gemm_narrow_can(choice, p))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu x %zu x %zu is not for tiles of %d", p->m, p->n,
                       p->k, tile);
    bt_gemm_narrow_task t = { .end = end_of(p),
                              .rows = rows_of(p),
                              .panels = s.panels,
                              .chunk_panels = s.chunk_panels,
                              .chunks = s.chunks,
                              .blocks = s.blocks,
                              .b_ready = p->b_ready };
    bauta_status status =
        outside
            ? encode_box(&t.b, on, "b", p->b, p->k, p->n, p->ldb, 64, tile, err)
            : encode(&t.b, on, "b", p->b, p->n, p->k, p->ldb, tile, err);
    if (!status && source_of(p) == BT_ROWS_GIVEN)
        status = encode(&t.a, on, "a", p->a, p->m, p->k, p->lda, rows, err);
    if (status)
        return status;
    return launched(
        bt_gemm_narrow(p->form, rows, tile, source_of(p), &t, stream), err);
}

static bauta_status run_large(const bt_gemm_choice *choice,
                              const bt_cuda_gemm_args *p,
                              const bt_cuda_device *on, void *workspace,
                              void *stream, bauta_error *err)
{
    static bt_gemm_large_fn *const kernels[] = { bt_gemm_large_nt,
                                                 bt_gemm_large_nn,
                                                 bt_gemm_large_tn };
    tile_shape s = shapes[choice->tile];
    uint8_t *memory = workspace;
    bool ta = p->form == BT_GEMM_TN, tb = p->form != BT_GEMM_NT;
    bt_gemm_task t = { .end = end_of(p) };
    deal(&t, choice, p, on->multiprocessors);
    if (!can(&t, s))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "tiles of this shape do not add up chunks");
    t.staged = s.ping && takes_turns(p);
    if (!t.staged && !ends_anyhow(p))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "tiles of this shape do not end like this");
    if (task_bytes(&t, s)) {
        t.flags = (int *)workspace;
        t.partial = (float *)(memory + BT_GEMM_ZEROS);
    }
    bauta_status status =
        encode(&t.a, on, "a", p->a, ta ? p->k : p->m, ta ? p->m : p->k, p->lda,
               ta ? 64 : BT_GEMM_TILE_ROWS, err);
    if (!status)
        status = encode(&t.b, on, "b", p->b, tb ? p->k : p->n, tb ? p->n : p->k,
                        p->ldb, tb ? 64 : s.columns, err);
    if (!status && !p->out_f32)
        status = encode(&t.out, on, "out", p->out, p->m, p->n, p->ldo, 16, err);
    if (!status && t.staged && p->pre)
        status =
            encode(&t.side, on, "pre", p->pre, p->m, p->n, p->ld_pre, 16, err);
    if (!status && t.staged && p->slope)
        status = encode(&t.side, on, "slope", p->slope, p->m, p->n, p->ld_slope,
                        16, err);
    if (!status)
        status = launched(kernels[p->form](choice->tile, &t, stream), err);
    if (!status && t.head < t.chunks && t.part && !t.join)
        status = launched(bt_gemm_merge(s.columns, &t, stream), err);
    return status;
}

bauta_status bt_cuda_gemm_by(const bt_gemm_choice *choice,
                             const bt_cuda_gemm_args *given, void *workspace,
                             size_t workspace_bytes, void *stream,
                             bauta_error *err)
{
    bt_cuda_device on;
    BT_NEED(given, err);
    bt_cuda_gemm_args p = with_strides(given);
    bauta_status status = p.m && p.n ? check(&p, choice->small, err) : BAUTA_OK;
    if (status || !p.m || !p.n)
        return status;
    if (!p.k)
        return bt_cuda_gemm_reference(given, stream, err);
    status = bt_cuda_device_init(&on, err);
    if (status)
        return status;
    if ((p.norm || p.gate) && !choice->narrow)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "only narrow tiles take a norm or gate");
    if (p.end_gate && choice->narrow)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "narrow tiles do not end with a gate");
    if (choice->small)
        return choice->narrow ? run_narrow(choice, &p, &on, stream, err)
                              : run_small(choice, &p, &on, stream, err);
    size_t bytes = bt_gemm_choice_bytes(choice, &p, on.multiprocessors);
    if (bytes > (workspace ? workspace_bytes : 0))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the product needs %zu bytes of workspace, not %zu",
                       bytes, workspace ? workspace_bytes : 0);
    return run_large(choice, &p, &on, workspace, stream, err);
}

static int multiprocessors(void)
{
    bt_cuda_device on;
    return bt_cuda_device_init(&on, NULL) ? 0 : on.multiprocessors;
}

size_t bt_cuda_gemm_workspace(const bt_cuda_gemm_args *product)
{
    bt_gemm_choice choice;
    int count = multiprocessors();
    if (!count || !product->m || !product->n || !product->k)
        return 0;
    bt_gemm_choose(&choice, product, SIZE_MAX, count);
    return bt_gemm_choice_bytes(&choice, product, count);
}

/* A sum that is added to, without a place for those of its chunks. */
static bauta_status chunk_by_chunk(const bt_cuda_gemm_args *given, void *stream,
                                   bauta_error *err)
{
    bt_cuda_gemm_args p = with_strides(given), part = p;
    size_t chunk = (size_t)bt_gemm_row_chunk(p.m, p.n);
    bauta_status status = BAUTA_OK;
    for (size_t k = 0; k < p.k && !status; k += chunk) {
        part.a = p.a + k * p.lda;
        part.b = p.b + k * p.ldb;
        part.k = p.k - k < chunk ? p.k - k : chunk;
        status = bt_cuda_gemm(&part, NULL, 0, stream, err);
    }
    return status;
}

bauta_status bt_cuda_gemm(const bt_cuda_gemm_args *product, void *workspace,
                          size_t workspace_bytes, void *stream,
                          bauta_error *err)
{
    bt_gemm_choice choice;
    BT_NEED(product, err);
    int count = multiprocessors();
    if (!count)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "no GPU");
    size_t bytes = workspace ? workspace_bytes : 0;
    bt_gemm_choose(&choice, product, bytes, count);
    if (adds_onto(product) &&
        bt_gemm_choice_bytes(&choice, product, count) > bytes)
        return chunk_by_chunk(product, stream, err);
    return bt_cuda_gemm_by(&choice, product, workspace, workspace_bytes, stream,
                           err);
}

bauta_status bt_cuda_gemm_reference(const bt_cuda_gemm_args *given,
                                    void *stream, bauta_error *err)
{
    BT_NEED(given, err);
    bt_cuda_gemm_args p = with_strides(given);
    bt_gemm_choice choice = { 0 };
    if (p.norm || p.gate || p.end_gate)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plain kernel takes no norm or gate");
    bauta_status status = p.m && p.n ? check(&p, true, err) : BAUTA_OK;
    if (status || !p.m || !p.n)
        return status;
    bt_gemm_end end = end_of(&p);
    int chunk = chunk_of(&choice, &p);
    bool onto = adds_onto(&p) && p.k > (size_t)chunk;
    return launched(bt_gemm_plain(&p, &end, chunk, onto, stream), err);
}
