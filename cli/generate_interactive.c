/* SPDX-License-Identifier: Apache-2.0 */
/* generate_interactive.c - one prompt, streamed to the terminal; and prompts
 * that a user types. */
#include "cli.h"
#include "format.h"
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
    if (interrupted) { // a second one: die of it
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

void interrupts_catch(void)
{
    struct sigaction action = { .sa_handler = interrupt };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL); // without SA_RESTART: read() ends, too
}

void interrupts_reraise(void)
{
    if (!interrupted)
        return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}

/* ---- one text ---------------------------------------------------------- */

typedef struct token_printer {
    const generate_job *job;
    double first; /* time of the first token; 0: none yet */
    bool newline; /* whether the output ends in one */
} token_printer;

static void token_print(const token_printer *p, uint32_t token, float logprob)
{
    size_t length = 0;
    const char *piece =
        bauta_tokenizer_piece(p->job->model->tokenizer, token, &length);
    printf("%u\t%.6f\t", (unsigned)token, (double)logprob);
    escaped_print(piece ? piece : "", piece ? length : 0);
}

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    token_printer *p = user;
    if (p->first == 0.0)
        p->first = seconds_now();
    if (!p->job->s->json && p->job->s->logprobs) {
        if (token != BAUTA_NO_TOKEN)
            token_print(p, token, logprob);
        p->newline = true;
    } else if (!p->job->s->json && length) {
        fwrite(text, 1, length, stdout);
        p->newline = text[length - 1] == '\n';
    }
    // Stop if stdout is closed.
    return fflush(stdout) == 0 && !ferror(stdout) && !interrupted;
}

/* Beam search prints its texts at the end. */
static void beams_print(const bauta_result *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const bauta_hypothesis *h = r->hypotheses[i];
        if (r->count > 1)
            printf("%s--- %zu of %zu, score %.4f\n", i ? "\n" : "", i + 1,
                   r->count, h->score);
        fwrite(h->text, 1, h->text_length, stdout);
        putchar('\n');
    }
}

static void statistics_print(const bauta_result *r, const token_printer *p,
                             double begun)
{
    double now = seconds_now(), first = p->first > 0.0 ? p->first : now;
    size_t made = r->hypotheses[0]->count;
    fprintf(stderr, "%zu prompt tokens, %zu new tokens", r->prompt_tokens,
            made);
    if (p->job->options->num_beams > 1 || made < 2)
        fprintf(stderr, " in %.2f s", now - begun);
    else
        fprintf(stderr, ": %.1f and %.1f tokens/s",
                (double)r->prompt_tokens / fmax(first - begun, 1e-9),
                (double)(made - 1) / fmax(now - first, 1e-9));
    fprintf(stderr, " (%s)\n",
            interrupted ? "interrupted"
                        : bauta_finish_text(r->hypotheses[0]->finish));
    context_note(p->job->options, p->job->model, r->hypotheses[0]->finish,
                 r->prompt_tokens + made);
}

static int result_show(const token_printer *p, const bauta_result *r,
                       const char *text, size_t length, double begun)
{
    const settings *s = p->job->s;
    int failed = CLI_OK;
    if (s->json)
        failed = result_json(p->job->options, r, text, length,
                             seconds_now() - begun);
    else if (p->job->options->num_beams > 1)
        beams_print(r);
    else if (!p->newline)
        putchar('\n');
    if (!failed)
        failed = cli_finish(VERB);
    if (!failed && !s->quiet)
        statistics_print(r, p, begun);
    return failed;
}

/* End the line that was printed before the message. */
static int failure_report(const token_printer *p, const bauta_result *r)
{
    if (!p->job->s->json && !p->newline)
        putchar('\n');
    fflush(stdout);
    return cli_fail(VERB, "%s", r->message);
}

/* Step until the text is finished. Beam search has no callback, so an interrupt
 * abandons it: *out is then NULL. */
static bauta_status request_run(const generate_job *job,
                                const bauta_request *request,
                                bauta_result **out, bauta_error *err)
{
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *generator = NULL;
    size_t left = 1;
    *out = NULL;
    options.cache_bytes = (uint64_t)job->s->limits.cache_mb << 20;
    if (options.max_sequences < job->options->num_beams)
        options.max_sequences = job->options->num_beams;
    bauta_status status = bauta_generator_create(
        &generator, job->model->context, job->model->model,
        job->model->tokenizer, &options, err);
    if (!status)
        status = bauta_generator_add(generator, request, err);
    while (!status && left && !(interrupted && job->options->num_beams > 1))
        status = bauta_generator_step(generator, &left, err);
    if (!status)
        *out = bauta_generator_take(generator);
    bauta_generator_free(generator);
    return status;
}

int generate_one(const generate_job *job, const char *text, size_t length)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_error err;
    bauta_result *result = NULL;
    token_printer p = { .job = job };
    token_ids prompt;
    int failed = encode_text(&prompt, job->model, "the prompt", text, length,
                             ENDING_OPEN);
    double begun = seconds_now();
    request.tokens = prompt.at;
    request.count = prompt.count;
    request.options = job->options;
    request.on_token = on_token;
    request.user = &p;
    if (!failed && job->s->echo && !job->s->json && !job->s->logprobs)
        fwrite(text, 1, length, stdout);
    if (!failed && request_run(job, &request, &result, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed && result && result->status)
        failed = failure_report(&p, result);
    if (!failed && result)
        failed = result_show(&p, result, text, length, begun);
    bauta_result_free(result);
    free(prompt.at);
    return failed;
}

/* ---- interactive ------------------------------------------------------- */

static const char manual[] =
    "Each line is a prompt; \\n stands for a newline. Ctrl-C ends a text, "
    "Ctrl-D or\n"
    "/quit the program.\n";

/* Read a line; false at end of file. */
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
        fputs("\n(Ctrl-D to exit)\n", stderr);
    }
    if (*length && (*line)[*length - 1] == '\n')
        (*line)[--*length] = '\0';
    return true;
}

int generate_interactive(const generate_job *job)
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
        // A failure is reported and the next line read, unless stdout is
        // closed.
        generate_one(job, line, unescape_line(line, (size_t)length));
        if (ferror(stdout)) {
            failed = CLI_FAILED;
            break;
        }
    }
    free(line);
    return failed;
}
