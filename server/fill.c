/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - /fill: the likely words for the blanks of a text. */
#include "scheduler.h"
#include "state.h"

#include "../cli/json_output.h"

#include <stdlib.h>
#include <string.h>

enum { TOP_DEFAULT = 5, TOP_MAX = 100, CANDIDATES_MAX = 1000 };

typedef struct fill_job {
    job job; /* first */
    served_model *model;
    json_t *body;
    token_ids tokens;
    uint32_t mask;
    size_t *rows; /* (count) of the blanks */
    size_t count, top;
    uint32_t *ids;         /* (count, top) */
    double *probabilities; /* (count, top) */
} fill_job;

static bool out_of_memory(failure *f)
{
    return fail(f, 503, NULL, NULL, "out of memory");
}

/* ---- blanks ------------------------------------------------------------ */

/* Both spellings become the one that the tokenizer has, if it has one. */
static void blanks_rewrite(const char *text, size_t length, const char *mask,
                           buffer *out)
{
    static const char one[] = "[MASK]", other[] = "<mask>";
    const size_t size = sizeof(one) - 1;
    for (size_t i = 0; i < length;) {
        bool blank =
            mask && length - i >= size &&
            (!memcmp(text + i, one, size) || !memcmp(text + i, other, size));
        if (blank)
            buffer_add(out, mask, strlen(mask));
        else
            buffer_add(out, text + i, 1);
        i += blank ? size : 1;
    }
}

bool blanks_encode(const served_model *m, const char *text, size_t length,
                   const char *name, token_ids *out, failure *f)
{
    const bauta_tokenizer *t = m->opened->tokenizer;
    uint32_t mask = bauta_tokenizer_special_token(t, BAUTA_TOKEN_MASK);
    buffer marked = { 0 };
    blanks_rewrite(text, length, bauta_tokenizer_piece(t, mask, NULL), &marked);
    bool good = marked.failed
                    ? out_of_memory(f)
                    : prompt_encode(m, marked.at ? marked.at : "",
                                    marked.length, true, name, out, f);
    buffer_release(&marked);
    return good;
}

/* ---- running ----------------------------------------------------------- */

static bool fill_start(job *j, scheduler *s)
{
    fill_job *c = (fill_job *)j;
    const opened_model *m = c->model->opened;
    size_t vocabulary = bauta_model_vocab_size(m->model);
    size_t known = bauta_tokenizer_vocab_size(m->tokenizer);
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_top_tokens_options how = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    bauta_error err;
    (void)s;
    batch.count = 1;
    batch.lengths = &c->tokens.count;
    batch.ids = c->tokens.at;
    how.top_k = c->top;
    how.vocab_size = known < vocabulary ? known : vocabulary;
    bauta_status status =
        bauta_model_top_tokens(m->context, m->model, &batch, NULL, c->rows,
                               c->count, &how, c->ids, c->probabilities, &err);
    if (status)
        fail(&j->failed, status == BAUTA_ERR_NOMEM ? 503 : 500, NULL, NULL,
             "%s", err.message);
    return true;
}

/* ---- answering --------------------------------------------------------- */

static json_t *decoded_json(const fill_job *c, const uint32_t *ids,
                            size_t count)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    char *text = NULL;
    size_t length = 0;
    how.keep_special_tokens = true;
    if (bauta_tokenizer_decode(c->model->opened->tokenizer, ids, count, &how,
                               &text, &length, NULL))
        return json_string("");
    json_t *string = json_text(text, length);
    bauta_text_free(text);
    return string;
}

/* The text with one blank filled, and without the special tokens around it.
 * `kept` has room for all tokens. */
static json_t *sentence_json(const fill_job *c, size_t gap, uint32_t token,
                             uint32_t *kept)
{
    size_t count = 0;
    for (size_t i = 0; i < c->tokens.count; i++) {
        uint32_t id = c->tokens.at[i];
        if (i == gap)
            kept[count++] = token;
        else if (id == c->mask ||
                 !bauta_tokenizer_is_special(c->model->opened->tokenizer, id))
            kept[count++] = id;
    }
    return decoded_json(c, kept, count);
}

