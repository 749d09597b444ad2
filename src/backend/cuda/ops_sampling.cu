/* SPDX-License-Identifier: Apache-2.0 */
/* ops_sampling.cu - from rows of logits to tokens and beams, as
 * decode/sampler.c, decode/logits_processors.c and decode/beam.c do it.
 *
 * One block has a row, of which it makes a copy in float32: in shared memory
 * where it fits, up to about 52,000 logits. Only the plain maximum, which most
 * of generation asks for, is spread over many blocks.
 *
 * Where the CPU adds probabilities in double, this adds them as integers in
 * units of 2^-44 of the largest one: such sums are exact and have no order. */
#include "backend/cuda/ops_philox.h"
#include "backend/cuda/ops_select.h"

enum { STATUS_OK, STATUS_NOT_FINITE, STATUS_ALL_MASKED };

BT_DEVICE int status_of(slice_stats row)
{
    if (row.max == INFINITY || isnan(row.sum))
        return STATUS_NOT_FINITE;
    return row.max == -INFINITY ? STATUS_ALL_MASKED : STATUS_OK;
}

/* Where results go; either may be NULL. */
typedef struct sampled_to {
    bt_cuda_sampled *device, *host;
} sampled_to;

BT_DEVICE void sampled_store(sampled_to to, size_t row, bt_cuda_sampled x)
{
    if (to.device)
        to.device[row] = x;
    if (to.host)
        to.host[row] = x;
}

/* ---- the most likely token ----------------------------------------------- */

/* A slice's stats and the first place of its maximum. */
typedef struct slice_best {
    slice_stats stats;
    uint32_t place;
} slice_best;

/* The first place of the largest value, in all lanes; UINT32_MAX if no value is
 * above -infinity. */
BT_DEVICE uint32_t first_best(float best, uint32_t place)
{
#pragma unroll
    for (int i = 16; i; i /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, best, i);
        uint32_t at = __shfl_xor_sync(ALL_LANES, place, i);
        if (other > best || (other == best && at < place)) {
            best = other;
            place = at;
        }
    }
    return place;
}

enum { STATS_WARPS = 4 };

template <class T>
static __global__ void __launch_bounds__(32 * STATS_WARPS)
    slice_each(slice_best *to, matrix<const T> logits, uint32_t vocab,
               uint32_t slices, bool wide)
{
    uint32_t slice = blockIdx.x * STATS_WARPS + threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32, place = UINT32_MAX;
    grid_begin();
    if (slice >= slices)
        return;
    float v[SLICE_GROUPS][8], best = -INFINITY;
    slice_load(v, logits.data + blockIdx.y * logits.stride, vocab, slice, wide);
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (v[k][i] > best) {
                best = v[k][i];
                place = slice * SLICE + (k * 32 + lane) * 8 + i;
            }
    place = first_best(best, place);
    slice_stats stats = slice_reduce<T>(v);
    if (lane == 0)
        to[blockIdx.y * slices + slice] = { stats, place };
}

/* A warp to a row. */
static __global__ void __launch_bounds__(32)
    slice_end(const slice_best *from, uint32_t slices, bt_cuda_row_stats *to,
              sampled_to sampled)
{
    __shared__ slice_stats all[SLICES_MOST];
    uint32_t row = blockIdx.x, lane = threadIdx.x, place = UINT32_MAX;
    float best = -INFINITY;
    grid_begin();
    for (uint32_t i = lane; i < slices; i += 32) {
        slice_best one = from[(size_t)row * slices + i];
        all[i] = one.stats;
        if (one.stats.max > best) {
            best = one.stats.max;
            place = one.place;
        }
    }
    __syncwarp();
    slice_stats stats = slices_merge(all, slices);
    place = first_best(best, place);
    float lse = lse_of(stats);
    if (lane)
        return;
    if (to)
        to[row] = { stats.max, stats.sum, lse, place };
    int status = status_of(stats);
    if (status)
        sampled_store(sampled, row, { status, 0, 0.0f, 0.0 });
    else
        sampled_store(
            sampled, row,
            { STATUS_OK, place, stats.max - lse, (double)(stats.max - lse) });
}

