/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_audit.c - bauta audit: check the guarantees on a model. */
#include "cli.h"
#include "device_options.h"
#include "json_output.h"
#include "options.h"

#include <bauta.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "audit"

enum { TOKENS_DEFAULT = 96, TOKENS_MAX = 1024, SEQUENCES = 3 };

typedef struct options {
    string_list rest;
    const char *folder, *text, *mask, *series;
    size_t tokens, seed;
    device_options device;
    bool json, help;
} options;

/* ---- the command line -------------------------------------------------- */

static const char help_text[] =
    "usage: bauta audit DIR [--text FILE] [--mask EXPR] [options]\n"
    "\n"
    "Check the guarantees of bauta on the model in DIR: no layer sees what "
    "the\n"
    "masks hide, forward or backward; incremental decoding equals the "
    "parallel\n"
    "pass; batch composition, padding, threads and instruction sets change no\n"
    "bit. A fault is reported with its layer, head, query and key. Of a model\n"
    "of series also: no value of the future reaches a forecast.\n"
    "\n"
    "options\n"
    "  -m, --model DIR  DIR, as an option\n"
    "  --text FILE      read FILE instead of random tokens\n"
    "  --mask EXPR      add a mask, such as 'window(8) | sinks(2)'\n"
    "  --series FILE    for a model of series: the table whose later values "
    "are\n"
    "                   changed, instead of a generated one\n"
    "  --tokens N       number of tokens, 3 to 1024 (default 96)\n"
    "  --seed N         of random tokens and changes (default 1)\n"
    "  --device D       cpu (default), cuda or cuda:N: the GPU with this\n"
    "                   number\n"
    "  --dtype T        compute in float32 (default), or on a GPU in bfloat16\n"
    "  --threads N      0: one per core (default)\n"
    "  --isa SET        c, avx2 or avx512\n"
    "  --json           print one JSON object\n"
    "  --help           print this text\n"
    "\n"
    "The exit status is 0 if no fault was found, 1 if one was, 2 if the "
    "command\n"
    "line is invalid.\n"
    "\n"
    "examples\n"
    "  bauta audit models/gpt2\n"
    "  bauta audit models/mistral --mask 'window(3)' --json\n"
    "  bauta audit models/gpt2 --device cpu # or cuda\n"
    "  bauta audit runs/shakespeare/best --text valid.txt && echo sound\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

