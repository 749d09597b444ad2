/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/model.h - Transformers from Hugging Face folders: load, save, run,
 * differentiate, inspect. */
#ifndef BAUTA_MODEL_H
#define BAUTA_MODEL_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A Transformer from a Hugging Face folder: config.json, and the weights in
 * model.safetensors or in shards with their index. Supported are GPT-2, Llama,
 * Mistral, Qwen2, Qwen3, Gemma 2, Gemma 3 (text), MPT (decoder-only), BERT,
 * RoBERTa (encoder-only), Marian, BART and T5 (encoder-decoder). The folder of
 * a training run (bauta/train.h) stands for its model: `best`, a link or a
 * folder, if there is one, else the last complete checkpoint. A checkpoint
 * whose weights or config do not match the digests in its trainer.json is
 * rejected.
 *
 * A read-only model is never written to: threads, each with its own context,
 * may run it at the same time. A trainable model has gradients, which
 * bauta_model_loss() accumulates; only one call may train it at a time. */
typedef struct bauta_model bauta_model;

/* Load a model. Read-only float32 weights stay in the mapped file without a
 * copy, so the file must not be truncated or overwritten while the model is in
 * use; float16 and bfloat16 are converted exactly. With `trainable` everything
 * is copied, and gradients start at 0. */
BAUTA_API bauta_status bauta_model_load(bauta_model **out, const char *folder,
                                        bool trainable, bauta_error *err);
/* Create a trainable model from the text of a config.json. The weights are
 * random, a function of config and seed. */
BAUTA_API bauta_status bauta_model_create(bauta_model **out, const char *config,
                                          uint64_t seed, bauta_error *err);
BAUTA_API void bauta_model_free(bauta_model *model);

/* Write a folder that transformers and bauta_model_load() read: config.json
 * with the keys that were loaded (the dtype becomes float32, a missing
 * architecture is filled in), the weights in one model.safetensors in float32
 * under transformers' names, and generation_config.json if there was one. The
 * folder is written atomically; an existing folder that is not empty is
 * rejected. */
BAUTA_API bauta_status bauta_model_save(const bauta_model *model,
                                        const char *folder, bauta_error *err);

/* Pack the matrices of a read-only model for generation, as float32, bfloat16
 * (rounded to nearest; half the bytes) or int8 (a quarter), and release what
 * was loaded. Biases, norms and position tables stay float32. Generating one
 * sequence reads every matrix once for each token, so speed follows bytes;
 * packed float32 is also faster, because it is read in memory order, at the
 * cost of a copy of weights that otherwise stay in the file mapping. Arithmetic
 * is float32: packed float32 gives the bits of the unpacked model, bfloat16
 * those of a float32 model with rounded matrices. A packed model cannot be
 * saved or packed to another type, and its packed tensors have no `data`. int8
 * rejects weights that are not finite. On failure the model is unchanged. No
 * other call may use the model meanwhile. */
BAUTA_API bauta_status bauta_model_pack(bauta_model *model, bauta_dtype dtype,
                                        bauta_error *err);
BAUTA_API bauta_dtype bauta_model_dtype(const bauta_model *model);

/* Move the weights to the device of a context, as model.to(device) in PyTorch.
 * From then on calls take contexts of that device, of which this one must
 * outlive the model or its next move, and is the one that can train it; tensors
 * on other devices than the CPU have no `data`. Gradients start at 0. A packed
 * model cannot be moved. On failure the model is unchanged. No other call may
 * use the model meanwhile. */
BAUTA_API bauta_status bauta_model_to(bauta_model *model,
                                      bauta_context *context, bauta_error *err);

/* bauta_model_load(), read-only, and bauta_model_to() in one call. Weights go
 * from their files to the device in the type that it computes in, without a
 * float32 copy in host memory. */
BAUTA_API bauta_status bauta_model_load_to(bauta_model **out,
                                           const char *folder,
                                           bauta_context *context,
                                           bauta_error *err);

/* ---- Properties -------------------------------------------------------- */

