/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h - the state of a generator. */
#ifndef BT_GENERATOR_H
#define BT_GENERATOR_H

#include "backend/backend.h"
#include "decode/request.h"

/* An entry of the prefix cache: a finished sequence whose pages can be shared
 * by requests with the same beginning. */
typedef struct bt_prefix_entry {
    bt_sequence *sequence;
    uint32_t *ids; /* (count) its tokens */
    size_t count;
    uint32_t *source; /* (source_count) */
    size_t source_count;
    size_t window; /* sliding_window of its request */
    uint64_t cost;
    uint64_t used; /* the step of its last use */
} bt_prefix_entry;

/* Results that have not been taken yet. */
typedef struct bt_result_queue {
    bauta_result **items;
    size_t first, count, capacity;
} bt_result_queue;

/* Sampling of the requests without beam search in a step. */
typedef struct bt_step_samples {
    bt_sample_item *items; /* (rows_capacity) */
    size_t pending;        /* of them, whose results were queued; 0: none */
    bt_sampling *sampling; /* NULL until something was queued, */
    bt_tensor tokens;      /* (pending, 1) on the device */
} bt_step_samples;

struct bauta_generator {
    bauta_context *context;
    const bauta_model *model;
    const bauta_tokenizer *tokenizer;
    bauta_generator_options options;
    bt_decode_session *session;
    size_t vocab;
    uint64_t steps;

    bt_request *queue, **queue_end;
    size_t queued;

    bt_request **running; /* in the order of arrival */
    size_t running_count, running_capacity;
    size_t sequences;  /* beams of all running requests */
    uint64_t reserved; /* most bytes that they can need */

    bt_prefix_entry *prefixes; /* (options.keep) */
    size_t prefix_count;
    uint64_t prefix_cost;

    bt_result_queue results;

    /* A step: append, sample, commit. After a failure the next call goes on
     * where it stopped. */
    bool appended, sampled;
    /* Where every text goes on unless its next token ends it, the next step is
     * queued before the tokens are known: it reads them on the device. The bits
     * of a text do not depend on those beside it, so the rows of texts that go
     * on are right, and the others are not looked at. */
    bool ahead; /* the next step is queued */
    bt_step_samples samples[2];
    bt_step_samples *now, *next; /* these two */
    bt_buffer logits;            /* (rows_capacity, vocab) on the device; rows
                                    have a stride */
    float *logits_row;           /* (vocab) in host memory, for callers */
    size_t rows_capacity;        /* of everything below */
    bt_decode_input *inputs;     /* for each sequence */
    bt_beam_item *beams;         /* of those with */
    float *scores;               /* of the beams */
    bt_token_history *histories; /* likewise */
};

/* Start requests from the queue while there is capacity, encode their sources,
 * and give each one that can start its first sequence. */
bauta_status bt_generator_schedule(bauta_generator *g, bauta_error *err);

/* Whether the next request of the queue, if there is one, can start. */
bool bt_generator_can_start(const bauta_generator *g);

/* Move the sequence of a finished request to the prefix cache, if it is on. */
void bt_generator_cache_prefix(bauta_generator *g, bt_request *r);
/* Evict the least recently used entry; false: the cache is empty. */
bool bt_generator_evict_prefix(bauta_generator *g);

#endif
