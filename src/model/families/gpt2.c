/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2: learned positions, pre-norm, one matrix for q, k and v, and
 * matrices stored as (inputs, outputs). */
#include "model/families/family.h"

static void read_gpt2(bt_blueprint *config, bt_config *reader)
{
    size_t width = bt_config_size(reader, "n_embd");
    size_t heads = bt_config_size(reader, "n_head");
    *config = (bt_blueprint){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = bt_config_size(reader, "n_layer"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn = bt_config_size_or(reader, "n_inner", 4 * width) },
        .vocab = bt_config_size(reader, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .epsilon =
            (float)bt_config_number_or(reader, "layer_norm_epsilon", 1e-5),
        .norm_first = true,
        .last_norm = true,
        .act = bt_family_act(reader, "activation_function", "gelu_new"),
        .positions = BT_POSITIONS_LEARNED,
        .max_positions = bt_config_size(reader, "n_positions"),
        .embed_scale = 1.0f,
        .frozen = BT_IGNORE,
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .fused_qkv = true,
        .turned = true,
        .tied = bt_config_bool_or(reader, "tie_word_embeddings", true),
    };
    bt_config_only(reader, "scale_attn_weights", true);
    bt_config_only(reader, "scale_attn_by_inverse_layer_idx", false);
    bt_config_only(reader, "add_cross_attention", false);
}

static void visit_tensors(bt_model *model, const bt_names *visitor)
{
    bt_stack *stack = &model->decoder;
    bt_name_matrix(visitor, &model->tokens, "transformer.wte.weight");
    bt_name_matrix(visitor, &stack->positions, "transformer.wpe.weight");
    for (size_t l = 0; l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_name_scaling(visitor, &layer->self_norm, "transformer.h.%zu.ln_1",
                        l);
        bt_name_dense(visitor, &layer->self.fused,
                      "transformer.h.%zu.attn.c_attn", l);
        bt_name_dense(visitor, &layer->self.out,
                      "transformer.h.%zu.attn.c_proj", l);
        bt_name_scaling(visitor, &layer->ffn_norm, "transformer.h.%zu.ln_2", l);
        bt_name_dense(visitor, &layer->up, "transformer.h.%zu.mlp.c_fc", l);
        bt_name_dense(visitor, &layer->down, "transformer.h.%zu.mlp.c_proj", l);
    }
    bt_name_scaling(visitor, &stack->last_norm, "transformer.ln_f");
    bt_name_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_gpt2 = { "gpt2", "GPT2LMHeadModel", read_gpt2,
                                   visit_tensors };