typedef enum bauta_model_kind {
    BAUTA_DECODER_ONLY = 0,    /* causal: a token sees the tokens before it */
    BAUTA_ENCODER_ONLY = 1,    /* a token sees its whole sequence */
    BAUTA_ENCODER_DECODER = 2, /* a causal decoder that sees the encoder */
} bauta_model_kind;

BAUTA_API bauta_model_kind bauta_model_kind_of(const bauta_model *model);
/* "decoder-only", "encoder-only" or "encoder-decoder". Never NULL. */
BAUTA_API const char *bauta_model_kind_text(bauta_model_kind kind);
BAUTA_API bool bauta_model_trainable(const bauta_model *model);
BAUTA_API size_t bauta_model_vocab_size(const bauta_model *model);
BAUTA_API size_t bauta_model_hidden_size(const bauta_model *model);
/* Layers of a stack; 0 if the model does not have it. */
BAUTA_API size_t bauta_model_encoder_layers(const bauta_model *model);
BAUTA_API size_t bauta_model_decoder_layers(const bauta_model *model);
/* The context length. With a position table, longer sequences are rejected;
 * rotary and relative positions and ALiBi have no limit, and this is the length
 * the model was trained for. */
BAUTA_API size_t bauta_model_max_positions(const bauta_model *model);
/* Whether positions are rotary, relative or by ALiBi and not in a table, so
 * that a sequence may exceed the context. */
BAUTA_API bool bauta_model_rotary(const bauta_model *model);
/* The window of a decoder layer's self-attention, as in bauta_mask_window();
 * 0: none. */
BAUTA_API size_t bauta_model_sliding_window(const bauta_model *model,
                                            size_t layer);
/* The whole config as a JSON object. Works like snprintf. */
BAUTA_API size_t bauta_model_describe(const bauta_model *model, char *text,
                                      size_t size);

/* Warnings from loading, one sentence on each line, without a newline after the
 * last; "" if there are none. Valid as long as the model. Unused tensors of the
 * file (such as BERT's pooler) are named here, and so is a stored head that
 * differs from the token embedding although tie_word_embeddings is true; the
 * stored head is used, as in transformers. */
BAUTA_API const char *bauta_model_warnings(const bauta_model *model);

/* ---- Tensors ----------------------------------------------------------- */

/* The number of parameters; a matrix shared by two parts counts once. */
BAUTA_API uint64_t bauta_model_parameter_count(const bauta_model *model);
/* The number of tensors, as many and with the same names as in the file. */
BAUTA_API size_t bauta_model_tensor_count(const bauta_model *model);

typedef struct bauta_tensor {
    size_t size;
    const char *name;  /* valid as long as the model */
    size_t rank;       /* 1 or 2 */
    size_t shape[2];   /* (rows, columns), or (numbers, 1) */
    size_t count;      /* rows x columns */
    const float *data; /* dense; NULL in a packed model */
    float *writable;   /* the same memory; NULL in a read-only model */
    float *gradient;   /* NULL in a read-only model and if frozen */
} bauta_tensor;
#define BAUTA_TENSOR_INIT BAUTA_INIT(bauta_tensor, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_tensor, BAUTA_NO_DEFAULTS)

/* Tensor `index`, from 0 to bauta_model_tensor_count() - 1, in layer order. */
BAUTA_API bauta_status bauta_model_tensor(const bauta_model *model,
                                          size_t index, bauta_tensor *tensor,
                                          bauta_error *err);
/* The tensor with this name, such as "transformer.wte.weight". A name that the
 * model does not have is BAUTA_ERR_ARGUMENT; *tensor is then unchanged. */
BAUTA_API bauta_status bauta_model_find_tensor(const bauta_model *model,
                                               const char *name,
                                               bauta_tensor *tensor,
                                               bauta_error *err);

/* Copy the numbers of a tensor, or those of its gradient, to `to`, or new ones
 * from `from`, (count) float32 each, wherever the model is. A model on a GPU
 * that was loaded read-only gives the rounded numbers that it computes with. A
 * trainable model only has gradients and can be written; a tensor that is
 * frozen has no gradient. */
