/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/core.h - errors, memory, contexts, masks, attention and KV caches. The
 * conventions of the interface are in bauta.h. */
#ifndef BAUTA_CORE_H
#define BAUTA_CORE_H

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
#define BAUTA_VERSION_MINOR 2
#define BAUTA_VERSION_PATCH 0

/* "0.2.0", the version of the loaded library. The macros above are the version
 * of the header. */
BAUTA_API const char *bauta_version(void);

/* How the BAUTA_..._INIT values are built: the size of the struct, the fields
 * whose default is not 0, and 0 for all others. C has designated initializers;
 * C++ gets a function, bauta_X_init(). */
#ifdef __cplusplus
#define BAUTA_DEFAULT(field, value) init.field = value;
#define BAUTA_INIT(type, defaults) type##_init()
#define BAUTA_SIZED(type, defaults)          \
    static inline type type##_init()         \
    {                                        \
        type init = type();                  \
        init.size = sizeof(init);            \
        defaults(BAUTA_DEFAULT) return init; \
    }
#else
#define BAUTA_DEFAULT(field, value) , .field = value
#define BAUTA_INIT(type, defaults)                   \
    {                                                \
        .size = sizeof(type) defaults(BAUTA_DEFAULT) \
    }
#define BAUTA_SIZED(type, defaults)
#endif
#define BAUTA_NO_DEFAULTS(X)

/* ---- Statuses and errors ----------------------------------------------- */

/* Every status, its pinned value and its meaning. Append; never renumber. */
#define BAUTA_STATUS_MAP(X)                             \
    X(OK, 0, "success")                                 \
    X(ERR_ARGUMENT, 1, "argument out of range")         \
    X(ERR_NOMEM, 2, "out of memory")                    \
    X(ERR_IO, 3, "cannot read or write a file")         \
    X(ERR_UNSUPPORTED, 4, "not supported here")         \
    X(ERR_NOT_FINITE, 5, "a result is NaN or infinite") \
    X(ERR_FORMAT, 6, "a file is malformed")             \
    X(ERR_DEVICE, 7, "a device failed")                 \
    X(ERR_RANK, 8, "another rank failed")

#define BAUTA_STATUS_ENUM(name, value, text) BAUTA_##name = value,
typedef enum bauta_status { BAUTA_STATUS_MAP(BAUTA_STATUS_ENUM) } bauta_status;

/* The meaning of a status in a few words. Never NULL. */
BAUTA_API const char *bauta_status_text(bauta_status status);

/* The one of `count` words that is closest to `word` by edit distance, for "did
 * you mean" in a program's messages. NULL if none is within two edits or a
 * third of the word's length. */
BAUTA_API const char *
bauta_closest_word(const char *word, const char *const *words, size_t count);

/* Why a call failed. Owned by the caller, written only on failure. */
typedef struct bauta_error {
    bauta_status status;
    char message[256]; /* names the value: "mask has 12 keys, K has 16" */
} bauta_error;

/* ---- Memory ------------------------------------------------------------ */

/* The library's allocator. `alloc` returns `size` bytes aligned to `align` (a
 * power of two), or NULL; `free` takes a pointer returned by alloc. Both may be
 * called from several threads at once. */
typedef struct bauta_allocator {
    void *(*alloc)(void *user, size_t align, size_t size);
    void (*free)(void *user, void *memory);
    void *user;
} bauta_allocator;

/* Replace the allocator of the whole process; NULL restores the C library's.
 * Call it while no bauta object exists and no bauta call runs. */
BAUTA_API void bauta_allocator_set(const bauta_allocator *allocator);

/* ---- Element types ----------------------------------------------------- */

/* Every element type of the library and of files. A call says which it takes.
 */
typedef enum bauta_dtype {
    BAUTA_FLOAT32 = 0,
    BAUTA_BFLOAT16 = 1,
    BAUTA_INT8 = 2, /* as weights: -127 to 127 with a float32 scale for each
                       output row */
    BAUTA_FLOAT16 = 3,
    BAUTA_FLOAT64 = 4,
    BAUTA_BOOL = 5,
    BAUTA_UINT8 = 6,
    BAUTA_INT16 = 7,
    BAUTA_UINT16 = 8,
    BAUTA_INT32 = 9,
    BAUTA_UINT32 = 10,
    BAUTA_INT64 = 11,
    BAUTA_UINT64 = 12,
    BAUTA_FLOAT8_E5M2 = 13,
    BAUTA_FLOAT8_E4M3 = 14
} bauta_dtype;

