/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - products on the GPU: what is asked for is checked, and a kernel, its
 * tiles and how its chunks are spread are chosen. No choice changes a bit. */
#include "backend/cuda/gemm_task.h"

#include "base/error.h"

#include <cuda_runtime_api.h>
#include <limits.h>

enum {
    SMALL_AHEAD = 16 << 20, /* bytes of weights that are brought to the L2 */
    NARROW_BLOCKS = 8,      /* of a cluster, at most */
    NARROW_BYTES = 232448,  /* of shared memory of a block, and */
    MULTIPROCESSOR_BYTES = 228 << 10 /* of a multiprocessor */
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
    if (p->has_act && p->slope)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a product has an activation or its slope, not both");
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
    return p->form == BT_GEMM_TN ? BT_GEMM_ROW_CHUNK : BT_GEMM_CHUNK;
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

/* What one block of the narrow kernel has: bytes of rows and of weights. */
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
           s.chunk_panels <= BT_GEMM_CHUNK / BT_GEMM_STEP &&
           s.blocks <= NARROW_BLOCKS &&
           bt_gemm_narrow_bytes(small_rows(p), choice->narrow, s.chunk_panels,
                                s.chunks, s.blocks) <= NARROW_BYTES;
}

/* Microseconds that the blocks of a multiprocessor take to get their rows, once
 * they may, and half of what their weights take: those are fetched meanwhile or
 * earlier. */
static double narrow_cost(const bt_gemm_choice *choice,
                          const bt_cuda_gemm_args *p, int multiprocessors)
{
    const double rows_rate = 90e3, all_rows_rate = 4.5e6, weights_rate = 60e3;
    narrow_shape s = narrow_of(choice, p);
    int tiles = ceil_div(p->n, (size_t)choice->narrow);
    int blocks = tiles * s.chunks;
    double each = s.chunk_panels * BT_GEMM_STEP * 2.0; // bytes of a row
    double rows = each * (double)p->m, weights = each * choice->narrow;
    double loaded = ceil_div((size_t)blocks, (size_t)multiprocessors);
    double rows_us = loaded * rows / rows_rate;
    if (rows_us < blocks * rows / all_rows_rate)
        rows_us = blocks * rows / all_rows_rate;
    return rows_us + 0.5 * loaded * weights / weights_rate;
}

/* Tiles of 64 rows of weights, and clusters until all multiprocessors have
 * work. Where all weights fit the shared memory of the GPU, narrow tiles that
 * wait there for the rows. */
