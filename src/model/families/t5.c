/* SPDX-License-Identifier: Apache-2.0 */
/* t5.c - T5: an encoder-decoder with RMS pre-norms, no biases, and a learned
 * bias for each bucket of relative positions, which all layers of a stack
 * share. Scores are not scaled. Version 1.0 has ReLU and scales the hidden
 * states before its tied head; 1.1 has a gated GELU and a head of its own. */
#include "model/families/family.h"

#include <math.h>
#include <string.h>

/* "relu", or "gated-" and an activation; gated-gelu is GELU by tanh. */
static void read_feed_forward(bt_model_config *config, bt_config_reader *reader)
{
    static const struct {
        const char *name;
        bt_act act;
        bool gated;
    } kinds[] = {
        { "relu", BT_ACT_RELU, false },
        { "gelu", BT_ACT_GELU_ERF, false },
        { "gated-gelu", BT_ACT_GELU_TANH, true },
        { "gated-silu", BT_ACT_SILU, true },
        { "gated-relu", BT_ACT_RELU, true },
    };
    const char *name =
        bt_config_reader_string_or(reader, "feed_forward_proj", "relu");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0) {
            config->act = kinds[i].act;
            config->gated = kinds[i].gated;
            return;
        }
    bt_config_reader_reject(reader, "feed_forward_proj",
                            "which is not a known feed-forward part");
}

static void read_config(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "d_model");
    size_t heads = bt_config_reader_size(reader, "num_heads");
    size_t layers = bt_config_reader_size(reader, "num_layers");
    bool tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true);
    bool scaled =
        bt_config_reader_bool_or(reader, "scale_decoder_outputs", tied);
    bt_stack_config stack = { .layers = layers,
                              .heads = heads,
                              .kv_heads = heads,
                              .ffn_dim =
                                  bt_config_reader_size(reader, "d_ff") };
    *config = (bt_model_config){
        .stacks = BT_ENCODER_DECODER,
        .encoder = stack,
        .decoder = stack,
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = bt_config_reader_size(reader, "d_kv"),
        .norm = BT_NORM_RMS,
        .epsilon = (float)bt_config_reader_number_or(
            reader, "layer_norm_epsilon", 1e-6),
        .norm_first = true,
        .final_norm = true,
        .position_kind = BT_POSITIONS_RELATIVE,
        .max_positions = bt_config_reader_size_or(reader, "n_positions", 512),
        .relative_buckets = bt_config_reader_size_or(
            reader, "relative_attention_num_buckets", 32),
        .relative_max_distance = bt_config_reader_size_or(
            reader, "relative_attention_max_distance", 128),
        .attention_scale = 1.0f,
        .embed_scale = 1.0f,
        .padding_token = BT_IGNORE_INDEX,
        .tied = tied,
        .head_scale = scaled ? (float)(1.0 / sqrt((double)width)) : 0.0f,
    };
    config->decoder.layers =
        bt_config_reader_size_or(reader, "num_decoder_layers", layers);
    read_feed_forward(config, reader);
    bt_config_reader_require(reader, "is_encoder_decoder", true);
}

static void visit_attention(const bt_tensor_visitor *visitor,
                            bt_attention_params *heads, const char *stack,
                            size_t l, const char *attention)
{
    bt_visit_linear(visitor, &heads->q, "%s.block.%zu.layer.%s.q", stack, l,
                    attention);
    bt_visit_linear(visitor, &heads->k, "%s.block.%zu.layer.%s.k", stack, l,
                    attention);
    bt_visit_linear(visitor, &heads->v, "%s.block.%zu.layer.%s.v", stack, l,
                    attention);
    bt_visit_linear(visitor, &heads->out, "%s.block.%zu.layer.%s.o", stack, l,
                    attention);
}

/* The feed-forward part is the last of a block's two or three layers. */
static void visit_stack(const bt_tensor_visitor *visitor, bt_stack *stack,
                        const char *name, int last, bool gated)
{
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        visit_attention(visitor, &layer->self, name, l, "0.SelfAttention");
        if (l == 0)
            bt_visit_matrix(visitor, &stack->relative,
                            "%s.block.0.layer.0.SelfAttention."
                            "relative_attention_bias.weight",
                            name);
        bt_visit_norm(visitor, &layer->self_norm,
                      "%s.block.%zu.layer.0.layer_norm", name, l);
        if (last == 2) {
            visit_attention(visitor, &layer->cross, name, l,
                            "1.EncDecAttention");
            bt_visit_norm(visitor, &layer->cross_norm,
                          "%s.block.%zu.layer.1.layer_norm", name, l);
        }
        bt_visit_linear(visitor, &layer->gate,
                        "%s.block.%zu.layer.%d.DenseReluDense.wi_0", name, l,
                        last);
        bt_visit_linear(visitor, &layer->up,
                        "%s.block.%zu.layer.%d.DenseReluDense.%s", name, l,
                        last, gated ? "wi_1" : "wi");
        bt_visit_linear(visitor, &layer->down,
                        "%s.block.%zu.layer.%d.DenseReluDense.wo", name, l,
                        last);
        bt_visit_norm(visitor, &layer->ffn_norm,
                      "%s.block.%zu.layer.%d.layer_norm", name, l, last);
    }
    bt_visit_norm(visitor, &stack->final_norm, "%s.final_layer_norm", name);
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bool gated = model->config.gated;
    bt_visit_matrix(visitor, &model->tokens, "shared.weight");
    visit_stack(visitor, &model->encoder, "encoder", 1, gated);
    visit_stack(visitor, &model->decoder, "decoder", 2, gated);
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_t5 = { "t5",
                                 "T5ForConditionalGeneration "
                                 "T5WithLMHeadModel",
                                 read_config, visit_tensors };
