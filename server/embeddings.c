/* SPDX-License-Identifier: Apache-2.0 */
/* embeddings.c - /v1/embeddings. */
#include "scheduler.h"
#include "state.h"

#include "../cli/json_output.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS_MAX = 2048, BATCH_TEXTS = 64, BATCH_TOKENS = 2048 };

typedef struct embedding {
    job job; /* first */
    served_model *model;
    bool base64;
    bauta_embed_options how;
    token_ids *inputs; /* (count) */
    size_t count, done;
    float *vectors; /* (count, hidden size) */
    size_t tokens;
} embedding;

static bool out_of_memory(failure *f)
{
    return fail(f, 503, NULL, NULL, "out of memory");
}

/* ---- running ----------------------------------------------------------- */

/* How many inputs are next, and their tokens. */
static size_t batch_size(const embedding *e, size_t *tokens)
{
    size_t n = 0;
    *tokens = 0;
    while (e->done + n < e->count && n < BATCH_TEXTS &&
           (n == 0 || *tokens + e->inputs[e->done + n].count <= BATCH_TOKENS))
        *tokens += e->inputs[e->done + n++].count;
    return n;
}

static bool batch_embed(embedding *e)
{
    const opened_model *m = e->model->opened;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_error err;
    size_t lengths[BATCH_TEXTS], tokens, at = 0;
    size_t count = batch_size(e, &tokens);
    uint32_t *ids = malloc((tokens + 1) * sizeof(*ids));
    if (!ids)
        return out_of_memory(&e->job.failed);
    for (size_t i = 0; i < count; i++) {
        const token_ids *input = &e->inputs[e->done + i];
        memcpy(ids + at, input->at, input->count * sizeof(*ids));
        lengths[i] = input->count;
        at += input->count;
    }
    batch.count = count;
    batch.lengths = lengths;
    batch.ids = ids;
    float *to = e->vectors + e->done * bauta_model_hidden_size(m->model);
    bauta_status status =
        bauta_model_embed(m->context, m->model, &batch, &e->how, to, &err);
    free(ids);
    if (status)
        return fail(&e->job.failed, status == BAUTA_ERR_NOMEM ? 503 : 500, NULL,
                    NULL, "%s", err.message);
    e->done += count;
    return true;
}

static bool embedding_start(job *j, scheduler *s)
{
    embedding *e = (embedding *)j;
    (void)s;
    return !batch_embed(e) || e->done == e->count;
}

/* ---- answering --------------------------------------------------------- */

/* The floats' bytes, the lowest first. */
static json_t *base64_json(const float *numbers, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = 4 * count, length = (size + 2) / 3 * 4;
    unsigned char *bytes = calloc(size + 2, 1);
    char *text = malloc(length + 1);
    json_t *string = NULL;
    for (size_t i = 0; bytes && i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof(bits));
        for (size_t b = 0; b < 4; b++)
            bytes[4 * i + b] = (unsigned char)(bits >> (8 * b));
    }
    for (size_t i = 0; bytes && text && i < length; i++) {
        size_t bit = 6 * i, at = bit / 8;
        unsigned pair = (unsigned)bytes[at] << 8 | bytes[at + 1];
        bool padding = bit >= 8 * size;
        text[i] = padding ? '=' : digits[pair >> (10 - bit % 8) & 63];
    }
    if (bytes && text)
        string = json_stringn(text, length);
    free(bytes);
    free(text);
    return string ? string : json_null();
}

static void embedding_end(job *j, scheduler *s)
{
    embedding *e = (embedding *)j;
    size_t width = bauta_model_hidden_size(e->model->opened->model);
    json_t *data = json_array();
    (void)s;
    for (size_t i = 0; i < e->count; i++) {
        const float *vector = e->vectors + i * width;
        json_array_append_new(
            data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                            (json_int_t)i, "embedding",
                            e->base64 ? base64_json(vector, width)
                                      : json_floats(vector, width)));
    }
    json_t *answer =
        json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data",
                  data, "model", e->model->alias, "usage", "prompt_tokens",
                  (json_int_t)e->tokens, "total_tokens", (json_int_t)e->tokens);
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(answer);
    metrics_add(&e->model->metrics, METRICS_PROMPT_TOKENS, e->tokens);
    job_write(j, 200, "application/json", text, text ? strlen(text) : 0);
    free(text);
}

