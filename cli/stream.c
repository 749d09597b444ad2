/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - many texts through one generator; see stream.h. */
#include "stream.h"

#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 256 }; /* texts that have been read and not yet printed */

typedef struct stream {
    const loaded *model;
    texts *in;
    const stream_verb *verb;
    stream_sums *sums;
    bauta_generator *generator;
    task tasks[WINDOW];   /* text n lies at n % WINDOW */
    size_t first, behind; /* numbers of those in the window */
    size_t left;          /* in the generator */
    int failed;
} stream;

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static task *task_at(stream *s, uint64_t number)
{
    return &s->tasks[number % WINDOW];
}

static void task_release(task *t)
{
    free(t->text);
    bauta_result_free(t->result);
    *t = (task){ 0 };
}

/* Nothing comes of it. The rest can be done all the same, so this is told in
 * its place. */
static void task_refuse(stream *s, task *t, const char *why)
{
    char place[256];
    t->done = true;
    snprintf(t->refused, sizeof(t->refused), "%s", why);
    if (s->in->wrong[0]) { // which says where
        s->failed = cli_fail(s->model->verb, "%s", why);
        return;
    }
    texts_place(s->in, t->number, place, sizeof(place));
    s->failed = cli_fail(s->model->verb, "%s: %s", place, why);
}

/* ---- in ---------------------------------------------------------------- */

static int task_ask(stream *s, task *t)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_error err;
    ids tokens = { 0 };
    int failed = s->verb->ask(s->verb->user, t, &request, &tokens);
    request.tag = t->number;
    if (!failed && tokens.count == 0) {
        t->done = true;
    } else if (!failed && bauta_generator_add(s->generator, &request, &err)) {
        task_refuse(s, t, err.message);
    }
    s->left += !failed && !t->done;
    free(tokens.at);
    return failed;
}

static int task_add(stream *s, const char *text, size_t length)
{
    task *t = task_at(s, s->behind);
    *t = (task){ .number = s->behind, .length = length };
    s->behind++;
    t->begun = seconds_now();
    t->text = malloc(length + 1);
    if (!t->text)
        return cli_fail(s->model->verb, "out of memory");
    memcpy(t->text, text, length);
    t->text[length] = '\0';
    if (!s->in->wrong[0])
        return task_ask(s, t);
    task_refuse(s, t, s->in->wrong);
    s->in->wrong[0] = '\0';
    return CLI_OK;
}

/* Fill the window with what can be had; wait only where there is nothing else
 * to do. */
static int window_fill(stream *s, bool *ended)
{
    const char *text;
    size_t length;
    int failed = CLI_OK;
    while (!failed && !*ended && s->behind - s->first < WINDOW &&
           (s->first == s->behind || texts_ready(s->in))) {
        *ended = !texts_next(s->in, &text, &length);
        if (!*ended)
            failed = task_add(s, text, length);
    }
    return failed;
}

/* ---- out --------------------------------------------------------------- */

static void result_put(stream *s, task *t, bauta_result *r)
{
    t->result = r;
    t->done = true;
    t->seconds = seconds_now() - t->begun;
    s->sums->texts++;
    s->sums->prompt += r->prompt;
    for (size_t i = 0; i < r->count; i++)
        s->sums->tokens += r->hypotheses[i].count;
}

static void results_take(stream *s)
{
    bauta_result *r;
    while ((r = bauta_generator_take(s->generator))) {
        task *t = task_at(s, r->tag);
        if (!r->status) {
            result_put(s, t, r);
            continue;
        }
        task_refuse(s, t, r->message);
        bauta_result_free(r);
    }
}

/* Print from the front of the window what is done. */
static int window_print(stream *s)
{
    int failed = CLI_OK;
    bool printed = false;
    while (!failed && s->first < s->behind && task_at(s, s->first)->done) {
        failed = s->verb->tell(s->verb->user, task_at(s, s->first));
        task_release(task_at(s, s->first++));
        printed = true;
    }
    return failed || !printed ? failed : cli_finish(s->model->verb);
}

static int stream_pump(stream *s)
{
    bauta_error err;
    bool ended = false;
    int failed = CLI_OK;
    while (!failed && !(ended && s->first == s->behind)) {
        failed = window_fill(s, &ended);
        if (!failed && s->left &&
            bauta_generator_step(s->generator, &s->left, &err))
            failed = cli_fail(s->model->verb, "%s", err.message);
        results_take(s);
        if (!failed)
            failed = window_print(s);
    }
    return failed;
}

int stream_run(const loaded *l, texts *in, const stream_verb *verb,
               const stream_limits *limits, stream_sums *sums)
{
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_error err;
    stream *s = calloc(1, sizeof(*s));
    *sums = (stream_sums){ 0 };
    if (!s)
        return cli_fail(l->verb, "out of memory");
    s->model = l;
    s->in = in;
    s->verb = verb;
    s->sums = sums;
    s->first = s->behind = 1;
    if (limits->sequences)
        how.sequences = limits->sequences;
    how.cache_bytes = (uint64_t)limits->cache_mb << 20;
    double begun = seconds_now();
    int failed = CLI_OK;
    if (bauta_generator_create(&s->generator, l->context, l->model,
                               l->tokenizer, &how, &err))
        failed = cli_fail(l->verb, "%s", err.message);
    if (!failed)
        failed = stream_pump(s);
    sums->seconds = seconds_now() - begun;
    for (; s->first < s->behind; s->first++)
        task_release(task_at(s, s->first));
    bauta_generator_free(s->generator);
    if (!failed)
        failed = in->failed ? CLI_FAILED : s->failed;
    free(s);
    return failed;
}
