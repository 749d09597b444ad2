/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - what the server is and how it fares: /v1/models, /health, /props,
 * /metrics. */
#include "state.h"

#include "../cli/json_output.h"

#include <stdlib.h>
#include <string.h>

void reply_json(reply *r, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9));
    buffer_add(&r->text, text ? text : "", text ? strlen(text) : 0);
    json_decref(value);
    free(text);
}

static json_t *model_json(const server *s, const served_model *m)
{
    const bauta_model *model = m->opened->model;
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:s}", "id", m->alias, "object",
                     "model", "created", (json_int_t)s->started, "owned_by",
                     "bauta", "max_model_len",
                     (json_int_t)bauta_model_max_positions(model), "kind",
                     bauta_model_kind_text(bauta_model_kind_of(model)));
}

bool models_answer(const api_request *q, reply *out, failure *f)
{
    json_t *data = json_array();
    (void)f;
    for (size_t i = 0; i < q->server->model_count; i++)
        json_array_append_new(data,
                              model_json(q->server, &q->server->models[i]));
    reply_json(out, json_pack("{s:s, s:o}", "object", "list", "data", data));
    return true;
}

bool model_answer(const api_request *q, reply *out, failure *f)
{
    (void)f;
    reply_json(out, model_json(q->server, q->model));
    return true;
}

bool health_answer(const api_request *q, reply *out, failure *f)
{
    bool draining = atomic_load(&q->server->draining);
    (void)f;
    out->status = draining ? 503 : 200;
    reply_json(out, json_pack("{s:s}", "status", draining ? "draining" : "ok"));
    return true;
}

static json_t *options_json(const bauta_generate_options *options)
{
    size_t length = bauta_generate_options_json(options, NULL, 0);
    char *text = malloc(length + 1);
    json_t *object = NULL;
    if (text) {
        bauta_generate_options_json(options, text, length + 1);
        object = json_loads(text, 0, NULL);
    }
    free(text);
    return object ? object : json_null();
}

bool props_answer(const api_request *q, reply *out, failure *f)
{
    const served_model *s = q->model;
    const opened_model *m = s->opened;
    (void)f;
    reply_json(
        out,
        json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:o}",
            "version", bauta_version(), "model", s->alias, "kind",
            bauta_model_kind_text(bauta_model_kind_of(m->model)), "parameters",
            (json_int_t)bauta_model_parameter_count(m->model), "vocab_size",
            (json_int_t)bauta_model_vocab_size(m->model), "max_model_len",
            (json_int_t)bauta_model_max_positions(m->model), "total_slots",
            (json_int_t)s->options->parallel, "queue",
            (json_int_t)s->options->queue, "chat_template", chat_ready(s->chat),
            "device", bauta_context_device(m->context), "isa",
            bauta_context_isa(m->context), "default_generation_settings",
            options_json(&s->defaults)));
    return true;
}

bool metrics_answer(const api_request *q, reply *out, failure *f)
{
    const server *s = q->server;
    metrics_source *sources = calloc(s->model_count, sizeof(*sources));
    if (sources) {
        for (size_t i = 0; i < s->model_count; i++) {
            served_model *m = &s->models[i];
            sources[i] = (metrics_source){ &m->metrics, m->alias,
                                           scheduler_gauges(m->scheduler) };
        }
        metrics_print(sources, s->model_count, &out->text);
    }
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    bool good = sources && !out->text.failed;
    free(sources);
    return good || fail(f, 503, NULL, NULL, "out of memory");
}
