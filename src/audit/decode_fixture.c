/* SPDX-License-Identifier: Apache-2.0 */
/* decode_fixture.c - sequences with a KV cache. */
#include "audit/decode_fixture.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* ---- create and release ------------------------------------------------ */

static bauta_status sources_encode(bt_decode_fixture *fixture,
                                   const bt_probe_input *source,
                                   bauta_error *err)
{
    size_t n = source->count;
    const uint32_t **ids = bt_alloc_zero(n, sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "sources", n);
    for (size_t s = 0; s < n; s++)
        ids[s] = source->ids + source->starts[s];
    bauta_status status = bt_decode_session_encode(
        fixture->session, n, ids, source->lengths, fixture->cross_kv, err);
    bt_free(ids);
    return status;
}

static bool fixture_alloc(bt_decode_fixture *fixture, size_t sources,
                          size_t sequences)
{
    fixture->count = sequences;
    fixture->cross_kv = bt_alloc_zero(sources, sizeof(*fixture->cross_kv));
    fixture->sequences = bt_alloc_zero(sequences, sizeof(*fixture->sequences));
    fixture->steps = bt_alloc_zero(sequences, sizeof(*fixture->steps));
    fixture->logits =
        bt_alloc_zero(bt_size_mul(sequences, fixture->stride), sizeof(float));
    return fixture->cross_kv && fixture->sequences && fixture->steps &&
           fixture->logits;
}

bauta_status bt_decode_fixture_init(bt_decode_fixture *fixture,
                                    bt_audit_state *a,
                                    const bt_model_clone *clone,
                                    const bt_probe_inputs *inputs, size_t each,
                                    bauta_error *err)
{
    size_t count = inputs->target.count;
    *fixture =
        (bt_decode_fixture){ .vocabulary =
                                 clone->original->model->config.vocab_size };
    // A replaced embedding changes the vocabulary that decoding assumes, but
    // not the output head. Leave room so that rows of logits cannot overlap.
    fixture->stride = fixture->vocabulary;
    if (clone->model.config.vocab_size != fixture->vocabulary)
        fixture->stride += clone->model.config.vocab_size + 1;
    bauta_status status = bt_decode_session_create(
        &fixture->session, a->context, &clone->handle, 0, err);
    if (!status && !fixture_alloc(fixture, count, count * each))
        status = bt_fail_memory(err, "sequences of an audit", count * each);
    if (!status && inputs->source.count)
        status = sources_encode(fixture, &inputs->source, err);
    for (size_t i = 0; !status && i < fixture->count; i++)
        status = bt_sequence_create(&fixture->sequences[i], fixture->session,
                                    fixture->cross_kv[i / each], err);
    for (size_t s = 0; fixture->cross_kv && s < count; s++) {
        if (fixture->cross_kv[s])
            bt_cross_kv_release(fixture->cross_kv[s]); // the sequences hold it
        fixture->cross_kv[s] = NULL;
    }
    if (status)
        bt_decode_fixture_release(fixture);
    return status;
}

void bt_decode_fixture_release(bt_decode_fixture *fixture)
{
    for (size_t i = 0; fixture->sequences && i < fixture->count; i++)
        if (fixture->sequences[i])
            bt_sequence_free(fixture->sequences[i]);
    bt_free(fixture->sequences);
    bt_free(fixture->cross_kv);
    bt_free(fixture->steps);
    bt_free(fixture->logits);
    if (fixture->session)
        bt_decode_session_free(fixture->session);
    *fixture = (bt_decode_fixture){ 0 };
}

/* ---- inputs ------------------------------------------------------------ */

bauta_status bt_decode_fixture_supported(const bt_audit_state *a,
                                         bauta_error *err)
{
    const bt_probe_inputs *r = &a->inputs;
    if (!r->target.count)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "an encoder reads everything at once");
    for (size_t s = 0; s < r->target.count; s++)
        if (!r->target.lengths[s] || (r->source.count && !r->source.lengths[s]))
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "sequence %zu has no tokens to begin with", s);
    return BAUTA_OK;
}

bauta_status bt_probe_inputs_unmasked(bt_probe_inputs *to,
                                      const bt_probe_inputs *from,
                                      bauta_error *err)
{
    bt_probe_inputs bare = *from;
    bare.source.mask = bare.target.mask = bare.cross = (bt_bit_matrix){ 0 };
    bare.source.prefixes = bare.target.prefixes = NULL;
    return bt_probe_inputs_copy(to, &bare, err);
}

/* ---- decoding ---------------------------------------------------------- */

size_t bt_chunk_size_one(size_t step)
{
    (void)step;
    return 1;
}

/* Small and large chunks, some across the end of a page of the KV cache. */
size_t bt_chunk_size_mixed(size_t step)
{
    static const size_t sizes[] = { 5, 1, 60, 2, 1, 16 };
    return sizes[step % BT_LEN(sizes)];
}