BAUTA_API bauta_status bauta_model_read_tensor(const bauta_model *model,
                                               const char *name, float *to,
                                               bauta_error *err);
BAUTA_API bauta_status bauta_model_read_gradient(const bauta_model *model,
                                                 const char *name, float *to,
                                                 bauta_error *err);
BAUTA_API bauta_status bauta_model_write_tensor(bauta_model *model,
                                                const char *name,
                                                const float *from,
                                                bauta_error *err);

/* ---- Running a model --------------------------------------------------- */

/* A batch of token sequences.
 *
 * With a stride of 0 the sequences are packed back to back. Otherwise they are
 * padded: sequence s begins at s * stride, and ids after its length are not
 * read. ids[i] is row i of the batch and of every output; the output rows of
 * padding are 0. A sequence gets the same bits packed, padded or alone.
 *
 * The masks follow from the model and the batch. A token sees tokens of its own
 * sequence: in a decoder those up to itself (and the whole prefix, if the batch
 * gives it one), within the window if the layer has one; in an encoder all of
 * them; in cross-attention a target token sees its whole source. `mask` and
 * `cross_mask` can only hide more: in every layer and head of the stack that
 * reads the batch, a pair is visible if the model's own mask and the given one
 * both show it. Rows and keys of the given mask that are padding or of another
 * sequence are ignored, and so are its origins. A token that sees nothing gets
 * 0 from attention; its residual stream continues. */
typedef struct bauta_batch {
    size_t size;
    size_t count;                 /* sequences */
    const size_t *lengths;        /* (count) tokens of each; NULL, with a
                                     stride: all have `stride` */
    size_t stride;                /* 0: packed */
    const uint32_t *ids;          /* (rows) */
    const uint32_t *token_types;  /* (rows) as BERT has; NULL: all 0 */
    const bauta_mask *mask;       /* (rows, rows) hides more; NULL: nothing */
    const bauta_mask *cross_mask; /* (rows, source rows) hides more of the
                                     source from a target; NULL: nothing */
    const size_t *prefix_lengths; /* (count) the first so many tokens of a
                                     decoder sequence see each other; NULL: 0 */
} bauta_batch;
#define BAUTA_BATCH_INIT BAUTA_INIT(bauta_batch, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_batch, BAUTA_NO_DEFAULTS)

/* The number of rows: the sum of the lengths, or count x stride; 0 for a batch
 * that the other calls reject because of its `size`. */
BAUTA_API size_t bauta_batch_rows(const bauta_batch *batch);

/* The results to compute; NULL ones are skipped. Hidden state 0 is the embedded
 * tokens, hidden state l + 1 the output of layer l (layers count from 0); the
 * last one is taken after the final norm. */
typedef struct bauta_outputs {
    size_t size;
    float *logits;         /* (rows, vocabulary) */
    float *encoder_states; /* (encoder layers + 1, source rows, hidden size) */
    float *decoder_states; /* (decoder layers + 1, target rows, hidden size) */
} bauta_outputs;
#define BAUTA_OUTPUTS_INIT BAUTA_INIT(bauta_outputs, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_outputs, BAUTA_NO_DEFAULTS)

/* Run a model. A decoder-only model reads `target`, an encoder-only one
 * `source`, and the other is NULL; an encoder-decoder reads both, and sequence
 * s of the target sees sequence s of the source. Logits are those of the
 * decoder, or of the encoder if there is no decoder. From the second call with
 * the same lengths on, and without masks in the batch, nothing is allocated. */
BAUTA_API bauta_status bauta_model_forward(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const bauta_outputs *outputs, bauta_error *err);

/* Find where numbers stop being finite. NaN and infinity are no error of
 * bauta_model_forward() and bauta_model_loss(); call this if a result contains
 * one. The model runs again over the same batches, and every hidden state and
 * all logits are checked. BAUTA_OK: all are finite (a logit may be -infinity, a
 * probability of 0). BAUTA_ERR_NOT_FINITE: the message names the first layer
 * with NaN or infinity, counted from 0, with its sequence and token, and the
 * first tensor of the model that contains one, if any. */
