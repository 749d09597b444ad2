/* SPDX-License-Identifier: Apache-2.0 */
/* lab_mlm.c - bauta lab mlm: hidden words against the next word.
 *
 * An encoder sees a whole sentence, of which 15 % of the words were hidden, and
 * learns from those alone. A decoder sees what came before, and learns from
 * every word. Both have the same size, text and steps, and are asked at the end
 * for the same words of held-out sentences (lab_cloze.c). */
#include "../cli/cli.h"
#include "lab_cloze.h"

#include <stdlib.h>
#include <string.h>

enum { PUPILS = 2, MASKED = 0, CAUSAL = 1 };

typedef struct sizes {
    size_t sentences, layers, batch, steps, exam;
} sizes;
static const sizes full = { 10000, 2, 128, 1000, 600 };
static const sizes fast = { 5000, 1, 96, 550, 300 };

typedef struct pupil {
    bauta_model *model;
    bauta_trainer *trainer;
    double loss;          /* mean of the last tenth of the steps */
    double read, counted; /* tokens of a step */
    exam_result results[EXAMS];
} pupil;

static const char *const names[PUPILS] = { "masked", "causal" };
static const char *const presets[PUPILS] = { "bert-tiny", "gpt2-tiny" };

/* What of a preset is replaced. */
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

/* ---- learning ----------------------------------------------------------- */

static void pupil_release(pupil *p)
{
    bauta_trainer_free(p->trainer);
    bauta_model_free(p->model);
}

