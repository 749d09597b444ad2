/* SPDX-License-Identifier: Apache-2.0 */
/* completions.c - requests to /v1/completions and /v1/chat/completions. */
#include "completion.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    TOKENS_DEFAULT = 16, /* of /v1/completions, as in the OpenAI API */
    TOKENS_MAX = 1 << 24
};

static bool out_of_memory(failure *f)
{
    return fail(f, 503, NULL, NULL, "out of memory");
}

/* ---- options ----------------------------------------------------------- */

/* Options that change results, and that the library does not have. */
static bool unsupported_check(const json_t *body, failure *f)
{
    const json_t *format = field(body, "response_format");
    const char *kind = json_string_value(json_object_get(format, "type"));
    if (field(body, "suffix"))
        return fail(f, 400, "suffix", "unsupported", "suffix is not supported");
    if (format && (!kind || strcmp(kind, "text") != 0))
        return fail(f, 400, "response_format", "unsupported",
                    "response_format is not supported; its type must be text");
    return true;
}

static uint64_t seed_choose(void)
{
    uint32_t seed;
    if (getentropy(&seed, sizeof(seed)) != 0)
        seed = (uint32_t)time(NULL);
    return seed;
}

/* Seeds are signed in the OpenAI API; -1 is 2^64 - 1 here. */
static bool seed_read(const json_t *body, bool *has, uint64_t *out, failure *f)
{
    const json_t *seed = field(body, "seed");
    *has = seed != NULL;
    if (seed && !json_is_integer(seed))
        return fail(f, 400, "seed", NULL, "seed must be a whole number");
    *out = seed ? (uint64_t)json_integer_value(seed) : seed_choose();
    return true;
}

/* As in `bauta generate`: the folder's options, and any of these enables
 * sampling, except for a temperature of 0, which disables it. */
static bool sampling_read(const json_t *body, bauta_generate_options *o,
                          failure *f)
{
    bool temperature, top_k, top_p, min_p, seed;
    if (!field_real(body, "temperature", 0.0, 1e6, &o->temperature,
                    &temperature, f) ||
        !field_size(body, "top_k", 0, TOKENS_MAX, &o->top_k, &top_k, f) ||
        !field_real(body, "top_p", 0.0, 1.0, &o->top_p, &top_p, f) ||
        !field_real(body, "min_p", 0.0, 1.0, &o->min_p, &min_p, f) ||
        !field_real(body, "repetition_penalty", 0.01, 100.0,
                    &o->repetition_penalty, NULL, f) ||
        !seed_read(body, &seed, &o->seed, f))
        return false;
    if (temperature || top_k || top_p || min_p || seed)
        o->do_sample = true;
    if (temperature && o->temperature == 0.0f) {
        o->do_sample = false;
        o->temperature = 1.0f;
    }
    if (o->do_sample) // a folder may ask for beams, which are not sampled
        o->num_beams = 1;
    return true;
}

