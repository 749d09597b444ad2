/* SPDX-License-Identifier: Apache-2.0 */
/* ops_norm.cu - layer norm and RMS norm, forward and backward.
 *
 * A row (or a head of one) has a team of threads, each with eight of its
 * columns; in rows of more than 8,192 columns with eight more. Which team
 * follows from the width alone: up to 256 columns 8, 16 or 32 lanes of a warp,
 * above that as many whole warps as it takes, which are then a block. Sums over
 * a row: eight columns in a tree, a thread's eights in order, the lanes of a
 * warp in a tree, warps in a tree.
 *
 * A team has two rows at a time (one in the backward pass, and where registers
 * do not suffice), and loads the next ones while it works on them. gain and
 * bias stay in its registers. Issuing instructions takes about as long as
 * moving the bytes, so means are products with 1 / width. */
#include "backend/cuda/norm_row.h"
#include "backend/cuda/ops_device.h"
#include "backend/cuda/warp.h"

enum {
    SMALL_BLOCK = 128, /* threads, where a team is part of a warp */
    SMALL_ROWS = 16,   /* rows of a team in a chunk of the sums over rows, */
    MEDIUM_ROWS = 64,  /* up to 1,024 columns, */
    LARGE_ROWS = 32,   /* and above */
    MOST_WIDTH = 16384
};

/* A thread's place. LANES is 0 where the team is the block. */
template <int LANES> struct team {
    static const uint32_t count = LANES ? SMALL_BLOCK / (LANES + !LANES) : 1;

    __device__ __forceinline__ static uint32_t size()
    {
        return LANES ? LANES : blockDim.x;
    }
    __device__ __forceinline__ static uint32_t at()
    {
        return LANES ? threadIdx.x % (LANES + !LANES) : threadIdx.x;
    }
    __device__ __forceinline__ static uint32_t number()
    {
        return LANES ? threadIdx.x / (LANES + !LANES) : 0;
    }
};

/* Rows at a time. */
template <class T, int THREADS> struct pair_of {
    static const int rows = sizeof(T) == 2 && THREADS <= 512 ? 2 : 1;
};

template <int COUNT> struct team_sums {
    float of[COUNT];
};

/* COUNT sums over a team, the same in all its threads. `warps` must not be in
 * use since the last __syncthreads(). */
template <int LANES, int THREADS, int COUNT>
BT_DEVICE team_sums<COUNT> team_sum(team_sums<COUNT> x, team_sums<COUNT> *warps)
{
    const int lanes = LANES ? LANES : 32;
    const uint32_t most = THREADS / 32; // warps
#pragma unroll
    for (int i = lanes / 2; i; i /= 2)
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            x.of[c] += __shfl_xor_sync(ALL_LANES, x.of[c], i);
    if (LANES)
        return x;
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = x;
    __syncthreads();
    uint32_t at = threadIdx.x % most;
    bool in = at < blockDim.x / 32;
    x = warps[in ? at : 0];
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        x.of[c] = in ? x.of[c] : 0.0f;
#pragma unroll
    for (int i = most / 2; i; i /= 2)
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            x.of[c] += __shfl_xor_sync(ALL_LANES, x.of[c], i);
    return x;
}

/* Where a row starts. */
template <class T>
BT_DEVICE T *row_at(matrix<T> m, uint32_t row, uint32_t heads, uint32_t width)
{
    if (heads == 1)
        return m.data + row * m.stride;
    uint32_t whole = row / heads;
    return m.data + whole * m.stride + (row - whole * heads) * width;
}

/* What a thread has of a row. */
template <class T, int HELD> struct row_part {
    octet<T> o[HELD];
};

template <int LANES> BT_DEVICE uint32_t column_at(int k)
{
    return (team<LANES>::at() + k * team<LANES>::size()) * 8;
}

template <int LANES, int HELD, class T>
BT_DEVICE row_part<T, HELD> read_part(const T *row, uint32_t width, bool wide)
{
    row_part<T, HELD> part;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        uint32_t column = column_at<LANES>(k);
        part.o[k] = read8(row + column, (int)(width - column), wide);
    }
    return part;
}

/* ---- forward ------------------------------------------------------------- */

