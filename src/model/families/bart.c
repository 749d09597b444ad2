/* SPDX-License-Identifier: Apache-2.0 */
/* bart.c - BART and Marian: post-norm encoder-decoders. Marian has sinusoidal
 * positions, which few files store. BART has learned positions that start at
 * row 2, and a norm after the embeddings. */
#include "model/families/family.h"

#include <math.h>

static bt_stack_config read_stack(bt_config_reader *reader, const char *layers,
                                  const char *heads, const char *ffn)
{
    size_t count = bt_config_reader_size(reader, heads);
    return (bt_stack_config){ .layers = bt_config_reader_size(reader, layers),
                              .heads = count,
                              .kv_heads = count,
                              .ffn_dim = bt_config_reader_size(reader, ffn) };
}

static void read_common(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "d_model");
    bool scaled = bt_config_reader_bool_or(reader, "scale_embedding", false);
    *config = (bt_model_config){
        .stacks = BT_ENCODER_DECODER,
        .encoder = read_stack(reader, "encoder_layers",
                              "encoder_attention_heads", "encoder_ffn_dim"),
        .decoder = read_stack(reader, "decoder_layers",
                              "decoder_attention_heads", "decoder_ffn_dim"),
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .norm = BT_NORM_LAYER,
        .epsilon = 1e-5f,
        .max_positions =
            bt_config_reader_size(reader, "max_position_embeddings"),
        .embed_scale = scaled ? (float)sqrt((double)width) : 1.0f,
        .padding_token = bt_family_padding_token(reader),
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true),
        .head_bias = true,
        .head_bias_fixed = true,
    };
    if (config->encoder.heads)
        config->head_dim = width / config->encoder.heads;
    if (config->encoder.heads != config->decoder.heads)
        bt_config_reader_reject(reader, "decoder_attention_heads",
                                "which differs from encoder_attention_heads");
    bt_config_reader_require(reader, "normalize_before", false);
    bt_config_reader_require(reader, "add_final_layer_norm", false);
}

static void read_marian(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->act = bt_family_activation(reader, "activation_function", "gelu");
    config->position_kind = BT_POSITIONS_SINUSOIDAL;
    bt_config_reader_require(reader, "static_position_embeddings", true);
    bt_config_reader_require(reader, "normalize_embedding", false);
    bt_config_reader_require(reader, "share_encoder_decoder_embeddings", true);
    if (bt_config_reader_size_or(reader, "decoder_vocab_size",
                                 config->vocab_size) != config->vocab_size)
        bt_config_reader_reject(reader, "decoder_vocab_size",
                                "which differs from vocab_size");
}

static void read_bart(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->act = bt_family_activation(reader, "activation_function", "gelu");
    config->position_kind = BT_POSITIONS_LEARNED;
    config->position_offset = 2;
    config->embed_norm = true;
}

static void visit_attention(const bt_tensor_visitor *visitor,
                            bt_attention_params *heads, const char *stack,
                            size_t l, const char *attention)
{
    bt_visit_linear(visitor, &heads->k, "model.%s.layers.%zu.%s.k_proj", stack,
                    l, attention);
    bt_visit_linear(visitor, &heads->v, "model.%s.layers.%zu.%s.v_proj", stack,
                    l, attention);
    bt_visit_linear(visitor, &heads->q, "model.%s.layers.%zu.%s.q_proj", stack,
                    l, attention);
    bt_visit_linear(visitor, &heads->out, "model.%s.layers.%zu.%s.out_proj",
                    stack, l, attention);
}

static void visit_stack(const bt_tensor_visitor *visitor, bt_stack *stack,
                        const char *name, bool positions)
{
    if (positions || stack->positions_stored)
        bt_visit_matrix(visitor, &stack->positions,
                        "model.%s.embed_positions.weight", name);
    bt_visit_norm(visitor, &stack->embed_norm, "model.%s.layernorm_embedding",
                  name);
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        visit_attention(visitor, &layer->self, name, l, "self_attn");
        bt_visit_norm(visitor, &layer->self_norm,
                      "model.%s.layers.%zu.self_attn_layer_norm", name, l);
        visit_attention(visitor, &layer->cross, name, l, "encoder_attn");
        bt_visit_norm(visitor, &layer->cross_norm,
                      "model.%s.layers.%zu.encoder_attn_layer_norm", name, l);
        bt_visit_linear(visitor, &layer->up, "model.%s.layers.%zu.fc1", name,
                        l);
        bt_visit_linear(visitor, &layer->down, "model.%s.layers.%zu.fc2", name,
                        l);
        bt_visit_norm(visitor, &layer->ffn_norm,
                      "model.%s.layers.%zu.final_layer_norm", name, l);
    }
}

static void visit_tensors(bt_model *model, const bt_tensor_visitor *visitor)
{
    bool stored = model->config.position_kind == BT_POSITIONS_LEARNED;
    bt_visit_matrix(visitor, &model->tokens, "model.shared.weight");
    visit_stack(visitor, &model->encoder, "encoder", stored);
    visit_stack(visitor, &model->decoder, "decoder", stored);
    bt_visit_matrix(visitor, &model->head.bias, "final_logits_bias");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_marian = { "marian", "MarianMTModel", read_marian,
                                     visit_tensors };
const bt_family bt_family_bart = { "bart", "BartForConditionalGeneration",
                                   read_bart, visit_tensors };
