/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the operations of a Transformer on the tape.
 *
 * Every op checks its shapes, computes its output and records itself for the
 * backward pass. Tensors have one row per token. After a failure of the tape,
 * ops return NULL at once and accept NULL tensors. The arithmetic is the
 * backend's (backend.h): no op reads a tensor itself or starts a thread. */
#ifndef BT_OPS_H
#define BT_OPS_H

#include "autograd/tape.h"
#include "backend/block_table.h"

/* A label or id that is ignored. */
#define BT_IGNORE_INDEX UINT32_MAX

/* y = x W^T + bias with W (outputs, inputs), as in torch.nn.Linear; or, with
 * `transposed`, y = x W + bias with W (inputs, outputs), as in GPT-2's Conv1D.
 * bias is (1, outputs) or NULL. */
bt_tensor *bt_op_linear(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                        bool transposed, bt_tensor *bias);
/* Several layers of one x, each computed as by bt_op_linear() without a
 * residual. If nothing is recorded and there are few rows, they run in one
 * parallel loop, since starting threads costs as much as a small product. On a
 * strided backend layers that lie back to back in memory run as one layer, of
 * which the results are columns; the gradient of x is then one sum over the
 * outputs of all of them. False if the tape has failed. */
typedef struct bt_linear_op {
    bt_tensor *w, *bias; /* bias may be NULL */
} bt_linear_op;
bool bt_op_linears(bt_tape *tape, bt_tensor *x, size_t count,
                   const bt_linear_op *layers, bool transposed, bt_tensor **y);

/* down(act(up(x))), computed as by bt_op_linear() and bt_op_act(); with one
 * operation for up and act where the backend has that. */
bt_tensor *bt_op_feed_forward(bt_tape *tape, bt_tensor *x,
                              const bt_linear_op *up, bt_act act,
                              const bt_linear_op *down, bool transposed);

/* The rows `ids` of a table, times `scale`. ids (rows) stay valid and unchanged
 * until the tape is rewound, as all host arrays that ops take, except labels.
 * The row `padding_id` (BT_IGNORE_INDEX: none) gets no gradient, as with
 * padding_idx in torch.nn.Embedding. */
bt_tensor *bt_op_embedding(bt_tape *tape, bt_tensor *table, const uint32_t *ids,
                           size_t rows, float scale, uint32_t padding_id);
/* The same for ids (rows, 1) on the device, which are known to be in the table.
 * It leaves no record. */
bt_tensor *bt_op_embedding_of(bt_tape *tape, bt_tensor *table,
                              const bt_tensor *ids, float scale);

/* Layer norm (bias may be NULL) or RMS norm over the columns; gain and bias are
 * (1, columns). With `heads` > 1 each head of the columns is normalized
 * separately, with gain (1, columns / heads). */
bt_tensor *bt_op_norm(bt_tape *tape, bt_tensor *x, bt_tensor *gain,
                      bt_tensor *bias, bt_norm_kind kind, float epsilon,
                      size_t heads);

/* *sum = a + b, and its norm, with the bits of bt_op_add() and bt_op_norm(); in
 * one operation where the backend has that. */
bt_tensor *bt_op_add_norm(bt_tape *tape, bt_tensor *a, bt_tensor *b,
                          bt_tensor *gain, bt_tensor *bias, bt_norm_kind kind,
                          float epsilon, bt_tensor **sum);

/* An activation of every element; gated (GLU): activation(gate) * up. */
bt_tensor *bt_op_act(bt_tape *tape, bt_tensor *x, bt_act act);
bt_tensor *bt_op_gated(bt_tape *tape, bt_tensor *gate, bt_tensor *up,
                       bt_act act);

/* Rotary position embeddings: columns c and c + dim / 2 of each head are
 * rotated by the angle positions[row] * frequencies[c] (half-split); positions
 * (rows), frequencies (dim / 2). */
bt_tensor *bt_op_rotary(bt_tape *tape, bt_tensor *x, size_t heads,
                        const uint32_t *positions, const float *frequencies);

bt_tensor *bt_op_add(bt_tape *tape, bt_tensor *a, bt_tensor *b);

/* x * factor. */
bt_tensor *bt_op_scale(bt_tape *tape, bt_tensor *x, float factor);

/* Keep each element with probability 1 - rate, scaled by 1 / (1 - rate). The
 * choice depends only on the seed, the site and the token: site identifies the
 * dropout layer in the model, tokens[row] the token in the data. */
bt_tensor *bt_op_dropout(bt_tape *tape, bt_tensor *x, float rate, uint64_t seed,
                         uint32_t site, const uint64_t *tokens);

/* A softcap and an additive mask for the scores of an attention: slopes or a
 * table by distance, at most one of them; see bauta_attention_bias. */
typedef struct bt_bias_op {
    float softcap;       /* 0: none */
    const float *slopes; /* (heads) or NULL */
    bt_tensor *table;    /* (distances, heads) or NULL */
    ptrdiff_t first_distance;
    const uint32_t *positions; /* (queries) in their sequences; with slopes or a
                                  table */
} bt_bias_op;

