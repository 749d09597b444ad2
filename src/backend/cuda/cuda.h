/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - masked attention on an NVIDIA GPU, seen from C.
 *
 * One kind of GPU so far: Hopper (sm_90a). Tensors are bfloat16 in the GPU's
 * memory, laid out as bauta_attention_shape says; sums are float32. What the
 * CPU kernels promise of masks holds here too: a hidden key or value changes no
 * bit, an empty row gives 0 and -infinity, and a row's bits depend neither on
 * the tile it falls into nor on what lies beside its document, and are the same
 * in the forward pass and in decoding (softmax.h says in which order the sums
 * are made). They are not the CPU's bits: the tensor cores sum in an order of
 * their own. Weights are
 * not normalised before they are summed, so values must stay below 2^90 in
 * magnitude, or an output may overflow.
 *
 * Heads have any multiple of 8 up to 256 columns. What is computed is the next
 * multiple of 64: columns that a head lacks are zeros that cost time and are
 * never stored. */
#ifndef BT_CUDA_H
#define BT_CUDA_H

#include "bauta.h"
#include "mask/decode_sequence.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan in the GPU's memory, for one shape. It also holds what a launch
 * writes on the side, so it serves one launch at a time: launches and updates
 * of it must follow each other on one stream. */
typedef struct bt_cuda_plan bt_cuda_plan;

/* How many rows the tiles of a plan have for this head size; 0 when there is no
 * kernel for it. */
size_t bt_cuda_tile_rows(size_t head_dim);

/* A plan for the current device and the heads of `shape`, for the backward
 * pass, too, or for the forward pass alone. It has no rows yet. */
bauta_status bt_cuda_plan_create(bt_cuda_plan **out,
                                 const bauta_attention_shape *shape,
                                 bool backward, bauta_error *err);
void bt_cuda_plan_free(bt_cuda_plan *plan);

/* Let the plan be for rows [first, first + rows) of a mask, which is not
 * referred to afterwards. Returns when the copy is queued on `stream`, and
 * allocates only what is larger than it ever was: a training step may update
 * its plan for every batch. `tile_rows`: at most so many rows in a tile (0: as
 * many as the kernels have); smaller tiles give the same bits and are slower.
 * After an error the plan has no rows. */
bauta_status bt_cuda_plan_update(bt_cuda_plan *plan, const bauta_mask *mask,
                                 size_t first, size_t rows, size_t tile_rows,
                                 void *stream, bauta_error *err);

/* Make the lists of the backward pass, unless they are there. The next forward
 * pass does that, too, after its kernels have been queued, so that they do not
 * wait for it; else the backward pass. */
bauta_status bt_cuda_plan_complete(bt_cuda_plan *plan, void *stream,
                                   bauta_error *err);

/* The backward pass has a kernel for dQ and one for dK and dV, in seven
 * products, or one for each of the three with heads over 128 columns, in eight.
 * It also has one for all gradients, in five, which is faster for dense
 * documents and sums dQ, dK and dV in another order. So whether a document is
 * dense is a constant of the library: its keys are seen by
 * bt_cuda_dense_queries() queries or more on average, and by none of another
 * origin. It depends on the document's mask alone, not on the plan. Query heads
 * of 65 columns or more that share a key head are worked on at once in dense
 * documents of bt_cuda_split_rows() queries, unless all of them see all keys.
 * Their sums of dK and dV are added pairwise: those of heads 0 and 1, of 2 and
 * 3, then of these. In other documents they follow each other in one sum. */
size_t bt_cuda_dense_queries(size_t head_dim);

/* For this limit of dense documents. */
size_t bt_cuda_split_rows(size_t head_dim, size_t dense_queries);

/* Another limit from the next update on, for checks and benches; SIZE_MAX: no
 * document is dense. */
void bt_cuda_plan_set_dense(bt_cuda_plan *plan, size_t queries);

/* bauta_attention_forward in bfloat16, on `stream` (a cudaStream_t; NULL is
 * the default one). All pointers are the device's; q, k, v and out must be
 * aligned to 16 bytes and their strides multiples of 8 elements. lse may be
 * NULL. Returns when the work is queued. */
bauta_status bt_attention_forward_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention_shape *shape, const uint16_t *q,
    const uint16_t *k, const uint16_t *v, uint16_t *out, float *lse,
    void *stream, bauta_error *err);

/* bauta_attention_backward in bfloat16, on `stream`. out and lse are those of
 * the forward pass; dout lies like out, and dq, dk and dv like q, k and v. All
 * of them must be aligned to 16 bytes, but for lse. The plan must be one for
 * the backward pass.
 *
 * Every sum has one fixed order: the same inputs give the same bits from run to
 * run. Those of a row or a key depend neither on how the plan is cut into tiles
 * nor on what lies beside its document. (Where a plan has only some of a mask's
 * rows, so have the sums over rows.) Weights and their gradients are rounded to
 * bfloat16 for the products with them; all sums are float32.
 *
 * A row that sees nothing gets dq 0, a key that nobody sees dk and dv 0. NaN or
 * infinity in a position that is hidden from a row or key changes no bit of its
 * gradients; where it is seen, they become NaN: a q, dout or k that is not
 * finite makes all gradients of those NaN who see it. Returns when the work is
 * queued. */
