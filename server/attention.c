/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - /attention: weights of a layer, and the mask.
 *
 * The model reads the text in one pass, as it would token by token. A hidden
 * pair has a weight of exactly 0 and a visible one never has, so the mask is
 * read off the weights. */
#include "scheduler.h"
#include "state.h"

#include "../cli/json_output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_MAX = 1 << 17 };

static const char *const kind_names[] = { "encoder", "decoder", "cross" };
enum { KINDS = sizeof(kind_names) / sizeof(kind_names[0]) };

typedef struct attention_job {
    job job; /* first */
    served_model *model;
    token_ids source, target; /* of the encoder and of the decoder */
    bauta_attention_kind kind;
    size_t layer;
    size_t head, heads; /* the first one, and how many */
    size_t first, rows; /* queries */
    size_t keys;
    float *weights; /* (heads, rows, keys) */
} attention_job;

static bool out_of_memory(failure *f)
{
    return fail(f, 503, NULL, NULL, "out of memory");
}

static size_t layers_of(const bauta_model *model, bauta_attention_kind kind)
{
    return kind == BAUTA_ATTENTION_ENCODER ? bauta_model_encoder_layers(model)
                                           : bauta_model_decoder_layers(model);
}

static const token_ids *queries_of(const attention_job *a)
{
    return a->kind == BAUTA_ATTENTION_ENCODER ? &a->source : &a->target;
}

static const token_ids *keys_of(const attention_job *a)
{
    return a->kind == BAUTA_ATTENTION_DECODER ? &a->target : &a->source;
}

/* ---- running ----------------------------------------------------------- */

static bauta_batch batch_of(const token_ids *tokens)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = 1;
    batch.lengths = &tokens->count;
    batch.ids = tokens->at;
    return batch;
}

static bauta_status weights_compute(attention_job *a, bauta_error *err)
{
    const opened_model *m = a->model->opened;
    bauta_batch source = batch_of(&a->source), target = batch_of(&a->target);
    bauta_attention_weights *requests = calloc(a->heads, sizeof(*requests));
    if (!requests)
        return BAUTA_ERR_NOMEM;
    for (size_t i = 0; i < a->heads; i++) {
        requests[i] = (bauta_attention_weights)BAUTA_ATTENTION_WEIGHTS_INIT;
        requests[i].attention = a->kind;
        requests[i].layer = a->layer;
        requests[i].head = a->head + i;
        requests[i].first = a->first;
        requests[i].rows = a->rows;
        requests[i].weights = a->weights + i * a->rows * a->keys;
    }
    bauta_status status = bauta_model_attention_weights(
        m->context, m->model, a->source.count ? &source : NULL,
        a->target.count ? &target : NULL, NULL, requests, a->heads, err);
    free(requests);
    return status;
}

static bool attention_start(job *j, scheduler *s)
{
    attention_job *a = (attention_job *)j;
    bauta_error err = { BAUTA_ERR_NOMEM, "out of memory" };
    bauta_status status = weights_compute(a, &err);
    size_t count = a->heads * a->rows * a->keys;
    (void)s;
    if (status)
        fail(&j->failed, status == BAUTA_ERR_NOMEM ? 503 : 500, NULL, NULL,
             "%s", err.message);
    for (size_t i = 0; !j->failed.status && i < count; i++)
        if (!isfinite(a->weights[i]))
            fail(&j->failed, 500, NULL, "not_finite",
                 "the weights are not finite numbers");
    return true;
}

/* ---- answering --------------------------------------------------------- */

static json_t *labels_json(const attention_job *a, const token_ids *tokens,
                           size_t first, size_t count)
{
    json_t *list = json_array();
    for (size_t i = first; i < first + count; i++)
        json_array_append_new(
            list, token_json(a->model->opened->tokenizer, tokens->at[i]));
    return list;
}

/* The visible keys of each query, as ranges [from, to). */
static json_t *mask_json(const attention_job *a)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < a->rows; i++) {
        const float *row = a->weights + i * a->keys;
        json_t *spans = json_array();
        for (size_t from = 0, to; from < a->keys; from = to + 1) {
            for (to = from; to < a->keys && row[to] != 0.0f;)
                to++;
            if (to > from)
                json_array_append_new(
                    spans,
                    json_pack("[I, I]", (json_int_t)from, (json_int_t)to));
        }
        json_array_append_new(rows, spans);
    }
    return rows;
}

static json_t *weights_json(const attention_job *a)
{
    json_t *heads = json_array();
    for (size_t h = 0; h < a->heads; h++) {
        json_t *rows = json_array();
        for (size_t i = 0; i < a->rows; i++)
            json_array_append_new(
                rows,
                json_floats(a->weights + (h * a->rows + i) * a->keys, a->keys));
        json_array_append_new(heads, rows);
    }
    return heads;
}

