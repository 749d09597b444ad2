/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - one text to be made: what was asked, and how far it is. */
#ifndef BT_REQUEST_H
#define BT_REQUEST_H

#include "decode/beam.h"
#include "decode/stage.h"
#include "decode/stops.h"

typedef struct bt_request {
    struct bt_request *after; /* in the queue */

    /* what was asked */
    bauta_generate_options options;
    bauta_hear_fn *hear;
    void *user;
    uint64_t tag;
    size_t source_count;
    uint32_t *source; /* (source_count) */
    size_t prompt;    /* tokens that are read before the first new one */
    size_t limit;     /* tokens that there may be in the end */
    bool by_context;  /* the limit is the model's, not the caller's */
    uint64_t cost;    /* bytes of pages that it needs at most */

    /* how far it is */
    uint32_t *ids; /* the prompt and, without beams, the new tokens */
    size_t count, room;
    size_t read;   /* of the prompt, by the first sequence */
    size_t shared; /* of which so many came from another */
    size_t made;   /* new tokens */
    bt_trail trail;
    bt_search search;        /* where there are beams */
    bt_sequence **sequences; /* (beams) of the open ones, or NULL */
    bt_sequence **forks;     /* (beams) between two steps */
    uint32_t *history;       /* (limit for each beam), where rules want it */
    double score;            /* without beams */
    bt_speech speech;        /* likewise, with a tokenizer */

    /* this step */
    size_t row;       /* of logits, the first of its beams' */
    bool has_row;     /* it has been read so far that there are any */
    bt_chosen chosen; /* what choosing came to */
    bt_choice choice; /* without beams */

    /* the end */
    bool ended, flushed;
    bauta_finish finish;
    bauta_error failure; /* of this text alone; its status says whether */
    bool explained;      /* its logits are not finite, and it says where */
} bt_request;

/* What a request must fit. */
typedef struct bt_terms {
    const bauta_model *model;
    const bauta_tokenizer *tokenizer;
    const bt_stage *stage;
    size_t sequences; /* beams, at most */
} bt_terms;

/* A copy of a request, checked. */
bauta_status bt_request_create(bt_request **out, const bauta_request *request,
                               const bt_terms *terms, bauta_error *err);
void bt_request_free(bt_request *request);
/* What running it needs beside pages. */
bauta_status bt_request_start(bt_request *request,
                              const bauta_tokenizer *tokenizer,
                              bauta_error *err);

/* A text that follows the prompt; release it in the end. */
bauta_status bt_request_speech(bt_speech *speech, const bt_request *request,
                               const bauta_tokenizer *tokenizer,
                               bauta_error *err);

/* Whether options make sense for a vocabulary. */
bauta_status bt_generate_options_check(const bauta_generate_options *options,
                                       size_t vocab, bauta_error *err);

/* Beams that are open, or 1. */
size_t bt_request_open(const bt_request *request);
/* Why a token ends the text, if it does; `made` counts it. */
bool bt_request_ends(const bt_request *request, uint32_t token, size_t made,
                     bauta_finish *finish);

/* Choose from the rows of this step. Allocates nothing and changes no row, so
 * that threads can do it for many requests. */
void bt_request_choose(bt_request *request, const bt_desk *desk,
                       const float *rows, const float **beam_rows,
                       bt_history *histories);
/* Do what was chosen: the token joins the text, beams are forked and freed, and
 * the caller hears it. Where nothing could be chosen the text ends, and its
 * `failure` says why. After a failure of the call the request is as it was, and
 * the same call tries again. */
bauta_status bt_request_apply(bt_request *request,
                              const bauta_tokenizer *tokenizer,
                              bauta_error *err);

/* Of one whose logits were not finite: its failure names the layer. */
bauta_status bt_request_explain(bt_request *request, bauta_context *context,
                                const bauta_model *model, bauta_error *err);

/* The result of one that has ended. */
bauta_status bt_request_result(bauta_result **out, bt_request *request,
                               const bauta_tokenizer *tokenizer,
                               bauta_error *err);

#endif
