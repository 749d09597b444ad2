/* SPDX-License-Identifier: Apache-2.0 */
/* attention_decode.cu - a few queries over a cache in pages, on Hopper, in
 * bfloat16.
 *
 * Decoding reads every visible key and value once and does little with them, so
 * all that counts is to keep the memory busy. A block of threads stays on its
 * multiprocessor, with nearly all of its shared memory as one ring of tiles,
 * and takes items (decode_list.h) until there are none:
 *
 *   one warp loads      tile by tile, items without a gap between them, as far
 *                       ahead as the ring reaches;
 *   four warps compute  each one tile of 64 keys of a quad, for all rows of the
 *                       unit, without a word to the others: scores, weights and
 *                       sums of values by products of 16 rows. Then all four
 *                       sum the quad, each thread four columns of some rows,
 *                       and climb the tree of the stretch. What an item came to
 *                       is the output, or goes to the GPU's memory;
 *   four warps gather   they tell that it is there, and where it was the last
 *                       item of a unit they add up the unit's.
 *
 * Whatever is asked for waits behind the tiles that are under way, and these
 * are few: more of them would not come faster, only later. What is read beside
 * them is asked for early: the list comes into the L2 when the grid starts, an
 * item while the one before it is loaded, its queries while its tiles are; and
 * those who compute wait for no answer at all.
 *
 * Bits. Every sum has its place in a tree that the row's keys alone define; see
 * decode_list.h. In the tree, what sees nothing is an exact no-op: its base is
 * -infinity, so its sums, which are 0, are added times 0.
 *
 * Nothing hidden is touched: scores of hidden keys become -infinity whatever
 * they were, and hidden values become 0 in the registers in which they go to
 * the tensor cores. Where the queries of a unit see different keys of a tile
 * its values are multiplied once for each query. */
extern "C" {
#include "base/error.h"
#include "kernels/cuda/decode.h"
}
#include "kernels/cuda/warp.h"

#include <cuda_runtime.h>
#include <math.h>

enum {
    TILE = 64,       /* keys */
    WARPS = BT_QUAD, /* that compute */
    READERS = WARPS * 32,
    THREADS = 3 * READERS, /* with those that gather, and the loader */
    ITEMS = 4,             /* that are known ahead */
    ENTRIES = 64,          /* that are looked at together */
    PANEL = 64,            /* columns of a swizzled panel */
    FLYING = 3,            /* tiles under way, of heads of 128 */
    BARRIER_QUAD = 1,
    BARRIER_GATHER = 2
};

typedef struct decode_params {
    CUtensorMap k, v;
    const bt_decode_item *items;
    const bt_decode_entry *entries;
    const uint64_t *bits;
    uint32_t *ticket, *arrivals;
    float *partial;
    float2 *partial_base;
    const uint16_t *q;
    uint16_t *out;
    float *lse;
    size_t q_token, q_head, out_token, out_head;
    int count; /* items times key heads */
    int lines; /* of 128 bytes, of the list: items, entries and bits */
    int heads, kv_heads, group, unit_rows;
    int page_shift; /* a page is 2^page_shift tiles */
    float scale;    /* times log2(e): scores become base-2 logarithms */
} decode_params;

/* What the loader tells the others about the item that it loads. */
typedef struct decode_work {
    bt_decode_item item; /* rows < 0: no more */
    int head;            /* key head */
} decode_work;

/* What a tile came to. In row r, column c is at c ^ bank_shift(r). */
template <int D, int ROWS> struct tile_result {
    float o[ROWS][D];
    float base[ROWS], sum[ROWS];
};

/* So that the rows of a warp's store lie in different banks. */
BT_DEVICE int bank_shift(int row)
{
    return row % 4 * 8;
}

template <int D, int ROWS, int STAGES> struct decode_shared {
    uint16_t k[STAGES][TILE * D];
    uint16_t v[STAGES][TILE * D];
    tile_result<D, ROWS> result[BT_QUAD];
    uint16_t q[ITEMS][ROWS][D + 8]; /* + 8: rows in different banks */
    decode_work work[ITEMS];
    uint64_t work_full[ITEMS], work_done[ITEMS], work_empty[ITEMS];
    uint64_t k_full[STAGES], k_empty[STAGES];
    uint64_t v_full[STAGES], v_empty[STAGES];
    uint64_t result_empty;
    bt_decode_entry entries[ENTRIES];
    int last; /* whether this block finished the last item of a unit */
};

/* A place in a ring of `count` buffers, and the parity of the round. */
typedef struct ring {
    int at;
    uint32_t parity;
} ring;