/* ---- Contexts ---------------------------------------------------------- */

/* A parallel loop of the program that embeds the library: call
 * task(job, index) once for every index from 0 to count - 1, and return when
 * all calls have returned. It may use any threads, run the calls in any order
 * and run all of them on the calling thread. `task` returns normally and may
 * block while other calls of the same loop run. */
typedef void bauta_parallel_for_fn(void *user, size_t count,
                                   void (*task)(void *job, size_t index),
                                   void *job);

typedef struct bauta_options {
    size_t size;
    int threads;        /* 0: one per core */
    const char *isa;    /* "c", "avx2" or "avx512"; NULL: the best one here */
    const char *device; /* "cpu", "cuda" or "cuda:1" (see bauta/gpu.h); NULL:
                           "cpu" */
    /* Runs the parallel loops of the context, with counts up to `threads`;
     * NULL: the context starts threads of its own, and creating it fails if
     * they cannot be started. */
    bauta_parallel_for_fn *parallel_for;
    void *parallel_for_user; /* first argument of parallel_for */
    /* The type that models compute in: BAUTA_FLOAT32, or BAUTA_BFLOAT16 with
     * float32 sums on a GPU. */
    bauta_dtype dtype;
} bauta_options;
#define BAUTA_OPTIONS_INIT BAUTA_INIT(bauta_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_options, BAUTA_NO_DEFAULTS)

/* A context holds threads, the selected kernels and a workspace that grows to
 * the largest call and is then reused. Results do not depend on it: every
 * thread count and every instruction set gives the same bits. */
typedef struct bauta_context bauta_context;

/* options NULL: the defaults. */
BAUTA_API bauta_status bauta_context_create(bauta_context **out,
                                            const bauta_options *options,
                                            bauta_error *err);
BAUTA_API void bauta_context_free(bauta_context *context);

/* The instruction set in use ("c", "avx2" or "avx512"). */
BAUTA_API const char *bauta_context_isa(const bauta_context *context);
BAUTA_API int bauta_context_threads(const bauta_context *context);
/* "cpu", or the GPU with its number: "cuda:0". */
BAUTA_API const char *bauta_context_device(const bauta_context *context);

/* ---- Masks ------------------------------------------------------------- */

/* A mask gives every query the keys it may see, as sorted, disjoint, half-open
 * spans [lo, hi). It is immutable. Its memory is proportional to queries and
 * spans, never to queries x keys. Either size may be 0; neither may exceed
 * 2^31 - 1.
 *
 * Query i of n over m keys has position i + m - n, so the last query is aligned
 * with the last key, and decoding one token is the last row. If n > m the first
 * rows are before every key.
 *
 * A batch is a mask: sequences are packed back to back on one token axis, and
 * the mask separates them. Each row has an origin, the key from which its
 * positions and its arithmetic are counted: the first key of its document, or
 * 0. The bits of a row do not depend on the documents around it. */
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

/* A query sees those of the first `sinks` keys that are not after its own
 * position. Attention sinks are window OR sinks. */
BAUTA_API bauta_status bauta_mask_sinks(bauta_mask **out, size_t queries,
                                        size_t keys, size_t sinks,
                                        bauta_error *err);

/* A padded batch: sequence b holds queries [b * query_time, ...) and keys
 * [b * key_time, ...), of which the first query_lengths[b] and key_lengths[b]
 * are real. query_lengths NULL uses key_lengths; the times must then be equal.
 * A real query sees the real keys of its sequence; a padding query sees
 * nothing. Each sequence is a document with its own origin. */
BAUTA_API bauta_status bauta_mask_lengths(bauta_mask **out, size_t batch,
                                          size_t query_time, size_t key_time,
                                          const size_t *query_lengths,
                                          const size_t *key_lengths,
                                          bauta_error *err);

/* Packed documents: the query_lengths[d] rows of document d see exactly its
 * key_lengths[d] keys. key_lengths NULL uses query_lengths (self-attention).
 * Each document has its own origin. */
BAUTA_API bauta_status bauta_mask_documents(bauta_mask **out, size_t documents,
                                            const size_t *query_lengths,
                                            const size_t *key_lengths,
                                            bauta_error *err);

/* Packed documents, each of them causal: what bauta_mask_and() makes of
 * bauta_mask_documents() and bauta_mask_causal(), in one call. */
BAUTA_API bauta_status bauta_mask_causal_documents(bauta_mask **out,
                                                   size_t documents,
                                                   const size_t *lengths,
                                                   bauta_error *err);

