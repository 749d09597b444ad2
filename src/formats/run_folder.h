/* SPDX-License-Identifier: Apache-2.0 */
/* run_folder.h - the folder of a training run.
 *
 *     step-<number>/   checkpoints: model folders with a trainer.json
 *     best             a link to one of them, or a model folder
 *
 * and other files of the run. Incomplete files of a killed program have
 * temporary names or no valid trainer.json, and are ignored. */
#ifndef BT_RUN_FOLDER_H
#define BT_RUN_FOLDER_H

#include "base/atomic_directory.h"

#include <jansson.h>

/* The checkpoint with the largest number and a valid trainer.json, for
 * bt_free(); NULL if there is none, or no such folder. */
bauta_status bt_run_last_checkpoint(char **out, const char *run,
                                    bauta_error *err);

/* The model folder that a path stands for, for bt_free(). A run, which has no
 * config.json, stands for its `best`, or else for its last checkpoint; any
 * other path stands for itself. */
bauta_status bt_run_resolve(char **out, const char *folder, bauta_error *err);

/* ---- run_lock.c ---------------------------------------------------------- */

/* The lock file of a run; it exists while a program holds the run. */
#define BT_RUN_LOCK ".bauta.lock"

/* ---- checkpoint_files.c -------------------------------------------------- */

/* The names of tokenizer files in a model folder; NULL after the last. */
extern const char *const bt_tokenizer_names[];
/* Whether a name is a temporary one: ".bauta-<number>-<number><ending>". */
bool bt_is_temporary_name(const char *name, const char *ending);
/* Remove the folder `name` in an open folder, if bauta wrote everything in it.
 * A missing folder is not an error. `path` is its name in errors. */
bauta_status bt_checkpoint_remove(int parent, const char *name,
                                  const char *path, bauta_error *err);

/* The trainer.json of a folder, for json_decref(); NULL if there is none. */
bauta_status bt_trainer_record_open(json_t **out, const char *folder,
                                    bauta_error *err);
/* Compare a digest with the stored one of this key; a missing one passes.
 * `file` is named in the error. */
bauta_status bt_digest_check(const json_t *digests, const char *key,
                             uint64_t is, const char *folder, const char *file,
                             bauta_error *err);
/* Check the tokenizer files of a checkpoint that have a digest. */
bauta_status bt_tokenizer_files_check(const char *folder, bauta_error *err);

#endif
