/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - what a stage, a memory and a sequence are made of. */
#ifndef BT_STAGE_PARTS_H
#define BT_STAGE_PARTS_H

#include "decode/stage.h"
#include "mask/steps.h"
#include "model/transformer.h"

/* What a forward needs beside its tape. */
typedef struct bt_lane {
    bt_step_plan plans[BT_PLACES];
    /* Of a lane that is one thread's: its tape, its share of a call, and what
     * came of it. */
    bt_tape *tape;
    const bt_feed *feeds;
    size_t count;
    bauta_status status;
    bauta_error err;
} bt_lane;

struct bt_stage {
    bauta_context *context;
    bt_model *model;
    bt_pool *pool;
    uint64_t
        calls;     /* of feed; a sequence that has this number is in the call */
    bt_lane whole; /* of all threads together, on the context's tape */
    bt_lane *lanes; /* (threads) of each one; NULL until they are needed */
};

struct bt_memory {
    bt_stage *stage;
    size_t holders; /* its owner and the sequences that see it */
    bt_book book;
};

struct bt_sequence {
    bt_stage *stage;
    bt_memory *memory; /* or NULL */
    uint64_t call;     /* the last one that fed it */
    size_t window;     /* of all layers, beside the model's own; 0: none */
    bt_book book;
};

/* The tape of the stage's context, rewound, for inference. */
bauta_status bt_stage_tape(bt_stage *stage, bt_tape **out, bauta_error *err);

/* Whether `tokens` tokens have a position each; `what` and its number begin the
 * sentence. */
bauta_status bt_stage_positions(const bt_stage *stage, const char *what,
                                size_t number, size_t tokens, bauta_error *err);
bauta_status bt_stage_ids(const bt_stage *stage, const char *what,
                          size_t number, const uint32_t *ids, size_t count,
                          bauta_error *err);

/* The first key that the token after `tokens` tokens of a sequence sees in a
 * layer. */
size_t bt_sequence_first_key(const bt_sequence *sequence, size_t layer,
                             size_t tokens);

/* Make the plans of an attention for the last rows of a batch, one for all
 * layers that see the same keys, and give them to the input. */
bauta_status bt_lane_plans(bt_lane *lane, bt_input *input,
                           const bt_blueprint *config, bauta_look_at at,
                           const bt_batch_mask *batch, bauta_error *err);
/* One forward for some feeds, which were checked and have their pages, on a
 * rewound tape. */
bauta_status bt_lane_feed(bt_lane *lane, bt_tape *tape, const bt_stage *stage,
                          const bt_feed *feeds, size_t count, bauta_error *err);
void bt_lane_release(bt_lane *lane);

bt_memory *bt_memory_hold(bt_memory *memory);

#endif
