/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the operations of a Transformer on an NVIDIA GPU, apart from matrix
 * products (gemm.h) and attention (cuda.h), seen from C.
 *
 * All pointers are the device's unless it says otherwise. A call returns when
 * its work is queued on `stream` (a cudaStream_t; NULL is the default one) of
 * the current device. Nothing is allocated and nothing waits, so every call can
 * be captured in a CUDA graph. The caller has checked ids, labels and
 * positions: a kernel does not.
 *
 * dtype is BAUTA_BFLOAT16 or BAUTA_FLOAT32 and is that of activations;
 * arithmetic is float32. bfloat16 results are rounded to nearest, ties to even,
 * and NaN becomes the one NaN 0x7fff. Matrices may have any size and stride;
 * they are fast where they and their strides are aligned to 16 bytes. An output
 * may be the same matrix as an input (same address and stride) where each
 * element depends on the elements at its own place only.
 *
 * Order of arithmetic. A row's result depends on that row alone: sums over a
 * row have a tree that follows from the row's length. Sums over rows are cut
 * into chunks of a constant number of rows. So neither the number of rows (of a
 * row's result), nor the grid, nor the GPU's size changes a bit, and there are
 * no floating-point atomics. In float32 the element-wise operations, rotary
 * embeddings, dropout, the embedding's gradient, AdamW and the norm of the
 * gradients give the CPU's bits; norms, cross-entropy and sums over rows do
 * not, since their trees are wider. */
#ifndef BT_CUDA_OPS_H
#define BT_CUDA_OPS_H

#include "backend/cpu/kernels/norm.h"
#include "backend/cpu/kernels/pointwise.h"
#include "bauta.h"
#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix that is read or written: rows are `stride` elements apart, 0 stands
 * for the number of columns. Optional ones have data NULL. */
typedef struct bt_cuda_in {
    const void *data;
    size_t stride;
} bt_cuda_in;

typedef struct bt_cuda_out {
    void *data;
    size_t stride;
} bt_cuda_out;

/* ---- elements ------------------------------------------------------------ */

/* to = x, with a conversion where the types differ. */
bauta_status bt_cuda_copy(size_t rows, size_t columns, bt_cuda_out to,
                          bauta_dtype to_dtype, bt_cuda_in x,
                          bauta_dtype x_dtype, void *stream, bauta_error *err);
/* to = x * scale or, with `add`, to = fma(x, scale, to). A scale of 1 with
 * `add` accumulates gradients. */
bauta_status bt_cuda_scale(size_t rows, size_t columns, bt_cuda_out to,
                           bauta_dtype to_dtype, bt_cuda_in x,
                           bauta_dtype x_dtype, float scale, bool add,
                           void *stream, bauta_error *err);
/* to = a + b */
bauta_status bt_cuda_add(size_t rows, size_t columns, bauta_dtype dtype,
                         bt_cuda_out to, bt_cuda_in a, bt_cuda_in b,
                         void *stream, bauta_error *err);
/* to = cap * tanh(x / cap); and dx = dy * (1 - (y / cap)^2), or that is added.
 * to may be x, and dx may be dy. */
bauta_status bt_cuda_softcap(size_t rows, size_t columns, bauta_dtype dtype,
                             bt_cuda_out to, bt_cuda_in x, float cap,
                             void *stream, bauta_error *err);
bauta_status bt_cuda_softcap_grad(size_t rows, size_t columns,
                                  bauta_dtype dtype, bt_cuda_out dx,
                                  bt_cuda_in y, bt_cuda_in dy, float cap,
                                  bool add, void *stream, bauta_error *err);
bauta_status bt_cuda_fill(size_t rows, size_t columns, bauta_dtype dtype,
                          bt_cuda_out to, float value, void *stream,
                          bauta_error *err);
/* to[i] = x[index[i]] */
bauta_status bt_cuda_gather_rows(size_t rows, size_t columns, bauta_dtype dtype,
                                 bt_cuda_out to, bt_cuda_in x,
                                 const uint32_t *index, void *stream,
                                 bauta_error *err);
/* to[index[i]] = x[i] or, with `add`, += x[i]; no two indices are equal. */
bauta_status bt_cuda_scatter_rows(size_t rows, size_t columns,
                                  bauta_dtype dtype, bt_cuda_out to,
                                  bt_cuda_in x, const uint32_t *index, bool add,
                                  void *stream, bauta_error *err);

/* y = act(x), times `by` unless that is NULL. In float32 the CPU's bits. In
 * bfloat16 faster functions, which are within 2^-20 of the CPU's, relative to
 * the magnitudes that activations.h names, before rounding. */
typedef struct bt_cuda_act_args {
    bt_act act;
    bauta_dtype dtype;
    size_t rows, columns;
    bt_cuda_in x, by;
    bt_cuda_out y;
} bt_cuda_act_args;
bauta_status bt_cuda_act(const bt_cuda_act_args *args, void *stream,
                         bauta_error *err);

/* dx = act'(x) * dy, times `by` unless that is NULL, and dby = act(x) * dy
 * unless that is NULL; added to what is there where it says so. */
typedef struct bt_cuda_act_backward_args {
    bt_act act;
    bauta_dtype dtype;
    size_t rows, columns;
    bt_cuda_in x, by, dy;
    bt_cuda_out dx, dby;
    bool add_dx, add_dby;
} bt_cuda_act_backward_args;
bauta_status bt_cuda_act_backward(const bt_cuda_act_backward_args *args,
                                  void *stream, bauta_error *err);

/* y = x * scale where the element is kept, else 0; plus `residual` unless that
 * is NULL. Which ones are kept is defined in kernels/dropout.h: the CPU's
 * choice, to the bit. The backward pass is the same call on gradients. */
typedef struct bt_cuda_dropout_args {
    bauta_dtype dtype;
    size_t rows, columns;
    uint64_t seed;
    uint32_t site;
    uint32_t below;         /* dropout rate times 2^32 */
    float scale;            /* of kept elements */
    const uint64_t *tokens; /* (rows) */
    bt_cuda_in x, residual;
    bt_cuda_out y;
} bt_cuda_dropout_args;
bauta_status bt_cuda_dropout(const bt_cuda_dropout_args *args, void *stream,
                             bauta_error *err);

/* ---- sums over rows ------------------------------------------------------ */

/* to[c] = the sum of column c of x, added to what is there with `add`. Rows are
 * cut into chunks of 128, of which row i is in lane i % 8: chains in the order
 * of rows, lanes in order; chunk j in lane j % 128, and those in a tree. */
size_t bt_cuda_sum_rows_workspace(size_t rows, size_t columns);
bauta_status bt_cuda_sum_rows(size_t rows, size_t columns, bauta_dtype dtype,
                              float *to, bt_cuda_in x, bool add,
                              void *workspace, void *stream, bauta_error *err);
/* *to = the sum of x (count), element i in lane i % 1024, lanes in a tree. */
bauta_status bt_cuda_sum_f64(double *to, const double *x, size_t count,
                             void *stream, bauta_error *err);

/* ---- embeddings ---------------------------------------------------------- */

/* y[i] = table[ids[i]] * scale */
typedef struct bt_cuda_embedding_args {
    bauta_dtype dtype;
    size_t rows, columns;
    bt_cuda_in table;
    bt_cuda_in ids; /* (rows, 1) uint32 */
    float scale;
    bt_cuda_out y;
} bt_cuda_embedding_args;
bauta_status bt_cuda_embedding(const bt_cuda_embedding_args *args, void *stream,
                               bauta_error *err);

/* dtable[ids[i]] = fma(dy[i], scale, dtable[ids[i]]) in ascending order of i,
 * in float32; rows whose id is `padding_id` are left out. Rows are sorted by id
 * on the device, so each row of the table is one chain: the CPU's. */
typedef struct bt_cuda_embedding_backward_args {
    bauta_dtype dtype; /* of dy */
    size_t rows, columns;
    size_t table_rows;
    bt_cuda_in dy;
    const uint32_t *ids; /* (rows) */
    float scale;
    uint32_t padding_id; /* UINT32_MAX: none */
    float *dtable;       /* (table_rows, columns) */
} bt_cuda_embedding_backward_args;
size_t bt_cuda_embedding_workspace(size_t rows);
bauta_status
bt_cuda_embedding_backward(const bt_cuda_embedding_backward_args *args,
                           void *workspace, void *stream, bauta_error *err);

/* ---- norms --------------------------------------------------------------- */

/* kernels/norm.h for each of the heads of a row, which are `width` columns
 * each, up to 16,384. With a residual the sum x + residual is written to `sum`,
 * rounded to dtype, and normalized as it was stored. */
typedef struct bt_cuda_norm_args {
    bt_norm_kind kind;
    bauta_dtype dtype, gain_dtype; /* gain and bias may be float32 always */
    size_t rows, heads, width;
    float epsilon;
    bt_cuda_in x, residual;
    bt_cuda_out sum, y;
    const void *gain, *bias; /* (width), bias may be NULL */
    float *mean, *scale;     /* (rows, heads) for the backward pass */
} bt_cuda_norm_args;
bauta_status bt_cuda_norm(const bt_cuda_norm_args *args, void *stream,
                          bauta_error *err);

/* x is what was normalized. dx gets `residual` added, unless that is NULL: the
 * gradient that reaches x on another way, or dx itself. dx, dgain and dbias may
 * be NULL. Sums over rows: chunks of 64 rows, one after another, or 32 where a
 * row has more than 1,024 columns; up to 64, 128 and 256 columns chunks of 256,
 * 128 and 64 rows, of which row i is in lane i % 16, 8 and 4. Chunks as in
 * bt_cuda_sum_rows(). */
typedef struct bt_cuda_norm_backward_args {
    bt_norm_kind kind;
    bauta_dtype dtype, gain_dtype;
    size_t rows, heads, width;
    bt_cuda_in x, dy, residual;
    bt_cuda_out dx;
    const void *gain;
    const float *mean, *scale;
    float *dgain, *dbias; /* (width) */
    bool add_dgain, add_dbias;
} bt_cuda_norm_backward_args;
size_t bt_cuda_norm_workspace(size_t rows, size_t heads, size_t width);
bauta_status bt_cuda_norm_backward(const bt_cuda_norm_backward_args *args,
                                   void *workspace, void *stream,
                                   bauta_error *err);

/* ---- rotary embeddings and the KV cache -----------------------------------
 */

/* kernels/pointwise.h: y = x with its heads rotated, by the negative angle with
 * `back`; added to y with `add`. */
typedef struct bt_cuda_rotary_args {
    bauta_dtype dtype;
    size_t rows, heads, dim;   /* dim is even, up to 1,024 */
    const uint32_t *positions; /* (rows) */
    const float *frequencies;  /* (dim / 2) */
    bt_cuda_in x;
    bt_cuda_out y;
    bool back, add;
} bt_cuda_rotary_args;
bauta_status bt_cuda_rotary(const bt_cuda_rotary_args *args, void *stream,
                            bauta_error *err);

/* Pages of keys and values that are written; see bt_cuda_pages. All strides are
 * given. */
typedef struct bt_cuda_page_out {
    void *k, *v;
    size_t page, head, token;
} bt_cuda_page_out;

/* Where a row's key and value go. */
typedef struct bt_cuda_kv_place {
    uint32_t page; /* UINT32_MAX: the row is padding and is not written */
    uint32_t slot; /* in the page */
} bt_cuda_kv_place;

/* Before attention of a step of decoding, all in one launch: q and k are
 * rotated unless positions is NULL, q is written to q_out unless q is NULL, k
 * and v to their pages. The bits are those of bt_cuda_rotary(). */
typedef struct bt_cuda_kv_write_args {
    bauta_dtype dtype;
    size_t rows, heads, kv_heads, dim;
    const uint32_t *positions;
    const float *frequencies;
    bt_cuda_in q, k, v;
    bt_cuda_out q_out;
    bt_cuda_page_out pages;
    const bt_cuda_kv_place *places; /* (rows) */
} bt_cuda_kv_write_args;
bauta_status bt_cuda_kv_write(const bt_cuda_kv_write_args *args, void *stream,
                              bauta_error *err);

/* Copy the first `tokens` keys and values of a page to another one. */
typedef struct bt_cuda_kv_copy_item {
    uint32_t from, to, tokens;
} bt_cuda_kv_copy_item;
bauta_status bt_cuda_kv_copy(bauta_dtype dtype, size_t kv_heads, size_t dim,
                             bt_cuda_page_out pages,
                             const bt_cuda_kv_copy_item *items, size_t count,
                             void *stream, bauta_error *err);

/* ---- cross-entropy ------------------------------------------------------- */

/* The loss of rows of logits, as autograd/cross_entropy.c defines it; losses,
 * lse, logprobs and dlogits may each be NULL. A row whose label is UINT32_MAX
 * is not read: its loss, lse and logprob are 0 and its dlogits 0. dlogits may
 * be the logits: with the same type and stride, or bfloat16 over float32, where
 * a row starts at the same address (a stride twice as large).
 *
 * The row is cut into slices of 512 logits, each with its own maximum and sum
 * of exponentials; slice i is in lane i % 32 of a warp, whose lanes are added
 * in a tree. So lse and logprobs of float32 logits have the bits of the
 * sampler. bfloat16 logits use ex2.approx and one fused step for its argument:
 * exp(x - max) is within (4 + 3 |x - max| + 3 |max|) 2^-24 of itself. */
typedef struct bt_cuda_cross_entropy_args {
    size_t rows, vocab;
    bauta_dtype dtype, dlogits_dtype;
    bt_cuda_in logits;
    const uint32_t *labels; /* (rows) */
    const float *weights;   /* (rows), or NULL: 1 */
    double smoothing, share;
    double *losses;        /* (rows) */
    float *lse, *logprobs; /* (rows) */
    bt_cuda_out dlogits;
} bt_cuda_cross_entropy_args;
bauta_status bt_cuda_cross_entropy(const bt_cuda_cross_entropy_args *args,
                                   void *stream, bauta_error *err);

/* ---- optimizer ----------------------------------------------------------- */

enum { BT_CUDA_PIECE = 1 << 15 }; /* elements of a piece, as on the CPU */

/* A parameter; an array of them is in the GPU's memory. */
typedef struct bt_cuda_slot {
    float *p, *m, *v; /* (count) the master weights and their moments */
    const float *grad;
    uint16_t *copy; /* p in bfloat16, or NULL */
    size_t count;
    bool decay;
} bt_cuda_slot;

/* Elements `from` to `from + count - 1` of a slot. */
typedef struct bt_cuda_piece {
    uint32_t slot, count;
    uint64_t from;
} bt_cuda_piece;

/* In host memory: cut slots of `counts` elements into pieces. Returns how many
 * there are; `pieces` may be NULL. */
size_t bt_cuda_pieces(bt_cuda_piece *pieces, const size_t *counts,
                      size_t slots);

/* The options of a step, in host memory; see train/optimizer.h. */
typedef struct bt_cuda_adamw_options {
    double beta1, beta2, epsilon, weight_decay, max_grad_norm, rate;
} bt_cuda_adamw_options;

/* What a step leaves in the GPU's memory. Zero before the first step, or with
 * `steps` of a checkpoint. */
typedef struct bt_cuda_adamw_state {
    uint64_t steps; /* that were taken */
    double norm;    /* of the gradients, before clipping */
    bool taken;     /* false: the norm is not finite, nothing was changed */
    bt_adamw decayed, undecayed;
} bt_cuda_adamw_state;

/* A step, in the CPU's order of arithmetic and with its bits. Its first half:
 * the sum of squares of each piece of the gradients, `squares` (pieces). */
bauta_status bt_cuda_adamw_squares(const bt_cuda_slot *slots,
                                   const bt_cuda_piece *pieces, size_t count,
                                   double *squares, void *stream,
                                   bauta_error *err);
/* Its second half: the norm from `square_count` squares, which are added in
 * order; the clipping and the constants from it, and AdamW. The squares are
 * those of all gradients: of these pieces, or their sum with those of other
 * ranks. */
bauta_status bt_cuda_adamw_update(const bt_cuda_slot *slots,
                                  const bt_cuda_piece *pieces, size_t count,
                                  const bt_cuda_adamw_options *options,
                                  bt_cuda_adamw_state *state,
                                  const double *squares, size_t square_count,
                                  void *stream, bauta_error *err);
/* Both. `squares` is scratch. */
bauta_status bt_cuda_adamw(const bt_cuda_slot *slots,
                           const bt_cuda_piece *pieces, size_t count,
                           const bt_cuda_adamw_options *options,
                           bt_cuda_adamw_state *state, double *squares,
                           void *stream, bauta_error *err);

/* average = keep * average + take * x */
bauta_status bt_cuda_ema(float *average, const float *x, size_t count,
                         float keep, float take, void *stream,
                         bauta_error *err);
bauta_status bt_cuda_swap(float *a, float *b, size_t count, void *stream,
                          bauta_error *err);

/* ---- sampling ------------------------------------------------------------ */

/* As backend/cpu/row_stats.h, in the tree of bt_cuda_cross_entropy(). */
typedef struct bt_cuda_row_stats {
    float max, sum, lse;
    uint32_t argmax; /* the first token with the largest logit */
} bt_cuda_row_stats;
size_t bt_cuda_row_stats_workspace(size_t rows, size_t vocab);
bauta_status bt_cuda_row_stats_of(size_t rows, size_t vocab, bauta_dtype dtype,
                                  bt_cuda_in logits, bt_cuda_row_stats *to,
                                  void *workspace, void *stream,
                                  bauta_error *err);

/* The logits processors of a row, in the order of backend/cpu/sampler.h:
 * repetition penalty, bias, presence and frequency penalties, repeated n-grams,
 * masked tokens (suppressed ones, bad
 * words of one token, end tokens before the minimum length: the host lists what
 * applies), bad words of several tokens, forced token. */
typedef struct bt_cuda_processors {
    const uint32_t *history; /* (history_count) the tokens so far */
    uint32_t history_count;
    float repetition_penalty;    /* 1: none */
    const uint32_t *bias_tokens; /* (bias_count) each one once */
    const uint32_t *biases;      /* (bias_count) the bits of floats */
    uint32_t bias_count;
    const uint32_t *new_tokens; /* (new_count) of the history, if penalized */
    uint32_t new_count;
    float presence_penalty, frequency_penalty; /* 0: none */
    uint32_t no_repeat_ngram_size;
    const uint32_t *masked; /* (masked_count) */
    uint32_t masked_count;
    const uint32_t *bad_words; /* their tokens, concatenated */
    const uint32_t *bad_ends;  /* (bad_word_count) where each ends */
    uint32_t bad_word_count;
    bool forces;
    uint32_t forced; /* with forces: the only token left */
} bt_cuda_processors;

/* How to sample from a row; an array of them is in the GPU's memory. */
typedef struct bt_cuda_sample_row {
    bt_cuda_processors processors;
    bool do_sample;    /* else the most likely token */
    float temperature; /* above 0 */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint64_t seed, position;
} bt_cuda_sample_row;

/* status is a bt_sample_status: 1 a logit is NaN or +infinity, 2 all tokens are
 * masked. */
typedef struct bt_cuda_sampled {
    int32_t status;
    uint32_t token;
    float logprob; /* from the model's logits */
    double score;  /* log-probability after processors and warpers */
} bt_cuda_sampled;

/* backend/cpu/sampler.c on the device. Probabilities are summed as integers, in
 * units of 2^-44 of the largest one, so the sums have no order; a draw or the
 * cut of top_p can differ from the CPU's where they meet within a relative
 * vocab * 2^-44. work (rows, vocab rounded up to a multiple of 8) is scratch,
 * aligned to 16 bytes. Results go to `to` and to `host`, in pinned memory of
 * the host; one of the two may be NULL. */
bauta_status bt_cuda_sample(size_t rows, size_t vocab, bauta_dtype dtype,
                            bt_cuda_in logits, const bt_cuda_sample_row *how,
                            bt_cuda_sampled *to, bt_cuda_sampled *host,
                            float *work, void *stream, bauta_error *err);
/* The most likely token of every row, without processors: score is the
 * log-probability. For many blocks per row; workspace as for row_stats_of. */
bauta_status bt_cuda_sample_greedy(size_t rows, size_t vocab, bauta_dtype dtype,
                                   bt_cuda_in logits, bt_cuda_sampled *to,
                                   bt_cuda_sampled *host, void *workspace,
                                   void *stream, bauta_error *err);

/* A row of logits that continues a beam. */
typedef struct bt_cuda_beam_row {
    bt_cuda_processors processors;
    bool renormalize; /* after the processors */
    float score;      /* of the beam so far */
} bt_cuda_beam_row;

/* The rows of a request. */
typedef struct bt_cuda_beam_group {
    uint32_t row, beams;
} bt_cuda_beam_group;

typedef struct bt_cuda_beam_choice {
    float score;
    uint32_t beam, token;
    float logprob; /* from the model's logits */
} bt_cuda_beam_choice;

/* The best continuations of groups of beams, as decode/beam.c selects them: the
 * best one first; of equal scores the earlier beam and the smaller token win.
 * want is at most 1,024, and most_beams * want at most 2,048. */
typedef struct bt_cuda_beam_args {
    size_t rows, vocab, groups, want;
    size_t most_beams; /* of a group */
    bauta_dtype dtype;
    bt_cuda_in logits;
    const bt_cuda_beam_row *how;     /* (rows) */
    const bt_cuda_beam_group *group; /* (groups) */
    bt_cuda_beam_choice *choices;    /* (groups, want) */
    uint32_t *counts;                /* (groups) choices found */
    int32_t *status;                 /* (groups) a bt_sample_status */
    float *work;                     /* as for bt_cuda_sample() */
    void *workspace;                 /* bt_cuda_beam_workspace() */
} bt_cuda_beam_args;
size_t bt_cuda_beam_workspace(size_t rows, size_t want);
bauta_status bt_cuda_beam(const bt_cuda_beam_args *args, void *stream,
                          bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
