/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the ops of a Transformer on the tape, one file each.
 *
 * Every op checks its shapes, computes its output and leaves a record for the
 * backward pass. All take tensors of one row a token. When the tape has failed
 * they return NULL at once; tensors that are NULL because of that are accepted
 * and passed on. Kernels are called for ranges of rows (or of columns, where
 * rows are summed), so threads change no bit, and a row's result depends on
 * that row alone, so batching changes none either. */
#ifndef BT_OPS_H
#define BT_OPS_H

#include "mask/plan.h"
#include "ops/tape.h"

/* An id that stands for none. */
#define BT_IGNORE UINT32_MAX

/* y = x W^T + bias: W is (outputs, inputs), as torch.nn.Linear has it; or, with
 * `turned`, y = x W + bias with W (inputs, outputs), as GPT-2 has it. bias is
 * (1, outputs) or NULL. residual, of the shape of y or NULL, is added last. */
bt_tensor *bt_op_linear(bt_tape *tape, bt_tensor *x, bt_tensor *w, bool turned,
                        bt_tensor *bias, bt_tensor *residual);

/* Several layers of one x, each as bt_op_linear() would compute it, without a
 * residual. Where nothing is recorded and rows are few they run in one go,
 * since starting threads costs as much as a small product. False when the tape
 * has failed. */
typedef struct bt_linear_op {
    bt_tensor *w, *bias; /* bias may be NULL */
} bt_linear_op;
bool bt_op_linears(bt_tape *tape, bt_tensor *x, size_t count,
                   const bt_linear_op *layers, bool turned, bt_tensor **y);

/* The rows `ids` of a table, times `scale`. ids (rows) are copied. The row
 * `frozen` (padding; BT_IGNORE: none) gets no gradient from here. */
bt_tensor *bt_op_embed(bt_tape *tape, bt_tensor *table, const uint32_t *ids,
                       size_t rows, float scale, uint32_t frozen);

/* Layer norm (bias may be NULL) or RMS norm, over the columns: gain and bias
 * are (1, columns). With `heads` > 1 the columns are so many heads and each is
 * normed by itself with gain (1, columns / heads). */
bt_tensor *bt_op_norm(bt_tape *tape, bt_tensor *x, bt_tensor *gain,
                      bt_tensor *bias, bt_norm_kind kind, float epsilon,
                      size_t heads);

/* An activation of every element; gated: activation(gate) * up. */
bt_tensor *bt_op_act(bt_tape *tape, bt_tensor *x, bt_act act);
bt_tensor *bt_op_gated(bt_tape *tape, bt_tensor *gate, bt_tensor *up,
                       bt_act act);

/* Rotary positions: columns c and c + dim / 2 of each head are turned by the
 * angle positions[row] * frequencies[c] (half-split). positions (rows) and
 * frequencies (dim / 2) are copied. */
bt_tensor *bt_op_rotary(bt_tape *tape, bt_tensor *x, size_t heads,
                        const uint32_t *positions, const float *frequencies);

bt_tensor *bt_op_add(bt_tape *tape, bt_tensor *a, bt_tensor *b);

/* Keep an element with probability 1 - rate, scaled by 1 / (1 - rate). Which
 * ones is a function of seed, site and the token alone: site says which dropout
 * of the model this is, tokens[row] which token of the data. */
bt_tensor *bt_op_dropout(bt_tape *tape, bt_tensor *x, float rate, uint64_t seed,
                         uint32_t site, const uint64_t *tokens);

/* Masked attention; q (queries, heads * dim), k and v (keys, kv_heads * dim).
 * The plan outlives the backward pass. scale 0: 1 / sqrt(dim). */
bt_tensor *bt_op_attention(bt_tape *tape, bt_tensor *q, bt_tensor *k,
                           bt_tensor *v, const bauta_plan *plan, size_t heads,
                           size_t kv_heads, float scale);

/* Cross-entropy of logits x W^T + bias against labels, as one op, so that the
 * logits of some hundred rows exist at a time and no longer than needed. The
 * loss is the mean over rows whose label is not BT_IGNORE, times `weight` (for
 * accumulation: the share of this part in all counted labels); smoothing s
 * mixes in the mean over the vocabulary. Where nothing counts, the loss is 0.
 * A row that is ignored is excluded, not weighted with zero: whatever stands in
 * it, NaN too, changes no bit of the loss or of a gradient. When the tape
 * records, the gradients of x, W and bias are computed along with the loss and
 * kept on the tape; they flow at bt_tape_backward() and not before. */
typedef struct bt_loss {
    double loss;    /* weighted mean, natural logarithm */
    size_t counted; /* rows whose label is not BT_IGNORE */
} bt_loss;
bt_loss bt_op_loss(bt_tape *tape, bt_tensor *x, bt_tensor *w, bool turned,
                   bt_tensor *bias, const uint32_t *labels, float smoothing,
                   double weight);

#endif