BAUTA_API bauta_status bauta_model_check_finite(bauta_context *context,
                                                const bauta_model *model,
                                                const bauta_batch *source,
                                                const bauta_batch *target,
                                                bauta_error *err);

/* ---- Loss and gradients ------------------------------------------------ */

/* A label that is ignored. */
#define BAUTA_IGNORE UINT32_MAX

typedef struct bauta_loss_options {
    size_t size;
    float label_smoothing; /* 0 to 1: this share of each label is spread evenly
                              over the vocabulary */
    double weight;         /* multiplies loss and gradients; to accumulate parts
                              of a batch, the part's share of all counted
                              labels */
    float dropout;         /* 0 to below 1: the share of activations set to 0
                              after embeddings, attention and feed-forward;
                              trainable models only */
    uint64_t seed;         /* of dropout */
    const uint64_t *source_keys; /* (rows) the counter of dropout: a number for
                                    each token of the data. Equal keys give
                                    equal zeros in any batch. NULL: the number
                                    of the row */
    const uint64_t *target_keys; /* likewise; NULL: rows, counted from 2^63 */
    const float *label_weights;  /* (rows) multiplies loss and gradient of each
                                    label, any sign; NULL: 1. The mean is over
                                    the counted labels, not over the weights,
                                    and a label of weight 0 counts. If the
                                    weight of a sampled token is its advantage,
                                    the loss is that of a policy gradient: the
                                    mean of -advantage x log-probability.
                                    Weights of ignored labels and of padding
                                    are not read */
} bauta_loss_options;
#define BAUTA_LOSS_OPTIONS_DEFAULTS(X) X(weight, 1.0)
#define BAUTA_LOSS_OPTIONS_INIT \
    BAUTA_INIT(bauta_loss_options, BAUTA_LOSS_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_loss_options, BAUTA_LOSS_OPTIONS_DEFAULTS)

/* Mean cross-entropy in nats of the logits of bauta_model_forward() against
 * labels (rows), which have the layout of the ids. Labels are not shifted:
 * labels[i] is what row i is to predict, so for the next token it is
 * ids[i + 1], and BAUTA_IGNORE in the last row of a sequence. Labels of padding
 * are not read. *counted, which may be NULL, receives the number of labels that
 * count; if there are none the loss is 0. `options` may be NULL.
 *
 * The gradients of a trainable model are accumulated. After a failure other
 * than of the arguments, such as out of memory, some gradients may be
 * incomplete: zero them. */
BAUTA_API bauta_status
bauta_model_loss(bauta_context *context, bauta_model *model,
                 const bauta_batch *source, const bauta_batch *target,
                 const uint32_t *labels, const bauta_loss_options *options,
                 double *loss, size_t *counted, bauta_error *err);

/* The log-probability of each label under the model, in nats: logprobs (rows)
 * has the layout of the labels, which are as for bauta_model_loss(). It is 0
 * for BAUTA_IGNORE and for padding, and NaN if logits of the row are NaN or
 * +infinity. A token that a generator chose after the same tokens has the same
 * bits in bauta_hypothesis.logprobs: the sampler and the trainer evaluate the
 * same function. */
BAUTA_API bauta_status bauta_model_logprobs(bauta_context *context,
                                            const bauta_model *model,
                                            const bauta_batch *source,
                                            const bauta_batch *target,
                                            const uint32_t *labels,
                                            float *logprobs, bauta_error *err);

/* Set all gradients of a trainable model to 0. */
BAUTA_API bauta_status bauta_model_zero_gradients(bauta_model *model,
                                                  bauta_error *err);

/* ---- Embeddings and masked tokens -------------------------------------- */

typedef enum bauta_pooling {
    BAUTA_POOLING_MEAN = 0, /* of all tokens of a sequence */
    BAUTA_POOLING_CLS = 1,  /* the first token */
    BAUTA_POOLING_LAST = 2  /* the last token */
} bauta_pooling;

typedef struct bauta_embed_options {
    size_t size;
    bauta_pooling pooling;
    bool normalize; /* scale each vector to length 1 */
} bauta_embed_options;
#define BAUTA_EMBED_OPTIONS_INIT \
    BAUTA_INIT(bauta_embed_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_embed_options, BAUTA_NO_DEFAULTS)

