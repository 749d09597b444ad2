/* SPDX-License-Identifier: Apache-2.0 */
/* mpt.c - MPT: ALiBi instead of positions, pre-norms without a bias, one matrix
 * for q, k and v, and no biases at all. */
#include "model/families/family.h"

/* The options of attn_config, of which transformers reads few; what it does not
 * read must not ask for something else. */
static void read_attention(bt_model_config *config, bt_config_reader *reader)
{
    if (!bt_config_reader_enter(reader, "attn_config"))
        return;
    config->attention_scale =
        (float)bt_config_reader_number_or(reader, "softmax_scale", 0);
    config->alibi_bias_max =
        bt_config_reader_number_or(reader, "alibi_bias_max", 8);
    if (config->alibi_bias_max != 8)
        bt_config_reader_reject(reader, "alibi_bias_max",
                                "and transformers always takes 8");
    if (bt_config_reader_number_or(reader, "clip_qkv", 0) != 0)
        bt_config_reader_reject(reader, "clip_qkv", "which is not supported");
    bt_config_reader_require(reader, "alibi", true);
    bt_config_reader_require(reader, "prefix_lm", false);
    bt_config_reader_require(reader, "qk_ln", false);
    bt_config_reader_leave(reader);
}

static void read_mpt(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "d_model");
    size_t heads = bt_config_reader_size(reader, "n_heads");
    *config = (bt_model_config){
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = bt_config_reader_size(reader, "n_layers"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn_dim = 4 * width },
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .norm_no_bias = true,
        .epsilon = (float)bt_config_reader_number_or(
            reader, "layer_norm_epsilon", 1e-5),
        .norm_first = true,
        .final_norm = true,
        .act = BT_ACT_GELU_ERF,
        .position_kind = BT_POSITIONS_ALIBI,
        .alibi_bias_max = 8,
        .max_positions = bt_config_reader_size(reader, "max_seq_len"),
        .embed_scale = 1.0f,
        .padding_token = BT_IGNORE_INDEX,
        .fused_qkv = true,
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true),
    };
    read_attention(config, reader);
    bt_config_reader_require(reader, "no_bias", true);
    if (bt_config_reader_size_or(reader, "expansion_ratio", 4) != 4)
        bt_config_reader_reject(reader, "expansion_ratio",
                                "and transformers always takes 4");
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bt_stack *stack = &model->decoder;
    bt_visit_matrix(visitor, &model->tokens, "transformer.wte.weight");
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_visit_norm(visitor, &layer->self_norm,
                      "transformer.blocks.%zu.norm_1", l);
        bt_visit_linear(visitor, &layer->self.fused,
                        "transformer.blocks.%zu.attn.Wqkv", l);
        bt_visit_linear(visitor, &layer->self.out,
                        "transformer.blocks.%zu.attn.out_proj", l);
        bt_visit_norm(visitor, &layer->ffn_norm,
                      "transformer.blocks.%zu.norm_2", l);
        bt_visit_linear(visitor, &layer->up,
                        "transformer.blocks.%zu.ffn.up_proj", l);
        bt_visit_linear(visitor, &layer->down,
                        "transformer.blocks.%zu.ffn.down_proj", l);
    }
    bt_visit_norm(visitor, &stack->final_norm, "transformer.norm_f");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_mpt = { "mpt", "MptForCausalLM", read_mpt,
                                  visit_tensors };