template <class T, class P> struct norm_params {
    matrix<const T> x, residual;
    matrix<T> sum, y;
    const P *gain, *bias;
    float *mean, *scale;
    uint32_t rows; /* heads included */
    uint32_t rows_per_block, heads, width;
    float inverse; /* 1 / width */
    float epsilon;
    bool rms, wide, wide_gain;
};

/* A row on its way: what a thread has of it, and of the residual. */
template <class T, int HELD> struct norm_in {
    row_part<T, HELD> x, add;
};

template <int LANES, int HELD, class T, class P>
BT_DEVICE norm_in<T, HELD> read_in(const norm_params<T, P> &p, uint32_t row)
{
    norm_in<T, HELD> r;
    row = min(row, p.rows - 1);
    r.x = read_part<LANES, HELD>(row_at(p.x, row, p.heads, p.width), p.width,
                                 p.wide);
    if (p.residual.data)
        r.add = read_part<LANES, HELD>(
            row_at(p.residual, row, p.heads, p.width), p.width, p.wide);
    return r;
}

/* A row as floats, with the residual added as it is stored. */
template <int LANES, int HELD, class T, class P>
BT_DEVICE void begin_row(float (*v)[8], const norm_params<T, P> &p,
                         const norm_in<T, HELD> &r, uint32_t row, bool in)
{
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        unpack8(v[k], r.x.o[k]);
        if (!p.residual.data)
            continue;
        uint32_t column = column_at<LANES>(k);
        float add[8];
        octet<T> o;
        unpack8(add, r.add.o[k]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[k][j] += add[j];
        pack8(&o, v[k]);
        unpack8(v[k], o);
        if (in)
            write8(row_at(p.sum, row, p.heads, p.width) + column, o,
                   (int)(p.width - column), p.wide);
    }
}

/* The sum of squares of a thread's part, from which the mean is subtracted. */
template <int LANES, int HELD>
BT_DEVICE float center(float (*v)[8], float mean, uint32_t width)
{
    float part = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; k++)
        part =
            norm_center8(part, v[k], mean, (int)(width - column_at<LANES>(k)));
    return part;
}

template <int LANES, int HELD, class T, class P>
BT_DEVICE void end_row(float (*v)[8], const norm_params<T, P> &p,
                       const row_part<P, HELD> &gain,
                       const row_part<P, HELD> &bias, uint32_t row, float mean,
                       float scale)
{
    if (team<LANES>::at() == 0) {
        p.mean[row] = mean;
        p.scale[row] = scale;
    }
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        uint32_t column = column_at<LANES>(k);
        float g[8], b[8];
        unpack8(g, gain.o[k]);
        if (p.bias)
            unpack8(b, bias.o[k]);
        norm_apply8(v[k], scale, g, p.bias != NULL, b);
        store8(row_at(p.y, row, p.heads, p.width) + column, v[k],
               (int)(p.width - column), p.wide);
    }
}

template <class T, class P, int LANES, int HELD, int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    norm_forward(const norm_params<T, P> p)
{
    typedef team<LANES> us;
    const int ROWS = pair_of<T, THREADS>::rows;
    __shared__ team_sums<ROWS> warps[2][32];
    row_part<P, HELD> gain, bias;
    // Weights come from far, and rows have just been written.
    for (uint32_t i = threadIdx.x * 64; i < p.width; i += THREADS * 64) {
        prefetch(p.gain + i);
        if (p.bias)
            prefetch(p.bias + i);
    }
    grid_begin();
    gain = read_part<LANES, HELD>(p.gain, p.width, p.wide_gain);
    if (p.bias)
        bias = read_part<LANES, HELD>(p.bias, p.width, p.wide_gain);
    uint32_t first = blockIdx.x * p.rows_per_block;
    uint32_t end = min(first + p.rows_per_block, p.rows);
    uint32_t row = first + us::number(), step = ROWS * us::count;
    norm_in<T, HELD> next[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        next[r] = read_in<LANES, HELD>(p, row + r * us::count);
    for (uint32_t i = first; i < end; i += step, row += step) {
        float v[ROWS][HELD][8];
        team_sums<ROWS> mean = {}, square = {};
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            begin_row<LANES, HELD>(v[r], p, next[r], row + r * us::count,
                                   row + r * us::count < end);
        if (i + step < end)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                next[r] = read_in<LANES, HELD>(p, row + step + r * us::count);
        if (!p.rms) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int k = 0; k < HELD; k++)
                    mean.of[r] = norm_add8(mean.of[r], v[r][k]);
            mean = team_sum<LANES, THREADS>(mean, warps[0]);
        } else if (!LANES) {
            __syncthreads(); // all have read the sums of the rows before
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            mean.of[r] = mean.of[r] * p.inverse;
            square.of[r] = center<LANES, HELD>(v[r], mean.of[r], p.width);
        }
        square = team_sum<LANES, THREADS>(square, warps[1]);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (row + r * us::count < end)
                end_row<LANES, HELD>(
                    v[r], p, gain, bias, row + r * us::count, mean.of[r],
                    norm_scale(square.of[r], p.inverse, p.epsilon));
    }
}

