/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h - messages through the chat template of a model. */
#ifndef SERVER_CHAT_H
#define SERVER_CHAT_H

#include "../cli/opened_model.h"
#include "body.h"
#include "buffer.h"

typedef struct chat_renderer chat_renderer;

/* The template of the model's folder, if it has one. */
chat_renderer *chat_load(const opened_model *model);
void chat_free(chat_renderer *c);
/* Whether there is a template. */
bool chat_ready(const chat_renderer *c);
/* The prompt for the messages of a request. */
bool chat_render(const chat_renderer *c, const json_t *body, buffer *out,
                 failure *f);

#endif
