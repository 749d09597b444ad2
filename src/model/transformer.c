/* SPDX-License-Identifier: Apache-2.0 */
/* transformer.c - the forward pass: embeddings, layers and head. */
#include "model/transformer.h"

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

/* The residual stream: x, and what a sublayer gave, which the next norm adds
 * to it. */
typedef struct residual_stream {
    bt_tensor *x, *add; /* add may be NULL */
} residual_stream;

static bt_tensor *stream_sum(forward_state *state, residual_stream *r)
{
    if (r->add)
        r->x = bt_op_add(state->tape, r->x, r->add);
    r->add = NULL;
    return r->x;
}

static bt_tensor *stream_norm(forward_state *state, residual_stream *r,
                              bt_norm_params *params)
{
    if (!r->add)
        return norm(state, r->x, params);
    bt_tensor *y =
        bt_op_add_norm(state->tape, r->x, r->add, gain_of(state, &params->gain),
                       optional(&params->bias), state->config->norm,
                       state->config->epsilon, &r->x);
    r->add = NULL;
    return y;
}

/* Once the tape has failed there may be no tensor. */
static void stream_add(forward_state *state, residual_stream *r, bt_tensor *y)
{
    stream_sum(state, r);
    if (y)
        r->add = y;
    else
        r->x = NULL;
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

/* Whether there is dropout in this pass. */
static bool drops(const forward_state *state)
{
    return state->input->dropout.rate != 0 && bt_tape_recording(state->tape);
}

static bt_tensor *dropout(forward_state *state, bt_tensor *x)
{
    const bt_dropout_input *drop = &state->input->dropout;
    uint32_t site = state->site++;
    if (!drops(state))
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

/* The norm of each head of queries or keys. */
static bt_tensor *norm_heads(forward_state *state, bt_tensor *x,
                             bt_norm_params *params, size_t heads)
{
    if (!state->config->qk_norm)
        return x;
    return bt_op_norm(state->tape, x, gain_of(state, &params->gain), NULL,
                      BT_NORM_RMS, state->config->epsilon, heads);
}

static bt_tensor *apply_rotary(forward_state *state, bt_tensor *x, size_t heads)
{
    if (state->config->position_kind != BT_POSITIONS_ROTARY)
        return x;
    return bt_op_rotary(state->tape, x, heads, state->input->positions,
                        frequencies_of(state));
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

/* Attention of the layer over a cache. */
static bt_paged_attention_op cached_op(const forward_state *state,
                                       const bt_attention_plan *plan,
                                       const bt_kv_batch *kv,
                                       const bt_bias_op *bias)
{
    const bt_stack_config *s = state->stack->config;
    return (bt_paged_attention_op){ .batch = kv,
                                    .layer = state->layer,
                                    .plan = plan,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .value_dim = state->config->head_dim,
                                    .scale = state->config->attention_scale,
                                    .bias = bias };
}

static void save_qk(const forward_state *state, bt_saved_qk *saved,
                    bt_tensor *q, bt_tensor *k, bt_tensor *relative)
{
    if (saved)
        saved[state->layer] = (bt_saved_qk){ q, k, relative };
}

/* Write keys and values to the cache, after the rotary positions, and attend to
 * it. */
static bt_tensor *self_attention_cached(forward_state *state, bt_tensor *q,
                                        bt_tensor *k, bt_tensor *v,
                                        const bt_bias_op *bias)
{
    bt_paged_attention_op op =
        cached_op(state, self_plan(state), state->input->self_kv, bias);
    bool rotary = state->config->position_kind == BT_POSITIONS_ROTARY;
    return bt_op_write_and_attend(state->tape, q, k, v, &op,
                                  rotary ? state->input->positions : NULL,
                                  rotary ? frequencies_of(state) : NULL);
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
    bt_tensor *q = norm_heads(state, projected[0], &params->q_norm, s->heads);
    bt_tensor *k =
        norm_heads(state, projected[1], &params->k_norm, s->kv_heads);
    bt_tensor *v = projected[2];
    bt_bias_op terms;
    const bt_bias_op *bias = self_bias(state, &terms);
    if (state->input->self_kv)
        return self_attention_cached(state, q, k, v, bias);
    q = apply_rotary(state, q, s->heads);
    k = apply_rotary(state, k, s->kv_heads);
    save_qk(state, state->input->saved_qk, q, k, state->relative);
    return attend(state, q, k, v, self_plan(state), bias);
}

static bt_tensor *cross_attention(forward_state *state, bt_tensor *x,
                                  bt_attention_params *params)
{
    bt_tensor *q = linear(state, x, &params->q);
    if (state->input->cross_kv) {
        bt_paged_attention_op op =
            cached_op(state, state->input->plans[BT_SLOT_CROSS],
                      state->input->cross_kv, NULL);
        return bt_op_paged_attention(state->tape, q, &op);
    }
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
    const bt_model_config *config = state->config;
    bt_linear_params *const projections[] = { &layer->up, &layer->gate };
    bt_tensor *projected[2];
    bt_linear_op up = { &layer->up.w, optional(&layer->up.bias) };
    bt_linear_op down = { &layer->down.w, optional(&layer->down.bias) };
    if (!config->gated)
        return bt_op_feed_forward(state->tape, x, &up, config->act, &down,
                                  config->transposed);
    if (!linears(state, x, 2, projections, projected))
        return NULL;
    return linear(
        state,
        bt_op_gated(state->tape, projected[1], projected[0], config->act),
        &layer->down);
}

typedef enum sublayer { SELF, CROSS, FFN } sublayer;

/* A sublayer with its residual connection: pre-norm, or post-norm. */
static void residual(forward_state *state, residual_stream *r, bt_layer *layer,
                     sublayer which, bt_norm_params *params)
{
    bt_tensor *y = state->config->norm_first ? stream_norm(state, r, params)
                                             : stream_sum(state, r);
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
    stream_add(state, r, dropout(state, y));
    if (!state->config->norm_first)
        *r = (residual_stream){ stream_norm(state, r, params), NULL };
}

static void layer_run(forward_state *state, residual_stream *r, bt_layer *layer)
{
    residual(state, r, layer, SELF, &layer->self_norm);
    if (layer->cross.q.w.rows)
        residual(state, r, layer, CROSS, &layer->cross_norm);
    residual(state, r, layer, FFN, &layer->ffn_norm);
}

/* ---- stacks ------------------------------------------------------------ */

/* Add position or type embeddings. */
static void add_embedding(forward_state *state, residual_stream *r,
                          bt_tensor *table, const uint32_t *ids, size_t offset)
{
    size_t tokens = state->input->tokens;
    uint32_t *rows = bt_tape_alloc(state->tape, tokens, sizeof(*rows));
    if (!rows)
        return;
    for (size_t t = 0; t < tokens; t++)
        rows[t] = (ids ? ids[t] : 0) + (uint32_t)offset;
    stream_add(state, r,
               bt_op_embedding(state->tape, table, rows, tokens, 1.0f,
                               BT_IGNORE_INDEX));
}

static bt_tensor *embed_tokens(forward_state *state)
{
    const bt_forward_input *input = state->input;
    bt_tensor *table = &state->model->tokens;
    float scale = state->config->embed_scale;
    if (input->ids_tensor)
        return bt_op_embedding_of(state->tape, table, input->ids_tensor, scale);
    return bt_op_embedding(state->tape, table, input->ids, input->tokens, scale,
                           state->config->padding_token);
}

static residual_stream embed(forward_state *state)
{
    bt_stack *stack = state->stack;
    residual_stream r = { embed_tokens(state), NULL };
    if (stack->types.rows)
        add_embedding(state, &r, &stack->types, state->input->token_types, 0);
    if (stack->positions.rows)
        add_embedding(state, &r, &stack->positions, state->input->positions,
                      state->config->position_offset);
    if (state->config->embed_norm)
        r = (residual_stream){ stream_norm(state, &r, &stack->embed_norm),
                               NULL };
    if (drops(state))
        stream_sum(state, &r);
    r.x = dropout(state, r.x);
    return r;
}

static void save_hidden_states(forward_state *state, size_t index,
                               residual_stream *r)
{
    if (state->input->hidden_states)
        state->input->hidden_states[index] = stream_sum(state, r);
}

static bt_tensor *stack_run(forward_state *state)
{
    residual_stream r = embed(state);
    size_t layers = state->stack->config->layers;
    if (state->stack->buckets)
        state->relative = bt_op_embedding(
            state->tape, &state->stack->relative, state->stack->buckets,
            state->stack->distances, 1.0f, BT_IGNORE_INDEX);
    if (state->relative) // its gradient is summed over all layers
        state->relative->grad_dtype = BAUTA_FLOAT32;
    save_hidden_states(state, 0, &r);
    for (state->layer = 0; state->layer < layers; state->layer++) {
        layer_run(state, &r, &state->stack->layers[state->layer]);
        if (state->layer + 1 == layers && state->config->final_norm)
            r = (residual_stream){
                stream_norm(state, &r, &state->stack->final_norm), NULL
            };
        save_hidden_states(state, state->layer + 1, &r);
    }
    return stream_sum(state, &r);
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
