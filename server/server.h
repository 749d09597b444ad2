/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - bauta serve: what the verb asks of the server.
 *
 *   server.c        start, signals, watching clients, the end
 *   http.c          requests and answers of libmicrohttpd
 *   access.c        API keys, origins, hosts
 *   routes.c        which function answers which path
 *   served_model.c  one of the models: its name, its defaults, its scheduler
 *   scheduler.c     the thread that runs a model; fair_queue.c: who is next
 *   job.c           work for that thread, and the answer that it writes
 *   completions.c   /v1/completions and /v1/chat/completions: reading requests
 *   completion_run.c, completion_json.c   running and answering them
 *   chat.c          messages through the chat template
 *   embeddings.c    /v1/embeddings
 *   tokens.c        /tokenize, /detokenize, the text of a token
 *   translate.c     /translate
 *   fill.c          /fill
 *   attention.c     /attention
 *   status.c        /v1/models, /health, /props, /metrics
 *   page.c, page/   the page at /
 *   metrics.c       counters and histograms
 *   body.c          fields of a JSON body, and errors
 *   none/server.c   instead of all of them, without libmicrohttpd */
#ifndef SERVER_H
#define SERVER_H

#include "../cli/opened_model.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct server_options {
    const char *host;
    size_t port;          /* 0: a free one */
    string_list api_keys; /* none: everyone may ask */
    const char *cors_origin;
    const char *ssl_key_file, *ssl_cert_file; /* NULL: no TLS */
    string_list aliases; /* names of the models, in their order */
    size_t parallel;     /* sequences of a model that run together */
    size_t queue;        /* requests for a model that wait */
    size_t connections;  /* open at once */
    size_t max_body;     /* bytes */
    size_t max_prompt;   /* tokens; 0: the model's context */
    size_t timeout;  /* seconds for a request to arrive, and to be answered */
    size_t cache_mb; /* of the KV cache; 0: no limit */
    bool quiet;
} server_options;

/* Serve `count` models, one at least, until SIGTERM or SIGINT. Returns CLI_OK
 * after all requests were answered, or CLI_FAILED after a message. */
int server_run(const server_options *options, const opened_model *models,
               size_t count);

#endif
