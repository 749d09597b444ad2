/* SPDX-License-Identifier: Apache-2.0 */
/* ops_pointwise.cu - copies, casts, sums and scaled sums of matrices, and rows
 * by index. One thread to eight elements; see ops_device.h. */
#include "backend/cuda/ops_device.h"

/* ---- to = x, or x * scale, or fma(x, scale, to) -------------------------- */

enum scale_mode { MODE_COPY, MODE_SCALE, MODE_ADD };

template <class TO, class T, scale_mode MODE> struct scale_f {
    matrix<TO> to;
    matrix<const T> x;
    float scale;
    static const int unit = 8;
    struct held {
        octet<T> x;
        octet<TO> to;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.x = read8(at8(x, p), p.left, wide);
        if (MODE == MODE_ADD)
            h.to = read8(at8(to, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8], old[8];
        unpack8(v, h.x);
        if (MODE == MODE_ADD)
            unpack8(old, h.to);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = MODE == MODE_ADD     ? fmaf(v[i], scale, old[i])
                   : MODE == MODE_SCALE ? v[i] * scale
                                        : v[i];
        store8(at8(to, p), v, p.left, wide);
    }
};

/* The same for float32 results. */
template <class T, scale_mode MODE> struct scale4_f {
    matrix<float> to;
    matrix<const T> x;
    float scale;
    static const int unit = 4;
    struct held {
        quad<T> x;
        quad<float> to;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.x = read4(at8(x, p), p.left, wide);
        if (MODE == MODE_ADD)
            h.to = read4(at8(to, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[4], old[4];
        unpack4(v, h.x);
        if (MODE == MODE_ADD)
            unpack4(old, h.to);
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = MODE == MODE_ADD     ? fmaf(v[i], scale, old[i])
                   : MODE == MODE_SCALE ? v[i] * scale
                                        : v[i];
        store4(at8(to, p), v, p.left, wide);
    }
};

template <class T, scale_mode MODE>
static bauta_status scale4_as(layout8 l, bt_cuda_out to, bt_cuda_in x,
                              float scale, void *stream, bauta_error *err)
{
    scale4_f<T, MODE> f = { matrix_of<float>(to, l.columns),
                            matrix_of<T>(x, l.columns), scale };
    return run_each8(MODE == MODE_COPY ? "copy" : "scale", f, l, stream, err);
}

template <class TO, class T, scale_mode MODE>
static bauta_status scale_as(layout8 l, bt_cuda_out to, bt_cuda_in x,
                             float scale, void *stream, bauta_error *err)
{
    scale_f<TO, T, MODE> f = { matrix_of<TO>(to, l.columns),
                               matrix_of<T>(x, l.columns), scale };
    return run_each8(MODE == MODE_COPY ? "copy" : "scale", f, l, stream, err);
}

template <scale_mode MODE>
static bauta_status scale_any(size_t rows, size_t columns, bt_cuda_out to,
                              bauta_dtype to_dtype, bt_cuda_in x,
                              bauta_dtype x_dtype, float scale, void *stream,
                              bauta_error *err)
{
    bauta_status status = check_dtype("copy", to_dtype, err);
    if (!status)
        status = check_dtype("copy", x_dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, to.data, to.stride, to_dtype);
    layout_add(&l, x.data, x.stride, x_dtype);
    if (to_dtype == BAUTA_FLOAT32)
        return x_dtype == BAUTA_FLOAT32
                   ? scale4_as<float, MODE>(l, to, x, scale, stream, err)
                   : scale4_as<bf16, MODE>(l, to, x, scale, stream, err);
    return x_dtype == BAUTA_FLOAT32
               ? scale_as<bf16, float, MODE>(l, to, x, scale, stream, err)
               : scale_as<bf16, bf16, MODE>(l, to, x, scale, stream, err);
}

bauta_status bt_cuda_copy(size_t rows, size_t columns, bt_cuda_out to,
                          bauta_dtype to_dtype, bt_cuda_in x,
                          bauta_dtype x_dtype, void *stream, bauta_error *err)
{
    return scale_any<MODE_COPY>(rows, columns, to, to_dtype, x, x_dtype, 1.0f,
                                stream, err);
}

bauta_status bt_cuda_scale(size_t rows, size_t columns, bt_cuda_out to,
                           bauta_dtype to_dtype, bt_cuda_in x,
                           bauta_dtype x_dtype, float scale, bool add,
                           void *stream, bauta_error *err)
{
    return add ? scale_any<MODE_ADD>(rows, columns, to, to_dtype, x, x_dtype,
                                     scale, stream, err)
               : scale_any<MODE_SCALE>(rows, columns, to, to_dtype, x, x_dtype,
                                       scale, stream, err);
}

/* ---- to = a + b ---------------------------------------------------------- */

template <class T> struct add_f {
    matrix<T> to;
    matrix<const T> a, b;
    static const int unit = 8;
    struct held {
        octet<T> a, b;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.a = read8(at8(a, p), p.left, wide);
        h.b = read8(at8(b, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8], w[8];
        unpack8(v, h.a);
        unpack8(w, h.b);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = v[i] + w[i];
        store8(at8(to, p), v, p.left, wide);
    }
};

template <class T>
static bauta_status add_as(layout8 l, bt_cuda_out to, bt_cuda_in a,
                           bt_cuda_in b, void *stream, bauta_error *err)
{
    add_f<T> f = { matrix_of<T>(to, l.columns), matrix_of<T>(a, l.columns),
                   matrix_of<T>(b, l.columns) };
    return run_each8("add", f, l, stream, err);
}

bauta_status bt_cuda_add(size_t rows, size_t columns, bauta_dtype dtype,
                         bt_cuda_out to, bt_cuda_in a, bt_cuda_in b,
                         void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("add", dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, to.data, to.stride, dtype);
    layout_add(&l, a.data, a.stride, dtype);
    layout_add(&l, b.data, b.stride, dtype);
    return dtype == BAUTA_FLOAT32 ? add_as<float>(l, to, a, b, stream, err)
                                  : add_as<bf16>(l, to, a, b, stream, err);
}

/* ---- softcap ------------------------------------------------------------- */

/* to = cap * tanh(x / cap), as the CPU computes it. */
template <class T> struct softcap_f {
    matrix<T> to;
    matrix<const T> x;
    float cap;
    static const int unit = 8;
    struct held {
        octet<T> x;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.x = read8(at8(x, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8];
        unpack8(v, h.x);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = cap * bt_tanh(v[i] / cap);
        store8(at8(to, p), v, p.left, wide);
    }
};

/* dx = dy * (1 - (y / cap)^2), or that is added. */
template <class T> struct softcap_grad_f {
    matrix<T> dx;
    matrix<const T> y, dy;
    float cap;
    bool add;
    static const int unit = 8;
    struct held {
        octet<T> y, dy, dx;
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        h.y = read8(at8(y, p), p.left, wide);
        h.dy = read8(at8(dy, p), p.left, wide);
        if (add)
            h.dx = read8(at8(dx, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        float v[8], w[8], old[8];
        unpack8(v, h.y);
        unpack8(w, h.dy);
        if (add)
            unpack8(old, h.dx);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float t = v[i] / cap, d = w[i] * fmaf(-t, t, 1.0f);
            v[i] = add ? old[i] + d : d;
        }
        store8(at8(dx, p), v, p.left, wide);
    }
};

template <class T>
static bauta_status softcap_as(layout8 l, bt_cuda_out to, bt_cuda_in x,
                               float cap, void *stream, bauta_error *err)
{
    softcap_f<T> f = { matrix_of<T>(to, l.columns), matrix_of<T>(x, l.columns),
                       cap };
    return run_each8("softcap", f, l, stream, err);
}

template <class T>
static bauta_status softcap_grad_as(layout8 l, bt_cuda_out dx, bt_cuda_in y,
                                    bt_cuda_in dy, float cap, bool add,
                                    void *stream, bauta_error *err)
{
    softcap_grad_f<T> f = { matrix_of<T>(dx, l.columns),
                            matrix_of<T>(y, l.columns),
                            matrix_of<T>(dy, l.columns), cap, add };
    return run_each8("softcap_grad", f, l, stream, err);
}

bauta_status bt_cuda_softcap(size_t rows, size_t columns, bauta_dtype dtype,
                             bt_cuda_out to, bt_cuda_in x, float cap,
                             void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("softcap", dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, to.data, to.stride, dtype);
    layout_add(&l, x.data, x.stride, dtype);
    return dtype == BAUTA_FLOAT32
               ? softcap_as<float>(l, to, x, cap, stream, err)
               : softcap_as<bf16>(l, to, x, cap, stream, err);
}

bauta_status bt_cuda_softcap_grad(size_t rows, size_t columns,
                                  bauta_dtype dtype, bt_cuda_out dx,
                                  bt_cuda_in y, bt_cuda_in dy, float cap,
                                  bool add, void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("softcap_grad", dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, dx.data, dx.stride, dtype);
    layout_add(&l, y.data, y.stride, dtype);
    layout_add(&l, dy.data, dy.stride, dtype);
    return dtype == BAUTA_FLOAT32
               ? softcap_grad_as<float>(l, dx, y, dy, cap, add, stream, err)
               : softcap_grad_as<bf16>(l, dx, y, dy, cap, add, stream, err);
}

/* ---- fill ---------------------------------------------------------------- */

template <class T> struct fill_f {
    matrix<T> to;
    float value;
    static const int unit = 8;
    struct held {
    };

    __device__ __forceinline__ void load(held &, place8, bool) const
    {
    }

    __device__ __forceinline__ void store(held &, place8 p, bool wide) const
    {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = value;
        store8(at8(to, p), v, p.left, wide);
    }
};

bauta_status bt_cuda_fill(size_t rows, size_t columns, bauta_dtype dtype,
                          bt_cuda_out to, float value, void *stream,
                          bauta_error *err)
{
    bauta_status status = check_dtype("fill", dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, to.data, to.stride, dtype);
    if (dtype == BAUTA_FLOAT32) {
        fill_f<float> f = { matrix_of<float>(to, columns), value };
        return run_each8("fill", f, l, stream, err);
    }
    fill_f<bf16> f = { matrix_of<bf16>(to, columns), value };
    return run_each8("fill", f, l, stream, err);
}

/* ---- rows by index ------------------------------------------------------- */

/* to[i] = x[index[i]]; with SCATTER to[index[i]] = x[i]; with ADD it is added;
 * with SCALE it is multiplied first. */
enum index_mode { MODE_GATHER, MODE_EMBED, MODE_SCATTER, MODE_SCATTER_ADD };

template <class T, index_mode MODE> struct index_f {
    matrix<T> to;
    matrix<const T> x;
    const uint32_t *index;
    size_t index_stride;
    float scale;
    static const int unit = 8;
    struct held {
        octet<T> x, to;
        size_t row; /* of to */
    };

    __device__ __forceinline__ void load(held &h, place8 p, bool wide) const
    {
        const bool scatter = MODE == MODE_SCATTER || MODE == MODE_SCATTER_ADD;
        size_t other = index[p.row * index_stride];
        h.row = scatter ? other : p.row;
        p.row = scatter ? p.row : other;
        h.x = read8(at8(x, p), p.left, wide);
        p.row = h.row;
        if (MODE == MODE_SCATTER_ADD)
            h.to = read8(at8(to, p), p.left, wide);
    }

    __device__ __forceinline__ void store(held &h, place8 p, bool wide) const
    {
        p.row = h.row;
        if (MODE == MODE_GATHER || MODE == MODE_SCATTER) {
            write8(at8(to, p), h.x, p.left, wide);
            return;
        }
        float v[8], old[8];
        unpack8(v, h.x);
        if (MODE == MODE_SCATTER_ADD)
            unpack8(old, h.to);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = MODE == MODE_SCATTER_ADD ? old[i] + v[i] : v[i] * scale;
        store8(at8(to, p), v, p.left, wide);
    }
};

template <class T, index_mode MODE>
static bauta_status index_as(const char *what, layout8 l, bt_cuda_out to,
                             bt_cuda_in x, bt_cuda_in index, float scale,
                             void *stream, bauta_error *err)
{
    index_f<T, MODE> f = { matrix_of<T>(to, l.columns),
                           matrix_of<T>(x, l.columns),
                           (const uint32_t *)index.data,
                           index.stride ? index.stride : 1, scale };
    l.joins = false;
    return run_each8(what, f, l, stream, err);
}

template <index_mode MODE>
static bauta_status index_any(const char *what, size_t rows, size_t columns,
                              bauta_dtype dtype, bt_cuda_out to, bt_cuda_in x,
                              bt_cuda_in index, float scale, void *stream,
                              bauta_error *err)
{
    bauta_status status = check_dtype(what, dtype, err);
    if (status)
        return status;
    layout8 l = layout_of(rows, columns);
    layout_add(&l, to.data, to.stride, dtype);
    layout_add(&l, x.data, x.stride, dtype);
    return dtype == BAUTA_FLOAT32 ? index_as<float, MODE>(what, l, to, x, index,
                                                          scale, stream, err)
                                  : index_as<bf16, MODE>(what, l, to, x, index,
                                                         scale, stream, err);
}

bauta_status bt_cuda_gather_rows(size_t rows, size_t columns, bauta_dtype dtype,
                                 bt_cuda_out to, bt_cuda_in x,
                                 const uint32_t *index, void *stream,
                                 bauta_error *err)
{
    return index_any<MODE_GATHER>("gather", rows, columns, dtype, to, x,
                                  { index, 1 }, 1.0f, stream, err);
}

bauta_status bt_cuda_scatter_rows(size_t rows, size_t columns,
                                  bauta_dtype dtype, bt_cuda_out to,
                                  bt_cuda_in x, const uint32_t *index, bool add,
                                  void *stream, bauta_error *err)
{
    bt_cuda_in dense = { index, 1 };
    return add ? index_any<MODE_SCATTER_ADD>("scatter", rows, columns, dtype,
                                             to, x, dense, 1.0f, stream, err)
               : index_any<MODE_SCATTER>("scatter", rows, columns, dtype, to, x,
                                         dense, 1.0f, stream, err);
}

bauta_status bt_cuda_embedding(const bt_cuda_embedding_args *a, void *stream,
                               bauta_error *err)
{
    return index_any<MODE_EMBED>("embedding", a->rows, a->columns, a->dtype,
                                 a->y, a->table, a->ids, a->scale, stream, err);
}
