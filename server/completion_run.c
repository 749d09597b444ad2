/* SPDX-License-Identifier: Apache-2.0 */
/* completion_run.c - running a completion; see completion.h. Everything here is
 * called by the scheduler's thread. */
#include "completion.h"

#include "../cli/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

token_entry *token_entries_add(token_entries *t)
{
    if (t->count == t->room) {
        size_t room = 2 * t->room + 16;
        token_entry *more = realloc(t->at, room * sizeof(*more));
        if (!more)
            return NULL;
        t->at = more;
        t->room = room;
    }
    t->at[t->count] = (token_entry){ .logprob = NAN };
    return &t->at[t->count++];
}

static bool out_of_memory(completion *c)
{
    return fail(&c->job.failed, 503, NULL, NULL, "out of memory");
}

/* ---- tokens ------------------------------------------------------------ */

/* The `k` largest logits, best first; of equal ones the smaller id first. */
static void top_find(const float *logits, size_t vocab, size_t k, uint32_t *ids)
{
    size_t count = 0;
    for (size_t i = 0; i < vocab; i++) {
        if (count == k && !(logits[i] > logits[ids[k - 1]]))
            continue;
        size_t at = count < k ? count++ : k - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = (uint32_t)i;
    }
}

/* The log of the sum of exponentials, in double precision. */
static double log_sum_exp(const float *logits, size_t vocab, float max)
{
    double sum = 0.0;
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    return (double)max + log(sum);
}

void token_entry_rank(token_entry *entry, size_t k, const float *logits,
                      size_t vocab)
{
    if (k == 0)
        return;
    top_find(logits, vocab, k, entry->top);
    double all = log_sum_exp(logits, vocab, logits[entry->top[0]]);
    for (size_t i = 0; i < k; i++)
        entry->top_logprobs[i] = (float)((double)logits[entry->top[i]] - all);
}

void token_entry_choose(token_entry *entry, size_t k, uint32_t token,
                        float logprob)
{
    entry->token = token;
    entry->logprob = logprob;
    for (size_t i = 0; i < k; i++)
        if (entry->top[i] == token)
            entry->top_logprobs[i] = logprob;
}

/* Called before token_arrived(), which completes the entry. */
static void logits_arrived(void *user, size_t position, const float *logits,
                           size_t vocab)
{
    choice *h = user;
    token_entry *entry = token_entries_add(&h->entries);
    (void)position;
    if (entry)
        token_entry_rank(entry, h->owner->top_logprobs, logits, vocab);
    else
        out_of_memory(h->owner);
}

static void token_measure(choice *h)
{
    metrics *m = &h->owner->model->metrics;
    double now = seconds_now();
    if (h->tokens++)
        metrics_observe(m, METRICS_INTER_TOKEN, now - h->last);
    else
        metrics_observe(m, METRICS_FIRST_TOKEN, now - h->owner->job.arrived);
    h->last = now;
}

static bool token_arrived(void *user, uint32_t token, float logprob,
                          const char *text, size_t length)
{
    choice *h = user;
    completion *c = h->owner;
    if (token != BAUTA_NO_TOKEN) {
        token_measure(h);
        if (c->logprobs && !c->job.failed.status)
            token_entry_choose(&h->entries.at[h->entries.count - 1],
                               c->top_logprobs, token, logprob);
    }
    buffer_add(&h->text, text, length);
    if (h->text.failed)
        out_of_memory(c);
    if (job_stopped(&c->job))
        return false;
    if (c->job.stream && token != BAUTA_NO_TOKEN)
        choice_write(h);
    return true;
}

/* ---- echo -------------------------------------------------------------- */

static bauta_status prompt_logprobs(completion *c, const prompt *p,
                                    float *logprobs, uint32_t *top,
                                    double *probabilities, bauta_error *err)
{
    const opened_model *m = c->model->opened;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_top_tokens_options how = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    size_t count = p->ids.count;
    uint32_t *labels = malloc(count * sizeof(*labels));
    size_t *rows = malloc(count * sizeof(*rows));
    bauta_status status = labels && rows ? BAUTA_OK : BAUTA_ERR_NOMEM;
    snprintf(err->message, sizeof(err->message), "out of memory");
    for (size_t i = 0; i < count && !status; i++) {
        labels[i] = i + 1 < count ? p->ids.at[i + 1] : BAUTA_IGNORE;
        rows[i] = i;
    }
    batch.count = 1;
    batch.lengths = &count;
    batch.ids = p->ids.at;
    how.top_k = c->top_logprobs;
    if (!status)
        status = bauta_model_logprobs(m->context, m->model, NULL, &batch,
                                      labels, logprobs, err);
    if (!status && c->top_logprobs && count > 1)
        status =
            bauta_model_top_tokens(m->context, m->model, NULL, &batch, rows,
                                   count - 1, &how, top, probabilities, err);
    free(labels);
    free(rows);
    return status;
}

