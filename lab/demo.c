/* SPDX-License-Identifier: Apache-2.0 */
/* demo.c - bauta demo: train and use two small models in about two minutes.
 *
 * A translator is trained on sentences of a small grammar and tested on others;
 * its attention weights are drawn; a character-level language model is trained
 * and sampled. Training goes through `bauta train`, with commands that a user
 * could type. */
#include "demo.h"

#include "../cli/batch_generate.h"
#include "../cli/cli.h"
#include "../cli/format.h"
#include "../cli/json_output.h"
#include "../cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERB "demo"

typedef struct demo_options {
    string_list rest; /* must be empty */
    const char *out;
    uint64_t seed;
    bool fast, grammar, json, help;
} demo_options;

typedef struct demo_run {
    const demo_options *w;
    const demo_sizes *s;
    char folder[DEMO_PATH];
    char translator[DEMO_PATH + 16], char_model[DEMO_PATH + 16];
    size_t right; /* held-out sentences translated exactly */
    bool love;    /* whether "I love you" is one of them */
    double translator_seconds, char_model_seconds; /* of training */
} demo_run;

/* ---- sizes ------------------------------------------------------------- */

static const demo_sizes whole = {
    .train = 40000,
    .valid = 200,
    .held = 1000,
    .translator = "--preset transformer-tiny --tokenizer unigram:900 "
                  "--set d_model=64 --set encoder_layers=2 "
                  "--set decoder_layers=2 --batch-tokens 2048 "
                  "--learning-rate 5e-3 --min-learning-rate 1e-5 --warmup 150 "
                  "--schedule cosine --dropout 0 --label-smoothing 0 "
                  "--clip 25 --pass-tokens 16384 --eval-every 100",
    .translator_steps = 1200,
    .char_model = "--preset gpt2-tiny --tokenizer chars --set n_layer=3 "
                  "--set n_embd=96 --context 64 --batch-size 32 "
                  "--learning-rate 5e-3 "
                  "--eval-every 0",
    .char_model_steps = 1000,
    .sentences = 10,
};

/* Too short to learn much, but all parts run. */
static const demo_sizes fast = {
    .train = 600,
    .valid = 20,
    .held = 40,
    .translator = "--preset transformer-tiny --tokenizer unigram:600 "
                  "--set d_model=16 --set encoder_layers=1 "
                  "--set decoder_layers=1 --set encoder_ffn_dim=32 "
                  "--set decoder_ffn_dim=32 --batch-tokens 256 --warmup 5 "
                  "--eval-every 20",
    .translator_steps = 40,
    .char_model = "--preset gpt2-tiny --tokenizer chars --set n_layer=1 "
                  "--set n_embd=16 --set n_head=2 --context 64 --batch-size 4 "
                  "--warmup 5 "
                  "--eval-every 0",
    .char_model_steps = 20,
    .sentences = 3,
};

/* ---- options ----------------------------------------------------------- */

static const char help_text[] =
    "usage: bauta demo [options]\n"
    "\n"
    "Train a translator from English to German on sentences of a small "
    "grammar,\n"
    "in about two minutes on two cores, and translate sentences that it has\n"
    "never seen. Draw the attention weights of its decoder. Then train a\n"
    "character-level language model and sample from it.\n"
    "\n"
    "options\n"
    "  --out DIR    a new folder for all files (default: one under $TMPDIR)\n"
    "  --seed N     of the sentences and of all training (default 1)\n"
    "  --fast       small sizes: some seconds, too short to learn much\n"
    "  --grammar    only print the sentences, two columns separated by a tab\n"
    "  --json       print the figures as one JSON object, and everything else\n"
    "               to standard error\n"
    "  --help       print this text\n"
    "\n"
    "examples\n"
    "  bauta demo --out demo\n"
    "  bauta demo --grammar | head\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int options_check(const demo_options *w)
{
    if (w->rest.count)
        return cli_usage(VERB, "'%s' is not an option", w->rest.at[0]);
    if (w->out && !*w->out)
        return cli_usage(VERB, "--out needs a value");
    if (w->seed >> 63) // the limit of bauta train
        return cli_usage(VERB, "--seed is not below 2^63");
    return CLI_OK;
}

