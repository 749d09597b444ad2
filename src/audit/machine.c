/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - other numbers of threads, and other instruction sets. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

/* All that one context makes of the readings. */
typedef struct outcome {
    bt_states states;
    bt_double learner; /* holds the gradients */
    float *gradients;
    size_t count;
    double loss;
} outcome;

static void outcome_release(outcome *o)
{
    bt_states_release(&o->states);
    bt_double_release(&o->learner);
}

/* The sheet says again what it reads: any labels will do. */
static bauta_status gradients_run(outcome *o, bt_auditing *a,
                                  bauta_context *context, bauta_error *err)
{
    bt_sheet sheet;
    bauta_loss_options how = BAUTA_LOSS_OPTIONS_INIT;
    how.dropout = 0.1f;
    how.smoothing = 0.1f;
    bauta_status status = bt_sheet_init(&sheet, &a->read, 1, err);
    if (status)
        return status;
    status = bauta_model_loss(context, &o->learner.handle, sheet.source,
                              sheet.target, bt_readings_top(&a->read)->ids,
                              &how, &o->loss, NULL, err);
    bt_sheet_release(&sheet);
    return status;
}

static bauta_status outcome_init(outcome *o, bt_auditing *a,
                                 bauta_context *context, const bt_double *d,
                                 bauta_error *err)
{
    *o = (outcome){ .loss = 0.0 };
    bauta_status status = bt_double_init(&o->learner, &d->handle, err);
    if (status)
        return status;
    status = bt_states_of(&o->states, context, d, &a->read, true, err);
    if (!status && bt_double_learns(d))
        status = bt_double_learn(&o->learner, &o->gradients, &o->count, err);
    if (!status && bt_double_learns(d))
        status = gradients_run(o, a, context, err);
    if (status)
        outcome_release(o);
    return status;
}

/* ---- comparing --------------------------------------------------------- */

static bool states_differ(const bt_auditing *a, const bt_states *want,
                          const bt_states *got, bt_fault *fault)
{
    size_t bytes = want->width * sizeof(float);
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < want->levels[s]; l++)
            for (size_t i = 0; i < want->rows[s]; i++)
                if (memcmp(bt_states_row(want, s, l, i),
                           bt_states_row(got, s, l, i), bytes) != 0) {
                    fault->target = s;
                    fault->level = l;
                    fault->row = i;
                    return true;
                }
    size_t rows = bt_readings_top(&a->read)->rows, v = want->vocabulary;
    for (size_t i = 0; i < rows; i++)
        if (memcmp(want->logits + i * v, got->logits + i * v,
                   v * sizeof(float)) != 0) {
            fault->target = a->read.target.count > 0;
            fault->row = i;
            return true;
        }
    return false;
}

/* The name of the parameter whose gradient holds number `index`. */
typedef struct search {
    size_t index, at;
    char *text;
    size_t size;
} search;

static void name_find(void *user, const char *name, bt_tensor *tensor, int rank)
{
    search *s = user;
    size_t count = tensor->rows * tensor->columns;
    (void)rank;
    if (s->index >= s->at && s->index < s->at + count)
        snprintf(s->text, s->size, ", in the gradient of %s",
                 bt_quote(name).text);
    s->at += count;
}

static bool gradients_differ(outcome *want, const outcome *got, char *text,
                             size_t size)
{
    for (size_t i = 0; i < want->count; i++)
        if (memcmp(want->gradients + i, got->gradients + i, sizeof(float))) {
            search s = { i, 0, text, size };
            bt_folder_names(&want->learner.folder,
                            &(bt_names){ name_find, &s });
            return true;
        }
    return memcmp(&want->loss, &got->loss, sizeof(want->loss)) != 0;
}

/* The machines that a trial goes through. */
typedef struct machine {
    const char *isa; /* NULL: the best */
    int threads;
    char name[40];
} machine;

static bauta_status machine_try(bt_auditing *a, const bt_double *d,
                                outcome *want, const machine *m,
                                bt_fault *fault, bauta_error *err)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_context *context;
    outcome got;
    char where[64] = "";
    options.isa = m->isa;
    options.threads = m->threads;
    bauta_status status = bauta_context_create(&context, &options, err);
    if (status)
        return status;
    status = outcome_init(&got, a, context, d, err);
    if (!status) {
        a->compared += (got.states.levels[0] * got.states.rows[0]) +
                       (got.states.levels[1] * got.states.rows[1]);
        fault->found = states_differ(a, &want->states, &got.states, fault) ||
                       gradients_differ(want, &got, where, sizeof(where));
        if (fault->found)
            snprintf(fault->detail, sizeof(fault->detail), "with %s%s", m->name,
                     where);
        outcome_release(&got);
    }
    bauta_context_free(context);
    return status;
}

static bauta_status machines_try(bt_auditing *a, const bt_double *d,
                                 const machine *list, size_t count,
                                 bt_fault *fault, bauta_error *err)
{
    outcome want;
    bauta_status status = outcome_init(&want, a, a->context, d, err);
    if (status)
        return status;
    for (size_t i = 0; !status && !fault->found && i < count; i++)
        status = machine_try(a, d, &want, &list[i], fault, err);
    outcome_release(&want);
    return status;
}

bauta_status bt_try_threads(bt_auditing *a, bt_double *d, bt_fault *fault,
                            bauta_error *err)
{
    static const machine list[] = { { NULL, 1, "1 thread" },
                                    { NULL, 2, "2 threads" },
                                    { NULL, 4, "4 threads" } };
    machine own[BT_LEN(list)];
    for (size_t i = 0; i < BT_LEN(list); i++) {
        own[i] = list[i];
        own[i].isa = bauta_context_isa(a->context);
    }
    return machines_try(a, d, own, BT_LEN(own), fault, err);
}

/* The reference takes its time: of a large model it reads the shortest sequence
 * alone. */
static bauta_status sets_try(bt_auditing *a, const bt_double *d,
                             const machine *list, size_t count, bt_fault *fault,
                             bauta_error *err)
{
    enum { WORK_MAX = 100 * 1000 * 1000 };
    bt_readings all = a->read;
    const bt_reading *top = bt_readings_top(&all);
    size_t shortest = 0;
    if (top->rows * a->model->folder->parameters < WORK_MAX)
        return machines_try(a, d, list, count, fault, err);
    for (size_t s = 1; s < top->count; s++)
        if (top->lengths[s] && (top->lengths[s] < top->lengths[shortest] ||
                                !top->lengths[shortest]))
            shortest = s;
    bauta_status status = bt_readings_pick(&a->read, &all, &shortest, 1, err);
    if (!status) {
        status = machines_try(a, d, list, count, fault, err);
        if (fault->found && fault->row != BAUTA_NOWHERE)
            fault->row +=
                (fault->target ? &all.target : &all.source)->starts[shortest];
        bt_readings_release(&a->read);
    }
    a->read = all;
    return status;
}

bauta_status bt_try_isa(bt_auditing *a, bt_double *d, bt_fault *fault,
                        bauta_error *err)
{
    const char *names[8];
    machine list[BT_LEN(names)];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    for (size_t i = 0; i < count; i++) {
        list[i] = (machine){ .isa = names[i],
                             .threads = bauta_context_threads(a->context) };
        snprintf(list[i].name, sizeof(list[i].name), "instruction set %s",
                 names[i]);
    }
    return sets_try(a, d, list, count, fault, err);
}
