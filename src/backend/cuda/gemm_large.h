/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_large.h - products of many rows.
 *
 * A block is a producer warp and two consumer warpgroups, and takes one tile of
 * the result after another. The producer lets the copy engine fetch steps of 64
 * of k, a tile of each operand, into a ring of stages; the consumers multiply
 * them (wgmma) and hand finished tiles to the copy engine, which stores them
 * while the next tile is summed.
 *
 * Cooperative: the warpgroups have the two halves of a tile's rows, and keep a
 * chunk's sums and the total in registers.
 *
 * Ping pong: each warpgroup has a tile of its own, and they take turns: while
 * one multiplies, the other finishes its tile. There is no room for totals, so
 * sums have one chunk. */
#ifndef BT_CUDA_GEMM_LARGE_H
#define BT_CUDA_GEMM_LARGE_H

#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime_api.h>

enum {
    STEP = BT_GEMM_STEP,
    PANEL_COLUMNS = 64,
    BLOCK_BYTES = 64 * 128, /* of 64 rows of an operand, or of a panel */
    PANEL_BYTES = 16 * 128, /* of a warp's rows and 64 columns of output */
    WARPGROUP = 128,
    LARGE_THREADS = 3 * WARPGROUP,
    TURN = 1, /* the first of two named barriers: a warpgroup's turn */
    SHARED_LIMIT = 232448 - 1024 /* a block's, less what alignment takes */
};

/* How tiles end: like any of them, or with activations or slopes that go by the
 * copy engine. Kernels of their own, for the compiler orders the products of
 * one that has all of it one after the other. */
enum { END_ANY, END_ACT, END_SLOPE };

template <int FORM_, int COLUMNS_, bool PING_, int END_ = END_ANY>
struct large {
    static constexpr int FORM = FORM_, COLUMNS = COLUMNS_, END = END_;
    static constexpr bool PING = PING_;
    static constexpr int TA = FORM == BT_GEMM_TN, TB = FORM != BT_GEMM_NT;
    static constexpr int ROWS = BT_GEMM_TILE_ROWS;
    static constexpr int BLOCKS = PING ? 2 : 1; /* of 64 rows, a warpgroup's */
    static constexpr int A_BYTES = ROWS * STEP * 2;
    static constexpr int B_BYTES = COLUMNS * STEP * 2;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    /* Panels of 16 rows and 64 columns of output for each of 8 warps. */
    static constexpr int PANELS = COLUMNS / PANEL_COLUMNS;
    static constexpr int SLOTS = END == END_ANY ? PANELS : 4;
    static constexpr int WARP_BYTES = SLOTS * PANEL_BYTES;
    static constexpr int OUT_BYTES = 8 * WARP_BYTES;
    static constexpr int STAGES =
        (SHARED_LIMIT - 512 - OUT_BYTES) / STAGE_BYTES;
    /* Barriers: two for a stage, one for each slot that slopes are read to. */
    static constexpr int SHARED =
        1024 + STAGES * STAGE_BYTES + OUT_BYTES + 16 * STAGES + 8 * 8 * SLOTS;
    static constexpr int USERS = PING ? 4 : 8; /* warps that read a stage */
    static constexpr int SUMS = COLUMNS / 2;   /* registers of 64 rows */
    /* Sums of 16 rows as the registers of a warp hold them: so many times 32
     * lanes of four floats. */
    static constexpr int QUADS = COLUMNS / 8;
};

/* ---- which tile when ---------------------------------------------------- */

typedef struct unit {
    int row, column; /* tile */
    int chunk, end;  /* chunks of k */
    int slot, part;  /* where its partial sum is; -1: it is a whole tile */
} unit;

/* Tiles run down `group` tiles of m, then on to the next tile of n, so that
 * those of one round share rows of both operands in the L2. */
BT_DEVICE void tile_at(const bt_gemm_task &t, int tile, int *row, int *column)
{
    int strip = t.group * t.tiles_n;
    int first = tile / strip * t.group;
    int tall = min(t.group, t.tiles_m - first);
    int in = tile % strip;
    *row = first + in % tall;
    *column = in / tall;
}

