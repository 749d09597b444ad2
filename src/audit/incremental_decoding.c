/* SPDX-License-Identifier: Apache-2.0 */
/* incremental_decoding.c - decoding through the KV cache equals the parallel
 * pass: token by token, in chunks, and with forked and truncated sequences. */
#include "audit/decode_fixture.h"
#include "audit/perturbation.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- tokens and chunks ------------------------------------------------- */

static bauta_status chunks_check(bt_audit_state *a, bt_model_clone *clone,
                                 bt_chunk_size_fn *chunk_size, bt_fault *fault,
                                 bauta_error *err)
{
    bt_probe_inputs inputs;
    bt_hidden_states want = { 0 };
    bt_decode_fixture fixture;
    bauta_status status = bt_decode_fixture_supported(a, err);
    if (!status)
        status = bt_probe_inputs_unmasked(&inputs, &a->inputs, err);
    if (status)
        return status;
    status =
        bt_hidden_states_compute(&want, a->context, clone, &inputs, true, err);
    if (!status)
        status = bt_decode_fixture_init(&fixture, a, clone, &inputs, 1, err);
    if (!status) {
        status = bt_decode_fixture_run(&fixture, a, &inputs, chunk_size, &want,
                                       NULL, 0, fault, err);
        bt_decode_fixture_release(&fixture);
    }
    bt_hidden_states_release(&want);
    bt_probe_inputs_release(&inputs);
    return status;
}

bauta_status bt_check_decode_steps(bt_audit_state *a, bt_model_clone *clone,
                                   bt_fault *fault, bauta_error *err)
{
    return chunks_check(a, clone, bt_chunk_size_one, fault, err);
}

bauta_status bt_check_chunked_prefill(bt_audit_state *a, bt_model_clone *clone,
                                      bt_fault *fault, bauta_error *err)
{
    return chunks_check(a, clone, bt_chunk_size_mixed, fault, err);
}

/* ---- forks ------------------------------------------------------------- */

enum { BEAMS = 3 };

/* The parent of each beam at a step, as a beam search would choose it. */
static const size_t parents[][BEAMS] = {
    { 0, 1, 2 }, { 1, 0, 0 }, { 2, 1, 1 }, { 0, 2, 2 }, { 1, 2, 0 },
};

/* The beams of all inputs. Each has its tokens and a digest of the logits after
 * every token; both are copied when a beam forks. */
typedef struct beam_set {
    bt_audit_state *a;
    const bt_model_clone *clone;
    const bt_probe_input *r;
    bt_decode_fixture fixture;
    size_t longest;
    uint32_t *ids;      /* (beams, longest) */
    uint64_t *digests;  /* (beams, longest) */
    uint32_t *next_ids; /* (beams, longest) swapped in when all have forked */
    uint64_t *next_digests;
} beam_set;

/* FNV-1a. */
static uint64_t digest(const float *numbers, size_t count)
{
    const unsigned char *bytes = (const unsigned char *)numbers;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count * sizeof(*numbers); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Replace every beam of an input by a fork of its parent. */
static bauta_status beams_fork(beam_set *t, size_t s, size_t step,
                               bauta_error *err)
{
    const size_t *from = parents[step % BT_LEN(parents)];
    bt_sequence *forks[BEAMS] = { NULL }, **old;
    bauta_status status = BAUTA_OK;
    old = t->fixture.sequences + s * BEAMS;
    for (size_t b = 0; !status && b < BEAMS; b++)
        status = bt_sequence_fork(&forks[b], old[from[b]], err);
    for (size_t b = 0; b < BEAMS; b++) {
        bt_sequence *unused = status ? forks[b] : old[b];
        if (unused)
            bt_sequence_free(unused);
        if (status)
            continue;
        old[b] = forks[b];
        size_t to = (s * BEAMS + b) * t->longest;
        size_t of = (s * BEAMS + from[b]) * t->longest;
        memcpy(t->next_ids + to, t->ids + of, t->longest * sizeof(*t->ids));
        memcpy(t->next_digests + to, t->digests + of,
               t->longest * sizeof(*t->digests));
    }
    return status;
}

static bauta_status all_fork(beam_set *t, size_t step, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t s = 0; !status && s < t->r->count; s++)
        status = beams_fork(t, s, step, err);
    uint32_t *ids = t->ids;
    uint64_t *digests = t->digests;
    t->ids = t->next_ids;
    t->digests = t->next_digests;
    t->next_ids = ids;
    t->next_digests = digests;
    return status;
}

/* Append two wrong tokens to the first beam and truncate it again. If a sliding
 * window has dropped keys that are needed, go on with a fork instead. */
static bauta_status beam_truncate(beam_set *t, size_t s, size_t step,
                                  bauta_error *err)
{
    const bt_model_config *print = &t->clone->model.config;
    bt_sequence **at = &t->fixture.sequences[s * BEAMS], *kept;
    uint32_t ids[2] = { t->r->ids[0], t->r->ids[0] };
    if (step + 2 > print->max_positions || !print->decoder.layers)
        return BAUTA_OK;
    bauta_status status = bt_sequence_fork(&kept, *at, err);
    if (status)
        return status;
    ids[0] = bt_different_token(t->a, ids[0], 977);
    bt_decode_input wrong = { .sequence = *at, .count = 2, .ids = ids };
    status = bt_decode_session_append(t->fixture.session, &wrong, 1, NULL, NULL,
                                      err);
    if (!status && !bt_sequence_truncate(*at, step)) {
        bt_sequence *unused = *at;
        *at = kept;
        kept = unused;
    }
    bt_sequence_free(kept);
    return status;
}

