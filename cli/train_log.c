/* SPDX-License-Identifier: Apache-2.0 */
/* train_log.c - bauta train: metrics.jsonl, and the same scalars for
 * TensorBoard. */
#include "cli.h"
#include "json_output.h"
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char metrics_name[] = "metrics.jsonl";

struct train_log {
    const run_folder *folder;
    FILE *file;
    events *events;
};

static int log_failed(const train_log *log)
{
    return folder_failed(log->folder, metrics_name);
}

/* Whether a line belongs to a step up to `step`; later ones are void when a run
 * is resumed. Every line begins with its step. */
static bool line_kept(const char *line, size_t step)
{
    static const char start[] = "{\"step\":";
    const char *digits = line + sizeof(start) - 1;
    if (strncmp(line, start, sizeof(start) - 1) != 0)
        return false;
    size_t count = strspn(digits, "0123456789");
    return count > 0 && count < 19 && digits[count] == ',' &&
           strtoull(digits, NULL, 10) <= step;
}

/* Lines written here are far shorter. */
enum { LINE_MAX_BYTES = 4096 };

static int lines_copy(FILE *from, FILE *to, size_t step)
{
    char line[LINE_MAX_BYTES];
    bool whole = true; // the previous part ended a line
    while (fgets(line, sizeof(line), from)) {
        bool ends = strchr(line, '\n') != NULL;
        bool kept = whole && ends && line_kept(line, step);
        whole = ends;
        if (kept && fputs(line, to) < 0)
            return -1;
    }
    return ferror(from) ? -1 : 0;
}

/* Open the existing file, which must be regular and no link; *out is NULL if
 * there is none. */
static int old_open(FILE **out, const run_folder *f)
{
    struct stat is;
    int fd = openat(f->fd, metrics_name,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *out = NULL;
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    bool good = fstat(fd, &is) == 0 && S_ISREG(is.st_mode);
    if (!good)
        errno = EINVAL;
    if (good && (*out = fdopen(fd, "r")))
        return 0;
    close(fd);
    return -1;
}

/* Atomically replace the file by its lines up to `step`. The log continues in
 * the file created here, even if its name is taken by another one. */
static int log_begin(train_log *log, size_t step)
{
    const run_folder *f = log->folder;
    FILE *from = NULL;
    bool good = old_open(&from, f) == 0 &&
                (log->file = folder_draft(f, metrics_name)) &&
                (!from || lines_copy(from, log->file, step) == 0) &&
                folder_commit(f, log->file, metrics_name) == 0;
    int failed = good ? CLI_OK : log_failed(log);
    if (from)
        fclose(from);
    return failed;
}

int log_open(train_log **out, const run_folder *f, size_t step)
{
    train_log *log = calloc(1, sizeof(*log));
    *out = log;
    if (!log)
        return cli_fail(VERB, "out of memory");
    log->folder = f;
    int failed = log_begin(log, step);
    if (failed)
        return failed;
    log->events = events_open(f, step);
    if (!log->events)
        return cli_fail(VERB, "%s: cannot write TensorBoard's events: %s",
                        f->path, strerror(errno));
    return CLI_OK;
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
                                  { "train/gradient_norm", r->grad_norm },
                                  { "train/learning_rate", r->learning_rate },
                                  { "train/tokens_per_second", speed } };
    int failed = line_write(
        log, json_pack("{s:I, s:I, s:o, s:o, s:f, s:I, s:I, s:b, s:f}", "step",
                       (json_int_t)r->step, "epoch", (json_int_t)r->epoch,
                       "loss", json_number(r->loss), "gradient_norm",
                       json_number(r->grad_norm), "learning_rate",
                       r->learning_rate, "predicted", (json_int_t)r->counted,
                       "tokens", (json_int_t)r->tokens, "taken",
                       (int)r->updated, "seconds", seconds));
    return failed
               ? failed
               : events_add(log, r->step, list, sizeof(list) / sizeof(list[0]));
}

int log_valid(train_log *log, size_t step, double loss, size_t counted)
{
    const event_scalar list[] = { { "valid/loss", loss },
                                  { "valid/perplexity", exp(loss) } };
    int failed = line_write(
        log,
        json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)step,
                  "valid_loss", json_number(loss), "valid_perplexity",
                  json_number(exp(loss)), "predicted", (json_int_t)counted));
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
