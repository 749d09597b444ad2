/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.c - bauta train: the command line to settings. */
#include "cli.h"
#include "ranks.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const objectives[] = { "auto",   "causal", "seq2seq",
                                          "masked", "prefix", NULL };
static const char *const modes[] = { "parallel", "sequential", "free",
                                     "scheduled", NULL };
static const char *const calendars[] = { "auto", "none", "always", NULL };
static const char *const schedules[] = { "constant", "linear", "cosine",
                                         "inverse-sqrt", NULL };

#define AT(member) offsetof(settings, member)

const train_option train_options[] = {
    { "--preset", OPTION_STRING, AT(preset), 0, NULL },
    { "--from", OPTION_STRING, AT(from), TRAIN_PATH, NULL },
    { "--tokenizer", OPTION_STRING, AT(tokenizer), 0, NULL },
    { "--set", OPTION_STRINGS, AT(set), 0, NULL },
    { "--out", OPTION_STRING, AT(out), TRAIN_PATH | TRAIN_TRANSIENT, NULL },
    { "--resume", OPTION_STRING, AT(resume), TRAIN_PATH | TRAIN_TRANSIENT,
      NULL },
    { "--config", OPTION_STRING, AT(config), TRAIN_PATH | TRAIN_TRANSIENT,
      NULL },
    { "--source", OPTION_STRING, AT(source), TRAIN_PATH, NULL },
    { "--target", OPTION_STRING, AT(target), TRAIN_PATH, NULL },
    { "--pairs", OPTION_STRING, AT(pairs), TRAIN_PATH, NULL },
    { "--series", OPTION_STRINGS, AT(series), TRAIN_PATH, NULL },
    { "--column", OPTION_STRINGS, AT(column), 0, NULL },
    { "--season", OPTION_SIZE, AT(season), 0, NULL },
    { "--holdout", OPTION_SIZE, AT(holdout), 0, NULL },
    { "--calendar", OPTION_CHOICE, AT(calendar), 0, calendars },
    { "--valid", OPTION_STRINGS, AT(valid), TRAIN_PATH, NULL },
    { "--valid-source", OPTION_STRING, AT(valid_source), TRAIN_PATH, NULL },
    { "--valid-target", OPTION_STRING, AT(valid_target), TRAIN_PATH, NULL },
    { "--valid-pairs", OPTION_STRING, AT(valid_pairs), TRAIN_PATH, NULL },
    { "--valid-share", OPTION_DOUBLE, AT(valid_share), 0, NULL },
    { "--lines", OPTION_FLAG, AT(lines), 0, NULL },
    { "--skip-bad", OPTION_FLAG, AT(skip_bad), 0, NULL },
    { "--objective", OPTION_CHOICE, AT(train.objective), 0, objectives },
    { "--mode", OPTION_CHOICE, AT(train.mode), 0, modes },
    { "--scheduled-sampling", OPTION_FLOAT, AT(train.scheduled_sampling), 0,
      NULL },
    { "--steps", OPTION_SIZE, AT(train.max_steps), 0, NULL },
    { "--batch-size", OPTION_SIZE, AT(train.batch_sequences), 0, NULL },
    { "--batch-tokens", OPTION_SIZE, AT(train.batch_tokens), 0, NULL },
    { "--gradient-accumulation-steps", OPTION_SIZE,
      AT(train.gradient_accumulation_steps), 0, NULL },
    { "--microbatch-tokens", OPTION_SIZE, AT(train.microbatch_tokens), 0,
      NULL },
    { "--context", OPTION_SIZE, AT(train.context_length), 0, NULL },
    { "--learning-rate", OPTION_DOUBLE, AT(train.learning_rate), 0, NULL },
    { "--min-learning-rate", OPTION_DOUBLE, AT(train.min_learning_rate), 0,
      NULL },
    { "--schedule", OPTION_CHOICE, AT(train.lr_scheduler_type), 0, schedules },
    { "--warmup-steps", OPTION_SIZE, AT(train.warmup_steps), 0, NULL },
    { "--beta1", OPTION_DOUBLE, AT(train.adam_beta1), 0, NULL },
    { "--beta2", OPTION_DOUBLE, AT(train.adam_beta2), 0, NULL },
    { "--epsilon", OPTION_DOUBLE, AT(train.adam_epsilon), 0, NULL },
    { "--weight-decay", OPTION_DOUBLE, AT(train.weight_decay), 0, NULL },
    { "--max-grad-norm", OPTION_DOUBLE, AT(train.max_grad_norm), 0, NULL },
    { "--dropout", OPTION_FLOAT, AT(train.dropout), 0, NULL },
    { "--label-smoothing", OPTION_FLOAT, AT(train.label_smoothing), 0, NULL },
    { "--mlm-probability", OPTION_FLOAT, AT(train.mlm_probability), 0, NULL },
    { "--mask-random", OPTION_FLOAT, AT(train.mlm_random), 0, NULL },
    { "--mask-kept", OPTION_FLOAT, AT(train.mlm_keep), 0, NULL },
    { "--ema-decay", OPTION_DOUBLE, AT(train.ema_decay), 0, NULL },
    { "--lanes", OPTION_SIZE, AT(train.lanes), TRAIN_NEWER, NULL },
    { "--seed", OPTION_SEED, AT(train.seed), 0, NULL },
    { "--average", OPTION_SIZE, AT(average), 0, NULL },
    { "--eval-every", OPTION_SIZE, AT(eval_every), 0, NULL },
    { "--eval-tokens", OPTION_SIZE, AT(eval_tokens), 0, NULL },
    { "--save-every", OPTION_SIZE, AT(save_every), 0, NULL },
    { "--keep", OPTION_SIZE, AT(keep), 0, NULL },
    { "--patience", OPTION_SIZE, AT(patience), 0, NULL },
    { "--device", OPTION_STRING, AT(device.name), TRAIN_NEWER, device_names },
    { "--dtype", OPTION_CHOICE, AT(device.dtype), TRAIN_NEWER, device_dtypes },
    { "--threads", OPTION_SIZE, AT(device.threads), TRAIN_TRANSIENT, NULL },
    { "--ranks", OPTION_SIZE, AT(ranks), TRAIN_TRANSIENT, NULL },
    { "--isa", OPTION_STRING, AT(device.isa), TRAIN_TRANSIENT, cli_isas },
    { "--audit", OPTION_FLAG, AT(audit), TRAIN_TRANSIENT, NULL },
    { "--no-audit", OPTION_FLAG, AT(no_audit), TRAIN_TRANSIENT, NULL },
    { "--dry-run", OPTION_FLAG, AT(dry_run), TRAIN_TRANSIENT, NULL },
    { "--compare-modes", OPTION_FLAG, AT(compare), TRAIN_TRANSIENT, NULL },
    { "--json", OPTION_FLAG, AT(json), TRAIN_TRANSIENT, NULL },
    { "--help", OPTION_FLAG, AT(help), TRAIN_TRANSIENT, NULL },
    { "--from-step", OPTION_SIZE, AT(from_step), TRAIN_TRANSIENT, NULL },
    { "--epochs", OPTION_DOUBLE, AT(epochs), TRAIN_TRANSIENT, NULL },
    { "--minutes", OPTION_DOUBLE, AT(minutes), TRAIN_TRANSIENT, NULL },
};
enum { OPTIONS = sizeof(train_options) / sizeof(train_options[0]) };
const size_t train_option_count = OPTIONS;

