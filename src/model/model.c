/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the shapes of a model's parameters, from its config. */
#include "model/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>

static void shape_set(bt_tensor *tensor, size_t rows, size_t columns)
{
    *tensor =
        (bt_tensor){ .rows = rows, .columns = columns, .stride = columns };
}

static void linear_init(bt_linear_params *linear, const bt_model_config *config,
                        size_t inputs, size_t outputs, bool bias)
{
    if (config->transposed)
        shape_set(&linear->w, inputs, outputs);
    else
        shape_set(&linear->w, outputs, inputs);
    if (bias)
        shape_set(&linear->bias, 1, outputs);
}

static void norm_init(bt_norm_params *norm, const bt_model_config *config,
                      size_t columns)
{
    shape_set(&norm->gain, 1, columns);
    if (config->norm == BT_NORM_LAYER)
        shape_set(&norm->bias, 1, columns);
}

static void attention_init(bt_attention_params *attention,
                           const bt_model_config *config,
                           const bt_stack_config *stack)
{
    size_t q = stack->heads * config->head_dim;
    size_t kv = stack->kv_heads * config->head_dim;
    if (config->fused_qkv)
        linear_init(&attention->fused, config, config->width, q + 2 * kv,
                    config->qkv_bias);
    linear_init(&attention->q, config, config->width, q, config->qkv_bias);
    linear_init(&attention->k, config, config->width, kv, config->qkv_bias);
    linear_init(&attention->v, config, config->width, kv, config->qkv_bias);
    linear_init(&attention->out, config, q, config->width, config->out_bias);
    if (config->qk_norm) {
        shape_set(&attention->q_norm.gain, 1, config->head_dim);
        shape_set(&attention->k_norm.gain, 1, config->head_dim);
    }
}

static void layer_init(bt_layer *layer, const bt_model_config *config,
                       const bt_stack_config *stack, bool cross)
{
    size_t width = config->width;
    attention_init(&layer->self, config, stack);
    norm_init(&layer->self_norm, config, width);
    if (cross) {
        attention_init(&layer->cross, config, stack);
        norm_init(&layer->cross_norm, config, width);
    }
    norm_init(&layer->ffn_norm, config, width);
    if (config->gated)
        linear_init(&layer->gate, config, width, stack->ffn_dim,
                    config->ffn_bias);
    linear_init(&layer->up, config, width, stack->ffn_dim, config->ffn_bias);
    linear_init(&layer->down, config, stack->ffn_dim, width, config->ffn_bias);
}

/* The sinusoidal position table: sines in the first half of the columns,
 * cosines in the second. Few files store it. */
static bool sinusoids(bt_tensor *positions)
{
    size_t half = (positions->columns + 1) / 2;
    float *table = bt_alloc_zero(
        bt_size_mul(positions->rows, positions->columns), sizeof(float));
    if (!table)
        return false;
    for (size_t t = 0; t < positions->rows; t++)
        for (size_t c = 0; c < positions->columns; c++) {
            size_t pair = c < half ? c : c - half;
            double angle =
                (double)t /
                pow(10000, 2.0 * (double)pair / (double)positions->columns);
            table[t * positions->columns + c] =
                (float)(c < half ? sin(angle) : cos(angle));
        }
    positions->data = table;
    return true;
}

static bool stack_init(bt_stack *stack, const bt_model_config *config,
                       const bt_stack_config *shape, bool cross)
{
    stack->config = shape;
    stack->layers = bt_alloc_zero(shape->layers, sizeof(*stack->layers));
    if (!stack->layers)
        return false;
    for (size_t l = 0; l < shape->layers; l++)
        layer_init(&stack->layers[l], config, shape, cross);
    if (config->embed_norm)
        norm_init(&stack->embed_norm, config, config->width);
    if (config->final_norm)
        norm_init(&stack->final_norm, config, config->width);
    if (config->token_types)
        shape_set(&stack->types, config->token_types, config->width);
    if (config->position_kind == BT_POSITIONS_ROTARY)
        return true;
    shape_set(&stack->positions,
              config->max_positions + config->position_offset, config->width);
    return config->position_kind == BT_POSITIONS_LEARNED ||
           sinusoids(&stack->positions);
}

