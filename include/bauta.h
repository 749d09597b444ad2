/* SPDX-License-Identifier: Apache-2.0 */
/* bauta.h - masked attention and Transformers, exact and fast, for C and C++.
 *
 *     softmax(Q K^T * scale + M) V
 *
 * where the mask M says which keys each query may see. This header is the
 * whole public interface and can be read from top to bottom as a manual:
 *
 *   1. Statuses and errors       how a call tells you what went wrong
 *   2. Memory                    your allocator instead of malloc
 *   3. Contexts                  threads, instruction set, workspace
 *   4. Masks                     who may see whom
 *   5. Plans                     a mask compiled for the kernels
 *   6. Attention                 forward and backward
 *   7. Caches                    keys and values that grow, for decoding
 *   8. Models                    Transformers from Hugging Face folders
 *   9. Tokenizers                text to numbers and back
 *  10. Training a tokenizer      a vocabulary from a corpus
 *  11. Scores                    how near a translation comes to others
 *  12. Corpora                   files of text as tokens
 *  13. Training                  from a corpus to a model
 *  14. Generation                one token after another
 *  15. Looking                   what is attended to
 *  16. Pictures                  what is attended to, on paper
 *  17. Audits                    the promises, tried on a model
 *  18. GPUs                      attention on an NVIDIA GPU
 *
 * Conventions that hold everywhere:
 *
 * - A call that can fail returns a bauta_status and takes a bauta_error that
 *   may be NULL. The library never prints, exits or aborts.
 * - What bauta_X_create() or bauta_X_load() hands out, bauta_X_free() releases;
 *   every free accepts NULL. On failure the object handed out is NULL.
 * - Masks, plans, filled caches, models and tokenizers are read only while they
 *   are used, so threads may share them. A context serves one call at a time.
 * - A struct whose first field is `size` must be started from its
 *   BAUTA_..._INIT value, so that it can grow without breaking programs.
 * - Sizes are counts of elements, never bytes. All numbers are float32. (Both
 *   but for section 18, which says so.) */
#ifndef BAUTA_H
#define BAUTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BAUTA_API __attribute__((visibility("default")))
#else
#define BAUTA_API
#endif

#define BAUTA_VERSION_MAJOR 0
#define BAUTA_VERSION_MINOR 1
#define BAUTA_VERSION_PATCH 0

/* "0.1.0", of the library that runs (the macros tell what was compiled). */
BAUTA_API const char *bauta_version(void);

/* ---- 1. Statuses and errors -------------------------------------------- */

/* Every status, its pinned value, its meaning. Append; never renumber. */
#define BAUTA_STATUS_MAP(X)                     \
    X(OK, 0, "success")                         \
    X(ERR_ARGUMENT, 1, "argument out of range") \
    X(ERR_NOMEM, 2, "out of memory")            \
    X(ERR_IO, 3, "cannot read or write a file") \
    X(ERR_UNSUPPORTED, 4, "not supported here") \
    X(ERR_NOT_FINITE, 5, "a result is NaN or infinite")

#define BAUTA_STATUS_ENUM(name, value, text) BAUTA_##name = value,
typedef enum bauta_status { BAUTA_STATUS_MAP(BAUTA_STATUS_ENUM) } bauta_status;

/* The meaning of a status in a few words; never NULL. */
BAUTA_API const char *bauta_status_text(bauta_status status);

/* What failed, in words. Owned by the caller; pass NULL if you do not care.
 * Written only on failure. */
typedef struct bauta_error {
    bauta_status status;
    char message[256]; /* names the value: "mask has 12 keys, K has 16" */
} bauta_error;

/* ---- 2. Memory --------------------------------------------------------- */

/* Where the library's memory comes from. `alloc` returns `size` bytes aligned
 * to `align` (a power of two), or NULL; `free` takes what alloc gave. Threads
 * may call both at the same time. */
typedef struct bauta_allocator {
    void *(*alloc)(void *user, size_t align, size_t size);
    void (*free)(void *user, void *memory);
    void *user;
} bauta_allocator;

/* Replace the allocator of the whole process, or restore the C library's with
 * NULL. Call it while no bauta object exists and no bauta call runs. */
BAUTA_API void bauta_allocator_set(const bauta_allocator *allocator);

/* ---- 3. Contexts ------------------------------------------------------- */

typedef struct bauta_options {
    size_t size;        /* set by BAUTA_OPTIONS_INIT; lets the struct grow */
    int threads;        /* 0 = one per core */
    const char *isa;    /* NULL = best; "c", "avx2", "avx512" force a twin */
    const char *device; /* NULL or "cpu"; "cuda" or "cuda:1": an NVIDIA GPU,
                           section 18 */
} bauta_options;
#define BAUTA_OPTIONS_INIT                   \
    {                                        \
        sizeof(bauta_options), 0, NULL, NULL \
    }

/* A context holds the threads, the chosen kernels and the workspace, which
 * grows to what the largest call needed and is then reused. The answer of no
 * call depends on these choices: any thread count and any instruction set
 * give the same bits. */
typedef struct bauta_context bauta_context;

/* `options` may be NULL, which takes the defaults. */
BAUTA_API bauta_status bauta_context_create(bauta_context **out,
                                            const bauta_options *options,
                                            bauta_error *err);
BAUTA_API void bauta_context_free(bauta_context *context);

/* The instruction set in use ("c", "avx2" or "avx512") and the threads. */
BAUTA_API const char *bauta_context_isa(const bauta_context *context);
BAUTA_API int bauta_context_threads(const bauta_context *context);
/* "cpu", or of a GPU its number: "cuda:0". */
BAUTA_API const char *bauta_context_device(const bauta_context *context);

/* ---- 4. Masks ---------------------------------------------------------- */

/* A mask gives every query the list of key ranges that it may see: sorted,
 * disjoint, half-open spans [lo, hi). It is immutable, and its memory is
 * proportional to queries and spans, never to queries x keys. Either size may
 * be 0, and neither may exceed 2^31 - 1.
 *
 * True means may see. Query i of n over m keys stands at position i + m - n,
 * so that the last query meets the last key and decoding one token is simply
 * the last row. Where n > m the first rows stand before every key.
 *
 * A batch is a mask: sequences lie one behind the other on one token axis and
 * the mask keeps them apart. Each row has an origin, the key from which its
 * positions and its arithmetic are counted: the first key of its document, or
 * 0. No bit of a row depends on what lies beside its document. */
typedef struct bauta_mask bauta_mask;

typedef struct bauta_span {
    size_t lo, hi; /* keys lo, lo + 1, ..., hi - 1 */
} bauta_span;

/* Every query sees every key. */
BAUTA_API bauta_status bauta_mask_all(bauta_mask **out, size_t queries,
                                      size_t keys, bauta_error *err);

/* A query sees the keys up to its own position. */
BAUTA_API bauta_status bauta_mask_causal(bauta_mask **out, size_t queries,
                                         size_t keys, bauta_error *err);

/* A query sees itself and the `window` - 1 keys before it. */
BAUTA_API bauta_status bauta_mask_window(bauta_mask **out, size_t queries,
                                         size_t keys, size_t window,
                                         bauta_error *err);

/* Every query sees the first `prefix` keys, and the keys up to its own
 * position. */
BAUTA_API bauta_status bauta_mask_prefix(bauta_mask **out, size_t queries,
                                         size_t keys, size_t prefix,
                                         bauta_error *err);

/* A query sees the first `sinks` keys as far as they are not behind its own
 * position. Attention sinks are window OR sinks. */
BAUTA_API bauta_status bauta_mask_sinks(bauta_mask **out, size_t queries,
                                        size_t keys, size_t sinks,
                                        bauta_error *err);

/* A padded batch: sequence b holds queries [b * query_time, ...) and keys
 * [b * key_time, ...), of which the first query_lengths[b] and key_lengths[b]
 * are real; query_lengths NULL takes key_lengths (then the times must be
 * equal). A real query sees its sequence's real keys; a padding query sees
 * nothing. Each sequence is a document: it sets the origin. */
BAUTA_API bauta_status bauta_mask_lengths(bauta_mask **out, size_t batch,
                                          size_t query_time, size_t key_time,
                                          const size_t *query_lengths,
                                          const size_t *key_lengths,
                                          bauta_error *err);

/* Packed documents: query document d, of query_lengths[d] rows, sees exactly
 * the key document d, of key_lengths[d] keys; key_lengths NULL takes
 * query_lengths (self-attention). Sets the origin. */
BAUTA_API bauta_status bauta_mask_documents(bauta_mask **out, size_t documents,
                                            const size_t *query_lengths,
                                            const size_t *key_lengths,
                                            bauta_error *err);

/* Any masks as documents of one batch: rows and keys of masks[d] follow those
 * of masks[d - 1], and documents do not see each other. Each keeps its own
 * alignment, so a batch of decoding steps is the pack of their last rows. */
BAUTA_API bauta_status bauta_mask_pack(bauta_mask **out, size_t documents,
                                       const bauta_mask *const *masks,
                                       bauta_error *err);

/* Any boolean matrix: `visible` is (queries, keys), nonzero = may see. */
BAUTA_API bauta_status bauta_mask_dense(bauta_mask **out, size_t queries,
                                        size_t keys,
                                        const unsigned char *visible,
                                        bauta_error *err);

/* Any rule: `row` writes up to `capacity` spans of a query, sorted, disjoint,
 * not empty and within the keys, and returns how many the row has. When that
 * is more than the capacity it is called again with enough. */
typedef size_t bauta_mask_row_fn(void *user, size_t query, bauta_span *spans,
                                 size_t capacity);
BAUTA_API bauta_status bauta_mask_rows(bauta_mask **out, size_t queries,
                                       size_t keys, bauta_mask_row_fn *row,
                                       void *user, bauta_error *err);

/* A pair is visible in both masks, in either, or not in this one. The masks
 * must have equal sizes. Origin of a row: the later one for AND, the earlier
 * one for OR, 0 for NOT; so no visible key ever lies before it. */
BAUTA_API bauta_status bauta_mask_and(bauta_mask **out, const bauta_mask *a,
                                      const bauta_mask *b, bauta_error *err);
BAUTA_API bauta_status bauta_mask_or(bauta_mask **out, const bauta_mask *a,
                                     const bauta_mask *b, bauta_error *err);
BAUTA_API bauta_status bauta_mask_not(bauta_mask **out, const bauta_mask *a,
                                      bauta_error *err);

/* What reaches a row through two layers: i sees k when `upper` lets i see some
 * j that `lower` lets see k. upper's keys are lower's queries. Origin 0. */
BAUTA_API bauta_status bauta_mask_compose(bauta_mask **out,
                                          const bauta_mask *upper,
                                          const bauta_mask *lower,
                                          bauta_error *err);

/* Which inputs can influence each output of `layers` layers of self-attention
 * with residual connections, so that every row also reaches itself. The mask
 * must be square. */
BAUTA_API bauta_status bauta_mask_reach(bauta_mask **out,
                                        const bauta_mask *mask, size_t layers,
                                        bauta_error *err);

/* A mask by its words, for `queries` over `keys`:
 *
 *     "causal"    "causal & window(8) | sinks(2)"    "!(causal | prefix(4))"
 *
 * `|` is OR, `&` is AND and binds tighter, `!` is NOT and binds tightest. Kinds
 * are all, none, causal, window(n), prefix(n), sinks(n); documents(3, 2), or
 * documents(2:3, 1:4) where queries and keys differ, whose sums must be the
 * sizes; lengths(3, 1), sequences padded to one time; reach(mask, layers) and
 * compose(upper, lower) of square masks. What cannot be read is told by its
 * column and what was expected there. */