size_t bt_cuda_row_stats_workspace(size_t rows, size_t vocab)
{
    return rows * ceil_div(vocab, SLICE) * sizeof(slice_best);
}

static bauta_status check_rows(const char *what, size_t rows, size_t vocab,
                               bauta_dtype dtype, bauta_error *err)
{
    bauta_status status = check_dtype(what, dtype, err);
    if (status)
        return status;
    if (vocab == 0 || vocab > 3 << 17 || rows > 65535)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: no GPU kernel for %zu rows of %zu logits; there "
                       "are up to 65535 rows of 1 to %d logits",
                       what, rows, vocab, 3 << 17);
    return BAUTA_OK;
}

static bauta_status run_stats(size_t rows, size_t vocab, bauta_dtype dtype,
                              bt_cuda_in logits, bt_cuda_row_stats *to,
                              sampled_to sampled, void *workspace, void *stream,
                              bauta_error *err)
{
    bauta_status status = check_rows("row stats", rows, vocab, dtype, err);
    if (status || rows == 0)
        return status;
    layout8 l = layout_of(rows, vocab);
    layout_add(&l, logits.data, logits.stride, dtype);
    uint32_t slices = (uint32_t)ceil_div(vocab, SLICE);
    slice_best *part = (slice_best *)workspace;
    dim3 grid((unsigned)ceil_div(slices, STATS_WARPS), (unsigned)rows);
    bool wide = l.starts && l.lines;
    if (dtype == BAUTA_FLOAT32)
        launch_kernel(slice_each<float>, grid, 32 * STATS_WARPS, 0,
                      BT_START_EARLY_IN_STEP, stream, part,
                      matrix_of<float>(logits, vocab), (uint32_t)vocab, slices,
                      wide);
    else
        launch_kernel(slice_each<bf16>, grid, 32 * STATS_WARPS, 0,
                      BT_START_EARLY_IN_STEP, stream, part,
                      matrix_of<bf16>(logits, vocab), (uint32_t)vocab, slices,
                      wide);
    launch_kernel(slice_end, (unsigned)rows, 32, 0, BT_START_EARLY, stream,
                  part, slices, to, sampled);
    return launched("row stats", err);
}

bauta_status bt_cuda_row_stats_of(size_t rows, size_t vocab, bauta_dtype dtype,
                                  bt_cuda_in logits, bt_cuda_row_stats *to,
                                  void *workspace, void *stream,
                                  bauta_error *err)
{
    return run_stats(rows, vocab, dtype, logits, to, {}, workspace, stream,
                     err);
}

bauta_status bt_cuda_sample_greedy(size_t rows, size_t vocab, bauta_dtype dtype,
                                   bt_cuda_in logits, bt_cuda_sampled *to,
                                   bt_cuda_sampled *host, void *workspace,
                                   void *stream, bauta_error *err)
{
    return run_stats(rows, vocab, dtype, logits, NULL, { to, host }, workspace,
                     stream, err);
}

/* ---- a row of a block ---------------------------------------------------- */

/* The row that a block works on. */
typedef struct work_row {
    float *x; /* (vocab) aligned to 16 bytes */
    uint32_t vocab;
    select_memory *memory;
    uint32_t *marks; /* a bit for each token */
} work_row;

/* E is the type of the logits, which decides how exponentials are computed. */
template <class E> BT_DEVICE slice_stats block_stats(const work_row &r)
{
    uint32_t count = (r.vocab + SLICE - 1) / SLICE, lane = threadIdx.x % 32;
    __syncthreads();
    for (uint32_t i = threadIdx.x / 32; i < count; i += BLOCK / 32) {
        float v[SLICE_GROUPS][8];
        slice_load(v, r.x, r.vocab, i, true);
        slice_stats one = slice_reduce<E>(v);
        if (lane == 0)
            r.memory->slices[i] = one;
    }
    __syncthreads();
    return slices_merge(r.memory->slices, count);
}

BT_DEVICE slice_stats row_stats(const work_row &r)
{
    return block_stats<float>(r);
}

BT_DEVICE float row_max(const work_row &r)
{
    float max = -INFINITY;
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
        max = fmaxf(max, r.x[j]);
    return block_max(max, r.memory);
}

