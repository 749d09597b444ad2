/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - /translate: texts through an encoder-decoder, as sequences of
 * the scheduler's generator. Greedy search may be streamed. */
#include "completion.h"

#include "../cli/format.h"
#include "../cli/json_output.h"
#include "../cli/lines.h"

#include <stdlib.h>
#include <string.h>

enum {
    TEXTS_MAX = 128,
    BEAMS_MAX = 64,
    TOKENS_MAX = 1 << 24,
    DUMP = JSON_COMPACT | JSON_REAL_PRECISION(9)
};

typedef struct translation {
    part part; /* the scheduler's */
    struct translate_job *owner;
    token_ids source;
    json_t *results; /* when it is finished */
    size_t tokens;   /* that have arrived */
    double last;     /* when the last one came */
    buffer text;     /* of a stream, not sent yet */
    token_entry entry;
} translation;

typedef struct translate_job {
    job job; /* first */
    served_model *model;
    bauta_generate_options options;
    size_t top_logprobs;
    translation *texts;
    size_t count, started;
    size_t source_tokens, target_tokens;
} translate_job;

static bool out_of_memory(failure *f)
{
    return fail(f, 503, NULL, NULL, "out of memory");
}

/* ---- answering --------------------------------------------------------- */

static json_t *usage_json(const translate_job *c)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens",
                     (json_int_t)c->source_tokens, "completion_tokens",
                     (json_int_t)c->target_tokens, "total_tokens",
                     (json_int_t)(c->source_tokens + c->target_tokens));
}

/* {"token", "logprob"} */
static json_t *pair_json(const translate_job *c, uint32_t token, float logprob)
{
    return json_pack("{s:o, s:o}", "token",
                     token_json(c->model->opened->tokenizer, token), "logprob",
                     json_number((double)logprob));
}

static json_t *entry_json(const translate_job *c, const token_entry *entry)
{
    json_t *tops = json_array();
    json_t *object = pair_json(c, entry->token, entry->logprob);
    for (size_t i = 0; i < c->top_logprobs; i++)
        json_array_append_new(
            tops, pair_json(c, entry->top[i], entry->top_logprobs[i]));
    json_object_set_new(object, "top_logprobs", tops);
    return object;
}

static const char *finish_name(bauta_finish finish)
{
    return finish == BAUTA_FINISH_END || finish == BAUTA_FINISH_STOP ? "stop"
                                                                     : "length";
}

static json_t *hypothesis_json(const translate_job *c,
                               const bauta_hypothesis *h)
{
    json_t *tokens = json_array();
    size_t count = h->count - (h->finish == BAUTA_FINISH_END); // without EOS
    for (size_t i = 0; i < count; i++)
        json_array_append_new(tokens,
                              pair_json(c, h->tokens[i], h->logprobs[i]));
    return json_pack("{s:o, s:o, s:o, s:s}", "text",
                     json_text(h->text, h->text_length), "score",
                     json_number(h->score), "tokens", tokens, "finish_reason",
                     finish_name(h->finish));
}

/* Takes over `event`. */
static void event_write(translate_job *c, json_t *event)
{
    char *text = json_dumps(event, DUMP);
    buffer line = { 0 };
    json_decref(event);
    buffer_print(&line, "data: %s\n\n", text ? text : "{}");
    job_write(&c->job, 200, "text/event-stream", line.at ? line.at : "",
              line.length);
    buffer_release(&line);
    free(text);
}

/* The text that has become final, and the token that did it, if one did. Half a
 * character waits. */
static void stream_write(translation *t, bool token, const char *finish)
{
    translate_job *c = t->owner;
    size_t length = t->text.length;
    json_t *tokens = json_array();
    if (token)
        json_array_append_new(tokens, entry_json(c, &t->entry));
    if (!finish && length)
        length = utf8_prefix(t->text.at, length);
    json_t *event = json_pack("{s:o, s:o, s:s?}", "text",
                              json_text(t->text.at ? t->text.at : "", length),
                              "tokens", tokens, "finish_reason", finish);
    if (finish)
        json_object_set_new(event, "usage", usage_json(c));
    event_write(c, event);
    t->text.length -= length;
    if (t->text.length)
        memmove(t->text.at, t->text.at + length, t->text.length);
}

