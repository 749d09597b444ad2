/* SPDX-License-Identifier: Apache-2.0 */
/* generate_speak.c - one prompt, whose text is shown as it comes; and a person
 * who types them. */
#include "cli.h"
#include "generate.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Ctrl-C ------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    if (interrupted) { // nobody listens: leave as one who never did
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

void interrupts_catch(void)
{
    struct sigaction action = { .sa_handler = interrupt };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL); // without SA_RESTART: a read ends, too
}

void interrupts_pass_on(void)
{
    if (!interrupted)
        return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}

/* ---- one text ---------------------------------------------------------- */

typedef struct listener {
    const speaker *s;
    double first; /* when the first token came; 0: not yet */
    bool newline; /* whether what was printed ends in one */
} listener;

static void token_print(const listener *l, uint32_t token, float logprob)
{
    size_t length = 0;
    const char *piece =
        bauta_tokenizer_piece(l->s->model->tokenizer, token, &length);
    printf("%u\t%.6f\t", (unsigned)token, (double)logprob);
    line_print(piece ? piece : "", piece ? length : 0);
}

static bool hear(void *user, uint32_t token, float logprob, const char *text,
                 size_t length)
{
    listener *l = user;
    if (l->first == 0.0)
        l->first = seconds_now();
    if (!l->s->s->json && l->s->s->logprobs) {
        if (token != BAUTA_NO_TOKEN)
            token_print(l, token, logprob);
        l->newline = true;
    } else if (!l->s->s->json && length) {
        fwrite(text, 1, length, stdout);
        l->newline = text[length - 1] == '\n';
    }
    // Where nobody reads any more, nothing more is made.
    return fflush(stdout) == 0 && !ferror(stdout) && !interrupted;
}

/* Beams are printed when they are done. */
static void beams_print(const bauta_result *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const bauta_hypothesis *h = &r->hypotheses[i];
        if (r->count > 1)
            printf("%s--- %zu of %zu, score %.4f\n", i ? "\n" : "", i + 1,
                   r->count, h->score);
        fwrite(h->text, 1, h->length, stdout);
        putchar('\n');
    }
}

static void figures_say(const bauta_result *r, const listener *l, double begun)
{
    double now = seconds_now(), first = l->first > 0.0 ? l->first : now;
    size_t made = r->hypotheses[0].count;
    fprintf(stderr, "%zu tokens of prompt, %zu new ones", r->prompt, made);
    if (l->s->how->beams > 1 || made < 2)
        fprintf(stderr, " in %.2f s", now - begun);
    else
        fprintf(stderr, ": %.1f and %.1f tokens/s",
                (double)r->prompt / fmax(first - begun, 1e-9),
                (double)(made - 1) / fmax(now - first, 1e-9));
    fprintf(stderr, " (%s)\n",
            interrupted ? "interrupted"
                        : bauta_finish_text(r->hypotheses[0].finish));
    context_say(l->s->how, l->s->model, r->hypotheses[0].finish,
                r->prompt + made);
}

static int result_show(const listener *l, const bauta_result *r,
                       const char *text, size_t length, double begun)
{
    const settings *s = l->s->s;
    int failed = CLI_OK;
    if (s->json)
        failed = result_json(l->s->how, r, text, length, seconds_now() - begun);
    else if (l->s->how->beams > 1)
        beams_print(r);
    else if (!l->newline)
        putchar('\n');
    if (!failed)
        failed = cli_finish(VERB);
    if (!failed && !s->quiet)
        figures_say(r, l, begun);
    return failed;
}

/* What was printed stays, and its line ends before the sentence comes. */
static int broken_off(const listener *l, const bauta_result *r)
{
    if (!l->s->s->json && !l->newline)
        putchar('\n');
    fflush(stdout);
    return cli_fail(VERB, "%s", r->message);
}

/* Step until the text is there. Beams tell nothing meanwhile, so an interrupt
 * leaves them unfinished: *out is then NULL. */
static bauta_status request_run(const speaker *s, const bauta_request *request,
                                bauta_result **out, bauta_error *err)
{
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *generator = NULL;
    size_t left = 1;
    *out = NULL;
    how.cache_bytes = (uint64_t)s->s->limits.cache_mb << 20;
    if (how.sequences < s->how->beams)
        how.sequences = s->how->beams;
    bauta_status status =
        bauta_generator_create(&generator, s->model->context, s->model->model,
                               s->model->tokenizer, &how, err);
    if (!status)
        status = bauta_generator_add(generator, request, err);
    while (!status && left && !(interrupted && s->how->beams > 1))
        status = bauta_generator_step(generator, &left, err);
    if (!status)
        *out = bauta_generator_take(generator);
    bauta_generator_free(generator);
    return status;
}

int speak(const speaker *s, const char *text, size_t length)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_error err;
    bauta_result *result = NULL;
    listener l = { .s = s };
    ids prompt;
    int failed =
        ids_read(&prompt, s->model, "the prompt", text, length, IDS_OPEN);
    double begun = seconds_now();
    request.tokens = prompt.at;
    request.count = prompt.count;
    request.options = s->how;
    request.hear = hear;
    request.user = &l;
    if (!failed && s->s->echo && !s->s->json && !s->s->logprobs)
        fwrite(text, 1, length, stdout);
    if (!failed && request_run(s, &request, &result, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed && result && result->status)
        failed = broken_off(&l, result);
    if (!failed && result)
        failed = result_show(&l, result, text, length, begun);
    bauta_result_free(result);
    free(prompt.at);
    return failed;
}

/* ---- a person ---------------------------------------------------------- */

static const char manual[] =
    "A line is a prompt; \\n in it is a newline. Ctrl-C ends a text, Ctrl-D "
    "or /quit\n"
    "the program.\n";

/* A line of the terminal; false at the end. */
static bool line_read(char **line, size_t *room, ssize_t *length)
{
    for (;;) {
        interrupted = 0;
        fputs("> ", stderr);
        fflush(stderr);
        *length = getline(line, room, stdin);
        if (*length >= 0)
            break;
        if (!interrupted || ferror(stdin) == 0) {
            fputc('\n', stderr);
            return false;
        }
        clearerr(stdin);
        fputs("\n(Ctrl-D leaves)\n", stderr);
    }
    if (*length && (*line)[*length - 1] == '\n')
        (*line)[--*length] = '\0';
    return true;
}

int converse(const speaker *s)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int failed = CLI_OK;
    fputs(manual, stderr);
    while (line_read(&line, &room, &length)) {
        if (strcmp(line, "/quit") == 0)
            break;
        if (strcmp(line, "/help") == 0) {
            fputs(manual, stderr);
            continue;
        }
        if (length == 0)
            continue;
        // What fails is told, and the next line may be better; but where
        // stdout is gone, nobody reads.
        speak(s, line, line_unescape(line, (size_t)length));
        if (ferror(stdout)) {
            failed = CLI_FAILED;
            break;
        }
    }
    free(line);
    return failed;
}
