/* SPDX-License-Identifier: Apache-2.0 */
/* lab_rnn_net.h - a recurrent encoder-decoder with attention, in plain loops.
 *
 *     encoder   e[j] = GRU(Es x[j], e[j-1])
 *     decoder   s[t] = GRU(Et y[t-1], s[t-1]),  s[-1] = e[n-1]
 *     attention a[t] = softmax_j(e[j] . Wa s[t]),  c[t] = sum_j a[t][j] e[j]
 *     output    softmax(Wo tanh(Wc [c[t]; s[t]] + bc) + bo)
 *
 * The GRU is PyTorch's, with gates in the order reset, update, new (Cho and
 * others 2014; attention as in Luong and others 2015). Gradients are computed
 * by backpropagation through time. Each state needs the one before it: rnn_net
 * counts these dependent steps. */
#ifndef LAB_RNN_NET_H
#define LAB_RNN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rnn_size {
    size_t vocabulary, embedding, hidden, longest; /* source or target */
} rnn_size;

/* Offsets of the parameters. */
typedef struct rnn_gru {
    size_t input, state; /* (3 hidden, embedding), (3 hidden, hidden) */
    size_t input_bias, state_bias; /* (3 hidden) */
} rnn_gru;
typedef struct rnn_layout {
    size_t source, target; /* embeddings (vocabulary, embedding) */
    rnn_gru encoder, decoder;
    size_t attention;             /* Wa (hidden, hidden) */
    size_t combine, combine_bias; /* Wc (hidden, 2 hidden), bc (hidden) */
    size_t output, output_bias;   /* Wo (vocabulary, hidden), bo */
    size_t count;                 /* all parameters */
} rnn_layout;

typedef struct rnn_net {
    rnn_size size;
    rnn_layout at;
    double *weights, *gradients; /* (at.count) */
    double *first, *second;      /* (at.count) moments of Adam */
    size_t updates;
    size_t dependent; /* steps that waited for the one before, in all passes */
    double *scratch;
} rnn_net;

/* False if memory runs out; release in any case. */
bool rnn_init(rnn_net *net, const rnn_size *size);
void rnn_release(rnn_net *net);

/* A source and a target, both of at most `longest` tokens. The first input of
 * the decoder is `start`. */
typedef struct rnn_pair {
    const uint32_t *source, *target;
    size_t source_count, target_count;
    uint32_t start;
} rnn_pair;

/* The sum of the cross-entropies of the target, whose gradients times `share`
 * are added. `attention`, unless NULL, receives (target_count, source_count)
 * weights, and *right how many tokens were the most likely ones. */
double rnn_loss(rnn_net *net, const rnn_pair *pair, double share,
                double *attention, size_t *right);
/* One step of Adam; the gradients become 0. */
void rnn_update(rnn_net *net, double rate);

#endif
