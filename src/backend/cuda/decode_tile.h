/* SPDX-License-Identifier: Apache-2.0 */
/* decode_tile.h - what the compute warps of attention_decode.cu do with a block
 * of 512 keys. Every sum has the order of softmax.h, so the results are those
 * of the forward pass:
 *
 *   scores   of 64 keys for each warp: a whole softmax tile, or, of a softmax
 *            tile of 128 keys, the first or the second 16 of each 32. The sums
 *            of a thread's weights are then those of the first or the last two
 *            parts of the tile's sum
 *   values   of all keys, in order, for each warp an eighth of the columns */
#ifndef BT_CUDA_DECODE_TILE_H
#define BT_CUDA_DECODE_TILE_H

#include "backend/cuda/decode_load.h"
#include "backend/cuda/softmax.h"

#include <math.h>

/* The rows of the unit that a thread has: g, and with HALVES 2 also g + 8. */
typedef struct thread_state {
    int warp, lane, g, t;
    int query[2]; /* of each row */
    int column;   /* of the output, times 8: this warp's first */
} thread_state;

/* BIAS: what the scores of its rows need, and the first key of the chunk. */
typedef struct job_bias {
    head_bias head[2];
    int anchor[2], key;
    const bt_decode_tile *tiles; /* of the chunk */
} job_bias;

/* A block of a chunk: its visible tiles, and the numbers of the first tile of K
 * and of V among all that the loader loads. */
typedef struct key_block {
    const bt_decode_tile *tiles;
    const uint64_t *words; /* of the tiles, where there is one query; or NULL */
    uint32_t seen, keys, values;
} key_block;

/* The query of a row of the unit. */
BT_DEVICE int query_of(const decode_work *work, int row)
{
    return work->item.rows == 1 ? 0 : row / work->heads;
}

/* Bit i: block i of the chunk has a visible tile. */
BT_DEVICE uint32_t visible_blocks(const decode_work *work, int lane)
{
    uint32_t visible = 0;
#pragma unroll
    for (int i = 0; i < BT_CHUNK / TILE / 32; i++) {
        uint32_t seen =
            __ballot_sync(~0u, work->tiles[i * 32 + lane].block >= 0);
#pragma unroll
        for (int j = 0; j < 32 / WARPS; j++)
            if (seen >> j * WARPS & BLOCK_BITS)
                visible |= 1u << (i * (32 / WARPS) + j);
    }
    return visible;
}

/* ---- scores ------------------------------------------------------------- */

/* The queries of a unit as products take them: in registers, or, with large
 * heads, loaded again for each block. */
template <int D> struct query_fragments {
    static constexpr bool in_registers = !kernel_traits<D>::large_head;
    uint32_t from; /* the lane's address in shared memory */
    uint32_t a[in_registers ? D / 16 : 1][4];
};

/* q has `rows` rows, D + 8 apart; the rows after them repeat the last one. */
template <int D>
BT_DEVICE void load_queries(query_fragments<D> *f, const uint16_t *q, int rows)
{
    int lane = threadIdx.x % 32;
    f->from = shared_address(q) + min(lane % 16, rows - 1) * (D + 8) * 2 +
              lane / 16 * 16;
    if (f->in_registers)
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            ldmatrix_x4(f->a[f->in_registers ? i : 0], f->from + i * 32);
}

/* x (16 rows, 64 keys) = q k^T. Of the keys, 16 each begin at rows 0 and
 * `stride` of k[0] and k[1]. */
