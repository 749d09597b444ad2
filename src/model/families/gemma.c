/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.c - Gemma 2 and 3: as Llama, with embeddings scaled by the root of the
 * width, norms before and after each sublayer whose gains are 1 + the stored
 * ones, and a scale of the queries of its own. Every second layer of Gemma 2
 * and five of six of Gemma 3 have a sliding window. Gemma 2 caps scores and
 * logits by tanh; Gemma 3 has norms of queries and keys, and another rotary
 * base for the layers with the window. */
#include "model/families/family.h"

#include <math.h>
#include <string.h>

/* One set of rotary parameters: the default ones, or all divided by a factor.
 */
static bt_rope_config read_rope_type(bt_config_reader *reader, double theta)
{
    bt_rope_config rope = { .theta = bt_config_reader_number_or(
                                reader, "rope_theta", theta) };
    const char *type = bt_config_reader_string_or(
        reader, "rope_type",
        bt_config_reader_string_or(reader, "type", "default"));
    if (strcmp(type, "linear") == 0)
        rope.linear = bt_config_reader_number(reader, "factor");
    else if (strcmp(type, "default") != 0)
        bt_config_reader_reject(reader, "rope_type",
                                "which is not among default, linear");
    return rope;
}

/* The rotary base of the layers with the window, in newer files. */
static void read_window_rope(bt_model_config *config, bt_config_reader *reader)
{
    if (bt_config_reader_enter(reader, "rope_parameters") &&
        bt_config_reader_enter(reader, "sliding_attention")) {
        bt_rope_config rope = read_rope_type(reader, config->local_rope_theta);
        config->local_rope_theta = rope.theta;
        if (rope.linear != 0)
            bt_config_reader_reject(reader, "rope_type",
                                    "which is for full attention only");
    }
    bt_config_reader_leave(reader);
}

/* Newer files have rope_parameters, those of Gemma 3 one for each kind of
 * layer; older ones rope_theta, rope_scaling and rope_local_base_freq. */
static void read_rope(bt_model_config *config, bt_config_reader *reader,
                      double theta, bool local)
{
    double full = bt_config_reader_number_or(reader, "rope_theta", theta);
    config->rope = (bt_rope_config){ .theta = full };
    if (local)
        config->local_rope_theta =
            bt_config_reader_number_or(reader, "rope_local_base_freq", 10000);
    if (bt_config_reader_enter(reader, "rope_scaling")) {
        config->rope = read_rope_type(reader, full);
        bt_config_reader_leave(reader);
    }
    if (bt_config_reader_enter(reader, "rope_parameters")) {
        bt_config_reader_enter(reader, "full_attention");
        config->rope = read_rope_type(reader, full);
        bt_config_reader_leave(reader);
    }
    if (local)
        read_window_rope(config, reader);
}

/* A softcap that is null is none. */
static float read_softcap(bt_config_reader *reader, const char *key,
                          double fallback)
{
    if (bt_config_reader_is_null(reader, key))
        return 0.0f;
    return (float)bt_config_reader_number_or(reader, key, fallback);
}

static void read_common(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "hidden_size");
    *config = (bt_model_config){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers =
                         bt_config_reader_size(reader, "num_hidden_layers"),
                     .heads =
                         bt_config_reader_size(reader, "num_attention_heads"),
                     .kv_heads =
                         bt_config_reader_size(reader, "num_key_value_heads"),
                     .ffn_dim =
                         bt_config_reader_size(reader, "intermediate_size") },
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = bt_config_reader_size_or(reader, "head_dim", 256),
        .norm = BT_NORM_RMS,
        .epsilon =
            (float)bt_config_reader_number_or(reader, "rms_norm_eps", 1e-6),
        .norm_first = true,
        .final_norm = true,
        .post_norm = true,
        .norm_plus_one = true,
        .act = bt_family_activation(reader, "hidden_activation",
                                    "gelu_pytorch_tanh"),
        .gated = true,
        .position_kind = BT_POSITIONS_ROTARY,
        .max_positions =
            bt_config_reader_size(reader, "max_position_embeddings"),
        .attention_scale =
            (float)(1.0 / sqrt(bt_config_reader_number_or(
                              reader, "query_pre_attn_scalar", 256))),
        .embed_scale = (float)sqrt((double)width),
        .padding_token = bt_family_padding_token(reader),
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true),
    };
    if (!bt_config_reader_is_null(reader, "sliding_window"))
        config->window =
            bt_config_reader_size_or(reader, "sliding_window", 4096);
    bt_config_reader_require(reader, "attention_bias", false);
    bt_config_reader_require(reader, "use_bidirectional_attention", false);
}