/* Masked attention; q (queries, heads * dim), k and v (keys, kv_heads * dim).
 * The plan must outlive the backward pass. scale 0: 1 / sqrt(dim). bias may be
 * NULL. */
bt_tensor *bt_op_attention(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                           bt_tensor *v, const bt_attention_plan *plan,
                           size_t heads, size_t kv_heads, float scale,
                           const bt_bias_op *bias);

/* The tensors of a bias for a backend. False if the tape has failed. */
bool bt_bias_inputs(bt_tape *tape, bt_attention_bias *to,
                    const bt_bias_op *bias, size_t rows, size_t heads);

/* ---- Paged attention --------------------------------------------------- */

/* Many sequences at once, over keys and values in their block tables. These ops
 * leave no record. */

/* Write the keys and values of the rows (rows, kv_heads * dim) after the tokens
 * of their block tables. The tables do not advance, so the step can be
 * repeated. False if the tape has failed. */
bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads);

/* Masked attention over the tokens of the block tables. The sequences of the
 * plan correspond to the tables, in order. */
typedef struct bt_paged_attention_op {
    const bt_kv_batch *batch;
    size_t layer;
    const bt_attention_plan *plan;
    size_t heads, kv_heads, value_dim;
    float scale;            /* 0: 1 / sqrt(dim) */
    const bt_bias_op *bias; /* or NULL */
} bt_paged_attention_op;

bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_paged_attention_op *op);

/* Rotate q and k, unless positions is NULL (see bt_op_rotary), write k and v,
 * and attend to the tokens of the tables and the new rows. */
bt_tensor *bt_op_write_and_attend(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                                  const bt_tensor *v,
                                  const bt_paged_attention_op *op,
                                  const uint32_t *positions,
                                  const float *frequencies);

/* ---- Loss -------------------------------------------------------------- */

/* Cross-entropy of the logits x W^T + bias, fused with the output layer, so
 * that only the logits of some rows exist at a time. A softcap c that is not 0
 * makes them c tanh(logit / c). The loss is the mean over
 * rows whose label is not BT_IGNORE_INDEX, times `weight` (for gradient
 * accumulation: this micro-batch's share of all counted labels).
 * label_weights (rows), NULL for 1, multiplies loss and gradients of each row;
 * the mean is still over the counted rows. label_smoothing mixes in the mean
 * over the vocabulary. If no row counts, the loss is 0. An ignored row is
 * excluded, not multiplied by zero: its contents, even NaN, change no bit of
 * the loss or of a gradient. If the tape records, the gradients of x, W and
 * bias are computed with the loss and kept on the tape; bt_tape_backward() adds
 * them. */
typedef struct bt_loss {
    double loss;           /* weighted mean, once bt_loss_read() has set it */
    size_t counted;        /* rows whose label is not BT_IGNORE_INDEX */
    const bt_tensor *each; /* (counted) losses on the device; NULL: none */
    double weight;
} bt_loss;
bt_loss bt_op_cross_entropy(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                            bool transposed, bt_tensor *bias, float softcap,
                            const uint32_t *labels, const float *label_weights,
                            float label_smoothing, double weight);

/* The loss, natural logarithm; 0 if the tape has failed. It waits for the
 * device, so read it after the backward pass has been queued. */
double bt_loss_read(bt_tape *tape, bt_loss *of);

/* bt_op_cross_entropy() with the logits of at most `chunk` rows (1 or more) at
 * a time. It changes no bit of the loss or of a gradient. */
bt_loss bt_op_cross_entropy_chunked(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                                    bool transposed, bt_tensor *bias,
                                    float softcap, const uint32_t *labels,
                                    const float *label_weights,
                                    float label_smoothing, double weight,
                                    size_t chunk);

/* The log-probability of each label under softmax(x W^T + bias), with the bits
 * of bt_row_stats: logprobs (rows), 0 where the label is BT_IGNORE_INDEX. The
 * logits are computed as above. For inference: the tape must not record. */
void bt_op_logprobs(bt_tape *tape, bt_tensor *x, bt_tensor *w, bool transposed,
                    bt_tensor *bias, float softcap, const uint32_t *labels,
                    float *logprobs);

/* ---- Parts of a linear layer ------------------------------------------- */

/* For the loss, and for logits. W is (outputs, inputs), or (inputs, outputs) if
 * `transposed`. */

size_t bt_linear_outputs(const bt_tensor *w, bool transposed);

/* Whether x, which must be dense, and bias (or NULL) match the shape of W. If
 * not, the tape fails with a message that begins with the op's name. */
bool bt_linear_check(bt_tape *tape, const char *op, const bt_tensor *x,
                     const bt_tensor *w, bool transposed,
                     const bt_tensor *bias);

/* y = x W^T + bias; false if the tape has failed. */
bool bt_linear_forward(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias,
                       const bt_tensor *y);

/* The same to host memory `to` (rows of x, outputs), which is written directly
 * if the backend is visible to the host. For logits, with their softcap (0:
 * none). */
bool bt_linear_to_host(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias, float softcap,
                       float *to);

/* Cap logits in place; a cap of 0 changes nothing. */
bool bt_softcap_logits(bt_tape *tape, const bt_tensor *logits, float cap);

#endif
