/* SPDX-License-Identifier: Apache-2.0 */
/* served_model.h - one of the models of a server: its name, its defaults, its
 * chat template, and the scheduler that runs it. */
#ifndef SERVER_SERVED_MODEL_H
#define SERVER_SERVED_MODEL_H

#include "body.h"
#include "chat.h"
#include "metrics.h"
#include "scheduler.h"
#include "server.h"

typedef struct served_model {
    const server_options *options;
    const opened_model *opened;
    char alias[200]; /* its name in requests and answers */
    bauta_generate_options defaults;
    chat_renderer *chat;
    metrics metrics;
    scheduler *scheduler;
} served_model;

/* Start serving a model; a NULL `alias` is the name of its folder. Returns
 * CLI_OK, or CLI_FAILED after a message. Close in any case. */
int served_model_open(served_model *m, const server_options *options,
                      const opened_model *opened, const char *alias);
void served_model_close(served_model *m);

/* The model with this alias or folder, the first one if `name` is NULL; NULL
 * after a failure. */
served_model *served_model_find(served_model *all, size_t count,
                                const char *name, failure *f);

/* 400 if the model is not of this kind. */
bool kind_require(const served_model *m, bauta_model_kind kind, failure *f);

/* The tokens of a text that continues: with BOS or EOS if it has none. */
bool prompt_encode(const served_model *m, const char *text, size_t length,
                   bool special_tokens, const char *name, token_ids *out,
                   failure *f);
/* 400 if a prompt is longer than the model's context or --max-prompt. */
bool prompt_check(const served_model *m, size_t tokens, const char *name,
                  failure *f);

#endif
