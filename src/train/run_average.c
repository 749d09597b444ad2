/* SPDX-License-Identifier: Apache-2.0 */
/* run_average.c - the average of a run's weights, as a model folder. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "runtime/context.h"
#include "train/run_loop.h"

/* The validation loss of a folder's model. */
static bauta_status folder_evaluate(const bauta_trainer *t, const char *folder,
                                    const bauta_corpus *validation,
                                    size_t eval_tokens, double *loss,
                                    bauta_error *err)
{
    bauta_model *model = NULL;
    bauta_trainer *trainer = NULL;
    bauta_train_options options = t->options;
    options.ema_decay = 0.0;
    bauta_status status = bauta_model_load(&model, folder, true, err);
    if (!status)
        status = bauta_model_to(model, t->context, err);
    if (!status)
        status = bauta_trainer_create(&trainer, t->context, model, t->tokenizer,
                                      t->corpus, &options, err);
    if (!status)
        bauta_trainer_on_evaluate(trainer, t->progress, t->progress_user);
    if (!status)
        status = bauta_trainer_evaluate(trainer, validation, eval_tokens, loss,
                                        NULL, err);
    bauta_trainer_free(trainer);
    bauta_model_free(model);
    return status;
}

static bauta_status mean_write(const bauta_run *run, const bauta_trainer *t,
                               const char *out, const size_t *steps,
                               size_t count, bauta_error *err)
{
    char **folders = bt_alloc_zero(count + 1, sizeof(*folders));
    bauta_status status =
        folders ? BAUTA_OK : bt_fail_memory(err, "a list of checkpoints", 0);
    for (size_t i = 0; !status && i < count; i++) {
        folders[i] = bt_run_checkpoint_path(run->path, steps[i]);
        if (!folders[i])
            status = bt_fail_memory(err, "the name of a folder", 0);
    }
    if (!status)
        status =
            bauta_model_average(out, (const char *const *)folders, count, err);
    if (!status && t->tokenizer)
        status = bauta_tokenizer_save(t->tokenizer, out, err);
    for (size_t i = 0; folders && i < count; i++)
        bt_free(folders[i]);
    bt_free(folders);
    return status;
}

static bauta_status mean_of_last(const bauta_run *run, const bauta_trainer *t,
                                 const char *out, size_t last,
                                 bauta_run_result *result, bauta_error *err)
{
    size_t *steps, all;
    bauta_status status =
        bt_run_list(&steps, &all, run->folder, run->path, t->steps, err);
    size_t count = bt_size_min(all, last);
    if (!status)
        status = mean_write(run, t, out, steps + all - count, count, err);
    if (!status)
        result->averaged = count;
    bt_free(steps);
    return status;
}

/* Rank 0 alone averages files; a moving average is gathered from all. */
static bauta_status average_write(const bauta_run *run, const bauta_trainer *t,
                                  const bauta_corpus *validation,
                                  const bauta_run_options *options,
                                  bauta_run_result *result, bauta_error *err)
{
    bool mean = options->average_checkpoints > 0;
    char *out = bt_path_join(run->path, "average");
    bauta_status status = out ? bauta_checkpoint_remove(out, err)
                              : bt_fail_memory(err, "the name of a folder", 0);
    if (!status && mean)
        status = mean_of_last(run, t, out, options->average_checkpoints, result,
                              err);
    else if (!status)
        status = bauta_trainer_export(t, out, err);
    if (!status && mean && validation)
        status = folder_evaluate(t, out, validation, options->eval_tokens,
                                 &result->average_loss, err);
    bt_free(out);
    return status;
}

bauta_status bt_run_average(const bauta_run *run, const bauta_trainer *t,
                            const bauta_corpus *validation,
                            const bauta_run_options *options,
                            bauta_run_result *result, bauta_error *err)
{
    bool mean = options->average_checkpoints > 0;
    bauta_context *context = t->context;
    bt_comm *comm = context->comm;
    bauta_status status = BAUTA_OK;
    if (!mean && !t->ema.memory)
        return BAUTA_OK;
    if (!run && !mean)
        return bauta_trainer_export(t, NULL, err);
    if (mean)
        context->comm = &context->single;
    if (run)
        status = average_write(run, t, validation, options, result, err);
    context->comm = comm;
    return status;
}
