/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_perplexity.c - bauta perplexity: how well a model predicts texts.
 *
 * A text is read in windows of the context length. Each begins `stride` tokens
 * after the previous one, and only tokens that were not predicted yet count. So
 * every token but the first of a text is predicted once, and those after the
 * first window with at least context - stride tokens before them. */
#include "cli.h"
#include "json_output.h"
#include "opened_model.h"
#include "options.h"
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
    size_t context, stride, threads; /* 0: default */
    int weights;                     /* of bauta_dtype */
    bool perplexity;                 /* called as score --perplexity */
    bool lines, json, help;
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta perplexity MODEL FILE... [options]\n"
    "       bauta score --perplexity MODEL FILE... [options]\n"
    "\n"
    "Measure how well the decoder-only model in the folder MODEL predicts the\n"
    "texts: e to the mean loss per token. The texts are read in windows of "
    "the\n"
    "context length; each token but the first is predicted once. FILEs are\n"
    "plain or gzip; '-' is standard input.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  MODEL, as an option\n"
    "  --context N      tokens per window (default: the model's context)\n"
    "  --stride N       tokens from window to window (default: half the\n"
    "                   context)\n"
    "  --weights TYPE   store matrices as float32 (default), bfloat16 or int8\n"
    "  --lines          each line is a text; else each file is one\n"
    "  --threads N      0: one per core (default)\n"
    "  --json           print one JSON object\n"
    "  --help           print this text\n"
    "\n"
    "examples\n"
    "  bauta perplexity models/gpt2 wiki.test.raw\n"
    "  bauta perplexity runs/shakespeare/best input.txt --json\n";

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
        { "--threads", OPTION_SIZE, &o->threads, NULL, 0, 4096, NULL },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->rest);
    if (usage || o->help)
        return usage;
    if (o->rest.count < 2)
        return cli_usage(VERB, "the model's folder or the files are missing");
    o->model = o->rest.at[0];
    o->files = o->rest.at + 1;
    o->count = o->rest.count - 1;
    return CLI_OK;
}

/* ---- windows ----------------------------------------------------------- */

enum { BATCH_TOKENS = 4096 };

typedef struct meter {
    bauta_context *context;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
    bauta_model *model;
    size_t window, stride;
    uint32_t *ids, *labels; /* of the current batch */
    size_t *lengths;
    size_t rows, count, room;
    double sum; /* of all losses */
    uint64_t predicted;
} meter;

static bauta_status batch_run(meter *m, bauta_error *err)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    double loss = 0.0;
    size_t counted = 0;
    if (m->count == 0)
        return BAUTA_OK;
    batch.count = m->count;
    batch.lengths = m->lengths;
    batch.ids = m->ids;
    bauta_status status =
        bauta_model_loss(m->context, m->model, NULL, &batch, m->labels, NULL,
                         &loss, &counted, err);
    if (!status && !isfinite(loss)) {
        status =
            bauta_model_check_finite(m->context, m->model, NULL, &batch, err);
        if (!status) { // a label has probability 0
            status = BAUTA_ERR_NOT_FINITE;
            snprintf(err->message, sizeof(err->message),
                     "the loss is infinite: the model gives a token of the "
                     "text the probability 0");
        }
    }
    m->sum += loss * (double)counted;
    m->predicted += counted;
    m->rows = m->count = 0;
    return status;
}

/* Tokens [begin, end) of a text, of which those from `fresh` on count. */
static bauta_status window_add(meter *m, const uint32_t *tokens, size_t begin,
                               size_t end, size_t fresh, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (m->rows + (end - begin) > m->room)
        status = batch_run(m, err);
    for (size_t i = begin; !status && i < end; i++) {
        m->ids[m->rows] = tokens[i];
        m->labels[m->rows++] = i >= fresh ? tokens[i + 1] : BAUTA_IGNORE;
    }
    m->lengths[m->count++] = end - begin;
    return status;
}

static bauta_status text_measure(meter *m, const uint32_t *tokens, size_t count,
                                 bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t read = count ? count - 1 : 0; // the last token has no successor
    for (size_t begin = 0, fresh = 0; !status && fresh < read;
         begin += m->stride) {
        size_t end = begin + m->window < read ? begin + m->window : read;
        status = window_add(m, tokens, begin, end, fresh, err);
        fresh = end;
    }
    return status;
}

