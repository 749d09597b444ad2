/* SPDX-License-Identifier: Apache-2.0 */
/* lab.c - bauta lab: experiments on masked attention; see lab.h. */
#include "lab.h"

#include "../cli/cli.h"
#include "../cli/format.h"
#include "../cli/options.h"
#include "../cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERB "lab"

/* The experiments, in the order in which they run. */
static const struct {
    const char *name;
    lab_experiment *run;
    const char *question;
} experiments[] = {
    { "translate", lab_translate,
      "What does each token see while \"I love you\" is translated, and is it "
      "the same all at once and one token at a time?" },
    { "leak", lab_leak,
      "What does a model learn if it can see the token that it is to "
      "predict?" },
    { "parallel", lab_parallel,
      "What does the mask buy: all positions of a text at once, or one after "
      "the other?" },
    { "masks", lab_masks,
      "What does each kind of mask show, and do hidden pairs cost "
      "anything?" },
    { "mlm", lab_mlm,
      "What does a model learn from hidden words, and what from the next "
      "word?" },
    { "layers", lab_layers,
      "Must every layer have the mask, or is it enough if most of them "
      "do?" },
    { "rnn", lab_rnn,
      "What did recurrent networks do, and why did the Transformer drop "
      "it?" },
};

enum { EXPERIMENTS = sizeof(experiments) / sizeof(experiments[0]) };

/* ---- the command line -------------------------------------------------- */

typedef struct settings {
    string_list rest;
    const char *out;
    size_t threads;
    uint64_t seed;
    bool fast, fresh, json, help;
    bool wanted[EXPERIMENTS];
} settings;

static const char help_text[] =
    "usage: bauta lab NAME... [options]\n"
    "\n"
    "Experiments on masked attention. Each asks a question, measures, and "
    "ends\n"
    "with two sentences. Its claims about the result are checked; one that "
    "does\n"
    "not hold is a failure.\n"
    "\n"
    "experiments\n"
    "  translate      a translation, all at once and token by token\n"
    "  leak           training with and without the causal mask\n"
    "  parallel       teacher forcing, position by position, free-running\n"
    "  masks          every kind of mask, and its cost\n"
    "  mlm            masked against causal language modelling\n"
    "  layers         why every layer needs the mask\n"
    "  rnn            a recurrent network with attention beside a "
    "Transformer\n"
    "  all            all of them in turn\n"
    "\n"
    "options\n"
    "  --out DIR      also write DIR/index.html, a lesson with all results, "
    "after\n"
    "                 each experiment, and the attention of rnn to "
    "DIR/rnn.svg.\n"
    "                 Ctrl-C keeps the finished ones, and the next run goes on "
    "with\n"
    "                 the others. The folder is created if it is missing\n"
    "  --fresh        run experiments again that are in DIR\n"
    "  --fast         small sizes: seconds instead of minutes\n"
    "  --seed N       of everything that is random (default 1)\n"
    "  --threads N    0: one per core (default); masks always uses one\n"
    "  --json         one JSON object per line and experiment\n"
    "  --help         print this text\n"
    "\n"
    "examples\n"
    "  bauta lab layers\n"
    "  bauta lab masks --fast --json\n"
    "  bauta lab all --out lab\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

/* "translate, leak, parallel, masks, mlm, layers, rnn or all". */
static void names_list(char *to, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < EXPERIMENTS && used < size; i++)
        used += (size_t)snprintf(to + used, size - used, "%s%s", i ? ", " : "",
                                 experiments[i].name);
    if (used < size)
        snprintf(to + used, size - used, " or all");
}

static int name_unknown(const char *word)
{
    const char *names[EXPERIMENTS + 1] = { "all" };
    char all[128];
    for (int i = 0; i < EXPERIMENTS; i++)
        names[i + 1] = experiments[i].name;
    names_list(all, sizeof(all));
    const char *near = bauta_closest_word(word, names, EXPERIMENTS + 1);
    return cli_usage(VERB, "there is no experiment '%s'; %s%s%s", word,
                     near ? "did you mean '" : "there are ", near ? near : all,
                     near ? "'?" : "");
}

