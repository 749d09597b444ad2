/* SPDX-License-Identifier: Apache-2.0 */
/* run_metrics.c - writing metrics.jsonl. */
#include "train/run_metrics.h"

#include "base/error.h"
#include "base/memory.h"
#include "formats/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char metrics_name[] = "metrics.jsonl";

struct bt_run_metrics {
    const bauta_run *run;
    FILE *file;
};

/* ---- resuming ---------------------------------------------------------- */

/* Whether a line belongs to a step up to `step`. Every line begins with its
 * step. */
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
static int old_open(FILE **out, const bauta_run *run)
{
    struct stat is;
    int fd = openat(run->folder, metrics_name,
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

/* The file created here is continued, even if its name is taken by another
 * one. */
static bauta_status begin(bt_run_metrics *m, size_t step, bauta_error *err)
{
    FILE *from = NULL;
    bool good = old_open(&from, m->run) == 0 &&
                (m->file = bt_run_draft(m->run, metrics_name)) &&
                (!from || lines_copy(from, m->file, step) == 0) &&
                bt_run_commit(m->run, m->file, metrics_name) == 0;
    bauta_status status =
        good ? BAUTA_OK : bt_run_fail(m->run, metrics_name, err);
    if (from)
        fclose(from);
    return status;
}

bauta_status bt_run_metrics_open(bt_run_metrics **out, const bauta_run *run,
                                 size_t step, bauta_error *err)
{
    bt_run_metrics *m = bt_alloc_zero(1, sizeof(*m));
    *out = NULL;
    if (!m)
        return bt_fail_memory(err, "metrics", sizeof(*m));
    m->run = run;
    bauta_status status = begin(m, step, err);
    if (status)
        (void)bt_run_metrics_close(m, NULL);
    else
        *out = m;
    return status;
}

bauta_status bt_run_metrics_close(bt_run_metrics *m, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (m && m->file && fclose(m->file))
        status = bt_run_fail(m->run, metrics_name, err);
    bt_free(m);
    return status;
}

/* ---- lines ------------------------------------------------------------- */

/* JSON has neither NaN nor infinity. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bauta_status line_write(bt_run_metrics *m, json_t *entry,
                               bauta_error *err)
{
    char *line = entry ? bt_json_dump(entry, JSON_COMPACT) : NULL;
    json_decref(entry);
    if (!line)
        return bt_fail_memory(err, "a line of metrics", 0);
    bool good = fprintf(m->file, "%s\n", line) > 0 && fflush(m->file) == 0;
    bt_free(line);
    return good ? BAUTA_OK : bt_run_fail(m->run, metrics_name, err);
}

bauta_status bt_run_metrics_step(bt_run_metrics *m, const bauta_train_report *r,
                                 double seconds, bauta_error *err)
{
    return line_write(
        m,
        json_pack("{s:I, s:I, s:o, s:o, s:f, s:I, s:I, s:b, s:f}", "step",
                  (json_int_t)r->step, "epoch", (json_int_t)r->epoch, "loss",
                  number(r->loss), "gradient_norm", number(r->grad_norm),
                  "learning_rate", r->learning_rate, "predicted",
                  (json_int_t)r->counted, "tokens", (json_int_t)r->tokens,
                  "taken", (int)r->updated, "seconds", seconds),
        err);
}

bauta_status bt_run_metrics_evaluation(bt_run_metrics *m,
                                       const bauta_run_evaluation *e,
                                       bauta_error *err)
{
    return line_write(
        m,
        json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)e->step,
                  "valid_loss", number(e->loss), "valid_perplexity",
                  number(exp(e->loss)), "predicted", (json_int_t)e->counted),
        err);
}
