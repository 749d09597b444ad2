/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.cu - masked attention on Hopper, backward, bfloat16.
 *
 * With P the weights, dP = dO V^T and delta = rowsum(dO * O), all of them over
 * the visible pairs alone:
 *
 *     dS = P * (dP - delta)
 *     dV = P^T dO      dK = scale dS^T Q      dQ = scale dS K
 *
 * The sums over queries (dK, dV) and those over keys (dQ) run across each
 * other: a kernel that makes both must add one of them up in memory, in an
 * order that it has to enforce. Here each has a kernel of its own, which makes
 * P and dS again. That is seven products instead of five; but every sum stays
 * in registers and has one order, nothing is exchanged, and no kernel waits for
 * another block. backward_fused.h does make both, in five (with large heads
 * backward_fused_large.h). It is faster where documents are long and dense,
 * slower elsewhere, and has bits of its own. So which documents are dense
 * follows from their masks alone (see cuda.h), and a plan may have documents of
 * both kinds.
 *
 * The two are the same program. A tile of rows of one side is stationary, and
 * the other side is streamed in steps of 64 rows (see loop_list.h):
 *
 *                        stationary   streamed   sums
 *     dQ                 Q, dO        K, V       dS K
 *     dK, dV (KEYS)      K, V         Q, dO      dS^T Q, P^T dO
 *
 *     x = stationary[0] streamed[0]^T       scores, then weights P
 *     y = stationary[1] streamed[1]^T       dP, then dS
 *     sum[0] += dS streamed[0]
 *     sum[1] += P streamed[1]               KEYS only
 *
 * An item of work is a tile and a head (of K, V: a head with all the query
 * heads that share it, one after the other). Blocks stay on their
 * multiprocessor and take items until there are none. One warpgroup loads: two
 * of its threads have the copy engine fetch the steps through a ring, a third
 * one the stationary tiles. GROUPS compute, each of them with 64 rows of the
 * tile. The products of x and y are issued after the last sum of the previous
 * step, so the tensor cores have work while a group exponentiates.
 *
 *       thread, in a group of 128: warp w, lane 4 * g + t (g < 8, t < 4)
 *       owns rows 16 * w + g and 16 * w + g + 8 of its group
 *       and of each 8 rows of a step those at 2 * t and 2 * t + 1
 *
 * Bits. A sum's arithmetic is a function of its row and of the steps that the
 * row sees something of; a step that is hidden from it but visited for the
 * tile's sake adds exact zeros.
 *
 * Nothing hidden is touched, but the tensor cores would: 0 * NaN is NaN. Where
 * a row of a step is not finite, every row of the tile gets NaN, also those
 * that do not see it. That is never missed: a group notes items in which a
 * result is not finite, and a second kernel (FIXUP) recomputes those. It
 * replaces what is not finite in a step by 0, and makes the weights of that row
 * NaN for those who see it. */
#include "backend/cuda/backward_fused_launch.h"
#include "backend/cuda/backward_kernel.h"
#include "backend/cuda/bias_kernels.h"

/* ---- launching --------------------------------------------------------- */

/* A kernel for dQ and one for dK and dV, and one for what is not finite in
 * either; a side without rows has none. */
template <int D, int GROUPS, int QUERY_STAGES, int KEY_STAGES, int BIAS>
static cudaError_t launch_two(const delta_params *delta, size_t steps,
                              const backward_params *dq, int dq_blocks,
                              const backward_params *dkv, int dkv_blocks,
                              cudaStream_t stream)
{
    bool early = false;
    cudaError_t status = cudaSuccess;
    if (steps) {
        status = bt_launch_delta(delta, D, steps, stream);
        early = true;
    }
    if (!status && dq_blocks) {
        status = launch<D, GROUPS, QUERY_STAGES, 0, BIAS>(dq, dq_blocks, early,
                                                          stream);
        early = true;
    }
    if (!status && dkv_blocks) {
        status = launch<D, GROUPS, KEY_STAGES, 1, BIAS>(dkv, dkv_blocks, early,
                                                        stream);
        early = true;
    }
    if (!status && (dq_blocks || dkv_blocks))
        status = launch_fixup<D, GROUPS, QUERY_STAGES, KEY_STAGES, BIAS>(
            dq, dkv, max(max(dq_blocks, dkv_blocks), 2), stream);
    return status;
}

