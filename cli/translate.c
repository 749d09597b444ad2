/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - bauta translate: line in, line out. */
#include "cli.h"
#include "json.h"
#include "lines.h"
#include "stream.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "translate"

/* ---- the command line -------------------------------------------------- */

static const char *const endings[] = { "no", "yes", "never", NULL };

typedef struct settings {
    words rest; /* the folder, and texts */
    const char *file, *out, *prefix;
    loaded_wish wish;
    size_t beams, nbest, max_tokens, no_repeat;
    float length_penalty;
    int early;
    bool has_beams, has_max, has_repeat, has_penalty, has_early;
    bool json, quiet, help;
    stream_limits limits;
} settings;

static int help(void)
{
    fputs(
        "usage: bauta translate MODEL [TEXT]... [options]\n"
        "\n"
        "Translate TEXT, or each line of a file or of standard input, and "
        "print a line\n"
        "for each, in order. MODEL is the folder of an encoder-decoder "
        "(Marian, BART),\n"
        "or of a training run. An empty line stays one. Many lines are "
        "translated at\n"
        "once, and each as if it were alone.\n"
        "\n"
        "what is read and written\n"
        "  -m, --model DIR       MODEL, as an option\n"
        "  --file FILE           texts, a line each; - is standard input\n"
        "  --out FILE            write there instead of to standard output\n"
        "  --prefix TEXT         every translation begins so\n"
        "  --json                a JSON object a line: source, and "
        "translations with\n"
        "                        text, score, tokens, logprobs and finish\n"
        "\n"
        "how (defaults are what generation_config.json says)\n"
        "  --beams N             beam search with N beams; 1 takes the "
        "likeliest\n"
        "                        token each time, which is the default where "
        "the\n"
        "                        folder says nothing; 5 is usual, and better\n"
        "  --nbest N             print the N best of the beams, a line each: "
        "number\n"
        "                        of the source, score and text, with tabs\n"
        "  --length-penalty X    above 0 favours longer ones (default 1)\n"
        "  --early-stopping S    no (default), yes or never: when beams end\n"
        "  --no-repeat-ngram N   no N tokens in a row twice\n"
        "  -n, --max-tokens N    of a translation; 0: as many as fit\n"
        "\n"
        "the machine\n"
        "  --tokenizer T         a folder or file, where MODEL has none\n"
        "  --weights W           float32 (default), bfloat16 or int8: how "
        "matrices\n"
        "                        are held\n"
        "  --sequences N         run at once, each beam is one (default 128)\n"
        "  --cache-mb N          keys and values, at most; 0: no limit\n"
        "  --threads N           0: one per core (default); changes no "
        "result\n"
        "  --quiet               no figures on standard error\n"
        "  --                    what follows is no option\n"
        "  --help                this text\n"
        "\n"
        "examples\n"
        "  bauta translate models/en-de 'A dog runs through the snow.'\n"
        "  bauta translate models/en-de --beams 5 <test.en >test.out\n"
        "  bauta translate models/en-de --beams 5 <test.en |\n"
        "      bauta score --ref test.de\n"
        "  bauta translate runs/en-de --beams 4 --nbest 4 --json 'Two men.'\n",
        stdout);
    return cli_finish(VERB);
}