/* Llama 3's scaling: the frequencies of long wavelengths are divided by the
 * factor, those of short ones stay, and between the two bounds they are
 * interpolated. */
static double rope_scaled(const bt_rope_config *rope, double frequency)
{
    if (!rope->scaled)
        return frequency;
    double wavelength = 2 * acos(-1) / frequency;
    double original = (double)rope->original_positions;
    if (wavelength < original / rope->high_freq_factor)
        return frequency;
    if (wavelength > original / rope->low_freq_factor)
        return frequency / rope->factor;
    double mix = (original / wavelength - rope->low_freq_factor) /
                 (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - mix) * frequency / rope->factor + mix * frequency;
}

static bool frequencies_init(bt_model *model)
{
    const bt_model_config *config = &model->config;
    size_t half = config->head_dim / 2;
    if (config->position_kind != BT_POSITIONS_ROTARY)
        return true;
    model->frequencies = bt_alloc(half * sizeof(float));
    if (!model->frequencies)
        return false;
    for (size_t i = 0; i < half; i++) {
        double power = 2.0 * (double)i / (double)config->head_dim;
        // Rounded to float before and after norm, as transformers does.
        float plain = (float)(1.0 / pow(config->rope.theta, power));
        model->frequencies[i] =
            (float)rope_scaled(&config->rope, (double)plain);
    }
    return true;
}

static bool parameters_init(bt_model *model)
{
    const bt_model_config *config = &model->config;
    bool both = config->stacks == BT_ENCODER_DECODER;
    shape_set(&model->tokens, config->vocab_size, config->width);
    if (!config->tied)
        shape_set(&model->head.w, config->vocab_size, config->width);
    if (config->head_bias)
        shape_set(&model->head.bias, 1, config->vocab_size);
    if (config->head_dense) {
        linear_init(&model->head_dense, config, config->width, config->width,
                    true);
        norm_init(&model->head_norm, config, config->width);
    }
    if (config->stacks != BT_DECODER_ONLY &&
        !stack_init(&model->encoder, config, &config->encoder, false))
        return false;
    if (config->stacks != BT_ENCODER_ONLY &&
        !stack_init(&model->decoder, config, &config->decoder, both))
        return false;
    return frequencies_init(model);
}

bauta_status bt_model_create(bt_model **out, const bt_model_config *config,
                             bauta_error *err)
{
    bt_model *model = bt_alloc_zero(1, sizeof(*model));
    *out = NULL;
    if (model) {
        model->config = *config;
        if (parameters_init(model)) {
            *out = model;
            return BAUTA_OK;
        }
    }
    bt_model_free(model);
    return bt_fail(err, BAUTA_ERR_NOMEM, "out of memory for a model");
}

static void stack_release(bt_stack *stack, bool sines)
{
    bt_free(stack->layers);
    if (sines && !stack->positions_stored)
        bt_free(stack->positions.data);
}

void bt_model_free(bt_model *model)
{
    if (!model)
        return;
    bool sines = model->config.position_kind == BT_POSITIONS_SINUSOIDAL;
    stack_release(&model->encoder, sines);
    stack_release(&model->decoder, sines);
    bt_free(model->frequencies);
    bt_free(model);
}

/* Make `part` a view of columns of a fused matrix or bias, from `first` on. */
static void part_of(bt_tensor *part, const bt_tensor *whole, size_t first)
{
    part->stride = whole->stride;
    part->data = whole->data ? whole->data + first : NULL;
    part->grad = whole->grad ? whole->grad + first : NULL;
    part->requires_grad = whole->requires_grad;
}

static void heads_split(bt_attention_params *attention)
{
    size_t at = 0;
    bt_linear_params *parts[] = { &attention->q, &attention->k, &attention->v };
    if (!attention->fused.w.rows)
        return;
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        part_of(&parts[i]->w, &attention->fused.w, at);
        part_of(&parts[i]->bias, &attention->fused.bias, at);
        at += parts[i]->w.columns;
    }
}

void bt_model_split_qkv(bt_model *model)
{
    bt_stack *stacks[] = { &model->encoder, &model->decoder };
    for (size_t i = 0; i < BT_LEN(stacks); i++)
        for (size_t l = 0; stacks[i]->config && l < stacks[i]->config->layers;
             l++)
            heads_split(&stacks[i]->layers[l].self);
}
