/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_mpi.c - ranks over MPI: run by mpirun, every rank trains a small model
 * together with the others, and then alone, and compares. */
#include "bauta.h"
#include "runtime/context.h"
#include "tiny_training.h"
#include "train/checkpoint.h"

enum { STEPS = 4, LANES = 8 };

typedef struct outcome {
    double loss[STEPS], eval_loss;
    uint64_t weights;
} outcome;

static outcome train(bauta_ranks *ranks)
{
    outcome got = { .weights = 0 };
    bauta_error err = { 0 };
    training_run l = { 0 };
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_train_options options = tiny_train_options();
    how.threads = 1;
    options.lanes = LANES;
    options.dropout = 0.1f;
    options.ema_decay = 0.9;
    must(bauta_context_create(&l.context, &how, &err), &err);
    must(bauta_context_set_ranks(l.context, ranks, &err), &err);
    must(bauta_model_create(&l.model, tinies[tiny_family("gpt2")].config, 3,
                            &err),
         &err);
    l.tokenizer = tiny_tokenizer();
    l.corpus = tiny_texts(5, 60, 30, 3);
    must(bauta_trainer_create(&l.trainer, l.context, l.model, l.tokenizer,
                              l.corpus, &options, &err),
         &err);
    for (int i = 0; i < STEPS; i++)
        got.loss[i] = training_run_steps(&l, 1);
    must(bauta_trainer_evaluate(l.trainer, l.corpus, 0, &got.eval_loss, NULL,
                                &err),
         &err);
    got.weights =
        bt_model_weights_digest(l.model, store_weights(l.model->store));
    training_run_release(&l);
    return got;
}

static void ranks_over_mpi_change_no_bit(void **state)
{
    (void)state;
    bauta_ranks *ranks = NULL;
    bauta_error err = { 0 };
    must(bauta_ranks_join(&ranks, &err), &err);
    assert_true(bauta_ranks_count(ranks) > 1);
    outcome together = train(ranks), alone = train(NULL);
    assert_memory_equal(&together, &alone, sizeof(alone));
    assert_true(bauta_ranks_sent(ranks) > 0);
    bauta_ranks_free(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_over_mpi_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
