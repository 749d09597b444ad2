/* SPDX-License-Identifier: Apache-2.0 */
/* test_sampler.c - logits processors, warpers and draws against a slow
 * reference in double that sorts everything.
 *
 * Where a sum decides (top_p, a draw) or an exponential (min_p), the reference
 * and the sampler may differ by rounding; a case that is nearer than CLOSE to
 * the border is skipped, and skipped cases are counted. */
#include "backend/cpu/sampling.h"
#include "base/error.h"
#include "testing.h"

#include <math.h>
#include <string.h>

#define CLOSE 1e-5

enum { VOCAB_MAX = 400, HISTORY = 24, WORDS = 4 };

/* ---- sampler scratch --------------------------------------------------- */

static struct {
    float work[VOCAB_MAX], exps[VOCAB_MAX];
    float maxima[VOCAB_MAX / BT_TOPK_BLOCK + 1];
    unsigned char marks[VOCAB_MAX];
    bt_topk_item picks[VOCAB_MAX];
} table;

static bt_sampler_scratch sampler_of(size_t vocab)
{
    return (bt_sampler_scratch){ .kernels = bt_kernels_get(NULL),
                                 .vocab = vocab,
                                 .work = table.work,
                                 .exps = table.exps,
                                 .maxima = table.maxima,
                                 .marks = table.marks,
                                 .topk = table.picks,
                                 .topk_capacity = VOCAB_MAX };
}

/* ---- the reference ----------------------------------------------------- */

typedef struct slow {
    size_t vocab;
    double x[VOCAB_MAX], p[VOCAB_MAX];
    size_t order[VOCAB_MAX]; /* the likeliest first, then the lowest id */
    bool close;              /* rounding may decide */
} slow;

static void slow_softmax(slow *s)
{
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < s->vocab; j++)
        max = fmax(max, s->x[j]);
    for (size_t j = 0; j < s->vocab; j++)
        sum += s->p[j] = s->x[j] > -INFINITY ? exp(s->x[j] - max) : 0;
    for (size_t j = 0; j < s->vocab; j++)
        s->p[j] /= sum;
}