option train_option_bind(const train_option *t, settings *s)
{
    bool whole = t->kind == OPTION_SIZE || t->kind == OPTION_SEED;
    return (option){ .name = t->name,
                     .kind = t->kind,
                     .value = (char *)s + t->offset,
                     .min = whole ? 0.0 : -INFINITY,
                     .max = INFINITY,
                     .choices = t->choices };
}

enum { PRESETS_MAX = 64 };

/* The names of all presets, up to a NULL; how many. */
static int presets_find(const char *names[PRESETS_MAX + 1])
{
    int count = 0;
    while (count < PRESETS_MAX &&
           (names[count] = bauta_preset_name((size_t)count, NULL)))
        count++;
    names[count] = NULL;
    return count;
}

/* ---- parsing ----------------------------------------------------------- */

const train_option *train_option_find(const char *name)
{
    option table[OPTIONS];
    settings unused;
    for (size_t i = 0; i < OPTIONS; i++)
        table[i] = train_option_bind(&train_options[i], &unused);
    size_t index = option_find(table, OPTIONS, name);
    return index < OPTIONS ? &train_options[index] : NULL;
}

int train_args_add(train_args *args, const train_option *o, const char *value)
{
    if (args->count == args->room) {
        size_t room = 2 * args->room + 16;
        train_arg *more = realloc(args->at, room * sizeof(*more));
        if (!more)
            return cli_fail(VERB, "out of memory");
        args->at = more;
        args->room = room;
    }
    args->at[args->count++] = (train_arg){ o, value };
    return CLI_OK;
}

static int arg_record(void *user, size_t index, const option *o,
                      const char *value)
{
    (void)o;
    return train_args_add(user, &train_options[index], value);
}

