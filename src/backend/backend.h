/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the operations that a device offers, on tensors.
 *
 * A backend is a table of functions: memory, attention plans, and every
 * operation of a Transformer with its gradient. The layers above (autograd,
 * train, decode, model) compute through this table only and never read a
 * buffer, so the same forward pass, backward pass, optimizer and decoder run on
 * every backend. What a backend lacks is an error that names the operation, the
 * type and the device; nothing moves to the host silently.
 *
 * Work is queued on a stream, which belongs to one thread of the caller and has
 * the threads and the workspace of the computation. Operations of a stream run
 * in order; on an asynchronous backend they may return before their work is
 * done, and download() and sync() wait for it.
 *
 * Conventions. Tensors are float32 unless a backend supports more types. Inputs
 * and outputs do not overlap unless it says so. Weights and their gradients, x
 * and y of linear and its gradients, logits, and operands of softcap and
 * accumulate may have a stride; all others are dense, unless the backend is
 * `strided`. Ids, positions and labels
 * are tensors of one column, whose values have been checked. `add`: the result
 * is added to what the output holds; otherwise the output is uninitialised. A
 * result of a row depends on this row alone, and sums over rows have a fixed
 * order, so neither the batch nor the number of threads changes a bit. */
#ifndef BT_BACKEND_H
#define BT_BACKEND_H

#include "backend/op_types.h"
#include "mask/batch_mask.h"
#include "tensor/tensor.h"

typedef struct bt_backend bt_backend;

/* Backends begin their own struct with this one. */
typedef struct bt_stream {
    const bt_backend *backend;
    bauta_dtype dtype; /* of activations */
    char device[24];   /* "cpu", "cuda:0" */
} bt_stream;

/* ---- Products ---------------------------------------------------------- */

/* y = x W^T + bias with W (outputs, inputs) or, if `transposed`, y = x W + bias
 * with W (inputs, outputs). Several layers of one x may run together. */
typedef struct bt_linear_layer {
    const bt_tensor *w, *bias; /* bias (1, outputs), or NULL */
    const bt_tensor *y;        /* (rows, outputs) */
} bt_linear_layer;

enum { BT_LINEAR_LAYERS_MAX = 4 };

typedef struct bt_linear_args {
    const bt_tensor *x; /* (rows, inputs) */
    size_t count;       /* of layers, at most BT_LINEAR_LAYERS_MAX */
    const bt_linear_layer *layers;
    bool transposed;
    /* With BT_FUSE_LINEAR_ACT: y = act(y), of the rounded y, which goes to
     * `pre` unless that is NULL. Of one layer, then. */
    bool has_act;
    bt_act act;
    const bt_tensor *pre;
} bt_linear_args;

/* dx = dy W */
typedef struct bt_linear_dx_args {
    const bt_tensor *dy, *w, *dx;
    bool transposed, add;
    /* With BT_FUSE_LINEAR_ACT: dx = dx act'(slope), of the rounded dx, and
     * without `add`. Else NULL. */
    const bt_tensor *slope;
    bt_act act;
} bt_linear_dx_args;

/* dW = dy^T x, in the layout of W */
typedef struct bt_linear_dw_args {
    const bt_tensor *x, *dy, *dw;
    bool transposed, add;
} bt_linear_dw_args;

/* to (1, columns) = the sum of the rows of x: the gradient of a bias. */
typedef struct bt_sum_rows_args {
    const bt_tensor *x, *to;
    bool add;
} bt_sum_rows_args;

/* ---- Elements and rows ------------------------------------------------- */

/* y[i] = table[ids[i]] * scale */
typedef struct bt_embedding_args {
    const bt_tensor *table, *y;
    const bt_tensor *ids; /* uint32 */
    float scale;
} bt_embedding_args;

/* dtable[ids[i]] += dy[i] * scale for all rows in order, except those with the
 * id `padding_id`. Without `add` the table is 0 before. */
typedef struct bt_embedding_grad_args {
    const bt_tensor *dy, *dtable;
    const bt_tensor *ids;
    float scale;
    uint32_t padding_id;
    bool add;
} bt_embedding_grad_args;

