/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - what all parts of a running server share, and how a path is
 * answered. A new path is a row in routes.c and a function here. */
#ifndef SERVER_STATE_H
#define SERVER_STATE_H

#include "connections.h"
#include "page/page.h"
#include "served_model.h"

#include <stdatomic.h>
#include <time.h>

typedef struct server {
    const server_options *options;
    served_model *models; /* (model_count) */
    size_t model_count;
    connections *connections;
    time_t started;
    atomic_bool draining;
    atomic_size_t requests; /* being answered */
} server;

typedef struct api_request {
    server *server;
    served_model *model; /* the one that it names, or the first */
    const json_t *body;  /* an object; NULL for GET */
} api_request;

/* The answer to a request: a text, or a job that will write it. */
typedef struct reply {
    int status;       /* 200 */
    const char *type; /* "application/json" */
    buffer text;
    job *job; /* for the scheduler of the request's model */
} reply;

/* A JSON value as the answer. Takes it over. */
void reply_json(reply *r, json_t *value);

/* Answer a request. False after a failure. */
typedef bool answer_fn(const api_request *q, reply *out, failure *f);

answer_fn completions_answer, chat_completions_answer, embeddings_answer;
answer_fn tokenize_answer, detokenize_answer;
answer_fn translate_answer, fill_answer, attention_answer;
answer_fn models_answer, model_answer, health_answer, props_answer,
    metrics_answer;
#define PAGE_ANSWER_FN(name, path, type) answer_fn page_##name##_answer;
PAGE_FILES(PAGE_ANSWER_FN)
#undef PAGE_ANSWER_FN

/* The tokens of a text with blanks, which are written [MASK] or <mask>. */
bool blanks_encode(const served_model *m, const char *text, size_t length,
                   const char *name, token_ids *out, failure *f);
/* The text that a token adds within a text, special tokens as they are
 * written. Adds to `out`. */
void token_text(const bauta_tokenizer *tokenizer, uint32_t id, buffer *out);
/* As a JSON string. */
json_t *token_json(const bauta_tokenizer *tokenizer, uint32_t id);

#endif
