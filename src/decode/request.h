/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - one generation request and its state. */
#ifndef BT_REQUEST_H
#define BT_REQUEST_H

#include "decode/beam.h"
#include "decode/session.h"
#include "decode/stop_matcher.h"

typedef struct bt_request {
    struct bt_request *next; /* in the queue */

    /* the request */
    bauta_generate_options options;
    bauta_on_token_fn *on_token;
    bauta_on_logits_fn *on_logits;
    void *user;
    uint64_t tag;
    size_t source_count;
    uint32_t *source;        /* (source_count) */
    size_t prompt;           /* tokens before the first new one */
    size_t limit;            /* most tokens, prompt included */
    bool limited_by_context; /* the limit is the model's, not the caller's */
    uint64_t cost_bytes;     /* most bytes of pages that it can need */

    /* progress */
    uint32_t *ids; /* the prompt and, without beams, the new tokens */
    size_t count, capacity;
    float *logprobs; /* of the new tokens, without beams */
    size_t logprobs_capacity;
    size_t prompt_read;      /* prompt tokens that the first sequence has */
    size_t cached_tokens;    /* of these, taken from another request */
    size_t generated;        /* new tokens */
    bt_beam_tree tree;       /* the new tokens of all beams */
    bt_beam_search search;   /* with beam search */
    bt_cross_kv *cross_kv;   /* of its source, until a sequence has it */
    bt_sequence **sequences; /* (beams) of the open beams, or NULL */
    bt_sequence **forks;     /* (beams) scratch while a step is committed */
    uint32_t *history;       /* (beams, limit) if a logits processor needs it */
    double score;            /* without beam search */
    bt_stop_matcher matcher; /* without beam search, with a tokenizer */

    /* this step */
    size_t logits_row; /* of logits, of its first beam */
    bool has_logits;   /* the prompt is read, so there are logits */
    size_t sample;     /* its item, without beams */
    bool ahead;        /* the next step is queued, with the same row and item */
    bt_sample_status sample_status; /* the result of sampling */
    bt_sampled_token sampled;       /* without beams */

    /* the end */
    bool ended, flushed;
    bauta_finish finish;
    bauta_error failure; /* of this request alone; status 0: none */
    bool explained;      /* the failure names the layer that is not finite */
} bt_request;

/* The limits that a request is checked against. */
typedef struct bt_request_limits {
    const bauta_model *model;
    const bauta_tokenizer *tokenizer;
    const bt_decode_session *session;
    size_t sequences; /* most beams */
} bt_request_limits;

/* Read a caller's request and its options, or the model's. */
bauta_status bt_request_read(bauta_request *to, bauta_generate_options *options,
                             const bauta_request *request,
                             const bauta_model *model, bauta_error *err);
/* Check a request and copy it. */
bauta_status bt_request_create(bt_request **out, const bauta_request *request,
                               const bt_request_limits *limits,
                               bauta_error *err);
void bt_request_free(bt_request *request);
/* Allocate everything that running it needs, except pages. */
bauta_status bt_request_start(bt_request *request,
                              const bauta_tokenizer *tokenizer,
                              bauta_error *err);

/* Start the text that follows the prompt. */
bauta_status bt_request_stop_matcher(bt_stop_matcher *matcher,
                                     const bt_request *request,
                                     const bauta_tokenizer *tokenizer,
                                     bauta_error *err);

/* Check options against a vocabulary. */
bauta_status bt_generate_options_check(const bauta_generate_options *options,
                                       size_t vocab, bauta_error *err);

/* The number of open beams; 1 without beam search. */
size_t bt_request_open_beams(const bt_request *request);
/* Whether a token ends the text, and why. `generated` includes the token. */
bool bt_request_ends(const bt_request *request, uint32_t token,
                     size_t generated, bauta_finish *finish);

/* The tokens of a beam so far, if a logits processor reads them. */
bt_token_history bt_request_history(const bt_request *request, size_t beam);
/* Commit the sampled token: append it, fork and free beams, and report it to
 * the caller, with the logits (vocab) that it was sampled from, in host memory;
 * these may be NULL unless the caller wants them. If no
 * token could be sampled, the text ends and `failure` says why. On an error the
 * request is unchanged, and the call can be repeated. */
bauta_status bt_request_apply(bt_request *request,
                              const bauta_tokenizer *tokenizer,
                              const float *logits, size_t vocab,
                              bauta_error *err);

/* For a request whose logits are not finite: make its failure name the layer.
 */
bauta_status bt_request_explain_not_finite(bt_request *request,
                                           bauta_context *context,
                                           const bauta_model *model,
                                           bauta_error *err);

/* The result of a request that has ended. */
bauta_status bt_request_result(bauta_result **out, bt_request *request,
                               const bauta_tokenizer *tokenizer,
                               bauta_error *err);

#endif