static void choose_small(bt_gemm_choice *choice, const bt_cuda_gemm_args *p,
                         int multiprocessors)
{
    int tiles = ceil_div(p->n, 64);
    int chunks = ceil_div(p->k, BT_GEMM_CHUNK);
    double best = 0;
    choice->small = true;
    choice->blocks = 1;
    while (choice->blocks < 8 && choice->blocks < chunks &&
           tiles * choice->blocks < multiprocessors * 9 / 10)
        choice->blocks *= 2;
    for (int tile = 16; tile <= 64; tile *= 2) {
        bt_gemm_choice c = { .small = true, .narrow = tile };
        narrow_shape s = narrow_of(&c, p);
        int count = ceil_div(p->n, (size_t)tile) * s.chunks;
        int bytes = bt_gemm_narrow_bytes(small_rows(p), tile, s.chunk_panels,
                                         s.chunks, s.chunks);
        if (!bt_gemm_narrow_can(&c, p) ||
            count > MULTIPROCESSOR_BYTES / bytes * multiprocessors)
            continue;
        double cost = narrow_cost(&c, p, multiprocessors);
        if (choice->narrow && cost > best)
            continue;
        best = cost;
        choice->narrow = tile;
        choice->blocks = s.chunks;
    }
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
    double best = 0;
    bool found = false;
    for (int i = 0; i < BT_GEMM_TILE_COUNT * 2; i++) {
        bt_gemm_choice c = { .tile = (bt_gemm_tile)(i / 2),
                             .head = i % 2 ? 0 : -1 };
        bt_gemm_task t = { 0 };
        deal(&t, &c, &p, multiprocessors);
        double cost = cost_of(&t, shapes[c.tile]);
        if (takes_turns(&p) && !shapes[c.tile].ping)
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
 * `box_columns` columns, 16, 32 or 64, and `box_rows` rows, whose lines are
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
                                 : box_columns == 32
                                     ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : CU_TENSOR_MAP_SWIZZLE_32B;
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

static bauta_status run_small(const bt_gemm_choice *choice,
                              const bt_cuda_gemm_args *p,
                              const bt_cuda_device *on, void *stream,
                              bauta_error *err)
{
    int rows = small_rows(p), step = bt_gemm_small_step(rows);
    bool outside = p->form != BT_GEMM_NT; // b has k outside
    bt_gemm_small_task t = { .end = end_of(p), .b_ready = p->b_ready };
    t.steps = ceil_div(p->k, (size_t)step);
    t.chunk_steps = chunk_of(choice, p) / step;
    t.chunks = ceil_div((size_t)t.steps, (size_t)t.chunk_steps);
    t.blocks = choice->blocks;
    t.per = ceil_div((size_t)t.chunks, (size_t)t.blocks);
    t.stages = bt_gemm_small_stages(rows, t.blocks > 1 ? t.per : 1);
    if (!t.stages) {
        t.blocks = 1;
        t.per = t.chunks;
        t.stages = bt_gemm_small_stages(rows, 1);
    }
    int most =
        t.per * t.chunk_steps < t.steps ? t.per * t.chunk_steps : t.steps;
    if (t.stages > most)
        t.stages = most;
    // All blocks that start with the first ones share what the L2 has room for.
    int count = ceil_div(p->n, 64) * t.blocks;
    if (count <= 2 * on->multiprocessors)
        t.ahead = SMALL_AHEAD / count / (step * 64 * 2);
    bauta_status status =
        encode(&t.a, on, "a", p->a, p->m, p->k, p->lda, rows, err);
    if (!status)
        status = encode(&t.b, on, "b", p->b, outside ? p->k : p->n,
                        outside ? p->n : p->k, p->ldb, 64, err);
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
                              .rows = p->a,
                              .lda = p->lda,
                              .k = (int)p->k,
                              .panels = s.panels,
                              .chunk_panels = s.chunk_panels,
                              .chunks = s.chunks,
                              .blocks = s.blocks,
                              .b_ready = p->b_ready };
    bauta_status status =
        outside
            ? encode_box(&t.b, on, "b", p->b, p->k, p->n, p->ldb, 64, tile, err)
            : encode(&t.b, on, "b", p->b, p->n, p->k, p->ldb, tile, err);
    if (!status && rows > 16)
        status = encode(&t.a, on, "a", p->a, p->m, p->k, p->lda, rows, err);
    if (status)
        return status;
    return launched(bt_gemm_narrow(p->form, rows, tile, &t, stream), err);
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

bauta_status bt_cuda_gemm(const bt_cuda_gemm_args *product, void *workspace,
                          size_t workspace_bytes, void *stream,
                          bauta_error *err)
{
    bt_gemm_choice choice;
    BT_NEED(product, err);
    int count = multiprocessors();
    if (!count)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "no GPU");
    bt_gemm_choose(&choice, product, workspace ? workspace_bytes : 0, count);
    return bt_cuda_gemm_by(&choice, product, workspace, workspace_bytes, stream,
                           err);
}

bauta_status bt_cuda_gemm_reference(const bt_cuda_gemm_args *given,
                                    void *stream, bauta_error *err)
{
    BT_NEED(given, err);
    bt_cuda_gemm_args p = with_strides(given);
    bt_gemm_choice choice = { 0 };
    bauta_status status = p.m && p.n ? check(&p, true, err) : BAUTA_OK;
    if (status || !p.m || !p.n)
        return status;
    bt_gemm_end end = end_of(&p);
    return launched(bt_gemm_plain(&p, &end, chunk_of(&choice, &p), stream),
                    err);
}