/* ---- backward ------------------------------------------------------------ */

template <class T, class P> struct norm_backward_params {
    matrix<const T> x, dy, residual;
    matrix<T> dx;
    const P *gain;
    const float *mean, *scale;
    float *dgain, *dbias; /* (chunks, width) */
    uint32_t rows, chunk, heads, width;
    float inverse; /* 1 / width */
    bool rms, wide, wide_gain, wide_sums;
};

/* A row on its way: what a thread has of x, dy and the residual. */
template <class T, int HELD> struct row_in {
    row_part<T, HELD> x, dy, add;
    float mean, scale;
};

template <int LANES, int HELD, class T, class P>
BT_DEVICE row_in<T, HELD> read_row(const norm_backward_params<T, P> &p,
                                   uint32_t row)
{
    row_in<T, HELD> r;
    row = min(row, p.rows - 1);
    r.x = read_part<LANES, HELD>(row_at(p.x, row, p.heads, p.width), p.width,
                                 p.wide);
    r.dy = read_part<LANES, HELD>(row_at(p.dy, row, p.heads, p.width), p.width,
                                  p.wide);
    if (p.residual.data)
        r.add = read_part<LANES, HELD>(
            row_at(p.residual, row, p.heads, p.width), p.width, p.wide);
    r.mean = p.mean[row];
    r.scale = p.scale[row];
    return r;
}

/* Store a sum over rows as a chunk's; teams of one block are added in order. */
template <int LANES, int HELD>
BT_DEVICE void store_chunk(float *to, float (*sum)[8], float *memory,
                           uint32_t width, bool wide)
{
    if (!LANES) {
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            uint32_t column = column_at<LANES>(k);
            store8(to + column, sum[k], (int)(width - column), wide);
        }
        return;
    }
    const uint32_t columns = LANES * 8;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j++)
        memory[team<LANES>::number() * columns + j * LANES +
               team<LANES>::at()] = sum[0][j];
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < width; c += SMALL_BLOCK) {
        uint32_t from = c % 8 * LANES + c / 8;
        float total = memory[from];
        for (uint32_t g = 1; g < team<LANES>::count; g++)
            total += memory[g * columns + from];
        to[c] = total;
    }
}

/* A thread's part of h and of g = dy gain, and their sums; with SUMS and `in`
 * the sums over rows, too. Columns that there are not have dy and gain 0. */
template <int HELD, bool SUMS, class T, class P>
BT_DEVICE team_sums<2> sum_row(float (*h)[8], float (*g)[8],
                               const row_in<T, HELD> &now,
                               const row_part<P, HELD> &gain, bool in,
                               float (*gain_sum)[8], float (*bias_sum)[8])
{
    team_sums<2> sums = {};
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        float w[8], gh[8];
        unpack8(h[k], now.x.o[k]);
        unpack8(g[k], now.dy.o[k]);
        unpack8(w, gain.o[k]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            h[k][j] = (h[k][j] - now.mean) * now.scale;
        if (SUMS && in)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                gain_sum[k][j] = fmaf(g[k][j], h[k][j], gain_sum[k][j]);
                bias_sum[k][j] += g[k][j];
            }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            g[k][j] = g[k][j] * w[j];
            gh[j] = g[k][j] * h[k][j];
        }
        sums.of[0] += sum8(g[k]);
        sums.of[1] += sum8(gh);
    }
    return sums;
}