template <int D>
BT_DEVICE void multiply_keys(float (*x)[4], const query_fragments<D> *q,
                             const uint16_t *const *k, int stride)
{
    int lane = threadIdx.x % 32;
    uint32_t row = (lane / 16 * 8 + lane % 8) * (PANEL * 2);
    uint32_t from[2] = { shared_address(k[0]) + row,
                         shared_address(k[1]) + row };
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = (i % 4 * 2 + lane / 8 % 2) ^ lane % 8;
        uint32_t at = i / 4 * (TILE * PANEL * 2) + chunk * 16, loaded[4];
        const uint32_t *a = q->a[q->in_registers ? i : 0];
        if (!q->in_registers) {
            ldmatrix_x4(loaded, q->from + i * 32);
            a = loaded;
        }
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            uint32_t b[4];
            ldmatrix_x4(b, from[j / 2] + at + j % 2 * stride * (PANEL * 2));
            mma_16816(x[2 * j], a, b);
            mma_16816(x[2 * j + 1], a, b + 2);
        }
    }
}

/* Scores of hidden keys become -infinity, whatever they were. */
BT_DEVICE void apply_mask(float (*x)[4], uint64_t word, int r, int t,
                          int stride)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t two = (uint32_t)(word >> (j / 2 * stride + j % 2 * 8 + 2 * t));
        x[j][2 * r] = two & 1 ? x[j][2 * r] : -INFINITY;
        x[j][2 * r + 1] = two & 2 ? x[j][2 * r + 1] : -INFINITY;
    }
}

/* A zero that depends on all scores, and so on all fragments that were loaded
 * for them. An arrival at this address cannot be moved before the products, and
 * so not before the ldmatrix results have been waited for. The compiler does
 * not know that a grid has one layer. */
BT_DEVICE uint32_t dependent_zero(const float (*x)[4])
{
    uint32_t any = 0;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        any |= __float_as_uint(x[j][0]);
    return any & (gridDim.z - 1);
}

/* A ring that is shorter than a block reuses buffers within a block. Then every
 * warp waits for every tile and releases it, or it might take one use of a
 * buffer for another. */
template <int D>
BT_DEVICE void observe_tiles(decode_shared<D> *s, key_block b, int from, int to)
{
#pragma unroll 1
    for (int tile = from; tile < to; tile++)
        if (b.seen >> tile & 1) {
            uint32_t number = b.keys + __popc(b.seen & ((1u << tile) - 1));
            decode_pipeline_state full =
                pipeline_state_at(number, kernel_traits<D>::stages);
            barrier_wait(&s->full[full.index], full.phase);
            consumer_release(&s->empty[full.index]);
        }
}

/* The place of a warp's keys 8 j to 8 j + 7 in a block: see store_weights. */
template <int D> BT_DEVICE int key_in_block(int warp, int j)
{
    return kernel_traits<D>::large_head
               ? warp * TILE + j * 8
               : (warp & ~1) * TILE + j / 4 * TILE + j % 4 / 2 * 32 +
                     warp % 2 * 16 + j % 2 * 8;
}

template <int HALVES, int BIAS>
BT_DEVICE void load_job_bias(job_bias *to, const thread_state *at,
                             const decode_params *p, const decode_work *work)
{
    if (!BIAS)
        return;
    to->key = work->item.key;
    to->tiles = work->tiles;
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        int row = min(at->g + r * 8, work->item.rows * work->heads - 1);
        int query = work->item.row + at->query[r];
        int head = work->head + row - at->query[r] * work->heads;
        to->head[r] = head_bias_of(&p->bias, head);
        if (is_tensor(&p->bias)) {
            to->head[r].table = tensor_row_of(&p->bias, query, head);
            to->anchor[r] = 0;
        } else {
            to->anchor[r] = anchor_of(&p->bias, query);
        }
    }
}

/* BIAS: products become scores in base-2 logarithms, whose scale is 1. Bit 0
 * of `visible`(i) says whether the key of score i is seen. */
template <int D, int HALVES, int BIAS, class VISIBLE>
BT_DEVICE void bias_tiles(const decode_params *p, const thread_state *at,
                          const job_bias *job, key_block b, float (*x)[4],
                          VISIBLE visible)
{
    if (!BIAS)
        return;
    int first = job->key + (int)(b.tiles - job->tiles) * TILE + at->t * 2;
    if (is_tensor(&p->bias)) {
        const float *rows[2] = { job->head[0].table + first,
                                 job->head[HALVES - 1].table + first };
        tensor_scores<TILE / 2, HALVES>(
            &p->bias, rows, x[0],
            [&](int i) { return key_in_block<D>(at->warp, i / 4) + i % 2; },
            visible);
        return;
    }
    int from[2] = { first - job->anchor[0], first - job->anchor[HALVES - 1] };
    bias_scores<TILE / 2, HALVES>(&p->bias, job->head, x[0], [&](int i) {
        return from[i / 2 % 2] + key_in_block<D>(at->warp, i / 4) + i % 2;
    });
}

