/* SPDX-License-Identifier: Apache-2.0 */
/* batch_generate.c - many texts through one generator; see batch_generate.h. */
#include "batch_generate.h"

#include "cli.h"
#include "format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 256 }; /* texts that have been read and not yet printed */

typedef struct batch {
    const opened_model *model;
    text_input *in;
    const batch_callbacks *calls;
    batch_totals *totals;
    bauta_generator *generator;
    batch_item items[WINDOW]; /* text n is at n % WINDOW */
    size_t first, next;       /* the numbers in the window: [first, next) */
    size_t left;              /* in the generator */
    int failed;
} batch;

/* ---- options ----------------------------------------------------------- */

const char *const early_stopping_names[] = { "no", "yes", "never", NULL };

int search_options_apply(const char *verb, const search_options *o,
                         bauta_generate_options *out)
{
    if (o->has_beams)
        out->num_beams = o->num_beams;
    if (o->has_penalty)
        out->length_penalty = o->length_penalty;
    if (o->has_early)
        out->early_stopping = (bauta_early_stopping)o->early_stopping;
    if (o->has_ngram)
        out->no_repeat_ngram_size = o->no_repeat_ngram_size;
    if (o->has_max) {
        out->max_new_tokens = o->max_tokens;
        out->max_length = 0; // as in transformers, max_new_tokens wins
    }
    out->num_return_sequences = o->num_return_sequences;
    if (out->num_return_sequences > out->num_beams)
        return cli_usage(verb,
                         "--num-return-sequences is %zu, but there are only "
                         "%zu beams; use --num-beams N for more",
                         out->num_return_sequences, out->num_beams);
    return CLI_OK;
}

/* ---- the window of texts ----------------------------------------------- */

static batch_item *item_at(batch *b, uint64_t number)
{
    return &b->items[number % WINDOW];
}

static void item_release(batch_item *t)
{
    free(t->text);
    bauta_result_free(t->result);
    *t = (batch_item){ 0 };
}

/* Report that a text failed; the others go on. */
static void item_fail(batch *b, batch_item *t, const char *why)
{
    char place[256];
    t->done = true;
    snprintf(t->error, sizeof(t->error), "%s", why);
    if (b->in->error[0]) { // the message has the place
        b->failed = cli_fail(b->model->verb, "%s", why);
        return;
    }
    text_input_place(b->in, t->number, place, sizeof(place));
    b->failed = cli_fail(b->model->verb, "%s: %s", place, why);
}

/* ---- requests ---------------------------------------------------------- */

static int item_request(batch *b, batch_item *t)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_error err;
    token_ids tokens = { 0 };
    int failed = b->calls->request(b->calls->user, t, &request, &tokens);
    request.tag = t->number;
    if (!failed && tokens.count == 0) {
        t->done = true;
    } else if (!failed && bauta_generator_add(b->generator, &request, &err)) {
        item_fail(b, t, err.message);
    }
    b->left += !failed && !t->done;
    free(tokens.at);
    return failed;
}

static int item_add(batch *b, const char *text, size_t length)
{
    batch_item *t = item_at(b, b->next);
    *t = (batch_item){ .number = b->next, .length = length };
    b->next++;
    t->begun = seconds_now();
    t->text = malloc(length + 1);
    if (!t->text)
        return cli_fail(b->model->verb, "out of memory");
    memcpy(t->text, text, length);
    t->text[length] = '\0';
    if (!b->in->error[0])
        return item_request(b, t);
    item_fail(b, t, b->in->error);
    b->in->error[0] = '\0';
    return CLI_OK;
}

/* Read texts into the window, as many as are available. Wait for input only if
 * the window is empty. */
static int window_fill(batch *b, bool *ended)
{
    const char *text;
    size_t length;
    int failed = CLI_OK;
    while (!failed && !*ended && b->next - b->first < WINDOW &&
           (b->first == b->next || text_input_ready(b->in))) {
        *ended = !text_input_next(b->in, &text, &length);
        if (!*ended)
            failed = item_add(b, text, length);
    }
    return failed;
}

/* ---- results ----------------------------------------------------------- */

static void result_store(batch *b, batch_item *t, bauta_result *r)
{
    t->result = r;
    t->done = true;
    t->seconds = seconds_now() - t->begun;
    b->totals->texts++;
    b->totals->prompt += r->prompt_tokens;
    for (size_t i = 0; i < r->count; i++)
        b->totals->tokens += r->hypotheses[i]->count;
}

static void results_take(batch *b)
{
    bauta_result *r;
    while ((r = bauta_generator_take(b->generator))) {
        batch_item *t = item_at(b, r->tag);
        if (!r->status) {
            result_store(b, t, r);
            continue;
        }
        item_fail(b, t, r->message);
        bauta_result_free(r);
    }
}

/* Print finished results from the front of the window. */
static int window_print(batch *b)
{
    int failed = CLI_OK;
    bool printed = false;
    while (!failed && b->first < b->next && item_at(b, b->first)->done) {
        failed = b->calls->report(b->calls->user, item_at(b, b->first));
        item_release(item_at(b, b->first++));
        printed = true;
    }
    return failed || !printed ? failed : cli_finish(b->model->verb);
}

static int batch_run(batch *b)
{
    bauta_error err;
    bool ended = false;
    int failed = CLI_OK;
    while (!failed && !(ended && b->first == b->next)) {
        failed = window_fill(b, &ended);
        if (!failed && b->left &&
            bauta_generator_step(b->generator, &b->left, &err))
            failed = cli_fail(b->model->verb, "%s", err.message);
        results_take(b);
        if (!failed)
            failed = window_print(b);
    }
    return failed;
}

int batch_generate(const opened_model *model, text_input *in,
                   const batch_callbacks *calls, const batch_limits *limits,
                   batch_totals *totals)
{
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_error err;
    batch *b = calloc(1, sizeof(*b));
    *totals = (batch_totals){ 0 };
    if (!b)
        return cli_fail(model->verb, "out of memory");
    b->model = model;
    b->in = in;
    b->calls = calls;
    b->totals = totals;
    b->first = b->next = in->first + 1;
    if (limits->sequences)
        how.max_sequences = limits->sequences;
    how.cache_bytes = (uint64_t)limits->cache_mb << 20;
    double begun = seconds_now();
    int failed = CLI_OK;
    if (bauta_generator_create(&b->generator, model->context, model->model,
                               model->tokenizer, &how, &err))
        failed = cli_fail(model->verb, "%s", err.message);
    if (!failed)
        failed = batch_run(b);
    totals->seconds = seconds_now() - begun;
    for (; b->first < b->next; b->first++)
        item_release(item_at(b, b->first));
    bauta_generator_free(b->generator);
    if (!failed)
        failed = in->failed ? CLI_FAILED : b->failed;
    free(b);
    return failed;
}
