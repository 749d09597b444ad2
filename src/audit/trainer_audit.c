/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_audit.c - audit the beginning of a trainer's next batch. */
#include "train/trainer.h"

#include "base/size.h"
#include "base/sized.h"

enum { SEQUENCES = 3, TOKENS = 16, SHORTER = 4, PROBES = 4 };

/* The first tokens of the first sequences of the batch, each sequence shorter
 * than the one before. */
static bauta_status batch_begin(bt_train_batch *batch, const bauta_trainer *t,
                                bauta_error *err)
{
    bt_example sequences[SEQUENCES];
    size_t first = t->epoch.batch_offsets[t->batch];
    size_t count = t->epoch.batch_offsets[t->batch + 1] - first;
    count = bt_size_min(count, SEQUENCES);
    for (size_t s = 0; s < count; s++) {
        sequences[s] = t->epoch.examples[first + s];
        sequences[s].count =
            bt_size_min(sequences[s].count, TOKENS - SHORTER * s);
    }
    return bt_train_batch_set(batch, &t->objective, t->corpus, sequences, count,
                              err);
}

bauta_status bauta_audit_trainer(bauta_audit **out, bauta_trainer *trainer,
                                 const bauta_audit_options *options,
                                 bauta_error *err)
{
    bauta_audit_options chosen;
    bt_train_batch batch = { 0 };
    bt_microbatch pass;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(trainer, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_AUDIT_OPTIONS_INIT,
                                        options, "options", err);
    if (status)
        return status;
    if (!chosen.checks)
        chosen.checks = 1u << BAUTA_CHECK_REACH | 1u << BAUTA_CHECK_TOKENS |
                        1u << BAUTA_CHECK_POISON | 1u << BAUTA_CHECK_GRADIENTS;
    if (!chosen.probes)
        chosen.probes = PROBES;
    status = bt_trainer_next(trainer, err);
    if (!status)
        status = batch_begin(&batch, trainer, err);
    if (!status) {
        bt_microbatch_set(&pass, trainer, &batch);
        status = bauta_audit_create(out, trainer->context, trainer->model,
                                    pass.read_source, pass.read_target, &chosen,
                                    err);
    }
    bt_train_batch_release(&batch);
    return status;
}
