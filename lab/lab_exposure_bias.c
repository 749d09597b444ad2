/* SPDX-License-Identifier: Apache-2.0 */
/* lab_exposure_bias.c - bauta lab parallel: how errors add up.
 *
 * A model learns with the true past and then goes on with texts that it has not
 * seen, from their first characters. What it says becomes its past; at each
 * position it is asked for the true character. One parallel pass over its own
 * text answers for all of them, since the mask makes that the same.
 *
 * To say something else than the true text is no fault in itself. How much of
 * the text is lost is seen beside a third past: that of another text. */
#include "../cli/cli.h"
#include "lab_train.h"

#include <stdlib.h>
#include <string.h>

typedef struct sizes {
    size_t steps, batch, texts, length;
} sizes;
static const sizes full = { 600, 16, 96, 64 };
static const sizes fast = { 150, 16, 48, 32 };

enum { GIVEN = 8 }; /* characters of a beginning */

enum { TRUE_PAST, OWN_PAST, OTHER_PAST, PASTS };
static const char *const names[PASTS] = { "the true past", "its own past",
                                          "another text" };

/* Texts from the same beginnings, and what was found of them. */
typedef struct walk {
    const lab *l;
    const lab_text *text;
    const bauta_model *model;
    size_t count, length;
    uint32_t *ids[PASTS]; /* (count, length) each; the true ones own all */
    double *loss[PASTS];  /* (length) by position; likewise */
    double *right[PASTS]; /* (length) a share of the texts */
    float *logits;        /* (count, length, vocabulary) */
} walk;

/* ---- learning ----------------------------------------------------------- */

static int steps_take(const lab *l, bauta_trainer *trainer, size_t steps)
{
    bauta_error err;
    bauta_train_report said = BAUTA_TRAIN_REPORT_INIT;
    for (size_t i = 1; i <= steps; i++) {
        if (bauta_trainer_step(trainer, &said, &err))
            return lab_failed(&err);
        if (i % 10 == 0)
            lab_progress(l,
                         "parallel: learning to go on, step %zu of %zu, loss "
                         "%.3f",
                         i, steps, said.loss);
    }
    return CLI_OK;
}

static int model_train(const lab *l, bauta_model *model, const lab_text *text,
                       const sizes *z)
{
    bauta_error err;
    bauta_trainer *trainer;
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    o.sequences = z->batch;
    o.context = z->length;
    o.steps = z->steps;
    o.warmup = z->steps / 10;
    o.rate = 5e-3;
    o.min_rate = 5e-4;
    o.seed = l->seed;
    if (bauta_trainer_create(&trainer, l->context, model, text->tokenizer,
                             text->train_corpus, &o, &err))
        return lab_failed(&err);
    int failed = steps_take(l, trainer, z->steps);
    bauta_trainer_free(trainer);
    return failed;
}

/* ---- walking ------------------------------------------------------------ */

static void walk_release(walk *w)
{
    free(w->ids[0]);
    free(w->loss[0]);
    free(w->logits);
}

static int walk_init(walk *w, const lab *l, const lab_text *text,
                     const bauta_model *model, const sizes *z)
{
    size_t rows = z->texts * z->length;
    *w = (walk){ .l = l,
                 .text = text,
                 .model = model,
                 .count = z->texts,
                 .length = z->length };
    w->ids[0] = malloc(PASTS * rows * sizeof(*w->ids[0]));
    w->loss[0] = calloc(2 * PASTS * z->length, sizeof(*w->loss[0]));
    w->logits =
        malloc(rows * bauta_model_vocabulary(model) * sizeof(*w->logits));
    if (!w->ids[0] || !w->loss[0] || !w->logits) {
        walk_release(w);
        return cli_fail("lab", "out of memory");
    }
    for (size_t p = 0; p < PASTS; p++) {
        w->ids[p] = w->ids[0] + p * rows;
        w->loss[p] = w->loss[0] + p * z->length;
        w->right[p] = w->loss[0] + (PASTS + p) * z->length;
    }
    return CLI_OK;
}

/* Held-out texts from the beginning of a sentence on, at random. */
static void beginnings_draw(walk *w, uint64_t random)
{
    const lab_text *t = w->text;
    uint32_t line = bauta_tokenizer_find(t->tokenizer, "\n", 1);
    for (size_t i = 0; i < w->count; i++) {
        size_t at;
        do
            at = 1 + lab_draw(&random, t->valid_count - w->length);
        while (t->valid[at - 1] != line);
        // The text of one is the past of the next.
        size_t next = (i + 1) % w->count;
        memcpy(w->ids[TRUE_PAST] + i * w->length, t->valid + at,
               w->length * sizeof(*t->valid));
        memcpy(w->ids[OTHER_PAST] + next * w->length, t->valid + at,
               w->length * sizeof(*t->valid));
    }
}

static bauta_status requests_add(const walk *w, bauta_generator *g,
                                 bauta_error *err)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_status status = BAUTA_OK;
    o.max_tokens = w->length - GIVEN;
    for (size_t i = 0; i < w->count && !status; i++) {
        bauta_request request = BAUTA_REQUEST_INIT;
        request.count = GIVEN;
        request.tokens = w->ids[TRUE_PAST] + i * w->length;
        request.options = &o;
        request.tag = i;
        status = bauta_generator_add(g, &request, err);
    }
    return status;
}

