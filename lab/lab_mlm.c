/* SPDX-License-Identifier: Apache-2.0 */
/* lab_mlm.c - bauta lab mlm: masked against causal language modelling.
 *
 * An encoder sees a whole sentence with 15 % of the words masked, and learns
 * from those only. A decoder sees the words before, and learns from every word.
 * Both have the same size, text and number of steps, and are evaluated on the
 * same words of held-out sentences (lab_cloze.c). */
#include "../cli/cli.h"
#include "lab_cloze.h"

#include <stdlib.h>
#include <string.h>

enum { MODELS = 2, MASKED = 0, CAUSAL = 1 };

typedef struct sizes {
    size_t sentences, layers, batch, steps, questions;
} sizes;
static const sizes full = { 10000, 2, 128, 1000, 600 };
static const sizes fast = { 5000, 1, 96, 550, 300 };

typedef struct trained_model {
    bauta_model *model;
    bauta_trainer *trainer;
    double loss;          /* mean of the last tenth of the steps */
    double read, counted; /* tokens per step */
    cloze_result results[CLOZE_TESTS];
} trained_model;

static const char *const names[MODELS] = { "masked", "causal" };
static const char *const presets[MODELS] = { "bert-tiny", "gpt2-tiny" };

/* Overrides of the preset. */
static void model_write(char *to, size_t room, int kind, size_t layers)
{
    if (kind == MASKED)
        snprintf(to, room,
                 "{\"num_hidden_layers\": %zu, \"num_attention_heads\": 4, "
                 "\"hidden_size\": 64, \"intermediate_size\": 256, "
                 "\"max_position_embeddings\": 32, "
                 "\"initializer_range\": 0.1}",
                 layers);
    else
        snprintf(to, room,
                 "{\"n_layer\": %zu, \"n_head\": 4, \"n_embd\": 64, "
                 "\"n_positions\": 32, \"initializer_range\": 0.1}",
                 layers);
}

/* ---- training ---------------------------------------------------------- */

static void model_release(trained_model *p)
{
    bauta_trainer_free(p->trainer);
    bauta_model_free(p->model);
}

