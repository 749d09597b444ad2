/* SPDX-License-Identifier: Apache-2.0 */
/* attention_forward.cu - masked attention on Hopper, forward, bfloat16.
 *
 * An item of work is one tile of queries and one head. A block of threads
 * stays on its multiprocessor and takes items until there are none:
 *
 *   one warpgroup loads    one of its threads has the copy engine fetch the
 *                          tile's queries, then K and V by pairs of blocks
 *                          (128 keys) through rings of shared memory, and with
 *                          a partial pair its bits;
 *   GROUPS compute         each owns 64 rows of the tile.
 *
 * In a computing warpgroup the scores of the next pair are issued before the
 * values of this pair are, so the tensor cores have work while it
 * exponentiates; the next pair may be the first one of the next item, so short
 * items cost no bubble. And the groups take turns at issuing (ping-pong): one
 * exponentiates while another one multiplies. Scores and weights never leave
 * registers: the layout in which the tensor cores deliver S is, two by two, the
 * one in which they take P.
 *
 *       thread, in a group of 128: warp w, lane 4 * g + t (g < 8, t < 4)
 *       owns rows 16 * w + g and 16 * w + g + 8
 *       and of each 8 keys those at 2 * t and 2 * t + 1
 *
 * Bits. A row's arithmetic is a function of the row, the keys it sees and its
 * origin. A pair that is hidden from a row but visited for its tile's sake is
 * an exact no-op for the row: its base stays, what was summed is not rescaled
 * or multiplied by 1, and weights 2^-inf = 0 are added.
 *
 * Nothing hidden is touched, but the tensor cores would: 0 * NaN is NaN. So
 * where a value in a partial pair is NaN or infinite, every row of the tile
 * comes out NaN in that column. That is never missed and costs next to nothing:
 * the epilogue notes tiles in which something is not finite, and a second
 * kernel (EXACT), launched behind the first one, does those items again:
 *
 *   pass 0   values that are not finite are replaced by 0: the sums of the
 *            finite ones, by the same instructions and so with the same bits;
 *   pass 1   weights are 1 where visible, values are 1 where they are +inf or
 *            NaN, else 0: where the sum is not 0 the output gets + inf;
 *   pass 2   the same with -inf and NaN: the output gets - inf.
 *
 * inf - inf = NaN does the rest. An output is then NaN or infinite if a value
 * that its row sees is, and no other is. */
#include "kernels/cuda/tiles.h"

#include <cuda_runtime.h>
#include <math.h>

enum { PAIR = BT_PAIR /* keys in a tile of K or V */ };

/* Named barriers; 0 is __syncthreads. */
enum { BARRIER_CLEAN = 1, BARRIER_GROUP = 2, BARRIER_TURN = 5 };

typedef struct forward_params {
    CUtensorMap q, k, v, o;
    const bt_work_tile *tiles;
    const bt_work_run *runs;
    const uint64_t *bits;
    uint32_t *ticket;
    unsigned char *redo;
    uint16_t *out;
    float *lse;
    size_t out_token, out_head;
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int heads, heads_per_kv, band, items;
    float scale; /* times log2(e): scores become base-2 logarithms */
} forward_params;

/* What the loader tells the others about the item whose queries it loads. */
typedef struct work {
    int item; /* -1: no more */
    int row, rows, head, pairs;
    int pass; /* EXACT only */
} work;

template <int D, int GROUPS, int STAGES> struct forward_shared {
    uint16_t q[2][GROUPS * GROUP_ROWS * D]; /* later the output, on its way */
    uint16_t k[STAGES][PAIR * D];
    uint16_t v[STAGES][PAIR * D];
    uint4 bits[STAGES][GROUPS * GROUP_ROWS];
    int halves[STAGES]; /* see bt_work_run; negative: full */
    work item[2];
    uint64_t q_full[2], q_empty[2];
    uint64_t k_full[STAGES], k_empty[STAGES];
    uint64_t v_full[STAGES], v_empty[STAGES];
};

/* ---- loading ----------------------------------------------------------- */

/* The loader's place. V stays one pair behind K, across items too: what is
 * needed first is asked for first. */
typedef struct loader {
    ring q, k, v;
    int value_key, value_head; /* of the V that is due; key -1: none */
} loader;

