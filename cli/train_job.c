/* SPDX-License-Identifier: Apache-2.0 */
/* train_job.c - bauta train: tokenizer, corpora, model and trainer. */
#include "cli.h"
#include "format.h"
#include "ranks.h"
#include "train.h"
#include "unknown_chars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int train_failed(const bauta_error *err)
{
    return ranks_reported(err) ? CLI_FAILED
                               : cli_fail(VERB, "%s", err->message);
}

static int no_memory(void)
{
    return cli_fail(VERB, "out of memory");
}

/* ---- standard input ---------------------------------------------------- */

static bool is_stdin(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

/* How many of the files are standard input. */
static size_t stdin_count(const settings *s)
{
    const char *const single[] = { s->source,       s->target,
                                   s->pairs,        s->valid_source,
                                   s->valid_target, s->valid_pairs };
    size_t count = 0;
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        count += is_stdin(single[i]);
    for (size_t i = 0; i < s->files.count; i++)
        count += is_stdin(s->files.at[i]);
    for (size_t i = 0; i < s->valid.count; i++)
        count += is_stdin(s->valid.at[i]);
    return count;
}

static int copy_failed(void)
{
    return cli_fail(VERB, "standard input: cannot copy it to read it twice: %s",
                    strerror(errno));
}

/* Copy standard input to a file, which replaces it. */
static int stdin_copy(int file)
{
    static char buffer[1 << 16];
    ssize_t got;
    while ((got = read(STDIN_FILENO, buffer, sizeof(buffer))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return copy_failed();
        for (ssize_t done = 0, n; done < got; done += n)
            if ((n = write(file, buffer + done, (size_t)(got - done))) < 0)
                return copy_failed();
    }
    if (lseek(file, 0, SEEK_SET) < 0 || dup2(file, STDIN_FILENO) < 0)
        return copy_failed();
    return CLI_OK;
}

/* Make standard input readable again from *begin: a pipe is copied to an
 * unnamed temporary file, in the folder that the library uses for its own. */
static int stdin_keep(off_t *begin)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    *begin = lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (*begin >= 0)
        return CLI_OK;
    *begin = 0;
    snprintf(path, sizeof(path), "%s/bauta-XXXXXX",
             folder && *folder ? folder : "/var/tmp");
    int file = mkstemp(path);
    if (file < 0)
        return copy_failed();
    unlink(path);
    int failed = stdin_copy(file);
    close(file);
    return failed;
}

/* ---- the tokenizer ----------------------------------------------------- */

static const struct {
    const char *name;
    bauta_tokenizer_kind kind;
} trained_kinds[] = {
    { "bpe", BAUTA_TOKENIZER_BPE },
    { "wordpiece", BAUTA_TOKENIZER_WORDPIECE },
    { "unigram", BAUTA_TOKENIZER_UNIGRAM },
    { "chars", BAUTA_TOKENIZER_CHARACTERS },
};
enum { TRAINED_KINDS = sizeof(trained_kinds) / sizeof(trained_kinds[0]) };

/* Which kind is to be trained, or TRAINED_KINDS; *size is the part after the
 * colon. */
static int kind_find(const char *word, const char **size)
{
    for (int i = 0; i < TRAINED_KINDS; i++) {
        size_t length = strlen(trained_kinds[i].name);
        if (strncmp(word, trained_kinds[i].name, length) == 0 &&
            (word[length] == ':' || !word[length])) {
            *size = word[length] ? word + length + 1 : "";
            return i;
        }
    }
    return TRAINED_KINDS;
}

bool tokenizer_is_trained(const char *word)
{
    const char *size;
    return strcmp(word, "bytes") == 0 || strcmp(word, "chars") == 0 ||
           kind_find(word, &size) != TRAINED_KINDS;
}

/* The tokenizer is trained on the texts of the model. */
static bauta_status texts_add(bauta_tokenizer_trainer *v, const settings *s,
                              bauta_error *err)
{
    bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
    const char *source = s->source ? s->source : s->pairs;
    how.lines = s->lines;
    how.skip_invalid = s->skip_bad;
    if (source)
        return bauta_tokenizer_trainer_add_pairs(v, source, s->target, &how,
                                                 err);
    return bauta_tokenizer_trainer_add_files(v, s->files.at, s->files.count,
                                             &how, err);
}

static int tokenizer_train(bauta_tokenizer **out,
                           const bauta_tokenizer_trainer_options *how,
                           const settings *s)
{
    bauta_error err;
    bauta_tokenizer_trainer *v = NULL;
    off_t begin = 0;
    bool uses_stdin = stdin_count(s) > 0;
    int failed = uses_stdin ? stdin_keep(&begin) : CLI_OK;
    if (failed)
        return failed;
    bauta_status status = bauta_tokenizer_trainer_create(&v, how, &err);
    if (!status)
        status = texts_add(v, s, &err);
    if (!status && how->kind != BAUTA_TOKENIZER_CHARACTERS)
        fprintf(stderr, "training a vocabulary of %zu pieces on %llu bytes\n",
                how->vocab_size,
                (unsigned long long)bauta_tokenizer_trainer_bytes(v));
    if (!status)
        status = bauta_tokenizer_trainer_train(v, out, &err);
    bauta_tokenizer_trainer_free(v);
    if (status)
        return train_failed(&err);
    return uses_stdin && lseek(STDIN_FILENO, begin, SEEK_SET) < 0
               ? copy_failed()
               : CLI_OK;
}

static int tokenizer_make(bauta_tokenizer **out, const settings *s)
{
    bauta_tokenizer_trainer_options v = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    const char *size = "";
    char *end = NULL;
    bauta_error err;
    int kind = kind_find(s->tokenizer, &size);
    if (strcmp(s->tokenizer, "bytes") == 0)
        return bauta_tokenizer_bytes(out, &err) ? train_failed(&err) : CLI_OK;
    if (kind == TRAINED_KINDS)
        return bauta_tokenizer_load(out, s->tokenizer, &err)
                   ? train_failed(&err)
                   : CLI_OK;
    v.kind = trained_kinds[kind].kind;
    if (v.kind == BAUTA_TOKENIZER_CHARACTERS)
        return tokenizer_train(out, &v, s);
    v.vocab_size = strtoul(size, &end, 10);
    if (*size < '0' || *size > '9' || *end || v.vocab_size > 10000000)
        return cli_usage(VERB, "--tokenizer %s needs a size, as in '%s:8000'",
                         trained_kinds[kind].name, trained_kinds[kind].name);
    return tokenizer_train(out, &v, s);
}

/* A missing or malformed file damages this checkpoint only; a mismatch would be
 * the same in all of them. */
static int checkpoint_failed(train_job *job, const char *checkpoint,
                             const bauta_error *err)
{
    job->damaged = checkpoint && (err->status == BAUTA_ERR_IO ||
                                  err->status == BAUTA_ERR_FORMAT);
    return train_failed(err);
}

static int tokenizer_open(train_job *job, const settings *s,
                          const char *checkpoint)
{
    bauta_error err;
    if (!checkpoint && s->tokenizer)
        return tokenizer_make(&job->tokenizer, s);
    if (bauta_tokenizer_load(&job->tokenizer, checkpoint ? checkpoint : s->from,
                             &err))
        return checkpoint_failed(job, checkpoint, &err);
    return CLI_OK;
}

/* ---- corpora ----------------------------------------------------------- */

static bauta_status corpus_open(bauta_corpus **out, const train_job *job,
                                const settings *s, const string_list *files,
                                const char *source, const char *target,
                                bauta_error *err)
{
    bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
    how.lines = s->lines;
    how.skip_invalid = s->skip_bad;
    if (source)
        return bauta_corpus_load_pairs(out, job->tokenizer, source, target,
                                       &how, err);
    return bauta_corpus_load(out, job->tokenizer, files->at, files->count, &how,
                             err);
}

static int corpora_open(train_job *job, const settings *s)
{
    bauta_error err;
    const char *source = s->pairs ? s->pairs : s->source;
    const char *valid = s->valid_pairs ? s->valid_pairs : s->valid_source;
    bauta_status status =
        corpus_open(&job->corpus, job, s, &s->files, source, s->target, &err);
    if (!status && s->valid_share > 0.0)
        status =
            bauta_corpus_split(job->corpus, s->valid_share, &job->valid, &err);
    else if (!status && (s->valid.count || valid))
        status = corpus_open(&job->valid, job, s, &s->valid, valid,
                             s->valid_target, &err);
    if (status)
        return train_failed(&err);
    size_t skipped = bauta_corpus_skipped(job->corpus);
    if (skipped)
        fprintf(stderr, "skipped %zu invalid %s\n", skipped,
                skipped == 1 ? "line" : "lines");
    unknown_chars_warn_corpus(VERB, "the texts: ", job->corpus);
    if (job->valid)
        unknown_chars_warn_corpus(VERB, "validation: ", job->valid);
    return CLI_OK;
}

/* ---- the model --------------------------------------------------------- */

static int override_add(json_t *all, const char *word)
{
    const char *equal = strchr(word, '=');
    if (!equal || equal == word)
        return cli_usage(VERB, "--set is '%s', not KEY=VALUE", word);
    json_t *value = json_loads(equal + 1, JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_string(equal + 1);
    char *key = strndup(word, (size_t)(equal - word));
    int failed = !key || json_object_set_new(all, key, value);
    free(key);
    return failed ? no_memory() : CLI_OK;
}

/* Overrides of the preset's config: --set, and as many positions as the context
 * has. */
static int overrides_make(char **out, const settings *s, size_t context)
{
    json_t *all = json_object();
    int failed = CLI_OK;
    if (context)
        json_object_set_new(all,
                            strncmp(s->preset, "gpt2", 4) == 0 ||
                                    strncmp(s->preset, "series", 6) == 0
                                ? "n_positions"
                                : "max_position_embeddings",
                            json_integer((json_int_t)context));
    for (size_t i = 0; !failed && i < s->set.count; i++)
        failed = override_add(all, s->set.at[i]);
    *out = failed ? NULL : json_dumps(all, 0);
    json_decref(all);
    return failed || *out ? failed : no_memory();
}

/* decoder_start_token_id of a config. */
static uint32_t start_of(const json_t *config)
{
    const json_t *start = json_object_get(config, "decoder_start_token_id");
    return json_is_integer(start) ? (uint32_t)json_integer_value(start)
                                  : BAUTA_NO_TOKEN;
}

static int model_new(train_job *job, settings *s, const train_args *args)
{
    bauta_error err;
    char *overrides = NULL, *config = NULL;
    int failed = overrides_make(&overrides, s, s->train.context_length);
    if (!failed && bauta_preset(&config, &s->train, s->preset, job->tokenizer,
                                overrides, &err))
        failed = train_failed(&err);
    if (!failed)
        failed = train_args_apply(args, s);
    if (!failed && bauta_model_create(&job->model, config, s->train.seed, &err))
        failed = train_failed(&err);
    if (!failed) {
        json_t *parsed = json_loads(config, 0, NULL);
        job->start = start_of(parsed);
        json_decref(parsed);
    }
    bauta_text_free(config);
    free(overrides);
    return failed;
}

static int model_load(train_job *job, const char *folder)
{
    bauta_error err;
    char path[4096];
    if (bauta_model_load(&job->model, folder, true, &err))
        return checkpoint_failed(job, folder, &err);
    cli_warn("train", bauta_model_warnings(job->model));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    if (!config) { // the folder of a run means its best checkpoint
        snprintf(path, sizeof(path), "%s/best/config.json", folder);
        config = json_load_file(path, 0, NULL);
    }
    job->start = start_of(config);
    json_decref(config);
    return CLI_OK;
}

/* Fine-tuning has defaults of its own. */
static int model_tune(train_job *job, settings *s, const train_args *args)
{
    s->train = (bauta_train_options)BAUTA_FINETUNE_OPTIONS_INIT;
    int failed = train_args_apply(args, s);
    return failed ? failed : model_load(job, s->from);
}

static int model_open(train_job *job, settings *s, const train_args *args,
                      const char *checkpoint)
{
    bauta_error err;
    int failed = checkpoint ? model_load(job, checkpoint)
                 : s->from  ? model_tune(job, s, args)
                            : model_new(job, s, args);
    if (!failed && bauta_model_to(job->model, job->context, &err))
        failed = train_failed(&err);
    return failed;
}

/* Ids must fit into the vocabulary, and the context into the positions. */
static int model_check(const train_job *job, const settings *s)
{
    size_t tokens = bauta_tokenizer_vocab_size(job->tokenizer);
    size_t vocabulary = bauta_model_vocab_size(job->model);
    size_t positions = bauta_model_max_positions(job->model);
    if (tokens > vocabulary)
        return cli_fail(VERB,
                        "the tokenizer has %zu tokens, but the model only %zu",
                        tokens, vocabulary);
    if (s->train.context_length > positions)
        return cli_fail(
            VERB, "--context is %zu, but the model has only %zu positions",
            s->train.context_length, positions);
    return CLI_OK;
}

static int trainer_open(train_job *job, const settings *s,
                        const char *checkpoint)
{
    bauta_error err;
    if (bauta_trainer_create(&job->trainer, job->context, job->model,
                             job->tokenizer, job->corpus, &s->train, &err))
        return train_failed(&err);
    if (checkpoint && bauta_trainer_resume(job->trainer, checkpoint, &err))
        return checkpoint_failed(job, checkpoint, &err);
    return CLI_OK;
}

/* ---- the job ----------------------------------------------------------- */

int train_job_open(train_job *job, settings *s, const train_args *args,
                   const char *checkpoint)
{
    *job = (train_job){ .start = BAUTA_NO_TOKEN, .began = seconds_now() };
    if (stdin_count(s) > 1)
        return cli_usage(VERB, "standard input can be one of the files only");
    if (stdin_count(s) && ranks_count() > 1)
        return cli_usage(VERB, "standard input cannot be read by %zu ranks",
                         ranks_count());
    int failed = ranks_context(&job->context, VERB, &s->device);
    if (failed && checkpoint && !device_is_cpu(&s->device) && ranks_first() &&
        !train_args_has(args, "--device"))
        fprintf(stderr,
                "the run was trained on that device; '--device cpu' continues "
                "on the CPU, with other bits\n");
    if (!failed)
        failed = s->series.count ? train_series_open(job, s, checkpoint)
                                 : tokenizer_open(job, s, checkpoint);
    if (!failed)
        failed = model_open(job, s, args, checkpoint);
    if (!failed)
        failed = model_check(job, s);
    if (!failed && !s->series.count)
        failed = corpora_open(job, s);
    return failed ? failed : trainer_open(job, s, checkpoint);
}

int train_job_renew(train_job *job, settings *s, const train_args *args,
                    const char *checkpoint, bool model)
{
    bauta_train_options fitted = s->train;
    int failed = CLI_OK;
    bauta_trainer_free(job->trainer);
    job->trainer = NULL;
    if (model) {
        bauta_model_free(job->model);
        job->model = NULL;
        failed = model_open(job, s, args, checkpoint);
        s->train = fitted;
    }
    return failed ? failed : trainer_open(job, s, checkpoint);
}

void train_job_close(train_job *job)
{
    bauta_trainer_free(job->trainer);
    bauta_model_free(job->model);
    bauta_corpus_free(job->valid);
    bauta_corpus_free(job->corpus);
    bauta_series_codec_free(job->codec);
    bauta_tokenizer_free(job->tokenizer);
    bauta_context_free(job->context);
}