static int options_read(demo_options *w, int argc, char **argv)
{
    const option table[] = {
        { "--out", OPTION_STRING, &w->out, NULL, 0, 0, NULL },
        { "--seed", OPTION_SEED, &w->seed, NULL, 0, 0, NULL },
        { "--fast", OPTION_FLAG, &w->fast, NULL, 0, 0, NULL },
        { "--grammar", OPTION_FLAG, &w->grammar, NULL, 0, 0, NULL },
        { "--json", OPTION_FLAG, &w->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &w->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &w->rest);
    return usage || w->help ? usage : options_check(w);
}

/* ---- the parts --------------------------------------------------------- */

static int corpus_show(const demo_run *t, const corpus *c)
{
    printf("\n1. The corpus\n\n");
    for (size_t i = 0; i < 6; i++)
        printf("  %-44s %s\n", c->train[i].english, c->train[i].german);
    printf("\nA small grammar made %zu pairs, all different in both "
           "languages. %zu are for\ntraining. %zu are held out, \"I love "
           "you\" among them: they are never seen in\ntraining.\n",
           c->all.count, t->s->train, t->s->valid + t->s->held);
    return corpus_write(c, t->s, t->folder);
}

static int translations_show(demo_run *t, const corpus *c, const demo_model *x)
{
    size_t love = 0;
    printf("\n3. Translating held-out sentences\n\n");
    int failed = translations_check(x, c->valid, 1, 1, &love);
    if (!failed)
        failed = translations_check(x, c->held, t->s->held, 6, &t->right);
    t->love = love == 1;
    if (!failed)
        printf("\nOf %zu held-out sentences, %zu translations match the "
               "reference exactly: %.1f %%.\n",
               t->s->held, t->right,
               100.0 * (double)t->right / (double)t->s->held);
    return failed;
}

static int translator_show(demo_run *t, const corpus *c, const demo_model *x)
{
    const pair shown = { "I do not want to see the old man",
                         "Ich will den alten Mann nicht sehen" };
    int failed = translations_show(t, c, x);
    if (failed)
        return failed;
    printf("\n4. Attention weights\n");
    failed = attention_show(x, &c->valid[0], true);
    return failed ? failed : attention_show(x, &shown, false);
}

static int translator_part(demo_run *t, const corpus *c)
{
    training work = { .options = t->s->translator,
                      .files = "--pairs train.tsv --valid-pairs valid.tsv",
                      .name = "translator",
                      .steps = t->s->translator_steps,
                      .seed = t->w->seed };
    demo_model x = { 0 };
    double began = seconds_now();
    printf("\n2. Training the translator\n\n");
    int failed = training_call(&work, t->folder);
    t->translator_seconds = seconds_now() - began;
    if (!failed)
        failed = demo_model_open(&x, t->translator);
    if (!failed)
        failed = translator_show(t, c, &x);
    demo_model_close(&x);
    return failed;
}

static int char_model_part(demo_run *t, const corpus *c)
{
    training work = { .options = t->s->char_model,
                      .files = "german.txt",
                      .name = "speaker",
                      .steps = t->s->char_model_steps,
                      .seed = t->w->seed };
    double began = seconds_now();
    printf("\n5. Training a character-level language model on the German "
           "side\n\n");
    int failed = training_call(&work, t->folder);
    t->char_model_seconds = seconds_now() - began;
    if (failed)
        return failed;
    printf("\nIt says:\n\n");
    return char_model_sample(t->char_model, t->s->sentences, t->w->seed,
                             c->train, t->s->train);
}

/* Always a new folder. */
static int folder_make(demo_run *t)
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
    snprintf(t->translator, sizeof(t->translator), "%s/translator", t->folder);
    snprintf(t->char_model, sizeof(t->char_model), "%s/speaker", t->folder);
    return made ? CLI_OK : cli_fail(VERB, "%s: %s", t->folder, strerror(errno));
}