static int settings_check(const settings *s)
{
    if (s->rest.count == 0)
        return cli_usage(VERB, "the model's folder is missing");
    if (s->rest.count > 1 && s->file)
        return cli_usage(VERB, "both texts and --file");
    return CLI_OK;
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--file", OPTION_TEXT, &s->file, NULL, 0, 0, NULL },
        { "--out", OPTION_TEXT, &s->out, NULL, 0, 0, NULL },
        { "--prefix", OPTION_TEXT, &s->prefix, NULL, 0, 0, NULL },
        { "--json", OPTION_ON, &s->json, NULL, 0, 0, NULL },
        { "--beams", OPTION_WHOLE, &s->beams, &s->has_beams, 1, 1024, NULL },
        { "--nbest", OPTION_WHOLE, &s->nbest, NULL, 1, 1024, NULL },
        { "--length-penalty", OPTION_REAL, &s->length_penalty, &s->has_penalty,
          -100, 100, NULL },
        { "--early-stopping", OPTION_CHOICE, &s->early, &s->has_early, 0, 0,
          endings },
        { "--no-repeat-ngram", OPTION_WHOLE, &s->no_repeat, &s->has_repeat, 0,
          1e6, NULL },
        { "--max-tokens", OPTION_WHOLE, &s->max_tokens, &s->has_max, 0, 1e9,
          NULL },
        { "--tokenizer", OPTION_TEXT, &s->wish.tokenizer, NULL, 0, 0, NULL },
        { "--weights", OPTION_CHOICE, &s->wish.weights, NULL, 0, 0,
          loaded_weights },
        { "--sequences", OPTION_WHOLE, &s->limits.sequences, NULL, 1, 4096,
          NULL },
        { "--cache-mb", OPTION_WHOLE, &s->limits.cache_mb, NULL, 0, 1e9, NULL },
        { "--threads", OPTION_WHOLE, &s->wish.threads, NULL, 0, 4096, NULL },
        { "--quiet", OPTION_ON, &s->quiet, NULL, 0, 0, NULL },
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--help", OPTION_ON, &s->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    return usage || s->help ? usage : settings_check(s);
}

/* ---- a line ------------------------------------------------------------ */

typedef struct translator {
    const settings *s;
    loaded model;
    texts in;
    ids prefix;
    bauta_generate_options how;
} translator;

static int ask(void *user, const task *t, bauta_request *request, ids *source)
{
    const translator *r = user;
    char place[256];
    if (t->text[strspn(t->text, " \t\r")] == '\0')
        return CLI_OK;
    texts_place(&r->in, t->number, place, sizeof(place));
    int failed =
        ids_read(source, &r->model, place, t->text, t->length, IDS_ENDED);
    request->source = source->at;
    request->source_count = source->count;
    request->tokens = r->prefix.at;
    request->count = r->prefix.count;
    request->options = &r->how;
    return failed;
}

/* The translation with the prefix that it had to begin with; for
 * bauta_text_free(), or NULL after a sentence. */
static char *whole_text(const translator *r, const bauta_hypothesis *h,
                        size_t *length)
{
    size_t said = h->count - (h->finish == BAUTA_FINISH_END); // not the end
    size_t count = r->prefix.count + said;
    uint32_t *all = calloc(count + 1, sizeof(*all));
    bauta_error err = { .message = "out of memory" };
    char *text = NULL;
    if (all) {
        if (r->prefix.count)
            memcpy(all, r->prefix.at, r->prefix.count * sizeof(*all));
        count = r->prefix.count;
        for (size_t i = 0; i < said; i++) // a padded vocabulary has no piece
            if (bauta_tokenizer_piece(r->model.tokenizer, h->tokens[i], NULL))
                all[count++] = h->tokens[i];
        bauta_tokenizer_decode(r->model.tokenizer, all, count, NULL, &text,
                               length, &err);
    }
    free(all);
    if (!text)
        cli_fail(VERB, "%s", err.message);
    return text;
}

/* A translation is a line, whatever the model says. */
static void line_print(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        putchar(text[i] == '\n' || text[i] == '\r' ? ' ' : text[i]);
    putchar('\n');
}

static json_t *translation_json(const bauta_hypothesis *h, const char *text,
                                size_t length)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:s}", "text",
                     json_text(text, length), "score", json_number(h->score),
                     "tokens", json_ids(h->tokens, h->count), "logprobs",
                     json_floats(h->logprobs, h->count), "finish",
                     bauta_finish_text(h->finish));
}

