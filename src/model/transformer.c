/* SPDX-License-Identifier: Apache-2.0 */
/* transformer.c - the forward pass: embeddings, layers and head. */
#include "model/transformer.h"

#include "autograd/linear.h"

/* The state of a forward pass through one stack. */
typedef struct forward_state {
    bt_tape *tape;
    bt_model *model;
    const bt_model_config *config;
    bt_stack *stack;
    const bt_forward_input *input;
    bt_tensor *encoded;  /* the encoder's output, or NULL */
    bt_tensor *relative; /* (distances, heads) biases of the stack, or NULL */
    size_t layer;
    uint32_t site; /* index of the next dropout */
} forward_state;

static bt_tensor *optional(bt_tensor *tensor)
{
    return tensor->rows ? tensor : NULL;
}

/* The gain of a norm: the stored one, or 1 + that. */
static bt_tensor *gain_of(forward_state *state, bt_tensor *stored)
{
    if (!state->config->norm_plus_one)
        return stored;
    return bt_op_add(state->tape, stored,
                     bt_tape_input(state->tape, BAUTA_FLOAT32, 1,
                                   stored->columns, state->model->ones));
}

static bt_tensor *norm(forward_state *state, bt_tensor *x,
                       bt_norm_params *params)
{
    return bt_op_norm(state->tape, x, gain_of(state, &params->gain),
                      optional(&params->bias), state->config->norm,
                      state->config->epsilon, 1);
}

static bt_tensor *linear(forward_state *state, bt_tensor *x,
                         bt_linear_params *d)
{
    return bt_op_linear(state->tape, x, &d->w, state->config->transposed,
                        optional(&d->bias));
}

/* Several linear layers of the same input. */
static bool linears(forward_state *state, bt_tensor *x, size_t count,
                    bt_linear_params *const *d, bt_tensor **y)
{
    bt_linear_op layers[3];
    for (size_t i = 0; i < count; i++)
        layers[i] = (bt_linear_op){ &d[i]->w, optional(&d[i]->bias) };
    return bt_op_linears(state->tape, x, count, layers,
                         state->config->transposed, y);
}

static bt_tensor *dropout(forward_state *state, bt_tensor *x)
{
    const bt_dropout_input *drop = &state->input->dropout;
    uint32_t site = state->site++;
    if (drop->rate == 0 || !bt_tape_recording(state->tape))
        return x;
    return bt_op_dropout(state->tape, x, drop->rate, drop->seed, site,
                         drop->tokens);
}

/* ---- attention --------------------------------------------------------- */

static const float *frequencies_of(const forward_state *state)
{
    const bt_model *model = state->model;
    bool window = bt_layer_window(state->config, state->layer) > 0;
    return window && model->local_frequencies ? model->local_frequencies
                                              : model->frequencies;
}

/* Apply the norm of each head and the rotary positions to queries or keys. */
static bt_tensor *apply_rotary(forward_state *state, bt_tensor *x,
                               bt_norm_params *params, size_t heads)
{
    if (state->config->qk_norm)
        x = bt_op_norm(state->tape, x, gain_of(state, &params->gain), NULL,
                       BT_NORM_RMS, state->config->epsilon, heads);
    if (state->config->position_kind == BT_POSITIONS_ROTARY)
        x = bt_op_rotary(state->tape, x, heads, state->input->positions,
                         frequencies_of(state));
    return x;
}

static const bt_attention_plan *self_plan(const forward_state *state)
{
    bool encoder = state->stack == &state->model->encoder;
    bauta_attention_kind self =
        encoder ? BAUTA_ATTENTION_ENCODER : BAUTA_ATTENTION_DECODER;
    return state->input
        ->plans[bt_layer_slot(state->config, self, state->layer)];
}

/* The bias of self-attention, in *bias; NULL if there is none. */
static const bt_bias_op *self_bias(const forward_state *state, bt_bias_op *bias)
{
    *bias = (bt_bias_op){ .softcap = state->config->attention_softcap,
                          .slopes = state->model->slopes,
                          .table = state->relative,
                          .first_distance = state->stack->first_distance,
                          .positions = state->input->positions };
    bool any = bias->table || bias->slopes || bias->softcap != 0.0f;
    return any ? bias : NULL;
}

static bt_tensor *attend(forward_state *state, bt_tensor *q, bt_tensor *k,
                         bt_tensor *v, const bt_attention_plan *plan,
                         const bt_bias_op *bias)
{
    const bt_stack_config *s = state->stack->config;
    return bt_op_attention(state->tape, q, k, v, plan, s->heads, s->kv_heads,
                           state->config->attention_scale, bias);
}

