/* SPDX-License-Identifier: Apache-2.0 */
/* threads_and_isa.c - any number of threads and any instruction set give the
 * same bits. */
#include "audit/audit.h"

#include "backend/cpu/kernels/kernels.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include "runtime/context.h"

#include <stdio.h>
#include <string.h>

/* All results of one context: hidden states, logits, loss and gradients. */
typedef struct results {
    bt_hidden_states states;
    bt_model_clone trainable; /* owns the gradients */
    const float *gradients;
    size_t count;
    double loss;
} results;

static void results_release(results *o)
{
    bt_hidden_states_release(&o->states);
    bt_model_clone_release(&o->trainable);
}

/* The labels are the inputs: any labels will do. */
static bauta_status gradients_run(results *o, bt_audit_state *a,
                                  bauta_context *context, bauta_error *err)
{
    bt_probe_batch batch;
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    options.dropout = 0.1f;
    options.label_smoothing = 0.1f;
    bauta_status status = bt_probe_batch_init(&batch, &a->inputs, 1, err);
    if (status)
        return status;
    status = bauta_model_loss(
        context, &o->trainable.handle, batch.source, batch.target,
        bt_probe_inputs_output(&a->inputs)->ids, &options, &o->loss, NULL, err);
    bt_probe_batch_release(&batch);
    if (status)
        return status;
    o->gradients = bt_model_clone_gradients(&o->trainable, err);
    return o->gradients ? BAUTA_OK : BAUTA_ERR_DEVICE;
}

static bauta_status results_init(results *o, bt_audit_state *a,
                                 bauta_context *context,
                                 const bt_model_clone *clone, bauta_error *err)
{
    *o = (results){ .loss = 0.0 };
    bauta_status status =
        bt_model_clone_init(&o->trainable, &clone->handle, err);
    if (status)
        return status;
    status = bt_hidden_states_compute(&o->states, context, clone, &a->inputs,
                                      true, err);
    if (!status && bt_model_clone_trainable(clone))
        status = bt_model_clone_enable_gradients(&o->trainable, &o->count, err);
    if (!status && bt_model_clone_trainable(clone))
        status = gradients_run(o, a, context, err);
    if (status)
        results_release(o);
    return status;
}

/* ---- comparing --------------------------------------------------------- */

static bool states_differ(const bt_audit_state *a, const bt_hidden_states *want,
                          const bt_hidden_states *got, bt_fault *fault)
{
    size_t bytes = want->width * sizeof(float);
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < want->levels[s]; l++)
            for (size_t i = 0; i < want->rows[s]; i++)
                if (memcmp(bt_hidden_state(want, s, l, i),
                           bt_hidden_state(got, s, l, i), bytes) != 0) {
                    fault->target = s;
                    fault->level = l;
                    fault->row = i;
                    return true;
                }
    size_t rows = bt_probe_inputs_output(&a->inputs)->rows,
           v = want->vocabulary;
    for (size_t i = 0; i < rows; i++)
        if (memcmp(want->logits + i * v, got->logits + i * v,
                   v * sizeof(float)) != 0) {
            fault->target = a->inputs.target.count > 0;
            fault->row = i;
            return true;
        }
    return false;
}

/* The name of the parameter whose gradient holds number `index`. */
typedef struct name_search {
    size_t index, at;
    char *text;
    size_t size;
} name_search;

static void name_find(void *user, const char *name, bt_tensor *tensor, int rank)
{
    name_search *s = user;
    size_t count = bt_tensor_floats(tensor);
    (void)rank;
    if (s->index >= s->at && s->index < s->at + count)
        snprintf(s->text, s->size, ", in the gradient of %s",
                 bt_quote(name).text);
    s->at += count;
}

static bool gradients_differ(results *want, const results *got, char *text,
                             size_t size)
{
    for (size_t i = 0; i < want->count; i++)
        if (memcmp(want->gradients + i, got->gradients + i, sizeof(float))) {
            name_search s = { i, 0, text, size };
            bt_model_store_visit(&want->trainable.folder,
                                 &(bt_tensor_visitor){ name_find, &s });
            return true;
        }
    return memcmp(&want->loss, &got->loss, sizeof(want->loss)) != 0;
}