/* With --json, everything else goes to stderr. Returns a duplicate of stdout,
 * or -1. */
static int stdout_redirect(void)
{
    int kept = dup(STDOUT_FILENO);
    if (kept >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        close(kept);
        kept = -1;
    }
    return kept;
}

static int stdout_restore(int kept)
{
    int failed = cli_finish(VERB);
    if (dup2(kept, STDOUT_FILENO) < 0)
        failed = cli_fail(VERB, "stdout: %s", strerror(errno));
    close(kept);
    return failed;
}

static int figures_json(const demo_run *t, double seconds)
{
    const demo_sizes *s = t->s;
    return json_line(
        VERB,
        json_pack("{s:I, s:b, s:{s:I, s:I, s:I}, s:{s:I, s:I}, "
                  "s:{s:I, s:I, s:f, s:b}, s:{s:f, s:f, s:f}, s:{s:o, s:o, "
                  "s:o}}",
                  "seed", (json_int_t)t->w->seed, "fast", t->w->fast, "pairs",
                  "train", (json_int_t)s->train, "valid", (json_int_t)s->valid,
                  "held_out", (json_int_t)s->held, "steps", "translator",
                  (json_int_t)s->translator_steps, "speaker",
                  (json_int_t)s->char_model_steps, "exact", "right",
                  (json_int_t)t->right, "of", (json_int_t)s->held, "share",
                  (double)t->right / (double)s->held, "i_love_you", t->love,
                  "seconds", "translator", t->translator_seconds, "speaker",
                  t->char_model_seconds, "all", seconds, "paths", "folder",
                  json_text(t->folder, strlen(t->folder)), "translator",
                  json_text(t->translator, strlen(t->translator)), "speaker",
                  json_text(t->char_model, strlen(t->char_model))));
}

static int parts_run(demo_run *t, const corpus *c)
{
    int failed = corpus_show(t, c);
    if (!failed)
        failed = translator_part(t, c);
    return failed ? failed : char_model_part(t, c);
}

static int demo_all(const demo_options *w, const demo_sizes *s, const corpus *c)
{
    demo_run t = { .w = w, .s = s };
    double began = seconds_now();
    int failed = folder_make(&t), kept = -1;
    if (!failed && w->json && (kept = stdout_redirect()) < 0)
        failed = cli_fail(VERB, "stdout: %s", strerror(errno));
    if (!failed)
        failed = parts_run(&t, c);
    double seconds = seconds_now() - began;
    if (!failed)
        printf("\nThat took %.0f seconds. All of it is in %s; try\n\n"
               "  bauta translate %s 'Does the queen love him?'\n"
               "  bauta inspect %s --masks 6\n",
               seconds, t.folder, t.translator, t.translator);
    if (kept >= 0 && stdout_restore(kept))
        failed = failed ? failed : CLI_FAILED;
    if (!failed && w->json)
        failed = figures_json(&t, seconds);
    return failed ? failed : cli_finish(VERB);
}

static int grammar_print(const corpus *c)
{
    for (size_t i = 0; i < c->all.count; i++)
        printf("%s\t%s\n", c->all.at[i].english, c->all.at[i].german);
    return cli_finish(VERB);
}

int demo_main(int argc, char **argv)
{
    demo_options w = { .seed = 1 };
    corpus c = { 0 };
    int failed = options_read(&w, argc, argv);
    string_list_release(&w.rest);
    if (failed || w.help)
        return failed ? failed : help();
    const demo_sizes *s = w.fast ? &fast : &whole;
    failed = corpus_draw(&c, s, w.seed);
    if (!failed)
        failed = w.grammar ? grammar_print(&c) : demo_all(&w, s, &c);
    corpus_release(&c);
    return failed;
}
