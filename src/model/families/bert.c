/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - BERT and RoBERTa: post-norm encoders with token types and a masked
 * language modeling head. RoBERTa's positions start after the padding token's
 * row, and its head has other tensor names. */
#include "model/families/family.h"

#include <string.h>

static void read_common(bt_model_config *config, bt_config_reader *reader)
{
    size_t width = bt_config_reader_size(reader, "hidden_size");
    size_t heads = bt_config_reader_size(reader, "num_attention_heads");
    const char *kind = bt_config_reader_string_or(
        reader, "position_embedding_type", "absolute");
    *config = (bt_model_config){
        .stacks = BT_ENCODER_ONLY,
        .encoder = { .layers =
                         bt_config_reader_size(reader, "num_hidden_layers"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn_dim =
                         bt_config_reader_size(reader, "intermediate_size") },
        .vocab_size = bt_config_reader_size(reader, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .epsilon =
            (float)bt_config_reader_number_or(reader, "layer_norm_eps", 1e-12),
        .embed_norm = true,
        .act = bt_family_activation(reader, "hidden_act", "gelu"),
        .position_kind = BT_POSITIONS_LEARNED,
        .max_positions =
            bt_config_reader_size(reader, "max_position_embeddings"),
        .token_types = bt_config_reader_size_or(reader, "type_vocab_size", 2),
        .embed_scale = 1.0f,
        .padding_token = bt_family_padding_token(reader),
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .tied = bt_config_reader_bool_or(reader, "tie_word_embeddings", true),
        .head_bias = true,
        .head_dense = true,
    };
    if (strcmp(kind, "absolute") != 0)
        bt_config_reader_reject(reader, "position_embedding_type",
                                "and only absolute is supported");
    config->head_act = config->act;
    bt_config_reader_require(reader, "is_decoder", false);
    bt_config_reader_require(reader, "add_cross_attention", false);
}

/* Position 0 is the row after the padding token's. The head always has the
 * exact GELU, independent of hidden_act. */
static void read_roberta(bt_model_config *config, bt_config_reader *reader)
{
    read_common(config, reader);
    config->head_act = BT_ACT_GELU_ERF;
    size_t offset = bt_config_reader_size_or(reader, "pad_token_id", 1) + 1;
    if (offset >= config->max_positions)
        bt_config_reader_reject(reader, "pad_token_id",
                                "which leaves no positions after it");
    else
        config->max_positions -= offset;
    config->position_offset = offset;
}

static void visit_body(bt_model *model, const bt_tensor_visitor *visitor,
                       const char *body)
{
    bt_stack *stack = &model->encoder;
    bt_visit_matrix(visitor, &model->tokens,
                    "%s.embeddings.word_embeddings.weight", body);
    bt_visit_matrix(visitor, &stack->positions,
                    "%s.embeddings.position_embeddings.weight", body);
    bt_visit_matrix(visitor, &stack->types,
                    "%s.embeddings.token_type_embeddings.weight", body);
    bt_visit_norm(visitor, &stack->embed_norm, "%s.embeddings.LayerNorm", body);
    for (size_t l = 0; l < stack->config->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_attention_params *self = &layer->self;
        bt_visit_linear(visitor, &self->q,
                        "%s.encoder.layer.%zu.attention.self.query", body, l);
        bt_visit_linear(visitor, &self->k,
                        "%s.encoder.layer.%zu.attention.self.key", body, l);
        bt_visit_linear(visitor, &self->v,
                        "%s.encoder.layer.%zu.attention.self.value", body, l);
        bt_visit_linear(visitor, &self->out,
                        "%s.encoder.layer.%zu.attention.output.dense", body, l);
        bt_visit_norm(visitor, &layer->self_norm,
                      "%s.encoder.layer.%zu.attention.output.LayerNorm", body,
                      l);
        bt_visit_linear(visitor, &layer->up,
                        "%s.encoder.layer.%zu.intermediate.dense", body, l);
        bt_visit_linear(visitor, &layer->down,
                        "%s.encoder.layer.%zu.output.dense", body, l);
        bt_visit_norm(visitor, &layer->ffn_norm,
                      "%s.encoder.layer.%zu.output.LayerNorm", body, l);
    }
}

static void visit_bert(bt_model *model, const bt_tensor_visitor *visitor)
{
    visit_body(model, visitor, "bert");
    bt_visit_linear(visitor, &model->head_dense,
                    "cls.predictions.transform.dense");
    bt_visit_norm(visitor, &model->head_norm,
                  "cls.predictions.transform.LayerNorm");
    bt_visit_vector(visitor, &model->head.bias, "cls.predictions.bias");
    bt_visit_matrix(visitor, &model->head.w, "cls.predictions.decoder.weight");
}

static void visit_roberta(bt_model *model, const bt_tensor_visitor *visitor)
{
    visit_body(model, visitor, "roberta");
    bt_visit_linear(visitor, &model->head_dense, "lm_head.dense");
    bt_visit_norm(visitor, &model->head_norm, "lm_head.layer_norm");
    bt_visit_vector(visitor, &model->head.bias, "lm_head.bias");
    bt_visit_matrix(visitor, &model->head.w, "lm_head.decoder.weight");
}

const bt_family bt_family_bert = { "bert", "BertForMaskedLM", read_common,
                                   visit_bert };
const bt_family bt_family_roberta = { "roberta", "RobertaForMaskedLM",
                                      read_roberta, visit_roberta };
