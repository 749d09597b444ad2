/* SPDX-License-Identifier: Apache-2.0 */
/* demo.c - bauta demo: the whole story in about two minutes.
 *
 * A translator learns German from sentences of a small grammar and is asked
 * for others; what it looks at is drawn; a model of letters speaks. All of it
 * is made by the verbs that everybody has: what the demo calls can be typed. */
#include "demo.h"

#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERB "demo"

typedef struct wishes {
    const char *out, *seed_text;
    uint64_t seed;
    bool fast, grammar;
} wishes;

typedef struct stage {
    const wishes *w;
    const sizes *s;
    char folder[DEMO_PATH];
} stage;

/* ---- sizes -------------------------------------------------------------- */

static const sizes whole = {
    .train = 40000,
    .valid = 200,
    .held = 1000,
    .translator = "--preset transformer-tiny --tokenizer unigram:900 "
                  "--set d_model=64 --set encoder_layers=2 "
                  "--set decoder_layers=2 --batch-tokens 2048 "
                  "--learning-rate 5e-3 --min-learning-rate 1e-5 --warmup 150 "
                  "--schedule cosine --dropout 0 --label-smoothing 0 "
                  "--eval-every 100",
    .translator_steps = 1200,
    .speaker = "--preset gpt2-tiny --tokenizer chars --set n_layer=3 "
               "--set n_embd=96 --batch-size 32 --learning-rate 5e-3 "
               "--eval-every 0",
    .speaker_steps = 1000,
    .sentences = 10,
};

/* Too little to learn much, but all of the way. */
static const sizes fast = {
    .train = 600,
    .valid = 20,
    .held = 40,
    .translator = "--preset transformer-tiny --tokenizer unigram:600 "
                  "--set d_model=16 --set encoder_layers=1 "
                  "--set decoder_layers=1 --set encoder_ffn_dim=32 "
                  "--set decoder_ffn_dim=32 --batch-tokens 256 --warmup 5 "
                  "--eval-every 20",
    .translator_steps = 40,
    .speaker = "--preset gpt2-tiny --tokenizer chars --set n_layer=1 "
               "--set n_embd=16 --set n_head=2 --batch-size 4 --warmup 5 "
               "--eval-every 0",
    .speaker_steps = 20,
    .sentences = 3,
};

/* ---- options ------------------------------------------------------------ */

static int help(void)
{
    printf("usage: bauta demo [options]\n"
           "\n"
           "A translator learns German from sentences of a small grammar, in "
           "about two\n"
           "minutes on two cores, and is asked for sentences that it never "
           "saw. What its\n"
           "decoder looks at is drawn. Then a model of letters learns to "
           "speak.\n"
           "\n"
           "options\n"
           "  --out DIR    where everything goes, and stays; a new folder\n"
           "               under $TMPDIR unless given\n"
           "  --seed N     of the sentences and of all training; 1\n"
           "  --fast       all of it in some seconds, too little to learn "
           "much\n"
           "  --grammar    only print the sentences, two columns with a tab\n"
           "  --help       this text\n"
           "\n"
           "examples\n"
           "  bauta demo --out demo\n"
           "  bauta demo --grammar | head\n");
    return cli_finish(VERB);
}

static int seed_read(wishes *w)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(w->seed_text, &end, 10);
    w->seed = value;
    if (*w->seed_text >= '0' && *w->seed_text <= '9' && !*end && !errno &&
        value < (1ULL << 63))
        return CLI_OK;
    return cli_usage(VERB, "--seed is '%s', not a whole number", w->seed_text);
}

/* The value of "--name VALUE" or "--name=VALUE"; NULL when it is another
 * option. */
static const char *value_of(char **argv, int *at, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(argv[*at], name, length) != 0)
        return NULL;
    if (argv[*at][length] == '=')
        return argv[*at] + length + 1;
    if (argv[*at][length])
        return NULL;
    return argv[*at + 1] ? argv[++*at] : "";
}

