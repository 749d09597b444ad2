/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c - warpers and draws; see sampler.h. */
#include "decode/sampler.h"

#include "base/philox.h"
#include "base/size.h"
#include "kernels/exp2.h"

#include <string.h>

bt_chosen bt_row_look(bt_row *out, const bt_desk *desk, const float *x)
{
    const bt_kernels *k = desk->kernels;
    *out = (bt_row){ .max = k->row_max(x, desk->vocab) };
    if (out->max == INFINITY)
        return BT_NOT_FINITE;
    // Without a maximum all are -infinity, or some are NaN.
    float base = out->max == -INFINITY ? 0.0f : out->max;
    out->sum = k->row_exp_sum(desk->exps, x, desk->vocab, base);
    if (isnan(out->sum))
        return BT_NOT_FINITE;
    if (out->max == -INFINITY)
        return BT_NOTHING_LEFT;
    out->lse = (float)((double)out->max + bt_log2((double)out->sum) * BT_LN2);
    return BT_CHOSEN;
}

/* ---- warpers ----------------------------------------------------------- */

/* Less the maximum first, so that nothing overflows. */
void bt_warp_temperature(float *x, const bt_desk *desk, float temperature)
{
    float max = desk->kernels->row_max(x, desk->vocab);
    if (max == -INFINITY)
        return;
    for (size_t j = 0; j < desk->vocab; j++)
        x[j] = (x[j] - max) / temperature;
}

static void picks_of(bt_picks *picks, const bt_desk *desk, const float *x,
                     size_t want)
{
    float max = desk->kernels->row_max(x, desk->vocab);
    *picks = bt_picks_start(desk->picks, bt_size_min(want, desk->vocab));
    bt_picks_row(picks, desk->kernels, x, desk->vocab, max, 0, 0, 0);
}

/* Those that are as likely as number k stay, too. */
void bt_warp_top_k(float *x, const bt_desk *desk, size_t k)
{
    bt_picks picks;
    if (k >= desk->vocab)
        return;
    picks_of(&picks, desk, x, k);
    if (picks.count < k)
        return; // there are no more than k
    float least = picks.all[0].value;
    for (size_t j = 0; j < desk->vocab; j++)
        x[j] = x[j] < least ? -INFINITY : x[j];
}

/* How many of the sorted picks it takes until the sum of those before is at
 * least p; 0 where all of them are not enough. */
static size_t nucleus(const bt_picks *picks, const float *exps, double total,
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

/* A few are nearly always enough, so it is tried with ever more. */
void bt_warp_top_p(float *x, const bt_desk *desk, float p)
{
    bt_row row;
    bt_picks picks;
    size_t kept = 0;
    if (bt_row_look(&row, desk, x))
        return;
    double total = desk->kernels->row_sum(desk->exps, desk->vocab);
    for (size_t want = 64; kept == 0; want *= 8) {
        picks_of(&picks, desk, x, want);
        bt_picks_sort(&picks);
        kept = nucleus(&picks, desk->exps, total, (double)p);
        if (picks.count < want)
            break;
    }
    if (kept == 0)
        return;
    bt_pick last = picks.all[kept - 1];
    for (size_t j = 0; j < desk->vocab; j++)
        if (x[j] < last.value || (x[j] == last.value && j > last.id))
            x[j] = -INFINITY;
}

void bt_warp_min_p(float *x, const bt_desk *desk, float p)
{
    bt_row row;
    if (bt_row_look(&row, desk, x))
        return;
    for (size_t j = 0; j < desk->vocab; j++)
        x[j] = desk->exps[j] < p ? -INFINITY : x[j];
}

static void warp(float *x, const bt_desk *desk, const bauta_generate_options *o)
{
    if (o->temperature != 1.0f)
        bt_warp_temperature(x, desk, o->temperature);
    if (o->top_k)
        bt_warp_top_k(x, desk, o->top_k);
    if (o->top_p < 1.0f)
        bt_warp_top_p(x, desk, o->top_p);
    if (o->min_p > 0.0f)
        bt_warp_min_p(x, desk, o->min_p);
}

/* ---- choosing ---------------------------------------------------------- */

double bt_draw(uint64_t seed, uint64_t position)
{
    uint32_t words[4];
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)position,
                                  (uint32_t)(position >> 32), 0x74657874, 0 };
    bt_philox(words, counter, key);
    uint64_t bits = (uint64_t)words[0] << 32 | words[1];
    return (double)(bits >> 11) * 0x1p-53;
}

/* The token at which the sum of the exponentials, in the order of the ids,
 * passes u times their whole sum. Sums of blocks come first, so that few
 * numbers are added one by one. */
static size_t drawn(const bt_desk *desk, double u)
{
    enum { BLOCK = 256 };
    const float *e = desk->exps;
    double total = 0, sum = 0, next;
    size_t j = 0;
    for (size_t b = 0; b < desk->vocab; b += BLOCK)
        total +=
            desk->kernels->row_sum(e + b, bt_size_min(BLOCK, desk->vocab - b));
    for (; j + BLOCK < desk->vocab; j += BLOCK, sum = next) {
        next = sum + desk->kernels->row_sum(e + j, BLOCK);
        if (next > u * total)
            break;
    }
    for (; j < desk->vocab; j++) {
        sum += (double)e[j];
        if (e[j] > 0 && sum > u * total)
            return j;
    }
    // Rounding may leave a little behind the last: then it is the last.
    while (j > 1 && !(e[j - 1] > 0))
        j--;
    return j - 1;
}

static size_t likeliest(const float *x, size_t count, float max)
{
    size_t j = 0;
    while (j + 1 < count && x[j] != max)
        j++;
    return j;
}

bt_chosen bt_sample(bt_choice *out, const bt_desk *desk, const float *logits,
                    const bauta_generate_options *o, const bt_history *h)
{
    bt_row raw, row;
    const float *x = logits;
    bool draws = o->sample && o->temperature > 0;
    bt_chosen chosen = bt_row_look(&raw, desk, logits);
    if (chosen)
        return chosen;
    row = raw;
    if (draws || bt_rules_act(o, h)) {
        memcpy(desk->work, logits, desk->vocab * sizeof(float));
        bt_rules_apply(desk->work, desk, o, h);
        if (draws)
            warp(desk->work, desk, o);
        x = desk->work;
        chosen = bt_row_look(&row, desk, x);
        if (chosen)
            return chosen;
    }
    size_t token = draws ? drawn(desk, bt_draw(o->seed, h->count))
                         : likeliest(x, desk->vocab, row.max);
    *out = (bt_choice){ (uint32_t)token, logits[token] - raw.lse,
                        (double)(x[token] - row.lse) };
    return BT_CHOSEN;
}