int train_args_parse(train_args *args, int argc, char **argv)
{
    option table[OPTIONS];
    settings unused;
    const char *presets[PRESETS_MAX + 1] = { NULL };
    *args = (train_args){ 0 };
    presets_find(presets);
    for (size_t i = 0; i < OPTIONS; i++) {
        table[i] = train_option_bind(&train_options[i], &unused);
        if (train_options[i].offset == AT(preset))
            table[i].choices = presets;
    }
    int failed = options_scan(VERB, table, OPTIONS, argc, argv, &args->files,
                              arg_record, args);
    for (size_t i = 0, count = args->count; !failed && i < count; i++)
        if (args->at[i].option->offset == AT(config))
            failed = config_read(args, args->at[i].value);
    return failed;
}

void train_args_release(train_args *args)
{
    free(args->at);
    string_list_release(&args->files);
    for (size_t i = 0; i < args->number_count; i++)
        free(args->numbers[i]);
    free(args->numbers);
    json_decref(args->config);
}

bool train_args_has(const train_args *args, const char *name)
{
    for (size_t i = 0; i < args->count; i++)
        if (strcmp(args->at[i].option->name, name) == 0)
            return true;
    return false;
}

/* A small model's forward pass over fewer tokens does not fill a GPU. */
enum { GPU_MICROBATCH_TOKENS = 65536 };

/* A list in the arguments replaces the one in the settings. */
static void lists_clear(const train_args *args, settings *s)
{
    for (size_t i = 0; i < args->count; i++)
        if (args->at[i].option->kind == OPTION_STRINGS) {
            option o = train_option_bind(args->at[i].option, s);
            ((string_list *)o.value)->count = 0;
        }
    if (args->files.count)
        s->files.count = 0;
}

int train_args_apply(const train_args *args, settings *s)
{
    int failed = CLI_OK;
    lists_clear(args, s);
    for (size_t i = 0; !failed && i < args->count; i++) {
        option o = train_option_bind(args->at[i].option, s);
        failed = option_store(VERB, &o, args->at[i].value);
    }
    for (size_t i = 0; !failed && i < args->files.count; i++)
        failed = string_list_add(VERB, &s->files, args->files.at[i]);
    if (s->series.count && !s->preset && !s->from && !s->resume)
        s->preset = "series-tiny";
    // --batch-tokens replaces the preset's number of sequences.
    if (train_args_has(args, "--batch-tokens") &&
        !train_args_has(args, "--batch-size"))
        s->train.batch_sequences = 0;
    // The preset's minimum was chosen for its own learning rate.
    if (train_args_has(args, "--learning-rate") &&
        !train_args_has(args, "--min-learning-rate") &&
        s->train.min_learning_rate > s->train.learning_rate)
        s->train.min_learning_rate = s->train.learning_rate / 10.0;
    // The preset's number is for the caches of a CPU.
    if (!device_is_cpu(&s->device) && !s->resume && !s->config &&
        !train_args_has(args, "--microbatch-tokens") &&
        s->train.microbatch_tokens < GPU_MICROBATCH_TOKENS)
        s->train.microbatch_tokens = GPU_MICROBATCH_TOKENS;
    if (!failed && train_args_has(args, "--steps") +
                           train_args_has(args, "--epochs") +
                           train_args_has(args, "--minutes") >
                       1)
        failed = cli_usage(VERB, "--steps, --epochs and --minutes exclude each "
                                 "other");
    return failed;
}

void settings_release(settings *s)
{
    free(s->files.at);
    free(s->series.at);
    free(s->column.at);
    free(s->valid.at);
    free(s->set.at);
}

/* ---- options that belong together or exclude each other ---------------- */

static int series_check(const settings *s)
{
    if (s->tokenizer)
        return cli_usage(VERB, "--series has a tokenizer of its own");
    if (s->valid.count || s->valid_source || s->valid_pairs ||
        s->valid_share > 0.0)
        return cli_usage(VERB, "--series is validated by 'bauta forecast "
                               "--backtest' on rows that --holdout keeps "
                               "away");
    return CLI_OK;
}

static int data_check(const settings *s)
{
    bool two = s->source || s->target, tsv = s->pairs != NULL;
    bool texts = s->files.count > 0, series = s->series.count > 0;
    if (two && !(s->source && s->target))
        return cli_usage(VERB, "--source and --target belong together");
    if ((s->valid_source != NULL) != (s->valid_target != NULL))
        return cli_usage(VERB,
                         "--valid-source and --valid-target belong together");
    if (two + tsv + texts + series > 1)
        return cli_usage(VERB, "texts to train on are either FILES, or "
                               "--source and --target, or --pairs, or "
                               "--series");
    if (two + tsv + texts + series == 0)
        return cli_usage(VERB, "the texts to train on are missing: FILES, or "
                               "--source and --target, or --pairs, or "
                               "--series");
    if (series)
        return series_check(s);
    if (s->season || s->holdout || s->column.count || s->calendar)
        return cli_usage(VERB, "--season, --holdout, --column and "
                               "--calendar need --series");
    if ((s->valid_source || s->valid_pairs) && texts)
        return cli_usage(VERB,
                         "FILES are validated with --valid, not with pairs");
    if (s->valid.count && !texts)
        return cli_usage(VERB, "pairs are validated with --valid-source and "
                               "--valid-target, or with --valid-pairs");
    if ((s->valid.count > 0) + (s->valid_source != NULL) +
            (s->valid_pairs != NULL) + (s->valid_share > 0.0) >
        1)
        return cli_usage(VERB, "--valid, --valid-source, --valid-pairs and "
                               "--valid-share exclude each other");
    return CLI_OK;
}

