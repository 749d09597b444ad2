/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama and its relatives: rotary positions, RMS norms first, gated
 * feed-forward, grouped heads. Mistral adds a window, Qwen2 biases of q, k and
 * v, Qwen3 a norm of each head's queries and keys. */
#include "model/families/family.h"
#include "model/layer_mask.h"

#include <string.h>

/* Newer files have rope_parameters, older ones rope_theta and rope_scaling. */
static bt_rope read_rope(bt_config *config)
{
    bt_rope rope = { .theta =
                         bt_config_number_or(config, "rope_theta", 10000) };
    const char *key = bt_config_enter(config, "rope_parameters") ? "rope_type"
                      : bt_config_enter(config, "rope_scaling")  ? "rope_type"
                                                                 : NULL;
    if (!key)
        return rope;
    const char *type = bt_config_text_or(
        config, key, bt_config_text_or(config, "type", "default"));
    rope.theta = bt_config_number_or(config, "rope_theta", rope.theta);
    if (strcmp(type, "llama3") == 0) {
        rope.scaled = true;
        rope.factor = bt_config_number(config, "factor");
        rope.low = bt_config_number(config, "low_freq_factor");
        rope.high = bt_config_number(config, "high_freq_factor");
        rope.original =
            bt_config_size(config, "original_max_position_embeddings");
    } else if (strcmp(type, "default") != 0) {
        bt_config_refuse(config, key, "which is not among default, llama3");
    }
    bt_config_leave(config);
    return rope;
}

static void read_common(bt_blueprint *print, bt_config *config)
{
    size_t width = bt_config_size(config, "hidden_size");
    size_t heads = bt_config_size(config, "num_attention_heads");
    *print = (bt_blueprint){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = bt_config_size(config, "num_hidden_layers"),
                     .heads = heads,
                     .kv_heads = bt_config_size_or(
                         config, "num_key_value_heads", heads),
                     .ffn = bt_config_size(config, "intermediate_size") },
        .vocab = bt_config_size(config, "vocab_size"),
        .width = width,
        .head_dim =
            bt_config_size_or(config, "head_dim", heads ? width / heads : 0),
        .norm = BT_NORM_RMS,
        .epsilon = (float)bt_config_number_or(config, "rms_norm_eps", 1e-6),
        .norm_first = true,
        .last_norm = true,
        .act = bt_family_act(config, "hidden_act", "silu"),
        .gated = true,
        .positions = BT_POSITIONS_ROTARY,
        .max_positions = bt_config_size(config, "max_position_embeddings"),
        .rope = read_rope(config),
        .embed_scale = 1.0f,
        .frozen = bt_family_padding(config),
        .tied = bt_config_bool_or(config, "tie_word_embeddings", false),
    };
}

static void read_llama(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    bt_config_only(config, "attention_bias", false);
    bt_config_only(config, "mlp_bias", false);
}

static void read_mistral(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->window = bt_config_size_or(config, "sliding_window", 0);
}

/* Newer files also list the kind of each layer, and transformers goes by the
 * list, so it must say the same. */
static void check_layer_types(const bt_blueprint *print, bt_config *config)
{
    for (size_t l = 0; l < bt_config_list(config, "layer_types"); l++) {
        bool window = bt_layer_window(print, l) > 0;
        if (strcmp(bt_config_list_text(config, "layer_types", l),
                   window ? "sliding_attention" : "full_attention") == 0)
            continue;
        bt_config_refuse(config, "layer_types",
                         "which differs from max_window_layers");
        return;
    }
}

/* Qwen's layers from max_window_layers on have the window, if it is used. */
static void read_qwen_window(bt_blueprint *print, bt_config *config)
{
    if (bt_config_bool_or(config, "use_sliding_window", false)) {
        print->window = bt_config_size(config, "sliding_window");
        print->window_from = bt_config_size_or(config, "max_window_layers", 28);
    }
    check_layer_types(print, config);
}

static void read_qwen2(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->qkv_bias = true;
    read_qwen_window(print, config);
}

static void read_qwen3(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->qk_norm = true;
    bt_config_only(config, "attention_bias", false);
    read_qwen_window(print, config);
}

static void names(bt_model *model, const bt_names *n)
{
    bt_stack *stack = &model->decoder;
    bt_name_matrix(n, &model->tokens, "model.embed_tokens.weight");
    for (size_t l = 0; l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_heads *self = &layer->self;
        bt_name_scaling(n, &layer->self_norm,
                        "model.layers.%zu.input_layernorm", l);
        bt_name_dense(n, &self->q, "model.layers.%zu.self_attn.q_proj", l);
        bt_name_dense(n, &self->k, "model.layers.%zu.self_attn.k_proj", l);
        bt_name_dense(n, &self->v, "model.layers.%zu.self_attn.v_proj", l);
        bt_name_dense(n, &self->out, "model.layers.%zu.self_attn.o_proj", l);
        bt_name_scaling(n, &self->q_norm, "model.layers.%zu.self_attn.q_norm",
                        l);
        bt_name_scaling(n, &self->k_norm, "model.layers.%zu.self_attn.k_norm",
                        l);
        bt_name_scaling(n, &layer->ffn_norm,
                        "model.layers.%zu.post_attention_layernorm", l);
        bt_name_dense(n, &layer->gate, "model.layers.%zu.mlp.gate_proj", l);
        bt_name_dense(n, &layer->up, "model.layers.%zu.mlp.up_proj", l);
        bt_name_dense(n, &layer->down, "model.layers.%zu.mlp.down_proj", l);
    }
    bt_name_scaling(n, &stack->last_norm, "model.norm");
    bt_name_matrix(n, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_llama = { "llama", "LlamaForCausalLM", read_llama,
                                    names };
const bt_family bt_family_mistral = { "mistral", "MistralForCausalLM",
                                      read_mistral, names };
const bt_family bt_family_qwen2 = { "qwen2", "Qwen2ForCausalLM", read_qwen2,
                                    names };
const bt_family bt_family_qwen3 = { "qwen3", "Qwen3ForCausalLM", read_qwen3,
                                    names };