/* to[index[i]] += x[i]; no two indices are equal. */
typedef struct bt_scatter_add_args {
    const bt_tensor *x, *to;
    const bt_tensor *index; /* uint32 */
} bt_scatter_add_args;

/* Layer norm or RMS norm of every head of a row; see op_types.h. `mean` and
 * `scale` (rows * heads, 1) are kept for the gradient. */
typedef struct bt_norm_args {
    bt_norm_kind kind;
    float epsilon;
    size_t heads;
    const bt_tensor *x, *gain, *bias; /* bias may be NULL */
    const bt_tensor *y, *mean, *scale;
    /* Of one head, with BT_FUSE_ADD_NORM: sum = x + residual, and that is
     * normalized as it is stored. Else NULL. */
    const bt_tensor *residual, *sum;
} bt_norm_args;

typedef struct bt_norm_grad_args {
    bt_norm_kind kind;
    float epsilon;
    size_t heads;
    const bt_tensor *x, *gain, *mean, *scale, *dy;
    const bt_tensor *dx, *dgain, *dbias; /* each may be NULL */
    bool add_dx, add_dgain, add_dbias;
} bt_norm_grad_args;

/* y = act(x), times `up` unless that is NULL. */
typedef struct bt_act_args {
    bt_act act;
    const bt_tensor *x, *up, *y;
} bt_act_args;

/* dx = dy up act'(x) and dup = dy act(x); each output may be NULL, and they
 * differ. */
typedef struct bt_act_grad_args {
    bt_act act;
    const bt_tensor *x, *up, *dy;
    const bt_tensor *dx, *dup;
    bool add_dx, add_dup;
} bt_act_grad_args;

/* Rotary position embeddings of every head; `back` rotates by the negative
 * angle, which is the gradient. */
typedef struct bt_rotary_args {
    size_t heads;
    const bt_tensor *x, *y;
    const bt_tensor *positions;   /* (rows, 1) uint32 */
    const bt_tensor *frequencies; /* (1, dim / 2) */
    bool back, add;
} bt_rotary_args;

/* y = a + b */
typedef struct bt_add_args {
    const bt_tensor *a, *b, *y;
} bt_add_args;

/* y = x * factor */
typedef struct bt_scale_args {
    const bt_tensor *x, *y;
    float factor;
    bool add;
} bt_scale_args;

/* y = cap * tanh(x / cap); y may be x. */
typedef struct bt_softcap_args {
    const bt_tensor *x, *y;
    float cap;
} bt_softcap_args;

/* dx = dy (1 - (y / cap)^2), with y as above; dx may be dy. */
typedef struct bt_softcap_grad_args {
    const bt_tensor *y, *dy, *dx;
    float cap;
    bool add;
} bt_softcap_grad_args;

/* to = x, or to += x; also from one type to another. */
typedef struct bt_accumulate_args {
    const bt_tensor *x, *to;
    bool add;
} bt_accumulate_args;

/* Dropout, forward and, on gradients, backward. The numbers are those of
 * kernels/pointwise.h on every backend. */
typedef struct bt_dropout_args {
    const bt_tensor *x, *y;
    const bt_tensor *tokens; /* (rows, 1) uint64: the token of each row */
    float rate;
    uint64_t seed;
    uint32_t site;
    bool add;
} bt_dropout_args;

/* ---- Attention --------------------------------------------------------- */

/* A mask compiled for the attention of a backend, which begins its own struct
 * with this one. */
typedef struct bt_attention_plan {
    const bt_backend *backend;
    size_t rows, keys;
} bt_attention_plan;

typedef enum bt_plan_use {
    BT_PLAN_FORWARD,  /* attention */
    BT_PLAN_BACKWARD, /* attention and attention_grad */
    BT_PLAN_DECODE    /* paged_attention: the last rows of sequences */
} bt_plan_use;

/* The softcap and the additive mask of an attention, as in
 * bauta_attention_bias: slopes or a table by distance, at most one of them. */
