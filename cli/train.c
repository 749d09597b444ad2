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

static int work(workshop *w, settings *s, progress *p, run_folder *f,
                const char *checkpoint)
{
    if (s->dry_run)
        return trial_dry_run(w, s);
    if (s->compare)
        return trial_compare(w, s);
    begin_say(w, checkpoint);
    return train_run(w, s, p, f);
}

static int begin(settings *s, const given *g)
{
    workshop w = { 0 };
    run_folder f = { .fd = -1 };
    progress p = { .best = INFINITY };
    int failed = s->dry_run || s->compare
                     ? CLI_OK
                     : folder_open(&f, s->out, false, true);
    if (!failed)
        failed = workshop_open(&w, s, g, NULL);
    if (!failed && !s->compare)
        failed = steps_fit(&w, s, g, NULL);
    if (!failed)
        failed = work(&w, s, &p, &f, NULL);
    workshop_close(&w);
    folder_close(&f);
    return failed;
}

/* ---- resuming ---------------------------------------------------------- */

/* The notes of a checkpoint first, then what was given beside. */
static int resume_from(run_folder *f, const given *g, size_t step, bool older,
                       bool *damaged)
{
    settings s = SETTINGS_INIT;
    progress p = { .best = INFINITY };
    workshop w = { 0 };
    json_t *notes = NULL;
    char *checkpoint = checkpoint_path(f->path, step);
    int failed = checkpoint ? notes_read(&s, &p, &notes, checkpoint, damaged)
                            : cli_fail(VERB, "out of memory");
    if (!failed)
        failed = given_apply(g, &s);
    if (!failed)
        failed = notes_compare(json_object_get(notes, "settings"), g, &s);
    if (!failed)
        failed = settings_check(&s);
    if (!failed) {
        failed = workshop_open(&w, &s, g, checkpoint);
        *damaged = w.damaged;
    }
    if (!failed && !s.compare)
        failed = steps_fit(&w, &s, g, checkpoint);
    bool trial = s.dry_run || s.compare;
    if (!failed && !trial)
        failed = folder_links(f, step, p.best_step, older);
    if (!failed)
        failed = work(&w, &s, &p, f, checkpoint);
    workshop_close(&w);
    settings_release(&s);
    json_decref(notes);
    free(checkpoint);
    return failed;
}

/* From the newest checkpoint; where that is damaged, from the one before. */
static int resume_newest(run_folder *f, const given *g)
{
    size_t step, before = 0;
    for (size_t most = SIZE_MAX;; most = step - 1, before = step) {
        bool damaged = false;
        if (!folder_steps(f, most, &step, 1))
            return cli_fail(VERB, "%s holds no %scheckpoint that is whole",
                            f->path, before ? "other " : "");
        if (before)
            fprintf(stderr,
                    "the checkpoint of step %zu in %s is damaged; trying the "
                    "one before it, of step %zu\n",
                    before, f->path, step);
        int failed = resume_from(f, g, step, before != 0, &damaged);
        if (!failed || !damaged)
            return failed;
    }
}

static int resume(const settings *s, const given *g)
{
    run_folder f;
    size_t step = 0;
    bool damaged;
    int failed = folder_open(&f, s->resume, true, !(s->dry_run || s->compare));
    if (failed || !given_has(g, "from-step")) {
        failed = failed ? failed : resume_newest(&f, g);
    } else if (!folder_steps(&f, s->from_step, &step, 1) ||
               step != s->from_step) {
        failed = cli_fail(VERB, "%s holds no checkpoint of step %zu", s->resume,
                          s->from_step);
    } else {
        failed = resume_from(&f, g, step, true, &damaged);
    }
    folder_close(&f);
    return failed;
}

int train_main(int argc, char **argv)
{
    given g;
    settings s = SETTINGS_INIT;
    int failed = given_read(&g, argc, argv);
    if (!failed)
        failed = given_apply(&g, &s);
    if (!failed && s.help)
        failed = train_help();
    else if (!failed && s.resume)
        failed = resume(&s, &g);
    else if (!failed && !(failed = settings_check(&s)))
        failed = begin(&s, &g);
    settings_release(&s);
    given_release(&g);
    return failed;
}
