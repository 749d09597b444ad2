/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call of a model over batches: checked, prepared, run. */
#ifndef BT_CALL_H
#define BT_CALL_H

#include "model/batch.h"
#include "model/handle.h"
#include "model/transformer.h"

typedef struct bt_call {
    bauta_context *context;
    bt_tape *tape;
    bt_model *model;
    const bauta_batch *source, *target; /* those that the model reads */
    bt_rows encoder_rows, decoder_rows;
    bt_input encoder, decoder;
} bt_call;

/* Whether the batches fit the model and each other. */
bauta_status bt_call_check(bt_call *call, bauta_context *context,
                           const bauta_model *model, const bauta_batch *source,
                           const bauta_batch *target, bauta_error *err);
/* Whether what is asked for can be given. */
bauta_status bt_outputs_check(const bt_call *call, const bauta_outputs *outputs,
                              bauta_error *err);
/* The tape is rewound; batches are packed into it, and plans fetched. */
bauta_status bt_call_prepare(bt_call *call, bool recording, bauta_error *err);
/* Run the stacks: the hidden states of the last, or NULL when the tape has
 * failed. */
bt_tensor *bt_call_stacks(bt_call *call);
/* Run, and write the outputs. */
bauta_status bt_call_run(bt_call *call, const bauta_outputs *outputs,
                         bauta_error *err);

#endif