BT_DEVICE ring ring_ahead(ring r, int steps, int count)
{
    r.at += steps;
    if (r.at >= count) {
        r.at -= count;
        r.parity ^= 1;
    }
    return r;
}

/* One warp is done with a buffer. */
BT_DEVICE void done_with(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* ---- loading ----------------------------------------------------------- */

/* The loader's place in the ring of tiles. */
typedef struct loader {
    ring place;
    ring oldest; /* of the tiles that are under way */
    int flying;  /* how many those are, at most */
    uint64_t policy;
} loader;

template <int D, int ROWS, int STAGES>
BT_DEVICE void load_tile(const decode_params *p,
                         decode_shared<D, ROWS, STAGES> *s, loader *l, int head,
                         int block)
{
    const int most = FLYING * 128 / D; // tiles under way
    int page = block >> p->page_shift;
    int key = (block - (page << p->page_shift)) * TILE, at = l->place.at;

    if (l->flying == most) {
        barrier_wait(&s->v_full[l->oldest.at], l->oldest.parity);
        l->oldest = ring_ahead(l->oldest, 1, STAGES);
        l->flying--;
    }
    barrier_wait(&s->k_empty[at], l->place.parity ^ 1);
    barrier_arrive_expect(&s->k_full[at], sizeof(s->k[0]));
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_page(s->k[at] + panel * TILE * PANEL, &p->k, panel * PANEL, key,
                  head, page, &s->k_full[at], l->policy);
    barrier_wait(&s->v_empty[at], l->place.parity ^ 1);
    barrier_arrive_expect(&s->v_full[at], sizeof(s->v[0]));
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_page(s->v[at] + panel * TILE * PANEL, &p->v, panel * PANEL, key,
                  head, page, &s->v_full[at], l->policy);
    l->place = ring_ahead(l->place, 1, STAGES);
    l->flying++;
}

/* An item as the loader knows it: its first words lane by lane, and its tiles.
 */
typedef struct record {
    int index; /* the item and the head; from `count` on: there is none */
    int word;
    bt_decode_tile tile;
} record;

BT_DEVICE record fetch(const decode_params *p, int index)
{
    const int words = offsetof(bt_decode_item, tiles) / sizeof(int);
    int lane = threadIdx.x % 32;
    record r = { index, -1, { -1, -1 } };
    if (index < p->count) {
        const bt_decode_item *item = p->items + index / p->kv_heads;
        r.word = lane < words ? ((const int *)item)[lane] : 0;
        r.tile = item->tiles[lane];
    }
    return r;
}

/* Hand an item to the others, with its queries; one whose words are -1 is the
 * end. Query head h of query i is row i * group + h of the unit. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void tell(const decode_params *p, decode_shared<D, ROWS, STAGES> *s,
                    ring work, record r, int head)
{
    const int words = offsetof(bt_decode_item, tiles) / sizeof(int);
    int lane = threadIdx.x % 32, query = lane / p->group, at = work.at;
    int first = __shfl_sync(~0u, r.word, 0);
    int rows = max(__shfl_sync(~0u, r.word, 1), 0) * p->group;

    barrier_wait(&s->work_empty[at], work.parity ^ 1);
    if (lane < words)
        ((int *)&s->work[at].item)[lane] = r.word;
    s->work[at].item.tiles[lane] = r.tile;
    s->work[at].head = head;
    __syncwarp();
    if (lane == 0)
        barrier_arrive_expect(&s->work_full[at], rows * D * 2);
    __syncwarp();
    if (lane < rows)
        copy_bytes(s->q[at][lane],
                   p->q + (first + query) * p->q_token +
                       (head * p->group + lane - query * p->group) * p->q_head,
                   D * 2, &s->work_full[at]);
}

/* The block's share of the list comes into the L2. */
BT_DEVICE void prefetch_list(const decode_params *p)
{
    for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < p->lines;
         i += gridDim.x * 32)
        prefetch((const char *)p->items + (size_t)i * 128);
}

/* Have the tiles of an item loaded. The next item is drawn as late as its
 * arrival can still be hidden, for the sake of the balance, and is returned. */
template <int D, int ROWS, int STAGES>
BT_DEVICE record load_item(const decode_params *p,
                           decode_shared<D, ROWS, STAGES> *s, loader *l,
                           bt_decode_tile tile, int head)
{
    const int ahead = 1024 / D; // tiles: 256 KB
    int lane = threadIdx.x % 32;
    uint32_t todo = __ballot_sync(~0u, tile.block >= 0), drawn = 0;
    int left = __popc(todo), draw = min(left, ahead), ask = max(draw - 3, 1);
    record next = {};
    for (; left > 0; left--, todo &= todo - 1) {
        int block = __shfl_sync(~0u, tile.block, __ffs((int)todo) - 1);
        if (lane == 0 && left == draw)
            drawn = atomicAdd(p->ticket, 1);
        if (left == ask)
            next = fetch(p, gridDim.x + __shfl_sync(~0u, drawn, 0));
        if (lane == 0)
            load_tile(p, s, l, head, block);
    }
    if (draw == 0) { // a unit that sees nothing
        drawn = lane == 0 ? atomicAdd(p->ticket, 1) : 0;
        next = fetch(p, gridDim.x + __shfl_sync(~0u, drawn, 0));
    }
    return next;
}