BT_DEVICE void mask_token(const work_row &r, uint32_t token)
{
    if (token < r.vocab)
        r.x[token] = -INFINITY;
}

/* ---- logits processors --------------------------------------------------- */

BT_DEVICE bool processors_active(const bt_cuda_processors &h)
{
    return h.repetition_penalty != 1.0f || h.bias_count || h.new_count ||
           h.no_repeat_ngram_size || h.masked_count || h.bad_word_count ||
           h.forces;
}

/* A token that occurs twice is penalized once: by the thread that marks it. */
BT_DEVICE void penalize(const work_row &r, const bt_cuda_processors &h)
{
    for (uint32_t i = threadIdx.x; i < (r.vocab + 31) / 32; i += BLOCK)
        r.marks[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < h.history_count; i += BLOCK) {
        uint32_t id = h.history[i], bit = 1u << id % 32;
        if (id >= r.vocab || atomicOr(&r.marks[id / 32], bit) & bit)
            continue;
        float x = r.x[id];
        r.x[id] = x < 0 ? x * h.repetition_penalty : x / h.repetition_penalty;
    }
    __syncthreads();
}

BT_DEVICE void add_bias(const work_row &r, const bt_cuda_processors &h)
{
    for (uint32_t i = threadIdx.x; i < h.bias_count; i += BLOCK)
        if (h.bias_tokens[i] < r.vocab)
            r.x[h.bias_tokens[i]] += __uint_as_float(h.biases[i]);
    __syncthreads();
}

/* The first of equal tokens counts the others and subtracts for all. */
BT_DEVICE void penalize_counts(const work_row &r, const bt_cuda_processors &h)
{
    for (uint32_t i = threadIdx.x; i < h.new_count; i += BLOCK) {
        uint32_t id = h.new_tokens[i], before = 0, count = 1;
        while (before < i && h.new_tokens[before] != id)
            before++;
        if (id >= r.vocab || before < i)
            continue;
        for (uint32_t j = i + 1; j < h.new_count; j++)
            count += h.new_tokens[j] == id;
        r.x[id] -=
            __fmaf_rn(h.frequency_penalty, (float)count, h.presence_penalty);
    }
    __syncthreads();
}

BT_DEVICE bool same_tokens(const uint32_t *a, const uint32_t *b, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && a[i] == b[i])
        i++;
    return i == count;
}

BT_DEVICE void mask_repeated_ngrams(const work_row &r,
                                    const bt_cuda_processors &h)
{
    uint32_t n = h.no_repeat_ngram_size, count = h.history_count;
    if (count < n)
        return;
    const uint32_t *tail = h.history + count - (n - 1);
    for (uint32_t i = threadIdx.x; i + n <= count; i += BLOCK)
        if (same_tokens(h.history + i, tail, n - 1))
            mask_token(r, h.history[i + n - 1]);
}

BT_DEVICE void mask_bad_words(const work_row &r, const bt_cuda_processors &h)
{
    for (uint32_t i = threadIdx.x; i < h.bad_word_count; i += BLOCK) {
        uint32_t first = i ? h.bad_ends[i - 1] : 0;
        uint32_t before = h.bad_ends[i] - first - 1;
        if (before <= h.history_count &&
            same_tokens(h.history + h.history_count - before,
                        h.bad_words + first, before))
            mask_token(r, h.bad_words[first + before]);
    }
}

BT_DEVICE void processors_apply(const work_row &r, const bt_cuda_processors &h)
{
    if (h.repetition_penalty != 1.0f)
        penalize(r, h);
    if (h.bias_count)
        add_bias(r, h);
    if (h.new_count)
        penalize_counts(r, h);
    if (h.no_repeat_ngram_size)
        mask_repeated_ngrams(r, h);
    for (uint32_t i = threadIdx.x; i < h.masked_count; i += BLOCK)
        mask_token(r, h.masked[i]);
    mask_bad_words(r, h);
    __syncthreads();
    if (h.forces) {
        for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
            r.x[j] = j == h.forced ? 0.0f : -INFINITY;
        __syncthreads();
    }
}

/* ---- warpers ------------------------------------------------------------- */

