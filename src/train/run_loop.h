/* SPDX-License-Identifier: Apache-2.0 */
/* run_loop.h - the state of a training run.
 *
 *   run_loop.c      bauta_run_train(): steps, evaluations, checkpoints
 *   run_progress.c  what a run saves in the notes of its checkpoints
 *   run_average.c   the average at its end
 *   run_resume.c    bauta_run_resume()
 *   run_metrics.c   metrics.jsonl */
#ifndef BT_RUN_LOOP_H
#define BT_RUN_LOOP_H

#include "train/run_metrics.h"
#include "train/trainer.h"

/* State of a run besides its trainer. */
typedef struct bt_run_progress {
    double best;      /* validation loss; infinite before the first */
    size_t best_step; /* 0: none */
    size_t stale;     /* evaluations without improvement */
} bt_run_progress;

/* The progress in the checkpoint of a step, or that of a new run if there is no
 * such checkpoint. */
bauta_status bt_run_progress_read(bt_run_progress *progress,
                                  const bauta_run *run, size_t step,
                                  bauta_error *err);
/* The notes of a checkpoint, for bt_free(): those of the caller, a JSON object
 * or NULL, with the progress added. */
bauta_status bt_run_notes(char **out, const char *notes,
                          const bt_run_progress *progress, bauta_error *err);

/* Write RUN/average: the mean of the last checkpoints, whose number and loss go
 * to the result, or the trainer's moving average. */
bauta_status bt_run_average(const bauta_run *run, const bauta_trainer *trainer,
                            const bauta_corpus *validation,
                            const bauta_run_options *options,
                            bauta_run_result *result, bauta_error *err);

#endif
