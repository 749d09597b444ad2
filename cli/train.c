/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - bauta train: from texts to a model; see train.h. */
#include "train.h"

#include "cli.h"

#include <math.h>
#include <stdlib.h>

/* What there is, before it is trained. */
static void begin_say(const workshop *w, const char *checkpoint)
{
    char parameters[32], tokens[32];
    size_t documents = bauta_corpus_documents(w->corpus);
    int threads = bauta_context_threads(w->context);
    fprintf(stderr, "%s parameters, %s tokens in %zu %s",
            grouped(parameters, bauta_model_parameters(w->model)),
            grouped(tokens, bauta_corpus_tokens(w->corpus)), documents,
            documents == 1 ? "document" : "documents");
    if (w->valid)
        fprintf(stderr, ", %s to validate on",
                grouped(tokens, bauta_corpus_tokens(w->valid)));
    fprintf(stderr, "; %d %s, %s\n", threads,
            threads == 1 ? "thread" : "threads", bauta_context_isa(w->context));
    if (checkpoint)
        fprintf(stderr, "going on from %s\n", checkpoint);
}

static int work(settings *s, progress *p, const given *g,
                const char *checkpoint)
{
    workshop w = { 0 };
    int failed = checkpoint || s->dry_run || s->compare
                     ? CLI_OK
                     : folder_open(s->out, false);
    if (!failed)
        failed = workshop_open(&w, s, g, checkpoint);
    if (!failed && s->dry_run)
        failed = trial_dry_run(&w, s);
    else if (!failed && s->compare)
        failed = trial_compare(&w, s);
    else if (!failed) {
        begin_say(&w, checkpoint);
        failed = train_run(&w, s, p);
    }
    workshop_close(&w);
    return failed;
}

/* The notes of the last checkpoint first, then what was given beside. */
static int resume(settings *s, const given *g)
{
    bauta_error err;
    char *last = NULL;
    json_t *notes = NULL;
    progress p = { .best = INFINITY };
    int failed = CLI_OK;
    if (bauta_run_last(&last, s->resume, &err))
        return train_failed(&err);
    if (!last)
        return cli_fail(VERB, "%s holds no checkpoint that is whole",
                        s->resume);
    failed = notes_read(s, &p, &notes, last);
    if (!failed)
        failed = given_apply(g, s);
    if (!failed)
        failed = notes_compare(json_object_get(notes, "settings"), g, s);
    if (!failed)
        failed = settings_check(s);
    if (!failed)
        failed = work(s, &p, g, last);
    json_decref(notes);
    bauta_text_free(last);
    return failed;
}

int train_main(int argc, char **argv)
{
    given g;
    settings s = SETTINGS_INIT;
    progress p = { .best = INFINITY };
    int failed = given_read(&g, argc, argv);
    if (!failed)
        failed = given_apply(&g, &s);
    if (!failed && s.help)
        failed = train_help();
    else if (!failed && s.resume)
        failed = resume(&s, &g);
    else if (!failed && !(failed = settings_check(&s)))
        failed = work(&s, &p, &g, NULL);
    settings_release(&s);
    given_release(&g);
    return failed;
}
