/* SPDX-License-Identifier: Apache-2.0 */
/* lab_leak.c - bauta lab leak: training with and without the causal mask.
 *
 * Two decoders start with the same weights and read the same windows of text in
 * the same order. One has the causal mask. For the other each window is a
 * prefix, so that every token sees all others, including the one that it is to
 * predict. */
#include "../cli/cli.h"
#include "lab_train.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 2, MASKED = 0, UNMASKED = 1 };
static const char *const names[MODELS] = { "with mask", "without mask" };

typedef struct sizes {
    size_t sentences, length, batch, steps, valid;
    const char *model; /* overrides of the preset */
    double rate;
} sizes;

/* Initial weights five times as large as usual distinguish positions from the
 * first step on; both models then learn sooner. */
#define MODEL                                          \
    "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, " \
    "\"n_positions\": 64, \"initializer_range\": 0.1}"

static const sizes full = { 4000, 64, 16, 800, 64, MODEL, 5e-3 };
static const sizes fast = { 2000, 32, 16, 200, 64, MODEL, 5e-3 };

/* ---- windows ----------------------------------------------------------- */

/* Windows of a text, all of one length, with the next tokens as labels. */
typedef struct windows {
    size_t count, length;
    uint32_t *ids, *labels; /* (count, length) */
    size_t *lengths;        /* (count) */
} windows;

static void windows_release(windows *w)
{
    free(w->ids);
    free(w->labels);
    free(w->lengths);
}

static int windows_init(windows *w, size_t count, size_t length)
{
    *w = (windows){ .count = count, .length = length };
    w->ids = malloc(count * length * sizeof(*w->ids));
    w->labels = malloc(count * length * sizeof(*w->labels));
    w->lengths = malloc(count * sizeof(*w->lengths));
    if (w->ids && w->labels && w->lengths)
        return CLI_OK;
    windows_release(w);
    return cli_fail("lab", "out of memory");
}

/* Draw windows of a text at random. The last token of a window has nothing to
 * copy even without a mask, so it has no label. */
static void windows_draw(windows *w, const uint32_t *text, size_t count,
                         uint64_t *random)
{
    for (size_t i = 0; i < w->count; i++) {
        const uint32_t *from =
            text + random_below(random, count - w->length + 1);
        uint32_t *ids = w->ids + i * w->length;
        uint32_t *labels = w->labels + i * w->length;
        memcpy(ids, from, w->length * sizeof(*ids));
        memcpy(labels, from + 1, (w->length - 1) * sizeof(*labels));
        labels[w->length - 1] = BAUTA_IGNORE;
        w->lengths[i] = w->length;
    }
}

