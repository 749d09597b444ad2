/* SPDX-License-Identifier: Apache-2.0 */
/* train_log.c - bauta train: metrics.jsonl, and the same for TensorBoard. */
#include "cli.h"
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct train_log {
    FILE *file;
    events *events;
    char path[4096];
};

static int log_failed(const train_log *log)
{
    return cli_fail(VERB, "%s: cannot write it: %s", log->path,
                    strerror(errno));
}

/* Lines of steps that a resumed run has yet to take are not true any more. */
static bool line_kept(const char *line, size_t step)
{
    json_t *entry = json_loads(line, 0, NULL);
    const json_t *at = json_object_get(entry, "step");
    bool kept = json_is_integer(at) && json_integer_value(at) >= 0 &&
                (size_t)json_integer_value(at) <= step;
    json_decref(entry);
    return kept;
}

static int lines_copy(FILE *from, FILE *to, size_t step)
{
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    while (good && getline(&line, &room, from) >= 0)
        if (line_kept(line, step))
            good = fputs(line, to) >= 0;
    free(line);
    return good && !ferror(from) ? 0 : -1;
}

/* Cut back to a step, in one step: the old file is there until the new one
 * is. */
static int log_cut(train_log *log, size_t step)
{
    char draft[4200];
    snprintf(draft, sizeof(draft), "%s.new", log->path);
    FILE *from = fopen(log->path, "r");
    FILE *to = from ? fopen(draft, "w") : NULL;
    if (!from && errno == ENOENT)
        return CLI_OK;
    int bad = !to || lines_copy(from, to, step);
    if (from)
        fclose(from);
    if (to && fclose(to))
        bad = 1;
    if (!bad && rename(draft, log->path) == 0)
        return CLI_OK;
    int failed = log_failed(log);
    remove(draft);
    return failed;
}

int log_open(train_log **out, const char *run, size_t step)
{
    train_log *log = calloc(1, sizeof(*log));
    *out = log;
    if (!log)
        return cli_fail(VERB, "out of memory");
    snprintf(log->path, sizeof(log->path), "%s/metrics.jsonl", run);
    int failed = log_cut(log, step);
    if (failed)
        return failed;
    log->file = fopen(log->path, "a");
    if (!log->file)
        return log_failed(log);
    log->events = events_open(run, step);
    if (!log->events)
        return cli_fail(VERB, "%s: cannot write TensorBoard's events: %s", run,
                        strerror(errno));
    return CLI_OK;
}

/* JSON has no NaN. */
static json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int line_write(train_log *log, json_t *entry)
{
    char *line = entry ? json_dumps(entry, JSON_COMPACT) : NULL;
    json_decref(entry);
    if (!line)
        return cli_fail(VERB, "out of memory");
    bool good = fprintf(log->file, "%s\n", line) > 0 && fflush(log->file) == 0;
    free(line);
    return good ? CLI_OK : log_failed(log);
}

static int events_add(train_log *log, size_t step, const event_scalar *list,
                      size_t count)
{
    if (events_write(log->events, step, list, count))
        return CLI_OK;
    return cli_fail(VERB, "cannot write TensorBoard's events: %s",
                    strerror(errno));
}

int log_step(train_log *log, const bauta_train_report *r, double seconds)
{
    double speed = seconds > 0.0 ? (double)r->tokens / seconds : 0.0;
    const event_scalar list[] = { { "train/loss", r->loss },
                                  { "train/gradient_norm", r->norm },
                                  { "train/learning_rate", r->rate },
                                  { "train/tokens_per_second", speed } };
    int failed = line_write(
        log,
        json_pack("{s:I, s:I, s:o, s:o, s:f, s:I, s:I, s:b, s:f}", "step",
                  (json_int_t)r->step, "epoch", (json_int_t)r->epoch, "loss",
                  real_json(r->loss), "gradient_norm", real_json(r->norm),
                  "learning_rate", r->rate, "predicted", (json_int_t)r->counted,
                  "tokens", (json_int_t)r->tokens, "taken", (int)r->taken,
                  "seconds", seconds));
    return failed
               ? failed
               : events_add(log, r->step, list, sizeof(list) / sizeof(list[0]));
}

int log_valid(train_log *log, size_t step, double loss, size_t counted)
{
    const event_scalar list[] = { { "valid/loss", loss },
                                  { "valid/perplexity", exp(loss) } };
    int failed = line_write(
        log, json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)step,
                       "valid_loss", real_json(loss), "valid_perplexity",
                       real_json(exp(loss)), "predicted", (json_int_t)counted));
    return failed ? failed : events_add(log, step, list, 2);
}

int log_close(train_log *log)
{
    int failed = CLI_OK;
    if (!log)
        return CLI_OK;
    if (log->file && fclose(log->file))
        failed = log_failed(log);
    if (!events_close(log->events) && !failed)
        failed = cli_fail(VERB, "cannot write TensorBoard's events: %s",
                          strerror(errno));
    free(log);
    return failed;
}
