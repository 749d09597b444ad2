/* SPDX-License-Identifier: Apache-2.0 */
/* lab_rnn.c - bauta lab rnn: a recurrent network beside a Transformer.
 *
 * Both have an encoder, a decoder that attends to it, and about as many
 * parameters. Both learn to write digits in reverse, from the same pairs in the
 * same order. The recurrent network computes each state from the one before, so
 * it takes as many dependent steps as there are tokens; the Transformer takes
 * as many as it has layers. */
#include "../cli/cli.h"
#include "../cli/format.h"
#include "lab_rnn_net.h"
#include "lab_train.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGITS = 10,
    VOCABULARY = 12, /* digits, <unk> and <|endoftext|> */
    END = 11,
    LAYERS = 2, /* one of the encoder, one of the decoder */
    LONGEST = 65
};

#define MODEL                                                             \
    "{\"d_model\": 24, \"encoder_layers\": 1, \"decoder_layers\": 1, "    \
    "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "    \
    "\"encoder_ffn_dim\": 48, \"decoder_ffn_dim\": 48, \"dropout\": 0.0," \
    " \"max_position_embeddings\": 128, \"init_std\": 0.1}"

static const rnn_size recurrent = { VOCABULARY + 1, 16, 32, LONGEST };

typedef struct sizes {
    size_t length, batch, steps;
    size_t lengths[4]; /* to time */
} sizes;
static const sizes full = { 8, 16, 1500, { 8, 16, 32, 64 } };
static const sizes fast = { 5, 16, 500, { 4, 8, 16, 32 } };

/* ---- pairs ------------------------------------------------------------- */

/* Digits, and the same in reverse with an end; the decoder reads the target
 * after a start. */
typedef struct pairs {
    size_t count, length;
    uint32_t *source;         /* (count, length) */
    uint32_t *input, *target; /* (count, length + 1) */
} pairs;

static void pairs_release(pairs *p)
{
    free(p->source);
    free(p->input);
    free(p->target);
}

static int pairs_init(pairs *p, size_t count, size_t length)
{
    *p = (pairs){ .count = count, .length = length };
    p->source = malloc(count * length * sizeof(*p->source));
    p->input = malloc(count * (length + 1) * sizeof(*p->input));
    p->target = malloc(count * (length + 1) * sizeof(*p->target));
    if (p->source && p->input && p->target)
        return CLI_OK;
    pairs_release(p);
    return cli_fail("lab", "out of memory");
}

static void pairs_draw(pairs *p, uint64_t *random)
{
    for (size_t i = 0; i < p->count; i++) {
        uint32_t *source = p->source + i * p->length;
        uint32_t *input = p->input + i * (p->length + 1);
        uint32_t *target = p->target + i * (p->length + 1);
        for (size_t j = 0; j < p->length; j++)
            source[j] = (uint32_t)random_below(random, DIGITS);
        for (size_t t = 0; t < p->length; t++)
            target[t] = source[p->length - 1 - t];
        target[p->length] = END;
        input[0] = VOCABULARY; // the row that is no token
        memcpy(input + 1, target, p->length * sizeof(*input));
    }
}

/* ---- both models ------------------------------------------------------- */

typedef struct contest {
    const lab *l;
    const sizes *z;
    bauta_tokenizer *tokenizer;
    bauta_model *model;
    learner *learner;
    rnn_net net;
    double losses[2]; /* on held-out pairs */
    double rights[2]; /* share of tokens that are right there */
} contest;
enum { RNN = 0, TRANSFORMER = 1 };
static const char *const names[2] = { "recurrent network", "Transformer" };

static int contest_init(contest *c)
{
    bauta_error err;
    uint64_t random = c->l->seed;
    if (bauta_tokenizer_characters(&c->tokenizer, "0123456789", DIGITS, &err))
        return lab_failed(&err);
    int failed = lab_model_make(&c->model, "transformer-tiny", MODEL,
                                c->tokenizer, c->l->seed);
    if (!failed)
        failed = learner_create(&c->learner, c->l->context, c->model, 1e-2,
                                c->z->steps);
    if (!failed && !rnn_init(&c->net, &recurrent))
        failed = cli_fail("lab", "out of memory");
    // Uniform, as PyTorch begins.
    double most = 1.0 / sqrt((double)recurrent.hidden);
    for (size_t i = 0; !failed && i < c->net.at.count; i++)
        c->net.weights[i] =
            most * (2.0 * (double)(splitmix64(&random) >> 11) * 0x1p-53 - 1.0);
    return failed;
}