/* The exponential of a logit as an integer. */
BT_DEVICE uint64_t weight_of(float x, float base)
{
    return __float2ull_rn(bt_exp(x - base) * 0x1p44f);
}

BT_DEVICE uint64_t weight_all(const work_row &r, float base)
{
    uint64_t sum = 0;
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
        sum += weight_of(r.x[j], base);
    return block_sum(sum, r.memory);
}

/* The log-sum-exp of a row from the sum of its weights. */
BT_DEVICE float lse_of_weights(float max, uint64_t total)
{
    return (float)((double)max + (bt_log2((double)total) - 44) * BT_LN2);
}

BT_DEVICE void warp_temperature(const work_row &r, float temperature)
{
    float max = row_max(r);
    if (max == -INFINITY)
        return;
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
        r.x[j] = (r.x[j] - max) / temperature;
    __syncthreads();
}

/* Keep keys from `least` on and, of those that equal it, places up to `last`.
 */
BT_DEVICE void mask_below(const work_row &r, uint32_t least, uint32_t last)
{
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK) {
        uint32_t key = key_of(r.x[j]);
        if (key < least || (key == least && j > last))
            r.x[j] = -INFINITY;
    }
    __syncthreads();
}

enum { TOP_MOST = 512 }; /* that are selected by sorting */

/* Tokens that tie with the k-th stay, too. */
BT_DEVICE void warp_top_k(const work_row &r, uint32_t k)
{
    select_memory *m = r.memory;
    auto key_at = [&](uint32_t j) { return key_of(r.x[j]); };
    uint32_t least;
    if (k >= r.vocab)
        return;
    if (k <= TOP_MOST)
        least = select_largest(key_at, r.vocab, k, m) < k
                    ? 0
                    : (uint32_t)(m->candidates[k - 1] >> 32);
    else
        least = largest_key([&](uint32_t key) {
            return count_from(key_at, r.vocab, key, r.vocab, m) >= k;
        });
    __syncthreads();
    if (least) // 0: at most k are left
        mask_below(r, least, r.vocab);
}

/* The sum over the threads before this one. */
BT_DEVICE uint64_t weight_before(uint64_t x, select_memory *m)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned long long sum = x, before = 0;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        unsigned long long y = __shfl_up_sync(ALL_LANES, sum, i);
        sum += lane >= i ? y : 0;
    }
    __syncthreads();
    if (lane == 31)
        m->warps[warp] = sum;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++)
        before += m->warps[i];
    return before + sum - x;
}

/* Of `count` sorted candidates the first one at which the sum of weights
 * reaches the target; UINT32_MAX if they do not. */
BT_DEVICE uint32_t nucleus(select_memory *m, uint32_t count, float base,
                           double target)
{
    uint32_t i = threadIdx.x * 2;
    uint64_t w[2];
    for (uint32_t x = 0; x < 2; x++)
        w[x] = i + x < count
                   ? weight_of(
                         value_of_key((uint32_t)(m->candidates[i + x] >> 32)),
                         base)
                   : 0;
    uint64_t before = weight_before(w[0] + w[1], m);
    if (threadIdx.x == 0)
        m->count = UINT32_MAX;
    __syncthreads();
    if (i == 0 || (double)before < target) {
        if ((double)(before + w[0]) >= target)
            m->count = i;
        else if ((double)(before + w[0] + w[1]) >= target)
            m->count = i + 1;
    }
    __syncthreads();
    uint32_t found = m->count;
    __syncthreads();
    return found < count ? found : UINT32_MAX;
}

/* The sum of weights of keys above `least` and, of those that equal it, of
 * places below `places`. */
BT_DEVICE double weight_from(const work_row &r, uint32_t least, uint32_t places,
                             float base)
{
    uint64_t sum = 0;
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK) {
        uint32_t key = key_of(r.x[j]);
        if (key > least || (key == least && j < places))
            sum += weight_of(r.x[j], base);
    }
    return (double)block_sum(sum, r.memory);
}