template <int D, int GROUPS, int STAGES>
BT_DEVICE void load_values(const forward_params *p,
                           forward_shared<D, GROUPS, STAGES> *s, loader *l)
{
    if (l->value_key < 0)
        return;
    uint64_t *full = &s->v_full[l->v.at];
    barrier_wait(&s->v_empty[l->v.at], l->v.parity ^ 1);
    barrier_arrive_expect(full, sizeof(s->v[0]));
    load_tile<D, PAIR>(s->v[l->v.at], &p->v, l->value_head, l->value_key, full);
    ring_next(&l->v, STAGES);
    l->value_key = -1;
}

template <int D, int GROUPS, int STAGES>
BT_DEVICE void load_keys(const forward_params *p,
                         forward_shared<D, GROUPS, STAGES> *s, loader *l,
                         int head, int key, int bits, int halves)
{
    const int rows = GROUPS * GROUP_ROWS;
    uint64_t *full = &s->k_full[l->k.at];
    barrier_wait(&s->k_empty[l->k.at], l->k.parity ^ 1);
    s->halves[l->k.at] = halves;
    if (bits >= 0) {
        barrier_arrive_expect(full, sizeof(s->k[0]) + sizeof(s->bits[0]));
        copy_bytes(s->bits[l->k.at], p->bits + (size_t)bits * rows * 2,
                   sizeof(s->bits[0]), full);
    } else {
        barrier_arrive_expect(full, sizeof(s->k[0]));
    }
    load_tile<D, PAIR>(s->k[l->k.at], &p->k, head, key, full);
    ring_next(&l->k, STAGES);
}

/* An item as the loader reads it. */
typedef struct job {
    int item, head;
    bt_work_tile tile;
} job;

BT_DEVICE job job_of(const forward_params *p, int item)
{
    job j;
    int band = item / (p->tile_count * p->band);
    int rest = item - band * p->tile_count * p->band;
    int width = min(p->band, p->heads - band * p->band);
    j.item = item;
    j.head = band * p->band + rest % width;
    j.tile = p->tiles[rest / width];
    return j;
}

/* Draws the next item from the ticket, when given, shortly before the end. */
template <int D, int GROUPS, int STAGES>
BT_DEVICE uint32_t load_item(const forward_params *p,
                             forward_shared<D, GROUPS, STAGES> *s, loader *l,
                             const job *j, int pass, uint32_t *ticket)
{
    uint32_t drawn = 0;
    bt_work_tile tile = j->tile;
    bt_work_run run = p->runs[tile.run];
    int kv_head = j->head / p->heads_per_kv;

    barrier_wait(&s->q_empty[l->q.at], l->q.parity ^ 1);
    s->item[l->q.at] =
        work{ j->item, tile.row, tile.rows, j->head, tile.pairs, pass };
    barrier_arrive_expect(&s->q_full[l->q.at], sizeof(s->q[0]));
    load_tile<D, GROUPS * GROUP_ROWS>(s->q[l->q.at], &p->q, j->head, tile.row,
                                      &s->q_full[l->q.at]);
    ring_next(&l->q, 2);

    for (int left = tile.pairs, next = tile.run + 1; left > 0; left--) {
        if (ticket && left == 1)
            drawn = atomicAdd(ticket, 1);
        load_keys(p, s, l, kv_head, run.key, run.bits, run.halves);
        load_values(p, s, l);
        l->value_key = run.key;
        l->value_head = kv_head;
        run.key += PAIR;
        run.bits += run.bits >= 0;
        if (--run.count == 0 && left > 1)
            run = p->runs[next++];
    }
    return drawn;
}

/* One warp runs this, one lane of it loads. */
template <int D, int GROUPS, int STAGES, int EXACT>
BT_DEVICE void load_items(const forward_params *p,
                          forward_shared<D, GROUPS, STAGES> *s)
{
    loader l = { {}, {}, {}, -1, 0 };
    int lane = threadIdx.x % 32, grid = gridDim.x;

    if (EXACT) {
        grid_wait();
        for (int base = blockIdx.x; base < p->items; base += 32 * grid) {
            int mine = base + lane * grid;
            uint4 note = { 0, 0, 0, 0 };
            if (mine < p->items)
                note = ((const uint4 *)p->redo)[mine];
            bool bad = (note.x | note.y | note.z | note.w) != 0;
            uint32_t todo = __ballot_sync(~0u, bad);
            for (; lane == 0 && todo; todo &= todo - 1) {
                job j = job_of(p, base + (__ffs((int)todo) - 1) * grid);
                for (int pass = 0; pass < 3; pass++)
                    load_item(p, s, &l, &j, pass, NULL);
            }
            __syncwarp();
        }
        if (lane == 0 && blockIdx.x == 0)
            *p->ticket = 0; // for the next launch: the first kernel is done
    } else if (lane == 0) {
        // The first item is the block's own; each next one is drawn as late
        // as its arrival can still be hidden, for the sake of the balance.
        int item = blockIdx.x;
        while (item < p->items) {
            job j = job_of(p, item);
            item = grid + (int)load_item(p, s, &l, &j, 0, p->ticket);
        }
    }
    if (lane == 0) {
        load_values(p, s, &l);
        barrier_wait(&s->q_empty[l.q.at], l.q.parity ^ 1);
        s->item[l.q.at].item = -1;
        barrier_arrive(&s->q_full[l.q.at]);
    }
}

