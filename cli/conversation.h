/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.h - bauta chat: declarations shared by its files.
 *
 *   cmd_chat.c       the verb, its command line and --help
 *   chat_loop.c      what the user types: messages and commands
 *   conversation.c   messages, the chat template, and answers */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include "opened_model.h"

#include <jansson.h>

#define VERB "chat"

typedef struct chat_options {
    const char *system;     /* the first message, or NULL */
    const char *tools_file; /* a JSON array for the template, or NULL */
    const char *message;    /* the only one; NULL: those of standard input */
    size_t cache_mb;
    bool json, quiet;
} chat_options;

/* A conversation with a model. */
typedef struct conversation {
    const chat_options *how;
    const opened_model *model;
    bauta_generate_options options; /* the seed grows with each answer */
    bauta_chat_template *template;
    bauta_generator *generator; /* keeps the keys and values so far */
    json_t *messages;           /* an array of {"role", "content"} */
    json_t *tools;              /* an array, or NULL */
} conversation;

/* Functions return CLI_OK, or CLI_FAILED after a message. Close in any case. */
int conversation_open(conversation *c, const chat_options *how,
                      const opened_model *model,
                      const bauta_generate_options *options);
void conversation_close(conversation *c);

/* Begin with this system message, or none if it is empty. */
void conversation_set_system(conversation *c, const char *text);
/* Remove everything but the system message. */
void conversation_clear(conversation *c);
/* Remove the last message of the user, and what follows it. False if there is
 * none. */
bool conversation_undo(conversation *c);
/* Add a message, which need not be UTF-8. */
void conversation_add(conversation *c, const char *role, const char *text,
                      size_t length);
/* Print the model's answer as it comes and add it. A failure removes the
 * messages after the last answer, so that the conversation can go on. */
int conversation_answer(conversation *c);
/* The prompt that the template makes of the messages, to stdout. */
int conversation_print(const conversation *c);
/* Messages as a JSON array in a file. */
int conversation_save(const conversation *c, const char *path);
int conversation_load(conversation *c, const char *path);

/* Answer what the user types until the end of input. */
int chat_loop(conversation *c);

/* From now on Ctrl-C ends the answer, and a second one the program. */
void answer_interrupts_catch(void);
/* Whether the last answer was interrupted. */
bool answer_interrupted(void);

#endif