static void result_keep(walk *w, const bauta_result *result)
{
    size_t from = (size_t)result->tag * w->length;
    uint32_t *to = w->ids[OWN_PAST] + from;
    memcpy(to, w->ids[TRUE_PAST] + from, GIVEN * sizeof(*to));
    memcpy(to + GIVEN, result->hypotheses[0].tokens,
           (w->length - GIVEN) * sizeof(*to));
}

static bauta_status results_take(walk *w, bauta_generator *g, bauta_error *err)
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

static int own_write(walk *w)
{
    bauta_error err;
    bauta_generator *g;
    lab_progress(w->l, "parallel: going on with %zu texts", w->count);
    bauta_status status =
        bauta_generator_create(&g, w->l->context, w->model, NULL, NULL, &err);
    if (!status)
        status = requests_add(w, g, &err);
    if (!status)
        status = results_take(w, g, &err);
    bauta_generator_free(g);
    return status ? lab_failed(&err) : CLI_OK;
}

/* The mean loss of the true token at each position, behind a past. */
static int past_try(walk *w, int past)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t vocabulary = bauta_model_vocabulary(w->model);
    batch.count = w->count;
    batch.stride = w->length;
    batch.ids = w->ids[past];
    outputs.logits = w->logits;
    if (bauta_model_forward(w->l->context, w->model, NULL, &batch, &outputs,
                            &err))
        return lab_failed(&err);
    for (size_t i = 0; i < w->count * w->length; i++) {
        size_t at = i % w->length;
        bool right;
        if (at == 0)
            continue;
        w->loss[past][at] +=
            lab_surprise(w->logits + (i - 1) * vocabulary, vocabulary,
                         w->ids[TRUE_PAST][i], &right) /
            (double)w->count;
        w->right[past][at] += right / (double)w->count;
    }
    return CLI_OK;
}

/* ---- telling ------------------------------------------------------------ */

static double mean(const double *of, size_t from, size_t to)
{
    double sum = 0.0;
    for (size_t i = from; i < to; i++)
        sum += of[i];
    return sum / (double)(to - from);
}

static void curve_draw(report *r, const walk *w, int past)
{
    enum { SPAN = 4 }; // characters of a point
    report_curve(r, names[past]);
    for (size_t i = GIVEN; i + SPAN <= w->length; i += SPAN)
        report_point(r, (double)i + (SPAN - 1) / 2.0,
                     mean(w->loss[past], i, i + SPAN));
}

static void walk_tell(report *r, const walk *w)
{
    enum { SPAN = 8 };
    const plot_options plot = { "loss of the true character, by position",
                                "position", "loss", false, false };
    report_plot(r, &plot);
    for (int p = 0; p < PASTS; p++)
        curve_draw(r, w, p);
    report_table(r, "held-out texts, gone on with behind 8 characters",
                 "positions\tloss, true past\town past\tanother text\t"
                 "right, true past\town past");
    for (size_t i = GIVEN; i + SPAN <= w->length; i += SPAN) {
        double loss[PASTS], right[PASTS];
        for (int p = 0; p < PASTS; p++) {
            loss[p] = mean(w->loss[p], i, i + SPAN);
            right[p] = 1e2 * mean(w->right[p], i, i + SPAN);
        }
        report_row(r, "%zu to %zu\t%.3f\t%.3f\t%.3f\t%.0f %%\t%.0f %%", i,
                   i + SPAN - 1, loss[TRUE_PAST], loss[OWN_PAST],
                   loss[OTHER_PAST], right[TRUE_PAST], right[OWN_PAST]);
    }
}

static int walk_run(walk *w, report *r, lab_exposure_bias_result *found)
{
    beginnings_draw(w, w->l->seed + 2);
    int failed = own_write(w);
    for (int p = 0; p < PASTS && !failed; p++)
        failed = past_try(w, p);
    if (failed)
        return failed;
    walk_tell(r, w);
    size_t half = w->length / 2, end = w->length;
    *found = (lab_exposure_bias_result){
        .given = mean(w->loss[TRUE_PAST], half, end),
        .own = mean(w->loss[OWN_PAST], half, end),
        .other = mean(w->loss[OTHER_PAST], half, end),
        .own_early = mean(w->loss[OWN_PAST], GIVEN, 2 * GIVEN),
    };
    return CLI_OK;
}

int lab_exposure_bias(const lab *l, report *r, const lab_text *text,
                      lab_exposure_bias_result *found)
{
    static const char overrides[] =
        "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, \"n_positions\": 64, "
        "\"initializer_range\": 0.1}";
    const sizes *z = l->fast ? &fast : &full;
    bauta_model *model;
    walk w;
    int failed = lab_model_make(&model, "gpt2-tiny", overrides, text->tokenizer,
                                l->seed);
    if (!failed)
        failed = model_train(l, model, text, z);
    if (!failed)
        failed = walk_init(&w, l, text, model, z);
    if (!failed) {
        failed = walk_run(&w, r, found);
        walk_release(&w);
    }
    bauta_model_free(model);
    return failed;
}
