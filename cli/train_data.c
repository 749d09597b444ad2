/* SPDX-License-Identifier: Apache-2.0 */
/* train_data.c - bauta train: tokenizer, corpora, model and trainer. */
#include "cli.h"
#include "train.h"
#include "unknown.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int train_failed(const bauta_error *err)
{
    return cli_fail(VERB, "%s", err->message);
}

static int no_memory(void)
{
    return cli_fail(VERB, "out of memory");
}

/* ---- texts for a tokenizer --------------------------------------------- */

/* All files one behind the other; lines are texts where documents are lines,
 * else each file is one. */
typedef struct texts {
    char *bytes;
    size_t size, room;
    const char **at;
    size_t *lengths;
    size_t count;
} texts;

static void texts_release(texts *t)
{
    free(t->bytes);
    free(t->at);
    free(t->lengths);
}

static int file_read(texts *t, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return cli_fail(VERB, "%s: %s", path, strerror(errno));
    for (size_t got = 1; got;) {
        if (t->size == t->room) {
            size_t room = t->room ? 2 * t->room : 1 << 20;
            char *more = realloc(t->bytes, room);
            if (!more) {
                fclose(file);
                return no_memory();
            }
            t->bytes = more;
            t->room = room;
        }
        got = fread(t->bytes + t->size, 1, t->room - t->size, file);
        t->size += got;
    }
    int failed =
        ferror(file) ? cli_fail(VERB, "%s: %s", path, strerror(errno)) : CLI_OK;
    fclose(file);
    return failed;
}

/* Cut [begin, end) at newlines; how many texts that makes. Only counts while
 * there is no room for them. */
static void lines_cut(texts *t, size_t begin, size_t end)
{
    while (begin < end) {
        const char *stop = memchr(t->bytes + begin, '\n', end - begin);
        size_t next = stop ? (size_t)(stop - t->bytes) + 1 : end;
        if (t->at) {
            t->at[t->count] = t->bytes + begin;
            t->lengths[t->count] = next - begin;
        }
        t->count++;
        begin = next;
    }
}

static int texts_cut(texts *t, bool lines, const size_t *ends, size_t files)
{
    size_t count = files;
    if (lines) {
        lines_cut(t, 0, t->size);
        count = t->count;
    }
    t->count = 0;
    t->at = calloc(count + 1, sizeof(*t->at));
    t->lengths = calloc(count + 1, sizeof(*t->lengths));
    if (!t->at || !t->lengths)
        return no_memory();
    for (size_t i = 0, begin = 0; !lines && i < files; begin = ends[i++]) {
        t->at[t->count] = t->bytes + begin;
        t->lengths[t->count++] = ends[i] - begin;
    }
    if (lines)
        lines_cut(t, 0, t->size);
    return CLI_OK;
}

static int texts_read(texts *t, const settings *s)
{
    const char *two[] = { s->source ? s->source : s->pairs, s->target };
    bool pairs = two[0] != NULL;
    const char **paths = pairs ? two : s->files.at;
    size_t files = pairs ? 1u + (s->target != NULL) : s->files.count;
    size_t *ends = calloc(files + 1, sizeof(*ends));
    int failed = ends ? CLI_OK : no_memory();
    for (size_t i = 0; !failed && i < files; i++) {
        failed = file_read(t, paths[i]);
        ends[i] = t->size;
    }
    for (size_t i = 0; !failed && s->pairs && i < t->size; i++)
        if (t->bytes[i] == '\t')
            t->bytes[i] = '\n'; // two columns are two texts
    if (!failed)
        failed = texts_cut(t, pairs || s->lines, ends, files);
    free(ends);
    return failed;
}

/* ---- the tokenizer ----------------------------------------------------- */

static const struct {
    const char *name;
    bauta_vocabulary_kind kind;
} learned[] = {
    { "bpe", BAUTA_VOCABULARY_BPE },
    { "wordpiece", BAUTA_VOCABULARY_WORDPIECE },
    { "unigram", BAUTA_VOCABULARY_UNIGRAM },
};
enum { LEARNED = sizeof(learned) / sizeof(learned[0]) };

/* Which kind is to be learned, or LEARNED; *size is behind the colon. */
static int learned_find(const char *word, const char **size)
{
    for (int i = 0; i < LEARNED; i++) {
        size_t length = strlen(learned[i].name);
        if (strncmp(word, learned[i].name, length) == 0 &&
            (word[length] == ':' || !word[length])) {
            *size = word[length] ? word + length + 1 : "";
            return i;
        }
    }
    return LEARNED;
}

bool tokenizer_is_made(const char *word)
{
    const char *size;
    return strcmp(word, "bytes") == 0 || strcmp(word, "chars") == 0 ||
           learned_find(word, &size) != LEARNED;
}

