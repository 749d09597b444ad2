/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - a blueprint as JSON. */
#include "base/string_writer.h"
#include "model/handle.h"

/* An object that is being written. */
typedef struct writer {
    bt_string_writer out;
    bool first; /* no member of this object has been written */
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

/* Nine digits give every float32 back, seventeen every double. */
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

/* Of our own texts, which need no escapes. */
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

static void put_stack(writer *w, const char *key, const bt_stack_print *stack)
{
    if (!stack->layers)
        return;
    enter(w, key);
    put_size(w, "layers", stack->layers);
    put_size(w, "heads", stack->heads);
    put_size(w, "kv_heads", stack->kv_heads);
    put_size(w, "feed_forward", stack->ffn);
    leave(w);
}

static void put_norms(writer *w, const bt_blueprint *print)
{
    enter(w, "norm");
    put_text(w, "kind", print->norm == BT_NORM_RMS ? "rms" : "layer");
    put_float(w, "epsilon", print->epsilon);
    put_text(w, "place", print->norm_first ? "before" : "after");
    put_bool(w, "after_embedding", print->embed_norm);
    put_bool(w, "after_stack", print->last_norm);
    put_bool(w, "queries_and_keys", print->qk_norm);
    leave(w);
}

static void put_positions(writer *w, const bt_blueprint *print)
{
    static const char *const kinds[] = {
        [BT_POSITIONS_LEARNED] = "learned",
        [BT_POSITIONS_SINUSOIDAL] = "sinusoidal",
        [BT_POSITIONS_ROTARY] = "rotary",
    };
    const bt_rope *rope = &print->rope;
    enter(w, "positions");
    put_text(w, "kind", kinds[print->positions]);
    put_size(w, "count", print->max_positions);
    if (print->position_offset)
        put_size(w, "offset", print->position_offset);
    if (print->positions == BT_POSITIONS_ROTARY)
        put_double(w, "theta", rope->theta);
    if (rope->scaled) {
        put_double(w, "factor", rope->factor);
        put_double(w, "low_frequency", rope->low);
        put_double(w, "high_frequency", rope->high);
        put_size(w, "original_count", rope->original);
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

static void put_rest(writer *w, const bt_blueprint *print)
{
    put_text(w, "activation", act_text(print->act));
    put_bool(w, "gated", print->gated);
    if (print->token_types)
        put_size(w, "token_types", print->token_types);
    put_float(w, "embedding_scale", print->embed_scale);
    if (print->frozen != BT_IGNORE)
        put_size(w, "padding_token", print->frozen);
    enter(w, "biases");
    put_bool(w, "queries_keys_values", print->qkv_bias);
    put_bool(w, "attention_output", print->out_bias);
    put_bool(w, "feed_forward", print->ffn_bias);
    put_bool(w, "head", print->head_bias);
    leave(w);
    if (print->window) {
        put_size(w, "window", print->window);
        put_size(w, "window_from_layer", print->window_from);
    }
    put_bool(w, "tied", print->tied);
}

size_t bauta_model_describe(const bauta_model *model, char *text, size_t size)
{
    const bt_blueprint *print = &model->folder->model->print;
    writer w = { { text, size, 0 }, true };
    bt_put_text(&w.out, "{");
    put_text(&w, "type", model->folder->family->model_type);
    put_text(&w, "kind", bauta_model_kind_text(bauta_model_kind_of(model)));
    put_size(&w, "parameters", model->folder->parameters);
    put_size(&w, "vocabulary", print->vocab);
    put_size(&w, "width", print->width);
    put_size(&w, "head_width", print->head_dim);
    put_stack(&w, "encoder", &print->encoder);
    put_stack(&w, "decoder", &print->decoder);
    put_norms(&w, print);
    put_positions(&w, print);
    put_rest(&w, print);
    bt_put_text(&w.out, "}");
    return bt_put_end(&w.out);
}