/* The first token has no probability: nothing precedes it. */
static bool prompt_entries(prompt *p, size_t k, const float *logprobs,
                           const uint32_t *top, const double *probabilities)
{
    for (size_t i = 0; i < p->ids.count; i++) {
        token_entry *entry = token_entries_add(&p->entries);
        if (!entry)
            return false;
        entry->token = p->ids.at[i];
        if (i == 0)
            continue;
        entry->logprob = logprobs[i - 1];
        for (size_t j = 0; j < k; j++) {
            size_t at = (i - 1) * k + j;
            entry->top[j] = top[at];
            entry->top_logprobs[j] = top[at] == entry->token
                                         ? entry->logprob
                                         : (float)log(probabilities[at]);
        }
    }
    return true;
}

static bool prompt_score(completion *c, prompt *p)
{
    bauta_error err;
    size_t count = p->ids.count, k = c->top_logprobs;
    float *logprobs = malloc(count * sizeof(*logprobs));
    uint32_t *top = malloc((count * k + 1) * sizeof(*top));
    double *probabilities = malloc((count * k + 1) * sizeof(*probabilities));
    bool good = logprobs && top && probabilities;
    if (!good)
        out_of_memory(c);
    else if (prompt_logprobs(c, p, logprobs, top, probabilities, &err))
        good = fail(&c->job.failed, 500, NULL, NULL, "%s", err.message);
    else if (!prompt_entries(p, k, logprobs, top, probabilities))
        good = out_of_memory(c);
    free(logprobs);
    free(top);
    free(probabilities);
    return good;
}

static bool echo_begin(choice *h)
{
    completion *c = h->owner;
    prompt *p = h->prompt;
    buffer_add(&h->text, p->text.at, p->text.length);
    if (!c->logprobs)
        return true;
    if (!p->entries.count && !prompt_score(c, p))
        return false;
    for (size_t i = 0; i < p->entries.count; i++) {
        token_entry *entry = token_entries_add(&h->entries);
        if (!entry)
            return out_of_memory(c);
        *entry = p->entries.at[i];
    }
    return true;
}

/* ---- parts ------------------------------------------------------------- */

/* Beam search reports no tokens as they come. */
static void beam_take(choice *h, const bauta_hypothesis *best)
{
    buffer_add(&h->text, best->text, best->text_length);
    for (size_t i = 0; i < best->count && h->owner->logprobs; i++) {
        token_entry *entry = token_entries_add(&h->entries);
        if (!entry) {
            out_of_memory(h->owner);
            return;
        }
        entry->token = best->tokens[i];
        entry->logprob = best->logprobs[i];
    }
}

static void choice_finish(part *p, const bauta_result *result)
{
    choice *h = (choice *)p;
    completion *c = h->owner;
    const bauta_hypothesis *best = result->hypotheses[0];
    metrics *m = &c->model->metrics;
    bool stop =
        best->finish == BAUTA_FINISH_END || best->finish == BAUTA_FINISH_STOP;
    metrics_add(m, METRICS_PROMPT_TOKENS, result->prompt_tokens);
    metrics_add(m, METRICS_PREFIX_QUERIES, result->prompt_tokens);
    metrics_add(m, METRICS_PREFIX_HITS, result->cached_tokens);
    metrics_add(m, METRICS_GENERATION_TOKENS, best->count);
    if (best->finish == BAUTA_FINISH_CANCELLED)
        return;
    if (h->options.num_beams > 1)
        beam_take(h, best);
    c->completion_tokens += best->count;
    h->finish = stop ? "stop" : "length";
    if (c->job.stream)
        choice_write(h);
}

static bool choice_start(choice *h, scheduler *s)
{
    completion *c = h->owner;
    bauta_request request = BAUTA_REQUEST_INIT;
    if (c->echo && !echo_begin(h))
        return false;
    if (c->scores_only)
        h->finish = "length";
    if (c->job.stream && (c->echo || c->scores_only))
        choice_write(h);
    if (c->scores_only)
        return true;
    h->part = (part){ &c->job, choice_finish };
    request.tokens = h->prompt->ids.at;
    request.count = h->prompt->ids.count;
    request.options = &h->options;
    request.on_token = token_arrived;
    request.on_logits = c->logprobs ? logits_arrived : NULL;
    request.user = h;
    return scheduler_start(s, &h->part, &request, &c->job.failed);
}

static bool completion_start(job *j, scheduler *s)
{
    completion *c = (completion *)j;
    if (!choice_start(&c->choices[c->started], s))
        return true;
    return ++c->started == c->choice_count;
}

static void completion_end(job *j, scheduler *s)
{
    completion *c = (completion *)j;
    (void)s;
    if (c->job.stream)
        usage_write(c);
    else
        completion_write(c);
}

static void completion_free(job *j)
{
    completion *c = (completion *)j;
    for (size_t i = 0; i < c->prompt_count; i++) {
        free(c->prompts[i].ids.at);
        buffer_release(&c->prompts[i].text);
        free(c->prompts[i].entries.at);
    }
    for (size_t i = 0; c->choices && i < c->choice_count; i++) {
        buffer_release(&c->choices[i].text);
        free(c->choices[i].entries.at);
    }
    free(c->prompts);
    free(c->choices);
    free(c->stops);
    free(c->biases);
    json_decref(c->body);
    free(c);
}

const job_calls completion_calls = { .start = completion_start,
                                     .end = completion_end,
                                     .free = completion_free };