static int tell_json(const translator *r, const task *t)
{
    json_t *list = json_array();
    size_t count = t->result ? t->result->count : 0, length;
    for (size_t i = 0; i < count; i++) {
        const bauta_hypothesis *h = &t->result->hypotheses[i];
        char *text = whole_text(r, h, &length);
        if (!text) {
            json_decref(list);
            return CLI_FAILED;
        }
        json_array_append_new(list, translation_json(h, text, length));
        bauta_text_free(text);
    }
    json_t *object =
        json_pack("{s:o, s:o, s:I}", "source", json_text(t->text, t->length),
                  "translations", list, "source_tokens",
                  (json_int_t)(t->result ? t->result->prompt : 0));
    if (object && *t->refused)
        json_object_set_new(object, "error",
                            json_text(t->refused, strlen(t->refused)));
    return json_line(VERB, object);
}

static int tell(void *user, const task *t)
{
    const translator *r = user;
    size_t length;
    if (r->s->json)
        return tell_json(r, t);
    if (!t->result && !r->s->nbest)
        putchar('\n');
    for (size_t i = 0; t->result && i < t->result->count; i++) {
        const bauta_hypothesis *h = &t->result->hypotheses[i];
        char *text = whole_text(r, h, &length);
        if (!text)
            return CLI_FAILED;
        if (r->s->nbest)
            printf("%zu\t%.4f\t", t->number, h->score);
        line_print(text, length);
        bauta_text_free(text);
    }
    return CLI_OK;
}

/* ---- the verb ---------------------------------------------------------- */

static int options_make(translator *r)
{
    const settings *s = r->s;
    bauta_error err;
    r->how = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(&r->how, r->model.model, &err))
        return cli_fail(VERB, "%s", err.message);
    if (s->has_beams)
        r->how.beams = s->beams;
    if (s->has_penalty)
        r->how.length_penalty = s->length_penalty;
    if (s->has_early)
        r->how.early = (bauta_early)s->early;
    if (s->has_repeat)
        r->how.no_repeat = s->no_repeat;
    if (s->has_max) {
        r->how.max_tokens = s->max_tokens;
        r->how.max_length = 0;
    }
    r->how.nbest = s->nbest;
    if (s->nbest > r->how.beams)
        return cli_usage(VERB,
                         "--nbest is %zu, and there are only %zu beams; "
                         "--beams N makes more",
                         s->nbest, r->how.beams);
    return CLI_OK;
}

static int translator_open(translator *r)
{
    const settings *s = r->s;
    int failed = loaded_open(&r->model, VERB, s->rest.at[0], &s->wish,
                             BAUTA_ENCODER_DECODER);
    if (!failed)
        failed = options_make(r);
    if (!failed && s->prefix)
        failed = text_check(VERB, "--prefix", s->prefix);
    if (!failed && s->prefix)
        failed = ids_read(&r->prefix, &r->model, "--prefix", s->prefix,
                          strlen(s->prefix), IDS_BARE);
    if (!failed && s->out && !freopen(s->out, "wb", stdout))
        failed = cli_fail(VERB, "%s: %s", s->out, strerror(errno));
    return failed;
}

static int translate(translator *r)
{
    stream_verb verb = { ask, tell, r };
    stream_sums sums;
    int failed = stream_run(&r->model, &r->in, &verb, &r->s->limits, &sums);
    if (!r->s->quiet && sums.texts)
        fprintf(stderr,
                "%zu lines, %zu tokens of sources, %zu of translations in "
                "%.2f s: %.0f tokens/s (%zu beams)\n",
                sums.texts, sums.prompt, sums.tokens, sums.seconds,
                (double)sums.tokens / fmax(sums.seconds, 1e-9), r->how.beams);
    return failed ? failed : cli_finish(VERB);
}

int translate_main(int argc, char **argv)
{
    settings s = { .limits = { .sequences = 128 } };
    translator r = { .s = &s, .in = { .file = NULL } };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help) {
        words_release(&s.rest);
        return help();
    }
    if (!failed)
        failed =
            texts_open(&r.in, VERB, s.rest.at + 1, s.rest.count - 1, s.file);
    if (!failed)
        failed = translator_open(&r);
    if (!failed)
        failed = translate(&r);
    texts_close(&r.in);
    free(r.prefix.at);
    loaded_close(&r.model);
    words_release(&s.rest);
    return failed;
}