static void read_gemma2(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    read_rope(config, reader, 10000, false);
    config->window_period = 2;
    config->attention_softcap =
        read_softcap(reader, "attn_logit_softcapping", 50);
    config->head_softcap = read_softcap(reader, "final_logit_softcapping", 30);
    bt_family_check_layer_types(config, reader, "every second layer");
}

static void read_gemma3(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    read_rope(config, reader, 1000000, true);
    config->qk_norm = true;
    config->window_period = bt_config_reader_size_or(
        reader, "sliding_window_pattern",
        bt_config_reader_size_or(reader, "_sliding_window_pattern", 6));
    config->attention_softcap =
        read_softcap(reader, "attn_logit_softcapping", 0);
    config->head_softcap = read_softcap(reader, "final_logit_softcapping", 0);
    bt_family_check_layer_types(config, reader, "sliding_window_pattern");
}

static void visit_layer(const bt_tensor_visitor *visitor, bt_layer *layer,
                        size_t l)
{
    bt_attention_params *self = &layer->self;
    bt_visit_norm(visitor, &layer->self_norm,
                  "model.layers.%zu.input_layernorm", l);
    bt_visit_linear(visitor, &self->q, "model.layers.%zu.self_attn.q_proj", l);
    bt_visit_linear(visitor, &self->k, "model.layers.%zu.self_attn.k_proj", l);
    bt_visit_linear(visitor, &self->v, "model.layers.%zu.self_attn.v_proj", l);
    bt_visit_linear(visitor, &self->out, "model.layers.%zu.self_attn.o_proj",
                    l);
    bt_visit_norm(visitor, &self->q_norm, "model.layers.%zu.self_attn.q_norm",
                  l);
    bt_visit_norm(visitor, &self->k_norm, "model.layers.%zu.self_attn.k_norm",
                  l);
    bt_visit_norm(visitor, &layer->self_post_norm,
                  "model.layers.%zu.post_attention_layernorm", l);
    bt_visit_norm(visitor, &layer->ffn_norm,
                  "model.layers.%zu.pre_feedforward_layernorm", l);
    bt_visit_linear(visitor, &layer->gate, "model.layers.%zu.mlp.gate_proj", l);
    bt_visit_linear(visitor, &layer->up, "model.layers.%zu.mlp.up_proj", l);
    bt_visit_linear(visitor, &layer->down, "model.layers.%zu.mlp.down_proj", l);
    bt_visit_norm(visitor, &layer->ffn_post_norm,
                  "model.layers.%zu.post_feedforward_layernorm", l);
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bt_stack *stack = &model->decoder;
    bt_visit_matrix(visitor, &model->tokens, "model.embed_tokens.weight");
    for (size_t l = 0; l < stack->config->layers; l++)
        visit_layer(visitor, &stack->layers[l], l);
    bt_visit_norm(visitor, &stack->final_norm, "model.norm");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_gemma2 = { "gemma2", "Gemma2ForCausalLM", read_gemma2,
                                     visit_tensors };
const bt_family bt_family_gemma3 = { "gemma3_text", "Gemma3ForCausalLM",
                                     read_gemma3, visit_tensors };