/* The block's i-th unit of work; false after the last. */
BT_DEVICE bool unit_at(const bt_gemm_task &t, int i, unit *u)
{
    int tile, chunk = 0, end = t.chunks, slot = 0, part = -1;
    int worker = blockIdx.x;
    if (i < t.whole) {
        tile = i * t.workers + worker;
    } else {
        int in = worker;
        i -= t.whole;
        if (!t.part)
            return false;
        if (t.head > 1 && worker < t.part) {
            if (i)
                return false;
            end = t.head;
        } else {
            // Where head is 1 the first chunks are dealt like the others.
            int taken = t.head > 1 ? t.part : 0, first = t.head > 1;
            int j = worker - taken + i * (t.workers - taken);
            slot = j / t.part + first;
            if (slot > t.chunks - t.head)
                return false;
            in = j % t.part;
            chunk = slot ? t.head + slot - 1 : 0;
            end = slot ? chunk + 1 : t.head;
        }
        tile = t.whole * t.workers + in;
        if (t.head < t.chunks)
            part = in;
    }
    tile_at(t, tile, &u->row, &u->column);
    u->chunk = chunk;
    u->end = end;
    u->slot = slot;
    u->part = part;
    return true;
}

BT_DEVICE int chunk_steps(const bt_gemm_task &t, int chunk)
{
    return min(t.chunk_steps, t.steps - chunk * t.chunk_steps);
}

/* ---- the ring of stages ---------------------------------------------------
 */

typedef struct stage_at {
    int at;
    uint32_t parity;
} stage_at;

template <int STAGES> BT_DEVICE void stage_next(stage_at *s)
{
    if (++s->at == STAGES) {
        s->at = 0;
        s->parity ^= 1;
    }
}

template <int STAGES> BT_DEVICE void stage_skip(stage_at *s, int count)
{
    int sum = s->at + count;
    s->parity ^= (uint32_t)(sum / STAGES) & 1;
    s->at = sum % STAGES;
}

/* The producer: `at` is the stage's memory, k the first of its step. */
template <class C>
BT_DEVICE void load_step(const bt_gemm_task &t, uint8_t *at, uint64_t *full,
                         int row, int column, int k)
{
    barrier_arrive_expect(full, C::STAGE_BYTES);
    if (!C::TA)
        tma_load_matrix(at, &t.a, k, row, full);
    else
#pragma unroll
        for (int p = 0; p < C::ROWS / PANEL_COLUMNS; p++)
            tma_load_matrix(at + p * BLOCK_BYTES, &t.a, row + p * PANEL_COLUMNS,
                            k, full);
    at += C::A_BYTES;
    if (!C::TB)
        tma_load_matrix(at, &t.b, k, column, full);
    else
#pragma unroll
        for (int p = 0; p < C::COLUMNS / PANEL_COLUMNS; p++)
            tma_load_matrix(at + p * BLOCK_BYTES, &t.b,
                            column + p * PANEL_COLUMNS, k, full);
}

template <class C>
BT_DEVICE void load_chunk(const bt_gemm_task &t, const unit &u, int chunk,
                          uint8_t *stages, uint64_t *full, uint64_t *empty,
                          stage_at *s)
{
    int k = chunk * t.chunk_steps * STEP;
    for (int left = chunk_steps(t, chunk); left > 0; left--, k += STEP) {
        barrier_wait(&empty[s->at], s->parity ^ 1);
        load_step<C>(t, stages + s->at * C::STAGE_BYTES, &full[s->at],
                     u.row * C::ROWS, u.column * C::COLUMNS, k);
        stage_next<C::STAGES>(s);
    }
}

template <class C>
BT_DEVICE void produce(const bt_gemm_task &t, uint8_t *stages, uint64_t *full,
                       uint64_t *empty)
{
    stage_at s = { 0, 0 };
    unit u;
    tensor_map_prefetch(&t.a);
    tensor_map_prefetch(&t.b);
    for (int i = 0; unit_at(t, i, &u); i++)
        for (int chunk = u.chunk; chunk < u.end; chunk++)
            load_chunk<C>(t, u, chunk, stages, full, empty, &s);
}

/* ---- products -------------------------------------------------------------
 */

BT_DEVICE void release(uint64_t *empty, int lane)
{
    __syncwarp();
    if (lane == 0)
        barrier_arrive(empty);
}

/* Queue the products of a stage; FIRST: sums start there. */
template <class C, bool FIRST>
BT_DEVICE void multiply_stage(float (*sum)[C::SUMS], uint64_t a, uint64_t b)
{
    constexpr int A_STEP = C::TA ? 16 * 128 : 32,
                  B_STEP = C::TB ? 16 * 128 : 32;
    wgmma_fence();
#pragma unroll
    for (int block = 0; block < C::BLOCKS; block++)
        wgmma<C::COLUMNS, C::TA, C::TB, FIRST>(sum[block],
                                               a + block * BLOCK_BYTES / 16, b);
#pragma unroll
    for (int k = 1; k < STEP / 16; k++)
#pragma unroll
        for (int block = 0; block < C::BLOCKS; block++)
            wgmma<C::COLUMNS, C::TA, C::TB, false>(
                sum[block], a + (block * BLOCK_BYTES + k * A_STEP) / 16,
                b + k * B_STEP / 16);
    wgmma_commit();
}

