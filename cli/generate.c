/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - bauta generate: text that goes on from a prompt. */
#include "generate.h"

#include "cli.h"
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lines and JSON ---------------------------------------------------- */

size_t line_unescape(char *line, size_t length)
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

void line_print(const char *text, size_t length)
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
                     json_text(h->text ? h->text : "", h->length), "tokens",
                     json_ids(h->tokens, h->count), "logprobs",
                     json_floats(h->logprobs, h->count), "score",
                     json_number(h->score), "finish",
                     bauta_finish_text(h->finish), "new_tokens",
                     (json_int_t)h->count);
}

/* The best text in the object itself; all of several also as "texts". */
int result_json(const bauta_generate_options *how, const bauta_result *r,
                const char *prompt, size_t length, double seconds)
{
    json_t *object = json_pack("{s:o}", "prompt", json_text(prompt, length));
    json_t *best = hypothesis_json(&r->hypotheses[0]);
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
            json_array_append_new(all, hypothesis_json(&r->hypotheses[i]));
        json_object_set_new(object, "texts", all);
    }
    json_object_set_new(object, "prompt_tokens",
                        json_integer((json_int_t)r->prompt));
    json_object_set_new(object, "shared_tokens",
                        json_integer((json_int_t)r->shared));
    json_object_set_new(object, "seconds", json_real(seconds));
    if (how->sample)
        json_object_set_new(object, "seed",
                            json_integer((json_int_t)how->seed));
    return json_line(VERB, object);
}

/* ---- many prompts ------------------------------------------------------ */

typedef struct crowd {
    const speaker *s;
    texts in;
    bauta_generate_options how; /* of the prompt that is being asked */
    size_t full;                /* texts that the model's context ended */
} crowd;

/* Each prompt draws by a seed of its own, so that equal ones differ. */
static bauta_generate_options how_of(const crowd *c, const task *t)
{
    bauta_generate_options how = *c->s->how;
    how.seed += t->number - 1;
    return how;
}

static int ask(void *user, const task *t, bauta_request *request, ids *prompt)
{
    crowd *c = user;
    char place[256];
    char *text = strdup(t->text);
    if (!text)
        return cli_fail(VERB, "out of memory");
    texts_place(&c->in, t->number, place, sizeof(place));
    int failed = ids_read(prompt, c->s->model, place, text,
                          line_unescape(text, t->length), IDS_OPEN);
    free(text);
    c->how = how_of(c, t);
    request->tokens = prompt->at;
    request->count = prompt->count;
    request->options = &c->how;
    return failed;
}

static int refusal_json(const task *t)
{
    return json_line(
        VERB, json_pack("{s:o, s:o}", "prompt", json_text(t->text, t->length),
                        "error", json_text(t->refused, strlen(t->refused))));
}

static int tell(void *user, const task *t)
{
    crowd *c = user;
    bauta_generate_options how = how_of(c, t);
    c->full +=
        t->result && t->result->hypotheses[0].finish == BAUTA_FINISH_CONTEXT;
    if (c->s->s->json)
        return t->result ? result_json(&how, t->result, t->text, t->length,
                                       t->seconds)
                         : refusal_json(t);
    for (size_t i = 0; t->result && i < t->result->count; i++) {
        const bauta_hypothesis *h = &t->result->hypotheses[i];
        if (t->result->count > 1)
            printf("%zu\t%.4f\t", t->number, h->score);
        if (c->s->s->echo)
            fwrite(t->text, 1, t->length, stdout);
        line_print(h->text, h->length);
    }
    if (!t->result)
        putchar('\n');
    return CLI_OK;
}

static int prompts_run(const speaker *s)
{
    crowd c = { .s = s };
    stream_verb verb = { ask, tell, &c };
    stream_sums sums = { 0 };
    int failed = texts_open(&c.in, VERB, NULL, 0, s->s->prompts);
    if (!failed)
        failed = stream_run(s->model, &c.in, &verb, &s->s->limits, &sums);
    texts_close(&c.in);
    if (!s->s->quiet && sums.texts)
        fprintf(stderr,
                "%zu prompts, %zu tokens of prompts, %zu new ones in %.2f s: "
                "%.1f tokens/s\n",
                sums.texts, sums.prompt, sums.tokens, sums.seconds,
                (double)sums.tokens / fmax(sums.seconds, 1e-9));
    if (!s->s->quiet && c.full)
        context_say(s->how, s->model, BAUTA_FINISH_CONTEXT, 0);
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

/* One prompt: the word, or all of a file less a newline at its end. */
static int prompt_run(const speaker *s)
{
    const words *rest = &s->s->rest;
    texts in;
    const char *text = "";
    size_t length = 0;
    int failed =
        texts_open(&in, VERB, rest->at + 1, rest->count - 1, s->s->file);
    if (!failed)
        texts_all(&in, &text, &length);
    if (!failed && in.name && length && text[length - 1] == '\n')
        length--;
    if (!failed && !in.failed)
        failed = speak(s, text, length);
    if (texts_close(&in))
        failed = CLI_FAILED;
    return failed;
}

static int generate(const settings *s)
{
    loaded model;
    bauta_generate_options how;
    wordlist list = { 0 };
    speaker sp = { s, &model, &how };
    bool typed = !s->prompts && !s->file && s->rest.count == 1 && isatty(0);
    int failed =
        loaded_open(&model, VERB, s->rest.at[0], &s->model, BAUTA_DECODER_ONLY);
    if (!failed)
        failed = settings_apply(s, &model, &how);
    if (!failed)
        failed = wordlist_make(&list, s, &model, &how);
    if (!failed && !s->quiet)
        settings_say(&how, &model);
    if (!failed && s->prompts) {
        failed = prompts_run(&sp);
    } else if (!failed) {
        interrupts_catch();
        failed = typed ? converse(&sp) : prompt_run(&sp);
    }
    wordlist_release(&list);
    loaded_close(&model);
    failed = failed ? failed : cli_finish(VERB);
    if (!typed)
        interrupts_pass_on();
    return failed;
}

int generate_main(int argc, char **argv)
{
    settings s = { .wish = BAUTA_GENERATE_OPTIONS_INIT };
    int failed = settings_read(&s, argc, argv);
    if (!failed)
        failed = s.help ? generate_help() : generate(&s);
    words_release(&s.rest);
    words_release(&s.stops);
    words_release(&s.bad);
    return failed;
}