/* The other warps of the loading group have time: they write the tiles that
 * see nothing. */
template <int D> BT_DEVICE void store_empty(const forward_params *p)
{
    for (int i = blockIdx.x; i < p->empty_count * p->heads; i += gridDim.x) {
        bt_work_tile tile = p->tiles[p->tile_count + i / p->heads];
        int head = i % p->heads;
        for (int j = threadIdx.x - 32; j < tile.rows * (D / 8);
             j += GROUP - 32) {
            size_t row = (size_t)(tile.row + j / (D / 8)), chunk = j % (D / 8);
            *(uint4 *)(p->out + row * p->out_token + head * p->out_head +
                       chunk * 8) = make_uint4(0, 0, 0, 0);
            if (p->lse && chunk == 0)
                p->lse[row * p->heads + head] = -INFINITY;
        }
    }
}

/* ---- computing --------------------------------------------------------- */

/* x (64 rows, 128 keys) = q k^T, issued. */
template <int D, int ROWS>
BT_DEVICE void issue_scores(float *x, uint64_t q, uint64_t k)
{
    product_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        // 16 columns are 32 bytes; four such steps are a panel.
        uint64_t q_step = i / 4 * (ROWS * PANEL * 2 >> 4) + i % 4 * 2;
        uint64_t k_step = i / 4 * (PAIR * PANEL * 2 >> 4) + i % 4 * 2;
        product_qk(x, q + q_step, k + k_step, i > 0);
    }
    product_commit();
}

/* o (64 rows, D) += w v over 16-key steps FROM to TO of a pair, issued. */
template <int D, int FROM, int TO>
BT_DEVICE void issue_value_steps(float *o, const uint32_t *w, uint64_t v)
{
    product_fence();
#pragma unroll
    for (int i = FROM; i < TO; i++) {
        uint64_t v_step = i * (16 * PANEL * 2 >> 4);
        if (D == 128)
            product_pv_128(o, w + i * 4, v + v_step);
        else
            product_pv_64(o, w + i * 4, v + v_step);
    }
    product_commit();
}

/* What a group sees of a pair: bit 0 the first 64 keys, bit 1 the others. The
 * weights of the other half are 0, and it is not multiplied. (The compiler lets
 * products run on beside branches only if each branch has its own fence, some
 * product and its own commit; and with the scores, of which a half would also
 * do, it runs out of registers. With heads of 64 the saving is less than the
 * branch.) */
enum { FIRST = 1, SECOND = 2, BOTH = 3 };

template <int D>
BT_DEVICE void issue_values(float *o, const uint32_t *w, uint64_t v, int halves)
{
    if (D == 128 && halves == FIRST)
        issue_value_steps<D, 0, PAIR / 32>(o, w, v);
    else if (D == 128 && halves == SECOND)
        issue_value_steps<D, PAIR / 32, PAIR / 16>(o, w, v);
    else
        issue_value_steps<D, 0, PAIR / 16>(o, w, v);
}

/* Scores of hidden keys become -infinity, whatever they were. */
BT_DEVICE void hide(float *x, const uint4 *bits, int row, int t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint4 four = bits[row + r * 8];
        uint32_t word[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t mine = word[i] >> (2 * t);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float *at = x + i * 16 + j * 4 + r * 2;
                at[0] = mine & (1u << (8 * j)) ? at[0] : -INFINITY;
                at[1] = mine & (2u << (8 * j)) ? at[1] : -INFINITY;
            }
        }
    }
}