BAUTA_API bauta_status bauta_mask_parse(bauta_mask **out, const char *text,
                                        size_t queries, size_t keys,
                                        bauta_error *err);

BAUTA_API void bauta_mask_free(bauta_mask *mask);

/* Questions. Indices must be in range: query < queries, key < keys. */
BAUTA_API size_t bauta_mask_queries(const bauta_mask *mask);
BAUTA_API size_t bauta_mask_keys(const bauta_mask *mask);
BAUTA_API bool bauta_mask_visible(const bauta_mask *mask, size_t query,
                                  size_t key);
/* The spans of a row; they live as long as the mask. */
BAUTA_API const bauta_span *bauta_mask_row(const bauta_mask *mask, size_t query,
                                           size_t *count);
BAUTA_API size_t bauta_mask_origin(const bauta_mask *mask, size_t query);
/* How many pairs are visible: the unit of useful work. */
BAUTA_API uint64_t bauta_mask_pairs(const bauta_mask *mask);
/* Whether no query sees a key behind its own position. When one does, and
 * the pointers are given, they receive the first such pair. */
BAUTA_API bool bauta_mask_is_causal(const bauta_mask *mask, size_t *query,
                                    size_t *key);

/* One line a query, one character a key: '#' visible, '.' hidden; or a JSON
 * object {"queries":n,"keys":m,"pairs":p,"rows":[[[lo,hi],...],...]} to which
 * "origins":[...] is added where one is not 0. Both work like snprintf: at
 * most `size` bytes are written, NUL included, and the length of the whole
 * text is returned. */
BAUTA_API size_t bauta_mask_text(const bauta_mask *mask, char *text,
                                 size_t size);
BAUTA_API size_t bauta_mask_json(const bauta_mask *mask, char *text,
                                 size_t size);

/* ---- 5. Plans ---------------------------------------------------------- */

/* A plan is a mask compiled for the kernels: which blocks of keys each tile of
 * queries visits, which of them need no mask at all, and the same seen from
 * the keys for the backward pass. Make it once and use it for every layer and
 * step that has the mask. It does not refer to the mask afterwards.
 *
 * It covers the rows [first, first + rows) of the mask: all of them for
 * training, the new ones for a step of generation. Row 0 of the plan's
 * queries is the mask's row `first`; keys are always the mask's. */
typedef struct bauta_plan bauta_plan;

BAUTA_API bauta_status bauta_plan_create(bauta_plan **out,
                                         const bauta_mask *mask, size_t first,
                                         size_t rows, bauta_error *err);
BAUTA_API void bauta_plan_free(bauta_plan *plan);

/* ---- 6. Attention ------------------------------------------------------ */

/* The shape of one attention. Head h of token t of a tensor starts at
 * t * X_token + h * X_head; its head_dim (q, k) or value_dim (v, out) floats
 * lie together. A stride of 0 stands for the dense layout (tokens, heads,
 * dim). Gradients lie like what they are the gradient of; dout like out. Inputs
 * may overlap themselves; what is written may not. */