BT_DEVICE void warp_top_p(const work_row &r, float p)
{
    select_memory *m = r.memory;
    float max = row_max(r);
    if (!isfinite(max))
        return;
    double target = (double)p * (double)weight_all(r, max);
    uint32_t want = min((uint32_t)TOP_MOST, r.vocab);
    uint32_t count = select_largest([&](uint32_t j) { return key_of(r.x[j]); },
                                    r.vocab, want, m);
    uint32_t at = nucleus(m, count, max, target), least, last;
    if (at != UINT32_MAX) {
        least = (uint32_t)(m->candidates[at] >> 32);
        last = ~(uint32_t)m->candidates[at];
    } else {
        least = largest_key([&](uint32_t key) {
            return weight_from(r, key, r.vocab, max) >= target;
        });
        last = largest_key([&](uint32_t end) {
            return weight_from(r, least, end, max) < target;
        });
    }
    __syncthreads();
    mask_below(r, least, last);
}

BT_DEVICE void warp_min_p(const work_row &r, float p)
{
    float max = row_max(r);
    if (!isfinite(max))
        return;
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
        if (bt_exp(r.x[j] - max) < p)
            r.x[j] = -INFINITY;
    __syncthreads();
}

BT_DEVICE void warp_row(const work_row &r, const bt_cuda_sample_row &h)
{
    if (h.temperature != 1.0f)
        warp_temperature(r, h.temperature);
    if (h.top_k)
        warp_top_k(r, h.top_k);
    if (h.top_p < 1.0f)
        warp_top_p(r, h.top_p);
    if (h.min_p > 0.0f)
        warp_min_p(r, h.min_p);
}

/* ---- sampling ------------------------------------------------------------ */

/* As bt_sample_uniform(). */
BT_DEVICE double uniform(uint64_t seed, uint64_t position)
{
    philox_words w = philox(
        { (uint32_t)position, (uint32_t)(position >> 32), 0x74657874, 0 },
        (uint32_t)seed, (uint32_t)(seed >> 32));
    uint64_t bits = (uint64_t)w.word[0] << 32 | w.word[1];
    return (double)(bits >> 11) * 0x1p-53;
}

enum { DRAW_TILE = BLOCK * 8 }; /* tokens */

/* The sum of the weights of eight tokens of a tile. */
BT_DEVICE uint64_t weigh8(uint64_t *w, const work_row &r, uint32_t first,
                          float base)
{
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        w[i] = first + i < r.vocab ? weight_of(r.x[first + i], base) : 0;
        sum += w[i];
    }
    return sum;
}

/* The token at which the running sum of weights passes u times their total.
 * The sums of warps come first; only the tile in which it passes is looked at
 * again. *total is the sum of all weights. */
BT_DEVICE uint32_t draw_token(const work_row &r, float base, double u,
                              uint64_t *total)
{
    select_memory *m = r.memory;
    uint64_t w[8], all = 0, before = 0;
    uint32_t tiles = (r.vocab + DRAW_TILE - 1) / DRAW_TILE, last = 0, tile = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        m->count = UINT32_MAX;
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t first = t * DRAW_TILE + threadIdx.x * 8;
        unsigned long long sum = weigh8(w, r, first, base);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            last = w[i] ? first + i : last;
        sum = lanes_sum<32>(sum);
        if (threadIdx.x % 32 == 0) // (tiles, warps)
            m->candidates[t * 32 + threadIdx.x / 32] = sum;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < tiles * 32; i += BLOCK)
        all += m->candidates[i];
    all = block_sum(all, m);
    *total = all;
    double target = u * (double)all;
    for (; tile < tiles; tile++) {
        unsigned long long sum = m->candidates[tile * 32 + threadIdx.x % 32];
        sum = lanes_sum<32>(sum);
        if ((double)(before + sum) > target)
            break;
        before += sum;
    }
    if (tile < tiles) {
        uint32_t first = tile * DRAW_TILE + threadIdx.x * 8;
        uint64_t mine = weigh8(w, r, first, base);
        uint64_t sum = before + weight_before(mine, m);
        bool passed = (double)sum > target;
        for (uint32_t i = 0; i < 8 && !passed; i++) {
            sum += w[i];
            passed = (double)sum > target;
            if (passed)
                m->count = first + i;
        }
        __syncthreads();
        return m->count;
    }
    // Rounding can leave a remainder; then it is the last possible token.
    __syncthreads();
    if (threadIdx.x == 0)
        m->count = 0;
    __syncthreads();
    atomicMax(&m->count, last);
    __syncthreads();
    return m->count;
}

