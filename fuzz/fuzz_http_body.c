/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http_body.c - any bytes as the body of a request to bauta serve; the
 * first byte chooses the path.
 *
 * A request is refused with a status of the 4xx and an error in the form of the
 * OpenAI API, or it is answered: with a JSON object, or with events that are
 * JSON objects, the last one [DONE]. Tiny models run it. */
#include "checks.h"
#include "temp_folder.h"

#include "server/routes.h"

#include "cli/format.h"

#include <stdio.h>
#include <string.h>

static const char chat[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{{ tools | tojson if tools }}{{ x }}";
static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nmask\nhides\na\n##b\n";

/* A model of each kind; "model" in a body may name another one than that of the
 * path. */
enum { DECODER, ENCODER_DECODER, ENCODER, MODELS };
static const struct {
    const char *alias, *config;
} tiny[MODELS] = {
    { "tiny", "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2, "
              "\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 1, "
              "\"vocab_size\": 257, \"n_positions\": 32}" },
    { "pair", "{\"model_type\": \"bart\", \"d_model\": 8, "
              "\"encoder_layers\": 1, \"decoder_layers\": 1, "
              "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "
              "\"encoder_ffn_dim\": 8, \"decoder_ffn_dim\": 8, "
              "\"vocab_size\": 257, \"max_position_embeddings\": 32, "
              "\"decoder_start_token_id\": 256, \"eos_token_id\": 256, "
              "\"bos_token_id\": 0, \"pad_token_id\": 1}" },
    { "bert", "{\"model_type\": \"bert\", \"hidden_size\": 8, "
              "\"architectures\": [\"BertForMaskedLM\"], "
              "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
              "\"intermediate_size\": 8, \"vocab_size\": 10, "
              "\"max_position_embeddings\": 32}" },
};

/* A digit as the first byte of an input is the index of its path. */
static const struct {
    const char *path;
    size_t model;
} paths[] = {
    { "/v1/completions", DECODER }, { "/v1/chat/completions", DECODER },
    { "/v1/embeddings", DECODER },  { "/tokenize", DECODER },
    { "/detokenize", DECODER },     { "/translate", ENCODER_DECODER },
    { "/fill", ENCODER },           { "/attention", DECODER },
};
enum { PATHS = sizeof(paths) / sizeof(paths[0]) };
_Static_assert('0' % PATHS == 0, "a digit is the index of a path");

static const server_options options = { .parallel = 4,
                                        .queue = 8,
                                        .timeout = 600 };
static opened_model opened[MODELS];
static served_model models[MODELS];
static server all = { .options = &options,
                      .models = models,
                      .model_count = MODELS };

static void models_close(void)
{
    for (size_t i = 0; i < MODELS; i++) {
        served_model_close(&models[i]);
        bauta_tokenizer_free(opened[i].tokenizer);
        bauta_model_free(opened[i].model);
        bauta_context_free(opened[i].context);
    }
}

static void models_open(void)
{
    bauta_options how = BAUTA_OPTIONS_INIT;
    how.threads = 1;
    temp_folder_put("chat_template.jinja", chat, sizeof(chat) - 1);
    temp_folder_put("vocab.txt", vocab, sizeof(vocab) - 1);
    for (size_t i = 0; i < MODELS; i++) {
        opened_model *m = &opened[i];
        m->verb = "serve";
        m->folder = temp_folder_root;
        must(!bauta_context_create(&m->context, &how, NULL));
        must(!bauta_model_create(&m->model, tiny[i].config, 1, NULL));
        must(!(i == ENCODER
                   ? bauta_tokenizer_load(&m->tokenizer,
                                          temp_folder_path("vocab.txt"), NULL)
                   : bauta_tokenizer_bytes(&m->tokenizer, NULL)));
        must(!served_model_open(&models[i], &options, m, tiny[i].alias));
    }
    must(atexit(models_close) == 0);
}

/* ---- answers ----------------------------------------------------------- */

static void object_check(const char *text, size_t length, const char *member)
{
    json_t *object = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
    must(json_is_object(object));
    must(!member || json_object_get(object, member));
    json_decref(object);
}

static void failure_check(const failure *f)
{
    must((f->status >= 400 && f->status < 500) || f->status == 503);
    must(f->message[0]);
    char *text = failure_json(f);
    must(text != NULL);
    object_check(text, strlen(text), "error");
    free(text);
}

static void events_check(const char *text)
{
    static const char done[] = "data: [DONE]\n\n";
    while (*text && strcmp(text, done) != 0) {
        const char *end = strstr(text, "\n\n");
        must(end && strncmp(text, "data: ", 6) == 0);
        object_check(text + 6, (size_t)(end - text) - 6, NULL);
        text = end + 2;
    }
}

static void job_check(served_model *m, job *j)
{
    failure f = { 0 };
    bool done = false;
    j->deadline = seconds_now() + 600;
    must(scheduler_submit(m->scheduler, j, &f));
    while (!done) {
        pthread_mutex_lock(&j->lock);
        done = j->done;
        pthread_mutex_unlock(&j->lock);
        if (!done)
            usleep(20);
    }
    must(!j->out.failed && j->out.length);
    if (j->status != 200)
        must(j->status == 400);
    if (j->status == 200 && j->stream)
        events_check(j->out.at);
    else
        object_check(j->out.at, j->out.length,
                     j->status == 200 ? NULL : "error");
}

/* As the server does: the body names a model, or the path has its own. */
static served_model *model_find(size_t path, const json_t *body, failure *f)
{
    const char *name = tiny[paths[path].model].alias;
    return field_string(body, "model", &name, f)
               ? served_model_find(models, MODELS, name, f)
               : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    failure f = { 0 };
    reply r = { .status = 200 };
    const char *name, *allow;
    if (temp_folder_make())
        models_open();
    if (!size)
        return 0;
    size_t path = bytes[0] % PATHS;
    const route *to = route_find(paths[path].path, "POST", &name, &allow, &f);
    must(to != NULL);
    json_t *body = body_parse((const char *)bytes + 1, size - 1, &f);
    const api_request q = { &all, body ? model_find(path, body, &f) : NULL,
                            body };
    if (!q.model || !to->answer(&q, &r, &f))
        failure_check(&f);
    else if (r.job)
        job_check(q.model, r.job);
    else
        object_check(r.text.at, r.text.length, NULL);
    if (r.job)
        job_release(r.job);
    buffer_release(&r.text);
    json_decref(body);
    return 0;
}