template <int BIAS> BT_DEVICE float scale_of(const decode_params *p)
{
    return BIAS ? 1.0f : p->scale;
}

/* The masked scores of the warp's 64 keys: x[0] to x[3] and x[4] to x[7] have
 * 32 of them each, of two tiles, or of one (large heads). RESIDENT: all tiles
 * are known to be there, and stay. */
template <int D, int HALVES, int BIAS, int RESIDENT>
BT_DEVICE void score_tiles(const decode_params *p, decode_shared<D> *s,
                           const query_fragments<D> *q, const thread_state *at,
                           const job_bias *job, key_block b, float (*x)[4])
{
    const bool pair = !kernel_traits<D>::large_head;
    const int stride = pair ? 32 : 16;
    const uint32_t arrivals = kernel_traits<D>::all_arrive ? 1
                              : pair                       ? WARPS / 2
                                                           : WARPS;
    int tile = pair ? at->warp & ~1 : at->warp;
    int from = pair ? at->warp % 2 * 16 : 0;
    bool seen[2] = { (bool)(b.seen >> tile & 1),
                     (bool)(pair && b.seen >> (tile + 1) & 1) };
    int bits[2] = { -1, -1 };
    uint64_t word[2][HALVES] = {};
    const uint16_t *k[2] = { NULL, NULL };
    uint64_t *empty[2] = { NULL, NULL };
    if (!seen[0] && !seen[1]) {
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
            x[j][0] = x[j][1] = x[j][2] = x[j][3] = -INFINITY;
        return;
    }
    uint32_t number = b.keys + __popc(b.seen & ((1u << tile) - 1));
#pragma unroll
    for (int i = 0; i < 1 + pair; i++) {
        if (!seen[i])
            continue;
        bits[i] = b.tiles[tile + i].bits;
#pragma unroll
        for (int r = 0; r < HALVES; r++)
            if (bits[i] >= 0)
                word[i][r] = b.words ? b.words[tile + i]
                                     : p->bits[(size_t)bits[i] * p->unit_rows +
                                               at->query[r]];
    }
#pragma unroll
    for (int i = 0; i < 1 + pair; i++) {
        decode_pipeline_state full =
            pipeline_state_at(number, kernel_traits<D>::stages);
        if (!seen[i])
            continue;
        k[i] = s->tile[full.index] + from * PANEL;
        empty[i] = &s->empty[full.index];
        if (!RESIDENT)
            barrier_wait(&s->full[full.index], full.phase);
        number++;
    }
    if (!pair)
        k[1] = k[0] + 32 * PANEL;
    // Hidden tiles are not loaded, and any other will do in their place.
    k[0] = seen[0] ? k[0] : k[1];
    k[1] = seen[1] || !pair ? k[1] : k[0];
    multiply_keys<D>(x, q, k, stride);
    if (!RESIDENT) {
        uint32_t zero = dependent_zero(x);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 1 + pair; i++)
            if (at->lane < WARP_ARRIVALS && seen[i])
                barrier_arrive_many(empty[i] + zero, arrivals);
    }
    bias_tiles<D, HALVES, BIAS>(p, at, job, b, x, [&](int i) {
        int j = i / 4, part = pair ? j / 4 : 0, r = i / 2 % 2;
        int bit = (pair ? from : j / 4 * 32) + j % 4 / 2 * stride + j % 2 * 8 +
                  at->t * 2 + i % 2;
        uint64_t bits_seen = bits[part] >= 0 ? word[part][r % HALVES] : ~0ull;
        return seen[part] ? (uint32_t)(bits_seen >> bit) : 0;
    });
    if (!pair) {
        seen[1] = seen[0];
        bits[1] = bits[0];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!seen[i])
