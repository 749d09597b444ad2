/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - saving and resuming a trainer.
 *
 * Everything is checked before anything is changed: if resuming fails, the
 * trainer is unchanged. */
#include "train/checkpoint.h"
#include "runtime/context.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/json.h"
#include "formats/run_folder.h"
#include "formats/sealed_json.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char record_name[] = "trainer.json";
static const char optimizer_name[] = "optimizer.safetensors";

static bauta_status fail_name(bauta_error *err)
{
    return bt_fail_memory(err, "the name of a file", sizeof(optimizer_name));
}

/* ---- saving -------------------------------------------------------------- */

static bauta_status notes_parse(json_t **out, const char *notes,
                                bauta_error *err)
{
    bauta_error why;
    *out = NULL;
    if (!notes)
        return BAUTA_OK;
    bauta_status status =
        bt_json_parse_object(out, notes, strlen(notes), 0, "the notes", &why);
    if (status == BAUTA_ERR_NOMEM)
        return bt_fail(err, status, "%s", why.message);
    return status
               ? bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the notes are not a JSON object: %.180s", why.message)
               : BAUTA_OK;
}

static bauta_status tokenizer_write(const bt_atomic_directory *to,
                                    const bauta_tokenizer *tokenizer,
                                    bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; tokenizer && !status && i < tokenizer->file_count; i++) {
        const bt_tokenizer_file *file = &tokenizer->files[i];
        status = bt_atomic_directory_write(to, file->name, file->bytes,
                                           file->size, err);
    }
    return status;
}

/* The record is written last: if it exists, the checkpoint is complete. */
static bauta_status folder_write(const bauta_trainer *t, const char *folder,
                                 const float *weights,
                                 const bt_optimizer_state *state,
                                 const char *record, bauta_error *err)
{
    bt_atomic_directory *to;
    bauta_status status = bt_atomic_directory_create(&to, folder, err);
    if (status)
        return status;
    status = bt_model_write(t->model, weights, to, err);
    if (!status)
        status = tokenizer_write(to, t->tokenizer, err);
    if (!status)
        status = bt_safetensors_write_in(to, optimizer_name, state->tensors,
                                         state->count, err);
    if (!status)
        status = bt_atomic_directory_write(to, record_name, record,
                                           strlen(record), err);
    if (!status)
        status = bt_atomic_directory_commit(to, err);
    bt_atomic_directory_free(to);
    return status;
}

static bauta_status record_text(char **out, const bauta_trainer *t,
                                const float *weights,
                                const bt_optimizer_state *state,
                                const char *notes, bauta_error *err)
{
    json_t *kept, *record = NULL;
    *out = NULL;
    bauta_status status = notes_parse(&kept, notes, err);
    if (!status)
        status = bt_trainer_record_make(&record, t, weights, state, kept, err);
    if (!status)
        status = bt_sealed_json_text(out, record, record_name, err);
    json_decref(record);
    json_decref(kept);
    return status;
}

/* Whether this rank writes files. */
static bool writes(const bauta_trainer *t)
{
    return t->context->comm->rank == 0;
}

bauta_status bt_checkpoint_copy(bt_checkpoint_draft *draft,
                                const bauta_trainer *trainer, const char *notes,
                                bauta_error *err)
{
    *draft = (bt_checkpoint_draft){ .trainer = trainer };
    bauta_status status =
        bt_trainer_weights(&draft->weights, trainer, false, err);
    if (!status)
        status = bt_optimizer_state_init(&draft->state, trainer, true, err);
    if (!status && writes(trainer))
        status = record_text(&draft->record, trainer, draft->weights.data,
                             &draft->state, notes, err);
    if (status)
        bt_checkpoint_draft_release(draft);
    return status;
}

bool bt_checkpoint_is_apart(const bt_checkpoint_draft *draft)
{
    return draft->weights.owned && draft->state.moments.owned &&
           (draft->state.ema.owned || !draft->trainer->ema.memory);
}

bauta_status bt_checkpoint_write(const bt_checkpoint_draft *draft,
                                 const char *folder, bauta_error *err)
{
    const bauta_trainer *t = draft->trainer;
    return writes(t) ? folder_write(t, folder, draft->weights.data,
                                    &draft->state, draft->record, err)
                     : BAUTA_OK;
}

void bt_checkpoint_draft_release(bt_checkpoint_draft *draft)
{
    bt_free(draft->record);
    bt_optimizer_state_release(&draft->state);
    bt_host_copy_release(&draft->weights);
    *draft = (bt_checkpoint_draft){ 0 };
}

bauta_status bauta_trainer_save(const bauta_trainer *trainer,
                                const char *folder, const char *notes,
                                bauta_error *err)
{
    BT_NEED(trainer, err);
    if (writes(trainer))
        BT_NEED(folder, err);
    bt_checkpoint_draft draft;
    bauta_status status = bt_checkpoint_copy(&draft, trainer, notes, err);
    if (status)
        return status;
    status = bt_checkpoint_write(&draft, folder, err);
    bt_checkpoint_draft_release(&draft);
    return status;
}

static bauta_status weights_write(const bauta_trainer *t, const float *weights,
                                  const char *folder, bauta_error *err)
{
    bt_atomic_directory *to = NULL;
    bauta_status status = bt_atomic_directory_create(&to, folder, err);
    if (!status)
        status = bt_model_write(t->model, weights, to, err);
    if (!status)
        status = tokenizer_write(to, t->tokenizer, err);
    if (!status)
        status = bt_atomic_directory_commit(to, err);
    bt_atomic_directory_free(to);
    return status;
}

