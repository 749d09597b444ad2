/* SPDX-License-Identifier: Apache-2.0 */
/* train_trial.c - bauta train --dry-run and --compare-modes: nothing of what
 * they learn is kept. */
#include "cli.h"
#include "modes.h"
#include "train.h"

#include <stdlib.h>
#include <sys/resource.h>

/* ---- --dry-run --------------------------------------------------------- */

typedef struct estimate {
    size_t epoch_steps;
    uint64_t epoch_tokens; /* that are read, sources among them */
    size_t trial_tokens;
    double trial_seconds, run_seconds;
    double memory; /* bytes, the most that there were */
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

/* As long as a pass at most: the rest of a step is more of the same. */
static bauta_train_options trial_options(const settings *s, size_t context)
{
    bauta_train_options o = s->train;
    o.accumulate = 1;
    o.tokens = o.tokens && o.tokens < o.pass ? o.tokens : o.pass;
    if (o.sequences && o.sequences * context > o.pass)
        o.sequences = o.pass > context ? o.pass / context : 1;
    return o;
}

/* The first step warms up, and a second of others is timed; one where steps are
 * long, or the first where it took very long. */
static int trial_run(workshop *w, const bauta_train_options *o, estimate *e)
{
    enum { LONG = 20, STEPS = 20 };
    bauta_error err;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    double seconds = 0.0;
    size_t tokens = 0;
    bauta_trainer_free(w->trainer);
    w->trainer = NULL;
    if (bauta_trainer_create(&w->trainer, w->context, w->model, w->tokenizer,
                             w->corpus, o, &err))
        return train_failed(&err);
    for (int i = 0; i <= STEPS && seconds < (i > 1 ? 1.0 : LONG); i++) {
        double began = now();
        if (i == 1) // what the first one took does not count any more
            seconds = 0.0, tokens = 0;
        if (bauta_trainer_step(w->trainer, &report, &err))
            return train_failed(&err);
        seconds += now() - began;
        tokens += report.tokens;
    }
    e->trial_seconds = seconds;
    e->trial_tokens = tokens;
    return CLI_OK;
}

static int estimate_make(workshop *w, const settings *s, estimate *e)
{
    struct rusage usage;
    size_t context =
        s->train.context ? s->train.context : bauta_model_positions(w->model);
    bauta_train_options o = trial_options(s, context);
    *e = (estimate){ .epoch_steps = bauta_trainer_epoch_steps(w->trainer),
                     .epoch_tokens = tokens_of(w->corpus) };
    int failed = trial_run(w, &o, e);
    if (failed)
        return failed;
    double tokens = (double)e->epoch_tokens / (double)e->epoch_steps *
                    (double)s->train.steps;
    e->run_seconds = e->trial_seconds * tokens /
                     (double)(e->trial_tokens ? e->trial_tokens : 1);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        e->memory = 1024.0 * (double)usage.ru_maxrss;
    return CLI_OK;
}

int trial_speed(workshop *w, const settings *s, trial_timing *out)
{
    estimate e;
    int failed = estimate_make(w, s, &e);
    if (failed)
        return failed;
    out->step_seconds = e.run_seconds / (double)s->train.steps;
    out->token_seconds =
        e.trial_seconds / (double)(e.trial_tokens ? e.trial_tokens : 1);
    return CLI_OK;
}

static json_t *blueprint_of(const bauta_model *model)
{
    size_t length = bauta_model_describe(model, NULL, 0);
    char *text = malloc(length + 1);
    json_t *blueprint = NULL;
    if (text) {
        bauta_model_describe(model, text, length + 1);
        blueprint = json_loads(text, 0, NULL);
    }
    free(text);
    return blueprint;
}

static int dry_json(const workshop *w, const settings *s, const estimate *e)
{
    json_t *all = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "blueprint",
        blueprint_of(w->model), "documents",
        (json_int_t)bauta_corpus_documents(w->corpus), "tokens",
        (json_int_t)bauta_corpus_tokens(w->corpus), "valid_tokens",
        (json_int_t)(w->valid ? bauta_corpus_tokens(w->valid) : 0), "steps",
        (json_int_t)s->train.steps, "steps_an_epoch",
        (json_int_t)e->epoch_steps, "memory_bytes", e->memory,
        "tokens_per_second", (double)e->trial_tokens / e->trial_seconds,
        "estimated_seconds", e->run_seconds, "settings", settings_json(s));
    if (!all)
        return cli_fail(VERB, "out of memory");
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    return cli_finish(VERB);
}

