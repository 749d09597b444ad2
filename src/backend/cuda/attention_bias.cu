/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bias.cu - anchors of rows, and the gradients of a table by distance
 * and of a tensor, in bfloat16.
 *
 * The gradient of a table needs the gradient dS of every score once more, by
 * distance. A kernel of its own makes it, by products of single warps: a block
 * takes 64 queries and one head, and goes over the blocks of 64 keys of the
 * list of dQ. Four warps have 16 queries each. The scores of a query and the
 * keys of a block have different distances, so a warp adds a row of dS to its
 * sums at once, without conflicts; beyond the ends of the table there is one
 * sum for many keys, and every lane has its own. Nothing depends on which block
 * of threads is faster.
 *
 * The gradient of a tensor is made in the same way, by blocks that each have a
 * part of its columns: queries that share a row of it meet in one block. */
#include "backend/cuda/bias_kernels.h"
#include "backend/cuda/bias_score.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/warp.h"

#include <cuda_runtime.h>

/* ---- anchors ------------------------------------------------------------ */

/* A block for each tile of the forward pass, whose rows have one origin. */
static __global__ void attention_anchors(const bt_work_tile *tiles,
                                         const uint32_t *positions,
                                         int first_key, int32_t *anchors)
{
    bt_work_tile tile = tiles[blockIdx.x];
    for (int i = threadIdx.x; i < tile.rows; i += blockDim.x) {
        int row = tile.row + i;
        anchors[row] =
            positions ? tile.key + (int)positions[row] : first_key + row;
    }
}

/* The same for a tensor: origins, and where row `row`, from key 0 on, is. */
static __global__ void attention_offsets(const bt_work_tile *tiles,
                                         const uint32_t *tensor_rows,
                                         uint32_t tensor_row, int32_t *origins,
                                         long long *offsets)
{
    bt_work_tile tile = tiles[blockIdx.x];
    for (int i = threadIdx.x; i < tile.rows; i += blockDim.x) {
        int row = tile.row + i;
        long long at = tensor_rows ? tensor_rows[row] : (uint32_t)row;
        origins[row] = tile.key;
        offsets[row] = at * tensor_row - tile.key;
    }
}

/* A table with the distances of a head one after the other, as the scores of a
 * warp need them. A thread for each element. */
static __global__ void attention_table_copy(const float *table, int heads,
                                            int distances, float *to)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (at < distances)
        to[(size_t)head * distances + at] = table[(size_t)at * heads + head];
}

/* In memory of the plan, for the kernels that follow. */
static cudaError_t copy_table(bt_cuda_bias *bias, bt_cuda_plan *plan,
                              cudaStream_t stream)
{
    unsigned heads = (unsigned)plan->heads, distances = bias->last + 1;
    size_t bytes = (size_t)heads * distances * sizeof(float);
    cudaError_t status = cudaSuccess;
    if (bytes > plan->table_copy_size) {
        cudaFree(plan->table_copy); // waits for those who use it
        plan->table_copy_size = 0;
        status = cudaMalloc(&plan->table_copy, bytes);
        if (status) {
            plan->table_copy = NULL;
            cudaGetLastError(); // reported by the caller
            return status;
        }
        plan->table_copy_size = bytes;
    }
    status = launch_kernel(attention_table_copy,
                           dim3((distances + 255) / 256, heads), 256, 0,
                           BT_START_AFTER, stream, bias->table, (int)heads,
                           (int)distances, (float *)plan->table_copy);
    bias->table = (const float *)plan->table_copy;
    bias->head_stride = distances;
    bias->row_stride = 1;
    return status;
}

/* A block of 64 threads for each step over queries. No anchors: the rows. */
static __global__ void attention_step_anchors(const bt_loop_step *steps,
                                              const int32_t *anchors,
                                              int32_t *to)
{
    bt_loop_step step = steps[blockIdx.x];
    int row = step.row + min((int)threadIdx.x, step.rows - 1);
    to[blockIdx.x * BT_STEP + threadIdx.x] = anchors ? anchors[row] : row;
}