/* Every attention that the model has. */
static json_t *available_json(const bauta_model *model)
{
    json_t *list = json_array();
    for (size_t k = 0; k < KINDS; k++) {
        bauta_attention_kind kind = (bauta_attention_kind)k;
        size_t heads = bauta_model_heads(model, kind);
        if (heads)
            json_array_append_new(
                list, json_pack("{s:s, s:I, s:I}", "attention", kind_names[k],
                                "layers", (json_int_t)layers_of(model, kind),
                                "heads", (json_int_t)heads));
    }
    return list;
}

static void attention_end(job *j, scheduler *s)
{
    attention_job *a = (attention_job *)j;
    json_t *heads = json_array();
    (void)s;
    for (size_t i = 0; i < a->heads; i++)
        json_array_append_new(heads, json_integer((json_int_t)(a->head + i)));
    json_t *answer = json_pack(
        "{s:s, s:s, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:i}", "model",
        a->model->alias, "attention", kind_names[a->kind], "layer",
        (json_int_t)a->layer, "heads", heads, "first", (json_int_t)a->first,
        "queries", labels_json(a, queries_of(a), a->first, a->rows), "keys",
        labels_json(a, keys_of(a), 0, a->keys), "mask", mask_json(a), "weights",
        weights_json(a), "available", available_json(a->model->opened->model),
        "max_weights", WEIGHTS_MAX);
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(answer);
    metrics_add(&a->model->metrics, METRICS_PROMPT_TOKENS,
                a->source.count + a->target.count);
    job_write(j, 200, "application/json", text, text ? strlen(text) : 0);
    free(text);
}

static void attention_free(job *j)
{
    attention_job *a = (attention_job *)j;
    free(a->source.at);
    free(a->target.at);
    free(a->weights);
    free(a);
}

static const job_calls attention_calls = { .start = attention_start,
                                           .immediate = true,
                                           .end = attention_end,
                                           .free = attention_free };

/* ---- the text ---------------------------------------------------------- */

/* A prompt and the text that follows it, or a conversation and the answer so
 * far: what a decoder has read. */
static bool decoder_read(attention_job *a, const json_t *body, const char *text,
                         failure *f)
{
    const json_t *prompt = field(body, "prompt");
    bool chat = field(body, "messages") != NULL;
    buffer whole = { 0 };
    if (!chat && !json_is_string(prompt))
        return fail(f, 400, "prompt", NULL,
                    "prompt must be a string or an array of token ids, unless "
                    "there are messages");
    if (!chat)
        buffer_add(&whole, json_string_value(prompt),
                   json_string_length(prompt));
    bool good = !chat || chat_render(a->model->chat, body, &whole, f);
    buffer_add(&whole, text, strlen(text));
    if (good && whole.failed)
        good = out_of_memory(f);
    if (good)
        good =
            prompt_encode(a->model, whole.at ? whole.at : "", whole.length,
                          !chat, chat ? "messages" : "prompt", &a->target, f);
    buffer_release(&whole);
    return good;
}

/* The decoder's start token, and the target so far. */
static bool target_read(attention_job *a, const char *text, failure *f)
{
    const opened_model *m = a->model->opened;
    bauta_encode_options how = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens;
    bauta_error err;
    uint32_t start = a->model->defaults.decoder_start_token_id;
    how.no_special_tokens = how.target = true;
    if (start == BAUTA_NO_TOKEN)
        return fail(f, 400, "model", "unsupported",
                    "'%s' has no decoder_start_token_id", a->model->alias);
    if (bauta_tokenizer_encode(m->tokenizer, text, strlen(text), &how, &tokens,
                               &err))
        return fail(f, 400, "text", NULL, "%s", err.message);
    a->target.at = calloc(tokens.count + 1, sizeof(*a->target.at));
    if (a->target.at) {
        a->target.at[0] = start;
        if (tokens.count)
            memcpy(a->target.at + 1, tokens.ids,
                   tokens.count * sizeof(*a->target.at));
        a->target.count = tokens.count + 1;
    }
    bauta_tokens_release(&tokens);
    return a->target.at || out_of_memory(f);
}

/* The encoder's text. */
static bool source_read(attention_job *a, const json_t *body, failure *f)
{
    const json_t *prompt = field(body, "prompt");
    if (!json_is_string(prompt))
        return fail(f, 400, "prompt", NULL,
                    "prompt must be a string or an array of token ids");
    return blanks_encode(a->model, json_string_value(prompt),
                         json_string_length(prompt), "prompt", &a->source, f);
}

