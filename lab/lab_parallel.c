/* SPDX-License-Identifier: Apache-2.0 */
/* lab_parallel.c - bauta lab parallel: teacher forcing, position by position,
 * and free-running.
 *
 * With the mask one pass trains on every position of a text. The gradients show
 * that nothing is lost, and the time what is gained. Training never shows the
 * model its own mistakes: see lab_exposure_bias.c. */
#include "../cli/cli.h"
#include "../cli/compare_modes.h"
#include "../cli/format.h"
#include "../cli/train.h"
#include "lab_train.h"

#include <stdlib.h>

enum { LENGTHS = 5, QUOTED = 128 }; /* the length of the conclusion */

typedef struct sizes {
    size_t sentences, lengths, readings;
    size_t sequences, context; /* of the compared batch */
} sizes;
static const sizes full = { 4000, LENGTHS, 5, 8, 64 };
static const sizes fast = { 2000, LENGTHS - 1, 3, 4, 32 };

static const size_t lengths[LENGTHS] = { 16, 32, 64, QUOTED, 256 };
static const char *const names[MODES] = { "parallel", "sequential",
                                          "free-running" };

/* Everything runs on one thread: a second one would also speed up long passes,
 * but not because of the mask, and one core is less disturbed by other load. */
typedef struct bench {
    const lab *l;
    bauta_context *context;
    const lab_corpus *text;
    bauta_model *model;
} bench;

