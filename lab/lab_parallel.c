/* SPDX-License-Identifier: Apache-2.0 */
/* lab_parallel.c - bauta lab parallel: all positions at once, one by one, and
 * on its own.
 *
 * The mask lets one pass learn from every position of a text. That nothing is
 * lost by it is seen in the gradients, and what is won in the time; what the
 * model is never shown in this way, its own mistakes, in lab_exposure_bias.c.
 */
#include "../cli/cli.h"
#include "../cli/compare_modes.h"
#include "../cli/format.h"
#include "../cli/train.h"
#include "lab_train.h"

#include <stdlib.h>

enum { LENGTHS = 5, ASKED = 128 }; /* the length that is spoken of */

typedef struct sizes {
    size_t sentences, lengths, readings;
    size_t sequences, context; /* of the batch that is compared */
} sizes;
static const sizes full = { 4000, LENGTHS, 5, 8, 64 };
static const sizes fast = { 2000, LENGTHS - 1, 3, 4, 32 };

static const size_t lengths[LENGTHS] = { 16, 32, 64, ASKED, 256 };
static const char *const names[MODES] = { "parallel", "sequential",
                                          "free-running" };

/* All of it runs in one thread: a pass that is long enough for two would gain
 * by that, too, but it is not the mask that makes it so, and one core is less
 * disturbed by others than two that wait for each other. */
typedef struct bench {
    const lab *l;
    bauta_context *context;
    const lab_text *text;
    bauta_model *model;
} bench;

static int trainer_make(bauta_trainer **out, const bench *b, size_t sequences,
                        size_t context)
{
    bauta_error err;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.sequences = sequences;
    o.context = context;
    o.seed = b->l->seed;
    if (bauta_trainer_create(out, b->context, b->model, b->text->tokenizer,
                             b->text->train_corpus, &o, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* ---- gradients ---------------------------------------------------------- */

static int gradients_compare(const bench *b, const sizes *z, comparison *c)
{
    bauta_error err;
    bauta_trainer *trainer;
    int failed = trainer_make(&trainer, b, z->sequences, z->context);
    if (failed)
        return failed;
    lab_progress(b->l, "parallel: %zu tokens in three ways",
                 z->sequences * z->context);
    if (compare_modes(c, trainer, b->model, &err))
        failed = lab_failed(&err);
    bauta_trainer_free(trainer);
    return failed;
}

/* A gradient adds up every position of the batch; one by one, each position
 * brings all those before it. */
static double bound_of(const comparison *c, const sizes *z)
{
    return compare_modes_bound(
        c, (double)(z->sequences * z->context * z->context));
}

static void gradients_tell(report *r, const comparison *c, const sizes *z)
{
    char title[80];
    snprintf(title, sizeof(title),
             "one batch: %zu texts of %zu characters, on one core",
             z->sequences, z->context);
    report_table(r, title,
                 "mode\tloss\tgradients differ by, of the largest\tseconds");
    for (int i = 0; i < MODES; i++)
        report_row(r, "%s\t%.6f\t%.2g\t%.4f", names[i], c->loss[i],
                   c->difference[i] / c->largest, c->seconds[i]);
    report_claim(r, c->difference[SEQUENTIAL] <= bound_of(c, z),
                 "the sequential gradients are the parallel ones but for "
                 "rounding: they differ by %.3g, where %.3g is allowed",
                 c->difference[SEQUENTIAL], bound_of(c, z));
    report_claim(r, c->difference[FREE_RUNNING] > 100.0 * bound_of(c, z),
                 "the free-running gradients are others: they differ by %.3g",
                 c->difference[FREE_RUNNING]);
}

/* ---- time --------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of readings, each over some passes. */
static int seconds_of(bauta_trainer *trainer, bauta_mode mode, size_t passes,
                      size_t readings, double *median)
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

/* A parallel pass is so short that others who use the machine may not come
 * between; so a reading is of many. One pass before is for memory that is used
 * for the first time. */
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

static void times_tell(report *r, const sizes *z, double (*median)[MODES])
{
    const plot_options plot = { "one text, loss and gradients, on one core",
                                "characters", "seconds", true, true };
    report_plot(r, &plot);
    for (int i = 0; i < MODES; i++) {
        report_curve(r, names[i]);
        for (size_t k = 0; k < z->lengths; k++)
            report_point(r, (double)lengths[k], median[k][i]);
    }
    report_table(r, "milliseconds for one text, on one core",
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
        if (lengths[k] == ASKED)
            *ratio = median[k][SEQUENTIAL] / median[k][PARALLEL];
    }
    times_tell(r, z, median);
    report_claim(r, *ratio >= 10.0,
                 "at %d characters parallel is 10 times as fast as sequential, "
                 "not %.1f times",
                 ASKED, *ratio);
    return CLI_OK;
}

/* ---- all of it ---------------------------------------------------------- */

static void conclude(report *r, const comparison *c, double ratio,
                     const lab_exposure_bias_result *d)
{
    report_say(r,
               "One pass under the mask gives the gradients of a pass for each "
               "position, but for rounding (%.1g of the largest), and for %d "
               "characters it is %.0f times as fast.",
               c->difference[SEQUENTIAL] / c->largest, ASKED, ratio);
    report_say(
        r,
        "But it only ever shows the true past: where the model reads "
        "what it said itself, each slip leads further away, and over "
        "the later half of a text the loss is %.2f instead of %.2f (behind "
        "a text that has nothing to do with it: %.2f).",
        d->own, d->given, d->other);
    report_claim(r, d->own > d->given + 0.5,
                 "in the later half free-running is worse by more than 0.5, "
                 "not by %.3f",
                 d->own - d->given);
    report_claim(r, d->own > d->own_early,
                 "errors add up: the loss rises, and not from %.3f to %.3f",
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
    gradients_tell(r, &c, z);
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
    lab_text text;
    bench b = { .l = l, .text = &text };
    int failed = lab_text_make(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    failed = bench_run(&b, r, z);
    bauta_model_free(b.model);
    bauta_context_free(b.context);
    lab_text_release(&text);
    return failed;
}