/* The first place of the maximum. */
BT_DEVICE uint32_t find_token(const work_row &r, float max)
{
    select_memory *m = r.memory;
    if (threadIdx.x == 0)
        m->count = UINT32_MAX;
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
        if (r.x[j] == max) {
            atomicMin(&m->count, j);
            break;
        }
    __syncthreads();
    return m->count;
}

template <class T> struct sample_params {
    matrix<const T> logits;
    const bt_cuda_sample_row *how;
    sampled_to to;
    float *work;
    uint32_t vocab;
    bool wide, shared;
};

template <class T> BT_DEVICE float logit_of(const T *x, uint32_t token)
{
    float v[8];
    load8(v, x + token, 1, false);
    return v[0];
}

template <class T>
BT_DEVICE void copy_row(const work_row &r, const T *x, bool wide)
{
    for (uint32_t j = threadIdx.x * 8; j < r.vocab; j += BLOCK * 8) {
        float v[8];
        load8(v, x + j, (int)(r.vocab - j), wide);
        store8(r.x + j, v, (int)(r.vocab - j), true);
    }
    __syncthreads();
}

/* Marks, and before them the row if it fits. */
extern __shared__ float4 row_memory[];

BT_DEVICE work_row row_of(float *work, uint32_t vocab, bool shared,
                          select_memory *memory)
{
    uint32_t stride = (vocab + 7) / 8 * 8;
    float *row = (float *)row_memory;
    work_row r = { work + (size_t)blockIdx.x * stride, vocab, memory,
                   (uint32_t *)row };
    if (shared) {
        r.x = row;
        r.marks = (uint32_t *)(row + stride);
    }
    return r;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK) sample(const sample_params<T> p)
{
    __shared__ select_memory memory;
    size_t row = blockIdx.x;
    const bt_cuda_sample_row &h = p.how[row];
    const T *x = p.logits.data + row * p.logits.stride;
    work_row r = row_of(p.work, p.vocab, p.shared, &memory);
    bool draws = h.do_sample && h.temperature > 0;
    copy_row(r, x, p.wide);
    slice_stats raw = block_stats<T>(r);
    int status = status_of(raw);
    float lse = lse_of(raw), max = raw.max;
    bool active = processors_active(h.processors);
    if (!status && (draws || active)) {
        processors_apply(r, h.processors);
        if (draws)
            warp_row(r, h);
        max = row_max(r);
        status = max == INFINITY    ? STATUS_NOT_FINITE
                 : max == -INFINITY ? STATUS_ALL_MASKED
                                    : STATUS_OK;
    }
    if (status) {
        if (threadIdx.x == 0)
            sampled_store(p.to, row, { status, 0, 0.0f, 0.0 });
        return;
    }
    uint64_t total;
    uint32_t token;
    if (draws) {
        token = draw_token(r, max, uniform(h.seed, h.position), &total);
        lse = lse_of_weights(max, total);
    } else {
        token = find_token(r, max);
        if (active)
            lse = lse_of_weights(max, weight_all(r, max));
    }
    if (threadIdx.x == 0)
        sampled_store(p.to, row,
                      { STATUS_OK, token, logit_of(x, token) - lse_of(raw),
                        (double)(r.x[token] - lse) });
}

enum { SHARED_MOST = 227 << 10 }; /* of a block, on Hopper */

/* Bytes of row_memory, with the row or without. */
static size_t row_bytes(size_t vocab, bool shared)
{
    return ceil_div(vocab, 128) * 16 +
           (shared ? ceil_div(vocab, 8) * 8 * sizeof(float) : 0);
}

static bool row_fits(size_t vocab)
{
    return row_bytes(vocab, true) + sizeof(select_memory) + 1024 <= SHARED_MOST;
}