typedef struct bt_attention_bias {
    float softcap;           /* 0: none */
    const bt_tensor *slopes; /* (1, heads) float32, or NULL */
    const bt_tensor *table;  /* (distances, heads) float32, or of the type of
                                activations; or NULL */
    ptrdiff_t first_distance;
    const bt_tensor *positions; /* (rows, 1) uint32: of the queries in their
                                   sequences; with slopes or a table */
} bt_attention_bias;

/* Masked attention; q (rows, heads * dim), k (keys, kv_heads * dim), v (keys,
 * kv_heads * value_dim), out (rows, heads * value_dim). */
typedef struct bt_attention_args {
    const bt_attention_plan *plan;
    size_t heads, kv_heads;
    float scale; /* 0: 1 / sqrt(dim) */
    const bt_tensor *q, *k, *v;
    const bt_tensor *out;
    const bt_tensor *lse; /* (rows, heads) float32: kept for the gradient; or
                             NULL */
    const bt_attention_bias *bias; /* or NULL */
} bt_attention_args;

/* The gradients of q, k and v are overwritten. */
typedef struct bt_attention_grad_args {
    const bt_attention_plan *plan;
    size_t heads, kv_heads;
    float scale;
    const bt_tensor *q, *k, *v, *out, *lse, *dout;
    const bt_tensor *dq, *dk, *dv;
    const bt_attention_bias *bias; /* or NULL */
    const bt_tensor *dtable;       /* float32, of the bias; NULL: not wanted */
    bool add_dtable;
} bt_attention_grad_args;

/* Write the keys and values of the rows of a step after the tokens of their
 * block tables. The tables do not advance, so the step can be repeated. */
typedef struct bt_kv_write_args {
    const struct bt_kv_batch *batch; /* block_table.h */
    size_t layer;
    const bt_tensor *k, *v; /* (rows, kv_heads * dim) */
    /* With BT_FUSE_ROTARY_KV_WRITE: k is rotated before it is written, and q,
     * of `heads` heads, to q_out; see bt_rotary_args. All rows belong to
     * sequences, and all heads have one size. Else NULL. */
    const bt_tensor *positions, *frequencies;
    size_t heads;
    const bt_tensor *q, *q_out;
} bt_kv_write_args;

/* Copy the first `tokens` tokens of pages to others: copy on write. */
typedef struct bt_kv_copy_item {
    const struct bt_kv_page *from, *to;
    size_t tokens;
} bt_kv_copy_item;

typedef struct bt_kv_copy_args {
    const struct bt_kv_pool *pool;
    size_t count;
    const bt_kv_copy_item *items;
} bt_kv_copy_args;

/* Attention over the tokens of the block tables and the new rows. The sequences
 * of the plan correspond to the tables, in order; the queries of a sequence are
 * those that the plan gives it, which may be several times as many as the table
 * has new rows: beams share the table of their source. */
typedef struct bt_paged_attention_args {
    const bt_attention_plan *plan;
    const struct bt_kv_batch *batch;
    size_t layer, heads, kv_heads;
    float scale;
    const bt_tensor *q, *out;
    const bt_attention_bias *bias; /* or NULL */
    /* With BT_FUSE_KV_WRITE_ATTENTION: this comes first, of the same batch and
     * layer. Its q_out, if it has one, is q and undefined after. Else NULL. */
    const bt_kv_write_args *write;
} bt_paged_attention_args;

/* ---- Loss -------------------------------------------------------------- */

/* Cross-entropy of rows of logits, see autograd/cross_entropy.c. */
typedef struct bt_cross_entropy_args {
    const bt_tensor *logits;  /* (rows, vocab): with `gradient` their gradient
                                 replaces them, else they are undefined after */
    const bt_tensor *labels;  /* (rows, 1) uint32 */
    const bt_tensor *weights; /* (rows, 1) or NULL: 1 */
    double smoothing;         /* of labels */
    double share;             /* of a row in the loss */
    bool gradient;
    const bt_tensor *losses; /* (rows, 1) float64 */
} bt_cross_entropy_args;

/* The log-probability of each label, with the bits of the sampler. The logits
 * are undefined after. */
