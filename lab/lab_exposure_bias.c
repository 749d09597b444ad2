/* SPDX-License-Identifier: Apache-2.0 */
/* lab_exposure_bias.c - bauta lab parallel: how errors accumulate.
 *
 * A model is trained with teacher forcing and then continues held-out texts
 * from their first characters. Its output becomes its prefix; at each position
 * the loss of the true character is measured. One parallel pass over its own
 * output gives all of them, since the mask makes that equal.
 *
 * Output that differs from the true text is no error in itself. A third prefix,
 * that of another text, shows how much of the text is lost. */
#include "../cli/cli.h"
#include "lab_train.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

typedef struct sizes {
    size_t steps, batch, texts, length;
} sizes;
static const sizes full = { 600, 16, 96, 64 };
static const sizes fast = { 150, 16, 48, 32 };

enum { PROMPT = 8 }; /* characters */

enum { TRUE_PREFIX, OWN_PREFIX, OTHER_PREFIX, PREFIXES };
static const char *const names[PREFIXES] = { "true prefix", "own output",
                                             "another text" };

/* Texts with the same prompts, and their losses. */
typedef struct comparison_texts {
    const lab *l;
    const lab_corpus *text;
    const bauta_model *model;
    size_t count, length;
    uint32_t *ids[PREFIXES]; /* (count, length) each, in one allocation */
    double *loss[PREFIXES];  /* (length) by position; likewise */
    double *right[PREFIXES]; /* (length) a share of the texts */
    float *logits;           /* (count, length, vocabulary) */
} comparison_texts;

/* ---- training ---------------------------------------------------------- */

static int steps_take(const lab *l, bauta_trainer *trainer, size_t steps)
{
    bauta_error err;
    bauta_train_report step = BAUTA_TRAIN_REPORT_INIT;
    for (size_t i = 1; i <= steps; i++) {
        if (bauta_trainer_step(trainer, &step, &err))
            return lab_failed(&err);
        if (i % 10 == 0)
            lab_progress(l, "parallel: training, step %zu of %zu, loss %.3f", i,
                         steps, step.loss);
    }
    return CLI_OK;
}

static int model_train(const lab *l, bauta_model *model, const lab_corpus *text,
                       const sizes *z)
{
    bauta_error err;
    bauta_trainer *trainer;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.batch_sequences = z->batch;
    o.context_length = z->length;
    o.max_steps = z->steps;
    o.warmup_steps = z->steps / 10;
    o.learning_rate = 5e-3;
    o.min_learning_rate = 5e-4;
    o.seed = l->seed;
    if (bauta_trainer_create(&trainer, l->context, model, text->tokenizer,
                             text->train_corpus, &o, &err))
        return lab_failed(&err);
    int failed = steps_take(l, trainer, z->steps);
    bauta_trainer_free(trainer);
    return failed;
}

/* ---- continuations ----------------------------------------------------- */

static void texts_release(comparison_texts *w)
{
    free(w->ids[0]);
    free(w->loss[0]);
    free(w->logits);
}

static int texts_init(comparison_texts *w, const lab *l, const lab_corpus *text,
                      const bauta_model *model, const sizes *z)
{
    size_t rows = z->texts * z->length;
    *w = (comparison_texts){ .l = l,
                             .text = text,
                             .model = model,
                             .count = z->texts,
                             .length = z->length };
    w->ids[0] = malloc(PREFIXES * rows * sizeof(*w->ids[0]));
    w->loss[0] = calloc(2 * PREFIXES * z->length, sizeof(*w->loss[0]));
    w->logits =
        malloc(rows * bauta_model_vocab_size(model) * sizeof(*w->logits));
    if (!w->ids[0] || !w->loss[0] || !w->logits) {
        texts_release(w);
        return cli_fail("lab", "out of memory");
    }
    for (size_t p = 0; p < PREFIXES; p++) {
        w->ids[p] = w->ids[0] + p * rows;
        w->loss[p] = w->loss[0] + p * z->length;
        w->right[p] = w->loss[0] + (PREFIXES + p) * z->length;
    }
    return CLI_OK;
}

/* Draw held-out texts that begin with a sentence. */
static void texts_draw(comparison_texts *w, uint64_t random)
{
    const lab_corpus *t = w->text;
    uint32_t line = bauta_tokenizer_find(t->tokenizer, "\n", 1);
    for (size_t i = 0; i < w->count; i++) {
        size_t at;
        do
            at = 1 + random_below(&random, t->valid_count - w->length);
        while (t->valid[at - 1] != line);
        // Each text is the unrelated prefix of the next.
        size_t next = (i + 1) % w->count;
        memcpy(w->ids[TRUE_PREFIX] + i * w->length, t->valid + at,
               w->length * sizeof(*t->valid));
        memcpy(w->ids[OTHER_PREFIX] + next * w->length, t->valid + at,
               w->length * sizeof(*t->valid));
    }
}

static bauta_status requests_add(const comparison_texts *w, bauta_generator *g,
                                 bauta_error *err)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_status status = BAUTA_OK;
    o.max_new_tokens = w->length - PROMPT;
    for (size_t i = 0; i < w->count && !status; i++) {
        bauta_request request = BAUTA_REQUEST_INIT;
        request.count = PROMPT;
        request.tokens = w->ids[TRUE_PREFIX] + i * w->length;
        request.options = &o;
        request.tag = i;
        status = bauta_generator_add(g, &request, err);
    }
    return status;
}