#pragma unroll
            for (int j = 4 * i; j < 4 * i + 4; j++)
                x[j][0] = x[j][1] = x[j][2] = x[j][3] = -INFINITY;
        if (bits[i] >= 0)
#pragma unroll
            for (int r = 0; r < HALVES; r++)
                apply_mask(x + 4 * i,
                           pair ? word[i][r] >> from : word[0][r] >> 32 * i, r,
                           at->t, stride);
    }
}

template <int D, int HALVES, int BIAS, int RESIDENT>
BT_DEVICE void score_block(const decode_params *p, decode_shared<D> *s,
                           const query_fragments<D> *q, const thread_state *at,
                           const job_bias *job, key_block b, float (*x)[4])
{
    if (kernel_traits<D>::all_arrive && !RESIDENT)
        observe_tiles<D>(s, b, 0, at->warp);
    score_tiles<D, HALVES, BIAS, RESIDENT>(p, s, q, at, job, b, x);
    if (kernel_traits<D>::all_arrive && !RESIDENT)
        observe_tiles<D>(s, b, at->warp + 1, WARPS);
}

/* The maxima of the warp's scores, for all warps: over the first PROBE_KEYS
 * keys of the softmax tile, and over all. */
template <int D, int HALVES, int BIAS>
BT_DEVICE void publish_maxima(const decode_params *p, decode_shared<D> *s,
                              const thread_state *at, const float (*x)[4])
{
    const int probe_groups = kernel_traits<D>::large_head ? 4 : 2;
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        float head = -INFINITY, top = -INFINITY;
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            top = fmaxf(top, fmaxf(x[j][2 * r], x[j][2 * r + 1]));
            head = j < probe_groups ? top : head;
        }
        head = fmaxf(head, __shfl_xor_sync(~0u, head, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        head = fmaxf(head, __shfl_xor_sync(~0u, head, 2));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (at->t == 0)
            s->top[at->warp][at->g + r * 8] =
                make_float2(__fmul_rn(head, scale_of<BIAS>(p)),
                            __fmul_rn(top, scale_of<BIAS>(p)));
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
template <int D, int HALVES, int BIAS>
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
        float sum = exponentiate_row<D>(x, y, r, base[r], scale_of<BIAS>(p));
        ((float *)&s->sum[at->warp][row])[at->t] = sum;
        store_weights<D>(s, at, y, r);
        base_moves |= most > base[r] + BASE_JUMP || sum > 0x1p9f;
    }
    return base_moves;
}

/* The same where one does: tile by tile of the softmax, in order. */
template <int D, int HALVES, int BIAS>
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
            float part =
                exponentiate_row<D>(x, y[r], r, base[r], scale_of<BIAS>(p));
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

/* Weights of 16 keys as a product takes them; eight rows are read twice. */
template <int D>
BT_DEVICE void load_weights(uint32_t *a, const decode_shared<D> *s, int key)
{
    int lane = threadIdx.x % 32;
    ldmatrix_x4(a, shared_address(&s->weights[lane % 16 % ROWS][key]) +
                       lane / 16 * 16);
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
    uint32_t filtered = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t value = two >> (16 * i) & 0xffff;
        bool finite = (value & 0x7f80) != 0x7f80;
        bool nan = !finite && (value & 0x7f) != 0;
        bool hit = nan || value == (pass == 1 ? 0x7f80 : 0xff80);
        uint32_t one = pass == 0 ? (finite ? value : 0) : (hit ? 0x3f80 : 0);
        filtered |= one << (16 * i);
    }
    return filtered;
}

/* o += w v for a tile in which a value is NaN or infinite: for each query of
 * the finite values that it sees. Returns which outputs see others, whatever
 * their weights: bit 4 n + i, if o[n][i] sees NaN or infinity, and 16 bits
 * further, if it sees NaN or -infinity. */
