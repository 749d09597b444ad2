/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_translate.c - bauta translate: line in, line out. */
#include "batch_generate.h"
#include "cli.h"
#include "json_output.h"
#include "lines.h"
#include "ranks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "translate"

/* ---- the command line -------------------------------------------------- */

typedef struct settings {
    string_list rest; /* the folder, and texts */
    const char *file, *out, *prefix;
    model_options model;
    search_options search;
    batch_limits limits;
    size_t ranks;
    bool json, quiet, help;
} settings;

static const char help_text[] =
    "usage: bauta translate MODEL [TEXT]... [options]\n"
    "\n"
    "Translate TEXT, or each line of a file or of standard input, and print\n"
    "one line for each, in order. MODEL is the folder of an encoder-decoder\n"
    "model (Marian, BART) or of a training run. An empty line stays empty.\n"
    "Translation is batched; each result is bit-identical to translating that\n"
    "line alone.\n"
    "\n"
    "input and output\n"
    "  -m, --model DIR             MODEL, as an option\n"
    "  --file FILE                 texts, one per line; - is standard input\n"
    "  --out FILE                  write to FILE instead of standard output\n"
    "  --prefix TEXT               begin every translation with TEXT\n"
    "  --json                      one JSON object per line: source, and\n"
    "                              translations with text, score, tokens,\n"
    "                              logprobs and finish\n"
    "\n"
    "search (defaults are those of generation_config.json)\n"
    "  --num-beams N               beam search with N beams; 1 is greedy\n"
    "                              (default 1; 5 is common and better)\n"
    "  --num-return-sequences N    print the N best translations, one per\n"
    "                              line: number of the source, score and\n"
    "                              text, separated by tabs\n"
    "  --length-penalty X          positive values favour longer texts\n"
    "                              (default 1)\n"
    "  --early-stopping S          no (default), yes or never: when to stop\n"
    "                              the beam search\n"
    "  --no-repeat-ngram-size N    no sequence of N tokens occurs twice\n"
    "  -n, --max-tokens N          length of a translation; 0: no limit\n"
    "\n"
    "execution\n"
    "  --tokenizer T               folder or file, if MODEL has none\n"
    "  --device D                  cpu (default), cuda or cuda:N: the GPU\n"
    "                              with this number\n"
    "  --dtype T                   compute in float32 (default), or on a GPU\n"
    "                              in bfloat16\n"
    "  --weights W                 on the CPU: store matrices as float32\n"
    "                              (default), bfloat16 or int8\n"
    "  --sequences N               sequences that run together; each beam is\n"
    "                              one (default 128)\n"
    "  --cache-mb N                limit of the KV cache in MiB; 0: none\n"
    "  --threads N                 0: one per core (default); does not\n"
    "                              change results\n"
    "  --ranks N                   share the lines of --file out over N\n"
    "                              processes; does not change results\n"
    "  --quiet                     no statistics on standard error\n"
    "  --                          no options follow\n"
    "  --help                      print this text\n"
    "\n"
    "examples\n"
    "  bauta translate models/en-de 'A dog runs through the snow.'\n"
    "  bauta translate models/en-de --num-beams 5 <test.en >test.out\n"
    "  bauta translate models/en-de --num-beams 5 <test.en |\n"
    "      bauta score --ref test.de\n"
    "  bauta translate runs/en-de --num-beams 4 --num-return-sequences 4 \\\n"
    "      --json 'Two men.'\n"
    "  bauta translate models/en-de --device cpu 'Two men.' # or cuda\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--out", OPTION_STRING, &s->out, NULL, 0, 0, NULL },
        { "--prefix", OPTION_STRING, &s->prefix, NULL, 0, 0, NULL },
        { "--quiet", OPTION_FLAG, &s->quiet, NULL, 0, 0, NULL },
        { "--ranks", OPTION_SIZE, &s->ranks, NULL, 0, 1e9, NULL },
        SEARCH_OPTIONS(s),
        MODEL_OPTIONS(s),
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    return usage || s->help ? usage : model_args_check(VERB, &s->rest, s->file);
}

/* ---- a line ------------------------------------------------------------ */

typedef struct translator {
    const settings *s;
    opened_model model;
    text_input in;
    token_ids prefix;
    bauta_generate_options options;
} translator;

static int request_make(void *user, const batch_item *t, bauta_request *request,
                        token_ids *source)
{
    const translator *r = user;
    char place[256];
    if (t->text[strspn(t->text, " \t\r")] == '\0')
        return CLI_OK;
    text_input_place(&r->in, t->number, place, sizeof(place));
    int failed =
        encode_text(source, &r->model, place, t->text, t->length, ENDING_EOS);
    request->source = source->at;
    request->source_count = source->count;
    request->tokens = r->prefix.at;
    request->count = r->prefix.count;
    request->options = &r->options;
    return failed;
}

