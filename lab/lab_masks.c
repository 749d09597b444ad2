/* SPDX-License-Identifier: Apache-2.0 */
/* lab_masks.c - bauta lab masks: every kind of mask, drawn small and timed
 * large. Hidden pairs are not computed, so a mask that hides more takes less
 * time: that is the claim. Times are CPU time of one thread, which other load
 * hardly affects. */
#include "../cli/cli.h"
#include "lab.h"
#include "lab_mask_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- drawing ----------------------------------------------------------- */

static int kinds_draw(report *r)
{
    const sizes small = { 16, 4, 5, 2, 2, 5 };
    for (size_t k = 0; k < KINDS; k++) {
        bauta_error err;
        bauta_mask *mask;
        char name[KIND_NAME];
        if (kind_make(&mask, k, &small, &err))
            return lab_failed(&err);
        kind_name(name, k, &small);
        report_mask(r, name, mask, NULL);
        bauta_mask_free(mask);
    }
    return CLI_OK;
}

/* ---- timing ------------------------------------------------------------ */

enum { REPEATS_MAX = 15, TENSORS = 8 };

/* Tensors for the largest size. */
typedef struct bench {
    const lab *l;
    bauta_context *context; /* of one thread */
    bauta_attention_shape shape;
    float *memory;
    float *q, *k, *v, *out, *dout, *dq, *dk, *dv, *lse;
} bench;

