/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - the operations of ops.h other than linear layers, attention and the
 * loss: rows of a table, norms, and what is done to single elements. */
#include "autograd/ops.h"

/* ---- Embedding ---------------------------------------------------------- */

/* In the backward pass rows with equal ids are added to the same row of the
 * table, in order. */
typedef struct embedding_record {
    bt_tensor *table, *y;
    const bt_tensor *ids;
    uint32_t padding_id;
    float scale;
} embedding_record;

static void embedding_backward(bt_tape *tape, void *saved)
{
    const embedding_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->table, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dtable = bt_tensor_grad(r->table);
    bt_embedding_grad_args args = { &dy,      &dtable,       r->ids,
                                    r->scale, r->padding_id, add };
    BT_TAPE_RUN(tape, embedding_grad, &args);
}

bt_tensor *bt_op_embedding(bt_tape *tape, bt_tensor *table, const uint32_t *ids,
                           size_t rows, float scale, uint32_t padding_id)
{
    if (!table)
        return NULL;
    for (size_t i = 0; i < rows; i++)
        if (ids[i] >= table->rows)
            return bt_tape_fail(
                tape, BAUTA_ERR_ARGUMENT,
                "embed: id %u of row %zu is not in a table of %zu rows", ids[i],
                i, table->rows);
    bt_tensor *y =
        bt_tape_output(tape, rows, table->columns, table->requires_grad);
    embedding_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *index = bt_tape_input(tape, BAUTA_UINT32, rows, 1, ids);
    if (!y || !index)
        return NULL;
    *r = (embedding_record){ .table = table,
                             .y = y,
                             .ids = index,
                             .padding_id = padding_id,
                             .scale = scale };
    bt_embedding_args args = { table, y, index, scale };
    if (!BT_TAPE_RUN(tape, embedding, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, embedding_backward, r, y);
    return y;
}

bt_tensor *bt_op_embedding_of(bt_tape *tape, bt_tensor *table,
                              const bt_tensor *ids, float scale)
{
    if (!table || !ids)
        return NULL;
    bt_tensor *y = bt_tape_output(tape, ids->rows, table->columns, false);
    bt_embedding_args args = { table, y, ids, scale };
    return y && BT_TAPE_RUN(tape, embedding, &args) ? y : NULL;
}

/* ---- Sum ---------------------------------------------------------------- */

/* The sum of two types is float32. */
typedef struct add_record {
    bt_tensor *a, *b, *y;
} add_record;

static void add_backward(bt_tape *tape, void *saved)
{
    const add_record *r = saved;
    bt_tensor *inputs[] = { r->a, r->b };
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y);
    // The first one takes dy over if it has no gradient yet, and the second one
    // shares it: a layer's output reads its gradient before anything is added
    // to that of the residual.
    bool passed = r->a != r->b && bt_tape_pass_grad(tape, r->y, r->a);
    if (passed && bt_tape_share_grad(tape, r->a, r->b))
        return;
    // One after the other: they may be the same tensor.
    for (int i = passed; i < 2; i++) {
        bool add;
        if (!bt_tape_grad(tape, inputs[i], &add))
            continue;
        bt_tensor to = bt_tensor_grad(inputs[i]);
        bt_accumulate_args args = { &dy, &to, add };
        BT_TAPE_RUN(tape, accumulate, &args);
    }
}

static bool shapes_agree(bt_tape *tape, const bt_tensor *a, const bt_tensor *b)
{
    if (a->rows == b->rows && a->columns == b->columns)
        return true;
    bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                 "add: %zu x %zu and %zu x %zu differ in shape", a->rows,
                 a->columns, b->rows, b->columns);
    return false;
}

/* y = a, then y += b, each from its own type. */
static bt_tensor *add_types(bt_tape *tape, const bt_tensor *a,
                            const bt_tensor *b)
{
    if (!shapes_agree(tape, a, b))
        return NULL;
    bt_tensor *y = bt_tape_scratch(tape, BAUTA_FLOAT32, a->rows, a->columns);
    if (!y)
        return NULL;
    bt_accumulate_args first = { a, y, false }, second = { b, y, true };
    y->requires_grad =
        (a->requires_grad || b->requires_grad) && bt_tape_recording(tape);
    return BT_TAPE_RUN(tape, accumulate, &first) &&
                   BT_TAPE_RUN(tape, accumulate, &second)
               ? y
               : NULL;
}

