/* SPDX-License-Identifier: Apache-2.0 */
/* ops_rotary.cu - rotary embeddings, and keys and values on their way into the
 * pages of a KV cache.
 *
 * A block takes some rows. First its threads compute cosine and sine of all
 * angles of these rows, in double as on the CPU, into shared memory; then each
 * thread takes eight pairs of columns of one head after another. Every element
 * is computed from its own pair, so nothing depends on how rows are shared. */
#include "backend/cuda/ops_device.h"

enum { ROTARY_THREADS = 256, ROTARY_ANGLES = 512 };

/* Heads of a row that are read from one matrix and written to one place. */
template <class T> struct rotary_heads {
    matrix<const T> from;
    matrix<T> to; /* data NULL: into pages */
    T *pages;
    uint32_t heads;
    bool rotates;
};

template <class T> struct rotary_params {
    rotary_heads<T> part[3];
    const uint32_t *positions;
    const float *frequencies;
    const bt_cuda_kv_place *places;
    size_t page, head, token; /* strides of pages */
    uint32_t rows, rows_per_block;
    uint32_t half, groups, heads; /* groups of eight pairs; heads of all */
    bool back, add, wide;
};

template <class T>
BT_DEVICE void angles_of(const rotary_params<T> &p, float *cosine, float *sine,
                         uint32_t first, uint32_t rows)
{
    for (uint32_t i = threadIdx.x; i < rows * p.half; i += ROTARY_THREADS) {
        uint32_t row = i / p.half, column = i - row * p.half;
        double position = (double)p.positions[first + row];
        if (p.back)
            position = -position;
        bt_cos_sin(position * (double)p.frequencies[column], &cosine[i],
                   &sine[i]);
    }
}

/* Where a head of a row is written; NULL for padding. */
template <class T>
BT_DEVICE T *head_to(const rotary_params<T> &p, const rotary_heads<T> &part,
                     uint32_t row, uint32_t head)
{
    if (part.to.data)
        return part.to.data + row * part.to.stride + head * p.half * 2;
    bt_cuda_kv_place place = p.places[row];
    if (place.page == UINT32_MAX)
        return NULL;
    return part.pages + place.page * p.page + head * p.head +
           place.slot * p.token;
}

/* Eight pairs of a head on their way. */
template <class T> struct rotary_item {
    octet<T> low, high;
    T *to; /* NULL: there is none, or it is padding */
    uint32_t angle;
    int left;
    bool rotates;
};

template <class T>
BT_DEVICE rotary_item<T> read_item(const rotary_params<T> &p, uint32_t i,
                                   uint32_t first)
{
    uint32_t per_row = p.heads * p.groups;
    uint32_t row = i / per_row, rest = i - row * per_row;
    uint32_t head = rest / p.groups, column = (rest - head * p.groups) * 8;
    int which = 0;
    while (head >= p.part[which].heads)
        head -= p.part[which++].heads;
    const rotary_heads<T> &part = p.part[which];
    rotary_item<T> item = {};
    item.to = head_to(p, part, first + row, head);
    if (!item.to)
        return item;
    item.to += column;
    item.angle = row * p.half + column;
    item.left = (int)(p.half - column);
    item.rotates = part.rotates && p.positions;
    const T *from = part.from.data + (first + row) * part.from.stride +
                    head * p.half * 2 + column;
    item.low = read8(from, item.left, p.wide);
    item.high = read8(from + p.half, item.left, p.wide);
    return item;
}

template <class T>
BT_DEVICE void write_item(const rotary_params<T> &p, rotary_item<T> &item,
                          const float *cosine, const float *sine)
{
    if (!item.to)
        return;
    if (item.rotates) {
        float x[8], x2[8], y[8], y2[8];
        unpack8(x, item.low);
        unpack8(x2, item.high);
        if (p.add) {
            load8(y, item.to, item.left, p.wide);
            load8(y2, item.to + p.half, item.left, p.wide);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float c = i < item.left ? cosine[item.angle + i] : 0.0f;
            float s = i < item.left ? sine[item.angle + i] : 0.0f;
            float a = fmaf(-x2[i], s, x[i] * c);
            float b = fmaf(x[i], s, x2[i] * c);
            y[i] = p.add ? y[i] + a : a;
            y2[i] = p.add ? y2[i] + b : b;
        }
        pack8(&item.low, y);
        pack8(&item.high, y2);
    }
    write8(item.to, item.low, item.left, p.wide);
    write8(item.to + p.half, item.high, item.left, p.wide);
}