/* Of the moving average of a single rank, or of the weights. */
static bauta_status host_copy(bt_host_copy *copy, const bauta_trainer *t,
                              bauta_error *err)
{
    return t->ema.memory && t->context->comm->count == 1
               ? bt_host_copy_init(copy, t->context->stream, &t->ema, err)
               : bt_trainer_weights(copy, t, false, err);
}

bauta_status bauta_trainer_export(const bauta_trainer *trainer,
                                  const char *folder, bauta_error *err)
{
    BT_NEED(trainer, err);
    if (writes(trainer))
        BT_NEED(folder, err);
    bool swaps = trainer->context->comm->count > 1;
    bt_host_copy weights;
    bauta_status status = swaps ? bt_trainer_swap_ema(trainer, err) : BAUTA_OK,
                 back = BAUTA_OK;
    if (status)
        return status;
    status = host_copy(&weights, trainer, err);
    if (!status && writes(trainer))
        status = weights_write(trainer, weights.data, folder, err);
    bt_host_copy_release(&weights);
    if (swaps)
        back = bt_trainer_swap_ema(trainer, status ? NULL : err);
    return status ? status : back;
}

/* ---- resuming ------------------------------------------------------------ */

static bauta_status record_open(json_t **out, const char *folder,
                                bauta_error *err)
{
    *out = NULL;
    char *path = bt_path_join(folder, record_name);
    if (!path)
        return fail_name(err);
    bauta_status status = bt_sealed_json_read(out, path, err);
    bt_free(path);
    return status;
}

static bauta_status progress_read(bt_train_progress *progress,
                                  const bauta_trainer *t, const char *folder,
                                  bauta_error *err)
{
    json_t *record;
    bauta_status status = record_open(&record, folder, err);
    char *path = status ? NULL : bt_path_join(folder, record_name);
    if (!status)
        status = path ? bt_trainer_record_read(progress, record, t, path, err)
                      : fail_name(err);
    bt_free(path);
    json_decref(record);
    return status;
}

static bauta_status optimizer_open(bt_safetensors **out,
                                   const bt_optimizer_state *state,
                                   const bt_train_progress *progress,
                                   const char *folder, bauta_error *err)
{
    uint64_t digest;
    *out = NULL;
    char *path = bt_path_join(folder, optimizer_name);
    if (!path)
        return fail_name(err);
    bauta_status status = bt_safetensors_open(out, path, err);
    if (!status)
        status = bt_optimizer_state_check(state, *out, path, &digest, err);
    if (!status && digest != progress->optimizer_digest)
        status =
            bt_fail(err, BAUTA_ERR_FORMAT,
                    "%s: is damaged: its digest differs from the saved one",
                    bt_path_tail(path));
    bt_free(path);
    return status;
}

static bauta_status epoch_open(bt_epoch *epoch, const bauta_trainer *t,
                               const bt_train_progress *progress,
                               const char *folder, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (t->corpus)
        status = bt_epoch_init(epoch, t->corpus, &t->packing, t->options.seed,
                               progress->epoch, err);
    if (!status && progress->batch > epoch->batch_count)
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s/%s: is at batch %zu of an epoch that has %zu",
                         bt_path_tail(folder), record_name, progress->batch,
                         epoch->batch_count);
    return status;
}

/* Cannot fail. */
static void trainer_set(bauta_trainer *t, const bt_train_progress *progress,
                        bt_epoch *epoch)
{
    bt_epoch_release(&t->epoch);
    t->epoch = *epoch;
    *epoch = (bt_epoch){ 0 };
    t->epoch_number = t->objective.epoch = progress->epoch;
    t->batch = progress->batch;
    t->steps = progress->step;
    bt_optimizer_set_steps(t->optimizer, progress->updates);
}

bauta_status bauta_trainer_resume(bauta_trainer *trainer, const char *folder,
                                  bauta_error *err)
{
    BT_NEED(trainer, err);
    BT_NEED(folder, err);
    bt_train_progress progress;
    bt_optimizer_state state = { 0 };
    bt_safetensors *file = NULL;
    bt_epoch epoch = { 0 };
    bauta_status status = progress_read(&progress, trainer, folder, err);
    if (!status)
        status = bt_optimizer_state_init(&state, trainer, false, err);
    if (!status)
        status = optimizer_open(&file, &state, &progress, folder, err);
    if (!status)
        status = epoch_open(&epoch, trainer, &progress, folder, err);
    if (!status)
        status = bt_optimizer_state_load(&state, trainer, file, err);
    if (!status)
        trainer_set(trainer, &progress, &epoch);
    bt_epoch_release(&epoch);
    bt_safetensors_free(file);
    bt_optimizer_state_release(&state);
    return status;
}

/* ---- reading checkpoints ------------------------------------------------- */

static bauta_status text_copy(char **out, const json_t *value, bauta_error *err)
{
    *out = bt_json_dump(value, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    return *out ? BAUTA_OK : bt_fail_memory(err, "notes", 0);
}

bauta_status bauta_checkpoint_notes(char **notes, const char *folder,
                                    bauta_error *err)
{
    BT_NEED(notes, err);
    *notes = NULL;
    BT_NEED(folder, err);
    json_t *record;
    bauta_status status = record_open(&record, folder, err);
    const json_t *kept = json_object_get(record, "notes");
    if (!status && kept)
        status = text_copy(notes, kept, err);
    json_decref(record);
    return status;
}

bauta_status bauta_run_last(char **folder, const char *run, bauta_error *err)
{
    BT_NEED(folder, err);
    *folder = NULL;
    BT_NEED(run, err);
    return bt_run_last_checkpoint(folder, run, err);
}