/* One warp runs this, one lane of it loads. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void load_items(const decode_params *p,
                          decode_shared<D, ROWS, STAGES> *s)
{
    loader l = { {}, {}, 0, policy_once() };
    ring work = {};

    // The first item is the block's own; each next one is drawn.
    record r = fetch(p, blockIdx.x);
    prefetch_list(p);
    grid_wait(); // the list was there before, the rest is from now on
    while (r.index < p->count) {
        int head = r.index % p->kv_heads;
        tell(p, s, work, r, head);
        work = ring_ahead(work, 1, ITEMS);
        r = load_item(p, s, &l, r.tile, head);
    }
    tell(p, s, work, r, 0);
    // The last block to be done makes the ticket ready for the next launch.
    if (threadIdx.x % 32 == 0) {
        uint32_t last = gridDim.x - 1;
        __threadfence();
        if (atomicInc(p->ticket + 1, last) == last)
            p->ticket[0] = 0;
    }
}

/* ---- a tile ------------------------------------------------------------ */

/* x (16 rows, 64 keys) = q k^T. Of q, `rows` rows are there, D + 8 apart; what
 * the others come to is of no interest. */
template <int D>
BT_DEVICE void multiply_keys(float (*x)[4], const uint16_t *q, int rows,
                             const uint16_t *k)
{
    int lane = threadIdx.x % 32;
    uint32_t row = shared_address(k) + (lane / 16 * 8 + lane % 8) * (PANEL * 2);
    uint32_t query = shared_address(q) +
                     min(lane % 16, rows - 1) * (D + 8) * 2 + lane / 16 * 16;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = (i % 4 * 2 + lane / 8 % 2) ^ lane % 8;
        uint32_t at = row + i / 4 * (TILE * PANEL * 2) + chunk * 16, a[4];
        load_matrices(a, query + i * 32);
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            uint32_t b[4];
            load_matrices(b, at + j * (16 * PANEL * 2));
            product(x[2 * j], a, b);
            product(x[2 * j + 1], a, b + 2);
        }
    }
}

/* Two bits as a mask for two bf16. */
BT_DEVICE uint32_t spread(uint64_t bits)
{
    return (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
}

/* o (16 rows, D) = w v; with SOME, of the values in `word`. */
template <int D, int SOME>
BT_DEVICE void multiply_values(float (*o)[4], const uint32_t *w,
                               const uint16_t *v, uint64_t word)
{
    int lane = threadIdx.x % 32, t = lane % 4;
    uint32_t row =
        shared_address(v) + (lane / 8 % 2 * 8 + lane % 8) * (PANEL * 2);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < TILE / 16; i++) {
        uint32_t low = spread(word >> (16 * i + 2 * t));
        uint32_t high = spread(word >> (16 * i + 8 + 2 * t));
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            int chunk = (j % 4 * 2 + lane / 16) ^ lane % 8;
            uint32_t b[4];
            load_transposed(b, row + i * (16 * PANEL * 2) +
                                   j / 4 * (TILE * PANEL * 2) + chunk * 16);
            if (SOME) {
                b[0] &= low;
                b[1] &= high;
                b[2] &= low;
                b[3] &= high;
            }
            product(o[2 * j], w + 4 * i, b);
            product(o[2 * j + 1], w + 4 * i, b + 2);
        }
    }
}

/* Scores of hidden keys become -infinity, whatever they were. R: the second of
 * the thread's rows. */
template <int R> BT_DEVICE void hide(float (*x)[4], uint64_t word, int t)
{
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        uint32_t two = (uint32_t)(word >> (8 * j + 2 * t));
        x[j][2 * R] = two & 1 ? x[j][2 * R] : -INFINITY;
        x[j][2 * R + 1] = two & 2 ? x[j][2 * R + 1] : -INFINITY;
    }
}

