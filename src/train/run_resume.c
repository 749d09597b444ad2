/* SPDX-License-Identifier: Apache-2.0 */
/* run_resume.c - continuing a run from one of its checkpoints. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/run_loop.h"

/* Exchange the weights of a trainer and of a model with the same tensors, which
 * is in host memory. */
static bauta_status weights_swap(bauta_trainer *t, const bauta_model *with,
                                 bauta_error *err)
{
    bt_host_copy copy;
    bauta_status status = bt_trainer_weights(&copy, t, true, err);
    if (status)
        return status;
    float *x = copy.data, *y = with->store->weights.memory;
    for (size_t i = 0; i < with->store->floats; i++) {
        float value = x[i];
        x[i] = y[i];
        y[i] = value;
    }
    if (copy.owned) // otherwise it is the trainer's
        status = bt_trainer_set_weights(t, x, err);
    bt_host_copy_release(&copy);
    return status;
}

/* Load the weights of a checkpoint and resume it; if that fails the trainer and
 * its model are as before. */
static bauta_status folder_resume(bauta_trainer *t, const char *folder,
                                  bauta_error *err)
{
    bauta_model *saved = NULL;
    uint64_t is, was;
    bauta_status status = bauta_model_load(&saved, folder, true, err);
    if (!status)
        status = bt_model_config_digest(&is, t->model, err);
    if (!status)
        status = bt_model_config_digest(&was, saved, err);
    if (!status &&
        (is != was || saved->store->floats != t->model->store->floats))
        status =
            bt_fail(err, BAUTA_ERR_ARGUMENT, "%s: the model has another config",
                    bt_path_tail(folder));
    if (!status)
        status = weights_swap(t, saved, err);
    if (!status) {
        status = bauta_trainer_resume(t, folder, err);
        if (status)
            (void)bt_trainer_set_weights(t, saved->store->weights.memory, NULL);
    }
    bauta_model_free(saved);
    return status;
}

static bool is_damage(bauta_status status)
{
    return status == BAUTA_ERR_IO || status == BAUTA_ERR_FORMAT;
}

static bauta_status step_resume(const bauta_run *run, bauta_trainer *t,
                                size_t step, bauta_error *err)
{
    char *folder = bt_run_checkpoint_path(run->path, step);
    bauta_status status = folder
                              ? folder_resume(t, folder, err)
                              : bt_fail_memory(err, "the name of a folder", 0);
    bt_free(folder);
    return status;
}

static bauta_status newest_resume(const bauta_run *run, bauta_trainer *t,
                                  size_t *resumed, bauta_error *err)
{
    size_t *steps, count;
    bauta_status status =
        bt_run_list(&steps, &count, run->folder, run->path, SIZE_MAX, err);
    if (!status && count)
        status = step_resume(run, t, *resumed = steps[--count], err);
    while (is_damage(status) && count)
        status = step_resume(run, t, *resumed = steps[--count], err);
    bt_free(steps);
    return status;
}

bauta_status bauta_run_resume(const bauta_run *run, bauta_trainer *trainer,
                              size_t step, size_t *resumed, bauta_error *err)
{
    BT_NEED(run, err);
    BT_NEED(trainer, err);
    size_t found = step;
    bauta_status status;
    if (step == 0)
        status = newest_resume(run, trainer, &found, err);
    else if (!bt_run_has_checkpoint(run->folder, step))
        status =
            bt_fail(err, BAUTA_ERR_ARGUMENT, "%s has no checkpoint of step %zu",
                    bt_path_tail(run->path), step);
    else
        status = step_resume(run, trainer, step, err);
    if (resumed)
        *resumed = status ? 0 : found;
    return status;
}
