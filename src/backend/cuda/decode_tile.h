/* SPDX-License-Identifier: Apache-2.0 */
/* decode_tile.h - what the warps of attention_decode.cu make of a block of 512
 * keys. Every sum has the order that softmax.h says, so all is as in the
 * forward pass:
 *
 *   scores   of 64 keys for each warp: a whole tile of the softmax, or of two
 *            tiles of keys (a pair) the first or the second 16 of each 32, so
 *            that the sums of weights by thread are those of the pair's first
 *            or last two parts
 *   values   of all keys, in order, for each warp an eighth of the columns */
#ifndef BT_CUDA_DECODE_TILE_H
#define BT_CUDA_DECODE_TILE_H

#include "backend/cuda/decode_load.h"
#include "backend/cuda/softmax.h"

#include <math.h>

/* Where the unit's rows of this thread are: row g, and with HALVES 2 row g + 8;
 * their queries. */
typedef struct thread_state {
    int warp, lane, g, t;
    int query[2];
    int column, columns; /* of the output, times 8: this warp's */
} thread_state;

/* A block of a chunk: which of its tiles are seen, and the number of the first
 * one among all tiles of the loader. */
typedef struct key_block {
    const bt_decode_tile *tiles;
    uint32_t seen, number;
} key_block;

/* The number of a tile of keys; the values come after all of them. */
BT_DEVICE uint32_t key_number(key_block b, int tile)
{
    return b.number + __popc(b.seen & ((1u << tile) - 1));
}

/* ---- scores ------------------------------------------------------------- */

/* x (16 rows, 16 * GROUPS keys) = q k^T, of each `apart` keys 16. Of q, `rows`
 * rows are there, D + 8 apart; the others are the last one again. */
template <int D, int GROUPS>
BT_DEVICE void multiply_keys(float (*x)[4], const uint16_t *q, int rows,
                             const uint16_t *k, int stride)
{
    int lane = threadIdx.x % 32;
    uint32_t row = shared_address(k) + (lane / 16 * 8 + lane % 8) * (PANEL * 2);
    uint32_t query = shared_address(q) +
                     min(lane % 16, rows - 1) * (D + 8) * 2 + lane / 16 * 16;
#pragma unroll
    for (int j = 0; j < 2 * GROUPS; j++)
        x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = (i % 4 * 2 + lane / 8 % 2) ^ lane % 8;
        uint32_t at = row + i / 4 * (TILE * PANEL * 2) + chunk * 16, a[4];
        ldmatrix_x4(a, query + i * 32);
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            uint32_t b[4];
            ldmatrix_x4(b, at + j * stride * (PANEL * 2));
            mma_16816(x[2 * j], a, b);
            mma_16816(x[2 * j + 1], a, b + 2);
        }
    }
}

/* Scores of hidden keys become -infinity, whatever they were. */
template <int GROUPS>
BT_DEVICE void apply_mask(float (*x)[4], uint64_t word, int r, int t,
                          int stride)
{
#pragma unroll
    for (int j = 0; j < 2 * GROUPS; j++) {
        uint32_t two = (uint32_t)(word >> (j / 2 * stride + j % 2 * 8 + 2 * t));
        x[j][2 * r] = two & 1 ? x[j][2 * r] : -INFINITY;
        x[j][2 * r + 1] = two & 2 ? x[j][2 * r + 1] : -INFINITY;
    }
}

/* A zero that depends on all scores, and so on the fragments that they are made
 * of: the compiler would let the last products slip behind an arrival, and with
 * them the wait for what ldmatrix still reads. It cannot know that a grid has
 * one layer. */
template <int COUNT> BT_DEVICE uint32_t dependent_zero(const float (*x)[4])
{
    uint32_t any = 0;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        any |= __float_as_uint(x[j][0]);
    return any & (gridDim.z - 1);
}

/* The scores of one tile, as far as they are this warp's: from key `from` on of
 * each `apart` keys 16. */