static bt_tensor *add_output(bt_tape *tape, const bt_tensor *a,
                             const bt_tensor *b)
{
    if (!shapes_agree(tape, a, b))
        return NULL;
    return bt_tape_output(tape, a->rows, a->columns,
                          a->requires_grad || b->requires_grad);
}

static void record_add(bt_tape *tape, bt_tensor *a, bt_tensor *b, bt_tensor *y)
{
    add_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return;
    *r = (add_record){ a, b, y };
    if (y->requires_grad)
        bt_tape_record(tape, add_backward, r, y);
}

static bt_tensor *add_same(bt_tape *tape, const bt_tensor *a,
                           const bt_tensor *b)
{
    bt_tensor *y = add_output(tape, a, b);
    bt_add_args args = { a, b, y };
    return y && BT_TAPE_RUN(tape, add, &args) ? y : NULL;
}

bt_tensor *bt_op_add(bt_tape *tape, bt_tensor *a, bt_tensor *b)
{
    if (!a || !b)
        return NULL;
    bt_tensor *y =
        a->dtype == b->dtype ? add_same(tape, a, b) : add_types(tape, a, b);
    if (!y)
        return NULL;
    record_add(tape, a, b, y);
    return bt_tape_status(tape, NULL) ? NULL : y;
}

/* ---- Norm --------------------------------------------------------------- */

/* Mean and scale of each row are saved for the backward pass. */
typedef struct norm_record {
    bt_tensor *x, *gain, *bias, *y;
    const bt_tensor *mean, *scale;
    bt_norm_kind kind;
    float epsilon;
    size_t heads;
} norm_record;

static void norm_backward(bt_tape *tape, void *saved)
{
    const norm_record *r = saved;
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx, dgain, dbias;
    bt_norm_grad_args args = { .kind = r->kind,
                               .epsilon = r->epsilon,
                               .heads = r->heads,
                               .x = r->x,
                               .gain = r->gain,
                               .mean = r->mean,
                               .scale = r->scale,
                               .dy = &dy };
    if (bt_tape_grad(tape, r->x, &args.add_dx)) {
        dx = bt_tensor_grad(r->x);
        args.dx = &dx;
    }
    if (bt_tape_grad(tape, r->gain, &args.add_dgain)) {
        dgain = bt_tensor_grad(r->gain);
        args.dgain = &dgain;
    }
    if (r->bias && bt_tape_grad(tape, r->bias, &args.add_dbias)) {
        dbias = bt_tensor_grad(r->bias);
        args.dbias = &dbias;
    }
    if (!bt_tape_status(tape, NULL))
        BT_TAPE_RUN(tape, norm_grad, &args);
}

/* Whether the shapes fit; if not, the tape fails. */
static bool norm_fits(bt_tape *tape, const bt_tensor *x, const bt_tensor *gain,
                      const bt_tensor *bias, size_t heads)
{
    if (heads == 0 || x->columns == 0 || x->columns % heads) {
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "norm: %zu columns are not %zu heads", x->columns, heads);
        return false;
    }
    size_t width = x->columns / heads;
    const bt_tensor *rows[] = { gain, bias ? bias : gain };
    for (int i = 0; i < 2; i++)
        if (rows[i]->rows != 1 || rows[i]->columns != width) {
            bt_tape_fail(
                tape, BAUTA_ERR_ARGUMENT, "norm: %s is %zu x %zu, not 1 x %zu",
                i ? "bias" : "gain", rows[i]->rows, rows[i]->columns, width);
            return false;
        }
    return true;
}