/* Any masks as documents of one batch: rows and keys of masks[d] follow those
 * of masks[d - 1], and documents do not see each other. Each keeps its own
 * alignment, so a batch of decoding steps is the pack of their last rows. */
BAUTA_API bauta_status bauta_mask_pack(bauta_mask **out, size_t documents,
                                       const bauta_mask *const *masks,
                                       bauta_error *err);

/* Any boolean matrix: `visible` is (queries, keys), nonzero = visible. */
BAUTA_API bauta_status bauta_mask_dense(bauta_mask **out, size_t queries,
                                        size_t keys,
                                        const unsigned char *visible,
                                        bauta_error *err);

/* Any function: `row` writes up to `capacity` spans of a query, sorted,
 * disjoint, not empty and within the keys, and returns how many the row has. If
 * that exceeds the capacity, it is called again with enough. */
typedef size_t bauta_mask_row_fn(void *user, size_t query, bauta_span *spans,
                                 size_t capacity);
BAUTA_API bauta_status bauta_mask_rows(bauta_mask **out, size_t queries,
                                       size_t keys, bauta_mask_row_fn *row,
                                       void *user, bauta_error *err);

/* A pair is visible in both masks, in either one, or not in this one. Sizes
 * must be equal. The origin of a row is the later one for AND, the earlier one
 * for OR and 0 for NOT, so no visible key precedes it. */
BAUTA_API bauta_status bauta_mask_and(bauta_mask **out, const bauta_mask *a,
                                      const bauta_mask *b, bauta_error *err);
BAUTA_API bauta_status bauta_mask_or(bauta_mask **out, const bauta_mask *a,
                                     const bauta_mask *b, bauta_error *err);
BAUTA_API bauta_status bauta_mask_not(bauta_mask **out, const bauta_mask *a,
                                      bauta_error *err);

/* Visibility through two layers: i sees k if i sees some j in `upper` that sees
 * k in `lower`. The keys of upper are the queries of lower. Origins are 0. */
BAUTA_API bauta_status bauta_mask_compose(bauta_mask **out,
                                          const bauta_mask *upper,
                                          const bauta_mask *lower,
                                          bauta_error *err);

/* The inputs that can influence each output of `layers` layers of
 * self-attention with residual connections, so every row also reaches itself.
 * The mask must be square. */
BAUTA_API bauta_status bauta_mask_reach(bauta_mask **out,
                                        const bauta_mask *mask, size_t layers,
                                        bauta_error *err);

/* Parse a mask expression for `queries` over `keys`:
 *
 *     "causal"    "causal & window(8) | sinks(2)"    "!(causal | prefix(4))"
 *
 * `|` is OR, `&` is AND and binds tighter, `!` is NOT and binds tightest. Masks
 * are all, none, causal, window(n), prefix(n), sinks(n); documents(3, 2), or
 * documents(2:3, 1:4) if queries and keys differ, whose sums must be the
 * sizes; lengths(3, 1), sequences padded to one time; reach(mask, layers) and
 * compose(upper, lower) of square masks. A syntax error names its column and
 * what was expected there. */
BAUTA_API bauta_status bauta_mask_parse(bauta_mask **out, const char *text,
                                        size_t queries, size_t keys,
                                        bauta_error *err);

BAUTA_API void bauta_mask_free(bauta_mask *mask);

/* Queries. Indices must be in range: query < queries, key < keys. */
BAUTA_API size_t bauta_mask_queries(const bauta_mask *mask);
BAUTA_API size_t bauta_mask_keys(const bauta_mask *mask);
BAUTA_API bool bauta_mask_visible(const bauta_mask *mask, size_t query,
                                  size_t key);
/* The spans of a row; valid as long as the mask. */
BAUTA_API const bauta_span *bauta_mask_row(const bauta_mask *mask, size_t query,
                                           size_t *count);
BAUTA_API size_t bauta_mask_origin(const bauta_mask *mask, size_t query);
/* The number of visible pairs: the unit of useful work. */
BAUTA_API uint64_t bauta_mask_pairs(const bauta_mask *mask);
/* Whether no query sees a key after its own position. If one does, the pointers
 * receive the first such pair; they may be NULL. */
BAUTA_API bool bauta_mask_is_causal(const bauta_mask *mask, size_t *query,
                                    size_t *key);

/* One line for each query, one character for each key: '#' visible, '.' hidden;
 * or a JSON object {"queries":n,"keys":m,"pairs":p,"rows":[[[lo,hi],...],...]},
 * with "origins":[...] if one is not 0. Both work like snprintf: at most `size`
 * bytes are written, NUL included, and the length of the whole text is
 * returned. */