template <class T>
static __global__ void __launch_bounds__(ROTARY_THREADS)
    rotary(const rotary_params<T> p)
{
    const uint32_t step = ROTARY_THREADS;
    __shared__ float cosine[ROTARY_ANGLES], sine[ROTARY_ANGLES];
    uint32_t first = blockIdx.x * p.rows_per_block;
    uint32_t rows = min(p.rows_per_block, p.rows - first);
    uint32_t count = rows * p.heads * p.groups;
    rotary_item<T> item[2] = {};
    grid_begin();
    // The first items are on their way while the angles are computed.
#pragma unroll
    for (uint32_t u = 0; u < 2; u++)
        if (threadIdx.x + u * step < count)
            item[u] = read_item(p, threadIdx.x + u * step, first);
    if (p.positions) {
        angles_of(p, cosine, sine, first, rows);
        __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < count; i += 2 * step) {
#pragma unroll
        for (uint32_t u = 0; u < 2; u++) {
            write_item(p, item[u], cosine, sine);
            item[u].to = NULL;
        }
#pragma unroll
        for (uint32_t u = 2; u < 4; u++)
            if (i + u * step < count)
                item[u - 2] = read_item(p, i + u * step, first);
    }
}

/* As many rows to a block as there is room for angles, fewer where that would
 * leave multiprocessors idle. */
template <class T>
static bauta_status run_rotary(const char *what, rotary_params<T> p,
                               void *stream, bauta_error *err)
{
    for (int i = 0; i < 3; i++)
        p.heads += p.part[i].heads;
    if (p.rows == 0 || p.heads == 0 || p.half == 0)
        return BAUTA_OK;
    size_t most = ROTARY_ANGLES / p.half, few = ceil_div(p.rows, 264);
    p.rows_per_block = (uint32_t)(most < few ? most : few);
    p.groups = (uint32_t)ceil_div(p.half, 8);
    launch_kernel(rotary<T>, (unsigned)ceil_div(p.rows, p.rows_per_block),
                  ROTARY_THREADS, 0, BT_START_EARLY_IN_STEP, stream, p);
    return launched(what, err);
}

static bauta_status check_rotary(const char *what, bauta_dtype dtype,
                                 size_t rows, size_t dim, bauta_error *err)
{
    bauta_status status = check_dtype(what, dtype, err);
    if (status)
        return status;
    if (dim % 2 || dim > 2 * ROTARY_ANGLES || rows >= (size_t)1 << 31)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: no GPU kernel for %zu rows of heads of %zu; there "
                       "are even numbers up to %d",
                       what, rows, dim, 2 * ROTARY_ANGLES);
    return BAUTA_OK;
}

/* Both halves of a head start at multiples of 16 bytes. */
static bool halves_wide(const layout8 *l, size_t dim, bauta_dtype dtype)
{
    return l->starts && l->lines && dim / 2 * size_of(dtype) % 16 == 0;
}

template <class T>
static bauta_status rotary_as(const bt_cuda_rotary_args *a, bool wide,
                              void *stream, bauta_error *err)
{
    size_t columns = a->heads * a->dim;
    rotary_params<T> p = {};
    p.part[0] = { matrix_of<T>(a->x, columns), matrix_of<T>(a->y, columns),
                  NULL, (uint32_t)a->heads, true };
    p.positions = a->positions;
    p.frequencies = a->frequencies;
    p.rows = (uint32_t)a->rows;
    p.half = (uint32_t)a->dim / 2;
    p.back = a->back;
    p.add = a->add;
    p.wide = wide;
    return run_rotary("rotary", p, stream, err);
}

bauta_status bt_cuda_rotary(const bt_cuda_rotary_args *a, void *stream,
                            bauta_error *err)
{
    bauta_status status =
        check_rotary("rotary", a->dtype, a->rows, a->dim, err);
    if (status)
        return status;
    layout8 l = layout_of(a->rows, a->heads * a->dim);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->y.data, a->y.stride, a->dtype);
    bool wide = halves_wide(&l, a->dim, a->dtype);
    return a->dtype == BAUTA_FLOAT32 ? rotary_as<float>(a, wide, stream, err)
                                     : rotary_as<bf16>(a, wide, stream, err);
}

/* ---- pages --------------------------------------------------------------- */

