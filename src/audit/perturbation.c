/* SPDX-License-Identifier: Apache-2.0 */
/* perturbation.c - probe batches with one changed input per copy. */
#include "audit/perturbation.h"

#include "base/philox.h"
#include "base/size.h"

#include <string.h>

enum { BATCH_ROWS = 2048 }; /* of a probe batch, about */

/* ---- what is changed --------------------------------------------------- */

size_t bt_probe_count(const bt_audit_state *a, const bt_probe_input *r)
{
    return bt_size_min(a->probes, r->rows);
}

size_t bt_probe_row(const bt_audit_state *a, const bt_probe_input *r, size_t n)
{
    size_t count = bt_probe_count(a, r);
    return count > 1 ? n * (r->rows - 1) / (count - 1) : 0;
}

/* The squared distance of two embeddings, as a share of their squared norms;
 * 0 if they cannot be read. */
static double embedding_distance(const bt_model_store *store, uint32_t a,
                                 uint32_t b, float *scratch)
{
    size_t width = store->model->config.width;
    const float *x = scratch, *y = scratch + width;
    double apart = 0, norms = 0;
    if (bt_embedding_read(store, a, scratch, NULL) ||
        bt_embedding_read(store, b, scratch + width, NULL))
        return 0;
    for (size_t i = 0; i < width; i++) {
        double d = (double)x[i] - y[i];
        apart += d * d;
        norms += (double)x[i] * x[i] + (double)y[i] * y[i];
    }
    return norms > 0 ? apart / norms : 0;
}

/* A vocabulary may have many tokens that were never trained, whose embeddings
 * are nearly equal: with one of them for the other, no output would change in
 * bfloat16. So the first of some tokens that is far from `id` is taken, or the
 * farthest. */
uint32_t bt_different_token(const bt_audit_state *a, uint32_t id, size_t salt)
{
    enum { CANDIDATES = 64 };
    const double far = 0.25;
    const bt_model_store *store = a->model->store;
    const uint32_t key[2] = { (uint32_t)a->seed, (uint32_t)(a->seed >> 32) };
    const uint32_t counter[4] = { id, (uint32_t)salt, 0x61756469, 0 };
    size_t vocab = store->model->config.vocab_size;
    uint32_t random[4], best = id;
    double farthest = 0;
    bt_philox(random, counter, key);
    for (size_t n = 0; n < vocab && farthest < far; n++) {
        uint32_t other = (uint32_t)((random[0] + n) % vocab);
        double distance = embedding_distance(store, id, other, a->scratch);
        if (distance > farthest) {
            farthest = distance;
            best = other;
        }
        if (n >= CANDIDATES && farthest > 0)
            break;
    }
    return best;
}

/* Side and row of probe n; those of the source come first. */
static void probe_at(const bt_perturbation *p, size_t n, bool *target,
                     size_t *row)
{
    const bt_probe_inputs *inputs = &p->a->inputs;
    size_t first = p->changed[0] ? bt_probe_count(p->a, &inputs->source) : 0;
    *target = n >= first;
    *row = bt_probe_row(p->a, bt_probe_inputs_side(inputs, *target),
                        *target ? n - first : n);
}

static size_t probes_total(const bt_perturbation *p)
{
    size_t count = 0;
    for (size_t s = 0; s < 2; s++)
        if (p->changed[s])
            count +=
                bt_probe_count(p->a, bt_probe_inputs_side(&p->a->inputs, s));
    return count;
}

/* ---- passes ------------------------------------------------------------ */

static void batch_write(const bt_perturbation *p, bt_probe_batch *batch,
                        size_t first)
{
    const bt_probe_input *sides[] = { &p->a->inputs.source,
                                      &p->a->inputs.target };
    for (size_t c = 0; c < batch->copies; c++)
        for (size_t s = 0; s < 2; s++)
            if (sides[s]->rows)
                memcpy(bt_probe_batch_id(batch, s, sides[s], c, 0), p->ids[s],
                       sides[s]->rows * sizeof(uint32_t));
    for (size_t c = 1; c < batch->copies; c++) {
        bool target;
        size_t row;
        probe_at(p, first + c - 1, &target, &row);
        *bt_probe_batch_id(batch, target, sides[target], c, row) =
            p->changed[target][row];
    }
}

static bauta_status batch_run(bt_perturbation *p, size_t first, size_t count,
                              bauta_error *err)
{
    bt_probe_batch batch;
    bauta_status status =
        bt_probe_batch_init(&batch, &p->a->inputs, 1 + count, err);
    if (status)
        return status;
    batch_write(p, &batch, first);
    status = bt_hidden_states_init(&p->states, p->clone, batch.source,
                                   batch.target, false, err);
    if (!status)
        status = bt_hidden_states_run(&p->states, p->a->context, p->clone,
                                      batch.source, batch.target, err);
    for (size_t c = 1; !status && c <= count; c++) {
        bool target;
        size_t row;
        probe_at(p, first + c - 1, &target, &row);
        p->examine(p, c, target, row);
    }
    bt_hidden_states_release(&p->states);
    bt_probe_batch_release(&batch);
    return status;
}

bauta_status bt_perturbation_run(bt_perturbation *p, bauta_error *err)
{
    const bt_probe_inputs *inputs = &p->a->inputs;
    size_t rows = bt_size_max(inputs->source.rows, inputs->target.rows);
    size_t together = bt_size_max(BATCH_ROWS / bt_size_max(rows, 1), 2) - 1;
    size_t probes = probes_total(p);
    bauta_status status =
        bt_oracle_init(&p->oracle, &p->clone->model.config, inputs, err);
    if (status)
        return status;
    for (size_t n = 0; !status && n < probes; n += together)
        status = batch_run(p, n, bt_size_min(together, probes - n), err);
    bt_oracle_release(&p->oracle);
    return status;
}

/* ---- comparing --------------------------------------------------------- */

const float *bt_perturbation_state(const bt_perturbation *p, bool target,
                                   size_t level, size_t copy, size_t row)
{
    size_t rows = bt_probe_inputs_side(&p->a->inputs, target)->rows;
    return bt_hidden_state(&p->states, target, level, copy * rows + row);
}

bool bt_perturbation_same(const bt_perturbation *p, bool target, size_t level,
                          size_t copy, size_t row)
{
    p->a->compared++;
    return memcmp(bt_perturbation_state(p, target, level, 0, row),
                  bt_perturbation_state(p, target, level, copy, row),
                  p->states.width * sizeof(float)) == 0;
}

void bt_perturbation_fault(bt_perturbation *p, bool target, size_t level,
                           size_t row, bool key_target, size_t key,
                           bool should_see)
{
    bt_fault fault = bt_fault_at(target, level, row);
    fault.key_target = key_target;
    fault.key = key;
    fault.should_see = should_see;
    bt_fault_keep_first(p->fault, &fault);
}