static void translate_end(job *j, scheduler *s)
{
    translate_job *c = (translate_job *)j;
    json_t *results = json_array();
    (void)s;
    if (j->stream) {
        json_decref(results);
        job_write(j, 200, NULL, "data: [DONE]\n\n", 14);
        return;
    }
    for (size_t i = 0; i < c->count; i++)
        json_array_append_new(
            results, json_pack("{s:O}", "translations", c->texts[i].results));
    json_t *answer = json_pack("{s:s, s:o, s:o}", "model", c->model->alias,
                               "results", results, "usage", usage_json(c));
    char *text = json_dumps(answer, DUMP);
    json_decref(answer);
    job_write(j, 200, "application/json", text, text ? strlen(text) : 0);
    free(text);
}

/* ---- running ----------------------------------------------------------- */

static void logits_arrived(void *user, size_t position, const float *logits,
                           size_t vocab)
{
    translation *t = user;
    (void)position;
    token_entry_rank(&t->entry, t->owner->top_logprobs, logits, vocab);
}

static void token_measure(translation *t)
{
    metrics *m = &t->owner->model->metrics;
    double now = seconds_now();
    if (t->tokens++)
        metrics_observe(m, METRICS_INTER_TOKEN, now - t->last);
    else
        metrics_observe(m, METRICS_FIRST_TOKEN, now - t->owner->job.arrived);
    t->last = now;
}

static bool token_arrived(void *user, uint32_t token, float logprob,
                          const char *text, size_t length)
{
    translation *t = user;
    translate_job *c = t->owner;
    bool is_token = token != BAUTA_NO_TOKEN;
    if (is_token) {
        token_measure(t);
        token_entry_choose(&t->entry, c->top_logprobs, token, logprob);
    }
    if (c->job.stream)
        buffer_add(&t->text, text, length);
    if (t->text.failed)
        out_of_memory(&c->job.failed);
    if (job_stopped(&c->job))
        return false;
    if (c->job.stream && is_token)
        stream_write(t, true, NULL);
    return true;
}

static void translation_finish(part *p, const bauta_result *result)
{
    translation *t = (translation *)p;
    translate_job *c = t->owner;
    const bauta_hypothesis *best = result->hypotheses[0];
    metrics *m = &c->model->metrics;
    metrics_add(m, METRICS_PROMPT_TOKENS, result->prompt_tokens);
    metrics_add(m, METRICS_GENERATION_TOKENS, best->count);
    c->target_tokens += best->count;
    if (best->finish == BAUTA_FINISH_CANCELLED)
        return;
    if (c->job.stream) {
        stream_write(t, false, finish_name(best->finish));
        return;
    }
    t->results = json_array();
    for (size_t i = 0; i < result->count; i++)
        json_array_append_new(t->results,
                              hypothesis_json(c, result->hypotheses[i]));
}

static bool translate_start(job *j, scheduler *s)
{
    translate_job *c = (translate_job *)j;
    translation *t = &c->texts[c->started];
    bauta_request request = BAUTA_REQUEST_INIT;
    t->part = (part){ j, translation_finish };
    request.source = t->source.at;
    request.source_count = t->source.count;
    request.options = &c->options;
    request.on_token = token_arrived;
    request.on_logits = c->top_logprobs ? logits_arrived : NULL;
    request.user = t;
    if (!scheduler_start(s, &t->part, &request, &j->failed))
        return true;
    return ++c->started == c->count;
}

static void translate_free(job *j)
{
    translate_job *c = (translate_job *)j;
    for (size_t i = 0; i < c->count; i++) {
        free(c->texts[i].source.at);
        json_decref(c->texts[i].results);
        buffer_release(&c->texts[i].text);
    }
    free(c->texts);
    free(c);
}

static const job_calls translate_calls = { .start = translate_start,
                                           .end = translate_end,
                                           .free = translate_free };

/* ---- reading ----------------------------------------------------------- */

