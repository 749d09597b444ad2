/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c - warpers, sampling and beam selection; many texts at once, one
 * task each. */
#include "backend/cpu/sampling.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/exp2.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* ---- The log-sum-exp of a row ------------------------------------------- */

/* bt_row_stats_of() for a row whose maximum is known. */
static bt_row_stats stats_of(const bt_kernels *kernels, const float *x,
                             size_t count, float max, float *exps)
{
    bt_row_stats row = { .max = max, .lse = NAN };
    // -infinity: all logits are, or some are NaN.
    float base = row.max == -INFINITY ? 0.0f : row.max;
    row.sum = kernels->row_exp_sum(exps, x, count, base);
    if (isfinite(row.max) && !isnan(row.sum))
        row.lse = (float)((double)row.max + bt_log2((double)row.sum) * BT_LN2);
    return row;
}

bt_row_stats bt_row_stats_of(const bt_kernels *kernels, const float *x,
                             size_t count, float *exps)
{
    return stats_of(kernels, x, count, kernels->row_max(x, count), exps);
}

static bt_sample_status stats_status(const bt_row_stats *row)
{
    if (row->max == INFINITY || isnan(row->sum))
        return BT_SAMPLE_NOT_FINITE;
    return row->max == -INFINITY ? BT_SAMPLE_ALL_MASKED : BT_SAMPLE_OK;
}

bt_sample_status bt_row_stats_compute(bt_row_stats *out,
                                      const bt_sampler_scratch *scratch,
                                      const float *x)
{
    *out = bt_row_stats_of(scratch->kernels, x, scratch->vocab, scratch->exps);
    return stats_status(out);
}

/* ---- The k largest ------------------------------------------------------ */

/* Prefetch what follows some blocks later: hardware stops at pages of 4 KiB. */
float bt_block_maxima(float *maxima, const bt_kernels *kernels, const float *x,
                      size_t count)
{
    enum { AHEAD = 4 * BT_TOPK_BLOCK, LINE = BT_ALIGN / sizeof(float) };
    float max = -INFINITY;
    for (size_t j = 0; j < count; j += BT_TOPK_BLOCK, maxima++) {
        size_t end = j + bt_size_min(count - j, BT_TOPK_BLOCK);
        for (size_t i = j + AHEAD; i < bt_size_min(end + AHEAD, count);
             i += LINE)
            __builtin_prefetch(x + i);
        *maxima = kernels->row_max(x + j, end - j);
        max = *maxima > max ? *maxima : max;
    }
    return max;
}

static bool better(const bt_topk_item *a, const bt_topk_item *b)
{
    if (a->value != b->value)
        return a->value > b->value;
    return a->row != b->row ? a->row < b->row : a->id < b->id;
}

/* Sift the item at `at` down until no child is worse. The root is the worst. */
static void sift_down(bt_topk_item *all, size_t count, size_t at)
{
    bt_topk_item moving = all[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && better(&all[child], &all[child + 1]))
            child++;
        if (!better(&moving, &all[child]))
            break;
        all[at] = all[child];
    }
    all[at] = moving;
}

bt_topk bt_topk_init(bt_topk_item *memory, size_t want)
{
    return (bt_topk){ want, 0, memory };
}

static void topk_add(bt_topk *p, bt_topk_item pick)
{
    if (p->count == p->want) {
        p->all[0] = pick;
        sift_down(p->all, p->count, 0);
        return;
    }
    p->all[p->count++] = pick;
    if (p->count == p->want)
        for (size_t i = p->want / 2; i-- > 0;)
            sift_down(p->all, p->count, i);
}

/* A new value must be larger than this; of equal values the first stays. */
static float threshold_of(const bt_topk *p)
{
    return p->count == p->want ? p->all[0].value : -INFINITY;
}

void bt_topk_add_row(bt_topk *p, const float *x, size_t count,
                     const float *maxima, uint32_t row, float less, float more)
{
    float threshold = threshold_of(p);
    for (size_t j = 0; j < count && p->want; j += BT_TOPK_BLOCK, maxima++) {
        size_t end = j + bt_size_min(count - j, BT_TOPK_BLOCK);
        if (!((*maxima - less) + more > threshold))
            continue;
        for (size_t i = j; i < end; i++) {
            float value = (x[i] - less) + more;
            if (!(value > threshold))
                continue;
            topk_add(p, (bt_topk_item){ value, row, (uint32_t)i });
            threshold = threshold_of(p);
        }
    }
}