/* Scores become weights, 2^(score - base), base being the largest. */
template <int R>
BT_DEVICE void soften(float (*x)[4], float scale, float *base, float *sum)
{
    float top = -INFINITY, all = 0.0f;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        top = fmaxf(top, fmaxf(x[j][2 * R], x[j][2 * R + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    *base = top * scale;
    // A row that sees nothing: weights 2^(-inf - 0) = 0.
    float from = *base == -INFINITY ? 0.0f : *base;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        float *two = &x[j][2 * R];
        two[0] = exp2_fast(fmaf(two[0], scale, -from));
        two[1] = exp2_fast(fmaf(two[1], scale, -from));
        all = __fadd_rn(all, __fadd_rn(two[0], two[1]));
    }
    all = __fadd_rn(all, __shfl_xor_sync(~0u, all, 1));
    *sum = __fadd_rn(all, __shfl_xor_sync(~0u, all, 2));
}

/* The thread's two rows of a tile's sums; `only`: that query's, or -1. */
template <int D, int ROWS>
BT_DEVICE void leave_sums(tile_result<D, ROWS> *to, const float (*o)[4],
                          const int *query, int only, int rows)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < (ROWS > 8 ? 2 : 1); r++) {
        if (only >= 0 ? query[r] != only : query[r] >= rows)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)&to->o[g + r * 8][(j * 8 ^ bank_shift(g)) + t * 2] =
                make_float2(o[j][2 * r], o[j][2 * r + 1]);
    }
}

/* One warp, one tile. `parity`: of the quads so far, whose results were read.
 */
template <int D, int ROWS, int STAGES>
BT_DEVICE void compute_tile(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s, ring place,
                            uint32_t parity, const bt_decode_item *item,
                            int bits, const uint16_t *q, const int *query)
{
    const int halves = ROWS > 8 ? 2 : 1;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    tile_result<D, ROWS> *result = &s->result[threadIdx.x / 32];
    const uint64_t *words = p->bits + (size_t)bits * p->unit_rows;
    uint64_t word[2] = { 0, 0 };
    float x[TILE / 8][4], o[D / 8][4], base[2], sum[2];
    uint32_t w[TILE / 4];

#pragma unroll
    for (int r = 0; r < halves; r++)
        if (bits >= 0 && query[r] < item->rows)
            word[r] = words[query[r]];
    barrier_wait(&s->k_full[place.at], place.parity);
    multiply_keys<D>(x, q, item->rows * p->group, s->k[place.at]);
    // The copy engine is not to overtake the loads: the products have them.
    product_hold<TILE / 2>(&x[0][0]);
    done_with(&s->k_empty[place.at]);
    if (bits >= 0) {
        hide<0>(x, word[0], t);
        if (halves == 2)
            hide<1>(x, word[1], t);
    }
    soften<0>(x, p->scale, &base[0], &sum[0]);
    if (halves == 2)
        soften<1>(x, p->scale, &base[1], &sum[1]);
#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        w[2 * i] = pack_bf16(x[i][0], x[i][1]);
        w[2 * i + 1] = halves == 2 ? pack_bf16(x[i][2], x[i][3]) : 0;
    }
    barrier_wait(&s->result_empty, parity ^ 1);
#pragma unroll
    for (int r = 0; r < halves; r++)
        if (t == 0 && g + r * 8 < ROWS) {
            result->base[g + r * 8] = base[r];
            result->sum[g + r * 8] = sum[r];
        }
    barrier_wait(&s->v_full[place.at], place.parity);
    if (bits < 0) {
        multiply_values<D, 0>(o, w, s->v[place.at], 0);
        leave_sums<D, ROWS>(result, o, query, -1, item->rows);
    } else {
#pragma unroll 1
        for (int i = 0; i < item->rows; i++) {
            multiply_values<D, 1>(o, w, s->v[place.at], words[i]);
            leave_sums<D, ROWS>(result, o, query, i, item->rows);
        }
    }
    done_with(&s->v_empty[place.at]);
}

/* ---- the tree ---------------------------------------------------------- */

/* A thread's four columns of a row, as far as it is summed. */
typedef struct part {
    float base, sum;
    float4 o;
} part;

BT_DEVICE part nothing(void)
{
    return part{ -INFINITY, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f) };
}

/* a + b * scale, rounded once. */
BT_DEVICE float4 add_scaled(float4 a, float4 b, float scale)
{
    return make_float4(__fmaf_rn(b.x, scale, a.x), __fmaf_rn(b.y, scale, a.y),
                       __fmaf_rn(b.z, scale, a.z), __fmaf_rn(b.w, scale, a.w));
}

/* Where nothing is seen any finite base will do. */
BT_DEVICE float finite_base(float base)
{
    return base == -INFINITY ? 0.0f : base;
}

