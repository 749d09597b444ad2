/* SPDX-License-Identifier: Apache-2.0 */
/* op_types.h - the kinds and options that operations of all backends share. */
#ifndef BT_OP_TYPES_H
#define BT_OP_TYPES_H

#include "bauta.h"

typedef enum bt_act {
    BT_ACT_RELU,
    BT_ACT_GELU_ERF,  /* x Phi(x) */
    BT_ACT_GELU_TANH, /* its tanh approximation */
    BT_ACT_SILU       /* x sigmoid(x) */
} bt_act;

/* With m the mean and v the variance of a row (layer), or m = 0 and v the mean
 * square (RMS): y = (x - m) / sqrt(v + epsilon) * gain + bias. */
typedef enum bt_norm_kind { BT_NORM_LAYER, BT_NORM_RMS } bt_norm_kind;

typedef struct bt_optimizer_options {
    double beta1, beta2;
    double epsilon;
    double weight_decay;
    double max_grad_norm; /* largest global gradient norm; 0: no clipping */
} bt_optimizer_options;
/* The defaults of torch.optim.AdamW, without clipping. */
#define BT_OPTIMIZER_OPTIONS_INIT    \
    {                                \
        0.9, 0.999, 1e-8, 0.01, 0.0, \
    }

/* ---- The shape of an attention ------------------------------------------ */

/* Checked, with its defaults filled in. */

/* Head h of token t starts at t * token + h * head. */
typedef struct bt_attention_strides {
    size_t token, head;
} bt_attention_strides;

typedef struct bt_attention_shape {
    size_t heads, kv_heads, group; /* group: query heads per key head */
    size_t head_dim, head_pad, value_dim, value_pad;
    float scale;
    bt_attention_strides q, k, v, out;
    bauta_attention_bias bias; /* all 0: none */
} bt_attention_shape;

enum { BT_HEAD_DIM_MAX = 256 };

/* Fill in defaults and padded sizes; an error if a value is out of range. */
bauta_status bt_attention_shape_resolve(bt_attention_shape *shape,
                                        const bauta_attention_shape *given,
                                        bauta_error *err);

/* An error if elements of what is written overlap: the larger of the two
 * strides must step over the whole extent of the smaller. */
bauta_status bt_attention_strides_disjoint(const bt_attention_strides *strides,
                                           const char *name, size_t tokens,
                                           size_t heads, size_t dim,
                                           bauta_error *err);
/* The same for the gradients of q, k and v, which have the strides of q, k and
 * v. */
bauta_status bt_attention_gradients_disjoint(const bt_attention_shape *shape,
                                             size_t rows, size_t keys,
                                             bauta_error *err);

/* ---- Sampling ---------------------------------------------------------- */

/* The tokens before the one that is sampled. */
typedef struct bt_token_history {
    const uint32_t
        *ids; /* (count) NULL unless bt_logits_processors_need_history() */
    size_t count;
    size_t prompt; /* of these, the prompt's */
    size_t limit;  /* most tokens, prompt included */
} bt_token_history;

typedef enum bt_sample_status {
    BT_SAMPLE_OK = 0,
    BT_SAMPLE_NOT_FINITE, /* a logit is NaN or +infinity */
    BT_SAMPLE_ALL_MASKED  /* every token is masked */
} bt_sample_status;

typedef struct bt_sampled_token {
    uint32_t token;
    float logprob; /* from the model's logits */
    double score;  /* log-probability after processors and warpers */
} bt_sampled_token;

/* A continuation of an open beam. */
typedef struct bt_beam_choice {
    float score;
    uint32_t beam, token;
    float logprob; /* of the token, from the model's logits */
} bt_beam_choice;

/* Whether any logits processor of the options would change a row, and whether
 * one reads the history's tokens. */
bool bt_logits_processors_active(const bauta_generate_options *o,
                                 const bt_token_history *h);
bool bt_logits_processors_need_history(const bauta_generate_options *o);
/* Whether tokens that occurred become less likely by their number. */
bool bt_logits_counts_penalized(const bauta_generate_options *o);
/* The parts of that: whether end tokens are still masked, whether a token is
 * forced, and whether a token is an end token. */
bool bt_logits_too_short(const bauta_generate_options *o,
                         const bt_token_history *h);
bool bt_logits_forced_token(const bauta_generate_options *o,
                            const bt_token_history *h, uint32_t *token);
bool bt_is_eos_token(const bauta_generate_options *o, uint32_t token);

#endif