static void embedding_free(job *j)
{
    embedding *e = (embedding *)j;
    for (size_t i = 0; i < e->count; i++)
        free(e->inputs[i].at);
    free(e->inputs);
    free(e->vectors);
    free(e);
}

static const job_calls embedding_calls = { .start = embedding_start,
                                           .immediate = true,
                                           .end = embedding_end,
                                           .free = embedding_free };

/* ---- reading ----------------------------------------------------------- */

static bool input_read(embedding *e, const json_t *value, failure *f)
{
    const opened_model *m = e->model->opened;
    size_t positions = bauta_model_max_positions(m->model);
    token_ids *input = &e->inputs[e->count++];
    if (json_is_array(value))
        input->at = ids_read(value, "input", bauta_model_vocab_size(m->model),
                             &input->count, f);
    else if (!json_is_string(value))
        fail(f, 400, "input", NULL,
             "input must be a string, an array of strings, an array of token "
             "ids or an array of such arrays");
    else
        prompt_encode(e->model, json_string_value(value),
                      json_string_length(value), true, "input", input, f);
    if (!f->status && input->count == 0)
        fail(f, 400, "input", NULL, "input has no tokens");
    if (!f->status && input->count > positions)
        fail(f, 400, "input", "context_length_exceeded",
             "the input has %zu tokens; the limit is %zu", input->count,
             positions);
    e->tokens += input->count;
    return !f->status;
}

static bool inputs_read(embedding *e, const json_t *body, failure *f)
{
    const json_t *value = field(body, "input");
    const json_t *first = json_array_get(value, 0);
    bool many = json_is_string(first) || json_is_array(first);
    size_t count = many ? json_array_size(value) : 1;
    size_t width = bauta_model_hidden_size(e->model->opened->model);
    if (!value)
        return fail(f, 400, "input", NULL, "input is missing");
    if (count > INPUTS_MAX)
        return fail(f, 400, "input", NULL, "there are more than %d inputs",
                    INPUTS_MAX);
    e->inputs = calloc(count, sizeof(*e->inputs));
    e->vectors = calloc(count, width * sizeof(*e->vectors));
    if (!e->inputs || !e->vectors)
        return out_of_memory(f);
    for (size_t i = 0; i < count; i++)
        if (!input_read(e, many ? json_array_get(value, i) : value, f))
            return false;
    return true;
}

static bool format_read(embedding *e, const json_t *body, failure *f)
{
    const char *format = "float", *pooling = "mean";
    size_t width = bauta_model_hidden_size(e->model->opened->model);
    size_t dimensions = width;
    if (!field_string(body, "encoding_format", &format, f) ||
        !field_string(body, "pooling", &pooling, f) ||
        !field_bool(body, "normalize", &e->how.normalize, f) ||
        !field_size(body, "dimensions", 1, 1 << 24, &dimensions, NULL, f))
        return false;
    e->base64 = strcmp(format, "base64") == 0;
    if (!e->base64 && strcmp(format, "float") != 0)
        return fail(f, 400, "encoding_format", NULL,
                    "encoding_format must be float or base64");
    if (dimensions != width)
        return fail(f, 400, "dimensions", "unsupported",
                    "the model has embeddings of %zu dimensions", width);
    if (strcmp(pooling, "cls") == 0)
        e->how.pooling = BAUTA_POOLING_CLS;
    else if (strcmp(pooling, "last") == 0)
        e->how.pooling = BAUTA_POOLING_LAST;
    else if (strcmp(pooling, "mean") != 0)
        return fail(f, 400, "pooling", NULL,
                    "pooling must be mean, cls or last");
    return true;
}

bool embeddings_answer(const api_request *q, reply *out, failure *f)
{
    embedding *e = calloc(1, sizeof(*e));
    if (!e)
        return out_of_memory(f);
    job_init(&e->job, &embedding_calls);
    out->job = &e->job;
    e->model = q->model;
    e->how = (bauta_embed_options)BAUTA_EMBED_OPTIONS_INIT;
    e->how.normalize = true;
    if (!format_read(e, q->body, f) || !inputs_read(e, q->body, f))
        return false;
    e->job.cost = (double)e->tokens;
    return true;
}
