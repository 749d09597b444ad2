/* SPDX-License-Identifier: Apache-2.0 */
/* session_internal.h - the structs of a decode session, for its own files. */
#ifndef BT_SESSION_INTERNAL_H
#define BT_SESSION_INTERNAL_H

#include "decode/stage.h"
#include "mask/steps.h"
#include "model/transformer.h"

/* A forward pass over some of the inputs: its plans, and what a worker of one
 * thread has for itself. */
typedef struct bt_lane {
    bt_step_plan plans[BT_PLACES];
    /* Of a worker that is one thread's: tape, share of a call, and result. */
    bt_tape *tape;
    const bt_feed *inputs;
    size_t count;
    bauta_status status;
    bauta_error err;
} bt_lane;

struct bt_stage {
    bauta_context *context;
    bt_model *model;
    bt_pool *pool;
    uint64_t calls;   /* of append; marks the sequences of the current call */
    bt_lane whole;    /* runs on all threads, on the context's tape */
    bt_lane *workers; /* (threads) one thread each; NULL until needed */
};

struct bt_memory {
    bt_stage *session;
    size_t references; /* its owner and the sequences that use it */
    bt_book block_table;
};

struct bt_sequence {
    bt_stage *session;
    bt_memory *cross_kv; /* or NULL */
    uint64_t call;       /* the last one that appended to it */
    size_t window;       /* of all layers, beside the model's own; 0: none */
    bt_book block_table;
};

/* The tape of the session's context, rewound, for inference. */
bauta_status bt_stage_tape(bt_stage *session, bt_tape **out, bauta_error *err);

/* Check that `tokens` tokens fit the model's positions, and that ids are in the
 * vocabulary. `what` and `number` begin the error message. */
bauta_status bt_stage_positions(const bt_stage *session, const char *what,
                                size_t number, size_t tokens, bauta_error *err);
bauta_status bt_stage_ids(const bt_stage *session, const char *what,
                          size_t number, const uint32_t *ids, size_t count,
                          bauta_error *err);

/* The first key that the token at position `tokens` of a sequence sees in a
 * layer. */
size_t bt_sequence_first_key(const bt_sequence *sequence, size_t layer,
                             size_t tokens);

/* Create the plans of an attention for the last rows of a batch, and set them
 * in the input. Layers that see the same keys share one. */
bauta_status bt_lane_plans(bt_lane *worker, bt_input *input,
                           const bt_blueprint *config, bauta_look_at attention,
                           const bt_batch_mask *batch, bauta_error *err);
/* One forward pass over inputs that are checked and have their pages, on a
 * rewound tape. */
bauta_status bt_lane_feed(bt_lane *worker, bt_tape *tape,
                          const bt_stage *session, const bt_feed *inputs,
                          size_t count, bauta_error *err);
void bt_lane_release(bt_lane *worker);

bt_memory *bt_memory_hold(bt_memory *cross_kv);

#endif
