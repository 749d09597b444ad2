/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - bauta train: train a model on texts; see train.h. */
#include "format.h"
#include "ranks.h"
#include "train.h"

#include "cli.h"

/* Print the sizes of model and corpus before training. */
static void start_report(const train_job *job, const settings *s,
                         const char *checkpoint)
{
    char parameters[32], tokens[32];
    size_t documents = bauta_corpus_documents(job->corpus);
    fprintf(stderr, "%s parameters, %s tokens in %zu %s",
            format_grouped(parameters, bauta_model_parameter_count(job->model)),
            format_grouped(tokens, bauta_corpus_tokens(job->corpus)), documents,
            documents == 1 ? "document" : "documents");
    if (job->valid)
        fprintf(stderr, ", %s for validation",
                format_grouped(tokens, bauta_corpus_tokens(job->valid)));
    fprintf(stderr, "; ");
    if (ranks_count() > 1)
        fprintf(stderr, "%zu ranks of ", ranks_count());
    device_print(&s->device, job->context);
    fprintf(stderr, "\n");
    if (checkpoint)
        fprintf(stderr, "resuming from %s\n", checkpoint);
}

static int job_run(train_job *job, settings *s, run_folder *f,
                   const char *checkpoint)
{
    if (s->dry_run)
        return dry_run(job, s);
    if (s->compare)
        return compare_modes_run(job, s);
    start_report(job, s, checkpoint);
    return train_run(job, s, f);
}

static int run_new(settings *s, const train_args *args)
{
    train_job job = { 0 };
    run_folder f = { .fd = -1 };
    int failed = s->dry_run || s->compare || !ranks_first()
                     ? CLI_OK
                     : folder_open(&f, s->out, false, true);
    if (s->train.lanes == 0) // the run can then have as many ranks again
        s->train.lanes = ranks_count() > 1 ? ranks_count() : 0;
    if (!failed)
        failed = train_job_open(&job, s, args, NULL);
    if (!failed && !s->compare)
        failed = steps_fit(&job, s, args, NULL);
    if (!failed)
        failed = job_run(&job, s, &f, NULL);
    train_job_close(&job);
    folder_close(&f);
    return failed;
}

/* ---- resuming ---------------------------------------------------------- */

/* A run continues on its own device and in its own type, unless the arguments
 * name others. The CPU has one type. */
static void device_fit(device_options *d, const train_args *args)
{
    if (device_is_cpu(d) && !train_args_has(args, "--dtype"))
        d->dtype = BAUTA_FLOAT32;
}

static const char *device_word(const device_options *d)
{
    return device_is_cpu(d) ? "the CPU" : "a GPU";
}

/* Say when the results will not be those of an uninterrupted run. */
static void device_notice(const device_options *saved, const device_options *d)
{
    if (!d->name)
        fprintf(stderr, "this run of an older version does not say what it "
                        "was trained on; resuming on the CPU\n");
    else if (saved->name && (device_is_cpu(saved) != device_is_cpu(d) ||
                             saved->dtype != d->dtype))
        fprintf(stderr,
                "this run was trained on %s in %s; on %s in %s it is not "
                "bit-identical to an uninterrupted one\n",
                device_word(saved), device_dtypes[saved->dtype], device_word(d),
                device_dtypes[d->dtype]);
}

/* Settings come from the notes of the checkpoint, then from the arguments. */
static int resume_from(run_folder *f, const train_args *args,
                       const char *checkpoint, bool *damaged)
{
    settings s = SETTINGS_INIT;
    train_job job = { 0 };
    json_t *notes = NULL;
    int failed = notes_read(&s, &notes, checkpoint, damaged);
    const device_options saved = s.device;
    if (!failed)
        failed = train_args_apply(args, &s);
    if (!failed)
        failed = notes_compare(json_object_get(notes, "settings"), args, &s);
    device_fit(&s.device, args);
    if (!failed)
        failed = settings_check(&s);
    if (!failed && !s.dry_run && !s.compare && ranks_first())
        device_notice(&saved, &s.device);
    if (!failed) {
        failed = train_job_open(&job, &s, args, checkpoint);
        *damaged = job.damaged;
    }
    if (!failed && !s.compare)
        failed = steps_fit(&job, &s, args, checkpoint);
    if (!failed)
        failed = job_run(&job, &s, f, checkpoint);
    train_job_close(&job);
    settings_release(&s);
    json_decref(notes);
    return failed;
}

/* From the newest checkpoint, or if it is damaged, from the one before. */
static int resume_newest(run_folder *f, const train_args *args)
{
    size_t step, before = 0;
    for (size_t most = SIZE_MAX;; most = step - 1, before = step) {
        bauta_error err;
        bool damaged = false;
        char *checkpoint;
        if (bauta_run_checkpoint(&checkpoint, &step, f->path, most, &err))
            return train_failed(&err);
        if (!checkpoint)
            return cli_fail(VERB, "%s has no %scomplete checkpoint", f->path,
                            before ? "other " : "");
        if (before)
            fprintf(stderr,
                    "the checkpoint of step %zu in %s is damaged; trying the "
                    "one before it, of step %zu\n",
                    before, f->path, step);
        int failed = resume_from(f, args, checkpoint, &damaged);
        bauta_text_free(checkpoint);
        if (!failed || !damaged)
            return failed;
    }
}

static int resume_step(run_folder *f, const train_args *args, size_t from)
{
    bauta_error err;
    char *checkpoint;
    size_t step;
    bool damaged;
    if (bauta_run_checkpoint(&checkpoint, &step, f->path, from, &err))
        return train_failed(&err);
    int failed =
        step == from && checkpoint
            ? resume_from(f, args, checkpoint, &damaged)
            : cli_fail(VERB, "%s has no checkpoint of step %zu", f->path, from);
    bauta_text_free(checkpoint);
    return failed;
}

static int run_resume(const settings *s, const train_args *args)
{
    run_folder f;
    int failed = folder_open(&f, s->resume, true,
                             ranks_first() && !(s->dry_run || s->compare));
    if (!failed)
        failed = train_args_has(args, "--from-step")
                     ? resume_step(&f, args, s->from_step)
                     : resume_newest(&f, args);
    folder_close(&f);
    return failed;
}

static int train_as_rank(settings *s, const train_args *args)
{
    int failed = s->resume ? CLI_OK : settings_check(s);
    if (failed)
        return failed;
    return s->resume ? run_resume(s, args) : run_new(s, args);
}

int train_main(int argc, char **argv)
{
    train_args args;
    settings s = SETTINGS_INIT;
    int failed = train_args_parse(&args, argc, argv), code;
    if (!failed)
        failed = train_args_apply(&args, &s);
    if (!failed && s.help)
        failed = train_help();
    else if (!failed && ranks_begin(VERB, s.ranks, &code))
        failed = code;
    else if (!failed)
        failed = ranks_end(train_as_rank(&s, &args));
    settings_release(&s);
    train_args_release(&args);
    return failed;
}