static json_t *gap_json(const fill_job *c, size_t gap, uint32_t *kept)
{
    json_t *list = json_array();
    for (size_t i = gap * c->top; i < (gap + 1) * c->top; i++)
        json_array_append_new(
            list,
            json_pack("{s:I, s:o, s:f, s:o}", "token", (json_int_t)c->ids[i],
                      "text", decoded_json(c, &c->ids[i], 1), "probability",
                      c->probabilities[i], "sentence",
                      sentence_json(c, c->rows[gap], c->ids[i], kept)));
    return list;
}

static void fill_end(job *j, scheduler *s)
{
    fill_job *c = (fill_job *)j;
    uint32_t *kept = calloc(c->tokens.count, sizeof(*kept));
    json_t *gaps = json_array();
    (void)s;
    for (size_t i = 0; kept && i < c->count; i++)
        json_array_append_new(gaps, gap_json(c, i, kept));
    free(kept);
    json_t *answer =
        json_pack("{s:s, s:O, s:o, s:{s:I, s:I}}", "model", c->model->alias,
                  "text", field(c->body, "text"), "gaps", gaps, "usage",
                  "prompt_tokens", (json_int_t)c->tokens.count, "total_tokens",
                  (json_int_t)c->tokens.count);
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(answer);
    metrics_add(&c->model->metrics, METRICS_PROMPT_TOKENS, c->tokens.count);
    job_write(j, 200, "application/json", text, text ? strlen(text) : 0);
    free(text);
}

static void fill_free(job *j)
{
    fill_job *c = (fill_job *)j;
    json_decref(c->body);
    free(c->tokens.at);
    free(c->rows);
    free(c->ids);
    free(c->probabilities);
    free(c);
}

static const job_calls fill_calls = {
    .start = fill_start, .immediate = true, .end = fill_end, .free = fill_free
};

/* ---- reading ----------------------------------------------------------- */

static bool gaps_find(fill_job *c, failure *f)
{
    c->rows = calloc(c->tokens.count, sizeof(*c->rows));
    if (!c->rows)
        return out_of_memory(f);
    for (size_t i = 0; i < c->tokens.count; i++)
        if (c->tokens.at[i] == c->mask)
            c->rows[c->count++] = i;
    if (!c->count)
        return fail(f, 400, "text", NULL, "text has no blank, [MASK]");
    if (c->count * c->top > CANDIDATES_MAX)
        return fail(f, 400, "top_k", NULL,
                    "%zu words for %zu blanks are more than %d", c->top,
                    c->count, CANDIDATES_MAX);
    c->ids = calloc(c->count * c->top, sizeof(*c->ids));
    c->probabilities = calloc(c->count * c->top, sizeof(*c->probabilities));
    return (c->ids && c->probabilities) || out_of_memory(f);
}

static bool fill_read(fill_job *c, failure *f)
{
    const opened_model *m = c->model->opened;
    const json_t *text = field(c->body, "text");
    size_t vocabulary = bauta_model_vocab_size(m->model);
    size_t known = bauta_tokenizer_vocab_size(m->tokenizer);
    c->top = TOP_DEFAULT;
    c->mask = bauta_tokenizer_special_token(m->tokenizer, BAUTA_TOKEN_MASK);
    if (c->mask == BAUTA_NO_TOKEN)
        return fail(f, 400, "model", "unsupported",
                    "the tokenizer of '%s' has no mask token", c->model->alias);
    if (!json_is_string(text))
        return fail(f, 400, "text", NULL, "text must be a string");
    if (!field_size(c->body, "top_k", 1, TOP_MAX, &c->top, NULL, f) ||
        !blanks_encode(c->model, json_string_value(text),
                       json_string_length(text), "text", &c->tokens, f) ||
        !prompt_check(c->model, c->tokens.count, "text", f))
        return false;
    c->top = c->top < known ? c->top : known;
    c->top = c->top < vocabulary ? c->top : vocabulary;
    c->job.cost = (double)c->tokens.count;
    return gaps_find(c, f);
}

bool fill_answer(const api_request *q, reply *out, failure *f)
{
    if (!kind_require(q->model, BAUTA_ENCODER_ONLY, f))
        return false;
    fill_job *c = calloc(1, sizeof(*c));
    if (!c)
        return out_of_memory(f);
    job_init(&c->job, &fill_calls);
    out->job = &c->job;
    c->model = q->model;
    c->body = json_incref((json_t *)(uintptr_t)q->body);
    return fill_read(c, f);
}