template <int BIAS>
static cudaError_t launch_width(size_t width, const delta_params *delta,
                                size_t steps, const backward_params *dq,
                                int dq_blocks, const backward_params *dkv,
                                int dkv_blocks, cudaStream_t stream)
{
    return width == 128
               ? launch_two<128, 2, 4, 3, BIAS>(delta, steps, dq, dq_blocks,
                                                dkv, dkv_blocks, stream)
               : launch_two<64, 3, 6, 6, BIAS>(delta, steps, dq, dq_blocks, dkv,
                                               dkv_blocks, stream);
}

static cudaError_t launch_all(size_t width, bt_bias_kind bias,
                              const delta_params *delta, size_t steps,
                              const backward_params *dq, int dq_blocks,
                              const backward_params *dkv, int dkv_blocks,
                              cudaStream_t stream)
{
    if (width > 128)
        return bt_launch_backward_large_head(delta, (int)width, steps, dq,
                                             dq_blocks, dkv, dkv_blocks, bias,
                                             stream);
    if (bias == BT_BIAS_TENSOR)
        return launch_width<BIASED | TENSOR>(width, delta, steps, dq, dq_blocks,
                                             dkv, dkv_blocks, stream);
    return bias ? launch_width<BIASED>(width, delta, steps, dq, dq_blocks, dkv,
                                       dkv_blocks, stream)
                : launch_width<0>(width, delta, steps, dq, dq_blocks, dkv,
                                  dkv_blocks, stream);
}

static cudaError_t launch_dense(size_t width, const backward_params *p,
                                int blocks, const finish_params *f,
                                int finish_blocks, cudaStream_t stream)
{
    if (width > 128)
        return bt_launch_backward_fused_large((int)width, p, blocks, f,
                                              finish_blocks, stream);
    return width == 128 ? launch_one<128>(p, blocks, f, finish_blocks, stream)
                        : launch_one<64>(p, blocks, f, finish_blocks, stream);
}

/* ---- softcap and bias --------------------------------------------------- */

static bauta_status begin_biased(backward_params *dq, backward_params *dkv,
                                 const bt_cuda_plan *plan,
                                 const bauta_attention_shape *shape,
                                 bauta_error *err)
{
    if (plan->dense_step_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan was made for attention without a softcap or a "
                       "bias");
    dkv->step_anchors = plan->step_anchors;
    const bauta_attention_bias *bias = shape->bias;
    size_t extent = bias->dtensor ? bt_cuda_plan_extent(plan) : 0;
    if (bias->tensor_row && bias->tensor_row < extent)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "rows of dtensor are %zu apart and have up to %zu "
                       "elements; on a GPU they must not overlap",
                       bias->tensor_row, extent);
    return bt_cuda_bias_init(&dq->bias, shape, dq->scale, err);
}

