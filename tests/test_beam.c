/* SPDX-License-Identifier: Apache-2.0 */
/* test_beam.c - beam search over tables of random logits.
 *
 * A toy model: the logits of the next token are a hash of the tokens so far.
 * The reference follows the definition, with whole texts that are copied and
 * sorted. With as many beams as there are texts, the best of all texts is
 * found. The results of transformers for such tables are in data/beam_search.h,
 * which tools/make-generation-fixtures.py writes. */
#include "backend/cpu/sampling.h"
#include "base/error.h"
#include "data/beam_search.h"
#include "decode/beam.h"
#include "testing.h"

#include <math.h>
#include <string.h>

enum { VOCAB_MAX = 24, LONG = 12, BEAMS_MAX = 8, WIDE_MAX = 32 };

static struct {
    float work[VOCAB_MAX], exps[VOCAB_MAX];
    float maxima[VOCAB_MAX / BT_TOPK_BLOCK + 1];
    unsigned char marks[VOCAB_MAX];
    bt_topk_item picks[BEAMS_MAX * VOCAB_MAX + WIDE_MAX];
    float lse[BEAMS_MAX];
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
                                 .topk_capacity = BT_LEN(table.picks),
                                 .lse = table.lse };
}

/* ---- the toy model ----------------------------------------------------- */

typedef struct toy {
    size_t vocab;
    uint32_t salt;
    float spread;
} toy;

/* As the script does it: hash the tokens, then derive one number a token. */
static void toy_logits(const toy *t, const uint32_t *ids, size_t count,
                       float *logits)
{
    uint32_t state = t->salt;
    for (size_t i = 0; i < count; i++)
        state = (state ^ (ids[i] + 1)) * 2654435761u + 12345u;
    for (size_t j = 0; j < t->vocab; j++) {
        uint32_t x = (state ^ (uint32_t)(j * 40503u + 7u)) * 2246822519u;
        x ^= x >> 15;
        x *= 3266489917u;
        x ^= x >> 13;
        logits[j] = ((float)(x >> 8) / 8388608.0f - 1.0f) * t->spread;
    }
}

/* ---- the search -------------------------------------------------------- */

/* Select the candidates of a step. */
static bt_sample_status candidates_select(bt_beam_search *s,
                                          const bt_sampler_scratch *sampler,
                                          const float *rows, size_t stride,
                                          const bauta_generate_options *o,
                                          const bt_token_history *histories)
{
    float scores[BEAMS_MAX];
    for (size_t b = 0; b < s->open_count; b++)
        scores[b] = s->open[b].score;
    bt_beam_rows beams = { .beams = s->open_count,
                           .rows = rows,
                           .stride = stride,
                           .scores = scores,
                           .options = o,
                           .histories = histories,
                           .want = s->candidate_capacity,
                           .choices = s->choices };
    bt_sample_status status = bt_beam_rows_select(&beams, sampler);
    bt_beam_search_take(s, status ? 0 : beams.count);
    return status;
}

typedef struct found {
    size_t count;
    struct {
        float score;
        size_t length;
        uint32_t ids[LONG];
    } all[BEAMS_MAX];
} found;

static bool is_end(const bauta_generate_options *o, uint32_t token)
{
    for (size_t i = 0; i < o->eos_token_count; i++)
        if (o->eos_token_ids[i] == token)
            return true;
    return false;
}

/* One token is given, and `most` are generated. */
static void search_run(const toy *t, const bauta_generate_options *o,
                       size_t most, found *out)
{
    bt_beam_search s;
    bt_beam_tree trail = { 0 };
    bt_sampler_scratch sampler = sampler_of(t->vocab);
    bool over = false;
    assert_true(bt_beam_search_init(&s, o));
    for (size_t made = 1; !over; made++) {
        static float logits[BEAMS_MAX][VOCAB_MAX];
        static uint32_t ids[BEAMS_MAX][LONG + 1];
        bt_token_history h[BEAMS_MAX];
        for (size_t b = 0; b < s.open_count; b++) {
            ids[b][0] = 1;
            bt_beam_tree_read(&trail, s.open[b].node, made - 1, ids[b] + 1,
                              NULL);
            toy_logits(t, ids[b], made, logits[b]);
            h[b] = (bt_token_history){ ids[b], made, 1, most + 1 };
        }
        assert_int_equal(
            candidates_select(&s, &sampler, logits[0], VOCAB_MAX, o, h),
            BT_SAMPLE_OK);
        for (size_t i = 0; i < s.candidate_count; i++)
            s.candidates[i].ends =
                is_end(o, s.candidates[i].token) || made == most;
        assert_int_equal(bt_beam_tree_reserve(&trail, s.candidate_capacity), 0);
        bt_beam_search_preview(&s);
        over = bt_beam_search_advance(&s, &trail, made, most);
    }
    out->count = s.finished_count;
    for (size_t i = 0; i < s.finished_count; i++) {
        size_t length = bt_beam_tree_length(&trail, s.finished[i].node);
        out->all[i].score = s.finished[i].score;
        out->all[i].length = length;
        bt_beam_tree_read(&trail, s.finished[i].node, length, out->all[i].ids,
                          NULL);
    }
    bt_beam_tree_release(&trail);
    bt_beam_search_release(&s);
}

