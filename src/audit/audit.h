/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h - an audit, inside.
 *
 * A trial runs one check on a double, which may have been cut short or had
 * heads taken out; so the same trial first tells that there is a fault and then
 * where it comes from (place.c). */
#ifndef BT_AUDIT_H
#define BT_AUDIT_H

#include "audit/double.h"
#include "audit/law.h"

typedef struct bt_auditing {
    bauta_context *context;
    const bauta_model *model;
    bt_readings read;
    size_t probes; /* at most, of each side */
    uint64_t seed;
    uint64_t compared; /* by the check that runs */
    float *row;        /* (2, width) scratch */
} bt_auditing;

/* A fault, in rows of the readings. */
typedef struct bt_fault {
    bool found;
    bool target;      /* the stack and side of `row`: the decoder's? */
    size_t level;     /* hidden states behind so many layers; BAUTA_NOWHERE */
    size_t row;       /* or BAUTA_NOWHERE */
    bool key_target;  /* the side of `key` */
    size_t key;       /* or BAUTA_NOWHERE */
    bool blind;       /* it should see the key, and does not */
    char detail[96];  /* more of it, or "" */
    bauta_look_at at; /* and of the place, once it is known: */
    size_t layer, head;
} bt_fault;
#define BT_FAULT_INIT                                                       \
    {                                                                       \
        .level = BAUTA_NOWHERE, .row = BAUTA_NOWHERE, .key = BAUTA_NOWHERE, \
        .layer = BAUTA_NOWHERE, .head = BAUTA_NOWHERE                       \
    }

/* Runs a check. BAUTA_ERR_UNSUPPORTED: there is nothing to try, and *err says
 * why. Otherwise what is not BAUTA_OK is an error of the audit. */
typedef bauta_status bt_trial(bt_auditing *a, bt_double *d, bt_fault *fault,
                              bauta_error *err);

bt_trial bt_try_reach, bt_try_sight, bt_try_tokens, bt_try_poison, bt_try_empty,
    bt_try_gradients, bt_try_company, bt_try_padding, bt_try_steps,
    bt_try_pieces, bt_try_forks, bt_try_threads, bt_try_isa;

/* Keep the earlier of two faults: the encoder's, of the lower layer, the
 * smaller row and key. */
void bt_fault_keep(bt_fault *fault, const bt_fault *other);

/* Find layer, attention and head of a fault that `trial` has found. */
bauta_status bt_fault_place(bt_auditing *a, bt_trial *trial, bt_fault *fault,
                            bauta_error *err);

/* The inputs to be changed, spread over a side: number n of count. */
size_t bt_probe_count(const bt_auditing *a, const bt_reading *r);
size_t bt_probe_row(const bt_auditing *a, const bt_reading *r, size_t n);

/* A token of another embedding. */
uint32_t bt_other_token(const bt_auditing *a, uint32_t id, size_t salt);

/* A table for a double with a row for each input, those of the source first,
 * and one behind them that is NaN. */
bauta_status bt_poison_table(bt_double *d, const bt_readings *read,
                             bauta_error *err);

/* Hidden states of both stacks, and logits where they are asked for, of a
 * batch. */
typedef struct bt_states {
    size_t width, vocabulary;
    size_t rows[2], levels[2]; /* of encoder and decoder; 0 levels: none */
    float *data[2];            /* (levels, rows, width) */
    float *logits;             /* (rows of the top, vocabulary), or NULL */
} bt_states;

bauta_status bt_states_init(bt_states *s, const bt_double *d,
                            const bauta_batch *source,
                            const bauta_batch *target, bool logits,
                            bauta_error *err);
void bt_states_release(bt_states *s);
/* As large as the batches; then run as often as one likes. */
bauta_status bt_states_run(bt_states *s, bauta_context *context,
                           const bt_double *d, const bauta_batch *source,
                           const bauta_batch *target, bauta_error *err);

/* Run readings as they are, from the first word to the last. */
bauta_status bt_states_of(bt_states *s, bauta_context *context,
                          const bt_double *d, const bt_readings *read,
                          bool logits, bauta_error *err);

static inline const float *bt_states_row(const bt_states *s, bool target,
                                         size_t level, size_t row)
{
    return s->data[target] + (level * s->rows[target] + row) * s->width;
}

#endif