typedef struct bauta_attention {
    size_t size;      /* set by BAUTA_ATTENTION_INIT */
    size_t heads;     /* query heads */
    size_t kv_heads;  /* divides heads; query head h uses h / (heads/kv_heads);
                         0 = heads */
    size_t head_dim;  /* of queries and keys, 1 to 256 */
    size_t value_dim; /* of values and outputs, 1 to 256; 0 = head_dim */
    float scale;      /* 0 = 1 / sqrt(head_dim) */
    size_t q_token, q_head, k_token, k_head;
    size_t v_token, v_head, out_token, out_head;
} bauta_attention;
#define BAUTA_ATTENTION_INIT                                               \
    {                                                                      \
        sizeof(bauta_attention), 1, 0, 64, 0, 0.0f, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* out = softmax(q k^T * scale over the visible keys) v.
 *
 * lse (queries, heads), when given, receives the natural logarithm of the
 * sum of the exponentials of a row's scaled scores; the backward pass needs
 * it. A query that sees nothing gets out 0 and lse -infinity. What is hidden
 * is not touched: NaN or infinity there changes no bit. */
BAUTA_API bauta_status bauta_attention_forward(bauta_context *context,
                                               const bauta_plan *plan,
                                               const bauta_attention *shape,
                                               const float *q, const float *k,
                                               const float *v, float *out,
                                               float *lse, bauta_error *err);

/* Gradients of a scalar with respect to q, k and v, from dout, its gradient
 * with respect to out. out and lse are those of the forward pass. The
 * gradients are overwritten, not added to; a query that sees nothing, and a
 * key that nobody sees, gets 0. */
BAUTA_API bauta_status bauta_attention_backward(
    bauta_context *context, const bauta_plan *plan,
    const bauta_attention *shape, const float *q, const float *k,
    const float *v, const float *out, const float *lse, const float *dout,
    float *dq, float *dk, float *dv, bauta_error *err);

/* ---- 7. Caches --------------------------------------------------------- */

/* The keys and values of one sequence, laid out so that a step of decoding
 * streams them at memory speed and a prefill reads the same bytes. Attention
 * over a cache gives the same bits as attention over the plain keys and
 * values that were appended. */
typedef struct bauta_cache bauta_cache;

/* At most `capacity` tokens, up to 2^31 - 1; kv_heads, head_dim and value_dim
 * are taken from the shape. Memory is taken in pages of 64 tokens as they come,
 * and what is there is never moved. */
BAUTA_API bauta_status bauta_cache_create(bauta_cache **out,
                                          const bauta_attention *shape,
                                          size_t capacity, bauta_error *err);
BAUTA_API void bauta_cache_free(bauta_cache *cache);

/* Append `tokens` keys and values, read through the strides of the shape. */
BAUTA_API bauta_status bauta_cache_append(bauta_cache *cache,
                                          const bauta_attention *shape,
                                          size_t tokens, const float *k,
                                          const float *v, bauta_error *err);

/* Tokens held; and forget all but the first `tokens` of them, the last of which
 * must not have been forgotten. */
BAUTA_API size_t bauta_cache_tokens(const bauta_cache *cache);
BAUTA_API bauta_status bauta_cache_truncate(bauta_cache *cache, size_t tokens,
                                            bauta_error *err);

/* Forget the first `tokens` of them: pages that lie wholly before are given
 * back. The others keep their numbers. For windows, whose memory is then
 * bounded, however long the sequence. */
BAUTA_API bauta_status bauta_cache_forget(bauta_cache *cache, size_t tokens,
                                          bauta_error *err);
/* Another cache that holds the same. The two share their pages, until one of
 * them appends to a page that both have, which it then copies: for beams, and
 * for texts that begin alike. Caches that share serve one call at a time. */
BAUTA_API bauta_status bauta_cache_fork(bauta_cache **out,
                                        const bauta_cache *cache,
                                        bauta_error *err);

/* As bauta_attention_forward, over the keys and values of a cache: key j is its
 * token j. Every key that the plan's rows see must be there; rows with an
 * origin other than 0 are refused, for a cache holds one sequence. */
BAUTA_API bauta_status bauta_attention_cached(
    bauta_context *context, const bauta_plan *plan,
    const bauta_attention *shape, const float *q, const bauta_cache *cache,
    float *out, float *lse, bauta_error *err);

/* ---- 8. Models --------------------------------------------------------- */

/* A Transformer from a Hugging Face folder: config.json, and the weights in
 * model.safetensors or in shards with their index. Known are GPT-2, Llama,
 * Mistral, Qwen2, Qwen3 (decoder-only), BERT, RoBERTa (encoder-only), Marian
 * and BART (encoder-decoder). The folder of a training run (section 13) stands
 * for the model in it: its `best`, a link or a folder, if there is one, else
 * its last whole checkpoint. A checkpoint whose weights or config are not those
 * that its trainer.json has digests of is refused.
 *
 * A read-only model is never written to: threads, each with a context of its
 * own, may run it at the same time. A trainable one has gradients, to which
 * bauta_model_loss() adds; only one call may train it at a time. */
typedef struct bauta_model bauta_model;

/* Read-only, float32 weights stay in the mapped file without a copy, so the
 * file must not be shortened or written over while the model lives; float16
 * and bfloat16 are converted exactly. With `trainable` all is copied, and the
 * gradients start at 0. */
BAUTA_API bauta_status bauta_model_load(bauta_model **out, const char *folder,
                                        bool trainable, bauta_error *err);
/* A new model, to be trained: `config` is what its config.json says, and the
 * weights are random, a function of config and seed. */
BAUTA_API bauta_status bauta_model_create(bauta_model **out, const char *config,
                                          uint64_t seed, bauta_error *err);
BAUTA_API void bauta_model_free(bauta_model *model);

/* Write a folder that transformers and bauta_model_load() read: config.json
 * with the keys that were loaded (only the dtype becomes float32, and the
 * architecture is filled in where it was missing), the weights in one
 * model.safetensors in float32 under transformers' names, and
 * generation_config.json where there was one. The folder appears as a whole
 * or not at all; one that exists and is not empty is refused. */
BAUTA_API bauta_status bauta_model_save(const bauta_model *model,
                                        const char *folder, bauta_error *err);

/* How the matrices of a model lie in memory. */
typedef enum bauta_weights {
    BAUTA_WEIGHTS_FLOAT32 = 0,
    BAUTA_WEIGHTS_BFLOAT16 = 1, /* rounded to the nearest: half the bytes */
    BAUTA_WEIGHTS_INT8 = 2      /* -127 to 127, times a scale for each output:
                                   a quarter of them */
} bauta_weights;

/* Lay the matrices of a read-only model out for generation, in fewer bytes if
 * so asked, and let go of what was loaded; biases, norms and tables of
 * positions stay as they are. Generation of one sequence reads every matrix for
 * every token, so it becomes as much faster as there are fewer bytes; float32
 * is faster too, since it is then read in the order of memory, and costs a copy
 * of a model that would else stay in its file's mapping. All arithmetic is
 * float32, and its bits depend on no circumstance: float32 gives the bits of
 * the model as it was, and bfloat16 those of a float32 model whose matrices
 * were rounded. Such a model cannot be saved or compressed to another type, and
 * the tensors that are held so have no `data`. int8 refuses weights that are
 * not finite. After a failure the model is as it was; no call may use it
 * meanwhile. */
BAUTA_API bauta_status bauta_model_compress(bauta_model *model,
                                            bauta_weights weights,
                                            bauta_error *err);
BAUTA_API bauta_weights bauta_model_weights(const bauta_model *model);

/* Questions. */
typedef enum bauta_model_kind {
    BAUTA_DECODER_ONLY = 0,    /* causal: a token sees what came before */
    BAUTA_ENCODER_ONLY = 1,    /* a token sees its whole sequence */
    BAUTA_ENCODER_DECODER = 2, /* a causal decoder that sees the encoder */
} bauta_model_kind;

BAUTA_API bauta_model_kind bauta_model_kind_of(const bauta_model *model);
/* "decoder-only", "encoder-only" or "encoder-decoder"; never NULL. */
BAUTA_API const char *bauta_model_kind_text(bauta_model_kind kind);
BAUTA_API bool bauta_model_trainable(const bauta_model *model);
BAUTA_API size_t bauta_model_vocabulary(const bauta_model *model);
BAUTA_API size_t bauta_model_width(const bauta_model *model);
/* Layers of a stack; 0 where the model does not have it. */
BAUTA_API size_t bauta_model_encoder_layers(const bauta_model *model);
BAUTA_API size_t bauta_model_decoder_layers(const bauta_model *model);
/* Tokens that a sequence may have. Where positions are a table, longer ones
 * are refused; rotary positions have no end, and this is what the model was
 * made for. */
BAUTA_API size_t bauta_model_positions(const bauta_model *model);
/* Whether positions are rotary, so that a text may go on beyond them. */
BAUTA_API bool bauta_model_rotary(const bauta_model *model);
/* The window of a decoder layer's self-attention, see bauta_mask_window();
 * 0 = none. */
BAUTA_API size_t bauta_model_window(const bauta_model *model, size_t layer);
/* Everything that the config said, as a JSON object; works like snprintf. */
BAUTA_API size_t bauta_model_describe(const bauta_model *model, char *text,
                                      size_t size);

/* Warnings of loading, one sentence a line, without a newline after the last;
 * "" where there are none. The text lives as long as the model. Nothing of a
 * file is dropped in silence: tensors that are not used (BERT's pooler) are
 * named here, and so is a stored head that differs from the token table
 * although tie_word_embeddings is true, which is used, as transformers does. */
BAUTA_API const char *bauta_model_warnings(const bauta_model *model);

/* How many parameters there are, each a number; a matrix that two parts share
 * counts once. They lie in tensors, as many and by the names as in the file. */
BAUTA_API uint64_t bauta_model_parameters(const bauta_model *model);
BAUTA_API size_t bauta_model_tensors(const bauta_model *model);

typedef struct bauta_tensor {
    size_t size;       /* set by BAUTA_TENSOR_INIT */
    const char *name;  /* lives as long as the model */
    size_t rank;       /* 1 or 2 */
    size_t shape[2];   /* (rows, columns), or (numbers, 1) */
    size_t count;      /* rows x columns */
    const float *data; /* dense; NULL in a compressed model */
    float *writable;   /* the same, to be written; NULL when read-only */
    float *gradient;   /* NULL when read-only, and where nothing is trained */
} bauta_tensor;
#define BAUTA_TENSOR_INIT                                            \
    {                                                                \
        sizeof(bauta_tensor), NULL, 0, { 0, 0 }, 0, NULL, NULL, NULL \
    }

/* Tensor `index`, from 0 to bauta_model_tensors() - 1, in the order of the
 * layers. */
BAUTA_API bauta_status bauta_model_tensor(const bauta_model *model,
                                          size_t index, bauta_tensor *tensor,
                                          bauta_error *err);

/* A batch of sequences of tokens.
 *
 * Packed, with a stride of 0: sequence s follows sequence s - 1 at once. Or
 * padded: sequence s begins at s * stride, and what lies behind its length is
 * not read. Either way ids[i] is row i of the batch, whatever the model makes
 * of it is row i of the output, and the rows of padding are 0 there. Packed,
 * padded or alone, a sequence gets the same bits. */
typedef struct bauta_batch {
    size_t size;             /* set by BAUTA_BATCH_INIT */
    size_t count;            /* sequences */
    const size_t *lengths;   /* (count) tokens of each; NULL, with a stride:
                                all have `stride` */
    size_t stride;           /* 0 = packed */
    const uint32_t *ids;     /* (rows) */
    const uint32_t *types;   /* (rows) token types, as BERT has; NULL: all 0 */
    const bauta_mask *mask;  /* (rows, rows) hides more; NULL: nothing */
    const bauta_mask *cross; /* (rows, rows of the source) hides more of the
                                source from a target; NULL: nothing */
    const size_t *prefixes;  /* (count) the first so many tokens of a decoder's
                                sequence see each other; NULL: none do */
} bauta_batch;
#define BAUTA_BATCH_INIT                                              \
    {                                                                 \
        sizeof(bauta_batch), 0, NULL, 0, NULL, NULL, NULL, NULL, NULL \
    }

/* The masks follow from the model and the batch. A token sees tokens of its
 * own sequence: in a decoder those up to itself (and all of the prefix, where
 * the batch gives it one), within the window where the layer has one; in an
 * encoder all of them; across, a target's token sees all of its source. `mask`
 * and `cross` of a batch hide more than that, and can show nothing: in every
 * layer and head of the stack that reads the batch, a pair is visible when the
 * model's own mask and the given one both say so. What the given mask says of
 * rows and keys that are padding, or of another sequence, does not matter, nor
 * do its origins. A token from which everything is hidden gets 0 from
 * attention; its residual stream goes on.
 *
 * How many rows a batch has: the sum of the lengths, or count x stride. */
BAUTA_API size_t bauta_batch_rows(const bauta_batch *batch);

/* What to compute; NULL is left out. Hidden states: number 0 is the embedded
 * tokens, number l + 1 is the output of layer l (layers count from 0), of the
 * last one after the norm that ends the stack. */
typedef struct bauta_outputs {
    size_t size;           /* set by BAUTA_OUTPUTS_INIT */
    float *logits;         /* (rows, vocabulary) */
    float *encoder_states; /* (encoder layers + 1, rows of source, width) */
    float *decoder_states; /* (decoder layers + 1, rows of target, width) */
} bauta_outputs;
#define BAUTA_OUTPUTS_INIT                      \
    {                                           \
        sizeof(bauta_outputs), NULL, NULL, NULL \
    }

/* Run a model. A decoder-only model reads `target`, an encoder-only one reads
 * `source`, and the other is NULL; an encoder-decoder reads both, sequence s
 * of the target seeing sequence s of the source. Logits are of the decoder, or
 * of the encoder where there is nothing else. From the second call with the
 * same lengths on, and without masks in the batch, nothing is allocated. */
BAUTA_API bauta_status bauta_model_forward(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const bauta_outputs *outputs, bauta_error *err);

/* Where do numbers stop being finite? NaN and infinity are no error of
 * bauta_model_forward(), bauta_model_look() and bauta_model_loss(): a program
 * that finds one in a result asks here. The model runs once more over the same
 * batches, and every hidden state and all logits are looked at. BAUTA_OK: all
 * are finite (a logit may be -infinity, which is a probability of 0).
 * BAUTA_ERR_NOT_FINITE: the sentence names the first layer that gives NaN or
 * infinity, counted from 0, with sequence and token, and the first tensor of
 * the model that holds such a number, where one does. */
BAUTA_API bauta_status bauta_model_check_finite(bauta_context *context,
                                                const bauta_model *model,
                                                const bauta_batch *source,
                                                const bauta_batch *target,
                                                bauta_error *err);

/* A label that does not count. */
#define BAUTA_IGNORE UINT32_MAX

typedef struct bauta_loss_options {
    size_t size;     /* set by BAUTA_LOSS_OPTIONS_INIT */
    float smoothing; /* from 0 to 1: this share of each label is spread evenly
                        over the vocabulary */
    double weight;   /* multiplies loss and gradients; to accumulate parts of a
                        batch, the share of the part in all counted labels */
    float dropout;   /* from 0 to below 1: this share of the activations behind
                        embeddings, attention and feed-forward parts is 0; of a
                        trainable model only */
    uint64_t seed;   /* of dropout */
    const uint64_t *source_keys; /* (rows) what dropout is drawn by: which token
                                    of the data each row is. The same key gives
                                    the same zeros, whatever lies beside it.
                                    NULL: the number of the row */
    const uint64_t *target_keys; /* likewise; NULL: rows, counted from 2^63 */
} bauta_loss_options;
#define BAUTA_LOSS_OPTIONS_INIT                                    \
    {                                                              \
        sizeof(bauta_loss_options), 0.0f, 1.0, 0.0f, 0, NULL, NULL \
    }

/* Mean cross-entropy, in nats, of the logits that bauta_model_forward() would
 * give against labels (rows) that lie as the ids do. Nothing is shifted: a
 * label is what its own row is to predict, so for the next token labels[i] is
 * ids[i + 1], and BAUTA_IGNORE in the last row of a sequence. Labels of padding
 * are not read. *counted, when given, receives how many labels counted; where
 * none does the loss is 0. `options` may be NULL.
 *
 * The gradients of a trainable model are added to what is there. After a
 * failure that is not of the arguments, such as memory, some may be added and
 * others not: zero them. */
BAUTA_API bauta_status
bauta_model_loss(bauta_context *context, bauta_model *model,
                 const bauta_batch *source, const bauta_batch *target,
                 const uint32_t *labels, const bauta_loss_options *options,
                 double *loss, size_t *counted, bauta_error *err);

/* All gradients of a trainable model become 0. */
BAUTA_API bauta_status bauta_model_zero_gradients(bauta_model *model,
                                                  bauta_error *err);

/* ---- 9. Tokenizers ----------------------------------------------------- */

/* A tokenizer turns text into the numbers that a model reads, and back. It
 * gives the ids that the original does: Hugging Face's tokenizers library for
 * a tokenizer.json, SentencePiece for its models.
 *
 * Text is UTF-8. Bytes that are not are no error: each one counts as U+FFFD,
 * and a tokenizer of bytes (GPT-2's kind) keeps them as they are. */
typedef struct bauta_tokenizer bauta_tokenizer;

/* From a model folder, where the first of these is taken that is there:
 *
 *     tokenizer.json
 *     source.spm, target.spm, vocab.json        Marian
 *     vocab.json, merges.txt                    GPT-2, RoBERTa
 *     encoder.json, vocab.bpe                   GPT-2 as first published
 *     tokenizer.model, spiece.model             SentencePiece
 *     vocab.txt                                 BERT
 *
 * with what tokenizer_config.json beside it says of special tokens; the folder
 * of a training run stands for the model in it, as in section 8. Or from one
 * file of these kinds: a tokenizer.json, a vocab.txt, or a SentencePiece model,
 * which then puts nothing around a text. */
BAUTA_API bauta_status bauta_tokenizer_load(bauta_tokenizer **out,
                                            const char *path, bauta_error *err);
/* The 256 bytes: token b is byte b; token 256 is <|endoftext|>, which ends a
 * text. */
BAUTA_API bauta_status bauta_tokenizer_bytes(bauta_tokenizer **out,
                                             bauta_error *err);
/* The distinct characters of a text, in the order of their code points; then
 * <unk>, which every other character is encoded as, and <|endoftext|>, which
 * ends a text. */
BAUTA_API bauta_status bauta_tokenizer_characters(bauta_tokenizer **out,
                                                  const char *text,
                                                  size_t length,
                                                  bauta_error *err);
BAUTA_API void bauta_tokenizer_free(bauta_tokenizer *tokenizer);

/* Write the files that the tokenizer was made from into a folder that exists;
 * for one that was made here, a tokenizer.json and a tokenizer_config.json. */
BAUTA_API bauta_status bauta_tokenizer_save(const bauta_tokenizer *tokenizer,
                                            const char *folder,
                                            bauta_error *err);

/* 1 + the largest id. */
BAUTA_API size_t bauta_tokenizer_size(const bauta_tokenizer *tokenizer);
/* A token as the vocabulary writes it, NUL-terminated; it lives as long as the
 * tokenizer. NULL when no token has this id. *length may be NULL. */
BAUTA_API const char *bauta_tokenizer_piece(const bauta_tokenizer *tokenizer,
                                            uint32_t id, size_t *length);
/* The id of such a piece, or BAUTA_NO_TOKEN. */
BAUTA_API uint32_t bauta_tokenizer_find(const bauta_tokenizer *tokenizer,
                                        const char *piece, size_t length);
#define BAUTA_NO_TOKEN UINT32_MAX

/* Tokens with a part to play; not every tokenizer has each. */
typedef enum bauta_token_name {
    BAUTA_TOKEN_BOS,  /* begins a text */
    BAUTA_TOKEN_EOS,  /* ends it */
    BAUTA_TOKEN_UNK,  /* stands for what the vocabulary lacks */
    BAUTA_TOKEN_PAD,  /* fills up */
    BAUTA_TOKEN_CLS,  /* begins a text for BERT */
    BAUTA_TOKEN_SEP,  /* ends one for BERT */
    BAUTA_TOKEN_MASK, /* stands for a hidden word */
    BAUTA_TOKEN_NAMES
} bauta_token_name;

/* The id of such a token, or BAUTA_NO_TOKEN. */
BAUTA_API uint32_t bauta_tokenizer_token(const bauta_tokenizer *tokenizer,
                                         bauta_token_name name);
/* Whether decoding leaves a token out unless it is asked not to. */
BAUTA_API bool bauta_tokenizer_special(const bauta_tokenizer *tokenizer,
                                       uint32_t id);

typedef struct bauta_encode_options {
    size_t size;  /* set by BAUTA_ENCODE_OPTIONS_INIT */
    bool bare;    /* put nothing around the text */
    bool literal; /* "</s>" in the text is four characters, not the token */
    bool target;  /* as the target of a translation */
} bauta_encode_options;
#define BAUTA_ENCODE_OPTIONS_INIT                         \
    {                                                     \
        sizeof(bauta_encode_options), false, false, false \
    }

/* The tokens of a text. Token i covers bytes starts[i] to ends[i] - 1 of the
 * text; both are 0 for one that was put around it. */
typedef struct bauta_tokens {
    size_t count;
    uint32_t *ids;
    uint32_t *types; /* 0; of the second text of a pair, what the folder says */
    size_t *starts, *ends;
} bauta_tokens;

/* Encode a text; `options` may be NULL. Release the tokens in any case; on
 * failure there are none. */
BAUTA_API bauta_status
bauta_tokenizer_encode(const bauta_tokenizer *tokenizer, const char *text,
                       size_t length, const bauta_encode_options *options,
                       bauta_tokens *tokens, bauta_error *err);
/* Two texts that belong together, as BERT reads them. Offsets count from the
 * beginning of the one that the token is of. */
BAUTA_API bauta_status bauta_tokenizer_encode_pair(
    const bauta_tokenizer *tokenizer, const char *first, size_t first_length,
    const char *second, size_t second_length,
    const bauta_encode_options *options, bauta_tokens *tokens,
    bauta_error *err);
BAUTA_API void bauta_tokens_release(bauta_tokens *tokens);

/* The characters of a text that the vocabulary lacks: `count` of them, the
 * first of which is bytes `start` to `end` - 1. */
typedef struct bauta_unknown {
    size_t count;
    size_t start, end;
} bauta_unknown;
/* Of a text and its tokens: what became the unknown token or, with a tokenizer
 * that has none, no token at all. Text that a normalizer removed is known. */
BAUTA_API bauta_unknown bauta_tokens_unknown(const bauta_tokenizer *tokenizer,
                                             const bauta_tokens *tokens,
                                             const char *text, size_t length);

typedef struct bauta_decode_options {
    size_t size;   /* set by BAUTA_DECODE_OPTIONS_INIT */
    bool specials; /* keep special tokens, as the vocabulary writes them */
    bool source;   /* as the source of a translation */
} bauta_decode_options;
#define BAUTA_DECODE_OPTIONS_INIT                  \
    {                                              \
        sizeof(bauta_decode_options), false, false \
    }

/* The text of tokens; `options` may be NULL. The text is NUL-terminated, may
 * hold NUL, and goes to bauta_text_free(). It is UTF-8: bytes that make no
 * character become U+FFFD. An id without a token is an error. */
BAUTA_API bauta_status
bauta_tokenizer_decode(const bauta_tokenizer *tokenizer, const uint32_t *ids,
                       size_t count, const bauta_decode_options *options,
                       char **text, size_t *length, bauta_error *err);
BAUTA_API void bauta_text_free(char *text);

/* The same token by token, for text that is shown while it is made. A piece
 * of text comes out as soon as it is certain: half a character waits for the
 * rest. What all calls give, one behind the other, is what
 * bauta_tokenizer_decode() gives. The tokenizer must outlive the decoder. */
typedef struct bauta_decoder bauta_decoder;
BAUTA_API bauta_status bauta_decoder_create(bauta_decoder **out,
                                            const bauta_tokenizer *tokenizer,
                                            const bauta_decode_options *options,
                                            bauta_error *err);
BAUTA_API void bauta_decoder_free(bauta_decoder *decoder);
/* *text lives until the next call with this decoder, and is NUL-terminated. */
BAUTA_API bauta_status bauta_decoder_push(bauta_decoder *decoder, uint32_t id,
                                          const char **text, size_t *length,
                                          bauta_error *err);
/* The text ends: what was waiting comes out, and the decoder is as new. */
BAUTA_API bauta_status bauta_decoder_finish(bauta_decoder *decoder,
                                            const char **text, size_t *length,
                                            bauta_error *err);

/* ---- 10. Training a tokenizer ------------------------------------------ */

typedef enum bauta_vocabulary_kind {
    BAUTA_VOCABULARY_BPE,       /* pairs of bytes, as GPT-2 */
    BAUTA_VOCABULARY_WORDPIECE, /* pieces of words, as BERT */
    BAUTA_VOCABULARY_UNIGRAM,   /* likeliest pieces, as SentencePiece */
    BAUTA_VOCABULARY_CHARACTERS /* as bauta_tokenizer_characters(); all other
                                   options are unused */
} bauta_vocabulary_kind;

typedef struct bauta_vocabulary_options {
    size_t size; /* set by BAUTA_VOCABULARY_OPTIONS_INIT */
    bauta_vocabulary_kind kind;
    size_t pieces;               /* how large the vocabulary is to be */
    const char *const *specials; /* tokens that come first, ids 0, 1, ...;
                                    NULL: <|endoftext|> for BPE; [PAD], [UNK],
                                    [CLS], [SEP], [MASK] for WordPiece; <pad>,
                                    <unk>, <s>, </s> for Unigram */
    size_t special_count;
    size_t least;   /* a pair must occur so often; 2 */
    bool lowercase; /* WordPiece and Unigram: lower case first */
    bool greatest;  /* of pairs that occur equally often take the
                       one whose bytes are greatest, instead of
                       the one that is oldest */
    void (*progress)(void *user, size_t done, size_t all); /* or NULL */
    void *user;
} bauta_vocabulary_options;
#define BAUTA_VOCABULARY_OPTIONS_INIT                                          \
    {                                                                          \
        sizeof(bauta_vocabulary_options), BAUTA_VOCABULARY_BPE, 8000, NULL, 0, \
            2, false, false, NULL, NULL                                        \
    }

/* Learn a vocabulary from texts. Special tokens that stand in a text separate
 * it and are not learned from. The same texts give the same vocabulary, always;
 * where they are too small for `pieces` it is smaller. bauta_tokenizer_save()
 * writes it. */
BAUTA_API bauta_status bauta_tokenizer_train(
    bauta_tokenizer **out, const bauta_vocabulary_options *options,
    const char *const *texts, const size_t *lengths, size_t count,
    bauta_error *err);

/* The same from texts that come one after the other. Only the words of the
 * texts are kept, each once, so memory grows with the number of distinct words.
 * The options' arrays must outlive the vocabulary. */
typedef struct bauta_vocabulary bauta_vocabulary;
BAUTA_API bauta_status bauta_vocabulary_create(
    bauta_vocabulary **out, const bauta_vocabulary_options *options,
    bauta_error *err);
BAUTA_API void bauta_vocabulary_free(bauta_vocabulary *vocabulary);
BAUTA_API bauta_status bauta_vocabulary_add(bauta_vocabulary *vocabulary,
                                            const char *text, size_t length,
                                            bauta_error *err);
/* Text files, and pairs of them, as section 12 has them: with options.lines
 * each line is a text, else each file; of pairs, each line of either side. They
 * may be larger than memory. `options` may be NULL. */
struct bauta_corpus_options;
BAUTA_API bauta_status bauta_vocabulary_add_files(
    bauta_vocabulary *vocabulary, const char *const *files, size_t count,
    const struct bauta_corpus_options *options, bauta_error *err);
BAUTA_API bauta_status bauta_vocabulary_add_pairs(
    bauta_vocabulary *vocabulary, const char *source, const char *target,
    const struct bauta_corpus_options *options, bauta_error *err);
/* How much was added. */
BAUTA_API uint64_t bauta_vocabulary_bytes(const bauta_vocabulary *vocabulary);
BAUTA_API size_t bauta_vocabulary_texts(const bauta_vocabulary *vocabulary);
/* Learn; the vocabulary stays as it is. */
BAUTA_API bauta_status
bauta_vocabulary_train(const bauta_vocabulary *vocabulary,
                       bauta_tokenizer **out, bauta_error *err);

/* ---- 11. Scores -------------------------------------------------------- */

/* BLEU and chrF compare translations with references, which people wrote. The
 * numbers are those of sacrebleu 2.6.
 *
 * Sentences and their references, in one set or in several. Text is UTF-8; a
 * byte that is not counts as U+FFFD. */
typedef struct bauta_translations {
    size_t size;                      /* set by BAUTA_TRANSLATIONS_INIT */
    size_t count;                     /* sentences; at least 1 */
    const char *const *hypotheses;    /* (count) what is scored */
    const size_t *hypothesis_lengths; /* (count) in bytes; NULL: each ends at
                                         its NUL */
    size_t sets;                      /* of references; at least 1 */
    const char *const *references;    /* (sets, count); NULL where a set lacks
                                         the sentence, but not in all sets */
    const size_t *reference_lengths;  /* (sets, count), as above */
} bauta_translations;
#define BAUTA_TRANSLATIONS_INIT                                  \
    {                                                            \
        sizeof(bauta_translations), 0, NULL, NULL, 1, NULL, NULL \
    }

/* The longest n-grams that are counted. */
#define BAUTA_NGRAM_MAX 16

typedef enum bauta_bleu_tokenizer {
    BAUTA_TOKENIZE_13A,  /* mteval-v13a's, the usual one in the West */
    BAUTA_TOKENIZE_INTL, /* mteval-v14's: Unicode's punctuation and symbols */
    BAUTA_TOKENIZE_CHAR, /* every character */
    BAUTA_TOKENIZE_NONE  /* words are what white space separates */
} bauta_bleu_tokenizer;

/* What is done where no n-gram of an order is right. */
typedef enum bauta_bleu_smoothing {
    BAUTA_SMOOTH_EXP,   /* the first such order counts 1/2, the next 1/4, ... */
    BAUTA_SMOOTH_FLOOR, /* it counts `smoothing_value` */
    BAUTA_SMOOTH_ADD_K, /* from n = 2 on, `smoothing_value` more are right, of
                         as many more */
    BAUTA_SMOOTH_NONE   /* nothing: the score is 0 */
} bauta_bleu_smoothing;

typedef struct bauta_bleu_options {
    size_t size; /* set by BAUTA_BLEU_OPTIONS_INIT */
    bauta_bleu_tokenizer tokenizer;
    bauta_bleu_smoothing smoothing;
    double smoothing_value; /* negative: 0.1 for FLOOR, 1 for ADD_K */
    size_t order;           /* the longest n-gram, 1 to BAUTA_NGRAM_MAX */
    bool lowercase;         /* compare in lower case */
    bool effective;         /* leave out orders for which the text is too short,
                               as one does for a single sentence */
    bool add;               /* *score holds the counts of other sentences, to
                               which those of these are added: for texts that
                               are scored in parts */
} bauta_bleu_options;
#define BAUTA_BLEU_OPTIONS_INIT                                               \
    {                                                                         \
        sizeof(bauta_bleu_options), BAUTA_TOKENIZE_13A, BAUTA_SMOOTH_EXP, -1, \
            4, false, false, false                                            \
    }

typedef struct bauta_bleu_score {
    size_t size;                        /* set by BAUTA_BLEU_SCORE_INIT */
    double score;                       /* 0 to 100 */
    uint64_t matches[BAUTA_NGRAM_MAX];  /* [n - 1]: n-grams that a reference
                                           has, too, before smoothing */
    uint64_t totals[BAUTA_NGRAM_MAX];   /* n-grams of the hypotheses */
    double precisions[BAUTA_NGRAM_MAX]; /* in percent, smoothed */
    char signature[128];                /* how it was computed, in sacrebleu's
                                           way: "nrefs:1|case:mixed|..." */
    double brevity;                     /* the penalty that multiplies */
    uint64_t hypothesis_length;         /* tokens */
    uint64_t reference_length; /* of the references nearest in length */
} bauta_bleu_score;
#define BAUTA_BLEU_SCORE_INIT                                            \
    {                                                                    \
        sizeof(bauta_bleu_score), 0, { 0 }, { 0 }, { 0 }, { 0 }, 0, 0, 0 \
    }

/* The BLEU score of all sentences together, whose counts are added up.
 * `sentences` (count), when given, receives that of each one alone, for which
 * options.effective should be set. `options` may be NULL. */
BAUTA_API bauta_status bauta_bleu(const bauta_translations *texts,
                                  const bauta_bleu_options *options,
                                  bauta_bleu_score *score, double *sentences,
                                  bauta_error *err);

typedef struct bauta_chrf_options {
    size_t size;       /* set by BAUTA_CHRF_OPTIONS_INIT */
    size_t characters; /* the longest n-gram of characters */
    size_t words;      /* and of words: 0, or 2 for chrF++; both up to
                          BAUTA_NGRAM_MAX and not both 0 */
    size_t beta;       /* recall counts as much as beta^2 times precision */
    bool lowercase;    /* compare in lower case */
    bool whitespace;   /* white space counts as characters */
    bool epsilon;      /* smooth as chrF++.py, instead of leaving out orders for
                          which a text is too short */
    bool add;          /* as in bauta_bleu_options */
} bauta_chrf_options;
#define BAUTA_CHRF_OPTIONS_INIT                                         \
    {                                                                   \
        sizeof(bauta_chrf_options), 6, 0, 2, false, false, false, false \
    }

/* The counts of n-grams are of characters and then of words: [n - 1], and
 * [characters + n - 1]. Each sentence counts with the one of its references
 * that is best for it. */
typedef struct bauta_chrf_score {
    size_t size;  /* set by BAUTA_CHRF_SCORE_INIT */
    double score; /* 0 to 100 */
    uint64_t matches[2 * BAUTA_NGRAM_MAX];
    uint64_t hypothesis_totals[2 * BAUTA_NGRAM_MAX];
    uint64_t reference_totals[2 * BAUTA_NGRAM_MAX];
    char name[48];       /* "chrF2", "chrF2++" */
    char signature[128]; /* "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|..." */
    size_t orders;       /* how many counts there are: characters + words */
} bauta_chrf_score;
#define BAUTA_CHRF_SCORE_INIT                                             \
    {                                                                     \
        sizeof(bauta_chrf_score), 0, { 0 }, { 0 }, { 0 }, { 0 }, { 0 }, 0 \
    }

/* As bauta_bleu(). */
BAUTA_API bauta_status bauta_chrf(const bauta_translations *texts,
                                  const bauta_chrf_options *options,
                                  bauta_chrf_score *score, double *sentences,
                                  bauta_error *err);
/* ---- 12. Corpora ------------------------------------------------------- */

/* Text files. Everything that reads text from a file, here and in the program,
 * follows one rule:
 *
 *   - Text is UTF-8. Bytes that are not, and NUL, are an error that names file,
 *     line and byte.
 *   - A line ends with LF or CR LF; the last one may lack it.
 *   - A file that is compressed with gzip is decompressed while it is read; it
 *     is known by its first bytes. (Without zlib it is refused.) Other
 *     compressed files and UTF-16 are refused by name.
 *   - "-" is standard input; "./-" is a file of that name. Pipes are read as
 *     files are.
 *   - Files are read piece by piece and may be larger than memory. A line that
 *     has to be held as a whole has at most 64 MiB.
 *
 * Line by line, or in parts: use one of the two. */
typedef struct bauta_text_file bauta_text_file;
BAUTA_API bauta_status bauta_text_file_open(bauta_text_file **out,
                                            const char *path, bauta_error *err);
BAUTA_API void bauta_text_file_free(bauta_text_file *file);
/* The next line without its end, NUL-terminated; *text is NULL after the last
 * one. It lives until the next call. After an error about a line the next call
 * goes on with the line after it. *length may be NULL. */
BAUTA_API bauta_status bauta_text_file_line(bauta_text_file *file,
                                            const char **text, size_t *length,
                                            bauta_error *err);
/* The next part of the text, of any size, which is cut between characters and
 * not NUL-terminated; *part is NULL at the end. It lives until the next call.
 */
BAUTA_API bauta_status bauta_text_file_part(bauta_text_file *file,
                                            const char **part, size_t *length,
                                            bauta_error *err);
/* How many lines were read: the number of the last one, counted from 1. */
BAUTA_API size_t bauta_text_file_lines(const bauta_text_file *file);
/* Whether a line can be read without waiting for a pipe or a terminal. */
BAUTA_API bool bauta_text_file_ready(const bauta_text_file *file);

/* A corpus is a list of documents, each a sequence of tokens, or of pairs of
 * them: source and target. Files are text files as above; pairs must have as
 * many lines on both sides, and no line of a pair may be empty.
 *
 * A corpus may be larger than memory. Files are encoded 256 KiB at a time, and
 * a larger document is cut where that does not change its tokens; a tokenizer
 * whose model has to see all of a document (SentencePiece's, Llama 2's, and
 * those with a pattern of their own) takes at most 64 MiB of one. Tokens are
 * kept in memory up to a limit, and beyond it in a temporary file without a
 * name in the folder that TMPDIR names, or in /var/tmp. */
typedef struct bauta_corpus bauta_corpus;

typedef struct bauta_corpus_options {
    size_t size;   /* set by BAUTA_CORPUS_OPTIONS_INIT */
    bool lines;    /* each line is a document, empty ones are not; else each
                      file is one */
    bool skip_bad; /* leave out what is not right, and count it, instead of
                      failing with a sentence that names file and line */
    size_t memory; /* bytes of tokens that are kept in memory, and as much for
                      each list of documents or sequences; 0: 32 MiB */
} bauta_corpus_options;
#define BAUTA_CORPUS_OPTIONS_INIT                     \
    {                                                 \
        sizeof(bauta_corpus_options), false, false, 0 \
    }

/* Files of text. A document is what the tokenizer makes of it, with what it
 * puts around a text; behind that the token that ends a text, where the
 * tokenizer has one and has not put it there (nor [SEP]). */
BAUTA_API bauta_status bauta_corpus_load(bauta_corpus **out,
                                         const bauta_tokenizer *tokenizer,
                                         const char *const *files, size_t count,
                                         const bauta_corpus_options *options,
                                         bauta_error *err);
/* Pairs: line i of `target` belongs to line i of `source`; or, with a target
 * of NULL, `source` is a file of two columns with a tab between them. Both
 * sides end as a text does. */
BAUTA_API bauta_status bauta_corpus_load_pairs(
    bauta_corpus **out, const bauta_tokenizer *tokenizer, const char *source,
    const char *target, const bauta_corpus_options *options, bauta_error *err);
/* An empty one, and a document for it: tokens at hand, which are copied.
 * `source` is NULL for a text, and all of a corpus are of one kind. */
BAUTA_API bauta_status bauta_corpus_create(bauta_corpus **out,
                                           bauta_error *err);
BAUTA_API bauta_status bauta_corpus_add(bauta_corpus *corpus,
                                        const uint32_t *tokens, size_t count,
                                        const uint32_t *source,
                                        size_t source_count, bauta_error *err);
BAUTA_API void bauta_corpus_free(bauta_corpus *corpus);

BAUTA_API bool bauta_corpus_pairs(const bauta_corpus *corpus);
BAUTA_API size_t bauta_corpus_documents(const bauta_corpus *corpus);
/* Tokens of all documents, those of sources not among them. */
BAUTA_API uint64_t bauta_corpus_tokens(const bauta_corpus *corpus);
/* Bytes of the files that it was loaded from, decompressed. */
BAUTA_API uint64_t bauta_corpus_bytes(const bauta_corpus *corpus);
/* How many lines or files were left out. */
BAUTA_API size_t bauta_corpus_skipped(const bauta_corpus *corpus);
/* How many characters of its files the tokenizer did not know, and where the
 * first of them is. Each pointer may be NULL; `first` and `file` live as long
 * as the corpus. */
BAUTA_API uint64_t bauta_corpus_unknown(const bauta_corpus *corpus,
                                        const char **first, const char **file,
                                        size_t *line);
/* A document's tokens; *source is NULL in a corpus of texts. */
BAUTA_API const uint32_t *bauta_corpus_document(const bauta_corpus *corpus,
                                                size_t index, size_t *count,
                                                const uint32_t **source,
                                                size_t *source_count);
/* Cut off the last documents (or, of a single text, its last tokens): the
 * share goes to *rest. For validation where no file is given. */
BAUTA_API bauta_status bauta_corpus_split(bauta_corpus *corpus, double share,
                                          bauta_corpus **rest,
                                          bauta_error *err);

/* ---- 13. Training ------------------------------------------------------ */

typedef enum bauta_objective {
    BAUTA_OBJECTIVE_AUTO,    /* what the model is for: one of the next three */
    BAUTA_OBJECTIVE_CAUSAL,  /* a decoder predicts the next token */
    BAUTA_OBJECTIVE_SEQ2SEQ, /* an encoder-decoder, the target's next token */
    BAUTA_OBJECTIVE_MASKED,  /* an encoder, tokens that were hidden from it */
    BAUTA_OBJECTIVE_PREFIX   /* a decoder, behind a prefix that sees itself */
} bauta_objective;

typedef enum bauta_mode {
    BAUTA_MODE_PARALLEL,   /* teacher forcing, all positions in one pass */
    BAUTA_MODE_SEQUENTIAL, /* teacher forcing, a pass for each position */
    BAUTA_MODE_FREE,       /* each position is fed the model's own prediction */
    BAUTA_MODE_SCHEDULED   /* some are: a share of `sampled` */
} bauta_mode;

typedef enum bauta_schedule {
    BAUTA_SCHEDULE_CONSTANT,
    BAUTA_SCHEDULE_LINEAR,      /* down to min_rate at the last step */
    BAUTA_SCHEDULE_COSINE,      /* likewise, along a cosine */
    BAUTA_SCHEDULE_INVERSE_SQRT /* rate x sqrt(warmup / step) */
} bauta_schedule;

/* Every number of a run. What is 0 here and says "0: ..." chooses itself. */
typedef struct bauta_train_options {
    size_t size; /* set by BAUTA_TRAIN_OPTIONS_INIT */
    bauta_objective objective;
    bauta_mode mode;
    uint64_t seed;

    /* A step reads a batch: `sequences` sequences, or as many as have at most
     * `tokens` tokens; `accumulate` of them together are one larger batch.
     * Documents longer than `context` are cut (pairs are left out). */
    size_t sequences; /* 0: as many as fit into `tokens` */
    size_t tokens;
    size_t accumulate;
    size_t pass;    /* tokens that run at once, at most, which bounds memory */
    size_t context; /* 0: what the model was made for */

    float dropout, smoothing;
    float hidden, hidden_random, hidden_kept; /* masked: the share of tokens,
                       and of those the share that becomes a random token, or
                       stays as it is */
    float sampled; /* scheduled: the share that is fed by the model */

    size_t steps, warmup;
    bauta_schedule schedule;
    double rate, min_rate;
    double beta1, beta2, epsilon, weight_decay, clip; /* clip 0: none */
    double average; /* decay of the exponential moving average; 0: none */
} bauta_train_options;
#define BAUTA_TRAIN_OPTIONS_INIT                                             \
    {                                                                        \
        sizeof(bauta_train_options), BAUTA_OBJECTIVE_AUTO,                   \
            BAUTA_MODE_PARALLEL, 1, 0, 4096, 1, 8192, 0, 0.0f, 0.0f, 0.15f,  \
            0.1f, 0.1f, 0.25f, 1000, 100, BAUTA_SCHEDULE_COSINE, 1e-3, 1e-4, \
            0.9, 0.99, 1e-8, 0.1, 1.0, 0.0                                   \
    }

/* The same for a model that is trained already and is tuned on other texts: a
 * small rate that falls to 0 along a line. */
#define BAUTA_FINETUNE_OPTIONS_INIT                                         \
    {                                                                       \
        sizeof(bauta_train_options), BAUTA_OBJECTIVE_AUTO,                  \
            BAUTA_MODE_PARALLEL, 1, 0, 4096, 1, 2048, 0, 0.0f, 0.0f, 0.15f, \
            0.1f, 0.1f, 0.25f, 1000, 100, BAUTA_SCHEDULE_LINEAR, 5e-5, 0.0, \
            0.9, 0.999, 1e-8, 0.01, 1.0, 0.0                                \
    }

typedef struct bauta_trainer bauta_trainer;

/* All must outlive the trainer; the model is trainable. The tokenizer says
 * which tokens are special and may be NULL, unless the objective is masked. */
BAUTA_API bauta_status bauta_trainer_create(
    bauta_trainer **out, bauta_context *context, bauta_model *model,
    const bauta_tokenizer *tokenizer, const bauta_corpus *corpus,
    const bauta_train_options *options, bauta_error *err);
BAUTA_API void bauta_trainer_free(bauta_trainer *trainer);

typedef struct bauta_train_report {
    size_t size;    /* set by BAUTA_TRAIN_REPORT_INIT */
    size_t step;    /* steps taken, with this one */
    size_t epoch;   /* passes through the corpus begun before, from 0 */
    double loss;    /* mean over all that counted, in nats */
    size_t counted; /* tokens that were predicted */
    size_t tokens;  /* tokens that were read, sources among them */
    double norm;    /* of all gradients, before clipping */
    double rate;    /* at which the step was taken */
    bool taken;     /* false: the gradients were not finite, or nothing was to
                       be predicted */
} bauta_train_report;
#define BAUTA_TRAIN_REPORT_INIT                                      \
    {                                                                \
        sizeof(bauta_train_report), 0, 0, 0.0, 0, 0, 0.0, 0.0, false \
    }

/* One step; `report` may be NULL. The same options and corpus give the same
 * bits, whatever the threads, the instruction set, and the times the run was
 * stopped and resumed. */
BAUTA_API bauta_status bauta_trainer_step(bauta_trainer *trainer,
                                          bauta_train_report *report,
                                          bauta_error *err);
/* The mean loss over a corpus, in parallel, without dropout and smoothing; of
 * the averaged weights where there are any. At most `limit` tokens are read (0:
 * all), or one sequence where the shortest ones are longer: sequences spread
 * evenly over the corpus, the same ones in each call. Of pairs the longer side
 * counts. `counted` tokens were predicted. */
BAUTA_API bauta_status bauta_trainer_evaluate(bauta_trainer *trainer,
                                              const bauta_corpus *corpus,
                                              size_t limit, double *loss,
                                              size_t *counted,
                                              bauta_error *err);
/* Let `progress` be called during an evaluation, after each micro-batch, with
 * how many of its sequences are done; NULL: no longer. */
BAUTA_API void
bauta_trainer_on_evaluate(bauta_trainer *trainer,
                          void (*progress)(void *user, size_t done, size_t all),
                          void *user);
/* The loss and gradients (into the model, whose gradients were zeroed before)
 * of the next batch in a mode, without a step; to compare them. */
BAUTA_API bauta_status bauta_trainer_gradients(bauta_trainer *trainer,
                                               bauta_mode mode, double *loss,
                                               bauta_error *err);
BAUTA_API size_t bauta_trainer_steps(const bauta_trainer *trainer);
/* Steps of one pass through the corpus, about. */
BAUTA_API size_t bauta_trainer_epoch_steps(const bauta_trainer *trainer);

/* A checkpoint is a model folder (with the tokenizer's files, where there is
 * one) that also holds optimizer.safetensors, with the moments and the moving
 * average, and trainer.json: where the run is, its options, and digests of all
 * that must be the same to go on. Saving writes it as a whole or not at all, as
 * `folder`, which must not exist. `notes` is kept in trainer.json for whoever
 * resumes: a JSON object of less than 200 KiB, or NULL. */
BAUTA_API bauta_status bauta_trainer_save(const bauta_trainer *trainer,
                                          const char *folder, const char *notes,
                                          bauta_error *err);
/* Go on from a checkpoint: a trainer that was created as the saved one was,
 * with the model of the checkpoint's folder. From here it takes the steps that
 * the saved one would have taken, to the bit. Options (all but `steps`), a
 * corpus or a model that differ are refused by name, and so are files that are
 * damaged; the trainer is then as it was. */
BAUTA_API bauta_status bauta_trainer_resume(bauta_trainer *trainer,
                                            const char *folder,
                                            bauta_error *err);
/* Write what was learned as a model folder, with the tokenizer's files and
 * nothing of the run: the weights that bauta_trainer_evaluate() measures, which
 * are the averaged ones where there are any. (A checkpoint's model has the
 * weights as the steps left them.) */
BAUTA_API bauta_status bauta_trainer_export(const bauta_trainer *trainer,
                                            const char *folder,
                                            bauta_error *err);
/* The notes of a checkpoint as JSON, for bauta_text_free(); NULL where it was
 * saved without. */
BAUTA_API bauta_status bauta_checkpoint_notes(char **notes, const char *folder,
                                              bauta_error *err);
/* The folder of a run holds checkpoints named step-<number>. The last one whose
 * trainer.json is whole, for bauta_text_free(); NULL where there is none. What
 * a killed program left behind is passed over. */
BAUTA_API bauta_status bauta_run_last(char **folder, const char *run,
                                      bauta_error *err);
/* Remove a checkpoint, or half of one: trainer.json first, so that what is left
 * of a removal that is cut short is no checkpoint. A folder that holds anything
 * that bauta does not write into one stays whole, and so does a link; both are
 * failures. That there is no such folder is fine. */
BAUTA_API bauta_status bauta_checkpoint_remove(const char *folder,
                                               bauta_error *err);

/* The folder of a run, held by one program at a time. Opening locks it until
 * the run is freed or the process ends, however it ends; while another program
 * holds it, opening fails and names the process and its host. With `create`
 * the folder is made if it is missing, and removed again by bauta_run_free()
 * if it is still empty. Half-written checkpoints of a killed program are
 * removed. Training does not need it, but two programs that save into one
 * folder without it overwrite each other. */
typedef struct bauta_run bauta_run;
BAUTA_API bauta_status bauta_run_open(bauta_run **out, const char *folder,
                                      bool create, bauta_error *err);
/* Whether there is a lock: some file systems have none. */
BAUTA_API bool bauta_run_locked(const bauta_run *run);
BAUTA_API void bauta_run_free(bauta_run *run);

/* Write a model folder whose weights are the mean of those of `count` others,
 * which have the same tensors; the rest is as in the first of them. */
BAUTA_API bauta_status bauta_model_average(const char *out,
                                           const char *const *folders,
                                           size_t count, bauta_error *err);

/* The config of a new model by name ("gpt2-tiny"), for bauta_text_free(), and
 * the options that go with it. `overrides` is a JSON object whose members
 * replace the config's, or NULL; the size of the vocabulary and the special
 * tokens are the tokenizer's. */
BAUTA_API bauta_status bauta_preset(char **config, bauta_train_options *options,
                                    const char *name,
                                    const bauta_tokenizer *tokenizer,
                                    const char *overrides, bauta_error *err);
/* The names, one after another, and what each is; NULL behind the last. */
BAUTA_API const char *bauta_preset_name(size_t index, const char **summary);

/* ---- 14. Generation ---------------------------------------------------- */

/* When beam search ends, as transformers' early_stopping says it. */
typedef enum bauta_early {
    BAUTA_EARLY_NO = 0,   /* false: when no open beam is likely to do better */
    BAUTA_EARLY_YES = 1,  /* true: as soon as enough have ended */
    BAUTA_EARLY_NEVER = 2 /* "never": when none can */
} bauta_early;

/* Tokens one behind the other. */
typedef struct bauta_word {
    size_t count; /* at least 1 */
    const uint32_t *tokens;
} bauta_word;

#define BAUTA_ENDS_MAX 8
#define BAUTA_BANNED_MAX 32

/* How tokens are chosen. The names and meanings are those of transformers'
 * generation_config.json, and so is the order in which they act. */
typedef struct bauta_generate_options {
    size_t size;       /* set by BAUTA_GENERATE_OPTIONS_INIT */
    size_t max_tokens; /* new ones, at most; 0: no such limit */
    size_t max_length; /* the prompt with them (and the token that starts a
                          target), at most; 0: what the model has room for */
    size_t min_tokens; /* no end before so many new ones */
    size_t min_length; /* and none before the prompt with them is so long */

    float repetition_penalty; /* 1: none */
    size_t no_repeat;         /* no so many tokens in a row twice; 0: may be */
    bool sample;              /* draw, else take the likeliest */
    float temperature;        /* of a draw; 1: as the model says */
    size_t top_k;             /* draw from the k likeliest; 0: from all */
    float top_p;              /* from the likeliest with this sum; 1: all */
    float min_p;   /* from those at least so likely as the likeliest times this;
                      0: all */
    uint64_t seed; /* the draws are a function of it, and of nothing beside the
                      sequence */

    size_t beams; /* 1: no beam search */
    float length_penalty;
    bauta_early early;
    size_t nbest;     /* how many of the beams are wanted; 0: one */
    bool renormalize; /* behind what is forbidden, before scores are added */

    uint32_t start; /* begins the target of an encoder-decoder */
    uint32_t first; /* forced behind the very first token (of a target, behind
                       `start`), or BAUTA_NO_TOKEN */
    uint32_t last;  /* forced where the length ends, or BAUTA_NO_TOKEN */
    size_t end_count;
    uint32_t ends[BAUTA_ENDS_MAX]; /* any of these ends a text */
    size_t banned_count;
    uint32_t banned[BAUTA_BANNED_MAX]; /* never chosen */

    const char *const *stops; /* texts that end it, too; need a tokenizer, and
                                 must live as long as the request runs */
    size_t stop_count;
    const bauta_word *words; /* that may not come: the last token of each is not
                                chosen behind the others. One that is nothing
                                but an end does not count. They must live as
                                long as the request runs */
    size_t word_count;

    size_t sliding_window; /* of a model with rotary positions: every layer sees
                              the last so many tokens, the one that is read
                              among them, as under bauta_mask_window(); so a
                              text may become longer than the model's context
                              (give max_tokens) in bounded memory. The same bits
                              as a model whose config has this sliding_window;
                              a layer whose own window is narrower keeps that.
                              0: none */
} bauta_generate_options;
#define BAUTA_GENERATE_OPTIONS_INIT                                            \
    {                                                                          \
        sizeof(bauta_generate_options), 0, 0, 0, 0, 1.0f, 0, false, 1.0f, 0,   \
            1.0f, 0.0f, 0, 1, 1.0f, BAUTA_EARLY_NO, 0, false, BAUTA_NO_TOKEN,  \
            BAUTA_NO_TOKEN, BAUTA_NO_TOKEN, 0, { 0 }, 0, { 0 }, NULL, 0, NULL, \
            0, 0                                                               \
    }

/* What the model's generation_config.json says, and its config.json where that
 * says nothing. A setting that changes the result and is not known here is an
 * error that names it. Stops and words are the model's, and live as long as it
 * does. */
BAUTA_API bauta_status
bauta_generate_options_load(bauta_generate_options *options,
                            const bauta_model *model, bauta_error *err);
/* All of them as a JSON object, by transformers' names; works like snprintf. */
BAUTA_API size_t bauta_generate_options_json(
    const bauta_generate_options *options, char *text, size_t size);

/* Hear a token as soon as it is chosen: its log-probability, and the text that
 * has become certain with it (NULL without a tokenizer; without what may be the
 * beginning of a stop). A last call has BAUTA_NO_TOKEN and the text that was
 * still waiting. Return false to end this text here. */
typedef bool bauta_hear_fn(void *user, uint32_t token, float logprob,
                           const char *text, size_t length);

/* One text to be made. All arrays are copied. */
typedef struct bauta_request {
    size_t size; /* set by BAUTA_REQUEST_INIT */
    size_t count;
    const uint32_t *tokens; /* the prompt, at least one token; of an
                               encoder-decoder how the target must begin,
                               behind `start`, or nothing */
    size_t source_count;
    const uint32_t *source; /* of an encoder-decoder: what is translated */
    const bauta_generate_options *options; /* NULL: the model's */
    bauta_hear_fn *hear; /* or NULL; not called where there are beams */
    void *user;          /* for hear */
    uint64_t tag;        /* comes back in the result */
} bauta_request;
#define BAUTA_REQUEST_INIT                                           \
    {                                                                \
        sizeof(bauta_request), 0, NULL, 0, NULL, NULL, NULL, NULL, 0 \
    }

typedef enum bauta_finish {
    BAUTA_FINISH_END = 0,    /* a token of `ends` */
    BAUTA_FINISH_STOP = 1,   /* a text of `stops` */
    BAUTA_FINISH_LENGTH = 2, /* max_tokens or max_length */
    BAUTA_FINISH_HEARD = 3,  /* `hear` said so */
    BAUTA_FINISH_CONTEXT = 4 /* the model's context is full: its positions
                                end here, or neither max_tokens nor max_length
                                was given. See sliding_window */
} bauta_finish;
/* "end", "stop", "length", "heard" or "context"; never NULL. */
BAUTA_API const char *bauta_finish_text(bauta_finish finish);

typedef struct bauta_hypothesis {
    size_t count;
    const uint32_t *tokens; /* the new ones, and the end among them */
    const float *logprobs;  /* (count) by the model, before any option acts */
    double score;           /* the sum of the log-probabilities that the search
                               went by; of a beam over its length to the power
                               of the length penalty */
    bauta_finish finish;
    const char *text; /* as it follows the prompt, without the end and the stop;
                         NULL without a tokenizer; NUL-terminated. Ids beyond
                         the tokenizer's, which models with a padded vocabulary
                         may choose, add nothing to it */
    size_t length;
} bauta_hypothesis;

typedef struct bauta_result {
    size_t size; /* sizeof(bauta_result) of the library */
    uint64_t tag;
    size_t prompt; /* tokens of it (or of the source) */
    size_t shared; /* of which so many had been read for another text */
    size_t count;
    const bauta_hypothesis *hypotheses; /* (count) the best one first */
    bauta_status status; /* BAUTA_OK, or why nothing came of it: then there are
                            no hypotheses */
    const char *message; /* and the sentence; "" where nothing is wrong */
} bauta_result;
BAUTA_API void bauta_result_free(bauta_result *result);

/* A generator makes many texts at once: each step runs the model once for all
 * of them, a text leaves when it ends, and one that waits takes its place. What
 * comes out for a request is the same to the bit as if it were alone. Texts
 * that begin alike share what was read. */
typedef struct bauta_generator bauta_generator;

typedef struct bauta_generator_options {
    size_t size;          /* set by BAUTA_GENERATOR_OPTIONS_INIT */
    size_t sequences;     /* that run at once, at most; each beam is one */
    size_t prompt_tokens; /* of prompts or sources read in one step, at most */
    uint64_t cache_bytes; /* keys and values, at most; 0: no limit */
    size_t keep; /* how many ended texts stay in the cache, for others that
                    begin alike */
} bauta_generator_options;
#define BAUTA_GENERATOR_OPTIONS_INIT                    \
    {                                                   \
        sizeof(bauta_generator_options), 32, 2048, 0, 0 \
    }

/* The context, the model and the tokenizer (or NULL) must outlive it; options
 * may be NULL. */
BAUTA_API bauta_status bauta_generator_create(
    bauta_generator **out, bauta_context *context, const bauta_model *model,
    const bauta_tokenizer *tokenizer, const bauta_generator_options *options,
    bauta_error *err);
BAUTA_API void bauta_generator_free(bauta_generator *generator);
/* Put a request in the queue. One that can never run (too long, too large for
 * the cache, options that make no sense) is refused here. */
BAUTA_API bauta_status bauta_generator_add(bauta_generator *generator,
                                           const bauta_request *request,
                                           bauta_error *err);
/* A step: a token more for every text that runs. *left, which may be NULL,
 * receives how many requests have not ended. After a failure all texts are as
 * they were. What is wrong with one text alone (the model says NaN behind it,
 * or its options forbid every token) is no failure of the step: that text ends,
 * its result says why, and the others go on. */
BAUTA_API bauta_status bauta_generator_step(bauta_generator *generator,
                                            size_t *left, bauta_error *err);
/* The next text that has ended, for bauta_result_free(); NULL: none. */
BAUTA_API bauta_result *bauta_generator_take(bauta_generator *generator);
/* Bytes of keys and values now. */
BAUTA_API uint64_t bauta_generator_bytes(const bauta_generator *generator);

/* One request from beginning to end. */
BAUTA_API bauta_status bauta_generate(bauta_context *context,
                                      const bauta_model *model,
                                      const bauta_tokenizer *tokenizer,
                                      const bauta_request *request,
                                      bauta_result **out, bauta_error *err);

/* ---- 15. Looking ------------------------------------------------------- */

typedef enum bauta_look_at {
    BAUTA_LOOK_ENCODER = 0, /* self-attention of the encoder */
    BAUTA_LOOK_DECODER = 1, /* of the decoder */
    BAUTA_LOOK_CROSS = 2    /* of the decoder over the source */
} bauta_look_at;

/* Heads of such an attention; 0 where the model has none. */
BAUTA_API size_t bauta_model_heads(const bauta_model *model, bauta_look_at at);

/* Weights to be seen: those of `rows` queries from `first` on, over all keys,
 * of one layer and head. Rows and keys are those of the batch, padding among
 * them. */
typedef struct bauta_look {
    size_t size; /* set by BAUTA_LOOK_INIT */
    bauta_look_at at;
    size_t layer, head;
    size_t first, rows;
    float *weights; /* (rows, keys); what is hidden is exactly 0, and what is
                       not is not, be it ever so small */
} bauta_look;
#define BAUTA_LOOK_INIT                                          \
    {                                                            \
        sizeof(bauta_look), BAUTA_LOOK_DECODER, 0, 0, 0, 0, NULL \
    }

/* As bauta_model_forward() (outputs may be NULL), and give the weights of
 * attention that were asked for: the kernels never hold them, so those rows are
 * computed again from the queries and keys, under the same plan. No bit of the
 * outputs changes. */
BAUTA_API bauta_status bauta_model_look(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const bauta_outputs *outputs,
    const bauta_look *looks, size_t count, bauta_error *err);

/* ---- 16. Pictures ------------------------------------------------------ */

/* An attention to be seen, its weights and its mask, or a mask alone. */
typedef struct bauta_picture {
    size_t size;       /* set by BAUTA_PICTURE_INIT */
    const char *title; /* NULL: where it is from, such as "decoder, layer 2,
                          head 0"; of a mask alone nothing */
    bauta_look_at at;  /* where the weights are from: what a page offers */
    size_t layer, head;
    size_t rows, columns;          /* queries, keys; at least 1 of each */
    const float *weights;          /* (rows, columns) from 0 to 1; NULL: none
                                      to be seen, the mask alone */
    const bauta_mask *mask;        /* (rows, columns); what it hides must have
                                      the weight 0. NULL: what is exactly 0
                                      is hidden */
    const char *const *row_labels; /* (rows) UTF-8; NULL: numbers */
    const char *const *column_labels; /* (columns) likewise */
} bauta_picture;
#define BAUTA_PICTURE_INIT                                                 \
    {                                                                      \
        sizeof(bauta_picture), NULL, BAUTA_LOOK_DECODER, 0, 0, 0, 0, NULL, \
            NULL, NULL, NULL                                               \
    }

typedef struct bauta_picture_options {
    size_t size;       /* set by BAUTA_PICTURE_OPTIONS_INIT */
    const char *title; /* of the whole; or NULL */
    size_t across;     /* pictures beside each other; 0: chosen. A page shows
                          one at a time */
} bauta_picture_options;
#define BAUTA_PICTURE_OPTIONS_INIT             \
    {                                          \
        sizeof(bauta_picture_options), NULL, 0 \
    }

/* Write pictures to one file, which replaces an older one as a whole or not at
 * all. The end of its name says what it becomes:
 *
 *     .png .svg .pdf   a sheet with all of them. Drawn by cairo; where the
 *                      library was built without, BAUTA_ERR_UNSUPPORTED
 *     .html            a page that shows one at a time, without anything from
 *                      outside; weights are rounded to 16 bits, or to 8 where
 *                      there are more than 3 million, and hidden ones are not
 *                      in it
 *
 * Colours go by the square root of the weight; what is hidden is hatched, which
 * no weight is. Blanks in labels are made visible. Where there are more rows or
 * columns than dots, a dot is the largest of its weights. `options` may be
 * NULL. */
BAUTA_API bauta_status bauta_picture_save(const char *path,
                                          const bauta_picture *pictures,
                                          size_t count,
                                          const bauta_picture_options *options,
                                          bauta_error *err);
/* ---- 17. Audits -------------------------------------------------------- */

/* An audit takes a model and a batch, and tries to catch the library in a lie:
 * it changes what must not be seen and compares bits, and sees to it that what
 * may be seen does change something, so that no check passes for nothing. What
 * must be is worked out from the definitions in this header, pair by pair, and
 * not by the code that is tried.
 *
 * Every check, its pinned value, its name, and what it finds. Append; never
 * renumber. */
#define BAUTA_CHECK_MAP(X)                                                     \
    X(REACH, 0, "reach",                                                       \
      "no output reaches an input that it must not, by any way")               \
    X(SIGHT, 1, "sight", "every layer by itself sees just what it may")        \
    X(TOKENS, 2, "tokens",                                                     \
      "another token changes nothing that must not see it")                    \
    X(POISON, 3, "poison", "NaN in a token gets just where it may be seen")    \
    X(EMPTY, 4, "empty", "a query that sees nothing gets 0 from attention")    \
    X(GRADIENTS, 5, "gradients",                                               \
      "no gradient flows to what an output must not see")                      \
    X(COMPANY, 6, "company", "in a batch a sequence is as it is alone")        \
    X(PADDING, 7, "padding", "padding changes nothing, whatever stands in it") \
    X(STEPS, 8, "steps", "token by token is as all at once")                   \
    X(PIECES, 9, "pieces", "a prompt that is read in pieces is as whole")      \
    X(FORKS, 10, "forks",                                                      \
      "sequences may fork, turn back and change places, as beams do")          \
    X(THREADS, 11, "threads", "any number of threads gives the same bits")     \
    X(ISA, 12, "isa", "any instruction set here gives the same bits")

#define BAUTA_CHECK_ENUM(name, value, word, text) BAUTA_CHECK_##name = value,
typedef enum bauta_check {
    BAUTA_CHECK_MAP(BAUTA_CHECK_ENUM) BAUTA_CHECKS
} bauta_check;

/* The name of a check, and what it finds, in a few words; never NULL. */
BAUTA_API const char *bauta_check_name(bauta_check check);
BAUTA_API const char *bauta_check_text(bauta_check check);

typedef enum bauta_verdict {
    BAUTA_PASSED = 0,
    BAUTA_FAULT = 1,  /* this model, on this machine, breaks the promise */
    BAUTA_SKIPPED = 2 /* there was nothing to try; `message` says why */
} bauta_verdict;

#define BAUTA_NOWHERE SIZE_MAX

/* What came of a check. Of a fault the place, as far as it has one: the others
 * are BAUTA_NOWHERE. Positions count from the start of their sequence. */
typedef struct bauta_finding {
    size_t size; /* sizeof(bauta_finding) of the library */
    bauta_check check;
    bauta_verdict verdict;
    uint64_t compared;        /* rows of numbers, or pairs of a mask */
    double seconds;           /* that it took */
    bauta_look_at at;         /* which attention; of the layers below */
    size_t layer;             /* the first that is wrong, from 0 */
    size_t head;              /* the first head of it that is wrong */
    size_t sequence, query;   /* what is not as it must be */
    size_t key_sequence, key; /* what it sees, or should and does not */
    char message[256];        /* all of it as a sentence */
} bauta_finding;

typedef struct bauta_audit_options {
    size_t size;     /* set by BAUTA_AUDIT_OPTIONS_INIT */
    uint32_t checks; /* bit c: check c; 0: all that there are */
    size_t probes;   /* tokens that are changed, at most; 0: as many as the
                        size of the model allows in a few seconds */
    uint64_t seed;   /* of what they are changed to */
} bauta_audit_options;
#define BAUTA_AUDIT_OPTIONS_INIT             \
    {                                        \
        sizeof(bauta_audit_options), 0, 0, 1 \
    }

/* What came of an audit. */
typedef struct bauta_audit bauta_audit;

/* Audit a model on batches as bauta_model_forward() takes them, with masks and
 * prefixes; at most 4096 rows each. A fault is no error: the status is
 * BAUTA_OK, and the findings tell. The model is only read: what is changed are
 * doubles of it. `options` may be NULL. */
BAUTA_API bauta_status bauta_audit_create(
    bauta_audit **out, bauta_context *context, const bauta_model *model,
    const bauta_batch *source, const bauta_batch *target,
    const bauta_audit_options *options, bauta_error *err);
/* The same on the beginning of a trainer's next batch, for leaks alone (reach,
 * tokens, poison and gradients) unless options say otherwise. It takes a
 * fraction of a step, and the trainer takes the same steps as without it. */
BAUTA_API bauta_status bauta_audit_trainer(bauta_audit **out,
                                           bauta_trainer *trainer,
                                           const bauta_audit_options *options,
                                           bauta_error *err);
BAUTA_API void bauta_audit_free(bauta_audit *audit);

/* Whether no check found a fault. */
BAUTA_API bool bauta_audit_passed(const bauta_audit *audit);
/* The findings, one a check that was asked for, in the order of the map; they
 * live as long as the audit. */
BAUTA_API size_t bauta_audit_findings(const bauta_audit *audit);
BAUTA_API const bauta_finding *bauta_audit_finding(const bauta_audit *audit,
                                                   size_t index);
/* All of them as a JSON object {"passed":...,"findings":[{...},...]}; works
 * like snprintf. */
BAUTA_API size_t bauta_audit_json(const bauta_audit *audit, char *text,
                                  size_t size);

/* The proof without a model: through layers of attention with these masks, the
 * lowest first and each with a residual connection, does a query reach a key
 * that `allowed` hides? All are square and of one size. *leaks tells, and the
 * first such pair comes with the lowest layer behind which it is there. */
typedef struct bauta_leak {
    size_t layer, query, key;
} bauta_leak;
BAUTA_API bauta_status bauta_audit_masks(const bauta_mask *const *masks,
                                         size_t layers,
                                         const bauta_mask *allowed, bool *leaks,
                                         bauta_leak *leak, bauta_error *err);

/* ---- 18. GPUs ---------------------------------------------------------- */

/* Masked attention on an NVIDIA GPU, over memory of the GPU: forward, backward
 * and decoding. A context with the device "cuda", the first GPU that can be
 * used, or "cuda:1", that of CUDA's number 1, serves the calls of this section
 * and no others; other contexts serve all calls but these. What is refused for
 * such a reason is BAUTA_ERR_UNSUPPORTED.
 *
 * What the header promises of masks holds here too: a hidden key or value
 * changes no bit, a query that sees nothing gets out 0, lse -infinity and
 * gradient 0, and the bits of a row depend neither on what lies beside its
 * document nor on the run. They are not the CPU's bits.
 *
 * The library brings CUDA's runtime along and starts without a GPU or its
 * driver. The kernels are for Hopper (H100, H200).
 *
 * How many GPUs can be used: 0 without one, without a driver, and in a library
 * that was built without CUDA. Why, bauta_context_create() says. */
BAUTA_API size_t bauta_gpu_count(void);

/* The GPU's memory, for programs that do not speak CUDA. Sizes are in bytes.
 * What is handed out is aligned to 256 bytes and freed with the same context,
 * which may be done while work that uses it is queued. */
BAUTA_API bauta_status bauta_gpu_alloc(bauta_context *context, void **out,
                                       size_t bytes, bauta_error *err);
BAUTA_API void bauta_gpu_free(bauta_context *context, void *memory);

/* Copy to the GPU, and from it, behind the work that is queued. They return
 * when the copy is done. */
BAUTA_API bauta_status bauta_gpu_put(bauta_context *context, void *to,
                                     const void *from, size_t bytes,
                                     bauta_error *err);
BAUTA_API bauta_status bauta_gpu_get(bauta_context *context, void *to,
                                     const void *from, size_t bytes,
                                     bauta_error *err);

/* Calls below return when their work is queued. Wait until all that is queued
 * on the context's stream is done; what went wrong meanwhile is told here. */
BAUTA_API bauta_status bauta_gpu_wait(bauta_context *context, bauta_error *err);

/* Queue from now on on a stream of the caller's (a cudaStream_t of the
 * context's GPU), which must live as long; NULL is CUDA's default stream, which
 * is what a context begins with. */
BAUTA_API bauta_status bauta_gpu_stream_set(bauta_context *context,
                                            void *stream, bauta_error *err);

/* What tensors hold. Sums are float32 in both.
 *
 *   float32   any shape; plain, for small models and comparisons
 *   bfloat16  on tensor cores: head_dim a multiple of 8, value_dim the same, a
 *             positive scale; tensors aligned to 16 bytes, strides multiples of
 *             8, values below 2^90 in magnitude */
typedef enum bauta_gpu_type {
    BAUTA_GPU_FLOAT32 = 0,
    BAUTA_GPU_BFLOAT16 = 1
} bauta_gpu_type;

/* Rows [first, first + rows) of a mask in the GPU's memory, compiled for the
 * heads of a shape. Make it once for all layers and steps that have the mask;
 * neither mask nor shape is referred to afterwards. What a call writes on the
 * side is in it, too: calls that use it must follow each other on one stream.
 */
typedef struct bauta_gpu_plan bauta_gpu_plan;

/* `backward`: whether it must serve the backward pass, too. */
BAUTA_API bauta_status bauta_gpu_plan_create(
    bauta_gpu_plan **out, bauta_context *context, const bauta_mask *mask,
    size_t first, size_t rows, const bauta_attention *shape,
    bauta_gpu_type type, bool backward, bauta_error *err);
/* It waits until the GPU has done what is queued. */
BAUTA_API void bauta_gpu_plan_free(bauta_gpu_plan *plan);

/* As bauta_attention_forward() and bauta_attention_backward(), over tensors of
 * the plan's type in the GPU's memory. Strides are in elements; heads and dims
 * of the shape are the plan's. lse is float32; the forward pass takes NULL.
 * Sums have one order: the same inputs give the same bits. */
BAUTA_API bauta_status bauta_gpu_attention_forward(
    bauta_context *context, bauta_gpu_plan *plan, const bauta_attention *shape,
    const void *q, const void *k, const void *v, void *out, float *lse,
    bauta_error *err);
BAUTA_API bauta_status bauta_gpu_attention_backward(
    bauta_context *context, bauta_gpu_plan *plan, const bauta_attention *shape,
    const void *q, const void *k, const void *v, const void *out,
    const float *lse, const void *dout, void *dq, void *dk, void *dv,
    bauta_error *err);

/* Keys and values of many sequences in pages of `page_keys` keys, 64 or a
 * larger power of two. The element of page p, key head h, key j and column c is
 * at p * page + h * head + j * token + c of k and of v alike; strides of 0
 * stand for (pages, kv_heads, page_keys, head_dim). What no query sees may hold
 * anything. */
typedef struct bauta_gpu_pages {
    size_t size;       /* set by BAUTA_GPU_PAGES_INIT */
    const void *k, *v; /* the GPU's */
    size_t pages, page_keys;
    size_t page, head, token;
} bauta_gpu_pages;
#define BAUTA_GPU_PAGES_INIT                                \
    {                                                       \
        sizeof(bauta_gpu_pages), NULL, NULL, 0, 64, 0, 0, 0 \
    }

/* The queries of one sequence: rows [first, first + rows) of a mask over its
 * keys, in decoding the last one. Key j is the key j % page_keys of the page
 * pages[j / page_keys]; pages of which no row sees anything are not looked up.
 * Rows that see something have the origin 0, for pages hold one sequence. */
typedef struct bauta_gpu_sequence {
    const bauta_mask *mask;
    size_t first, rows;
    const uint32_t *pages; /* the caller's memory, not the GPU's */
} bauta_gpu_sequence;

/* What a step of decoding reads. One step may serve many calls, all layers of a
 * model that share a mask, one behind the other on one stream. The bits of a
 * row depend on its query, on the keys and values that it sees and on where
 * they lie in the sequence: not on pages, on other rows or sequences, or on the
 * GPU's size. They are the bits that bauta_gpu_attention_forward() gives the
 * row over the same keys, in float32 and in bfloat16, so a prompt may be taken
 * at once, in pieces or token by token. In bfloat16 heads have any multiple of
 * 8 columns up to 256. */
typedef struct bauta_gpu_decode bauta_gpu_decode;

BAUTA_API bauta_status bauta_gpu_decode_create(bauta_gpu_decode **out,
                                               bauta_context *context,
                                               const bauta_attention *shape,
                                               size_t page_keys,
                                               bauta_gpu_type type,
                                               bauta_error *err);
BAUTA_API void bauta_gpu_decode_free(bauta_gpu_decode *decode);

/* Describe the next step, whose queries lie sequence after sequence. Nothing
 * that is given here is referred to afterwards. After a failure there is no
 * step. */
BAUTA_API bauta_status bauta_gpu_decode_step(
    bauta_context *context, bauta_gpu_decode *decode,
    const bauta_gpu_sequence *sequences, size_t count, bauta_error *err);

/* Attention of the step's queries over the pages; q, out and lse as in
 * bauta_gpu_attention_forward(), strides of keys and values as in `pages`. */
BAUTA_API bauta_status bauta_gpu_attention_decode(
    bauta_context *context, bauta_gpu_decode *decode,
    const bauta_attention *shape, const void *q, const bauta_gpu_pages *pages,
    void *out, float *lse, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