/* The sums of a chunk of so many steps. `pass`: the next turn is the other
 * warpgroup's. */
template <class C>
BT_DEVICE void multiply(float (*sum)[C::SUMS], int steps, bool pass,
                        const uint8_t *stages, uint64_t *full, uint64_t *empty,
                        stage_at *s, int group, int lane)
{
    uint64_t a = tile_descriptor(stages + (C::PING ? 0 : group * BLOCK_BYTES),
                                 BLOCK_BYTES);
    uint64_t b = tile_descriptor(stages + C::A_BYTES, BLOCK_BYTES);
    uint64_t offset = (uint64_t)(s->at * C::STAGE_BYTES) >> 4;
    barrier_wait(&full[s->at], s->parity);
    multiply_stage<C, true>(sum, a + offset, b + offset);
    int before = s->at;
    stage_next<C::STAGES>(s);
    for (int i = 1; i < steps; i++) {
        offset = (uint64_t)(s->at * C::STAGE_BYTES) >> 4;
        barrier_wait(&full[s->at], s->parity);
        multiply_stage<C, false>(sum, a + offset, b + offset);
        wgmma_wait<1>();
        release(&empty[before], lane);
        before = s->at;
        stage_next<C::STAGES>(s);
    }
    if (pass)
        named_arrive(TURN + 1 - group, 2 * WARPGROUP);
    wgmma_wait<0>();
#pragma unroll
    for (int block = 0; block < C::BLOCKS; block++)
        wgmma_fence_operand<C::SUMS>(sum[block]);
    release(&empty[before], lane);
}

/* ---- sums in memory ---------------------------------------------------------
 */

/* 16 rows of a warp: where the lane's first four floats are, 32 apart. */
template <class C, bool ADD>
BT_DEVICE void move_sums(float *sum, float4 *at, bool keep)
{
    constexpr int BATCH = 4;
#pragma unroll
    for (int first = 0; first < C::QUADS; first += BATCH) {
        float4 old[BATCH];
        if (ADD) {
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                old[b] = __ldcg(at + (first + b) * 32);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float *v = sum + (first + b) * 4;
            if (ADD) {
                v[0] = __fadd_rn(old[b].x, v[0]);
                v[1] = __fadd_rn(old[b].y, v[1]);
                v[2] = __fadd_rn(old[b].z, v[2]);
                v[3] = __fadd_rn(old[b].w, v[3]);
            }
            if (keep)
                __stcg(at + (first + b) * 32,
                       make_float4(v[0], v[1], v[2], v[3]));
        }
    }
}

/* Partial sums: (slot, part, 16 rows, quads, lane). */
template <class C>
BT_DEVICE size_t partial_at(const bt_gemm_task &t, int slot, int part, int row)
{
    return ((size_t)(slot * t.part + part) * (C::ROWS / 16) + row / 16) *
           (C::QUADS * 32);
}

/* A flag for each 16 rows of a partial sum: whoever has the tile's first chunks
 * adds the others, and waits for them here. It leaves 0. */
BT_DEVICE void flag_set(int *flag, int lane)
{
    __syncwarp();
    if (lane == 0)
        asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(1)
                     : "memory");
}

BT_DEVICE void flag_wait(int *flag, int lane)
{
    if (lane == 0) {
        int set;
        do {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                         : "=r"(set)
                         : "l"(flag)
                         : "memory");
        } while (!set);
        *flag = 0;
    }
    __syncwarp();
}

/* 16 rows of a unit that has not all chunks of its tile; false: they are
 * somewhere else to be added up, true: here is all of it. */
template <class C>
BT_DEVICE bool join_partial(const bt_gemm_task &t, const unit &u, float *sum,
                            int row, int lane)
{
    float4 *partial = (float4 *)t.partial + lane;
    int flag = (u.part * (C::ROWS / 16) + row / 16) * BT_GEMM_JOINED;
    if (!t.join || u.slot) {
        move_sums<C, false>(
            sum, partial + partial_at<C>(t, u.slot, u.part, row), true);
        if (t.join)
            flag_set(t.flags + flag + u.slot - 1, lane);
        return false;
    }
    for (int slot = 1; slot <= t.chunks - t.head; slot++) {
        flag_wait(t.flags + flag + slot - 1, lane);
        move_sums<C, true>(sum, partial + partial_at<C>(t, slot, u.part, row),
                           false);
    }
    return true;
}

