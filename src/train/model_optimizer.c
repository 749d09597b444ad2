/* SPDX-License-Identifier: Apache-2.0 */
/* model_optimizer.c - AdamW over a model, and the public optimizer. */
#include "train/model_optimizer.h"

#include "base/memory.h"
#include "base/sized.h"
#include "runtime/context.h"

#include <math.h>

/* ---- parameters -------------------------------------------------------- */

static bool decays(const bauta_model *model, size_t index, bt_decay_rule rule)
{
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    if (!rule.select)
        return model->tensors[index].rank == 2;
    bauta_model_tensor(model, index, &tensor, NULL); // the index is in range
    return rule.select(rule.user, &tensor);
}

bauta_status bt_model_optimizer_create(bt_optimizer **out, bt_stream *stream,
                                       bt_named_tensor **trained, size_t *count,
                                       const bauta_model *model,
                                       const bt_optimizer_options *options,
                                       bt_decay_rule decay, bt_shards *shards,
                                       bauta_error *err)
{
    bt_parameter *list = bt_alloc_zero(model->tensor_count, sizeof(*list));
    *out = NULL;
    *count = 0;
    if (!list)
        return bt_fail_memory(err, "a list of parameters",
                              model->tensor_count * sizeof(*list));
    for (size_t i = 0; i < model->tensor_count; i++) {
        bt_named_tensor *e = &model->tensors[i];
        if (!e->tensor->grad)
            continue;
        trained[*count] = e;
        bt_parameter *p = &list[(*count)++];
        *p = (bt_parameter){ .tensor = e->tensor,
                             .decay = decays(model, i, decay) };
        if (model->store->copies.memory) {
            p->master = bt_tensor_of(&model->store->weights, BAUTA_FLOAT32,
                                     e->tensor->rows, e->tensor->columns);
            p->master.offset = e->tensor->offset;
        }
    }
    size_t own = *count;
    if (shards)
        bt_shards_cut(shards, list, &own);
    bauta_status status =
        bt_optimizer_create(out, stream, list, own, options, err);
    bt_free(list);
    return status;
}

bauta_status bt_model_check_trainable(const bauta_model *model,
                                      bauta_error *err)
{
    if (!model->trainable)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model was loaded read-only");
    return bt_model_check_masters(model, err);
}

/* ---- the public optimizer ---------------------------------------------- */

struct bauta_optimizer {
    bauta_context *context;
    double learning_rate;
    bt_optimizer *adamw;
    bt_named_tensor **trained; /* (count) */
    size_t count;
};

static bauta_status rate_check(double rate, bauta_error *err)
{
    if (rate >= 0.0 && isfinite(rate))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the learning rate is %g, not 0 or more", rate);
}

static bauta_status optimizer_fill(bauta_optimizer *o, const bauta_model *model,
                                   const bauta_optimizer_options *from,
                                   bauta_error *err)
{
    bt_optimizer_options options = { from->adam_beta1, from->adam_beta2,
                                     from->adam_epsilon, from->weight_decay,
                                     from->max_grad_norm };
    o->learning_rate = from->learning_rate;
    o->trained = bt_alloc_zero(model->tensor_count, sizeof(*o->trained));
    if (!o->trained)
        return bt_fail_memory(err, "a list of parameters",
                              model->tensor_count * sizeof(*o->trained));
    return bt_model_optimizer_create(
        &o->adamw, o->context->stream, o->trained, &o->count, model, &options,
        (bt_decay_rule){ from->decay, from->user }, NULL, err);
}

bauta_status bauta_optimizer_create(bauta_optimizer **out,
                                    bauta_context *context, bauta_model *model,
                                    const bauta_optimizer_options *options,
                                    bauta_error *err)
{
    bauta_optimizer_options chosen;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    bauta_status status = bt_model_check_trainable(model, err);
    if (!status)
        status = bt_model_check_owner(model, context, err);
    if (status)
        return status;
    status = BT_SIZED_READ(&chosen, BAUTA_OPTIMIZER_OPTIONS_INIT, options,
                           "options", err);
    if (!status)
        status = rate_check(chosen.learning_rate, err);
    if (status)
        return status;
    bauta_optimizer *o = bt_alloc_zero(1, sizeof(*o));
    if (!o)
        return bt_fail_memory(err, "an optimizer", sizeof(*o));
    o->context = context;
    status = optimizer_fill(o, model, &chosen, err);
    if (status)
        bauta_optimizer_free(o);
    else
        *out = o;
    return status;
}

void bauta_optimizer_free(bauta_optimizer *optimizer)
{
    if (!optimizer)
        return;
    bt_optimizer_free(optimizer->adamw);
    bt_free(optimizer->trained);
    bt_free(optimizer);
}

static bool gradient_finite(const bt_tensor *tensor, const float *grads)
{
    grads += tensor->grad_offset;
    for (size_t i = 0; i < tensor->rows * tensor->columns; i++)
        if (!isfinite(grads[i]))
            return false;
    return true;
}

/* Name the first tensor whose gradient is not finite. All are in one buffer. */
static bauta_status fail_not_finite(const bauta_optimizer *o, bauta_error *err)
{
    size_t i = 0;
    bt_host_copy grads;
    bauta_status status = bt_host_copy_init(&grads, o->context->stream,
                                            o->trained[0]->tensor->grad, err);
    if (status)
        return status;
    while (i + 1 < o->count &&
           gradient_finite(o->trained[i]->tensor, grads.data))
        i++;
    bt_host_copy_release(&grads);
    return bt_fail(err, BAUTA_ERR_NOT_FINITE,
                   "the gradient of \"%s\" is not finite",
                   bt_quote(o->trained[i]->name).text);
}

bauta_status bauta_optimizer_step(bauta_optimizer *optimizer, double *grad_norm,
                                  bauta_error *err)
{
    BT_NEED(optimizer, err);
    double norm = 0.0;
    bauta_status status = bt_optimizer_step(
        optimizer->adamw, optimizer->learning_rate, &norm, err);
    if (status)
        return status;
    if (grad_norm)
        *grad_norm = norm;
    return isfinite(norm) ? BAUTA_OK : fail_not_finite(optimizer, err);
}

bauta_status bauta_optimizer_set_learning_rate(bauta_optimizer *optimizer,
                                               double learning_rate,
                                               bauta_error *err)
{
    BT_NEED(optimizer, err);
    bauta_status status = rate_check(learning_rate, err);
    if (!status)
        optimizer->learning_rate = learning_rate;
    return status;
}
