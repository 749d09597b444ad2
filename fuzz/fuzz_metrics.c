/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_metrics.c - any bytes as the metrics.jsonl of a run that is resumed at
 * step 10.
 *
 * The file is cut back to lines of steps up to that one, or refused with a
 * sentence and as it was. */
#include "cli/train.h"
#include "scratch.h"

enum { STEP = 10 };

static void line_check(const char *line)
{
    json_t *entry = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(entry, "step");
    must(json_is_integer(step) && json_integer_value(step) >= 0 &&
         json_integer_value(step) <= STEP);
    json_decref(entry);
}

static void lines_check(size_t size)
{
    char *line = NULL;
    size_t room = 0, all = 0;
    FILE *file = fopen(scratch_path("metrics.jsonl"), "r");
    must(file != NULL);
    for (ssize_t n; (n = getline(&line, &room, file)) >= 0; all += (size_t)n)
        line_check(line);
    must(all <= size);
    free(line);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    train_log *log = NULL;
    if (!scratch_make())
        scratch_clear("");
    scratch_put("metrics.jsonl", bytes, size);
    int status = log_open(&log, scratch_name, STEP);
    int closed = log_close(log);
    must(access(scratch_path("metrics.jsonl.new"), F_OK) != 0);
    if (!status && !closed)
        lines_check(size);
    return 0;
}