static int learn(bauta_tokenizer **out, int kind, const char *size,
                 const texts *t)
{
    bauta_vocabulary_options v = BAUTA_VOCABULARY_OPTIONS_INIT;
    bauta_error err;
    char *end;
    v.kind = learned[kind].kind;
    v.pieces = strtoul(size, &end, 10);
    if (*size < '0' || *size > '9' || *end || v.pieces > 10000000)
        return cli_usage(VERB, "--tokenizer %s needs a size, as in '%s:8000'",
                         learned[kind].name, learned[kind].name);
    fprintf(stderr, "learning a vocabulary of %zu pieces from %zu bytes\n",
            v.pieces, t->size);
    if (bauta_tokenizer_train(out, &v, t->at, t->lengths, t->count, &err))
        return train_failed(&err);
    return CLI_OK;
}

static int tokenizer_make(bauta_tokenizer **out, const settings *s)
{
    const char *size = "";
    bauta_error err;
    int kind = learned_find(s->tokenizer, &size), failed;
    texts t = { 0 };
    if (strcmp(s->tokenizer, "bytes") == 0)
        return bauta_tokenizer_bytes(out, &err) ? train_failed(&err) : CLI_OK;
    bool chars = strcmp(s->tokenizer, "chars") == 0;
    if (kind == LEARNED && !chars)
        return bauta_tokenizer_load(out, s->tokenizer, &err)
                   ? train_failed(&err)
                   : CLI_OK;
    failed = texts_read(&t, s);
    if (!failed && !chars)
        failed = learn(out, kind, size, &t);
    else if (!failed && bauta_tokenizer_characters(out, t.bytes ? t.bytes : "",
                                                   t.size, &err))
        failed = train_failed(&err);
    texts_release(&t);
    return failed;
}

/* Of a checkpoint's files: a mismatch is the same in every checkpoint, what
 * cannot be read is not. */
static int checkpoint_failed(workshop *w, const char *checkpoint,
                             const bauta_error *err)
{
    w->damaged = checkpoint && err->status == BAUTA_ERR_IO;
    return train_failed(err);
}

static int tokenizer_open(workshop *w, const settings *s,
                          const char *checkpoint)
{
    bauta_error err;
    if (!checkpoint && s->tokenizer)
        return tokenizer_make(&w->tokenizer, s);
    if (bauta_tokenizer_load(&w->tokenizer, checkpoint ? checkpoint : s->from,
                             &err))
        return checkpoint_failed(w, checkpoint, &err);
    return CLI_OK;
}

/* ---- corpora ----------------------------------------------------------- */

static bauta_status corpus_open(bauta_corpus **out, const workshop *w,
                                const settings *s, const words *files,
                                const char *source, const char *target,
                                bauta_error *err)
{
    bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
    how.lines = s->lines;
    how.skip_bad = s->skip_bad;
    if (source)
        return bauta_corpus_load_pairs(out, w->tokenizer, source, target, &how,
                                       err);
    return bauta_corpus_load(out, w->tokenizer, files->at, files->count, &how,
                             err);
}