/* The next chunk of each sequence that has tokens left; how many have. */
static size_t steps_fill(bt_decode_fixture *fixture, const bt_probe_input *r,
                         size_t chunk)
{
    size_t count = 0;
    for (size_t s = 0; s < fixture->count; s++) {
        size_t done = bt_sequence_tokens(fixture->sequences[s]);
        if (done == r->lengths[s])
            continue;
        fixture->steps[count] = (bt_decode_input){
            .sequence = fixture->sequences[s],
            .count = bt_size_min(chunk, r->lengths[s] - done),
            .ids = r->ids + r->starts[s] + done,
            .logits = fixture->logits + count * fixture->stride
        };
        count++;
    }
    return count;
}

static bool logits_right(const float *got, size_t row,
                         const bt_hidden_states *want, const bt_oracle *oracle,
                         size_t poisoned, bool *should_see)
{
    if (want)
        return memcmp(got, want->logits + row * want->vocabulary,
                      want->vocabulary * sizeof(*got)) == 0;
    *should_see = bt_oracle_reaches(oracle, true, oracle->decoder_layers, row,
                                    true, poisoned);
    return *should_see == (bool)isnan(got[0]);
}

bauta_status bt_decode_fixture_run(bt_decode_fixture *fixture,
                                   bt_audit_state *a,
                                   const bt_probe_inputs *inputs,
                                   bt_chunk_size_fn *chunk_size,
                                   const bt_hidden_states *want,
                                   const bt_oracle *oracle, size_t poisoned,
                                   bt_fault *fault, bauta_error *err)
{
    const bt_probe_input *r = &inputs->target;
    for (size_t step = 0;; step++) {
        size_t count = steps_fill(fixture, r, chunk_size(step));
        if (!count)
            return BAUTA_OK;
        bauta_status status = bt_decode_session_append(
            fixture->session, fixture->steps, count, NULL, NULL, err);
        if (status)
            return status;
        for (size_t f = 0; f < count; f++) {
            const bt_decode_input *chunk = &fixture->steps[f];
            size_t row = (size_t)(chunk->ids - r->ids) + chunk->count - 1;
            bt_fault found = bt_fault_at(true, BAUTA_NO_INDEX, row);
            a->compared++;
            if (!logits_right(chunk->logits, row, want, oracle, poisoned,
                              &found.should_see))
                bt_fault_keep_first(fault, &found);
        }
    }
}

/* ---- the key of a fault ------------------------------------------------ */

static bauta_status key_check(bt_audit_state *a, bt_model_clone *clone,
                              const bt_probe_inputs *inputs,
                              bt_chunk_size_fn *chunk_size, size_t key,
                              bt_fault *fault, bauta_error *err)
{
    bt_decode_fixture fixture;
    bt_oracle oracle;
    bauta_status status =
        bt_oracle_init(&oracle, &clone->model.config, inputs, err);
    if (status)
        return status;
    status = bt_decode_fixture_init(&fixture, a, clone, inputs, 1, err);
    if (!status) {
        status = bt_decode_fixture_run(&fixture, a, inputs, chunk_size, NULL,
                                       &oracle, key, fault, err);
        bt_decode_fixture_release(&fixture);
    }
    bt_oracle_release(&oracle);
    return status;
}

bauta_status bt_fault_find_key(bt_audit_state *a, size_t encoder,
                               size_t decoder, bt_chunk_size_fn *chunk_size,
                               bt_fault *fault, bauta_error *err)
{
    bt_probe_inputs inputs;
    bt_model_clone clone;
    bt_fault found = BT_FAULT_INIT;
    size_t sources = a->inputs.source.rows, key;
    bauta_status status = bt_probe_inputs_unmasked(&inputs, &a->inputs, err);
    if (status)
        return status;
    bt_probe_inputs_number_rows(&inputs);
    for (key = 0; !status && !found.found && key < inputs.target.rows; key++) {
        status = bt_model_clone_init(&clone, a->model, err);
        if (status)
            break;
        bt_model_clone_set_depth(&clone, encoder, decoder);
        status = bt_per_row_embedding(&clone, &a->inputs, err);
        inputs.target.ids[key] = (uint32_t)(sources + inputs.target.rows);
        if (!status)
            status =
                key_check(a, &clone, &inputs, chunk_size, key, &found, err);
        inputs.target.ids[key] = (uint32_t)(sources + key);
        bt_model_clone_release(&clone);
    }
    if (found.found) {
        fault->row = found.row;
        fault->key = key - 1;
        fault->key_target = true;
        fault->should_see = found.should_see;
    }
    bt_probe_inputs_release(&inputs);
    return status;
}