/* A way to execute the model. */
typedef struct execution {
    const char *isa; /* NULL: the best one */
    int threads;
    char name[40];
} execution;

static bauta_status execution_check(bt_audit_state *a,
                                    const bt_model_clone *clone, results *want,
                                    const execution *m, bt_fault *fault,
                                    bauta_error *err)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context;
    results got;
    char where[64] = "";
    options.isa = m->isa;
    options.threads = m->threads;
    options.device = bauta_context_device(a->context);
    options.dtype = a->context->stream->dtype;
    bauta_status status = bauta_context_create(&context, &options, err);
    if (status)
        return status;
    status = results_init(&got, a, context, clone, err);
    if (!status) {
        a->compared += (got.states.levels[0] * got.states.rows[0]) +
                       (got.states.levels[1] * got.states.rows[1]);
        fault->found = states_differ(a, &want->states, &got.states, fault) ||
                       gradients_differ(want, &got, where, sizeof(where));
        if (fault->found)
            snprintf(fault->detail, sizeof(fault->detail), "with %s%s", m->name,
                     where);
        results_release(&got);
    }
    bauta_context_free(context);
    return status;
}

static bauta_status executions_check(bt_audit_state *a,
                                     const bt_model_clone *clone,
                                     const execution *list, size_t count,
                                     bt_fault *fault, bauta_error *err)
{
    results want;
    bauta_status status = results_init(&want, a, a->context, clone, err);
    if (status)
        return status;
    for (size_t i = 0; !status && !fault->found && i < count; i++)
        status = execution_check(a, clone, &want, &list[i], fault, err);
    results_release(&want);
    return status;
}

bauta_status bt_check_threads(bt_audit_state *a, bt_model_clone *clone,
                              bt_fault *fault, bauta_error *err)
{
    static const execution list[] = { { NULL, 1, "1 thread" },
                                      { NULL, 2, "2 threads" },
                                      { NULL, 4, "4 threads" } };
    execution own[BT_LEN(list)];
    for (size_t i = 0; i < BT_LEN(list); i++) {
        own[i] = list[i];
        own[i].isa = bauta_context_isa(a->context);
    }
    return executions_check(a, clone, own, BT_LEN(own), fault, err);
}

/* The reference kernels are slow: with a large model they run only the shortest
 * sequence. */
static bauta_status isas_check(bt_audit_state *a, const bt_model_clone *clone,
                               const execution *list, size_t count,
                               bt_fault *fault, bauta_error *err)
{
    enum { WORK_MAX = 100 * 1000 * 1000 };
    bt_probe_inputs all = a->inputs;
    const bt_probe_input *top = bt_probe_inputs_output(&all);
    size_t shortest = 0;
    if (top->rows * a->model->store->parameters < WORK_MAX)
        return executions_check(a, clone, list, count, fault, err);
    for (size_t s = 1; s < top->count; s++)
        if (top->lengths[s] && (top->lengths[s] < top->lengths[shortest] ||
                                !top->lengths[shortest]))
            shortest = s;
    bauta_status status =
        bt_probe_inputs_select(&a->inputs, &all, &shortest, 1, err);
    if (!status) {
        status = executions_check(a, clone, list, count, fault, err);
        if (fault->found && fault->row != BAUTA_NO_INDEX)
            fault->row +=
                (fault->target ? &all.target : &all.source)->starts[shortest];
        bt_probe_inputs_release(&a->inputs);
    }
    a->inputs = all;
    return status;
}

bauta_status bt_check_isa(bt_audit_state *a, bt_model_clone *clone,
                          bt_fault *fault, bauta_error *err)
{
    const char *names[8];
    execution list[BT_LEN(names)];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    for (size_t i = 0; i < count; i++) {
        list[i] = (execution){ .isa = names[i],
                               .threads = bauta_context_threads(a->context) };
        snprintf(list[i].name, sizeof(list[i].name), "instruction set %s",
                 names[i]);
    }
    return isas_check(a, clone, list, count, fault, err);
}
