/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama, Mistral and Qwen: rotary positions, RMS pre-norm, gated
 * feed-forward, grouped-query attention. Mistral adds a sliding window, Qwen2
 * biases of q, k and v, Qwen3 an RMS norm of each head's queries and keys. */
#include "model/families/family.h"

#include <string.h>

/* Newer files have rope_parameters, older ones rope_theta and rope_scaling. */
static bt_rope_config read_rope(bt_config_reader *reader)
{
    bt_rope_config rope = { .theta = bt_config_reader_number_or(
                                reader, "rope_theta", 10000) };
    const char *key =
        bt_config_reader_enter(reader, "rope_parameters") ? "rope_type"
        : bt_config_reader_enter(reader, "rope_scaling")  ? "rope_type"
                                                          : NULL;
    if (!key)
        return rope;
    const char *type = bt_config_reader_string_or(
        reader, key, bt_config_reader_string_or(reader, "type", "default"));
    rope.theta = bt_config_reader_number_or(reader, "rope_theta", rope.theta);
    if (strcmp(type, "llama3") == 0) {
        rope.scaled = true;
        rope.factor = bt_config_reader_number(reader, "factor");
        rope.low_freq_factor =
            bt_config_reader_number(reader, "low_freq_factor");
        rope.high_freq_factor =
            bt_config_reader_number(reader, "high_freq_factor");
        rope.original_positions =
            bt_config_reader_size(reader, "original_max_position_embeddings");
    } else if (strcmp(type, "default") != 0) {
        bt_config_reader_reject(reader, key,
                                "which is not among default, llama3");
    }
    bt_config_reader_leave(reader);
    return rope;
}

static void read_common(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "hidden_size");
    size_t heads = bt_config_reader_size(reader, "num_attention_heads");
    *config = (bt_model_config){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers =
                         bt_config_reader_size(reader, "num_hidden_layers"),
                     .heads = heads,
                     .kv_heads = bt_config_reader_size_or(
                         reader, "num_key_value_heads", heads),
                     .ffn_dim =
                         bt_config_reader_size(reader, "intermediate_size") },
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = bt_config_reader_size_or(reader, "head_dim",
                                             heads ? width / heads : 0),
        .norm = BT_NORM_RMS,
        .epsilon =
            (float)bt_config_reader_number_or(reader, "rms_norm_eps", 1e-6),
        .norm_first = true,
        .final_norm = true,
        .act = bt_family_activation(reader, "hidden_act", "silu"),
        .gated = true,
        .position_kind = BT_POSITIONS_ROTARY,
        .max_positions =
            bt_config_reader_size(reader, "max_position_embeddings"),
        .rope = read_rope(reader),
        .embed_scale = 1.0f,
        .padding_token = bt_family_padding_token(reader),
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", false),
    };
}

static void read_llama(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    bt_config_reader_require(reader, "attention_bias", false);
    bt_config_reader_require(reader, "mlp_bias", false);
}

static void read_mistral(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->window = bt_config_reader_size_or(reader, "sliding_window", 0);
}

/* With use_sliding_window, Qwen's layers from max_window_layers on have the
 * window. */
static void read_qwen_window(bt_model_config *config, bt_config_reader *reader)
{
    if (bt_config_reader_bool_or(reader, "use_sliding_window", false)) {
        config->window = bt_config_reader_size(reader, "sliding_window");
        config->window_first_layer =
            bt_config_reader_size_or(reader, "max_window_layers", 28);
    }
    bt_family_check_layer_types(config, reader, "max_window_layers");
}

static void read_qwen2(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->qkv_bias = true;
    read_qwen_window(config, reader);
}

static void read_qwen3(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->qk_norm = true;
    bt_config_reader_require(reader, "attention_bias", false);
    read_qwen_window(config, reader);
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bt_stack *stack = &model->decoder;
    bt_visit_matrix(visitor, &model->tokens, "model.embed_tokens.weight");
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_attention_params *self = &layer->self;
        bt_visit_norm(visitor, &layer->self_norm,
                      "model.layers.%zu.input_layernorm", l);
        bt_visit_linear(visitor, &self->q, "model.layers.%zu.self_attn.q_proj",
                        l);
        bt_visit_linear(visitor, &self->k, "model.layers.%zu.self_attn.k_proj",
                        l);
        bt_visit_linear(visitor, &self->v, "model.layers.%zu.self_attn.v_proj",
                        l);
        bt_visit_linear(visitor, &self->out,
                        "model.layers.%zu.self_attn.o_proj", l);
        bt_visit_norm(visitor, &self->q_norm,
                      "model.layers.%zu.self_attn.q_norm", l);
        bt_visit_norm(visitor, &self->k_norm,
                      "model.layers.%zu.self_attn.k_norm", l);
        bt_visit_norm(visitor, &layer->ffn_norm,
                      "model.layers.%zu.post_attention_layernorm", l);
        bt_visit_linear(visitor, &layer->gate, "model.layers.%zu.mlp.gate_proj",
                        l);
        bt_visit_linear(visitor, &layer->up, "model.layers.%zu.mlp.up_proj", l);
        bt_visit_linear(visitor, &layer->down, "model.layers.%zu.mlp.down_proj",
                        l);
    }
    bt_visit_norm(visitor, &stack->final_norm, "model.norm");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_llama = { "llama", "LlamaForCausalLM", read_llama,
                                    visit_tensors };
const bt_family bt_family_mistral = { "mistral", "MistralForCausalLM",
                                      read_mistral, visit_tensors };
const bt_family bt_family_qwen2 = { "qwen2", "Qwen2ForCausalLM", read_qwen2,
                                    visit_tensors };
const bt_family bt_family_qwen3 = { "qwen3", "Qwen3ForCausalLM", read_qwen3,
                                    visit_tensors };