/* Beam search, or greedy search; nothing is sampled. */
static bool options_read(translate_job *c, const json_t *body, failure *f)
{
    bauta_generate_options *o = &c->options;
    bool has;
    *o = c->model->defaults;
    o->do_sample = false;
    o->num_return_sequences = 1;
    if (!field_size(body, "num_beams", 1, BEAMS_MAX, &o->num_beams, NULL, f) ||
        !field_size(body, "num_return_sequences", 1, BEAMS_MAX,
                    &o->num_return_sequences, NULL, f) ||
        !field_real(body, "length_penalty", -100.0, 100.0, &o->length_penalty,
                    NULL, f) ||
        !field_size(body, "no_repeat_ngram_size", 0, TOKENS_MAX,
                    &o->no_repeat_ngram_size, NULL, f) ||
        !field_size(body, "max_tokens", 1, TOKENS_MAX, &o->max_new_tokens, &has,
                    f))
        return false;
    if (has)
        o->max_length = 0;
    if (o->num_return_sequences > o->num_beams)
        return fail(f, 400, "num_return_sequences", NULL,
                    "num_return_sequences is %zu, more than num_beams, %zu",
                    o->num_return_sequences, o->num_beams);
    return true;
}

static bool stream_read(translate_job *c, const json_t *body, failure *f)
{
    size_t vocab = bauta_model_vocab_size(c->model->opened->model);
    if (!field_bool(body, "stream", &c->job.stream, f) ||
        !field_size(body, "top_logprobs", 0, TOP_LOGPROBS_MAX, &c->top_logprobs,
                    NULL, f))
        return false;
    if (c->job.stream && (c->options.num_beams > 1 || c->count > 1))
        return fail(f, 400, "stream", "unsupported",
                    "stream is for one text and num_beams 1");
    if (c->top_logprobs && !c->job.stream)
        return fail(f, 400, "top_logprobs", "unsupported",
                    "top_logprobs needs stream");
    c->top_logprobs = c->top_logprobs < vocab ? c->top_logprobs : vocab;
    return true;
}

static bool source_read(translate_job *c, const json_t *value, failure *f)
{
    translation *t = &c->texts[c->count++];
    t->owner = c;
    if (!json_is_string(value))
        return fail(f, 400, "text", NULL,
                    "text must be a string or an array of strings");
    if (!prompt_encode(c->model, json_string_value(value),
                       json_string_length(value), true, "text", &t->source, f))
        return false;
    c->source_tokens += t->source.count;
    return prompt_check(c->model, t->source.count, "text", f);
}

static bool texts_read(translate_job *c, const json_t *body, failure *f)
{
    const json_t *value = field(body, "text");
    bool many = json_is_array(value);
    size_t count = many ? json_array_size(value) : 1;
    if (!value)
        return fail(f, 400, "text", NULL, "text is missing");
    if (!count || count > TEXTS_MAX)
        return fail(f, 400, "text", NULL,
                    "there are %zu texts, not from 1 to %d", count, TEXTS_MAX);
    c->texts = calloc(count, sizeof(*c->texts));
    if (!c->texts)
        return out_of_memory(f);
    for (size_t i = 0; i < count; i++)
        if (!source_read(c, many ? json_array_get(value, i) : value, f))
            return false;
    return true;
}

/* Tokens that the generator may write, at most. */
static double cost_of(const translate_job *c)
{
    const bauta_generate_options *o = &c->options;
    size_t each = o->max_new_tokens
                      ? o->max_new_tokens
                      : bauta_model_max_positions(c->model->opened->model);
    return (double)c->source_tokens +
           (double)c->count * (double)o->num_beams * (double)each;
}

bool translate_answer(const api_request *q, reply *out, failure *f)
{
    if (!kind_require(q->model, BAUTA_ENCODER_DECODER, f))
        return false;
    translate_job *c = calloc(1, sizeof(*c));
    if (!c)
        return out_of_memory(f);
    job_init(&c->job, &translate_calls);
    out->job = &c->job;
    c->model = q->model;
    if (!options_read(c, q->body, f) || !texts_read(c, q->body, f) ||
        !stream_read(c, q->body, f))
        return false;
    c->job.cost = cost_of(c);
    return true;
}