static bool ids_take(const attention_job *a, const json_t *prompt,
                     token_ids *out, failure *f)
{
    out->at = ids_read(prompt, "prompt",
                       bauta_model_vocab_size(a->model->opened->model),
                       &out->count, f);
    if (out->at && !out->count)
        return fail(f, 400, "prompt", NULL, "prompt has no tokens");
    return out->at != NULL;
}

static bool text_read(attention_job *a, const json_t *body, failure *f)
{
    bauta_model_kind kind = bauta_model_kind_of(a->model->opened->model);
    const json_t *prompt = field(body, "prompt");
    const char *text = "";
    bool good;
    if (!field_string(body, "text", &text, f))
        return false;
    if (kind != BAUTA_ENCODER_DECODER && *text && json_is_array(prompt))
        return fail(f, 400, "text", NULL, "text follows a prompt in words");
    if (kind == BAUTA_ENCODER_ONLY && *text)
        return fail(f, 400, "text", NULL, "text is for models that write");
    if (json_is_array(prompt))
        good = ids_take(
            a, prompt, kind == BAUTA_DECODER_ONLY ? &a->target : &a->source, f);
    else if (kind == BAUTA_DECODER_ONLY)
        good = decoder_read(a, body, text, f);
    else
        good = source_read(a, body, f);
    if (good && kind == BAUTA_ENCODER_DECODER)
        good = target_read(a, text, f);
    return good && prompt_check(a->model, a->source.count, "prompt", f) &&
           prompt_check(a->model, a->target.count, "prompt", f);
}

/* ---- the choice -------------------------------------------------------- */

static bool kind_read(attention_job *a, const json_t *body, failure *f)
{
    const bauta_model *model = a->model->opened->model;
    bauta_model_kind is = bauta_model_kind_of(model);
    const char *name = is == BAUTA_DECODER_ONLY   ? "decoder"
                       : is == BAUTA_ENCODER_ONLY ? "encoder"
                                                  : "cross";
    if (!field_string(body, "attention", &name, f))
        return false;
    for (size_t k = 0; k < KINDS; k++)
        if (strcmp(name, kind_names[k]) == 0) {
            a->kind = (bauta_attention_kind)k;
            if (bauta_model_heads(model, a->kind))
                return true;
            return fail(f, 400, "attention", "unsupported",
                        "'%s' is %s; it has no %s attention", a->model->alias,
                        bauta_model_kind_text(is), name);
        }
    return fail(f, 400, "attention", NULL,
                "attention must be encoder, decoder or cross");
}

/* A layer, one head or all of them, and the last rows: as many as are asked
 * for, or else as many as the limit allows. */
static bool part_read(attention_job *a, const json_t *body, failure *f)
{
    const bauta_model *model = a->model->opened->model;
    size_t layers = layers_of(model, a->kind);
    size_t heads = bauta_model_heads(model, a->kind);
    size_t all = queries_of(a)->count, asked = all;
    bool one = false, has_rows = false;
    a->layer = layers - 1;
    a->keys = keys_of(a)->count;
    if (!field_size(body, "layer", 0, layers - 1, &a->layer, NULL, f) ||
        !field_size(body, "head", 0, heads - 1, &a->head, &one, f) ||
        !field_size(body, "rows", 1, SIZE_MAX / 2, &asked, &has_rows, f))
        return false;
    a->heads = one ? 1 : heads;
    size_t most = WEIGHTS_MAX / (a->heads * a->keys);
    a->rows = asked < all ? asked : all;
    if (!has_rows && most && most < a->rows)
        a->rows = most;
    a->first = all - a->rows;
    if (a->rows > most)
        return fail(f, 400, one ? "rows" : "head", "too_many_weights",
                    "%zu rows and %zu keys of %zu heads are more than %d "
                    "weights; choose a head, or fewer rows",
                    a->rows, a->keys, a->heads, WEIGHTS_MAX);
    a->weights = calloc(a->heads * a->rows * a->keys, sizeof(*a->weights));
    return a->weights || out_of_memory(f);
}

bool attention_answer(const api_request *q, reply *out, failure *f)
{
    attention_job *a = calloc(1, sizeof(*a));
    if (!a)
        return out_of_memory(f);
    job_init(&a->job, &attention_calls);
    out->job = &a->job;
    a->model = q->model;
    if (!kind_read(a, q->body, f) || !text_read(a, q->body, f) ||
        !part_read(a, q->body, f))
        return false;
    a->job.cost = (double)(a->source.count + a->target.count);
    return true;
}