typedef struct bt_logprobs_args {
    const bt_tensor *logits, *labels;
    const bt_tensor *logprobs; /* (rows, 1) */
} bt_logprobs_args;

/* ---- Sampling ---------------------------------------------------------- */

/* One text: from its row of logits to a token, with the logits processors and
 * warpers of its options, in the order of cpu/sampling.h. */
typedef struct bt_sample_item {
    size_t row;
    const bauta_generate_options *options;
    bt_token_history history; /* in host memory */
    /* The result. */
    bt_sample_status status;
    bt_sampled_token token;
} bt_sample_item;

typedef struct bt_sample_args {
    const bt_tensor *logits; /* (rows, vocab) float32; not changed */
    size_t count;
    bt_sample_item *items; /* (count) */
} bt_sample_args;

/* Tokens that a backend has been asked for, until they are read. */
typedef struct bt_sampling {
    const struct bt_backend *backend;
} bt_sampling;

/* One beam search: the best continuations of its open beams, whose logits are
 * in consecutive rows. The best choice comes first; of equal scores the earlier
 * beam and the smaller token win. */
typedef struct bt_beam_item {
    size_t row, beams;
    const bauta_generate_options *options;
    const float *scores;               /* (beams) of the beams so far */
    const bt_token_history *histories; /* (beams) */
    size_t want;                       /* choices, at most */
    /* The result. */
    bt_sample_status status;
    size_t count;
    bt_beam_choice *choices; /* (want) */
} bt_beam_item;

typedef struct bt_beam_args {
    const bt_tensor *logits;
    size_t count;
    bt_beam_item *items; /* (count) */
} bt_beam_args;

/* ---- Optimizer --------------------------------------------------------- */

/* A parameter, dense, with its gradient and moments. */
typedef struct bt_adamw_slot {
    const bt_tensor *parameter; /* with its gradient */
    bt_tensor master;           /* float32, of which the parameter is a rounded
                                   copy; without a buffer: the parameter */
    bt_tensor first, second;    /* moments */
    bool decay;                 /* whether weight decay applies */
} bt_adamw_slot;

/* The norm adds the squares of pieces of so many elements, the last of a
 * parameter shorter, in order. */
enum { BT_ADAMW_PIECE = 1 << 15 };

/* The sum of the squares of all pieces, of which these are some. */
typedef struct bt_square_sum {
    bauta_status (*add)(void *user, const double *squares, size_t count,
                        double *sum, bauta_error *err);
    void *user;
} bt_square_sum;

/* A step of AdamW over all parameters: the norm of all gradients, clipping by
 * it, and the update. If the norm is not finite, nothing is changed. */
typedef struct bt_adamw_args {
    const bt_adamw_slot *slots;
    size_t count;
    const struct bt_optimizer_options *options; /* op_types.h */
    double learning_rate;
    size_t step;  /* from 1 on: the number of this one */
    double *norm; /* receives the norm before clipping */
    /* Set if other ranks have the other parameters. */
    const bt_square_sum *square_sum;
} bt_adamw_args;

/* average = keep * average + take * x */
typedef struct bt_ema_args {
    const bt_tensor *average, *x;
    float keep, take;
} bt_ema_args;

/* Exchange the contents of two tensors. */
typedef struct bt_swap_args {
    const bt_tensor *a, *b;
} bt_swap_args;

/* ---- The table --------------------------------------------------------- */

/* Every operation, one line each. The name is the same everywhere: the args
 * above, the slot of the table, and the file of each backend. */
#define BT_OP_MAP(X)   \
    X(linear)          \
    X(linear_dx)       \
    X(linear_dw)       \
    X(sum_rows)        \
    X(embedding)       \
    X(embedding_grad)  \
    X(scatter_add)     \
    X(norm)            \
    X(norm_grad)       \
    X(act)             \
    X(act_grad)        \
    X(rotary)          \
    X(add)             \
    X(scale)           \
    X(softcap)         \
    X(softcap_grad)    \
    X(accumulate)      \
    X(dropout)         \
    X(attention)       \
    X(attention_grad)  \
    X(kv_write)        \
    X(kv_copy)         \
    X(paged_attention) \
    X(cross_entropy)   \
    X(logprobs)        \
    X(sample)          \
    X(beam)            \
    X(adamw)           \
    X(ema)             \
    X(swap)

