/* SPDX-License-Identifier: Apache-2.0 */
/* completion.h - a request for texts, and the texts.
 *
 * /v1/completions and /v1/chat/completions differ in how a prompt is read and
 * how an answer is written; between them a completion is the same. */
#ifndef SERVER_COMPLETION_H
#define SERVER_COMPLETION_H

#include "scheduler.h"
#include "state.h"

enum { TOP_LOGPROBS_MAX = 20, CHOICES_MAX = 128, STOPS_MAX = 16 };

/* The probability of a token, and of the most likely ones in its place. */
typedef struct token_entry {
    uint32_t token;
    float logprob; /* NaN for the first token of a prompt */
    uint32_t top[TOP_LOGPROBS_MAX];
    float top_logprobs[TOP_LOGPROBS_MAX];
} token_entry;

typedef struct token_entries {
    token_entry *at;
    size_t count, room;
} token_entries;
/* NULL if out of memory. */
token_entry *token_entries_add(token_entries *t);
/* The `k` most likely tokens, and the one that was chosen, whose
 * log-probability is the library's, also among the most likely. */
void token_entry_rank(token_entry *entry, size_t k, const float *logits,
                      size_t vocab);
void token_entry_choose(token_entry *entry, size_t k, uint32_t token,
                        float logprob);

typedef struct prompt {
    token_ids ids;
    buffer text;           /* for echo */
    token_entries entries; /* for echo with logprobs */
} prompt;

/* One text of the answer. */
typedef struct choice {
    part part; /* the scheduler's */
    struct completion *owner;
    size_t index;
    prompt *prompt;
    bauta_generate_options options;
    size_t tokens;         /* generated */
    double last;           /* when the last token came */
    buffer text;           /* generated, and not sent if it is streamed */
    token_entries entries; /* likewise */
    size_t offset;         /* characters before the entries that are not sent */
    bool begun;            /* something was sent */
    const char *finish;    /* the reason, or NULL */
} choice;

typedef struct completion {
    job job; /* first, so that a pointer to one is a pointer to the other */
    served_model *model;
    json_t *body; /* owns the strings of the options */
    char id[48];
    time_t created;
    bool chat, echo, logprobs, include_usage;
    bool scores_only; /* max_tokens is 0: nothing is generated */
    size_t top_logprobs;
    bauta_generate_options options; /* of the first choice */
    const char **stops;             /* the folder's, and those of the request */
    bauta_token_bias *biases;       /* by token */
    prompt *prompts;
    size_t prompt_count;
    choice *choices; /* (choice_count) n for each prompt */
    size_t choice_count, started;
    size_t prompt_tokens, completion_tokens;
} completion;

/* completion_run.c */
extern const job_calls completion_calls;

/* completion_json.c: write an answer, or the next event of a stream. */
void completion_write(completion *c);
void choice_write(choice *h);
void usage_write(completion *c);

#endif
