/* SPDX-License-Identifier: Apache-2.0 */
/* run_progress.c - the progress of a run in the notes of its checkpoints. */
#include "base/error.h"
#include "base/memory.h"
#include "formats/json.h"
#include "train/run_loop.h"

#include <math.h>
#include <string.h>

bauta_status bt_run_progress_read(bt_run_progress *progress,
                                  const bauta_run *run, size_t step,
                                  bauta_error *err)
{
    json_t *record = NULL;
    *progress = (bt_run_progress){ .best = INFINITY };
    if (!step || !bt_run_has_checkpoint(run->folder, step))
        return BAUTA_OK;
    char *path = bt_run_checkpoint_path(run->path, step);
    bauta_status status = path ? bt_trainer_record_open(&record, path, err)
                               : bt_fail_memory(err, "the name of a folder", 0);
    bt_free(path);
    const json_t *notes = json_object_get(record, "notes");
    const json_t *best = json_object_get(notes, "best");
    if (json_is_number(best))
        progress->best = json_number_value(best);
    progress->best_step =
        (size_t)json_integer_value(json_object_get(notes, "best_step"));
    progress->stale =
        (size_t)json_integer_value(json_object_get(notes, "stale"));
    json_decref(record);
    return status;
}

static bool progress_add(json_t *to, const bt_run_progress *p)
{
    json_t *best = p->best_step ? json_real(p->best) : json_null();
    return json_object_set_new(to, "best", best) == 0 &&
           json_object_set_new(to, "best_step",
                               json_integer((json_int_t)p->best_step)) == 0 &&
           json_object_set_new(to, "stale",
                               json_integer((json_int_t)p->stale)) == 0;
}

bauta_status bt_run_notes(char **out, const char *notes,
                          const bt_run_progress *progress, bauta_error *err)
{
    json_t *all = NULL;
    bauta_error why;
    const char *from = notes ? notes : "{}";
    *out = NULL;
    bauta_status status =
        bt_json_parse_object(&all, from, strlen(from), 0, "the notes", &why);
    if (status)
        return bt_fail(err,
                       status == BAUTA_ERR_NOMEM ? status : BAUTA_ERR_ARGUMENT,
                       "the notes are not a JSON object: %.180s", why.message);
    if (progress_add(all, progress))
        *out = bt_json_dump(all, JSON_COMPACT);
    json_decref(all);
    return *out ? BAUTA_OK : bt_fail_memory(err, "notes", strlen(from));
}