static int model_init(trained_model *p, int kind, const lab *l,
                      const lab_corpus *text, const sizes *z)
{
    bauta_error err;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    char model[256];
    model_write(model, sizeof(model), kind, z->layers);
    int failed = lab_model_make(&p->model, presets[kind], model,
                                text->tokenizer, l->seed);
    if (failed)
        return failed;
    o.batch_sequences = z->batch;
    o.max_steps = z->steps;
    o.warmup_steps = z->steps / 10;
    o.learning_rate = 5e-3;
    o.min_learning_rate = 5e-4;
    o.adam_beta2 = 0.98;
    o.weight_decay = 0.01;
    o.seed = l->seed;
    if (bauta_trainer_create(&p->trainer, l->context, p->model, text->tokenizer,
                             text->train_corpus, &o, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* Train up to step `until`; *mean receives the mean loss. */
static int model_steps(trained_model *p, size_t until, const sizes *z,
                       double *mean)
{
    bauta_error err;
    bauta_train_report one = BAUTA_TRAIN_REPORT_INIT;
    size_t taken = 0, tail = z->steps / 10;
    *mean = 0.0;
    for (; bauta_trainer_steps(p->trainer) < until; taken++) {
        if (bauta_trainer_step(p->trainer, &one, &err))
            return lab_failed(&err);
        *mean += one.loss;
        p->read += (double)one.tokens / (double)z->steps;
        p->counted += (double)one.counted / (double)z->steps;
        if (one.step + tail > z->steps)
            p->loss += one.loss / (double)tail;
    }
    *mean /= (double)taken;
    return CLI_OK;
}

/* The training loss and the loss of the middle word; they are in two plots, so
 * the points are kept. */
enum { POINTS = 20 };
typedef struct curves {
    double step[POINTS], training[POINTS], middle[POINTS];
} curves;

static int model_learn(trained_model *p, int kind, const lab *l,
                       const cloze *middle, const sizes *z, curves *c)
{
    for (size_t i = 0; i < POINTS; i++) {
        size_t until = z->steps * (i + 1) / POINTS;
        cloze_result result;
        int failed = model_steps(p, until, z, &c->training[i]);
        if (!failed)
            failed = cloze_evaluate(middle, l, p->model, &result);
        if (failed)
            return failed;
        c->step[i] = (double)until;
        c->middle[i] = result.loss;
        lab_progress(l, "mlm: %s, step %zu of %zu, loss %.3f", names[kind],
                     until, z->steps, c->training[i]);
    }
    return CLI_OK;
}

/* ---- the report -------------------------------------------------------- */

static void curves_report(report *r, const curves *c)
{
    const plot_options training = {
        "training loss, each with its own objective", "step", "loss", false,
        false
    };
    const plot_options middle = { "a word in the middle of held-out sentences",
                                  "step", "loss", false, false };
    report_plot(r, &training);
    for (int k = 0; k < MODELS; k++) {
        report_curve(r, names[k]);
        for (size_t i = 0; i < POINTS; i++)
            report_point(r, c[k].step[i], c[k].training[i]);
    }
    report_plot(r, &middle);
    for (int k = 0; k < MODELS; k++) {
        report_curve(r, names[k]);
        for (size_t i = 0; i < POINTS; i++)
            report_point(r, c[k].step[i], c[k].middle[i]);
    }
}

static void tables_report(report *r, const trained_model *p)
{
    static const char *const places[CLOZE_TESTS] = { "the first word",
                                                     "a word in the middle",
                                                     "the last word" };
    report_table(r, "training",
                 "model\tparameters\ttokens per step\tpredicted\t"
                 "final training loss");
    for (int k = 0; k < MODELS; k++)
        report_row(r, "%s\t%llu\t%.0f\t%.0f (%.0f %%)\t%.3f", names[k],
                   (unsigned long long)bauta_model_parameter_count(p[k].model),
                   p[k].read, p[k].counted, 1e2 * p[k].counted / p[k].read,
                   p[k].loss);
    report_table(r, "cloze test on held-out sentences",
                 "position\tloss, masked\tloss, causal\taccuracy, masked\t"
                 "accuracy, causal");
    for (int e = 0; e < CLOZE_TESTS; e++)
        report_row(r, "%s\t%.3f\t%.3f\t%.0f %%\t%.0f %%", places[e],
                   p[MASKED].results[e].loss, p[CAUSAL].results[e].loss,
                   1e2 * p[MASKED].results[e].accuracy,
                   1e2 * p[CAUSAL].results[e].accuracy);
}

static void conclude(report *r, const trained_model *p)
{
    const trained_model *m = &p[MASKED], *c = &p[CAUSAL];
    double both = m->results[CLOZE_MIDDLE].loss;
    double before = c->results[CLOZE_MIDDLE].loss;
    report_conclude(
        r,
        "A step of the causal model learns from all %.0f tokens that it "
        "reads, one of the masked model from %.0f of %.0f, since only 15 %% of "
        "the words are masked.",
        c->counted, m->counted, m->read);
    report_conclude(
        r,
        "But the masked model sees both sides: a word in the middle of a "
        "held-out sentence costs it %.2f nats, and %.2f for the causal "
        "model, which sees only the words before and can therefore "
        "generate text.",
        both, before);
    report_claim(r, both < before - 0.2,
                 "in the middle the masked model is better by more than 0.2: "
                 "by %.3f",
                 before - both);
    report_claim(r, c->counted > 4.0 * m->counted,
                 "the causal model learns from more than 4 times as many "
                 "tokens: %.1f times as many",
                 c->counted / m->counted);
}

/* ---- the experiment ---------------------------------------------------- */

static int model_run(trained_model *p, int kind, const lab *l,
                     const lab_corpus *text, const cloze *tests, const sizes *z,
                     curves *c)
{
    int failed = model_init(p, kind, l, text, z);
    if (!failed)
        failed = model_learn(p, kind, l, &tests[CLOZE_MIDDLE], z, c);
    for (int e = 0; e < CLOZE_TESTS && !failed; e++)
        failed = cloze_evaluate(&tests[e], l, p->model, &p->results[e]);
    return failed;
}

static int samples_report(report *r, const lab *l, const lab_corpus *text,
                          const cloze *middle, const trained_model *p)
{
    int failed = cloze_examples(middle, l, r, text->tokenizer, p[MASKED].model,
                                p[CAUSAL].model);
    if (!failed)
        failed = cloze_toy(middle, l, r, text->tokenizer, p[MASKED].model,
                           p[CAUSAL].model);
    char *output = failed ? NULL
                          : lab_continue(l, p[CAUSAL].model, text,
                                         "[CLS] the old man", 12);
    if (!output)
        return CLI_FAILED;
    report_quote(r, "causal model, prompt \"the old man\"",
                 output + strspn(output, " "));
    free(output);
    return CLI_OK;
}

static int models_run(const lab *l, report *r, const lab_corpus *text,
                      const cloze *tests, const sizes *z)
{
    trained_model p[MODELS] = { { .model = NULL } };
    curves c[MODELS];
    int failed = CLI_OK;
    for (int k = 0; k < MODELS && !failed; k++)
        failed = model_run(&p[k], k, l, text, tests, z, &c[k]);
    if (!failed) {
        tables_report(r, p);
        curves_report(r, c);
        failed = samples_report(r, l, text, &tests[CLOZE_MIDDLE], p);
        conclude(r, p);
    }
    for (int k = 0; k < MODELS; k++)
        model_release(&p[k]);
    return failed;
}

int lab_mlm(const lab *l, report *r)
{
    const sizes *z = l->fast ? &fast : &full;
    cloze tests[CLOZE_TESTS] = { { .count = 0 } };
    lab_corpus text;
    int failed = lab_corpus_make_words(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    for (int e = 0; e < CLOZE_TESTS && !failed; e++)
        failed =
            cloze_make(&tests[e], &text, (cloze_place)e, z->questions, l->seed);
    if (!failed)
        failed = models_run(l, r, &text, tests, z);
    for (int e = 0; e < CLOZE_TESTS; e++)
        cloze_release(&tests[e]);
    lab_corpus_release(&text);
    return failed;
}