/* a, and b behind it. */
BT_DEVICE part plus(part a, part b)
{
    part both = nothing();
    both.base = fmaxf(a.base, b.base);
    float from = finite_base(both.base);
    float keep = exp2_fast(a.base - from), take = exp2_fast(b.base - from);
    both.sum = __fmaf_rn(b.sum, take, __fmul_rn(a.sum, keep));
    both.o = add_scaled(add_scaled(both.o, a.o, keep), b.o, take);
    return both;
}

/* x is a node of a stretch's tree: quads [first, first + 2^level). Right
 * children are added to their left siblings, up to the level `top`; a left one
 * waits in `left`. */
template <int ITERS>
BT_DEVICE void climb(part *x, part (*left)[ITERS], int first, int level,
                     int top)
{
    bool on = true;
#pragma unroll
    for (int l = 0; l < BT_LEVELS; l++)
        if (on && l >= level && l < top) {
            on = first >> l & 1;
#pragma unroll
            for (int i = 0; i < ITERS; i++)
                if (on)
                    x[i] = plus(left[l][i], x[i]);
                else
                    left[l][i] = x[i];
        }
}

/* Which row of the unit, and which four columns, a thread sums: of those that
 * compute as of those that gather. */
template <int D> BT_DEVICE int row_of(int iteration)
{
    return iteration * (READERS / (D / 4)) + threadIdx.x % READERS / (D / 4);
}

template <int D> BT_DEVICE int column_of(void)
{
    return threadIdx.x % (D / 4) * 4;
}

/* The tiles of a quad that are `seen`. */
template <int D, int ROWS, int STAGES>
BT_DEVICE part sum_quad(const decode_shared<D, ROWS, STAGES> *s, uint32_t seen,
                        int row)
{
    const tile_result<D, ROWS> *tile = s->result;
    int column = column_of<D>() ^ bank_shift(row);
    part quad = nothing();
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        if (seen >> j & 1)
            quad.base = fmaxf(quad.base, tile[j].base[row]);
    float from = finite_base(quad.base);
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        if (seen >> j & 1) {
            float scale = exp2_fast(tile[j].base[row] - from);
            float4 o = *(const float4 *)&tile[j].o[row][column];
            quad.sum = __fmaf_rn(tile[j].sum[row], scale, quad.sum);
            quad.o = add_scaled(quad.o, o, scale);
        }
    return quad;
}

/* ---- results ----------------------------------------------------------- */

BT_DEVICE void store_output(const decode_params *p, const decode_work *work,
                            int row, int column, part x)
{
    int query = row / p->group;
    size_t token = work->item.row + query;
    size_t head = work->head * p->group + row - query * p->group;
    // A sum that is NaN is one of something.
    bool empty = x.base == -INFINITY && x.sum == 0.0f;
    float share = empty ? 0.0f : __frcp_rn(x.sum);
    uint2 four;
    // The fma turns -0 into 0, so that no sign tells what a hidden value's was.
    four.x = pack_bf16(fmaf(x.o.x, share, 0.0f), fmaf(x.o.y, share, 0.0f));
    four.y = pack_bf16(fmaf(x.o.z, share, 0.0f), fmaf(x.o.w, share, 0.0f));
    *(uint2 *)(p->out + token * p->out_token + head * p->out_head + column) =
        four;
    if (p->lse && column == 0)
        p->lse[token * p->heads + head] =
            empty ? -INFINITY
                  : (x.base + __log2f(x.sum)) * 0.693147180559945309f;
}

/* The row of a slot in `partial`. */
BT_DEVICE size_t partial_row(const decode_params *p, int slot, int head,
                             int row)
{
    return ((size_t)slot * p->kv_heads + head) * (p->unit_rows * p->group) +
           row;
}

/* The end of an item: its result is stored. */
template <int D, int ITERS>
BT_DEVICE void finish(const decode_params *p, const decode_work *work,
                      const part *x)
{
    int slot = work->item.slot, column = column_of<D>();
#pragma unroll
    for (int i = 0; i < ITERS; i++) {
        int row = row_of<D>(i);
        if (row >= work->item.rows * p->group)
            continue;
        if (slot < 0) {
            store_output(p, work, row, column, x[i]);
        } else {
            size_t at = partial_row(p, slot, work->head, row);
            *(float4 *)(p->partial + at * D + column) = x[i].o;
            if (column == 0)
                p->partial_base[at] = make_float2(x[i].base, x[i].sum);
        }
    }
}

/* ---- gathering --------------------------------------------------------- */

/* The unit's entries from `first` on, as many as are looked at together. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void load_entries(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s,
                            const bt_decode_item *item, int first)
{
    int thread = threadIdx.x % READERS;
    if (thread < ENTRIES && first + thread < item->entries)
        s->entries[thread] = p->entries[item->entry + first + thread];
}

/* climb() to the top of a stretch for one part, in a loop: this code runs
 * seldom, and long code is long in coming. Returns whether x is a stretch. */