/* ---- the reference ----------------------------------------------------- */

typedef struct text {
    double score;
    size_t length;
    uint32_t ids[LONG];
    bool ended;
} text;

static void log_softmax(const toy *t, const text *x, double *to)
{
    float logits[VOCAB_MAX];
    uint32_t ids[LONG + 1] = { 1 };
    double max = -INFINITY, sum = 0;
    memcpy(ids + 1, x->ids, x->length * sizeof(*ids));
    toy_logits(t, ids, x->length + 1, logits);
    for (size_t j = 0; j < t->vocab; j++)
        max = fmax(max, (double)logits[j]);
    for (size_t j = 0; j < t->vocab; j++)
        sum += exp((double)logits[j] - max);
    for (size_t j = 0; j < t->vocab; j++)
        to[j] = (double)logits[j] - max - log(sum);
}

static void texts_sort(text *all, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && all[j - 1].score < all[j].score; j--) {
            text swap = all[j];
            all[j] = all[j - 1];
            all[j - 1] = swap;
        }
}

/* All continuations, sorted; the best `wide` are considered. */
static void slow_run(const toy *t, const bauta_generate_options *o, size_t most,
                     text *done, size_t *done_count)
{
    static text open[BEAMS_MAX], all[BEAMS_MAX * VOCAB_MAX];
    size_t wide =
        (o->eos_token_count > 1 ? 1 + o->eos_token_count : 2) * o->num_beams;
    size_t open_count = 1;
    open[0] = (text){ 0 };
    *done_count = 0;
    for (size_t made = 1; open_count; made++) {
        size_t count = 0, kept = 0;
        double power = pow((double)made, (double)o->length_penalty);
        for (size_t b = 0; b < open_count; b++) {
            double p[VOCAB_MAX];
            log_softmax(t, &open[b], p);
            for (size_t j = 0; j < t->vocab; j++) {
                text *x = &all[count++];
                *x = open[b];
                x->score += p[j];
                x->ids[x->length++] = (uint32_t)j;
                x->ended = is_end(o, (uint32_t)j) || made == most;
            }
        }
        texts_sort(all, count);
        for (size_t i = 0; i < count && i < wide; i++) {
            if (!all[i].ended && kept < o->num_beams)
                open[kept++] = all[i];
            if (!all[i].ended || i >= o->num_beams)
                continue;
            done[*done_count] = all[i];
            done[*done_count].score /= power;
            texts_sort(done, ++*done_count);
            if (*done_count > o->num_beams)
                *done_count = o->num_beams;
        }
        open_count = kept;
        if (*done_count < o->num_beams || !kept)
            continue;
        bool never = o->early_stopping == BAUTA_EARLY_STOPPING_NEVER &&
                     o->length_penalty > 0;
        double best = open[0].score / pow((double)(never ? most : made),
                                          (double)o->length_penalty);
        if (o->early_stopping == BAUTA_EARLY_STOPPING_YES ||
            !(best > done[o->num_beams - 1].score))
            break;
    }
}

static void options_draw(test_random *r, bauta_generate_options *o,
                         const toy *t)
{
    *o = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    o->num_beams = 2 + test_below(r, BEAMS_MAX - 1);
    o->early_stopping = (bauta_early_stopping)test_below(r, 3);
    o->length_penalty = (float)test_below(r, 7) * 0.5f - 1.0f;
    for (size_t n = test_below(r, 4); n > 0; n--)
        o->eos_token_ids[o->eos_token_count++] =
            (uint32_t)test_below(r, t->vocab);
    for (size_t i = 0; i < o->eos_token_count; i++)
        for (size_t j = 0; j < i; j++)
            if (o->eos_token_ids[i] == o->eos_token_ids[j])
                o->eos_token_count = i; // each once
}

