/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c - bauta serve: the command line of the server. */
#include "../server/server.h"
#include "cli.h"
#include "opened_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "serve"

typedef struct settings {
    string_list rest;
    string_list key_files;
    model_options model;
    server_options server;
    bool help;
} settings;

static const char help_text[] =
    "usage: bauta serve MODEL... [options]\n"
    "\n"
    "Serve models over HTTP, with the OpenAI API: /v1/completions,\n"
    "/v1/chat/completions, /v1/embeddings, /v1/models; and /tokenize,\n"
    "/detokenize, /translate, /fill, /attention, /health, /props and /metrics\n"
    "(Prometheus). The page at / shows what they do. The field model of a\n"
    "request chooses a model; without it, it is the first. An answer\n"
    "does not depend on other requests: it is bit-identical to that of a\n"
    "request alone, and to 'bauta generate' with the same options. SIGTERM\n"
    "and Ctrl-C refuse new requests, finish the accepted ones and exit with\n"
    "status 0.\n"
    "\n"
    "options\n"
    "  -m, --model DIR      MODEL, as an option\n"
    "  --alias NAME         the model's name in requests and answers "
    "(default:\n"
    "                       the name of its folder); repeated for several\n"
    "                       models, in their order\n"
    "  --host ADDRESS       address to listen on (default 127.0.0.1, which no\n"
    "                       other machine can reach)\n"
    "  --port N             port (default 8080); 0: a free one, which is\n"
    "                       printed\n"
    "  --api-key KEY        accept requests with this key only; may be\n"
    "                       repeated\n"
    "  --api-key-file FILE  the same for each line of FILE, out of sight of\n"
    "                       other users\n"
    "  --cors-origin URL    let pages of this origin use the server; * lets\n"
    "                       all pages (default: none)\n"
    "  --ssl-cert-file FILE, --ssl-key-file FILE\n"
    "                       certificate and key in PEM: serve HTTPS, with the\n"
    "                       TLS of libmicrohttpd\n"
    "  --parallel N         sequences of a model that run together (default\n"
    "                       32)\n"
    "  --queue N            requests for a model that wait; more are refused\n"
    "                       with status 429 (default 512)\n"
    "  --connections N      open connections (default 4096)\n"
    "  --max-body N         bytes of a request (default 4194304)\n"
    "  --max-prompt N       tokens of a prompt (default: the model's context)\n"
    "  --timeout N          seconds for a request to arrive, and as many for\n"
    "                       its answer (default 600)\n"
    "  --cache-mb N         limit of each KV cache in MiB; 0: none (default)\n"
    "  --tokenizer T        folder or file, if MODEL has none\n"
    "  --device D           cpu (default), cuda or cuda:N: the GPU with this\n"
    "                       number\n"
    "  --dtype T            compute in float32 (default), or on a GPU in\n"
    "                       bfloat16\n"
    "  --weights W          on the CPU: store matrices as float32 (default),\n"
    "                       bfloat16 or int8; smaller is faster\n"
    "  --threads N          0: one per core (default); does not change "
    "results\n"
    "  --quiet              nothing on standard error but errors\n"
    "  --                   no options follow\n"
    "  --help               print this text\n"
    "\n"
    "examples\n"
    "  bauta serve models/gpt2\n"
    "  bauta serve models/gpt2 --port 8000 --api-key secret --alias mine\n"
    "  bauta serve models/bert --threads 1 # /v1/embeddings\n"
    "  bauta serve models/gpt2 models/bert --alias write --alias embed\n";