static int numbers_check(const settings *s)
{
    if (!(s->valid_share >= 0.0 && s->valid_share < 1.0))
        return cli_usage(VERB, "--valid-share is %g, not from 0 to below 1",
                         s->valid_share);
    if (s->train.max_steps == 0)
        return cli_usage(VERB, "--steps is 0");
    if (!(s->epochs >= 0.0 && s->epochs <= 1e6))
        return cli_usage(VERB, "--epochs is %g, not from 0 to a million",
                         s->epochs);
    if (!(s->minutes >= 0.0 && s->minutes <= 1e6))
        return cli_usage(VERB, "--minutes is %g, not from 0 to a million",
                         s->minutes);
    if (s->keep == 0)
        return cli_usage(VERB, "--keep is 0, and a run keeps at least one "
                               "checkpoint");
    if (s->average > 1000)
        return cli_usage(VERB, "--average is %zu, not from 0 to 1000",
                         s->average);
    if (s->device.threads > 4096)
        return cli_usage(VERB, "--threads is %zu, not from 0 to 4096",
                         s->device.threads);
    if (s->compare && !device_is_cpu(&s->device))
        return cli_usage(VERB,
                         "--compare-modes compares gradients on the CPU "
                         "only, and --device is %s",
                         s->device.name);
    if (s->patience && !s->valid.count && !s->valid_source && !s->valid_pairs &&
        s->valid_share == 0.0)
        return cli_usage(VERB, "--patience needs validation texts, such as "
                               "--valid-share 0.1");
    return device_check(VERB, &s->device);
}

/* What several ranks cannot do together. */
static int ranks_check(const settings *s)
{
    if (ranks_count() == 1)
        return CLI_OK;
    if (s->dry_run || s->compare)
        return cli_usage(VERB, "%s runs on a single rank",
                         s->dry_run ? "--dry-run" : "--compare-modes");
    if (s->minutes > 0.0)
        return cli_usage(VERB, "--minutes measures a single rank; use --steps "
                               "or --epochs with several");
    return CLI_OK;
}

static int preset_check(const char *preset)
{
    char all[256] = "";
    const char *names[PRESETS_MAX + 1];
    int count = presets_find(names);
    for (int i = 0, used = 0; i < count; i++) {
        if (strcmp(names[i], preset) == 0)
            return CLI_OK;
        used += snprintf(all + used, sizeof(all) - (size_t)used, "%s%s",
                         i ? ", " : "", names[i]);
        if (used >= (int)sizeof(all))
            break;
    }
    const char *near = bauta_closest_word(preset, names, (size_t)count);
    return cli_usage(VERB, "there is no preset '%s'; %s%s%s%s", preset,
                     near ? "did you mean '" : "", near ? near : "",
                     near ? "'? There are " : "there are ", all);
}

int settings_check(const settings *s)
{
    bool trial = s->dry_run || s->compare;
    int refused = ranks_check(s);
    if (refused)
        return refused;
    if (s->resume)
        return numbers_check(s);
    if (s->from_step)
        return cli_usage(VERB, "--from-step needs --resume RUN");
    if (s->preset && s->from)
        return cli_usage(VERB, "--preset and --from exclude each other");
    if (!s->preset && !s->from)
        return cli_usage(VERB, "--preset NAME or --from DIR is missing");
    if (s->from && s->set.count)
        return cli_usage(VERB, "--set is for new models, not for --from");
    int unknown = s->preset ? preset_check(s->preset) : CLI_OK;
    if (unknown)
        return unknown;
    if (s->preset && !s->tokenizer && !s->series.count)
        return cli_usage(VERB, "--tokenizer is missing: a folder or file, or "
                               "bytes, chars, bpe:N, wordpiece:N, unigram:N");
    if (!s->out && !trial)
        return cli_usage(VERB, "--out is missing: the folder of the run");
    int usage = data_check(s);
    return usage ? usage : numbers_check(s);
}