template <class T>
static bauta_status sample_as(size_t rows, size_t vocab, bt_cuda_in logits,
                              const bt_cuda_sample_row *how, sampled_to to,
                              float *work, bool wide, void *stream,
                              bauta_error *err)
{
    bool fits = row_fits(vocab);
    size_t bytes = row_bytes(vocab, fits);
    sample_params<T> p = {
        matrix_of<T>(logits, vocab), how, to, work, (uint32_t)vocab, wide, fits
    };
    launch_kernel(sample<T>, (unsigned)rows, BLOCK, bytes, BT_START_AFTER,
                  stream, p);
    return launched("sampling", err);
}

bauta_status bt_cuda_sample(size_t rows, size_t vocab, bauta_dtype dtype,
                            bt_cuda_in logits, const bt_cuda_sample_row *how,
                            bt_cuda_sampled *to, bt_cuda_sampled *host,
                            float *work, void *stream, bauta_error *err)
{
    bauta_status status = check_rows("sampling", rows, vocab, dtype, err);
    if (status || rows == 0)
        return status;
    layout8 l = layout_of(rows, vocab);
    layout_add(&l, logits.data, logits.stride, dtype);
    bool wide = l.starts && l.lines;
    return dtype == BAUTA_FLOAT32
               ? sample_as<float>(rows, vocab, logits, how, { to, host }, work,
                                  wide, stream, err)
               : sample_as<bf16>(rows, vocab, logits, how, { to, host }, work,
                                 wide, stream, err);
}

/* ---- beams --------------------------------------------------------------- */

/* The best continuations of a beam. */
typedef struct beam_found {
    int32_t status;
    uint32_t count;
    float lse; /* of the model's logits */
} beam_found;

typedef struct beam_item {
    float score;
    uint32_t token;
} beam_item;

typedef struct beam_memory {
    beam_found *found; /* (rows) */
    beam_item *items;  /* (rows, want) */
} beam_memory;

static size_t cut_beam_memory(beam_memory *m, void *memory, size_t rows,
                              size_t want)
{
    size_t found = ceil_div(rows * sizeof(beam_found), 16) * 16;
    m->found = (beam_found *)memory;
    m->items = (beam_item *)((char *)memory + found);
    return found + rows * want * sizeof(beam_item);
}

size_t bt_cuda_beam_workspace(size_t rows, size_t want)
{
    beam_memory m;
    return cut_beam_memory(&m, NULL, rows, want);
}

template <class T> struct beam_params {
    matrix<const T> logits;
    const bt_cuda_beam_row *how;
    beam_memory to;
    float *work;
    uint32_t vocab, want;
    bool wide, shared;
};

/* A block to a row: add_row() of decode/beam.c. The score of a token is
 * (x - less) + score. */
template <class T>
static __global__ void __launch_bounds__(BLOCK) beam_row(const beam_params<T> p)
{
    __shared__ select_memory memory;
    size_t row = blockIdx.x;
    const bt_cuda_beam_row &h = p.how[row];
    work_row r = row_of(p.work, p.vocab, p.shared, &memory);
    copy_row(r, p.logits.data + row * p.logits.stride, p.wide);
    slice_stats raw = block_stats<T>(r);
    int status = status_of(raw);
    float lse = lse_of(raw), less = 0.0f, score = h.score;
    uint32_t count = 0;
    if (!status) {
        for (uint32_t j = threadIdx.x; j < r.vocab; j += BLOCK)
            r.x[j] = r.x[j] - lse;
        __syncthreads();
        if (h.renormalize || processors_active(h.processors)) {
            processors_apply(r, h.processors);
            slice_stats now = row_stats(r);
            status = status_of(now);
            less = h.renormalize ? lse_of(now) : 0.0f;
        }
    }
    if (!status) {
        uint32_t want = min(p.want, p.vocab);
        count = select_largest(
            [&](uint32_t j) { return key_of((r.x[j] - less) + score); },
            p.vocab, want, &memory);
        count = min(count, want);
        __syncthreads();
        if (threadIdx.x < count) {
            uint64_t one = memory.candidates[threadIdx.x];
            p.to.items[row * p.want + threadIdx.x] = {
                value_of_key((uint32_t)(one >> 32)), ~(uint32_t)one
            };
        }
    }
    if (status == STATUS_ALL_MASKED && isfinite(lse))
        status = STATUS_OK; // another beam may continue
    if (threadIdx.x == 0)
        p.to.found[row] = { status, count, lse };
}