#define BT_OP_ENUM(name) BT_OP_##name,
typedef enum bt_op { BT_OP_MAP(BT_OP_ENUM) BT_OP_COUNT } bt_op;

/* What an operation is asked about: the columns of its output, and the heads
 * and their size where it has heads; for attention, whether it has a bias. */
typedef struct bt_op_shape {
    size_t columns, heads, head_dim;
    bool biased;
} bt_op_shape;

/* Operations that a backend runs as one, with the bits of the parts. Where it
 * does not have one, autograd runs the parts. */
enum {
    BT_FUSE_LINEAR_ACT = 1,        /* linear, act; linear_dx, act_grad */
    BT_FUSE_ADD_NORM = 2,          /* add, norm */
    BT_FUSE_ROTARY_KV_WRITE = 4,   /* rotary of q and k, kv_write */
    BT_FUSE_KV_WRITE_ATTENTION = 8 /* kv_write, paged_attention */
};

#define BT_OP_SLOT(name)                                                   \
    bauta_status (*name)(bt_stream * stream, const bt_##name##_args *args, \
                         bauta_error *err);
struct bt_backend {
    const char *name; /* "cpu" */
    /* Buffers are ordinary memory: upload and download are copies, and
     * bt_tensor_host() gives access without one. */
    bool host_visible;
    /* Rows of logits that the loss computes at a time. It changes no bit of the
     * loss and of the gradients of rows. */
    size_t logits_rows;
    /* Operands and results of norm, act, rotary, attention, kv_write,
     * paged_attention, and their gradients, may have a stride, of which columns
     * that begin at a multiple of 8 are parts. Then adjacent layers of one
     * input run as one layer, and its results are parts of one matrix. */
    bool strided;
    unsigned fusions; /* BT_FUSE_... */

    /* A stream for one more thread of the caller, with a single thread for its
     * computations; or NULL if streams cannot be forked. */
    bauta_status (*stream_fork)(bt_stream **out, bt_stream *stream,
                                bauta_error *err);
    void (*stream_free)(bt_stream *stream);
    /* Wait until all queued work is done, and report its errors. */
    bauta_status (*sync)(bt_stream *stream, bauta_error *err);

    /* A step that comes again and again, such as decoding a token for each
     * sequence of a batch: what is queued between the two may be recorded and
     * replayed, with the same bits. Steps of one kind are expected to queue the
     * same operations on the same tensors; if they do not, it costs time only.
     * In a step an upload may happen earlier than its turn, so its destination
     * must not be used before it in the step, and no operation writes weights.
     * step_end() also ends a step that failed. Steps do not nest. Both are NULL
     * where there is nothing to gain. */
    void (*step_begin)(bt_stream *stream, uint64_t kind);
    bauta_status (*step_end)(bt_stream *stream, bauta_error *err);

    /* Sampling in two parts, so that work can be queued that depends on the
     * tokens before the host knows them. The rows of the items are consecutive,
     * and no option needs a history. sample_queue() queues it into *sampling,
     * or into a new one if that is NULL, and sample_read() waits for it and
     * completes the items; there is one such pair at a time for a sampling.
     * It may be queued in a step, and is read after it.
     * *tokens, (count, 1) uint32, is on the device until the next pair, for
     * embedding; it may have a stride, and 0 for an item that fails. All are
     * NULL where sampling does not wait. */
    bauta_status (*sample_queue)(bt_stream *stream, bt_sampling **sampling,
                                 const bt_sample_args *args, bt_tensor *tokens,
                                 bauta_error *err);
    bauta_status (*sample_read)(bt_stream *stream, bt_sampling *sampling,
                                const bt_sample_args *args, bauta_error *err);
    void (*sampling_free)(bt_sampling *sampling);

