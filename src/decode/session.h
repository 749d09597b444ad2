/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - the sequences being decoded, their KV cache, and one forward pass
 * for all of them.
 *
 * A sequence is the keys and values of the tokens that the decoder has read, in
 * every layer. Appending a token computes the last row of the mask that the
 * model was trained with, so the logits equal those of the parallel pass bit
 * for bit, independent of the other inputs of the call and of how a prompt is
 * chunked.
 *
 * Keys and values are kept in pages of 64 tokens. Forked sequences share pages
 * until one writes (copy-on-write). With a window, of a layer or of a sequence,
 * pages are released once no later token can see them. The keys and values of
 * a source are computed once and shared by all sequences that decode from it.
 * All pages come from one bounded pool.
 *
 * A session, its sequences and their sources are not thread-safe: one call at a
 * time. */
#ifndef BT_SESSION_H
#define BT_SESSION_H

#include "bauta.h"

typedef struct bt_decode_session bt_decode_session;

/* The model must have a decoder. Context and model outlive the session. `bytes`
 * bounds all pages together; 0: no bound. */
bauta_status bt_decode_session_create(bt_decode_session **out,
                                      bauta_context *context,
                                      const bauta_model *model, uint64_t bytes,
                                      bauta_error *err);
/* All sequences and sources must have been released. */
void bt_decode_session_free(bt_decode_session *session);

/* Bytes of pages: the most that a sequence of `tokens` tokens with a source of
 * `source` tokens can need, however it is chunked; the bytes in use; and the
 * bound (0: none). The bytes in use never exceed the sum of the costs of all
 * sequences, forks included. */
uint64_t bt_decode_session_cost(const bt_decode_session *session, size_t tokens,
                                size_t source);
uint64_t bt_decode_session_used(const bt_decode_session *session);
uint64_t bt_decode_session_limit(const bt_decode_session *session);

/* ---- sources ----------------------------------------------------------- */

/* The keys and values of cross-attention for one source, in every layer. */
typedef struct bt_cross_kv bt_cross_kv;

/* Encode `count` sources in one pass. Release each out[i] with
 * bt_cross_kv_release(). On failure all are NULL. */
bauta_status bt_decode_session_encode(bt_decode_session *session, size_t count,
                                      const uint32_t *const *ids,
                                      const size_t *lengths, bt_cross_kv **out,
                                      bauta_error *err);
void bt_cross_kv_release(bt_cross_kv *cross_kv);

/* ---- sequences --------------------------------------------------------- */

typedef struct bt_sequence bt_sequence;

/* Create an empty sequence. It holds a reference to the source's keys and
 * values, which are NULL for a model without an encoder. */
bauta_status bt_sequence_create(bt_sequence **out, bt_decode_session *session,
                                bt_cross_kv *cross_kv, bauta_error *err);
/* Fork a sequence. Pages are shared, not copied. */
bauta_status bt_sequence_fork(bt_sequence **out, const bt_sequence *sequence,
                              bauta_error *err);
void bt_sequence_free(bt_sequence *sequence);

/* Set a sliding window for all layers of an empty sequence: a token sees itself
 * and the `window` - 1 tokens before it, as in bauta_mask_window(), or fewer
 * where a layer's own window is narrower. 0: none. Forks inherit it. */
void bt_sequence_set_window(bt_sequence *sequence, size_t window);

size_t bt_sequence_tokens(const bt_sequence *sequence);
/* Remove all but the first `tokens` tokens; a shorter sequence is unchanged.
 * False, and nothing is changed, if a window has already released keys that the
 * next token would see. */
bool bt_sequence_truncate(bt_sequence *sequence, size_t tokens);

/* ---- appending --------------------------------------------------------- */

typedef struct bt_decode_input {
    bt_sequence *sequence; /* each at most once in a call */
    size_t count;          /* at least 1 */
    const uint32_t *ids;   /* (count); or NULL: */
    /* One token, which is in a row of a tensor on the session's device. Then
     * all inputs of the call have such, in consecutive rows. */
    const struct bt_tensor *ids_tensor; /* (rows, 1) uint32 */
    size_t ids_row;
    /* The logits after the last token go to host memory (vocabulary), or to a
     * row of a tensor on the session's device; both NULL: they are not
     * computed. */
    float *logits;
    const struct bt_tensor *logits_tensor; /* (rows, vocabulary) float32 */
    size_t logits_row;
} bt_decode_input;

/* Append tokens to sequences. On failure all sequences are unchanged. Adjacent
 * inputs with the same source read its keys once, and adjacent inputs with
 * contiguous logits are one matrix product. `then` (or NULL) puts more on the
 * context's stream, which belongs to the step: if it fails, so does the call.
 */
typedef bauta_status bt_decode_then_fn(void *user, bauta_error *err);
bauta_status bt_decode_session_append(bt_decode_session *session,
                                      const bt_decode_input *inputs,
                                      size_t count, bt_decode_then_fn *then,
                                      void *user, bauta_error *err);

#endif