extern "C" cudaError_t bt_cuda_launch_anchors(bt_cuda_bias *bias,
                                              bt_cuda_plan *plan, bool steps,
                                              cudaStream_t stream)
{
    unsigned tiles = (unsigned)(plan->tile_count + plan->empty_count);
    if (!bias->slopes && !bias->table)
        return cudaSuccess;
    bool tensor = bias->last < 0;
    if (tensor && !plan->offsets)
        return cudaSuccess; // a plan of pages, whose origins are 0
    cudaError_t status = cudaSuccess;
    if (bias->table && !tensor && plan->offsets)
        status = copy_table(bias, plan, stream);
    if (status)
        return status;
    if (tiles && tensor)
        status = launch_kernel(attention_offsets, tiles, 64, 0, BT_START_AFTER,
                               stream, plan->tiles, bias->tensor_rows,
                               bias->row_stride, plan->anchors, plan->offsets);
    else if (tiles)
        status = launch_kernel(attention_anchors, tiles, 64, 0, BT_START_AFTER,
                               stream, plan->tiles, bias->positions,
                               plan->first_key, plan->anchors);
    if (!status && steps && plan->step_count)
        status =
            launch_kernel(attention_step_anchors, (unsigned)plan->step_count,
                          BT_STEP, 0, BT_START_AFTER, stream, plan->steps,
                          tensor ? NULL : plan->anchors, plan->step_anchors);
    if (tensor)
        bias->offsets = plan->offsets;
    else
        bias->anchors = plan->anchors;
    return status;
}

/* ---- gradients of scores ------------------------------------------------ */

enum {
    TILE = 64,  /* queries, and keys */
    WARPS = 4,  /* in a block, of 16 queries each */
    BINS = 4096 /* distances whose sums are in shared memory */
};

/* Rows of a tensor in shared memory, columns after each other, with 8 more than
 * a row needs: rows then lie in different banks. Columns from head_dim on and
 * rows from `rows` on are 0. */
static __device__ void load_rows(uint16_t *to, int stride, const uint16_t *from,
                                 size_t token, int rows, int head_dim)
{
    int chunks = (stride - 8) / 8;
    for (int i = threadIdx.x; i < TILE * chunks; i += WARPS * 32) {
        int row = i / chunks, column = i % chunks * 8;
        uint4 eight = make_uint4(0, 0, 0, 0);
        if (row < rows && column < head_dim)
            eight = __ldg((const uint4 *)(from + row * token + column));
        *(uint4 *)(to + row * stride + column) = eight;
    }
}

/* x (16 rows, 64 columns) = a b^T, rows of `stride` elements in memory. */
static __device__ void multiply(float (*x)[4], const uint16_t *a,
                                const uint16_t *b, int stride)
{
    int lane = threadIdx.x % 32;
    uint32_t a_at = shared_address(a) + lane % 16 * stride * 2 + lane / 16 * 16;
    uint32_t b_at = shared_address(b) +
                    (lane / 16 * 8 + lane % 8) * stride * 2 + lane / 8 % 2 * 16;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
    for (int i = 0; i < (stride - 8) / 16; i++) {
        uint32_t fa[4], fb[4];
        ldmatrix_x4(fa, a_at + i * 32);
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            ldmatrix_x4(fb, b_at + i * 32 + j * 16 * stride * 2);
            mma_16816(x[2 * j], fa, fb);
            mma_16816(x[2 * j + 1], fa, fb + 2);
        }
    }
}

/* A warp's 16 rows. */
typedef struct dtable_rows {
    float lse[2], delta[2]; /* of the lane's rows g and g + 8; base 2 */
    int anchor[2];
    bool real[2];
    head_bias head;
    const float *tensor[2];
} dtable_rows;