BT_DEVICE bool climb_stretch(part *x, part *left, bt_decode_entry entry)
{
    int level = entry.level;
#pragma unroll 1
    for (; level < BT_LEVELS && entry.first >> level & 1; level++)
        *x = plus(level == 0 ? left[0] : level == 1 ? left[1] : left[2], *x);
#pragma unroll
    for (int l = 0; l < BT_LEVELS; l++)
        if (l == level)
            left[l] = *x;
    return level == BT_LEVELS;
}

/* All of a unit's tree above its items, for one row and four columns. The loads
 * ask for no condition, which would have each one wait for the one before: for
 * what is not wanted they read what is there. */
template <int D, int ROWS, int STAGES>
BT_DEVICE part sum_unit(const decode_params *p,
                        decode_shared<D, ROWS, STAGES> *s,
                        const decode_work *work, int row)
{
    const int ahead = 8; // entries that are under way together
    part total = nothing(), left[BT_LEVELS];
    int entries = work->item.entries;
#pragma unroll 1
    for (int e = 0; e < entries; e += ahead) {
        part x[ahead];
        if (e % ENTRIES == 0 && entries > ENTRIES) {
            named_sync(BARRIER_GATHER, READERS);
            load_entries(p, s, &work->item, e);
            named_sync(BARRIER_GATHER, READERS);
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            int at = min(e + i, entries - 1) % ENTRIES;
            size_t from =
                partial_row(p, max(s->entries[at].slot, 0), work->head, row);
            float2 base = __ldcg(&p->partial_base[from]);
            x[i].o = __ldcg(
                (const float4 *)(p->partial + from * D + column_of<D>()));
            x[i].base = base.x;
            x[i].sum = base.y;
        }
#pragma unroll
        for (int i = 0; i < ahead; i++)
            if (e + i < entries) {
                bt_decode_entry entry = s->entries[(e + i) % ENTRIES];
                if (entry.slot < 0)
                    x[i] = nothing();
                if (climb_stretch(&x[i], left, entry))
                    total = plus(total, x[i]);
            }
    }
    return total;
}

/* Whether it was the last item of its unit. Also brings its entries. */
template <int D, int ROWS, int STAGES>
BT_DEVICE bool was_last(const decode_params *p,
                        decode_shared<D, ROWS, STAGES> *s,
                        const decode_work *work)
{
    const bt_decode_item *item = &work->item;
    named_sync(BARRIER_GATHER, READERS); // all have seen the entries before
    load_entries(p, s, item, 0);
    if (threadIdx.x % READERS == 0) {
        // Counts round and round, and so is ready for the next launch.
        uint32_t last = item->parts - 1;
        s->last =
            count_round(p->arrivals + item->unit * p->kv_heads + work->head,
                        last) == last;
    }
    named_sync(BARRIER_GATHER, READERS);
    return s->last;
}

template <int D, int ROWS, int STAGES>
BT_DEVICE void gather_items(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s)
{
    ring at = {};
    grid_wait();
    for (;; at = ring_ahead(at, 1, ITEMS)) {
        const decode_work *work = &s->work[at.at];
        barrier_wait(&s->work_done[at.at], at.parity);
        int rows = work->item.rows * p->group;
        if (rows < 0)
            return;
        if (work->item.slot >= 0 && was_last(p, s, work))
#pragma unroll 1
            for (int i = 0; row_of<D>(i) - row_of<D>(0) < rows; i++) {
                int row = row_of<D>(i);
                part all = sum_unit(p, s, work, min(row, rows - 1));
                if (row < rows)
                    store_output(p, work, row, column_of<D>(), all);
            }
        done_with(&s->work_empty[at.at]);
    }
}

/* ---- computing --------------------------------------------------------- */

/* A quad: each warp its tile, then all of them its sum. Returns how many tiles
 * it took. */
template <int D, int ROWS, int STAGES, int ITERS>
BT_DEVICE int
compute_quad(const decode_params *p, decode_shared<D, ROWS, STAGES> *s,
             ring place, uint32_t *parity, const bt_decode_item *item, int quad,
             const uint16_t *q, const int *query, part *x)
{
    int warp = threadIdx.x / 32;
    const bt_decode_tile *tiles = item->tiles + quad * BT_QUAD;
    uint32_t seen = 0;
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        seen |= tiles[j].block >= 0 ? 1u << j : 0;
#pragma unroll
    for (int i = 0; i < ITERS; i++)
        x[i] = nothing();
    if (seen == 0)
        return 0;

    if (seen >> warp & 1)
        compute_tile<D, ROWS>(
            p, s, ring_ahead(place, __popc(seen & ((1u << warp) - 1)), STAGES),
            *parity, item, tiles[warp].bits, q, query);
    named_sync(BARRIER_QUAD, READERS);
#pragma unroll
    for (int i = 0; i < ITERS; i++)
        if (row_of<D>(i) < item->rows * p->group)
            x[i] = sum_quad(s, seen, row_of<D>(i));
    done_with(&s->result_empty);
    *parity ^= 1;
    return __popc(seen);
}