template <int D, int HALVES, int COLUMNS>
static __device__ __noinline__ uint32_t
filter_values(const decode_params *p, const decode_shared<D> *s,
              const decode_work *work, const thread_state *at,
              const uint16_t *v, int tile, int bits, float (*o)[4])
{
    uint32_t taint = 0;
#pragma unroll 1
    for (int query = 0; query < work->item.rows; query++) {
        uint64_t word =
            bits < 0 ? ~0ull : p->bits[(size_t)bits * p->unit_rows + query];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
#pragma unroll 1
            for (int pass = 0; pass < 3; pass++) {
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

/* A tile's weights and values as products take them. */
template <int COLUMNS> struct value_fragments {
    uint32_t w[TILE / 16][4], v[2][COLUMNS][4];
};

/* Of 8 rows, one load has the weights of two products: the other 8 rows of
 * these may be anything. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE void load_weight_fragments(value_fragments<COLUMNS> *f,
                                     const decode_shared<D> *s, int tile)
{
    int lane = threadIdx.x % 32;
    if (HALVES == 2)
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            load_weights(f->w[i], s, tile * TILE + i * 16);
    else
#pragma unroll
        for (int i = 0; i < TILE / 16; i += 2) {
            uint32_t a[4];
            int key = tile * TILE + i * 16 + lane / 8 % 2 * 16 + lane / 16 * 8;
            ldmatrix_x4(a, shared_address(&s->weights[lane % 8][key]));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                f->w[i][j] = a[j];
                f->w[i + 1][j] = a[j | 1];
            }
        }
}

template <int D, int COLUMNS>
BT_DEVICE void load_value_fragments(value_fragments<COLUMNS> *f,
                                    const uint16_t *v, const thread_state *at)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            load_values<D>(f->v[h][n], v, h, at->column + n);
}

/* Whether all values of some tiles are finite, as the warp sees them. All
 * fragments are in registers when this is known. */
template <int COLUMNS>
BT_DEVICE bool all_finite(const value_fragments<COLUMNS> *f, int tiles)
{
    uint32_t check[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int k = 0; k < tiles; k++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    check[i] = check_finite(check[i], f[k].v[h][n][i]);
    uint32_t all = check[0] | check[1] | check[2] | check[3];
    return !__any_sync(~0u, all & 0x7fff7fff);
}

/* o (16 rows, the warp's columns) += w v for one tile. */
template <int COLUMNS>
BT_DEVICE void multiply_values(const value_fragments<COLUMNS> *f, float (*o)[4])
{
#pragma unroll
    for (int i = 0; i < TILE / 16; i++)
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            mma_16816(o[n], f->w[i], f->v[i / 2][n] + i % 2 * 2);
}

/* The same where a value may not be finite. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE uint32_t multiply_filtered(const decode_params *p,
                                     const decode_shared<D> *s,
                                     const decode_work *work,
                                     const thread_state *at, int tile, int bits,
                                     const uint16_t *v, float (*o)[4])
{
    thread_state here = *at;
    float again[COLUMNS][4];
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            again[n][i] = o[n][i];
    uint32_t taint = filter_values<D, HALVES, COLUMNS>(p, s, work, &here, v,
                                                       tile, bits, again);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] = again[n][i];
    return taint;
}

/* o is multiplied by the corrections of a softmax tile. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE void correct_output(const decode_shared<D> *s, const thread_state *at,
                              int softmax_tile, float (*o)[4])
{
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        float correction = s->correction[softmax_tile][at->g + r * 8];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            o[n][2 * r] = __fmul_rn(o[n][2 * r], correction);
            o[n][2 * r + 1] = __fmul_rn(o[n][2 * r + 1], correction);
        }
    }
}

/* The visible tiles of a block, in order, one by one. `base_moved`: rows are
 * corrected before each softmax tile (hidden ones have corrections of 1). */
template <int D, int HALVES, int COLUMNS, int RESIDENT>
BT_DEVICE void value_tiles(const decode_params *p, decode_shared<D> *s,
                           const decode_work *work, const thread_state *at,
                           key_block b, bool base_moved, float (*o)[4],
                           uint32_t *taint)
{
    int corrected = -1;
    decode_pipeline_state full =
        pipeline_state_at(b.values, kernel_traits<D>::stages);
#pragma unroll 1
    for (uint32_t todo = b.seen; todo; todo &= todo - 1) {
        int tile = __ffs((int)todo) - 1;
        int softmax_tile = tile / kernel_traits<D>::warps_per_tile;
        value_fragments<COLUMNS> f;
        load_weight_fragments<D, HALVES>(&f, s, tile);
        if (!RESIDENT)
            barrier_wait(&s->full[full.index], full.phase);
        load_value_fragments<D>(&f, s->tile[full.index], at);
        if (base_moved && corrected != softmax_tile)
            correct_output<D, HALVES, COLUMNS>(s, at, softmax_tile, o);
        corrected = softmax_tile;
        if (all_finite(&f, 1))
            multiply_values(&f, o);
        else
            *taint |= multiply_filtered<D, HALVES, COLUMNS>(
                p, s, work, at, tile, b.tiles[tile].bits, s->tile[full.index],
                o);
        if (!RESIDENT)
            consumer_release(&s->empty[full.index]);
        pipeline_advance(&full, kernel_traits<D>::stages);
    }
}

/* Tiles whose fragments are in registers at a time. */
template <int COLUMNS> struct value_group {
    static constexpr int tiles = COLUMNS == 1 ? 2 : 1;
    decode_pipeline_state full[tiles];
    value_fragments<COLUMNS> f[tiles];
};

/* Whether the tiles of the group that begins with tile `next` are there,
 * without waiting. */
template <int D, int COLUMNS>
BT_DEVICE bool group_ready(decode_shared<D> *s, decode_pipeline_state next)
{
    bool ready = true;
#pragma unroll
    for (int i = 0; i < value_group<COLUMNS>::tiles; i++) {
        ready &= barrier_test(&s->full[next.index], next.phase);
        pipeline_advance(&next, kernel_traits<D>::stages);
    }
    return ready;
}

/* `ready`: the tiles are known to be there. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE void load_group(value_group<COLUMNS> *group, decode_shared<D> *s,
                          const thread_state *at, int tile, bool ready,
                          decode_pipeline_state *next)
{
    const int tiles = value_group<COLUMNS>::tiles;
#pragma unroll
    for (int i = 0; i < tiles; i++) {
        group->full[i] = *next;
        pipeline_advance(next, kernel_traits<D>::stages);
    }
    if (!ready)
#pragma unroll
        for (int i = 0; i < tiles; i++)
            barrier_wait(&s->full[group->full[i].index], group->full[i].phase);
#pragma unroll
    for (int i = 0; i < tiles; i++) {
        load_value_fragments<D>(&group->f[i], s->tile[group->full[i].index],
                                at);
        load_weight_fragments<D, HALVES>(&group->f[i], s, tile + i);
    }
}

/* The products of a group, whose values are finite and in registers, while the
 * next group is loaded and checked. Returns whether that is finite. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE bool
value_step(decode_shared<D> *s, const thread_state *at,
           const value_group<COLUMNS> *group, value_group<COLUMNS> *after,
           int tile, decode_pipeline_state *next, bool *ready, float (*o)[4])
{
    const int tiles = value_group<COLUMNS>::tiles;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < tiles; i++)
        consumer_release(&s->empty[group->full[i].index]);
    if (tile + tiles < WARPS) {
        load_group<D, HALVES>(after, s, at, tile + tiles, *ready, next);
        *ready = tile + 2 * tiles < WARPS && group_ready<D, COLUMNS>(s, *next);
    }
#pragma unroll
    for (int i = 0; i < tiles; i++)
        multiply_values(&group->f[i], o);
    if (tile + tiles < WARPS)
        finite = all_finite(after->f, tiles);
    return finite;
}

/* The same for a block all of whose tiles are visible, and no base moved. Stops
 * before tiles whose values are not all finite, and returns how many came
 * before. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE int value_full_block(decode_shared<D> *s, const thread_state *at,
                               key_block b, float (*o)[4])
{
    const int tiles = value_group<COLUMNS>::tiles;
    decode_pipeline_state next =
        pipeline_state_at(b.values, kernel_traits<D>::stages);
    value_group<COLUMNS> even, odd;
    bool ready = false;
    load_group<D, HALVES>(&even, s, at, 0, false, &next);
    if (!all_finite(even.f, tiles))
        return 0;
#pragma unroll
    for (int i = 0; i < WARPS; i += 2 * tiles) {
        if (!value_step<D, HALVES>(s, at, &even, &odd, i, &next, &ready, o))
            return i + tiles;
        if (!value_step<D, HALVES>(s, at, &odd, &even, i + tiles, &next, &ready,
                                   o))
            return i + 2 * tiles;
    }
    return WARPS;
}

template <int D, int HALVES, int COLUMNS>
BT_DEVICE void value_block(const decode_params *p, decode_shared<D> *s,
                           const decode_work *work, const thread_state *at,
                           key_block b, bool base_moved, float (*o)[4],
                           uint32_t *taint)
{
    const uint32_t all = (1u << WARPS) - 1;
    if (COLUMNS <= 2 && b.seen == all && !base_moved) {
        int done = value_full_block<D, HALVES, COLUMNS>(s, at, b, o);
        b.seen &= all << done;
        b.values += done;
    }
    if (b.seen)
        value_tiles<D, HALVES, COLUMNS, 0>(p, s, work, at, b, base_moved, o,
                                           taint);
}

/* ---- values that are resident ------------------------------------------- */

/* The first tiles of a block, whose values are loaded into registers before
 * their weights are known. */
template <int COLUMNS> struct early_values {
    static constexpr int tiles = COLUMNS == 1 ? 4 : 2;
    value_fragments<COLUMNS> f[tiles];
};

/* Those of hidden tiles are 0. */
template <int D, int COLUMNS>
BT_DEVICE void load_early_values(early_values<COLUMNS> *early,
                                 const decode_shared<D> *s,
                                 const thread_state *at, key_block b)
{
    const int tiles = early_values<COLUMNS>::tiles;
    uint32_t number = b.values;
#pragma unroll
    for (int i = 0; i < tiles; i++) {
        if (b.seen >> i & 1) {
            load_value_fragments<D>(&early->f[i], s->tile[number++], at);
            continue;
        }
#pragma unroll
        for (int j = 0; j < 2 * COLUMNS * 4; j++)
            early->f[i].v[j / (COLUMNS * 4)][j / 4 % COLUMNS][j % 4] = 0;
    }
}

/* value_block, where all tiles are there and stay. `finite`: all early values
 * are. */
template <int D, int HALVES, int COLUMNS>
BT_DEVICE void value_resident(const decode_params *p, decode_shared<D> *s,
                              const decode_work *work, const thread_state *at,
                              key_block b, early_values<COLUMNS> *early,
                              bool finite, bool base_moved, float (*o)[4],
                              uint32_t *taint)
{
    const int tiles = early_values<COLUMNS>::tiles;
    const uint32_t all = (1u << tiles) - 1;
    if (finite && !base_moved) {
#pragma unroll
        for (int i = 0; i < tiles; i++)
            if (b.seen >> i & 1)
                load_weight_fragments<D, HALVES>(&early->f[i], s, i);
#pragma unroll
        for (int i = 0; i < tiles; i++)
            if (b.seen >> i & 1)
                multiply_values(&early->f[i], o);
        b.values += __popc(b.seen & all);
        b.seen &= ~all;
    }
    if (b.seen)
        value_tiles<D, HALVES, COLUMNS, 1>(p, s, work, at, b, base_moved, o,
                                           taint);
}

#endif