template <int LANES, int HELD, class T, class P>
BT_DEVICE void store_dx(const norm_backward_params<T, P> &p, float (*h)[8],
                        float (*g)[8], const row_in<T, HELD> &now, uint32_t row,
                        float g_mean, float gh_mean)
{
    T *dx = row_at(p.dx, row, p.heads, p.width);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        uint32_t column = column_at<LANES>(k);
#pragma unroll
        for (int j = 0; j < 8; j++)
            g[k][j] = now.scale * fmaf(-h[k][j], gh_mean, g[k][j] - g_mean);
        if (p.residual.data) {
            float add[8];
            unpack8(add, now.add.o[k]);
#pragma unroll
            for (int j = 0; j < 8; j++)
                g[k][j] = add[j] + g[k][j];
        }
        store8(dx + column, g[k], (int)(p.width - column), p.wide);
    }
}

template <class T, class P, int LANES, int HELD, int THREADS, bool SUMS>
static __global__ void __launch_bounds__(THREADS,
                                         THREADS <= 512 ? 768 / THREADS : 1)
    norm_backward(const norm_backward_params<T, P> p)
{
    typedef team<LANES> us;
    __shared__ team_sums<2> warps[2][32];
    __shared__ float memory[SUMS && LANES ? SMALL_BLOCK * 8 : 1];
    row_part<P, HELD> gain =
        read_part<LANES, HELD>(p.gain, p.width, p.wide_gain);
    float gain_sum[HELD][8] = {}, bias_sum[HELD][8] = {};
    uint32_t first = blockIdx.x * p.chunk, row = first + us::number();
    uint32_t end = min(first + p.chunk, p.rows);
    row_in<T, HELD> next = read_row<LANES, HELD>(p, row);
    int turn = 0;
    for (uint32_t i = first; i < end;
         i += us::count, row += us::count, turn ^= 1) {
        row_in<T, HELD> now = next;
        float h[HELD][8], g[HELD][8];
        if (i + us::count < end)
            next = read_row<LANES, HELD>(p, row + us::count);
        team_sums<2> sums =
            sum_row<HELD, SUMS>(h, g, now, gain, row < end, gain_sum, bias_sum);
        sums = team_sum<LANES, THREADS>(sums, warps[turn]);
        if (row < end && p.dx.data)
            store_dx<LANES, HELD>(p, h, g, now, row,
                                  p.rms ? 0.0f : sums.of[0] * p.inverse,
                                  sums.of[1] * p.inverse);
    }
    if (SUMS) {
        size_t to = (size_t)blockIdx.x * p.width;
        if (p.dgain)
            store_chunk<LANES, HELD>(p.dgain + to, gain_sum, memory, p.width,
                                     p.wide_sums);
        if (p.dbias)
            store_chunk<LANES, HELD>(p.dbias + to, bias_sum, memory, p.width,
                                     p.wide_sums);
    }
}

/* ---- which kernel -------------------------------------------------------- */

/* Calls RUN(LANES, HELD, THREADS) for a width; THREADS is the most. */
#define NORM_SHAPES(width, RUN) \
    if ((width) <= 64)          \
        RUN(8, 1, 128);         \
    else if ((width) <= 128)    \
        RUN(16, 1, 128);        \
    else if ((width) <= 256)    \
        RUN(32, 1, 128);        \
    else if ((width) <= 2048)   \
        RUN(0, 1, 256);         \
    else if ((width) <= 4096)   \
        RUN(0, 1, 512);         \
    else if ((width) <= 8192)   \
        RUN(0, 1, 1024);        \
    else                        \
        RUN(0, 2, 1024)

static unsigned block_threads(size_t width)
{
    size_t held = width > 8192 ? 16 : 8;
    return width <= 256 ? SMALL_BLOCK
                        : (unsigned)ceil_div(width, held * 32) * 32;
}