/* The online softmax, on a thread's share of two rows. Weights are 2^(score -
 * base) in base-2 logarithms, and any base will do that is not far off: weights
 * are float32 and bf16, whose precision is the same from 2^-126 to 2^127. So a
 * row's base is the maximum of the first pair it sees something of, and after
 * that no maximum is sought, which would take as long as half the exponentials.
 * The sum of a pair's weights tells when the base must grow: by its exponent,
 * which is exact, once it is over 4096. Only when a pair's maximum is beyond
 * the base by more than LEAP does the row start from that maximum; that is too
 * late to be seen by a sum, so where a sum is suspicious the tile is noted and
 * the EXACT kernel, which seeks all maxima, does it again. A row decides all
 * this by its own scores. */
#define LEAP 100.0f

/* What the rows of a warp have to say after a pair. */
enum {
    FRESH = 1, /* one has seen nothing yet */
    GROWN = 2, /* the base of one may have to grow */
    ROUGH = 4  /* one may have leapt */
};

/* Seek the maximum of a pair: what was summed before is multiplied by keep. */
BT_DEVICE void seek_base(const float *x, float *base, float *keep, float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            top[i] = fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]);
#pragma unroll
        for (int i = 4; i < 16; i++)
            top[i % 4] = fmaxf(top[i % 4],
                               fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]));
        float all = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 1));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 2)) * scale;
        bool leap = all > base[r] + LEAP; // so it is from -infinity
        keep[r] = leap ? exp2_fast(base[r] - all) : 1.0f;
        base[r] = leap ? all : base[r];
    }
}

/* Scores x become weights, and sum, the thread's own share, grows by total,
 * its share of this pair. Returns a word whose sign bit is 0, as that of every
 * weight is. */
BT_DEVICE uint32_t soften(float *x, const float *base, const float *keep,
                          float *sum, float *total, float scale)
{
    uint32_t done = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        // A row that has seen nothing yet: weights 2^(-inf - 0) = 0.
        float from = base[r] == -INFINITY ? 0.0f : base[r];
        float part[4];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float *at = x + i * 4 + r * 2;
            at[0] = exp2_fast(fmaf(at[0], scale, -from));
            at[1] = exp2_fast(fmaf(at[1], scale, -from));
            float two = at[0] + at[1];
            part[i % 4] = i < 4 ? two : part[i % 4] + two;
        }
        total[r] = (part[0] + part[1]) + (part[2] + part[3]);
        sum[r] = fmaf(sum[r], keep[r], total[r]);
        done |= __float_as_uint(part[0]) | __float_as_uint(part[1]) |
                __float_as_uint(part[2]) | __float_as_uint(part[3]);
    }
    return done;
}

/* One of the four threads of a row has a quarter of a sum, or more. (A
 * reduction, not a vote: its answer is in a uniform register, so the branches
 * on it are uniform and the descriptors stay in such ones, too.) */
BT_DEVICE uint32_t survey(const float *base, const float *total)
{
    float more = fmaxf(total[0], total[1]);
    uint32_t note = base[0] == -INFINITY || base[1] == -INFINITY ? FRESH : 0;
    note |= more > 0x1p10f ? GROWN : 0;
    note |= more > 0x1p90f ? ROUGH : 0;
    return __reduce_or_sync(~0u, note);
}

/* The base of a row grows by the exponent of its weights' sum. */
BT_DEVICE void grow_base(float *x, float *base, float *keep, float *sum,
                         const float *total)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float all = total[r];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        int e = all > 0x1p12f ? (int)(__float_as_uint(all) >> 23) - 127 : 0;
        float down = __uint_as_float((uint32_t)(127 - e) << 23); // 2^-e
#pragma unroll
        for (int i = 0; i < 16; i++) {
            x[i * 4 + r * 2] *= down;
            x[i * 4 + r * 2 + 1] *= down;
        }
        base[r] += (float)e;
        keep[r] *= down;
        sum[r] *= down;
    }
}

template <int D> BT_DEVICE void rescale(float *o, const float *keep)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= keep[i / 2 % 2];
}

BT_DEVICE void pack_weights(uint32_t *w, const float *x)
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

/* EXACT: what the passes make of two bf16 values. */
BT_DEVICE uint32_t clean_two(uint32_t two, int pass)
{
    uint32_t clean = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t value = two >> (16 * i) & 0xffff;
        bool finite = (value & 0x7f80) != 0x7f80;
        bool nan = !finite && (value & 0x7f) != 0;
        bool hit = nan || value == (pass == 1 ? 0x7f80 : 0xff80);
        uint32_t one = pass == 0 ? (finite ? value : 0) : (hit ? 0x3f80 : 0);
        clean |= one << (16 * i);
    }
    return clean;
}

