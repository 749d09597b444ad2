/* SPDX-License-Identifier: Apache-2.0 */
/* train_dry_run.c - bauta train --dry-run and --compare-modes. The trained
 * weights are discarded. */
#include "cli.h"
#include "compare_modes.h"
#include "format.h"
#include "json_output.h"
#include "train.h"

#include <stdlib.h>
#include <sys/resource.h>

/* ---- --dry-run --------------------------------------------------------- */

typedef struct estimate {
    size_t epoch_steps;
    uint64_t epoch_tokens; /* with those of the sources */
    size_t trial_tokens;
    double trial_seconds, run_seconds;
    double memory; /* peak, in bytes */
} estimate;

static uint64_t tokens_of(const bauta_corpus *corpus)
{
    uint64_t tokens = bauta_corpus_tokens(corpus);
    for (size_t i = 0;
         bauta_corpus_pairs(corpus) && i < bauta_corpus_documents(corpus);
         i++) {
        const uint32_t *source;
        size_t count = 0;
        bauta_corpus_document(corpus, i, NULL, &source, &count);
        tokens += count;
    }
    return tokens;
}

/* At most one micro-batch: the rest of a step is more of the same. */
static bauta_train_options trial_options(const settings *s, size_t context)
{
    bauta_train_options o = s->train;
    o.gradient_accumulation_steps = 1;
    o.batch_tokens = o.batch_tokens && o.batch_tokens < o.microbatch_tokens
                         ? o.batch_tokens
                         : o.microbatch_tokens;
    if (o.batch_sequences && o.batch_sequences * context > o.microbatch_tokens)
        o.batch_sequences =
            o.microbatch_tokens > context ? o.microbatch_tokens / context : 1;
    return o;
}

/* Time about a second of steps after a warm-up step; a single one if steps are
 * long, or the warm-up step itself if it takes over 20 s. */
static int trial_run(train_job *job, const bauta_train_options *o, estimate *e)
{
    enum { LONG = 20, STEPS = 20 };
    bauta_error err;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    double seconds = 0.0;
    size_t tokens = 0;
    bauta_trainer_free(job->trainer);
    job->trainer = NULL;
    if (bauta_trainer_create(&job->trainer, job->context, job->model,
                             job->tokenizer, job->corpus, o, &err))
        return train_failed(&err);
    for (int i = 0; i <= STEPS && seconds < (i > 1 ? 1.0 : LONG); i++) {
        double began = seconds_now();
        if (i == 1) // discard the time of the first step
            seconds = 0.0, tokens = 0;
        if (bauta_trainer_step(job->trainer, &report, &err))
            return train_failed(&err);
        seconds += seconds_now() - began;
        tokens += report.tokens;
    }
    e->trial_seconds = seconds;
    e->trial_tokens = tokens;
    return CLI_OK;
}

static int estimate_make(train_job *job, const settings *s, estimate *e)
{
    struct rusage usage;
    size_t context = s->train.context_length
                         ? s->train.context_length
                         : bauta_model_max_positions(job->model);
    bauta_train_options o = trial_options(s, context);
    *e = (estimate){ .epoch_steps = bauta_trainer_epoch_steps(job->trainer),
                     .epoch_tokens = tokens_of(job->corpus) };
    int failed = trial_run(job, &o, e);
    if (failed)
        return failed;
    double tokens = (double)e->epoch_tokens / (double)e->epoch_steps *
                    (double)s->train.max_steps;
    e->run_seconds = e->trial_seconds * tokens /
                     (double)(e->trial_tokens ? e->trial_tokens : 1);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        e->memory = 1024.0 * (double)usage.ru_maxrss;
    return CLI_OK;
}

int dry_run_timing(train_job *job, const settings *s, step_timing *out)
{
    estimate e;
    int failed = estimate_make(job, s, &e);
    if (failed)
        return failed;
    out->step_seconds = e.run_seconds / (double)s->train.max_steps;
    out->token_seconds =
        e.trial_seconds / (double)(e.trial_tokens ? e.trial_tokens : 1);
    return CLI_OK;
}