template <int D, int ROWS, int STAGES>
BT_DEVICE void compute_items(const decode_params *p,
                             decode_shared<D, ROWS, STAGES> *s)
{
    const int iters = ROWS * (D / 4) > READERS ? ROWS * (D / 4) / READERS : 1;
    int g = threadIdx.x % 32 / 4;
    int query[2] = { g / p->group, (g + 8) / p->group };
    ring at = {}, place = {};
    uint32_t parity = 0;

    grid_wait();
    for (;; at = ring_ahead(at, 1, ITEMS)) {
        const decode_work *work = &s->work[at.at];
        part x[iters], left[BT_LEVELS][iters];
        barrier_wait(&s->work_full[at.at], at.parity);
        if (work->item.rows < 0)
            break;
#pragma unroll 1
        for (int i = 0; i < 1 << work->item.level; i++) {
            int count = compute_quad<D, ROWS, STAGES, iters>(
                p, s, place, &parity, &work->item, i, s->q[at.at][0], query, x);
            place = ring_ahead(place, count, STAGES);
            climb<iters>(x, left, i, 0, work->item.level);
        }
        finish<D, iters>(p, work, x);
        done_with(&s->work_done[at.at]);
    }
    done_with(&s->work_done[at.at]);
}

template <int D, int ROWS, int STAGES>
__global__ void __launch_bounds__(THREADS, 1)
    attention_decode(const __grid_constant__ decode_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    decode_shared<D, ROWS, STAGES> *s =
        (decode_shared<D, ROWS, STAGES> *)memory;

    if (threadIdx.x == 0) {
        for (int i = 0; i < ITEMS; i++) {
            barrier_init(&s->work_full[i], 1);
            barrier_init(&s->work_done[i], WARPS);
            barrier_init(&s->work_empty[i], WARPS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->k_full[i], 1);
            barrier_init(&s->k_empty[i], 1);
            barrier_init(&s->v_full[i], 1);
            barrier_init(&s->v_empty[i], 1);
        }
        barrier_init(&s->result_empty, WARPS);
        barrier_init_done();
        tensor_map_prefetch(&p.k);
        tensor_map_prefetch(&p.v);
    }
    __syncthreads();
    grid_release();
    if (threadIdx.x < READERS) {
        registers_raise<240>();
        compute_items<D, ROWS, STAGES>(&p, s);
    } else if (threadIdx.x < 2 * READERS) {
        registers_lower<120>();
        gather_items<D, ROWS, STAGES>(&p, s);
    } else {
        registers_lower<56>();
        if (threadIdx.x < 2 * READERS + 32)
            load_items<D, ROWS, STAGES>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

/* Pages as the copy engine sees them: boxes of 64 keys of one head and page and
 * one panel of columns. */
static bauta_status encode(CUtensorMap *map, const bt_cuda_decode *decode,
                           const bt_cuda_pages *pages, const char *name,
                           const uint16_t *tensor, bauta_error *err)
{
    size_t d = decode->head_dim, token = or_dense(pages->token, d);
    size_t head = or_dense(pages->head, pages->page_keys * d);
    size_t page =
        or_dense(pages->page, decode->kv_heads * pages->page_keys * d);
    cuuint64_t sizes[4] = { d, pages->page_keys, decode->kv_heads,
                            pages->pages };
    cuuint64_t strides[3] = { token * 2, head * 2, page * 2 };
    cuuint32_t box[4] = { PANEL, TILE, 1, 1 };
    cuuint32_t steps[4] = { 1, 1, 1, 1 };

    if ((uintptr_t)tensor % 16 || token % 8 || head % 8 || page % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu, "
                       "%zu and %zu, be multiples of 8",
                       name, page, head, token);
    CUresult result = decode->device.tensor_map_encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)tensor, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s of %zu pages with strides %zu, %zu and %zu is "
                       "nothing for the GPU's copy engine (%d)",
                       name, pages->pages, page, head, token, (int)result);
    return BAUTA_OK;
}