static int trainer_make(bauta_trainer **out, const bench *b, size_t sequences,
                        size_t context)
{
    bauta_error err;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.batch_sequences = sequences;
    o.context_length = context;
    o.seed = b->l->seed;
    if (bauta_trainer_create(out, b->context, b->model, b->text->tokenizer,
                             b->text->train_corpus, &o, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* ---- gradients --------------------------------------------------------- */

static int gradients_compare(const bench *b, const sizes *z, comparison *c)
{
    bauta_error err;
    bauta_trainer *trainer;
    int failed = trainer_make(&trainer, b, z->sequences, z->context);
    if (failed)
        return failed;
    lab_progress(b->l, "parallel: %zu tokens in three modes",
                 z->sequences * z->context);
    if (compare_modes(c, trainer, b->model, &err))
        failed = lab_failed(&err);
    bauta_trainer_free(trainer);
    return failed;
}

/* A gradient sums every position of the batch; position by position, each adds
 * all those before it. */
static double bound_of(const comparison *c, const sizes *z)
{
    return compare_modes_bound(
        c, (double)(z->sequences * z->context * z->context));
}

static void gradients_report(report *r, const comparison *c, const sizes *z)
{
    char title[80];
    snprintf(title, sizeof(title),
             "one batch: %zu texts of %zu characters, one core", z->sequences,
             z->context);
    report_table(
        r, title,
        "mode\tloss\tlargest difference of gradients, relative\tseconds");
    for (int i = 0; i < MODES; i++)
        report_row(r, "%s\t%.6f\t%.2g\t%.4f", names[i], c->loss[i],
                   c->difference[i] / c->largest, c->seconds[i]);
    report_claim(r, c->difference[SEQUENTIAL] <= bound_of(c, z),
                 "the sequential gradients equal the parallel ones up to "
                 "rounding: they differ by %.3g, the bound is %.3g",
                 c->difference[SEQUENTIAL], bound_of(c, z));
    report_claim(r, c->difference[FREE_RUNNING] > 100.0 * bound_of(c, z),
                 "the free-running gradients are different: by %.3g",
                 c->difference[FREE_RUNNING]);
}

/* ---- time -------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of readings, each of some passes. */
static int seconds_of(bauta_trainer *trainer, bauta_train_mode mode,
                      size_t passes, size_t readings, double *median)
{
    enum { MOST = 8 };
    bauta_error err;
    double took[MOST], loss;
    for (size_t i = 0; i < readings; i++) {
        double began = seconds_now();
        for (size_t k = 0; k < passes; k++)
            if (bauta_trainer_gradients(trainer, mode, &loss, &err))
                return lab_failed(&err);
        took[i] = (seconds_now() - began) / (double)passes;
    }
    qsort(took, readings, sizeof(*took), by_size);
    *median = took[readings / 2];
    return CLI_OK;
}

/* A parallel pass is short, so a reading takes many, to average over other
 * load. One pass before warms up the memory. */
static int length_time(const bench *b, const sizes *z, size_t length,
                       double *median)
{
    bauta_trainer *trainer;
    double unused;
    enum { PASSES = 32 };
    int failed = trainer_make(&trainer, b, 1, length);
    if (failed)
        return failed;
    failed = seconds_of(trainer, BAUTA_MODE_PARALLEL, 1, 1, &unused);
    for (int i = 0; i < MODES && !failed; i++)
        failed =
            seconds_of(trainer, mode_entries[i].mode,
                       i == PARALLEL ? PASSES : 1, z->readings, &median[i]);
    bauta_trainer_free(trainer);
    return failed;
}

static void times_report(report *r, const sizes *z, double (*median)[MODES])
{
    const plot_options plot = { "one text, loss and gradients, one core",
                                "characters", "seconds", true, true };
    report_plot(r, &plot);
    for (int i = 0; i < MODES; i++) {
        report_curve(r, names[i]);
        for (size_t k = 0; k < z->lengths; k++)
            report_point(r, (double)lengths[k], median[k][i]);
    }
    report_table(r, "milliseconds for one text, one core",
                 "characters\tparallel\tsequential\tfree-running\t"
                 "sequential / parallel");
    for (size_t k = 0; k < z->lengths; k++)
        report_row(r, "%zu\t%.2f\t%.1f\t%.1f\t%.1f", lengths[k],
                   1e3 * median[k][PARALLEL], 1e3 * median[k][SEQUENTIAL],
                   1e3 * median[k][FREE_RUNNING],
                   median[k][SEQUENTIAL] / median[k][PARALLEL]);
}

static int times_find(const bench *b, report *r, const sizes *z, double *ratio)
{
    double median[LENGTHS][MODES];
    for (size_t k = 0; k < z->lengths; k++) {
        lab_progress(b->l, "parallel: a text of %zu characters", lengths[k]);
        int failed = length_time(b, z, lengths[k], median[k]);
        if (failed)
            return failed;
        if (lengths[k] == QUOTED)
            *ratio = median[k][SEQUENTIAL] / median[k][PARALLEL];
    }
    times_report(r, z, median);
    report_claim(r, *ratio >= 10.0,
                 "at %d characters parallel is at least 10 times as fast as "
                 "sequential: %.1f times",
                 QUOTED, *ratio);
    return CLI_OK;
}

/* ---- the experiment ---------------------------------------------------- */

static void conclude(report *r, const comparison *c, double ratio,
                     const lab_exposure_bias_result *d)
{
    report_conclude(
        r,
        "One masked pass gives the gradients of one pass per position, up "
        "to rounding (%.1g of the largest), and for %d characters it is "
        "%.0f times as fast.",
        c->difference[SEQUENTIAL] / c->largest, QUOTED, ratio);
    report_conclude(
        r,
        "But it only ever shows the true prefix. When the model reads its own "
        "output, errors accumulate (exposure bias): over the second half of a "
        "text the loss is %.2f instead of %.2f (with an unrelated text as "
        "prefix: %.2f).",
        d->own, d->true_prefix, d->other);
    report_claim(r, d->own > d->true_prefix + 0.5,
                 "in the second half free-running is worse by more than 0.5: "
                 "by %.3f",
                 d->own - d->true_prefix);
    report_claim(r, d->own > d->own_early,
                 "errors accumulate: the loss rises from %.3f to %.3f",
                 d->own_early, d->own);
}

static int parallel_run(const bench *b, report *r, const sizes *z)
{
    comparison c;
    lab_exposure_bias_result d;
    double ratio = 0.0;
    int failed = gradients_compare(b, z, &c);
    if (failed)
        return failed;
    gradients_report(r, &c, z);
    failed = times_find(b, r, z, &ratio);
    if (!failed)
        failed = lab_exposure_bias(b->l, r, b->text, &d);
    if (!failed)
        conclude(r, &c, ratio, &d);
    return failed;
}

static int bench_run(bench *b, report *r, const sizes *z)
{
    static const char model[] =
        "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, \"n_positions\": 256}";
    bauta_error err;
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = 1;
    if (bauta_context_create(&b->context, &options, &err))
        return lab_failed(&err);
    int failed = lab_model_make(&b->model, "gpt2-tiny", model,
                                b->text->tokenizer, b->l->seed);
    return failed ? failed : parallel_run(b, r, z);
}

int lab_parallel(const lab *l, report *r)
{
    const sizes *z = l->fast ? &fast : &full;
    lab_corpus text;
    bench b = { .l = l, .text = &text };
    int failed = lab_corpus_make(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    failed = bench_run(&b, r, z);
    bauta_model_free(b.model);
    bauta_context_free(b.context);
    lab_corpus_release(&text);
    return failed;
}