    /* Uninitialised memory, aligned to 64 bytes or more. The CPU's needs no
     * stream. */
    bauta_status (*alloc)(bt_stream *stream, bt_buffer *out, size_t bytes,
                          bauta_error *err);
    void (*free)(bt_buffer *buffer); /* may be empty */
    /* Copies of `bytes` bytes at `offset` bytes into a buffer. upload() may
     * return before the copy is done but has read `from`; download() returns
     * when `to` is complete. */
    bauta_status (*upload)(bt_stream *stream, const bt_buffer *to,
                           size_t offset, const void *from, size_t bytes,
                           bauta_error *err);
    bauta_status (*download)(bt_stream *stream, void *to, const bt_buffer *from,
                             size_t offset, size_t bytes, bauta_error *err);
    /* Set bytes to a value. */
    bauta_status (*fill)(bt_stream *stream, const bt_buffer *to, size_t offset,
                         unsigned char value, size_t bytes, bauta_error *err);

    /* Compile a mask for an attention: into *plan, or into a new one if that is
     * NULL. Rebuilding a plan reuses its memory. A plan serves one use, and one
     * stream; one for decoding has no `extra`. */
    bauta_status (*plan_build)(bt_stream *stream, bt_attention_plan **plan,
                               const bt_batch_mask *mask, bt_plan_use use,
                               bauta_error *err);
    void (*plan_free)(bt_attention_plan *plan); /* NULL is allowed */
    /* Bytes of a page of 64 tokens of one layer of a KV cache. */
    size_t (*kv_page_bytes)(const bt_attention_shape *shape, bauta_dtype dtype);

    /* Whether an operation of the table exists for a type and a shape. */
    bool (*supports)(const bt_stream *stream, bt_op op, bauta_dtype dtype,
                     const bt_op_shape *shape);

    /* NULL where the backend has no such operation. */
    BT_OP_MAP(BT_OP_SLOT)
};

/* "norm" */
const char *bt_op_name(bt_op op);

/* The error of an operation that a backend lacks: "the device cuda:0 has no
 * norm for bfloat16". */
bauta_status bt_unsupported(const bt_stream *stream, bt_op op,
                            bauta_dtype dtype, bauta_error *err);

/* ---- Tensors and host memory ------------------------------------------- */

/* Copy all rows of a tensor from or to dense host memory of its type. The
 * stream may be NULL for a tensor that is visible to the host. */
bauta_status bt_tensor_upload(bt_stream *stream, const bt_tensor *to,
                              const void *from, bauta_error *err);
bauta_status bt_tensor_download(bt_stream *stream, void *to,
                                const bt_tensor *from, bauta_error *err);
/* Set all elements to 0. */
bauta_status bt_tensor_zero(bt_stream *stream, const bt_tensor *tensor,
                            bauta_error *err);

/* The tensor's memory if its backend is visible to the host and it has data,
 * else NULL. Rows are `stride` elements apart. */
void *bt_tensor_host(const bt_tensor *tensor);

/* A buffer of `count` floats in host memory: its own memory if that is visible
 * to the host, else a copy, which bt_host_copy_store() writes back. */
typedef struct bt_host_copy {
    bt_stream *stream;
    const bt_buffer *of;
    float *data;
    bool owned;
} bt_host_copy;

/* The stream may be NULL for a buffer that is visible to the host. */
bauta_status bt_host_copy_init(bt_host_copy *copy, bt_stream *stream,
                               const bt_buffer *of, bauta_error *err);
bauta_status bt_host_copy_store(const bt_host_copy *copy, bauta_error *err);
void bt_host_copy_release(bt_host_copy *copy);

/* ---- Backends ---------------------------------------------------------- */

/* The CPU, see backend/cpu/cpu.h. Its buffers may also be memory of the caller:
 * no stream is needed to make or free them. */
extern const bt_backend bt_cpu_backend;

/* A buffer over memory of the host, which is not freed with it. */
bt_buffer bt_buffer_of_host(void *memory, size_t bytes);

/* How to open a device by its name, "name" or "name:number". */
typedef struct bt_device_driver {
    const char *name;
    /* A stream on the device. `options` has threads and instruction set for the
     * CPU. */
    bauta_status (*open)(bt_stream **out, int number,
                         const bauta_options *options, bauta_error *err);
} bt_device_driver;

#endif
