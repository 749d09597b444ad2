/* SPDX-License-Identifier: Apache-2.0 */
/* completion_json.c - answers to completions, whole and as events; see
 * completion.h.
 *
 * Nothing in an answer depends on other requests, except for its id and the
 * time. Nine digits give every float back. */
#include "completion.h"

#include "../cli/json_output.h"
#include "../cli/lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DUMP = JSON_COMPACT | JSON_REAL_PRECISION(9) };

/* ---- logprobs ---------------------------------------------------------- */

static size_t characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* {"token": logprob}: the most likely tokens, and the one that was chosen. Of
 * several with one text the most likely counts, so it is set last. */
static json_t *top_json(const completion *c, const token_entry *entry)
{
    const bauta_tokenizer *t = c->model->opened->tokenizer;
    json_t *object = json_object();
    if (isnan(entry->logprob) || !c->top_logprobs) {
        json_decref(object);
        return json_null();
    }
    for (size_t i = c->top_logprobs + 1; i-- > 0;) {
        bool chosen = i == c->top_logprobs;
        json_t *name = token_json(t, chosen ? entry->token : entry->top[i]);
        json_object_set_new(
            object, json_string_value(name),
            json_number(
                (double)(chosen ? entry->logprob : entry->top_logprobs[i])));
        json_decref(name);
    }
    return object;
}

/* Advances the choice's offset. */
static json_t *logprobs_json(choice *h)
{
    const completion *c = h->owner;
    json_t *tokens = json_array(), *logprobs = json_array();
    json_t *tops = json_array(), *offsets = json_array();
    for (size_t i = 0; i < h->entries.count; i++) {
        const token_entry *entry = &h->entries.at[i];
        json_t *text = token_json(c->model->opened->tokenizer, entry->token);
        json_array_append_new(offsets, json_integer((json_int_t)h->offset));
        h->offset +=
            characters(json_string_value(text), json_string_length(text));
        json_array_append_new(tokens, text);
        json_array_append_new(logprobs, json_number((double)entry->logprob));
        json_array_append_new(tops, top_json(c, entry));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "text_offset", offsets,
                     "token_logprobs", logprobs, "tokens", tokens,
                     "top_logprobs", tops);
}

/* {"token", "logprob", "bytes"} */
static json_t *chat_token_json(const completion *c, uint32_t token,
                               float logprob)
{
    buffer text = { 0 };
    token_text(c->model->opened->tokenizer, token, &text);
    json_t *bytes = json_array();
    for (size_t i = 0; i < text.length; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text.at[i]));
    buffer_release(&text);
    return json_pack("{s:o, s:o, s:o}", "token",
                     token_json(c->model->opened->tokenizer, token), "logprob",
                     json_number((double)logprob), "bytes", bytes);
}

static json_t *chat_logprobs_json(const choice *h)
{
    const completion *c = h->owner;
    json_t *content = json_array();
    for (size_t i = 0; i < h->entries.count; i++) {
        const token_entry *entry = &h->entries.at[i];
        json_t *tops = json_array();
        json_t *token = chat_token_json(c, entry->token, entry->logprob);
        for (size_t j = 0; j < c->top_logprobs; j++)
            json_array_append_new(
                tops,
                chat_token_json(c, entry->top[j], entry->top_logprobs[j]));
        json_object_set_new(token, "top_logprobs", tops);
        json_array_append_new(content, token);
    }
    return json_pack("{s:o}", "content", content);
}

static json_t *choice_logprobs(choice *h)
{
    if (!h->owner->logprobs)
        return json_null();
    return h->owner->chat ? chat_logprobs_json(h) : logprobs_json(h);
}

/* ---- parts of an answer ------------------------------------------------ */

static json_t *usage_json(const completion *c)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens",
                     (json_int_t)c->prompt_tokens, "completion_tokens",
                     (json_int_t)c->completion_tokens, "total_tokens",
                     (json_int_t)(c->prompt_tokens + c->completion_tokens));
}

/* Takes over `choices`. */
static json_t *answer_json(const completion *c, json_t *choices)
{
    const char *object = !c->chat        ? "text_completion"
                         : c->job.stream ? "chat.completion.chunk"
                                         : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object,
                     "created", (json_int_t)c->created, "model",
                     c->model->alias, "choices", choices);
}

/* {"role", "content"} of a message or of a part of it. */
static json_t *message_json(const choice *h, json_t *text)
{
    json_t *message = json_object();
    if (!h->owner->job.stream || !h->begun)
        json_object_set_new(message, "role", json_string("assistant"));
    if (!h->owner->job.stream || !h->begun || json_string_length(text))
        json_object_set(message, "content", text);
    json_decref(text);
    return message;
}

/* A choice with `length` bytes of its text. */
static json_t *choice_json(choice *h, size_t length)
{
    const completion *c = h->owner;
    json_t *text = json_text(h->text.at ? h->text.at : "", length);
    const char *name = !c->chat ? "text" : c->job.stream ? "delta" : "message";
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)h->index,
                     name, c->chat ? message_json(h, text) : text, "logprobs",
                     choice_logprobs(h), "finish_reason", h->finish);
}

/* ---- answers ----------------------------------------------------------- */

/* Takes over `answer`. */
static void answer_write(completion *c, json_t *answer)
{
    char *text = json_dumps(answer, DUMP);
    size_t length = text ? strlen(text) : 0;
    buffer event = { 0 };
    json_decref(answer);
    if (c->job.stream)
        buffer_add(&event, "data: ", 6);
    buffer_add(&event, text ? text : "", length);
    if (c->job.stream)
        buffer_add(&event, "\n\n", 2);
    job_write(&c->job, 200,
              c->job.stream ? "text/event-stream" : "application/json",
              event.at ? event.at : "", event.length);
    buffer_release(&event);
    free(text);
}

void completion_write(completion *c)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < c->choice_count; i++)
        json_array_append_new(
            choices, choice_json(&c->choices[i], c->choices[i].text.length));
    json_t *answer = answer_json(c, choices);
    if (c->options.do_sample)
        json_object_set_new(answer, "seed",
                            json_integer((json_int_t)c->options.seed));
    json_object_set_new(answer, "usage", usage_json(c));
    answer_write(c, answer);
}

/* Text that has arrived since the last event; half a character waits. */
void choice_write(choice *h)
{
    completion *c = h->owner;
    size_t length = h->text.length;
    if (!h->finish && length)
        length = utf8_prefix(h->text.at, length);
    if (!length && !h->entries.count && !h->finish)
        return;
    json_t *answer = answer_json(c, json_pack("[o]", choice_json(h, length)));
    if (c->include_usage)
        json_object_set_new(answer, "usage", json_null());
    answer_write(c, answer);
    h->begun = true;
    h->entries.count = 0;
    h->text.length -= length;
    if (h->text.length)
        memmove(h->text.at, h->text.at + length, h->text.length);
}

void usage_write(completion *c)
{
    if (c->include_usage) {
        json_t *answer = answer_json(c, json_array());
        json_object_set_new(answer, "usage", usage_json(c));
        answer_write(c, answer);
    }
    job_write(&c->job, 200, NULL, "data: [DONE]\n\n", 14);
}
