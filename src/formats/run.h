/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the folder of a training run.
 *
 *     step-<number>/   checkpoints: model folders with a trainer.json
 *     best             a link to one of them, or a model folder
 *
 * and whatever else the run writes. What a killed program left half written
 * has other names, or no whole trainer.json, and is passed over. */
#ifndef BT_RUN_H
#define BT_RUN_H

#include "bauta.h"

/* The checkpoint of the largest number whose trainer.json is whole, for
 * bt_free(); NULL where there is none, or no such folder. */
bauta_status bt_run_last(char **out, const char *run, bauta_error *err);

/* The model folder that a path stands for, for bt_free(): its best, else its
 * last checkpoint, where it is a run, which has no config.json; else itself. */
bauta_status bt_run_resolve(char **out, const char *folder, bauta_error *err);

#endif