/* Teams of a block. */
static size_t block_teams(size_t width)
{
    return width <= 64 ? 16 : width <= 128 ? 8 : width <= 256 ? 4 : 1;
}

/* Rows of a chunk of the sums over rows. */
static size_t chunk_rows(size_t width)
{
    return block_teams(width) * (width <= 256    ? SMALL_ROWS
                                 : width <= 1024 ? MEDIUM_ROWS
                                                 : LARGE_ROWS);
}

/* Rows of a block of the forward pass: more keep gain and bias in registers
 * for longer, fewer spread a small batch over the GPU. */
static uint32_t forward_rows(size_t rows, size_t width)
{
    size_t teams = block_teams(width), most = 8 * teams;
    size_t few = ceil_div(rows, 2048 * teams) * teams;
    return (uint32_t)(few < most ? few : most);
}

template <class T, class P>
static bauta_status norm_as(const bt_cuda_norm_args *a, bool wide,
                            bool wide_gain, void *stream, bauta_error *err)
{
    size_t columns = a->heads * a->width, rows = a->rows * a->heads;
    norm_params<T, P> p = { matrix_of<T>(a->x, columns),
                            matrix_of<T>(a->residual, columns),
                            matrix_of<T>(a->sum, columns),
                            matrix_of<T>(a->y, columns),
                            (const P *)a->gain,
                            (const P *)a->bias,
                            a->mean,
                            a->scale,
                            (uint32_t)rows,
                            forward_rows(rows, a->width),
                            (uint32_t)a->heads,
                            (uint32_t)a->width,
                            1.0f / (float)a->width,
                            a->epsilon,
                            a->kind == BT_NORM_RMS,
                            wide,
                            wide_gain };
#define RUN(LANES, HELD, THREADS)                                             \
    launch_kernel(norm_forward<T, P, LANES, HELD, THREADS>,                   \
                  (unsigned)ceil_div(p.rows, p.rows_per_block),               \
                  block_threads(a->width), 0, BT_START_EARLY_IN_STEP, stream, \
                  p)
    NORM_SHAPES(a->width, RUN);
#undef RUN
    return launched("norm", err);
}

static bauta_status sum_chunks_of(const bt_cuda_norm_backward_args *a,
                                  const float *dgain, const float *dbias,
                                  size_t chunks, void *stream, bauta_error *err)
{
    bt_cuda_partials sums[2] = { { a->dgain, dgain, a->add_dgain },
                                 { a->dbias, dbias, a->add_dbias } };
    return bt_cuda_sum_partials(sums, chunks, a->width, stream, err);
}

template <class T, class P>
static bauta_status
norm_backward_as(const bt_cuda_norm_backward_args *a, bool wide, bool wide_gain,
                 float *workspace, void *stream, bauta_error *err)
{
    size_t columns = a->heads * a->width, rows = a->rows * a->heads;
    size_t chunks = ceil_div(rows, chunk_rows(a->width));
    bool sums = a->dgain || a->dbias;
    norm_backward_params<T, P> p = {
        matrix_of<T>(a->x, columns),
        matrix_of<T>(a->dy, columns),
        matrix_of<T>(a->residual, columns),
        matrix_of<T>(a->dx, columns),
        (const P *)a->gain,
        a->mean,
        a->scale,
        a->dgain ? workspace : NULL,
        a->dbias ? workspace + chunks * a->width : NULL,
        (uint32_t)rows,
        (uint32_t)chunk_rows(a->width),
        (uint32_t)a->heads,
        (uint32_t)a->width,
        1.0f / (float)a->width,
        a->kind == BT_NORM_RMS,
        wide,
        wide_gain,
        (uintptr_t)workspace % 16 == 0 && a->width % 4 == 0
    };
#define RUN(LANES, HELD, THREADS)                                \
    do {                                                         \
        if (sums)                                                \
            norm_backward<T, P, LANES, HELD, THREADS, true>      \
                <<<(unsigned)chunks, block_threads(a->width), 0, \
                   (cudaStream_t)stream>>>(p);                   \
        else                                                     \
            norm_backward<T, P, LANES, HELD, THREADS, false>     \
                <<<(unsigned)chunks, block_threads(a->width), 0, \
                   (cudaStream_t)stream>>>(p);                   \
    } while (0)
    NORM_SHAPES(a->width, RUN);
#undef RUN
    bauta_status status = launched("norm's gradient", err);
    return status || !sums
               ? status
               : sum_chunks_of(a, p.dgain, p.dbias, chunks, stream, err);
}