/* EXACT: all computing groups together clean a tile of values in place. */
template <int D, int GROUPS> BT_DEVICE void clean_values(uint16_t *v, int pass)
{
    uint32_t *words = (uint32_t *)v;
    for (int i = threadIdx.x - GROUP; i < PAIR * D / 2; i += GROUPS * GROUP)
        words[i] = clean_two(words[i], pass);
    fence_async();
    named_sync(BARRIER_CLEAN, GROUPS * GROUP);
}

/* EXACT, passes 1 and 2: weights are 1 where visible. */
BT_DEVICE void count_visible(float *x)
{
#pragma unroll
    for (int i = 0; i < 64; i++)
        x[i] = x[i] == -INFINITY ? 0.0f : 1.0f;
}

/* A warp's 16 rows of the output leave through shared memory, where its queries
 * were: whole by the copy engine, or row by row where the tile ends. */
template <int D, int ROWS, int EXACT>
BT_DEVICE void store_rows(const forward_params *p, uint16_t *stage,
                          const work *item, int warp_row)
{
    const int chunks = D / 8; // of 16 bytes in a row
    int lane = threadIdx.x % 32;
    // EXACT reads again what it stores, so there no engine is between.
    if (!EXACT && warp_row + 16 <= item->rows) {
        fence_async();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < D / PANEL; i++)
                store_box(&p->o, i * PANEL, item->head, item->row + warp_row,
                          stage + (i * ROWS + warp_row) * PANEL);
            store_commit();
        }
        return;
    }
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < 16 * chunks; at += 32) {
        int row = warp_row + at / chunks, chunk = at % chunks;
        uint16_t *panel = stage + (chunk / 8) * ROWS * PANEL + row * PANEL;
        if (row < item->rows)
            *(uint4 *)(p->out + (size_t)(item->row + row) * p->out_token +
                       (size_t)item->head * p->out_head + chunk * 8) =
                *(uint4 *)(panel + (chunk % 8 ^ row % 8) * 8);
    }
    fence_async();
}

/* EXACT, passes 1 and 2: where something was counted the output gets +-inf. */
template <int D>
BT_DEVICE void taint_rows(const forward_params *p, const float *o,
                          const work *item, int row, int t)
{
    float much = item->pass == 1 ? INFINITY : -INFINITY;
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        int r = row + i / 2 % 2 * 8, column = i / 4 * 8 + t * 2 + i % 2;
        if (r >= item->rows || o[i] == 0.0f)
            continue;
        uint16_t *at = p->out + (size_t)(item->row + r) * p->out_token +
                       (size_t)item->head * p->out_head + column;
        float sum = __uint_as_float((uint32_t)*at << 16) + much;
        *at = (uint16_t)pack_bf16(sum, 0.0f);
    }
}

/* The end of an item: divide by the sums, store, note what is not finite. The
 * copy engine may still read the stage afterwards. */
template <int D, int GROUPS, int STAGES, int EXACT>
BT_DEVICE void
finish(const forward_params *p, forward_shared<D, GROUPS, STAGES> *s, int stage,
       const float *o, const float *base, const float *sum, bool bad)
{
    const int rows = GROUPS * GROUP_ROWS;
    int warp = threadIdx.x / 32 - 4; // of those that compute
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int warp_row = warp * 16;
    const work *item = &s->item[stage];

    if (EXACT && item->pass) {
        taint_rows<D>(p, o, item, warp_row + g, t);
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = warp_row + g + r * 8;
        float all = sum[r];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        bool empty = base[r] == -INFINITY;
        float share = empty ? 0.0f : __fdividef(1.0f, all);
        uint32_t check = 0;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            // The fma turns -0 into 0, so that no sign tells what a hidden
            // value's was.
            uint32_t two = pack_bf16(fmaf(o[i * 4 + r * 2], share, 0.0f),
                                     fmaf(o[i * 4 + r * 2 + 1], share, 0.0f));
            check = check_finite(check, two);
            *(uint32_t *)(s->q[stage] + ((i / 8) * rows + row) * PANEL +
                          (i % 8 ^ row % 8) * 8 + t * 2) = two;
        }
        if (row < item->rows) {
            bad |= (check & 0x7fff7fff) != 0;
            if (p->lse && t == 0)
                p->lse[(size_t)(item->row + row) * p->heads + item->head] =
                    empty ? -INFINITY
                          : (base[r] + __log2f(all)) * 0.693147180559945309f;
        }
    }
    store_rows<D, rows, EXACT>(p, s->q[stage], item, warp_row);
    if (!EXACT) {
        bad = __any_sync(~0u, bad);
        if (lane == 0)
            p->redo[(size_t)item->item * BT_REDO_BYTES + warp] = bad;
    }
}

