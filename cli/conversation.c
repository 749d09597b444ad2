/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.c - messages, the chat template, and answers; see
 * conversation.h. */
#include "conversation.h"

#include "cli.h"
#include "format.h"
#include "json_output.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ----------------------------------------------------------- */

/* An array of objects, from a file. NULL after a message. */
static json_t *array_load(const char *path, const char *what)
{
    json_error_t error;
    size_t i;
    json_t *array = json_load_file(path, 0, &error), *value;
    bool good = json_is_array(array);
    if (!array) {
        (void)cli_fail(VERB, "%s: line %d: %s", path, error.line, error.text);
        return NULL;
    }
    json_array_foreach(array, i, value) good = good && json_is_object(value);
    if (good)
        return array;
    (void)cli_fail(VERB, "%s: %s are not an array of objects", path, what);
    json_decref(array);
    return NULL;
}

static bauta_status generator_open(conversation *c, bauta_error *err)
{
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    how.max_sequences = 1;
    how.cached_sequences = 1;
    how.cache_bytes = (uint64_t)c->how->cache_mb << 20;
    return bauta_generator_create(&c->generator, c->model->context,
                                  c->model->model, c->model->tokenizer, &how,
                                  err);
}

int conversation_open(conversation *c, const chat_options *how,
                      const opened_model *model,
                      const bauta_generate_options *options)
{
    bauta_error err;
    *c = (conversation){ .how = how, .model = model, .options = *options };
    c->messages = json_array();
    if (bauta_chat_template_load(&c->template, model->folder, NULL, &err))
        return cli_fail(VERB,
                        "%s; 'bauta generate' continues texts without a chat "
                        "template",
                        err.message);
    if (generator_open(c, &err))
        return cli_fail(VERB, "%s", err.message);
    if (how->system)
        conversation_set_system(c, how->system);
    if (how->tools_file) {
        c->tools = array_load(how->tools_file, "the tools");
        return c->tools ? CLI_OK : CLI_FAILED;
    }
    return CLI_OK;
}

void conversation_close(conversation *c)
{
    bauta_generator_free(c->generator);
    bauta_chat_template_free(c->template);
    json_decref(c->messages);
    json_decref(c->tools);
}

/* ---- messages ---------------------------------------------------------- */

static const char *role_at(const conversation *c, size_t i)
{
    const char *role = json_string_value(
        json_object_get(json_array_get(c->messages, i), "role"));
    return role ? role : "";
}

static bool has_system(const conversation *c)
{
    return strcmp(role_at(c, 0), "system") == 0;
}

static json_t *message_make(const char *role, const char *text, size_t length)
{
    return json_pack("{s:s, s:o}", "role", role, "content",
                     json_text(text, length));
}

void conversation_set_system(conversation *c, const char *text)
{
    if (has_system(c))
        json_array_remove(c->messages, 0);
    if (*text)
        json_array_insert_new(c->messages, 0,
                              message_make("system", text, strlen(text)));
}

static void messages_cut(conversation *c, size_t count)
{
    while (json_array_size(c->messages) > count)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

void conversation_clear(conversation *c)
{
    messages_cut(c, has_system(c));
}

bool conversation_undo(conversation *c)
{
    for (size_t i = json_array_size(c->messages); i-- > 0;)
        if (strcmp(role_at(c, i), "user") == 0) {
            messages_cut(c, i);
            return true;
        }
    return false;
}

void conversation_add(conversation *c, const char *role, const char *text,
                      size_t length)
{
    json_array_append_new(c->messages, message_make(role, text, length));
}

/* Messages without an answer. */
static void unanswered_remove(conversation *c)
{
    size_t count = json_array_size(c->messages);
    while (count > (has_system(c) ? 1u : 0u) &&
           strcmp(role_at(c, count - 1), "assistant") != 0)
        count--;
    messages_cut(c, count);
}

int conversation_save(const conversation *c, const char *path)
{
    if (json_dump_file(c->messages, path, JSON_INDENT(2)) == 0)
        return CLI_OK;
    return cli_fail(VERB, "%s: %s", path, strerror(errno));
}

int conversation_load(conversation *c, const char *path)
{
    json_t *messages = array_load(path, "the messages");
    if (!messages)
        return CLI_FAILED;
    json_decref(c->messages);
    c->messages = messages;
    return CLI_OK;
}

/* ---- prompts ----------------------------------------------------------- */

/* The messages as a prompt, for bauta_text_free(). NULL after a message. */
static char *prompt_render(const conversation *c, size_t *length)
{
    bauta_error err;
    char *text = NULL;
    json_t *all = json_pack("{s:O, s:b}", "messages", c->messages,
                            "add_generation_prompt", 1);
    if (c->tools)
        json_object_set(all, "tools", c->tools);
    char *json = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!json)
        (void)cli_fail(VERB, "out of memory");
    else if (bauta_chat_template_render(c->template, json, strlen(json), &text,
                                        length, &err))
        (void)cli_fail(VERB, "%s", err.message);
    free(json);
    return text;
}