/* Heap sort: the worst item moves to the end, one after another. */
void bt_topk_sort(bt_topk *p)
{
    if (p->count < p->want)
        for (size_t i = p->count / 2; i-- > 0;)
            sift_down(p->all, p->count, i);
    for (size_t left = p->count; left > 1; left--) {
        bt_topk_item worst = p->all[0];
        p->all[0] = p->all[left - 1];
        p->all[left - 1] = worst;
        sift_down(p->all, left - 1, 0);
    }
}

/* ---- Warpers ----------------------------------------------------------- */

/* The maximum is subtracted first, so that nothing overflows. */
void bt_warp_temperature(float *x, const bt_sampler_scratch *scratch,
                         float temperature)
{
    float max = scratch->kernels->row_max(x, scratch->vocab);
    if (max == -INFINITY)
        return;
    for (size_t j = 0; j < scratch->vocab; j++)
        x[j] = (x[j] - max) / temperature;
}

static void topk_of(bt_topk *picks, const bt_sampler_scratch *scratch,
                    const float *x, size_t want)
{
    bt_block_maxima(scratch->maxima, scratch->kernels, x, scratch->vocab);
    *picks = bt_topk_init(scratch->topk, bt_size_min(want, scratch->vocab));
    bt_topk_add_row(picks, x, scratch->vocab, scratch->maxima, 0, 0, 0);
}

/* Tokens that tie with the k-th stay, too. */
void bt_warp_top_k(float *x, const bt_sampler_scratch *scratch, size_t k)
{
    bt_topk picks;
    if (k >= scratch->vocab)
        return;
    topk_of(&picks, scratch, x, k);
    if (picks.count < k)
        return; // at most k are left
    float least = picks.all[0].value;
    for (size_t j = 0; j < scratch->vocab; j++)
        x[j] = x[j] < least ? -INFINITY : x[j];
}

/* The smallest number of sorted items whose probabilities sum to at least p; 0
 * if all of them are not enough. */
static size_t nucleus(const bt_topk *picks, const float *exps, double total,
                      double p)
{
    double before = 0;
    for (size_t i = 0; i < picks->count; i++) {
        before += (double)exps[picks->all[i].id];
        if (before >= p * total)
            return i + 1;
    }
    return 0;
}

/* A few items nearly always suffice, so the search starts small and grows. */
void bt_warp_top_p(float *x, const bt_sampler_scratch *scratch, float p)
{
    bt_row_stats row;
    bt_topk picks;
    size_t kept = 0;
    if (bt_row_stats_compute(&row, scratch, x))
        return;
    double total = scratch->kernels->row_sum(scratch->exps, scratch->vocab);
    for (size_t want = 64; kept == 0; want *= 8) {
        topk_of(&picks, scratch, x, want);
        bt_topk_sort(&picks);
        kept = nucleus(&picks, scratch->exps, total, (double)p);
        if (picks.count < want)
            break;
    }
    if (kept == 0)
        return;
    bt_topk_item last = picks.all[kept - 1];
    for (size_t j = 0; j < scratch->vocab; j++)
        if (x[j] < last.value || (x[j] == last.value && j > last.id))
            x[j] = -INFINITY;
}

void bt_warp_min_p(float *x, const bt_sampler_scratch *scratch, float p)
{
    bt_row_stats row;
    if (bt_row_stats_compute(&row, scratch, x))
        return;
    for (size_t j = 0; j < scratch->vocab; j++)
        x[j] = scratch->exps[j] < p ? -INFINITY : x[j];
}

static void warp(float *x, const bt_sampler_scratch *scratch,
                 const bauta_generate_options *o)
{
    if (o->temperature != 1.0f)
        bt_warp_temperature(x, scratch, o->temperature);
    if (o->top_k)
        bt_warp_top_k(x, scratch, o->top_k);
    if (o->top_p < 1.0f)
        bt_warp_top_p(x, scratch, o->top_p);
    if (o->min_p > 0.0f)
        bt_warp_min_p(x, scratch, o->min_p);
}

/* ---- Sampling ---------------------------------------------------------- */

double bt_sample_uniform(uint64_t seed, uint64_t position)
{
    uint32_t words[4];
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)position,
                                  (uint32_t)(position >> 32), 0x74657874, 0 };
    bt_philox(words, counter, key);
    uint64_t bits = (uint64_t)words[0] << 32 | words[1];
    return (double)(bits >> 11) * 0x1p-53;
}

/* The token at which the running sum of the exponentials, in the order of ids,
 * passes u times their total. Blocks are summed first, so that few numbers are
 * added one by one. */