template <int D, int HALVES, int GROUPS>
BT_DEVICE void score_tile(const decode_params *p, decode_shared<D> *s,
                          const decode_work *work, const uint16_t *q,
                          const thread_state *at, key_block b, int tile,
                          int from, int stride, float (*x)[4])
{
    if (!(b.seen >> tile & 1)) {
#pragma unroll
        for (int j = 0; j < 2 * GROUPS; j++)
            x[j][0] = x[j][1] = x[j][2] = x[j][3] = -INFINITY;
        return;
    }
    pipeline_state slot =
        pipeline_state_at(key_number(b, tile), kernel_traits<D>::stages);
    int bits = b.tiles[tile].bits;
    uint64_t word[2] = { 0, 0 };
#pragma unroll
    for (int r = 0; r < HALVES; r++)
        if (bits >= 0)
            word[r] = p->bits[(size_t)bits * p->unit_rows + at->query[r]];
    barrier_wait(&s->full[slot.index], slot.phase);
    multiply_keys<D, GROUPS>(x, q, work->item.rows * work->heads,
                             s->tile[slot.index] + from * PANEL, stride);
    uint64_t *empty = &s->empty[slot.index] + dependent_zero<2 * GROUPS>(x);
    __syncwarp();
    if (at->lane == 0)
        barrier_arrive_many(empty,
                            kernel_traits<D>::all_arrive
                                ? 1
                                : WARPS / kernel_traits<D>::warps_per_tile);
    if (bits >= 0)
#pragma unroll
        for (int r = 0; r < HALVES; r++)
            apply_mask<GROUPS>(x, word[r] >> from, r, at->t, stride);
}

/* Tiles of other warps, where the ring is shorter than a block: then buffers
 * are used again inside it, and a warp that did not see each use come and go
 * would take one for another. */
template <int D>
BT_DEVICE void observe_tiles(decode_shared<D> *s, key_block b, int from, int to)
{
#pragma unroll 1
    for (int tile = from; tile < to; tile++)
        if (b.seen >> tile & 1) {
            pipeline_state full = pipeline_state_at(key_number(b, tile),
                                                    kernel_traits<D>::stages);
            barrier_wait(&s->full[full.index], full.phase);
            consumer_release(&s->empty[full.index]);
        }
}

template <int D, int HALVES>
BT_DEVICE void score_block(const decode_params *p, decode_shared<D> *s,
                           const decode_work *work, const uint16_t *q,
                           const thread_state *at, key_block b, float (*x)[4])
{
    if constexpr (kernel_traits<D>::all_arrive) {
        observe_tiles<D>(s, b, 0, at->warp);
        score_tile<D, HALVES, 4>(p, s, work, q, at, b, at->warp, 0, 16, x);
        observe_tiles<D>(s, b, at->warp + 1, WARPS);
    } else if constexpr (kernel_traits<D>::large_head) {
        score_tile<D, HALVES, 4>(p, s, work, q, at, b, at->warp, 0, 16, x);
    } else {
        int tile = at->warp & ~1, from = at->warp % 2 * 16;
        score_tile<D, HALVES, 2>(p, s, work, q, at, b, tile, from, 32, x);
        score_tile<D, HALVES, 2>(p, s, work, q, at, b, tile + 1, from, 32,
                                 x + 4);
    }
    // Their maxima: of the first 32 keys of the softmax's tile, and of all.
    const int head_groups = kernel_traits<D>::large_head ? 4 : 2;
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        float head = -INFINITY, top = -INFINITY;
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            top = fmaxf(top, fmaxf(x[j][2 * r], x[j][2 * r + 1]));
            head = j < head_groups ? top : head;
        }
        head = fmaxf(head, __shfl_xor_sync(~0u, head, 1));
        head = fmaxf(head, __shfl_xor_sync(~0u, head, 2));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (at->t == 0)
            s->top[at->warp][at->g + r * 8] = make_float2(
                __fmul_rn(head, p->scale), __fmul_rn(top, p->scale));
    }
}

/* ---- weights ------------------------------------------------------------ */

/* The maxima of a tile of the softmax. */
template <int D>
BT_DEVICE float2 row_max(const decode_shared<D> *s, int unit, int row)
{
    const int warps_per_tile = kernel_traits<D>::warps_per_tile;
    float2 top = s->top[unit * warps_per_tile][row];
    if (warps_per_tile == 2) {
        float2 other = s->top[unit * warps_per_tile + 1][row];
        top.x = fmaxf(top.x, other.x);
        top.y = fmaxf(top.y, other.y);
    }
    return top;
}