template <class T> struct group_params {
    matrix<const T> logits;
    beam_memory from;
    const bt_cuda_beam_group *group;
    bt_cuda_beam_choice *choices;
    uint32_t *counts;
    int32_t *status;
    uint32_t want;
};

/* A block to a group. An item's place, counted over the beams of the group,
 * decides where scores are equal. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    beam_group(const group_params<T> p)
{
    __shared__ select_memory m;
    bt_cuda_beam_group g = p.group[blockIdx.x];
    uint32_t all = g.beams * p.want, room = 2, found = 0;
    int status = STATUS_OK;
    if (all > CANDIDATES) // more beams than the caller said
        return;
    for (uint32_t b = 0; b < g.beams; b++) {
        found += p.from.found[g.row + b].count;
        if (!status) // of the first beam that has one
            status = p.from.found[g.row + b].status;
    }
    while (room < all)
        room *= 2;
    for (uint32_t i = threadIdx.x; i < room; i += BLOCK) {
        uint32_t beam = i / p.want, at = i - beam * p.want;
        bool in = i < all && at < p.from.found[g.row + beam].count;
        size_t from = (size_t)(g.row + beam) * p.want + at;
        m.candidates[i] =
            in ? (uint64_t)key_of(p.from.items[from].score) << 32 | (uint32_t)~i
               : 0;
    }
    sort_candidates(&m, room);
    found = status ? 0 : min(found, p.want);
    for (uint32_t i = threadIdx.x; i < found; i += BLOCK) {
        uint32_t place = ~(uint32_t)m.candidates[i], beam = place / p.want;
        size_t row = g.row + beam;
        beam_item item = p.from.items[row * p.want + place - beam * p.want];
        const T *x = p.logits.data + row * p.logits.stride;
        p.choices[(size_t)blockIdx.x * p.want + i] = {
            item.score, beam, item.token,
            logit_of(x, item.token) - p.from.found[row].lse
        };
    }
    if (threadIdx.x == 0) {
        p.counts[blockIdx.x] = found;
        p.status[blockIdx.x] = status  ? status
                               : found ? STATUS_OK
                                       : STATUS_ALL_MASKED;
    }
}

template <class T>
static bauta_status beam_as(const bt_cuda_beam_args *a, bool wide, void *stream,
                            bauta_error *err)
{
    beam_memory m;
    cut_beam_memory(&m, a->workspace, a->rows, a->want);
    matrix<const T> logits = matrix_of<T>(a->logits, a->vocab);
    bool fits = row_fits(a->vocab);
    size_t bytes = row_bytes(a->vocab, fits);
    beam_params<T> p = {
        logits, a->how, m, a->work, (uint32_t)a->vocab, (uint32_t)a->want,
        wide,   fits
    };
    group_params<T> g = { logits,    m,         a->group,         a->choices,
                          a->counts, a->status, (uint32_t)a->want };
    launch_kernel(beam_row<T>, (unsigned)a->rows, BLOCK, bytes, BT_START_AFTER,
                  stream, p);
    launch_kernel(beam_group<T>, (unsigned)a->groups, BLOCK, 0, BT_START_AFTER,
                  stream, g);
    return launched("beams", err);
}

bauta_status bt_cuda_beam(const bt_cuda_beam_args *a, void *stream,
                          bauta_error *err)
{
    bauta_status status = check_rows("beams", a->rows, a->vocab, a->dtype, err);
    if (status || a->rows == 0 || a->groups == 0)
        return status;
    if (a->want == 0 || a->want > BLOCK || a->most_beams > CANDIDATES ||
        a->most_beams * a->want > CANDIDATES)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "beams: no GPU kernel for %zu candidates of %zu beams; "
                       "there are 1 to %d candidates, and up to %d of all "
                       "beams",
                       a->want, a->most_beams, BLOCK, CANDIDATES);
    layout8 l = layout_of(a->rows, a->vocab);
    layout_add(&l, a->logits.data, a->logits.stride, a->dtype);
    bool wide = l.starts && l.lines;
    return a->dtype == BAUTA_FLOAT32 ? beam_as<float>(a, wide, stream, err)
                                     : beam_as<bf16>(a, wide, stream, err);
}