static size_t draw_token(const bt_sampler_scratch *scratch, double u)
{
    enum { BLOCK = 256 };
    const float *e = scratch->exps;
    double total = 0, sum = 0, next;
    size_t j = 0;
    for (size_t b = 0; b < scratch->vocab; b += BLOCK)
        total += scratch->kernels->row_sum(
            e + b, bt_size_min(BLOCK, scratch->vocab - b));
    for (; j + BLOCK < scratch->vocab; j += BLOCK, sum = next) {
        next = sum + scratch->kernels->row_sum(e + j, BLOCK);
        if (next > u * total)
            break;
    }
    for (; j < scratch->vocab; j++) {
        sum += (double)e[j];
        if (e[j] > 0 && sum > u * total)
            return j;
    }
    // Rounding can leave a remainder; then it is the last possible token.
    while (j > 1 && !(e[j - 1] > 0))
        j--;
    return j - 1;
}

static size_t argmax(const float *x, size_t count, float max)
{
    size_t j = 0;
    while (j + 1 < count && x[j] != max)
        j++;
    return j;
}

bt_sample_status bt_sample(bt_sampled_token *out,
                           const bt_sampler_scratch *scratch,
                           const float *logits, const bauta_generate_options *o,
                           const bt_token_history *h)
{
    bt_row_stats raw, row;
    const float *x = logits;
    bool draws = o->do_sample && o->temperature > 0;
    bt_sample_status chosen = bt_row_stats_compute(&raw, scratch, logits);
    if (chosen)
        return chosen;
    row = raw;
    if (draws || bt_logits_processors_active(o, h)) {
        memcpy(scratch->work, logits, scratch->vocab * sizeof(float));
        bt_logits_processors_apply(scratch->work, scratch, o, h);
        if (draws)
            warp(scratch->work, scratch, o);
        x = scratch->work;
        chosen = bt_row_stats_compute(&row, scratch, x);
        if (chosen)
            return chosen;
    }
    size_t token =
        draws ? draw_token(scratch, bt_sample_uniform(o->seed, h->count))
              : argmax(x, scratch->vocab, row.max);
    *out = (bt_sampled_token){ (uint32_t)token, logits[token] - raw.lse,
                               (double)(x[token] - row.lse) };
    return BT_SAMPLE_OK;
}

/* ---- Beams ------------------------------------------------------------- */

/* bt_row_stats_compute(), and the maxima of the row's blocks. */
static bt_sample_status stats_with_maxima(bt_row_stats *out,
                                          const bt_sampler_scratch *scratch,
                                          const float *x)
{
    float max =
        bt_block_maxima(scratch->maxima, scratch->kernels, x, scratch->vocab);
    *out = stats_of(scratch->kernels, x, scratch->vocab, max, scratch->exps);
    return stats_status(out);
}

/* Offer a row of log-probabilities, after the logits processors. */
static bt_sample_status beam_add(const bt_beam_rows *b, bt_topk *picks,
                                 const bt_sampler_scratch *scratch, size_t beam)
{
    const bauta_generate_options *o = b->options;
    const bt_token_history *h = &b->histories[beam];
    const float *x = b->rows + beam * b->stride;
    bt_row_stats row;
    bt_sample_status status = stats_with_maxima(&row, scratch, x);
    float subtract = row.lse;
    scratch->lse[beam] = row.lse;
    if (!status &&
        (o->renormalize_logits || bt_logits_processors_active(o, h))) {
        for (size_t j = 0; j < scratch->vocab; j++)
            scratch->work[j] = x[j] - row.lse;
        bt_logits_processors_apply(scratch->work, scratch, o, h);
        x = scratch->work;
        subtract = 0;
        status = stats_with_maxima(&row, scratch, x);
        if (status == BT_SAMPLE_ALL_MASKED)
            return BT_SAMPLE_OK; // another beam may continue
        if (o->renormalize_logits)
            subtract = row.lse;
    }
    if (!status)
        bt_topk_add_row(picks, x, scratch->vocab, scratch->maxima,
                        (uint32_t)beam, subtract, b->scores[beam]);
    return status;
}

bt_sample_status bt_beam_rows_select(bt_beam_rows *b,
                                     const bt_sampler_scratch *scratch)
{
    bt_topk picks = bt_topk_init(scratch->topk,
                                 bt_size_min(b->want, scratch->topk_capacity));
    b->count = 0;
    for (size_t beam = 0; beam < b->beams; beam++) {
        bt_sample_status status = beam_add(b, &picks, scratch, beam);
        if (status)
            return status;
    }
    bt_topk_sort(&picks);
    for (size_t i = 0; i < picks.count; i++) {
        const bt_topk_item *p = &picks.all[i];
        b->choices[i] = (bt_beam_choice){
            .score = p->value,
            .beam = p->row,
            .token = p->id,
            .logprob =
                b->rows[p->row * b->stride + p->id] - scratch->lse[p->row],
        };
    }
    b->count = picks.count;
    return b->count ? BT_SAMPLE_OK : BT_SAMPLE_ALL_MASKED;
}

