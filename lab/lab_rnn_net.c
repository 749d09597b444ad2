/* SPDX-License-Identifier: Apache-2.0 */
/* lab_rnn_net.c - a recurrent encoder-decoder with attention. */
#include "lab_rnn_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

static size_t take(size_t *used, size_t count)
{
    size_t at = *used;
    *used += count;
    return at;
}

static rnn_gru gru_layout(size_t *used, const rnn_size *z)
{
    rnn_gru g;
    g.input = take(used, 3 * z->hidden * z->embedding);
    g.state = take(used, 3 * z->hidden * z->hidden);
    g.input_bias = take(used, 3 * z->hidden);
    g.state_bias = take(used, 3 * z->hidden);
    return g;
}

static rnn_layout layout_of(const rnn_size *z)
{
    rnn_layout at;
    size_t used = 0;
    at.source = take(&used, z->vocabulary * z->embedding);
    at.target = take(&used, z->vocabulary * z->embedding);
    at.encoder = gru_layout(&used, z);
    at.decoder = gru_layout(&used, z);
    at.attention = take(&used, z->hidden * z->hidden);
    at.combine = take(&used, 2 * z->hidden * z->hidden);
    at.combine_bias = take(&used, z->hidden);
    at.output = take(&used, z->vocabulary * z->hidden);
    at.output_bias = take(&used, z->vocabulary);
    at.count = used;
    return at;
}

/* What a pass keeps for the way back, per position. */
typedef struct record {
    double *reset, *update, *fresh; /* gates of a GRU (hidden) */
    double *inner;                  /* state part of the new gate */
    double *state;                  /* (hidden) */
    double *query;                  /* u = Wa s */
    double *both;                   /* [c; s] (2 hidden) */
    double *combined;               /* (hidden) */
    double *weights;                /* (longest) attention */
    double *chances;                /* (vocabulary) */
} record;

static size_t record_size(const rnn_size *z)
{
    return 9 * z->hidden + z->longest + z->vocabulary;
}

static record record_at(const rnn_net *net, size_t index)
{
    size_t h = net->size.hidden;
    double *p = net->scratch + index * record_size(&net->size);
    return (record){ p,         p + h,
                     p + 2 * h, p + 3 * h,
                     p + 4 * h, p + 5 * h,
                     p + 6 * h, p + 8 * h,
                     p + 9 * h, p + 9 * h + net->size.longest };
}

/* After the records: a zero state, gradients of the encoder's states, and
 * vectors. */
static double *vectors(const rnn_net *net)
{
    return net->scratch + 2 * net->size.longest * record_size(&net->size);
}

bool rnn_init(rnn_net *net, const rnn_size *size)
{
    *net = (rnn_net){ .size = *size, .at = layout_of(size) };
    size_t count = net->at.count;
    size_t scratch = 2 * size->longest * record_size(size) +
                     (size->longest + 16) * size->hidden + size->vocabulary +
                     size->longest + size->embedding;
    net->weights = calloc(count, sizeof(double));
    net->gradients = calloc(count, sizeof(double));
    net->first = calloc(count, sizeof(double));
    net->second = calloc(count, sizeof(double));
    net->scratch = calloc(scratch, sizeof(double));
    return net->weights && net->gradients && net->first && net->second &&
           net->scratch;
}

void rnn_release(rnn_net *net)
{
    free(net->weights);
    free(net->gradients);
    free(net->first);
    free(net->second);
    free(net->scratch);
    *net = (rnn_net){ 0 };
}

/* ---- matrices ---------------------------------------------------------- */

/* out += W x, W (rows, columns). */
static void multiply(double *out, const double *w, const double *x, size_t rows,
                     size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < columns; j++)
            sum += w[i * columns + j] * x[j];
        out[i] += sum;
    }
}

/* dx += W^T d and dW += d x^T. */
static void multiply_back(double *dx, double *dw, const double *w,
                          const double *x, const double *d, size_t rows,
                          size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            dx[j] += w[i * columns + j] * d[i];
            dw[i * columns + j] += d[i] * x[j];
        }
}

