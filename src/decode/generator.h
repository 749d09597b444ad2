/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h - what a generator holds, for the files that run it. */
#ifndef BT_GENERATOR_H
#define BT_GENERATOR_H

#include "decode/request.h"

/* A text that has ended and stays, for others that begin alike. */
typedef struct bt_prefix_entry {
    bt_sequence *sequence;
    uint32_t *ids; /* (count) what it has read */
    size_t count;
    uint32_t *source; /* (source_count) */
    size_t source_count;
    size_t window; /* sliding_window of its request */
    uint64_t cost;
    uint64_t used; /* when it was used last: a number of the step */
} bt_prefix_entry;

/* A result that waits to be taken. */
typedef struct bt_waiting {
    bauta_result **all;
    size_t first, count, room;
} bt_waiting;

struct bauta_generator {
    bauta_context *context;
    const bauta_model *model;
    const bauta_tokenizer *tokenizer;
    bauta_generator_options options;
    bt_stage *stage;
    size_t vocab;
    uint64_t steps;

    bt_request *queue, **queue_end;
    size_t queued;

    bt_request **running; /* in the order in which they came */
    size_t running_count, running_room;
    size_t sequences;  /* that the running ones may have: their beams */
    uint64_t reserved; /* bytes that they may need */

    bt_prefix_entry *kept; /* (options.keep) */
    size_t kept_count;
    uint64_t kept_cost;

    bt_waiting results;

    bool chosen; /* rows are there, and not everyone has done its part */
    float *rows; /* (rows_room, vocab) */
    size_t rows_room;
    bt_feed *feeds; /* (feeds_room) */
    size_t feeds_room;

    bt_desk *desks; /* (threads) */
    float *desk_floats;
    unsigned char *desk_marks;
    bt_pick *desk_picks;
    size_t picks_room;       /* of each */
    const float **beam_rows; /* (threads, options.sequences) */
    bt_history *histories;   /* likewise */
    size_t beams_room;
};

/* Take requests from the queue for as long as there is room, read their
 * sources, and give each that can begin its first sequence. */
bauta_status bt_generator_admit(bauta_generator *g, bauta_error *err);

/* A larger block of zeros in the place of one whose content does not matter;
 * false without memory. */
bool bt_generator_replace(void **block, size_t count, size_t size);
/* Room on the desks for a search. */
bauta_status bt_generator_desks(bauta_generator *g, size_t wide, size_t beams,
                                bauta_error *err);

/* Keep what an ended request has read, if the options say so. */
void bt_generator_keep(bauta_generator *g, bt_request *r);
/* Let go of the one that was not used for longest; false: there is none. */
bool bt_generator_forget(bauta_generator *g);

#endif