/* A thread's share of the weights of a tile of the softmax. */
template <int D>
BT_DEVICE float total_of(const decode_shared<D> *s, int unit, int row, int t)
{
    const int warps_per_tile = kernel_traits<D>::warps_per_tile;
    float sum = ((const float *)&s->sum[unit * warps_per_tile][row])[t];
    if (warps_per_tile == 2)
        sum = __fadd_rn(
            sum, ((const float *)&s->sum[unit * warps_per_tile + 1][row])[t]);
    return sum;
}

/* Weights of row r from the warp's scores, times `down`, and their sum as this
 * thread has it, without. */
template <int D>
BT_DEVICE float exponentiate_row(const float (*x)[4], float (*y)[2], int r,
                                 float base, float scale)
{
    const int parts = kernel_traits<D>::large_head ? 4 : 2;
    float from = base == -INFINITY ? 0.0f : base, part[parts];
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        y[j][0] = exp2_fast(__fmaf_rn(x[j][2 * r], scale, -from));
        y[j][1] = exp2_fast(__fmaf_rn(x[j][2 * r + 1], scale, -from));
        float two = __fadd_rn(y[j][0], y[j][1]);
        part[j % parts] = j < parts ? two : __fadd_rn(part[j % parts], two);
    }
    float sum = __fadd_rn(part[0], part[1]);
    return parts == 2
               ? sum
               : __fadd_rn(sum, __fadd_rn(part[parts - 2], part[parts - 1]));
}

template <int D>
BT_DEVICE void store_weights(decode_shared<D> *s, const thread_state *at,
                             const float (*y)[2], int r)
{
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        int key = kernel_traits<D>::large_head
                      ? at->warp * TILE + j * 8
                      : (at->warp & ~1) * TILE + j / 4 * TILE + j % 4 / 2 * 32 +
                            at->warp % 2 * 16 + j % 2 * 8;
        *(uint32_t *)&s->weights[at->g + r * 8][key + 2 * at->t] =
            pack_bf16(y[j][0], y[j][1]);
    }
}

/* The weights of a block if no base has to move, as nearly always. Returns
 * whether one may have to: then what was written here is of no use. */
template <int D, int HALVES>
BT_DEVICE bool exponentiate_block(const decode_params *p, decode_shared<D> *s,
                                  const thread_state *at, const float (*x)[4],
                                  float *base)
{
    const int units = WARPS / kernel_traits<D>::warps_per_tile;
    bool base_moves = false;
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        int row = at->g + r * 8;
        float most = -INFINITY, y[TILE / 8][2];
#pragma unroll
        for (int u = 0; u < units; u++) {
            float2 top = row_max(s, u, row);
            if (base[r] == -INFINITY)
                base[r] = top.x == -INFINITY ? top.y : top.x;
            most = fmaxf(most, top.y);
        }
        float sum = exponentiate_row<D>(x, y, r, base[r], p->scale);
        ((float *)&s->sum[at->warp][row])[at->t] = sum;
        store_weights<D>(s, at, y, r);
        base_moves |= most > base[r] + BASE_JUMP || sum > 0x1p9f;
    }
    return base_moves;
}

