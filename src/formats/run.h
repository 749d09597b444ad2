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

#include "base/directory.h"

#include <jansson.h>

/* The checkpoint of the largest number whose trainer.json is whole, for
 * bt_free(); NULL where there is none, or no such folder. */
bauta_status bt_run_last(char **out, const char *run, bauta_error *err);

/* The model folder that a path stands for, for bt_free(): its best, else its
 * last checkpoint, where it is a run, which has no config.json; else itself. */
bauta_status bt_run_resolve(char **out, const char *folder, bauta_error *err);

/* ---- hold.c -------------------------------------------------------------- */

/* The file of a run's lock; it is there while a program holds the run. */
#define BT_RUN_LOCK ".bauta.lock"

/* ---- remove.c ------------------------------------------------------------ */

/* The files of a tokenizer in a model folder; NULL after the last. */
extern const char *const bt_tokenizer_names[];
/* Whether a name is that of a draft: ".bauta-<number>-<number><ending>". */
bool bt_is_draft(const char *name, const char *ending);
/* Remove the folder `name` of an open one, if all in it is bauta's; that there
 * is none is fine. Sentences call it `path`. */
bauta_status bt_checkpoint_remove(int parent, const char *name,
                                  const char *path, bauta_error *err);

/* ---- intact.c ------------------------------------------------------------ */

/* The trainer.json of a folder, for json_decref(); NULL where there is none. */
bauta_status bt_record_open(json_t **out, const char *folder, bauta_error *err);
/* Hold a digest against the one of this key; where there is none, all is fine.
 * Sentences name the file. */
bauta_status bt_intact_check(const json_t *digests, const char *key,
                             uint64_t is, const char *folder, const char *file,
                             bauta_error *err);
/* The tokenizer's files of a checkpoint, as far as it has digests of them. */
bauta_status bt_tokenizer_files_check(const char *folder, bauta_error *err);

#endif
