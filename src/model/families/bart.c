/* SPDX-License-Identifier: Apache-2.0 */
/* bart.c - BART and Marian: encoder and decoder with norms behind each part.
 * Marian has sinusoidal positions, which few files store; BART has learned ones
 * from row 2 on, and norms after the embeddings. */
#include "model/families/family.h"

#include <math.h>

static bt_stack_print read_stack(bt_config *config, const char *layers,
                                 const char *heads, const char *ffn)
{
    size_t count = bt_config_size(config, heads);
    return (bt_stack_print){ .layers = bt_config_size(config, layers),
                             .heads = count,
                             .kv_heads = count,
                             .ffn = bt_config_size(config, ffn) };
}

static void read_common(bt_blueprint *print, bt_config *config)
{
    size_t width = bt_config_size(config, "d_model");
    bool scaled = bt_config_bool_or(config, "scale_embedding", false);
    *print = (bt_blueprint){
        .stacks = BT_ENCODER_DECODER,
        .encoder = read_stack(config, "encoder_layers",
                              "encoder_attention_heads", "encoder_ffn_dim"),
        .decoder = read_stack(config, "decoder_layers",
                              "decoder_attention_heads", "decoder_ffn_dim"),
        .vocab = bt_config_size(config, "vocab_size"),
        .width = width,
        .norm = BT_NORM_LAYER,
        .epsilon = 1e-5f,
        .max_positions = bt_config_size(config, "max_position_embeddings"),
        .embed_scale = scaled ? (float)sqrt((double)width) : 1.0f,
        .frozen = bt_family_padding(config),
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .tied = bt_config_bool_or(config, "tie_word_embeddings", true),
        .head_bias = true,
        .head_bias_fixed = true,
    };
    if (print->encoder.heads)
        print->head_dim = width / print->encoder.heads;
    if (print->encoder.heads != print->decoder.heads)
        bt_config_refuse(config, "decoder_attention_heads",
                         "which differs from encoder_attention_heads");
    bt_config_only(config, "normalize_before", false);
    bt_config_only(config, "add_final_layer_norm", false);
}

static void read_marian(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->act = bt_family_act(config, "activation_function", "gelu");
    print->positions = BT_POSITIONS_SINUSOIDAL;
    bt_config_only(config, "static_position_embeddings", true);
    bt_config_only(config, "normalize_embedding", false);
    bt_config_only(config, "share_encoder_decoder_embeddings", true);
    if (bt_config_size_or(config, "decoder_vocab_size", print->vocab) !=
        print->vocab)
        bt_config_refuse(config, "decoder_vocab_size",
                         "which differs from vocab_size");
}

static void read_bart(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->act = bt_family_act(config, "activation_function", "gelu");
    print->positions = BT_POSITIONS_LEARNED;
    print->position_offset = 2;
    print->embed_norm = true;
}

static void names_heads(const bt_names *n, bt_heads *heads, const char *stack,
                        size_t l, const char *part)
{
    bt_name_dense(n, &heads->k, "model.%s.layers.%zu.%s.k_proj", stack, l,
                  part);
    bt_name_dense(n, &heads->v, "model.%s.layers.%zu.%s.v_proj", stack, l,
                  part);
    bt_name_dense(n, &heads->q, "model.%s.layers.%zu.%s.q_proj", stack, l,
                  part);
    bt_name_dense(n, &heads->out, "model.%s.layers.%zu.%s.out_proj", stack, l,
                  part);
}

static void names_stack(const bt_names *n, bt_stack *stack, const char *name,
                        bool positions)
{
    if (positions || stack->positions_stored)
        bt_name_matrix(n, &stack->positions, "model.%s.embed_positions.weight",
                       name);
    bt_name_scaling(n, &stack->embed_norm, "model.%s.layernorm_embedding",
                    name);
    for (size_t l = 0; l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        names_heads(n, &layer->self, name, l, "self_attn");
        bt_name_scaling(n, &layer->self_norm,
                        "model.%s.layers.%zu.self_attn_layer_norm", name, l);
        names_heads(n, &layer->cross, name, l, "encoder_attn");
        bt_name_scaling(n, &layer->cross_norm,
                        "model.%s.layers.%zu.encoder_attn_layer_norm", name, l);
        bt_name_dense(n, &layer->up, "model.%s.layers.%zu.fc1", name, l);
        bt_name_dense(n, &layer->down, "model.%s.layers.%zu.fc2", name, l);
        bt_name_scaling(n, &layer->ffn_norm,
                        "model.%s.layers.%zu.final_layer_norm", name, l);
    }
}

static void names(bt_model *model, const bt_names *n)
{
    bool stored = model->print.positions == BT_POSITIONS_LEARNED;
    bt_name_matrix(n, &model->tokens, "model.shared.weight");
    names_stack(n, &model->encoder, "encoder", stored);
    names_stack(n, &model->decoder, "decoder", stored);
    bt_name_matrix(n, &model->head.bias, "final_logits_bias");
    bt_name_matrix(n, &model->head.w, "lm_head.weight");
}

const bt_family bt_family_marian = { "marian", "MarianMTModel", read_marian,
                                     names };
const bt_family bt_family_bart = { "bart", "BartForConditionalGeneration",
                                   read_bart, names };
