/* SPDX-License-Identifier: Apache-2.0 */
/* train_options.c - bauta train: the command line to settings. */
#include "cli.h"
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const objectives[] = { "auto",   "causal", "seq2seq",
                                          "masked", "prefix", NULL };
static const char *const modes[] = { "parallel", "sequential", "free",
                                     "scheduled", NULL };
static const char *const schedules[] = { "constant", "linear", "cosine",
                                         "inverse-sqrt", NULL };

#define AT(member) offsetof(settings, member)

const field train_fields[] = {
    { "preset", FIELD_TEXT, AT(preset), NULL, false },
    { "from", FIELD_PATH, AT(from), NULL, false },
    { "tokenizer", FIELD_TEXT, AT(tokenizer), NULL, false },
    { "set", FIELD_WORDS, AT(set), NULL, false },
    { "out", FIELD_PATH, AT(out), NULL, true },
    { "resume", FIELD_PATH, AT(resume), NULL, true },
    { "source", FIELD_PATH, AT(source), NULL, false },
    { "target", FIELD_PATH, AT(target), NULL, false },
    { "pairs", FIELD_PATH, AT(pairs), NULL, false },
    { "valid", FIELD_PATHS, AT(valid), NULL, false },
    { "valid-source", FIELD_PATH, AT(valid_source), NULL, false },
    { "valid-target", FIELD_PATH, AT(valid_target), NULL, false },
    { "valid-pairs", FIELD_PATH, AT(valid_pairs), NULL, false },
    { "valid-share", FIELD_REAL, AT(valid_share), NULL, false },
    { "lines", FIELD_FLAG, AT(lines), NULL, false },
    { "skip-bad", FIELD_FLAG, AT(skip_bad), NULL, false },
    { "objective", FIELD_CHOICE, AT(train.objective), objectives, false },
    { "mode", FIELD_CHOICE, AT(train.mode), modes, false },
    { "sampled", FIELD_FLOAT, AT(train.sampled), NULL, false },
    { "steps", FIELD_SIZE, AT(train.steps), NULL, false },
    { "batch-size", FIELD_SIZE, AT(train.sequences), NULL, false },
    { "batch-tokens", FIELD_SIZE, AT(train.tokens), NULL, false },
    { "accumulate", FIELD_SIZE, AT(train.accumulate), NULL, false },
    { "pass-tokens", FIELD_SIZE, AT(train.pass), NULL, false },
    { "context", FIELD_SIZE, AT(train.context), NULL, false },
    { "learning-rate", FIELD_REAL, AT(train.rate), NULL, false },
    { "min-learning-rate", FIELD_REAL, AT(train.min_rate), NULL, false },
    { "schedule", FIELD_CHOICE, AT(train.schedule), schedules, false },
    { "warmup", FIELD_SIZE, AT(train.warmup), NULL, false },
    { "beta1", FIELD_REAL, AT(train.beta1), NULL, false },
    { "beta2", FIELD_REAL, AT(train.beta2), NULL, false },
    { "epsilon", FIELD_REAL, AT(train.epsilon), NULL, false },
    { "weight-decay", FIELD_REAL, AT(train.weight_decay), NULL, false },
    { "clip", FIELD_REAL, AT(train.clip), NULL, false },
    { "dropout", FIELD_FLOAT, AT(train.dropout), NULL, false },
    { "label-smoothing", FIELD_FLOAT, AT(train.smoothing), NULL, false },
    { "mask-rate", FIELD_FLOAT, AT(train.hidden), NULL, false },
    { "mask-random", FIELD_FLOAT, AT(train.hidden_random), NULL, false },
    { "mask-kept", FIELD_FLOAT, AT(train.hidden_kept), NULL, false },
    { "ema", FIELD_REAL, AT(train.average), NULL, false },
    { "seed", FIELD_SEED, AT(train.seed), NULL, false },
    { "average", FIELD_SIZE, AT(average), NULL, false },
    { "eval-every", FIELD_SIZE, AT(eval_every), NULL, false },
    { "eval-tokens", FIELD_SIZE, AT(eval_tokens), NULL, false },
    { "save-every", FIELD_SIZE, AT(save_every), NULL, false },
    { "keep", FIELD_SIZE, AT(keep), NULL, false },
    { "patience", FIELD_SIZE, AT(patience), NULL, false },
    { "threads", FIELD_SIZE, AT(threads), NULL, true },
    { "isa", FIELD_TEXT, AT(isa), NULL, true },
    { "audit", FIELD_FLAG, AT(audit), NULL, true },
    { "no-audit", FIELD_FLAG, AT(no_audit), NULL, true },
    { "dry-run", FIELD_FLAG, AT(dry_run), NULL, true },
    { "compare-modes", FIELD_FLAG, AT(compare), NULL, true },
    { "json", FIELD_FLAG, AT(json), NULL, true },
    { "help", FIELD_FLAG, AT(help), NULL, true },
};
const size_t train_field_count = sizeof(train_fields) / sizeof(train_fields[0]);