static bauta_status measure(meter *m, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < bauta_corpus_documents(m->corpus); i++) {
        size_t count;
        const uint32_t *tokens =
            bauta_corpus_document(m->corpus, i, &count, NULL, NULL);
        status = text_measure(m, tokens, count, err);
    }
    return status ? status : batch_run(m, err);
}

/* ---- the verb ---------------------------------------------------------- */

static bauta_status meter_load(meter *m, const options *o, bauta_error *err)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_corpus_options texts = BAUTA_CORPUS_OPTIONS_INIT;
    how.threads = (int)o->threads;
    texts.lines = o->lines;
    bauta_status status = bauta_context_create(&m->context, &how, err);
    if (!status)
        status = bauta_model_load(&m->model, o->model, false, err);
    if (!status && o->weights)
        status = bauta_model_pack(m->model, (bauta_dtype)o->weights, err);
    if (!status)
        status = bauta_tokenizer_load(&m->tokenizer, o->model, err);
    if (!status)
        status = bauta_corpus_load(&m->corpus, m->tokenizer, o->files, o->count,
                                   &texts, err);
    return status;
}

static int meter_open(meter *m, const options *o)
{
    bauta_error err;
    if (meter_load(m, o, &err))
        return cli_fail(VERB, "%s", err.message);
    unknown_chars_warn_corpus(VERB, "", m->corpus);
    cli_warn(VERB, bauta_model_warnings(m->model));
    bauta_model_kind kind = bauta_model_kind_of(m->model);
    size_t positions = bauta_model_max_positions(m->model);
    if (kind != BAUTA_DECODER_ONLY)
        return cli_fail(VERB, "%s is %s; perplexity needs a decoder-only model",
                        o->model, bauta_model_kind_text(kind));
    m->window = o->context ? o->context : positions;
    m->stride = o->stride ? o->stride : (m->window + 1) / 2;
    if (m->window > positions || m->stride > m->window)
        return cli_fail(VERB,
                        "a context of %zu and a stride of %zu are invalid: the "
                        "model has %zu positions, and the stride is at most "
                        "the context",
                        m->window, m->stride, positions);
    m->room = m->window > BATCH_TOKENS ? m->window : BATCH_TOKENS;
    m->ids = calloc(m->room, sizeof(*m->ids));
    m->labels = calloc(m->room, sizeof(*m->labels));
    m->lengths = calloc(m->room, sizeof(*m->lengths));
    return m->ids && m->labels && m->lengths ? CLI_OK
                                             : cli_fail(VERB, "out of memory");
}

static void meter_close(meter *m)
{
    free(m->ids);
    free(m->labels);
    free(m->lengths);
    bauta_corpus_free(m->corpus);
    bauta_tokenizer_free(m->tokenizer);
    bauta_model_free(m->model);
    bauta_context_free(m->context);
}

static int result_print(const meter *m, const options *o)
{
    double loss = m->sum / (double)m->predicted;
    double bits = m->sum / log(2.0) / (double)bauta_corpus_bytes(m->corpus);
    if (!o->json) {
        printf("perplexity %.4f  (loss %.4f, %.4f bits per byte)\n"
               "%llu tokens of %zu texts, in windows of %zu with a stride of "
               "%zu\n",
               exp(loss), loss, bits, (unsigned long long)m->predicted,
               bauta_corpus_documents(m->corpus), m->window, m->stride);
        return cli_finish(VERB);
    }
    json_t *all = json_pack(
        "{s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "perplexity",
        json_number(exp(loss)), "loss", json_number(loss), "bits_per_byte",
        json_number(bits), "predicted", (json_int_t)m->predicted, "texts",
        (json_int_t)bauta_corpus_documents(m->corpus), "context",
        (json_int_t)m->window, "stride", (json_int_t)m->stride);
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

static int perplexity(const options *o)
{
    meter m = { .context = NULL };
    bauta_error err;
    int failed = meter_open(&m, o);
    if (!failed && measure(&m, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed && m.predicted == 0)
        failed = cli_fail(VERB, "the texts have nothing to predict");
    if (!failed)
        failed = result_print(&m, o);
    meter_close(&m);
    return failed;
}

int perplexity_main(int argc, char **argv)
{
    options o = { .model = NULL };
    typed = argv[0];
    int failed = options_read(&o, argc, argv);
    if (!failed)
        failed = o.help ? help() : perplexity(&o);
    string_list_release(&o.rest);
    return failed;
}