/* done_with, for a stage whose output may still be on its way. */
BT_DEVICE void done_storing(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        store_read();
    done_with(empty);
}

/* Wait for the item at q: how many pairs it has, or 0: there is none. */
template <int D, int GROUPS, int STAGES>
BT_DEVICE int next_item(forward_shared<D, GROUPS, STAGES> *s, ring q)
{
    barrier_wait(&s->q_full[q.at], q.parity);
    return s->item[q.at].item < 0 ? 0 : s->item[q.at].pairs;
}

/* Hide what is hidden of a pair's scores, and give its buffer back. Returns
 * which halves the group sees. */
template <int D, int GROUPS, int STAGES, int EXACT>
BT_DEVICE int look(forward_shared<D, GROUPS, STAGES> *s, int stage, int group,
                   int row, int pass, float *x)
{
    int halves = s->halves[stage];
    if (EXACT && pass)
#pragma unroll
        for (int i = 0; i < PAIR / 2; i++)
            x[i] = 0.0f;
    // The buffer is given back in each branch, not behind them: the compiler
    // would move that down, past the exponentials.
    if (halves >= 0) {
        hide(x, s->bits[stage], row, threadIdx.x % 4);
        done_with(&s->k_empty[stage]);
    } else {
        done_with(&s->k_empty[stage]);
    }
    if (EXACT && pass)
        count_visible(x);
    if (D == 64)
        return BOTH;
    // A reduction, not a vote or a shuffle: its answer is in a uniform
    // register, so the branches on it are uniform.
    return (int)__reduce_or_sync(~0u, halves >> 2 * group & BOTH);
}

