/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_perplexity.c - bauta perplexity: how well a model predicts texts. */
#include "cli.h"
#include "device_options.h"
#include "json_output.h"
#include "opened_model.h"
#include "options.h"
#include "ranks.h"
#include "unknown_chars.h"

#include <bauta.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *typed = "perplexity"; /* or "score" */
#define VERB typed

typedef struct options {
    string_list rest;
    const char *model;
    const char **files;
    size_t count;
    const char *source, *target, *pairs;
    size_t context, stride; /* 0: default */
    int weights;            /* of bauta_dtype */
    size_t ranks;
    device_options device;
    bool perplexity; /* called as score --perplexity */
    bool lines, json, help;
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta perplexity MODEL FILE... [options]\n"
    "       bauta score --perplexity MODEL FILE... [options]\n"
    "\n"
    "Measure how well the model in the folder MODEL predicts the texts: e to "
    "the\n"
    "mean loss per token. The texts are read in windows of the context "
    "length.\n"
    "A decoder-only model predicts each token but the first once. An\n"
    "encoder-only model predicts each token once, masked in its window: its\n"
    "pseudo-perplexity. An encoder-decoder needs pairs and predicts the "
    "targets.\n"
    "FILEs are plain or gzip; '-' is standard input.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  MODEL, as an option\n"
    "  --context N      tokens per window (default: the model's context)\n"
    "  --stride N       tokens from window to window (default: half the\n"
    "                   context)\n"
    "  --device D       cpu (default), cuda or cuda:N: the GPU with this\n"
    "                   number\n"
    "  --dtype T        compute in float32 (default), or on a GPU in bfloat16\n"
    "  --weights TYPE   on the CPU: store matrices as float32 (default),\n"
    "                   bfloat16 or int8\n"
    "  --lines          each line is a text; else each file is one\n"
    "  --source FILE    pairs instead of FILEs: line i of this file belongs "
    "to\n"
    "  --target FILE    line i of this one\n"
    "  --pairs FILE     pairs as two columns, separated by a tab\n"
    "  --threads N      0: one per core (default)\n"
    "  --ranks N        share the work out over N processes; does not change "
    "the\n"
    "                   result\n"
    "  --json           print one JSON object\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta perplexity models/gpt2 wiki.test.raw\n"
    "  bauta perplexity runs/shakespeare/best input.txt --json\n"
    "  bauta perplexity models/marian --source test.en --target test.de\n"
    "  bauta perplexity models/gpt2 wiki.test.raw --device cpu # or cuda\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int options_read(options *o, int argc, char **argv)
{
    const double most = 1 << 30;
    const option table[] = {
        { "--perplexity", OPTION_FLAG, &o->perplexity, NULL, 0, 0, NULL },
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--context", OPTION_SIZE, &o->context, NULL, 0, most, NULL },
        { "--stride", OPTION_SIZE, &o->stride, NULL, 0, most, NULL },
        { "--weights", OPTION_CHOICE, &o->weights, NULL, 0, 0, weight_formats },
        { "--lines", OPTION_FLAG, &o->lines, NULL, 0, 0, NULL },
        { "--source", OPTION_STRING, &o->source, NULL, 0, 0, NULL },
        { "--target", OPTION_STRING, &o->target, NULL, 0, 0, NULL },
        { "--pairs", OPTION_STRING, &o->pairs, NULL, 0, 0, NULL },
        DEVICE_OPTIONS(&o->device),
        { "--ranks", OPTION_SIZE, &o->ranks, NULL, 0, most, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->rest);
    if (usage || o->help)
        return usage;
    if (!o->source != !o->target)
        return cli_usage(VERB, "--source and --target belong together");
    bool pairs = o->source || o->pairs;
    if ((o->source && o->pairs) || (pairs && o->rest.count > 1))
        return cli_usage(VERB, "FILEs, --source and --target, and --pairs "
                               "exclude each other");
    for (size_t i = 1; o->ranks > 1 && i < o->rest.count; i++)
        if (strcmp(o->rest.at[i], "-") == 0)
            return cli_usage(VERB, "standard input cannot be read by %zu ranks",
                             o->ranks);
    if (o->rest.count < (pairs ? 1 : 2))
        return cli_usage(VERB, "the model's folder or the files are missing");
    o->model = o->rest.at[0];
    o->files = o->rest.at + 1;
    o->count = o->rest.count - 1;
    return CLI_OK;
}

/* ---- the verb ---------------------------------------------------------- */

typedef struct meter {
    bauta_context *context;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
    bauta_model *model;
    bauta_perplexity_result result;
} meter;

static bauta_status corpus_load(meter *m, const options *o, bauta_error *err)
{
    bauta_corpus_options texts = BAUTA_CORPUS_OPTIONS_INIT;
    texts.lines = o->lines;
    if (o->source || o->pairs)
        return bauta_corpus_load_pairs(&m->corpus, m->tokenizer,
                                       o->source ? o->source : o->pairs,
                                       o->target, &texts, err);
    return bauta_corpus_load(&m->corpus, m->tokenizer, o->files, o->count,
                             &texts, err);
}

static bauta_status meter_load(meter *m, const options *o, bauta_error *err)
{
    bauta_status status =
        bauta_model_load_to(&m->model, o->model, m->context, err);
    if (!status && o->weights)
        status = bauta_model_pack(m->model, (bauta_dtype)o->weights, err);
    if (!status)
        status = bauta_tokenizer_load(&m->tokenizer, o->model, err);
    return status ? status : corpus_load(m, o, err);
}

static int measure(meter *m, const options *o)
{
    bauta_error err;
    bauta_perplexity_options how = BAUTA_PERPLEXITY_OPTIONS_INIT;
    how.context_length = o->context;
    how.stride = o->stride;
    int failed = ranks_context(&m->context, VERB, &o->device);
    if (failed)
        return failed;
    if (meter_load(m, o, &err))
        return cli_fail(VERB, "%s", err.message);
    unknown_chars_warn_corpus(VERB, "", m->corpus);
    cli_warn(VERB, bauta_model_warnings(m->model));
    if (bauta_perplexity(m->context, m->model, m->tokenizer, m->corpus, &how,
                         &m->result, &err))
        return ranks_reported(&err) ? CLI_FAILED
                                    : cli_fail(VERB, "%s", err.message);
    if (m->result.skipped)
        fprintf(stderr, "%zu pairs are longer than %zu tokens and skipped\n",
                m->result.skipped, m->result.context_length);
    return CLI_OK;
}

static void meter_close(meter *m)
{
    bauta_corpus_free(m->corpus);
    bauta_tokenizer_free(m->tokenizer);
    bauta_model_free(m->model);
    bauta_context_free(m->context);
}

static int json_print(const meter *m, double bits)
{
    const bauta_perplexity_result *r = &m->result;
    json_t *all = json_pack(
        "{s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "perplexity",
        json_number(r->perplexity), "loss", json_number(r->loss),
        "bits_per_byte", json_number(bits), "predicted", (json_int_t)r->tokens,
        "texts", (json_int_t)bauta_corpus_documents(m->corpus), "context",
        (json_int_t)r->context_length, "stride", (json_int_t)r->stride);
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

/* Bits per byte compare models of texts; those of pairs and of masked tokens
 * are no code length. */
static int result_print(const meter *m, const options *o)
{
    const bauta_perplexity_result *r = &m->result;
    bauta_model_kind kind = bauta_model_kind_of(m->model);
    bool pairs = kind == BAUTA_ENCODER_DECODER;
    double bits =
        kind == BAUTA_DECODER_ONLY
            ? r->total_loss / log(2.0) / (double)bauta_corpus_bytes(m->corpus)
            : NAN;
    if (o->json)
        return json_print(m, bits);
    printf("%sperplexity %.4f  (loss %.4f",
           kind == BAUTA_ENCODER_ONLY ? "pseudo-" : "", r->perplexity, r->loss);
    if (!isnan(bits))
        printf(", %.4f bits per byte", bits);
    printf(")\n%llu tokens of %zu %s", (unsigned long long)r->tokens,
           bauta_corpus_documents(m->corpus) - r->skipped,
           pairs ? "pairs" : "texts");
    if (!pairs)
        printf(", in windows of %zu with a stride of %zu", r->context_length,
               r->stride);
    putchar('\n');
    return cli_finish(VERB);
}

static int perplexity(const options *o)
{
    meter m = { .result = BAUTA_PERPLEXITY_RESULT_INIT };
    int failed = measure(&m, o);
    if (!failed && ranks_first())
        failed = result_print(&m, o);
    meter_close(&m);
    return failed;
}

int perplexity_main(int argc, char **argv)
{
    options o = { .model = NULL };
    typed = argv[0];
    int failed = options_read(&o, argc, argv);
    if (!failed && o.help)
        failed = help();
    else if (!failed && !ranks_begin(VERB, o.ranks, &failed))
        failed = ranks_end(perplexity(&o));
    string_list_release(&o.rest);
    return failed;
}