static int settings_read(settings *s, int argc, char **argv)
{
    server_options *o = &s->server;
    const option table[] = {
        { "--alias", OPTION_STRINGS, &o->aliases, NULL, 0, 0, NULL },
        { "--host", OPTION_STRING, &o->host, NULL, 0, 0, NULL },
        { "--port", OPTION_SIZE, &o->port, NULL, 0, 65535, NULL },
        { "--api-key", OPTION_STRINGS, &o->api_keys, NULL, 0, 0, NULL },
        { "--api-key-file", OPTION_STRINGS, &s->key_files, NULL, 0, 0, NULL },
        { "--cors-origin", OPTION_STRING, &o->cors_origin, NULL, 0, 0, NULL },
        { "--ssl-cert-file", OPTION_STRING, &o->ssl_cert_file, NULL, 0, 0,
          NULL },
        { "--ssl-key-file", OPTION_STRING, &o->ssl_key_file, NULL, 0, 0, NULL },
        { "--parallel", OPTION_SIZE, &o->parallel, NULL, 1, 65536, NULL },
        { "--queue", OPTION_SIZE, &o->queue, NULL, 1, 65536, NULL },
        { "--connections", OPTION_SIZE, &o->connections, NULL, 1, 65536, NULL },
        { "--max-body", OPTION_SIZE, &o->max_body, NULL, 64, 1 << 30, NULL },
        { "--max-prompt", OPTION_SIZE, &o->max_prompt, NULL, 1, 1 << 30, NULL },
        { "--timeout", OPTION_SIZE, &o->timeout, NULL, 1, 86400, NULL },
        { "--cache-mb", OPTION_SIZE, &o->cache_mb, NULL, 0, 1 << 30, NULL },
        { "--quiet", OPTION_FLAG, &o->quiet, NULL, 0, 0, NULL },
        { "--tokenizer", OPTION_STRING, &s->model.tokenizer, NULL, 0, 0, NULL },
        { "--weights", OPTION_CHOICE, &s->model.weights, NULL, 0, 0,
          weight_formats },
        DEVICE_OPTIONS(&s->model.device),
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &s->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    if (usage || s->help)
        return usage;
    if (s->rest.count == 0)
        return cli_usage(VERB, "the model's folder is missing");
    if (s->rest.count > 1 && s->model.tokenizer)
        return cli_usage(VERB, "--tokenizer is for one model");
    if (o->aliases.count > s->rest.count)
        return cli_usage(VERB, "more names (--alias) than models");
    if (!o->ssl_cert_file != !o->ssl_key_file)
        return cli_usage(VERB, "--ssl-cert-file and --ssl-key-file need each "
                               "other");
    for (size_t i = 0; i < o->api_keys.count; i++)
        if (!*o->api_keys.at[i])
            return cli_usage(VERB, "--api-key is empty");
    return device_check(VERB, &s->model.device);
}

/* ---- API keys ---------------------------------------------------------- */

/* Copies of the lines of key files, which the list of keys points to. */
static int keys_read(string_list *keys, string_list *copies, const char *path)
{
    bauta_text_file *file = NULL;
    const char *line;
    size_t before = keys->count;
    bauta_error err;
    int failed = CLI_OK;
    if (bauta_text_file_open(&file, path, &err))
        return cli_fail(VERB, "%s", err.message);
    for (;;) {
        if (bauta_text_file_line(file, &line, NULL, &err))
            failed = cli_fail(VERB, "%s", err.message);
        if (failed || !line)
            break;
        if (!*line)
            continue;
        char *copy = strdup(line);
        failed = copy ? string_list_add(VERB, copies, copy)
                      : cli_fail(VERB, "out of memory");
        if (failed)
            free(copy);
        else
            failed = string_list_add(VERB, keys, copy);
    }
    bauta_text_file_free(file);
    if (!failed && keys->count == before)
        failed = cli_fail(VERB, "%s: there is no key in it", path);
    return failed;
}

/* ---- the verb ---------------------------------------------------------- */

/* On the CPU decoding has a layout of its own for float32, too. */
static int model_prepare(opened_model *m)
{
    bauta_error err;
    bool decodes = bauta_model_kind_of(m->model) == BAUTA_DECODER_ONLY;
    if (decodes && !m->options->weights && device_is_cpu(&m->options->device) &&
        bauta_model_pack(m->model, BAUTA_FLOAT32, &err))
        return cli_fail(VERB, "%s", err.message);
    return CLI_OK;
}

static void settings_print(const settings *s, const opened_model *m)
{
    fprintf(stderr, "%s: %s, %zu in parallel; ", m->folder,
            bauta_model_kind_text(bauta_model_kind_of(m->model)),
            s->server.parallel);
    if (device_is_cpu(&s->model.device))
        fprintf(stderr, "%s, ", weight_formats[bauta_model_dtype(m->model)]);
    device_print(&s->model.device, m->context);
    fprintf(stderr, "%s\n",
            s->server.api_keys.count ? "" : "; no API key is needed");
}

static int serve_models(const settings *s)
{
    size_t count = 0;
    opened_model *models = calloc(s->rest.count, sizeof(*models));
    int failed = models ? CLI_OK : cli_fail(VERB, "out of memory");
    while (!failed && count < s->rest.count) {
        opened_model *m = &models[count];
        failed = opened_model_open(m, VERB, s->rest.at[count++], &s->model,
                                   MODEL_KIND_ANY);
        if (!failed)
            failed = model_prepare(m);
        if (!failed && !s->server.quiet)
            settings_print(s, m);
    }
    if (!failed)
        failed = server_run(&s->server, models, count);
    for (size_t i = 0; i < count; i++)
        opened_model_close(&models[i]);
    free(models);
    return failed;
}

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

int serve_main(int argc, char **argv)
{
    settings s = { .server = { .host = "127.0.0.1",
                               .port = 8080,
                               .parallel = 32,
                               .queue = 512,
                               .connections = 4096,
                               .max_body = 4 << 20,
                               .timeout = 600 } };
    string_list copies = { 0 };
    int failed = settings_read(&s, argc, argv);
    for (size_t i = 0; !failed && !s.help && i < s.key_files.count; i++)
        failed = keys_read(&s.server.api_keys, &copies, s.key_files.at[i]);
    if (!failed)
        failed = s.help ? help() : serve_models(&s);
    for (size_t i = 0; i < copies.count; i++)
        free((void *)(uintptr_t)copies.at[i]);
    string_list_release(&copies);
    string_list_release(&s.key_files);
    string_list_release(&s.server.api_keys);
    string_list_release(&s.server.aliases);
    string_list_release(&s.rest);
    return failed;
}