/* The gradient of the tensor is added to dtensor. */
static bauta_status sum_dtensor(dtable_params *p, const bt_cuda_plan *plan,
                                cudaStream_t stream, bauta_error *err)
{
    p->groups = (int)(bt_cuda_backward_rows(plan->head_dim) / GROUP_ROWS);
    p->origins = plan->anchors;
    cudaError_t status =
        bt_cuda_launch_dtensor(p, bt_cuda_plan_extent(plan), stream);
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the gradient of a bias tensor: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

/* The gradient of the table is added to dtable, through sums that the plan
 * keeps room for. */
static bauta_status sum_dtable(dtable_params *p, bt_cuda_plan *plan,
                               cudaStream_t stream, bauta_error *err)
{
    p->groups = (int)(bt_cuda_backward_rows(plan->head_dim) / GROUP_ROWS);
    p->slots = bt_cuda_dtable_slots(p->tile_count, p->groups, p->heads);
    size_t bytes = (size_t)p->heads * p->slots * (size_t)(p->bias.last + 1) *
                   sizeof(float);
    cudaError_t status = cudaSuccess;
    if (bytes > plan->table_sums_size) {
        cudaFree(plan->table_sums); // waits for those who use it
        plan->table_sums = NULL;
        plan->table_sums_size = 0;
        status = cudaMalloc(&plan->table_sums, bytes);
        if (status) {
            plan->table_sums = NULL;
            cudaGetLastError(); // reported here
            return bt_fail(err, bt_cuda_status(status),
                           "%zu bytes on the GPU: %s", bytes,
                           cudaGetErrorString(status));
        }
        plan->table_sums_size = bytes;
    }
    p->sums = (float *)plan->table_sums;
    status = bt_cuda_launch_dtable(p, stream);
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the gradient of a table: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

/* ---- all of it ---------------------------------------------------------- */

/* A tensor of the backward pass and how it lies. */
typedef struct tensor {
    const char *name;
    const uint16_t *at;
    size_t tokens, heads, token, head;
} tensor;

static bauta_status encode_tensor(CUtensorMap *map, const bt_cuda_plan *plan,
                                  const tensor *x, size_t rows,
                                  bauta_error *err)
{
    // The engine knows no empty tensor; nothing will be read of this one.
    if (!x->tokens)
        return BAUTA_OK;
    return encode(map, plan, x->name, x->at, x->tokens, x->heads, x->token,
                  x->head, rows, err);
}

/* One side's kernel: its stationary and streamed operands, and its results. */
static bauta_status fill_params(backward_params *p, const bt_cuda_plan *plan,
                                const bt_cuda_loop_list *side,
                                const tensor *const *stationary,
                                const tensor *const *streamed,
                                const tensor *const *made, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = encode_tensor(&p->stationary[i], plan, stationary[i],
                               GROUP_ROWS, err);
        if (!status)
            status =
                encode_tensor(&p->streamed[i], plan, streamed[i], STEP, err);
        if (!status && made[i])
            status = encode_tensor(&p->grad[i], plan, made[i], 16, err);
        if (made[i]) {
            p->to[i] = (uint16_t *)made[i]->at;
            p->to_token[i] = made[i]->token;
            p->to_head[i] = made[i]->head;
        }
    }
    p->tiles = side->tiles;
    p->runs = side->runs;
    p->bits = side->bits;
    p->tile_counter = side->tile_counter;
    p->nonfinite_fixup = side->nonfinite_fixup;
    p->steps = (int)plan->step_count;
    p->tile_count = side->tile_count;
    p->empty_count = side->empty_count;
    p->heads = (int)stationary[0]->heads;
    p->l2_heads = side->l2_heads;
    p->items = side->tile_count * p->heads;
    return status;
}

static int blocks_of(const backward_params *p, const bt_cuda_plan *plan)
{
    return min(p->items + p->empty_count * p->heads, plan->multiprocessors);
}

/* The same for dense documents: with large heads, two blocks share an item. */
static int dense_blocks(const backward_params *p, const bt_cuda_plan *plan)
{
    int each = bt_cuda_width(plan->head_dim) > 128 ? 2 : 1;
    return each * min(p->items, plan->multiprocessors / each);
}

extern "C" bauta_status bt_attention_backward_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention_shape *shape, const uint16_t *q,
    const uint16_t *k, const uint16_t *v, const uint16_t *out, const float *lse,
    const uint16_t *dout, uint16_t *dq, uint16_t *dk, uint16_t *dv,
    void *stream, bauta_error *err)
{
    float scale;
    bauta_status status = bt_cuda_plan_fits(plan, shape, &scale, err);
    if (!status)
        status = bt_cuda_plan_complete(plan, stream, err);
    if (status)
        return status;
    if (!plan->backward_memory)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan was made for the forward pass alone");

    size_t d = plan->head_dim, heads = plan->heads, kv_heads = plan->kv_heads;
    size_t rows = plan->rows, keys = plan->keys;
    size_t q_token = or_dense(shape->q_token, heads * d);
    size_t q_head = or_dense(shape->q_head, d);
    size_t k_token = or_dense(shape->k_token, kv_heads * d);
    size_t k_head = or_dense(shape->k_head, d);
    size_t v_token = or_dense(shape->v_token, kv_heads * d);
    size_t v_head = or_dense(shape->v_head, d);
    size_t out_token = or_dense(shape->out_token, heads * d);
    size_t out_head = or_dense(shape->out_head, d);
    tensor tq = { "q", q, rows, heads, q_token, q_head };
    tensor tk = { "k", k, keys, kv_heads, k_token, k_head };
    tensor tv = { "v", v, keys, kv_heads, v_token, v_head };
    tensor tdo = { "dout", dout, rows, heads, out_token, out_head };
    tensor to = { "out", out, rows, heads, out_token, out_head };
    tensor tdq = { "dq", dq, rows, heads, q_token, q_head };
    tensor tdk = { "dk", dk, keys, kv_heads, k_token, k_head };
    tensor tdv = { "dv", dv, keys, kv_heads, v_token, v_head };
    const tensor *queries[] = { &tq, &tdo }, *values[] = { &tk, &tv };
    const tensor *made_q[] = { &tdq, NULL }, *made_kv[] = { &tdk, &tdv };
    backward_params p = {}, p_kv = {}, p_dense = {};

    if ((uintptr_t)out % 16)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "out must be aligned to 16 bytes");
    status =
        fill_params(&p, plan, &plan->over_keys, queries, values, made_q, err);
    if (!status)
        status = encode_tensor(&p.out, plan, &to, GROUP_ROWS, err);
    if (!status)
        status = fill_params(&p_kv, plan, &plan->over_queries, values, queries,
                             made_kv, err);
    if (!status)
        status = fill_params(&p_dense, plan, &plan->dense, values, queries,
                             made_kv, err);
    if (status)
        return status;
    int group = (int)(heads / kv_heads);
    p.lse = lse;
    p.delta = plan->delta;
    p.row_stats = p_kv.row_stats = p_dense.row_stats =
        (step_stats *)plan->row_stats;
    p.step_list = plan->steps;
    p.inner = p_kv.share = p_dense.share = 1;
    p.share = p_kv.inner = p_dense.inner = group;
    p.scale = p_kv.scale = p_dense.scale = scale;
    p.head_dim = p_kv.head_dim = p_dense.head_dim = (int)d;
    p_dense.ranks = plan->ranks;
    p_dense.added = plan->added;
    p_dense.dq_sum = plan->dq_sum;
    p_dense.bad = plan->bad;
    p_dense.ranges[0] = plan->ranges[0];
    p_dense.ranges[1] = plan->ranges[1];
    p_dense.items =
        plan->ranges[1].item + plan->ranges[1].tile_count * (int)heads;
    p_dense.met = plan->met;
    p_dense.head_sums = plan->head_sums;
    delta_params delta = { out,         dout,
                           lse,         plan->steps,
                           plan->delta, (step_stats *)plan->row_stats,
                           plan->bad,   out_token,
                           out_head,    (int)heads,
                           (int)d,      (int)kv_heads };
    finish_params finish = { plan->dq_sum,
                             plan->steps,
                             plan->gaps,
                             plan->dense_steps,
                             plan->step_visits,
                             plan->added,
                             plan->bad,
                             plan->dense.tile_counter,
                             dq,
                             q_token,
                             q_head,
                             (int)heads,
                             group,
                             (int)plan->step_count,
                             (int)plan->dense_step_count,
                             (int)(plan->dense_step_count + plan->gap_count),
                             (int)d,
                             p_dense.items,
                             scale };
    int blocks = blocks_of(&p, plan), blocks_kv = blocks_of(&p_kv, plan);
    size_t steps = plan->step_count, width = bt_cuda_width(d);
    int finish_blocks =
        min(finish.task_count * finish.heads, plan->multiprocessors * 8);
    bt_bias_kind bias = bt_cuda_bias_kind(shape);
    cudaError_t result = cudaSuccess;
    if (bias) {
        status = begin_biased(&p, &p_kv, plan, shape, err);
        if (status)
            return status;
        result =
            bt_cuda_launch_anchors(&p.bias, plan, true, (cudaStream_t)stream);
        p_kv.bias = p.bias;
    }
    // Without biases the kernel of dQ makes delta, but not for dense documents.
    if (!bias && width <= 128 && !plan->dense_step_count)
        steps = 0;
    if (!result)
        result = launch_all(width, bias, &delta, steps, &p, blocks, &p_kv,
                            blocks_kv, (cudaStream_t)stream);
    bool wanted = bias && (shape->bias->dtable || shape->bias->dtensor);
    if (!result && wanted && p.items) {
        dtable_params table = {};
        table.bias = p.bias;
        table.tiles = p.tiles;
        table.runs = p.runs;
        table.bits = p.bits;
        table.lse = lse;
        table.delta = p.delta;
        table.q = q;
        table.k = k;
        table.v = v;
        table.dout = dout;
        table.q_token = q_token;
        table.q_head = q_head;
        table.k_token = k_token;
        table.k_head = k_head;
        table.v_token = v_token;
        table.v_head = v_head;
        table.o_token = out_token;
        table.o_head = out_head;
        table.dtable = shape->bias->dtable;
        table.dtensor = shape->bias->dtensor;
        table.tile_count = p.tile_count;
        table.keys = (int)keys;
        table.heads = (int)heads;
        table.share = group;
        table.head_dim = (int)d;
        status = table.dtensor
                     ? sum_dtensor(&table, plan, (cudaStream_t)stream, err)
                     : sum_dtable(&table, plan, (cudaStream_t)stream, err);
        if (status)
            return status;
    }
    if (!result && plan->dense_step_count)
        result = launch_dense(width, &p_dense, dense_blocks(&p_dense, plan),
                              &finish, finish_blocks, (cudaStream_t)stream);
    if (result)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch the attention kernels: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
