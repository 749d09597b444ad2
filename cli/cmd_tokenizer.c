/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tokenizer.c - bauta tokenizer train: train a tokenizer on texts. */
#include "cli.h"
#include "format.h"
#include "options.h"

#include <bauta.h>

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERB "tokenizer train"

/* A kind that needs no texts, besides those of bauta_tokenizer_kind. */
enum { KIND_BYTES = 100 };

static const char *const kind_names[] = { "bpe",   "wordpiece", "unigram",
                                          "bytes", "chars",     NULL };
static const int kinds[] = { BAUTA_TOKENIZER_BPE, BAUTA_TOKENIZER_WORDPIECE,
                             BAUTA_TOKENIZER_UNIGRAM, KIND_BYTES,
                             BAUTA_TOKENIZER_CHARACTERS };

typedef struct options {
    int kind; /* index into kinds */
    const char *out;
    string_list files, specials;
    size_t pieces, least;
    bool pieces_given, least_given;
    bool lowercase, lines, json, help;
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta tokenizer train --out DIR [options] FILE...\n"
    "\n"
    "Train a tokenizer on the texts in FILEs (plain or gzip, '-' is standard\n"
    "input) and write it to DIR/tokenizer.json, which Hugging Face's "
    "libraries\n"
    "read, too. The same texts give the same file.\n"
    "\n"
    "options\n"
    "  --kind KIND      bpe        byte-level BPE, as GPT-2 (default)\n"
    "                   wordpiece  WordPiece, as BERT\n"
    "                   unigram    unigram language model, as SentencePiece\n"
    "                   bytes      the 256 bytes; takes no FILE\n"
    "                   chars      the characters of the texts\n"
    "  --pieces N       size of the vocabulary (default 8000)\n"
    "  --out DIR        folder for tokenizer.json; created if it is missing\n"
    "  --special TOKEN  a special token, instead of the default ones; may be\n"
    "                   repeated, ids count from 0\n"
    "  --min-count N    ignore what is rarer than N (default 2)\n"
    "  --lowercase      wordpiece, unigram: convert to lower case\n"
    "  --lines          each line is a text; else each file is one\n"
    "  --json           print the result as one JSON object\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta tokenizer train --out tok stories.txt\n"
    "  bauta tokenizer train --kind unigram --pieces 16000 --lines \\\n"
    "      --out tok train.en train.de\n"
    "  bauta tokenizer train --out tok corpus.gz\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

/* Report options that are missing or exclude each other. */
static int options_check(const options *o)
{
    int kind = kinds[o->kind];
    bool learns = kind < BAUTA_TOKENIZER_CHARACTERS;
    const char *name = kind_names[o->kind];
    if (!o->out)
        return cli_usage(VERB, "--out is missing: a folder");
    if (!learns && (o->pieces_given || o->least_given || o->specials.count))
        return cli_usage(VERB, "%s cannot be used with --kind %s",
                         o->pieces_given  ? "--pieces"
                         : o->least_given ? "--min-count"
                                          : "--special",
                         name);
    if (o->lowercase && (!learns || kind == BAUTA_TOKENIZER_BPE))
        return cli_usage(VERB, "--lowercase cannot be used with --kind %s",
                         name);
    if (kind == KIND_BYTES && o->files.count)
        return cli_usage(VERB, "--kind bytes takes no files: '%s'",
                         o->files.at[0]);
    if (kind != KIND_BYTES && !o->files.count)
        return cli_usage(VERB, "the files are missing");
    return CLI_OK;
}

static int options_read(options *o, int argc, char **argv)
{
    const option table[] = {
        { "--kind", OPTION_CHOICE, &o->kind, NULL, 0, 0, kind_names },
        { "--pieces", OPTION_SIZE, &o->pieces, &o->pieces_given, 0, 999999999,
          NULL },
        { "--out", OPTION_STRING, &o->out, NULL, 0, 0, NULL },
        { "--special", OPTION_STRINGS, &o->specials, NULL, 0, 0, NULL },
        { "--min-count", OPTION_SIZE, &o->least, &o->least_given, 0, 999999999,
          NULL },
        { "--lowercase", OPTION_FLAG, &o->lowercase, NULL, 0, 0, NULL },
        { "--lines", OPTION_FLAG, &o->lines, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->files);
    return usage || o->help ? usage : options_check(o);
}

/* ---- progress ---------------------------------------------------------- */

/* On a terminal one line that is rewritten; else a line for every 10 %. */
typedef struct progress {
    bool terminal;
    size_t last; /* percent that were printed */
    bool shown;
} progress;

static void progress_print(void *user, size_t done, size_t all)
{
    progress *p = user;
    size_t percent = all ? done * 100 / all : 100;
    if (p->shown &&
        (p->terminal ? percent == p->last : percent / 10 == p->last / 10))
        return;
    fprintf(stderr, p->terminal ? "\rtraining %3zu %%" : "training %zu %%\n",
            percent);
    fflush(stderr);
    p->last = percent;
    p->shown = true;
}

static void progress_end(const progress *p)
{
    if (p->terminal && p->shown)
        fprintf(stderr, "\r%*s\r", 16, "");
}

/* ---- training ---------------------------------------------------------- */

/* The size of the input. */
typedef struct amount {
    size_t texts;
    uint64_t bytes;
} amount;

static bauta_status learn(bauta_tokenizer **out, const options *o, amount *read,
                          bauta_error *err)
{
    progress p = { .terminal = isatty(STDERR_FILENO) };
    bauta_tokenizer_trainer_options v = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_corpus_options how = BAUTA_CORPUS_OPTIONS_INIT;
    bauta_tokenizer_trainer *vocabulary = NULL;
    how.lines = o->lines;
    v.kind = (bauta_tokenizer_kind)kinds[o->kind];
    v.vocab_size = o->pieces;
    v.min_frequency = o->least;
    v.lowercase = o->lowercase;
    v.special_tokens = o->specials.count ? o->specials.at : NULL;
    v.special_token_count = o->specials.count;
    v.progress = progress_print;
    v.user = &p;
    bauta_status status = bauta_tokenizer_trainer_create(&vocabulary, &v, err);
    if (!status)
        status = bauta_tokenizer_trainer_add_files(vocabulary, o->files.at,
                                                   o->files.count, &how, err);
    if (!status) {
        read->texts = bauta_tokenizer_trainer_texts(vocabulary);
        read->bytes = bauta_tokenizer_trainer_bytes(vocabulary);
        status = bauta_tokenizer_trainer_train(vocabulary, out, err);
    }
    bauta_tokenizer_trainer_free(vocabulary);
    progress_end(&p);
    return status;
}

static bauta_status make(bauta_tokenizer **out, const options *o, amount *read,
                         bauta_error *err)
{
    return kinds[o->kind] == KIND_BYTES ? bauta_tokenizer_bytes(out, err)
                                        : learn(out, o, read, err);
}

/* Create the folder if it is missing; *made says whether. */
static int folder_make(const char *path, bool *made)
{
    struct stat info;
    *made = mkdir(path, 0777) == 0;
    if (*made)
        return CLI_OK;
    if (errno != EEXIST || stat(path, &info))
        return cli_fail(VERB, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return cli_fail(VERB, "%s is not a folder", path);
    return access(path, W_OK) ? cli_fail(VERB, "%s: %s", path, strerror(errno))
                              : CLI_OK;
}

/* Check before training that the folder can be written. */
static int folder_check(const char *path)
{
    bool made;
    int failed = folder_make(path, &made);
    if (made)
        rmdir(path);
    return failed;
}

/* Signals are blocked until the file is complete. */
static int save(const bauta_tokenizer *tokenizer, const char *path)
{
    bauta_error err;
    sigset_t waiting, before;
    bool made;
    sigemptyset(&waiting);
    sigaddset(&waiting, SIGINT);
    sigaddset(&waiting, SIGTERM);
    sigaddset(&waiting, SIGHUP);
    sigprocmask(SIG_BLOCK, &waiting, &before);
    int failed = folder_make(path, &made);
    if (!failed && bauta_tokenizer_save(tokenizer, path, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (failed && made)
        rmdir(path);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* ---- the summary ------------------------------------------------------- */

static void json_print(const options *o, const amount *read, size_t pieces,
                       double seconds)
{
    // A folder name need not be UTF-8.
    json_t *folder = json_string(o->out);
    json_t *all =
        json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:f}", "folder",
                  folder ? folder : json_null(), "kind", kind_names[o->kind],
                  "pieces", (json_int_t)pieces, "files",
                  (json_int_t)o->files.count, "texts", (json_int_t)read->texts,
                  "bytes", (json_int_t)read->bytes, "seconds", seconds);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(4));
    putchar('\n');
    json_decref(all);
}

static void text_print(const options *o, const amount *read, size_t pieces,
                       double seconds)
{
    printf("%s/tokenizer.json: %s, %zu pieces", o->out, kind_names[o->kind],
           pieces);
    if (o->files.count)
        printf(", from %llu bytes in %.2f s", (unsigned long long)read->bytes,
               seconds);
    putchar('\n');
}

static int train(const options *o)
{
    bauta_error err;
    bauta_tokenizer *tokenizer = NULL;
    amount read = { 0 };
    double begin = seconds_now();
    int failed = folder_check(o->out);
    if (!failed && make(&tokenizer, o, &read, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed)
        failed = save(tokenizer, o->out);
    if (!failed) {
        size_t pieces = bauta_tokenizer_vocab_size(tokenizer);
        (o->json ? json_print : text_print)(o, &read, pieces,
                                            seconds_now() - begin);
        failed = cli_finish(VERB);
    }
    bauta_tokenizer_free(tokenizer);
    return failed;
}

static int learn_main(int argc, char **argv)
{
    options o = { .pieces = 8000, .least = 2 };
    int failed = options_read(&o, argc, argv);
    if (!failed)
        failed = o.help ? help() : train(&o);
    string_list_release(&o.files);
    string_list_release(&o.specials);
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

int tokenizer_main(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage("tokenizer", "the subcommand is missing: 'train'");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    if (strcmp(argv[1], "train") == 0)
        return learn_main(argc - 1, argv + 1);
    return cli_usage("tokenizer",
                     "there is no subcommand '%s'; did you mean 'train'?",
                     argv[1]);
}
