/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_metrics.c - any bytes as the metrics.jsonl of a run that is resumed at
 * step 10.
 *
 * The file is refused with a message, or the remaining lines are whole, in
 * order, and none is of a later step. */
#include "temp_folder.h"
#include "train/run_metrics.h"

enum { STEP = 10 };

/* Where a line of the file lies in the rest of the input; NULL: nowhere. */
static const char *line_find(const char *line, size_t length, const char *in,
                             const char *end)
{
    while (in < end) {
        const char *stop = memchr(in, '\n', (size_t)(end - in));
        stop = stop ? stop + 1 : end;
        if ((size_t)(stop - in) == length && !memcmp(in, line, length))
            return in;
        in = stop;
    }
    return NULL;
}

static void step_check(const char *line)
{
    json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(entry, "step");
    must(!step || json_integer_value(step) <= STEP);
    json_decref(entry);
}

static void lines_check(const uint8_t *bytes, size_t size)
{
    const char *at = (const char *)bytes, *end = at + size;
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(temp_folder_path("metrics.jsonl"), "r");
    must(file != NULL);
    for (ssize_t n; (n = getline(&line, &room, file)) >= 0; at += n) {
        at = line_find(line, (size_t)n, at, end);
        must(at != NULL);
        step_check(line);
    }
    free(line);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    bt_run_metrics *metrics = NULL;
    bauta_run *run = NULL;
    bauta_error err = { 0 };
    if (!temp_folder_make())
        temp_folder_clear("");
    temp_folder_put("metrics.jsonl", bytes, size);
    must(!bauta_run_open(&run, temp_folder_root, false, &err));
    bauta_status status = bt_run_metrics_open(&metrics, run, STEP, &err);
    if (status)
        must_refuse(status, &err);
    else if (!bt_run_metrics_close(metrics, &err))
        lines_check(bytes, size);
    bauta_run_free(run);
    return 0;
}