/* ---- Many texts --------------------------------------------------------- */

typedef struct sampling_job {
    const bt_tensor *logits;
    bt_sampler_scratch *scratch; /* one for each thread */
    bt_sample_item *samples;     /* or */
    bt_beam_item *beams;
} sampling_job;

/* Runs twice: to measure, then to take the scratch of all threads. */
static void scratch_take(sampling_job *job, bt_cpu *cpu, bt_arena *arena,
                         size_t choices, size_t beams)
{
    size_t threads = (size_t)bt_cpu_threads(cpu);
    size_t vocab = job->logits->columns;
    size_t capacity = bt_size_max(choices, vocab);
    job->scratch = bt_arena_alloc(arena, threads, sizeof(*job->scratch));
    for (size_t t = 0; t < threads; t++) {
        bt_sampler_scratch s = {
            .kernels = cpu->kernels,
            .vocab = vocab,
            .work = bt_arena_alloc(arena, vocab, sizeof(float)),
            .exps = bt_arena_alloc(arena, vocab, sizeof(float)),
            .maxima =
                bt_arena_alloc(arena, vocab / BT_TOPK_BLOCK + 1, sizeof(float)),
            .marks = bt_arena_alloc(arena, vocab, 1),
            .topk = bt_arena_alloc(arena, capacity, sizeof(bt_topk_item)),
            .topk_capacity = capacity,
            .lse = bt_arena_alloc(arena, beams, sizeof(float)),
        };
        if (!arena->base)
            continue;
        memset(s.marks, 0, vocab);
        job->scratch[t] = s;
    }
}

static bauta_status scratch_reserve(sampling_job *job, bt_cpu *cpu,
                                    size_t choices, size_t beams,
                                    bauta_error *err)
{
    bt_arena measure = { NULL, 0, 0 };
    scratch_take(job, cpu, &measure, choices, beams);
    if (bt_arena_reserve(&cpu->workspace, measure.used))
        return bt_fail_memory(err, "sampling", measure.used);
    scratch_take(job, cpu, &cpu->workspace, choices, beams);
    return BAUTA_OK;
}

static const float *row_of(const sampling_job *job, size_t row)
{
    return bt_cpu_f32(job->logits) + row * job->logits->stride;
}

static void sample_task(void *job, size_t task, int thread)
{
    const sampling_job *j = job;
    bt_sample_item *item = &j->samples[task];
    item->status =
        bt_sample(&item->token, &j->scratch[thread], row_of(j, item->row),
                  item->options, &item->history);
}

bauta_status bt_cpu_sample(bt_stream *stream, const bt_sample_args *args,
                           bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    sampling_job job = { .logits = args->logits, .samples = args->items };
    BT_CPU_CHECK(stream, sample, err, args->logits);
    bauta_status status = scratch_reserve(&job, cpu, 0, 0, err);
    if (!status)
        bt_parallel_for(cpu->pool, args->count, sample_task, &job);
    return status;
}

static void beam_task(void *job, size_t task, int thread)
{
    const sampling_job *j = job;
    bt_beam_item *item = &j->beams[task];
    bt_beam_rows rows = { .beams = item->beams,
                          .rows = row_of(j, item->row),
                          .stride = j->logits->stride,
                          .scores = item->scores,
                          .options = item->options,
                          .histories = item->histories,
                          .want = item->want,
                          .choices = item->choices };
    item->status = bt_beam_rows_select(&rows, &j->scratch[thread]);
    item->count = rows.count;
}

bauta_status bt_cpu_beam(bt_stream *stream, const bt_beam_args *args,
                         bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    sampling_job job = { .logits = args->logits, .beams = args->items };
    size_t choices = 0, beams = 0;
    BT_CPU_CHECK(stream, beam, err, args->logits);
    for (size_t i = 0; i < args->count; i++) {
        choices = bt_size_max(choices, args->items[i].want);
        beams = bt_size_max(beams, args->items[i].beams);
    }
    bauta_status status = scratch_reserve(&job, cpu, choices, beams, err);
    if (!status)
        bt_parallel_for(cpu->pool, args->count, beam_task, &job);
    return status;
}