/* ---- the end of a tile ------------------------------------------------------
 */

/* As results in float32, straight to memory: four lanes fill a sector. What is
 * added to is read some columns ahead, for no load may pass a store; that takes
 * registers. n is even here. */
template <class C, bool ADD>
BT_DEVICE void store_plain_f32(const bt_gemm_task &t, const float *sum, int row,
                               int column, int lane)
{
    constexpr int BATCH = C::PING && ADD ? 2 : 8;
    float *out = (float *)t.end.out + (size_t)(row + lane / 4) * t.end.ldo +
                 column + lane % 4 * 2;
    float *down = out + 8 * t.end.ldo;
    int left = t.end.n - column - lane % 4 * 2;
    int upper = row + lane / 4 < t.end.m ? left : 0;
    int lower = row + lane / 4 + 8 < t.end.m ? left : 0;
#pragma unroll
    for (int first = 0; first < C::COLUMNS / 8; first += BATCH) {
        float2 old[BATCH], old_down[BATCH];
#pragma unroll
        for (int j = first; ADD && j < first + BATCH; j++) {
            if (j * 8 < upper)
                old[j - first] = *(const float2 *)(out + j * 8);
            if (j * 8 < lower)
                old_down[j - first] = *(const float2 *)(down + j * 8);
        }
#pragma unroll
        for (int j = first; j < first + BATCH; j++) {
            float2 v = make_float2(sum[j * 4], sum[j * 4 + 1]);
            float2 w = make_float2(sum[j * 4 + 2], sum[j * 4 + 3]);
            if (ADD) {
                v.x = __fadd_rn(old[j - first].x, v.x);
                v.y = __fadd_rn(old[j - first].y, v.y);
                w.x = __fadd_rn(old_down[j - first].x, w.x);
                w.y = __fadd_rn(old_down[j - first].y, w.y);
            }
            if (j * 8 < upper)
                *(float2 *)(out + j * 8) = v;
            if (j * 8 < lower)
                *(float2 *)(down + j * 8) = w;
        }
    }
}

/* Shared memory of a warp for the end of its 16 rows: panels of 64 columns,
 * swizzled. */
typedef struct end_memory {
    uint8_t *tile;
    uint64_t *loaded; /* slopes are in a slot */
    uint32_t turn;    /* panels so far */
} end_memory;

/* Where a lane has its part of a panel's j-th 16 columns. */
BT_DEVICE uint8_t *fragment_at(uint8_t *panel, int j, int lane)
{
    int in = lane % 16, part = j * 2 + lane / 16;
    return panel + in * 128 + ((part ^ in % 8) << 4);
}

/* In bfloat16, by way of shared memory and the copy engine, which leaves out
 * what lies beyond m and n. It writes 16 bytes at a time, so n is a multiple of
 * 8, or all columns of the tile are there. */
template <class C>
BT_DEVICE void store_plain_bf16(const bt_gemm_task &t, const float *sum,
                                uint8_t *out, int row, int column, int lane)
{
    constexpr int BATCH = 4; // times 16 columns
    int c = column + lane % 4 * 2;
    if (lane == 0)
        tma_store_wait_read();
    __syncwarp();
#pragma unroll
    for (int first = 0; first < C::COLUMNS / 16; first += BATCH) {
        uint32_t bias[BATCH * 2] = {};
        if (t.end.bias) {
#pragma unroll
            for (int x = 0; x < BATCH * 2; x++)
                if (c + first * 16 + x * 8 < t.end.n)
                    bias[x] = *(const uint32_t *)(t.end.bias + c + first * 16 +
                                                  x * 8);
        }
#pragma unroll
        for (int j = first; j < first + BATCH; j++) {
            uint32_t two[4];
#pragma unroll
            for (int x = 0; x < 2; x++) {
                const float *v = &sum[j * 8 + x * 4];
                uint32_t add = bias[(j - first) * 2 + x];
                float p = low_bf16(add), q = high_bf16(add);
                if (t.end.bias) {
                    two[x * 2] =
                        pack_bf16(__fadd_rn(v[0], p), __fadd_rn(v[1], q));
                    two[x * 2 + 1] =
                        pack_bf16(__fadd_rn(v[2], p), __fadd_rn(v[3], q));
                } else {
                    two[x * 2] = pack_bf16(v[0], v[1]);
                    two[x * 2 + 1] = pack_bf16(v[2], v[3]);
                }
            }
            store_fragment(fragment_at(out + j / 4 * PANEL_BYTES, j % 4, lane),
                           two);
        }
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int p = 0; p < C::PANELS; p++)
            tma_store_matrix(&t.out, column + p * PANEL_COLUMNS, row,
                             out + p * PANEL_BYTES);
        tma_store_commit();
    }
}