static bool pages_wide(bt_cuda_page_out pages, bauta_dtype dtype)
{
    size_t strides = pages.page | pages.head | pages.token;
    return ((uintptr_t)pages.k | (uintptr_t)pages.v) % 16 == 0 &&
           strides * size_of(dtype) % 16 == 0;
}

template <class T>
static bauta_status kv_write_as(const bt_cuda_kv_write_args *a, bool wide,
                                void *stream, bauta_error *err)
{
    size_t columns = a->kv_heads * a->dim, q_columns = a->heads * a->dim;
    rotary_params<T> p = {};
    if (a->q.data)
        p.part[0] = { matrix_of<T>(a->q, q_columns),
                      matrix_of<T>(a->q_out, q_columns), NULL,
                      (uint32_t)a->heads, true };
    p.part[1] = { matrix_of<T>(a->k, columns),
                  { NULL, 0 },
                  (T *)a->pages.k,
                  (uint32_t)a->kv_heads,
                  true };
    p.part[2] = { matrix_of<T>(a->v, columns),
                  { NULL, 0 },
                  (T *)a->pages.v,
                  (uint32_t)a->kv_heads,
                  false };
    p.positions = a->positions;
    p.frequencies = a->frequencies;
    p.places = a->places;
    p.page = a->pages.page;
    p.head = a->pages.head;
    p.token = a->pages.token;
    p.rows = (uint32_t)a->rows;
    p.half = (uint32_t)a->dim / 2;
    p.wide = wide;
    return run_rotary("kv_write", p, stream, err);
}

bauta_status bt_cuda_kv_write(const bt_cuda_kv_write_args *a, void *stream,
                              bauta_error *err)
{
    bauta_status status =
        check_rotary("kv_write", a->dtype, a->rows, a->dim, err);
    if (status)
        return status;
    layout8 l = layout_of(a->rows, a->kv_heads * a->dim);
    layout_add(&l, a->k.data, a->k.stride, a->dtype);
    layout_add(&l, a->v.data, a->v.stride, a->dtype);
    l.columns = a->heads * a->dim;
    layout_add(&l, a->q.data, a->q.stride, a->dtype);
    layout_add(&l, a->q_out.data, a->q_out.stride, a->dtype);
    bool wide =
        halves_wide(&l, a->dim, a->dtype) && pages_wide(a->pages, a->dtype);
    return a->dtype == BAUTA_FLOAT32 ? kv_write_as<float>(a, wide, stream, err)
                                     : kv_write_as<bf16>(a, wide, stream, err);
}

/* A block to a page and a head; keys and values. */
template <class T>
static __global__ void __launch_bounds__(ROTARY_THREADS)
    kv_copy(bt_cuda_page_out pages, const bt_cuda_kv_copy_item *items,
            uint32_t dim, bool wide)
{
    bt_cuda_kv_copy_item item = items[blockIdx.x];
    uint32_t groups = (dim + 7) / 8;
    T *part = (T *)(blockIdx.z ? pages.v : pages.k) + blockIdx.y * pages.head;
    for (uint32_t i = threadIdx.x; i < item.tokens * groups;
         i += ROTARY_THREADS) {
        uint32_t token = i / groups, column = (i - token * groups) * 8;
        T *at = part + token * pages.token + column;
        write8(at + item.to * pages.page,
               read8(at + item.from * pages.page, (int)(dim - column), wide),
               (int)(dim - column), wide);
    }
}

bauta_status bt_cuda_kv_copy(bauta_dtype dtype, size_t kv_heads, size_t dim,
                             bt_cuda_page_out pages,
                             const bt_cuda_kv_copy_item *items, size_t count,
                             void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("kv_copy", dtype, err);
    if (status || count == 0 || kv_heads == 0 || dim == 0)
        return status;
    dim3 grid((unsigned)count, (unsigned)kv_heads, 2);
    bool wide = pages_wide(pages, dtype);
    if (dtype == BAUTA_FLOAT32)
        launch_kernel(kv_copy<float>, grid, ROTARY_THREADS, 0, BT_START_AFTER,
                      stream, pages, items, (uint32_t)dim, wide);
    else
        launch_kernel(kv_copy<bf16>, grid, ROTARY_THREADS, 0, BT_START_AFTER,
                      stream, pages, items, (uint32_t)dim, wide);
    return launched("kv_copy", err);
}