/* `row` is the warp's first one of a block's `count` rows, from `first` on. */
template <bool TENSOR>
static __device__ void load_row_state(dtable_rows *to, const dtable_params *p,
                                      int head, int first, int row, int count)
{
    to->head = head_bias_of(&p->bias, head);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int at = row + threadIdx.x % 32 / 4 + r * 8;
        int mine = first + min(at, count - 1);
        size_t from = (size_t)mine * p->heads + head;
        float lse = __ldg(p->lse + from) * 1.44269504088896341f;
        to->real[r] = at < count;
        to->lse[r] = lse == -INFINITY ? INFINITY : lse;
        to->delta[r] = __ldg(p->delta + from);
        to->anchor[r] = TENSOR ? 0 : anchor_of(&p->bias, mine);
        to->tensor[r] = TENSOR ? tensor_row_of(&p->bias, mine, head) : NULL;
    }
}

/* Scores x and dP y of a block of keys become dS, in y. */
template <bool TENSOR>
static __device__ void make_ds(const bt_cuda_bias *b, const dtable_rows *r,
                               const float (*x)[4], float (*y)[4], int key,
                               const uint64_t *word)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) {
        int row = i / 2 % 2, column = i / 4 * 8 + t * 2 + i % 2;
        bool visible = r->real[row] && word[row] >> column & 1;
        float s = x[i / 4][i % 4];
        s = b->cap == 0.0f
                ? __fmul_rn(s, b->scale)
                : __fmul_rn(b->cap, tanh_fast(__fmul_rn(s, b->tanh_scale)));
        float more =
            TENSOR ? load_visible(r->tensor[row] + key + column, visible)
                   : table_bias(b, r->head, key + column - r->anchor[row]);
        s = __fmaf_rn(more, 1.44269504088896341f, s);
        float weight = exp2_fast(s - r->lse[row]);
        float *at = &y[i / 4][i % 4];
        *at = visible ? weight * (*at - r->delta[row]) : 0.0f;
    }
}

/* A warp's 16 x 64 dS as `rows` (16, 64 + 2) in shared memory. */
static __device__ void store_ds(const float (*y)[4], float *rows)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < TILE / 8; i++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            *(float2 *)(rows + (g + r * 8) * (TILE + 2) + i * 8 + t * 2) =
                make_float2(y[i][2 * r], y[i][2 * r + 1]);
}

/* ---- the gradient of a table -------------------------------------------- */

/* Add a warp's 16 x 64 dS, through `rows` (16, 64 + 2) in shared memory, to its
 * sums by distance. `ends`: the lane's sums for what is beyond the table. */
static __device__ void add_by_distance(const bt_cuda_bias *b,
                                       const float (*y)[4], float *rows,
                                       const int32_t *anchors, int key,
                                       float *bins, float *ends)
{
    int lane = threadIdx.x % 32;
    __syncwarp();
    store_ds(y, rows);
    __syncwarp();
    for (int r = 0; r < 16; r++) {
        int from = key - anchors[r] - b->first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int column = h * 32 + lane, at = from + column;
            float ds = rows[r * (TILE + 2) + column];
            if (at < 0)
                ends[0] += ds;
            else if (at > b->last)
                ends[1] += ds;
            else
                bins[at] += ds;
        }
        __syncwarp(); // the next row has these distances, in other lanes
    }
}

/* The lanes of a warp, each with its share of a sum. */
static __device__ float lanes_sum(float x)
{
    for (int i = 16; i; i /= 2)
        x += __shfl_xor_sync(~0u, x, i);
    return x;
}

