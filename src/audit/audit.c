/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - one check after another, and what came of them. */
#include "audit/audit.h"

#include "audit/findings.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "ops/context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROWS_MAX = 4096, PROBES_MIN = 6, PROBES_MAX = 64 };

static const struct {
    const char *name, *text;
} checks[BAUTA_CHECKS] = {
#define ROW(id, value, word, line) [value] = { word, line },
    BAUTA_CHECK_MAP(ROW)
};

static bt_trial *const trials[BAUTA_CHECKS] = {
    [BAUTA_CHECK_REACH] = bt_try_reach,
    [BAUTA_CHECK_SIGHT] = bt_try_sight,
    [BAUTA_CHECK_TOKENS] = bt_try_tokens,
    [BAUTA_CHECK_POISON] = bt_try_poison,
    [BAUTA_CHECK_EMPTY] = bt_try_empty,
    [BAUTA_CHECK_GRADIENTS] = bt_try_gradients,
    [BAUTA_CHECK_COMPANY] = bt_try_company,
    [BAUTA_CHECK_PADDING] = bt_try_padding,
    [BAUTA_CHECK_STEPS] = bt_try_steps,
    [BAUTA_CHECK_PIECES] = bt_try_pieces,
    [BAUTA_CHECK_FORKS] = bt_try_forks,
    [BAUTA_CHECK_THREADS] = bt_try_threads,
    [BAUTA_CHECK_ISA] = bt_try_isa,
};

const char *bauta_check_name(bauta_check check)
{
    return (unsigned)check < BAUTA_CHECKS ? checks[check].name : "unknown";
}

const char *bauta_check_text(bauta_check check)
{
    return (unsigned)check < BAUTA_CHECKS ? checks[check].text
                                          : "no such check";
}

/* ---- one check --------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bauta_status check_run(bt_auditing *a, bauta_check check,
                              bauta_finding *finding, bauta_error *err)
{
    bt_double d;
    bt_fault fault = BT_FAULT_INIT;
    bauta_error why = { .message = "" };
    double began = now();
    a->compared = 0;
    bauta_status status = bt_double_init(&d, a->model, &why);
    if (!status) {
        status = trials[check](a, &d, &fault, &why);
        bt_double_release(&d);
    }
    if (status == BAUTA_ERR_ARGUMENT) { // where the model ran before
        fault = (bt_fault)BT_FAULT_INIT;
        fault.found = true;
        snprintf(fault.detail, sizeof(fault.detail), "%.95s", why.message);
        status = BAUTA_OK;
    } else if (!status && fault.found)
        status = bt_fault_place(a, trials[check], &fault, &why);
    if (status && status != BAUTA_ERR_UNSUPPORTED)
        return bt_fail(err, status, "%s: %s", bauta_check_name(check),
                       why.message);
    *finding = (bauta_finding){ .size = sizeof(*finding),
                                .check = check,
                                .verdict = status        ? BAUTA_SKIPPED
                                           : fault.found ? BAUTA_FAULT
                                                         : BAUTA_PASSED,
                                .compared = a->compared,
                                .seconds = now() - began };
    bt_finding_tell(finding, &a->read, &fault, why.message);
    return BAUTA_OK;
}

/* ---- all of them ------------------------------------------------------- */

/* As many as take some seconds: each is read again once for every layer, half
 * of them on average, and learned from in three manners. */
static size_t probes_chosen(const bt_auditing *a)
{
    const bt_model *m = a->model->folder->model;
    double numbers = (double)a->model->folder->parameters -
                     (double)m->tokens.rows * (double)m->tokens.columns;
    double rows = (double)(a->read.source.rows + a->read.target.rows);
    double layers = (double)(m->print.encoder.layers + m->print.decoder.layers);
    double each = 2.0 * (numbers + 1.0) * rows * (12.0 + layers / 2.0);
    double count = 3e11 / each;
    return count > PROBES_MAX   ? PROBES_MAX
           : count < PROBES_MIN ? PROBES_MIN
                                : (size_t)count;
}

/* Where NaN is everywhere, it proves nothing. (What a mask leaves empty must
 * not be NaN, but that is for a check to find.) */