/* The loss; its gradients are accumulated. */
static int windows_loss(const lab *l, bauta_model *model, const windows *w,
                        bool mask, double *loss)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = w->count;
    batch.stride = w->length;
    batch.ids = w->ids;
    batch.prefix_lengths = mask ? NULL : w->lengths;
    if (bauta_model_loss(l->context, model, NULL, &batch, w->labels, NULL, loss,
                         NULL, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* ---- learning ---------------------------------------------------------- */

typedef struct variant {
    bauta_model *model;
    double train;                  /* mean of the last tenth of the steps */
    double causal_loss, full_loss; /* on held-out text, with and without the
                                      mask */
    char *output;
} variant;

static int variant_step(const lab *l, variant *s, learner *a, windows *w,
                        bool mask, double *loss)
{
    int failed = windows_loss(l, s->model, w, mask, loss);
    return failed ? failed : learner_step(a);
}

/* Points of the curve are means over a fiftieth of the steps. */
static int variant_learn(const lab *l, report *r, variant *s, learner *a,
                         windows *w, const lab_corpus *text, const sizes *z,
                         bool mask)
{
    uint64_t random = l->seed;
    size_t every = z->steps / 50 ? z->steps / 50 : 1, tail = z->steps / 10;
    double loss, sum = 0.0;
    for (size_t i = 1; i <= z->steps; i++) {
        windows_draw(w, text->train, text->train_count, &random);
        int failed = variant_step(l, s, a, w, mask, &loss);
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

static int variant_train(const lab *l, report *r, variant *s,
                         const lab_corpus *text, const sizes *z, bool mask)
{
    windows w;
    int failed = lab_model_make(&s->model, "gpt2-tiny", z->model,
                                text->tokenizer, l->seed);
    if (!failed)
        failed = windows_init(&w, z->batch, z->length);
    if (failed)
        return failed;
    learner *a;
    failed = learner_create(&a, l->context, s->model, z->rate, z->steps);
    if (!failed)
        failed = variant_learn(l, r, s, a, &w, text, z, mask);
    learner_free(a);
    windows_release(&w);
    return failed;
}

/* ---- evaluation -------------------------------------------------------- */

static const char prompt[] = "The old ";

static int variant_evaluate(const lab *l, variant *s, const lab_corpus *text,
                            const windows *w)
{
    int failed = windows_loss(l, s->model, w, true, &s->causal_loss);
    if (!failed)
        failed = windows_loss(l, s->model, w, false, &s->full_loss);
    if (failed)
        return failed;
    // No longer than in training.
    s->output = lab_continue(l, s->model, text, prompt,
                             w->length - (sizeof(prompt) - 1));
    return s->output ? CLI_OK : CLI_FAILED;
}

static int variants_run(const lab *l, report *r, variant *s,
                        const lab_corpus *text, const sizes *z)
{
    windows held;
    uint64_t random = l->seed + 1;
    int failed = windows_init(&held, z->valid, z->length);
    if (failed)
        return failed;
    windows_draw(&held, text->valid, text->valid_count, &random);
    for (int i = 0; i < MODELS && !failed; i++) {
        report_curve(r, names[i]);
        failed = variant_train(l, r, &s[i], text, z, i == MASKED);
        if (!failed)
            failed = variant_evaluate(l, &s[i], text, &held);
    }
    windows_release(&held);
    return failed;
}

/* ---- the picture of the page ------------------------------------------- */

enum { TOY = 20 }; /* characters of it */

/* The probability of each next character. */
static int toy_probabilities(const lab *l, const bauta_model *model,
                             const uint32_t *ids, bool mask, json_t *list)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    const size_t length = TOY;
    uint32_t labels[TOY];
    float logprobs[TOY];
    memcpy(labels, ids + 1, sizeof(labels));
    batch.count = 1;
    batch.stride = TOY;
    batch.ids = ids;
    batch.prefix_lengths = mask ? NULL : &length;
    if (bauta_model_logprobs(l->context, model, NULL, &batch, labels, logprobs,
                             &err))
        return lab_failed(&err);
    for (size_t i = 0; i < TOY; i++)
        json_array_append_new(list, json_real(exp((double)logprobs[i])));
    return CLI_OK;
}

/* The weights of a layer, the mean over its heads. */
static int toy_weights(const lab *l, const bauta_model *model,
                       const uint32_t *ids, bool mask, size_t layer, float *to)
{
    bauta_error err;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_attention_weights look = BAUTA_ATTENTION_WEIGHTS_INIT;
    const size_t length = TOY;
    float one[TOY * TOY];
    size_t heads = bauta_model_heads(model, BAUTA_ATTENTION_DECODER);
    batch.count = 1;
    batch.stride = TOY;
    batch.ids = ids;
    batch.prefix_lengths = mask ? NULL : &length;
    look.layer = layer;
    look.rows = TOY;
    look.weights = one;
    memset(to, 0, sizeof(one));
    for (look.head = 0; look.head < heads; look.head++) {
        if (bauta_model_attention_weights(l->context, model, NULL, &batch, NULL,
                                          &look, 1, &err))
            return lab_failed(&err);
        for (size_t i = 0; i < TOY * TOY; i++)
            to[i] += one[i] / (float)heads;
    }
    return CLI_OK;
}

/* The layer that looks most at the next character, and its weights. */
static int toy_matrix(const lab *l, const bauta_model *model,
                      const uint32_t *ids, bool mask, json_t *rows)
{
    float weights[TOY * TOY], best[TOY * TOY] = { 0 }, most = -1.0f;
    for (size_t k = 0; k < bauta_model_decoder_layers(model); k++) {
        float next = 0.0f;
        int failed = toy_weights(l, model, ids, mask, k, weights);
        if (failed)
            return failed;
        for (size_t i = 0; i + 1 < TOY; i++)
            next += weights[i * TOY + i + 1];
        if (next > most) {
            most = next;
            memcpy(best, weights, sizeof(best));
        }
    }
    for (size_t i = 0; i < TOY; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < TOY; j++)
            json_array_append_new(
                row, json_real(round((double)best[i * TOY + j] * 1e4) / 1e4));
        json_array_append_new(rows, row);
    }
    return CLI_OK;
}

/* A model in training, where it sees what it saw then, and in use. */
static int toy_variant(const lab *l, const variant *s, const uint32_t *ids,
                       bool mask, json_t *to)
{
    json_t *training = json_array(), *use = json_array(), *rows = json_array();
    json_array_append_new(to, json_pack("{s:o, s:o, s:o, s:s}", "training",
                                        training, "use", use, "weights", rows,
                                        "output", s->output));
    int failed = toy_probabilities(l, s->model, ids, mask, training);
    if (!failed)
        failed = toy_probabilities(l, s->model, ids, true, use);
    return failed ? failed : toy_matrix(l, s->model, ids, mask, rows);
}

/* The first characters of the held-out text. */
static int toy_fill(const lab *l, report *r, const variant *s,
                    const lab_corpus *text)
{
    json_t *letters = json_array(), *variants = json_array();
    int failed = CLI_OK;
    for (size_t i = 0; i <= TOY; i++)
        json_array_append_new(
            letters, json_string(bauta_tokenizer_piece(text->tokenizer,
                                                       text->valid[i], NULL)));
    for (int i = 0; i < MODELS && !failed; i++)
        failed = toy_variant(l, &s[i], text->valid, i == MASKED, variants);
    report_toy(r, json_pack("{s:o, s:o, s:s}", "letters", letters, "models",
                            variants, "prompt", prompt));
    return failed;
}

/* ---- the report -------------------------------------------------------- */

static void table_fill(report *r, const variant *s)
{
    size_t tokens = bauta_model_vocab_size(s->model);
    double guess = log((double)tokens);
    report_table(r, "loss in nats per token",
                 "trained\ttraining\theld out, causal\t"
                 "held out, future visible");
    for (int i = 0; i < MODELS; i++)
        report_row(r, "%s\t%.4f\t%.4f\t%.4f", names[i], s[i].train,
                   s[i].causal_loss, s[i].full_loss);
    report_row(r, "one of %zu at random\t%.4f\t%.4f\t%.4f", tokens, guess,
               guess, guess);
}

static void report_fill(report *r, const variant *s)
{
    const variant *m = &s[MASKED], *u = &s[UNMASKED];
    table_fill(r, s);
    for (int i = 0; i < MODELS; i++) {
        char title[80];
        snprintf(title, sizeof(title), "trained %s, prompt \"%s\"", names[i],
                 prompt);
        report_quote(r, title, s[i].output);
    }
    report_conclude(
        r,
        "Without the mask the training loss falls to %.2g, because the "
        "next token is visible and is copied; with it, to %.3f.",
        u->train, m->train);
    report_conclude(
        r,
        "In use the future does not exist: there the loss on held-out "
        "text is %.2f for the model trained without the mask and %.2f "
        "with it. The first has learned to copy, not to predict.",
        u->causal_loss, m->causal_loss);
    report_claim(r, u->train < 0.1,
                 "without the mask the training loss is below 0.1: %.3f",
                 u->train);
    report_claim(r, u->causal_loss > m->causal_loss + 1.0,
                 "in use, the model trained without the mask is worse by more "
                 "than 1 nat: by %.3f",
                 u->causal_loss - m->causal_loss);
    report_claim(r, m->causal_loss < m->train + 0.3,
                 "the model trained with the mask generalizes: %.3f in "
                 "training, %.3f on held-out text",
                 m->train, m->causal_loss);
}

int lab_leak(const lab *l, report *r)
{
    const sizes *z = l->fast ? &fast : &full;
    const plot_options plot = { "training loss", "step", "training loss", false,
                                false };
    variant s[MODELS] = { { .model = NULL } };
    lab_corpus text;
    int failed = lab_corpus_make(&text, z->sentences, l->seed);
    if (failed)
        return failed;
    report_plot(r, &plot);
    failed = variants_run(l, r, s, &text, z);
    if (!failed)
        failed = toy_fill(l, r, s, &text);
    if (!failed)
        report_fill(r, s);
    for (int i = 0; i < MODELS; i++) {
        bauta_model_free(s[i].model);
        free(s[i].output);
    }
    lab_corpus_release(&text);
    return failed;
}