/* One vector for each sequence of the batch, pooled from the last hidden states
 * of the encoder, or of the decoder if there is no encoder. `embeddings` is
 * (count, hidden size). The vector of a sequence is the same in any batch. An
 * empty sequence is rejected. A result that is not finite is
 * BAUTA_ERR_NOT_FINITE, and the message names the layer as
 * bauta_model_check_finite() does. `options` may be NULL. */
BAUTA_API bauta_status bauta_model_embed(bauta_context *context,
                                         const bauta_model *model,
                                         const bauta_batch *batch,
                                         const bauta_embed_options *options,
                                         float *embeddings, bauta_error *err);

typedef struct bauta_top_tokens_options {
    size_t size;
    size_t top_k;      /* 1 to the number of candidates */
    size_t vocab_size; /* the candidates are the tokens below it, for a model
                          whose vocabulary is padded beyond the tokenizer's; 0:
                          all tokens of the model */
} bauta_top_tokens_options;
#define BAUTA_TOP_TOKENS_OPTIONS_DEFAULTS(X) X(top_k, 5)
#define BAUTA_TOP_TOKENS_OPTIONS_INIT \
    BAUTA_INIT(bauta_top_tokens_options, BAUTA_TOP_TOKENS_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_top_tokens_options, BAUTA_TOP_TOKENS_OPTIONS_DEFAULTS)

/* The most likely tokens of `count` rows of a batch, most likely first: for
 * masked tokens of an encoder, or for the next token of a decoder. Source and
 * target are as for bauta_model_forward(); `rows` are rows of its logits and
 * may not be padding. `ids` and `probabilities` are (count, top_k).
 * Probabilities are the softmax over the model's whole vocabulary; of equal
 * ones the smaller id comes first. Only the logits of the given rows are
 * computed; if one is NaN or infinity, or no token is possible, the status is
 * BAUTA_ERR_NOT_FINITE. `options` may be NULL. */
BAUTA_API bauta_status bauta_model_top_tokens(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const size_t *rows, size_t count,
    const bauta_top_tokens_options *options, uint32_t *ids,
    double *probabilities, bauta_error *err);

/* ---- Attention weights ------------------------------------------------- */

typedef enum bauta_attention_kind {
    BAUTA_ATTENTION_ENCODER = 0, /* self-attention of the encoder */
    BAUTA_ATTENTION_DECODER = 1, /* self-attention of the decoder */
    BAUTA_ATTENTION_CROSS = 2    /* of the decoder over the source */
} bauta_attention_kind;

/* Heads of an attention; 0 if the model does not have it. */
BAUTA_API size_t bauta_model_heads(const bauta_model *model,
                                   bauta_attention_kind attention);

/* A request for attention weights: `rows` queries from `first` on, over all
 * keys, of one layer and head. Rows and keys are those of the batch, padding
 * included. */
typedef struct bauta_attention_weights {
    size_t size;
    bauta_attention_kind attention;
    size_t layer, head;
    size_t first, rows;
    float *weights; /* (rows, keys); hidden pairs are exactly 0, visible ones
                       never are, however small */
} bauta_attention_weights;
#define BAUTA_ATTENTION_WEIGHTS_DEFAULTS(X) \
    X(attention, BAUTA_ATTENTION_DECODER)
#define BAUTA_ATTENTION_WEIGHTS_INIT \
    BAUTA_INIT(bauta_attention_weights, BAUTA_ATTENTION_WEIGHTS_DEFAULTS)
BAUTA_SIZED(bauta_attention_weights, BAUTA_ATTENTION_WEIGHTS_DEFAULTS)

/* As bauta_model_forward() (outputs may be NULL), with the requested attention
 * weights. The kernels never store weights, so these rows are recomputed from
 * queries and keys under the same plan. No bit of the outputs changes. */
BAUTA_API bauta_status bauta_model_attention_weights(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const bauta_outputs *outputs,
    const bauta_attention_weights *requests, size_t count, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