static int names_read(settings *s)
{
    char all[128];
    names_list(all, sizeof(all));
    if (s->rest.count == 0)
        return cli_usage(VERB, "an experiment is missing: %s", all);
    for (size_t w = 0; w < s->rest.count; w++) {
        bool every = strcmp(s->rest.at[w], "all") == 0, known = every;
        for (size_t i = 0; i < EXPERIMENTS; i++)
            if (every || strcmp(s->rest.at[w], experiments[i].name) == 0)
                known = s->wanted[i] = true;
        if (!known)
            return name_unknown(s->rest.at[w]);
    }
    return CLI_OK;
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--out", OPTION_STRING, &s->out, NULL, 0, 0, NULL },
        { "--fast", OPTION_FLAG, &s->fast, NULL, 0, 0, NULL },
        { "--fresh", OPTION_FLAG, &s->fresh, NULL, 0, 0, NULL },
        { "--seed", OPTION_SEED, &s->seed, NULL, 0, 0, NULL },
        { "--threads", OPTION_SIZE, &s->threads, NULL, 0, 4096, NULL },
        { "--json", OPTION_FLAG, &s->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &s->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    if (usage || s->help)
        return usage;
    if (s->out && !*s->out)
        return cli_usage(VERB, "--out is empty");
    return names_read(s);
}

/* ---- progress ---------------------------------------------------------- */

void lab_progress(const lab *l, const char *format, ...)
{
    if (!l->progress)
        return;
    bool terminal = isatty(fileno(l->progress));
    double time = seconds_now();
    if (l->shown && time - *l->shown < (terminal ? 0.1 : 5.0))
        return;
    if (l->shown)
        *l->shown = time;
    va_list args;
    va_start(args, format);
    fputs(terminal ? "\r\033[K" : "", l->progress);
    vfprintf(l->progress, format, args);
    fputs(terminal ? "" : "\n", l->progress);
    va_end(args);
    fflush(l->progress);
}

/* Erase the progress line. */
static void progress_end(const lab *l)
{
    if (l->progress && isatty(fileno(l->progress))) {
        fputs("\r\033[K", l->progress);
        fflush(l->progress);
    }
}

int lab_failed(const bauta_error *err)
{
    return cli_fail(VERB, "%s", err->message);
}

/* ---- running ----------------------------------------------------------- */

/* Create the folder and its parents, before time is spent. */
static int folder_make(const char *path)
{
    char *part = strdup(path);
    struct stat found;
    int why = part ? 0 : ENOMEM;
    for (size_t i = 1; part && !why && i <= strlen(path); i++) {
        if (path[i] != '/' && path[i])
            continue;
        part[i] = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            why = errno;
        part[i] = path[i];
    }
    free(part);
    if (!why && stat(path, &found) == 0 && !S_ISDIR(found.st_mode))
        why = ENOTDIR;
    if (!why && access(path, W_OK))
        why = errno;
    return why ? cli_fail(VERB,
                          "%s: cannot create this folder or write to "
                          "it: %s",
                          path, strerror(why))
               : CLI_OK;
}

/* "DIR/index.html" in malloc'd memory, or NULL. */
static char *page_path(const settings *s)
{
    size_t size = strlen(s->out) + sizeof("/index.html");
    char *path = malloc(size);
    bool slash = s->out[strlen(s->out) - 1] == '/';
    if (path)
        snprintf(path, size, "%s%sindex.html", s->out, slash ? "" : "/");
    return path;
}

/* Write the page with the finished experiments; the others are NULL. */
static int page_write(const settings *s, report *const *reports)
{
    const report *finished_ones[EXPERIMENTS];
    size_t count = 0;
    for (size_t i = 0; i < EXPERIMENTS; i++)
        if (reports[i])
            finished_ones[count++] = reports[i];
    char *path = page_path(s);
    int failed = path ? report_page(finished_ones, count, path)
                      : cli_fail(VERB, "out of memory");
    free(path);
    return failed;
}

static void page_report(const settings *s)
{
    char *path = page_path(s);
    if (path)
        fprintf(s->json ? stderr : stdout, "\nThe page is %s\n", path);
    free(path);
}

/* ---- Ctrl-C ------------------------------------------------------------ */

/* The message of an interrupt, by the number of finished experiments. The page
 * is written after each, so nothing is left to do. */
static char messages[EXPERIMENTS + 1][256];
static volatile sig_atomic_t finished;

static void on_interrupt(int number)
{
    const char *text = messages[finished];
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

static void interrupts_catch(const settings *s)
{
    struct sigaction action = { .sa_handler = on_interrupt };
    for (size_t i = 0; i <= EXPERIMENTS; i++)
        snprintf(messages[i], sizeof(messages[i]),
                 "\ninterrupted; %zu finished%s%s\n", i,
                 s->out && i ? ", in the page of " : "",
                 s->out && i ? s->out : "");
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Run one experiment, unless there is a report of an earlier run. */
static int lab_run(const lab *l, const settings *s, size_t which, report **out)
{
    const char *name = experiments[which].name;
    if (*out)
        return CLI_OK;
    report *r = report_create(name, experiments[which].question);
    int failed = r ? experiments[which].run(l, r) : CLI_OK;
    progress_end(l);
    if (!failed && !report_valid(r))
        failed = cli_fail(VERB, "%s: out of memory", name);
    if (!failed && s->out)
        failed = lab_kept_save(l, s->out, r);
    if (!failed && s->out)
        failed = report_files(r, s->out);
    if (failed)
        report_free(r);
    else
        *out = r;
    return failed;
}

/* Run one experiment and show it. */
static int lab_show(const lab *l, const settings *s, size_t which, bool first,
                    report **out)
{
    double began = seconds_now();
    bool kept = *out != NULL;
    int failed = lab_run(l, s, which, out);
    if (failed)
        return failed;
    if (s->json)
        failed = report_json(*out);
    else {
        fputs(first ? "" : "\n\n", stdout);
        report_print(*out, stdout, terminal_has_colours(stdout));
    }
    if (kept)
        fprintf(s->json ? stderr : stdout,
                "\n(%s: from an earlier run; --fresh runs it again)\n",
                experiments[which].name);
    else if (!s->json)
        printf("\n(%s: %.1f seconds)\n", experiments[which].name,
               seconds_now() - began);
    return failed ? failed : cli_finish(VERB);
}

/* The reports of earlier runs that the folder has. */
static void kept_load(const lab *l, const settings *s, report **reports)
{
    for (size_t i = 0; s->out && i < EXPERIMENTS; i++)
        if (!s->fresh || !s->wanted[i])
            reports[i] = lab_kept_load(l, s->out, experiments[i].name);
}

static int labs_run(const lab *l, const settings *s)
{
    report *reports[EXPERIMENTS] = { NULL };
    size_t count = 0;
    bool holds = true;
    int failed = CLI_OK;
    kept_load(l, s, reports);
    for (size_t i = 0; i < EXPERIMENTS && !failed; i++) {
        if (!s->wanted[i])
            continue;
        failed = lab_show(l, s, i, count == 0, &reports[i]);
        if (!failed && !report_passed(reports[i])) {
            cli_fail(VERB, "%s: a claim does not hold", experiments[i].name);
            holds = false;
        }
        if (!failed && s->out) // now: a later one may be interrupted
            failed = page_write(s, reports);
        finished = (sig_atomic_t)++count;
    }
    if (!failed && s->out)
        page_report(s);
    for (size_t i = 0; i < EXPERIMENTS; i++)
        report_free(reports[i]);
    if (!failed)
        failed = cli_finish(VERB);
    return failed ? failed : holds ? CLI_OK : CLI_FAILED;
}

static int lab_open(const settings *s)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    double shown = 0;
    lab l = {
        .seed = s->seed, .fast = s->fast, .progress = stderr, .shown = &shown
    };
    options.threads = (int)s->threads;
    int failed = s->out ? folder_make(s->out) : CLI_OK;
    if (!failed && bauta_context_create(&l.context, &options, &err))
        failed = lab_failed(&err);
    interrupts_catch(s);
    if (!failed)
        failed = labs_run(&l, s);
    bauta_context_free(l.context);
    return failed;
}

int lab_main(int argc, char **argv)
{
    settings s = { .seed = 1 };
    int failed = settings_read(&s, argc, argv);
    if (!failed)
        failed = s.help ? help() : lab_open(&s);
    string_list_release(&s.rest);
    return failed;
}