static int bias_compare(const void *a, const void *b)
{
    const bauta_token_bias *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

/* {"15043": 5}: token ids, as JSON writes whole numbers, and numbers. */
static bool bias_read(bauta_token_bias *out, const char *name,
                      const json_t *value, size_t vocab, failure *f)
{
    char *end;
    bool digits = *name >= '0' && *name <= '9' && (*name != '0' || !name[1]);
    unsigned long long id = strtoull(name, &end, 10);
    double bias = json_number_value(value);
    if (!digits || *end || id >= vocab)
        return fail(f, 400, "logit_bias", NULL,
                    "logit_bias: '%.40s' is not a token id from 0 to %zu", name,
                    vocab - 1);
    if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
        return fail(f, 400, "logit_bias", NULL,
                    "logit_bias: the bias of token %llu must be a number from "
                    "-100 to 100",
                    id);
    *out = (bauta_token_bias){ (uint32_t)id, (float)bias };
    return true;
}

static bool biases_read(completion *c, size_t vocab, failure *f)
{
    json_t *all = field(c->body, "logit_bias"), *value;
    const char *name;
    size_t count = 0;
    if (all && !json_is_object(all))
        return fail(f, 400, "logit_bias", NULL, "logit_bias must be an object");
    c->biases = calloc(json_object_size(all) + 1, sizeof(*c->biases));
    if (!c->biases)
        return out_of_memory(f);
    json_object_foreach(all, name, value)
    {
        if (!bias_read(&c->biases[count++], name, value, vocab, f))
            return false;
    }
    qsort(c->biases, count, sizeof(*c->biases), bias_compare);
    c->options.logit_bias = c->biases;
    c->options.logit_bias_count = count;
    return true;
}

static bool penalties_read(completion *c, failure *f)
{
    bauta_generate_options *o = &c->options;
    return field_real(c->body, "presence_penalty", -2.0, 2.0,
                      &o->presence_penalty, NULL, f) &&
           field_real(c->body, "frequency_penalty", -2.0, 2.0,
                      &o->frequency_penalty, NULL, f);
}

static bool length_read(completion *c, failure *f)
{
    bauta_generate_options *o = &c->options;
    size_t tokens = 0;
    bool has, has_new = false;
    if (!field_size(c->body, "max_tokens", 0, TOKENS_MAX, &tokens, &has, f) ||
        !field_size(c->body, "max_completion_tokens", 1, TOKENS_MAX, &tokens,
                    &has_new, f))
        return false;
    has = has || has_new;
    if (has && tokens == 0 && !c->echo)
        return fail(f, 400, "max_tokens", NULL,
                    "max_tokens is 0, which needs echo");
    c->scores_only = has && tokens == 0;
    if (!has && (o->max_new_tokens || o->max_length || c->chat))
        return true; // the folder's, or the model's context
    o->max_new_tokens = has ? tokens : TOKENS_DEFAULT;
    o->max_length = 0;
    return true;
}

/* A stop string, or an array of them. They follow those of the folder. */
static bool stops_read(completion *c, failure *f)
{
    bauta_generate_options *o = &c->options;
    const json_t *stop = field(c->body, "stop");
    size_t count = json_is_array(stop) ? json_array_size(stop) : stop != NULL;
    size_t before = o->stop_string_count;
    if (count > STOPS_MAX)
        return fail(f, 400, "stop", NULL, "stop has more than %d strings",
                    STOPS_MAX);
    c->stops = calloc(before + count + 1, sizeof(*c->stops));
    if (!c->stops)
        return out_of_memory(f);
    for (size_t i = 0; i < before; i++)
        c->stops[i] = o->stop_strings[i];
    for (size_t i = 0; i < count; i++) {
        const json_t *s = json_is_array(stop) ? json_array_get(stop, i) : stop;
        const char *text = json_string_value(s);
        if (!text || !*text || strlen(text) != json_string_length(s))
            return fail(f, 400, "stop", NULL,
                        "stop must be a string or an array of strings, not "
                        "empty and without NUL");
        c->stops[before + i] = text;
    }
    o->stop_strings = c->stops;
    o->stop_string_count = before + count;
    return true;
}

/* A number for completions; true and top_logprobs for chat. */
static bool logprobs_read(completion *c, failure *f)
{
    if (!c->chat)
        return field_size(c->body, "logprobs", 0, TOP_LOGPROBS_MAX,
                          &c->top_logprobs, &c->logprobs, f);
    bool top;
    if (!field_bool(c->body, "logprobs", &c->logprobs, f) ||
        !field_size(c->body, "top_logprobs", 0, TOP_LOGPROBS_MAX,
                    &c->top_logprobs, &top, f))
        return false;
    if (top && !c->logprobs)
        return fail(f, 400, "top_logprobs", NULL,
                    "top_logprobs needs logprobs");
    return true;
}

static bool stream_read(completion *c, failure *f)
{
    const json_t *options = field(c->body, "stream_options");
    if (!field_bool(c->body, "stream", &c->job.stream, f))
        return false;
    if (options && !json_is_object(options))
        return fail(f, 400, "stream_options", NULL,
                    "stream_options must be an object");
    return !options ||
           field_bool(options, "include_usage", &c->include_usage, f);
}

static bool options_read(completion *c, failure *f)
{
    size_t vocab = bauta_model_vocab_size(c->model->opened->model);
    c->options = c->model->defaults;
    if (!unsupported_check(c->body, f) ||
        !sampling_read(c->body, &c->options, f) || !penalties_read(c, f) ||
        !biases_read(c, vocab, f) || !stream_read(c, f) ||
        !logprobs_read(c, f) || !field_bool(c->body, "echo", &c->echo, f) ||
        !length_read(c, f) || !stops_read(c, f))
        return false;
    if (c->top_logprobs > vocab)
        c->top_logprobs = vocab;
    if (c->chat && c->echo)
        return fail(f, 400, "echo", "unsupported",
                    "echo is for /v1/completions");
    return true;
}

/* ---- prompts ----------------------------------------------------------- */

static bool prompt_text(completion *c, const json_t *value, prompt *p,
                        failure *f)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (c->echo)
        buffer_add(&p->text, text, length);
    return prompt_encode(c->model, text, length, true, "prompt", &p->ids, f);
}

static bool prompt_ids(completion *c, const json_t *value, prompt *p,
                       failure *f)
{
    const opened_model *m = c->model->opened;
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    bauta_error err;
    char *text;
    size_t length;
    p->ids.at = ids_read(value, "prompt", bauta_model_vocab_size(m->model),
                         &p->ids.count, f);
    if (!p->ids.at)
        return false;
    if (p->ids.count == 0)
        return fail(f, 400, "prompt", NULL, "prompt has no tokens");
    if (!c->echo)
        return true;
    how.keep_special_tokens = true;
    if (bauta_tokenizer_decode(m->tokenizer, p->ids.at, p->ids.count, &how,
                               &text, &length, &err))
        return fail(f, 400, "prompt", NULL, "%s", err.message);
    buffer_add(&p->text, text, length);
    bauta_text_free(text);
    return true;
}