static bt_tensor *attend_cached(forward_state *state, bt_tensor *q,
                                const bt_attention_plan *plan,
                                const bt_kv_batch *kv, const bt_bias_op *bias)
{
    const bt_stack_config *s = state->stack->config;
    return bt_op_paged_attention(state->tape, q, kv, state->layer, plan,
                                 s->heads, s->kv_heads, state->config->head_dim,
                                 state->config->attention_scale, bias);
}

static void save_qk(const forward_state *state, bt_saved_qk *saved,
                    bt_tensor *q, bt_tensor *k, bt_tensor *relative)
{
    if (saved)
        saved[state->layer] = (bt_saved_qk){ q, k, relative };
}

static bt_tensor *self_attention(forward_state *state, bt_tensor *x,
                                 bt_attention_params *params)
{
    const bt_stack_config *s = state->stack->config;
    bt_linear_params *const projections[] = { &params->q, &params->k,
                                              &params->v };
    bt_tensor *projected[3];
    if (!linears(state, x, 3, projections, projected))
        return NULL;
    bt_tensor *q = apply_rotary(state, projected[0], &params->q_norm, s->heads);
    bt_tensor *k =
        apply_rotary(state, projected[1], &params->k_norm, s->kv_heads);
    bt_tensor *v = projected[2];
    bt_bias_op terms;
    const bt_bias_op *bias = self_bias(state, &terms);
    save_qk(state, state->input->saved_qk, q, k, state->relative);
    const bt_kv_batch *kv = state->input->self_kv;
    if (!kv)
        return attend(state, q, k, v, self_plan(state), bias);
    if (!bt_op_kv_write(state->tape, kv, state->layer, k, v, s->kv_heads))
        return NULL;
    return attend_cached(state, q, self_plan(state), kv, bias);
}

static bt_tensor *cross_attention(forward_state *state, bt_tensor *x,
                                  bt_attention_params *params)
{
    bt_tensor *q = linear(state, x, &params->q);
    if (state->input->cross_kv)
        return attend_cached(state, q, state->input->plans[BT_SLOT_CROSS],
                             state->input->cross_kv, NULL);
    bt_tensor *k = linear(state, state->encoded, &params->k);
    bt_tensor *v = linear(state, state->encoded, &params->v);
    save_qk(state, state->input->saved_cross_qk, q, k, NULL);
    return attend(state, q, k, v, state->input->plans[BT_SLOT_CROSS], NULL);
}

bool bt_transformer_write_cross_kv(bt_tape *tape, bt_model *model,
                                   bt_tensor *encoded, const bt_kv_batch *kv)
{
    forward_state state = { .tape = tape, .config = &model->config };
    const bt_stack_config *stack = &model->config.decoder;
    for (size_t l = 0; l < stack->layers; l++) {
        bt_attention_params *params = &model->decoder.layers[l].cross;
        bt_tensor *k = linear(&state, encoded, &params->k);
        bt_tensor *v = linear(&state, encoded, &params->v);
        if (!bt_op_kv_write(tape, kv, l, k, v, stack->kv_heads))
            return false;
    }
    return true;
}

/* ---- layers ------------------------------------------------------------ */

static bt_tensor *feed_forward(forward_state *state, bt_tensor *x,
                               bt_layer *layer)
{
    bt_linear_params *const projections[] = { &layer->up, &layer->gate };
    bt_tensor *projected[2] = { NULL, NULL };
    if (!linears(state, x, state->config->gated ? 2 : 1, projections,
                 projected))
        return NULL;
    bt_tensor *up =
        state->config->gated
            ? bt_op_gated(state->tape, projected[1], projected[0],
                          state->config->act)
            : bt_op_act(state->tape, projected[0], state->config->act);
    return linear(state, up, &layer->down);
}

typedef enum sublayer { SELF, CROSS, FFN } sublayer;

/* A sublayer with its residual connection: pre-norm, or post-norm. */
static bt_tensor *residual(forward_state *state, bt_tensor *x, bt_layer *layer,
                           sublayer which, bt_norm_params *params)
{
    bt_tensor *y = state->config->norm_first ? norm(state, x, params) : x;
    if (which == SELF)
        y = linear(state, self_attention(state, y, &layer->self),
                   &layer->self.out);
    else if (which == CROSS)
        y = linear(state, cross_attention(state, y, &layer->cross),
                   &layer->cross.out);
    else
        y = feed_forward(state, y, layer);
    if (state->config->post_norm)
        y = norm(state, y,
                 which == SELF ? &layer->self_post_norm
                               : &layer->ffn_post_norm);
    y = bt_op_add(state->tape, x, dropout(state, y));
    return state->config->norm_first ? y : norm(state, y, params);
}

static bt_tensor *layer_run(forward_state *state, bt_tensor *x, bt_layer *layer)
{
    x = residual(state, x, layer, SELF, &layer->self_norm);
    if (layer->cross.q.w.rows)
        x = residual(state, x, layer, CROSS, &layer->cross_norm);
    return residual(state, x, layer, FFN, &layer->ffn_norm);
}