static bauta_status numbers_check(const bauta_batch *source,
                                  const bauta_batch *target,
                                  const float *logits, size_t count,
                                  bauta_error *err)
{
    if ((source && source->mask) || (target && (target->mask || target->cross)))
        return BAUTA_OK;
    for (size_t i = 0; i < count; i++)
        if (isnan(logits[i]))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "the model gives NaN for the batch as it is, so "
                           "nothing can be found out about it");
    return BAUTA_OK;
}

/* Whether the batches fit is what a pass over them says. */
static bauta_status batches_check(bauta_context *context,
                                  const bauta_model *model,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err)
{
    const bauta_batch *top = target ? target : source;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t rows = 0;
    BT_NEED(top, err);
    if (source)
        rows = bauta_batch_rows(source);
    if (target)
        rows = bt_size_max(rows, bauta_batch_rows(target));
    if (rows > ROWS_MAX || bauta_batch_rows(top) == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a batch of %zu rows; an audit takes 1 to %d", rows,
                       ROWS_MAX);
    size_t count = bt_size_mul(rows, bauta_model_vocabulary(model));
    outputs.logits = bt_alloc(bt_size_mul(count, sizeof(float)));
    if (!outputs.logits)
        return bt_fail_memory(err, "the logits of a batch", count);
    bauta_status status =
        bauta_model_forward(context, model, source, target, &outputs, err);
    if (!status)
        status = numbers_check(
            source, target, outputs.logits,
            bauta_batch_rows(top) * bauta_model_vocabulary(model), err);
    bt_free(outputs.logits);
    return status;
}

static bauta_status
auditing_init(bt_auditing *a, bauta_context *context, const bauta_model *model,
              const bauta_batch *source, const bauta_batch *target,
              const bauta_audit_options *options, bauta_error *err)
{
    bauta_status status = batches_check(context, model, source, target, err);
    *a = (bt_auditing){ .context = context,
                        .model = model,
                        .seed = options->seed };
    if (!status)
        status = bt_readings_init(&a->read, source, target, err);
    if (status)
        return status;
    a->probes = options->probes ? options->probes : probes_chosen(a);
    a->row = bt_alloc_zero(bt_size_mul(2, bauta_model_width(model)),
                           sizeof(*a->row));
    if (a->row)
        return BAUTA_OK;
    bt_readings_release(&a->read);
    return bt_fail_memory(err, "two rows", bauta_model_width(model));
}

static bauta_status checks_run(bauta_audit *audit, bt_auditing *a,
                               uint32_t wanted, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (unsigned c = 0; !status && c < BAUTA_CHECKS; c++)
        if (wanted >> c & 1)
            status = check_run(a, (bauta_check)c,
                               &audit->findings[audit->count++], err);
    return status;
}

bauta_status bauta_audit_create(bauta_audit **out, bauta_context *context,
                                const bauta_model *model,
                                const bauta_batch *source,
                                const bauta_batch *target,
                                const bauta_audit_options *options,
                                bauta_error *err)
{
    const uint32_t all = (UINT32_C(1) << BAUTA_CHECKS) - 1;
    bauta_audit_options chosen = BAUTA_AUDIT_OPTIONS_INIT;
    bt_auditing a;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED_CPU(context, err);
    BT_NEED(model, err);
    if (options) {
        BT_NEED_SIZE(options, bauta_audit_options, "BAUTA_AUDIT_OPTIONS_INIT",
                     err);
        chosen = *options;
    }
    if (chosen.checks & ~all)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "checks is 0x%x, and there are %d checks",
                       (unsigned)chosen.checks, (int)BAUTA_CHECKS);
    bauta_status status =
        auditing_init(&a, context, model, source, target, &chosen, err);
    if (status)
        return status;
    bauta_audit *audit = bt_alloc_zero(1, sizeof(*audit));
    if (audit)
        status =
            checks_run(audit, &a, chosen.checks ? chosen.checks : all, err);
    else
        status = bt_fail_memory(err, "an audit", sizeof(*audit));
    bt_readings_release(&a.read);
    bt_free(a.row);
    if (status)
        bauta_audit_free(audit);
    else
        *out = audit;
    return status;
}

void bauta_audit_free(bauta_audit *audit)
{
    bt_free(audit);
}
