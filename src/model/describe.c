/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - a model's config as JSON. */
#include "base/string_writer.h"
#include "model/api.h"

/* An object that is being written. */
typedef struct writer {
    bt_string_writer out;
    bool first; /* this object has no member yet */
} writer;

static void put_key(writer *w, const char *key)
{
    bt_put(&w->out, "%s\"%s\":", w->first ? "" : ",", key);
    w->first = false;
}

static void put_size(writer *w, const char *key, size_t value)
{
    put_key(w, key);
    bt_put_integer(&w->out, value);
}

/* Nine digits identify every float32, seventeen every double. */
static void put_float(writer *w, const char *key, float value)
{
    put_key(w, key);
    bt_put_real(&w->out, (double)value, 9);
}

static void put_double(writer *w, const char *key, double value)
{
    put_key(w, key);
    bt_put_real(&w->out, value, 17);
}

/* For constant strings, which need no escapes. */
static void put_text(writer *w, const char *key, const char *value)
{
    put_key(w, key);
    bt_put(&w->out, "\"%s\"", value);
}

static void put_bool(writer *w, const char *key, bool value)
{
    put_key(w, key);
    bt_put_text(&w->out, value ? "true" : "false");
}

static void enter(writer *w, const char *key)
{
    put_key(w, key);
    bt_put_text(&w->out, "{");
    w->first = true;
}

static void leave(writer *w)
{
    bt_put_text(&w->out, "}");
    w->first = false;
}

static void put_stack(writer *w, const char *key, const bt_stack_config *stack)
{
    if (!stack->layers)
        return;
    enter(w, key);
    put_size(w, "layers", stack->layers);
    put_size(w, "heads", stack->heads);
    put_size(w, "kv_heads", stack->kv_heads);
    put_size(w, "feed_forward", stack->ffn_dim);
    leave(w);
}

static void put_norms(writer *w, const bt_model_config *config)
{
    enter(w, "norm");
    put_text(w, "kind", config->norm == BT_NORM_RMS ? "rms" : "layer");
    put_float(w, "epsilon", config->epsilon);
    put_text(w, "place", config->norm_first ? "before" : "after");
    put_bool(w, "after_embedding", config->embed_norm);
    put_bool(w, "after_stack", config->final_norm);
    put_bool(w, "queries_and_keys", config->qk_norm);
    if (config->post_norm)
        put_bool(w, "after_sublayer", true);
    leave(w);
}

static void put_positions(writer *w, const bt_model_config *config)
{
    static const char *const kinds[] = {
        [BT_POSITIONS_LEARNED] = "learned",
        [BT_POSITIONS_SINUSOIDAL] = "sinusoidal",
        [BT_POSITIONS_ROTARY] = "rotary",
        [BT_POSITIONS_RELATIVE] = "relative",
        [BT_POSITIONS_ALIBI] = "alibi",
    };
    const bt_rope_config *rope = &config->rope;
    enter(w, "positions");
    put_text(w, "kind", kinds[config->position_kind]);
    put_size(w, "count", config->max_positions);
    if (config->position_offset)
        put_size(w, "offset", config->position_offset);
    if (config->position_kind == BT_POSITIONS_ROTARY)
        put_double(w, "theta", rope->theta);
    if (config->local_rope_theta != 0)
        put_double(w, "window_theta", config->local_rope_theta);
    if (rope->linear != 0)
        put_double(w, "linear", rope->linear);
    if (config->position_kind == BT_POSITIONS_RELATIVE) {
        put_size(w, "buckets", config->relative_buckets);
        put_size(w, "max_distance", config->relative_max_distance);
    }
    if (rope->scaled) {
        put_double(w, "factor", rope->factor);
        put_double(w, "low_frequency", rope->low_freq_factor);
        put_double(w, "high_frequency", rope->high_freq_factor);
        put_size(w, "original_count", rope->original_positions);
    }
    leave(w);
}

static const char *act_text(bt_act act)
{
    switch (act) {
    case BT_ACT_RELU:
        return "relu";
    case BT_ACT_GELU_ERF:
        return "gelu";
    case BT_ACT_GELU_TANH:
        return "gelu_tanh";
    default:
        return "silu";
    }
}

static void put_rest(writer *w, const bt_model_config *config)
{
    put_text(w, "activation", act_text(config->act));
    put_bool(w, "gated", config->gated);
    if (config->token_types)
        put_size(w, "token_types", config->token_types);
    put_float(w, "embedding_scale", config->embed_scale);
    if (config->padding_token != BT_IGNORE_INDEX)
        put_size(w, "padding_token", config->padding_token);
    enter(w, "biases");
    put_bool(w, "queries_keys_values", config->qkv_bias);
    put_bool(w, "attention_output", config->out_bias);
    put_bool(w, "feed_forward", config->ffn_bias);
    put_bool(w, "head", config->head_bias);
    leave(w);
    if (config->window) {
        put_size(w, "window", config->window);
        put_size(w, "window_from_layer", config->window_first_layer);
        if (config->window_period)
            put_size(w, "window_period", config->window_period);
    }
    if (config->attention_scale != 0.0f)
        put_float(w, "attention_scale", config->attention_scale);
    if (config->attention_softcap != 0.0f)
        put_float(w, "attention_softcap", config->attention_softcap);
    if (config->head_softcap != 0.0f)
        put_float(w, "head_softcap", config->head_softcap);
    if (config->head_scale != 0.0f)
        put_float(w, "head_scale", config->head_scale);
    put_bool(w, "tied", config->tied);
}

size_t bauta_model_describe(const bauta_model *model, char *text, size_t size)
{
    const bt_model_config *config = &model->store->model->config;
    writer w = { { text, size, 0 }, true };
    bt_put_text(&w.out, "{");
    put_text(&w, "type", model->store->family->model_type);
    put_text(&w, "kind", bauta_model_kind_text(bauta_model_kind_of(model)));
    put_size(&w, "parameters", model->store->parameters);
    put_size(&w, "vocabulary", config->vocab_size);
    put_size(&w, "width", config->width);
    put_size(&w, "head_width", config->head_dim);
    put_stack(&w, "encoder", &config->encoder);
    put_stack(&w, "decoder", &config->decoder);
    put_norms(&w, config);
    put_positions(&w, config);
    put_rest(&w, config);
    bt_put_text(&w.out, "}");
    return bt_put_end(&w.out);
}