BAUTA_API size_t bauta_mask_text(const bauta_mask *mask, char *text,
                                 size_t size);
BAUTA_API size_t bauta_mask_json(const bauta_mask *mask, char *text,
                                 size_t size);

/* ---- Plans ------------------------------------------------------------- */

/* A plan is a mask compiled for the kernels: the key blocks that each tile of
 * queries visits, which of them are fully visible, and the transpose of both
 * for the backward pass. Create it once and use it for every layer and step
 * that has the mask. It keeps no reference to the mask.
 *
 * It covers the rows [first, first + rows) of the mask: all of them for
 * training, the new ones for a decoding step. Row 0 of the plan is row `first`
 * of the mask; keys are those of the mask. */
typedef struct bauta_plan bauta_plan;

BAUTA_API bauta_status bauta_plan_create(bauta_plan **out,
                                         const bauta_mask *mask, size_t first,
                                         size_t rows, bauta_error *err);
BAUTA_API void bauta_plan_free(bauta_plan *plan);

/* ---- Attention --------------------------------------------------------- */

/* What is done to the scores of an attention before their softmax: a softcap
 * and one of three forms of additive mask M with any real numbers, of which at
 * most one is given. For query i of head h and a visible key j,
 *
 *     s = q . k * scale
 *     s = softcap * tanh(s / softcap)        if there is a softcap
 *     s = s + M
 *
 *     M = tensor[row * tensor_row + h * tensor_head + j]
 *     M = slopes[h] * (j - p)                ALiBi
 *     M = table[d - first_distance][h]       d = j - p, limited to the table
 *
 * Here j is counted from the origin of the query's row, and so is p, the
 * position of the query. A tensor is broadcast over heads by tensor_head 0,
 * over queries by tensor_row 0, and over the sequences of a packed batch by
 * tensor_rows. Slopes and tables are never expanded to queries x keys.
 *
 * The mask alone decides what is read: elements of M for hidden pairs are never
 * read, and NaN there changes no bit. -infinity for a visible pair gives the
 * key weight 0, but it is still read, so NaN in its value reaches the output;
 * hide it by the mask instead. A query whose scores are all -infinity gets out
 * 0 and lse -infinity, like one that sees nothing. +infinity and NaN give NaN.
 *
 * The backward pass adds the gradients of M to dtensor and dtable, which the
 * caller clears first. Their sums have a fixed order, so the number of threads
 * changes no bit; dtensor is computed by one thread for each key head, or by
 * one thread if the tensor is broadcast over heads. On a GPU rows of dtensor
 * must not overlap: tensor_row is 0, or at least as large as a row is long. */
typedef struct bauta_attention_bias {
    size_t size;
    float softcap;       /* 0: none */
    const float *tensor; /* or NULL */
    size_t tensor_row, tensor_head;
    const uint32_t *tensor_rows; /* (rows) the row of the tensor that a query
                                    uses; NULL: its row in the plan */
    const float *slopes;         /* (heads) or NULL */
    const float *table;          /* (distances, heads) or NULL */
    size_t distances;            /* rows of the table, at least 1 */
    ptrdiff_t first_distance;    /* of the table's first row */
    const uint32_t *positions;   /* (rows) of slopes and table; NULL: as a mask
                                    aligns them, the last query with the last
                                    key, which holds for packed sequences whose
                                    queries and keys are equally many */
    float *dtensor; /* gradient, with the strides of tensor; NULL: not wanted */
    float *dtable;  /* (distances, heads); NULL: not wanted */
} bauta_attention_bias;
#define BAUTA_ATTENTION_BIAS_INIT \
    BAUTA_INIT(bauta_attention_bias, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_attention_bias, BAUTA_NO_DEFAULTS)

/* The shape of an attention. Head h of token t of a tensor starts at
 * t * X_token + h * X_head; its head_dim (q, k) or value_dim (v, out) floats
 * are contiguous. A stride of 0 selects the dense layout (tokens, heads, dim).
 * Gradients have the layout of the tensor they belong to, dout that of out.
 * Inputs may overlap; outputs may not. */
