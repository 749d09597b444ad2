/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_small.cu - products of up to 64 rows, as in decoding: every weight is
 * read once, so the copies must never pause.
 *
 * The operands change places: 64 rows of weights are the 64 rows of wgmma, and
 * the rows of a its 8 to 64 columns, so little is computed in vain. A block
 * has 64 weights' rows and some chunks of k; the blocks of a cluster have the
 * chunks of the same rows. One warp lets the copy engine fetch steps of k far
 * ahead, a warpgroup multiplies. Every block sends its sums to the blocks that
 * they belong to, which add them in the order of k, each some of the rows. So
 * no block waits for another one's stores, nor to be read before it ends. Where
 * the product ends with a gated activation, half of a tile's rows of weights
 * are those of the gate, so that gate and factor meet in one block.
 *
 * Where the kernel before this one lets it start early (programmatic dependent
 * launch), the first weights are fetched while that one still runs. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/gemm_hopper.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/warp.h"

#include <cuda_runtime_api.h>

enum {
    TILE = 64,   /* rows of weights */
    USERS = 128, /* threads that multiply */
    GROUP = 8,   /* rows of a that one block finishes */
    MOST_STAGES = 16,
    LEFT = 4,    /* steps to ask for when the next kernel may start */
    PACE = 1200, /* cycles between early stages of gated products */
    /* Of shared memory. Half of a multiprocessor's leaves the other half to the
     * next product's first weights. */
    HALF_BYTES = (228 << 10) / 2 - 1024,
    WHOLE_BYTES = 227 << 10
};

template <int ROWS> struct small {
    static constexpr int PANELS = ROWS > 32 ? 1 : 2; /* of 64 of k in a stage */
    static constexpr int STEP = PANELS * BT_GEMM_STEP;
    static constexpr int B_BYTES = PANELS * TILE * 128;
    static constexpr int STAGE = B_BYTES + PANELS * ROWS * 128;
};

/* With a gated end half of a tile's rows are those of the gate. */
template <int ROWS, int TB>
BT_DEVICE void load_weights(const bt_gemm_small_task &t, uint8_t *at,
                            uint64_t *full, int row, int k, uint64_t policy)
{
    barrier_arrive_expect(full, small<ROWS>::STAGE);
#pragma unroll
    for (int p = 0; p < small<ROWS>::PANELS; p++, k += BT_GEMM_STEP) {
        tma_load_matrix_by(at + p * TILE * 128, &t.b, TB ? row : k,
                           TB ? k : row, full, policy);
        if (!TB && t.gate.half)
            tma_load_matrix_by(at + p * TILE * 128 + TILE / 2 * 128, &t.b, k,
                               t.gate.half + row, full, policy);
    }
}

template <int ROWS>
BT_DEVICE void load_rows(const bt_gemm_small_task &t, uint8_t *at,
                         uint64_t *full, int k)
{
    at += small<ROWS>::B_BYTES;
#pragma unroll
    for (int p = 0; p < small<ROWS>::PANELS; p++)
        tma_load_matrix(at + p * ROWS * 128, &t.a, k + p * BT_GEMM_STEP, 0,
                        full);
}

template <int ROWS, int TB>
BT_DEVICE void fetch(const bt_gemm_small_task &t, uint8_t *stages,
                     uint64_t *full, uint64_t *empty, int row, int first,
                     int steps)
{
    using C = small<ROWS>;
    int early = min(steps, t.stages);
    uint64_t policy = policy_evict_first(); // weights are read once
    if (!t.b_ready)
        grid_dependency_wait();
    // These are so many that all at once would delay the kernel before.
    int pace = t.gate.half && t.b_ready ? PACE : 0;
    for (long long i = 0, start = clock64(); i < early; i++) {
        while (clock64() - start < i * pace)
            ;
        load_weights<ROWS, TB>(t, stages + i * C::STAGE, &full[i], row,
                               (first + (int)i) * C::STEP, policy);
    }
    if (t.b_ready)
        grid_dependency_wait();
    for (int i = 0; i < early; i++)
        load_rows<ROWS>(t, stages + i * C::STAGE, &full[i],
                        (first + i) * C::STEP);
    uint32_t parity = 0;
    for (int i = early, at = 0; i < steps; i++) {
        // Not before: weights of the kernels that follow would delay these.
        if (i + LEFT >= steps)
            launch_dependents();
        barrier_wait(&empty[at], parity);
        load_weights<ROWS, TB>(t, stages + at * C::STAGE, &full[at], row,
                               (first + i) * C::STEP, policy);
        load_rows<ROWS>(t, stages + at * C::STAGE, &full[at],
                        (first + i) * C::STEP);
        if (++at == t.stages) {
            at = 0;
            parity ^= 1;
        }
    }
    launch_dependents(); // where all steps were early
}