static bool prompt_read(completion *c, const json_t *value, failure *f)
{
    prompt *p = &c->prompts[c->prompt_count++];
    if (json_is_string(value))
        return prompt_text(c, value, p, f);
    if (json_is_array(value))
        return prompt_ids(c, value, p, f);
    return fail(f, 400, "prompt", NULL,
                "prompt must be a string, an array of strings, an array of "
                "token ids or an array of such arrays");
}

static bool prompts_read(completion *c, failure *f)
{
    const json_t *value = field(c->body, "prompt");
    const json_t *first = json_array_get(value, 0);
    bool many = json_is_string(first) || json_is_array(first);
    size_t count = many ? json_array_size(value) : 1;
    if (!value)
        return fail(f, 400, "prompt", NULL, "prompt is missing");
    if (count > CHOICES_MAX)
        return fail(f, 400, "prompt", NULL, "there are more than %d prompts",
                    CHOICES_MAX);
    c->prompts = calloc(count, sizeof(*c->prompts));
    if (!c->prompts)
        return out_of_memory(f);
    for (size_t i = 0; i < count; i++)
        if (!prompt_read(c, many ? json_array_get(value, i) : value, f))
            return false;
    return true;
}

static bool messages_read(completion *c, failure *f)
{
    buffer text = { 0 };
    c->prompts = calloc(1, sizeof(*c->prompts));
    if (!c->prompts)
        return out_of_memory(f);
    c->prompt_count = 1;
    // The template writes the special tokens.
    bool good = chat_render(c->model->chat, c->body, &text, f) &&
                prompt_encode(c->model, text.at ? text.at : "", text.length,
                              false, "messages", &c->prompts[0].ids, f);
    buffer_release(&text);
    return good;
}

static bool prompts_check(completion *c, failure *f)
{
    for (size_t i = 0; i < c->prompt_count; i++) {
        size_t count = c->prompts[i].ids.count;
        if (!prompt_check(c->model, count, c->chat ? "messages" : "prompt", f))
            return false;
        if (c->prompts[i].text.failed)
            return out_of_memory(f);
        c->prompt_tokens += count;
    }
    return true;
}

/* ---- choices ----------------------------------------------------------- */

/* Choice i has the seed plus i, so that equal prompts give different texts. */
static bool choices_make(completion *c, failure *f)
{
    size_t n = 1, best = 0;
    if (!field_size(c->body, "n", 1, CHOICES_MAX, &n, NULL, f) ||
        !field_size(c->body, "best_of", 1, CHOICES_MAX, &best, NULL, f))
        return false;
    if (best > n)
        return fail(f, 400, "best_of", "unsupported",
                    "best_of is not supported; it must be n");
    if (n * c->prompt_count > CHOICES_MAX)
        return fail(f, 400, "n", NULL, "there are more than %d choices",
                    CHOICES_MAX);
    c->choice_count = n * c->prompt_count;
    c->choices = calloc(c->choice_count, sizeof(*c->choices));
    if (!c->choices)
        return out_of_memory(f);
    for (size_t i = 0; i < c->choice_count; i++) {
        choice *h = &c->choices[i];
        h->owner = c;
        h->index = i;
        h->prompt = &c->prompts[i / n];
        h->options = c->options;
        h->options.seed += i;
        c->job.cost += (double)h->prompt->ids.count;
        c->job.cost +=
            c->options.max_new_tokens
                ? (double)c->options.max_new_tokens
                : (double)bauta_model_max_positions(c->model->opened->model);
    }
    return true;
}

static void id_make(char id[48], bool chat)
{
    uint64_t number[2] = { 0, 0 };
    if (getentropy(number, sizeof(number)) != 0)
        number[0] = (uint64_t)time(NULL);
    snprintf(id, 48, "%s-%016llx%08llx", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)number[0],
             (unsigned long long)(number[1] >> 32));
}

static bool completion_make(const api_request *q, bool chat, reply *out,
                            failure *f)
{
    if (!kind_require(q->model, BAUTA_DECODER_ONLY, f))
        return false;
    completion *c = calloc(1, sizeof(*c));
    if (!c)
        return out_of_memory(f);
    job_init(&c->job, &completion_calls);
    out->job = &c->job; // released by the connection in any case
    c->model = q->model;
    c->chat = chat;
    c->body = json_incref((json_t *)(uintptr_t)q->body);
    c->created = time(NULL);
    id_make(c->id, chat);
    return options_read(c, f) &&
           (chat ? messages_read(c, f) : prompts_read(c, f)) &&
           prompts_check(c, f) && choices_make(c, f);
}

bool completions_answer(const api_request *q, reply *out, failure *f)
{
    return completion_make(q, false, out, f);
}

bool chat_completions_answer(const api_request *q, reply *out, failure *f)
{
    return completion_make(q, true, out, f);
}