/* ---- reading ----------------------------------------------------------- */

static const field *field_find(const char *name)
{
    for (size_t i = 0; i < train_field_count; i++)
        if (strcmp(train_fields[i].name, name) == 0)
            return &train_fields[i];
    return NULL;
}

static int option_unknown(const char *word)
{
    const char *names[sizeof(train_fields) / sizeof(train_fields[0])];
    for (size_t i = 0; i < train_field_count; i++)
        names[i] = train_fields[i].name;
    const char *near =
        word[1] == '-' ? cli_nearest(word + 2, names, (int)train_field_count)
                       : NULL;
    if (near)
        return cli_usage(VERB, "there is no option '%s'; did you mean '--%s'?",
                         word, near);
    return cli_usage(VERB, "there is no option '%s'", word);
}

/* One word of the command line, and its value where it has one: "--steps 5" or
 * "--steps=5". Returns how many words were read in *used. */
static int word_read(given *g, char **argv, int *used)
{
    char name[32];
    const char *word = argv[0];
    const char *equal = strchr(word, '=');
    size_t length = equal ? (size_t)(equal - word) : strlen(word);
    *used = 1;
    if (strcmp(word, "-h") == 0)
        word = "--help", length = 6;
    if (strncmp(word, "--", 2) != 0 || length - 2 >= sizeof(name))
        return option_unknown(word);
    memcpy(name, word + 2, length - 2);
    name[length - 2] = '\0';
    const field *f = field_find(name);
    if (!f)
        return option_unknown(word);
    const char *value = equal ? equal + 1 : NULL;
    if (f->kind == FIELD_FLAG && equal)
        return cli_usage(VERB, "--%s takes no value", name);
    if (f->kind != FIELD_FLAG && !equal) {
        value = argv[1];
        *used = 2;
        if (!value)
            return cli_usage(VERB, "--%s needs a value", name);
    }
    g->fields[g->count] = f;
    g->values[g->count++] = value;
    return CLI_OK;
}

int given_read(given *g, int argc, char **argv)
{
    size_t room = (size_t)argc;
    bool ended = false; // behind "--" everything is a file
    *g = (given){ 0 };
    g->fields = calloc(room, sizeof(*g->fields));
    g->values = calloc(room, sizeof(*g->values));
    g->files = calloc(room, sizeof(*g->files));
    if (!g->fields || !g->values || !g->files)
        return cli_fail(VERB, "out of memory");
    for (int i = 1, used; i < argc; i += used) {
        used = 1;
        if (ended || argv[i][0] != '-' || !argv[i][1]) {
            g->files[g->file_count++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            ended = true;
        } else {
            int usage = word_read(g, argv + i, &used);
            if (usage)
                return usage;
        }
    }
    return CLI_OK;
}

void given_release(given *g)
{
    free(g->fields);
    free(g->values);
    free(g->files);
}

bool given_has(const given *g, const char *name)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->fields[i]->name, name) == 0)
            return true;
    return false;
}

/* ---- values ------------------------------------------------------------ */

/* A whole number below 2^63, as 2000 or 2e3. */
static int whole_read(uint64_t *out, const field *f, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno) {
        *out = (uint64_t)value;
        return CLI_OK;
    }
    double real = strtod(text, &end);
    if (*text >= '0' && *text <= '9' && !*end && real < 1e15 &&
        real == floor(real)) {
        *out = (uint64_t)real;
        return CLI_OK;
    }
    return cli_usage(VERB, "--%s is '%s', not a whole number", f->name, text);
}

static int real_read(double *out, const field *f, const char *text)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out))
        return CLI_OK;
    return cli_usage(VERB, "--%s is '%s', not a number", f->name, text);
}

static int choice_read(int *out, const field *f, const char *text)
{
    char all[128] = "";
    int count = 0;
    for (; f->choices[count]; count++) {
        if (strcmp(text, f->choices[count]) == 0) {
            *out = count;
            return CLI_OK;
        }
        strcat(all, count ? ", " : "");
        strcat(all, f->choices[count]);
    }
    const char *near = cli_nearest(text, f->choices, count);
    return cli_usage(VERB, "--%s is '%s', and not one of %s%s%s%s", f->name,
                     text, all, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

static int words_add(words *w, const char *word)
{
    const char **more = realloc(w->at, (w->count + 1) * sizeof(*more));
    if (!more)
        return cli_fail(VERB, "out of memory");
    w->at = more;
    w->at[w->count++] = word;
    return CLI_OK;
}

static int value_apply(settings *s, const field *f, const char *text)
{
    void *at = field_at(f, s);
    double real = 0.0;
    uint64_t whole = 0;
    int usage;
    switch (f->kind) {
    case FIELD_FLAG:
        *(bool *)at = true;
        return CLI_OK;
    case FIELD_TEXT:
    case FIELD_PATH:
        *(const char **)at = text;
        return CLI_OK;
    case FIELD_WORDS:
    case FIELD_PATHS:
        return words_add(at, text);
    case FIELD_SIZE:
        usage = whole_read(&whole, f, text);
        *(size_t *)at = (size_t)whole;
        return usage;
    case FIELD_SEED:
        return whole_read(at, f, text);
    case FIELD_REAL:
        return real_read(at, f, text);
    case FIELD_FLOAT:
        usage = real_read(&real, f, text);
        *(float *)at = (float)real;
        return usage;
    default:
        return choice_read(at, f, text);
    }
}

/* A list that is given takes the place of the one before. */
static void lists_empty(const given *g, settings *s)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->fields[i]->kind == FIELD_WORDS ||
            g->fields[i]->kind == FIELD_PATHS)
            ((words *)field_at(g->fields[i], s))->count = 0;
    if (g->file_count)
        s->files.count = 0;
}