static void slow_sort(slow *s)
{
    for (size_t i = 0; i < s->vocab; i++) {
        size_t at = i;
        for (; at > 0 && s->x[s->order[at - 1]] < s->x[i]; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* Whether token j completes a banned sequence. */
static bool slow_word(const bauta_token_seq *word, size_t j, bool end,
                      const bt_token_history *h)
{
    size_t n = word->count - 1;
    bool same = word->tokens[n] == j && n <= h->count && !(n == 0 && end);
    for (size_t d = 0; same && d < n; d++)
        same = word->tokens[d] == h->ids[h->count - n + d];
    return same;
}

static void slow_rules(slow *s, const bauta_generate_options *o,
                       const bt_token_history *h)
{
    size_t n = o->no_repeat_ngram_size;
    for (size_t j = 0; j < s->vocab; j++) {
        bool seen = false, repeats = false, banned = false, end = false;
        double count = 0;
        for (size_t i = 0; i < h->count; i++) {
            seen |= h->ids[i] == j;
            count += i >= h->prompt && h->ids[i] == j;
        }
        for (size_t i = 0; n && i + n <= h->count; i++) {
            bool same = h->ids[i + n - 1] == j;
            for (size_t d = 0; d + 1 < n; d++)
                same &= h->ids[i + d] == h->ids[h->count - n + 1 + d];
            repeats |= same;
        }
        for (size_t i = 0; i < o->suppress_token_count; i++)
            banned |= o->suppress_tokens[i] == j;
        for (size_t i = 0; i < o->eos_token_count; i++)
            end |= o->eos_token_ids[i] == j;
        for (size_t i = 0; i < o->bad_word_count; i++)
            banned |= slow_word(&o->bad_words[i], j, end, h);
        end &= h->count - h->prompt < o->min_new_tokens ||
               h->count < o->min_length;
        if (seen && o->repetition_penalty != 1.0f)
            s->x[j] = (float)s->x[j] < 0
                          ? (double)((float)s->x[j] * o->repetition_penalty)
                          : (double)((float)s->x[j] / o->repetition_penalty);
        for (size_t i = 0; i < o->logit_bias_count; i++)
            if (o->logit_bias[i].token == j)
                s->x[j] = (double)((float)s->x[j] + o->logit_bias[i].bias);
        if (count > 0)
            s->x[j] = (double)((float)s->x[j] -
                               (float)((double)o->frequency_penalty * count +
                                       (double)o->presence_penalty));
        if (repeats || banned || end)
            s->x[j] = -INFINITY;
        if (o->forced_bos_token_id != BAUTA_NO_TOKEN && h->count == 1)
            s->x[j] = j == o->forced_bos_token_id ? 0 : -INFINITY;
        if (o->forced_eos_token_id != BAUTA_NO_TOKEN &&
            h->count + 1 == h->limit)
            s->x[j] = j == o->forced_eos_token_id ? 0 : -INFINITY;
    }
}

static void slow_top_k(slow *s, size_t k)
{
    slow_sort(s);
    double least = k && k < s->vocab ? s->x[s->order[k - 1]] : -INFINITY;
    for (size_t j = 0; j < s->vocab; j++)
        if (s->x[j] < least)
            s->x[j] = -INFINITY;
}

static void slow_top_p(slow *s, double p)
{
    double before = 0;
    slow_softmax(s);
    slow_sort(s);
    for (size_t i = 0; i < s->vocab; i++) {
        size_t id = s->order[i];
        if (s->p[id] > 0 && fabs(before - p) < CLOSE)
            s->close = true;
        if (i > 0 && before >= p)
            s->x[id] = -INFINITY;
        before += s->p[id];
    }
}

static void slow_min_p(slow *s, double p)
{
    slow_softmax(s);
    slow_sort(s);
    double most = s->p[s->order[0]];
    for (size_t j = 0; j < s->vocab; j++) {
        if (fabs(s->p[j] / most - p) < CLOSE)
            s->close = true;
        if (s->p[j] < p * most)
            s->x[j] = -INFINITY;
    }
}

static void slow_warp(slow *s, const bauta_generate_options *o)
{
    double max = -INFINITY;
    for (size_t j = 0; j < s->vocab; j++)
        max = fmax(max, s->x[j]);
    for (size_t j = 0; j < s->vocab && o->temperature != 1.0f; j++)
        s->x[j] = (double)(((float)s->x[j] - (float)max) / o->temperature);
    if (o->top_k)
        slow_top_k(s, o->top_k);
    if (o->top_p < 1.0f)
        slow_top_p(s, (double)o->top_p);
    if (o->min_p > 0.0f)
        slow_min_p(s, (double)o->min_p);
}

/* ---- cases ------------------------------------------------------------- */

typedef struct sample_case {
    size_t vocab;
    float logits[VOCAB_MAX];
    uint32_t ids[HISTORY];
    uint32_t tokens[WORDS][3];
    bauta_token_seq words[WORDS];
    bauta_token_bias biases[VOCAB_MAX];
    bauta_generate_options o;
    bt_token_history h;
} sample_case;

static uint32_t some_id(test_random *r, const sample_case *c)
{
    return (uint32_t)test_below(r, c->vocab);
}

static void logits_draw(test_random *r, sample_case *c)
{
    bool grid = test_below(r, 3) == 0; // with ties
    float spread = (float)(1 + test_below(r, 20));
    c->vocab = 1 + test_below(r, test_below(r, 4) ? 60 : VOCAB_MAX);
    for (size_t j = 0; j < c->vocab; j++) {
        c->logits[j] = test_float(r) * spread;
        if (grid)
            c->logits[j] = floorf(c->logits[j]);
        if (test_below(r, 40) == 0)
            c->logits[j] = -INFINITY;
    }
}

static void rules_draw(test_random *r, sample_case *c)
{
    bauta_generate_options *o = &c->o;
    if (test_below(r, 3) == 0)
        o->repetition_penalty = 0.5f + (float)test_below(r, 4) * 0.5f;
    if (test_below(r, 3) == 0)
        o->presence_penalty = test_float(r);
    if (test_below(r, 3) == 0)
        o->frequency_penalty = test_float(r);
    o->logit_bias = c->biases;
    for (uint32_t j = 0; j < c->vocab && test_below(r, 20); j++)
        if (test_below(r, 3) == 0)
            c->biases[o->logit_bias_count++] =
                (bauta_token_bias){ j, test_float(r) * 5 };
    o->no_repeat_ngram_size = test_below(r, 2) ? 0 : 1 + test_below(r, 3);
    for (size_t n = test_below(r, 4); n > 0; n--)
        o->suppress_tokens[o->suppress_token_count++] = some_id(r, c);
    for (size_t n = test_below(r, 4); n > 0; n--)
        o->eos_token_ids[o->eos_token_count++] = some_id(r, c);
    o->bad_words = c->words;
    o->bad_word_count = test_below(r, 2) ? 0 : test_below(r, WORDS + 1);
    for (size_t i = 0; i < o->bad_word_count; i++) {
        for (size_t d = 0; d < 3; d++)
            c->tokens[i][d] =
                (uint32_t)test_below(r, c->vocab < 6 ? c->vocab : 6);
        c->words[i] = (bauta_token_seq){ 1 + test_below(r, 3), c->tokens[i] };
    }
    o->min_new_tokens = test_below(r, 6);
    o->min_length = test_below(r, 12);
    if (test_below(r, 8) == 0)
        o->forced_bos_token_id = some_id(r, c);
    if (test_below(r, 8) == 0)
        o->forced_eos_token_id = some_id(r, c);
}

static void warpers_draw(test_random *r, sample_case *c)
{
    bauta_generate_options *o = &c->o;
    o->do_sample = test_below(r, 4) != 0;
    o->seed = (uint64_t)test_u32(r) << 32 | test_u32(r);
    if (test_below(r, 2))
        o->temperature = 0.1f + 0.3f * (float)test_below(r, 8);
    if (test_below(r, 20) == 0)
        o->temperature = test_below(r, 2) ? 0 : 1e-30f;
    o->top_k = test_below(r, 2) ? 0 : 1 + test_below(r, c->vocab + 5);
    if (test_below(r, 2))
        o->top_p = (float)test_below(r, 21) / 20;
    if (test_below(r, 3) == 0)
        o->min_p = (float)test_below(r, 21) / 20;
}

static void case_draw(test_random *r, sample_case *c)
{
    logits_draw(r, c);
    c->o = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    rules_draw(r, c);
    warpers_draw(r, c);
    size_t count = 1 + test_below(r, HISTORY);
    for (size_t i = 0; i < count; i++)
        c->ids[i] = (uint32_t)test_below(r, c->vocab < 6 ? c->vocab : 6);
    c->h = (bt_token_history){ c->ids, count, 1 + test_below(r, count),
                               count + 1 + test_below(r, 3) };
}

static void slow_run(slow *s, const sample_case *c)
{
    s->vocab = c->vocab;
    s->close = false;
    for (size_t j = 0; j < c->vocab; j++)
        s->x[j] = (double)c->logits[j];
    slow_rules(s, &c->o, &c->h);
    if (c->o.do_sample && c->o.temperature > 0)
        slow_warp(s, &c->o);
    slow_softmax(s);
}

/* The choice of the reference, or vocab if it is too close to call. */
static size_t slow_choose(slow *s, const sample_case *c)
{
    double u = bt_sample_uniform(c->o.seed, c->h.count), sum = 0;
    if (!c->o.do_sample || !(c->o.temperature > 0)) {
        slow_sort(s);
        return s->order[0];
    }
    for (size_t j = 0; j < s->vocab; j++) {
        sum += s->p[j];
        if (s->p[j] > 0 && fabs(sum - u) < CLOSE)
            return s->vocab;
        if (sum > u)
            return j;
    }
    return s->vocab;
}

static bool nothing_left(const slow *s)
{
    for (size_t j = 0; j < s->vocab; j++)
        if (s->x[j] > -INFINITY)
            return false;
    return true;
}

/* Whether every logit was -infinity before any processor ran. */
static bool nothing_given(const sample_case *c)
{
    for (size_t j = 0; j < c->vocab; j++)
        if (c->logits[j] > -INFINITY)
            return false;
    return true;
}

/* The row after processors and warpers: it keeps what the reference keeps, and
 * its probabilities add up to 1. */
static void row_check(const sample_case *c, const slow *s,
                      const bt_sampler_scratch *sampler)
{
    float x[VOCAB_MAX];
    bt_row_stats row;
    double sum = 0;
    const bauta_generate_options *o = &c->o;
    memcpy(x, c->logits, c->vocab * sizeof(float));
    bt_logits_processors_apply(x, sampler, o, &c->h);
    for (size_t j = 0; j < c->vocab; j++)
        assert_int_equal(sampler->marks[j], 0);
    if (o->do_sample && o->temperature > 0) {
        if (o->temperature != 1.0f)
            bt_warp_temperature(x, sampler, o->temperature);
        if (o->top_k)
            bt_warp_top_k(x, sampler, o->top_k);
        if (o->top_p < 1.0f)
            bt_warp_top_p(x, sampler, o->top_p);
        if (o->min_p > 0.0f)
            bt_warp_min_p(x, sampler, o->min_p);
    }
    assert_int_equal(bt_row_stats_compute(&row, sampler, x), BT_SAMPLE_OK);
    for (size_t j = 0; j < c->vocab; j++) {
        if ((x[j] > -INFINITY) != (s->x[j] > -INFINITY))
            fail_msg("token %zu of %zu: %g, the reference has %g", j, c->vocab,
                     (double)x[j], s->x[j]);
        sum += (double)sampler->exps[j] / (double)row.sum;
    }
    assert_true(fabs(sum - 1) < CLOSE);
}

/* Number of cases; a soak sets more. */
static size_t cases(void)
{
    const char *text = getenv("BAUTA_CASES");
    return text ? strtoul(text, NULL, 10) : 20000;
}

static void sampler_equals_the_slow_reference(void **state)
{
    (void)state;
    static sample_case c;
    static slow s;
    test_random r = test_random_from(test_seed());
    size_t passed_over = 0, count = cases();
    for (size_t i = 0; i < count; i++) {
        bt_sampled_token choice, again;
        case_draw(&r, &c);
        bt_sampler_scratch sampler = sampler_of(c.vocab);
        bt_sample_status chosen =
            bt_sample(&choice, &sampler, c.logits, &c.o, &c.h);
        slow_run(&s, &c);
        if (nothing_left(&s) || nothing_given(&c)) {
            assert_int_equal(chosen, BT_SAMPLE_ALL_MASKED);
            continue;
        }
        assert_int_equal(chosen, BT_SAMPLE_OK);
        bt_sample(&again, &sampler, c.logits, &c.o, &c.h);
        assert_memory_equal(&choice.token, &again.token, sizeof(uint32_t));
        assert_true(choice.logprob <= 1e-5f && choice.score <= 1e-5);
        if (s.close) {
            passed_over++;
            continue;
        }
        if (!(s.x[choice.token] > -INFINITY))
            fail_msg("case %zu: token %u is not allowed", i, choice.token);
        row_check(&c, &s, &sampler);
        size_t want = slow_choose(&s, &c);
        if (want == c.vocab)
            passed_over++;
        else if (want != choice.token)
            fail_msg("case %zu: token %u, the reference has %zu", i,
                     choice.token, want);
        assert_true(fabs(exp(choice.score) - s.p[choice.token]) < CLOSE);
    }
    printf("%zu cases, %zu too close to say\n", count, passed_over);
    assert_true(passed_over * 20 < count);
}

/* Frequencies of draws at many positions: the sum over the tokens of squared
 * differences over what is expected has the mean and the variance of its
 * distribution; six deviations are not seen by chance. */
static void draws_have_their_probabilities(void **state)
{
    (void)state;
    enum { TOKENS = 50, DRAWS = 200000 };
    static double want[TOKENS];
    static size_t seen[TOKENS];
    float logits[TOKENS];
    test_random r = test_random_from(test_seed());
    bt_sampler_scratch sampler = sampler_of(TOKENS);
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    double sum = 0, chi = 0;
    o.do_sample = true;
    o.seed = test_u32(&r);
    for (size_t j = 0; j < TOKENS; j++) {
        logits[j] = test_float(&r) * 2;
        sum += want[j] = exp((double)logits[j]);
    }
    for (size_t i = 0; i < DRAWS; i++) {
        bt_token_history h = { NULL, i + 1, 1, DRAWS + 2 };
        bt_sampled_token choice;
        assert_int_equal(bt_sample(&choice, &sampler, logits, &o, &h),
                         BT_SAMPLE_OK);
        seen[choice.token]++;
    }
    for (size_t j = 0; j < TOKENS; j++) {
        double expected = want[j] / sum * DRAWS;
        chi += ((double)seen[j] - expected) * ((double)seen[j] - expected) /
               expected;
    }
    printf("chi-square %.1f of %d degrees\n", chi, TOKENS - 1);
    assert_true(chi < TOKENS - 1 + 6 * sqrt(2.0 * (TOKENS - 1)));
    assert_true(chi > TOKENS - 1 - 6 * sqrt(2.0 * (TOKENS - 1)));
}

static void draws_depend_on_seed_and_position(void **state)
{
    (void)state;
    size_t same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        double u = bt_sample_uniform(i, 7);
        assert_true(u >= 0 && u < 1);
        same +=
            bt_sample_uniform(i + 1, 7) == u || bt_sample_uniform(i, 8) == u;
    }
    assert_int_equal(same, 0);
}

static void non_finite_logits_are_classified(void **state)
{
    (void)state;
    float x[20];
    bt_sampler_scratch sampler = sampler_of(20);
    bt_sampled_token choice;
    bt_token_history h = { NULL, 1, 1, 9 };
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    const float bad[] = { NAN, INFINITY };
    for (size_t b = 0; b < BT_LEN(bad); b++)
        for (size_t at = 0; at < 20; at++)
            for (int rest = 0; rest < 2; rest++) {
                for (size_t j = 0; j < 20; j++)
                    x[j] = rest ? -INFINITY : (float)j;
                x[at] = bad[b];
                o.do_sample = at % 2;
                assert_int_equal(bt_sample(&choice, &sampler, x, &o, &h),
                                 BT_SAMPLE_NOT_FINITE);
            }
    for (size_t j = 0; j < 20; j++)
        x[j] = -INFINITY;
    assert_int_equal(bt_sample(&choice, &sampler, x, &o, &h),
                     BT_SAMPLE_ALL_MASKED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_equals_the_slow_reference),
        cmocka_unit_test(draws_have_their_probabilities),
        cmocka_unit_test(draws_depend_on_seed_and_position),
        cmocka_unit_test(non_finite_logits_are_classified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