static void contest_release(contest *c)
{
    learner_free(c->learner);
    bauta_model_free(c->model);
    bauta_tokenizer_free(c->tokenizer);
    rnn_release(&c->net);
}

static rnn_pair pair_of(const pairs *p, size_t i)
{
    return (rnn_pair){ p->source + i * p->length,
                       p->target + i * (p->length + 1), p->length,
                       p->length + 1, VOCABULARY };
}

/* The mean loss per token; with `learn` its gradients. */
static double rnn_mean(contest *c, const pairs *p, bool learn, size_t *right)
{
    double count = (double)(p->count * (p->length + 1)), loss = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        rnn_pair pair = pair_of(p, i);
        loss +=
            rnn_loss(&c->net, &pair, learn ? 1.0 / count : 0.0, NULL, right) /
            count;
    }
    return loss;
}

static void batches_set(bauta_batch *source, bauta_batch *target,
                        const pairs *p, size_t count)
{
    *source = (bauta_batch)BAUTA_BATCH_INIT;
    *target = (bauta_batch)BAUTA_BATCH_INIT;
    source->count = target->count = count;
    source->stride = p->length;
    source->ids = p->source;
    target->stride = p->length + 1;
    target->ids = p->input;
}

static int transformer_mean(contest *c, const pairs *p, double *loss)
{
    bauta_error err;
    bauta_batch source, target;
    batches_set(&source, &target, p, p->count);
    if (bauta_model_loss(c->l->context, c->model, &source, &target, p->target,
                         NULL, loss, NULL, &err))
        return lab_failed(&err);
    return CLI_OK;
}

/* One step of a model on the pairs. */
static int model_step(contest *c, int which, const pairs *p, double *loss)
{
    if (which == RNN) {
        *loss = rnn_mean(c, p, true, NULL);
        double left = 1.0 - (double)c->net.updates / (double)(c->z->steps + 1);
        rnn_update(&c->net, 1e-2 * (0.1 + 0.9 * left));
        return CLI_OK;
    }
    int failed = transformer_mean(c, p, loss);
    return failed ? failed : learner_step(c->learner);
}

/* ---- learning ---------------------------------------------------------- */

static int model_learn(contest *c, report *r, int which)
{
    pairs p;
    uint64_t random = c->l->seed + 1;
    double loss, seconds = 0.0, sum = 0.0;
    size_t every = c->z->steps / 50;
    int failed = pairs_init(&p, c->z->batch, c->z->length);
    if (failed)
        return failed;
    report_curve(r, names[which]);
    for (size_t i = 1; i <= c->z->steps && !failed; i++) {
        pairs_draw(&p, &random);
        double began = seconds_now();
        failed = model_step(c, which, &p, &loss);
        seconds += seconds_now() - began;
        sum += loss;
        if (failed || i % every)
            continue;
        report_point(r, seconds, sum / (double)every);
        lab_progress(c->l, "rnn: %s, step %zu of %zu, loss %.3f", names[which],
                     i, c->z->steps, loss);
        sum = 0.0;
    }
    pairs_release(&p);
    return failed;
}

/* The share of labels that are the most likely tokens. */
static int transformer_right(contest *c, const pairs *p, double *share)
{
    bauta_error err;
    bauta_batch source, target;
    bauta_outputs out = BAUTA_OUTPUTS_INIT;
    size_t rows = p->count * (p->length + 1), right = 0;
    size_t vocabulary = bauta_model_vocab_size(c->model);
    float *logits = malloc(rows * vocabulary * sizeof(*logits));
    if (!logits)
        return cli_fail("lab", "out of memory");
    batches_set(&source, &target, p, p->count);
    out.logits = logits;
    bauta_status status = bauta_model_forward(c->l->context, c->model, &source,
                                              &target, &out, &err);
    for (size_t i = 0; !status && i < rows; i++) {
        bool is;
        lab_cross_entropy(logits + i * vocabulary, vocabulary, p->target[i],
                          &is);
        right += is;
    }
    *share = (double)right / (double)rows;
    free(logits);
    return status ? lab_failed(&err) : CLI_OK;
}

