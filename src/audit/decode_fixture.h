/* SPDX-License-Identifier: Apache-2.0 */
/* decode_fixture.h - sequences with a KV cache, for the checks of incremental
 * decoding. */
#ifndef BT_DECODE_FIXTURE_H
#define BT_DECODE_FIXTURE_H

#include "audit/audit.h"
#include "decode/session.h"

typedef struct bt_decode_fixture {
    bt_decode_session *session;
    size_t count;           /* sequences */
    bt_cross_kv **cross_kv; /* (inputs) used while it is created */
    bt_sequence **sequences;
    bt_decode_input *steps; /* (count) arguments of a step */
    float *logits;          /* (count, stride) */
    size_t vocabulary, stride;
} bt_decode_fixture;

/* Encode each source and create `each` empty sequences per input. Those of
 * input s begin at s * each. */
bauta_status bt_decode_fixture_init(bt_decode_fixture *fixture,
                                    bt_audit_state *a,
                                    const bt_model_clone *clone,
                                    const bt_probe_inputs *inputs, size_t each,
                                    bauta_error *err);
void bt_decode_fixture_release(bt_decode_fixture *fixture);

/* BAUTA_ERR_UNSUPPORTED if the model or batch cannot be decoded. */
bauta_status bt_decode_fixture_supported(const bt_audit_state *a,
                                         bauta_error *err);

/* Copy the inputs without masks and prefixes, which decoding does not have. */
bauta_status bt_probe_inputs_unmasked(bt_probe_inputs *to,
                                      const bt_probe_inputs *from,
                                      bauta_error *err);

/* Append chunk_size(step) tokens to all sequences together until they end, and
 * compare the logits after each chunk with those of the parallel pass in
 * `want`. With `want` NULL, row `poisoned` has a NaN embedding and the logits
 * must be NaN in exactly the rows that it reaches. */
typedef size_t bt_chunk_size_fn(size_t step);
bauta_status bt_decode_fixture_run(bt_decode_fixture *fixture,
                                   bt_audit_state *a,
                                   const bt_probe_inputs *inputs,
                                   bt_chunk_size_fn *chunk_size,
                                   const bt_hidden_states *want,
                                   const bt_oracle *oracle, size_t poisoned,
                                   bt_fault *fault, bauta_error *err);

size_t bt_chunk_size_one(size_t step);
size_t bt_chunk_size_mixed(size_t step);

/* Find the key of a fault of incremental decoding, by NaN in one token after
 * another. The model is reduced to so many layers. */
bauta_status bt_fault_find_key(bt_audit_state *a, size_t encoder,
                               size_t decoder, bt_chunk_size_fn *chunk_size,
                               bt_fault *fault, bauta_error *err);

#endif
