/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - BERT and RoBERTa: encoders with norms behind each part, token types
 * and a masked-language head. RoBERTa counts positions from behind the padding
 * token and names its head otherwise. */
#include "model/families/family.h"

#include <string.h>

static void read_common(bt_blueprint *print, bt_config *config)
{
    size_t width = bt_config_size(config, "hidden_size");
    size_t heads = bt_config_size(config, "num_attention_heads");
    const char *kind =
        bt_config_text_or(config, "position_embedding_type", "absolute");
    *print = (bt_blueprint){
        .stacks = BT_ENCODER_ONLY,
        .encoder = { .layers = bt_config_size(config, "num_hidden_layers"),
                     .heads = heads,
                     .kv_heads = heads,
                     .ffn = bt_config_size(config, "intermediate_size") },
        .vocab = bt_config_size(config, "vocab_size"),
        .width = width,
        .head_dim = heads ? width / heads : 0,
        .norm = BT_NORM_LAYER,
        .epsilon = (float)bt_config_number_or(config, "layer_norm_eps", 1e-12),
        .embed_norm = true,
        .act = bt_family_act(config, "hidden_act", "gelu"),
        .positions = BT_POSITIONS_LEARNED,
        .max_positions = bt_config_size(config, "max_position_embeddings"),
        .token_types = bt_config_size_or(config, "type_vocab_size", 2),
        .embed_scale = 1.0f,
        .frozen = bt_family_padding(config),
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .tied = bt_config_bool_or(config, "tie_word_embeddings", true),
        .head_bias = true,
        .head_dense = true,
    };
    if (strcmp(kind, "absolute") != 0)
        bt_config_refuse(config, "position_embedding_type",
                         "and only absolute is supported");
    print->head_act = print->act;
    bt_config_only(config, "is_decoder", false);
    bt_config_only(config, "add_cross_attention", false);
}

/* Position 0 stands behind the padding token's row. The head has the exact
 * GELU, whatever the config says of the layers. */
static void read_roberta(bt_blueprint *print, bt_config *config)
{
    read_common(print, config);
    print->head_act = BT_ACT_GELU_ERF;
    size_t offset = bt_config_size_or(config, "pad_token_id", 1) + 1;
    if (offset >= print->max_positions)
        bt_config_refuse(config, "pad_token_id",
                         "which leaves no positions behind it");
    else
        print->max_positions -= offset;
    print->position_offset = offset;
}

static void names_body(bt_model *model, const bt_names *n, const char *body)
{
    bt_stack *stack = &model->encoder;
    bt_name_matrix(n, &model->tokens, "%s.embeddings.word_embeddings.weight",
                   body);
    bt_name_matrix(n, &stack->positions,
                   "%s.embeddings.position_embeddings.weight", body);
    bt_name_matrix(n, &stack->types,
                   "%s.embeddings.token_type_embeddings.weight", body);
    bt_name_scaling(n, &stack->embed_norm, "%s.embeddings.LayerNorm", body);
    for (size_t l = 0; l < stack->print->layers; l++) {
        bt_layer *layer = &stack->layers[l];
        bt_heads *self = &layer->self;
        bt_name_dense(n, &self->q, "%s.encoder.layer.%zu.attention.self.query",
                      body, l);
        bt_name_dense(n, &self->k, "%s.encoder.layer.%zu.attention.self.key",
                      body, l);
        bt_name_dense(n, &self->v, "%s.encoder.layer.%zu.attention.self.value",
                      body, l);
        bt_name_dense(n, &self->out,
                      "%s.encoder.layer.%zu.attention.output.dense", body, l);
        bt_name_scaling(n, &layer->self_norm,
                        "%s.encoder.layer.%zu.attention.output.LayerNorm", body,
                        l);
        bt_name_dense(n, &layer->up, "%s.encoder.layer.%zu.intermediate.dense",
                      body, l);
        bt_name_dense(n, &layer->down, "%s.encoder.layer.%zu.output.dense",
                      body, l);
        bt_name_scaling(n, &layer->ffn_norm,
                        "%s.encoder.layer.%zu.output.LayerNorm", body, l);
    }
}

static void names_bert(bt_model *model, const bt_names *n)
{
    names_body(model, n, "bert");
    bt_name_dense(n, &model->head_dense, "cls.predictions.transform.dense");
    bt_name_scaling(n, &model->head_norm,
                    "cls.predictions.transform.LayerNorm");
    bt_name_vector(n, &model->head.bias, "cls.predictions.bias");
    bt_name_matrix(n, &model->head.w, "cls.predictions.decoder.weight");
}

static void names_roberta(bt_model *model, const bt_names *n)
{
    names_body(model, n, "roberta");
    bt_name_dense(n, &model->head_dense, "lm_head.dense");
    bt_name_scaling(n, &model->head_norm, "lm_head.layer_norm");
    bt_name_vector(n, &model->head.bias, "lm_head.bias");
    bt_name_matrix(n, &model->head.w, "lm_head.decoder.weight");
}

const bt_family bt_family_bert = { "bert", "BertForMaskedLM", read_common,
                                   names_bert };
const bt_family bt_family_roberta = { "roberta", "RobertaForMaskedLM",
                                      read_roberta, names_roberta };