/* The translation, with its prefix, for bauta_text_free(); NULL after a
 * message. */
static char *whole_text(const translator *r, const bauta_hypothesis *h,
                        size_t *length)
{
    size_t written = h->count - (h->finish == BAUTA_FINISH_END); // without EOS
    size_t count = r->prefix.count + written;
    uint32_t *all = calloc(count + 1, sizeof(*all));
    bauta_error err = { .message = "out of memory" };
    char *text = NULL;
    if (all) {
        if (r->prefix.count)
            memcpy(all, r->prefix.at, r->prefix.count * sizeof(*all));
        count = r->prefix.count;
        for (size_t i = 0; i < written; i++) // padding of the vocabulary
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

/* A translation is one line: newlines become spaces. */
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

static int report_json(const translator *r, const batch_item *t)
{
    json_t *list = json_array();
    size_t count = t->result ? t->result->count : 0, length;
    for (size_t i = 0; i < count; i++) {
        const bauta_hypothesis *h = t->result->hypotheses[i];
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
                  (json_int_t)(t->result ? t->result->prompt_tokens : 0));
    if (object && *t->error)
        json_object_set_new(object, "error",
                            json_text(t->error, strlen(t->error)));
    return json_line(VERB, object);
}

static int report(void *user, const batch_item *t)
{
    const translator *r = user;
    size_t length;
    if (r->s->json)
        return report_json(r, t);
    if (!t->result && !r->s->search.num_return_sequences)
        putchar('\n');
    for (size_t i = 0; t->result && i < t->result->count; i++) {
        const bauta_hypothesis *h = t->result->hypotheses[i];
        char *text = whole_text(r, h, &length);
        if (!text)
            return CLI_FAILED;
        if (r->s->search.num_return_sequences)
            printf("%zu\t%.4f\t", t->number, h->score);
        line_print(text, length);
        bauta_text_free(text);
    }
    return CLI_OK;
}

/* ---- the verb ---------------------------------------------------------- */

static int options_make(translator *r)
{
    bauta_error err;
    r->options = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    if (bauta_generate_options_load(&r->options, r->model.model, &err))
        return cli_fail(VERB, "%s", err.message);
    return search_options_apply(VERB, &r->s->search, &r->options);
}

static int out_open(const settings *s)
{
    return s->out && !freopen(s->out, "wb", stdout)
               ? cli_fail(VERB, "%s: %s", s->out, strerror(errno))
               : CLI_OK;
}

static int translator_open(translator *r)
{
    const settings *s = r->s;
    int failed = opened_model_open(&r->model, VERB, s->rest.at[0], &s->model,
                                   BAUTA_ENCODER_DECODER);
    if (!failed)
        failed = options_make(r);
    if (!failed && s->prefix)
        failed = text_check(VERB, "--prefix", s->prefix);
    if (!failed && s->prefix)
        failed = encode_text(&r->prefix, &r->model, "--prefix", s->prefix,
                             strlen(s->prefix), ENDING_NONE);
    return failed || s->ranks > 1 ? failed : out_open(s);
}

static int translate(translator *r)
{
    batch_callbacks calls = { request_make, report, r };
    batch_totals totals;
    int failed =
        batch_generate(&r->model, &r->in, &calls, &r->s->limits, &totals);
    if (!r->s->quiet && totals.texts && ranks_part().count == 1)
        fprintf(stderr,
                "%zu lines, %zu source tokens, %zu target tokens in %.2f s: "
                "%.0f tokens/s (%zu beams)\n",
                totals.texts, totals.prompt, totals.tokens, totals.seconds,
                (double)totals.tokens / fmax(totals.seconds, 1e-9),
                r->options.num_beams);
    return failed ? failed : cli_finish(VERB);
}

int translate_main(int argc, char **argv)
{
    settings s = { .limits = { .sequences = 128 } };
    translator r = { .s = &s, .in = { .file = NULL } };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help) {
        string_list_release(&s.rest);
        return help();
    }
    if (!failed && s.ranks > 1)
        failed = out_open(&s);
    if (!failed && ranks_split(VERB, s.ranks, s.file, &failed)) {
        string_list_release(&s.rest);
        return failed;
    }
    if (!failed)
        failed = text_input_open(&r.in, VERB, s.rest.at + 1, s.rest.count - 1,
                                 s.file);
    if (!failed)
        failed = translator_open(&r);
    if (!failed)
        failed = translate(&r);
    text_input_close(&r.in);
    free(r.prefix.at);
    opened_model_close(&r.model);
    string_list_release(&s.rest);
    return failed;
}