static void result_keep(comparison_texts *w, const bauta_result *result)
{
    size_t from = (size_t)result->tag * w->length;
    uint32_t *to = w->ids[OWN_PREFIX] + from;
    memcpy(to, w->ids[TRUE_PREFIX] + from, PROMPT * sizeof(*to));
    memcpy(to + PROMPT, result->hypotheses[0]->tokens,
           (w->length - PROMPT) * sizeof(*to));
}

static bauta_status results_take(comparison_texts *w, bauta_generator *g,
                                 bauta_error *err)
{
    size_t left = w->count;
    bauta_status status = BAUTA_OK;
    while (left && !status) {
        bauta_result *result;
        status = bauta_generator_step(g, &left, err);
        while (!status && (result = bauta_generator_take(g))) {
            result_keep(w, result);
            bauta_result_free(result);
        }
    }
    return status;
}

static int own_generate(comparison_texts *w)
{
    bauta_error err;
    bauta_generator *g;
    lab_progress(w->l, "parallel: continuing %zu texts", w->count);
    bauta_status status =
        bauta_generator_create(&g, w->l->context, w->model, NULL, NULL, &err);
    if (!status)
        status = requests_add(w, g, &err);
    if (!status)
        status = results_take(w, g, &err);
    bauta_generator_free(g);
    return status ? lab_failed(&err) : CLI_OK;
}

/* The mean loss of the true token at each position, after a prefix. */
static int prefix_evaluate(comparison_texts *w, int prefix)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t vocabulary = bauta_model_vocab_size(w->model);
    batch.count = w->count;
    batch.stride = w->length;
    batch.ids = w->ids[prefix];
    outputs.logits = w->logits;
    if (bauta_model_forward(w->l->context, w->model, NULL, &batch, &outputs,
                            &err))
        return lab_failed(&err);
    for (size_t i = 0; i < w->count * w->length; i++) {
        size_t at = i % w->length;
        bool right;
        if (at == 0)
            continue;
        w->loss[prefix][at] +=
            lab_cross_entropy(w->logits + (i - 1) * vocabulary, vocabulary,
                              w->ids[TRUE_PREFIX][i], &right) /
            (double)w->count;
        w->right[prefix][at] += right / (double)w->count;
    }
    return CLI_OK;
}

/* ---- the report -------------------------------------------------------- */

static double mean(const double *of, size_t from, size_t to)
{
    double sum = 0.0;
    for (size_t i = from; i < to; i++)
        sum += of[i];
    return sum / (double)(to - from);
}

static void curve_draw(report *r, const comparison_texts *w, int prefix)
{
    enum { SPAN = 4 }; // characters per point
    report_curve(r, names[prefix]);
    for (size_t i = PROMPT; i + SPAN <= w->length; i += SPAN)
        report_point(r, (double)i + (SPAN - 1) / 2.0,
                     mean(w->loss[prefix], i, i + SPAN));
}

static void texts_report(report *r, const comparison_texts *w)
{
    enum { SPAN = 8 };
    const plot_options plot = { "loss of the true character, by position",
                                "position", "loss", false, false };
    report_plot(r, &plot);
    for (int p = 0; p < PREFIXES; p++)
        curve_draw(r, w, p);
    report_table(r, "held-out texts, continued after 8 characters",
                 "positions\tloss, true prefix\town output\tanother text\t"
                 "correct, true prefix\town output");
    for (size_t i = PROMPT; i + SPAN <= w->length; i += SPAN) {
        double loss[PREFIXES], right[PREFIXES];
        for (int p = 0; p < PREFIXES; p++) {
            loss[p] = mean(w->loss[p], i, i + SPAN);
            right[p] = 1e2 * mean(w->right[p], i, i + SPAN);
        }
        report_row(r, "%zu to %zu\t%.3f\t%.3f\t%.3f\t%.0f %%\t%.0f %%", i,
                   i + SPAN - 1, loss[TRUE_PREFIX], loss[OWN_PREFIX],
                   loss[OTHER_PREFIX], right[TRUE_PREFIX], right[OWN_PREFIX]);
    }
}

static int texts_run(comparison_texts *w, report *r,
                     lab_exposure_bias_result *found)
{
    texts_draw(w, w->l->seed + 2);
    int failed = own_generate(w);
    for (int p = 0; p < PREFIXES && !failed; p++)
        failed = prefix_evaluate(w, p);
    if (failed)
        return failed;
    texts_report(r, w);
    size_t half = w->length / 2, end = w->length;
    *found = (lab_exposure_bias_result){
        .true_prefix = mean(w->loss[TRUE_PREFIX], half, end),
        .own = mean(w->loss[OWN_PREFIX], half, end),
        .other = mean(w->loss[OTHER_PREFIX], half, end),
        .own_early = mean(w->loss[OWN_PREFIX], PROMPT, 2 * PROMPT),
    };
    return CLI_OK;
}

int lab_exposure_bias(const lab *l, report *r, const lab_corpus *text,
                      lab_exposure_bias_result *found)
{
    static const char overrides[] =
        "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, \"n_positions\": 64, "
        "\"initializer_range\": 0.1}";
    const sizes *z = l->fast ? &fast : &full;
    bauta_model *model;
    comparison_texts w;
    int failed = lab_model_make(&model, "gpt2-tiny", overrides, text->tokenizer,
                                l->seed);
    if (!failed)
        failed = model_train(l, model, text, z);
    if (!failed)
        failed = texts_init(&w, l, text, model, z);
    if (!failed) {
        failed = texts_run(&w, r, found);
        texts_release(&w);
    }
    bauta_model_free(model);
    return failed;
}