typedef struct bauta_attention_shape {
    size_t size;
    size_t heads;     /* query heads */
    size_t kv_heads;  /* divides heads: query head h uses key head
                         h / (heads / kv_heads); 0: heads */
    size_t head_dim;  /* of queries and keys, 1 to 256 */
    size_t value_dim; /* of values and outputs, 1 to 256; 0: head_dim */
    float scale;      /* 0: 1 / sqrt(head_dim) */
    size_t q_token, q_head, k_token, k_head;
    size_t v_token, v_head, out_token, out_head;
    const bauta_attention_bias *bias; /* NULL: none. On a GPU its arrays are in
                                         the GPU's memory */
} bauta_attention_shape;
#define BAUTA_ATTENTION_SHAPE_DEFAULTS(X) X(heads, 1) X(head_dim, 64)
#define BAUTA_ATTENTION_SHAPE_INIT \
    BAUTA_INIT(bauta_attention_shape, BAUTA_ATTENTION_SHAPE_DEFAULTS)
BAUTA_SIZED(bauta_attention_shape, BAUTA_ATTENTION_SHAPE_DEFAULTS)

/* out = softmax(q k^T * scale + M over the visible keys) v, where M is the
 * shape's bias.
 *
 * lse (queries, heads), which may be NULL, receives the natural logarithm of
 * the sum of exponentials of each row's scaled scores; the backward pass needs
 * it. A query that sees nothing gets out 0 and lse -infinity. Hidden keys and
 * values are never read: NaN or infinity there changes no bit. */
BAUTA_API bauta_status bauta_attention_forward(
    bauta_context *context, const bauta_plan *plan,
    const bauta_attention_shape *shape, const float *q, const float *k,
    const float *v, float *out, float *lse, bauta_error *err);

/* Gradients of a scalar with respect to q, k, v and M, from dout, its gradient
 * with respect to out. out and lse are those of the forward pass. Gradients are
 * overwritten, not accumulated. A query that sees nothing and a key that no
 * query sees get 0. */
BAUTA_API bauta_status bauta_attention_backward(
    bauta_context *context, const bauta_plan *plan,
    const bauta_attention_shape *shape, const float *q, const float *k,
    const float *v, const float *out, const float *lse, const float *dout,
    float *dq, float *dk, float *dv, bauta_error *err);

/* ---- KV caches --------------------------------------------------------- */

/* The keys and values of one sequence, laid out so that decoding streams them
 * at memory speed and prefill reads the same bytes. Attention over a cache
 * gives the same bits as attention over the keys and values that were
 * appended. */
typedef struct bauta_kv_cache bauta_kv_cache;

/* Holds at most `capacity` tokens, up to 2^31 - 1, with the kv_heads, head_dim
 * and value_dim of the shape. Memory is allocated in pages of 64 tokens as they
 * are needed, and data never moves. */
BAUTA_API bauta_status bauta_kv_cache_create(bauta_kv_cache **out,
                                             const bauta_attention_shape *shape,
                                             size_t capacity, bauta_error *err);
BAUTA_API void bauta_kv_cache_free(bauta_kv_cache *cache);

/* Append `tokens` keys and values, read through the strides of the shape. */
BAUTA_API bauta_status bauta_kv_cache_append(bauta_kv_cache *cache,
                                             const bauta_attention_shape *shape,
                                             size_t tokens, const float *k,
                                             const float *v, bauta_error *err);

/* The number of tokens held. */
BAUTA_API size_t bauta_kv_cache_tokens(const bauta_kv_cache *cache);
/* Drop all but the first `tokens`, the last of which must not be evicted. */
BAUTA_API bauta_status bauta_kv_cache_truncate(bauta_kv_cache *cache,
                                               size_t tokens, bauta_error *err);

/* Evict the first `tokens`: pages that lie wholly before are freed. The other
 * tokens keep their numbers. With a window this bounds the memory of a sequence
 * of any length. */
BAUTA_API bauta_status bauta_kv_cache_evict(bauta_kv_cache *cache,
                                            size_t tokens, bauta_error *err);
/* A second cache with the same contents, for beams and shared prefixes. Pages
 * are shared and copied on write. Caches that share pages serve one call at a
 * time. */
BAUTA_API bauta_status bauta_kv_cache_fork(bauta_kv_cache **out,
                                           const bauta_kv_cache *cache,
                                           bauta_error *err);

/* As bauta_attention_forward(), over the keys and values of a cache: key j is
 * token j. The cache must hold every key that a row of the plan sees. Rows
 * whose origin is not 0 are rejected, since a cache holds one sequence. */
BAUTA_API bauta_status bauta_attention_cached(
    bauta_context *context, const bauta_plan *plan,
    const bauta_attention_shape *shape, const float *q,
    const bauta_kv_cache *cache, float *out, float *lse, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