template <int D, int GROUPS, int STAGES, int EXACT>
BT_DEVICE void compute_items(const forward_params *p,
                             forward_shared<D, GROUPS, STAGES> *s)
{
    const int rows = GROUPS * GROUP_ROWS;
    const uint32_t v_panel = PAIR * PANEL * 2;
    // Through a shuffle, so that the compiler sees that a warp agrees on it and
    // keeps what follows from it (the descriptors) in uniform registers.
    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    int row =
        group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    int turn = BARRIER_TURN + group;
    int turn_next = BARRIER_TURN + (group + 1) % GROUPS;
    ring q = {}, k = {}, v = {};
    float x[PAIR / 2];    // scores of a pair, then its weights
    uint32_t w[PAIR / 4]; // weights as bf16, until the values are added
    float o[D / 2];
    float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    float total[2] = { 0.0f, 0.0f }, keep[2] = { 1.0f, 1.0f };
    bool rough = false; // a row of this warp may have leapt
    int pass = 0;       // EXACT: of the item at q
    int storing = -1;   // stage of the item before, while its output leaves

    int left = next_item(s, q);
    if (left == 0)
        return;
    // Group 0 has the first turn.
    if (group == GROUPS - 1)
        named_arrive(BARRIER_TURN, 2 * GROUP);
    if (EXACT)
        pass = s->item[q.at].pass;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] = 0.0f;

    // The first scores have no values to run beside.
    barrier_wait(&s->k_full[k.at], k.parity);
    issue_scores<D, rows>(
        x, tile_descriptor(s->q[q.at] + group * GROUP_ROWS * PANEL, 16),
        tile_descriptor(s->k[k.at], 16));
    product_wait<0>();
    product_hold<PAIR / 2>(x);
    int halves = look<D, GROUPS, STAGES, EXACT>(s, k.at, group, row, pass, x);
    if (!EXACT || pass == 0) {
        seek_base(x, base, keep, p->scale);
        soften(x, base, keep, sum, total, p->scale);
    }
    uint32_t note = survey(base, total);
    ring_next(&k, STAGES);
    pack_weights(w, x);
    if (--left > 0)
        barrier_wait(&s->k_full[k.at], k.parity);

    int stage;
    for (;;) {
        // w holds weights, and the next scores may be those of the next item.
        bool last = left == 0;
        int stage_pass = pass;
        stage = q.at;
        if (last) {
            if (storing >= 0)
                done_storing(&s->q_empty[storing]);
            storing = -1;
            ring_next(&q, 2);
            left = next_item(s, q);
            if (left == 0)
                break;
            if (EXACT)
                pass = s->item[q.at].pass;
            barrier_wait(&s->k_full[k.at], k.parity);
        }
        if (!EXACT)
            named_sync(turn, 2 * GROUP);
        issue_scores<D, rows>(
            x, tile_descriptor(s->q[q.at] + group * GROUP_ROWS * PANEL, 16),
            tile_descriptor(s->k[k.at], 16));
        barrier_wait(&s->v_full[v.at], v.parity);
        if (EXACT)
            clean_values<D, GROUPS>(s->v[v.at], stage_pass);
        issue_values<D>(o, w, tile_descriptor(s->v[v.at], v_panel), halves);
        if (!EXACT)
            named_arrive(turn_next, 2 * GROUP);
        if (storing >= 0)
            done_storing(&s->q_empty[storing]);
        storing = -1;
        product_wait<1>();
        product_hold<PAIR / 2>(x);

        float base_done[2] = { base[0], base[1] };
        float sum_done[2] = { sum[0], sum[1] };
        if (last) {
            base[0] = base[1] = -INFINITY;
            sum[0] = sum[1] = 0.0f;
        }
        halves = look<D, GROUPS, STAGES, EXACT>(s, k.at, group, row, pass, x);
        ring_next(&k, STAGES);
        left--;

        // All that follows is to be done while the values are multiplied. But
        // nothing of it is needed before the wait for them, and the compiler
        // would rather do it behind. So the next keys are waited for here, at
        // a parity that only the finished weights can tell.
        uint32_t done = 0;
        bool seek = EXACT || last || note & FRESH;
        keep[0] = keep[1] = 1.0f;
        note = 0;
        if (!EXACT || pass == 0) {
            if (seek)
                seek_base(x, base, keep, p->scale);
            done = soften(x, base, keep, sum, total, p->scale);
            note = survey(base, total);
        }
        if (left > 0)
            barrier_wait(&s->k_full[k.at], k.parity ^ done >> 31);
        if (note & GROWN)
            grow_base(x, base, keep, sum, total);
        product_wait<0>();
        product_hold<D / 2>(o);
        done_with(&s->v_empty[v.at]);
        ring_next(&v, STAGES);
        if (last) {
            finish<D, GROUPS, STAGES, EXACT>(p, s, stage, o, base_done,
                                             sum_done, rough);
            storing = stage;
            rough = false;
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] = 0.0f;
        } else if (seek || note & GROWN) {
            rescale<D>(o, keep);
        }
        rough |= note & ROUGH;
        pack_weights(w, x);
    }

    // The last values have no scores to run beside.
    barrier_wait(&s->v_full[v.at], v.parity);
    if (EXACT)
        clean_values<D, GROUPS>(s->v[v.at], pass);
    issue_values<D>(o, w, tile_descriptor(s->v[v.at], v_panel), halves);
    product_wait<0>();
    product_hold<D / 2>(o);
    // finish() writes where the queries are, so all four warps must have read
    // them. In the loop a turn lies between, or the cleaning.
    named_sync(BARRIER_GROUP + group, GROUP);
    finish<D, GROUPS, STAGES, EXACT>(p, s, stage, o, base, sum, rough);
    if (threadIdx.x % 32 == 0)
        store_read();
}

template <int D, int GROUPS, int STAGES, int EXACT>
__global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
    attention_forward(const __grid_constant__ forward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    forward_shared<D, GROUPS, STAGES> *s =
        (forward_shared<D, GROUPS, STAGES> *)memory;
    const int warps = GROUPS * 4; // that compute

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s->q_full[i], 1);
            barrier_init(&s->q_empty[i], warps);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->k_full[i], 1);
            barrier_init(&s->k_empty[i], warps);
            barrier_init(&s->v_full[i], 1);
            barrier_init(&s->v_empty[i], warps);
        }
        barrier_init_done();
        tensor_map_prefetch(&p.q);
        tensor_map_prefetch(&p.k);
        tensor_map_prefetch(&p.v);
        tensor_map_prefetch(&p.o);
    }
    __syncthreads();
    if (!EXACT)
        grid_release();

    if (threadIdx.x < GROUP) {
        registers_lower<GROUPS == 2 ? 40 : 32>();
        if (threadIdx.x < 32)
            load_items<D, GROUPS, STAGES, EXACT>(&p, s);
        else if (!EXACT)
            store_empty<D>(&p);
    } else {
        registers_raise<GROUPS == 2 ? 232 : 160>();
        compute_items<D, GROUPS, STAGES, EXACT>(&p, s);
    }
}