static int unknown(const char *word)
{
    static const char *const known[] = { "--out", "--seed", "--fast",
                                         "--grammar", "--help" };
    const char *near = cli_nearest(word, known, 5);
    if (word[0] != '-')
        return cli_usage(VERB, "'%s' is not an option", word);
    return cli_usage(VERB, "there is no option '%s'%s%s%s", word,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static int wishes_read(wishes *w, int argc, char **argv, bool *asked_help)
{
    *w = (wishes){ .seed_text = "1" };
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            *asked_help = true;
        else if (strcmp(argv[i], "--fast") == 0)
            w->fast = true;
        else if (strcmp(argv[i], "--grammar") == 0)
            w->grammar = true;
        else if ((value = value_of(argv, &i, "--out")))
            w->out = value;
        else if ((value = value_of(argv, &i, "--seed")))
            w->seed_text = value;
        else
            return unknown(argv[i]);
    }
    if (w->out && !*w->out)
        return cli_usage(VERB, "--out needs a value");
    if (!*w->seed_text)
        return cli_usage(VERB, "--seed needs a value");
    return seed_read(w);
}

/* ---- the story ---------------------------------------------------------- */

static int corpus_say(const stage *t, const corpus *c)
{
    printf("\n1. Sentences\n\n");
    for (size_t i = 0; i < 6; i++)
        printf("  %-44s %s\n", c->train[i].english, c->train[i].german);
    printf("\nA small grammar made %zu pairs, no two of them alike in either "
           "language.\n%zu are to learn from. %zu are held out, \"I love "
           "you\" among them: they are\nnever seen while learning.\n",
           c->all.count, t->s->train, t->s->valid + t->s->held);
    return corpus_write(c, t->s, t->folder);
}

static int translate_say(const stage *t, const corpus *c, const translator *x)
{
    size_t right = 0, love = 0;
    printf("\n3. Translating what it never saw\n\n");
    int failed = translator_try(x, c->valid, 1, 1, &love);
    if (!failed)
        failed = translator_try(x, c->held, t->s->held, 6, &right);
    if (!failed)
        printf("\nOf %zu held-out sentences %zu come out exactly as the "
               "grammar has them: %.1f %%.\n",
               t->s->held, right, 100.0 * (double)right / (double)t->s->held);
    return failed;
}

static int translator_show(const stage *t, const corpus *c, const translator *x)
{
    const pair shown = { "I do not want to see the old man",
                         "Ich will den alten Mann nicht sehen" };
    int failed = translate_say(t, c, x);
    if (failed)
        return failed;
    printf("\n4. Looking\n");
    failed = translator_look(x, &c->valid[0], true);
    return failed ? failed : translator_look(x, &shown, false);
}

static int translator_part(const stage *t, const corpus *c)
{
    training work = { .options = t->s->translator,
                      .files = "--pairs train.tsv --valid-pairs valid.tsv",
                      .name = "translator",
                      .steps = t->s->translator_steps,
                      .seed = t->w->seed };
    translator x = { 0 };
    char folder[DEMO_PATH + 16];
    snprintf(folder, sizeof(folder), "%s/translator", t->folder);
    printf("\n2. Learning to translate\n\n");
    int failed = training_run(&work, t->folder);
    if (!failed)
        failed = translator_open(&x, folder);
    if (!failed)
        failed = translator_show(t, c, &x);
    translator_close(&x);
    return failed;
}

static int speaker_part(const stage *t, const corpus *c)
{
    training work = { .options = t->s->speaker,
                      .files = "german.txt",
                      .name = "speaker",
                      .steps = t->s->speaker_steps,
                      .seed = t->w->seed };
    char folder[DEMO_PATH + 16];
    snprintf(folder, sizeof(folder), "%s/speaker", t->folder);
    printf("\n5. Learning to speak, letter by letter, from the German "
           "alone\n\n");
    int failed = training_run(&work, t->folder);
    if (failed)
        return failed;
    printf("\nIt says:\n\n");
    return speaker_speak(folder, t->s->sentences, t->w->seed, c->train,
                         t->s->train);
}

/* A folder of its own: nothing that is there is touched. */
static int folder_make(stage *t)
{
    const char *root = getenv("TMPDIR");
    int length = t->w->out
                     ? snprintf(t->folder, DEMO_PATH, "%s", t->w->out)
                     : snprintf(t->folder, DEMO_PATH, "%s/bauta-demo-XXXXXX",
                                root && *root ? root : "/tmp");
    if (length >= DEMO_PATH)
        return cli_fail(VERB, "the name of the folder is too long");
    bool made =
        t->w->out ? mkdir(t->folder, 0777) == 0 : mkdtemp(t->folder) != NULL;
    if (!made && errno == EEXIST)
        return cli_fail(VERB, "%s exists; --out names a new folder", t->folder);
    return made ? CLI_OK : cli_fail(VERB, "%s: %s", t->folder, strerror(errno));
}

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int story(const wishes *w, const sizes *s, const corpus *c)
{
    stage t = { .w = w, .s = s };
    double began = now_seconds();
    int failed = folder_make(&t);
    if (!failed)
        failed = corpus_say(&t, c);
    if (!failed)
        failed = translator_part(&t, c);
    if (!failed)
        failed = speaker_part(&t, c);
    if (failed)
        return failed;
    printf("\nThat took %.0f seconds. All of it is in %s; try\n\n"
           "  bauta translate %s/translator 'Does the queen love him?'\n"
           "  bauta inspect %s/translator --masks 6\n",
           now_seconds() - began, t.folder, t.folder, t.folder);
    return cli_finish(VERB);
}

static int grammar_print(const corpus *c)
{
    for (size_t i = 0; i < c->all.count; i++)
        printf("%s\t%s\n", c->all.at[i].english, c->all.at[i].german);
    return cli_finish(VERB);
}

int demo_main(int argc, char **argv)
{
    wishes w;
    corpus c = { 0 };
    bool asked_help = false;
    int failed = wishes_read(&w, argc, argv, &asked_help);
    if (asked_help)
        return help();
    const sizes *s = w.fast ? &fast : &whole;
    if (!failed)
        failed = corpus_draw(&c, s, w.seed);
    if (!failed)
        failed = w.grammar ? grammar_print(&c) : story(&w, s, &c);
    corpus_release(&c);
    return failed;
}