static void search_equals_the_slow_reference(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < 3000; i++) {
        toy t = { 2 + test_below(&r, VOCAB_MAX - 1), test_u32(&r),
                  1.0f + 4.0f * (float)test_below(&r, 3) };
        bauta_generate_options o;
        found got;
        text want[BEAMS_MAX + 1];
        size_t count, most = 1 + test_below(&r, LONG);
        options_draw(&r, &o, &t);
        search_run(&t, &o, most, &got);
        slow_run(&t, &o, most, want, &count);
        assert_int_equal(got.count, count);
        for (size_t b = 0; b < count; b++) {
            double scale = 1 + fabs(want[b].score);
            if (fabs((double)got.all[b].score - want[b].score) > 1e-5 * scale)
                fail_msg("case %zu, text %zu: %.9g, the reference has %.9g", i,
                         b, (double)got.all[b].score, want[b].score);
            assert_int_equal(got.all[b].length, want[b].length);
            assert_memory_equal(got.all[b].ids, want[b].ids,
                                want[b].length * sizeof(uint32_t));
        }
    }
}

/* With a beam for every possible text none is pruned: the best is found. */
static void enough_beams_find_the_best_text(void **state)
{
    (void)state;
    test_random r = test_random_from(test_seed());
    for (size_t i = 0; i < 500; i++) {
        toy t = { 2, test_u32(&r), 4.0f };
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        found got;
        double best = -INFINITY;
        o.num_beams = BEAMS_MAX;
        o.length_penalty = 0;
        search_run(&t, &o, 3, &got);
        for (uint32_t n = 0; n < 8; n++) {
            text x = { 0 };
            for (; x.length < 3; x.length++) {
                double p[VOCAB_MAX];
                log_softmax(&t, &x, p);
                x.ids[x.length] = n >> x.length & 1;
                x.score += p[x.ids[x.length]];
            }
            best = fmax(best, x.score);
        }
        assert_int_equal(got.count, 8);
        assert_true(fabs((double)got.all[0].score - best) < 1e-5);
    }
}

static void search_equals_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(beam_cases); i++) {
        toy t = { beam_cases[i].vocab, beam_cases[i].salt,
                  beam_cases[i].spread };
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        found got;
        o.num_beams = beam_cases[i].beams;
        o.early_stopping = (bauta_early_stopping)beam_cases[i].early;
        o.length_penalty = beam_cases[i].length_penalty;
        o.repetition_penalty = beam_cases[i].repetition_penalty;
        o.no_repeat_ngram_size = beam_cases[i].no_repeat;
        o.min_new_tokens = beam_cases[i].min_tokens;
        o.renormalize_logits = beam_cases[i].renormalize;
        o.forced_eos_token_id = beam_cases[i].last < 0
                                    ? BAUTA_NO_TOKEN
                                    : (uint32_t)beam_cases[i].last;
        o.eos_token_count = beam_cases[i].end_count;
        memcpy(o.eos_token_ids, beam_cases[i].ends,
               o.eos_token_count * sizeof(*o.eos_token_ids));
        search_run(&t, &o, beam_cases[i].most, &got);
        assert_true(got.count >= beam_cases[i].count);
        for (size_t b = 0; b < beam_cases[i].count; b++) {
            const beam_text *want = &beam_cases[i].texts[b];
            if (fabsf(got.all[b].score - want->score) >
                1e-5f * (1 + fabsf(want->score)))
                fail_msg("case %zu, text %zu: %.9g, transformers has %.9g", i,
                         b, (double)got.all[b].score, (double)want->score);
            assert_int_equal(got.all[b].length, want->length);
            assert_memory_equal(got.all[b].ids, want->ids,
                                want->length * sizeof(uint32_t));
        }
    }
    printf("%zu searches\n", BT_LEN(beam_cases));
}

static void length_penalties_are_powers(void **state)
{
    (void)state;
    for (size_t n = 1; n < 3000; n += 7)
        for (float p = -3; p < 4; p += 0.3f) {
            double want = pow((double)n, (double)p);
            assert_true(fabs(bt_length_power(n, p) / want - 1) < 1e-10);
        }
    assert_true(bt_length_power(77, 1.0f) == 77.0);
    assert_true(bt_length_power(77, 0.0f) == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_equals_the_slow_reference),
        cmocka_unit_test(enough_beams_find_the_best_text),
        cmocka_unit_test(search_equals_transformers),
        cmocka_unit_test(length_penalties_are_powers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
