/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the shapes of a model's parameters, from its config. */
#include "model/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "model/layer_mask.h"

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
    if (config->norm == BT_NORM_LAYER && !config->norm_no_bias)
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
    if (config->post_norm) {
        norm_init(&layer->self_post_norm, config, width);
        norm_init(&layer->ffn_post_norm, config, width);
    }
    if (config->gated)
        linear_init(&layer->gate, config, width, stack->ffn_dim,
                    config->ffn_bias);
    linear_init(&layer->up, config, width, stack->ffn_dim, config->ffn_bias);
    linear_init(&layer->down, config, stack->ffn_dim, width, config->ffn_bias);
}

/* The sinusoidal position table: sines in the first half of the columns,
 * cosines in the second. Few files store it. */
static bool sinusoids(bt_stack *stack)
{
    bt_tensor *positions = &stack->positions;
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
    stack->sinusoids = bt_buffer_of_host(
        table, positions->rows * positions->columns * sizeof(float));
    positions->buffer = &stack->sinusoids;
    return true;
}

/* The bucket of a distance of at least 0, as in T5: half of the buckets hold
 * one distance each, the others ever longer ranges up to the largest distance.
 * The logarithm is that of float32, as in transformers. */
static size_t relative_bucket(size_t distance, size_t buckets, size_t most)
{
    size_t exact = buckets / 2;
    if (distance < exact)
        return distance;
    float part = logf((float)distance / (float)exact) /
                 (float)log((double)most / (double)exact) *
                 (float)(buckets - exact);
    return bt_size_min(exact + (size_t)part, buckets - 1);
}

/* The buckets of all distances from key to query up to the largest, beyond
 * which they do not change. A bidirectional stack has half of the buckets for
 * keys after the query; a causal one sees none of these. */
static bool relative_init(bt_stack *stack, const bt_model_config *config,
                          const bt_stack_config *shape, bool causal)
{
    size_t most = config->relative_max_distance;
    size_t buckets = config->relative_buckets / (causal ? 1 : 2);
    stack->first_distance = -(ptrdiff_t)most;
    stack->distances = causal ? most + 1 : 2 * most + 1;
    stack->buckets = bt_alloc(stack->distances * sizeof(*stack->buckets));
    if (!stack->buckets)
        return false;
    for (size_t i = 0; i < stack->distances; i++)
        stack->buckets[i] =
            (uint32_t)(i <= most ? relative_bucket(most - i, buckets, most)
                                 : buckets + relative_bucket(i - most, buckets,
                                                             most));
    shape_set(&stack->relative, config->relative_buckets, shape->heads);
    return true;
}

static bool stack_init(bt_stack *stack, const bt_model_config *config,
                       const bt_stack_config *shape, bool causal, bool cross)
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
    if (config->position_kind == BT_POSITIONS_RELATIVE)
        return relative_init(stack, config, shape, causal);
    if (!bt_positions_in_table(config->position_kind))
        return true;
    shape_set(&stack->positions,
              config->max_positions + config->position_offset, config->width);
    return config->position_kind == BT_POSITIONS_LEARNED || sinusoids(stack);
}

/* Llama 3's scaling: the frequencies of long wavelengths are divided by the
 * factor, those of short ones stay, and between the two bounds they are
 * interpolated. */
