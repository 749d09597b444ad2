/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - shapes of the parameters, from the blueprint. */
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

static void dense_set(bt_dense *dense, const bt_blueprint *print, size_t inputs,
                      size_t outputs, bool bias)
{
    if (print->turned)
        shape_set(&dense->w, inputs, outputs);
    else
        shape_set(&dense->w, outputs, inputs);
    if (bias)
        shape_set(&dense->bias, 1, outputs);
}

static void scaling_set(bt_scaling *scaling, const bt_blueprint *print,
                        size_t columns)
{
    shape_set(&scaling->gain, 1, columns);
    if (print->norm == BT_NORM_LAYER)
        shape_set(&scaling->bias, 1, columns);
}

static void heads_set(bt_heads *heads, const bt_blueprint *print,
                      const bt_stack_print *stack)
{
    size_t q = stack->heads * print->head_dim;
    size_t kv = stack->kv_heads * print->head_dim;
    if (print->fused_qkv)
        dense_set(&heads->fused, print, print->width, q + 2 * kv,
                  print->qkv_bias);
    dense_set(&heads->q, print, print->width, q, print->qkv_bias);
    dense_set(&heads->k, print, print->width, kv, print->qkv_bias);
    dense_set(&heads->v, print, print->width, kv, print->qkv_bias);
    dense_set(&heads->out, print, q, print->width, print->out_bias);
    if (print->qk_norm) {
        shape_set(&heads->q_norm.gain, 1, print->head_dim);
        shape_set(&heads->k_norm.gain, 1, print->head_dim);
    }
}

static void layer_set(bt_layer *layer, const bt_blueprint *print,
                      const bt_stack_print *stack, bool cross)
{
    size_t width = print->width;
    heads_set(&layer->self, print, stack);
    scaling_set(&layer->self_norm, print, width);
    if (cross) {
        heads_set(&layer->cross, print, stack);
        scaling_set(&layer->cross_norm, print, width);
    }
    scaling_set(&layer->ffn_norm, print, width);
    if (print->gated)
        dense_set(&layer->gate, print, width, stack->ffn, print->ffn_bias);
    dense_set(&layer->up, print, width, stack->ffn, print->ffn_bias);
    dense_set(&layer->down, print, stack->ffn, width, print->ffn_bias);
}

/* The table of sinusoidal positions: sines of falling frequencies in the first
 * half of the columns, cosines in the second. Few files store it. */
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

static bool stack_set(bt_stack *stack, const bt_blueprint *print,
                      const bt_stack_print *shape, bool cross)
{
    stack->print = shape;
    stack->layers = bt_alloc_zero(shape->layers, sizeof(*stack->layers));
    if (!stack->layers)
        return false;
    for (size_t l = 0; l < shape->layers; l++)
        layer_set(&stack->layers[l], print, shape, cross);
    if (print->embed_norm)
        scaling_set(&stack->embed_norm, print, print->width);
    if (print->last_norm)
        scaling_set(&stack->last_norm, print, print->width);
    if (print->token_types)
        shape_set(&stack->types, print->token_types, print->width);
    if (print->positions == BT_POSITIONS_ROTARY)
        return true;
    shape_set(&stack->positions, print->max_positions + print->position_offset,
              print->width);
    return print->positions == BT_POSITIONS_LEARNED ||
           sinusoids(&stack->positions);
}

/* Llama 3's scaling of long wavelengths: those beyond the original positions
 * are divided by the factor, short ones stay, and between the two bounds the
 * frequency is mixed. */
static double rope_scaled(const bt_rope *rope, double frequency)
{
    if (!rope->scaled)
        return frequency;
    double wavelength = 2 * acos(-1) / frequency;
    double original = (double)rope->original;
    if (wavelength < original / rope->high)
        return frequency;
    if (wavelength > original / rope->low)
        return frequency / rope->factor;
    double mix = (original / wavelength - rope->low) / (rope->high - rope->low);
    return (1 - mix) * frequency / rope->factor + mix * frequency;
}

static bool frequencies_set(bt_model *model)
{
    const bt_blueprint *print = &model->print;
    size_t half = print->head_dim / 2;
    if (print->positions != BT_POSITIONS_ROTARY)
        return true;
    model->frequencies = bt_alloc(half * sizeof(float));
    if (!model->frequencies)
        return false;
    for (size_t i = 0; i < half; i++) {
        double power = 2.0 * (double)i / (double)print->head_dim;
        // Rounded to float before and after scaling, as transformers does.
        float plain = (float)(1.0 / pow(print->rope.theta, power));
        model->frequencies[i] = (float)rope_scaled(&print->rope, (double)plain);
    }
    return true;
}

static bool model_set(bt_model *model)
{
    const bt_blueprint *print = &model->print;
    bool both = print->stacks == BT_ENCODER_DECODER;
    shape_set(&model->tokens, print->vocab, print->width);
    if (!print->tied)
        shape_set(&model->head.w, print->vocab, print->width);
    if (print->head_bias)
        shape_set(&model->head.bias, 1, print->vocab);
    if (print->head_dense) {
        dense_set(&model->head_dense, print, print->width, print->width, true);
        scaling_set(&model->head_norm, print, print->width);
    }
    if (print->stacks != BT_DECODER_ONLY &&
        !stack_set(&model->encoder, print, &print->encoder, false))
        return false;
    if (print->stacks != BT_ENCODER_ONLY &&
        !stack_set(&model->decoder, print, &print->decoder, both))
        return false;
    return frequencies_set(model);
}

bauta_status bt_model_create(bt_model **out, const bt_blueprint *print,
                             bauta_error *err)
{
    bt_model *model = bt_alloc_zero(1, sizeof(*model));
    *out = NULL;
    if (model) {
        model->print = *print;
        if (model_set(model)) {
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
    bool sines = model->print.positions == BT_POSITIONS_SINUSOIDAL;
    stack_release(&model->encoder, sines);
    stack_release(&model->decoder, sines);
    bt_free(model->frequencies);
    bt_free(model);
}

/* A part of a fused matrix or bias: `columns` from `first` on. */
static void part_of(bt_tensor *part, const bt_tensor *whole, size_t first)
{
    part->stride = whole->stride;
    part->data = whole->data ? whole->data + first : NULL;
    part->grad = whole->grad ? whole->grad + first : NULL;
    part->wants = whole->wants;
}

static void heads_split(bt_heads *heads)
{
    size_t at = 0;
    bt_dense *parts[] = { &heads->q, &heads->k, &heads->v };
    if (!heads->fused.w.rows)
        return;
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        part_of(&parts[i]->w, &heads->fused.w, at);
        part_of(&parts[i]->bias, &heads->fused.bias, at);
        at += parts[i]->w.columns;
    }
}

void bt_model_split(bt_model *model)
{
    bt_stack *stacks[] = { &model->encoder, &model->decoder };
    for (size_t i = 0; i < BT_LEN(stacks); i++)
        for (size_t l = 0; stacks[i]->print && l < stacks[i]->print->layers;
             l++)
            heads_split(&stacks[i]->layers[l].self);
}
