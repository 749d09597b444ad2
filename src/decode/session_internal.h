/* SPDX-License-Identifier: Apache-2.0 */
/* session_internal.h - the structs of a decode session, for its own files. */
#ifndef BT_SESSION_INTERNAL_H
#define BT_SESSION_INTERNAL_H

#include "decode/session.h"
#include "model/transformer.h"

/* A forward pass over some of the inputs: its plans, and what a worker of one
 * thread has for itself. */
typedef struct bt_decode_worker {
    bt_attention_plan *plans[BT_SLOT_COUNT]; /* NULL: none yet */
    /* Of a worker that is one thread's: stream, tape, share of a call, and
     * result. */
    bt_stream *stream;
    bt_tape *tape;
    const bt_decode_input *inputs;
    size_t count;
    bauta_status status;
    bauta_error err;
} bt_decode_worker;

struct bt_decode_session {
    bauta_context *context;
    bt_model *model;
    bt_kv_pool *pool;
    uint64_t calls; /* of append; marks the sequences of the current call */
    bt_decode_worker whole; /* runs on all threads, on the context's tape */
    bt_decode_worker
        *workers; /* (threads) one thread each; NULL until needed */
};

struct bt_cross_kv {
    bt_decode_session *session;
    size_t references; /* its owner and the sequences that use it */
    bt_block_table block_table;
};

struct bt_sequence {
    bt_decode_session *session;
    bt_cross_kv *cross_kv; /* or NULL */
    uint64_t call;         /* the last one that appended to it */
    size_t window;         /* of all layers, beside the model's own; 0: none */
    bt_block_table block_table;
};

/* Check that `tokens` tokens fit the model's positions, and that ids are in the
 * vocabulary. `what` and `number` begin the error message. */
bauta_status bt_decode_session_check_length(const bt_decode_session *session,
                                            const char *what, size_t number,
                                            size_t tokens, bauta_error *err);
bauta_status bt_decode_session_check_ids(const bt_decode_session *session,
                                         const char *what, size_t number,
                                         const uint32_t *ids, size_t count,
                                         bauta_error *err);

/* The first key that the token at position `tokens` of a sequence sees in a
 * layer. */
size_t bt_sequence_first_key(const bt_sequence *sequence, size_t layer,
                             size_t tokens);

/* Build the plans of an attention, and set them in the input: of the last rows
 * of a batch in pages, or (the encoder's) of all rows. Layers that see the same
 * keys share one. */
bauta_status bt_decode_worker_plans(bt_decode_worker *worker, bt_stream *stream,
                                    bt_forward_input *input,
                                    const bt_model_config *config,
                                    bauta_attention_kind attention,
                                    const bt_batch_mask *batch,
                                    bauta_error *err);
void bt_decode_worker_release(bt_decode_worker *worker);

#endif