template <int D, int ROWS, int STAGES>
static cudaError_t launch(const decode_params *params, int blocks,
                          cudaStream_t stream)
{
    const int bytes = sizeof(decode_shared<D, ROWS, STAGES>);
    cudaError_t status = cudaFuncSetAttribute(
        attention_decode<D, ROWS, STAGES>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    // It is brought up while what is before it still runs.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, attention_decode<D, ROWS, STAGES>,
                              *params);
}

static cudaError_t launch_for(const decode_params *p, size_t head_dim,
                              int blocks, cudaStream_t stream)
{
    int rows = p->unit_rows * p->group;
    if (head_dim == 128)
        return rows <= 4   ? launch<128, 4, 6>(p, blocks, stream)
               : rows <= 8 ? launch<128, 8, 6>(p, blocks, stream)
                           : launch<128, 16, 5>(p, blocks, stream);
    return rows <= 8 ? launch<64, 8, 13>(p, blocks, stream)
                     : launch<64, 16, 12>(p, blocks, stream);
}

static bauta_status check_call(const bt_cuda_decode *decode,
                               const bauta_attention *shape,
                               const bt_cuda_pages *pages, size_t kv_heads,
                               float scale, bauta_error *err)
{
    if (shape->heads != decode->heads || kv_heads != decode->kv_heads ||
        shape->head_dim != decode->head_dim ||
        (shape->value_dim && shape->value_dim != decode->head_dim))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step is for %zu heads, %zu kv_heads and head_dim "
                       "%zu; the shape has %zu, %zu and %zu",
                       decode->heads, decode->kv_heads, decode->head_dim,
                       shape->heads, kv_heads, shape->head_dim);
    if (pages->page_keys != decode->page_keys || pages->pages < decode->pages)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step reads page %zu of pages of %zu keys; there "
                       "are %zu of %zu",
                       decode->pages, decode->page_keys, pages->pages,
                       pages->page_keys);
    if (!(scale > 0.0f) || isinf(scale))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a scale of %g: the GPU kernels need a positive one",
                       (double)scale);
    return BAUTA_OK;
}

static bauta_status check_strides(const char *name, const void *tensor,
                                  size_t token, size_t head, bauta_error *err)
{
    if ((uintptr_t)tensor % 16 || token % 8 || head % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu "
                       "and %zu, be multiples of 8",
                       name, token, head);
    return BAUTA_OK;
}

extern "C" bauta_status
bt_attention_decode_bf16_cuda(bt_cuda_decode *decode,
                              const bauta_attention *shape, const uint16_t *q,
                              const bt_cuda_pages *pages, uint16_t *out,
                              float *lse, void *stream, bauta_error *err)
{
    size_t d = decode->head_dim, kv_heads = decode->kv_heads;
    float scale = shape->scale != 0.0f ? shape->scale : 1.0f / sqrtf((float)d);
    decode_params p = {};
    bauta_status status = check_call(
        decode, shape, pages, shape->kv_heads ? shape->kv_heads : shape->heads,
        scale, err);

    p.q_head = or_dense(shape->q_head, d);
    p.q_token = or_dense(shape->q_token, decode->heads * d);
    p.out_head = or_dense(shape->out_head, d);
    p.out_token = or_dense(shape->out_token, decode->heads * d);
    if (!status)
        status = check_strides("q", q, p.q_token, p.q_head, err);
    if (!status)
        status = check_strides("out", out, p.out_token, p.out_head, err);
    if (status || decode->item_count == 0)
        return status;
    // Rows that see nothing need no page, and the engine no empty tensor.
    if (decode->pages) {
        status = encode(&p.k, decode, pages, "k", pages->k, err);
        if (!status)
            status = encode(&p.v, decode, pages, "v", pages->v, err);
        if (status)
            return status;
    }
    p.items = decode->items;
    p.entries = decode->entries;
    p.bits = decode->bits;
    p.ticket = decode->ticket;
    p.arrivals = decode->arrivals;
    p.partial = decode->partial;
    p.partial_base = (float2 *)decode->partial_base;
    p.q = q;
    p.out = out;
    p.lse = lse;
    p.count = decode->item_count;
    p.lines = decode->list_lines;
    p.heads = (int)decode->heads;
    p.kv_heads = (int)kv_heads;
    p.group = (int)(decode->heads / kv_heads);
    p.unit_rows = (int)decode->unit_rows;
    for (size_t keys = TILE; keys < decode->page_keys; keys *= 2)
        p.page_shift++;
    p.scale = scale * 1.44269504088896341f;

    int blocks = min(p.count, decode->device.multiprocessors);
    cudaError_t result = launch_for(&p, d, blocks, (cudaStream_t)stream);
    if (result)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot launch the decoding kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