static int pupil_make(pupil *p, int kind, const lab *l, const lab_text *text,
                      const sizes *z)
{
    bauta_error err;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    char model[256];
    model_write(model, sizeof(model), kind, z->layers);
    int failed = lab_model_make(&p->model, presets[kind], model,
                                text->tokenizer, l->seed);
    if (failed)
        return failed;
    o.sequences = z->batch;
    o.steps = z->steps;
    o.warmup = z->steps / 10;
    o.rate = 5e-3;
    o.min_rate = 5e-4;
    o.beta2 = 0.98;
    o.weight_decay = 0.01;
    o.seed = l->seed;
    if (bauta_trainer_create(&p->trainer, l->context, p->model, text->tokenizer,
                             text->train_corpus, &o, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* Steps up to number `until`; *mean receives that of their losses. */
static int pupil_steps(pupil *p, size_t until, const sizes *z, double *mean)
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

/* A curve of training losses, and one of the word in the middle, which lie in
 * two plots; so the points are kept. */
enum { POINTS = 20 };
typedef struct curves {
    double step[POINTS], training[POINTS], middle[POINTS];
} curves;

static int pupil_learn(pupil *p, int kind, const lab *l, const exam *middle,
                       const sizes *z, curves *c)
{
    for (size_t i = 0; i < POINTS; i++) {
        size_t until = z->steps * (i + 1) / POINTS;
        exam_result result;
        int failed = pupil_steps(p, until, z, &c->training[i]);
        if (!failed)
            failed = exam_take(middle, l, p->model, &result);
        if (failed)
            return failed;
        c->step[i] = (double)until;
        c->middle[i] = result.loss;
        lab_progress(l, "mlm: %s, step %zu of %zu, loss %.3f", names[kind],
                     until, z->steps, c->training[i]);
    }
    return CLI_OK;
}

/* ---- telling ------------------------------------------------------------ */

static void curves_tell(report *r, const curves *c)
{
    const plot_options training = { "training, each by its own question",
                                    "step", "loss", false, false };
    const plot_options middle = { "a word in the middle of held-out sentences",
                                  "step", "loss", false, false };
    report_plot(r, &training);
    for (int k = 0; k < PUPILS; k++) {
        report_curve(r, names[k]);
        for (size_t i = 0; i < POINTS; i++)
            report_point(r, c[k].step[i], c[k].training[i]);
    }
    report_plot(r, &middle);
    for (int k = 0; k < PUPILS; k++) {
        report_curve(r, names[k]);
        for (size_t i = 0; i < POINTS; i++)
            report_point(r, c[k].step[i], c[k].middle[i]);
    }
}

static void tables_tell(report *r, const pupil *p)
{
    static const char *const places[EXAMS] = { "the first word",
                                               "a word in the middle",
                                               "the last word" };
    report_table(r, "what each learns from",
                 "model\tparameters\ttokens a step\tof which count\t"
                 "training loss at the end");
    for (int k = 0; k < PUPILS; k++)
        report_row(r, "%s\t%llu\t%.0f\t%.0f (%.0f %%)\t%.3f", names[k],
                   (unsigned long long)bauta_model_parameters(p[k].model),
                   p[k].read, p[k].counted, 1e2 * p[k].counted / p[k].read,
                   p[k].loss);
    report_table(r, "asked for the same words of held-out sentences",
                 "place\tloss, masked\tloss, causal\tright, masked\t"
                 "right, causal");
    for (int e = 0; e < EXAMS; e++)
        report_row(r, "%s\t%.3f\t%.3f\t%.0f %%\t%.0f %%", places[e],
                   p[MASKED].results[e].loss, p[CAUSAL].results[e].loss,
                   1e2 * p[MASKED].results[e].right,
                   1e2 * p[CAUSAL].results[e].right);
}

static void conclude(report *r, const pupil *p)
{
    const pupil *m = &p[MASKED], *c = &p[CAUSAL];
    double both = m->results[EXAM_MIDDLE].loss;
    double before = c->results[EXAM_MIDDLE].loss;
    report_say(
        r,
        "A step of the causal model learns from %.0f tokens, all that it "
        "reads, and one of the masked model from %.0f of %.0f, since "
        "only 15 %% of the words are hidden.",
        c->counted, m->counted, m->read);
    report_say(r,
               "But the masked model sees both sides, so that a word in the "
               "middle of a held-out sentence costs it %.2f nats, and the "
               "causal one, which sees only what came before and can therefore "
               "go on with a text, %.2f.",
               both, before);
    report_claim(r, both < before - 0.2,
                 "in the middle the masked model is better by more than 0.2, "
                 "not by %.3f",
                 before - both);
    report_claim(r, c->counted > 4.0 * m->counted,
                 "the causal model learns from more than 4 times as many "
                 "tokens, not from %.1f times",
                 c->counted / m->counted);
}

/* ---- all of it ---------------------------------------------------------- */

static int pupil_run(pupil *p, int kind, const lab *l, const lab_text *text,
                     const exam *exams, const sizes *z, curves *c)
{
    int failed = pupil_make(p, kind, l, text, z);
    if (!failed)
        failed = pupil_learn(p, kind, l, &exams[EXAM_MIDDLE], z, c);
    for (int e = 0; e < EXAMS && !failed; e++)
        failed = exam_take(&exams[e], l, p->model, &p->results[e]);
    return failed;
}

static int samples_tell(report *r, const lab *l, const lab_text *text,
                        const exam *middle, const pupil *p)
{
    int failed = exam_show(middle, l, r, text->tokenizer, p[MASKED].model,
                           p[CAUSAL].model);
    char *said = failed ? NULL
                        : lab_continue(l, p[CAUSAL].model, text,
                                       "[CLS] the old man", 12);
    if (!said)
        return CLI_FAILED;
    report_quote(r, "what the causal model says behind \"the old man\"",
                 said + strspn(said, " "));
    free(said);
    return CLI_OK;
}

static int pupils_run(const lab *l, report *r, const lab_text *text,
                      const exam *exams, const sizes *z)
{
    pupil p[PUPILS] = { { .model = NULL } };
    curves c[PUPILS];
    int failed = CLI_OK;
    for (int k = 0; k < PUPILS && !failed; k++)
        failed = pupil_run(&p[k], k, l, text, exams, z, &c[k]);
    if (!failed) {
        tables_tell(r, p);
        curves_tell(r, c);
        failed = samples_tell(r, l, text, &exams[EXAM_MIDDLE], p);
        conclude(r, p);
    }
    for (int k = 0; k < PUPILS; k++)
        pupil_release(&p[k]);
    return failed;
}

int lab_mlm(const lab *l, report *r)
{
    const sizes *z = l->fast ? &fast : &full;
    exam exams[EXAMS] = { { .count = 0 } };
    lab_text text;
    int failed = lab_words_make(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    for (int e = 0; e < EXAMS && !failed; e++)
        failed = exam_make(&exams[e], &text, (exam_place)e, z->exam, l->seed);
    if (!failed)
        failed = pupils_run(l, r, &text, exams, z);
    for (int e = 0; e < EXAMS; e++)
        exam_release(&exams[e]);
    lab_text_release(&text);
    return failed;
}