/* ---- stacks ------------------------------------------------------------ */

/* Add position or type embeddings. */
static bt_tensor *add_embedding(forward_state *state, bt_tensor *x,
                                bt_tensor *table, const uint32_t *ids,
                                size_t offset)
{
    size_t tokens = state->input->tokens;
    uint32_t *rows = bt_tape_alloc(state->tape, tokens, sizeof(*rows));
    if (!rows)
        return NULL;
    for (size_t t = 0; t < tokens; t++)
        rows[t] = (ids ? ids[t] : 0) + (uint32_t)offset;
    return bt_op_add(state->tape, x,
                     bt_op_embedding(state->tape, table, rows, tokens, 1.0f,
                                     BT_IGNORE_INDEX));
}

static bt_tensor *embed(forward_state *state)
{
    bt_stack *stack = state->stack;
    bt_tensor *x =
        bt_op_embedding(state->tape, &state->model->tokens, state->input->ids,
                        state->input->tokens, state->config->embed_scale,
                        state->config->padding_token);
    if (stack->types.rows)
        x = add_embedding(state, x, &stack->types, state->input->token_types,
                          0);
    if (stack->positions.rows)
        x = add_embedding(state, x, &stack->positions, state->input->positions,
                          state->config->position_offset);
    if (state->config->embed_norm)
        x = norm(state, x, &stack->embed_norm);
    return dropout(state, x);
}

static void save_hidden_states(const forward_state *state, size_t index,
                               bt_tensor *x)
{
    if (state->input->hidden_states)
        state->input->hidden_states[index] = x;
}

static bt_tensor *stack_run(forward_state *state)
{
    bt_tensor *x = embed(state);
    size_t layers = state->stack->config->layers;
    if (state->stack->buckets)
        state->relative = bt_op_embedding(
            state->tape, &state->stack->relative, state->stack->buckets,
            state->stack->distances, 1.0f, BT_IGNORE_INDEX);
    if (state->relative) // its gradient is summed over all layers
        state->relative->grad_dtype = BAUTA_FLOAT32;
    save_hidden_states(state, 0, x);
    for (state->layer = 0; state->layer < layers; state->layer++) {
        x = layer_run(state, x, &state->stack->layers[state->layer]);
        if (state->layer + 1 == layers && state->config->final_norm)
            x = norm(state, x, &state->stack->final_norm);
        save_hidden_states(state, state->layer + 1, x);
    }
    return x;
}

bt_tensor *bt_transformer_encode(bt_tape *tape, bt_model *model,
                                 const bt_forward_input *input)
{
    forward_state state = { .tape = tape,
                            .model = model,
                            .config = &model->config,
                            .stack = &model->encoder,
                            .input = input };
    return stack_run(&state);
}

bt_tensor *bt_transformer_decode(bt_tape *tape, bt_model *model,
                                 const bt_forward_input *input,
                                 bt_tensor *encoded)
{
    forward_state state = { .tape = tape,
                            .model = model,
                            .config = &model->config,
                            .stack = &model->decoder,
                            .input = input,
                            .encoded = encoded,
                            .site = 1 << 16 }; // distinct from the encoder's
    return stack_run(&state);
}

/* ---- the head ---------------------------------------------------------- */

bt_tensor *bt_transformer_head_transform(bt_tape *tape, bt_model *model,
                                         bt_tensor *x)
{
    forward_state state = { .tape = tape,
                            .model = model,
                            .config = &model->config };
    if (model->config.head_scale != 0.0f)
        return bt_op_scale(tape, x, model->config.head_scale);
    if (!model->config.head_dense)
        return x;
    x = bt_op_act(tape, linear(&state, x, &model->head_dense),
                  model->config.head_act);
    return norm(&state, x, &model->head_norm);
}

bt_tensor *bt_transformer_head_weight(bt_model *model)
{
    return model->config.tied ? &model->tokens : &model->head.w;
}

bt_tensor *bt_transformer_head_bias(bt_model *model)
{
    return optional(&model->head.bias);
}

bt_tensor *bt_transformer_logits(bt_tape *tape, bt_model *model, bt_tensor *x)
{
    bt_tensor *logits =
        bt_op_linear(tape, bt_transformer_head_transform(tape, model, x),
                     bt_transformer_head_weight(model), false,
                     bt_transformer_head_bias(model));
    return logits && bt_softcap_logits(tape, logits, model->config.head_softcap)
               ? logits
               : NULL;
}

bool bt_transformer_logits_to_host(bt_tape *tape, bt_model *model,
                                   const bt_tensor *x, float *to)
{
    return bt_linear_to_host(tape, x, bt_transformer_head_weight(model), false,
                             bt_transformer_head_bias(model),
                             model->config.head_softcap, to);
}