static bauta_status all_truncate(beam_set *t, size_t step, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t s = 0; !status && s < t->r->count; s++)
        if (step < t->r->lengths[s])
            status = beam_truncate(t, s, step, err);
    return status;
}

/* Append one token to every beam of every input that has one left. Beam 0 gets
 * the input's token, the others a different one. */
static bauta_status beams_step(beam_set *t, size_t step, bauta_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < t->fixture.count; i++) {
        size_t s = i / BEAMS, b = i % BEAMS;
        if (step >= t->r->lengths[s])
            continue;
        uint32_t id = t->r->ids[t->r->starts[s] + step];
        uint32_t *to = &t->ids[i * t->longest + step];
        *to = b ? bt_different_token(t->a, id, step * BEAMS + b) : id;
        t->fixture.steps[count] =
            (bt_decode_input){ .sequence = t->fixture.sequences[i],
                               .count = 1,
                               .ids = to,
                               .logits = t->fixture.logits +
                                         count * t->fixture.stride };
        count++;
    }
    bauta_status status = bt_decode_session_append(
        t->fixture.session, t->fixture.steps, count, NULL, NULL, err);
    for (size_t f = 0; !status && f < count; f++) {
        size_t at = (size_t)(t->fixture.steps[f].ids - t->ids);
        t->digests[at] =
            digest(t->fixture.steps[f].logits, t->fixture.vocabulary);
    }
    return status;
}

static bauta_status beams_decode(beam_set *t, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t step = 0; !status && step < t->longest; step++) {
        // Beams that have ended are forked as well, which does no harm.
        status = all_fork(t, step, err);
        if (!status && (step == t->longest / 2 || step == 3))
            status = all_truncate(t, step, err);
        if (!status)
            status = beams_step(t, step, err);
    }
    return status;
}

/* ---- against the parallel pass ----------------------------------------- */

/* The tokens of the beams, as inputs of the parallel pass. */
static bauta_status beams_inputs(const beam_set *t, const bt_probe_inputs *from,
                                 bt_probe_inputs *to, bauta_error *err)
{
    size_t *list = bt_alloc_zero(t->fixture.count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of beams", t->fixture.count);
    for (size_t i = 0; i < t->fixture.count; i++)
        list[i] = i / BEAMS;
    bauta_status status =
        bt_probe_inputs_select(to, from, list, t->fixture.count, err);
    bt_free(list);
    for (size_t i = 0; !status && i < t->fixture.count; i++)
        if (to->target.lengths[i])
            memcpy(to->target.ids + to->target.starts[i],
                   t->ids + i * t->longest,
                   to->target.lengths[i] * sizeof(*t->ids));
    return status;
}

static void beams_compare(const beam_set *t, const bt_probe_inputs *all,
                          const bt_hidden_states *want, bt_fault *fault)
{
    for (size_t row = 0; row < all->target.rows; row++) {
        size_t i = all->target.sequence[row];
        size_t at = bt_probe_input_position(&all->target, row);
        t->a->compared++;
        if (t->digests[i * t->longest + at] ==
            digest(want->logits + row * want->vocabulary, want->vocabulary))
            continue;
        bt_fault found =
            bt_fault_at(true, BAUTA_NO_INDEX, t->r->starts[i / BEAMS] + at);
        bt_fault_keep_first(fault, &found);
    }
}

static bool beams_alloc(beam_set *t)
{
    for (size_t s = 0; s < t->r->count; s++)
        t->longest = bt_size_max(t->longest, t->r->lengths[s]);
    size_t count = bt_size_mul(t->fixture.count, t->longest);
    t->ids = bt_alloc_zero(count, sizeof(*t->ids));
    t->next_ids = bt_alloc_zero(count, sizeof(*t->next_ids));
    t->digests = bt_alloc_zero(count, sizeof(*t->digests));
    t->next_digests = bt_alloc_zero(count, sizeof(*t->next_digests));
    return t->ids && t->next_ids && t->digests && t->next_digests;
}

static bauta_status beams_check(beam_set *t, const bt_model_clone *clone,
                                const bt_probe_inputs *inputs, bt_fault *fault,
                                bauta_error *err)
{
    bt_probe_inputs all;
    bt_hidden_states want = { 0 };
    if (!beams_alloc(t))
        return bt_fail_memory(err, "the tokens of beams", t->longest);
    bauta_status status = beams_decode(t, err);
    if (!status)
        status = beams_inputs(t, inputs, &all, err);
    if (status)
        return status;
    status =
        bt_hidden_states_compute(&want, t->a->context, clone, &all, true, err);
    if (!status)
        beams_compare(t, &all, &want, fault);
    bt_hidden_states_release(&want);
    bt_probe_inputs_release(&all);
    return status;
}

bauta_status bt_check_forks(bt_audit_state *a, bt_model_clone *clone,
                            bt_fault *fault, bauta_error *err)
{
    bt_probe_inputs inputs;
    beam_set t = { .a = a, .clone = clone };
    bauta_status status = bt_decode_fixture_supported(a, err);
    if (!status)
        status = bt_probe_inputs_unmasked(&inputs, &a->inputs, err);
    if (status)
        return status;
    t.r = &inputs.target;
    status = bt_decode_fixture_init(&t.fixture, a, clone, &inputs, BEAMS, err);
    if (!status)
        status = beams_check(&t, clone, &inputs, fault, err);
    bt_free(t.ids);
    bt_free(t.next_ids);
    bt_free(t.digests);
    bt_free(t.next_digests);
    bt_decode_fixture_release(&t.fixture);
    bt_probe_inputs_release(&inputs);
    return status;
}
