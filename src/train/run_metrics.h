/* SPDX-License-Identifier: Apache-2.0 */
/* run_metrics.h - metrics.jsonl: a line for each step and evaluation of a run.
 *
 *     {"step":3,"epoch":0,"loss":...}
 *     {"step":3,"valid_loss":...} */
#ifndef BT_RUN_METRICS_H
#define BT_RUN_METRICS_H

#include "formats/run_folder.h"

typedef struct bt_run_metrics bt_run_metrics;

/* Atomically replace the file by its lines up to `step`, and continue it: later
 * lines are void when a run is resumed. */
bauta_status bt_run_metrics_open(bt_run_metrics **out, const bauta_run *run,
                                 size_t step, bauta_error *err);
bauta_status bt_run_metrics_step(bt_run_metrics *metrics,
                                 const bauta_train_report *report,
                                 double seconds, bauta_error *err);
bauta_status bt_run_metrics_evaluation(bt_run_metrics *metrics,
                                       const bauta_run_evaluation *evaluation,
                                       bauta_error *err);
/* Accepts NULL. */
bauta_status bt_run_metrics_close(bt_run_metrics *metrics, bauta_error *err);

#endif