bauta_status bt_attention_backward_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention_shape *shape, const uint16_t *q,
    const uint16_t *k, const uint16_t *v, const uint16_t *out, const float *lse,
    const uint16_t *dout, uint16_t *dq, uint16_t *dk, uint16_t *dv,
    void *stream, bauta_error *err);

/* ---- decoding: a few queries over a cache ------------------------------- */

/* Keys and values of many sequences, in the GPU's memory and in pages of
 * `page_keys` keys, 64 or a larger power of two. The element of page p, key
 * head h, key j and column c is at p * page + h * head + j * token + c of k and
 * of v. Strides of 0 stand for (pages, kv_heads, page_keys, head_dim),
 * where the keys of a head lie together; others must be multiples of 8. k and v
 * are aligned to 16 bytes. What no row sees may hold anything. */
typedef struct bt_cuda_pages {
    const void *k, *v;
    size_t pages, page_keys;
    size_t page, head, token;
    /* What was queued since the step was described writes no keys and values
     * but those of the step's own tokens, which are the last ones of each
     * sequence from that of its first query on. So all others may be read
     * while the kernels before the attention still run. */
    bool early_reads;
} bt_cuda_pages;

/* What a step of decoding reads, as a list in the GPU's memory: only tiles of
 * 64 keys of which a row sees something. One step may serve many launches (all
 * layers of a model that share a mask), on one stream, one after the other.
 *
 * A row's bits depend on its query, the keys and values that it sees and where
 * they lie in the sequence: not on the pages, on the other rows or sequences of
 * the step or on the GPU's size. They are those of the forward pass over the
 * same keys. */
typedef struct bt_cuda_decode bt_cuda_decode;

/* For the current device and the heads of `shape`. */
bauta_status bt_cuda_decode_create(bt_cuda_decode **out,
                                   const bauta_attention_shape *shape,
                                   size_t page_keys, bauta_error *err);
void bt_cuda_decode_free(bt_cuda_decode *decode);

/* Describe the next step. It is copied on `stream`, after the launches that
 * were queued there; nothing given here is referred to afterwards. */
bauta_status bt_cuda_decode_step(bt_cuda_decode *decode,
                                 const bt_decode_sequence *sequences,
                                 size_t count, void *stream, bauta_error *err);

/* Attention of the step's queries, sequence after sequence, over the pages. q,
 * out and lse as in bt_attention_forward_bf16_cuda (of `shape` the strides of
 * keys and values are not looked at). Returns when the work is queued. */
bauta_status bt_attention_decode_bf16_cuda(bt_cuda_decode *decode,
                                           const bauta_attention_shape *shape,
                                           const uint16_t *q,
                                           const bt_cuda_pages *pages,
                                           uint16_t *out, float *lse,
                                           void *stream, bauta_error *err);

/* ---- float32 ------------------------------------------------------------ */

/* Rows [first, first + rows) of a mask in the GPU's memory. The mask is not
 * referred to afterwards. */
typedef struct bt_cuda_rows bt_cuda_rows;
bauta_status bt_cuda_rows_create(bt_cuda_rows **out, const bauta_mask *mask,
                                 size_t first, size_t rows, bauta_error *err);
void bt_cuda_rows_free(bt_cuda_rows *rows);

/* The queries of a step of decoding, over pages of `page_keys` keys. */
bauta_status bt_cuda_rows_of_step(bt_cuda_rows **out,
                                  const bt_decode_sequence *sequences,
                                  size_t count, size_t page_keys,
                                  bauta_error *err);
/* The same for the next step of decoding on a stream: in the memory of the
 * last one, or in new memory if *rows is NULL. */
bauta_status bt_cuda_rows_next_step(bt_cuda_rows **rows,
                                    const bt_decode_sequence *sequences,
                                    size_t count, size_t page_keys,
                                    void *stream, bauta_error *err);

/* bauta_attention_forward and bauta_attention_backward in float32, for tests
 * and small models: any mask, any shape, on any GPU, and not fast. All pointers
 * are the device's; lse may be NULL in the forward pass. Gradients are written,
 * not added to; those of a key that nobody sees are 0. They return when the
 * work is queued. */
bauta_status bt_attention_forward_f32_cuda(const bt_cuda_rows *rows,
                                           const bauta_attention_shape *shape,
                                           const float *q, const float *k,
                                           const float *v, float *out,
                                           float *lse, void *stream,
                                           bauta_error *err);
bauta_status bt_attention_backward_f32_cuda(const bt_cuda_rows *rows,
                                            const bauta_attention_shape *shape,
                                            const float *q, const float *k,
                                            const float *v, const float *out,
                                            const float *lse, const float *dout,
                                            float *dq, float *dk, float *dv,
                                            void *stream, bauta_error *err);

/* Decoding in float32, over rows of a step: the same bits as those of the
 * forward pass over the same keys in a row. */
bauta_status bt_attention_decode_f32_cuda(const bt_cuda_rows *rows,
                                          const bauta_attention_shape *shape,
                                          const float *q,
                                          const bt_cuda_pages *pages,
                                          float *out, float *lse, void *stream,
                                          bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