static double rope_scaled(const bt_rope_config *rope, double frequency)
{
    if (rope->linear != 0)
        return frequency / rope->linear;
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

static float *frequencies_create(const bt_rope_config *rope, size_t head_dim)
{
    float *frequencies = bt_alloc(head_dim / 2 * sizeof(float));
    for (size_t i = 0; frequencies && i < head_dim / 2; i++) {
        double power = 2.0 * (double)i / (double)head_dim;
        // Rounded to float before and after norm, as transformers does.
        float plain = (float)(1.0 / pow(rope->theta, power));
        frequencies[i] = (float)rope_scaled(rope, (double)plain);
    }
    return frequencies;
}

static bool frequencies_init(bt_model *model)
{
    const bt_model_config *config = &model->config;
    const bt_rope_config window = { .theta = config->local_rope_theta };
    if (config->position_kind != BT_POSITIONS_ROTARY)
        return true;
    model->frequencies = frequencies_create(&config->rope, config->head_dim);
    if (window.theta != 0)
        model->local_frequencies =
            frequencies_create(&window, config->head_dim);
    return model->frequencies &&
           (window.theta == 0 || model->local_frequencies);
}

/* ALiBi's slopes for a power of two of heads, 2^(-max i / heads) for i from 1
 * on; for other numbers those of the next power, the second of each pair
 * first. */
static bool slopes_init(bt_model *model)
{
    const bt_model_config *config = &model->config;
    size_t heads = config->decoder.heads, power = 1;
    if (config->position_kind != BT_POSITIONS_ALIBI)
        return true;
    model->slopes = bt_alloc(heads * sizeof(float));
    while (power < heads)
        power *= 2;
    for (size_t h = 0; model->slopes && h < heads; h++) {
        size_t i = h + 1;
        if (power != heads)
            i = h < power / 2 ? 2 * h + 2 : 2 * (h - power / 2) + 1;
        model->slopes[h] =
            (float)pow(2, -config->alibi_bias_max * (double)i / (double)power);
    }
    return model->slopes != NULL;
}

static bool ones_init(bt_model *model)
{
    const bt_model_config *config = &model->config;
    size_t count = bt_size_max(config->width, config->head_dim);
    if (!config->norm_plus_one)
        return true;
    model->ones = bt_alloc(count * sizeof(float));
    for (size_t i = 0; model->ones && i < count; i++)
        model->ones[i] = 1.0f;
    return model->ones != NULL;
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
        !stack_init(&model->encoder, config, &config->encoder, false, false))
        return false;
    if (config->stacks != BT_ENCODER_ONLY &&
        !stack_init(&model->decoder, config, &config->decoder, true, both))
        return false;
    return frequencies_init(model) && ones_init(model) && slopes_init(model);
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

static void stack_release(bt_stack *stack)
{
    bt_free(stack->layers);
    bt_free(stack->buckets);
    if (stack->sinusoids.memory)
        stack->sinusoids.backend->free(&stack->sinusoids);
}

void bt_model_free(bt_model *model)
{
    if (!model)
        return;
    stack_release(&model->encoder);
    stack_release(&model->decoder);
    bt_free(model->frequencies);
    bt_free(model->local_frequencies);
    bt_free(model->ones);
    bt_free(model->slopes);
    bt_free(model);
}

/* Make `part` a view of a fused matrix or bias, from element `first` on. */
static void part_of(bt_tensor *part, const bt_tensor *whole, size_t first)
{
    part->stride = whole->stride;
    part->dtype = whole->dtype;
    part->grad_dtype = whole->grad_dtype;
    part->buffer = whole->buffer;
    part->offset = whole->offset + first;
    part->grad = whole->grad;
    part->grad_offset = whole->grad_offset + first;
    part->requires_grad = whole->requires_grad;
}

static void heads_split(bt_attention_params *attention, bool transposed)
{
    size_t at = 0; // in the outputs
    bt_linear_params *parts[] = { &attention->q, &attention->k, &attention->v };
    if (!attention->fused.w.rows)
        return;
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        part_of(&parts[i]->w, &attention->fused.w,
                transposed ? at : at * attention->fused.w.stride);
        part_of(&parts[i]->bias, &attention->fused.bias, at);
        at += transposed ? parts[i]->w.columns : parts[i]->w.rows;
    }
}

void bt_model_split_qkv(bt_model *model)
{
    bt_stack *stacks[] = { &model->encoder, &model->decoder };
    for (size_t i = 0; i < BT_LEN(stacks); i++)
        for (size_t l = 0; stacks[i]->config && l < stacks[i]->config->layers;
             l++)
            heads_split(&stacks[i]->layers[l].self, model->config.transposed);
}
