/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h - the state of an audit, its checks and the faults they find.
 *
 * A check runs on a clone of the model, which may have fewer layers or ablated
 * heads. So the check that finds a fault also serves to locate it
 * (fault_location.c). */
#ifndef BT_AUDIT_H
#define BT_AUDIT_H

#include "audit/model_clone.h"
#include "audit/oracle.h"

typedef struct bt_audit_state {
    bauta_context *context;
    const bauta_model *model;
    bt_probe_inputs inputs;
    size_t probes; /* positions to perturb, at most, in each stack */
    uint64_t seed;
    uint64_t compared; /* rows compared by the current check */
    float *scratch;    /* (2, width) */
} bt_audit_state;

/* A fault, in rows of the probe inputs. BAUTA_NO_INDEX: not known. */
typedef struct bt_fault {
    bool found;
    bool target;             /* `row` is in the decoder, else in the encoder */
    size_t level;            /* number of layers applied to the hidden state */
    size_t row;              /* the query */
    bool key_target;         /* the side of `key` */
    size_t key;              /* the input that leaks, or is missing */
    bool should_see;         /* the query should see the key, and does not */
    char detail[96];         /* appended to the message, or "" */
    bauta_attention_kind at; /* set by bt_fault_locate(), with layer and head */
    size_t layer, head;
} bt_fault;
#define BT_FAULT_INIT                                                          \
    {                                                                          \
        .level = BAUTA_NO_INDEX, .row = BAUTA_NO_INDEX, .key = BAUTA_NO_INDEX, \
        .layer = BAUTA_NO_INDEX, .head = BAUTA_NO_INDEX                        \
    }

/* A fault in a row, with no key yet. */
static inline bt_fault bt_fault_at(bool target, size_t level, size_t row)
{
    bt_fault fault = BT_FAULT_INIT;
    fault.found = true;
    fault.target = target;
    fault.level = level;
    fault.row = row;
    return fault;
}

/* Run a check. Returns BAUTA_ERR_UNSUPPORTED if the check does not apply to
 * this model or batch, with the reason in *err. Any other status but BAUTA_OK
 * means that the audit itself failed. */
typedef bauta_status bt_check_fn(bt_audit_state *a, bt_model_clone *clone,
                                 bt_fault *fault, bauta_error *err);

bt_check_fn bt_check_reachability, bt_check_layer_visibility,
    bt_check_token_change, bt_check_nan_poison, bt_check_fully_masked,
    bt_check_gradients, bt_check_batch_invariance, bt_check_padding,
    bt_check_decode_steps, bt_check_chunked_prefill, bt_check_forks,
    bt_check_threads, bt_check_isa;

/* Keep the first of two faults: encoder before decoder, then the lower level,
 * the smaller row and the smaller key. */
void bt_fault_keep_first(bt_fault *fault, const bt_fault *other);

/* Find attention, layer and head of a fault that `check` has found. */
bauta_status bt_fault_locate(bt_audit_state *a, bt_check_fn *check,
                             bt_fault *fault, bauta_error *err);

/* Give the clone an embedding table with one row per input, source first, and
 * a last row of NaN. bt_probe_inputs_number_rows() makes the ids for it. */
bauta_status bt_per_row_embedding(bt_model_clone *clone,
                                  const bt_probe_inputs *inputs,
                                  bauta_error *err);

/* The hidden states of both stacks for a batch, and the logits if asked. */
typedef struct bt_hidden_states {
    size_t width, vocabulary;
    size_t rows[2], levels[2]; /* encoder, decoder; levels: layers + 1 or 0 */
    float *data[2];            /* (levels, rows, width) */
    float *logits;             /* (output rows, vocabulary), or NULL */
} bt_hidden_states;

/* Allocate for batches of this size; then run any number of times. */
bauta_status bt_hidden_states_init(bt_hidden_states *s,
                                   const bt_model_clone *clone,
                                   const bauta_batch *source,
                                   const bauta_batch *target, bool logits,
                                   bauta_error *err);
void bt_hidden_states_release(bt_hidden_states *s);
bauta_status bt_hidden_states_run(bt_hidden_states *s, bauta_context *context,
                                  const bt_model_clone *clone,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err);

/* Both of the above for unchanged probe inputs. */
bauta_status bt_hidden_states_compute(bt_hidden_states *s,
                                      bauta_context *context,
                                      const bt_model_clone *clone,
                                      const bt_probe_inputs *inputs,
                                      bool logits, bauta_error *err);

static inline const float *bt_hidden_state(const bt_hidden_states *s,
                                           bool target, size_t level,
                                           size_t row)
{
    return s->data[target] + (level * s->rows[target] + row) * s->width;
}

#endif