/* ---- ends with activations and slopes -------------------------------------
 */

/* A warpgroup that takes turns has as long for the end of its tile as the other
 * one multiplies. So what the end reads is asked for before the warpgroup's own
 * products, and panels go through a ring of slots. Panel i of a tile has rows
 * of the block i / PANELS and columns from i % PANELS * 64 on. */

/* The bias of the tile's columns: two to a lane for each panel. Where there is
 * none it is -0, which changes no bit of what it is added to. */
template <class C>
BT_DEVICE void bias_ask(uint32_t *bias, const bt_gemm_end &e, int column,
                        int lane)
{
#pragma unroll
    for (int p = 0; p < C::PANELS; p++) {
        int c = column + p * PANEL_COLUMNS + lane * 2;
        bias[p] = 0x80008000u;
        if (e.bias && c < e.n)
            bias[p] = *(const uint32_t *)(e.bias + c);
    }
}

/* Activations and, if they are wanted, what they are applied to: two slots
 * while the two before are stored. */
template <class C, bt_act ACT>
BT_DEVICE void store_act(const bt_gemm_task &t, const float (*sum)[C::SUMS],
                         const uint32_t *bias, end_memory *m, int row,
                         int column, int lane)
{
#pragma unroll
    for (int i = 0; i < C::PANELS * C::BLOCKS; i++) {
        uint8_t *before = m->tile + m->turn++ % 2 * 2 * PANEL_BYTES;
        uint8_t *after = before + PANEL_BYTES;
        if (lane == 0)
            tma_store_wait_read_but<1>();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *v = &sum[i / C::PANELS][(i % C::PANELS * 4 + j) * 8];
            uint32_t two[4], act[4];
#pragma unroll
            for (int x = 0; x < 4; x++) {
                uint32_t add = __shfl_sync(0xffffffffu, bias[i % C::PANELS],
                                           j * 8 + x / 2 * 4 + lane % 4);
                two[x] = pack_bf16(__fadd_rn(v[x * 2], low_bf16(add)),
                                   __fadd_rn(v[x * 2 + 1], high_bf16(add)));
                act[x] = pack_bf16(act_of(ACT, low_bf16(two[x])),
                                   act_of(ACT, high_bf16(two[x])));
            }
            if (t.end.pre)
                store_fragment(fragment_at(before, j, lane), two);
            store_fragment(fragment_at(after, j, lane), act);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            int c = column + i % C::PANELS * PANEL_COLUMNS;
            int r = row + i / C::PANELS * 64;
            if (t.end.pre)
                tma_store_matrix(&t.side, c, r, before);
            tma_store_matrix(&t.out, c, r, after);
            tma_store_commit();
        }
    }
}

/* Let the copy engine fetch the slopes of a panel. */
template <class C>
BT_DEVICE void slope_ask(const bt_gemm_task &t, const end_memory *m, int i,
                         int row, int column)
{
    uint32_t slot = (m->turn + i) % C::SLOTS;
    barrier_arrive_expect(&m->loaded[slot], PANEL_BYTES);
    tma_load_matrix(m->tile + slot * PANEL_BYTES, &t.side,
                    column + i % C::PANELS * PANEL_COLUMNS,
                    row + i / C::PANELS * 64, &m->loaded[slot]);
}

/* Those of the tile's first panels, when all that was stored has been read. */
template <class C>
BT_DEVICE void slope_begin(const bt_gemm_task &t, const end_memory *m, int row,
                           int column, int lane)
{
    if (lane)
        return;
    tma_store_wait_read();
#pragma unroll
    for (int i = 0; i < C::SLOTS - 1; i++)
        slope_ask<C>(t, m, i, row, column);
}

/* Results lie where their slopes were. The slot of the panel before is free
 * once that has been read. */