static int held_out(contest *c, report *r)
{
    pairs p;
    uint64_t random = c->l->seed + 2;
    size_t right = 0;
    int failed = pairs_init(&p, 64, c->z->length);
    if (failed)
        return failed;
    pairs_draw(&p, &random);
    c->losses[RNN] = rnn_mean(c, &p, false, &right);
    c->rights[RNN] = (double)right / (double)(p.count * (p.length + 1));
    failed = transformer_mean(c, &p, &c->losses[TRANSFORMER]);
    bauta_model_zero_gradients(c->model, NULL);
    if (!failed)
        failed = transformer_right(c, &p, &c->rights[TRANSFORMER]);
    pairs_release(&p);
    size_t counts[2] = { c->net.at.count,
                         bauta_model_parameter_count(c->model) };
    report_table(r, "After training, on pairs that neither has seen",
                 "model\tparameters\tloss\ttokens right");
    for (int i = 0; i < 2; i++)
        report_row(r, "%s\t%zu\t%.4f\t%.1f %%", names[i], counts[i],
                   c->losses[i], 100.0 * c->rights[i]);
    report_claim(r,
                 fabs((double)counts[0] - (double)counts[1]) <
                     0.15 * (double)counts[0],
                 "Both models are of about the same size: %zu and %zu "
                 "parameters.",
                 counts[0], counts[1]);
    // Guessing digits costs ln 10 = 2.3 nats.
    for (int i = 0; i < 2; i++)
        report_claim(r, c->losses[i] < 1.0,
                     "The %s learns: its loss is %.3f nats per token, and "
                     "guessing would cost 2.1.",
                     names[i], c->losses[i]);
    return failed;
}

/* ---- time -------------------------------------------------------------- */

/* Seconds of a step without an update, the least of three; and dependent steps
 * of one pair. */
static int step_time(contest *c, int which, size_t length, double *seconds,
                     size_t *dependent)
{
    pairs p;
    uint64_t random = c->l->seed;
    double loss;
    int failed = pairs_init(&p, 8, length);
    if (failed)
        return failed;
    pairs_draw(&p, &random);
    *seconds = INFINITY;
    *dependent = 2 * LAYERS; // forward and back
    for (int i = 0; i < 3 && !failed; i++) {
        double began = seconds_now();
        size_t before = c->net.dependent;
        if (which == RNN) {
            rnn_mean(c, &p, true, NULL);
            *dependent = (c->net.dependent - before) / p.count;
        } else {
            failed = transformer_mean(c, &p, &loss);
        }
        *seconds = fmin(*seconds, seconds_now() - began);
    }
    memset(c->net.gradients, 0, c->net.at.count * sizeof(double));
    bauta_model_zero_gradients(c->model, NULL);
    pairs_release(&p);
    return failed;
}

static int times_compare(contest *c, report *r)
{
    int failed = CLI_OK;
    report_table(r,
                 "A training step of 8 pairs, forward and back. Dependent "
                 "steps wait for one another; all else can run in parallel",
                 "length\trecurrent: dependent steps\tms\tTransformer: "
                 "dependent steps\tms\ttokens for each of its steps");
    for (size_t i = 0; i < 4 && !failed; i++) {
        size_t n = c->z->lengths[i], dependent[2];
        double seconds[2];
        for (int which = 0; which < 2 && !failed; which++)
            failed = step_time(c, which, n, &seconds[which], &dependent[which]);
        if (failed)
            break;
        report_row(r, "%zu\t%zu\t%.2f\t%zu\t%.2f\t%zu", n, dependent[RNN],
                   1000.0 * seconds[RNN], dependent[TRANSFORMER],
                   1000.0 * seconds[TRANSFORMER], (2 * n + 1) / LAYERS);
        report_claim(r,
                     dependent[RNN] == 2 * (2 * n + 1) &&
                         dependent[TRANSFORMER] == 2 * LAYERS,
                     "At length %zu the recurrent network takes %zu dependent "
                     "steps, the Transformer %zu.",
                     n, dependent[RNN], dependent[TRANSFORMER]);
    }
    return failed;
}

/* ---- attention --------------------------------------------------------- */

