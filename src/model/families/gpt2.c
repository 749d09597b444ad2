/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2: learned positions, pre-norm, one matrix for q, k and v, and
 * matrices stored as (inputs, outputs). */
#include "model/families/family.h"

static void read_gpt2(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "n_embd");
    size_t heads = bt_config_reader_size(reader, "n_head");
    *config = (bt_model_config){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = bt_config_reader_size(reader, "n_layer"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn_dim = bt_config_reader_size_or(reader, "n_inner",
                                                         4 * width) },
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .epsilon = (float)bt_config_reader_number_or(
            reader, "layer_norm_epsilon", 1e-5),
        .norm_first = true,
        .final_norm = true,
        .act = bt_family_activation(reader, "activation_function", "gelu_new"),
        .position_kind = BT_POSITIONS_LEARNED,
        .max_positions = bt_config_reader_size(reader, "n_positions"),
        .embed_scale = 1.0f,
        .padding_token = BT_IGNORE_INDEX,
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .fused_qkv = true,
        .transposed = true,
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true),
    };
    bt_config_reader_require(reader, "scale_attn_weights", true);
    bt_config_reader_require(reader, "scale_attn_by_inverse_layer_idx", false);
    bt_config_reader_require(reader, "add_cross_attention", false);
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bt_stack *stack = &model->decoder;
    bt_visit_matrix(visitor, &model->tokens, "transformer.wte.weight");
    bt_visit_matrix(visitor, &stack->positions, "transformer.wpe.weight");
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_visit_norm(visitor, &layer->self_norm, "transformer.h.%zu.ln_1", l);
        bt_visit_linear(visitor, &layer->self.fused,
                        "transformer.h.%zu.attn.c_attn", l);
        bt_visit_linear(visitor, &layer->self.out,
                        "transformer.h.%zu.attn.c_proj", l);
        bt_visit_norm(visitor, &layer->ffn_norm, "transformer.h.%zu.ln_2", l);
        bt_visit_linear(visitor, &layer->up, "transformer.h.%zu.mlp.c_fc", l);
        bt_visit_linear(visitor, &layer->down, "transformer.h.%zu.mlp.c_proj",
                        l);
    }
    bt_visit_norm(visitor, &stack->final_norm, "transformer.ln_f");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_gpt2 = { "gpt2", "GPT2LMHeadModel", read_gpt2,
                                   visit_tensors };