template <class C, bt_act ACT>
BT_DEVICE void store_slope(const bt_gemm_task &t, const float (*sum)[C::SUMS],
                           end_memory *m, int row, int column, int lane)
{
    constexpr int COUNT = C::PANELS * C::BLOCKS, AHEAD = C::SLOTS - 1;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t at = m->turn + i, slot = at % C::SLOTS;
        uint8_t *panel = m->tile + slot * PANEL_BYTES;
        barrier_wait(&m->loaded[slot], at / C::SLOTS & 1);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            // Two at a time: one hides how long the steps of the other take.
            const float *v = &sum[i / C::PANELS][(i % C::PANELS * 4 + j) * 8];
            uint32_t x[8];
            load_fragment(x, fragment_at(panel, j, lane));
            load_fragment(x + 4, fragment_at(panel, j + 1, lane));
#pragma unroll
            for (int y = 0; y < 8; y++)
                x[y] = pack_bf16(__fmul_rn(rounded(v[y * 2]),
                                           act_slope_of(ACT, low_bf16(x[y]))),
                                 __fmul_rn(rounded(v[y * 2 + 1]),
                                           act_slope_of(ACT, high_bf16(x[y]))));
            store_fragment(fragment_at(panel, j, lane), x);
            store_fragment(fragment_at(panel, j + 1, lane), x + 4);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            tma_store_matrix(&t.out, column + i % C::PANELS * PANEL_COLUMNS,
                             row + i / C::PANELS * 64, panel);
            tma_store_commit();
            if (i + AHEAD < COUNT) {
                tma_store_wait_read_but<1>();
                slope_ask<C>(t, m, i + AHEAD, row, column);
            }
        }
    }
    m->turn += COUNT;
}

/* The end of a warp's rows of a tile, from `row` on and 64 further down. */
template <class C>
BT_DEVICE void finish_staged(const bt_gemm_task &t, const float (*sum)[C::SUMS],
                             const uint32_t *bias, end_memory *m, int row,
                             int column, int lane)
{
    constexpr bt_act RELU = BT_ACT_RELU, ERF = BT_ACT_GELU_ERF,
                     TANH = BT_ACT_GELU_TANH;
    if constexpr (C::END == END_ACT) {
        if (t.end.kind == KIND_ACT + RELU)
            store_act<C, RELU>(t, sum, bias, m, row, column, lane);
        else if (t.end.kind == KIND_ACT + ERF)
            store_act<C, ERF>(t, sum, bias, m, row, column, lane);
        else
            store_act<C, TANH>(t, sum, bias, m, row, column, lane);
    } else {
        if (t.end.kind == KIND_SLOPE + RELU)
            store_slope<C, RELU>(t, sum, m, row, column, lane);
        else if (t.end.kind == KIND_SLOPE + ERF)
            store_slope<C, ERF>(t, sum, m, row, column, lane);
        else
            store_slope<C, TANH>(t, sum, m, row, column, lane);
    }
}

/* ---- any end ---------------------------------------------------------------
 */

/* 16 rows of sums in shared memory, PARTS times four columns: eight lanes have
 * a row, four rows at a time. All of them lie inside the result, so that what
 * is read can be asked for ahead, without a branch. */
template <int KIND, int PARTS>
BT_DEVICE void end_rows(const bt_gemm_end &e, const float4 *rows, int row,
                        int column, int lane)
{
    uint2 ahead[4], reads[4], bias_ahead = {}, bias;
    row += lane / 8;
    column += lane % 8 * 4;
    auto ask = [&](int c) {
        if (e.bias)
            bias_ahead = *(const uint2 *)(e.bias + column + c * 4);
#pragma unroll
        for (int x = 0; x < 4; x++)
            ahead[x] = end_read<KIND>(e, row + x * 4, column + c * 4, 4);
    };
    ask(0);
#pragma unroll 1
    for (int c = 0; c < PARTS; c += 8) {
        bias = bias_ahead;
#pragma unroll
        for (int x = 0; x < 4; x++)
            reads[x] = ahead[x];
        if (c + 8 < PARTS)
            ask(c + 8);
#pragma unroll
        for (int x = 0; x < 4; x++) {
            int in = lane / 8 + x * 4;
            float4 four = rows[in * PARTS + ((c + lane % 8) ^ in % 8)];
            float v[4] = { four.x, four.y, four.z, four.w };
            end_write<KIND>(e, v, bias, reads[x], row + x * 4, column + c * 4,
                            4);
        }
    }
}

/* The same at the result's edge. */
template <int KIND, int PARTS>
BT_DEVICE void end_edge(const bt_gemm_end &e, const float4 *rows, int row,
                        int column, int lane)
{
#pragma unroll 1
    for (int i = lane; i < 16 * PARTS; i += 32) {
        int in = i / PARTS, c = i % PARTS;
        int left = e.n - column - c * 4;
        float4 four = rows[in * PARTS + (c ^ in % 8)];
        float v[4] = { four.x, four.y, four.z, four.w };
        uint2 bias = {};
        if (left <= 0 || row + in >= e.m)
            continue;
        if (e.bias)
            bias = load_four(e.bias + column + c * 4, left);
        uint2 reads = end_read<KIND>(e, row + in, column + c * 4, left);
        end_write<KIND>(e, v, bias, reads, row + in, column + c * 4, left);
    }
}

