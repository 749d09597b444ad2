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
#include <stdio.h>

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

struct bauta_run {
    char *path;
    size_t created; /* length of the first part of the path that was created
                       here; 0: the whole path existed */
    int folder, lock;
    bool locked;
    bool warned; /* that a checkpoint could not be removed */
};

/* ---- run_files.c --------------------------------------------------------- */

/* A run folder may come from an untrusted source. Everything is named relative
 * to the open folder, only new files are written, and no link is followed when
 * writing or removing. */

/* A temporary file that atomically replaces RUN/name when it is committed; it
 * stays open. NULL or -1 with errno set on failure. */
FILE *bt_run_draft(const bauta_run *run, const char *name);
int bt_run_commit(const bauta_run *run, FILE *file, const char *name);
/* "RUN/name: cannot write: <errno>". */
bauta_status bt_run_fail(const bauta_run *run, const char *name,
                         bauta_error *err);
/* Atomically make RUN/name a link to the checkpoint of a step. */
bauta_status bt_run_link(const bauta_run *run, const char *name, size_t step,
                         bauta_error *err);
/* Set the links `last` and `best` of a run that continues from checkpoint
 * `last`; it may have been killed before it set them. With a `best` of 0, or
 * one that is gone, and later checkpoints, which the link may name, `best` is
 * removed. */
bauta_status bt_run_links(const bauta_run *run, size_t last, size_t best,
                          bauta_error *err);

/* ---- run_checkpoints.c --------------------------------------------------- */

/* The name of a checkpoint. */
#define BT_STEP_NAME "step-%08zu"
/* Its path, for bt_free(); NULL when there is no memory. */
char *bt_run_checkpoint_path(const char *run, size_t step);
/* Whether an open run folder has the checkpoint: a folder, not a link, with a
 * trainer.json. A checkpoint whose removal was interrupted has none. */
bool bt_run_has_checkpoint(int folder, size_t step);
/* The steps up to `max_step` that have a checkpoint, ascending, for bt_free().
 * `path` is the name of the folder in errors. */
bauta_status bt_run_list(size_t **steps, size_t *count, int folder,
                         const char *path, size_t max_step, bauta_error *err);
/* Remove all but the last `keep` checkpoints up to `newest`, and `best`. The
 * first one that cannot be removed is an error, after the others. */
bauta_status bt_run_prune(const bauta_run *run, size_t newest, size_t keep,
                          size_t best, bauta_error *err);

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