/* Mean over the heads of cross-attention for the first pair. */
static int transformer_attention(contest *c, const pairs *p, double *to)
{
    bauta_error err;
    bauta_batch source, target;
    bauta_attention_weights look = BAUTA_ATTENTION_WEIGHTS_INIT;
    float one[LONGEST * LONGEST];
    size_t heads = bauta_model_heads(c->model, BAUTA_ATTENTION_CROSS);
    size_t cells = p->length * (p->length + 1);
    batches_set(&source, &target, p, 1);
    look.attention = BAUTA_ATTENTION_CROSS;
    look.rows = p->length + 1;
    look.weights = one;
    memset(to, 0, cells * sizeof(*to));
    for (look.head = 0; look.head < heads; look.head++) {
        if (bauta_model_attention_weights(c->l->context, c->model, &source,
                                          &target, NULL, &look, 1, &err))
            return lab_failed(&err);
        for (size_t i = 0; i < cells; i++)
            to[i] += (double)one[i] / (double)heads;
    }
    return CLI_OK;
}

/* Rows are written digits, columns read ones. */
static void attention_draw(report *r, const char *name, const pairs *p,
                           const double *weights)
{
    static const char *const digits[] = { "0", "1", "2", "3", "4",
                                          "5", "6", "7", "8", "9" };
    const char *rows[LONGEST], *columns[LONGEST];
    float cells[LONGEST * LONGEST];
    char title[64];
    size_t n = p->length;
    for (size_t i = 0; i < n; i++) {
        columns[i] = digits[p->source[i]];
        rows[i] = digits[p->target[i]];
    }
    for (size_t i = 0; i < n * n; i++)
        cells[i] = (float)fmin(weights[i], 1.0);
    snprintf(title, sizeof(title), "Attention of the %s", name);
    report_attention(r, title, n, n, rows, columns, cells);
}

/* The share of written digits whose largest weight is at the digit they repeat,
 * or beside it: a state of a recurrent encoder knows its neighbours. */
static double attention_aligned(const pairs *p, const double *weights)
{
    size_t aligned = 0, n = p->length;
    for (size_t t = 0; t < n; t++) {
        size_t best = 0, want = n - 1 - t;
        for (size_t j = 1; j < n; j++)
            if (weights[t * n + j] > weights[t * n + best])
                best = j;
        aligned += best + 1 >= want && best <= want + 1;
    }
    return (double)aligned / (double)n;
}

static int attention_compare(contest *c, report *r)
{
    pairs p;
    uint64_t random = c->l->seed + 3;
    double weights[LONGEST * LONGEST];
    int failed = pairs_init(&p, 1, c->z->length);
    if (failed)
        return failed;
    pairs_draw(&p, &random);
    for (int which = 0; which < 2 && !failed; which++) {
        rnn_pair pair = pair_of(&p, 0);
        if (which == RNN)
            rnn_loss(&c->net, &pair, 0.0, weights, NULL);
        else
            failed = transformer_attention(c, &p, weights);
        if (failed)
            break;
        double aligned = attention_aligned(&p, weights);
        attention_draw(r, names[which], &p, weights);
        report_claim(r, aligned >= 0.5,
                     "The attention of the %s follows the digits in reverse: "
                     "%.0f %% of its largest weights are there.",
                     names[which], 100.0 * aligned);
    }
    pairs_release(&p);
    return failed;
}

/* ---- the experiment ---------------------------------------------------- */

int lab_rnn(const lab *l, report *r)
{
    contest c = { .l = l, .z = l->fast ? &fast : &full };
    int failed = contest_init(&c);
    if (!failed)
        failed = times_compare(&c, r);
    if (!failed) {
        report_plot(r, &(plot_options){ .title = "Loss by time of training",
                                        .across = "seconds",
                                        .upward = "nats per token" });
        failed = model_learn(&c, r, RNN);
    }
    if (!failed)
        failed = model_learn(&c, r, TRANSFORMER);
    if (!failed)
        failed = held_out(&c, r);
    if (!failed)
        failed = attention_compare(&c, r);
    if (!failed) {
        report_conclude(
            r, "A recurrent network reads a text of n tokens in n steps that "
               "wait for one another; a Transformer reads all tokens at once, "
               "in as many steps as it has layers, because the mask and not "
               "the order of computation says what comes before what.");
        report_conclude(r, "Both learn the task with attention: the "
                           "Transformer kept the attention and dropped the "
                           "recurrence.");
    }
    contest_release(&c);
    return failed;
}