static int options_read(options *o, int argc, char **argv)
{
    const option table[] = {
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--text", OPTION_STRING, &o->text, NULL, 0, 0, NULL },
        { "--mask", OPTION_STRING, &o->mask, NULL, 0, 0, NULL },
        { "--series", OPTION_STRING, &o->series, NULL, 0, 0, NULL },
        { "--tokens", OPTION_SIZE, &o->tokens, NULL, SEQUENCES, TOKENS_MAX,
          NULL },
        { "--seed", OPTION_SIZE, &o->seed, NULL, 0, INT32_MAX, NULL },
        DEVICE_OPTIONS(&o->device),
        { "--isa", OPTION_STRING, &o->device.isa, NULL, 0, 0, cli_isas },
        { "--json", OPTION_FLAG, &o->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &o->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &o->rest);
    if (usage || o->help)
        return usage;
    if (o->rest.count == 0)
        return cli_usage(VERB, "the folder is missing");
    if (o->rest.count > 1)
        return cli_usage(VERB, "more than one folder: '%s' and '%s'",
                         o->rest.at[0], o->rest.at[1]);
    o->folder = o->rest.at[0];
    return CLI_OK;
}

/* ---- the input --------------------------------------------------------- */

/* Three sequences: one that crosses a block boundary of the keys, if the model
 * has enough positions, and two shorter ones. */
typedef struct audit_input {
    size_t lengths[SEQUENCES], rows;
    uint32_t ids[TOKENS_MAX];
    bauta_mask *mask;
    bauta_batch batch;
} audit_input;

static void lengths_set(audit_input *r, size_t tokens, size_t most,
                        size_t rotation)
{
    const size_t shares[SEQUENCES] = { tokens * 7 / 10, tokens * 2 / 10,
                                       tokens };
    r->rows = 0;
    for (size_t s = 0; s < SEQUENCES; s++) {
        size_t length = shares[s];
        if (s == 2)
            length = tokens - shares[0] - shares[1];
        size_t at = (s + rotation) % SEQUENCES;
        r->lengths[at] = length == 0 ? 1 : length > most ? most : length;
    }
    for (size_t s = 0; s < SEQUENCES; s++)
        r->rows += r->lengths[s];
}

static void ids_random(audit_input *r, size_t vocabulary, uint64_t seed)
{
    uint64_t state = seed * 2862933555777941757u + 3037000493u;
    for (size_t i = 0; i < r->rows; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        r->ids[i] = (uint32_t)((state >> 33) % vocabulary);
    }
}

/* The tokens of a text, repeated until all rows have one. */
static int ids_read(audit_input *r, const options *o, size_t vocabulary)
{
    bauta_error err;
    bauta_tokenizer *tokenizer = NULL;
    bauta_corpus *corpus = NULL;
    int failed = CLI_OK;
    size_t count = 0;
    if (bauta_tokenizer_load(&tokenizer, o->folder, &err) ||
        bauta_corpus_load(&corpus, tokenizer, &o->text, 1, NULL, &err))
        failed = cli_fail(VERB, "%s", err.message);
    const uint32_t *ids = NULL;
    if (!failed && bauta_corpus_documents(corpus))
        ids = bauta_corpus_document(corpus, 0, &count, NULL, NULL);
    if (!failed && !count)
        failed = cli_fail(VERB, "%s: there is no text in it", o->text);
    for (size_t i = 0; !failed && i < r->rows; i++) {
        r->ids[i] = ids[i % count];
        if (r->ids[i] >= vocabulary)
            failed = cli_fail(VERB,
                              "the tokenizer yields token %u, but the model "
                              "has only %zu",
                              (unsigned)r->ids[i], vocabulary);
    }
    bauta_corpus_free(corpus);
    bauta_tokenizer_free(tokenizer);
    return failed;
}

static int audit_input_init(audit_input *r, const options *o,
                            const bauta_model *model, size_t rotation)
{
    size_t vocabulary = bauta_model_vocab_size(model);
    bauta_error err;
    lengths_set(r, o->tokens, bauta_model_max_positions(model), rotation);
    int failed = CLI_OK;
    if (o->text)
        failed = ids_read(r, o, vocabulary);
    else
        ids_random(r, vocabulary, o->seed + rotation);
    if (!failed && o->mask &&
        bauta_mask_parse(&r->mask, o->mask, r->rows, r->rows, &err))
        failed = cli_usage(VERB, "--mask: %s", err.message);
    r->batch = (bauta_batch)BAUTA_BATCH_INIT;
    r->batch.count = SEQUENCES;
    r->batch.lengths = r->lengths;
    r->batch.ids = r->ids;
    r->batch.mask = r->mask;
    return failed;
}

/* ---- models of series -------------------------------------------------- */

/* Whether values of the future reach a forecast. */
typedef struct future_check {
    bool done, leaks;
    char message[256];
} future_check;

static int future_run(future_check *f, const options *o, bauta_context *context,
                      const bauta_model *model)
{
    bauta_series_codec *codec = NULL;
    bauta_series *series = NULL;
    bauta_error err;
    bauta_status status = bauta_series_codec_load(&codec, o->folder, &err);
    if (status == BAUTA_ERR_UNSUPPORTED)
        return o->series ? cli_fail(VERB, "%s", err.message) : CLI_OK;
    if (!status && o->series)
        status = bauta_series_load(&series, o->series, NULL, &err);
    if (!status)
        status =
            bauta_series_audit(context, model, codec, series, o->seed,
                               &f->leaks, f->message, sizeof(f->message), &err);
    f->done = !status;
    bauta_series_free(series);
    bauta_series_codec_free(codec);
    return status ? cli_fail(VERB, "%s", err.message) : CLI_OK;
}

/* ---- the result -------------------------------------------------------- */

static int text_print(const bauta_audit *audit, const future_check *future,
                      const options *o)
{
    static const char *const verdicts[] = { "ok", "FAILED", "-" };
    double seconds = 0.0;
    size_t faults = 0;
    for (size_t i = 0; i < bauta_audit_findings(audit); i++) {
        const bauta_finding *f = bauta_audit_finding(audit, i);
        printf("%-11s %-6s %s\n", bauta_check_name(f->check),
               verdicts[f->verdict], f->message);
        seconds += f->seconds;
        faults += f->verdict == BAUTA_FAILED;
    }
    if (future->done)
        printf("%-11s %-6s %s\n", "future", verdicts[future->leaks],
               future->message);
    faults += future->leaks;
    printf("%s: ", o->folder);
    if (faults)
        printf("%zu of %zu checks failed", faults,
               bauta_audit_findings(audit) + future->done);
    else
        printf("all checks passed");
    printf(", in %.1f s\n", seconds);
    return cli_finish(VERB);
}

static int json_print(const bauta_audit *audit, const future_check *future,
                      const options *o)
{
    size_t length = bauta_audit_json(audit, NULL, 0);
    char *text = malloc(length + 1);
    json_t *all = NULL;
    if (text) {
        bauta_audit_json(audit, text, length + 1);
        all = json_loads(text, 0, NULL);
    }
    free(text);
    json_t *folder = json_string(o->folder);
    if (!all ||
        json_object_set_new(all, "folder", folder ? folder : json_null())) {
        json_decref(all);
        return cli_fail(VERB, "out of memory");
    }
    if (future->done)
        json_object_set_new(all, "future",
                            json_pack("{s:b,s:s}", "passed", !future->leaks,
                                      "message", future->message));
    if (future->leaks)
        json_object_set_new(all, "passed", json_false());
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

/* ---- the verb ---------------------------------------------------------- */

static int audit_run(const options *o, bauta_context *context,
                     const bauta_model *model)
{
    static audit_input source, target;
    bauta_error err;
    bauta_audit *audit = NULL;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    future_check future = { 0 };
    bauta_model_kind kind = bauta_model_kind_of(model);
    int failed = CLI_OK;
    how.seed = o->seed;
    if (kind != BAUTA_DECODER_ONLY)
        failed = audit_input_init(&source, o, model, 1);
    if (!failed && kind != BAUTA_ENCODER_ONLY)
        failed = audit_input_init(&target, o, model, 0);
    if (!failed &&
        bauta_audit_create(&audit, context, model,
                           kind != BAUTA_DECODER_ONLY ? &source.batch : NULL,
                           kind != BAUTA_ENCODER_ONLY ? &target.batch : NULL,
                           &how, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed)
        failed = future_run(&future, o, context, model);
    if (!failed)
        failed = o->json ? json_print(audit, &future, o)
                         : text_print(audit, &future, o);
    if (!failed && (!bauta_audit_passed(audit) || future.leaks))
        failed = CLI_FAILED;
    bauta_audit_free(audit);
    bauta_mask_free(source.mask);
    bauta_mask_free(target.mask);
    return failed;
}

static int audit(const options *o)
{
    bauta_error err;
    bauta_context *context = NULL;
    bauta_model *model = NULL;
    int failed = device_open(&context, VERB, &o->device);
    if (!failed && bauta_model_load_to(&model, o->folder, context, &err))
        failed = cli_fail(VERB, "%s", err.message);
    if (!failed) {
        cli_warn(VERB, bauta_model_warnings(model));
        failed = audit_run(o, context, model);
    }
    bauta_model_free(model);
    bauta_context_free(context);
    return failed;
}

int audit_main(int argc, char **argv)
{
    options o = { .tokens = TOKENS_DEFAULT, .seed = 1 };
    int failed = options_read(&o, argc, argv);
    if (!failed)
        failed = o.help ? help() : audit(&o);
    string_list_release(&o.rest);
    return failed;
}
