/* SPDX-License-Identifier: Apache-2.0 */
/* lab_leak.c - bauta lab leak: the same model with and without the mask.
 *
 * Two decoders begin with the same weights and read the same windows of text in
 * the same order. One has the causal mask. For the other each window is a
 * prefix as a whole, so that every token sees all others, and among them the
 * one that it is to predict. */
#include "../cli/cli.h"
#include "lab_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUBJECTS = 2, MASKED = 0, UNMASKED = 1 };
static const char *const names[SUBJECTS] = { "with the mask", "without it" };

typedef struct sizes {
    size_t sentences, length, batch, steps, valid;
    const char *model; /* what of the preset is replaced */
    double rate;
} sizes;

/* Weights that begin five times as large as usual tell positions apart from the
 * first step on. Either model would learn with the usual ones, too, but
 * later. */
#define MODEL                                          \
    "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, " \
    "\"n_positions\": 64, \"initializer_range\": 0.1}"

static const sizes full = { 4000, 64, 16, 800, 64, MODEL, 5e-3 };
static const sizes fast = { 2000, 32, 16, 200, 64, MODEL, 5e-3 };

/* ---- windows ------------------------------------------------------------ */

/* Pieces of a text, all of one length, and for each token the next one. */
typedef struct windows {
    size_t count, length;
    uint32_t *ids, *labels; /* (count, length) */
    size_t *whole;          /* (count) the length of each */
} windows;

static void windows_release(windows *w)
{
    free(w->ids);
    free(w->labels);
    free(w->whole);
}

static int windows_init(windows *w, size_t count, size_t length)
{
    *w = (windows){ .count = count, .length = length };
    w->ids = malloc(count * length * sizeof(*w->ids));
    w->labels = malloc(count * length * sizeof(*w->labels));
    w->whole = malloc(count * sizeof(*w->whole));
    if (w->ids && w->labels && w->whole)
        return CLI_OK;
    windows_release(w);
    return cli_fail("lab", "out of memory");
}

/* Other pieces of a text, at random. The last token of a window has nothing to
 * copy even without a mask, so it is not asked. */
static void windows_draw(windows *w, const uint32_t *text, size_t count,
                         uint64_t *random)
{
    for (size_t i = 0; i < w->count; i++) {
        const uint32_t *from = text + lab_draw(random, count - w->length + 1);
        uint32_t *ids = w->ids + i * w->length;
        uint32_t *labels = w->labels + i * w->length;
        memcpy(ids, from, w->length * sizeof(*ids));
        memcpy(labels, from + 1, (w->length - 1) * sizeof(*labels));
        labels[w->length - 1] = BAUTA_IGNORE;
        w->whole[i] = w->length;
    }
}