static int bench_init(bench *b, size_t tokens, size_t heads)
{
    b->shape.heads = heads;
    size_t each = tokens * b->shape.heads * b->shape.head_dim;
    b->memory =
        malloc((TENSORS * each + tokens * b->shape.heads) * sizeof(float));
    if (!b->memory)
        return cli_fail("lab", "masks: out of memory");
    float **places[TENSORS] = { &b->q,   &b->k,  &b->v,  &b->dout,
                                &b->out, &b->dq, &b->dk, &b->dv };
    for (size_t i = 0; i < TENSORS; i++)
        *places[i] = b->memory + i * each;
    b->lse = b->memory + TENSORS * each;
    uint64_t state = b->l->seed * 2 + 1;
    for (size_t i = 0; i < 4 * each; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->memory[i] = (float)(int32_t)(state >> 32) * 0x1p-30f;
    }
    return CLI_OK;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Timings of a mask, in milliseconds. */
typedef struct timed {
    bauta_plan *plan;
    size_t queries, keys;
    uint64_t pairs;
    double forward[REPEATS_MAX], backward[REPEATS_MAX];
} timed;

static int timed_init(timed *t, size_t kind, const sizes *s)
{
    bauta_error err;
    bauta_mask *mask = NULL;
    int failed = CLI_OK;
    *t = (timed){ 0 };
    if (kind_make(&mask, kind, s, &err) ||
        bauta_plan_create(&t->plan, mask, 0, bauta_mask_queries(mask), &err)) {
        failed = lab_failed(&err);
    } else {
        t->queries = bauta_mask_queries(mask);
        t->keys = bauta_mask_keys(mask);
        t->pairs = bauta_mask_pairs(mask);
    }
    bauta_mask_free(mask);
    return failed;
}

/* Time one run; the first one is a warm-up and is overwritten. */
static int timed_run(timed *t, bench *b, size_t run, bool backward)
{
    bauta_error err;
    double began = cpu_seconds();
    if (bauta_attention_forward(b->context, t->plan, &b->shape, b->q, b->k,
                                b->v, b->out, b->lse, &err))
        return lab_failed(&err);
    double between = cpu_seconds();
    if (backward && bauta_attention_backward(
                        b->context, t->plan, &b->shape, b->q, b->k, b->v,
                        b->out, b->lse, b->dout, b->dq, b->dk, b->dv, &err))
        return lab_failed(&err);
    t->forward[run] = 1e3 * (between - began);
    t->backward[run] = 1e3 * (cpu_seconds() - between);
    return CLI_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time all masks in turn, so that other load affects each. Then sort the runs:
 * the first is the best, the middle one the median. */
static int timed_all(timed *all, size_t count, bench *b, size_t repeats,
                     bool backward, const char *what)
{
    int failed = CLI_OK;
    for (size_t run = 0; run <= repeats && !failed; run++)
        for (size_t i = 0; i < count && !failed; i++) {
            lab_progress(b->l, "masks: %s, run %zu of %zu", what, run + 1,
                         repeats + 1);
            failed = timed_run(&all[i], b, run ? run - 1 : 0, backward);
        }
    for (size_t i = 0; i < count; i++) {
        qsort(all[i].forward, repeats, sizeof(double), compare);
        qsort(all[i].backward, repeats, sizeof(double), compare);
    }
    return failed;
}

/* ---- the kinds, timed -------------------------------------------------- */

static void kinds_table(report *r, const timed *all, const sizes *s,
                        const bench *b, size_t repeats)
{
    char title[160], name[KIND_NAME];
    snprintf(title, sizeof(title),
             "%zu tokens, %zu heads of %zu: milliseconds on one %s core, "
             "median of %zu",
             s->tokens, b->shape.heads, b->shape.head_dim,
             bauta_context_isa(b->context), repeats);
    report_table(r, title,
                 "mask\tqueries x keys\tvisible\tshare\tforward\tns/pair\t"
                 "backward\tns/pair");
    for (size_t k = 0; k < KINDS; k++) {
        const timed *t = &all[k];
        double pairs = (double)t->pairs;
        double forward = t->forward[repeats / 2];
        double backward = t->backward[repeats / 2];
        kind_name(name, k, s);
        report_row(r, "%s\t%zu x %zu\t%llu\t%.1f %%\t%.2f\t%.1f\t%.2f\t%.1f",
                   name, t->queries, t->keys, (unsigned long long)t->pairs,
                   100.0 * pairs / ((double)t->queries * (double)t->keys),
                   forward, 1e6 * forward / pairs, backward,
                   1e6 * backward / pairs);
    }
}

static double percent(const timed *a, const timed *b, size_t repeats)
{
    return 100.0 * a->forward[repeats / 2] / b->forward[repeats / 2];
}

static double seen(const timed *t)
{
    return 100.0 * (double)t->pairs / ((double)t->queries * (double)t->keys);
}

static void kinds_conclude(report *r, const timed *all, const sizes *s,
                           size_t repeats)
{
    report_conclude(
        r,
        "At %zu tokens the causal mask shows %.0f %% of the pairs and "
        "takes %.0f %% of the time without a mask, and a window of %zu "
        "shows %.0f %% and takes %.0f %%: hidden pairs are never "
        "computed.",
        s->tokens, seen(&all[CAUSAL]),
        percent(&all[CAUSAL], &all[ALL], repeats), s->window,
        seen(&all[WINDOW]), percent(&all[WINDOW], &all[ALL], repeats));
    report_claim(r, all[CAUSAL].forward[0] < 0.9 * all[ALL].forward[0],
                 "A causal mask takes less than 90 %% of the time of none; "
                 "at best %.2f ms and %.2f ms.",
                 all[CAUSAL].forward[0], all[ALL].forward[0]);
    report_claim(r, all[WINDOW].forward[0] < 0.8 * all[CAUSAL].forward[0],
                 "A window takes less than 80 %% of the time of a causal "
                 "mask; at best %.2f ms and %.2f ms.",
                 all[WINDOW].forward[0], all[CAUSAL].forward[0]);
    report_claim(
        r, all[CAUSAL].backward[0] < 0.9 * all[ALL].backward[0],
        "Backward, causal takes less than 90 %% of none; at best %.2f ms "
        "and %.2f ms.",
        all[CAUSAL].backward[0], all[ALL].backward[0]);
    report_claim(r, all[WINDOW].backward[0] < 0.8 * all[CAUSAL].backward[0],
                 "Backward, a window takes less than 80 %% of causal; at best "
                 "%.2f ms and %.2f ms.",
                 all[WINDOW].backward[0], all[CAUSAL].backward[0]);
}

static int kinds_time(report *r, bench *b, const sizes *s, size_t repeats)
{
    timed all[KINDS] = { 0 };
    int failed = CLI_OK;
    for (size_t k = 0; k < KINDS && !failed; k++)
        failed = timed_init(&all[k], k, s);
    if (!failed)
        failed = timed_all(all, KINDS, b, repeats, true, "every kind");
    if (!failed) {
        kinds_table(r, all, s, b, repeats);
        kinds_conclude(r, all, s, repeats);
    }
    for (size_t k = 0; k < KINDS; k++)
        bauta_plan_free(all[k].plan);
    return failed;
}

/* ---- growing length ---------------------------------------------------- */

enum { STEPS_MAX = 6, GROWN = 3 }; /* sizes; all, causal and window */

static void growth_show(report *r, double ms[GROWN][STEPS_MAX], size_t steps,
                        const sizes *s, size_t first)
{
    char names[GROWN][KIND_NAME], headings[4 * KIND_NAME];
    for (size_t k = 0; k < GROWN; k++)
        kind_name(names[k], k, s);
    snprintf(headings, sizeof(headings), "tokens\t%s ms\t%s ms\t%s ms",
             names[ALL], names[CAUSAL], names[WINDOW]);
    report_table(r, "Forward by length; best run", headings);
    for (size_t i = 0; i < steps; i++)
        report_row(r, "%zu\t%.2f\t%.2f\t%.2f", first << i, ms[ALL][i],
                   ms[CAUSAL][i], ms[WINDOW][i]);
    report_plot(r, &(plot_options){ .title = "Time by length",
                                    .across = "tokens",
                                    .upward = "milliseconds",
                                    .log_across = true,
                                    .log_upward = true });
    for (size_t k = 0; k < GROWN; k++) {
        report_curve(r, names[k]);
        for (size_t i = 0; i < steps; i++)
            report_point(r, (double)(first << i), ms[k][i]);
    }
    report_conclude(
        r,
        "Twice the tokens, from %zu to %zu, take %.1f times as long "
        "with the causal mask, whose pairs grow quadratically, but %.1f "
        "times with a window of %zu, whose pairs grow linearly.",
        first << (steps - 2), first << (steps - 1),
        ms[CAUSAL][steps - 1] / ms[CAUSAL][steps - 2],
        ms[WINDOW][steps - 1] / ms[WINDOW][steps - 2], s->window);
}

static int growth_time(report *r, bench *b, sizes s, size_t first, size_t steps,
                       size_t repeats)
{
    double ms[GROWN][STEPS_MAX];
    int failed = CLI_OK;
    for (size_t i = 0; i < steps && !failed; i++) {
        timed all[GROWN] = { 0 };
        char what[KIND_NAME];
        s.tokens = first << i;
        snprintf(what, sizeof(what), "%zu tokens", s.tokens);
        for (size_t k = 0; k < GROWN && !failed; k++)
            failed = timed_init(&all[k], k, &s);
        if (!failed)
            failed = timed_all(all, GROWN, b, repeats, false, what);
        for (size_t k = 0; k < GROWN; k++) {
            ms[k][i] = all[k].forward[0];
            bauta_plan_free(all[k].plan);
        }
    }
    if (!failed)
        growth_show(r, ms, steps, &s, first);
    return failed;
}

/* ---- the experiment ---------------------------------------------------- */

static int masks_run(bench *b, report *r, bool small, size_t heads)
{
    const sizes whole = { 2048, 256, 256, 4, 64, b->l->seed };
    const sizes fast = { 512, 64, 64, 4, 64, b->l->seed };
    const sizes *s = small ? &fast : &whole;
    size_t first = small ? 128 : 256, steps = small ? 4 : 5, repeats = 5;
    int failed = bench_init(b, first << (steps - 1), heads);
    if (!failed)
        failed = kinds_draw(r);
    if (!failed)
        failed = kinds_time(r, b, s, repeats);
    if (!failed)
        failed = growth_time(r, b, *s, first, steps, repeats);
    return failed;
}

int lab_masks(const lab *l, report *r)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    bench b = { .l = l, .shape = BAUTA_ATTENTION_SHAPE_INIT };
    options.threads = 1;
    if (bauta_context_create(&b.context, &options, &err))
        return lab_failed(&err);
    // The C reference is a hundred times slower than its twins.
    bool plain = strcmp(bauta_context_isa(b.context), "c") == 0;
    int failed = masks_run(&b, r, l->fast || plain,
                           plain     ? 1
                           : l->fast ? 4
                                     : 8);
    free(b.memory);
    bauta_context_free(b.context);
    return failed;
}