static __global__ void __launch_bounds__(WARPS * 32)
    attention_dtable(const dtable_params p)
{
    extern __shared__ __align__(16) unsigned char memory[];
    const int stride = (p.head_dim + 15) / 16 * 16 + 8, size = TILE * stride;
    const int distances = p.bias.last + 1;
    uint16_t *q = (uint16_t *)memory, *dout = q + size, *k = dout + size,
             *v = k + size;
    float *rows = (float *)(v + size);
    int32_t *anchors = (int32_t *)(rows + WARPS * 16 * (TILE + 2));
    float *all_bins = (float *)(anchors + TILE);
    int head = blockIdx.y, kv_head = head / p.share, slot = blockIdx.x;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp * 16;
    size_t to = ((size_t)head * p.slots + slot) * distances;
    // Where they do not fit, the warps share those of the block, in turns.
    bool fits = distances <= BINS;
    float *bins = fits ? all_bins + warp * distances : p.sums + to;
    float ends[2] = { 0.0f, 0.0f };
    if (fits)
        for (int i = threadIdx.x; i < WARPS * distances; i += WARPS * 32)
            all_bins[i] = 0.0f;
    else
        for (int i = threadIdx.x; i < distances; i += WARPS * 32)
            bins[i] = 0.0f;

    for (int item = slot; item < p.tile_count * p.groups; item += p.slots) {
        bt_loop_tile tile = p.tiles[item / p.groups];
        int group = item % p.groups, first = tile.row + group * TILE;
        int count = min(tile.rows - group * TILE, TILE);
        if (count <= 0)
            continue; // the whole block
        __syncthreads();
        load_rows(q, stride, p.q + first * p.q_token + head * p.q_head,
                  p.q_token, count, p.head_dim);
        load_rows(dout, stride, p.dout + first * p.o_token + head * p.o_head,
                  p.o_token, count, p.head_dim);
        if (threadIdx.x < TILE)
            anchors[threadIdx.x] =
                anchor_of(&p.bias, first + min((int)threadIdx.x, count - 1));
        dtable_rows mine;
        load_row_state<false>(&mine, &p, head, first, row, count);
        bt_loop_run run = p.runs[tile.run];
        for (int left = tile.steps, next = tile.run + 1; left > 0; left--) {
            if (run.flags >> group & 1) {
                int key = run.row, keys = min(p.keys - key, TILE);
                uint64_t word[2] = { ~0ull, ~0ull };
                float x[TILE / 8][4], y[TILE / 8][4];
                if (run.flags >> (BT_STEP_PARTIAL + group) & 1)
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        word[r] = __ldg(p.bits +
                                        (size_t)run.bits * (p.groups * TILE) +
                                        group * TILE + row + lane / 4 + r * 8);
                __syncthreads(); // all have read the block before
                load_rows(k, stride, p.k + key * p.k_token + kv_head * p.k_head,
                          p.k_token, keys, p.head_dim);
                load_rows(v, stride, p.v + key * p.v_token + kv_head * p.v_head,
                          p.v_token, keys, p.head_dim);
                __syncthreads();
                multiply(x, q + row * stride, k, stride);
                multiply(y, dout + row * stride, v, stride);
                make_ds<false>(&p.bias, &mine, x, y, key, word);
                for (int w = 0; w < (fits ? 1 : WARPS); w++) {
                    if (fits || w == warp)
                        add_by_distance(&p.bias, y, rows + row * (TILE + 2),
                                        anchors + row, key, bins, ends);
                    if (!fits)
                        __syncthreads();
                }
            }
            run.row += TILE;
            run.bits += run.bits >= 0;
            if (--run.count == 0 && left > 1)
                run = p.runs[next++];
        }
    }
    // What is beyond the table, warp by warp, and then the sums of the warps.
    ends[0] = lanes_sum(ends[0]);
    ends[1] = lanes_sum(ends[1]);
    for (int w = 0; w < WARPS; w++) {
        __syncthreads();
        if (w == warp && lane == 0) {
            bins[0] += ends[0];
            bins[distances - 1] += ends[1];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; fits && i < distances; i += WARPS * 32) {
        float sum = all_bins[i];
        for (int w = 1; w < WARPS; w++)
            sum += all_bins[w * distances + i];
        p.sums[to + i] = sum;
    }
}

/* A thread for each element of the table. */
static __global__ void attention_dtable_sum(const dtable_params p)
{
    int distances = p.bias.last + 1;
    int at = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (at >= distances)
        return;
    double sum = 0.0;
    for (int i = 0; i < p.slots; i++)
        sum += (double)p.sums[((size_t)head * p.slots + i) * distances + at];
    p.dtable[(size_t)at * p.heads + head] += (float)sum;
}

extern "C" int bt_cuda_dtable_slots(int tile_count, int groups, int heads)
{
    return max(min(tile_count * groups, 2048 / heads), 1);
}

extern "C" cudaError_t bt_cuda_launch_dtable(const dtable_params *params,
                                             cudaStream_t stream)
{
    int distances = params->bias.last + 1;
    int stride = (params->head_dim + 15) / 16 * 16 + 8;
    int bytes = 4 * TILE * stride * 2 +
                (WARPS * 16 * (TILE + 2) + TILE) * (int)sizeof(float);
    if (distances <= BINS)
        bytes += WARPS * distances * (int)sizeof(float);
    dim3 blocks((unsigned)params->slots, (unsigned)params->heads);
    dim3 sums((unsigned)(distances + 255) / 256, (unsigned)params->heads);
    cudaError_t status =
        launch_kernel(attention_dtable, blocks, WARPS * 32, (size_t)bytes,
                      BT_START_AFTER, stream, *params);
    if (!status)
        status = launch_kernel(attention_dtable_sum, sums, 256, 0,
                               BT_START_AFTER, stream, *params);
    return status;
}

/* ---- the gradient of a tensor ------------------------------------------- */

/* The step of a tile that begins at a key: its flags, or 0 if there is none,
 * and the index of its bits. */
static __device__ int find_step(const bt_loop_run *runs, bt_loop_tile tile,
                                int key, int *bits)
{
    for (int i = tile.run; i < tile.run + tile.runs; i++) {
        bt_loop_run run = runs[i];
        int step = (key - run.row) / TILE;
        if (key < run.row || step >= run.count)
            continue;
        *bits = run.bits < 0 ? -1 : run.bits + step;
        return run.flags;
    }
    return 0;
}

/* Add 64 x 64 dS to the tensor: `to` has where each row is, with the first key
 * of the block, and `words` what it sees. Rows that follow each other in memory
 * are different ones, and all threads add at once. Otherwise a thread has a
 * column and adds the rows in order, those of one place together. */
static __device__ void add_to_tensor(const float *rows, float *const *to,
                                     const uint64_t *words, int count)
{
    int thread = threadIdx.x;
    bool after = thread + 1 >= count || to[thread] < to[thread + 1];
    if (__syncthreads_and(after)) {
        const int AT_ONCE = 8;
        for (int i = thread; i < TILE * TILE; i += AT_ONCE * WARPS * 32) {
            float old[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int row = (i + j * WARPS * 32) / TILE, column = i % TILE;
                if (words[row] >> column & 1)
                    old[j] = to[row][column];
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int row = (i + j * WARPS * 32) / TILE, column = i % TILE;
                if (words[row] >> column & 1)
                    to[row][column] = old[j] + rows[row * (TILE + 2) + column];
            }
        }
        return;
    }
    float sum = 0.0f, *at = NULL;
    for (int row = 0; thread < TILE && row < count; row++) {
        if (!(words[row] >> thread & 1))
            continue;
        if (to[row] != at && at)
            at[thread] += sum;
        sum = (to[row] != at ? 0.0f : sum) + rows[row * (TILE + 2) + thread];
        at = to[row];
    }
    if (at)
        at[thread] += sum;
}

/* dS of a tile of `count` queries, from `first` on, and of a block of keys, of
 * one head, is added to the warp's 16 x 64 of `sum`. */
static __device__ void add_head(const dtable_params *p, uint16_t *memory,
                                const uint64_t *words, int head, int first,
                                int count, int key, float (*sum)[4])
{
    const int stride = (p->head_dim + 15) / 16 * 16 + 8, size = TILE * stride;
    uint16_t *q = memory, *dout = q + size, *k = dout + size, *v = k + size;
    int kv_head = head / p->share, keys = min(p->keys - key, TILE);
    int row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4;
    load_rows(q, stride, p->q + first * p->q_token + head * p->q_head,
              p->q_token, count, p->head_dim);
    load_rows(dout, stride, p->dout + first * p->o_token + head * p->o_head,
              p->o_token, count, p->head_dim);
    load_rows(k, stride, p->k + key * p->k_token + kv_head * p->k_head,
              p->k_token, keys, p->head_dim);
    load_rows(v, stride, p->v + key * p->v_token + kv_head * p->v_head,
              p->v_token, keys, p->head_dim);
    dtable_rows mine;
    load_row_state<true>(&mine, p, head, first, row, count);
    __syncthreads();
    float x[TILE / 8][4], y[TILE / 8][4];
    uint64_t word[2] = { words[row + g], words[row + g + 8] };
    multiply(x, q + row * stride, k, stride);
    multiply(y, dout + row * stride, v, stride);
    make_ds<true>(&p->bias, &mine, x, y, key, word);
#pragma unroll
    for (int i = 0; i < TILE / 2; i++)
        sum[i / 4][i % 4] += y[i / 4][i % 4];
    __syncthreads(); // all have read the operands
}

static __global__ void __launch_bounds__(WARPS * 32)
    attention_dtensor(const dtable_params p)
{
    extern __shared__ __align__(16) unsigned char memory[];
    const int stride = (p.head_dim + 15) / 16 * 16 + 8;
    float *rows = (float *)((uint16_t *)memory + 4 * TILE * stride);
    __shared__ float *to[TILE];
    __shared__ uint64_t words[TILE];
    int row = threadIdx.x / 32 * 16, first_head = blockIdx.y;
    int last_head = p.bias.head_stride ? first_head : p.heads - 1;

    for (int item = 0; item < p.tile_count * p.groups; item++) {
        bt_loop_tile tile = p.tiles[item / p.groups];
        int group = item % p.groups, first = tile.row + group * TILE;
        int count = min(tile.rows - group * TILE, TILE), bits;
        if (count <= 0)
            continue; // the whole block, here and below
        int key = __ldg(p.origins + first) + (int)blockIdx.x * TILE;
        int flags = find_step(p.runs, tile, key, &bits);
        if (!(flags >> group & 1))
            continue;
        if (threadIdx.x < TILE) {
            int mine = first + min((int)threadIdx.x, count - 1);
            uint64_t word = ~0ull;
            if (flags >> (BT_STEP_PARTIAL + group) & 1)
                word = __ldg(p.bits + (size_t)bits * (p.groups * TILE) +
                             group * TILE + threadIdx.x);
            words[threadIdx.x] = threadIdx.x < count ? word : 0;
            to[threadIdx.x] =
                p.dtensor +
                (tensor_row_of(&p.bias, mine, first_head) - p.bias.table) + key;
        }
        float sum[TILE / 8][4] = {};
        for (int head = first_head; head <= last_head; head++)
            add_head(&p, (uint16_t *)memory, words, head, first, count, key,
                     sum);
        store_ds(sum, rows + row * (TILE + 2));
        __syncthreads();
        add_to_tensor(rows, to, words, count);
        __syncthreads(); // all have read what the next tile replaces
    }
}

extern "C" cudaError_t bt_cuda_launch_dtensor(const dtable_params *params,
                                              size_t extent,
                                              cudaStream_t stream)
{
    int stride = (params->head_dim + 15) / 16 * 16 + 8;
    int bytes =
        4 * TILE * stride * 2 + WARPS * 16 * (TILE + 2) * (int)sizeof(float);
    dim3 blocks((unsigned)((extent + TILE - 1) / TILE),
                params->bias.head_stride ? (unsigned)params->heads : 1);
    if (extent == 0)
        return cudaSuccess;
    return launch_kernel(attention_dtensor, blocks, WARPS * 32, (size_t)bytes,
                         BT_START_AFTER, stream, *params);
}
