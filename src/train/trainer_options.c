/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_options.c - the options of a trainer: defaults and checks. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>

static bauta_objective objective_of(bauta_model_kind kind)
{
    switch (kind) {
    case BAUTA_ENCODER_ONLY:
        return BAUTA_OBJECTIVE_MASKED;
    case BAUTA_ENCODER_DECODER:
        return BAUTA_OBJECTIVE_SEQ2SEQ;
    default:
        return BAUTA_OBJECTIVE_CAUSAL;
    }
}

static bauta_status objective_check(const bauta_train_options *o,
                                    bauta_model_kind kind,
                                    const bauta_corpus *corpus,
                                    bauta_error *err)
{
    static const bauta_model_kind needs[] = {
        [BAUTA_OBJECTIVE_CAUSAL] = BAUTA_DECODER_ONLY,
        [BAUTA_OBJECTIVE_SEQ2SEQ] = BAUTA_ENCODER_DECODER,
        [BAUTA_OBJECTIVE_MASKED] = BAUTA_ENCODER_ONLY,
        [BAUTA_OBJECTIVE_PREFIX] = BAUTA_DECODER_ONLY,
    };
    static const char *const names[] = {
        [BAUTA_OBJECTIVE_CAUSAL] = "causal",
        [BAUTA_OBJECTIVE_SEQ2SEQ] = "seq2seq",
        [BAUTA_OBJECTIVE_MASKED] = "masked",
        [BAUTA_OBJECTIVE_PREFIX] = "prefix",
    };
    bauta_objective objective = o->objective;
    bool seq2seq = objective == BAUTA_OBJECTIVE_SEQ2SEQ;
    if ((unsigned)objective >= BT_LEN(needs) || kind != needs[objective])
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the objective %s does not fit a model that is %s",
                       (unsigned)objective < BT_LEN(names) ? names[objective]
                                                           : "given",
                       bauta_model_kind_text(kind));
    if (corpus && bauta_corpus_pairs(corpus) != seq2seq)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the objective %s needs a corpus of %s",
                       names[objective], seq2seq ? "pairs" : "texts");
    if (objective == BAUTA_OBJECTIVE_MASKED && o->mode != BAUTA_MODE_PARALLEL)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the masked objective supports the mode parallel only");
    return BAUTA_OK;
}

static bauta_status fraction_check(const char *name, double value, bool below,
                                   bauta_error *err)
{
    if (value >= 0.0 && (below ? value < 1.0 : value <= 1.0))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %g, not from 0 to %s1", name,
                   value, below ? "below " : "");
}

static bauta_status numbers_check(const bauta_train_options *o,
                                  bauta_error *err)
{
    bauta_status status;
    (void)((status =
                fraction_check("dropout", (double)o->dropout, true, err)) ||
           (status = fraction_check("label smoothing",
                                    (double)o->label_smoothing, false, err)) ||
           (status = fraction_check("the fraction of masked tokens",
                                    (double)o->mlm_probability, false, err)) ||
           (status = fraction_check(
                "the fraction of masked tokens that are random or kept",
                (double)o->mlm_random + (double)o->mlm_keep, false, err)) ||
           (status =
                fraction_check("the fraction of sampled tokens",
                               (double)o->scheduled_sampling, false, err)) ||
           (status = fraction_check("the decay of the moving average",
                                    o->ema_decay, true, err)));
    if (status)
        return status;
    if (!(o->learning_rate >= 0.0 && isfinite(o->learning_rate) &&
          o->min_learning_rate >= 0.0 &&
          o->min_learning_rate <= o->learning_rate))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the learning rate is %g and its minimum %g; neither "
                       "may be negative, nor the minimum larger",
                       o->learning_rate, o->min_learning_rate);
    if ((o->batch_sequences == 0 && o->batch_tokens == 0) ||
        o->gradient_accumulation_steps == 0 || o->microbatch_tokens == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the batch size, the gradient accumulation steps and "
                       "the micro-batch size must not be 0");
    if ((unsigned)o->mode > BAUTA_MODE_SCHEDULED ||
        (unsigned)o->lr_scheduler_type > BAUTA_SCHEDULE_INVERSE_SQRT)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "no such mode or schedule");
    return BAUTA_OK;
}

bauta_status bt_train_options_resolve(bauta_train_options *o,
                                      const bauta_model *model,
                                      const bauta_corpus *corpus,
                                      bauta_error *err)
{
    bauta_model_kind kind = bauta_model_kind_of(model);
    size_t positions = bauta_model_max_positions(model);
    if (o->objective == BAUTA_OBJECTIVE_AUTO)
        o->objective = objective_of(kind);
    if (o->context_length == 0 || o->context_length > positions)
        o->context_length = positions;
    if (o->lanes == 0)
        o->lanes = 1;
    bauta_status status = numbers_check(o, err);
    return status ? status : objective_check(o, kind, corpus, err);
}