/* The norm of x, or of x + residual, which is then `sum`. */
static bt_tensor *norm_forward(bt_tape *tape, bt_norm_args *args, bt_tensor *x,
                               bt_tensor *gain, bt_tensor *bias)
{
    size_t rows = x->rows * args->heads;
    bool wants = x->requires_grad || gain->requires_grad ||
                 (bias && bias->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    norm_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *mean = bt_tape_scratch(tape, BAUTA_FLOAT32, rows, 1);
    const bt_tensor *scale = bt_tape_scratch(tape, BAUTA_FLOAT32, rows, 1);
    if (!scale)
        return NULL;
    args->gain = gain;
    args->bias = bias;
    args->y = y;
    args->mean = mean;
    args->scale = scale;
    *r = (norm_record){ x,     gain,       bias,          y,          mean,
                        scale, args->kind, args->epsilon, args->heads };
    if (!BT_TAPE_RUN(tape, norm, args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, norm_backward, r, y);
    return y;
}

bt_tensor *bt_op_norm(bt_tape *tape, bt_tensor *x, bt_tensor *gain,
                      bt_tensor *bias, bt_norm_kind kind, float epsilon,
                      size_t heads)
{
    if (!x || !gain || !norm_fits(tape, x, gain, bias, heads))
        return NULL;
    bt_norm_args args = {
        .kind = kind, .epsilon = epsilon, .heads = heads, .x = x
    };
    return norm_forward(tape, &args, x, gain, bias);
}

bt_tensor *bt_op_add_norm(bt_tape *tape, bt_tensor *a, bt_tensor *b,
                          bt_tensor *gain, bt_tensor *bias, bt_norm_kind kind,
                          float epsilon, bt_tensor **sum)
{
    *sum = NULL;
    if (!(bt_tape_stream(tape)->backend->fusions & BT_FUSE_ADD_NORM)) {
        *sum = bt_op_add(tape, a, b);
        return bt_op_norm(tape, *sum, gain, bias, kind, epsilon, 1);
    }
    bt_tensor *x = a && b ? add_output(tape, a, b) : NULL;
    if (!x || !gain || !norm_fits(tape, x, gain, bias, 1))
        return NULL;
    // The record of the sum is first: its norm_backward pass comes last.
    record_add(tape, a, b, x);
    bt_norm_args args = { .kind = kind,
                          .epsilon = epsilon,
                          .heads = 1,
                          .x = a,
                          .residual = b,
                          .sum = x };
    *sum = x;
    return norm_forward(tape, &args, x, gain, bias);
}

/* ---- Activation --------------------------------------------------------- */

/* Only the inputs are saved: the backward pass recomputes the activation, which
 * costs less than reading it from memory. */
typedef struct act_record {
    bt_act act;
    bt_tensor *x, *up, *y; /* up is NULL if not gated */
} act_record;

static void act_backward(bt_tape *tape, void *saved)
{
    const act_record *r = saved;
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx, dup;
    bt_act_grad_args args = {
        .act = r->act, .x = r->x, .up = r->up, .dy = &dy
    };
    if (bt_tape_grad(tape, r->x, &args.add_dx)) {
        dx = bt_tensor_grad(r->x);
        args.dx = &dx;
    }
    // One after the other if gate and up are the same tensor.
    if (r->up == r->x && args.dx && BT_TAPE_RUN(tape, act_grad, &args))
        args.dx = NULL;
    if (r->up && bt_tape_grad(tape, r->up, &args.add_dup)) {
        dup = bt_tensor_grad(r->up);
        args.dup = &dup;
    }
    if (!bt_tape_status(tape, NULL) && (args.dx || args.dup))
        BT_TAPE_RUN(tape, act_grad, &args);
}

static bt_tensor *act_forward(bt_tape *tape, bt_tensor *x, bt_tensor *up,
                              bt_act act)
{
    bool wants = x->requires_grad || (up && up->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    act_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return NULL;
    *r = (act_record){ act, x, up, y };
    bt_act_args args = { act, x, up, y };
    if (!BT_TAPE_RUN(tape, act, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, act_backward, r, y);
    return y;
}

bt_tensor *bt_op_act(bt_tape *tape, bt_tensor *x, bt_act act)
{
    return x ? act_forward(tape, x, NULL, act) : NULL;
}

bt_tensor *bt_op_gated(bt_tape *tape, bt_tensor *gate, bt_tensor *up,
                       bt_act act)
{
    if (!gate || !up)
        return NULL;
    if (gate->rows != up->rows || gate->columns != up->columns)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "gated: gate is %zu x %zu, up is %zu x %zu",
                            gate->rows, gate->columns, up->rows, up->columns);
    return act_forward(tape, gate, up, act);
}

/* ---- Rotary positions --------------------------------------------------- */

/* The backward pass rotates by the negative angle. */
typedef struct rotary_record {
    bt_tensor *x, *y;
    size_t heads;
    const bt_tensor *positions, *frequencies;
} rotary_record;

static void rotary_backward(bt_tape *tape, void *saved)
{
    const rotary_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    bt_rotary_args args = { .heads = r->heads,
                            .x = &dy,
                            .y = &dx,
                            .positions = r->positions,
                            .frequencies = r->frequencies,
                            .back = true,
                            .add = add };
    BT_TAPE_RUN(tape, rotary, &args);
}

bt_tensor *bt_op_rotary(bt_tape *tape, bt_tensor *x, size_t heads,
                        const uint32_t *positions, const float *frequencies)
{
    if (!x)
        return NULL;
    if (heads == 0 || x->columns % heads || x->columns / heads % 2)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "rotary: %zu columns are not %zu heads of pairs",
                            x->columns, heads);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    rotary_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *at =
        bt_tape_input(tape, BAUTA_UINT32, x->rows, 1, positions);
    const bt_tensor *frequency = bt_tape_input(
        tape, BAUTA_FLOAT32, 1, x->columns / heads / 2, frequencies);
    if (!frequency)
        return NULL;
    *r = (rotary_record){ x, y, heads, at, frequency };
    bt_rotary_args args = { .heads = heads,
                            .x = x,
                            .y = y,
                            .positions = at,
                            .frequencies = frequency };
    if (!BT_TAPE_RUN(tape, rotary, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, rotary_backward, r, y);
    return y;
}

/* ---- Scale -------------------------------------------------------------- */

typedef struct scale_record {
    bt_tensor *x, *y;
    float factor;
} scale_record;

static void scale_backward(bt_tape *tape, void *saved)
{
    const scale_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    bt_scale_args args = { &dy, &dx, r->factor, add };
    BT_TAPE_RUN(tape, scale, &args);
}

bt_tensor *bt_op_scale(bt_tape *tape, bt_tensor *x, float factor)
{
    if (!x)
        return NULL;
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    scale_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!y || !r)
        return NULL;
    *r = (scale_record){ x, y, factor };
    bt_scale_args args = { x, y, factor, false };
    if (!BT_TAPE_RUN(tape, scale, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, scale_backward, r, y);
    return y;
}

/* ---- Dropout ------------------------------------------------------------ */

/* The dropout mask is not stored: the backward pass draws the same numbers
 * again. */
typedef struct dropout_record {
    bt_tensor *x, *y;
    bt_dropout_args args;
} dropout_record;

static void dropout_backward(bt_tape *tape, void *saved)
{
    dropout_record *r = saved;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &r->args.add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    r->args.x = &dy;
    r->args.y = &dx;
    BT_TAPE_RUN(tape, dropout, &r->args);
}

bt_tensor *bt_op_dropout(bt_tape *tape, bt_tensor *x, float rate, uint64_t seed,
                         uint32_t site, const uint64_t *tokens)
{
    if (!x || bt_tape_status(tape, NULL))
        return NULL;
    if (!(rate >= 0 && rate < 1))
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "dropout: the rate %g is not in [0, 1)",
                            (double)rate);
    if (rate == 0)
        return x;
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    dropout_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *keys =
        bt_tape_input(tape, BAUTA_UINT64, x->rows, 1, tokens);
    if (!keys)
        return NULL;
    *r = (dropout_record){ x,
                           y,
                           { .x = x,
                             .y = y,
                             .tokens = keys,
                             .rate = rate,
                             .seed = seed,
                             .site = site } };
    if (!BT_TAPE_RUN(tape, dropout, &r->args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, dropout_backward, r, y);
    return y;
}
