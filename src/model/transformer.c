/* SPDX-License-Identifier: Apache-2.0 */
/* transformer.c - layers, top to bottom. */
#include "model/transformer.h"

/* What every part of a stack needs. */
typedef struct walk {
    bt_tape *tape;
    bt_model *model;
    const bt_blueprint *print;
    bt_stack *stack;
    const bt_input *input;
    bt_tensor *memory;
    size_t layer;
    uint32_t site; /* counts the dropouts */
} walk;

static bt_tensor *optional(bt_tensor *tensor)
{
    return tensor->rows ? tensor : NULL;
}

static bt_tensor *norm(walk *w, bt_tensor *x, bt_scaling *scaling)
{
    return bt_op_norm(w->tape, x, &scaling->gain, optional(&scaling->bias),
                      w->print->norm, w->print->epsilon, 1);
}

static bt_tensor *dense(walk *w, bt_tensor *x, bt_dense *d)
{
    return bt_op_linear(w->tape, x, &d->w, w->print->turned,
                        optional(&d->bias));
}

/* Layers of the same x, together. */
static bool denses(walk *w, bt_tensor *x, size_t count, bt_dense *const *d,
                   bt_tensor **y)
{
    bt_linear_op layers[3];
    for (size_t i = 0; i < count; i++)
        layers[i] = (bt_linear_op){ &d[i]->w, optional(&d[i]->bias) };
    return bt_op_linears(w->tape, x, count, layers, w->print->turned, y);
}

static bt_tensor *dropout(walk *w, bt_tensor *x)
{
    const bt_noise *noise = &w->input->noise;
    uint32_t site = w->site++;
    if (noise->rate == 0 || !bt_tape_recording(w->tape))
        return x;
    return bt_op_dropout(w->tape, x, noise->rate, noise->seed, site,
                         noise->tokens);
}

/* ---- attention --------------------------------------------------------- */

/* Norm of each head and rotary positions, of queries or keys. */
static bt_tensor *place(walk *w, bt_tensor *x, bt_scaling *scaling,
                        size_t heads)
{
    if (w->print->qk_norm)
        x = bt_op_norm(w->tape, x, &scaling->gain, NULL, BT_NORM_RMS,
                       w->print->epsilon, heads);
    if (w->print->positions == BT_POSITIONS_ROTARY)
        x = bt_op_rotary(w->tape, x, heads, w->input->positions,
                         w->model->frequencies);
    return x;
}

static const bauta_plan *self_plan(const walk *w)
{
    bool encoder = w->stack == &w->model->encoder;
    bauta_look_at at = encoder ? BAUTA_LOOK_ENCODER : BAUTA_LOOK_DECODER;
    bool window = bt_layer_place(w->print, at, w->layer) == BT_PLACE_WINDOW;
    return window ? w->input->window : w->input->plan;
}

static bt_tensor *attend_past(walk *w, bt_tensor *q, const bauta_plan *plan,
                              const bt_past *past)
{
    return bt_op_attention_past(
        w->tape, q, past, w->layer, plan, w->stack->print->heads,
        w->stack->print->kv_heads, w->print->head_dim, 0);
}

static void keep(const walk *w, bt_kept *kept, bt_tensor *q, bt_tensor *k)
{
    if (kept)
        kept[w->layer] = (bt_kept){ q, k };
}

static bt_tensor *self_attention(walk *w, bt_tensor *x, bt_heads *heads)
{
    const bt_stack_print *s = w->stack->print;
    bt_dense *const parts[] = { &heads->q, &heads->k, &heads->v };
    bt_tensor *made[3];
    if (!denses(w, x, 3, parts, made))
        return NULL;
    bt_tensor *q = place(w, made[0], &heads->q_norm, s->heads);
    bt_tensor *k = place(w, made[1], &heads->k_norm, s->kv_heads);
    bt_tensor *v = made[2];
    keep(w, w->input->kept, q, k);
    const bt_past *past = w->input->past;
    if (!past)
        return bt_op_attention(w->tape, q, k, v, self_plan(w), s->heads,
                               s->kv_heads, 0);
    if (!bt_op_remember(w->tape, past, w->layer, k, v, s->kv_heads))
        return NULL;
    return attend_past(w, q, self_plan(w), past);
}

static bt_tensor *cross_attention(walk *w, bt_tensor *x, bt_heads *heads)
{
    const bt_stack_print *s = w->stack->print;
    bt_tensor *q = dense(w, x, &heads->q);
    if (w->input->sources)
        return attend_past(w, q, w->input->cross, w->input->sources);
    bt_tensor *k = dense(w, w->memory, &heads->k);
    bt_tensor *v = dense(w, w->memory, &heads->v);
    keep(w, w->input->kept_cross, q, k);
    return bt_op_attention(w->tape, q, k, v, w->input->cross, s->heads,
                           s->kv_heads, 0);
}

bool bt_transformer_remember(bt_tape *tape, bt_model *model, bt_tensor *memory,
                             const bt_past *sources)
{
    walk w = { .tape = tape, .print = &model->print };
    const bt_stack_print *print = &model->print.decoder;
    for (size_t l = 0; l < print->layers; l++) {
        bt_heads *heads = &model->decoder.layers[l].cross;
        bt_tensor *k = dense(&w, memory, &heads->k);
        bt_tensor *v = dense(&w, memory, &heads->v);
        if (!bt_op_remember(tape, sources, l, k, v, print->kv_heads))
            return false;
    }
    return true;
}

