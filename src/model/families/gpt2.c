/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2: learned positions, norms first, one matrix for q, k and v,
 * matrices stored (inputs, outputs). */
#include "model/families/family.h"

static void read(bt_blueprint *print, bt_config *config)
{
    size_t width = bt_config_size(config, "n_embd");
    size_t heads = bt_config_size(config, "n_head");
    *print = (bt_blueprint){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = bt_config_size(config, "n_layer"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn = bt_config_size_or(config, "n_inner", 4 * width) },
        .vocab = bt_config_size(config, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .epsilon =
            (float)bt_config_number_or(config, "layer_norm_epsilon", 1e-5),
        .norm_first = true,
        .last_norm = true,
        .act = bt_family_act(config, "activation_function", "gelu_new"),
        .positions = BT_POSITIONS_LEARNED,
        .max_positions = bt_config_size(config, "n_positions"),
        .embed_scale = 1.0f,
        .frozen = BT_IGNORE,
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .fused_qkv = true,
        .turned = true,
        .tied = bt_config_bool_or(config, "tie_word_embeddings", true),
    };
    bt_config_only(config, "scale_attn_weights", true);
    bt_config_only(config, "scale_attn_by_inverse_layer_idx", false);
    bt_config_only(config, "add_cross_attention", false);
}

static void names(bt_model *model, const bt_names *n)
{
    bt_stack *stack = &model->decoder;
    bt_name_matrix(n, &model->tokens, "transformer.wte.weight");
    bt_name_matrix(n, &stack->positions, "transformer.wpe.weight");
    for (size_t l = 0; l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_name_scaling(n, &layer->self_norm, "transformer.h.%zu.ln_1", l);
        bt_name_dense(n, &layer->self.fused, "transformer.h.%zu.attn.c_attn",
                      l);
        bt_name_dense(n, &layer->self.out, "transformer.h.%zu.attn.c_proj", l);
        bt_name_scaling(n, &layer->ffn_norm, "transformer.h.%zu.ln_2", l);
        bt_name_dense(n, &layer->up, "transformer.h.%zu.mlp.c_fc", l);
        bt_name_dense(n, &layer->down, "transformer.h.%zu.mlp.c_proj", l);
    }
    bt_name_scaling(n, &stack->last_norm, "transformer.ln_f");
    bt_name_matrix(n, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_gpt2 = { "gpt2", "GPT2LMHeadModel", read, names };