static bauta_status check_norm(bauta_dtype dtype, bauta_dtype gain_dtype,
                               size_t rows, size_t heads, size_t width,
                               bauta_error *err)
{
    bauta_status status = check_dtype("norm", dtype, err);
    if (!status)
        status = check_dtype("norm", gain_dtype, err);
    if (status)
        return status;
    if (dtype == BAUTA_FLOAT32 && gain_dtype != BAUTA_FLOAT32)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "norm: no GPU kernel for a BF16 gain of F32 rows");
    if (width == 0 || width > MOST_WIDTH || rows * heads >= (size_t)1 << 31)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "norm: no GPU kernel for %zu rows of %zu heads of %zu "
                       "columns; there are 1 to %d columns",
                       rows, heads, width, MOST_WIDTH);
    return BAUTA_OK;
}

/* Heads start at multiples of 16 bytes, too. */
static bool heads_wide(const layout8 *l, size_t heads, size_t width,
                       bauta_dtype dtype)
{
    return l->starts && l->lines &&
           (heads == 1 || width * size_of(dtype) % 16 == 0);
}

static bool gain_is_wide(const void *gain, const void *bias)
{
    return (uintptr_t)gain % 16 == 0 && (uintptr_t)bias % 16 == 0;
}

bauta_status bt_cuda_norm(const bt_cuda_norm_args *a, void *stream,
                          bauta_error *err)
{
    bauta_status status =
        check_norm(a->dtype, a->gain_dtype, a->rows, a->heads, a->width, err);
    if (status || a->rows * a->heads == 0)
        return status;
    layout8 l = layout_of(a->rows, a->heads * a->width);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->residual.data, a->residual.stride, a->dtype);
    layout_add(&l, a->sum.data, a->sum.stride, a->dtype);
    layout_add(&l, a->y.data, a->y.stride, a->dtype);
    bool wide = heads_wide(&l, a->heads, a->width, a->dtype);
    bool wide_gain = gain_is_wide(a->gain, a->bias);
    if (a->dtype == BAUTA_FLOAT32)
        return norm_as<float, float>(a, wide, wide_gain, stream, err);
    return a->gain_dtype == BAUTA_FLOAT32
               ? norm_as<bf16, float>(a, wide, wide_gain, stream, err)
               : norm_as<bf16, bf16>(a, wide, wide_gain, stream, err);
}

size_t bt_cuda_norm_workspace(size_t rows, size_t heads, size_t width)
{
    return 2 * ceil_div(rows * heads, chunk_rows(width)) * width *
           sizeof(float);
}

bauta_status bt_cuda_norm_backward(const bt_cuda_norm_backward_args *a,
                                   void *workspace, void *stream,
                                   bauta_error *err)
{
    bauta_status status =
        check_norm(a->dtype, a->gain_dtype, a->rows, a->heads, a->width, err);
    if (status)
        return status;
    if (a->rows * a->heads == 0)
        return sum_chunks_of(a, NULL, NULL, 0, stream, err);
    layout8 l = layout_of(a->rows, a->heads * a->width);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->dy.data, a->dy.stride, a->dtype);
    layout_add(&l, a->residual.data, a->residual.stride, a->dtype);
    layout_add(&l, a->dx.data, a->dx.stride, a->dtype);
    bool wide = heads_wide(&l, a->heads, a->width, a->dtype);
    bool wide_gain = gain_is_wide(a->gain, NULL);
    float *to = (float *)workspace;
    if (a->dtype == BAUTA_FLOAT32)
        return norm_backward_as<float, float>(a, wide, wide_gain, to, stream,
                                              err);
    return a->gain_dtype == BAUTA_FLOAT32
               ? norm_backward_as<bf16, float>(a, wide, wide_gain, to, stream,
                                               err)
               : norm_backward_as<bf16, bf16>(a, wide, wide_gain, to, stream,
                                              err);
}