/* Queue the products of a stage; FIRST: sums start there. */
template <int ROWS, int TB, bool FIRST>
BT_DEVICE void multiply_stage(float *sum, uint64_t w, uint64_t x)
{
    constexpr int B_STEP = TB ? 16 * 128 : 32;
    wgmma_fence();
    wgmma<ROWS, TB, 0, FIRST>(sum, w, x);
#pragma unroll
    for (int k = 1; k < small<ROWS>::STEP / 16; k++)
        wgmma<ROWS, TB, 0, false>(
            sum, w + (k / 4 * TILE * 128 + k % 4 * B_STEP) / 16,
            x + (k / 4 * ROWS * 128 + k % 4 * 32) / 16);
    wgmma_commit();
}

BT_DEVICE void release(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* ---- sums ---------------------------------------------------------------- */

/* Where a block has the sums that were sent to it. Eight rows are a group, and
 * group g belongs to block g % blocks. Slot 0 has the sum of the first block's
 * chunks, the others follow chunk by chunk: (slots, groups, warps, 8 rows of
 * weights, pairs of rows), four floats each, as a thread's registers hold
 * them. */
template <int ROWS> struct sum_slots {
    int pairs, groups, slots;

    __host__ __device__ explicit sum_slots(const bt_gemm_small_task &t)
    {
        pairs = t.end.m < GROUP ? (t.end.m + 1) / 2 : GROUP / 2;
        groups = (ROWS / GROUP + t.blocks - 1) / t.blocks;
        slots = 1 + t.chunks - t.per;
    }
    /* Floats of a group. */
    __host__ __device__ int group() const
    {
        return pairs * 2 * TILE;
    }
    __host__ __device__ int bytes() const
    {
        return slots * groups * group() * 4;
    }
};

/* Bytes that are sent to a block. */
template <int ROWS>
BT_DEVICE uint32_t bytes_sent(const bt_gemm_small_task &t, int rank)
{
    int pairs = 0;
    for (int row = rank * GROUP; row < t.end.m; row += t.blocks * GROUP)
        pairs += min(GROUP / 2, (t.end.m - row + 1) / 2);
    return (uint32_t)(sum_slots<ROWS>(t).slots * pairs * 2 * TILE * 4);
}

/* Send sums to the blocks that they belong to. A block that is alone stores
 * them. */
template <int ROWS>
BT_DEVICE void send(const bt_gemm_small_task &t, const float *sum, float *sums,
                    uint64_t *received, int slot)
{
    sum_slots<ROWS> to(t);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, owner = 0;
    float *at = sums + slot * to.groups * to.group() +
                ((warp * 8 + lane / 4) * to.pairs + lane % 4) * 4;
#pragma unroll
    for (int g = 0; g < ROWS / GROUP; g++, sum += 4) {
        if (g * GROUP + lane % 4 * 2 >= t.end.m)
            continue;
        if (t.blocks == 1)
            *(float4 *)at = make_float4(sum[0], sum[1], sum[2], sum[3]);
        else
            cluster_store4(cluster_address(at, (uint32_t)owner), sum,
                           cluster_address(received, (uint32_t)owner));
        if (++owner == t.blocks) {
            owner = 0;
            at += to.group();
        }
    }
}

/* COUNT neighbouring totals of one of this block's rows, of which `local`
 * counts all. */
template <int ROWS, int COUNT>
BT_DEVICE void total(float *v, const bt_gemm_small_task &t, const float *sums,
                     int local, int in)
{
    sum_slots<ROWS> from(t);
    int step = from.pairs * 4, row = local % GROUP;
    const float *at = sums + local / GROUP * from.group() +
                      (in / 16 * 8 + in % 8) * step + row / 2 * 4 +
                      in % 16 / 8 * 2 + row % 2;
#pragma unroll
    for (int x = 0; x < COUNT; x++)
        v[x] = at[x * step];
    for (int c = 1; c < from.slots; c++) {
        at += from.groups * from.group();
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            v[x] = __fadd_rn(v[x], at[x * step]);
    }
}

template <int ROWS, int TB>
BT_DEVICE void multiply(const bt_gemm_small_task &t, uint8_t *stages,
                        uint64_t *full, uint64_t *empty, int chunk, int end,
                        float *sums, uint64_t *received)
{
    using C = small<ROWS>;
    constexpr int COUNT = ROWS / 2;
    float sum[COUNT], first[COUNT];
    int at = 0;
    uint32_t parity = 0;
    uint64_t w = tile_descriptor(stages, TILE * 128);
    uint64_t x = tile_descriptor(stages + C::B_BYTES, TILE * 128);

    for (int c = chunk; c < end; c++) {
        int steps = min(t.chunk_steps, t.steps - c * t.chunk_steps);
        int before = 0;
        for (int i = 0; i < steps; i++) {
            uint64_t offset = (uint64_t)(at * C::STAGE) >> 4;
            barrier_wait(&full[at], parity);
            if (i) {
                multiply_stage<ROWS, TB, false>(sum, w + offset, x + offset);
                wgmma_wait<1>();
                release(&empty[before]);
            } else {
                multiply_stage<ROWS, TB, true>(sum, w + offset, x + offset);
            }
            before = at;
            if (++at == t.stages) {
                at = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        wgmma_fence_operand<COUNT>(sum);
        release(&empty[before]);
        if (chunk) {
            send<ROWS>(t, sum, sums, received, 1 + c - t.per);
            continue;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            first[i] = c ? __fadd_rn(first[i], sum[i]) : sum[i];
    }
    if (!chunk)
        send<ROWS>(t, first, sums, received, 0);
}

/* ---- ends ---------------------------------------------------------------- */

/* A row of this block's. */
BT_DEVICE int row_of(const bt_gemm_small_task &t, int rank, int local)
{
    return (local / GROUP * t.blocks + rank) * GROUP + local % GROUP;
}

template <int ROWS>
BT_DEVICE void finish_gates(const bt_gemm_small_task &t, const float *sums,
                            int rank, int column)
{
    int gate = t.gate.gate_first ? 0 : TILE / 2;
    int local = threadIdx.x / (TILE / 8), in = threadIdx.x % (TILE / 8) * 4;
    for (int row; (row = row_of(t, rank, local)) < t.end.m;
         local += USERS / (TILE / 8)) {
        float x[4], by[4];
        total<ROWS, 4>(x, t, sums, local, in + gate);
        total<ROWS, 4>(by, t, sums, local, in + TILE / 2 - gate);
        gate_four(t.gate, t.end, make_float4(x[0], x[1], x[2], x[3]),
                  make_float4(by[0], by[1], by[2], by[3]), row, column + in);
    }
}

/* Whether totals are only rounded. Such ends are most of decoding. */
BT_DEVICE bool is_plain(const bt_gemm_end &e)
{
    return !e.bias && !e.pre && !e.kind && !e.residual && !e.out_f32 &&
           e.n % 4 == 0;
}

template <int ROWS>
BT_DEVICE void finish_plain(const bt_gemm_small_task &t, const float *sums,
                            int rank, int column)
{
    int local = threadIdx.x / (TILE / 4), in = threadIdx.x % (TILE / 4) * 4;
    if (column + in >= t.end.n)
        return;
    for (int row; (row = row_of(t, rank, local)) < t.end.m;
         local += USERS / (TILE / 4)) {
        float v[4];
        total<ROWS, 4>(v, t, sums, local, in);
        *(uint2 *)((uint16_t *)t.end.out + row * t.end.ldo + column + in) =
            make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
    }
}

template <int ROWS>
BT_DEVICE void finish(const bt_gemm_small_task &t, const float *sums, int rank,
                      int column)
{
    int local = threadIdx.x / (TILE / 2), in = threadIdx.x % (TILE / 2) * 2;
    if (column + in >= t.end.n)
        return;
#pragma unroll 1
    for (int row; (row = row_of(t, rank, local)) < t.end.m;
         local += USERS / (TILE / 2)) {
        float v[2];
        total<ROWS, 2>(v, t, sums, local, in);
        end_two(t.end, v, row, column + in);
    }
}

/* ---- the kernel ---------------------------------------------------------- */

/* Where things are in a block's shared memory. */
template <int ROWS> struct small_memory {
    uint8_t *stages;
    uint64_t *full, *empty; /* (stages) */
    uint64_t *received;     /* sums of all blocks */
    float *sums;
};

template <int ROWS>
BT_DEVICE small_memory<ROWS> memory_of(const bt_gemm_small_task &t,
                                       uint8_t *memory)
{
    small_memory<ROWS> s;
    s.stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
    s.full = (uint64_t *)(s.stages + t.stages * small<ROWS>::STAGE);
    s.empty = s.full + t.stages;
    s.received = s.empty + t.stages;
    s.sums = (float *)(s.received + 2);
    return s;
}

template <int ROWS>
BT_DEVICE void init(const bt_gemm_small_task &t, const small_memory<ROWS> &s,
                    int rank, int column)
{
    for (int i = 0; i < t.stages; i++) {
        barrier_init(&s.full[i], 1);
        barrier_init(&s.empty[i], USERS / 32);
    }
    barrier_init(s.received, 1);
    barrier_init_done();
    barrier_arrive_expect(s.received, bytes_sent<ROWS>(t, rank));
    // The end would wait for it: a weight, too, and seldom in the L2.
    if (t.end.bias)
        prefetch(t.end.bias + column);
}

template <int ROWS, int TB>
__global__ void __launch_bounds__(USERS + 32)
    gemm_small(const __grid_constant__ bt_gemm_small_task t)
{
    extern __shared__ uint8_t memory[];
    small_memory<ROWS> s = memory_of<ROWS>(t, memory);
    int rank = blockIdx.x % t.blocks, tile = blockIdx.x / t.blocks;
    int column = tile * (t.gate.half ? TILE / 2 : TILE);
    int chunk = min(rank * t.per, t.chunks);
    int end = min(chunk + t.per, t.chunks), first = chunk * t.chunk_steps;

    if (threadIdx.x == 0)
        init<ROWS>(t, s, rank, column);
    __syncthreads();
    if (t.blocks > 1)
        cluster_arrive();
    if (threadIdx.x == USERS)
        fetch<ROWS, TB>(t, s.stages, s.full, s.empty, column, first,
                        min(end * t.chunk_steps, t.steps) - first);
    __syncwarp();
    if (t.blocks > 1) // the barriers of all blocks are ready
        cluster_wait();
    if (threadIdx.x >= USERS)
        return;
    grid_dependency_wait();
    multiply<ROWS, TB>(t, s.stages, s.full, s.empty, chunk, end, s.sums,
                       s.received);
    if (t.blocks > 1 && rank * GROUP < t.end.m)
        barrier_wait(s.received, 0);
    else
        named_sync(1, USERS);
    if (t.gate.half)
        finish_gates<ROWS>(t, s.sums, rank, column);
    else if (is_plain(t.end))
        finish_plain<ROWS>(t, s.sums, rank, column);
    else
        finish<ROWS>(t, s.sums, rank, column);
}

/* ---- launches ------------------------------------------------------------ */

template <int ROWS, int TB>
static cudaError_t launch(const bt_gemm_small_task *t, void *stream)
{
    using C = small<ROWS>;
    int bytes =
        1024 + t->stages * (C::STAGE + 16) + 16 + sum_slots<ROWS>(*t).bytes();
    int tiles = (t->end.n + TILE - 1) / TILE;
    bt_cuda_kernel how = {};
    how.function = (const void *)gemm_small<ROWS, TB>;
    how.grid[0] = (unsigned)(tiles * t->blocks);
    how.grid[1] = how.grid[2] = 1;
    how.threads = USERS + 32;
    how.cluster = (unsigned)t->blocks;
    how.start = BT_START_EARLY;
    how.shared = (size_t)bytes;
    how.shared_limit = WHOLE_BYTES;
    return launch_values(how, stream, *t);
}

template <int ROWS>
static cudaError_t launch_form(bt_gemm_form form, const bt_gemm_small_task *t,
                               void *stream)
{
    return form == BT_GEMM_NT ? launch<ROWS, 0>(t, stream)
                              : launch<ROWS, 1>(t, stream);
}

extern "C" int bt_gemm_small(bt_gemm_form form, int rows,
                             const bt_gemm_small_task *task, void *stream)
{
    switch (rows) {
    case 8:
        return launch_form<8>(form, task, stream);
    case 16:
        return launch_form<16>(form, task, stream);
    case 32:
        return launch_form<32>(form, task, stream);
    default:
        return launch_form<64>(form, task, stream);
    }
}

template <int ROWS>
static int stages_of(const bt_gemm_small_task *t, bool whole)
{
    int left = (whole ? WHOLE_BYTES : HALF_BYTES) - 1024 - 16 -
               sum_slots<ROWS>(*t).bytes();
    int stages = left / (small<ROWS>::STAGE + 16);
    return stages < 3 ? 0 : stages > MOST_STAGES ? MOST_STAGES : stages;
}

extern "C" int bt_gemm_small_stages(int rows, const bt_gemm_small_task *task,
                                    bool whole)
{
    return rows == 8    ? stages_of<8>(task, whole)
           : rows == 16 ? stages_of<16>(task, whole)
           : rows == 32 ? stages_of<32>(task, whole)
                        : stages_of<64>(task, whole);
}

extern "C" int bt_gemm_small_step(int rows)
{
    return rows == 64 ? small<64>::STEP : small<32>::STEP;
}