static void blueprint_print(json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            blueprint_print(value, indent + 2);
        } else {
            printf("%*s%-*s %s\n", indent, "", 24 - indent, key,
                   json_is_string(value) ? json_string_value(value)
                   : text                ? text
                                         : "");
        }
        free(text);
    }
}

static int dry_text(const workshop *w, const settings *s, const estimate *e)
{
    char text[32];
    double epochs = (double)s->train.steps / (double)e->epoch_steps;
    json_t *blueprint = blueprint_of(w->model);
    printf("the model\n");
    blueprint_print(blueprint, 2);
    json_decref(blueprint);
    printf("the corpus\n");
    printf("  %-22s %s\n", "documents",
           grouped(text, bauta_corpus_documents(w->corpus)));
    printf("  %-22s %s\n", "tokens",
           grouped(text, bauta_corpus_tokens(w->corpus)));
    printf("  %-22s %s\n", "tokens to validate on",
           grouped(text, w->valid ? bauta_corpus_tokens(w->valid) : 0));
    printf("the run\n");
    printf("  %-22s %s\n", "parameters",
           grouped(text, bauta_model_parameters(w->model)));
    printf("  %-22s %zu, %.1f epochs of %zu\n", "steps", s->train.steps, epochs,
           e->epoch_steps);
    printf("  %-22s %.0f MiB\n", "memory", e->memory / 0x1p20);
    printf("  %-22s %.0f\n", "tokens a second",
           (double)e->trial_tokens / e->trial_seconds);
    printf("  %-22s about %s, without validation\n", "time",
           duration(text, e->run_seconds));
    return cli_finish(VERB);
}

int trial_dry_run(workshop *w, const settings *s)
{
    estimate e;
    int failed = estimate_make(w, s, &e);
    if (failed)
        return failed;
    return s->json ? dry_json(w, s, &e) : dry_text(w, s, &e);
}

/* ---- --compare-modes --------------------------------------------------- */

static int compare_text(const comparison *c)
{
    printf("%-12s %12s %22s %12s %8s\n", "mode", "loss", "gradients differ by",
           "seconds", "ratio");
    for (int i = 0; i < MODES; i++)
        printf("%-12s %12.6f %22.3g %12.3f %8.1f\n", modes_known[i].name,
               c->loss[i], c->off[i], c->seconds[i],
               c->seconds[i] / c->seconds[0]);
    printf("the largest gradient is %.3g\n", c->largest);
    return cli_finish(VERB);
}

static int compare_json(const comparison *c)
{
    json_t *all = json_pack("{s:f}", "largest_gradient", c->largest);
    for (int i = 0; i < MODES; i++)
        json_object_set_new(all, modes_known[i].name,
                            json_pack("{s:f, s:f, s:f, s:f}", "loss",
                                      c->loss[i], "gradient_difference",
                                      c->off[i], "seconds", c->seconds[i],
                                      "ratio", c->seconds[i] / c->seconds[0]));
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    return cli_finish(VERB);
}

int trial_compare(workshop *w, const settings *s)
{
    bauta_error err;
    comparison c;
    if (modes_compare(&c, w->trainer, w->model, &err))
        return train_failed(&err);
    return s->json ? compare_json(&c) : compare_text(&c);
}