template <int KIND, int PARTS>
BT_DEVICE void end_staged(const bt_gemm_end &e, const float4 *rows, int row,
                          int column, int lane)
{
    if (row + 16 <= e.m && column + PARTS * 4 <= e.n)
        end_rows<KIND, PARTS>(e, rows, row, column, lane);
    else
        end_edge<KIND, PARTS>(e, rows, row, column, lane);
}

/* With everything that an end may have. The sums go through shared memory, half
 * the columns at a time, so that lanes read and write memory in rows. 16-byte
 * parts of a row are permuted by XOR with the row. */
template <class C>
BT_DEVICE void store_any(const bt_gemm_task &t, const float *sum, uint8_t *out,
                         int row, int column, int lane)
{
    constexpr int HALF = C::COLUMNS / 2, PARTS = HALF / 4;
    constexpr int KIND = C::FORM == BT_GEMM_NT   ? KIND_ACT
                         : C::FORM == BT_GEMM_NN ? KIND_SLOPE
                                                 : KIND_NONE;
    float4 *rows = (float4 *)out;
    if (lane == 0)
        tma_store_wait_read();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int c = column + half * HALF;
        __syncwarp();
#pragma unroll
        for (int j = 0; j < HALF / 8; j++) {
            const float *v = &sum[(half * HALF / 8 + j) * 4];
            int in = lane / 4, part = (j * 2 + lane % 4 / 2) ^ in;
            float2 *at = (float2 *)&rows[in * PARTS + part] + lane % 2;
            at[0] = make_float2(v[0], v[1]);
            at[8 * PARTS * 2] = make_float2(v[2], v[3]);
        }
        __syncwarp();
        if (KIND == KIND_NONE || t.end.kind == KIND_NONE)
            end_staged<KIND_NONE, PARTS>(t.end, rows, row, c, lane);
        else if (t.end.kind == KIND + BT_ACT_RELU)
            end_staged<KIND + BT_ACT_RELU, PARTS>(t.end, rows, row, c, lane);
        else if (t.end.kind == KIND + BT_ACT_GELU_ERF)
            end_staged<KIND + BT_ACT_GELU_ERF, PARTS>(t.end, rows, row, c,
                                                      lane);
        else if (t.end.kind == KIND + BT_ACT_GELU_TANH)
            end_staged<KIND + BT_ACT_GELU_TANH, PARTS>(t.end, rows, row, c,
                                                       lane);
        else
            end_staged<KIND + BT_ACT_SILU, PARTS>(t.end, rows, row, c, lane);
    }
    __syncwarp();
}

/* 64 rows of a warpgroup, 16 of which are the warp's, from `in` on in the
 * tile. */
template <class C>
BT_DEVICE void finish(const bt_gemm_task &t, const unit &u, float *sum,
                      uint8_t *out, int in, int lane)
{
    const bt_gemm_end &e = t.end;
    int row = u.row * C::ROWS + in, column = u.column * C::COLUMNS;
    if (u.part >= 0 && !join_partial<C>(t, u, sum, in, lane))
        return;
    bool plain = !e.kind && !e.pre && !e.residual;
    if (plain && !e.out_f32 && (e.n % 8 == 0 || column + C::COLUMNS <= e.n))
        store_plain_bf16<C>(t, sum, out, row, column, lane);
    else if (plain && e.out_f32 && !e.bias && !e.accumulate && e.n % 2 == 0)
        store_plain_f32<C, false>(t, sum, row, column, lane);
    else if ((!C::PING || C::FORM == BT_GEMM_TN) && plain && e.out_f32 &&
             !e.bias && e.n % 2 == 0)
        store_plain_f32<C, true>(t, sum, row, column, lane);
    else
        store_any<C>(t, sum, out, row, column, lane);
}

/* ---- the consumers
 * ------------------------------------------------------------ */

/* Both warpgroups on a tile. The total begins at -0: the number that changes no
 * bit of what is added to it. */