int conversation_print(const conversation *c)
{
    size_t length;
    char *text = prompt_render(c, &length);
    if (!text)
        return CLI_FAILED;
    fwrite(text, 1, length, stdout);
    if (!length || text[length - 1] != '\n')
        putchar('\n');
    bauta_text_free(text);
    return cli_finish(VERB);
}

/* The template writes the special tokens. */
static int prompt_encode(const conversation *c, bauta_tokens *out)
{
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_error err;
    size_t length;
    char *text = prompt_render(c, &length);
    if (!text)
        return CLI_FAILED;
    how.no_special_tokens = true;
    bauta_status status = bauta_tokenizer_encode(c->model->tokenizer, text,
                                                 length, &how, out, &err);
    bauta_text_free(text);
    return status ? cli_fail(VERB, "%s", err.message) : CLI_OK;
}

/* ---- answers ----------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    if (interrupted) { // a second one: die of it
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

void answer_interrupts_catch(void)
{
    struct sigaction action = { .sa_handler = interrupt };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL); // without SA_RESTART: read() ends, too
}

bool answer_interrupted(void)
{
    return interrupted;
}

typedef struct answer_printer {
    bool silent;  /* --json */
    bool newline; /* whether the output ends in one */
    double first; /* time of the first token; 0: none yet */
} answer_printer;

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    answer_printer *p = user;
    (void)token;
    (void)logprob;
    if (p->first == 0.0)
        p->first = seconds_now();
    if (!p->silent && length) {
        fwrite(text, 1, length, stdout);
        p->newline = text[length - 1] == '\n';
    }
    // Stop if stdout is closed.
    return fflush(stdout) == 0 && !ferror(stdout) && !interrupted;
}

static void statistics_print(const bauta_result *r, const answer_printer *p,
                             double begun)
{
    double now = seconds_now(), first = p->first > 0.0 ? p->first : now;
    size_t made = r->hypotheses[0]->count;
    fprintf(stderr, "%zu prompt tokens (%zu cached), %zu new tokens",
            r->prompt_tokens, r->cached_tokens, made);
    if (made > 1)
        fprintf(stderr, " at %.1f tokens/s",
                (double)(made - 1) / fmax(now - first, 1e-9));
    fprintf(stderr, ", first after %.2f s (%s)\n", first - begun,
            interrupted ? "interrupted"
                        : bauta_finish_text(r->hypotheses[0]->finish));
}

static int answer_json(const conversation *c, const bauta_result *r)
{
    const bauta_hypothesis *h = r->hypotheses[0];
    json_t *object = json_pack(
        "{s:s, s:o, s:s, s:I, s:I, s:I}", "role", "assistant", "content",
        json_text(h->text, h->text_length), "finish",
        bauta_finish_text(h->finish), "prompt_tokens",
        (json_int_t)r->prompt_tokens, "cached_tokens",
        (json_int_t)r->cached_tokens, "new_tokens", (json_int_t)h->count);
    if (c->options.do_sample)
        json_object_set_new(object, "seed",
                            json_integer((json_int_t)c->options.seed));
    return json_line(VERB, object);
}

static int answer_take(conversation *c, const bauta_result *r,
                       const answer_printer *p, double begun)
{
    const bauta_hypothesis *h = r->status ? NULL : r->hypotheses[0];
    if (!p->silent && !p->newline)
        putchar('\n');
    if (!h) {
        fflush(stdout);
        return cli_fail(VERB, "%s", r->message);
    }
    int failed = p->silent ? answer_json(c, r) : cli_finish(VERB);
    conversation_add(c, "assistant", h->text, h->text_length);
    c->options.seed++;
    if (!failed && !c->how->quiet)
        statistics_print(r, p, begun);
    return failed;
}

/* After a failure of a step the generator has the request still, so a new one
 * takes its place. */
static int prompt_run(conversation *c, const bauta_request *request,
                      bauta_result **out)
{
    bauta_error err, again;
    size_t left = 1;
    bauta_status status = bauta_generator_add(c->generator, request, &err);
    if (status)
        return cli_fail(VERB, "%s", err.message);
    while (!status && left)
        status = bauta_generator_step(c->generator, &left, &err);
    if (!status) {
        *out = bauta_generator_take(c->generator);
        return CLI_OK;
    }
    bauta_generator_free(c->generator);
    c->generator = NULL;
    (void)cli_fail(VERB, "%s", err.message);
    if (generator_open(c, &again))
        exit(cli_fail(VERB, "%s", again.message));
    return CLI_FAILED;
}

int conversation_answer(conversation *c)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_result *result = NULL;
    bauta_tokens prompt = { 0 };
    answer_printer p = { .silent = c->how->json };
    double begun = seconds_now();
    interrupted = 0;
    int failed = prompt_encode(c, &prompt);
    request.tokens = prompt.ids;
    request.count = prompt.count;
    request.options = &c->options;
    request.on_token = on_token;
    request.user = &p;
    if (!failed)
        failed = prompt_run(c, &request, &result);
    if (!failed)
        failed = answer_take(c, result, &p, begun);
    bauta_result_free(result);
    bauta_tokens_release(&prompt);
    if (failed)
        unanswered_remove(c);
    return failed;
}
