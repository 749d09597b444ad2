/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c - warpers and sampling. */
#include "backend/cpu/sampler.h"

#include "base/philox.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

bt_sample_status bt_row_stats_compute(bt_row_stats *out,
                                      const bt_sampler_scratch *scratch,
                                      const float *x)
{
    *out = bt_row_stats_of(scratch->kernels, x, scratch->vocab, scratch->exps);
    if (out->max == INFINITY || isnan(out->sum))
        return BT_SAMPLE_NOT_FINITE;
    return out->max == -INFINITY ? BT_SAMPLE_ALL_MASKED : BT_SAMPLE_OK;
}

/* ---- warpers ----------------------------------------------------------- */

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
    float max = scratch->kernels->row_max(x, scratch->vocab);
    *picks = bt_topk_init(scratch->topk, bt_size_min(want, scratch->vocab));
    bt_topk_add_row(picks, scratch->kernels, x, scratch->vocab, max, 0, 0, 0);
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

/* ---- sampling ---------------------------------------------------------- */

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

/* ---- beams ------------------------------------------------------------- */

/* Offer a row of log-probabilities, after the logits processors. */
static bt_sample_status beam_add(const bt_beam_rows *b, bt_topk *picks,
                                 const bt_sampler_scratch *scratch, size_t beam)
{
    const bauta_generate_options *o = b->options;
    const bt_token_history *h = &b->histories[beam];
    const float *x = b->rows + beam * b->stride;
    bt_row_stats row;
    bt_sample_status status = bt_row_stats_compute(&row, scratch, x);
    float subtract = row.lse;
    scratch->lse[beam] = row.lse;
    if (!status &&
        (o->renormalize_logits || bt_logits_processors_active(o, h))) {
        for (size_t j = 0; j < scratch->vocab; j++)
            scratch->work[j] = x[j] - row.lse;
        bt_logits_processors_apply(scratch->work, scratch, o, h);
        x = scratch->work;
        subtract = 0;
        status = bt_row_stats_compute(&row, scratch, x);
        if (status == BT_SAMPLE_ALL_MASKED)
            return BT_SAMPLE_OK; // another beam may continue
        if (o->renormalize_logits)
            subtract = row.lse;
    }
    if (!status)
        bt_topk_add_row(picks, scratch->kernels, x, scratch->vocab, row.max,
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
