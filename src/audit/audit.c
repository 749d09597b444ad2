/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - run the checks of an audit. */
#include "audit/audit.h"

#include "audit/findings.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "runtime/context.h"

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

static bt_check_fn *const check_functions[BAUTA_CHECKS] = {
    [BAUTA_CHECK_REACH] = bt_check_reachability,
    [BAUTA_CHECK_VISIBILITY] = bt_check_layer_visibility,
    [BAUTA_CHECK_TOKENS] = bt_check_token_change,
    [BAUTA_CHECK_POISON] = bt_check_nan_poison,
    [BAUTA_CHECK_EMPTY] = bt_check_fully_masked,
    [BAUTA_CHECK_GRADIENTS] = bt_check_gradients,
    [BAUTA_CHECK_BATCH] = bt_check_batch_invariance,
    [BAUTA_CHECK_PADDING] = bt_check_padding,
    [BAUTA_CHECK_INCREMENTAL] = bt_check_decode_steps,
    [BAUTA_CHECK_CHUNKED] = bt_check_chunked_prefill,
    [BAUTA_CHECK_FORKS] = bt_check_forks,
    [BAUTA_CHECK_THREADS] = bt_check_threads,
    [BAUTA_CHECK_ISA] = bt_check_isa,
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

static bauta_status check_run(bt_audit_state *a, bauta_check check,
                              bauta_finding *finding, bauta_error *err)
{
    bt_model_clone clone;
    bt_fault fault = BT_FAULT_INIT;
    bauta_error why = { .message = "" };
    double began = now();
    a->compared = 0;
    bauta_status status = bt_model_clone_init(&clone, a->model, &why);
    if (!status) {
        status = check_functions[check](a, &clone, &fault, &why);
        bt_model_clone_release(&clone);
    }
    if (status == BAUTA_ERR_ARGUMENT) { // though the model ran before
        fault = (bt_fault)BT_FAULT_INIT;
        fault.found = true;
        snprintf(fault.detail, sizeof(fault.detail), "%.95s", why.message);
        status = BAUTA_OK;
    } else if (!status && fault.found)
        status = bt_fault_locate(a, check_functions[check], &fault, &why);
    if (status && status != BAUTA_ERR_UNSUPPORTED)
        return bt_fail(err, status, "%s: %s", bauta_check_name(check),
                       why.message);
    *finding = (bauta_finding){ .size = sizeof(*finding),
                                .check = check,
                                .verdict = status        ? BAUTA_SKIPPED
                                           : fault.found ? BAUTA_FAILED
                                                         : BAUTA_PASSED,
                                .compared = a->compared,
                                .seconds = now() - began };
    bt_finding_write(finding, &a->inputs, &fault, why.message);
    return BAUTA_OK;
}

/* ---- all checks -------------------------------------------------------- */

/* As many probes as take a few seconds. Each is run about 12 times, gradients
 * included, and once more per layer, with half of the layers on average. */
static size_t probes_chosen(const bt_audit_state *a)
{
    const bt_model *m = a->model->store->model;
    double parameters = (double)a->model->store->parameters -
                        (double)m->tokens.rows * (double)m->tokens.columns;
    double rows = (double)(a->inputs.source.rows + a->inputs.target.rows);
    double layers =
        (double)(m->config.encoder.layers + m->config.decoder.layers);
    double each = 2.0 * (parameters + 1.0) * rows * (12.0 + layers / 2.0);
    double count = 3e11 / each;
    return count > PROBES_MAX   ? PROBES_MAX
           : count < PROBES_MIN ? PROBES_MIN
                                : (size_t)count;
}

/* With NaN in the unchanged logits every comparison would be meaningless. If
 * the caller has a mask, NaN in a fully masked row is left to a check. */
static bauta_status nan_check(const bauta_batch *source,
                              const bauta_batch *target, const float *logits,
                              size_t count, bauta_error *err)
{
    if ((source && source->mask) ||
        (target && (target->mask || target->cross_mask)))
        return BAUTA_OK;
    for (size_t i = 0; i < count; i++)
        if (isnan(logits[i]))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "the model gives NaN for the unchanged batch, so it "
                           "cannot be audited");
    return BAUTA_OK;
}

/* A forward pass tells whether the batches fit the model. */
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
    size_t count = bt_size_mul(rows, bauta_model_vocab_size(model));
    outputs.logits = bt_alloc(bt_size_mul(count, sizeof(float)));
    if (!outputs.logits)
        return bt_fail_memory(err, "the logits of a batch", count);
    bauta_status status =
        bauta_model_forward(context, model, source, target, &outputs, err);
    if (!status)
        status = nan_check(
            source, target, outputs.logits,
            bauta_batch_rows(top) * bauta_model_vocab_size(model), err);
    bt_free(outputs.logits);
    return status;
}

static bauta_status
state_init(bt_audit_state *a, bauta_context *context, const bauta_model *model,
           const bauta_batch *source, const bauta_batch *target,
           const bauta_audit_options *options, bauta_error *err)
{
    bauta_status status = batches_check(context, model, source, target, err);
    *a = (bt_audit_state){ .context = context,
                           .model = model,
                           .seed = options->seed };
    if (!status)
        status = bt_probe_inputs_init(&a->inputs, source, target, err);
    if (status)
        return status;
    a->probes = options->probes ? options->probes : probes_chosen(a);
    a->scratch = bt_alloc_zero(bt_size_mul(2, bauta_model_hidden_size(model)),
                               sizeof(*a->scratch));
    if (a->scratch)
        return BAUTA_OK;
    bt_probe_inputs_release(&a->inputs);
    return bt_fail_memory(err, "two rows", bauta_model_hidden_size(model));
}

static bauta_status checks_run(bauta_audit *audit, bt_audit_state *a,
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
    bauta_audit_options chosen;
    bauta_batch batches[2];
    bt_audit_state a;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_AUDIT_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status =
            BT_SIZED_READ(&batches[0], BAUTA_BATCH_INIT, source, "source", err);
    if (!status)
        status =
            BT_SIZED_READ(&batches[1], BAUTA_BATCH_INIT, target, "target", err);
    if (status)
        return status;
    if (chosen.checks & ~all)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "checks is 0x%x, and there are %d checks",
                       (unsigned)chosen.checks, (int)BAUTA_CHECKS);
    status = state_init(&a, context, model, source ? &batches[0] : NULL,
                        target ? &batches[1] : NULL, &chosen, err);
    if (status)
        return status;
    bauta_audit *audit = bt_alloc_zero(1, sizeof(*audit));
    if (audit)
        status =
            checks_run(audit, &a, chosen.checks ? chosen.checks : all, err);
    else
        status = bt_fail_memory(err, "an audit", sizeof(*audit));
    bt_probe_inputs_release(&a.inputs);
    bt_free(a.scratch);
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