static int dry_json(const train_job *job, const settings *s, const estimate *e)
{
    json_t *all = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "config",
        json_model(job->model), "documents",
        (json_int_t)bauta_corpus_documents(job->corpus), "tokens",
        (json_int_t)bauta_corpus_tokens(job->corpus), "valid_tokens",
        (json_int_t)(job->valid ? bauta_corpus_tokens(job->valid) : 0), "steps",
        (json_int_t)s->train.max_steps, "steps_per_epoch",
        (json_int_t)e->epoch_steps, "memory_bytes", e->memory,
        "tokens_per_second", (double)e->trial_tokens / e->trial_seconds,
        "estimated_seconds", e->run_seconds, "settings", settings_json(s));
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

static void config_print(json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            config_print(value, indent + 2);
        } else {
            printf("%*s%-*s %s\n", indent, "", 24 - indent, key,
                   json_is_string(value) ? json_string_value(value)
                   : text                ? text
                                         : "");
        }
        free(text);
    }
}

static int dry_text(const train_job *job, const settings *s, const estimate *e)
{
    char text[32];
    double epochs = (double)s->train.max_steps / (double)e->epoch_steps;
    json_t *config = json_model(job->model);
    printf("model\n");
    config_print(config, 2);
    json_decref(config);
    printf("corpus\n");
    printf("  %-22s %s\n", "documents",
           format_grouped(text, bauta_corpus_documents(job->corpus)));
    printf("  %-22s %s\n", "tokens",
           format_grouped(text, bauta_corpus_tokens(job->corpus)));
    printf(
        "  %-22s %s\n", "validation tokens",
        format_grouped(text, job->valid ? bauta_corpus_tokens(job->valid) : 0));
    printf("run\n");
    printf("  %-22s %s\n", "parameters",
           format_grouped(text, bauta_model_parameter_count(job->model)));
    printf("  %-22s %zu, %.1f epochs of %zu\n", "steps", s->train.max_steps,
           epochs, e->epoch_steps);
    printf("  %-22s %.0f MiB\n",
           device_is_cpu(&s->device) ? "memory" : "memory of the host",
           e->memory / 0x1p20);
    printf("  %-22s %.0f\n", "tokens per second",
           (double)e->trial_tokens / e->trial_seconds);
    printf("  %-22s about %s, without validation\n", "time",
           format_duration(text, e->run_seconds));
    return cli_finish(VERB);
}

int dry_run(train_job *job, const settings *s)
{
    estimate e;
    int failed = estimate_make(job, s, &e);
    if (failed)
        return failed;
    return s->json ? dry_json(job, s, &e) : dry_text(job, s, &e);
}

/* ---- --compare-modes --------------------------------------------------- */

static int compare_text(const comparison *c)
{
    printf("%-12s %12s %22s %12s %8s\n", "mode", "loss", "gradients differ by",
           "seconds", "ratio");
    for (int i = 0; i < MODES; i++)
        printf("%-12s %12.6f %22.3g %12.3f %8.1f\n", mode_entries[i].name,
               c->loss[i], c->difference[i], c->seconds[i],
               c->seconds[i] / c->seconds[0]);
    printf("largest gradient: %.3g\n", c->largest);
    return cli_finish(VERB);
}

static int compare_json(const comparison *c)
{
    json_t *all = json_pack("{s:f}", "largest_gradient", c->largest);
    for (int i = 0; i < MODES; i++)
        json_object_set_new(
            all, mode_entries[i].name,
            json_pack("{s:f, s:f, s:f, s:f}", "loss", c->loss[i],
                      "gradient_difference", c->difference[i], "seconds",
                      c->seconds[i], "ratio", c->seconds[i] / c->seconds[0]));
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

int compare_modes_run(train_job *job, const settings *s)
{
    bauta_error err;
    comparison c;
    if (compare_modes(&c, job->trainer, job->model, &err))
        return train_failed(&err);
    return s->json ? compare_json(&c) : compare_text(&c);
}