/* The same where one does: tile by tile of the softmax, in order. */
template <int D, int HALVES>
BT_DEVICE void rebase_block(const decode_params *p, decode_shared<D> *s,
                            const thread_state *at, const float (*x)[4],
                            float *base, float *sum)
{
    const int units = WARPS / kernel_traits<D>::warps_per_tile;
#pragma unroll 1
    for (int u = 0; u < units; u++) {
        bool mine = at->warp / kernel_traits<D>::warps_per_tile == u;
        float correction[2], y[HALVES][TILE / 8][2];
#pragma unroll
        for (int r = 0; r < HALVES; r++) {
            int row = at->g + r * 8;
            float2 top = row_max(s, u, row);
            correction[r] = update_base(&base[r], top.x, top.y);
            float part = exponentiate_row<D>(x, y[r], r, base[r], p->scale);
            if (mine)
                ((float *)&s->sum[at->warp][row])[at->t] = part;
        }
        named_sync(BARRIER_COMPUTE, COMPUTE_THREADS);
#pragma unroll
        for (int r = 0; r < HALVES; r++) {
            int row = at->g + r * 8;
            float total = total_of(s, u, row, at->t);
            int e = base_growth(row_sum(total));
            float down = exp2_neg(e);
            sum[r] = __fmul_rn(__fmaf_rn(sum[r], correction[r], total), down);
            base[r] += (float)e;
            if (mine) {
#pragma unroll
                for (int j = 0; j < TILE / 8; j++) {
                    y[r][j][0] = __fmul_rn(y[r][j][0], down);
                    y[r][j][1] = __fmul_rn(y[r][j][1], down);
                }
                store_weights<D>(s, at, y[r], r);
                s->correction[u][row] = __fmul_rn(correction[r], down);
            }
        }
    }
    named_sync(BARRIER_COMPUTE, COMPUTE_THREADS);
}

/* ---- values ------------------------------------------------------------- */

/* Values of 32 keys and one of a warp's groups of 8 columns, as two products
 * take them. */
template <int D>
BT_DEVICE void load_values(uint32_t *b, const uint16_t *v, int half, int column)
{
    int key = half * 32 + threadIdx.x % 32;
    ldmatrix_x4_trans(b, shared_address(v) + column / 8 * (TILE * PANEL * 2) +
                             key * (PANEL * 2) + (column % 8 ^ key % 8) * 16);
}

/* Weights of 16 keys as a product takes them. */
template <int D>
BT_DEVICE void load_weights(uint32_t *a, const decode_shared<D> *s, int key)
{
    int lane = threadIdx.x % 32;
    ldmatrix_x4(a,
                shared_address(&s->weights[lane % 16][key]) + lane / 16 * 16);
}

/* Two bits as a mask for two bf16. */
BT_DEVICE uint32_t expand_bits(uint64_t bits)
{
    return (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
}

/* Of two bf16: those that are finite (pass 0); or 1 for those that are NaN or
 * infinity of this sign (1: plus, 2: minus). */
BT_DEVICE uint32_t filter_nonfinite(uint32_t two, int pass)
{
    uint32_t stationary = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t value = two >> (16 * i) & 0xffff;
        bool finite = (value & 0x7f80) != 0x7f80;
        bool nan = !finite && (value & 0x7f) != 0;
        bool hit = nan || value == (pass == 1 ? 0x7f80 : 0xff80);
        uint32_t one = pass == 0 ? (finite ? value : 0) : (hit ? 0x3f80 : 0);
        stationary |= one << (16 * i);
    }
    return stationary;
}

/* o += w v for a tile in which a value is NaN or infinite: for each query of
 * the finite values that it sees. Returns which outputs see others, whatever
 * their weights: bit 4 n + i, if o[n][i] sees NaN or infinity, and 16 bits
 * further, if it sees NaN or -infinity. */