/* The loss, and its gradients added to what is there. */
static int windows_loss(const lab *l, bauta_model *model, const windows *w,
                        bool mask, double *loss)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = w->count;
    batch.stride = w->length;
    batch.ids = w->ids;
    batch.prefixes = mask ? NULL : w->whole;
    if (bauta_model_loss(l->context, model, NULL, &batch, w->labels, NULL, loss,
                         NULL, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* ---- learning ----------------------------------------------------------- */

typedef struct subject {
    bauta_model *model;
    double train;         /* mean of the last tenth of the steps */
    double honest, shown; /* on held-out text, with the mask and without */
    char *said;
} subject;

static int subject_step(const lab *l, subject *s, learner *a, windows *w,
                        bool mask, double *loss)
{
    int failed = windows_loss(l, s->model, w, mask, loss);
    return failed ? failed : learner_step(a);
}

/* Points of the curve are means over a fiftieth of the steps. */
static int subject_learn(const lab *l, report *r, subject *s, learner *a,
                         windows *w, const lab_text *text, const sizes *z,
                         bool mask)
{
    uint64_t random = l->seed;
    size_t every = z->steps / 50 ? z->steps / 50 : 1, tail = z->steps / 10;
    double loss, sum = 0.0;
    for (size_t i = 1; i <= z->steps; i++) {
        windows_draw(w, text->train, text->train_count, &random);
        int failed = subject_step(l, s, a, w, mask, &loss);
        if (failed)
            return failed;
        sum += loss;
        if (i + tail > z->steps)
            s->train += loss / (double)tail;
        if (i % every)
            continue;
        report_point(r, (double)i, sum / (double)every);
        lab_progress(l, "leak: %s, step %zu of %zu, loss %.3f",
                     names[mask ? MASKED : UNMASKED], i, z->steps, loss);
        sum = 0.0;
    }
    return CLI_OK;
}

static int subject_train(const lab *l, report *r, subject *s,
                         const lab_text *text, const sizes *z, bool mask)
{
    windows w;
    int failed = lab_model_make(&s->model, "gpt2-tiny", z->model,
                                text->tokenizer, l->seed);
    if (!failed)
        failed = windows_init(&w, z->batch, z->length);
    if (failed)
        return failed;
    learner *a = learner_create(s->model, z->rate, z->steps);
    failed = a ? subject_learn(l, r, s, a, &w, text, z, mask)
               : cli_fail("lab", "out of memory");
    learner_free(a);
    windows_release(&w);
    return failed;
}

/* ---- what was learned --------------------------------------------------- */

static const char prompt[] = "The old ";

static int subject_try(const lab *l, subject *s, const lab_text *text,
                       const windows *w)
{
    int failed = windows_loss(l, s->model, w, true, &s->honest);
    if (!failed)
        failed = windows_loss(l, s->model, w, false, &s->shown);
    if (failed)
        return failed;
    // Not further than it was trained.
    s->said = lab_continue(l, s->model, text, prompt,
                           w->length - (sizeof(prompt) - 1));
    return s->said ? CLI_OK : CLI_FAILED;
}

static int subjects_run(const lab *l, report *r, subject *s,
                        const lab_text *text, const sizes *z)
{
    windows held;
    uint64_t random = l->seed + 1;
    int failed = windows_init(&held, z->valid, z->length);
    if (failed)
        return failed;
    windows_draw(&held, text->valid, text->valid_count, &random);
    for (int i = 0; i < SUBJECTS && !failed; i++) {
        report_curve(r, names[i]);
        failed = subject_train(l, r, &s[i], text, z, i == MASKED);
        if (!failed)
            failed = subject_try(l, &s[i], text, &held);
    }
    windows_release(&held);
    return failed;
}

static void table_tell(report *r, const subject *s)
{
    size_t tokens = bauta_model_vocabulary(s->model);
    double guess = log((double)tokens);
    report_table(r, "loss in nats a token",
                 "trained\ttraining\theld out, as it is used\t"
                 "held out, future in sight");
    for (int i = 0; i < SUBJECTS; i++)
        report_row(r, "%s\t%.4f\t%.4f\t%.4f", names[i], s[i].train, s[i].honest,
                   s[i].shown);
    report_row(r, "one of %zu at random\t%.4f\t%.4f\t%.4f", tokens, guess,
               guess, guess);
}

static void tell(report *r, const subject *s)
{
    const subject *m = &s[MASKED], *u = &s[UNMASKED];
    table_tell(r, s);
    for (int i = 0; i < SUBJECTS; i++) {
        char title[80];
        snprintf(title, sizeof(title), "trained %s, behind \"%s\"", names[i],
                 prompt);
        report_quote(r, title, s[i].said);
    }
    report_say(r,
               "Without the mask the training loss falls to %.2g, for the next "
               "token lies in sight and is copied; with it, it ends at %.3f.",
               u->train, m->train);
    report_say(r,
               "As a model is used, where the future is not there, the loss on "
               "held-out text is %.2f without the mask and %.2f with it: the "
               "first has learned to look, not to predict.",
               u->honest, m->honest);
    report_claim(r, u->train < 0.1,
                 "without the mask the training loss is below 0.1, not %.3f",
                 u->train);
    report_claim(r, u->honest > m->honest + 1.0,
                 "as it is used, the model that was trained without the mask "
                 "is worse by more than 1 nat, not by %.3f",
                 u->honest - m->honest);
    report_claim(r, m->honest < m->train + 0.3,
                 "what is learned with the mask holds for other text: %.3f in "
                 "training, %.3f on held-out text",
                 m->train, m->honest);
}

int lab_leak(const lab *l, report *r)
{
    const sizes *z = l->fast ? &fast : &full;
    const plot_options plot = { "what is lost while learning", "step",
                                "training loss", false, false };
    subject s[SUBJECTS] = { { .model = NULL } };
    lab_text text;
    int failed = lab_text_make(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    report_plot(r, &plot);
    failed = subjects_run(l, r, s, &text, z);
    if (!failed)
        tell(r, s);
    for (int i = 0; i < SUBJECTS; i++) {
        bauta_model_free(s[i].model);
        free(s[i].said);
    }
    lab_text_release(&text);
    return failed;
}