static void add(double *to, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void softmax(double *x, size_t count)
{
    double max = x[0], sum = 0.0;
    for (size_t i = 1; i < count; i++)
        max = fmax(max, x[i]);
    for (size_t i = 0; i < count; i++)
        sum += x[i] = exp(x[i] - max);
    for (size_t i = 0; i < count; i++)
        x[i] /= sum;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* ---- the GRU ----------------------------------------------------------- */

static void gru_forward(rnn_net *net, const rnn_gru *g, const double *x,
                        const double *before, const record *to)
{
    size_t h = net->size.hidden;
    double *a = vectors(net) + (net->size.longest + 1) * h, *b = a + 3 * h;
    memcpy(a, net->weights + g->input_bias, 3 * h * sizeof(double));
    memcpy(b, net->weights + g->state_bias, 3 * h * sizeof(double));
    multiply(a, net->weights + g->input, x, 3 * h, net->size.embedding);
    multiply(b, net->weights + g->state, before, 3 * h, h);
    for (size_t i = 0; i < h; i++) {
        to->reset[i] = sigmoid(a[i] + b[i]);
        to->update[i] = sigmoid(a[h + i] + b[h + i]);
        to->inner[i] = b[2 * h + i];
        to->fresh[i] = tanh(a[2 * h + i] + to->reset[i] * to->inner[i]);
        to->state[i] =
            (1.0 - to->update[i]) * to->fresh[i] + to->update[i] * before[i];
    }
    net->dependent++;
}

/* From the gradient d of the state to those of x, added to dx, and of the state
 * before, written to dbefore. */
static void gru_backward(rnn_net *net, const rnn_gru *g, const double *x,
                         const double *before, const record *of,
                         const double *d, double *dx, double *dbefore)
{
    size_t h = net->size.hidden;
    double *a = vectors(net) + (net->size.longest + 1) * h, *b = a + 3 * h;
    for (size_t i = 0; i < h; i++) {
        double r = of->reset[i], z = of->update[i], n = of->fresh[i];
        double fresh = d[i] * (1.0 - z) * (1.0 - n * n);
        a[i] = b[i] = fresh * of->inner[i] * r * (1.0 - r);
        a[h + i] = b[h + i] = d[i] * (before[i] - n) * z * (1.0 - z);
        a[2 * h + i] = fresh;
        b[2 * h + i] = fresh * r;
        dbefore[i] = d[i] * z;
    }
    add(net->gradients + g->input_bias, a, 3 * h);
    add(net->gradients + g->state_bias, b, 3 * h);
    multiply_back(dx, net->gradients + g->input, net->weights + g->input, x, a,
                  3 * h, net->size.embedding);
    multiply_back(dbefore, net->gradients + g->state, net->weights + g->state,
                  before, b, 3 * h, h);
    net->dependent++;
}

/* ---- a pair ------------------------------------------------------------ */

/* Positions of the encoder come first in the records, then the decoder's. */
static const double *embedding(const rnn_net *net, size_t table, uint32_t token)
{
    return net->weights + table + token * net->size.embedding;
}

static uint32_t input_of(const rnn_pair *p, size_t t)
{
    return t ? p->target[t - 1] : p->start;
}

static void attend(const rnn_net *net, const rnn_pair *p, const record *d)
{
    size_t h = net->size.hidden;
    memset(d->query, 0, h * sizeof(double));
    multiply(d->query, net->weights + net->at.attention, d->state, h, h);
    for (size_t j = 0; j < p->source_count; j++) {
        const double *e = record_at(net, j).state;
        d->weights[j] = 0.0;
        multiply(&d->weights[j], e, d->query, 1, h);
    }
    softmax(d->weights, p->source_count);
    memset(d->both, 0, h * sizeof(double));
    for (size_t j = 0; j < p->source_count; j++) {
        const double *e = record_at(net, j).state;
        for (size_t i = 0; i < h; i++)
            d->both[i] += d->weights[j] * e[i];
    }
    memcpy(d->both + h, d->state, h * sizeof(double));
}

static void predict(const rnn_net *net, const record *d)
{
    size_t h = net->size.hidden, v = net->size.vocabulary;
    memcpy(d->combined, net->weights + net->at.combine_bias,
           h * sizeof(double));
    multiply(d->combined, net->weights + net->at.combine, d->both, h, 2 * h);
    for (size_t i = 0; i < h; i++)
        d->combined[i] = tanh(d->combined[i]);
    memcpy(d->chances, net->weights + net->at.output_bias, v * sizeof(double));
    multiply(d->chances, net->weights + net->at.output, d->combined, v, h);
    softmax(d->chances, v);
}

static double forward(rnn_net *net, const rnn_pair *p, size_t *right)
{
    const double *before = vectors(net); // zeros
    double loss = 0.0;
    for (size_t j = 0; j < p->source_count; j++) {
        record e = record_at(net, j);
        gru_forward(net, &net->at.encoder,
                    embedding(net, net->at.source, p->source[j]), before, &e);
        before = e.state;
    }
    for (size_t t = 0; t < p->target_count; t++) {
        record d = record_at(net, p->source_count + t);
        size_t best = 0;
        gru_forward(net, &net->at.decoder,
                    embedding(net, net->at.target, input_of(p, t)), before, &d);
        attend(net, p, &d);
        predict(net, &d);
        for (size_t i = 1; i < net->size.vocabulary; i++)
            if (d.chances[i] > d.chances[best])
                best = i;
        if (right)
            *right += best == p->target[t];
        loss -= log(d.chances[p->target[t]]);
        before = d.state;
    }
    return loss;
}

/* ---- and back ---------------------------------------------------------- */

/* The gradients of one output, into `both` (2 hidden), set to 0 before. */
static void predict_back(rnn_net *net, const rnn_pair *p, size_t t,
                         const record *d, double share, double *both)
{
    size_t h = net->size.hidden, v = net->size.vocabulary;
    double *combined = both + 2 * h, *logits = combined + h;
    memset(both, 0, 3 * h * sizeof(double));
    for (size_t i = 0; i < v; i++)
        logits[i] = share * (d->chances[i] - (i == p->target[t]));
    add(net->gradients + net->at.output_bias, logits, v);
    multiply_back(combined, net->gradients + net->at.output,
                  net->weights + net->at.output, d->combined, logits, v, h);
    for (size_t i = 0; i < h; i++)
        combined[i] *= 1.0 - d->combined[i] * d->combined[i];
    add(net->gradients + net->at.combine_bias, combined, h);
    multiply_back(both, net->gradients + net->at.combine,
                  net->weights + net->at.combine, d->both, combined, h, 2 * h);
}

/* From the gradient of the context to those of the encoder's states and, added,
 * of the decoder's. */
static void attend_back(rnn_net *net, const rnn_pair *p, const record *d,
                        const double *context, double *encoder, double *state,
                        double *query, double *scores)
{
    size_t h = net->size.hidden;
    double mean = 0.0;
    memset(query, 0, h * sizeof(double));
    for (size_t j = 0; j < p->source_count; j++) {
        scores[j] = 0.0;
        multiply(&scores[j], record_at(net, j).state, context, 1, h);
        mean += d->weights[j] * scores[j];
    }
    for (size_t j = 0; j < p->source_count; j++) {
        const double *e = record_at(net, j).state;
        double score = d->weights[j] * (scores[j] - mean);
        for (size_t i = 0; i < h; i++) {
            encoder[j * h + i] += d->weights[j] * context[i];
            encoder[j * h + i] += score * d->query[i];
            query[i] += score * e[i];
        }
    }
    multiply_back(state, net->gradients + net->at.attention,
                  net->weights + net->at.attention, d->state, query, h, h);
}

static void decoder_back(rnn_net *net, const rnn_pair *p, double share,
                         double *encoder, double *carry)
{
    size_t h = net->size.hidden, last = p->source_count - 1;
    double *both = vectors(net) + (net->size.longest + 8) * h;
    double *query = both + 3 * h + net->size.vocabulary;
    double *scores = query + h, *state = scores + net->size.longest;
    for (size_t t = p->target_count; t-- > 0;) {
        record d = record_at(net, p->source_count + t);
        uint32_t input = input_of(p, t);
        const double *before = t ? record_at(net, p->source_count + t - 1).state
                                 : record_at(net, last).state;
        predict_back(net, p, t, &d, share, both);
        memcpy(state, carry, h * sizeof(double));
        add(state, both + h, h);
        attend_back(net, p, &d, both, encoder, state, query, scores);
        gru_backward(net, &net->at.decoder,
                     embedding(net, net->at.target, input), before, &d, state,
                     net->gradients + net->at.target +
                         input * net->size.embedding,
                     carry);
    }
}

static void backward(rnn_net *net, const rnn_pair *p, double share)
{
    size_t h = net->size.hidden;
    double *encoder = vectors(net) + h; // (source_count, hidden)
    double *carry = vectors(net) + (net->size.longest + 7) * h;
    memset(encoder, 0, p->source_count * h * sizeof(double));
    memset(carry, 0, h * sizeof(double));
    decoder_back(net, p, share, encoder, carry);
    for (size_t j = p->source_count; j-- > 0;) {
        record e = record_at(net, j);
        const double *before = j ? record_at(net, j - 1).state : vectors(net);
        add(encoder + j * h, carry, h);
        gru_backward(net, &net->at.encoder,
                     embedding(net, net->at.source, p->source[j]), before, &e,
                     encoder + j * h,
                     net->gradients + net->at.source +
                         p->source[j] * net->size.embedding,
                     carry);
    }
}

double rnn_loss(rnn_net *net, const rnn_pair *pair, double share,
                double *attention, size_t *right)
{
    double loss = forward(net, pair, right);
    for (size_t t = 0; attention && t < pair->target_count; t++)
        memcpy(attention + t * pair->source_count,
               record_at(net, pair->source_count + t).weights,
               pair->source_count * sizeof(double));
    if (share != 0.0)
        backward(net, pair, share);
    return loss;
}

void rnn_update(rnn_net *net, double rate)
{
    net->updates++;
    double c1 = 1.0 - pow(0.9, (double)net->updates);
    double c2 = 1.0 - pow(0.99, (double)net->updates);
    for (size_t i = 0; i < net->at.count; i++) {
        double g = net->gradients[i];
        net->first[i] = 0.9 * net->first[i] + 0.1 * g;
        net->second[i] = 0.99 * net->second[i] + 0.01 * g * g;
        net->weights[i] -=
            rate * (net->first[i] / c1) / (sqrt(net->second[i] / c2) + 1e-8);
        net->gradients[i] = 0.0;
    }
}