template <int D, int HALVES>
static __device__ __noinline__ uint32_t
filter_values(const decode_params *p, const decode_shared<D> *s,
              const decode_work *work, const thread_state *at,
              const uint16_t *v, int tile, int bits, float (*o)[4])
{
    const int columns = kernel_traits<D>::columns;
    uint32_t taint = 0;
#pragma unroll 1
    for (int query = 0; query < work->item.rows; query++) {
        uint64_t word =
            bits < 0 ? ~0ull : p->bits[(size_t)bits * p->unit_rows + query];
#pragma unroll
        for (int n = 0; n < columns; n++)
#pragma unroll 1
            for (int pass = 0; n < at->columns && pass < 3; pass++) {
                float d[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
                if (pass == 0)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        d[i] = o[n][i];
#pragma unroll
                for (int i = 0; i < TILE / 16; i++) {
                    uint32_t a[4], b[4];
                    load_weights(a, s, tile * TILE + i * 16);
                    load_values<D>(b, v, i / 2, at->column + n);
                    uint32_t low = expand_bits(word >> (16 * i + 2 * at->t));
                    uint32_t high =
                        expand_bits(word >> (16 * i + 8 + 2 * at->t));
                    b[0] = filter_nonfinite(b[i % 2 * 2], pass) & low;
                    b[1] = filter_nonfinite(b[i % 2 * 2 + 1], pass) & high;
                    if (pass)
                        a[0] = a[1] = a[2] = a[3] = 0x3f803f80;
                    mma_16816(d, a, b);
                }
#pragma unroll
                for (int i = 0; i < 2 * HALVES; i++)
                    if (at->query[i / 2] == query) {
                        if (pass == 0)
                            o[n][i] = d[i];
                        else if (d[i] != 0.0f)
                            taint |= 1u << (4 * n + i + 16 * (pass - 1));
                    }
            }
    }
    return taint;
}

/* o (16 rows, the warp's columns) += w v, for one tile, which is at `full` in
 * the ring. All fragments are asked for before the first product. */
template <int D, int HALVES>
BT_DEVICE void value_tile(const decode_params *p, decode_shared<D> *s,
                          const decode_work *work, const thread_state *at,
                          const bt_decode_tile *tiles, int tile,
                          pipeline_state full, float (*o)[4], uint32_t *taint)
{
    const int columns = kernel_traits<D>::columns;
    const uint16_t *v = s->tile[full.index];
    uint32_t a[4][4], two[2][columns][4], check[2] = { 0, 0 };
    float before[columns][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_weights(a[i], s, tile * TILE + i * 16);
    barrier_wait(&s->full[full.index], full.phase);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < columns; n++)
            if (n < at->columns)
                load_values<D>(two[h][n], v, h, at->column + n);
#pragma unroll
    for (int n = 0; n < columns; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            before[n][i] = o[n][i];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int n = 0; n < columns; n++)
            if (n < at->columns) {
                mma_16816(o[n], a[i], two[i / 2][n] + i % 2 * 2);
                check[0] = check_finite(check[0], two[i / 2][n][i % 2 * 2]);
                check[1] = check_finite(check[1], two[i / 2][n][i % 2 * 2 + 1]);
            }
    // All values are in registers when this is known.
    if (__any_sync(~0u, (check[0] | check[1]) & 0x7fff7fff)) {
        thread_state here = *at;
        float again[columns][4];
#pragma unroll
        for (int n = 0; n < columns; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                again[n][i] = before[n][i];
        *taint |= filter_values<D, HALVES>(p, s, work, &here, v, tile,
                                           tiles[tile].bits, again);
#pragma unroll
        for (int n = 0; n < columns; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[n][i] = again[n][i];
    }
    consumer_release(&s->empty[full.index]);
}

/* All tiles of a block, in order. `moved`: rows are to be multiplied by keep
 * before each tile of the softmax. */
template <int D, int HALVES>
BT_DEVICE void value_block(const decode_params *p, decode_shared<D> *s,
                           const decode_work *work, const thread_state *at,
                           key_block b, bool base_moved, float (*o)[4],
                           uint32_t *taint)
{
    pipeline_state full =
        pipeline_state_at(b.number + __popc(b.seen), kernel_traits<D>::stages);
#pragma unroll 1
    for (int tile = 0; tile < WARPS; tile++) {
        if (base_moved && tile % kernel_traits<D>::warps_per_tile == 0)
#pragma unroll
            for (int r = 0; r < HALVES; r++) {
                float correction =
                    s->correction[tile / kernel_traits<D>::warps_per_tile]
                                 [at->g + r * 8];
#pragma unroll
                for (int n = 0; n < kernel_traits<D>::columns; n++) {
                    o[n][2 * r] = __fmul_rn(o[n][2 * r], correction);
                    o[n][2 * r + 1] = __fmul_rn(o[n][2 * r + 1], correction);
                }
            }
        if (!(b.seen >> tile & 1))
            continue;
        value_tile<D, HALVES>(p, s, work, at, b.tiles, tile, full, o, taint);
        if (++full.index == kernel_traits<D>::stages) {
            full.index = 0;
            full.phase ^= 1;
        }
    }
}

#endif