template <class C>
BT_DEVICE void consume_together(const bt_gemm_task &t, const uint8_t *stages,
                                end_memory *m, uint64_t *full, uint64_t *empty)
{
    int group = threadIdx.x / WARPGROUP - 1;
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sum[1][C::SUMS], total[C::SUMS];
    stage_at s = { 0, 0 };
    unit u;
    for (int i = 0; unit_at(t, i, &u); i++) {
#pragma unroll
        for (int x = 0; x < C::SUMS; x++)
            total[x] = -0.0f;
        for (int chunk = u.chunk; chunk < u.end; chunk++) {
            multiply<C>(sum, chunk_steps(t, chunk), false, stages, full, empty,
                        &s, group, lane);
#pragma unroll
            for (int x = 0; x < C::SUMS; x++)
                total[x] = __fadd_rn(total[x], sum[0][x]);
        }
        finish<C>(t, u, total, m->tile, warp * 16, lane);
    }
}

/* Each on its own, in turns: the parity of a stage tells only one round of the
 * ring from the next, so none may run ahead. */
template <class C>
BT_DEVICE void consume_in_turns(const bt_gemm_task &t, const uint8_t *stages,
                                end_memory *m, uint64_t *full, uint64_t *empty)
{
    int group = threadIdx.x / WARPGROUP - 1;
    int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    float sum[C::BLOCKS][C::SUMS];
    stage_at s = { 0, 0 };
    unit u, next;
    for (int i = 0; unit_at(t, i, &u); i++) {
        int steps = chunk_steps(t, u.chunk);
        if (i % 2 != group) {
            stage_skip<C::STAGES>(&s, steps);
            continue;
        }
        bool more = unit_at(t, i + 1, &next);
        int row = u.row * C::ROWS + warp % 4 * 16;
        int column = u.column * C::COLUMNS;
        uint32_t bias[C::PANELS];
        if constexpr (C::END == END_ACT)
            bias_ask<C>(bias, t.end, column, lane);
        if constexpr (C::END == END_SLOPE)
            slope_begin<C>(t, m, row, column, lane);
        if (i)
            named_sync(TURN + group, 2 * WARPGROUP);
        multiply<C>(sum, steps, more, stages, full, empty, &s, group, lane);
        if constexpr (C::END != END_ANY)
            finish_staged<C>(t, sum, bias, m, row, column, lane);
        else
#pragma unroll
            for (int block = 0; block < C::BLOCKS; block++)
                finish<C>(t, u, sum[block], m->tile, warp % 4 * 16 + block * 64,
                          lane);
    }
}

template <class C>
__global__ void __launch_bounds__(LARGE_THREADS, 1)
    gemm_large(const __grid_constant__ bt_gemm_task t)
{
    extern __shared__ uint8_t memory[];
    uint8_t *stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
    uint8_t *out = stages + C::STAGES * C::STAGE_BYTES;
    uint64_t *full = (uint64_t *)(out + C::OUT_BYTES);
    uint64_t *empty = full + C::STAGES, *loaded = empty + C::STAGES;

    if (threadIdx.x == 0) {
        for (int i = 0; i < C::STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], C::USERS);
        }
        for (int i = 0; i < 8 * C::SLOTS; i++)
            barrier_init(&loaded[i], 1);
        barrier_init_done();
    }
    __syncthreads();
    launch_dependents(); // the merge, which waits for all of this
    if (threadIdx.x < WARPGROUP) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            produce<C>(t, stages, full, empty);
    } else {
        setmaxnreg_inc<240>();
        int warp = threadIdx.x / 32 - 4;
        end_memory m = { out + warp * C::WARP_BYTES, loaded + warp * C::SLOTS,
                         0 };
        if constexpr (C::PING)
            consume_in_turns<C>(t, stages, &m, full, empty);
        else
            consume_together<C>(t, stages, &m, full, empty);
        if (threadIdx.x % 32 == 0)
            tma_store_wait();
    }
}

template <class C>
static cudaError_t large_launch(const bt_gemm_task *task, cudaStream_t stream)
{
    return launch_kernel(gemm_large<C>, (unsigned)task->workers, LARGE_THREADS,
                         C::SHARED, BT_START_AFTER, stream, *task);
}

/* The kernel that ends as the task says. */
template <int FORM, int COLUMNS, bool PING>
static cudaError_t large_launch_any(const bt_gemm_task *task,
                                    cudaStream_t stream)
{
    if constexpr (PING && FORM != BT_GEMM_TN)
        if (task->staged)
            return task->end.slope
                       ? large_launch<large<FORM, COLUMNS, PING, END_SLOPE>>(
                             task, stream)
                       : large_launch<large<FORM, COLUMNS, PING, END_ACT>>(
                             task, stream);
    return large_launch<large<FORM, COLUMNS, PING>>(task, stream);
}

#endif