/* ---- layers ------------------------------------------------------------ */

static bt_tensor *feed_forward(walk *w, bt_tensor *x, bt_layer *layer)
{
    bt_dense *const parts[] = { &layer->up, &layer->gate };
    bt_tensor *made[2] = { NULL, NULL };
    if (!denses(w, x, w->print->gated ? 2 : 1, parts, made))
        return NULL;
    bt_tensor *up = w->print->gated
                        ? bt_op_gated(w->tape, made[1], made[0], w->print->act)
                        : bt_op_act(w->tape, made[0], w->print->act);
    return dense(w, up, &layer->down);
}

typedef enum part { SELF, CROSS, FFN } part;

static bt_tensor *part_run(walk *w, bt_tensor *x, bt_layer *layer, part which)
{
    if (which == SELF)
        return dense(w, self_attention(w, x, &layer->self), &layer->self.out);
    if (which == CROSS)
        return dense(w, cross_attention(w, x, &layer->cross),
                     &layer->cross.out);
    return feed_forward(w, x, layer);
}

/* One part with its residual: norm before it, or behind the sum. */
static bt_tensor *residual(walk *w, bt_tensor *x, bt_layer *layer, part which,
                           bt_scaling *scaling)
{
    bt_tensor *y = w->print->norm_first ? norm(w, x, scaling) : x;
    y = bt_op_add(w->tape, x, dropout(w, part_run(w, y, layer, which)));
    return w->print->norm_first ? y : norm(w, y, scaling);
}

static bt_tensor *layer_run(walk *w, bt_tensor *x, bt_layer *layer)
{
    x = residual(w, x, layer, SELF, &layer->self_norm);
    if (layer->cross.q.w.rows)
        x = residual(w, x, layer, CROSS, &layer->cross_norm);
    return residual(w, x, layer, FFN, &layer->ffn_norm);
}

/* ---- stacks ------------------------------------------------------------ */

/* Rows of a small table beside the token table: positions or types. */
static bt_tensor *add_rows(walk *w, bt_tensor *x, bt_tensor *table,
                           const uint32_t *ids, size_t offset)
{
    size_t tokens = w->input->tokens;
    uint32_t *rows = bt_tape_take(w->tape, tokens, sizeof(*rows));
    if (!rows)
        return NULL;
    for (size_t t = 0; t < tokens; t++)
        rows[t] = (ids ? ids[t] : 0) + (uint32_t)offset;
    return bt_op_add(
        w->tape, x, bt_op_embed(w->tape, table, rows, tokens, 1.0f, BT_IGNORE));
}

static bt_tensor *embed(walk *w)
{
    bt_stack *stack = w->stack;
    bt_tensor *x =
        bt_op_embed(w->tape, &w->model->tokens, w->input->ids, w->input->tokens,
                    w->print->embed_scale, w->print->frozen);
    if (stack->types.rows)
        x = add_rows(w, x, &stack->types, w->input->types, 0);
    if (stack->positions.rows)
        x = add_rows(w, x, &stack->positions, w->input->positions,
                     w->print->position_offset);
    if (w->print->embed_norm)
        x = norm(w, x, &stack->embed_norm);
    return dropout(w, x);
}

static void state_keep(const walk *w, size_t index, bt_tensor *x)
{
    if (w->input->states)
        w->input->states[index] = x;
}

static bt_tensor *stack_run(walk *w)
{
    bt_tensor *x = embed(w);
    size_t layers = w->stack->print->layers;
    state_keep(w, 0, x);
    for (w->layer = 0; w->layer < layers; w->layer++) {
        x = layer_run(w, x, &w->stack->layers[w->layer]);
        if (w->layer + 1 == layers && w->print->last_norm)
            x = norm(w, x, &w->stack->last_norm);
        state_keep(w, w->layer + 1, x);
    }
    return x;
}

bt_tensor *bt_transformer_encode(bt_tape *tape, bt_model *model,
                                 const bt_input *input)
{
    walk w = { .tape = tape,
               .model = model,
               .print = &model->print,
               .stack = &model->encoder,
               .input = input };
    return stack_run(&w);
}

bt_tensor *bt_transformer_decode(bt_tape *tape, bt_model *model,
                                 const bt_input *input, bt_tensor *memory)
{
    walk w = { .tape = tape,
               .model = model,
               .print = &model->print,
               .stack = &model->decoder,
               .input = input,
               .memory = memory,
               .site = 1 << 16 }; // apart from the encoder's
    return stack_run(&w);
}

/* ---- the head ---------------------------------------------------------- */

bt_tensor *bt_transformer_top(bt_tape *tape, bt_model *model, bt_tensor *x)
{
    walk w = { .tape = tape, .model = model, .print = &model->print };
    if (!model->print.head_dense)
        return x;
    x = bt_op_act(tape, dense(&w, x, &model->head_dense),
                  model->print.head_act);
    return norm(&w, x, &model->head_norm);
}

bt_tensor *bt_transformer_head(bt_model *model)
{
    return model->print.tied ? &model->tokens : &model->head.w;
}

bt_tensor *bt_transformer_head_bias(bt_model *model)
{
    return optional(&model->head.bias);
}

bt_tensor *bt_transformer_logits(bt_tape *tape, bt_model *model, bt_tensor *x)
{
    return bt_op_linear(tape, bt_transformer_top(tape, model, x),
                        bt_transformer_head(model), false,
                        bt_transformer_head_bias(model));
}