static int corpora_open(workshop *w, const settings *s)
{
    bauta_error err;
    const char *source = s->pairs ? s->pairs : s->source;
    const char *valid = s->valid_pairs ? s->valid_pairs : s->valid_source;
    bauta_status status =
        corpus_open(&w->corpus, w, s, &s->files, source, s->target, &err);
    if (!status && s->valid_share > 0.0)
        status = bauta_corpus_split(w->corpus, s->valid_share, &w->valid, &err);
    else if (!status && (s->valid.count || valid))
        status = corpus_open(&w->valid, w, s, &s->valid, valid, s->valid_target,
                             &err);
    if (status)
        return train_failed(&err);
    size_t skipped = bauta_corpus_skipped(w->corpus);
    if (skipped)
        fprintf(stderr, "%zu bad lines were left out\n", skipped);
    unknown_corpus_say(VERB, "the texts: ", w->corpus);
    if (w->valid)
        unknown_corpus_say(VERB, "validation: ", w->valid);
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

/* What replaces parts of the preset's config: --set, and a table of positions
 * that is as long as the context. */
static int overrides_make(char **out, const settings *s, size_t context)
{
    json_t *all = json_object();
    int failed = CLI_OK;
    if (context)
        json_object_set_new(all,
                            strncmp(s->preset, "gpt2", 4) == 0
                                ? "n_positions"
                                : "max_position_embeddings",
                            json_integer((json_int_t)context));
    for (size_t i = 0; !failed && i < s->set.count; i++)
        failed = override_add(all, s->set.at[i]);
    *out = failed ? NULL : json_dumps(all, 0);
    json_decref(all);
    return failed || *out ? failed : no_memory();
}

/* What a decoder reads first, as a config says it. */
static uint32_t start_of(const json_t *config)
{
    const json_t *start = json_object_get(config, "decoder_start_token_id");
    return json_is_integer(start) ? (uint32_t)json_integer_value(start)
                                  : BAUTA_NO_TOKEN;
}

static int model_new(workshop *w, settings *s, const given *g)
{
    bauta_error err;
    char *overrides = NULL, *config = NULL;
    int failed = overrides_make(&overrides, s, s->train.context);
    if (!failed && bauta_preset(&config, &s->train, s->preset, w->tokenizer,
                                overrides, &err))
        failed = train_failed(&err);
    if (!failed)
        failed = given_apply(g, s);
    if (!failed && bauta_model_create(&w->model, config, s->train.seed, &err))
        failed = train_failed(&err);
    if (!failed) {
        json_t *parsed = json_loads(config, 0, NULL);
        w->start = start_of(parsed);
        json_decref(parsed);
    }
    bauta_text_free(config);
    free(overrides);
    return failed;
}

static int model_load(workshop *w, const char *folder)
{
    bauta_error err;
    char path[4096];
    if (bauta_model_load(&w->model, folder, true, &err))
        return checkpoint_failed(w, folder, &err);
    cli_warn("train", bauta_model_warnings(w->model));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    if (!config) { // the folder of a run stands for its best
        snprintf(path, sizeof(path), "%s/best/config.json", folder);
        config = json_load_file(path, 0, NULL);
    }
    w->start = start_of(config);
    json_decref(config);
    return CLI_OK;
}

/* A trained model, with the numbers that suit one. */
static int model_tune(workshop *w, settings *s, const given *g)
{
    s->train = (bauta_train_options)BAUTA_FINETUNE_OPTIONS_INIT;
    int failed = given_apply(g, s);
    return failed ? failed : model_load(w, s->from);
}

static int model_open(workshop *w, settings *s, const given *g,
                      const char *checkpoint)
{
    return checkpoint ? model_load(w, checkpoint)
           : s->from  ? model_tune(w, s, g)
                      : model_new(w, s, g);
}

/* The parts must fit: ids into the vocabulary, the context into positions. */
static int model_check(const workshop *w, const settings *s)
{
    size_t tokens = bauta_tokenizer_size(w->tokenizer);
    size_t vocabulary = bauta_model_vocabulary(w->model);
    size_t positions = bauta_model_positions(w->model);
    if (tokens > vocabulary)
        return cli_fail(VERB,
                        "the tokenizer has %zu tokens, and the model knows "
                        "only %zu",
                        tokens, vocabulary);
    if (s->train.context > positions)
        return cli_fail(VERB,
                        "--context is %zu, and the model was made for %zu "
                        "tokens",
                        s->train.context, positions);
    return CLI_OK;
}

static int trainer_open(workshop *w, const settings *s, const char *checkpoint)
{
    bauta_error err;
    if (bauta_trainer_create(&w->trainer, w->context, w->model, w->tokenizer,
                             w->corpus, &s->train, &err))
        return train_failed(&err);
    if (checkpoint && bauta_trainer_resume(w->trainer, checkpoint, &err))
        return checkpoint_failed(w, checkpoint, &err);
    return CLI_OK;
}

/* ---- all of it --------------------------------------------------------- */

int workshop_open(workshop *w, settings *s, const given *g,
                  const char *checkpoint)
{
    bauta_error err;
    bauta_options options = BAUTA_OPTIONS_INIT;
    *w = (workshop){ .start = BAUTA_NO_TOKEN, .began = now() };
    options.threads = (int)s->threads;
    options.isa = s->isa;
    int failed = bauta_context_create(&w->context, &options, &err)
                     ? train_failed(&err)
                     : CLI_OK;
    if (!failed)
        failed = tokenizer_open(w, s, checkpoint);
    if (!failed)
        failed = model_open(w, s, g, checkpoint);
    if (!failed)
        failed = model_check(w, s);
    if (!failed)
        failed = corpora_open(w, s);
    return failed ? failed : trainer_open(w, s, checkpoint);
}

int workshop_renew(workshop *w, settings *s, const given *g,
                   const char *checkpoint, bool model)
{
    bauta_train_options fitted = s->train;
    int failed = CLI_OK;
    bauta_trainer_free(w->trainer);
    w->trainer = NULL;
    if (model) {
        bauta_model_free(w->model);
        w->model = NULL;
        failed = model_open(w, s, g, checkpoint);
        s->train = fitted;
    }
    return failed ? failed : trainer_open(w, s, checkpoint);
}

void workshop_close(workshop *w)
{
    bauta_trainer_free(w->trainer);
    bauta_model_free(w->model);
    bauta_corpus_free(w->valid);
    bauta_corpus_free(w->corpus);
    bauta_tokenizer_free(w->tokenizer);
    bauta_context_free(w->context);
}
