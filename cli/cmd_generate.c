/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_generate.c - bauta generate: continue prompts with a decoder-only model.
 */
#include "generate.h"

#include "cli.h"
#include "json_output.h"
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lines and JSON ---------------------------------------------------- */

size_t unescape_line(char *line, size_t length)
{
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        char next = i + 1 < length ? line[i + 1] : '\0';
        bool escape = line[i] == '\\' && (next == 'n' || next == '\\');
        line[at++] = !escape ? line[i] : next == 'n' ? '\n' : '\\';
        i += escape;
    }
    line[at] = '\0';
    return at;
}

void escaped_print(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            fputs("\\n", stdout);
        else if (text[i] == '\\')
            fputs("\\\\", stdout);
        else
            putchar(text[i]);
    putchar('\n');
}

static json_t *hypothesis_json(const bauta_hypothesis *h)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:I}", "text",
                     json_text(h->text ? h->text : "", h->text_length),
                     "tokens", json_ids(h->tokens, h->count), "logprobs",
                     json_floats(h->logprobs, h->count), "score",
                     json_number(h->score), "finish",
                     bauta_finish_text(h->finish), "new_tokens",
                     (json_int_t)h->count);
}

/* The best text is in the object itself; "texts" lists all if there are
 * several.
 */
int result_json(const bauta_generate_options *options, const bauta_result *r,
                const char *prompt, size_t length, double seconds)
{
    json_t *object = json_pack("{s:o}", "prompt", json_text(prompt, length));
    json_t *best = hypothesis_json(r->hypotheses[0]);
    if (!object || !best || json_object_update(object, best)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(best);
    if (!object)
        return cli_fail(VERB, "out of memory");
    if (r->count > 1) {
        json_t *all = json_array();
        for (size_t i = 0; i < r->count; i++)
            json_array_append_new(all, hypothesis_json(r->hypotheses[i]));
        json_object_set_new(object, "texts", all);
    }
    json_object_set_new(object, "prompt_tokens",
                        json_integer((json_int_t)r->prompt_tokens));
    json_object_set_new(object, "shared_tokens",
                        json_integer((json_int_t)r->cached_tokens));
    json_object_set_new(object, "seconds", json_real(seconds));
    if (options->do_sample)
        json_object_set_new(object, "seed",
                            json_integer((json_int_t)options->seed));
    return json_line(VERB, object);
}

/* ---- many prompts ------------------------------------------------------ */

typedef struct prompt_batch {
    const generate_job *job;
    text_input in;
    bauta_generate_options options; /* of the current request */
    size_t full;                    /* texts that filled the model's context */
} prompt_batch;

/* Each prompt has its own seed, so that equal prompts give different texts. */
static bauta_generate_options options_of(const prompt_batch *c,
                                         const batch_item *t)
{
    bauta_generate_options options = *c->job->options;
    options.seed += t->number - 1;
    return options;
}

static int request_make(void *user, const batch_item *t, bauta_request *request,
                        token_ids *prompt)
{
    prompt_batch *c = user;
    char place[256];
    char *text = strdup(t->text);
    if (!text)
        return cli_fail(VERB, "out of memory");
    text_input_place(&c->in, t->number, place, sizeof(place));
    int failed = encode_text(prompt, c->job->model, place, text,
                             unescape_line(text, t->length), ENDING_OPEN);
    free(text);
    c->options = options_of(c, t);
    request->tokens = prompt->at;
    request->count = prompt->count;
    request->options = &c->options;
    return failed;
}

static int error_json(const batch_item *t)
{
    return json_line(VERB, json_pack("{s:o, s:o}", "prompt",
                                     json_text(t->text, t->length), "error",
                                     json_text(t->error, strlen(t->error))));
}

static int report(void *user, const batch_item *t)
{
    prompt_batch *c = user;
    bauta_generate_options options = options_of(c, t);
    c->full +=
        t->result && t->result->hypotheses[0]->finish == BAUTA_FINISH_CONTEXT;
    if (c->job->s->json)
        return t->result ? result_json(&options, t->result, t->text, t->length,
                                       t->seconds)
                         : error_json(t);
    for (size_t i = 0; t->result && i < t->result->count; i++) {
        const bauta_hypothesis *h = t->result->hypotheses[i];
        if (t->result->count > 1)
            printf("%zu\t%.4f\t", t->number, h->score);
        if (c->job->s->echo)
            fwrite(t->text, 1, t->length, stdout);
        escaped_print(h->text, h->text_length);
    }
    if (!t->result)
        putchar('\n');
    return CLI_OK;
}

static int prompts_run(const generate_job *job)
{
    prompt_batch c = { .job = job };
    batch_callbacks calls = { request_make, report, &c };
    batch_totals totals = { 0 };
    int failed = text_input_open(&c.in, VERB, NULL, 0, job->s->prompts);
    if (!failed)
        failed =
            batch_generate(job->model, &c.in, &calls, &job->s->limits, &totals);
    text_input_close(&c.in);
    if (!job->s->quiet && totals.texts && ranks_part().count == 1)
        fprintf(stderr,
                "%zu prompts, %zu prompt tokens, %zu new tokens in %.2f s: "
                "%.1f tokens/s\n",
                totals.texts, totals.prompt, totals.tokens, totals.seconds,
                (double)totals.tokens / fmax(totals.seconds, 1e-9));
    if (!job->s->quiet && c.full)
        context_note(job->options, job->model, BAUTA_FINISH_CONTEXT, 0);
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

/* One prompt: the argument, or a whole file without its final newline. */
static int prompt_run(const generate_job *job)
{
    const string_list *rest = &job->s->rest;
    text_input in;
    const char *text = "";
    size_t length = 0;
    int failed =
        text_input_open(&in, VERB, rest->at + 1, rest->count - 1, job->s->file);
    if (!failed)
        text_input_read_all(&in, &text, &length);
    if (!failed && in.name && length && text[length - 1] == '\n')
        length--;
    if (!failed && !in.failed)
        failed = generate_one(job, text, length);
    if (text_input_close(&in))
        failed = CLI_FAILED;
    return failed;
}

static int generate(const settings *s)
{
    opened_model model;
    bauta_generate_options options;
    token_filters filters = { 0 };
    generate_job job = { s, &model, &options };
    bool typed = !s->prompts && !s->file && s->rest.count == 1 && isatty(0);
    int failed = opened_model_open(&model, VERB, s->rest.at[0], &s->model,
                                   BAUTA_DECODER_ONLY);
    if (!failed)
        failed = settings_apply(s, &model, &options);
    if (!failed)
        failed = token_filters_init(&filters, s, &model, &options);
    if (!failed && !s->quiet)
        settings_print(&options, &model);
    if (!failed && s->prompts) {
        failed = prompts_run(&job);
    } else if (!failed) {
        interrupts_catch();
        failed = typed ? generate_interactive(&job) : prompt_run(&job);
    }
    token_filters_release(&filters);
    opened_model_close(&model);
    failed = failed ? failed : cli_finish(VERB);
    if (!typed)
        interrupts_reraise();
    return failed;
}

int generate_main(int argc, char **argv)
{
    settings s = { .sampling = BAUTA_GENERATE_OPTIONS_INIT };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help)
        failed = generate_help();
    else if (!failed && !ranks_split(VERB, s.ranks, s.prompts, &failed))
        failed = generate(&s);
    string_list_release(&s.rest);
    string_list_release(&s.stops);
    string_list_release(&s.bad_words);
    string_list_release(&s.biases);
    return failed;
}