/* ---- launching --------------------------------------------------------- */

template <int D, int GROUPS, int STAGES, int EXACT>
static cudaError_t launch(const forward_params *params, int blocks,
                          cudaStream_t stream)
{
    // The tiles' swizzle needs the 1024-byte alignment that a block's dynamic
    // shared memory has when there is no other.
    const int bytes = sizeof(forward_shared<D, GROUPS, STAGES>);
    cudaError_t status = cudaFuncSetAttribute(
        attention_forward<D, GROUPS, STAGES, EXACT>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    // The second kernel is brought up while the first one runs.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(GROUP * (GROUPS + 1));
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = EXACT ? 1 : 0;
    return cudaLaunchKernelEx(
        &config, attention_forward<D, GROUPS, STAGES, EXACT>, *params);
}

template <int D, int GROUPS, int STAGES>
static cudaError_t launch_both(const forward_params *params, int blocks,
                               cudaStream_t stream)
{
    cudaError_t status = launch<D, GROUPS, STAGES, 0>(params, blocks, stream);
    if (!status)
        status = launch<D, GROUPS, STAGES, 1>(params, blocks, stream);
    return status;
}

extern "C" bauta_status
bt_attention_forward_bf16_cuda(bt_cuda_plan *plan, const bauta_attention *shape,
                               const uint16_t *q, const uint16_t *k,
                               const uint16_t *v, uint16_t *out, float *lse,
                               void *stream, bauta_error *err)
{
    size_t d = plan->head_dim, rows = bt_cuda_tile_rows(d);
    size_t kv_heads = plan->kv_heads;
    float scale;
    forward_params p;
    bauta_status status = bt_cuda_plan_fits(plan, shape, &scale, err);
    if (status)
        return status;
    if (plan->tile_count + plan->empty_count == 0)
        return BAUTA_OK;

    p.out_head = or_dense(shape->out_head, d);
    p.out_token = or_dense(shape->out_token, plan->heads * d);
    status = encode(&p.q, plan, "q", q, plan->rows, plan->heads,
                    or_dense(shape->q_token, plan->heads * d),
                    or_dense(shape->q_head, d), rows, err);
    if (status)
        return status;
    status = encode(&p.o, plan, "out", out, plan->rows, plan->heads,
                    p.out_token, p.out_head, 16, err);
    if (status)
        return status;
    // A mask without keys has nothing to read, and the engine no empty tensor.
    if (plan->keys) {
        status = encode(&p.k, plan, "k", k, plan->keys, kv_heads,
                        or_dense(shape->k_token, kv_heads * d),
                        or_dense(shape->k_head, d), PAIR, err);
        if (status)
            return status;
        status = encode(&p.v, plan, "v", v, plan->keys, kv_heads,
                        or_dense(shape->v_token, kv_heads * d),
                        or_dense(shape->v_head, d), PAIR, err);
        if (status)
            return status;
    } else {
        p.k = p.v = p.q;
    }
    p.tiles = plan->tiles;
    p.runs = plan->runs;
    p.bits = plan->bits;
    p.ticket = plan->ticket;
    p.redo = plan->redo;
    p.out = out;
    p.lse = lse;
    p.tile_count = plan->tile_count;
    p.empty_count = plan->empty_count;
    p.heads = (int)plan->heads;
    p.heads_per_kv = (int)(plan->heads / kv_heads);
    p.band = plan->band;
    p.items = plan->tile_count * (int)plan->heads;
    p.scale = scale * 1.44269504088896341f;

    int blocks = min(p.items + p.empty_count * p.heads, plan->multiprocessors);
    cudaError_t result =
        d == 128 ? launch_both<128, 2, 2>(&p, blocks, (cudaStream_t)stream)
                 : launch_both<64, 3, 4>(&p, blocks, (cudaStream_t)stream);
    if (result)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot launch the attention kernel: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}