int given_apply(const given *g, settings *s)
{
    int failed = CLI_OK;
    lists_empty(g, s);
    for (size_t i = 0; !failed && i < g->count; i++)
        failed = value_apply(s, g->fields[i], g->values[i]);
    for (size_t i = 0; !failed && i < g->file_count; i++)
        failed = words_add(&s->files, g->files[i]);
    // A preset that counts sequences is told to count tokens.
    if (given_has(g, "batch-tokens") && !given_has(g, "batch-size"))
        s->train.sequences = 0;
    return failed;
}

void settings_release(settings *s)
{
    free(s->files.at);
    free(s->valid.at);
    free(s->set.at);
}

/* ---- what goes together ------------------------------------------------ */

static int data_check(const settings *s)
{
    bool two = s->source || s->target, tsv = s->pairs != NULL;
    bool texts = s->files.count > 0;
    if (two && !(s->source && s->target))
        return cli_usage(VERB, "--source and --target belong together");
    if ((s->valid_source != NULL) != (s->valid_target != NULL))
        return cli_usage(VERB,
                         "--valid-source and --valid-target belong together");
    if (two + tsv + texts > 1)
        return cli_usage(VERB, "texts to train on are either FILES, or "
                               "--source and --target, or --pairs");
    if (two + tsv + texts == 0)
        return cli_usage(VERB, "the texts to train on are missing: FILES, or "
                               "--source and --target, or --pairs");
    if ((s->valid_source || s->valid_pairs) && texts)
        return cli_usage(VERB, "FILES are validated by --valid, and not by "
                               "pairs");
    if (s->valid.count && !texts)
        return cli_usage(VERB, "pairs are validated by --valid-source and "
                               "--valid-target, or by --valid-pairs");
    if ((s->valid.count > 0) + (s->valid_source != NULL) +
            (s->valid_pairs != NULL) + (s->valid_share > 0.0) >
        1)
        return cli_usage(VERB, "more than one way of validation was given");
    return CLI_OK;
}

static int numbers_check(const settings *s)
{
    if (!(s->valid_share >= 0.0 && s->valid_share < 1.0))
        return cli_usage(VERB, "--valid-share is %g, not from 0 to below 1",
                         s->valid_share);
    if (s->train.steps == 0)
        return cli_usage(VERB, "--steps is 0");
    if (s->keep == 0)
        return cli_usage(VERB, "--keep is 0, and a run keeps at least one "
                               "checkpoint");
    if (s->average > 1000)
        return cli_usage(VERB, "--average is %zu, not from 0 to 1000",
                         s->average);
    if (s->threads > 4096)
        return cli_usage(VERB, "--threads is %zu, not from 0 to 4096",
                         s->threads);
    if (s->patience && !s->valid.count && !s->valid_source && !s->valid_pairs &&
        s->valid_share == 0.0)
        return cli_usage(VERB, "--patience needs something to validate on, "
                               "such as --valid-share 0.1");
    return CLI_OK;
}

int settings_check(const settings *s)
{
    bool trial = s->dry_run || s->compare;
    if (s->resume)
        return numbers_check(s);
    if (s->preset && s->from)
        return cli_usage(VERB, "--preset makes a new model and --from goes on "
                               "with one: either, not both");
    if (!s->preset && !s->from)
        return cli_usage(VERB, "--preset NAME or --from DIR is missing");
    if (s->from && s->set.count)
        return cli_usage(VERB, "--set is for new models; the config of "
                               "--from is what it is");
    if (s->preset && !s->tokenizer)
        return cli_usage(VERB, "--tokenizer is missing: a folder or file, or "
                               "bytes, chars, bpe:N, wordpiece:N, unigram:N");
    if (!s->out && !trial)
        return cli_usage(VERB, "--out is missing: where shall the run go?");
    int usage = data_check(s);
    return usage ? usage : numbers_check(s);
}
